"""Samples by Lemke's method in machine code are those of XLA's program."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxcontact as jc
from jaxcontact.impact.laws import routh
from jaxcontact.impact.sampling import lemke_on_host
from jaxcontact.status import Status


def random_terms(rng, count, tangents, nv=7):
    """Contacts of a mechanism, the last one inactive and the first two redundant."""
    root = rng.normal(size=(nv, nv))
    rows = rng.normal(size=(count, 1 + tangents, nv))
    rows[1] = rows[0]
    mass = root @ root.T + np.eye(nv)
    v = -np.linalg.solve(mass, rows[:, 0].sum(axis=0)) + 0.1 * rng.normal(size=nv)
    return jc.ContactTerms(
        M=jnp.asarray(mass),
        J_n=jnp.asarray(rows[:, 0]),
        J_t=jnp.asarray(rows[:, 1:]),
        phi=jnp.zeros(count),
        mu=jnp.asarray(rng.uniform(0.1, 1.0, count)),
        active=jnp.arange(count) < count - 1,
    ), jnp.asarray(v)


def refuse(*arguments):
    raise AssertionError("machine code left a sample to XLA")


def both(monkeypatch, terms, v, law, *, solves_all=True, **options):
    """Sample by machine code, which leaves none to XLA if it `solves_all`, and by XLA."""
    assert lemke_on_host.is_offered(v)
    with monkeypatch.context() as patch:
        if solves_all:
            patch.setattr(routh, "resolve_many", refuse)
            patch.setattr(routh, "resolve_until_all_end", refuse)
        quick = jc.impact.sample(terms, v, law, **options)
    with monkeypatch.context() as patch:
        patch.setattr(lemke_on_host, "is_offered", lambda v: False)
        return quick, jc.impact.sample(terms, v, law, **options)


@pytest.mark.slow
@pytest.mark.parametrize("tangents", [1, 2])
def test_samples_are_those_of_xla(rng, monkeypatch, tangents):
    terms, v = random_terms(rng, 4, tangents)
    law = jc.impact.Routh(impulse_step=0.3, max_steps=20, selection="lemke", num_directions=4)
    samples = both(monkeypatch, terms, v, law, num_samples=70, keep_path=True)
    for quick, slow in zip(*map(jax.tree.leaves, samples), strict=True):
        np.testing.assert_allclose(quick, slow, rtol=0, atol=1e-9)
    assert np.asarray(samples[0].num_iters).max() > 2
    assert np.unique(np.round(samples[0].v_plus, 6), axis=0).shape[0] > 5


@pytest.mark.slow
def test_an_impact_that_does_not_end_says_so(rng, monkeypatch):
    terms, v = random_terms(rng, 3, 1)
    law = jc.impact.Routh(impulse_step=0.05, max_steps=2, selection="lemke")
    quick, slow = both(monkeypatch, terms, v, law, solves_all=False, num_samples=8)
    assert np.any(quick.status == int(Status.UNTERMINATED))
    np.testing.assert_array_equal(quick.status, slow.status)
    np.testing.assert_allclose(quick.v_plus, slow.v_plus, atol=1e-12)


@pytest.mark.long
def test_a_sample_does_not_depend_on_its_neighbours(rng):
    terms, v = random_terms(rng, 3, 1)
    law = jc.impact.Routh(impulse_step=0.5, max_steps=20, selection="lemke")
    samples = jc.impact.sample(terms, v, law, num_samples=40)
    alone = jc.impact.sample(terms, v, law, num_samples=7, run=jc.Run(chunk=3))
    np.testing.assert_array_equal(samples.v_plus[:7], alone.v_plus)
    np.testing.assert_array_equal(samples.impulse[:7], alone.impulse)
