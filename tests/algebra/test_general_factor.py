"""Factors of a matrix solve for one right-hand side and for lanes of them, whether or not the matrix is in lanes."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxcontact.algebra import general_factor
from jaxcontact.solvers.friction_newton import solve_coulomb


@pytest.mark.long
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("lanes", ["one matrix", "a matrix each"])
def test_right_hand_sides_in_lanes(rng, lanes, transposed):
    matrices = jnp.asarray(rng.standard_normal((3, 5, 5)))
    rows = jnp.asarray(rng.standard_normal((3, 5)))
    if lanes == "one matrix":
        factor = general_factor.factorise(matrices[0])
        matrices = jnp.broadcast_to(matrices[0], matrices.shape)
        found = jax.vmap(lambda b: general_factor.solve_factored(factor, b, transposed))(rows)
    else:
        factors = jax.vmap(general_factor.factorise)(matrices)
        found = jax.vmap(lambda f, b: general_factor.solve_factored(f, b, transposed))(factors, rows)
    if transposed:
        matrices = jnp.swapaxes(matrices, 1, 2)
    expected = np.linalg.solve(np.asarray(matrices), np.asarray(rows)[..., None])[..., 0]
    np.testing.assert_allclose(found, expected, atol=1e-12)


@pytest.mark.slow
def test_the_jacobian_of_friction_is_that_of_differences(rng):
    """Jacobians have one matrix and a lane for every column."""
    rows = rng.standard_normal((6, 8))
    W, q = jnp.asarray(rows @ rows.T), jnp.asarray(rng.standard_normal(6) - 0.5)
    solve = lambda q: solve_coulomb(W, q, jnp.array([0.3, 0.3]))[0]  # noqa: E731
    step = 1e-6 * np.eye(6)
    expected = np.stack([(solve(q + d) - solve(q - d)) / 2e-6 for d in step], axis=1)
    np.testing.assert_allclose(jax.jacfwd(solve)(q), expected, atol=1e-7)
    np.testing.assert_allclose(jax.jacrev(solve)(q), expected, atol=1e-7)
