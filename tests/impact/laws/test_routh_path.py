"""The limit of small steps with given rates: where it ends, that steps converge to it, its derivative."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from oracles import reference as ref

import jaxcontact as jc
from jaxcontact.impact import resolve, routh_path, sample


def model(name):
    found = getattr(jc.models, name)()
    return jc.contact_terms(found, found.initial_state()), found.initial_state().v, found


@pytest.fixture(
    scope="module", params=["box_and_wall", pytest.param("rocking_block", marks=pytest.mark.slow)]
)
def unique(request):
    """A mechanism whose steps have one solution; the box with less friction, so that it slides."""
    terms, v, found = model(request.param)
    if request.param == "box_and_wall":
        terms = terms.replace(mu=jnp.full(2, 0.2))
        v = v + jnp.array([0.0, -0.3, 0.2])
    return terms, v, found


def size(terms, dv):
    return np.sqrt(2 * ref.energy(np.asarray(terms.M), np.asarray(dv)))


def test_equal_rates_bring_the_symmetric_block_to_rest():
    terms, v, _ = model("rocking_block")
    for rate in (1.0, 1e-6, 1e6):  # only ratios matter
        v_plus, info = routh_path(terms, v, jnp.full(2, rate))
        np.testing.assert_allclose(v_plus, np.zeros(3), atol=1e-14)
        assert int(info.status) == 0
        assert float(info.energy_ratio) < 1e-28


def test_the_first_contact_at_rest_waits_for_the_other():
    """Rates (1, r): corner A stops first, B goes on; A is then thrown up by at most 0.21 v0."""
    terms, v, _ = model("rocking_block")
    lifted = []
    for r in (0.0625, 0.25, 0.5, 0.999):
        v_plus, info = routh_path(terms, v, jnp.array([1.0, r]))
        u_n = np.asarray(terms.J_n @ v_plus)
        assert int(info.status) == 0
        assert abs(u_n[1]) < 1e-14
        lifted.append(u_n[0] / -float(v[1]))
    assert 0.21 > lifted[0] > lifted[1] > lifted[2] > lifted[3] > 0


@pytest.mark.slow
def test_a_contact_without_rate_keeps_approaching():
    terms, v, _ = model("rocking_block")
    v_plus, info = routh_path(terms, v, jnp.array([1.0, 0.0]))
    assert int(info.status) == int(jc.Status.UNTERMINATED)
    u_n = np.asarray(terms.J_n @ v_plus)
    assert abs(u_n[0]) < 1e-14
    assert u_n[1] < -0.1
    assert np.array_equal(info.impulse[1], np.zeros(2))
    _, info = routh_path(terms, v, jnp.array([1.0, 0.5]), max_events=1)
    assert int(info.status) == int(jc.Status.UNTERMINATED)


def test_nothing_approaches_nothing_happens():
    terms, v, _ = model("rocking_block")
    for away in (-v, jnp.zeros(3)):
        v_plus, info = routh_path(terms, away, jnp.ones(2))
        assert np.array_equal(v_plus, away)
        assert (int(info.status), int(info.num_iters)) == (0, 0)


@pytest.mark.slow
def test_the_path_is_made_of_its_phases():
    """Rates that change: the same as to stop there and go on, for the impulse taken says when."""
    terms, v, _ = model("box_and_wall")
    terms = terms.replace(mu=jnp.full(2, 0.2))
    rates = jnp.array([[1.0, 0.3], [0.2, 1.0], [1.0, 1.0]])
    until = jnp.array([0.3, 0.55])
    v_plus, info = routh_path(terms, v, rates, until=until)
    assert int(info.status) == 0
    s = np.asarray(info.path_impulse[..., 0].sum(-1))
    count = int(info.num_iters)
    assert np.all(np.diff(s[: count + 1]) > 0) and np.all(s[count:] == s[count])
    np.testing.assert_allclose(info.path[0], v)
    np.testing.assert_allclose(info.path[-1], v_plus)
    np.testing.assert_allclose(info.path_impulse[-1], info.impulse)
    at = v
    for k in range(3):
        _, one = routh_path(terms, at, rates[k])
        taken = np.asarray(one.path_impulse[..., 0].sum(-1))
        span = [0.3, 0.25, taken[-1]][k]
        at = jnp.asarray([np.interp(span, taken, np.asarray(one.path)[:, i]) for i in range(3)])
        if k < 2:
            place = np.flatnonzero(np.isclose(s, until[k], rtol=1e-12))
            np.testing.assert_allclose(info.path[place[0]], at, atol=1e-13)
    np.testing.assert_allclose(at, v_plus, atol=1e-13)
    # Rates that stay, in any unit, change nothing; phases after the end do not matter.
    same, _ = routh_path(terms, v, rates[:1] * jnp.array([[1.0], [5.0], [1e-3]]), until=until)
    np.testing.assert_allclose(same, routh_path(terms, v, rates[0])[0], atol=1e-13)
    late, info = routh_path(terms, v, rates, until=jnp.array([50.0, 60.0]))
    np.testing.assert_allclose(late, routh_path(terms, v, rates[0])[0], atol=1e-13)


def one_contact(mu):
    """A slender rod that touches at one end: normal and tangential motion push each other."""
    terms = jc.ContactTerms(
        M=jnp.diag(jnp.array([1.0, 1.0, 0.1])), J_n=jnp.array([[0.0, 1.0, -1.0]]),
        J_t=jnp.array([[[1.0, 0.0, 0.3]]]), phi=jnp.zeros(1), mu=jnp.array([mu]), active=jnp.ones(1, bool),
    )  # fmt: skip
    J = np.stack([np.asarray(terms.J_n)[0], np.asarray(terms.J_t)[0, 0]])
    return terms, J, J @ np.linalg.solve(np.asarray(terms.M), J.T)


@pytest.mark.long
@pytest.mark.parametrize(("mu", "u_t", "end"), [(0.5, 0.3, -1), (2.5, 0.3, 0), (0.05, 0.9, 1)])
def test_one_contact_slides_sticks_or_reverses_as_in_closed_form(mu, u_t, end):
    """Lemma 2 and Fig. 3: u' = u + D lam with D = ((a, b), (b, c)).

    Sliding with u_t > 0 goes on at the rates a - mu b and b - mu c. Where u_t reaches zero it sticks if
    |b| <= mu c, else reverses and goes on at a + mu b, b + mu c. It ends where u_n = 0.
    """
    terms, J, D = one_contact(mu)
    (a, b), (_, c) = D
    u = np.array([-2.0, u_t])
    v = jnp.asarray(np.linalg.solve(terms.M, J.T) @ np.linalg.solve(D, u))
    v_plus, info = routh_path(terms, v, jnp.ones(1), max_events=8)
    assert int(info.status) == 0
    s_stop = u[1] / (mu * c - b)
    s_end = -u[0] / (a - mu * b)
    corners = [(0.0, u)]
    if s_stop < s_end:
        u_stop = u + s_stop * np.array([a - mu * b, b - mu * c])
        corners.append((s_stop, np.array([u_stop[0], 0.0])))
        lam_t = -b / c if abs(b) <= mu * c else mu
        s_end = s_stop - u_stop[0] / (a + lam_t * b)
        corners.append((s_end, np.array([0.0, (s_end - s_stop) * (b + lam_t * c)])))
    else:
        corners.append((s_end, np.array([0.0, u[1] + s_end * (b - mu * c)])))
    assert int(info.num_iters) == len(corners) - 1
    path = np.asarray(info.path)[: len(corners)] @ J.T
    np.testing.assert_allclose(path, [at for _, at in corners], atol=1e-13)
    np.testing.assert_allclose(info.path_impulse[: len(corners), 0, 0], [s for s, _ in corners], atol=1e-13)
    assert np.sign(np.round(corners[-1][1][1], 12)) == end
    # Lemma 2: over within kappa |v|, kappa = 1 / (eps min(mu, 1)), eps |R^T v| <= |J_n v| + |J_t v| in M = 1.
    factor = np.linalg.cholesky(terms.M)
    angles = np.linspace(0, 2 * np.pi, 721)
    unit = np.linalg.qr(np.linalg.solve(factor, J.T))[0] @ np.stack([np.cos(angles), np.sin(angles)])
    epsilon = np.min(np.abs(J @ np.linalg.solve(factor.T, unit)).sum(axis=0))
    assert s_end <= np.linalg.norm(factor.T @ v) / (epsilon * min(mu, 1.0)) * (1 + 1e-4)


@pytest.mark.slow
def test_rates_far_apart_make_no_energy():
    """The modes of the next piece are told apart whatever the unit of the rates that count in it."""
    terms, v, _ = model("compass_gait")
    rates = 10.0 ** -jnp.asarray(np.random.default_rng(4).uniform(0, 12, (500, 2)))
    _, info = jax.vmap(lambda r: routh_path(terms, v, r, max_events=16))(rates)
    path = np.asarray(info.path)
    energy = np.einsum("nki,ij,nkj->nk", path, terms.M, path)
    assert np.max(np.diff(energy, axis=1)) < 1e-12
    assert np.mean(np.asarray(info.status) == 0) > 0.4


@pytest.mark.slow
def test_steps_converge_to_it_with_order_one(unique):
    """Error of steps with impulse_max = r h, averaged over rates: at most C h, and proportional to h."""
    terms, v, found = unique
    rng = np.random.default_rng(0)
    rates = jnp.asarray(np.stack([np.ones(8), rng.uniform(0.3, 0.9, 8)], axis=1))
    rates = jnp.concatenate([rates, rates[:, ::-1]])
    limit, info = jax.vmap(lambda r: routh_path(terms, v, r))(rates)
    assert not np.any(info.status)
    assert np.max(info.energy_ratio) < 1.0
    assert set(np.asarray(info.num_iters).tolist()) != {1}
    errors = []
    for h in (0.04, 0.01):
        steps = int(3.0 / h)

        def run(r, h=h, steps=steps):
            return resolve(terms, v, h * jnp.broadcast_to(r, (steps, 2)), jnp.zeros(steps))

        v_plus, taken = jax.jit(jax.vmap(run))(rates)
        assert not np.any(taken.status)
        errors.append(size(terms, v_plus - limit))
        assert errors[-1].max() <= 0.5 * h
    assert 3.0 < errors[0].mean() / errors[1].mean() < 5.5  # 4 for order one


@pytest.mark.slow_cases("box_and_wall")
def test_it_is_a_member_of_the_sampled_set(unique):
    terms, v, found = unique
    step = {0.3: 0.3, 2.0: 0.5}[found.impulse_step]
    samples = sample(terms, v, jc.impact.Routh(impulse_step=step, max_steps=40), num_samples=2**12)
    ok = np.asarray(samples.status) == 0
    rates = jnp.asarray(np.random.default_rng(1).uniform(0.3, 1.0, (10, 2)))
    limit, info = jax.vmap(lambda r: routh_path(terms, v, r))(rates)
    assert not np.any(info.status)
    gap = np.asarray(limit)[:, None] - np.asarray(samples.v_plus)[None, ok]
    assert size(terms, gap).min(axis=1).max() < 0.01 * size(terms, v)


@pytest.mark.slow
def test_impulse_energy_and_momentum_of_the_disks():
    terms, v, _ = model("disk_stack")
    rates = jnp.asarray(np.random.default_rng(2).uniform(0.2, 1.0, (4, 5)))
    for r in rates:
        v_plus, info = routh_path(terms, v, r)
        assert int(info.status) == 0
        assert int(info.num_iters) > 2
        assert float(info.residual) < 1e-9
        assert np.asarray(terms.J_n @ v_plus).min() > -1e-8
        assert float(info.energy_ratio) < 0.2
        lam, mu = np.asarray(info.impulse), np.asarray(terms.mu)
        assert lam[:, 0].min() >= -1e-14
        assert np.all(np.abs(lam[:, 1]) <= mu * lam[:, 0] + 1e-12)
        given_ = terms.J_n.T @ lam[:, 0] + terms.J_t[:, 0].T @ lam[:, 1]
        np.testing.assert_allclose(terms.M @ (v_plus - v), given_, atol=1e-12)
    v_plus, info = routh_path(terms, v, jnp.ones(5))
    mirror = np.kron([[0, 1, 0], [1, 0, 0], [0, 0, 1]], np.diag([-1.0, 1.0, -1.0]))
    np.testing.assert_allclose(mirror @ np.asarray(v_plus), v_plus, atol=1e-12)


@pytest.mark.slow_cases("box_and_wall")
def test_derivative_is_that_of_finite_differences(unique):
    """Forward and reverse, by velocity, rates and friction, away from kinks."""
    terms, v, _ = unique
    v = v + jnp.asarray([0.11, -0.05, 0.07])
    rates = jnp.array([1.0, 0.6])

    def law(v, rates, mu):
        return routh_path(terms.replace(mu=mu), v, rates)[0]

    point = (v, rates, terms.mu)
    forward = jax.jacfwd(law, argnums=(0, 1, 2))(*point)
    reverse = jax.jacrev(law, argnums=(0, 1, 2))(*point)
    h, jitted = 1e-6, jax.jit(law)
    for k, argument in enumerate(point):
        columns = []
        for e in np.eye(argument.size) * h:
            plus, minus = list(point), list(point)
            plus[k], minus[k] = argument + e, argument - e
            columns.append((jitted(*plus) - jitted(*minus)) / (2 * h))
        expected = np.stack(columns, axis=1)
        np.testing.assert_allclose(forward[k], expected, rtol=1e-6, atol=1e-8)
        np.testing.assert_allclose(reverse[k], forward[k], rtol=0, atol=1e-12)
    assert np.abs(np.asarray(forward[0])).max() > 0.1
    # Only the ratio of the rates matters.
    np.testing.assert_allclose(forward[1] @ rates, np.zeros(3), atol=1e-12)


@pytest.mark.slow
def test_a_loop_and_a_batch_agree(unique):
    terms, v, _ = unique
    velocities = v[None] + 0.1 * jnp.asarray(np.random.default_rng(3).normal(size=(20, 3)))
    batched, info = jax.vmap(lambda v: routh_path(terms, v, jnp.array([1.0, 0.7])))(velocities)
    for k in range(20):
        one, single = routh_path(terms, velocities[k], jnp.array([1.0, 0.7]))
        np.testing.assert_allclose(batched[k], one, rtol=0, atol=1e-13)
        assert int(info.status[k]) == int(single.status)
        assert int(info.num_iters[k]) == int(single.num_iters)


@pytest.mark.long
def test_mistakes_are_named():
    terms, v, _ = model("rocking_block")
    with pytest.raises(ValueError, match=r"rates: expected shape \(2,\)"):
        routh_path(terms, v, jnp.ones(3))
    with pytest.raises(ValueError, match=r"until: expected shape \(1,\) for rates of 2 phases"):
        routh_path(terms, v, jnp.ones((2, 2)))
    for wrong in (-1.0, jnp.nan, jnp.inf):
        with pytest.raises(ValueError, match="until: expected finite, ascending numbers >= 0"):
            routh_path(terms, v, jnp.ones((2, 2)), until=jnp.array([wrong]))
    with pytest.raises(ValueError, match="rates: expected finite numbers >= 0"):
        routh_path(terms, v, jnp.array([1.0, -1.0]))
    v_plus, info = jax.jit(routh_path)(terms, v, jnp.array([1.0, -1.0]))
    assert int(info.status) & int(jc.Status.INVALID)
    assert np.array_equal(v_plus, v)
