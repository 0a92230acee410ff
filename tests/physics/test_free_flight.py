"""Motion without contacts: second order, momentum kept, energy bounded; stiff springs die out."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import solve_ivp

import jaxcontact as jc
from jaxcontact.mechanics import kinematics
from jaxcontact.mechanics.spatial import momentum

pytest.importorskip("mujoco")

STEPPERS = pytest.mark.parametrize("stepper", [jc.simulate.Compliant(), jc.simulate.TimeStepping()])
OFF_CENTRE = """<mujoco><option gravity="0 0 0"/><worldbody><body><freejoint/>
<inertial pos=".01 0 0" mass="0.1" diaginertia="1.6e-4 7e-6 1.65e-4"/></body></worldbody></mujoco>"""
SHAPE = "type='capsule' size='.03' contype='0' conaffinity='0'"
ACROBAT = f"""<mujoco><option gravity="0 0 0"/><worldbody><body pos="0 0 1"><freejoint/>
<geom type="box" size=".1 .2 .05" pos=".03 .02 .01" mass="1" contype="0" conaffinity="0"/>
<body pos=".1 0 .1"><joint type="ball"/><geom {SHAPE} fromto="0 0 0 .1 .3 0" mass=".5"/>
 <body pos=".1 .3 0"><joint name="wrist" axis="0 1 .3" armature=".01" stiffness="3000" damping=".3"/>
 <joint type="slide" axis="1 .2 0" stiffness="20"/><geom {SHAPE} fromto="0 0 0 .1 0 .2" mass=".3"/></body></body>
<body pos="-.1 0 0"><joint name="hip" axis="0 1 0" stiffness=".2"/><geom {SHAPE} fromto="0 0 0 .1 0 .2" mass=".3"/>
</body></body></worldbody>
<actuator><motor joint="hip"/><position joint="wrist" kp="500" kv="10"/></actuator></mujoco>"""
PENDULUM = f"""<mujoco><worldbody><body><joint axis="0 1 0"/><geom {SHAPE} fromto="0 0 0 0 0 -.5" mass="1"/>
<body pos="0 0 -.5"><joint axis="0 1 0"/><geom {SHAPE} fromto="0 0 0 0 0 -.5" mass="1"/></body>
</body></worldbody></mujoco>"""
SERVO = """<mujoco><worldbody><body><joint name="arm" axis="0 1 0" {joint}/>
<inertial pos=".5 0 0" mass="2" diaginertia=".1 .1 .1"/></body></worldbody>
<actuator><position joint="arm" kp="{kp}" kv="{kv}"/></actuator></mujoco>"""


def states_of(model, stepper, num_steps, dt, controls=None, state=None):
    start = model.initial_state() if state is None else state
    path = jc.simulate.rollout(model, start, controls, num_steps=num_steps, stepper=stepper, dt=dt)
    assert not np.any(np.asarray(path.status))
    return path.states


@pytest.mark.long
@STEPPERS
def test_a_body_whose_mass_centre_is_off_its_joint_flies_straight(stepper):
    model = jc.load_mjcf(OFF_CENTRE)
    start = model.initial_state().replace(v=jnp.array([0.0, 0, 0, 3.0, 50.0, 2.0]))
    states = states_of(model, stepper, 100, 0.005, state=start)
    kinetic = jax.vmap(lambda s: jc.kinetic_energy(model, s))(states)
    np.testing.assert_allclose(kinetic / kinetic[0], 1.0, atol=5e-5)
    turned = jc.rotations.quaternion_matrix(states.q[-1, 3:])
    centre = states.q[-1, :3] + turned @ jnp.array([0.01, 0, 0])
    np.testing.assert_allclose(centre, [0.01, 0.01, -0.25], atol=1e-12)  # v = w x c


@pytest.mark.long
def test_the_energy_of_a_variational_spin_swings_with_the_square_of_the_step_and_does_not_drift():
    """At a quarter of a radian per step it swings by half a percent: that is its order, and no loss."""
    model = jc.load_mjcf(OFF_CENTRE)
    start = model.initial_state().replace(v=jnp.array([0.0, 0, 0, 3.0, 50.0, 2.0]))

    @jax.jit
    def energies(dt):
        path = jc.simulate.rollout(
            model, start, None, num_steps=1600, stepper=jc.simulate.Variational(), dt=dt
        )
        return jax.vmap(lambda state: jc.kinetic_energy(model, state))(path.states), path.status

    swings = []
    for dt in (0.005, 0.0025):
        kinetic, status = energies(dt)
        assert not np.any(status)
        swing = np.abs(np.asarray(kinetic) / kinetic[0] - 1.0)
        np.testing.assert_allclose(swing[800:].max(), swing[:800].max(), rtol=0.02)
        swings.append(swing.max())
    assert 3.9 < swings[0] / swings[1] < 4.1


def momenta(model, states):
    """Angular about the world's origin, then linear."""
    structure = model.structure

    def total(state):
        at_q = kinematics.compute_kinematics(structure, state.q, model.params)
        velocities, _ = kinematics.body_motions(structure.tree, at_q, state.v)
        angular, linear = (
            jnp.stack([jnp.sum(x) for x in part]) for part in momentum(at_q.inertias, velocities)
        )
        return jnp.concatenate([angular + jnp.cross(at_q.origin[0], linear), linear])

    return np.asarray(jax.jit(jax.vmap(total))(states))


