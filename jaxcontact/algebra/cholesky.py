"""Factors of symmetric positive definite matrices: of a large single one by LAPACK, otherwise by lanes.

The entry functions are `factorise` and `solve_factored`. In a batch LAPACK would be a hazard; see
`small_dense`. Batches are made by `vmap`. No function has a derivative; `implicit` has the rule.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax

from jaxcontact.algebra import small_dense
from jaxcontact.batching.batch_axes import batch_last

FOR_LAPACK = 12  # rows; LAPACK factors a single matrix with more
HALVED = 32  # rows; a larger triangle is inverted by halves, because LAPACK's time for one grows by leaps


def factorise(matrix: jax.Array) -> jax.Array:
    """Compute W = L^-1 (n, n), lower triangular, with L L^T = A."""

    def invert(a: jax.Array) -> jax.Array:
        if a.ndim > 2 or a.shape[0] <= FOR_LAPACK:
            return small_dense.inverse_factor_lanes(a)
        return _inverse_of_lower(lax.linalg.cholesky(a, symmetrize_input=False))

    inverse_factor: jax.Array = batch_last(invert, matrix)
    return inverse_factor


def _inverse_of_lower(factor: jax.Array) -> jax.Array:
    """Compute L^-1 (n, n) of one lower triangle."""
    n = factor.shape[0]
    if n <= HALVED:
        unit = jnp.eye(n, dtype=factor.dtype)
        return lax.linalg.triangular_solve(factor, unit, left_side=True, lower=True)
    half = n // 2
    first, last = _inverse_of_lower(factor[:half, :half]), _inverse_of_lower(factor[half:, half:])
    below = -last @ (factor[half:, :half] @ first)
    return jnp.block([[first, jnp.zeros((half, n - half), factor.dtype)], [below, last]])


def solve_factored(inverse_factor: jax.Array, rhs: jax.Array) -> jax.Array:
    """Solve A x = b for x (n,), by W of `factorise`."""

    def multiply(w: jax.Array, b: jax.Array) -> jax.Array:
        return small_dense.solve_factored_lanes(w, b) if b.ndim > 1 else (w @ b) @ w

    x: jax.Array = batch_last(multiply, inverse_factor, rhs)
    return x
