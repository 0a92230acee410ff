"""A mechanism from a file moves by the methods that locate events: a ball that falls, by its closed form."""

import jax.numpy as jnp
import numpy as np
import pytest

import jaxcontact as jc

pytest.importorskip("mujoco")
BALL = """<mujoco><worldbody><geom type="plane" size="5 5 1"/><body pos="0 0 0.1">
<joint type="slide" axis="1 0 0"/><joint type="slide" axis="0 0 1"/><geom size="0.1" mass="1"/></body></worldbody></mujoco>"""


def falling(height):
    model = jc.load_mjcf(BALL, planar=True)
    return model, model.initial_state().replace(q=jnp.array([0.0, height]))


@pytest.mark.slow
def test_variational_motion():
    model, state = falling(0.05)
    motion = jc.simulate.variational(model, state, dt=0.01, duration=0.15)
    assert not np.any(np.asarray(motion.status) & jc.Status.FAILURES)
    lands = np.sqrt(2 * 0.05 / 9.81)
    np.testing.assert_allclose(motion.impacts.t[0], lands, rtol=1e-9)
    rises = 0.15 - lands  # elastic, as `variational` is without `restitution`
    np.testing.assert_allclose(motion.states.q[-1, 1], 9.81 * (lands - 0.5 * rises) * rises, atol=1e-9)
    bad = model.params.replace(
        tree=model.params.tree.replace(joint_force_range=model.params.tree.joint_force_range * jnp.nan)
    )
    motion = jc.simulate.variational(model.replace(params=bad), state, dt=0.01, duration=0.15)
    assert np.all(np.asarray(motion.status) & jc.Status.NONFINITE)


@pytest.mark.slow
def test_time_augmented_motion():
    model, state = falling(0.4)
    path, info = jc.simulate.time_augmented(model, state, length=8.0, max_pieces=16)
    assert int(info.status) == 0 and int(info.num_impacts) == 1
    first = int(np.flatnonzero(np.asarray(path.impact) == 0)[0])
    np.testing.assert_allclose(path.t[first], np.sqrt(2 * 0.4 / 9.81), rtol=1e-9)
