"""`EventDriven` with joint limits, dry friction of joints and closed loops: closed forms and their derivatives."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxcontact as jc
from jaxcontact.simulate.augmented.contact_forces import accelerations, shortest_forces
from jaxcontact.solvers.contact_problem import SEPARATE, SLIDE
from jaxcontact.terms import moving_terms
from jaxcontact.terms.closed_loops import project_velocity

RAIL = """<mujoco><option gravity="0 0 0"/><worldbody><body><joint type="slide" axis="1 0 0" {}/>
<geom size=".1" mass="1.5"/></body></worldbody></mujoco>"""
CRATE = """<geom type="plane" size="5 5 1"/><body pos="0 0 0.2"><joint type="slide" axis="0 0 1" range="-1 1"
limited="true"/><geom size=".1" mass="1"/></body>"""
TENDON = """<mujoco><option gravity="0 0 0"/><worldbody>
<body><joint name="a" type="slide" axis="1 0 0"/><geom size=".1" mass="1"/></body>
<body pos="0 1 0"><joint name="b" type="slide" axis="1 0 0"/><geom size=".1" mass="3"/></body></worldbody>
<tendon><fixed {}><joint joint="a" coef="1"/><joint joint="b" coef="-1"/></fixed></tendon></mujoco>"""
BALL_JOINT = """<mujoco><worldbody><body><joint type="ball" frictionloss="5"/>
<geom size=".05" pos="0 0 -1" mass="1"/></body></worldbody></mujoco>"""
FOUR_BAR = """<mujoco><worldbody>
<body name="crank"><joint axis="0 1 0"/><geom type="capsule" fromto="0 0 0 0 0 1" size=".02" mass="1"/>
  <body name="coupler" pos="0 0 1"><joint axis="0 1 0"/>
    <geom type="capsule" fromto="0 0 0 2 0 0" size=".02" mass="1"/>
    <body name="rocker" pos="2 0 0"><joint axis="0 1 0"/>
      <geom type="capsule" fromto="0 0 0 0 0 -1" size=".02" mass="1"/></body></body></body></worldbody>
<equality><connect body1="rocker" anchor="0 0 -1"/></equality></mujoco>"""


UNEQUAL_BAR = """<mujoco><worldbody><geom type="plane" size="5 5 1" friction="0.5"/>
<body name="crank" pos="0 0 0.5"><joint axis="0 1 0"/><geom type="capsule" fromto="0 0 0 0 0 .4" size=".02" mass="1"/>
  <body name="coupler" pos="0 0 .4"><joint axis="0 1 0"/>
    <geom type="capsule" fromto="0 0 0 1.1 0 .1" size=".02" mass="2"/>
    <geom name="foot" type="sphere" pos=".4 0 -.8" size=".1" mass="1"/>
    <body name="rocker" pos="1.1 0 .1"><joint axis="0 1 0"/>
      <geom type="capsule" fromto="0 0 0 .2 0 -.9" size=".02" mass="1"/></body></body></body></worldbody>
