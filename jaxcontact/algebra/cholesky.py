"""Cholesky factors of symmetric positive definite matrices: of a large single one by LAPACK, else by lanes.

In a batch LAPACK would be a hazard; see `small_dense`. Batches are made by `vmap`. No derivative: `implicit`
has the rule.
"""

from __future__ import annotations

import jax
from jax import lax

from jaxcontact.algebra import small_dense
from jaxcontact.batching.batch_axes import batch_last


def factorise(matrix: jax.Array) -> jax.Array:
    """Lower triangular L (n, n) with L L^T = A."""
    if matrix.shape[0] <= small_dense.UNROLLED:
        return small_dense.cholesky_lanes(matrix)

    def large(a: jax.Array) -> jax.Array:
        return (
            lax.linalg.cholesky(a, symmetrize_input=False) if a.ndim == 2 else small_dense.cholesky_lanes(a)
        )

    factor: jax.Array = batch_last(large, matrix)
    return factor


def solve_factored(factor: jax.Array, rhs: jax.Array) -> jax.Array:
    """Solution x (n,) of L L^T x = b."""
    if factor.shape[0] <= small_dense.UNROLLED:
        return small_dense.cholesky_solve_lanes(factor, rhs)

    def large(factor: jax.Array, rhs: jax.Array) -> jax.Array:
        if factor.ndim > 2:
            return small_dense.cholesky_solve_lanes(factor, rhs)
        half = lax.linalg.triangular_solve(factor, rhs[:, None], left_side=True, lower=True)
        return lax.linalg.triangular_solve(factor, half, left_side=True, lower=True, transpose_a=True)[:, 0]

    x: jax.Array = batch_last(large, factor, rhs)
    return x
