"""Factors of one matrix and of a batch: the inverse of the Cholesky factor, whatever the size."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxcontact.algebra import cholesky


@pytest.mark.long
@pytest.mark.float32
@pytest.mark.parametrize("n", [1, 12, 13, 33, 70])
def test_factor_of_one_matrix_and_of_a_batch(n, rng, tolerance):
    """By lanes, by LAPACK, and by LAPACK in halves that are halved again."""
    roots = rng.normal(size=(2, n, n))
    matrices = roots @ roots.transpose(0, 2, 1) + n * np.eye(n)
    expected = np.linalg.inv(np.linalg.cholesky(matrices))
    one = cholesky.factorise(jnp.asarray(matrices[0]))
    batch = jax.vmap(cholesky.factorise)(jnp.asarray(matrices))
    np.testing.assert_allclose(one, expected[0], atol=tolerance(1e-13, 1e-5))
    np.testing.assert_allclose(batch, expected, atol=tolerance(1e-13, 1e-5))
    rhs = rng.normal(size=(3, n))
    x = jax.vmap(cholesky.solve_factored, (None, 0))(one, jnp.asarray(rhs))
    np.testing.assert_allclose(x @ matrices[0], rhs, atol=tolerance(1e-11, 1e-3))
