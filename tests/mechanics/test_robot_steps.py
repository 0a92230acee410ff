"""Robots in time: joints and actuators at the end of a step, limits, resting depths, free flight, gradients."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers.robot_files import on_floor

import jaxcontact as jc
from jaxcontact.simulate.variational.discrete_momenta import lagrangian

pytest.importorskip("mujoco")


def hinge(joint="", actuator="", ranges=""):
    """One hinge across gravity: inertia 0.5 kg m^2 about its axis."""
    return f"""
    <mujoco><compiler angle="radian"/>
      <worldbody><body><joint name="hinge" axis="0 0 1" {joint} {ranges}/>
        <inertial pos="0 0 0" mass="1" diaginertia="0.5 0.5 0.5"/></body></worldbody>
      <actuator>{actuator}</actuator>
    </mujoco>"""


def one_step(text, q, v, u, dt):
    model = jc.load_mjcf(text)
    state = model.initial_state().replace(q=jnp.array([q]), v=jnp.array([v]))
    after, info = jc.compliant.step(model, state, jnp.array([u]), dt=dt)
    assert int(info.status) == 0
    return float(after.q[0]), float(after.v[0])


@pytest.mark.long
@pytest.mark.parametrize(
    ("text", "force"),  # of position, velocity and control
    [
        (hinge(joint='damping="3"'), lambda q, v, u: u - 3.0 * v),
        (hinge(joint='stiffness="40" springref="0.2"'), lambda q, v, u: u - 40.0 * (q - 0.2)),
        (
            hinge(actuator='<position joint="hinge" kp="1e6" kv="1e3" gear="2"/>'),
            lambda q, v, u: 2.0 * (1e6 * (u - 2.0 * q) - 1e3 * 2.0 * v),
        ),
        (hinge(actuator='<velocity joint="hinge" kv="50"/>'), lambda q, v, u: 50.0 * (u - v)),
    ],
)
def test_linear_forces_act_in_the_middle_of_a_step_and_stiff_ones_at_its_end(text, force):
    """0.5 (v+ - v) = dt force(q + a dt w, w, u), w = v + a (v+ - v), solved as what it is: linear."""
    q, v, u = 0.3, -1.2, 0.7
    for dt, late in ((1e-4, 0.5), (1e3, 1.0)):

        def miss(end, late=late, dt=dt):
            w = v + late * (end - v)
            return 0.5 * (end - v) - dt * force(q + late * dt * w, w, u)

        end = -miss(0.0) / (miss(1.0) - miss(0.0))
        expected = q + dt * (v + late * (end - v)), end
        tolerance = 1e-9 if late == 0.5 else 1e-5 + 1e-2 / abs(force(dt, 1.0, 0.0) - force(0.0, 0.0, 0.0))
        np.testing.assert_allclose(one_step(text, q, v, u, dt), expected, rtol=tolerance, atol=tolerance)


@pytest.mark.long
def test_an_actuator_at_the_end_of_its_range_pushes_with_all_its_force():
    servo = '<position joint="hinge" kp="1e6" forcelimited="true" forcerange="-2 2"/>'
    _, v = one_step(hinge(actuator=servo), 0.3, 0.0, 5.0, 0.01)
    np.testing.assert_allclose(v, 2.0 * 0.01 / 0.5, rtol=1e-12)
    motor = '<motor joint="hinge" gear="3" ctrllimited="true" ctrlrange="-1 1"/>'
    _, v = one_step(hinge(actuator=motor), 0.0, 0.0, 5.0, 0.01)
    np.testing.assert_allclose(v, 3.0 * 0.01 / 0.5, rtol=1e-12)


def test_limits_are_rows_and_push_back():
    text = hinge(joint='range="-0.5 0.8"')
    model = jc.load_mjcf(text)
    terms = jc.constraint_terms(model, model.initial_state().replace(q=jnp.array([0.9])))
    np.testing.assert_allclose(terms.phi, [1.4, -0.1], rtol=1e-14)
    np.testing.assert_array_equal(terms.G, [[1.0], [-1.0]])
    stiff = model.params.material.replace(stiffness=jnp.array(1e4), damping=jnp.array(0.0))
    params = model.params.replace(material=stiff)
    state = model.initial_state().replace(q=jnp.array([0.9]))
    after, _ = jc.compliant.step(model.replace(params=params), state, jnp.zeros(1), dt=1e-3)
    # 0.5 w = -1e-3 1e4 (0.1 + 1e-3 w)
    np.testing.assert_allclose(after.v[0], -1e-3 * 1e4 * 0.1 / (0.5 + 1e-6 * 1e4), rtol=1e-9)


@pytest.mark.slow_cases(
    'type="box" size="0.2 0.1 0.05"-0.05-4',
    'type="capsule" size="0.05 0.2" euler="0 90 0"-0.05-2',
    'type="sphere" size="0.1"-0.1-1',
)
@pytest.mark.parametrize(
    ("geom", "height", "contacts"),
    [
        ('type="sphere" size="0.1"', 0.1, 1),
        ('type="capsule" size="0.05 0.2" euler="0 90 0"', 0.05, 2),
        ('type="box" size="0.2 0.1 0.05"', 0.05, 4),
    ],
)
def test_a_body_rests_as_deep_as_weight_over_stiffness(geom, height, contacts):
    model = jc.load_mjcf(on_floor(geom))
    model = model.replace(params=model.params.replace(material=jc.compliant.stiff_material(2.0)))
    np.testing.assert_array_equal(model.params.mu, 1.0)  # the larger of the two
    state = model.initial_state().replace(q=model.initial_state().q.at[2].set(height))
    controls = jnp.zeros((60, 6))
    states, info = jc.compliant.rollout(model, state, controls, dt=0.01)
    assert not np.any(info.status)
    depth = 2.0 * 9.81 / contacts / float(model.params.material.stiffness)
    np.testing.assert_allclose(height - states.q[-1, 2], depth, rtol=1e-6)
    assert np.max(np.abs(states.v[-1])) < 1e-6


@pytest.mark.slow
def test_a_quadruped_stands_on_its_servos():
    model = jc.models.quadruped()
    controls = jnp.tile(model.initial_state().q[7:], (300, 1))
    states, info = jc.compliant.rollout(model, model.initial_state(), controls, dt=0.01)
    assert not np.any(info.status)
    last = jax.tree.map(lambda x: x[-1], states)
    normal = info.lam[-1, -12::3]  # four contacts of three rows come last
    weight = 9.81 * float(jnp.sum(model.params.mass))
    np.testing.assert_allclose(jnp.sum(normal), weight, rtol=1e-4)
    assert np.max(np.abs(last.v)) < 1e-3
    with pytest.raises(ValueError, match=r"controls: expected shape \(T, 12\), got \(300, 18\)"):
        jc.compliant.rollout(model, model.initial_state(), jnp.zeros((300, 18)), dt=0.01)
    with pytest.raises(ValueError, match=r"controls: expected shape \(12,\), got \(18,\)"):
        jc.compliant.step(model, model.initial_state(), jnp.zeros(18), dt=0.01)


def flight(model, start, dt, times):
    """Energy, and momentum (linear, then angular about the centre of mass), before and after 300 steps."""
    state = start
    seen = []
    for _ in range(times + 1):
        M, frames = jc.mass_matrix(model, state.q), jc.forward_kinematics(model, state.q)
        centres = frames[0] + jnp.einsum("bij,bj->bi", frames[1], model.params.tree.com)
        centre = model.params.mass @ centres / jnp.sum(model.params.mass)
        linear, angular = jnp.split((M @ state.v)[:6], 2)  # of the free joint: in the world, in body axes
        angular = frames[1][0] @ angular - jnp.cross(centre - frames[0][0], linear)
        seen.append((float(jc.kinetic_energy(model, state)), np.concatenate([linear, angular])))
        states, info = jc.compliant.rollout(model, state, jnp.zeros((300, 12)), dt=dt)
        assert not np.any(info.status)
        state = jax.tree.map(lambda x: x[-1], states)
    return seen[0], seen[-1]


@pytest.mark.slow
def test_a_tree_in_free_flight(rng):
    """Ten seconds of a dog with loose joints: energy and momentum drift at the order of dt."""
    model = jc.models.quadruped()
    params, tree = model.params, model.params.tree
    loose = {name: jnp.zeros_like(getattr(tree, name)) for name in ("damping", "gain", "bias", "armature")}
    wide = jnp.tile(jnp.array([-1e3, 1e3]), (len(tree.limits), 1))
    params = params.replace(gravity=jnp.zeros(3), tree=tree.replace(limits=wide, **loose))
    v = jnp.asarray(0.3 * rng.normal(size=18))
    start = model.initial_state().replace(q=model.initial_state().q.at[2].add(50.0), v=v)
    drifts = []
    for times in (1, 2):
        before, after = flight(model.replace(params=params), start, 10.0 / 300 / times, times)
        scales = before[0], *(np.linalg.norm(part) for part in np.split(before[1], 2))
        changes = after[0] - before[0], *np.split(after[1] - before[1], 2)
        drifts.append([np.linalg.norm(c) / s for c, s in zip(changes, scales, strict=True)])
    print("energy, linear, angular momentum:", drifts)
    coarse, fine = np.array(drifts)
    assert np.all(coarse < 0.1)
    assert np.all(fine < np.maximum(0.3 * coarse, 1e-12))


def test_energy_changes_by_what_dampers_take(rng):
    """dE/dt = -v D v in flight: kinetic, potential and spring energy, bias and forces of joints fit together."""
    model = jc.models.half_cheetah()
    v = jnp.asarray(rng.normal(size=9))
    state = model.initial_state().replace(q=model.initial_state().q + 0.4 * v, v=v)

    @jax.jit
    def power(params):
        acceleration = jc.forward_dynamics(model.replace(params=params), state, jnp.zeros(9))

        def energy(q, v):
            now = state.replace(q=q, v=v)
            return jc.kinetic_energy(model.replace(params=params), now) + jc.potential_energy(
                model.replace(params=params), now
            )

        return jax.jvp(energy, (state.q, v), (v, acceleration))[1]

    np.testing.assert_allclose(power(model.params), -v @ (model.params.tree.damping * v), rtol=1e-10)


@pytest.mark.slow
def test_inverse_and_forward_dynamics_undo_each_other(rng):
    model = jc.models.quadruped()
    state = model.initial_state().replace(v=jnp.asarray(rng.normal(size=18)))
    acceleration = jnp.asarray(rng.normal(size=18))
    tau = jc.inverse_dynamics(model, state, acceleration)
    found = jc.forward_dynamics(model, state, tau)
    np.testing.assert_allclose(found, acceleration, rtol=1e-9)


def test_a_mass_of_zero_is_refused_and_gives_nan_inside_jit():
    model = jc.models.rocking_block()
    massless = model.params.replace(mass=jnp.zeros(1))
    tau = jnp.zeros(3)
    with pytest.raises(ValueError, match="params: expected masses and inertias that make the mass matrix"):
        jc.forward_dynamics(model.replace(params=massless), model.initial_state(), tau)

    @jax.jit
    @jax.vmap
    def vertical(mass):
        return jc.forward_dynamics(
            model.replace(params=model.params.replace(mass=mass)), model.initial_state(), tau
        )[1]

    np.testing.assert_array_equal(vertical(jnp.array([[0.0], [2.0], [-1.0]])), [np.nan, -9.81, np.nan])


def test_questions_asked_wrongly():
    model = jc.models.quadruped()
    model, state = model, model.initial_state()
    with pytest.raises(ValueError, match="body: expected one of trunk, FR_hip"):
        jc.point_jacobian(model, state.q, "tail", jnp.zeros(3))
    with pytest.raises(TypeError, match="q: expected an array, got list"):
        jc.forward_kinematics(model, [0.0])
    with pytest.raises(ValueError, match=r"controls: expected shape \(12,\), got \(18,\)"):
        jc.actuator_forces(model, state, jnp.zeros(18))


def test_the_lagrangian_of_a_robot_is_that_of_its_tree(rng):
    """Not of point masses at the origins of bodies."""
    model = jc.models.half_cheetah()
    v = jnp.asarray(rng.normal(size=9))
    state = model.initial_state().replace(q=model.initial_state().q + 0.3 * v, v=v)
    free = model.params.replace(tree=model.params.tree.replace(stiffness=jnp.zeros(9)))
    energies = (e(model.replace(params=free), state) for e in (jc.kinetic_energy, jc.potential_energy))
    kinetic, potential = energies
    found = lagrangian(model.replace(params=free), state.q, state.v)
    np.testing.assert_allclose(found, kinetic - potential, rtol=1e-13)
