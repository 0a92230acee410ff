"""Certified intervals: exact where the outcome is known, beside samples elsewhere, for many contacts too."""

import sys

import jax.numpy as jnp
import numpy as np
import pytest

import jaxcontact as jc
from jaxcontact.impact.analysis.impulse_programs import ImpulsePrograms
from jaxcontact.impact.analysis.integer_program import IntegerProgram, solve_apart
from jaxcontact.impact.laws.routh_law import fitted_law


def random_terms(rng, contacts, nt, nv=6, mu=(0.2, 1.0)):
    root = rng.normal(size=(nv, nv))
    return jc.ContactTerms(
        M=jnp.asarray(root @ root.T + 0.5 * np.eye(nv)),
        J_n=jnp.asarray(rng.normal(size=(contacts, nv))),
        J_t=jnp.asarray(rng.normal(size=(contacts, nt, nv))),
        phi=jnp.zeros(contacts),
        mu=jnp.asarray(rng.uniform(*mu, contacts)),
        active=jnp.ones(contacts, bool),
    )


def point(mu, nt=1, mass=2.0):
    """A point mass on a floor."""
    axes = np.eye(1 + nt)
    return jc.ContactTerms(
        M=mass * jnp.eye(1 + nt),
        J_n=jnp.asarray(axes[-1:]),
        J_t=jnp.asarray(axes[None, :nt]),
        phi=jnp.zeros(1),
        mu=jnp.full(1, mu),
        active=jnp.ones(1, bool),
    )


@pytest.mark.long
def test_a_point_has_its_outcome_alone():
    """It stops along the normal and loses mu times that speed along the floor: one outcome, known exactly."""
    terms, v = point(0.25), jnp.array([2.0, -3.0])
    law = jc.impact.Routh(impulse_step=20.0, max_steps=4)
    for direction, value in (([0.0, 1.0], 0.0), ([1.0, 0.0], 2.0 - 0.25 * 3.0)):
        found = jc.impact.bounds(terms, v, law, jnp.array(direction), num_starts=4, num_iters=4)
        np.testing.assert_allclose([found.inner_low, found.inner_high], value, atol=1e-9)
        assert found.outer_low - 1e-9 <= value <= found.outer_high + 1e-9
        if direction[1]:
            np.testing.assert_allclose(found.gap, 0.0, atol=1e-5)


@pytest.mark.long
def test_with_restitution_a_contact_may_separate():
    """The point rebounds at its speed: the condition that it does not is left out."""
    law = jc.impact.Routh(impulse_step=20.0, max_steps=8, restitution=1.0)
    found = jc.impact.bounds(
        point(0.0), jnp.array([0.0, -3.0]), law, jnp.array([0.0, 1.0]), num_starts=4, num_iters=0
    )
    np.testing.assert_allclose([found.inner_high, found.outer_high], 3.0, rtol=1e-5)


def check_inside(terms, v, law, num_samples):
    """No sample passes a bound along rows of contacts and random directions."""
    samples = jc.impact.sample(terms, v, law, num_samples=num_samples)
    v_plus = np.asarray(samples.v_plus)[np.asarray(samples.status) == 0]
    assert len(v_plus) > 0.5 * num_samples
    programs = ImpulsePrograms(terms, np.asarray(v), fitted_law(terms, v, law))
    rng = np.random.default_rng(0)
    speed = np.sqrt(np.asarray(v) @ np.asarray(terms.M) @ np.asarray(v))
    for direction in [*np.asarray(terms.J_n), *np.asarray(terms.J_t)[:, 0], *rng.normal(size=(4, len(v)))]:
        for sign in (-1.0, 1.0):
            size = np.sqrt(direction @ np.linalg.solve(np.asarray(terms.M), direction))
            highest = np.max(v_plus @ (sign * direction))
            assert highest <= programs.maximise(sign * direction) + 1e-8 * speed * size


@pytest.mark.long
@pytest.mark.parametrize("seed", range(4))
def test_samples_in_the_plane_lie_inside(seed):
    rng = np.random.default_rng(seed)
    terms = random_terms(rng, 3, 1)
    v = jnp.asarray(np.linalg.lstsq(np.asarray(terms.J_n), -rng.uniform(0.1, 1.0, 3), rcond=None)[0])
    check_inside(terms, v + 0.2 * rng.normal(size=6), jc.impact.Routh(max_steps=40), 512)


