"""Contacts whose rows are zero, parallel or dependent, and steps that make no progress, by `EventDriven`."""

import dataclasses
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import jaxcontact as jc
from jaxcontact.impact.laws.contact_space import ImpactInfo
from jaxcontact.mechanics.numbers import is_inertia

G = 9.81
SLIDE = """<mujoco><worldbody><geom type="plane" size="5 5 1" euler="0 {} 0" friction="0.4"/>
<body pos="0 0 0.1"><joint type="slide" axis="0 0 1"/><geom type="sphere" size="0.1" mass="3"/></body></worldbody></mujoco>"""
BALL = """<mujoco><worldbody><geom type="plane" size="5 5 1"/><body pos="0 0 0.5"><joint type="slide" axis="1 0 0"/>
<joint type="slide" axis="0 0 1"/><joint type="hinge" axis="0 1 0"/><geom type="sphere" size="0.1" mass="1"/></body></worldbody></mujoco>"""


def moved(model, q, v, dt, steps, law):
    """The motions from several starts, one by one in one program."""

    def one(start):
        state = model.initial_state().replace(q=start[0], v=start[1])
        stepper = jc.simulate.EventDriven(impact=law)
        motion = jc.simulate.rollout(model, state, None, num_steps=steps, stepper=stepper, dt=start[2])
        return motion.states, motion.status

    return jax.jit(lambda *starts: lax.map(one, starts))(q, v, dt)


@pytest.mark.long
def test_a_ball_on_one_slide_rests_bounces_to_rest_and_comes_back():
    """Its contact has no tangent motion: both tangent rows are zero."""
    model = jc.load_mjcf(SLIDE.format(0))
    q, v, dt = (
        jnp.array([[0.0], [1.0], [0.0], [0.0]]),
        jnp.array([[0.0], [0.0], [1.0], [1e-3]]),
        [0.1, 0.1, 0.1, 1e-3],
    )
    states, status = moved(model, q, v, jnp.array(dt), 15, jc.impact.Propagative(restitution=jnp.array(0.5)))
    assert not np.any(jc.Status.failed(status))
    np.testing.assert_allclose(states.t[:, -1], 15 * np.array(dt), rtol=1e-14)
    np.testing.assert_allclose(states.q[:, -1, 0], 0.0, rtol=0, atol=1e-12)
    np.testing.assert_allclose(states.v[:, -1, 0], 0.0, rtol=0, atol=1e-12)
    # 1 m/s is back after 2 / g s, so at 0.2 s it still flies; 1 mm/s comes to rest in the first step of 1 ms.
    np.testing.assert_allclose(states.q[2, :3, 0], [0.0, 0.1 - G * 0.005, 0.2 - G * 0.02], rtol=0, atol=1e-14)
    np.testing.assert_allclose(states.q[3, 1, 0], 0.0, rtol=0, atol=1e-15)


@pytest.mark.long
def test_a_slide_on_a_tilted_floor_rests():
    """One degree of freedom: the row of the tangent is parallel to that of the normal."""
    model = jc.load_mjcf(SLIDE.format(30))
    start = model.initial_state().q + 0.4
    states, status = moved(
        model, start[None], jnp.zeros((1, 1)), jnp.array([0.05]), 12, jc.impact.AnitescuPotra()
    )
    assert not np.any(jc.Status.failed(status))
    np.testing.assert_allclose(states.t[0, -1], 0.6, rtol=1e-14)
    np.testing.assert_allclose(states.q[0, -1, 0], 0.1 / math.cos(math.pi / 6) - 0.1, rtol=0, atol=1e-12)


@pytest.mark.long
def test_a_planar_body_written_in_space_lands_and_rolls():
    model = jc.load_mjcf(BALL)
    states, status = moved(
        model,
        model.initial_state().q[None],
        jnp.array([[0.5, 0.0, 1.0]]),
        jnp.array([0.1]),
        6,
        jc.impact.AnitescuPotra(),
    )
    assert not np.any(jc.Status.failed(status))
    fall, inertia = math.sqrt(0.8 / G), 0.4 * 0.1**2
    # The momentum about the contact stays: m v r + I w, and then v = w r.
    rolls = (0.5 * 0.1 + inertia * 1.0) / (0.1 + inertia / 0.1)
    end = [0.5 * fall + rolls * (0.6 - fall), -0.4, fall + rolls / 0.1 * (0.6 - fall)]
    np.testing.assert_allclose(states.q[0, -1], end, rtol=0, atol=1e-12)


