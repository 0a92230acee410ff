"""Forces and torques on named bodies, against closed forms and MuJoCo's `xfrc_applied`."""

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest
from helpers import sliding_disc
from oracles.mujoco_mechanics import random_data, state_of

import jaxcontact as jc
from jaxcontact.mechanics.motion_equations import applied_forces, kinematics_of
from jaxcontact.models import robots

BOX = """
<mujoco>
  <option gravity="0 0 -10"/>
  <worldbody>
    <geom name="floor" type="plane" size="5 5 1" friction="0.3"/>
    <body name="box" pos="0 0 0.1"><freejoint/>
      <geom type="box" pos="0.02 0 0" size="0.2 0.2 0.1" mass="2" friction="0.3"/>
    </body>
  </worldbody>
</mujoco>
"""
STEPPERS = {
    "compliant": jc.simulate.Compliant(),
    "time": jc.simulate.TimeStepping(impact=jc.impact.AnitescuPotra()),
    "events": jc.simulate.EventDriven(impact=jc.impact.AnitescuPotra()),
    "variational": jc.simulate.Variational(impact=jc.impact.AnitescuPotra()),
}


@pytest.mark.long
def test_wrenches_of_a_quadruped_are_those_of_mujoco():
    """At the mass centres, not the frames, of bodies that turn, along the axes of the world."""
    mj, model = mujoco.MjModel.from_xml_string(robots.file_of("quadruped")), jc.models.quadruped()
    rng = np.random.default_rng(0)
    data = random_data(rng, mj)
    mj_wrench = rng.normal(size=(mj.nbody - 1, 6))
    before = data.qfrc_smooth.copy()
    data.xfrc_applied[1:] = mj_wrench
    mujoco.mj_forward(mj, data)
    loaded = model.replace(params=model.params.replace(applied=jnp.asarray(mj_wrench)))
    state = state_of(data)
    found = applied_forces(loaded, state.q, kinematics_of(loaded, state.q))
    np.testing.assert_allclose(found, data.qfrc_smooth - before, atol=1e-12)
    added = jc.bias(loaded, state) - jc.bias(model, state)
    np.testing.assert_allclose(added, -found, atol=1e-11)


def test_a_body_that_is_no_tree_feels_its_wrench_in_the_world():
    """Poses of any kind give the forces of free bodies: the torque turned to the axes of the body."""
    model = jc.models.tossed_cube()
    q = jnp.array([0.1, 0.2, 0.3, 0.5, 0.5, -0.5, 0.5])
    wrench = jnp.arange(1.0, 7.0)[None]
    loaded = model.replace(params=model.params.replace(applied=wrench))
    turned = jc.rotations.quaternion_matrix(q[3:]).T @ wrench[0, 3:]
    found = applied_forces(loaded, q, kinematics_of(loaded, q))
    np.testing.assert_allclose(found, [1.0, 2.0, 3.0, *turned], atol=1e-14)


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    ["compliant", *(pytest.param(n, marks=pytest.mark.slow) for n in ("time", "events", "variational"))],
)
def test_a_pushed_disc_moves_as_its_closed_form(name):
    """In flight, a force that starts after 3 of 6 steps and a torque: parabolas for every stepper."""
    model = sliding_disc.MODEL
    body, dt = model.structure.bodies[0], 0.01
    m, inertia = float(model.params.mass[0]), float(model.params.inertia[0])
    state = sliding_disc.STATE.replace(q=jnp.array([0.0, 5.0, 0.3]), v=jnp.zeros(3))
    wrench = jnp.zeros((6, 3)).at[3:, :2].set(jnp.array([3.0, 2.0])).at[:, 2].set(0.5)
    found = jc.simulate.rollout(
        model,
        state,
        jc.simulate.Inputs(jnp.zeros((6, 3)), applied={body: wrench}),
        stepper=STEPPERS[name],
        dt=dt,
    )
    half = 3 * dt
    g = float(model.params.gravity[1])
    expected = [
        3.0 / m * half**2 / 2,
        5.0 + g * (2 * half) ** 2 / 2 + 2.0 / m * half**2 / 2,
        0.3 + 0.5 / inertia * (2 * half) ** 2 / 2,
    ]
    assert not np.any(np.asarray(found.status))
    np.testing.assert_allclose(found.states.q[-1], expected, atol=1e-9)


@pytest.mark.slow
def test_a_pushed_disc_rolls_and_its_slope_is_that_of_the_force():
    """It rolls with the acceleration F / (m + I / r^2); the speed by F is t / (m + I / r^2)."""
    model, dt = sliding_disc.MODEL, 0.01
    state = sliding_disc.STATE.replace(v=jnp.zeros(3))
    heavy = 2.0 + 0.01 / 0.1**2

    def speed(push):
        wrench = {"disc": jnp.zeros((6, 3)).at[:, 0].set(push)}
        return jc.compliant.rollout(model, state, jnp.zeros((6, 3)), dt=dt, applied=wrench)[0].v[-1, 0]

    value, slope = jax.jvp(speed, (4.0,), (1.0,))
    np.testing.assert_allclose([value, slope], [4.0 * 6 * dt / heavy, 6 * dt / heavy], rtol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["compliant", "time"])
def test_a_box_pushed_beyond_its_friction_slides_as_its_closed_form(name):
    """Pushed at its mass centre by F > mu m g, it accelerates by F / m - mu g; a weaker push leaves it."""
    model, dt, steps = jc.load_mjcf(BOX), 0.002, 50
    state, _ = jc.place_on_ground(model, model.initial_state())

    def speed(push):
        wrench = {"box": jnp.zeros((steps, 6)).at[:, 0].set(push)}
        controls = jnp.zeros((steps, model.num_controls))
        found = jc.simulate.rollout(
            model, state, jc.simulate.Inputs(controls, applied=wrench), stepper=STEPPERS[name], dt=dt
        )
        return found.states.v[-1, 0]

    found = jax.jit(jax.vmap(speed))(jnp.array([10.0, 5.0]))
    np.testing.assert_allclose(found, [(10.0 / 2.0 - 3.0) * dt * steps, 0.0], atol=4e-3)


def test_wrenches_that_do_not_fit_are_refused_by_name():
    model, controls = sliding_disc.MODEL, jnp.zeros(3)

    def call(applied):
        return jc.compliant.step(model, sliding_disc.STATE, controls, dt=0.01, applied=applied)

    with pytest.raises(ValueError, match="applied: expected names of bodies, .*; got 'leg'"):
        call({"leg": jnp.zeros(3)})
    with pytest.raises(ValueError, match=r"applied\['.*'\]: expected shape \(3,\), got \(6,\)"):
        call({model.structure.bodies[0]: jnp.zeros(6)})
    with pytest.raises(TypeError, match="applied: expected a mapping, got"):
        call(jnp.zeros(3))
