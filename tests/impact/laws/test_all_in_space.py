"""All solutions of a step in space: against all bases of the LCP, redundant contacts, units, derivatives."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from oracles import lcp_bases

import jaxcontact as jc
from jaxcontact.impact import anitescu_potra, routh_step
from jaxcontact.solvers import polyhedral_modes

NV = 6


def random_step(rng, nc):
    """Arrays of a random step: any rank from 2 on, weak and strong friction, small and large caps."""
    root = rng.normal(size=(NV, NV))
    seen = np.arange(NV) < rng.integers(2, NV + 1)  # the contacts act on so many coordinates
    J_n, J_t = rng.normal(size=(nc, NV)) * seen, rng.normal(size=(nc, 2, NV)) * seen
    J_n[:, 0] = np.abs(J_n[:, 0])
    mu = rng.uniform(0.1, 1.5, nc) * rng.choice([1.0, 4.0])
    cap = rng.uniform(0.0, 2.0, nc) * rng.choice([0.5, 3.0])
    return root @ root.T + 0.3 * np.eye(NV), J_n, J_t, mu, rng.normal(size=NV), cap


def as_terms(M, J_n, J_t, mu):
    nc = len(mu)
    arrays = [jnp.asarray(a) for a in (M, J_n, J_t, mu)]
    return jc.ContactTerms(
        M=arrays[0],
        J_n=arrays[1],
        J_t=arrays[2],
        mu=arrays[3],
        phi=jnp.zeros(nc),
        active=jnp.ones(nc, bool),
    )


def compare(rng, nc, k, number, laws=(False, True)):
    """How many steps had several solutions; each step as all bases of its LCP tell."""
    several = 0
    for _ in range(number):
        M, J_n, J_t, mu, v, cap = random_step(rng, nc)
        terms = as_terms(M, J_n, J_t, mu)
        for capped in laws:
            if capped:
                outcomes, valid = jc.impact.outcomes(
                    terms, jnp.asarray(v), jc.impact.RouthStep(impulse_max=jnp.asarray(cap), num_directions=k)
                )[0]
            else:
                outcomes, valid = jc.impact.outcomes(
                    terms, jnp.asarray(v), jc.impact.AnitescuPotra(num_directions=k)
                )[0]
            found = np.asarray(outcomes)[np.asarray(valid)]
            wanted = lcp_bases.solutions(M, J_n, J_t, mu, v, cap if capped else None, k)
            assert len(found) == len(wanted)
            for each in wanted:
                assert np.abs(found - each).max(axis=1).min() < 1e-9
            several += len(wanted) > 1
    return several


def test_one_contact_has_the_modes_of_its_polygon():
    assert polyhedral_modes.num_kinds(4, capped=True) == 19
    assert polyhedral_modes.num_kinds(4, capped=False) == 10
    assert polyhedral_modes.most_contacts(4) == 4 and polyhedral_modes.most_contacts(8) == 3


@pytest.mark.slow
def test_every_solution_of_one_contact_is_found(rng):
    assert compare(rng, 1, 4, 60) > 5


@pytest.mark.slow
def test_every_solution_of_two_contacts_is_found(rng):
    assert compare(rng, 2, 4, 8) >= 1


@pytest.mark.slow
@pytest.mark.parametrize("nc,k,number", [(1, 4, 600), (1, 8, 600), (2, 4, 800)])
def test_every_solution_of_many_steps_is_found(rng, nc, k, number):
    assert compare(rng, nc, k, number) > number // 50


@pytest.mark.slow
def test_every_solution_of_three_contacts_is_found(rng):
    compare(rng, 3, 4, 20, laws=(True,))


def corners(number=4):
    """The box dropped flat, on its first corners."""
    model = jc.models.box_drop_3d()
    terms = jc.contact_terms(model, model.initial_state())
    some = {name: getattr(terms, name)[:number] for name in ("J_n", "J_t", "phi", "mu", "active")}
    return terms.replace(**some), model.initial_state().v


@pytest.mark.slow
def test_solutions_meet_the_law_and_hold_what_pivoting_finds(rng):
    terms, v = corners(2)
    for _ in range(10):
        start = v + jnp.asarray(0.5 * rng.normal(size=NV))
        cap = jnp.asarray(rng.uniform(0.0, 0.3, 2))
        one, info = routh_step(terms, start, cap, selection="lemke", num_directions=4)
        (outcomes, valid), every = jc.impact.outcomes(
            terms, start, jc.impact.RouthStep(impulse_max=cap, num_directions=4)
        )
        assert int(every.status) == 0 and float(every.residual) < 1e-9 and int(info.status) == 0
        assert np.abs(np.asarray(outcomes)[np.asarray(valid)] - np.asarray(one)).max(axis=1).min() < 1e-9


@pytest.mark.slow
def test_a_step_says_that_all_solutions_were_candidates_and_picks_them_alike():
    M = np.diag([1.0, 1.0, 1.0, 0.02, 0.02, 0.02])
    rng = np.random.default_rng(3)
    while True:  # a step with several solutions
        _, J_n, J_t, mu, v, cap = random_step(rng, 1)
        terms = as_terms(M, J_n, J_t, mu)
        outcomes, valid = jc.impact.outcomes(
            terms, jnp.asarray(v), jc.impact.RouthStep(impulse_max=jnp.asarray(cap), num_directions=4)
        )[0]
        number = int(jnp.sum(valid))
        if number > 1:
            break
    taken = set()
    for pick in (np.arange(number) + 0.5) / number:
        one, info = routh_step(terms, jnp.asarray(v), jnp.asarray(cap), pick=float(pick), num_directions=4)
        assert info.complete and int(info.status) == 0
        taken.add(int(np.argmin(np.abs(np.asarray(outcomes[:number]) - np.asarray(one)).max(axis=1))))
    assert taken == set(range(number))


@pytest.mark.long
def test_outcomes_do_not_depend_on_units():
    terms, v = corners(2)
    start, cap = v + jnp.array([0.0, 0.3, 0.0, 1.0, -0.5, 2.0]), jnp.array([0.1, 0.15])
    plain, valid = jc.impact.outcomes(terms, start, jc.impact.RouthStep(impulse_max=cap, num_directions=4))[0]
    for mass, speed in ((1e6, 1e-3), (1e-6, 1e4)):
        scaled = terms.replace(M=terms.M * mass)
        found, good = jc.impact.outcomes(
            scaled, start * speed, jc.impact.RouthStep(impulse_max=cap * mass * speed, num_directions=4)
        )[0]
        assert np.array_equal(good, valid)
        np.testing.assert_allclose(found[good] / speed, plain[valid], rtol=0, atol=1e-12)


@pytest.mark.slow
def test_a_bad_world_of_a_batch_spoils_no_other():
    terms, v = corners(2)
    cap = jnp.array([0.1, 0.15])
    starts = jnp.stack([v, v.at[0].set(jnp.nan)])

    def every(start):
        return jc.impact.outcomes(terms, start, jc.impact.RouthStep(impulse_max=cap, num_directions=4))

    (outcomes, valid), info = jax.vmap(every)(starts)
    alone, _ = every(v)
    assert int(info.status[0]) == 0 and jc.Status(int(info.status[1])) == jc.Status.NONFINITE
    assert not bool(jnp.any(valid[1]))
    np.testing.assert_allclose(outcomes[0][valid[0]], alone[0][alone[1]], rtol=0, atol=1e-12)


@pytest.mark.slow
def test_an_outcome_has_the_derivative_of_its_modes():
    terms, v = corners(1)
    v = v + jnp.array([0.0, 0.3, 0.0, 1.0, -0.5, 2.0])

    def outcome(start):
        return jc.impact.outcomes(terms, start, jc.impact.AnitescuPotra(num_directions=4))[0][0][0]

    exact = jax.jacfwd(outcome)(v)
    np.testing.assert_allclose(jax.jacrev(outcome)(v), exact, rtol=0, atol=1e-10)
    step = 1e-6
    for i in range(NV):
        unit = jnp.zeros(NV).at[i].set(step)
        slope = (outcome(v + unit) - outcome(v - unit)) / (2 * step)
        np.testing.assert_allclose(exact[:, i], slope, rtol=0, atol=1e-6)


@pytest.mark.slow
@pytest.mark.float32
def test_a_ball_in_single_and_double_precision(tolerance):
    """A ball without spin on a floor: sticks, or slides against a corner of the polygon."""
    unit = jnp.eye(3)
    for mu, along in ((0.5, 2.0), (3.0, 0.0)):
        terms = jc.ContactTerms(
            M=2.0 * unit,
            J_n=unit[2:],
            J_t=unit[None, :2],
            phi=jnp.zeros(1),
            mu=jnp.array([mu]),
            active=jnp.ones(1, bool),
        )
        v = jnp.array([2.5, 0.0, -1.0])
        outcomes, valid = jc.impact.outcomes(terms, v, jc.impact.AnitescuPotra(num_directions=4))[0]
        assert int(jnp.sum(valid)) == 1
        np.testing.assert_allclose(outcomes[0], [along, 0.0, 0.0], rtol=0, atol=tolerance(1e-12, 1e-5))
        one, _ = anitescu_potra(terms, v, num_directions=4)
        np.testing.assert_allclose(outcomes[0], one, rtol=0, atol=tolerance(1e-12, 1e-5))


@pytest.mark.long
@pytest.mark.float32
def test_a_solution_that_rounding_loses_is_confessed():
    """Friction of a million: no candidate stands, so the list is not complete; nor is one in single precision."""
    rng = np.random.default_rng(4)
    root, J_n, J_t = rng.normal(size=(NV, NV)), rng.normal(size=(3, NV)), rng.normal(size=(3, 2, NV))
    rng.uniform(size=3)
    v = np.linalg.lstsq(J_n, -rng.uniform(0.1, 1.0, 3), rcond=None)[0] + 0.5 * rng.normal(size=NV)
    law = jc.impact.RouthStep(impulse_max=jnp.asarray(rng.exponential(1.0, 3)), num_directions=4)
    mass = root @ root.T + 0.1 * np.eye(NV)
    (_, valid), info = jc.impact.outcomes(as_terms(mass, J_n, J_t, np.full(3, 1e6)), jnp.asarray(v), law)
    assert int(info.status) == jc.Status.STALLED and not valid.any() and not info.complete
    (_, valid), info = jc.impact.outcomes(as_terms(mass, J_n, J_t, np.full(3, 0.5)), jnp.asarray(v), law)
    assert int(info.status) == 0 and valid.any()
    assert bool(info.complete) is jax.config.jax_enable_x64


@pytest.mark.long
def test_large_tables_of_lanes_are_made_one_after_the_other():
    """Memory does not grow with the lanes, nested ones included; values and derivatives are those of one lane."""
    M, J_n, J_t, mu, v, cap = random_step(np.random.default_rng(0), 3)
    law = jc.impact.RouthStep(impulse_max=jnp.asarray(cap), num_directions=4)

    def add_outcomes(v, scale):
        (values, valid), _ = jc.impact.outcomes(as_terms(M * scale, J_n, J_t, mu), v, law)
        return jnp.sum(jnp.where(valid[:, None], values, 0.0) * jnp.arange(1.0, 1 + NV)[None])

    slopes = jax.jit(jax.vmap(jax.value_and_grad(add_outcomes), (None, 0)))
    nested = jax.jit(jax.vmap(jax.vmap(jax.value_and_grad(add_outcomes), (None, 0)), (0, None)))
    v, scales = jnp.asarray(v), 1.0 + 0.1 * jnp.arange(4)
    few, many = (
        slopes.lower(v, s).compile().memory_analysis().temp_size_in_bytes for s in (scales[:2], scales)
    )
    assert many < 1.1 * few
    one = jax.jit(jax.value_and_grad(add_outcomes))(v, scales[1])
    for found in (slopes(v, scales), jax.tree.map(lambda a: a[0], nested(v[None], scales))):
        np.testing.assert_allclose(found[0][1], one[0], rtol=1e-12)
        np.testing.assert_allclose(found[1][1], one[1], rtol=1e-10)