class Passing(jc.impact.AnitescuPotra):
    """A law that resolves nothing, not even where impacts are made inelastic."""

    def __call__(self, terms, v, key=None, *, clearance=None):
        zero, done = jnp.zeros((), v.dtype), jnp.int32(1)
        impulse = jnp.zeros((terms.phi.shape[0], 1 + terms.J_t.shape[1]), v.dtype)
        return v, ImpactInfo(
            status=jnp.uint32(0), residual=zero, impulse=impulse, energy_ratio=zero, num_iters=done
        )


@pytest.mark.long
def test_a_step_without_progress_fails_and_time_passes():
    model = jc.load_mjcf(SLIDE.format(0))
    states, status = moved(model, jnp.zeros((1, 1)), -jnp.ones((1, 1)), jnp.array([0.1]), 3, Passing())
    assert np.all(np.asarray(status)[0, :1] & int(jc.Status.MAX_ITERS))
    np.testing.assert_allclose(states.t[0], [0.0, 0.1, 0.2, 0.3], rtol=1e-14)


@pytest.mark.long
def test_inertia_is_judged_by_its_eigenvalues():
    tensors = np.random.default_rng(0).standard_normal((200, 3, 3))
    tensors = tensors @ np.swapaxes(tensors, 1, 2) - 0.3 * np.eye(3)
    expected = np.linalg.eigvalsh(tensors)[:, 0] >= 0
    assert 20 < expected.sum() < 180
    np.testing.assert_array_equal(jax.vmap(is_inertia)(jnp.asarray(tensors)[:, None]), expected)
    rod = np.outer([1.0, 2.0, 3.0], [1.0, 2.0, 3.0])
    assert bool(is_inertia(jnp.asarray((14 * np.eye(3) - rod)[None]))) and not bool(
        is_inertia(jnp.asarray(-rod[None]))
    )
    text = """<mujoco><worldbody><geom type="plane" size="5 5 1"/><body pos="0 0 1"><freejoint/>
    <inertial pos="0 0 0" mass="1" fullinertia="2 2 2 -0.5 0 0"/><geom type="sphere" size=".1"/></body></worldbody></mujoco>"""
    model = jc.load_mjcf(text)
    jc.simulate.Variational().init(model, model.initial_state())
    state = model.initial_state().replace(q=model.initial_state().q.at[2].set(1.0))
    motion = jc.simulate.rollout(model, state, None, num_steps=1, stepper=jc.simulate.EventDriven(), dt=0.1)
    assert int(motion.status[0]) == 0
    np.testing.assert_allclose(motion.states.q[1, 2], 1.0 - 0.005 * G, rtol=1e-12)


def push_that_grows(structure, state, params):
    return jnp.zeros(3).at[0].set(2.0 * G * state.t)


@pytest.mark.long
def test_a_box_pushed_ever_harder_slips_when_both_corners_are_at_their_edge():
    """v = g (t - mu)^2 / 2 after mu s. Before that the corner with less load holds all the friction it can."""
    box = jc.load_mjcf(
        """<mujoco><worldbody><geom type='plane' size='9 9 1' friction='.4'/><body pos='0 0 .1'>
        <joint type='slide' axis='1 0 0'/><joint type='slide' axis='0 0 1'/><joint axis='0 1 0'/>
        <geom type='box' size='.1 .1 .1' mass='2' friction='.4'/></body></worldbody></mujoco>""",
        planar=True,
    )
    model = box.replace(system=dataclasses.replace(box.system, drive=push_that_grows))
    stepper, dt = jc.simulate.EventDriven(), 0.0101
    motion = jc.simulate.rollout(model, model.initial_state(), jnp.zeros((45, 3)), stepper=stepper, dt=dt)
    assert not np.any(motion.status), jc.Status.describe(motion.status)
    t = dt * np.arange(46)
    speed = np.where(t > 0.4, 0.5 * G * (t - 0.4) ** 2, 0.0)
    np.testing.assert_allclose(motion.states.v[:, 0], speed, atol=1e-10)
