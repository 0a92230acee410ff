"""Strikes of `TimeStepping` at their times within a step: bounces, saltation of derivatives, a rocking block."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxcontact as jc

G = 9.81


def elastic(terms, v, key=None):
    """An elastic law of a user."""
    return jc.impact.propagate(terms, v)


CHAIN = jc.load_mjcf(
    """<mujoco><option gravity="0 0 0"/><worldbody>
<body><joint type="slide" axis="1 0 0"/><geom type="sphere" size=".1" mass="1"/></body>
<body><joint type="slide" axis="1 0 0"/><geom type="sphere" size=".1" mass="1"/></body></worldbody></mujoco>""",
    planar=True,
)
BALL = jc.load_mjcf(
    """<mujoco><option gravity="0 0 -9.81"/><worldbody><geom type="plane" size="5 5 1"/>
<body pos="0 0 .1"><joint type="slide" axis="0 0 1"/><geom type="sphere" size=".1" mass="3"/></body></worldbody></mujoco>""",
    planar=True,
)


def ends(x):
    """The ends of two balls in a row after 0.2 s, by their places and speeds, and the status."""
    state = CHAIN.initial_state().replace(q=x[:2], v=x[2:])
    stepper = jc.simulate.TimeStepping(impact=elastic)
    found = jc.simulate.rollout(CHAIN, state, None, num_steps=4, stepper=stepper, dt=0.05)
    return found.states.q[-1], jnp.bitwise_or.reduce(found.status)


@pytest.mark.parametrize("law", [jc.impact.Newton(restitution=0.5), jc.impact.Poisson(restitution=0.5)])
def test_a_step_with_restitution_is_a_program(law):
    """Tracing alone finds a wrong name, without the time to compile."""
    stepper = jc.simulate.TimeStepping(impact=law)

    def end(state):
        return jc.simulate.rollout(BALL, state, None, num_steps=1, stepper=stepper, dt=0.01).states

    assert jax.eval_shape(end, BALL.initial_state()).q.shape == (2, 1)


@pytest.mark.slow
@pytest.mark.parametrize("mode", [jax.jacfwd, pytest.param(jax.jacrev, marks=pytest.mark.slow)])
def test_an_elastic_chain_has_the_end_and_the_derivative_of_its_collision(mode):
    """Equal balls swap speeds at (x2 - x1 - 2 r) / v, wherever in a step that is, at its ends as well."""
    gaps = np.array([0.1, 0.1 + 1e-15, 0.1 - 1e-15, 0.1 + 1e-10, 0.1 - 1e-10, 0.12, 0.149, 0.0])
    starts = jnp.stack([jnp.array([0.0, 0.2 + gap, 1.0, 0.0]) for gap in gaps])

    def ends_twice(x):
        end, status = ends(x)
        return end, (end, status)

    slope, (end, status) = jax.jit(jax.vmap(mode(ends_twice, has_aux=True)))(starts)
    assert not np.any(status)
    np.testing.assert_allclose(end, np.stack([gaps, 0.4 + 0.0 * gaps], axis=1), rtol=0, atol=1e-9)
    right = np.tile([[0.0, 1.0, 0.0, 0.2], [1.0, 0.0, 0.2, 0.0]], (len(gaps), 1, 1))
    np.testing.assert_allclose(slope, right, rtol=0, atol=1e-9)


@jax.jit
def bounced(restitution, dt):
    state = BALL.initial_state().replace(q=jnp.array([1.0]))
    stepper = jc.simulate.TimeStepping(impact=jc.impact.Newton(restitution=restitution))
    return jc.simulate.rollout(BALL, state, None, num_steps=120, stepper=stepper, dt=dt)


@pytest.mark.long
@pytest.mark.parametrize("dt", [0.015, 0.0137])
def test_a_ball_bounces_at_its_time(dt):
    """Its energy is e^2 of that before at every bounce, to round-off, and its height that of the parabola."""
    for e in (1.0, 0.8):
        found = bounced(e, dt)
        assert not np.any(np.asarray(found.status))
        t, q = np.asarray(found.states.t), np.asarray(found.states.q)[:, 0]
        fall, bounce, height = np.sqrt(2.0 / G), 0, np.full_like(q, np.nan)
        height[t <= fall] = 1.0 - 0.5 * G * t[t <= fall] ** 2
        while fall < t[-1]:
            speed = np.sqrt(2.0 * G) * e ** (bounce + 1)
            after = (t > fall) & (t <= fall + 2.0 * speed / G)
            height[after] = speed * (t[after] - fall) - 0.5 * G * (t[after] - fall) ** 2
            fall, bounce = fall + 2.0 * speed / G, bounce + 1
        assert bounce >= 2
        np.testing.assert_allclose(q, height, rtol=0, atol=1e-10)


TABLE = jc.load_mjcf(
    """<mujoco><option gravity="0 0 -9.81"/><worldbody>
