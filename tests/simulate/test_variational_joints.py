"""`Variational` with closed loops and dry friction of joints: closed forms, invariants, and their derivatives."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import solve_ivp
from simulate.test_events_of_held_joints import UNEQUAL_BAR

import jaxcontact as jc

G = 9.81
RAIL = """<mujoco><option gravity="0 0 0"/><worldbody><body><joint type="slide" axis="1 0 0" {}/>
<geom size=".1" mass="1.5"/></body></worldbody></mujoco>"""
PENDULUM = """<mujoco><worldbody><body><joint axis="0 1 0" frictionloss="1.5"/>
<inertial pos="0 0 -.5" mass="1" diaginertia=".01 .01 .01"/></body></worldbody></mujoco>"""
BARS = """<mujoco><option gravity="0 0 {gravity}"/><worldbody>
<body name="crank"><joint axis="0 1 0" {joint}/><geom type="capsule" fromto="0 0 0 0 0 1" size=".02" mass="1"/>
  <body name="coupler" pos="0 0 1"><joint axis="0 1 0" {joint}/>
    <geom type="capsule" fromto="0 0 0 2 0 0" size=".02" mass="1"/>
    <body name="rocker" pos="2 0 0"><joint axis="0 1 0" {joint}/>
      <geom type="capsule" fromto="0 0 0 0 0 -1" size=".02" mass="1"/></body></body></body></worldbody>
