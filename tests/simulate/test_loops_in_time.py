"""`TimeStepping` with closed loops: a parallelogram moves as the pendulum that it is, and strikes as one body."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import solve_ivp

import jaxcontact as jc

# Two cranks of 0.5 m and 0.6 kg hang from pivots 0.8 m apart; a bar of 2 kg joins their ends.
TEXT = """<mujoco><option gravity="0 0 -9.81"/><worldbody>
<body><joint type="hinge" axis="0 -1 0"{dry}/><inertial pos="0 0 -0.25" mass="0.6" diaginertia="0.02 0.02 0.02"/>
  <body name="bar" pos="0 0 -0.5"><joint type="hinge" axis="0 -1 0"/>
    <inertial pos="0.4 0 0" mass="2" diaginertia="0.1 0.1 0.1"/>
    <geom name="tip" type="sphere" size="0.05" pos="0.9 0 0" contype="0" conaffinity="1" friction="0"/></body></body>
<body name="right" pos="0.8 0 0"><joint type="hinge" axis="0 -1 0"/>
  <inertial pos="0 0 -0.25" mass="0.6" diaginertia="0.02 0.02 0.02"/></body>
<geom name="wall" type="plane" size="5 5 1" pos="0.95 0 0" zaxis="-1 0 0" friction="0"/></worldbody>
<equality><connect body1="bar" body2="right" anchor="0.8 0 0"/></equality></mujoco>"""
INERTIA = 2 * (0.02 + 0.6 * 0.25**2) + 2 * 0.5**2  # of the angle of the cranks, kg m^2
PULL = (2 * 0.6 * 0.25 + 2 * 0.5) * 9.81  # N m, times the sine


@functools.cache
def linkage(dry=""):
    return jc.load_mjcf(TEXT.format(dry=dry))


def at(model, angle, speed=0.0):
    turn = np.array([1.0, -1.0, 1.0])
    return model.initial_state().replace(q=jnp.asarray(angle * turn), v=jnp.asarray(speed * turn))


@functools.partial(jax.jit, static_argnames="num_steps")
def motion_of(model, state, dt, num_steps, impact):
    stepper = jc.simulate.TimeStepping(impact=impact)
    motion = jc.simulate.rollout(model, state, None, stepper=stepper, dt=dt, num_steps=num_steps)
    return motion.states, motion.status


@pytest.mark.long
def test_a_parallelogram_swings_as_a_pendulum_to_first_order():
    model = linkage()
    right = solve_ivp(
        lambda t, y: (y[1], -PULL / INERTIA * np.sin(y[0])), (0, 0.3), (-1.0, 0.0), rtol=1e-11, atol=1e-12
    ).y[:, -1]
    errors = []
    for count in (30, 60, 120):
        states, status = motion_of(model, at(model, -1.0), 0.3 / count, 120, jc.impact.AnitescuPotra())
        q, v = np.asarray(states.q)[: count + 1], np.asarray(states.v)[: count + 1]
        assert not np.any(np.asarray(status) & int(jc.Status.FAILURES))
        for held in (q, v):  # the loop is closed after every step
            np.testing.assert_allclose(held, held[:, :1] * np.array([1.0, -1.0, 1.0]), atol=1e-9)
        errors.append(np.abs(np.array([q[-1, 0], v[-1, 0]]) - right).max())
    assert 1.8 < errors[0] / errors[1] < 2.2
    assert 1.8 < errors[1] / errors[2] < 2.2
    assert errors[2] < 0.02


@pytest.mark.slow
@pytest.mark.parametrize("restitution", [0.0, 0.5])
def test_a_tip_that_strikes_a_wall_turns_the_whole_linkage_back(restitution):
    """At angle 0 the tip touches the wall and moves along its normal; one angle is left: w+ = -e w."""
    model = linkage()
    impact = jc.impact.Newton(restitution=jnp.asarray(restitution))
    states, status = motion_of(model, at(model, 0.0, 1.0), 1e-3, 2, impact)
    assert not np.any(np.asarray(status) & int(jc.Status.FAILURES))
    np.testing.assert_allclose(np.asarray(states.v)[-1], -restitution * np.array([1.0, -1.0, 1.0]), atol=3e-5)


@pytest.mark.slow
def test_dry_friction_holds_a_linkage_whose_weight_it_exceeds():
    """At an angle of -0.1 the weight turns with 1.27 N m: 1.4 N m of one joint hold it, 1.2 N m do not."""
    moved = []
    for bound in (1.4, 1.2):
        model = linkage(f' frictionloss="{bound}"')
        states, _ = motion_of(model, at(model, -0.1), 1e-3, 20, jc.impact.AnitescuPotra())
        moved.append(float(states.v[-1, 0]))
    assert PULL * np.sin(0.1) == pytest.approx(1.273, abs=1e-3)
    assert abs(moved[0]) < 1e-9
    assert moved[1] == pytest.approx((PULL * np.sin(0.1) - 1.2) / INERTIA * 0.02, rel=0.03)


def test_a_joint_held_by_constraints_is_a_pendulum():
    model = jc.models.pendulum_joint()
    states, status = motion_of(model, model.initial_state(), 1e-3, 50, jc.impact.AnitescuPotra())
    assert not np.any(np.asarray(status) & int(jc.Status.FAILURES))
    deviation = model.system.constraints(model.structure, states.q[-1], model.params)[0]
    assert np.abs(np.asarray(deviation)).max() < 1e-9


@pytest.mark.slow
def test_the_derivative_of_a_loop_is_that_of_differences():
    model = linkage()

    def angle(speed):
        start = at(model, -1.0).replace(v=speed * jnp.array([1.0, -1.0, 1.0]))
        states, _ = motion_of(model, start, 5e-3, 6, jc.impact.AnitescuPotra())
        return states.q[-1, 0]

    slope = jax.jvp(angle, (0.3,), (1.0,))[1]
    assert float(slope) == pytest.approx(float((angle(0.3 + 1e-5) - angle(0.3 - 1e-5)) / 2e-5), rel=1e-6)
    assert float(jax.grad(angle)(0.3)) == pytest.approx(float(slope), rel=1e-9)


@pytest.mark.slow
def test_a_linkage_at_a_wall_follows_one_sided_differences(rng):
    """At rest, pressed and in motion at a gap of zero, by q (also such that the loop opens), v and forces."""
    model = linkage()
    plain, sided = (jc.simulate.TimeStepping(corner=corner) for corner in ("smooth", "one_sided"))
    start, directions = at(model, 0.0), jnp.asarray(rng.normal(size=(30, 9)) * ([1.0] * 6 + [100.0] * 3))

    def end_of(stepper, v, force, change):
        moved = start.replace(q=start.q + change[:3], v=v + change[3:6])
        memory = stepper.init(model, start, None)
        end, _, info = stepper.step(model, moved, force + change[6:], memory, dt=1e-2)
        return jnp.concatenate([end.q, end.v]), info.status

    @jax.jit
    def rates_and_differences(v, force, h):
        zero = jnp.zeros(9)
        (base, status), (exact, _) = jax.vmap(
            lambda d: jax.jvp(lambda x: end_of(sided, v, force, x), (zero,), (d,))
        )(directions)
        moved = jax.vmap(lambda d: end_of(plain, v, force, h * d)[0])(directions)
        smooth = jax.jacfwd(lambda x: end_of(plain, v, force, x)[0])(zero)
        return status, exact, (moved - base) / h, directions @ smooth.T

    for speed, push, is_kink in ((0.0, 0.0, True), (0.0, 3.0, True), (1.0, 0.0, True), (-1.0, 0.0, False)):
        numbers = at(model, 0.0, speed).v, jnp.array([push, 0.0, 0.0])
        status, exact, difference, smooth = rates_and_differences(*numbers, 1e-8)
        assert not np.any(status)
        size = 1.0 + np.max(np.abs(difference), axis=1, keepdims=True)
        assert np.max(np.abs(exact - difference) / size) < 2e-5
        error = np.max(np.abs(smooth - difference) / size)
        assert error > 0.1 if is_kink else error < 2e-5


@pytest.mark.slow
def test_a_contact_at_the_dead_centre_of_a_linkage_has_a_note_and_no_number():
    """The lowest point of the tip's circle touches a floor: there it moves along the floor only."""
    floor = '<geom name="floor" type="plane" size="5 5 1" pos="0 0 -0.55" friction="0.5"/></worldbody>'
    model = jc.load_mjcf(TEXT.format(dry="").replace("</worldbody>", floor))
    stepper = jc.simulate.TimeStepping(corner="one_sided")

    def end(state):
        return stepper.step(model, state, jnp.zeros(3), stepper.init(model, state), dt=1e-2)[2]

    lowest = jax.jit(end)(at(model, 0.0)).status, jax.jit(end)(at(model, -0.1)).status
    assert [bool(status & int(jc.Status.JUMP)) for status in lowest] == [True, False]