<equality><connect body1="rocker" anchor=".2 0 -.9"/></equality></mujoco>"""


def end(model, x, time=1.0, dt=0.05, law=None):
    """Return (q, v) at the end of a motion from x = (q, v), and the motion."""
    nq = model.structure.num_positions
    state = model.initial_state().replace(q=x[:nq], v=x[nq:])
    stepper = jc.simulate.EventDriven() if law is None else jc.simulate.EventDriven(impact=law)
    steps = round(time / dt)
    motion = jc.simulate.rollout(model, state, None, num_steps=steps, stepper=stepper, dt=dt)
    last = jax.tree.map(lambda leaf: leaf[-1], motion.states)
    return jnp.concatenate([last.q, last.v]), motion


def value_and_slopes(function, x):
    """Return a function, its derivative forward, and its derivative in reverse, of the first number."""
    value, _ = jax.jit(function)(x)
    forward = jax.jit(jax.jacfwd(lambda x: function(x)[0][0]))(x)
    reverse = jax.jit(jax.grad(lambda x: function(x)[0][0]))(x)
    np.testing.assert_allclose(forward, reverse, rtol=0, atol=1e-12)
    return value, forward


@pytest.mark.slow
def test_dry_friction_stops_a_slide_after_its_way():
    """From 2 m/s under 3 N of 1.5 kg: x = m v^2 / 2f = 1 m after 1 s, then rest; dx/dv = m v / f."""
    model = jc.load_mjcf(RAIL.format('frictionloss="3"'))
    value, slopes = value_and_slopes(lambda x: end(model, x, time=1.5), jnp.array([0.0, 2.0]))
    np.testing.assert_allclose(value, [1.0, 0.0], atol=1e-12)
    np.testing.assert_allclose(slopes, [1.0, 1.0], rtol=1e-9)


@pytest.mark.slow
def test_a_limit_strikes_under_the_law_at_its_time():
    """At 0.3 m, from v = 1 m/s and e = 0.5: x = 0.3 - e (v T - 0.3) = -0.05 m; dx = -e (dx0 + T dv)."""
    model = jc.load_mjcf(RAIL.format('range="-1 0.3" limited="true"'))
    law = jc.impact.Newton(restitution=0.5)
    value, slopes = value_and_slopes(lambda x: end(model, x, law=law), jnp.array([0.0, 1.0]))
    np.testing.assert_allclose(value, [-0.05, -0.5], atol=1e-12)
    np.testing.assert_allclose(slopes, [-0.5, -0.5], rtol=1e-9)


@pytest.mark.slow
def test_a_limit_strikes_at_its_time_in_variational_steps():
    model = jc.load_mjcf(RAIL.format('range="-1 0.3" limited="true"'))
    stepper = jc.simulate.Variational(impact=jc.impact.Newton(restitution=0.5))
    state = model.initial_state().replace(v=jnp.array([1.0]))
    motion = jc.simulate.rollout(model, state, None, num_steps=20, stepper=stepper, dt=0.05)
    assert not np.any(motion.status) and motion.info.contacts.shape == (20, 0)
    np.testing.assert_allclose([motion.states.q[-1, 0], motion.states.v[-1, 0]], [-0.05, -0.5], atol=1e-12)


def test_limits_have_no_restitution_of_their_own_in_variational_steps():
    model = jc.load_mjcf(f"<mujoco><worldbody>{CRATE}</worldbody></mujoco>")
    with pytest.raises(
        ValueError, match="restitution: expected one number for a mechanism with limits, got 1"
    ):
        jc.simulate.variational(
            model,
            model.initial_state(),
            jc.simulate.Variational(restitution=jnp.full(1, 0.5)),
            dt=0.1,
            duration=0.1,
        )


@pytest.mark.slow
def test_dry_friction_and_limits_of_a_tendon_act_on_both_ends():
    """Two masses 1 and 3 kg, 2 m/s apart, 1.5 N: the relative speed falls by 1.5 (1 + 1/3) = 2 m/s a second."""
    x = jnp.array([0.0, 0.0, 2.0, 0.0])
    dry = jc.load_mjcf(TENDON.format('frictionloss="1.5"'))
    last, _ = jax.jit(lambda x: end(dry, x, time=1.5))(x)
    np.testing.assert_allclose(last[0] - last[1], 1.0, atol=1e-12)
    np.testing.assert_allclose(last[2:], 0.5, atol=1e-12)
    bounded = jc.load_mjcf(TENDON.format('limited="true" range="-1 0.5"'))
    last, _ = jax.jit(lambda x: end(bounded, x, time=1.5))(x)
    np.testing.assert_allclose(last, [1.125, 0.625, 0.5, 0.5], atol=1e-12)  # together from 0.25 s on


@pytest.mark.slow
def test_dry_friction_of_a_ball_joint_holds_and_lets_go():
    """A pendulum of 1 kg and 1 m held by 5 N m hangs still up to sin a = 0.51, and falls beyond."""
    model = jc.load_mjcf(BALL_JOINT)
    rest = jnp.zeros(3)

    def turned(angle):
        return jnp.array([jnp.cos(angle / 2), 0.0, jnp.sin(angle / 2), 0.0])

    for angle, moves in ((0.4, False), (0.65, True)):
        last, motion = end(model, jnp.concatenate([turned(angle), rest]), time=0.2)
        assert not np.any(motion.status)
        assert (np.max(np.abs(last[:4] - turned(angle))) > 1e-6) == moves
    assert model.structure.num_contacts == 0


@pytest.mark.slow
def test_a_four_bar_stays_closed_and_keeps_its_energy():
    model = jc.load_mjcf(FOUR_BAR)
    _, motion = jax.jit(lambda x: end(model, x, time=1.0, dt=0.02))(
        jnp.array([0.0, 0.0, 0.0, 1.0, -1.0, 1.0])
    )
    assert not np.any(motion.status)
    deviation, _ = jax.vmap(lambda q: jc.simulate.projection.constraint_values(model, q))(motion.states.q)
    assert np.max(np.abs(deviation)) < 1e-12
    energy = jax.vmap(lambda s: jc.kinetic_energy(model, s) + jc.potential_energy(model, s))(motion.states)
    np.testing.assert_allclose(energy, energy[0], atol=1e-8)


@pytest.mark.long
def test_accelerations_keep_loops_and_contacts():
    """G vdot + Gdot v = 0 and, of a foot on the coupler, J vdot + Jdot v = 0, with the rows before projection."""
    model = jc.load_mjcf(UNEQUAL_BAR, contacts="world", planar=True)
    state = model.initial_state()
    bare = moving_terms(model, state)
    v = project_velocity(bare.terms.M, bare.loops.rows, jnp.array([3.0, -2.0, 5.0]))
    state = state.replace(v=v)
    bare = moving_terms(model, state)
    assert np.max(np.abs(bare.loops.drift)) > 0.1
    foot = jnp.arange(bare.terms.phi.shape[0]) == int(jnp.argmin(jnp.abs(bare.terms.phi)))
    at = accelerations(model, state, foot, None, jnp.array(0.01))
    mode = jnp.where(foot, SLIDE, SEPARATE)
    force = shortest_forces(at.space, at.rate, mode, jnp.ones_like(at.terms.J_t[:, :, 0]))
    vdot = at.free + at.space.response @ force
    np.testing.assert_allclose(bare.loops.rows @ vdot + bare.loops.drift, 0.0, atol=1e-10)
    normal = bare.terms.J_n @ vdot + bare.drift[:, 0]
    np.testing.assert_allclose(normal[foot], 0.0, atol=1e-10)
