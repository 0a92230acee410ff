"""Random covering vectors: other solutions of a spatial step, at the same residual, from the pick alone."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers.drawing import draw

import jaxcontact as jc
from jaxcontact.impact import routh_step


@pytest.fixture(scope="module")
def walker():
    """A compass gait with a lateral coordinate: spatial contacts, several solutions in most steps."""
    model = jc.models.compass_gait()
    flat = jc.contact_terms(model, model.initial_state())
    terms = jc.ContactTerms(
        M=jnp.zeros((5, 5)).at[:4, :4].set(flat.M).at[4, 4].set(2.0),
        J_n=jnp.pad(flat.J_n, ((0, 0), (0, 1))),
        J_t=jnp.zeros((2, 2, 5)).at[:, 0, :4].set(flat.J_t[:, 0]).at[:, 1, 4].set(1.0),
        phi=flat.phi,
        mu=flat.mu,
        active=flat.active,
    )
    return terms, jnp.append(model.initial_state().v, 0.05)


@pytest.mark.slow
def test_other_solutions_are_found(walker):
    """Measured: 29 % of the first steps end elsewhere, up to 0.61 away, with residuals below 1e-14."""
    terms, v = walker
    caps = 0.25 * jax.random.uniform(jax.random.key(0), (256, 2))
    picks = jax.random.uniform(jax.random.key(1), (256,))
    step = jax.jit(jax.vmap(lambda cap, pick: routh_step(terms, v, cap, pick=pick, selection="lemke")))
    (fixed, info), (found, random) = step(caps, jnp.zeros(256)), step(caps, picks)
    assert not np.any(info.status) and not np.any(random.status)
    assert max(np.max(info.residual), np.max(random.residual)) < 1e-12
    moved = np.abs(np.asarray(found - fixed)).max(axis=1) > 1e-6
    assert 0.1 < moved.mean() < 0.6
    # The fixed vector always lets the trailing foot lift, the random ones also let it rest.
    lift = np.asarray(terms.J_n[1])
    assert np.min(fixed @ lift) > 1e-3
    assert np.min(np.abs(found @ lift)) < 1e-9
    again, _ = step(caps, picks)
    assert np.array_equal(again, found)


@pytest.mark.slow
def test_sampling_in_space_is_reproducible_and_varied(walker):
    terms, v = walker
    settings = {"impulse_step": 0.25, "max_steps": 5, "selection": "lemke"}
    many = draw(terms, v, num_samples=300, **settings)
    few = draw(terms, v, num_samples=40, **settings)
    assert np.array_equal(many.v_plus[:40], few.v_plus)
    assert not many.complete
    assert np.max(many.residual) < 1e-12
    lift = np.asarray(many.v_plus @ terms.J_n[1])[np.asarray(many.status) == 0]
    assert 0.02 < np.mean(np.abs(lift) < 1e-9) < 0.98  # both rest, in part of the samples


@pytest.mark.slow
def test_a_box_dropped_flat_has_one_outcome_per_step():
    """Its law is unique in the velocity: covering vectors that differ by factors of 1e4 change nothing."""
    model = jc.models.box_drop_3d()
    terms = jc.contact_terms(model, model.initial_state())
    caps = model.impulse_step * jax.random.uniform(jax.random.key(0), (64, 4))
    step = jax.jit(
        jax.vmap(
            lambda cap, pick: routh_step(terms, model.initial_state().v, cap, pick=pick, selection="lemke")
        )
    )
    (fixed, _), (found, info) = step(caps, jnp.zeros(64)), step(caps, jnp.linspace(0.01, 0.99, 64))
    assert not np.any(info.status)
    assert np.max(info.residual) < 1e-12
    np.testing.assert_allclose(found, fixed, rtol=0, atol=1e-12)
