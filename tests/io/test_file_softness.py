"""solref and solimp of a file: bounces, depths and limits as MuJoCo has them at a small time step."""

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest

import jaxcontact as jc

STEP = 5e-4
FREE = "<freejoint/>"
PLANAR = '<joint type="slide" axis="1 0 0"/><joint type="slide" axis="0 0 1"/><joint axis="0 1 0"/>'


def dropped(geom, height, joints=FREE, option="", floor=""):
    """A geom of half height 0.1 m above a floor by `height`."""
    return f"""<mujoco><option timestep="{STEP}" {option}/><worldbody>
    <geom type="plane" size="5 5 1" priority="-1" {floor}/>
    <body pos="0 0 {height + 0.1}">{joints}<geom {geom} mass="2"/></body></worldbody></mujoco>"""


def heights(file, index, steps, planar=False):
    """Heights of a body over time, by MuJoCo and by ours."""
    mj = mujoco.MjModel.from_xml_string(file)
    data, expected = mujoco.MjData(mj), []
    for _ in range(steps):
        mujoco.mj_step(mj, data)
        expected.append(data.qpos[index])
    model = jc.load_mjcf(file, planar=planar)
    controls = jnp.zeros((steps, model.num_controls))
    states, info = jc.compliant.rollout(model, model.initial_state(), controls, dt=STEP)
    assert not np.any(np.asarray(info.status))
    return np.array(expected), np.asarray(states.q[:, index])


def bounce(height, rest):
    """The lowest height, and the rise over the height at rest after it."""
    lowest = int(np.argmin(height))
    return height[lowest] - rest, np.max(height[lowest:]) - rest


@pytest.mark.long
def test_a_ball_bounces_as_in_mujoco():
    """Dropped from 10 cm on a springy contact: depth and first bounce; q of a planar body is relative."""
    file = dropped('type="sphere" size="0.1" solref="0.02 0.3"', 0.1, PLANAR)
    expected, found = heights(file, 1, 520, planar=True)
    (depth, rise), (our_depth, our_rise) = bounce(expected, -0.1), bounce(found, -0.1)
    assert rise > 0.015
    np.testing.assert_allclose([our_depth, our_rise], [depth, rise], rtol=0.05)


@pytest.mark.slow
@pytest.mark.parametrize("mu", [1.0, 0.5])
@pytest.mark.parametrize("solref", ["0.02 1", "0.02 0.3", "-30000 -30", "0.005 0.5"])
def test_a_box_bounces_as_in_mujoco(solref, mu):
    """Flat on four corners; a contact that hardly bounces is compared by its depth and its rest."""
    geom = f'type="box" size="0.2 0.2 0.1" solref="{solref}" friction="{mu}"'
    expected, found = heights(dropped(geom, 0.1), 2, 700)
    (depth, rise), (our_depth, our_rise) = bounce(expected, 0.1), bounce(found, 0.1)
    np.testing.assert_allclose(our_depth, depth, rtol=0.05)
    np.testing.assert_allclose(our_rise, rise, rtol=0.05, atol=2e-4)