@pytest.mark.long
@STEPPERS
def test_an_acrobat_with_motors_and_springs_keeps_its_momentum(stepper):
    model = jc.load_mjcf(ACROBAT)
    rng = np.random.default_rng(1)
    start = model.initial_state().replace(v=jnp.asarray(4.0 * rng.normal(size=model.initial_state().v.shape)))
    time = 0.01 * jnp.arange(300)
    controls = jnp.stack([0.05 * jnp.sin(3 * time), 0.3 * jnp.cos(2 * time)], axis=1)
    path = momenta(model, states_of(model, stepper, 300, 0.01, controls, start))
    np.testing.assert_allclose(path, path[:1].repeat(len(path), 0), atol=1e-11 * np.abs(path[0]).max())


@pytest.mark.long
def test_a_double_pendulum_is_second_order_and_its_energy_does_not_drift():
    model = jc.load_mjcf(PENDULUM)
    start = model.initial_state().replace(q=jnp.array([1.5, 0.0]))

    @jax.jit
    def rate(y):
        state = model.initial_state().replace(q=y[:2], v=y[2:])
        return jnp.concatenate([y[2:], jc.forward_dynamics(model, state, jnp.zeros(2))])

    exact = solve_ivp(lambda _, y: rate(y), (0, 1.0), [1.5, 0.0, 0.0, 0.0], rtol=1e-10, atol=1e-12).y[:, -1]
    errors = []
    for dt in (0.01, 0.005, 0.0025):
        states = states_of(model, jc.simulate.Compliant(), round(1.0 / dt), dt, state=start)
        errors.append(np.abs(np.concatenate([states.q[-1], states.v[-1]]) - exact).max())
    assert 3.9 < errors[0] / errors[1] < 4.1 and 3.9 < errors[1] / errors[2] < 4.1
    calm = model.initial_state().replace(q=jnp.array([0.5, 0.0]))
    states = states_of(model, jc.simulate.Compliant(), 2000, 0.01, state=calm)
    total = jax.vmap(lambda s: jc.kinetic_energy(model, s) + jc.potential_energy(model, s))(states)
    error = np.abs(np.asarray(total - total[0]))
    assert error.max() < 2.0 * error[:100].max() < 0.05


@pytest.mark.long
@pytest.mark.parametrize("kp, kv, joint", [(1e8, 0.0, ""), (1e3, 1e6, ""), (1.0, 0.0, "stiffness='1e9'")])
def test_stiff_servos_springs_and_dampers_die_out_and_rest(kp, kv, joint):
    """Where a midpoint would ring: the velocity after two steps, and that at rest under gravity."""
    model = jc.load_mjcf(SERVO.format(kp=kp, kv=kv, joint=joint))
    start = model.initial_state().replace(q=jnp.array([0.1]), v=jnp.array([1.0]))
    states = states_of(model, jc.simulate.Compliant(), 20, 0.01, jnp.zeros((20, 1)), start)
    assert np.abs(np.asarray(states.v[-10:])).max() < (1e-6 if kv == 0.0 else 1e-3)


def pushed_by_time(structure, state, params):
    return jnp.ones(3) * state.t


@pytest.mark.long
@STEPPERS
def test_a_drive_acts_in_the_middle_of_a_step(stepper):
    structure = jc.Structure(dim=2, bodies=("cart",), num_positions=3)
    system = jc.System(structure, jc.free_poses, drive=pushed_by_time)
    params = jc.Params(
        mass=jnp.ones(1), inertia=jnp.ones(1), mu=jnp.zeros(0), gravity=jnp.zeros(2), constants={},
        material=jc.compliant.Material(),
    )  # fmt: skip
    state = jc.State(q=jnp.zeros(3), v=jnp.zeros(3), t=jnp.zeros(()))
    path = jc.simulate.rollout(
        jc.Model(system=system, params=params), state, None, num_steps=10, stepper=stepper, dt=0.1
    )
    np.testing.assert_allclose(path.states.v[:, 0], 0.5 * path.states.t**2, atol=1e-14)


HELD = f"""<mujoco><option gravity="0 0 0"/><worldbody><body><freejoint/>
<geom type="box" size=".2 .1 .05" mass="2" contype="0" conaffinity="0"/><body pos=".2 0 .05">
<joint axis="0 1 0" {{}}/><geom {SHAPE} fromto="0 0 0 .1 0 .4" mass="1"/></body></body></worldbody></mujoco>"""


@pytest.mark.long
@STEPPERS
@pytest.mark.parametrize("joint", ['frictionloss="10"', 'limited="true" range="-2 2"'])
def test_a_tumbling_robot_whose_joint_is_held_keeps_its_angular_momentum(stepper, joint):
    """Its energy stays that of a rigid body: with a momentum that crept it doubled in four seconds."""
    model = jc.load_mjcf(HELD.format(joint))
    start = model.initial_state().replace(v=jnp.array([0.0, 0, 0, 4, 3, 1, 0]))
    states = states_of(model, stepper, 400, 0.01, state=start)
    kinetic = jax.vmap(lambda s: jc.kinetic_energy(model, s))(states)
    assert jnp.max(kinetic) < 1.001 * kinetic[0] and kinetic[-1] > 0.98 * kinetic[0]
    path = momenta(model, states)
    np.testing.assert_allclose(path, path[:1].repeat(401, 0), atol=1e-11)
