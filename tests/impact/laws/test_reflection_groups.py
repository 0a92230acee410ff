"""Elastic impacts as reflections: what finite reflection groups bound, and what other angles do."""

from __future__ import annotations

import functools
import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxcontact as jc

# Coxeter diagrams: which pairs of simple roots have angle pi / m, m > 2; and the number of positive roots.
GROUPS = {
    "A2": ({(0, 1): 3}, 2, 3),
    "A3": ({(0, 1): 3, (1, 2): 3}, 3, 6),
    "B3": ({(0, 1): 3, (1, 2): 4}, 3, 9),
    "H3": ({(0, 1): 3, (1, 2): 5}, 3, 15),
    "A4": ({(0, 1): 3, (1, 2): 3, (2, 3): 3}, 4, 10),
    "D4": ({(0, 1): 3, (0, 2): 3, (0, 3): 3}, 4, 12),
    "F4": ({(0, 1): 3, (1, 2): 4, (2, 3): 3}, 4, 24),
    "H4": ({(0, 1): 3, (1, 2): 3, (2, 3): 5}, 4, 60),
    "D5": ({(0, 1): 3, (1, 2): 3, (2, 3): 3, (2, 4): 3}, 5, 20),
}
QUICK = {"A3"}


def simple_roots(name):
    """Unit simple roots (m, m), by rows."""
    diagram, m, _ = GROUPS[name]
    gram = np.eye(m)
    for (i, j), order in diagram.items():
        gram[i, j] = gram[j, i] = -math.cos(math.pi / order)
    return np.linalg.cholesky(gram)


def positive_roots(simple):
    """All roots of the group that are sums of simple ones: images of images, one by one."""
    roots = list(simple)
    for root in roots:  # which grows
        for each in simple:
            image = root - 2 * (root @ each) * each
            if np.min(np.linalg.norm(np.array(roots) - image, axis=1)) > 1e-6:
                roots.append(image)
        assert len(roots) <= 120
    in_simple = np.linalg.solve(simple.T, np.array(roots).T).T
    return np.array(roots)[np.all(in_simple > -1e-6, axis=1)]


def terms_of(normals):
    m, nv = normals.shape
    return jc.ContactTerms(
        M=jnp.eye(nv), J_n=jnp.asarray(normals), J_t=jnp.zeros((m, 1, nv)), phi=jnp.zeros(m), mu=jnp.zeros(m),
        active=jnp.ones(m, bool),
    )  # fmt: skip


@functools.cache
def law(order, most):
    def one(normals, v):
        return jc.impact.propagate(terms_of(normals), v, order=order, max_reflections=most)

    return jax.jit(jax.vmap(one, in_axes=(None, 0)))


def impacts(normals, velocities, order, most=64):
    return jax.tree.map(np.asarray, law(order, most)(jnp.asarray(normals), jnp.asarray(velocities)))


@pytest.mark.parametrize(
    "name", [n if n in QUICK else pytest.param(n, marks=pytest.mark.slow) for n in [*GROUPS]]
)
def test_single_impacts_are_the_positive_roots_that_approach(name, rng):
    """In any order: each reflection in a simple root turns the sign of that one positive root alone."""
    simple = simple_roots(name)
    roots = positive_roots(simple)
    assert len(roots) == GROUPS[name][2]
    velocities = rng.normal(size=(2_000 if name in QUICK else 100_000, len(simple)))
    expected = np.sum(velocities @ roots.T < 0, axis=1)
    outcomes = []
    for order in ("most_violated", tuple(range(len(simple)))):
        v_plus, info = impacts(simple, velocities, order, len(roots))
        assert not np.any(info.status)
        assert np.array_equal(info.num_iters, expected)
        outcomes.append(v_plus)
    np.testing.assert_allclose(outcomes[0], outcomes[1], atol=1e-11)
    # The bound is reached: all roots approach where all contacts do.
    assert np.max(expected) <= len(roots)
    _, info = impacts(
        simple, np.linalg.solve(simple, -np.linspace(1.0, 1.1, len(simple)))[None], "least_violated", 60
    )
    assert info.num_iters[0] == len(roots)


@pytest.mark.parametrize("n", [3, *(pytest.param(n, marks=pytest.mark.slow) for n in (2, 4, 5))])
def test_two_orders_agree_at_pi_over_n_alone(n):
    """Only if, of Theorems 2 and 3: between pi / n and pi / (n + 1) some velocity has two outcomes."""
    share = np.array([0.0, 1e-3, 0.1, 0.3, 0.5, 0.7, 0.9, 1 - 1e-3])
    angles = math.pi / (n + share)
    sample = np.random.default_rng(n)
    for off, angle in zip(share, angles, strict=True):
        normals = np.array([[1.0, 0.0], [-math.cos(angle), math.sin(angle)]])
        rates = -sample.uniform(0.01, 1.0, (2000, 2))  # both approach
        velocities = np.linalg.solve(normals, rates.T).T
        (first, one), (second, other) = (
            impacts(normals, velocities, order, 16) for order in ((0, 1), (1, 0))
        )
        assert not np.any(one.status) and not np.any(other.status)
        apart = np.linalg.norm(first - second, axis=1) / np.linalg.norm(velocities, axis=1)
        if off == 0.0:
            assert np.max(apart) < 1e-12
            assert set(one.num_iters) == set(other.num_iters) == {n}
        else:
            # k reflections in either order differ by a turn of 2 k angle, less whole turns.
            same = one.num_iters == other.num_iters
            turns = 2 * np.abs(np.sin(one.num_iters * angle))
            np.testing.assert_allclose(apart[same], turns[same], atol=1e-9)
            assert np.max(apart) > min(abs(math.sin(k * angle)) for k in (n, n + 1)) > 1e-5


@pytest.mark.slow
def test_other_normals_of_three_contacts(rng):
    """Observed: the outcome depends on the order, and a chain of impacts may be longer than any group's."""
    base = terms_of(np.eye(3))
    both = jax.jit(
        jax.vmap(
            lambda J, v: [
                jc.impact.propagate(base.replace(J_n=J), v, order=order, max_reflections=64)
                for order in ((0, 1, 2), (2, 1, 0))
            ]
        )
    )
    normals = rng.normal(size=(2000, 3, 3))
    normals /= np.linalg.norm(normals, axis=2, keepdims=True)
    velocities = -np.linalg.solve(normals, rng.uniform(0.1, 1.0, (2000, 3, 1)))[..., 0]
    (first, one), (second, other) = both(jnp.asarray(normals), jnp.asarray(velocities))
    ended = (np.asarray(one.status) == 0) & (np.asarray(other.status) == 0)
    apart = np.linalg.norm(first - second, axis=1) / np.linalg.norm(velocities, axis=1)
    lengths = np.asarray(one.num_iters)
    assert np.mean(ended) > 0.95
    assert np.mean(apart[ended] > 1e-6) > 0.9
    assert (
        np.max(lengths[ended]) > 15
    )  # of H3, the largest finite group of three reflections without a factor
    energy = np.sum(np.asarray(first) ** 2, axis=1) / np.sum(velocities**2, axis=1)
    np.testing.assert_allclose(energy, 1.0, atol=1e-12)


@pytest.mark.long
def test_the_groups_themselves():
    """Angles as the diagrams say, and roots of the types known: A3 has 6 of the form e_i - e_j."""
    simple = simple_roots("A3")
    for i, j in itertools.combinations(range(3), 2):
        order = GROUPS["A3"][0].get((i, j), 2)
        assert math.acos(-simple[i] @ simple[j]) == pytest.approx(math.pi / order)
    assert len(positive_roots(simple_roots("A2"))) == 3