@pytest.mark.slow
@pytest.mark.parametrize("contacts", [2, 4, 8])
def test_samples_in_space_lie_inside(contacts):
    for seed in range(10):
        rng = np.random.default_rng(seed)
        terms = random_terms(rng, contacts, 2, nv=9)
        v = jnp.asarray(
            np.linalg.lstsq(np.asarray(terms.J_n), -rng.uniform(0.1, 1.0, contacts), rcond=None)[0]
        )
        law = jc.impact.Routh(max_steps=40, selection="lemke", num_directions=4)
        check_inside(terms, v + 0.2 * rng.normal(size=9), law, 256)


@pytest.mark.long
def test_mistakes_are_named():
    terms, v = point(0.25), jnp.array([2.0, -3.0])
    with pytest.raises(ValueError, match="direction: expected finite numbers, not all zero"):
        jc.impact.bounds(terms, v, jc.impact.Routh(), jnp.zeros(2))
    with pytest.raises(ValueError, match="direction"):
        jc.impact.bounds(terms, v, jc.impact.Routh(), jnp.ones(3))
    with pytest.raises(ValueError, match="num_steps: expected None for a law with restitution"):
        law = jc.impact.Routh(impulse_step=20.0, restitution=0.5)
        jc.impact.bounds(terms, v, law, jnp.ones(2), num_starts=2, num_iters=0, num_steps=1)
    jammed = terms.replace(
        J_n=jnp.array([[0.0, 1.0], [0.0, -1.0]]), J_t=jnp.ones((2, 1, 2)), phi=jnp.zeros(2), mu=jnp.zeros(2),
        active=jnp.ones(2, bool),
    )  # fmt: skip
    with pytest.raises(ValueError, match="num_steps: expected None where the friction cone is not pointed"):
        law = jc.impact.Routh(impulse_step=20.0)
        jc.impact.bounds(jammed, v, law, jnp.ones(2), num_starts=2, num_iters=0, num_steps=1)
    with pytest.raises(ValueError, match="num_iters"):
        jc.impact.bounds(terms, v, jc.impact.Routh(), jnp.ones(2), num_iters=-1)


@pytest.mark.long
def test_units_and_rest_change_nothing():
    """In grams and millimetres the numbers scale; at rest the interval is zero."""
    rng = np.random.default_rng(3)
    terms = random_terms(rng, 3, 1)
    v = jnp.asarray(-0.5 * np.sum(np.asarray(terms.J_n), axis=0))
    law = fitted_law(terms, v, jc.impact.Routh(impulse_step=1.0, max_steps=4))
    row = np.asarray(terms.J_n)[0]
    usual = ImpulsePrograms(terms, np.asarray(v), law).maximise(row)
    small = ImpulsePrograms(terms.replace(M=1e6 * terms.M), 1e-3 * np.asarray(v), law).maximise(row)
    np.testing.assert_allclose(small, 1e-3 * usual, rtol=1e-6)
    assert ImpulsePrograms(terms, np.zeros(6), law).maximise(row) == 0.0
    in_steps = ImpulsePrograms(terms, np.asarray(v), law).maximise_in_steps(row, 2, 10_000).value
    heavy = ImpulsePrograms(terms.replace(M=1e6 * terms.M), 1e-3 * np.asarray(v), law)
    np.testing.assert_allclose(heavy.maximise_in_steps(row, 2, 10_000).value, 1e-3 * in_steps, rtol=1e-6)
    immobile = terms.replace(J_n=0.0 * terms.J_n, J_t=0.0 * terms.J_t)
    unchanged = ImpulsePrograms(immobile, np.asarray(v), law)
    np.testing.assert_allclose(unchanged.maximise_in_steps(row, 2, 100).value, row @ v)


@pytest.mark.slow
@pytest.mark.parametrize(("contacts", "nt", "seed"), [(2, 1, 0), (3, 1, 1), (2, 2, 2)])
def test_one_step_of_any_size_ends_at_the_listed_outcomes(contacts, nt, seed):
    """One step without a cap is the simultaneous law, whose solutions `outcomes` lists by their modes."""
    rng = np.random.default_rng(seed)
    terms = random_terms(rng, contacts, nt, mu=(0.5, 1.5))
    v = jnp.asarray(np.linalg.lstsq(np.asarray(terms.J_n), -np.ones(contacts), rcond=None)[0])
    v = v + 0.3 * rng.normal(size=6)
    law = jc.impact.AnitescuPotra(num_directions=4)
    (values, valid), _ = jc.impact.outcomes(terms, v, law)
    outcomes = np.asarray(values)[np.asarray(valid)]
    fitted = fitted_law(terms, v, jc.impact.Routh(impulse_step=1.0, num_directions=4))
    programs = ImpulsePrograms(terms, np.asarray(v), fitted)
    speed = float(jnp.sqrt(v @ terms.M @ v))
    for direction in rng.normal(size=(3, 6)):
        size = speed * np.sqrt(direction @ np.linalg.solve(np.asarray(terms.M), direction))
        value, v_plus = programs.maximise_in_steps(direction, 1, 10_000)
        highest = np.max(outcomes @ direction)
        assert highest <= value <= highest + 3e-3 * size
        assert np.min(np.abs(outcomes - v_plus).max(axis=1)) < 1e-4


