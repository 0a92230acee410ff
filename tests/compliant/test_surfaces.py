"""Surfaces that run: a conveyor's closed form, MuJoCo's velocities, and who refuses them."""

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest

import jaxcontact as jc
from jaxcontact.terms import constraint_terms
from jaxcontact.terms.contacts import bodies_of, body_motion, place
from jaxcontact.terms.surfaces import surface_velocities

pytestmark = pytest.mark.skipif(
    not hasattr(mujoco.MjModel, "geom_surfacevel"), reason="MuJoCo before version 4 has no surfacevel"
)
MU, SPEED, DT, STEPS = 0.4, 1.0, 0.005, 120
G = 9.81
JOINTS = (
    "<joint type='slide' axis='1 0 0'/><joint type='slide' axis='0 0 1'/><joint type='hinge' axis='0 1 0'/>"
)


def conveyor(surface, joints="<freejoint/>"):
    """A crate of 1 kg on a belt that runs."""
    return f"""<mujoco><default><geom type='box' friction='{MU}'/></default><worldbody>
    <geom name='belt' size='3 .5 .05' pos='0 0 -.05' {surface}/>
    <body pos='0 0 .05'>{joints}<geom name='crate' size='.1 .1 .05' mass='1'/></body>
    </worldbody></mujoco>"""


def way(speed, time):
    """How far friction takes a crate: it slips until it has the speed of the belt."""
    return speed * time - speed**2 / (2.0 * MU * G)


def carried(model, material=None):
    """The motion of the crate from rest."""
    params = model.params if material is None else model.params.replace(material=material)
    model = model.replace(params=params)
    return jc.compliant.rollout(model, model.initial_state(), jnp.zeros((STEPS, model.num_controls)), dt=DT)


@pytest.mark.slow_cases("False")
@pytest.mark.long
@pytest.mark.parametrize("planar", [True, False])
def test_a_conveyor_takes_a_crate_to_its_speed(planar):
    joints = JOINTS if planar else "<freejoint/>"
    read = jc.load_mjcf(conveyor(f"surfacevel='{SPEED} 0 0 0 0 0'", joints), planar=planar)
    still = jc.load_mjcf(conveyor("", joints), planar=planar)
    told = jc.move_surfaces(still, {"belt": [SPEED, 0.0] if planar else [SPEED, 0.0, 0.0]})
    np.testing.assert_array_equal(told.params.surface_velocity, read.params.surface_velocity)
    states, info = carried(read, jc.compliant.stiff_material(1.0))
    assert not np.any(np.asarray(info.status))
    assert abs(float(states.q[-1, 0]) - way(SPEED, DT * STEPS)) < SPEED * DT
    assert abs(float(states.v[-1, 0]) - SPEED) < 1e-6
    assert np.max(np.abs(info.slip[-1])) < 1e-6
    assert np.max(np.abs(info.slip[0, :, 0])) > 0.9 * SPEED


@pytest.mark.slow
def test_the_way_has_its_derivative_by_the_speed():
    still = jc.load_mjcf(conveyor("", JOINTS), planar=True)

    def end(speed):
        model = jc.move_surfaces(still, {"belt": jnp.stack([speed, 0.0])})
        return carried(model, jc.compliant.stiff_material(1.0))[0].q[-1, 0]

    exact = DT * STEPS - SPEED / (MU * G)
    step = 1e-4
    forward = jax.jvp(end, (SPEED,), (1.0,))[1]
    differences = (end(SPEED + step) - end(SPEED - step)) / (2.0 * step)
    np.testing.assert_allclose(forward, differences, rtol=1e-5)
    np.testing.assert_allclose(jax.grad(end)(SPEED), forward, rtol=1e-10)
    assert abs(float(forward) - exact) < 2.0 * DT


PARTS = """<mujoco><worldbody>
<geom name='floor' type='plane' size='5 5 1' quat='.95 .1 .1 .3' surfacevel='.1 .2 .3 .4 .5 .6' condim='6'/>
<body name='lower' pos='.3 .1 .2' quat='.7 .2 -.1 .4'><freejoint/>
<geom name='roller' type='capsule' size='.2 .3' pos='.05 .02 .01' quat='.8 .1 .3 -.2' mass='1'
 surfacevel='.3 -.2 .1 .7 -.4 2' condim='6'/></body>
<body name='upper' pos='.35 .1 .7' quat='.3 .2 -.1 .4'><freejoint/>
<geom name='ball' size='.2' pos='.01 .02 0' mass='1' surfacevel='-.5 .1 .2 1 .3 -.6' condim='6'/></body>
</worldbody></mujoco>"""


