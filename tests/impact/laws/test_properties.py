"""What holds for every impact: hypothesis and fixed batches on random planar systems of one to four contacts.

Random and sparse mass matrices and Jacobians, planar bodies, duplicated contacts, friction up to 1e5, grazing,
resting and zero velocities. Systems are padded to one shape (inactive contacts, coordinates at rest), so that
one program serves all examples. Laws are evaluated in NumPy from v_plus and the impulse.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles import reference as ref

import jaxcontact as jc
from jaxcontact.impact import RouthStep, anitescu_potra, outcomes, resolve, routh_step
from tests.oracles import problems

NV = 9  # of all padded systems
LAW = 1e-6  # largest residual of a success
SEEDS = st.integers(0, 2**32 - 1)


class Problem:
    """`count` random systems of `m` contacts in arrays of nc >= m contacts, with draws for four steps."""

    def __init__(self, rng, m, nc, count=1, garbage=None):
        found = [problems.random_contacts(rng, m) for _ in range(count)]
        mixed = [rng.choice(problems.FRICTIONS, m) if rng.random() < 0.5 else c.mu for c in found]
        found = [c._replace(mu=mu) for c, mu in zip(found, mixed, strict=True)]
        padding = problems.Contacts(
            np.eye(NV), np.zeros((m, NV)), np.zeros((m, NV)), np.zeros(NV), np.zeros(m)
        )
        stacked = problems.stack([*found, padding])
        self.contacts = problems.Contacts(*(a[:count] for a in stacked))
        speed = np.linalg.norm(self.contacts.v, axis=1)[:, None, None]
        size = 10.0 ** rng.uniform(-2, 1, (count, 1, 1)) * np.where(speed > 0, speed, 1.0)
        self.caps = size * rng.random((count, 4, m))
        self.picks = rng.random((count, 4))
        idle = nc - m
        extra = np.zeros((count, idle, NV)) if garbage is None else garbage.normal(size=(count, idle, NV))
        c = self.contacts
        self.terms = jc.ContactTerms(
            M=jnp.asarray(c.M),
            J_n=jnp.asarray(np.concatenate([c.J_n, extra], axis=1)),
            J_t=jnp.asarray(np.concatenate([c.J_t, 2.0 * extra[..., ::-1]], axis=1))[:, :, None],
            phi=jnp.asarray(np.where(np.arange(nc) < m, 0.0, 0.5) + np.zeros((count, 1))),
            mu=jnp.asarray(np.concatenate([c.mu, np.abs(extra[..., 0])], axis=1)),
            active=jnp.asarray(np.broadcast_to(np.arange(nc) < m, (count, nc))),
        )
        self.v = jnp.asarray(c.v)
        self.padded_caps = jnp.asarray(np.pad(self.caps, ((0, 0), (0, 0), (0, idle)), constant_values=0.3))

    def energy(self, v):
        return 0.5 * np.einsum("...i,...ij,...j->...", v, self.contacts.M, v)

    def norm(self, dv):
        """|dv|_M relative to |v|_M, for one system and any batch of dv."""
        scale = np.sqrt(2 * self.energy(self.contacts.v)[0]) or 1.0
        return np.sqrt(np.einsum("...i,ij,...j->...", dv, self.contacts.M[0], dv)) / scale


def check_laws(problem, v_plus, info, *, caps=None, complementary=True):
    """Energy, momentum, cone and complementarity of every success; returns which succeeded."""
    c, m = problem.contacts, problem.caps.shape[2]
    v_plus, impulse = np.asarray(v_plus), np.asarray(info.impulse)
    ok = np.asarray(info.status) == 0
    assert not np.any(impulse[:, m:])  # inactive contacts
    impulse = impulse[:, :m]
    before, after = problem.energy(c.v), problem.energy(v_plus)
    assert np.all(after[ok] <= before[ok] * (1 + 1e-9))
    speed = np.linalg.norm(c.v, axis=1)
    given_ = np.einsum("bm,bmv->bv", impulse[..., 0], c.J_n) + np.einsum("bm,bmv->bv", impulse[..., 1], c.J_t)
    change = np.einsum("bij,bj->bi", c.M, v_plus - c.v)
    momentum = np.abs(change - given_).max(axis=1) / (np.abs(c.M).max(axis=(1, 2)) * speed + 1e-300)
    assert np.all(momentum[ok] <= 1e-8)
    limit = c.mu * impulse[..., 0]
    assert np.all(impulse[ok, :, 0] >= -LAW)
    assert np.all(((np.abs(impulse[..., 1]) - limit) / (np.abs(limit) + 1))[ok] <= LAW)
    if complementary:
        z = np.zeros((len(v_plus), 4 * m))
        z[:, :m] = impulse[..., 0]
        z[:, m : 3 * m : 2] = np.maximum(impulse[..., 1], 0)
        z[:, m + 1 : 3 * m : 2] = np.maximum(-impulse[..., 1], 0)
        residual = problems.impact_residual(c, z, np.inf if caps is None else caps)
        assert np.all(residual[ok] <= LAW)
    assert np.all(np.asarray(info.residual)[ok] <= LAW)
    return ok


def in_chunks(function, size):
    """A batched function that takes `size` systems at a time: mode tables are large."""
    return jax.jit(lambda args: jax.lax.map(lambda a: function(*a), args, batch_size=size))


SIMULTANEOUS = in_chunks(anitescu_potra, 500)
STEP = in_chunks(lambda t, v, cap, pick: routh_step(t, v, cap, pick=pick), 100)
PIVOTING = in_chunks(lambda t, v, cap: routh_step(t, v, cap, selection="lemke"), 500)
RESOLVE = in_chunks(resolve, 100)
ALL = jax.jit(jax.vmap(lambda terms, v, cap: outcomes(terms, v, RouthStep(impulse_max=cap))[0]))


# ---------------------------------------------------------------------------------------------------- any system


@pytest.mark.slow
@given(SEEDS, st.integers(1, 4))
@settings(max_examples=150, deadline=None)
def test_simultaneous_law(seed, m):
    problem = Problem(np.random.default_rng(seed), m, 4)
    v_plus, info = SIMULTANEOUS((problem.terms, problem.v))
    ok = check_laws(problem, v_plus, info)
    approach = np.einsum("bmv,bv->bm", problem.contacts.J_n, np.asarray(v_plus)).min(axis=1)
    assert np.all(approach[ok] >= -1e-8 * (1 + np.linalg.norm(problem.contacts.v, axis=1)[ok]))


@pytest.mark.slow
@given(SEEDS, st.integers(1, 4), st.booleans())
@settings(max_examples=80, deadline=None)
def test_one_step(seed, m, lemke):
    problem = Problem(np.random.default_rng(seed), m, 4 if lemke or m > 2 else 2)
    caps = problem.padded_caps[:, 0]
    if lemke:
        v_plus, info = PIVOTING((problem.terms, problem.v, caps))
    else:
        v_plus, info = STEP((problem.terms, problem.v, caps, jnp.asarray(problem.picks[:, 0])))
    check_laws(problem, v_plus, info, caps=problem.caps[:, 0])


@pytest.mark.slow
@given(SEEDS, st.integers(1, 3))
@settings(max_examples=60, deadline=None)
def test_a_whole_sample(seed, m):
    problem = Problem(np.random.default_rng(seed), m, max(m, 2))
    v_plus, info = RESOLVE((problem.terms, problem.v, problem.padded_caps, jnp.asarray(problem.picks)))
    ok = check_laws(problem, v_plus, info, complementary=False)
    c = problem.contacts
    approach = -np.einsum("bmv,bv->bm", c.J_n, np.asarray(v_plus))
    fastest = np.max(-np.einsum("bmv,bv->bm", c.J_n, c.v), axis=1, initial=0.0)
    size = np.sqrt(np.einsum("bmv,bvm->bm", c.J_n, np.linalg.solve(c.M, np.swapaxes(c.J_n, 1, 2))))
    round_off = np.finfo(float).eps ** 0.65 * np.sqrt(2 * problem.energy(c.v))
    left = approach - np.maximum(1e-8 * fastest[:, None], size * round_off[:, None]) * (1 + 1e-6)
    assert np.all(left[ok] <= 0)
    unterminated = (np.asarray(info.status) & int(jc.Status.UNTERMINATED)) != 0
    assert np.all(np.any(left[unterminated] >= -1e-6 * approach[unterminated], axis=1))
    assert np.all(np.asarray(info.num_iters)[unterminated] == 4)


@pytest.mark.slow
@given(SEEDS, st.integers(1, 2))
@settings(max_examples=100, deadline=None)
def test_all_solutions_of_a_step(seed, m):
    """Valid, distinct, and every solution of the reference, which enumerates LCP index sets.

    Where solutions form a continuum both return its vertices, so no example has to be excluded.
    """
    problem = Problem(np.random.default_rng(seed), m, 2)
    c, cap = problem.contacts, problem.caps[0, 0]
    v_next, valid = ALL(problem.terms, problem.v, problem.padded_caps[:, 0])
    found = np.asarray(v_next)[0][np.asarray(valid)[0]]
    expected = ref.step_solutions(c.M[0], c.J_n[0], c.J_t[0], c.mu[0], c.v[0], cap)[0]
    assert len(found) > 0
    gap = problem.norm(found[:, None] - found[None])
    assert np.all(gap[np.triu_indices(len(found), 1)] > 1e-7)
    gap = problem.norm(expected[:, None] - found[None])
    assert gap.min(axis=1).max() <= 1e-6  # nothing is missed
    assert gap.min(axis=0).max() <= 1e-6  # nothing else is found


@pytest.mark.slow
@given(SEEDS, st.integers(1, 3))
@settings(max_examples=60, deadline=None)
def test_inactive_contacts_have_no_influence(seed, m):
    """Whatever their rows, friction and caps: neither with all modes nor by pivoting."""
    clean = Problem(np.random.default_rng(seed), m, 4)
    dirty = Problem(np.random.default_rng(seed), m, 4, garbage=np.random.default_rng(seed + 1))
    size = np.abs(clean.contacts.v).max()
    for law, arguments in (
        (SIMULTANEOUS, lambda p: (p.terms, p.v)),
        (PIVOTING, lambda p: (p.terms, p.v, p.padded_caps[:, 0])),
    ):
        plain, plain_info = law(arguments(clean))
        other, other_info = law(arguments(dirty))
        np.testing.assert_allclose(plain, other, rtol=0, atol=1e-9 * size)
        assert np.array_equal(plain_info.status, other_info.status)
    if m <= 2:
        few = Problem(np.random.default_rng(seed), m, 2)
        more = Problem(np.random.default_rng(seed), m, 3, garbage=np.random.default_rng(seed + 1))
        sets = []
        for problem in (few, more):
            v_next, valid = ALL(problem.terms, problem.v, problem.padded_caps[:, 0])
            sets.append(np.asarray(v_next)[0][np.asarray(valid)[0]])
        assert len(sets[0]) == len(sets[1])
        gap = few.norm(sets[0][:, None] - sets[1][None])
        assert gap.min(axis=1).max() <= 1e-8
        assert gap.min(axis=0).max() <= 1e-8


# -------------------------------------------------------------------------------------------------- fixed batches


@pytest.mark.slow_cases("1", "2", "3", "4")
@pytest.mark.parametrize("m", [1, 2, 3, 4])
def test_the_simultaneous_law_succeeds_on_99_percent(m):
    problem = Problem(np.random.default_rng(m), m, 4, count=500)
    ok = check_laws(problem, *SIMULTANEOUS((problem.terms, problem.v)))
    assert np.mean(ok) >= 0.99


@pytest.mark.slow_cases("2-1000")
@pytest.mark.parametrize(
    ("m", "count"),
    [pytest.param(1, 1000, marks=pytest.mark.slow), (2, 1000), pytest.param(3, 150, marks=pytest.mark.slow)],
)
def test_steps_and_samples_succeed_on_99_percent(m, count):
    problem = Problem(np.random.default_rng(10 + m), m, max(m, 2), count=count)
    caps, picks = problem.padded_caps, jnp.asarray(problem.picks)
    v_next, info = STEP((problem.terms, problem.v, caps[:, 0], picks[:, 0]))
    ok = check_laws(problem, v_next, info, caps=problem.caps[:, 0])
    assert np.mean(ok) >= 0.99
    if m == 3:
        return  # whole samples of three contacts: in `test_a_whole_sample`
    v_next, info = RESOLVE((problem.terms, problem.v, caps, picks))
    check_laws(problem, v_next, info, complementary=False)
    failed = np.asarray(info.status) & ~np.uint32(int(jc.Status.UNTERMINATED))
    assert np.mean(failed == 0) >= 0.99


@pytest.mark.slow_cases("2", "4")
@pytest.mark.parametrize("m", [2, 4])
def test_pivoting_steps_succeed_on_99_percent(m):
    problem = Problem(np.random.default_rng(20 + m), m, 4, count=1000)
    v_next, info = PIVOTING((problem.terms, problem.v, problem.padded_caps[:, 0]))
    ok = check_laws(problem, v_next, info, caps=problem.caps[:, 0])
    assert np.mean(ok) >= 0.99


@pytest.mark.slow
def test_solutions_of_a_step_are_distinct_in_a_batch():
    for m, count in ((2, 600), (3, 40)):
        problem = Problem(np.random.default_rng(30 + m), m, m, count=count)
        v_next, valid = (np.asarray(a) for a in ALL(problem.terms, problem.v, problem.padded_caps[:, 0]))
        assert np.all(valid.any(axis=1))
        for k in range(count):
            found, M = v_next[k][valid[k]], problem.contacts.M[k]
            dv = found[:, None] - found[None]
            gap = np.sqrt(np.einsum("abi,ij,abj->ab", dv, M, dv))
            size = np.sqrt(2 * problem.energy(problem.contacts.v)[k])
            assert np.all(gap[np.triu_indices(len(found), 1)] > 1e-7 * size)
