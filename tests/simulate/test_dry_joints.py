"""Dry friction of joints in `TimeStepping`: a joint that sticks and slides, against closed forms."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxcontact as jc

MASS, LOSS, DT = 2.0, 3.0, 0.01  # kg, N, s
SLED = f"""<mujoco><option gravity="0 0 -10"/><worldbody>{{floor}}
<body pos="0 0 0.1"><joint name="rail" type="slide" axis="1 0 0" frictionloss="{LOSS}"/>{{lift}}
<geom type="sphere" size="0.1" mass="{MASS}" friction="0.25"/></body></worldbody></mujoco>"""
FLOOR = '<geom type="plane" size="5 5 1" friction="0.25"/>'
LIFT = '<joint type="slide" axis="0 0 1"/>'
NEWTON = jc.impact.Newton(restitution=0.0)


def speeds(file, force, start, steps, impact):
    model = jc.load_mjcf(file, planar=True)
    state = model.initial_state()
    state = state.replace(v=state.v.at[0].set(start))
    controls = jnp.zeros((steps, model.num_controls)).at[:, 0].set(force)
    stepper = jc.simulate.TimeStepping(impact=impact)
    key = jax.random.key(0)
    found = jc.simulate.rollout(model, state, controls, stepper=stepper, dt=DT, key=key)
    assert not np.any(np.asarray(found.status))
    return np.asarray(found.states.v)[1:, 0]


@pytest.mark.long
@pytest.mark.parametrize(
    ("force", "start"),
    [(2.9, 0.0), (5.0, 0.0), (-4.0, 0.0), (0.0, 0.2), (-1.0, 0.2)],
)
def test_a_rail_sticks_and_slides(force, start):
    """Below its friction it stays; above it accelerates by the rest; in motion friction stops it, and holds it."""
    found = speeds(SLED.format(floor="", lift=""), force, start, 20, jc.impact.AnitescuPotra())
    times = DT * np.arange(1, 21)
    if start:
        expected = np.maximum(start - (LOSS - force) / MASS * times, 0.0)
    else:
        expected = np.sign(force) * max(abs(force) - LOSS, 0.0) / MASS * times
    np.testing.assert_allclose(found, expected, atol=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("impact", [jc.impact.AnitescuPotra(), NEWTON, jc.impact.Routh(impulse_step=0.5)])
@pytest.mark.parametrize("force", [7.5, 9.0])
def test_the_friction_of_a_joint_and_of_a_contact_add(force, impact):
    """A sled on a rail and on the floor: both hold 3 N + 5 N, and what is above accelerates it."""
    file = SLED.format(floor=FLOOR, lift=LIFT)
    found = speeds(file, force, 0.0, 20, impact)
    expected = max(force - LOSS - 0.25 * MASS * 10.0, 0.0) / MASS * DT * np.arange(1, 21)
    np.testing.assert_allclose(found, expected, atol=1e-7)