CORNER = 0.6 / np.sqrt(2.09) * np.array([1.0, 1.0, 0.3])  # rad, a turn that puts one corner lowest
TOSSES = {  # height of the centre, m, turn, velocity: flat without friction, flat and sliding, on one corner
    "flat": (0.031, np.zeros(3), [0.0, 0.0, -1.0, 0.0, 0.0, 0.0]),
    "sliding": (0.031, np.zeros(3), [1.0, 0.3, -1.0, 0.0, 0.0, 0.0]),
    "corner": (0.0663, CORNER, [1.0, 0.3, -1.0, 1.0, 2.0, 3.0]),
}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:load_mjcf ignores option cone")
@pytest.mark.parametrize("toss", TOSSES)
def test_an_impact_with_friction_is_that_of_mujoco_in_its_convex_cone(toss):
    """Friction of the associated cone, with the mass and damper of the normal: MuJoCo's at a fine time step.

    MuJoCo leaves out (dJ/dt) v, half of the 3 % by which a box turns otherwise that strikes with a corner.
    """
    contact, (height, turn, v) = 'friction="0.4" solref="0.01 0.4"', TOSSES[toss]
    file = f"""<mujoco><option timestep="1e-5" cone="elliptic"/><worldbody>
    <geom type="plane" size="5 5 1" {contact}/><body><freejoint/>
    <geom type="box" size="0.05 0.04 0.03" mass="0.4" {contact}/></body></worldbody></mujoco>"""
    q = np.concatenate([[0.0, 0.0, height], jc.rotations.quaternion_exp(jnp.asarray(turn))])
    mj = mujoco.MjModel.from_xml_string(file)
    data = mujoco.MjData(mj)
    data.qpos[:], data.qvel[:] = q, v
    for _ in range(4000):
        mujoco.mj_step(mj, data)
    model, steps = jc.load_mjcf(file), 160
    state = model.initial_state().replace(q=jnp.asarray(q), v=jnp.asarray(v))
    states, info = jc.compliant.rollout(
        model, state, jnp.zeros((steps, 6)), dt=0.04 / steps,
        settings=jc.compliant.Settings(cone="associated"),
    )  # fmt: skip
    assert not np.any(info.status)
    np.testing.assert_allclose(states.v[-1, :3], data.qvel[:3], atol=0.04)
    np.testing.assert_allclose(states.v[-1, 3:], data.qvel[3:], atol=0.6 if toss == "corner" else 0.01)
    np.testing.assert_allclose(states.q[-1, :3], data.qpos[:3], atol=7e-4)


@pytest.mark.long
@pytest.mark.parametrize("cone", ["associated", "pyramid"])
def test_a_contact_of_a_file_pushes_nothing_in_flight(cone):
    file = dropped('type="sphere" size="0.1"', 1.0, PLANAR)
    model = jc.load_mjcf(file, planar=True)
    states, _ = jc.compliant.rollout(
        model, model.initial_state(), jnp.zeros((40, 3)), dt=STEP, settings=jc.compliant.Settings(cone=cone)
    )
    np.testing.assert_allclose(states.v[-1, 1], -9.81 * 40 * STEP, rtol=1e-9)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:load_mjcf ignores option cone")
def test_a_box_rests_at_the_depth_of_mujoco():
    file = dropped('type="box" size="0.2 0.2 0.1" solimp="0.8 0.9 0.01 0.4 3"', 0.0, option='cone="elliptic"')
    expected, found = heights(file, 2, 800)
    np.testing.assert_allclose(found[-1] - 0.1, expected[-1] - 0.1, rtol=0.01)


@pytest.mark.slow
def test_a_limit_yields_as_in_mujoco():
    file = f"""<mujoco><option timestep="{STEP}"/><worldbody><body><joint axis="0 1 0" range="-90 20"
    solreflimit="0.03 0.4" limited="true"/><geom type="capsule" fromto="0 0 0 1 0 0" size="0.05" mass="1"/>
    </body></worldbody></mujoco>"""
    expected, found = heights(file, 0, 900)
    limit = np.radians(20.0)
    beyond, ours = np.max(expected) - limit, np.max(found) - limit
    back = np.min(expected[np.argmax(expected) :]) - limit, np.min(found[np.argmax(found) :]) - limit
    np.testing.assert_allclose(ours, beyond, rtol=0.05)
    np.testing.assert_allclose(back[1], back[0], rtol=0.08)  # 3 % off by either step


def falling(model, start, slide=0.3, steps=12):
    """Position and velocity of a planar ball 3 mm over the floor, after a landing at 0.7 m/s."""
    state = model.initial_state()
    state = state.replace(q=state.q.at[1].add(0.003 + start), v=state.v.at[:2].set(jnp.array([slide, -0.7])))
    states, _ = jc.compliant.rollout(model, state, jnp.zeros((steps, model.num_controls)), dt=0.002)
    return jnp.concatenate([states.q[-1], states.v[-1]])


BALL = dropped('type="sphere" size="0.1" solref="0.02 0.3" solimp="0.8 0.95 0.01 0.4 3"', 0.0, PLANAR)


