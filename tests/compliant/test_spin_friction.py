"""Torsional and rolling friction of compliant steps, against closed forms and MuJoCo's elliptic cone."""

import warnings

import jax.numpy as jnp
import mujoco
import numpy as np
import pytest

import jaxcontact as jc

RADIUS, MASS, TORSION, ROLL = 0.1, 2.0, 0.02, 0.01  # m, kg, m, m
INERTIA = 0.4 * MASS * RADIUS**2


def ball(condim, mu=1.0, option=""):
    return f"""<mujoco><option {option}/><worldbody><geom type="plane" size="5 5 1" priority="-1"/>
    <body pos="0 0 {RADIUS}"><freejoint/>
    <geom size="{RADIUS}" mass="{MASS}" condim="{condim}" friction="{mu} {TORSION} {ROLL}"/>
    </body></worldbody></mujoco>"""


def moved(model, v, steps, dt, settings=jc.compliant.Settings()):
    state = model.initial_state().replace(v=jnp.asarray(v, float))
    controls = jnp.zeros((steps, model.num_controls))
    states, info = jc.compliant.rollout(model, state, controls, dt=dt, settings=settings)
    assert not np.any(np.asarray(info.status)), jc.Status.describe(int(np.max(info.status)))
    return states


def stiff(file):
    model = jc.load_mjcf(file)
    return model.replace(params=model.params.replace(material=jc.compliant.stiff_material(MASS, 1e-5)))


@pytest.mark.long
def test_a_spinning_ball_stops_after_inertia_over_torque():
    """Its spin falls by mu_t N / I, as its torque is mu_t N, and it then stands still."""
    model, dt, spin = stiff(ball(4)), 0.005, 5.0
    np.testing.assert_allclose(model.params.spin_friction, [[TORSION]])
    slowing = TORSION * MASS * 9.81 / INERTIA
    states = moved(model, [0, 0, 0, 0, 0, spin], 40, dt)
    times = dt * np.arange(1, 41)
    assert 0.0 < spin / slowing < times[-1] - 5 * dt
    np.testing.assert_allclose(states.v[:, 5], np.maximum(spin - slowing * times, 0.0), atol=2e-2)
    np.testing.assert_allclose(states.v[-1], 0.0, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("cone", ["coulomb", "associated"])
def test_a_rolling_ball_slows_down_by_its_rolling_friction(cone):
    """Its speed falls by mu_r N r / (I + m r^2); with condim 4 it rolls on."""
    dt, steps, speed = 0.005, 60, 0.5
    settings = jc.compliant.Settings(cone=cone)
    start = [speed, 0, 0, 0, speed / RADIUS, 0]
    slowing = ROLL * MASS * 9.81 * RADIUS / (INERTIA + MASS * RADIUS**2)
    states = moved(stiff(ball(6)), start, steps, dt, settings)
    np.testing.assert_allclose(states.v[-1, 0], speed - slowing * steps * dt, rtol=0.02)
    rolling = moved(stiff(ball(4)), start, steps, dt, settings)
    np.testing.assert_allclose(rolling.v[-1, 0], speed, rtol=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize("start", [[0.5, 0.2, 0, 0, 0, 4.0], [0.6, 0, 0, -3.0, 0, 6.0]])
def test_a_ball_that_slides_and_spins_moves_as_in_mujoco(start):
    """One elliptic bound for friction, torsion and rolling: spin takes a share of the friction."""
    file = ball(6, 0.3, option='cone="elliptic" timestep="0.0005" impratio="100"')
    mj = mujoco.MjModel.from_xml_string(file)
    data = mujoco.MjData(mj)
    data.qvel[:] = start
    for _ in range(400):
        mujoco.mj_step(mj, data)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", jc.io.mjcf.IgnoredOptionWarning)
        model = jc.load_mjcf(file)
    states = moved(model, start, 100, 0.002)
    np.testing.assert_allclose(states.v[-1, :2], data.qvel[:2], atol=0.03 * 0.6)
    np.testing.assert_allclose(
        states.v[-1, 3:], data.qvel[3:], atol=0.03 * 6.0
    )  # friction there also opposes accelerations


def test_spin_friction_of_a_wrong_shape_or_with_another_cone_is_refused():
    model = stiff(ball(4))
    pyramid = jc.compliant.Settings(cone="pyramid")
    with pytest.raises(ValueError, match="spin_friction needs the cone"):
        jc.compliant.step(model, model.initial_state(), jnp.zeros(6), dt=0.01, settings=pyramid)
    wrong = model.replace(params=model.params.replace(spin_friction=jnp.zeros((1, 2))))
    with pytest.raises(ValueError, match=r"params.spin_friction: expected shape \(1, 1\) or \(1, 3\)"):
        jc.compliant.step(wrong, model.initial_state(), jnp.zeros(6), dt=0.01)
