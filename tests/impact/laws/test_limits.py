"""Joints at their limits in an impact: a straight leg strikes as one body, a loop stays closed."""

import jax.numpy as jnp
import numpy as np
import pytest

import jaxcontact as jc

FILE = """
<mujoco><compiler angle="radian"/><option gravity="0 0 -9.81"/><worldbody>
  <geom name="floor" type="plane" size="5 5 1" friction="{mu}"/>
  <body name="hip" pos="0 0 {height}">
    <joint type="slide" axis="1 0 0"/><joint type="slide" axis="0 0 1"/>
    <geom type="sphere" size="0.1" mass="3" contype="0" conaffinity="0"/>
    <body name="thigh"><joint axis="0 1 0"/>
      <geom type="capsule" fromto="0 0 0 0 0 -0.5" size="0.03" mass="2" contype="0" conaffinity="0"/>
      <body name="shank" pos="0 0 -0.5">{knee}
        <geom type="capsule" fromto="0 0 0 0 0 -0.5" size="0.02" mass="1" contype="0" conaffinity="0"/>
        <geom name="foot" type="sphere" pos="0 0 -0.5" size="0.05" mass="0.2" friction="{mu}"/>
      </body></body></body></worldbody></mujoco>
"""
TILT = 0.3


def leg(knee, mu):
    """A leg that stands tilted on its foot; the hip is at the height at which the foot touches."""
    height = np.cos(TILT) + 0.05
    return jc.load_mjcf(FILE.format(knee=knee, mu=mu, height=repr(float(height))), planar=True)


def landing(knee, mu, limits):
    model = leg(knee, mu)
    nv = model.structure.num_velocities
    state = model.initial_state().replace(
        q=jnp.zeros(nv).at[2].set(TILT), v=jnp.zeros(nv).at[:3].set(jnp.array([0.3, -1.0, 0.2]))
    )
    return jc.contact_terms(model, state, limits=limits), state.v


@pytest.mark.long
@pytest.mark.parametrize("mu", [0.0, 0.9])
def test_a_knee_at_its_limit_strikes_as_a_welded_one(mu):
    """The oracle has no knee. The limit must push for it: with the range on the other side it does not."""
    rigid, v = landing("", mu, False)
    expected, info = jc.impact.anitescu_potra(rigid, v)
    assert int(info.status) == 0
    answers = {}
    for name, span in {"forward": "0 2", "backward": "-2 0"}.items():
        terms, v = landing(f'<joint axis="0 1 0" range="{span}"/>', mu, True)
        assert terms.phi.shape == (3,) and int(jnp.sum(terms.active)) == 2  # foot, lower and upper limit
        v_plus, info = jc.impact.anitescu_potra(terms, v)
        assert int(info.status) == 0
        answers[name] = (v_plus, float(jnp.sum(info.impulse[1:, 0])))
    blocked = [name for name, (_, push) in answers.items() if push > 1e-6]
    assert len(blocked) == 1
    v_plus, _ = answers.pop(blocked[0])
    np.testing.assert_allclose(v_plus, [*expected, 0.0], atol=1e-12)
    ((bent, _),) = answers.values()
    free, v = landing('<joint axis="0 1 0" range="-2 2"/>', mu, True)
    assert int(jnp.sum(free.active)) == 1
    np.testing.assert_allclose(bent, jc.impact.anitescu_potra(free, v)[0], atol=1e-12)
    assert abs(float(bent[3])) > 0.1


@pytest.mark.long
def test_limits_are_left_out_unless_asked_for_and_take_names():
    knee = '<joint axis="0 1 0" range="0 2"/>'
    terms, _ = landing(knee, 0.9, False)
    assert terms.phi.shape == (1,)
    terms, _ = landing(knee, 0.9, True)
    model = leg(knee, 0.9)
    np.testing.assert_array_equal(terms.take("foot", model.system).J_n, terms.J_n[:1])
    assert np.all(np.asarray(terms.mu[1:]) == 0) and not np.any(terms.J_t[1:])


@pytest.mark.long
def test_every_order_of_foot_and_limit_is_sampled():
    """Samples end only when neither the foot nor the knee at its limit goes on closing."""
    for span in ("0 2", "-2 0"):
        terms, v = landing(f'<joint axis="0 1 0" range="{span}"/>', 0.9, True)
        samples = jc.impact.sample(terms, v, jc.impact.Routh(max_steps=48), num_samples=64)
        assert not np.any(samples.status)
        assert np.all(np.asarray(samples.v_plus @ terms.J_n[1:].T)[:, np.asarray(terms.active)[1:]] > -1e-7)
