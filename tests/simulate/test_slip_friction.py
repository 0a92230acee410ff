"""Friction that depends on the slip and on time (`Inputs.friction`), against closed forms and scipy's ODEs."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import solve_ivp

import jaxcontact as jc

G = 9.81
SETTLED = 50  # steps after which the springs of a compliant contact carry the weight
STEPPERS = {
    "time stepping": jc.simulate.TimeStepping(),
    "compliant": jc.simulate.Compliant(),
    "events": jc.simulate.EventDriven(),
    "variational": jc.simulate.Variational(impact=jc.impact.AnitescuPotra()),
}


def slider(mass=1.0, stiffness=0.0, unit=1.0):
    """A point on a floor that may slide along it, on a spring; lengths of shapes by `unit`."""
    model = jc.load_mjcf(
        f"""<mujoco><worldbody><geom name='floor' type='plane' size='5 5 .1' friction='.4'/>
        <body name='load' pos='0 0 {0.1 * unit}'><joint type='slide' axis='1 0 0' stiffness='{stiffness}'/>
        <joint type='slide' axis='0 0 1'/><geom name='load' type='sphere' size='{0.1 * unit}' mass='{mass}'/>
        </body></worldbody></mujoco>""",
        planar=True,
    )
    material = jc.compliant.stiff_material(mass)
    return model.replace(params=model.params.replace(material=material))


def moved(model, start_speed, friction, stepper, dt, steps):
    start = model.initial_state()
    start = start.replace(v=start.v.at[0].set(start_speed))
    inputs = jc.simulate.Inputs(jnp.zeros((steps, 2)), friction=friction)
    motion = jc.simulate.rollout(model, start, inputs, stepper=stepper, dt=dt)
    assert not np.any(jc.Status.failed(np.asarray(motion.status)))
    return motion


@pytest.mark.long
@pytest.mark.parametrize("name", STEPPERS)
def test_friction_that_grows_with_the_slip_brakes_as_its_equation_says(name):
    """v' = -g (mu + c v): v = (v0 + mu / c) exp(-c g t) - mu / c."""
    mu, c, speed, dt, steps = 0.2, 0.3, 1.0, 1e-3, 150
    motion = moved(slider(), speed, lambda slip, t: mu + c * slip, STEPPERS[name], dt, steps)
    v = np.asarray(motion.states.v[SETTLED:, 0])
    t = dt * np.arange(len(v))
    exact = (v[0] + mu / c) * np.exp(-c * G * t) - mu / c
    np.testing.assert_allclose(v, exact, atol=3e-3)
    assert abs(v[-1] - (v[0] - mu * G * t[-1])) > 0.1  # the slip has its part


@pytest.mark.long
@pytest.mark.parametrize("name", STEPPERS)
def test_friction_that_falls_with_time_brakes_as_its_equation_says(name):
    """v' = -g mu (1 - t / T): v = v0 - g mu (t - t^2 / 2 T)."""
    mu, end, speed, dt, steps = 0.4, 0.2, 1.0, 1e-3, 150
    motion = moved(slider(), speed, lambda slip, t: mu * (1.0 - t / end), STEPPERS[name], dt, steps)
    t = dt * np.arange(SETTLED, steps + 1)
    v = np.asarray(motion.states.v[SETTLED:, 0])
    exact = speed - G * mu * (t - t**2 / 2 / end)
    np.testing.assert_allclose(v - v[0], exact - exact[0], atol=3e-3)


def period_by_scipy(mass, k, belt, mu):
    """Period of a mass on a spring on a belt: it sticks until the spring is as strong as mu(0), then slips."""

    def rates(_, y):
        return [y[1], (-k * y[0] + mass * G * mu(abs(belt - y[1]))) / mass]

    def sticks(_, y):
        return y[1] - belt

    sticks.terminal, sticks.direction = True, 1
    lets_go = mu(0.0) * mass * G / k
    slip = solve_ivp(rates, (0, 5), [lets_go, belt - 1e-9], events=sticks, rtol=1e-11, atol=1e-13)
    return slip.t_events[0][0] + (lets_go - slip.y_events[0][0][0]) / belt