@pytest.mark.slow
def test_surfaces_run_as_in_mujoco():
    mj = mujoco.MjModel.from_xml_string(PARTS)
    data = mujoco.MjData(mj)
    mujoco.mj_forward(mj, data)
    model = jc.load_mjcf(PARTS)
    state = model.initial_state()
    frames, bodies = body_motion(model, state.q, state.v), bodies_of(model.system)
    places, _ = place(model, *frames[:2])
    names = jc.contacts(model, state).names
    met = set()
    for contact in data.contact:
        pair = {mj.geom(geom).name for geom in contact.geom}
        met.add(frozenset(pair))
        row = next(k for k, each in enumerate(names) if {*each} == pair)
        sign = 1.0 if mj.geom(contact.geom[1]).name == names[row][0] else -1.0
        there = jnp.broadcast_to(contact.pos, places.point.shape)  # MuJoCo's point for every contact
        velocity, spin = surface_velocities(
            model, bodies, places._replace(point=there, point_b=there), frames
        )
        normal, *tangents = contact.frame.reshape(3, 3)
        found = [*(sign * tangent @ velocity[row] for tangent in tangents), sign * normal @ spin[row]]
        np.testing.assert_allclose(found, contact.surfacevel, atol=1e-12)
    assert len(met) >= 2


@pytest.mark.long
def test_a_belt_that_turns_turns_a_crate():
    turning = 2.0
    model = jc.load_mjcf(conveyor(""))
    model = jc.move_surfaces(model, {"belt": [0.0, 0.0, 0.0, 0.0, 0.0, turning]})
    states, info = carried(model, jc.compliant.stiff_material(1.0))
    assert not np.any(np.asarray(info.status))
    assert abs(float(states.v[-1, 5]) - turning) < 1e-6


@pytest.mark.slow
def test_contacts_slide_over_the_belt_and_draw_power():
    model = jc.load_mjcf(conveyor(f"surfacevel='{SPEED} 0 0 0 0 0'"))
    state = model.initial_state()
    impulse = jnp.zeros((model.structure.num_contacts, 3))
    seen = jc.contacts(model, state, impulse=impulse, dt=DT)
    first = 1.0 if seen.names[0][0] == "belt" else -1.0
    np.testing.assert_allclose(np.asarray(seen.velocity), first * np.tile([SPEED, 0, 0], (len(impulse), 1)))


@pytest.mark.long
def test_impacts_and_motion_over_impulse_refuse_a_belt():
    model = jc.load_mjcf(conveyor(f"surfacevel='{SPEED} 0 0 0 0 0'", JOINTS), planar=True)
    state = model.initial_state()
    with pytest.raises(ValueError, match=r"params\.surface_velocity"):
        jc.contact_terms(model, state)
    with pytest.raises(ValueError, match=r"params\.surface_velocity"):
        jc.simulate.augmented_motion(model, state, length=1.0)
    mj = mujoco.MjModel.from_xml_string(conveyor(f"surfacevel='{SPEED} 0 0 0 0 0'"))
    with pytest.raises(ValueError, match="surfacevel"):
        jc.from_mujoco(mj, mujoco.MjData(mj), touching=1e-3)


def test_wrong_surfaces_are_named():
    model = jc.load_mjcf(conveyor(""))
    with pytest.raises(ValueError, match="velocities: expected names of shapes, belt, crate"):
        jc.move_surfaces(model, {"band": [1.0, 0.0, 0.0]})
    with pytest.raises(ValueError, match=r"velocities\['belt'\]: expected shape"):
        jc.move_surfaces(model, {"belt": [1.0, 0.0]})
    with pytest.raises(TypeError, match="velocities"):
        jc.move_surfaces(model, [1.0, 0.0])
    with pytest.raises(ValueError, match="leaves the x-z plane"):
        jc.load_mjcf(conveyor("surfacevel='0 1 0 0 0 0'", JOINTS), planar=True)


@pytest.mark.slow
def test_nearest_contacts_have_the_same_rows():
    model = jc.load_mjcf(conveyor(f"surfacevel='{SPEED} 0 0 0 0 .3'"))
    rows = constraint_terms(model, model.initial_state()).surface
    few, nearest = jc.terms.nearest_terms(model, model.initial_state(), 4)
    np.testing.assert_allclose(few.surface.reshape(-1, 3), rows.reshape(-1, 3)[nearest.index])
