"""The bound on the number of single elastic impacts, against random chains of them."""

import math

import jax.numpy as jnp
import numpy as np
import pytest

import jaxcontact as jc
from jaxcontact.impact.analysis.reflection_bound import bound_of


def chains(gram, rng, most):
    """Numbers (n,) of reflections of random momenta, in random orders, with unit normals of Gram (n, k, k)."""
    count = len(gram)
    rate = np.einsum("nij,nj->ni", np.linalg.cholesky(gram), rng.normal(size=gram.shape[:2]))
    taken = np.zeros(count, int)
    going = np.arange(count)
    for _ in range(most):
        hit = rate[going] < -1e-12
        going = going[hit.any(axis=1)]
        if not going.size:
            return taken
        choice = np.where(rate[going] < -1e-12, rng.random(rate[going].shape), -1.0).argmax(axis=1)
        by = rate[going, choice]
        rate[going] -= 2.0 * by[:, None] * gram[going, choice]
        taken[going] += 1
    raise AssertionError(f"{going.size} chains are longer than {most}")


def random_grams(count, k, rng):
    normals = rng.normal(size=(count, k, k))
    normals /= np.linalg.norm(normals, axis=2, keepdims=True)
    gram = normals @ np.swapaxes(normals, 1, 2)
    return gram[np.linalg.eigvalsh(gram)[:, 0] > 1e-4]


def never_exceeded(count, k, seed):
    rng = np.random.default_rng(seed)
    gram = random_grams(count, k, rng)
    bound = np.array([bound_of(g) for g in gram])
    taken = chains(gram, rng, 5000)
    assert np.all(taken <= bound)
    return taken / bound


def test_no_random_chain_of_three_contacts_exceeds_it():
    assert 0.001 < never_exceeded(3_000, 3, 0).max() < 1.0


@pytest.mark.slow
def test_no_chain_of_a_million_exceeds_it():
    worst = max(never_exceeded(100_000, 3, seed).max() for seed in range(1, 11))
    assert worst < 0.2
    never_exceeded(2_000, 4, 11)


@pytest.mark.parametrize("n", [2, 3, 4, 7])
def test_two_contacts_of_theorem_3_take_n(n):
    g = -math.cos(math.pi / n)
    assert bound_of(np.array([[1.0, g], [g, 1.0]])) == n


def test_reflection_groups_stay_below_it():
    """A3: six positive roots, so six impacts of a momentum that approaches at all."""
    g = np.array([[1.0, -0.5, 0.0], [-0.5, 1.0, -0.5], [0.0, -0.5, 1.0]])
    assert 6 <= bound_of(g) < 250


def test_terms_units_and_dependent_normals():
    def terms(normals, scale=1.0, active=None):
        normals = jnp.asarray(normals, float)
        count, nv = normals.shape
        return jc.ContactTerms(
            M=scale * jnp.diag(jnp.arange(1.0, nv + 1)), J_n=normals, J_t=jnp.zeros((count, 1, nv)),
            phi=jnp.zeros(count), mu=jnp.zeros(count),
            active=jnp.ones(count, bool) if active is None else jnp.asarray(active),
        )  # fmt: skip

    rows = np.array([[1.0, 0.2, 0.0], [0.3, 1.0, -0.4], [-0.2, 0.1, 1.0]])
    bound = jc.impact.reflection_bound(terms(rows))
    assert bound == jc.impact.reflection_bound(terms(1e3 * rows, 1e6)) and 3 < bound < 1e4
    assert jc.impact.reflection_bound(terms(rows, active=[True, False, False])) == 1
    assert jc.impact.reflection_bound(terms(np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]]))) == math.inf
    with pytest.raises(ValueError, match="terms.active: expected 1 to 8 active contacts, got 0"):
        jc.impact.reflection_bound(terms(rows, active=[False] * 3))
