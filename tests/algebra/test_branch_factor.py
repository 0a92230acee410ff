"""Factors without exchanges, in the code of one world and in XLA's programs."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxcontact as jc
from jaxcontact.algebra import branch_factor, implicit

BRANCHES = 3  # of two rows each, on a root of two rows


def solve_with_contacts(matrix, rhs):
    return branch_factor.solve_factored(branch_factor.factorise(matrix), rhs)


def solve_positive(matrix, rhs):
    return implicit.positive_solver(matrix)(rhs)


def tree_matrices(rng, worlds):
    """Matrices with the zeros of a tree, whose symmetric part is positive definite."""
    n = 2 + 2 * BRANCHES
    branch = np.concatenate([[-1, -1], np.repeat(np.arange(BRANCHES), 2)])
    joined = (branch[:, None] == branch) | (branch[:, None] < 0) | (branch < 0)
    rows = rng.standard_normal((worlds, n, n))
    positive = rows @ np.swapaxes(rows, 1, 2) * joined + 3 * n * np.eye(n)
    skew = rng.standard_normal((worlds, n, n)) * joined
    return positive + skew - np.swapaxes(skew, 1, 2)


@pytest.mark.parametrize("solve", [solve_with_contacts, solve_positive])
@pytest.mark.parametrize("batched", [jc.simd, jax.vmap])
def test_solutions_of_trees(rng, solve, batched):
    matrices = tree_matrices(rng, 5)
    matrices[0] *= 1e12  # units do not matter
    rhs = rng.standard_normal((5, matrices.shape[1]))
    expected = np.linalg.solve(matrices, rhs[..., None])[..., 0]
    found = batched(solve)(jnp.asarray(matrices), jnp.asarray(rhs))
    np.testing.assert_allclose(found, expected, rtol=1e-11, atol=1e-13 * np.abs(expected).max())


@pytest.mark.parametrize("batched", [jc.simd, jax.vmap])
def test_derivatives_solve_the_transposed_matrix(rng, batched):
    matrices, rhs = tree_matrices(rng, 3), rng.standard_normal((3, 2 + 2 * BRANCHES))
    first = jax.grad(lambda rhs, matrix: solve_positive(matrix, rhs)[0])
    expected = np.linalg.inv(matrices)[:, 0]
    np.testing.assert_allclose(batched(first)(jnp.asarray(rhs), jnp.asarray(matrices)), expected, atol=1e-12)


def test_a_pivot_of_zero_leaves_finite_numbers():
    found = jc.simd(solve_with_contacts)(np.zeros((1, 2, 2)), np.ones((1, 2)))
    assert np.all(np.isfinite(found))
