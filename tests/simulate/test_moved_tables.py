"""`TimeStepping` on tables and belts that move as told, against closed forms and `Compliant`."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import brentq

import jaxcontact as jc

G = 9.81
SLIDES = "<joint type='slide' axis='1 0 0'/><joint type='slide' axis='0 0 1'/>"
PLANAR = SLIDES + "<joint type='hinge' axis='0 1 0'/>"
LAWS = {
    "at once": jc.impact.AnitescuPotra(),
    "newton": jc.impact.Newton(restitution=0.0),
}


def on_table(joints, shape="sphere", mass=2.0, planar=True, unit=1.0):
    """A load on a table that is a mocap body; lengths by `unit`."""
    size = "{0} {0} {0}".format(0.1 * unit)
    return jc.load_mjcf(
        f"""<mujoco><default><geom friction='.4'/></default><worldbody>
        <body name='table' mocap='true' pos='0 0 {-0.05 * unit}'>
        <geom name='top' type='box' size='{9 * unit} {9 * unit} {0.05 * unit}'/></body>
        <body name='load' pos='0 0 {0.1 * unit}'>{joints}<geom type='{shape}' size='{size}' mass='{mass}'/>
        </body></worldbody></mujoco>""",
        planar=planar,
    )


def moved(model, poses, dt, law=None, start=None):
    """The motion over a table with poses (x, z, angle) or (7,), relative to its place in the file."""
    inputs = jc.simulate.Inputs(
        jnp.zeros((len(poses) - 1, model.num_controls), poses.dtype), mocap={"table": poses}
    )
    stepper = jc.simulate.TimeStepping(impact=law or LAWS["at once"])
    start = model.initial_state() if start is None else start
    motion = jc.simulate.rollout(model, start, inputs, stepper=stepper, dt=dt)
    assert not np.any(jc.Status.failed(np.asarray(motion.status)))
    return motion


def heights(z, unit=1.0):
    return jnp.stack([0.0 * z, z - 0.05 * unit, 0.0 * z], axis=1)


def throw_of(a):
    """A table at a sin(w t) with a w^2 = 2 g: w, when a load leaves and lands, where and how fast it leaves."""
    w = np.sqrt(2.0 * G / a)
    leaves = np.arcsin(0.5) / w
    z, v = a * np.sin(w * leaves), a * w * np.cos(w * leaves)
    lands = brentq(
        lambda t: z + v * (t - leaves) - 0.5 * G * (t - leaves) ** 2 - a * np.sin(w * t),
        leaves + 2.0 / w, leaves + 9.0 / w,
    )  # fmt: skip
    return w, leaves, lands, z, v


@pytest.mark.long
@pytest.mark.parametrize("law", LAWS)
def test_a_table_that_shakes_throws_a_ball_as_high_and_long_as_its_equation_says(law):
    """It leaves where -a w^2 sin w t = -g, flies, and lands: steps of first order, without depth."""
    a, model = 2e-3, on_table("<joint type='slide' axis='0 0 1'/>")
    w, leaves, lands, z, v = throw_of(a)
    errors = []
    for dt in (2e-4, 1e-4):
        t = dt * jnp.arange(round(1.02 * lands / dt) + 1)
        table = a * jnp.sin(w * t)
        height = moved(model, heights(table), dt, LAWS[law]).states.q[:, 0]
        gap = np.asarray(height - table)
        flies = np.flatnonzero(gap > 1e-7)
        assert abs(t[flies[-1]] - lands) < 2 * dt and np.min(gap) > -1e-12
        errors.append(abs(np.max(height) - (z + v**2 / 2.0 / G)))
    assert errors[0] < 2e-2 * a and errors[1] < 0.6 * errors[0]


@pytest.mark.long
@pytest.mark.parametrize(
    ("law", "unit", "mass"),
    [(jc.impact.Newton(restitution=0.7), 1.0, 2.0), (jc.impact.Poisson(restitution=0.7), 100.0, 1e7)],
)
def test_a_ball_bounces_once_per_period_of_a_table(law, unit, mass):
    """It leaves at g T / 2 where the table rises at (1 - e) / (1 + e) g T / 2, and rises (g T / 2)^2 / 2 g."""
    period, steps, periods = 0.1 * np.sqrt(unit), 400, 10
    w, up = 2.0 * np.pi / period, 0.5 * G * period
    rises = (1.0 - 0.7) / (1.0 + 0.7) * up
    a, phase = rises / w / 0.9, np.arccos(0.9)
    model, dt = on_table("<joint type='slide' axis='0 0 1'/>", mass=mass, unit=unit), period / steps
    z = a * (jnp.sin(w * dt * jnp.arange(periods * steps + 1) + phase) - jnp.sin(phase))
    start = model.initial_state().replace(v=jnp.array([1.03 * up]))
    motion = moved(model, heights(z, unit), dt, law, start)
    height = np.asarray(motion.states.q[-steps:, 0])
    assert np.max(height) == pytest.approx(up**2 / 2.0 / G, rel=5e-3)  # after a tenth of transients
    impacts = np.flatnonzero(np.diff(np.asarray(motion.states.v[:, 0])) > up)
    assert np.all(np.abs(np.diff(impacts[-4:]) - steps) <= 2)


@pytest.mark.long
@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("acceleration", [2.0, 6.0])
def test_a_table_carries_a_box_as_far_as_friction_does(law, acceleration):
    model, dt = on_table(PLANAR, "box"), 5e-3
    t = dt * jnp.arange(61)
    poses = heights(0.0 * t).at[:, 0].set(0.5 * acceleration * t**2)
    motion = moved(model, poses, dt, LAWS[law])
    along = min(acceleration, 0.4 * G)
    np.testing.assert_allclose(np.diff(motion.states.v[2:, 0]) / dt, along, rtol=1e-7)
    np.testing.assert_allclose(motion.states.q[:, 1:], 0.0, atol=1e-9)


@pytest.mark.long
def test_a_ball_rolls_after_a_table_at_two_sevenths_of_its_acceleration():
    model, dt = on_table(PLANAR), 5e-3
    t = dt * jnp.arange(61)

    def end(acceleration):
        poses = heights(0.0 * t).at[:, 0].set(0.5 * acceleration * t**2)
        inputs = jc.simulate.Inputs(jnp.zeros((60, 3)), mocap={"table": poses})
        stepper = jc.simulate.TimeStepping()
        motion = jc.simulate.rollout(model, model.initial_state(), inputs, stepper=stepper, dt=dt)
        return motion.states.v[-1, 0]

    assert float(end(1.0)) == pytest.approx(2.0 / 7.0 * 0.3, rel=2e-2)
    slope = jax.jvp(end, (1.0,), (1.0,))[1]
    np.testing.assert_allclose(slope, (end(1.001) - end(0.999)) / 2e-3, rtol=1e-6)
    np.testing.assert_allclose(jax.grad(end)(1.0), slope, rtol=1e-9)


@pytest.mark.long
def test_a_table_that_tilts_lets_a_box_slide_at_the_friction_angle():
    model, dt = on_table(PLANAR, "box"), 5e-3
    angles = 0.45 * jnp.arange(101) / 100.0  # tan passes 0.4 at 0.38 rad
    poses = jnp.stack([0.05 * jnp.sin(angles), -0.05 * jnp.cos(angles), angles], axis=1)
    motion = moved(model, poses, dt)
    normal, friction = np.moveaxis(np.sum(np.asarray(motion.impulse), axis=1), 1, 0) / dt
    np.testing.assert_allclose(-motion.states.q[50, 2], angles[50], atol=1e-6)
    np.testing.assert_allclose(np.abs(friction[50:80]), 2 * G * np.sin(angles[51:81]), rtol=2e-2)
    np.testing.assert_allclose(np.abs(friction[95:]), 0.4 * normal[95:], rtol=1e-9)


@pytest.mark.slow
def test_a_turntable_takes_a_box_round_in_space():
    turning, radius, dt, steps = 2.0, 0.5, 5e-3, 100
    model = on_table("<freejoint/>", "box", planar=False)
    angle = turning * dt * jnp.arange(steps + 1)
    zero = 0.0 * angle
    poses = [zero, zero, zero - 0.05, jnp.cos(angle / 2), zero, zero, jnp.sin(angle / 2)]
    start = model.initial_state()
    start = start.replace(
        q=start.q.at[0].set(radius), v=start.v.at[1].set(turning * radius).at[5].set(turning)
    )
    motion = moved(model, jnp.stack(poses, axis=1), dt, start=start)
    q, v = motion.states.q[-1], motion.states.v[-1]
    np.testing.assert_allclose(v[5], turning, rtol=1e-6)
    np.testing.assert_allclose(np.hypot(q[0], q[1]), radius, rtol=2e-2)
    np.testing.assert_allclose(np.arctan2(q[1], q[0]), angle[-1], atol=0.02)


@pytest.mark.long
@pytest.mark.parametrize("law", LAWS)
def test_a_crate_on_a_belt_slips_until_it_runs_with_it(law):
    """x = V t - V^2 / (2 mu g) after V / (mu g), in the plane."""
    model, speed, dt = on_table(PLANAR, "box"), 1.0, 2e-3
    model = jc.move_surfaces(model, {"top": jnp.array([speed, 0.0])})
    steps = 200
    stepper = jc.simulate.TimeStepping(impact=LAWS[law])
    motion = jc.simulate.rollout(model, model.initial_state(), jnp.zeros((steps, 3)), stepper=stepper, dt=dt)
    assert not np.any(motion.status)
    assert motion.states.v[-1, 0] == pytest.approx(speed, rel=1e-9)
    exact = speed * steps * dt - speed**2 / (2.0 * 0.4 * G)
    assert motion.states.q[-1, 0] == pytest.approx(exact, abs=2 * speed * dt)


@pytest.mark.long
def test_walls_that_close_on_a_body_by_a_law_of_relative_velocities_have_a_bit():
    """A box on a floor hit by a table from above: no velocity of a rigid body has both rates."""
    model = jc.load_mjcf(
        f"""<mujoco><default><geom friction='.4'/></default><worldbody>
        <geom type='plane' size='9 9 1'/><body name='table' mocap='true' pos='0 0 .25'>
        <geom type='box' size='1 1 .05'/></body><body name='load' pos='0 0 .1'>{PLANAR}
        <geom type='box' size='.1 .1 .1' mass='2'/></body></worldbody></mujoco>""",
        planar=True,
    )
    poses = jnp.array([[0.0, 0.25, 0.0], [0.0, 0.25, 0.0], [0.0, 0.2, 0.0], [0.0, 0.15, 0.0]])
    inputs = jc.simulate.Inputs(jnp.zeros((3, 3)), mocap={"table": poses})
    stepper = jc.simulate.TimeStepping(impact=jc.impact.Newton(restitution=0.5))
    motion = jc.simulate.rollout(model, model.initial_state(), inputs, stepper=stepper, dt=5e-3)
    assert np.any(np.asarray(motion.status) & int(jc.Status.INVALID | jc.Status.PENETRATION))


def test_a_weld_to_a_moving_body_is_refused():
    hand = jc.load_mjcf("""<mujoco><worldbody><body name="table" mocap="true" pos="0 0 1"/>
        <body name="palm" pos="0 0 1"><freejoint/><geom type="box" size=".1 .1 .02" mass="1"/></body>
        </worldbody><equality><weld body1="table" body2="palm"/></equality></mujoco>""")
    poses = jnp.tile(jnp.array([0.0, 0.0, 1.0, 1.0, 0.0, 0.0, 0.0]), (2, 1))
    with pytest.raises(ValueError, match="mocap: expected None for closed loops or welds"):
        moved(hand, poses, 1e-3)