<equality><connect body1="rocker" anchor="0 0 -1"/>{more}</equality></mujoco>"""
CRANK = jnp.array([1.0, -1.0, 1.0])  # how the hinges of a parallelogram turn
TWICE = '<connect body1="rocker" anchor="0 0 -1"/>'


@functools.cache
def parallelogram(gravity=-G, joint="", more=""):
    with jax.ensure_compile_time_eval():
        return jc.load_mjcf(BARS.format(gravity=gravity, joint=joint, more=more))


def moved(model, q, v, dt, steps, **options):
    state = model.initial_state().replace(q=jnp.asarray(q, float), v=jnp.asarray(v, float))
    stepper = jc.simulate.Variational(**options)
    return jc.simulate.rollout(model, state, None, num_steps=steps, stepper=stepper, dt=dt)


def slopes_agree(function, x, step=1e-6):
    """Compare the derivatives of a function of numbers x, forward and reverse, with central differences."""
    function = jax.jit(function)
    forward = jax.jit(jax.jacfwd(function))(x)
    reverse = jax.jit(jax.grad(function))(x)
    unit = np.eye(len(x))
    apart = [(function(x + step * e) - function(x - step * e)) / (2 * step) for e in unit]
    np.testing.assert_allclose(forward, reverse, rtol=0, atol=1e-10)
    np.testing.assert_allclose(forward, apart, rtol=1e-6, atol=1e-8)
    return forward


@pytest.mark.long
def test_dry_friction_stops_a_slide_after_its_way_within_a_step():
    """From 2 m/s under 3 N of 1.5 kg: x = m v^2 / 2f = 1 m after 1 s, within a step of 70 ms, then rest."""
    motion = moved(jc.load_mjcf(RAIL.format('frictionloss="3"')), [0.0], [2.0], dt=0.07, steps=20)
    t = np.asarray(motion.states.t)
    assert not np.any(motion.status) and motion.info.contacts.shape == (20, 0)
    np.testing.assert_allclose(motion.states.q[-1], 1.0, rtol=0, atol=1e-13)
    np.testing.assert_allclose(motion.states.v[:, 0], np.maximum(2.0 - 2.0 * t, 0.0), rtol=0, atol=1e-13)


@pytest.mark.slow
def test_the_way_of_a_slide_has_the_derivative_of_its_closed_form():
    """x = x0 + m v^2 / 2f: by x0, v, f and m."""
    model = jc.load_mjcf(RAIL.format('frictionloss="3"'))

    def last(x):
        tree = model.params.tree.replace(dry_friction=x[2:3])
        params = model.params.replace(tree=tree, mass=x[3:])
        return moved(model.replace(params=params), x[:1], x[1:2], dt=0.07, steps=20).states.q[-1, 0]

    slopes = slopes_agree(last, jnp.array([0.0, 2.0, 3.0, 1.5]))
    np.testing.assert_allclose(slopes, [1.0, 1.0, -1.0 / 3.0, 2.0 / 3.0], rtol=1e-10)


def swung(start, friction, time):
    """Integrate the dry pendulum: rad at `time` from rest at `start`, and when and where it sticks."""
    inertia, weight = 0.26, 0.5 * G
    t, y = 0.0, np.array([start, 0.0])
    while t < time and abs(weight * np.sin(y[0])) > friction:
        way = -np.sign(y[0])
        y[1] = way * 1e-12

        def rate(t, y, way=way):
            return [y[1], (-weight * np.sin(y[0]) - way * friction) / inertia]

        def stops(t, y, way=way):
            return way * y[1]

        stops.terminal, stops.direction = True, -1
        path = solve_ivp(rate, (t, time), y, rtol=1e-12, atol=1e-13, events=stops)
        t, y = path.t[-1], path.y[:, -1]
    return t, y[0]


@pytest.mark.slow
def test_a_dry_pendulum_swings_out_and_sticks_out_of_the_vertical_to_second_order():
    model = jc.load_mjcf(PENDULUM)
    stuck, angle = swung(1.2, 1.5, 2.0)
    assert stuck < 1.9 and abs(angle) > 0.1
    errors = []
    for dt in (0.02, 0.01, 0.005):
        motion = moved(model, [1.2], [0.0], dt=jnp.array(dt), steps=400)
        rests = np.asarray(motion.states.t) > stuck + dt
        assert not np.any(motion.status)
        assert np.ptp(np.asarray(motion.states.q)[rests]) < 1e-12
        errors.append(abs(float(motion.states.q[-1, 0]) - angle))
    assert 3.5 < errors[0] / errors[1] < 4.5 and 3.5 < errors[1] / errors[2] < 4.5 and errors[2] < 1e-4


@pytest.mark.slow
def test_where_a_dry_pendulum_sticks_has_the_derivative_of_differences():
    model = jc.load_mjcf(PENDULUM)

    def last(x):
        params = model.params.replace(tree=model.params.tree.replace(dry_friction=x[1:]))
        motion = moved(model.replace(params=params), x[:1], [0.0], dt=0.02, steps=100)
        return motion.states.q[-1, 0]

    slopes_agree(last, jnp.array([1.2, 1.5]))


def bars_moved(q, v, dt, steps, **options):
    model = parallelogram(**options)
    motion = moved(model, q * CRANK, v * CRANK, dt=jnp.array(dt), steps=steps)
    assert not np.any(motion.status)
    off = jax.vmap(lambda q: jc.simulate.projection.constraint_values(model, q)[0])(motion.states.q)
    assert np.max(np.abs(off)) < 1e-12
    energy = jax.vmap(lambda s: jc.kinetic_energy(model, s) + jc.potential_energy(model, s))(motion.states)
    return motion, np.asarray(energy)


@pytest.mark.slow
def test_a_four_bar_stays_closed_and_keeps_its_energy_to_second_order():
    """One that a second loop closes again moves alike."""
    rises = []
    for dt in (0.02, 0.01):
        motion, energy = bars_moved(0.0, 2.0, dt, 100)
        rises.append(np.max(np.abs(energy[: round(1 / dt) + 1] - energy[0])))
    assert 3.8 < rises[0] / rises[1] < 4.2 and rises[1] < 0.005
    twice, _ = bars_moved(0.0, 2.0, dt, 100, more=TWICE)
    np.testing.assert_allclose(twice.states.q, motion.states.q, rtol=0, atol=1e-11)


@pytest.mark.slow
def test_dry_hinges_stop_a_four_bar_after_its_way():
    """Without gravity a parallelogram has one inertia I: its crank turns by I w^2 / 2 over three moments of 2."""
    motion, energy = bars_moved(0.0, 2.0, 0.02, 50, gravity=0, joint='frictionloss="2"')
    np.testing.assert_allclose(motion.states.q[-1], energy[0] / 6.0 * CRANK, rtol=0, atol=1e-7)
    np.testing.assert_allclose(motion.states.v[-1], 0.0, atol=1e-13)


@pytest.mark.slow
def test_a_motion_with_loops_has_the_derivative_of_differences():
    model = parallelogram()

    def last(x):
        params = model.params.replace(mass=x[2:])
        motion = moved(model.replace(params=params), x[0] * CRANK, x[1] * CRANK, dt=0.05, steps=10)
        return motion.states.q[-1, 0] + motion.states.v[-1, 2]

    slopes_agree(last, jnp.array([0.2, 2.0, 1.0, 1.5, 0.7]))


@pytest.mark.slow
def test_loops_that_are_open_at_the_start_are_closed_without_momentum():
    model = parallelogram(gravity=0)
    motion = moved(model, jnp.array([0.301, -0.301, 0.302]), 0.0 * CRANK, dt=0.02, steps=5)
    off = jax.vmap(lambda q: jc.simulate.projection.constraint_values(model, q)[0])(motion.states.q)
    assert np.max(np.abs(off[0])) > 5e-4 and np.max(np.abs(off[2:])) < 1e-12
    assert motion.status[0] == jc.Status.PENETRATION and not np.any(motion.status[2:])
    np.testing.assert_allclose(motion.states.v, 0.0, atol=1e-14)


FLOATING = """<mujoco><option gravity="0 0 0"/><worldbody><body><freejoint/>
<geom type="box" size=".3 .2 .1" mass="2"/><body pos=".3 0 .1"><joint axis="0 1 0"/>{bar}0 0 1" size=".02" mass="1"/>
<body pos="0 0 1"><joint axis="0 1 0"/>{bar}1 0 0" size=".02" mass="1"/>
<body name="c" pos="1 0 0"><joint axis="0 1 0"/>{bar}0 0 -1" size=".02" mass="1"/></body></body></body>
<body name="d" pos=".3 0 .1"><joint axis="0 1 0"/>{bar}1 0 0" size=".02" mass="1"/></body></body></worldbody>
<equality><connect body1="c" body2="d" anchor="0 0 -1"/></equality></mujoco>"""


@pytest.mark.slow
def test_a_floating_mechanism_with_a_loop_keeps_its_momenta():
    bar = '<geom type="capsule" fromto="0 0 0 '
    model = jc.load_mjcf(FLOATING.format(bar=bar), contacts=[])
    v = jnp.array([0.3, 0.1, 0.2, 1.0, 0.5, -0.7, 1.0, -1.0, 1.0, 0.0])
    motion = moved(model, model.initial_state().q, v, dt=0.02, steps=50)

    def momenta(state):
        p = jc.mass_matrix(model, state.q) @ state.v
        w, axis = state.q[3], state.q[4:7]
        turned = p[3:6] + 2.0 * jnp.cross(axis, jnp.cross(axis, p[3:6]) + w * p[3:6])
        return jnp.concatenate([p[:3], turned + jnp.cross(state.q[:3], p[:3])])

    kept = jax.vmap(momenta)(motion.states)[1:]  # the start has a velocity that the loop does not allow
    assert not np.any(motion.status) and np.ptp(motion.states.q[:, 0]) > 0.1
    np.testing.assert_allclose(kept, kept[:1].repeat(50, 0), atol=1e-11)


@pytest.mark.slow
def test_a_mechanism_with_loops_dry_joints_and_a_foot_stands_still():
    """Its crank's end, at a hinge, is a contact that cannot move."""
    text = UNEQUAL_BAR.replace('<joint axis="0 1 0"/>', '<joint axis="0 1 0" frictionloss=".3"/>')
    model = jc.load_mjcf(text, contacts="world", planar=True)
    law = jc.impact.AnitescuPotra()
    motion = moved(model, jnp.zeros(3), [-1.72445562, 1.86104616, -0.88783854], dt=0.02, steps=40, impact=law)
    assert not np.any(motion.status)
    np.testing.assert_allclose(motion.states.q, 0.0, atol=1e-8)
    np.testing.assert_allclose(motion.states.v[1:], 0.0, atol=1e-8)
