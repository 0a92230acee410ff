"""Factors of general square matrices: of a single one by LAPACK, of a batch by exchange steps in lanes.

The entry functions are `factorise` and `solve_factored`. In a batch LAPACK would be a hazard; see
`small_dense`. Batches are made by `vmap`. No function has a derivative; `implicit` has the rule.
"""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
from jax import lax

from jaxcontact.batching.batch_axes import batch_last

# LU with its order of rows, by LAPACK; and a table with its order, for right-hand sides in lanes.
Factor = tuple[jax.Array, jax.Array, jax.Array, jax.Array]


def factorise(matrix: jax.Array) -> Factor:
    """Factor a matrix A (n, n), of any pivots; a pivot of zero counts as one and leaves finite numbers."""

    def decompose(a: jax.Array) -> Factor:
        if a.ndim > 2:
            table, order = _exchange_lanes(a)
            return a, order, table, order
        lu, _, order = lax.linalg.lu(a)
        pivots = jnp.diagonal(lu)
        lu = lu + jnp.diag(jnp.where(pivots == 0, 1.0, 0.0).astype(a.dtype))
        unit = jnp.eye(a.shape[0], dtype=a.dtype)
        # Right-hand sides may be lanes where the matrix is none, as in a Jacobian: its table is the inverse.
        inverse = _substitute(lu, unit[order])
        return lu, order, inverse, jnp.arange(a.shape[0], dtype=order.dtype)

    factor: Factor = batch_last(decompose, matrix)
    return factor


def solve_factored(factor: Factor, rhs: jax.Array, transposed: bool = False) -> jax.Array:
    """Solve A x = b (n,), or A^T x = b, for a factor of `factorise`."""

    def substitute(
        lu: jax.Array, order: jax.Array, table: jax.Array, table_order: jax.Array, b: jax.Array
    ) -> jax.Array:
        if b.ndim > 1:
            return _multiply_lanes(table, table_order, b, transposed)
        if transposed:
            triangle = functools.partial(lax.linalg.triangular_solve, lu, left_side=True, transpose_a=True)
            solution = triangle(triangle(b[:, None]), lower=True, unit_diagonal=True)[:, 0]
            return jnp.zeros_like(b).at[order].set(solution)
        return _substitute(lu, b[order][:, None])[:, 0]

    x: jax.Array = batch_last(substitute, *factor, rhs)
    return x


def _substitute(lu: jax.Array, rows: jax.Array) -> jax.Array:
    """Solve L U x = rows (n, k)."""
    triangle = functools.partial(lax.linalg.triangular_solve, lu, left_side=True)
    return triangle(triangle(rows, lower=True, unit_diagonal=True))


def _multiply_lanes(table: jax.Array, order: jax.Array, b: jax.Array, transposed: bool) -> jax.Array:
    """Multiply b (n, B) with the inverse that a table of `_exchange_lanes` holds, or its transpose."""
    if not transposed:
        product = jnp.sum(table * jnp.take_along_axis(b, order, 0)[None], axis=1)
        return jnp.take_along_axis(product, order, 0)
    lane = jnp.arange(b.shape[1])[None]
    product = jnp.sum(table * jnp.zeros_like(b).at[order, lane].set(b)[:, None], axis=0)
    return jnp.zeros_like(b).at[order, lane].set(product)


def _exchange_lanes(matrix: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Exchange every x_k with a y of y = A x, by partial pivoting.

    Returns a table (n, n, B) and an order (n, B). Row order[k] of the table holds x_k, and its column k the
    coefficients of y_order[k].
    """
    n, lanes = matrix.shape[0], matrix.shape[2]
    index = jnp.arange(n, dtype=jnp.int32)[:, None]

    def exchange(k: jax.Array, carry: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
        table, order, free = carry
        column = lax.dynamic_index_in_dim(table, k, 1, keepdims=False)
        chosen = jnp.argmax(jnp.where(free, jnp.abs(column), -1.0), axis=0).astype(jnp.int32)
        row = jnp.take_along_axis(table, chosen[None, None], axis=0)[0]
        pivot = lax.dynamic_index_in_dim(row, k, 0, keepdims=False)
        inverse = 1.0 / jnp.where(pivot == 0, 1.0, pivot)
        row = jnp.where(index == k, -1.0, row) * -inverse[None]
        hit = index == chosen[None]
        # In the exchanged row the own entry is replaced by the new row.
        table = jnp.where((index == k)[None], 0.0, table) + column[:, None] * row[None]
        table = jnp.where(hit[:, None], row[None], table)
        return table, lax.dynamic_update_index_in_dim(order, chosen, k, 0), free & ~hit

    start = (matrix, jnp.zeros((n, lanes), jnp.int32), jnp.ones((n, lanes), bool))
    table, order, _ = lax.fori_loop(0, n, exchange, start)
    return table, order
