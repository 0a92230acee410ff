"""Limits and contacts with Coulomb friction push where they touch, not across a gap that stays open in a step."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxcontact as jc

pytest.importorskip("mujoco")

BALL = """<mujoco><worldbody><geom type='plane' size='5 5 1'/><body pos='0 0 .3'><freejoint/>
<geom type='sphere' size='.1' mass='1'/></body></worldbody></mujoco>"""
HINGE = """<mujoco><compiler angle='radian'/><option gravity='0 0 0'/><worldbody><body>
<joint axis='0 1 0' range='-1 1'/><inertial pos='0 0 0' mass='1' diaginertia='1 1 1'/></body></worldbody></mujoco>"""
STIFF, DAMPER = 1000.0, 50.0  # N/m, N s/m: the damper alone would push from 0.1 m at 2 m/s


@pytest.fixture(scope="module")
def ball():
    model = jc.load_mjcf(BALL)
    law = jc.compliant.Material(stiffness=jnp.asarray(STIFF), damping=jnp.asarray(DAMPER))
    return model.replace(params=model.params.replace(material=law))


def fall(model, speed, dt, time=0.2, law=None):
    """Gaps and speeds after each step, and forces in each."""
    params = model.params if law is None else model.params.replace(material=law)
    state = model.initial_state().replace(v=model.initial_state().v.at[2].set(-speed))
    controls = jnp.zeros((round(time / dt), 6))
    states, info = jc.compliant.rollout(
        model.replace(params=params), state, controls, dt=dt, settings=jc.compliant.Settings(cone="coulomb")
    )
    assert not np.any(info.status)
    start = np.concatenate([[0.2], np.asarray(states.q[:-1, 2]) - 0.1])
    return start, np.asarray(states.q[:, 2]) - 0.1, np.asarray(states.v[:, 2]), np.asarray(info.lam[:, 0])


@pytest.mark.long
@pytest.mark.parametrize("dt", [0.01, pytest.param(0.001, marks=pytest.mark.slow)])
def test_a_ball_is_first_pushed_where_it_touches(ball, dt):
    before, after, v, force = fall(ball, 2.0, dt)
    first = int(np.argmax(force > 0))
    np.testing.assert_allclose(v[:first], -2.0 - 9.81 * dt * np.arange(1, first + 1), rtol=1e-12)
    assert 0.0 < before[first] <= (2.0 + 9.81 * 0.2) * dt
    assert np.all(force[before > 0.0] * (after[before > 0.0] > 1e-7) == 0.0)
    # Where the step ends at the gap zero the impulse is at most the damper's; deeper it is the law's.
    touch = force[first], max(0.0, STIFF * -after[first] - DAMPER * v[first])
    assert touch[0] <= touch[1] * (1 + 1e-5)
    if after[first] < -1e-7:
        np.testing.assert_allclose(*touch, rtol=1e-5)


@pytest.mark.slow
def test_the_derivative_of_a_sliding_touch_is_that_of_the_step(ball):
    """A stiff ball comes down obliquely to a gap of zero; friction turns with the slip, by all of its bound."""
    law = jc.compliant.Material(stiffness=jnp.asarray(1e6), damping=jnp.asarray(1e4))
    model = ball.replace(params=ball.params.replace(material=law, mu=0.2 * ball.params.mu))
    start = model.initial_state()
    start = start.replace(q=start.q.at[2].set(0.11))

    @jax.jit
    def after(v):
        states, info = jc.compliant.step(model, start.replace(v=v), jnp.zeros(6), dt=0.01)
        return states.v, info

    v = jnp.array([3.0, 1.0, -2.0, 0.0, 0.0, 0.0])
    _, info = after(v)
    assert info.status == 0 and abs(info.gap[0]) < 1e-8 and info.lam[0] > 50.0
    assert jnp.linalg.norm(info.slip[0]) > 0.5
    slopes = jax.jacfwd(lambda v: after(v)[0])(v)
    differences = [(after(v + step)[0] - after(v - step)[0]) / 2e-5 for step in 1e-5 * jnp.eye(6)]
    np.testing.assert_allclose(slopes, jnp.stack(differences, axis=1), atol=1e-7)


@pytest.mark.long
def test_stiffness_of_any_size_stops_a_ball_in_two_steps(ball):
    law = jc.compliant.Material(stiffness=jnp.asarray(1e12), damping=jnp.asarray(0.0))
    before, _, v, force = fall(ball, 2.0, 0.01, law=law)
    first = int(np.argmax(force > 0))
    assert np.abs(v[first + 1 :]).max() < 2e-6 and before[first] < 0.04


@pytest.mark.long
def test_a_joint_is_braked_at_its_limit_alone():
    model = jc.load_mjcf(HINGE)
    law = jc.compliant.Material(stiffness=jnp.asarray(1e4), damping=jnp.asarray(200.0))
    state = model.initial_state().replace(v=jnp.array([10.0]))
    states, info = jc.compliant.rollout(
        model.replace(params=model.params.replace(material=law)), state, jnp.zeros((30, 1)), dt=0.005
    )
    assert not np.any(info.status)
    before = np.concatenate([[0.0], np.asarray(states.q[:-1, 0])])
    first = int(np.argmax(np.asarray(states.v[:, 0]) < 10.0 - 1e-9))
    assert 1.0 - before[first] <= 10.0 * 0.005 + 1e-12


@pytest.mark.long
def test_a_smooth_contact_keeps_no_damping_of_the_file(ball):
    smooth = jc.compliant.Smooth(stiffness=jnp.asarray(1e4), kappa=jnp.asarray(1e-8))
    law = ball.params.material.replace(stiffness=jnp.asarray(0.0), potential=smooth)
    before, _, v, _ = fall(ball, 2.0, 0.002, time=0.06, law=law)
    np.testing.assert_allclose(v, -2.0 - 9.81 * 0.002 * np.arange(1, 31), rtol=1e-6)
    assert before.min() > 0.05


@pytest.mark.slow
@pytest.mark.parametrize("mu", [0.1, 5.0])
def test_a_contact_that_ends_at_a_gap_of_zero_has_the_derivative_of_a_rigid_one(mu):
    """The damper alone would throw the ball back, so the gate holds its gap at zero; it slides or sticks."""
    ball = f"""<mujoco><worldbody><geom type="plane" size="5 5 .1" friction="{mu}"/><body pos="0 0 .105">
    <joint type="slide" axis="1 0 0"/><joint type="slide" axis="0 0 1"/><joint type="hinge" axis="0 1 0"/>
    <geom type="sphere" size=".1" mass="1" friction="{mu}"/></body></worldbody></mujoco>"""
    model, dt = jc.load_mjcf(ball, planar=True), 0.01
    law = jc.compliant.Material(stiffness=jnp.array(1e5), damping=jnp.array(2e3))
    model = model.replace(params=model.params.replace(material=law))
    state, v = model.initial_state(), jnp.array([0.3, -0.6, 0.2])

    def step(x):
        start = state.replace(q=state.q + x[:3], v=v + x[3:])
        after, info = jc.compliant.step(model, start, jnp.zeros(model.num_controls), dt=dt)
        return jnp.concatenate([after.v, dt * info.lam]), info

    slopes, info = jax.jacfwd(step, has_aux=True)(jnp.zeros(6))
    assert int(info.status) == 0
    assert abs(float(info.gap[0])) < 1e-9
    np.testing.assert_allclose(slopes[1], [0.0, -1.0 / dt, 0.0, 0.0, 0.0, 0.0], atol=1e-6)
    jitted = jax.jit(lambda x: step(x)[0])
    moved = [(jitted(1e-6 * e) - jitted(-1e-6 * e)) / 2e-6 for e in jnp.eye(6)]
    np.testing.assert_allclose(slopes, jnp.stack(moved, axis=1), atol=1e-5 * jnp.abs(slopes).max())


@pytest.mark.long
@pytest.mark.parametrize("speed", [(1.0, 0.3), (1.0, -0.3), (0.0, -0.3)])
def test_the_last_digit_of_a_gap_of_zero_decides_nothing(speed):
    """A ball on the floor to within rounding slides away, or strikes, as one a rounding higher does."""
    model = jc.load_mjcf(BALL)
    v = jnp.array([speed[0], 0.0, speed[1], 0.0, 0.0, 0.0])
    ends = []
    for rounding in (-1e-15, 0.0, 1e-15):
        q = model.initial_state().q.at[2].set(0.1 + rounding)
        state, info = jc.compliant.step(model, model.initial_state().replace(q=q, v=v), jnp.zeros(6), dt=1e-3)
        assert not info.status
        ends.append(np.asarray(state.v))
    np.testing.assert_allclose(ends, [ends[2]] * 3, rtol=1e-9, atol=1e-12)