<body><joint type="slide" axis="0 0 1"/><geom type="box" size="1 1 .1" mass="1e6"/></body>
<body pos="0 0 .2"><joint type="slide" axis="0 0 1"/><geom type="sphere" size=".1" mass="1"/></body></worldbody></mujoco>""",
    planar=True,
)


@pytest.mark.slow
def test_a_ball_keeps_its_orbit_on_a_table_that_shakes():
    """Period-one orbit: it leaves at g T / 2, the table's speed then is (1 - e) / (1 + e) of that; it attracts."""
    e, period, steps, rate, cycles = 0.8, 0.4, 40, 2.0 * np.pi / 0.4, 25
    up = 0.5 * G * period
    table_speed = (1.0 - e) / (1.0 + e) * up
    size = 1.3 * table_speed / rate  # amplitude; the phase of the impact is arccos(1 / 1.3)
    begin = np.arccos(1.0 / 1.3) / rate
    t = begin + period / steps * np.arange(cycles * steps + 1)
    speed = size * rate * np.cos(rate * t)
    force = 1e6 * (np.diff(speed) / (period / steps) + G)
    z = size * np.sin(rate * begin)
    state = TABLE.initial_state().replace(q=jnp.array([z, z]), v=jnp.array([table_speed, up]))
    controls = jnp.stack([jnp.asarray(force), jnp.zeros(force.shape)], axis=1)
    stepper = jc.simulate.TimeStepping(impact=jc.impact.Newton(restitution=e))
    found = jax.jit(
        lambda state: jc.simulate.rollout(TABLE, state, controls, stepper=stepper, dt=period / steps)
    )(state)
    assert not np.any(np.asarray(found.status))
    top = np.asarray(found.states.q)[steps // 2 :: steps, 1] - z
    np.testing.assert_allclose(top, up**2 / (2.0 * G), rtol=0.02)


ROW = jc.load_mjcf(
    """<mujoco><option gravity="0 0 0"/><worldbody>
<body><joint type="slide" axis="1 0 0"/><geom type="sphere" size=".1" mass="1"/></body>
<body pos=".21 0 0"><joint type="slide" axis="1 0 0"/><geom type="sphere" size=".1" mass="1"/></body>
<body pos=".42 0 0"><joint type="slide" axis="1 0 0"/><geom type="sphere" size=".1" mass="1"/></body></worldbody></mujoco>""",
    planar=True,
)


@pytest.mark.long
@pytest.mark.parametrize("max_strikes", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_strikes_beyond_the_number_of_a_step_come_early_and_are_told(max_strikes):
    """Three balls 1 cm apart in a step of 50 ms at 1 m/s: the last one gets the speed 20 ms after the start."""
    state = ROW.initial_state().replace(v=jnp.array([1.0, 0.0, 0.0]))
    stepper = jc.simulate.TimeStepping(impact=elastic, max_strikes=max_strikes)
    found = jc.simulate.rollout(ROW, state, None, num_steps=1, stepper=stepper, dt=0.05)
    np.testing.assert_allclose(found.states.v[-1], [0.0, 0.0, 1.0], atol=1e-12)
    untimed = bool(found.status[0] & jc.Status.UNTIMED)
    assert untimed == (max_strikes == 1) and not bool(jc.Status.failed(found.status[0]))
    late = 0.03 if max_strikes == 2 else 0.04  # the second strike comes with the first one, 10 ms early
    np.testing.assert_allclose(found.states.q[-1], [0.01, 0.01 * (max_strikes == 2), late], atol=1e-12)


def test_a_number_of_strikes_is_positive():
    with pytest.raises(ValueError, match="max_strikes"):
        jc.simulate.TimeStepping(max_strikes=0)


BLOCK = jc.models.rocking_block()


@pytest.mark.slow
def test_a_block_rocks_at_housners_times():
    """1 m x 2 m about its corners: omega+ = 0.7 omega- at every change, theta'' = -(m g R / I) sin(alpha - theta).

    The first changes come at 0.2863 and 0.6552 s (an integration to 1e-12), within two and five steps.
    """
    tilt, size = 0.1, np.array([1.0, 2.0])
    turn = np.array([[np.cos(tilt), -np.sin(tilt)], [np.sin(tilt), np.cos(tilt)]])
    x, y = -0.5 * size[0] * np.array([1.0, 0.0]) - turn @ (-0.5 * size)
    start = BLOCK.initial_state().replace(q=jnp.array([x, y, tilt]), v=jnp.zeros(3))
    stepper = jc.simulate.TimeStepping(impact=jc.impact.Newton(restitution=0.0))

    @jax.jit
    def rock(dt):
        return jc.simulate.rollout(BLOCK, start, jnp.zeros((320, 3)), stepper=stepper, dt=dt)

    for dt in (0.005, 0.0025):
        found = rock(dt)
        assert not np.any(np.asarray(found.status))
        angle, t = np.asarray(found.states.q)[:, 2], np.asarray(found.states.t)
        changes = t[1:][angle[:-1] * angle[1:] < 0]
        assert abs(changes[0] - 0.2863) < 2 * dt and abs(changes[1] - 0.6552) < 5 * dt
        spin = np.abs(np.asarray(found.states.v)[1:, 2])[np.flatnonzero(angle[:-1] * angle[1:] < 0)]
        assert abs(spin[0] - 0.509) < 5 * dt


BELT = jc.load_mjcf(
    """<mujoco><worldbody>
<body pos="0 0 -.1"><joint type="slide" axis="1 0 0"/><geom type="box" size="3 .2 .1" mass="2" friction=".4"/></body>
<body pos="0 0 .1"><joint type="slide" axis="1 0 0"/><joint type="slide" axis="0 0 1"/>
<geom type="sphere" size=".1" mass="1" friction=".4"/></body></worldbody></mujoco>""",
    planar=True,
)


@pytest.mark.slow
def test_friction_moves_a_belt_that_no_normal_moves():
    """The ball takes mu m g dt of the momentum of the belt in every step, until both have 2/3 of its speed."""
    start = BELT.initial_state().replace(v=jnp.array([1.0, 0.0, 0.0]))
    stepper = jc.simulate.TimeStepping()
    found = jc.simulate.rollout(BELT, start, None, num_steps=20, stepper=stepper, dt=0.01)
    assert not np.any(np.asarray(found.status))
    v = np.asarray(found.states.v)
    np.testing.assert_allclose(2.0 * v[:, 0] + v[:, 1], 2.0, rtol=1e-12)
    np.testing.assert_allclose(v[10, 1], 10 * 0.4 * G * 0.01, rtol=1e-12)
    np.testing.assert_allclose(v[-1, :2], 2.0 / 3.0, rtol=1e-12)