@pytest.mark.long
def test_three_steps_of_the_compass_gait_end_where_orders_do():
    """The trailing foot lifts at 0 to 0.0996 m/s; without a number of steps the bound is 1.43."""
    model = jc.models.compass_gait()
    state = model.initial_state()
    terms = jc.contact_terms(model, state)
    law = jc.impact.Routh(max_steps=8)
    found = jc.impact.bounds(terms, state.v, law, terms.J_n[1], num_starts=4, num_iters=0, num_steps=3)
    np.testing.assert_allclose([found.inner_low, found.inner_high], [0.0, 0.09955518], atol=1e-5)
    np.testing.assert_allclose([found.outer_low, found.outer_high], [0.0, 0.09955518], atol=5e-4)
    assert found.num_steps == 3
    np.testing.assert_allclose(terms.J_n[1] @ found.v_high, found.inner_high, atol=1e-12)


@pytest.mark.long
def test_nothing_is_printed(capfd):
    """HiGHS prints a line for some solutions of RAMone's programs, which does not come here."""
    model = jc.models.ramone()
    state = model.initial_state()
    terms = jc.contact_terms(model, state)
    law = jc.impact.Routh(max_steps=16)
    programs = ImpulsePrograms(terms, np.asarray(state.v), fitted_law(terms, state.v, law))
    bound = programs.maximise_in_steps(np.asarray(terms.J_n[1]), 3, 10_000)
    assert 0.0 <= bound.value < 1e-3
    assert capfd.readouterr() == ("", "")


def test_a_program_has_the_same_answer_without_a_process(monkeypatch):
    """Of the largest x_0 + x_1 with 2 x_0 + x_1 <= 2.5, x_0 an integer: x = (0, 2.5)."""
    program = IntegerProgram(
        -np.ones(2), np.array([[2.0, 1.0]]), np.array([2.5]), np.full(2, 3.0), np.array([True, False]), {}
    )
    monkeypatch.setattr(sys, "executable", "no interpreter")
    alone, bound = solve_apart(program)
    monkeypatch.undo()
    apart, same_bound = solve_apart(program)
    np.testing.assert_array_equal(apart, alone)
    np.testing.assert_allclose(apart, [0.0, 2.5])
    assert bound == same_bound == -2.5


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "number", "steps"),
    [("half_cheetah", 2**20, 3), ("planar_walker", 2**13, 3), ("quadruped", 2**13, 2)],
)
def test_samples_of_few_steps_lie_inside(name, number, steps):
    """Those with up to so many steps, of the law's scale and of four times that."""
    model = getattr(jc.models, name)()
    state = model.initial_state()
    if name == "half_cheetah":
        state, _ = jc.place_on_ground(model, state, contacts=["hind_foot", "fore_foot"])
        state = state.replace(v=jnp.zeros(9).at[jnp.array([0, 1])].set(jnp.array([0.5, -1.0])))
    if name == "quadruped":
        state = state.replace(v=jnp.zeros(18).at[jnp.array([0, 2])].set(jnp.array([0.5, -1.0])))
    terms = jc.contact_terms(model, state)
    terms = terms.take(np.flatnonzero(terms.active))
    selection = "lemke" if name == "quadruped" else "all"
    law = jc.impact.Routh(max_steps=16, selection=selection, num_directions=4)
    fitted = fitted_law(terms, state.v, law)
    v_plus = []
    for impulse_step in (fitted.impulse_step[0], 4.0 * fitted.impulse_step[0]):
        samples = jc.impact.sample(
            terms, state.v, law.replace(impulse_step=float(impulse_step)), num_samples=number
        )
        few = (np.asarray(samples.status) == 0) & (np.asarray(samples.num_iters) <= steps)
        v_plus.append(np.asarray(samples.v_plus)[few])
    assert len(v_plus[1]) > 0.05 * number
    programs = ImpulsePrograms(terms, np.asarray(state.v), fitted)
    rows = terms.J_n[:1] if name == "quadruped" else jnp.concatenate([terms.J_n, terms.J_t[:, 0]])
    for direction in np.asarray(rows):
        values = np.concatenate(v_plus) @ direction
        low, high = (
            sign * programs.maximise_in_steps(sign * direction, steps, 10_000).value for sign in (-1, 1)
        )
        assert low <= values.min() and values.max() <= high
