"""A robot of another package dropped at random comes to rest, as deep as weight over stiffness explains."""

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import package_robots

import jaxcontact as jc
from jaxcontact.terms import contact_gaps

pytestmark = pytest.mark.slow
DROPS, STEPS, DT = 20, 200, 5e-3


def thrown(mj, model, rng):
    """q (20, nq): joints anywhere in their ranges, the trunk at any angle, 5 cm above the floor."""
    gaps = jax.jit(lambda q: contact_gaps(model.system, model.params, q).min())
    poses = []
    for _ in range(DROPS):
        q = mj.qpos0.copy()
        for j in range(3, mj.njnt):  # after the slides and the hinge of the trunk
            q[j] = rng.uniform(*mj.jnt_range[j])
        q[2] = rng.uniform(-np.pi, np.pi)
        q[1] += 0.05 - gaps(jnp.asarray(q))
        poses.append(q)
    return jnp.asarray(np.array(poses))


def test_walker2d_comes_to_rest(rng):
    mj = package_robots.compiled(package_robots.WHOLE["gymnasium walker2d"])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", jc.io.mjcf.IgnoredOptionWarning)
        model = jc.load_mjcf(mj)
    system, params = model.system, model.params
    controls = jnp.zeros((STEPS, system.num_controls))

    @jax.jit
    @jax.vmap
    def second(state):
        states, info = jc.compliant.rollout(system, params, state, controls, dt=DT)
        return jax.tree.map(lambda x: x[-1], states), info.status

    states = jax.vmap(lambda q: model.state.replace(q=q))(thrown(mj, model, rng))
    for _ in range(4):
        states, status = second(states)
        assert not np.any(status)
    assert np.max(np.abs(states.v)) < 1e-4
    gaps = jax.vmap(lambda q: contact_gaps(system, params, q))(states.q)
    carried = params.law.stiffness * jnp.sum(jnp.maximum(-gaps, 0.0), axis=1)  # all touch the floor alone
    weight = -params.gravity[2] * jnp.sum(params.mass)
    np.testing.assert_allclose(carried / weight, 1.0, atol=1e-3)
