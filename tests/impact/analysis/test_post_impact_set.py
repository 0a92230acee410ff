"""Algorithm 2: samples of few steps, closed by one small step, as an approximation of the whole set."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest
from helpers.drawing import draw, with_law

import jaxcontact as jc
from jaxcontact.impact import approximate_set, sample


@pytest.fixture(scope="module")
def block():
    """The rocking block with a fine step: more steps are needed than are allowed below."""
    found = jc.models.rocking_block()
    return jc.contact_terms(found, found.initial_state()), found.initial_state().v


def approach(terms, velocities):
    return (np.asarray(velocities) @ np.asarray(terms.J_n).T).min(axis=1)


def norm(terms, dv):
    return np.sqrt(np.einsum("...i,ij,...j->...", dv, np.asarray(terms.M), dv))


@pytest.mark.long
def test_closing_impulse_is_that_of_theorem_9(block):
    terms, v = block
    result = approximate_set(
        terms, v, jc.impact.Routh(impulse_step=0.3, max_steps=10), num_samples=50, tolerance=0.01
    )
    # M^-1 J^T by hand: m = 1, I = 5/12, corners at (-+1/2, -1).
    columns = np.array([[0, 1, -0.5 * 2.4], [1, 0, 2.4], [0, 1, 0.5 * 2.4], [1, 0, 2.4]]).T
    psi = np.linalg.svd(columns, compute_uv=False)[0] * 2 * (1 + 1.0) + 1
    assert result.closing_impulse == pytest.approx(0.01 / (3 * psi), rel=1e-12)
    assert result.tolerance == 0.01
    assert result.complete
    assert result.v_plus.shape == (50, 3)


def test_finished_samples_are_left_as_they_are(block):
    terms, v = block
    result = approximate_set(
        terms, v, jc.impact.Routh(impulse_step=0.3, max_steps=10), num_samples=700, tolerance=0.01, seed=2
    )
    samples = sample(terms, v, jc.impact.Routh(impulse_step=0.3, max_steps=10), num_samples=700, seed=2)
    ok = np.asarray(samples.status) == 0
    assert np.array_equal(np.asarray(result.v_plus)[ok], np.asarray(samples.v_plus)[ok])
    assert np.array_equal(result.status, samples.status)
    assert np.all(np.asarray(result.valid)[ok])


@pytest.mark.slow
def test_valid_candidates_do_not_approach(block):
    """Three steps: some samples end, some are closed by the small step, some still approach."""
    terms, v = block
    options = {"impulse_step": 0.3, "max_steps": 3, "num_samples": 2000}
    result = with_law(approximate_set, terms, v, **options, tolerance=0.5)
    samples = draw(terms, v, **options)
    before, after = approach(terms, samples.v_plus), approach(terms, result.v_plus)
    valid, unfinished = np.asarray(result.valid), before < -1e-8
    assert after[valid].min() >= -1e-8 * (1 + 1e-6)
    assert np.all(after[~valid] < -1e-8 * (1 - 1e-6))
    assert np.all(valid[~unfinished])
    assert np.any(valid & unfinished)  # closed
    assert np.any(~valid)
    assert np.array_equal(np.asarray(result.status) != 0, unfinished)
    # The closing step moves v by at most epsilon / 3 (less than psi times the impulse), and loses energy.
    moved = np.linalg.norm(np.asarray(result.v_plus) - np.asarray(samples.v_plus), axis=1)
    assert moved.max() <= result.tolerance / 3
    assert np.all(norm(terms, np.asarray(result.v_plus)) <= norm(terms, np.asarray(samples.v_plus)) + 1e-14)
    outcome = np.asarray(result.v_plus)[valid] @ np.asarray(terms.J_n).T / -float(v[1])
    assert outcome.max() <= 0.21 * (1 + 1e-9)


@pytest.mark.slow
def test_a_larger_tolerance_keeps_more(block):
    terms, v = block
    kept = [
        int(
            np.sum(
                approximate_set(
                    terms,
                    v,
                    jc.impact.Routh(impulse_step=0.3, max_steps=2),
                    num_samples=1000,
                    tolerance=epsilon,
                ).valid
            )
        )
        for epsilon in (1e-6, 0.3, 3.0)
    ]
    assert kept[0] < kept[1] < kept[2]


def test_it_fills_the_set(block):
    """Any outcome u_n in (0, 0.19 v0) of either corner is within 0.005 v0 of a candidate."""
    terms, v = block
    result = approximate_set(
        terms, v, jc.impact.Routh(impulse_step=0.3, max_steps=10), num_samples=2**12, tolerance=0.01
    )
    u_n = np.asarray(result.v_plus)[np.asarray(result.valid)] @ np.asarray(terms.J_n).T / -float(v[1])
    for corner in range(2):
        grid = np.linspace(0.0, 0.19, 200)
        other = np.abs(u_n[:, 1 - corner]) < 1e-9
        assert np.abs(grid[:, None] - u_n[other, corner]).min(axis=1).max() < 0.005


@pytest.mark.slow_cases("visited")
@pytest.mark.parametrize("selection", ["visited", pytest.param("lemke", marks=pytest.mark.slow)])
def test_selections(block, selection):
    terms, v = block
    result = approximate_set(
        terms,
        v,
        jc.impact.Routh(impulse_step=0.3, max_steps=4, selection=selection),
        num_samples=600,
        tolerance=0.1,
    )
    everything = approximate_set(
        terms, v, jc.impact.Routh(impulse_step=0.3, max_steps=4), num_samples=600, tolerance=0.1
    )
    assert not result.complete
    # One solution per step: all selections are the same here.
    np.testing.assert_allclose(result.v_plus, everything.v_plus, rtol=0, atol=1e-12)
    assert np.array_equal(result.valid, everything.valid)


def test_no_approaching_contact(block):
    terms, v = block
    result = approximate_set(
        terms, -v, jc.impact.Routh(impulse_step=0.3, max_steps=4), num_samples=5, tolerance=0.1
    )
    assert np.array_equal(result.v_plus, np.broadcast_to(-v, (5, 3)))
    assert np.all(result.valid)


@pytest.mark.parametrize("tolerance", [0.0, -1.0, np.inf, np.nan, "small"])
def test_the_tolerance_is_checked(block, tolerance):
    terms, v = block
    wrong = TypeError if tolerance == "small" else ValueError
    with pytest.raises(wrong, match="tolerance: expected (a number|a finite number > 0|finite numbers)"):
        approximate_set(
            terms, v, jc.impact.Routh(impulse_step=0.3, max_steps=4), num_samples=5, tolerance=tolerance
        )
    with pytest.raises(ValueError, match="impulse_step"):
        approximate_set(
            terms, v, jc.impact.Routh(impulse_step=jnp.inf, max_steps=4), num_samples=5, tolerance=0.1
        )
