"""`EventDriven` and `Variational` on tables and belts that move as told, against closed forms and differences."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxcontact as jc
from jaxcontact.mechanics.mocap import apply_mocap, at_time, mocap_rows
from tests.simulate.test_moved_tables import PLANAR, G, heights, on_table, throw_of

VERTICAL = "<joint type='slide' axis='0 0 1'/>"
MU = 0.4
AT_EVENTS = [
    jc.simulate.EventDriven,
    pytest.param(jc.simulate.Variational, marks=pytest.mark.slow),
]


def moved(model, poses, dt, start=None, stepper=None):
    """The motion over a table with poses (x, z, angle) or (7,), and the times of its impacts."""
    inputs = jc.simulate.Inputs(jnp.zeros((len(poses) - 1, model.num_controls)), mocap={"table": poses})
    stepper = jc.simulate.EventDriven() if stepper is None else stepper
    start = model.initial_state() if start is None else start
    return jc.simulate.rollout(model, start, inputs, stepper=stepper, dt=dt)


def succeeded(motion):
    assert not np.any(jc.Status.failed(np.asarray(motion.status))), jc.Status.describe(motion.status)
    return motion


def impact_times(motion, after=-np.inf):
    times = np.asarray(motion.impacts.t)
    return times[np.isfinite(times) & (times > after)]


def shaken(model, stepper, a, w, dt, first, steps):
    """The ball on a table at a sin(w t) from the step `first` on, at the velocity of the table."""
    t = dt * (first + jnp.arange(steps + 1))
    start = model.initial_state()
    start = start.replace(q=a * jnp.sin(w * t[:1]), v=a * w * jnp.cos(w * t[:1]), t=t[0])
    return t, succeeded(moved(model, heights(a * jnp.sin(w * t)), dt, start, stepper))


@pytest.mark.long
@pytest.mark.parametrize("stepper", AT_EVENTS)
def test_a_ball_follows_a_table_that_shakes_below_g_and_leaves_one_that_shakes_above(stepper):
    """It leaves where -a w^2 sin w t = -g, flies, and lands."""
    a, dt, steps, model = 2e-3, 1e-3, 110, on_table(VERTICAL)
    stepper = stepper(impact=jc.impact.AnitescuPotra())
    t, motion = shaken(model, stepper, a, 50.0, dt, 0, steps)  # a w^2 = 0.51 g
    np.testing.assert_allclose(motion.states.q[:, 0], a * jnp.sin(50.0 * t), atol=1e-12)
    force = 2.0 * (G - a * 50.0**2 * np.sin(50.0 * (t[:-1] + dt / 2)))
    np.testing.assert_allclose(motion.impulse[:, 0, 0] / dt, force, rtol=1e-3)  # a mean, not the middle
    w, leaves, lands, z, v = throw_of(a)
    t, motion = shaken(model, stepper, a, w, dt, -20, steps)
    flies = (t > leaves) & (t < lands)
    fall = t[flies] - leaves
    np.testing.assert_allclose(motion.states.q[flies, 0], z + v * fall - 0.5 * G * fall**2, atol=1e-10)
    assert impact_times(motion, leaves)[0] == pytest.approx(lands, abs=1e-9)
    gap = motion.states.q[:, 0] - a * jnp.sin(w * t)
    assert np.min(gap) > -1e-12 and np.all((motion.contacts[:, 0] == (gap < 1e-9))[1:])


@pytest.mark.long
@pytest.mark.parametrize("method", AT_EVENTS)
def test_a_ball_bounces_once_per_period_of_a_table_with_its_derivative(method):
    """It leaves at g T / 2 where the table rises at (1 - e) / (1 + e) g T / 2: a w cos(phase)."""
    e, period, steps = 0.7, 0.1, 60
    w, up, dt = 2.0 * np.pi / period, 0.5 * G * period, period / steps
    rises = (1.0 - e) / (1.0 + e) * up
    size, phase = rises / w / 0.9, np.arccos(0.9)
    model = on_table(VERTICAL)
    t = dt * (jnp.arange(-4, 2 * steps + 30))

    def motion_of(a, e):
        z = a * (jnp.sin(w * t + phase) - jnp.sin(phase))
        fall = -t[0]  # s, before the first impact
        start = model.initial_state().replace(
            q=jnp.array([up * fall - 0.5 * G * fall**2]), v=jnp.array([G * fall - up]), t=t[0]
        )
        return moved(model, heights(z), dt, start, method(impact=jc.impact.Newton(restitution=e)))

    motion = succeeded(motion_of(size, e))
    np.testing.assert_allclose(impact_times(motion), period * np.arange(3), atol=2e-9)
    np.testing.assert_allclose(motion.impacts.v_plus[:3, 0], up, atol=1e-8)
    end = jax.jit(lambda a, e: motion_of(a, e).states.q[-1, 0])
    step = 1e-4 * size
    for direction in ((1.0, 0.0), (0.0, 1.0)):
        shift = np.array(direction) * (step, 1e-5)
        slope = jax.jvp(end, (size, e), direction)[1]
        difference = end(*(np.array([size, e]) + shift)) - end(*(np.array([size, e]) - shift))
        np.testing.assert_allclose(slope, difference / (2 * np.sum(shift)), rtol=2e-5)
        np.testing.assert_allclose(jax.grad(end, (0, 1))(size, e) @ np.array(direction), slope, rtol=1e-9)


@pytest.mark.long
def test_a_crate_on_a_belt_slips_until_it_runs_with_it():
    """x = V t - V^2 / (2 mu g) after V / (mu g); by V: t - V / (mu g)."""
    model, dt, steps = on_table(PLANAR, "box"), 1e-2, 40

    def end(speed):
        belt = jc.move_surfaces(model, {"top": jnp.stack([speed, 0.0])})
        stepper = jc.simulate.EventDriven()
        motion = jc.simulate.rollout(
            belt, model.initial_state(), jnp.zeros((steps, 3)), stepper=stepper, dt=dt
        )
        return motion.states.q[-1, 0], motion

    x, slope, motion = jax.jvp(end, (1.0,), (1.0,), has_aux=True)
    succeeded(motion)
    t = dt * steps
    np.testing.assert_allclose(x, t - 1.0 / (2.0 * MU * G), rtol=1e-11)
    np.testing.assert_allclose(slope, t - 1.0 / (MU * G), rtol=1e-11)
    at = dt * np.arange(26)  # before it runs with the belt
    np.testing.assert_allclose(motion.states.v[:26, 0], MU * G * at, atol=1e-11)
    np.testing.assert_allclose(motion.states.v[26:, 0], 1.0, rtol=1e-11)


@pytest.mark.long
@pytest.mark.parametrize("turns", [False, True])
def test_a_table_carries_a_box_as_far_as_friction_does_and_a_ball_rolls(turns):
    """A ball that rolls has two sevenths of the acceleration of the table."""
    model, dt = on_table(PLANAR, "sphere" if turns else "box"), 1e-2
    t = dt * jnp.arange(31)

    def end(acceleration):
        poses = heights(0.0 * t).at[:, 0].set(0.5 * acceleration * t**2)
        return (motion := moved(model, poses, dt)).states.q[-1, 0], motion

    for acceleration in (2.0, 6.0):
        x, slope, motion = jax.jvp(end, (acceleration,), (1.0,), has_aux=True)
        follows = 2.0 / 7.0 if turns else 1.0
        along = min(follows * acceleration, MU * G)
        np.testing.assert_allclose(x, 0.5 * along * t[-1] ** 2, rtol=1e-10)
        by = 0.5 * follows * t[-1] ** 2 if follows * acceleration < MU * G else 0.0
        np.testing.assert_allclose(slope, by, atol=1e-10)
        np.testing.assert_allclose(succeeded(motion).states.q[:, 1], 0.0, atol=1e-12)


@pytest.mark.long
def test_a_box_on_a_table_that_rocks_slides_as_by_small_steps():
    """`TimeStepping` comes closer the smaller its steps are: the table turns, shifts, speeds up and down."""
    model, dt, steps = on_table(PLANAR, "box"), 1e-2, 50

    def poses(dt, steps):
        angle = 0.25 * (1.0 - jnp.cos(6.0 * dt * jnp.arange(steps + 1)))
        return jnp.stack([0.05 * jnp.sin(angle), -0.05 * jnp.cos(angle), angle], axis=1)

    motion = succeeded(moved(model, poses(dt, steps), dt))
    small = moved(model, poses(dt / 20, 20 * steps), dt / 20, stepper=jc.simulate.TimeStepping())
    np.testing.assert_allclose(small.states.q[::20], motion.states.q, atol=2e-7)
    on_it = jnp.linalg.norm(motion.states.q[:, :2] - motion.states.q[:1, :2], axis=1)
    assert on_it[-1] > 0.05  # it slides


@pytest.mark.slow
def test_variational_steps_on_a_belt_come_to_run_with_it_to_second_order():
    model = jc.move_surfaces(on_table(PLANAR, "box"), {"top": jnp.array([1.0, 0.0])})
    stepper, errors = jc.simulate.Variational(impact=jc.impact.AnitescuPotra()), []
    for dt in (1e-2, 5e-3):
        steps = round(0.4 / dt)
        motion = succeeded(
            jc.simulate.rollout(model, model.initial_state(), jnp.zeros((steps, 3)), stepper=stepper, dt=dt)
        )
        np.testing.assert_allclose(motion.states.v[-1], [1.0, 0.0, 0.0], atol=1e-12)
        errors.append(abs(motion.states.q[-1, 0] - (0.4 - 1.0 / (2.0 * MU * G))))
    assert errors[0] < 1e-4 and errors[1] < errors[0] / 4.0


@pytest.mark.slow
def test_a_turntable_that_turns_unsteadily_takes_a_box_round():
    radius, dt, steps = 0.5, 5e-3, 40
    model = on_table("<freejoint/>", "box", planar=False)
    t = dt * jnp.arange(steps + 1)
    angle, zero = 2.0 * t + 0.05 * jnp.sin(5.0 * t), 0.0 * t
    poses = [zero, zero, zero - 0.05, jnp.cos(angle / 2), zero, zero, jnp.sin(angle / 2)]
    start = model.initial_state()
    start = start.replace(q=start.q.at[0].set(radius), v=start.v.at[1].set(2.25 * radius).at[5].set(2.25))
    q = succeeded(moved(model, jnp.stack(poses, axis=1), dt, start)).states.q
    np.testing.assert_allclose(np.hypot(q[:, 0], q[:, 1]), radius, rtol=1e-11)
    np.testing.assert_allclose(np.arctan2(q[:, 1], q[:, 0]), angle, atol=1e-11)


def test_a_path_goes_through_its_poses_with_twists_and_rates():
    """A body that turns about a fixed axis while it shifts, against closed forms: fourth order in dt."""
    model = on_table("<freejoint/>", "box", planar=False)
    axis = np.array([2.0, -1.0, 2.0]) / 3.0
    errors = []
    for dt in (0.02, 0.01):
        t = dt * jnp.arange(13)
        angle, shift = 0.8 * jnp.sin(3.0 * t), jnp.stack([jnp.cos(2.0 * t), t**2, jnp.sin(t)], axis=1)
        turn = jnp.concatenate([jnp.cos(angle / 2)[:, None], jnp.outer(jnp.sin(angle / 2), axis)], axis=1)
        rows = mocap_rows(model, {"table": jnp.concatenate([shift, turn], axis=1)}, dt, 12)
        step = apply_mocap(model, jax.tree.map(lambda x: x[6], rows), t[6])
        end = at_time(step, t[7]).params.tree
        np.testing.assert_allclose(end.position[0], shift[7], atol=1e-14)
        np.testing.assert_allclose(end.orientation[0], turn[7], atol=1e-14)
        at = float(t[6]) + 0.3 * dt
        twist, _, rate = at_time(step, jnp.asarray(at)).params.mocap_velocity[:, 0]
        exact = [-2.0 * np.sin(2.0 * at), 2.0 * at, np.cos(at), *(2.4 * np.cos(3.0 * at) * axis)]
        exact_rate = [-4.0 * np.cos(2.0 * at), 2.0, -np.sin(at), *(-7.2 * np.sin(3.0 * at) * axis)]
        errors.append([np.max(np.abs(twist - np.array(exact))), np.max(np.abs(rate - np.array(exact_rate)))])
    assert np.all(errors[0] < np.array([1e-5, 2e-4])) and np.all(
        np.array(errors[1]) < np.array(errors[0]) / 12
    )


@pytest.mark.long
def test_a_motion_starts_where_its_first_poses_have_the_table():
    """A state that is deep in the table of the file may be above the first pose, and the other way round."""
    model, stepper = on_table(VERTICAL), jc.simulate.TimeStepping()
    start = model.initial_state()
    with pytest.raises(ValueError, match="penetration"):
        moved(model, heights(jnp.full(4, 0.02)), 1e-3, start, stepper)
    low = moved(model, heights(jnp.full(4, -0.02)), 1e-3, start.replace(q=start.q - 0.02), stepper)
    assert np.all(low.contacts[0]) and not np.any(low.status)


def test_motions_of_tables_that_events_do_not_know_are_refused():
    model = on_table(VERTICAL)
    with pytest.raises(ValueError, match="mocap: expected three poses"):
        moved(model, heights(jnp.zeros(2)), 1e-3)
    with pytest.raises(ValueError, match="corner: expected 'smooth'"):
        moved(model, heights(jnp.zeros(4)), 1e-3, stepper=jc.simulate.EventDriven(corner="one_sided"))
    with pytest.raises(ValueError, match="mocap: expected three poses"):
        moved(model, heights(jnp.zeros(2)), 1e-3, stepper=jc.simulate.Variational())
    hand = jc.load_mjcf("""<mujoco><worldbody><body name="table" mocap="true" pos="0 0 1"/>
        <body name="palm" pos="0 0 1"><freejoint/><geom type="box" size=".1 .1 .02" mass="1"/></body>
        </worldbody><equality><weld body1="table" body2="palm"/></equality></mujoco>""")
    poses = jnp.tile(jnp.array([0.0, 0.0, 1.0, 1.0, 0.0, 0.0, 0.0]), (4, 1))
    with pytest.raises(ValueError, match="mocap: expected None for closed loops or welds"):
        moved(hand, poses, 1e-3)