@pytest.mark.slow
def test_a_landing_does_not_depend_on_the_unit_of_mass():
    model = jc.load_mjcf(BALL, planar=True)
    springs, params = model.params.material.stiffness, model.params
    law = params.material.replace(stiffness=springs.replace(mobility=springs.mobility / 1e6))
    heavy = model.replace(
        params=params.replace(mass=1e6 * params.mass, inertia=1e6 * params.inertia, material=law)
    )
    found = jax.jit(falling)  # without sliding: the damper of friction that sticks is in N s/m
    np.testing.assert_allclose(found(heavy, 0.0, 0.0), found(model, 0.0, 0.0), atol=1e-12)


@pytest.mark.slow
def test_the_derivative_of_a_landing_is_that_of_differences():
    """By the height of the start and by every number of the softness."""
    model = jc.load_mjcf(BALL, planar=True)
    springs = model.params.material.stiffness

    def end(x):
        changed = springs.replace(
            stiffness=springs.stiffness * (1 + x[1]),
            damping=springs.damping * (1 + x[2]),
            mobility=springs.mobility * (1 + x[3]),
            highest=springs.highest + 0.01 * x[4],
        )
        law = model.params.material.replace(stiffness=changed)
        return falling(model.replace(params=model.params.replace(material=law)), x[0])

    origin, step, compiled = jnp.zeros(5), 1e-6, jax.jit(end)
    found = jax.jit(jax.jacfwd(end))(origin)
    columns = [compiled(origin.at[k].add(step)) - compiled(origin.at[k].add(-step)) for k in range(5)]
    expected = np.stack(columns, axis=1) / (2 * step)
    np.testing.assert_allclose(found, expected, atol=1e-5 * np.max(np.abs(expected)))


@pytest.mark.long
@pytest.mark.parametrize("mass", [1.0, 1e9])
def test_friction_holds_what_is_heavy(mass):
    """A box on a slope that friction holds, and a slide that its dry friction stops."""
    slope = np.radians(20.0)
    file = f"""<mujoco><option gravity="{9.81 * np.sin(slope)} 0 {-9.81 * np.cos(slope)}"/><worldbody>
    <geom type="plane" size="9 9 1" friction=".5"/>
    <body pos="0 0 .1">{PLANAR}<geom type="box" size=".1 .1 .1" mass="{mass}" friction=".5"/></body>
    <body><joint type="slide" axis="0 1 0" frictionloss="{30.0 * mass}"/>
    <geom type="sphere" size=".1" mass="{mass}" contype="0" conaffinity="0"/></body></worldbody></mujoco>"""
    model = jc.load_mjcf(file)
    start = model.initial_state()
    start = start.replace(v=start.v.at[3].set(0.1))
    states, info = jc.compliant.rollout(model, start, jnp.zeros((60, model.num_controls)), dt=0.01)
    assert not np.any(np.asarray(info.status))
    creeps = (states.q[-1, 0] - states.q[-11, 0]) / 0.1, states.v[-1, 3]
    np.testing.assert_allclose(creeps, 0.0, atol=3e-7)


def test_springs_times_a_number_keep_their_damping_ratio():
    file = dropped('type="sphere" size="0.1"', 0.0)
    springs = jc.load_mjcf(file).params.material.stiffness
    stiff = jc.load_mjcf(file.replace('size="0.1"', 'size="0.1" solref="0.002 1"')).params.material.stiffness
    for product in (springs * 100.0, np.float64(100.0) * springs, jnp.asarray(100.0) * springs):
        np.testing.assert_allclose(product.stiffness, stiff.stiffness)
        np.testing.assert_allclose(product.damping, stiff.damping)
        np.testing.assert_allclose(product.joint_stiffness, 100.0 * springs.joint_stiffness)
        np.testing.assert_allclose(product.joint_damping, 10.0 * springs.joint_damping)
    with pytest.raises(ValueError, match="stiffness"):
        springs * -1.0
    with pytest.raises(TypeError):
        springs * springs
