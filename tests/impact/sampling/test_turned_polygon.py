"""The friction polygon turned at random in every step: no direction of sliding is preferred."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers.drawing import draw, draw_in_jit
from scipy import stats

import jaxcontact as jc
from jaxcontact.impact import sample
from jaxcontact.impact.laws.turned_polygon import turn_rows

SETTINGS = {"impulse_step": 1.0, "max_steps": 20, "num_directions": 4}


def ball(angle):
    """A ball without spin that lands while it slides in a direction, on a floor."""
    unit = jnp.eye(3)
    terms = jc.ContactTerms(
        M=2.0 * unit,
        J_n=unit[2:],
        J_t=unit[None, :2],
        phi=jnp.zeros(1),
        mu=jnp.array([0.5]),
        active=jnp.ones(1, bool),
    )
    return terms, jnp.array([2.5 * np.cos(angle), 2.5 * np.sin(angle), -1.0])


def outcomes(angle, turn_polygon):
    """Velocities along and across the direction of sliding before."""
    terms, v = ball(angle)
    found = draw(
        terms,
        v,
        selection="lemke",
        num_samples=1024,
        turn_polygon=turn_polygon,
        seed=jax.random.key(int(10 * angle)),
        **SETTINGS,
    )
    assert not np.any(jc.Status.failed(found.status)) and not found.complete
    assert float(found.energy_ratio.max()) < 1.0
    turn = np.array([[np.cos(angle), np.sin(angle)], [-np.sin(angle), np.cos(angle)]])
    return np.asarray(found.v_plus)[:, :2] @ turn.T


@pytest.mark.slow
def test_a_problem_that_looks_alike_from_all_sides_has_outcomes_that_do():
    """And has not while the polygon stands still: two-sample tests of two directions of sliding."""
    for turn_polygon in (False, True):
        here, there = outcomes(0.0, turn_polygon), outcomes(0.7, turn_polygon)
        likely = [stats.ks_2samp(here[:, i], there[:, i]).pvalue for i in range(2)]
        assert min(likely) > 1e-3 if turn_polygon else max(likely) < 1e-9


@pytest.mark.slow
def test_turned_samples_inside_jit_are_those_of_the_driver_with_impulses_that_explain_them():
    terms, v = ball(0.3)
    key = jax.random.key(2)
    for selection in ("all", "lemke"):
        here = draw(terms, v, seed=key, num_samples=16, selection=selection, turn_polygon=True, **SETTINGS)
        there, info = draw_in_jit(
            terms, v, key, num_samples=16, selection=selection, turn_polygon=True, **SETTINGS
        )
        np.testing.assert_allclose(there, here.v_plus, rtol=0, atol=1e-12)
        assert np.all(info.complete == (selection == "all"))
        pushed = info.impulse[:, 0] @ jnp.concatenate([terms.J_n, terms.J_t[0]])
        np.testing.assert_allclose(pushed, (there - v[None]) @ terms.M, rtol=0, atol=1e-12)


def test_turning_back_and_forth_changes_nothing(rng):
    rows, angle = jnp.asarray(rng.normal(size=(6, 4))), jnp.array([0.4, -2.0])
    np.testing.assert_allclose(turn_rows(turn_rows(rows, angle), -angle), rows, rtol=0, atol=1e-14)


def test_turning_is_refused_where_it_means_nothing_or_takes_too_long():
    terms, v = ball(0.0)
    with pytest.raises(ValueError, match="turn_polygon: .*'visited'"):
        draw(terms, v, num_samples=8, selection="visited", turn_polygon=True, **SETTINGS)
    model = jc.models.rocking_block()
    planar = jc.contact_terms(model, model.initial_state())
    with pytest.raises(ValueError, match="turn_polygon: expected spatial contacts"):
        sample(
            planar,
            model.initial_state().v,
            jc.impact.Routh(turn_polygon=True, impulse_step=1.0, max_steps=4),
            num_samples=8,
        )
