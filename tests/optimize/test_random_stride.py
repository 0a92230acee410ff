"""Gaits of least risk over the outcomes of a stride: closed forms, and a compass gait's double support."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxcontact as jc
from benchmarks import robust_gait

DRAWS = 50


def thrown(free, params, speed, key):
    """Cost (x - n)^2 + y^2 with n normal; the period needs y = x + u - speed, u uniform: met on average."""
    normal, uniform = jax.random.split(key)
    n, u = jax.random.normal(normal), jax.random.uniform(uniform)
    return (free["x"] - params * n) ** 2 + free["y"] ** 2, (free["x"] + u - speed - free["y"])[None]


def drawn():
    keys = jax.vmap(jax.random.split)(jax.random.split(jax.random.key(0), DRAWS))
    numbers = jax.vmap(jax.random.normal)(keys[:, 0]), jax.vmap(jax.random.uniform)(keys[:, 1])
    return [np.asarray(x) for x in numbers]


@pytest.mark.long
@pytest.mark.parametrize("risk", ["mean", "worst", "cvar"])
def test_a_gait_has_the_least_risk_of_its_draws(risk):
    problem = jc.optimize.RandomStride(thrown, outcomes=DRAWS, risk=risk, share=0.2)
    free, info = jc.optimize.gait(
        problem, jnp.array(2.0), {"x": jnp.array(0.3), "y": jnp.array(0.1)}, speed=0.7,
        optimizer=jc.optimize.AugmentedLagrangian(), tol=1e-9,
    )  # fmt: skip
    n, u = drawn()
    x = np.linspace(-2.0, 2.0, 40_001)
    costs = np.sort((x[:, None] - 2.0 * n) ** 2, axis=1)[:, ::-1]
    count = {"mean": DRAWS, "worst": 1, "cvar": 10}[risk]
    risks = costs[:, :count].mean(axis=1) + (x + u.mean() - 0.7) ** 2
    assert info.residual <= 1e-9
    assert float(free["y"]) == pytest.approx(float(free["x"]) + u.mean() - 0.7, abs=1e-9)
    assert info.cost == pytest.approx(risks.min(), rel=1e-4)  # "worst" has a kink there
    assert float(free["x"]) == pytest.approx(x[np.argmin(risks)], abs=2e-3)
    cost, residuals = jc.optimize.gait_outcome(problem, jnp.array(2.0), free, 0.7)
    assert float(cost) == pytest.approx(info.cost) and residuals.shape == (1,)


def test_another_risk_or_other_draws_are_another_run(tmp_path):
    run = jc.Run(checkpoint=tmp_path / "run.npz")

    def find(**settings):
        problem = jc.optimize.RandomStride(thrown, **{"outcomes": 8, "risk": "mean"} | settings)
        free = {"x": jnp.array(0.3), "y": jnp.array(0.1)}
        return jc.optimize.gait(problem, jnp.array(2.0), free, speed=0.7, num_steps=2, run=run)

    find()
    find()
    for other in ({"outcomes": 9}, {"risk": "cvar"}, {"seed": 1}):
        with pytest.raises(ValueError, match="these differ: objective and constraints$"):
            find(**other)


def test_what_is_no_risk_is_named():
    with pytest.raises(ValueError, match="risk: expected one of"):
        jc.optimize.RandomStride(thrown, outcomes=8, risk="median")
    with pytest.raises(ValueError, match="outcomes: expected"):
        jc.optimize.RandomStride(thrown, outcomes=0)
    with pytest.raises(ValueError, match="share"):
        jc.optimize.RandomStride(thrown, outcomes=8, share=0.0)


def stumble(free, params, speed, key):
    """Two outcomes, of cost and error x^2 + y or x^2 + y + 1 by the sign of x + n, n normal."""
    stumbles = free["x"] + jax.random.normal(key) > 0.0
    cost = free["x"] ** 2 + free["y"] + stumbles
    return cost, (cost - speed)[None]


def test_a_spread_gives_the_gradient_of_the_mean_with_its_jumps():
    """E = x^2 + y + P(x + n > 0), whose slope by x is 2 x + exp(-x^2 / 2) / sqrt(2 pi)."""
    free = {"x": jnp.array(0.3), "y": jnp.array(0.2)}
    density = np.exp(-(0.3**2) / 2) / np.sqrt(2 * np.pi)
    found = {}
    for spread in (0.0, 0.1):
        problem = jc.optimize.RandomStride(stumble, outcomes=200_000, spread=spread)
        value, error = jc.optimize.gait_outcome(problem, None, free, 0.5)
        slopes = jax.jit(jax.jacrev(lambda f, p=problem: jc.optimize.gait_outcome(p, None, f, 0.5)))(free)
        np.testing.assert_allclose(error, value - 0.5, atol=1e-12)
        np.testing.assert_allclose(slopes[1]["x"], slopes[0]["x"][None], atol=1e-12)
        found[spread] = float(slopes[0]["x"]), float(slopes[0]["y"])
    assert found[0.0] == pytest.approx((0.6, 1.0), abs=1e-12)
    assert found[0.1] == pytest.approx((0.6 + density, 1.0), abs=0.02)


def test_a_spread_gives_the_gradient_of_the_tail_with_its_jumps():
    """The worst three quarters: with p = P(x + n > 0) their mean is x^2 + y + p / 0.75."""
    problem = jc.optimize.RandomStride(stumble, outcomes=200_000, risk="cvar", share=0.75, spread=0.1)
    free = {"x": jnp.array(0.3), "y": jnp.array(0.2)}
    slope = jax.jit(jax.grad(lambda free: jc.optimize.gait_outcome(problem, None, free, 0.5)[0]))(free)
    assert float(slope["x"]) == pytest.approx(0.6 + 0.5084, abs=0.03)  # density of n at 0.3 over 0.75
    with pytest.raises(ValueError, match='spread: expected 0 with risk="worst"'):
        jc.optimize.RandomStride(stumble, outcomes=8, risk="worst", spread=0.1)
    with pytest.raises(TypeError, match="problem: expected GaitProblem, got RandomStride"):
        jc.optimize.gait_outcome_rate(problem, None, free, free, 0.5)


@pytest.mark.slow
def test_a_robust_compass_gait_has_one_outcome_of_its_double_support():
    """A push between the legs takes a twentieth of the nominal tail, on orders drawn anew."""
    nominal, robust = robust_gait.nominal_and_robust()
    (before, _), (after, errors) = (robust_gait.judge(free) for free in (nominal, robust))
    tails = [float(jc.optimize.risk_of(costs, "cvar")) for costs in (before, after)]
    assert tails[1] < 0.1 * tails[0]
    assert np.abs(np.mean(errors, axis=0)).max() < 1e-4 and 0.03 < float(robust["push"]) < 0.1
    # Ten strides: the time of the tenth landing spreads by a tenth of that of the nominal gait at most.
    spreads = []
    for free in (nominal, robust):
        walk = jax.jit(jax.vmap(lambda key, free=free: robust_gait.walk(free, key, 10)))
        durations, _, _, moves = walk(jax.random.split(jax.random.key(2), 200))
        assert float(jnp.max(moves)) < 1e-6
        spreads.append(float(jnp.std(jnp.sum(durations, axis=1))))
    assert 1e-3 < spreads[0] < 4e-3 and spreads[1] < 0.1 * spreads[0]
    # The gradient of a cost over fixed draws, in reverse mode, is that of differences where no outcome jumps.
    problem = jc.optimize.RandomStride(robust_gait.routh_stride, outcomes=16, risk="cvar")

    def risk(push):
        return jc.optimize.gait_outcome(problem, None, robust | {"push": push}, robust_gait.SPEED)[0]

    at, step = jnp.asarray(0.08), 1e-4
    slope, up, down = jax.jit(lambda p: (jax.grad(risk)(p), risk(p + step), risk(p - step)))(at)
    assert float(slope) == pytest.approx(float(up - down) / (2 * step), rel=1e-4)


def test_on_rough_ground_the_foot_lands_later_where_the_ground_is_lower():
    free = {name: jnp.asarray(float(value)) for name, value in robust_gait.PASSIVE.items()}
    start = robust_gait.start_of(free)

    @jax.jit
    def land(height):
        duration = robust_gait.landing_time(start, free, height)
        angles = robust_gait.swing(start, duration, free["slope"])[:2]
        return duration, jnp.cos(angles[0]) - jnp.cos(angles[1])

    durations, heights = zip(*(land(height) for height in (-0.01, 0.0, 0.01)), strict=True)
    np.testing.assert_allclose(heights, (-0.01, 0.0, 0.01), atol=1e-12)
    assert durations[0] > durations[1] > durations[2]


@pytest.mark.slow
def test_a_push_by_lateness_halves_the_tail_on_rough_ground():
    """Numbers of a search of 80 steps from those of `benchmarks.robust_gait`, on outcomes drawn anew."""
    nominal = {
        "angle": 0.2623, "duration": 0.7304, "late": 0.0, "push": 0.0, "slope": 0.0475,
        "stance_rate": -1.0745, "swing_rate": -0.4193,
    }  # fmt: skip
    robust = {
        "angle": 0.2641, "duration": 0.7354, "late": -2.3464, "push": -0.2471, "slope": 0.0551,
        "stance_rate": -1.0558, "swing_rate": -0.3826,
    }  # fmt: skip
    tails = []
    for numbers in (nominal, robust, robust | {"late": 0.0}):
        free = {name: jnp.asarray(value) for name, value in numbers.items()}
        costs, _ = robust_gait.judge(free, robust_gait.rough_routh_stride)
        tails.append(float(jc.optimize.risk_of(costs, "cvar")))
    assert tails[1] < 0.5 * tails[0] and tails[2] > tails[0]
