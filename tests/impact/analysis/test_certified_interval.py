"""Certified intervals: exact where the outcome is known, beside samples elsewhere, for many contacts too."""

import jax.numpy as jnp
import numpy as np
import pytest

import jaxcontact as jc
from jaxcontact.impact.analysis.certified_interval import Relaxation
from jaxcontact.impact.laws.routh_law import fitted_law


def random_terms(rng, contacts, nt, nv=6, mu=(0.2, 1.0)):
    root = rng.normal(size=(nv, nv))
    return jc.ContactTerms(
        M=jnp.asarray(root @ root.T + 0.5 * np.eye(nv)),
        J_n=jnp.asarray(rng.normal(size=(contacts, nv))),
        J_t=jnp.asarray(rng.normal(size=(contacts, nt, nv))),
        phi=jnp.zeros(contacts),
        mu=jnp.asarray(rng.uniform(*mu, contacts)),
        active=jnp.ones(contacts, bool),
    )


def point(mu, nt=1, mass=2.0):
    """A point mass on a floor."""
    axes = np.eye(1 + nt)
    return jc.ContactTerms(
        M=mass * jnp.eye(1 + nt),
        J_n=jnp.asarray(axes[-1:]),
        J_t=jnp.asarray(axes[None, :nt]),
        phi=jnp.zeros(1),
        mu=jnp.full(1, mu),
        active=jnp.ones(1, bool),
    )


@pytest.mark.long
def test_a_point_has_its_outcome_alone():
    """It stops along the normal and loses mu times that speed along the floor: one outcome, known exactly."""
    terms, v = point(0.25), jnp.array([2.0, -3.0])
    law = jc.impact.Routh(impulse_step=20.0, max_steps=4)
    for direction, value in (([0.0, 1.0], 0.0), ([1.0, 0.0], 2.0 - 0.25 * 3.0)):
        found = jc.impact.bounds(terms, v, law, jnp.array(direction), num_starts=4, num_iters=4)
        np.testing.assert_allclose([found.inner_low, found.inner_high], value, atol=1e-9)
        assert found.outer_low - 1e-9 <= value <= found.outer_high + 1e-9
        if direction[1]:
            np.testing.assert_allclose(found.gap, 0.0, atol=1e-5)


@pytest.mark.long
def test_with_restitution_a_contact_may_separate():
    """The point rebounds at its speed: the condition that it does not is left out."""
    law = jc.impact.Routh(impulse_step=20.0, max_steps=8, restitution=1.0)
    found = jc.impact.bounds(
        point(0.0), jnp.array([0.0, -3.0]), law, jnp.array([0.0, 1.0]), num_starts=4, num_iters=0
    )
    np.testing.assert_allclose([found.inner_high, found.outer_high], 3.0, rtol=1e-5)


def check_inside(terms, v, law, num_samples):
    """No sample passes a bound along rows of contacts and random directions."""
    samples = jc.impact.sample(terms, v, law, num_samples=num_samples)
    v_plus = np.asarray(samples.v_plus)[np.asarray(samples.status) == 0]
    assert len(v_plus) > 0.5 * num_samples
    relaxation = Relaxation(terms, np.asarray(v), fitted_law(terms, v, law))
    rng = np.random.default_rng(0)
    speed = np.sqrt(np.asarray(v) @ np.asarray(terms.M) @ np.asarray(v))
    for direction in [*np.asarray(terms.J_n), *np.asarray(terms.J_t)[:, 0], *rng.normal(size=(4, len(v)))]:
        for sign in (-1.0, 1.0):
            size = np.sqrt(direction @ np.linalg.solve(np.asarray(terms.M), direction))
            highest = np.max(v_plus @ (sign * direction))
            assert highest <= relaxation.maximise(sign * direction) + 1e-8 * speed * size


@pytest.mark.long
@pytest.mark.parametrize("seed", range(4))
def test_samples_in_the_plane_lie_inside(seed):
    rng = np.random.default_rng(seed)
    terms = random_terms(rng, 3, 1)
    v = jnp.asarray(np.linalg.lstsq(np.asarray(terms.J_n), -rng.uniform(0.1, 1.0, 3), rcond=None)[0])
    check_inside(terms, v + 0.2 * rng.normal(size=6), jc.impact.Routh(max_steps=40), 512)


@pytest.mark.slow
@pytest.mark.parametrize("contacts", [2, 4, 8])
def test_samples_in_space_lie_inside(contacts):
    for seed in range(10):
        rng = np.random.default_rng(seed)
        terms = random_terms(rng, contacts, 2, nv=9)
        v = jnp.asarray(
            np.linalg.lstsq(np.asarray(terms.J_n), -rng.uniform(0.1, 1.0, contacts), rcond=None)[0]
        )
        law = jc.impact.Routh(max_steps=40, selection="lemke", num_directions=4)
        check_inside(terms, v + 0.2 * rng.normal(size=9), law, 256)


def test_mistakes_are_named():
    terms, v = point(0.25), jnp.array([2.0, -3.0])
    with pytest.raises(ValueError, match="direction: expected finite numbers, not all zero"):
        jc.impact.bounds(terms, v, jc.impact.Routh(), jnp.zeros(2))
    with pytest.raises(ValueError, match="direction"):
        jc.impact.bounds(terms, v, jc.impact.Routh(), jnp.ones(3))
    with pytest.raises(ValueError, match="num_iters"):
        jc.impact.bounds(terms, v, jc.impact.Routh(), jnp.ones(2), num_iters=-1)


def test_units_and_rest_change_nothing():
    """In grams and millimetres the numbers scale; at rest the interval is zero."""
    rng = np.random.default_rng(3)
    terms = random_terms(rng, 3, 1)
    v = jnp.asarray(-0.5 * np.sum(np.asarray(terms.J_n), axis=0))
    law = fitted_law(terms, v, jc.impact.Routh(impulse_step=1.0, max_steps=4))
    row = np.asarray(terms.J_n)[0]
    usual = Relaxation(terms, np.asarray(v), law).maximise(row)
    small = Relaxation(terms.replace(M=1e6 * terms.M), 1e-3 * np.asarray(v), law).maximise(row)
    np.testing.assert_allclose(small, 1e-3 * usual, rtol=1e-6)
    assert Relaxation(terms, np.zeros(6), law).maximise(row) == 0.0
