"""Risk over impulse orders: values by hand, and gradients of means of costs that jump."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import ndtr

import jaxcontact as jc

COSTS = jnp.array([3.0, 1.0, 2.0, 10.0, 4.0])


def jumps(x, key):
    """Cost x^2, and 1 more where a uniform draw is below x: its mean is x^2 + x, its pathwise gradient 2 x."""
    return x[0] ** 2 + (jax.random.uniform(key, dtype=x.dtype) < x[0])


@pytest.mark.parametrize(
    ("risk", "share", "value"),
    [("mean", 0.1, 4.0), ("worst", 0.1, 10.0), ("cvar", 0.4, 7.0), ("cvar", 0.3, 8.0), ("cvar", 1.0, 4.0)],
)
def test_a_risk_is_the_mean_of_the_worst_costs(risk, share, value):
    """A share of 0.3 takes one and a half of five costs."""
    np.testing.assert_allclose(jc.optimize.risk_of(COSTS, risk, share=share), value, rtol=1e-14)


def test_the_gradient_of_a_risk_is_the_share_of_each_cost():
    slope = jax.grad(lambda costs: jc.optimize.risk_of(costs, "cvar", share=0.3))(COSTS)
    np.testing.assert_allclose(slope, [0, 0, 0, 2 / 3, 1 / 3], atol=1e-14)


@pytest.mark.parametrize("risk", ["mean", "worst", "cvar"])
def test_a_motion_without_a_cost_gives_no_risk(risk):
    assert jnp.isnan(jc.optimize.risk_of(COSTS.at[1].set(jnp.nan), risk, share=0.2))


def test_fixed_draws_miss_the_gradient_of_jumps():
    F = jc.optimize.over_outcomes(jumps, jax.random.key(0), outcomes=1000)
    x = jnp.array([0.4])
    np.testing.assert_allclose(F(x), 0.56, atol=0.05)
    np.testing.assert_allclose(jax.grad(F)(x), 0.8, rtol=1e-12)  # the mean has 1.8


@pytest.mark.parametrize("differentiate", [jax.grad, jax.jacfwd])
def test_a_spread_has_the_gradient_of_the_mean_with_its_jumps(differentiate):
    """The mean of x^2 + x over x + s z is x^2 + s^2 + x: gradient 2 x + 1, whatever the spread."""
    F = jc.optimize.over_outcomes(jumps, jax.random.key(0), outcomes=40_000, spread=0.05)
    x = jnp.array([0.4])
    np.testing.assert_allclose(jax.jit(F)(x), 0.5625, atol=0.01)
    np.testing.assert_allclose(jax.jit(differentiate(F))(x), [1.8], atol=0.1)


def test_a_spread_has_the_gradient_of_the_tail():
    """The cost |z| u of a normal z and a control u has a tail mean in proportion to u."""

    def cost(x, key):
        return x[0] * jnp.abs(jax.random.normal(key, dtype=x.dtype)) + x[1] ** 2

    F = jc.optimize.over_outcomes(
        cost, jax.random.key(0), outcomes=40_000, risk="cvar", share=0.2, spread=0.01
    )
    x = jnp.array([1.0, 0.5])
    limit = 1.2815515655446004  # with probability 0.2 a normal number is larger in size
    tail = 2.0 * np.exp(-(limit**2) / 2) / np.sqrt(2 * np.pi) / (2.0 * (1.0 - ndtr(limit)))
    np.testing.assert_allclose(jax.jit(F)(x), tail + 0.25, rtol=0.02)
    np.testing.assert_allclose(jax.jit(jax.grad(F))(x), [tail, 1.0], rtol=0.05)


@pytest.mark.long
def test_orders_of_a_compass_gait_have_the_gradient_of_their_mean_by_a_spread_only():
    """The mean loss falls as the leading leg swings faster, for fewer orders stop the robot.

    Differences of the mean over 1e5 common draws give (-0.10, -0.86) at steps of 0.1, (-0.08, -0.42) at 0.01.
    """
    model = jc.models.compass_gait()
    state = model.initial_state()
    terms = jc.contact_terms(model, state)
    law = jc.impact.Routh(impulse_step=0.25, max_steps=8)

    def lost(rates, key):
        v = state.v.at[2:].add(rates)
        v_plus, _ = law(terms, v, key)
        return 1.0 - (v_plus @ terms.M @ v_plus) / (v @ terms.M @ v)

    def slope(spread):
        F = jc.optimize.over_outcomes(lost, jax.random.key(0), outcomes=2000, spread=spread)
        return jax.grad(F)(jnp.array([0.3, -0.2]))

    by_draws, by_spread = jax.jit(lambda: (slope(0.0), slope(0.1)))()
    assert by_draws[1] > 0.2
    assert by_spread[1] < -0.4


def test_what_no_gradient_is_for_is_refused():
    with pytest.raises(ValueError, match="spread: expected 0"):
        jc.optimize.over_outcomes(jumps, jax.random.key(0), outcomes=4, risk="worst", spread=0.1)
    with pytest.raises(ValueError, match="risk: expected one of"):
        jc.optimize.risk_of(COSTS, "median")
    with pytest.raises(ValueError, match="share"):
        jc.optimize.risk_of(COSTS, "cvar", share=0.0)
