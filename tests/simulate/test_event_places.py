"""Derivatives of a motion by where in a step an event falls, and the sizes of the programs that compute them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import jaxcontact as jc

BALL = """<mujoco><option gravity="0 0 0"/><worldbody><geom type="plane" size="5 5 1"/>
<body pos="0 0 2.9"><joint type="slide" axis="0 0 1"/><geom type="sphere" size="0.5" mass="1"/></body></worldbody></mujoco>"""
SLIDERS = """<mujoco><option gravity="0 0 0"/><worldbody>
<body><joint type="slide" axis="1 0 0"/><geom type="sphere" size="0.1" mass="1"/></body>
<body><joint type="slide" axis="1 0 0"/><geom type="sphere" size="0.1" mass="1"/></body></worldbody></mujoco>"""
LAW = jc.impact.Propagative()


@pytest.mark.slow
@pytest.mark.parametrize(
    "stepper",
    [
        jc.simulate.EventDriven(impact=LAW),
        pytest.param(jc.simulate.Variational(impact=LAW), marks=pytest.mark.slow),
    ],
    ids=["EventDriven", "Variational"],
)
def test_an_impact_has_the_same_derivative_anywhere_in_a_step(stepper):
    """From 3 m at 5 m/s it strikes at 0.5 s, the end of a step of 50 ms; height 6 - z_0 at 1 s, slope -1."""
    model = jc.load_mjcf(BALL)
    start = model.initial_state()

    def height(z):
        state = start.replace(q=(z - 2.9)[None], v=jnp.array([-5.0]))
        motion = jc.simulate.rollout(model, state, None, num_steps=20, stepper=stepper, dt=0.05)
        return motion.states.q[-1, 0] + 2.9, motion.status

    def both(z):
        (value, status), (slope, _) = jax.jvp(height, (z,), (jnp.ones_like(z),))
        return value, slope, status

    near = [sign * 10.0**-k for k in range(6, 17) for sign in (1, -1)]
    z = 3.0 + jnp.array([0.0, *near, -2.5, *np.random.default_rng(0).uniform(-2.4, 1.9, 40)])
    value, slope, status = jax.jit(lambda z: lax.map(both, z))(z)
    assert not np.any(status)
    np.testing.assert_allclose(value, 6.0 - z, rtol=0, atol=1e-11)
    np.testing.assert_allclose(slope, -1.0, rtol=1e-9)


def program(stepper, derived):
    """Return the StableHLO of the end of the second slider, by where both start."""
    model = jc.load_mjcf(SLIDERS)
    start = model.initial_state()

    def end(x):
        state = start.replace(q=x[:2], v=x[2:])
        return jc.simulate.rollout(model, state, None, num_steps=20, stepper=stepper, dt=0.05).states.q[-1, 1]

    return jax.jit(derived(end)).lower(jnp.array([0.0, 0.52, 1.0, 0.0])).as_text()


@pytest.mark.long
@pytest.mark.parametrize(
    ("stepper", "derived", "lines", "loops", "products"),
    [
        (jc.simulate.EventDriven, lambda f: f, 13_400, 28, 125),
        pytest.param(jc.simulate.EventDriven, jax.jacfwd, 37_600, 51, 380, marks=pytest.mark.slow),
        pytest.param(jc.simulate.EventDriven, jax.grad, 42_200, 59, 360, marks=pytest.mark.slow),
        (jc.simulate.Variational, lambda f: f, 23_200, 33, 210),
        pytest.param(jc.simulate.Variational, jax.jacfwd, 55_000, 57, 530, marks=pytest.mark.slow),
        pytest.param(jc.simulate.Variational, jax.grad, 57_400, 63, 510, marks=pytest.mark.slow),
    ],
    ids=[
        f"{name}-{mode}"
        for name in ("EventDriven", "Variational")
        for mode in ("value", "forward", "reverse")
    ],
)
def test_programs_from_event_to_event_stay_small(stepper, derived, lines, loops, products):
    """A product of matrices is a kernel of its own, and a search in a replay is a loop: each costs compile time."""
    text = program(stepper(impact=LAW), derived)
    assert text.count("\n") < lines
    assert text.count("stablehlo.while") <= loops
    assert text.count("stablehlo.dot_general") < products


@pytest.mark.slow
def test_two_sliders_exchange_their_velocities_with_the_right_gradient():
    model = jc.load_mjcf(SLIDERS)
    start = model.initial_state()

    def end(x):
        state = start.replace(q=x[:2], v=x[2:])
        stepper = jc.simulate.EventDriven(impact=LAW)
        return jc.simulate.rollout(model, state, None, num_steps=20, stepper=stepper, dt=0.05).states.q[-1, 1]

    value, slope = jax.jit(jax.value_and_grad(end))(jnp.array([0.0, 0.52, 1.0, 0.0]))
    np.testing.assert_allclose(value, 1.2, rtol=1e-12)
    np.testing.assert_allclose(slope, [1.0, 0.0, 1.0, 0.0], rtol=0, atol=1e-10)
