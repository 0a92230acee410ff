"""Extreme outcomes by gradient: closed forms, and farther than a million samples."""

import jax.numpy as jnp
import numpy as np
import pytest
from helpers.drawing import with_law

import jaxcontact as jc


def example(name: str) -> tuple[jc.Model, jc.ContactTerms]:
    model = getattr(jc.models, name)()
    return model, jc.contact_terms(model, model.initial_state())


@pytest.mark.slow_cases("0", "1")
@pytest.mark.parametrize("corner", [0, 1])
def test_rocking_block_reaches_the_sequential_outcome(corner: int) -> None:
    """The largest speed of a corner is 0.21 of the drop speed, when the other corner hits first."""
    model, terms = example("rocking_block")
    best = jc.impact.extreme(
        terms, model.initial_state().v, jc.impact.Routh(impulse_step=0.3, max_steps=10), terms.J_n[corner]
    )
    drop = -float(model.initial_state().v[1])
    assert int(best.status) == 0
    assert abs(float(best.value) / (0.21 * drop) - 1) < 1e-6
    # The impulse order is handed back with the outcome.
    again, info = jc.impact.resolve(terms, model.initial_state().v, best.impulse_max, best.pick)
    assert int(info.status) == 0
    np.testing.assert_allclose(again, best.v_plus, atol=1e-13)
    assert np.all(np.asarray(best.impulse_max) >= 0) and np.all(np.asarray(best.impulse_max) <= 0.3)


@pytest.mark.slow
def test_box_slides_faster_than_in_any_of_many_samples() -> None:
    """0.36928 m/s is the largest sliding speed of A in 2^20 samples with the paper's settings."""
    model, terms = example("box_and_wall")
    for seed in range(6):  # not by luck
        best = jc.impact.extreme(
            terms,
            model.initial_state().v,
            jc.impact.Routh(impulse_step=2.0, max_steps=5),
            terms.J_t[0, 0],
            seed=seed,
        )
        assert int(best.status) == 0
        assert float(best.value) > 0.3693
        assert float(best.v_plus @ terms.M @ best.v_plus) < float(
            model.initial_state().v @ terms.M @ model.initial_state().v
        )


def test_mistakes_are_named() -> None:
    model, terms = example("rocking_block")
    settings = {"impulse_step": 0.3, "max_steps": 10}
    with pytest.raises(ValueError, match=r"direction: expected shape \(3,\), got \(2,\)"):
        with_law(jc.impact.extreme, terms, model.initial_state().v, jnp.ones(2), **settings)
    with pytest.raises(ValueError, match="direction: expected finite numbers, not all zero"):
        with_law(jc.impact.extreme, terms, model.initial_state().v, jnp.zeros(3), **settings)
    with pytest.raises(ValueError, match="num_starts: expected an integer >= 1, got 0"):
        with_law(jc.impact.extreme, terms, model.initial_state().v, jnp.ones(3), num_starts=0, **settings)
    with pytest.raises(ValueError, match="impulse_step"):
        jc.impact.extreme(
            terms, model.initial_state().v, jc.impact.Routh(impulse_step=-1.0, max_steps=10), jnp.ones(3)
        )
