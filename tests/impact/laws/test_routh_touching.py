"""Routh's law in a batch of motions: each lane with its active contacts alone, as `resolve` with all of them."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxcontact as jc
from jaxcontact.impact.laws.routh import resolve_draws
from jaxcontact.impact.laws.routh_steps import ImpactDraws, StepSettings

MODEL = jc.models.rocking_block(all_corners=True)
LAW = jc.impact.Routh(impulse_step=0.3, max_steps=6)
ANGLES = jnp.array([0.0, 0.0, 0.02, -0.3, 1.4])


def problem(angle, height):
    """Three corners of a block that turns about its lowest corner; far up nothing closes."""
    q = jnp.stack([0.0, 1.0, angle])
    lowest = jnp.min(jc.contact_terms(MODEL, MODEL.initial_state().replace(q=q)).phi)
    state = MODEL.initial_state().replace(q=q.at[1].add(height - lowest))
    terms = jc.contact_terms(MODEL, state)
    some = jax.tree.map(lambda rows: rows[jnp.array([0, 1, 3])], (terms.J_n, terms.J_t, terms.phi, terms.mu))
    J_n, J_t, phi, mu = some
    terms = terms.replace(J_n=J_n, J_t=J_t, phi=phi, mu=mu, active=phi < 0.01)
    return terms, jnp.stack([0.3, -0.5, 0.2])


def asked(angle, height, key):
    terms, v = problem(angle, height)
    return LAW(terms, v, key, clearance=terms.phi / 0.01)


def whole(angle, height, key):
    terms, v = problem(angle, height)
    draws = jax.vmap(lambda k: jax.random.uniform(jax.random.fold_in(key, k), (4,)))(jnp.arange(6))
    orders = ImpactDraws(0.3 * draws[:, :3], draws[:, 3])
    return resolve_draws(terms, v, orders, StepSettings("all", 8), clearance=terms.phi / 0.01)


@pytest.mark.slow
def test_lanes_are_solved_with_their_active_contacts_alone():
    keys = jax.random.split(jax.random.key(2), 5)
    heights = jnp.array([0.0, 1.0, 0.0, 0.0, 0.0])
    got, info = jax.jit(jax.vmap(asked))(ANGLES, heights, keys)
    for k in range(5):
        v, single = jax.jit(whole)(ANGLES[k], heights[k], keys[k])
        np.testing.assert_allclose(got[k], v, rtol=0, atol=1e-12)
        np.testing.assert_allclose(info.impulse[k], single.impulse, rtol=0, atol=1e-12)
        assert int(info.num_iters[k]) == int(single.num_iters) and not int(info.status[k])
    poisoned, said = jax.jit(jax.vmap(asked))(ANGLES.at[2].set(jnp.nan), heights, keys)
    others = np.arange(5) != 2
    chex.assert_trees_all_equal(poisoned[others], got[others])
    assert int(said.status[2]) & int(jc.Status.NONFINITE) and not np.any(said.status[others])


@pytest.mark.slow
def test_the_derivative_is_that_of_resolve():
    key = jax.random.key(4)
    slopes = [
        jax.jit(jax.jacfwd(lambda a, f=f: f(a, jnp.array(0.0), key)[0]))(ANGLES[2]) for f in (asked, whole)
    ]
    np.testing.assert_allclose(*slopes, rtol=0, atol=1e-12)
    back = jax.jit(jax.grad(lambda a: asked(a, jnp.array(0.0), key)[0][2]))(ANGLES[2])
    np.testing.assert_allclose(back, slopes[0][2], rtol=0, atol=1e-12)
    assert float(jnp.max(jnp.abs(slopes[0]))) > 1e-3
