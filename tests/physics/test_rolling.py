"""A cylinder on its side rolls down a plane at 2/3 of the slope's gravity, for its contacts move over it."""

import jax.numpy as jnp
import numpy as np
import pytest

import jaxcontact as jc

pytest.importorskip("mujoco")

SLOPE = np.radians(10.0)
PLANE = '<geom type="plane" size="5 5 1" friction=".6"/>'
BODY = '<body pos="0 0 {z}" {pose}><freejoint/><geom type="cylinder" size=".02 .03" mass=".1" friction=".6"/></body>'


def cylinder(z, pose, slope=0.0):
    gravity = f'<option gravity="{9.81 * np.sin(slope)} 0 {-9.81 * np.cos(slope)}"/>'
    body = BODY.format(z=z, pose=pose)
    return jc.load_mjcf(f"<mujoco>{gravity}<worldbody>{PLANE}{body}</worldbody></mujoco>")


@pytest.mark.long
@pytest.mark.parametrize(
    "stepper",
    [jc.simulate.Compliant(settings=jc.compliant.Settings(cone="coulomb")), jc.simulate.TimeStepping()],
)
def test_a_cylinder_rolls_without_resistance(stepper):
    model = cylinder(0.02, 'euler="90 0 0"', SLOPE)
    path = jc.simulate.rollout(model, model.initial_state(), None, num_steps=100, stepper=stepper, dt=0.005)
    assert not np.any(np.asarray(path.status))
    right = 0.5 * 2.0 / 3.0 * 9.81 * np.sin(SLOPE) * 0.5**2
    np.testing.assert_allclose(path.states.q[-1, :2], [right, 0.0], atol=0.01 * right)  # a step late: dt / T


@pytest.mark.long
@pytest.mark.parametrize("tilt", [0.1, 20.0, 45.0, 90.0])
def test_gaps_of_a_cylinder_change_as_its_rows_say(tilt):
    """The rates of all gaps along q, by differences, beside the normal rows; none but the lowest is near."""
    model = cylinder(0.05, f'euler="{tilt} 0 0"')
    state = model.initial_state().replace(v=jnp.array([0.3, -0.2, 0.1, 1.0, -2.0, 8.0]))
    terms = jc.contact_terms(model, state)
    gaps = [
        jc.contact_terms(model, state.replace(q=jc.retract(model, state.q, h * state.v))).phi
        for h in (1e-6, -1e-6)
    ]
    np.testing.assert_allclose(terms.J_n @ state.v, (gaps[0] - gaps[1]) / 2e-6, atol=1e-8)
    lowest = 0.05 - 0.02 * np.sin(np.radians(tilt)) - 0.03 * np.cos(np.radians(tilt))
    above = np.sort(np.asarray(terms.phi)) - lowest
    lines = 2 if tilt == 90.0 else 1
    np.testing.assert_allclose(above[:lines], 0.0, atol=1e-15)
    assert above[lines] > 0.25 * 0.02 * np.sin(np.radians(tilt))


@pytest.mark.long
@pytest.mark.parametrize("slope", [0.5, np.radians(33.0)])
def test_a_cylinder_on_its_end_stands(slope):
    model = cylinder(0.03, "", slope)  # it falls over at 33.7 degrees
    path = jc.simulate.rollout(
        model, model.initial_state(), None, num_steps=100, stepper=jc.simulate.TimeStepping(), dt=0.005
    )
    assert not np.any(np.asarray(path.status) & ~np.uint32(jc.Status.UNTIMED))
    assert abs(float(path.states.q[-1, 4:6] @ path.states.q[-1, 4:6])) < 1e-20  # half the tilt, squared


PRISM = " ".join(
    f"{0.02 * np.cos(turn):.9f} {0.02 * np.sin(turn):.9f} {z}"
    for z in (-0.03, 0.03)
    for turn in np.arange(32) * np.pi / 16
)


@pytest.mark.long
@pytest.mark.parametrize("shape", ['type="cylinder" size=".02 .03"', 'type="mesh" mesh="prism"'])
@pytest.mark.parametrize("floor", [PLANE, '<geom type="box" size="1 1 .1" pos="0 0 -.1"/>'])
def test_a_round_body_that_fell_on_its_end_stands_still(shape, floor):
    """The deepest point of the rim goes around it as the tilt changes; alone it would rock the body for ever."""
    body = f'<body pos="0 0 .04" euler="1 .3 0"><freejoint/><geom {shape} mass=".1"/></body>'
    mesh = f'<asset><mesh name="prism" vertex="{PRISM}"/></asset>'
    model = jc.load_mjcf(f"<mujoco>{mesh}<worldbody>{floor}{body}</worldbody></mujoco>")
    stepper = jc.simulate.Compliant()
    path = jc.simulate.rollout(model, model.initial_state(), None, num_steps=150, stepper=stepper, dt=0.01)
    assert not np.any(np.asarray(path.status))
    np.testing.assert_allclose(path.states.v[-1], 0.0, atol=1e-7)
