"""`Variational` with closed loops and dry friction of joints: closed forms, invariants, and their derivatives."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import solve_ivp

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


def test_dry_friction_stops_a_slide_after_its_way_within_a_step():
    """From 2 m/s under 3 N of 1.5 kg: x = m v^2 / 2f = 1 m after 1 s, then rest; dx/dv = m v / f."""
    model = jc.load_mjcf(RAIL.format('frictionloss="3"'))

    def last(x):
        motion = moved(model, x[:1], x[1:], dt=0.07, steps=20)
        return motion.states.q[-1, 0], motion

    x = jnp.array([0.0, 2.0])
    value, motion = jax.jit(last)(x)
    assert not np.any(motion.status)
    np.testing.assert_allclose(value, 1.0, rtol=0, atol=1e-13)
    t = np.asarray(motion.states.t)
    np.testing.assert_allclose(motion.states.v[:, 0], np.maximum(2.0 - 2.0 * t, 0.0), rtol=0, atol=1e-13)
    np.testing.assert_allclose(jax.jit(jax.grad(lambda x: last(x)[0]))(x), [1.0, 1.0], rtol=1e-12)