@pytest.mark.slow
@pytest.mark.parametrize("name", ["time stepping", "compliant"])
@pytest.mark.parametrize(("mass", "unit"), [(1.0, 1.0), (1e7, 10.0), (1e-3, 0.1)])
def test_a_mass_on_a_belt_sticks_and_slips_with_the_period_of_its_ode(name, mass, unit):
    k, belt = 100.0 * mass, 0.1
    exact = period_by_scipy(mass, k, belt, lambda slip: 0.3 + 0.2 * np.exp(-slip / 0.05))
    model = jc.move_surfaces(slider(mass, k, unit), {"floor": jnp.array([belt, 0.0])})
    errors = []
    for dt in (2e-3, 1e-3):
        friction = jax.tree_util.Partial(falling, jnp.array(0.2))
        motion = moved(model, belt, friction, STEPPERS[name], dt, round(4.0 / dt))
        stuck = np.abs(motion.states.v[:, 0] - belt) < 1e-6
        lets_go = np.flatnonzero(stuck[:-1] & ~stuck[1:])[1:]
        assert len(lets_go) >= 3
        errors.append(exact - (lets_go[-1] - lets_go[0]) * dt / (len(lets_go) - 1))
    assert abs(errors[0]) < 1e-2 * exact and abs(errors[1]) < 0.7 * abs(errors[0])  # first order


def falling(drop, slip, t):
    return 0.3 + drop * jnp.exp(-slip / 0.05)


@pytest.mark.long
def test_the_derivative_by_a_number_of_the_friction_is_that_of_differences():
    model, steps, dt = slider(), 20, 2e-3

    @jax.jit
    def end(drop):
        friction = jax.tree_util.Partial(falling, drop)
        inputs = jc.simulate.Inputs(jnp.zeros((steps, 2)), friction=friction)
        start = model.initial_state().replace(v=jnp.array([0.3, 0.0]))
        stepper = jc.simulate.TimeStepping()
        return jc.simulate.rollout(model, start, inputs, stepper=stepper, dt=dt).states.v[-1, 0]

    slope = (end(0.2 + 1e-5) - end(0.2 - 1e-5)) / 2e-5
    assert abs(slope) > 1e-3
    np.testing.assert_allclose(jax.grad(end)(0.2), slope, rtol=1e-6)
    np.testing.assert_allclose(jax.jvp(end, (0.2,), (1.0,))[1], slope, rtol=1e-6)


@pytest.mark.long
def test_worlds_and_long_runs_have_the_same_friction():
    model, friction = slider(), jax.tree_util.Partial(falling, jnp.array(0.2))
    start = model.initial_state().replace(v=jnp.array([0.3, 0.0]))
    stepper, dt, steps = jc.simulate.TimeStepping(), 2e-3, 20
    motion = moved(model, 0.3, friction, stepper, dt, steps)
    settings = jc.simulate.MotionSettings(
        stepper=stepper, duration=steps * dt, dt=dt, controls=jc.simulate.Inputs(friction=friction)
    )
    alone = jc.simulate.run(model, start, settings)
    np.testing.assert_allclose(alone.states.q, motion.states.q, rtol=0, atol=1e-12)
    worlds = jc.simulate.ensemble(model, start, settings, num_worlds=2)
    np.testing.assert_allclose(worlds.states.q[1], motion.states.q[-1], rtol=0, atol=1e-12)


@pytest.mark.long
def test_friction_of_the_wrong_kind_is_refused_and_negative_friction_has_a_bit():
    model = slider()
    with pytest.raises(ValueError, match=r"friction: expected a function that returns \(1,\) or \(\)"):
        moved(model, 0.3, lambda slip, t: jnp.ones(3), STEPPERS["compliant"], 1e-3, 2)
    with pytest.raises(TypeError, match="friction: expected a function of slip and t, got float"):
        moved(model, 0.3, 0.5, STEPPERS["compliant"], 1e-3, 2)
    for stepper in STEPPERS.values():
        inputs = jc.simulate.Inputs(jnp.zeros((2, 2)), friction=negative)
        start = model.initial_state().replace(v=jnp.array([0.3, 0.0]))
        motion = jc.simulate.rollout(model, start, inputs, stepper=stepper, dt=1e-3)
        assert np.all(jc.Status.failed(np.asarray(motion.status[:1])))


def negative(slip, t):
    return -0.1 + 0.0 * t
