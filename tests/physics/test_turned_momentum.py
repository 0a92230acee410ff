"""A spinning top on a smooth floor: contacts turn it, and its momentum stays in the world."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxcontact as jc

from .scenes import rolling_body

TOP = """<mujoco><worldbody><geom type="plane" size="5 5 1" friction="0"/><body><freejoint/>
<inertial pos="0 0 {0}" mass="0.2" diaginertia="6e-4 7e-4 1e-3"/>
<geom type="sphere" size=".01" pos="0 0 {1}" friction="0"/></body></worldbody></mujoco>"""
SPRUNG = """<mujoco><worldbody><geom type="plane" size="5 5 .1"/>
<body pos="0 0 .1"><freejoint/><geom type="box" size=".2 .2 .1" mass="2"/>
<body pos="0 0 .1"><joint axis="0 1 0" stiffness="20" springref="30" damping=".5"/>
<geom type="capsule" fromto="0 0 0 0 0 .4" size=".03" mass="1" contype="0" conaffinity="0"/></body>
</body></worldbody></mujoco>"""
STEPPERS = {"Compliant": jc.simulate.Compliant(), "TimeStepping": jc.simulate.TimeStepping()}


@pytest.mark.slow_cases("Compliant-0.0", "TimeStepping-0.0")
@pytest.mark.long
@pytest.mark.parametrize("above", [0.0, 0.08])
@pytest.mark.parametrize("name", STEPPERS)
def test_a_smooth_floor_keeps_the_vertical_angular_momentum(name, above):
    """Forces are vertical, so the centre stays above its place; `above` is its height over the joint's origin."""
    model = jc.load_mjcf(TOP.format(above, above - 0.08))
    turn = np.array([np.cos(0.2), 0.0, np.sin(0.2), 0.0])
    spin, R = np.array([5.0, -3.0, 80.0]), rolling_body.rotation(turn)
    arm = np.array([0.0, 0.0, above])
    centre = np.array([0.0, 0.0, 0.08 * R[2, 2] + 0.01])
    tip_rate = np.cross(R @ spin, R @ [0.0, 0.0, -0.08])[2]
    origin_rate = np.array([0.0, 0.0, -tip_rate]) - np.cross(R @ spin, R @ arm)
    state = model.initial_state().replace(
        q=jnp.concatenate([centre - R @ arm, turn]), v=jnp.concatenate([origin_rate, spin])
    )
    motion = jc.simulate.rollout(model, state, None, num_steps=100, stepper=STEPPERS[name], dt=2e-3)
    assert not np.any(jc.Status.failed(motion.status))
    inertia = np.array([6e-4, 7e-4, 1e-3])
    q, v = np.asarray(motion.states.q), np.asarray(motion.states.v)
    R = np.stack([rolling_body.rotation(each / np.linalg.norm(each)) for each in q[:, 3:]])
    vertical = (R @ (inertia * v[:, 3:])[:, :, None])[:, 2, 0]
    removes_depth = name == "TimeStepping"  # which moves the body a little
    np.testing.assert_allclose(vertical, vertical[0], rtol=1e-4 if removes_depth else 1e-10)
    assert np.max(np.abs(R[:, 2, 2] - R[0, 2, 2])) > 0.01  # it nods
    centre = q[:, :3] + R @ arm
    np.testing.assert_allclose(centre[:, :2], 0.0, atol=1e-5 if removes_depth else 1e-12)


@pytest.mark.slow_cases("0.0")
@pytest.mark.long
@pytest.mark.parametrize("beside", [0.0, 0.05])
def test_no_force_explains_a_box_that_spins_in_flight(beside):
    """`beside` is the distance of its mass centre from the joint's origin."""
    model = jc.load_mjcf(f"""<mujoco><worldbody><geom type="plane" size="5 5 1"/><body pos="0 0 2"><freejoint/>
    <geom type="box" size=".1 .2 .05" mass="2" pos="{beside} 0 0"/></body></worldbody></mujoco>""")
    start = model.initial_state().replace(v=jnp.array([0.3, 0.0, 0.0, 2.0, -7.0, 4.0]))
    controls = jnp.zeros((20, model.num_controls))
    then, _ = jc.compliant.rollout(model, start, controls, dt=5e-3)
    states = jax.tree.map(lambda first, rest: jnp.concatenate([jnp.asarray(first)[None], rest]), start, then)
    lam, left = jc.compliant.estimate_forces(model, states, jnp.zeros((20, 6)), dt=5e-3)
    np.testing.assert_allclose(lam, 0.0, atol=1e-12)
    np.testing.assert_allclose(left, 0.0, atol=1e-9)


@pytest.mark.parametrize("name", STEPPERS)
def test_a_body_with_a_spring_rests_without_creep(name):
    """Without contacts it would fall and swing in each step; held by them it stays where it is."""
    model = jc.load_mjcf(SPRUNG)
    motion = jc.simulate.rollout(
        model, model.initial_state(), None, num_steps=300, stepper=STEPPERS[name], dt=0.02
    )
    assert not np.any(motion.status)
    q = np.asarray(motion.states.q)
    np.testing.assert_allclose(motion.states.v[-1], 0.0, atol=1e-12)
    np.testing.assert_allclose(q[-50:], q[-1:].repeat(50, 0), atol=1e-12)
    np.testing.assert_allclose(np.sum(motion.impulse[-1, :, 0]) / 0.02, 3 * 9.81, rtol=1e-9)


def test_friction_between_two_bodies_that_overlap_turns_nothing_but_them():
    """A soft contact is centimetres deep; both bodies have its force at one point."""
    body = """<body pos="{}"><freejoint/><inertial pos=".05 .03 -.02" mass="1" diaginertia=".01 .01 .01"/>
    <geom type="sphere" size=".1" friction=".5"/></body>"""
    pair = body.format("0 0 0") + body.format(".2 .05 .04")
    model = jc.load_mjcf(f'<mujoco><option gravity="0 0 0"/><worldbody>{pair}</worldbody></mujoco>')
    start = model.initial_state().replace(v=jnp.array([1, 0.1, 0, 1, 2, 3, -1, 0, 0.1, -3, 2, 1.0]))
    motion = jc.simulate.rollout(model, start, None, num_steps=60, stepper=jc.simulate.Compliant(), dt=5e-3)
    assert not np.any(motion.status)

    def about_origin(state):
        q, v = state.q.reshape(2, 7), state.v.reshape(2, 6)
        turned = jax.vmap(jc.rotations.quaternion_matrix)(q[:, 3:])
        spin = jnp.einsum("bij,bj->bi", turned, v[:, 3:])
        lever = turned @ jnp.array([0.05, 0.03, -0.02])
        carried = jnp.cross(q[:, :3] + lever, v[:, :3] + jnp.cross(spin, lever))
        return jnp.sum(carried + 0.01 * spin, axis=0)

    angular = jax.vmap(about_origin)(motion.states)
    slips = jnp.linalg.norm(motion.impulse[:, 0, 1:], axis=1)
    assert jnp.sum(slips) > 0.1
    first = int(jnp.argmax(slips > 0))  # strikes across a gap, which closes within the step
    after = angular[first + 1 :]
    np.testing.assert_allclose(after, after[:1].repeat(len(after), 0), atol=1e-12)
    np.testing.assert_allclose(after[0], angular[0], atol=2e-3)
