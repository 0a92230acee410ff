"""Small dense factorisations written as a few vector operations per pivot.

They replace LAPACK for small, batched problems. Two independent batched LAPACK calls in one program can
deadlock XLA's CPU thread pool, and for small matrices the dispatch of LAPACK costs more than the algebra. No
function has a derivative rule; `implicit.py` wraps the functions with the rule of the package. Functions with
a loop are jitted: called op by op, JAX would compile the loop again at each call.
"""

from __future__ import annotations

import functools
import itertools

import jax
import jax.numpy as jnp
from jax import lax

from jaxcontact.batching.once import computed_once
from jaxcontact.tolerances import PIVOT, rounding


def pivot_tolerance(dtype: jnp.dtype) -> float:
    """Return the pivot, relative to the largest entry, below which a matrix counts as singular: eps^0.7."""
    return rounding(dtype, PIVOT)


@functools.partial(jax.jit, inline=True)
def spd_inverse(matrix: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Invert a symmetric positive definite matrix by the sweep operator; return it and its worst pivot.

    Args:
        matrix: (n, n); its symmetry is assumed, not checked.

    Returns:
        inverse (n, n), and the smallest ratio of a pivot to its diagonal entry, a positive number in
        (0, 1] exactly if the matrix is positive definite.
    """
    n = matrix.shape[0]
    index = jnp.arange(n)
    diagonal = jnp.diagonal(matrix)
    # A unit diagonal makes the pivot ratio independent of units and balances masses against inertias.
    scale = jnp.where(diagonal > 0, lax.rsqrt(jnp.where(diagonal > 0, diagonal, 1.0)), 1.0)
    scaled = matrix * scale[:, None] * scale[None, :]

    def sweep(k: jax.Array, carry: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        a, worst_pivot = carry
        hit = (index == k).astype(a.dtype)
        pivot = jnp.sum(a * hit[:, None] * hit[None, :])
        safe_pivot = jnp.where(jnp.abs(pivot) > 0, pivot, 1.0)
        row = jnp.sum(a * hit[:, None], axis=0) / safe_pivot
        column = jnp.sum(a * hit[None, :], axis=1)
        swept = a - column[:, None] * row[None, :]
        swept = jnp.where(hit[:, None] > 0, row[None, :], swept)
        swept = jnp.where(hit[None, :] > 0, -column[:, None] / safe_pivot, swept)
        swept = jnp.where((hit[:, None] * hit[None, :]) > 0, 1.0 / safe_pivot, swept)
        return swept, jnp.minimum(worst_pivot, pivot)

    start = (scaled, jnp.asarray(jnp.inf, matrix.dtype))
    inverse, worst_pivot = lax.fori_loop(0, n, sweep, start)
    inverse = 0.5 * (inverse + inverse.T)
    positive = jnp.all(diagonal > 0) & (worst_pivot > 0)
    return inverse * scale[:, None] * scale[None, :], jnp.where(positive, worst_pivot, -1.0)


@functools.partial(jax.jit, inline=True)
def generalized_inverse(matrix: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Find a matrix G with A G b = b for all b in the range of A, by elimination with complete pivoting.

    Args:
        matrix: (n, n, ...), any rank, batch axes last; rows and columns should be scaled to similar size.

    Returns:
        G (n, n, ...), equal to the inverse for a regular matrix, and the rank (...), int32.
    """
    n, batch = matrix.shape[0], matrix.shape[2:]
    dtype = matrix.dtype
    size = jnp.max(jnp.abs(matrix), axis=(0, 1), initial=0.0)
    threshold = pivot_tolerance(dtype) * size
    index = jnp.arange(n, dtype=jnp.int32).reshape(n, *(1,) * len(batch))
    place = index[:, None] * n + index[None]

    def eliminate(_: jax.Array, carry: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
        a, rows, order, free_rows, free_cols, rank = carry
        candidates = jnp.abs(a) * free_rows[:, None] * free_cols[None]
        largest = jnp.max(candidates, axis=(0, 1))
        pivot_place = jnp.min(jnp.where(candidates == largest[None, None], place, n * n), axis=(0, 1))
        row_hit = (index == pivot_place[None] // n).astype(dtype)
        col_hit = (index == pivot_place[None] % n).astype(dtype)
        usable = largest > threshold  # not |pivot|: without free rows the place is arbitrary
        a_row = jnp.sum(a * row_hit[:, None], axis=0)
        pivot = jnp.where(usable, jnp.sum(a_row * col_hit, axis=0), 1.0)
        a_row = a_row / pivot[None]
        r_row = jnp.sum(rows * row_hit[:, None], axis=0) / pivot[None]
        factor = jnp.sum(a * col_hit[None], axis=1) * (1.0 - row_hit)
        hit = row_hit[:, None] > 0
        a_next = jnp.where(hit, a_row[None], a - factor[:, None] * a_row[None])
        r_next = jnp.where(hit, r_row[None], rows - factor[:, None] * r_row[None])
        return (
            jnp.where(usable, a_next, a),
            jnp.where(usable, r_next, rows),
            jnp.where(usable, order + col_hit[:, None] * row_hit[None], order),
            jnp.where(usable, free_rows * (1.0 - row_hit), free_rows),
            jnp.where(usable, free_cols * (1.0 - col_hit), free_cols),
            rank + usable.astype(jnp.int32),
        )

    zero = jnp.zeros_like(matrix)
    identity = zero + jnp.eye(n, dtype=dtype).reshape(n, n, *(1,) * len(batch))
    ones = jnp.ones((n, *batch), dtype)
    start = (matrix, identity, zero, ones, ones, jnp.zeros(batch, jnp.int32))
    _, rows, order, _, _, rank = lax.fori_loop(0, n, eliminate, start)
    return jnp.einsum("ij...,jk...->ik...", order, rows), rank


def inverse_of_four(matrix: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Invert matrices (4, 4, ...) by cofactors; return the inverses and (...) bool, whether they are regular.

    It takes a tenth of the time of `generalized_inverse`. Singular matrices get zeros; a matrix that two
    small pivots make almost singular may get an inverse of no use.
    """
    a = [[matrix[i, j] for j in range(4)] for i in range(4)]

    def minors(first: list[jax.Array], second: list[jax.Array]) -> dict[tuple[int, int], jax.Array]:
        pairs = itertools.combinations(range(4), 2)
        return {(i, j): first[i] * second[j] - first[j] * second[i] for i, j in pairs}

    # The minors should be computed once instead of in every use; on a CPU XLA may drop the barrier.
    upper, lower = lax.optimization_barrier((minors(a[0], a[1]), minors(a[2], a[3])))
    cofactors = []
    for i in range(4):
        j, k, l = (other for other in range(4) if other != i)  # noqa: E741
        rows = ((a[1], lower), (a[0], lower), (a[3], upper), (a[2], upper))
        line = [row[j] * m[k, l] - row[k] * m[j, l] + row[l] * m[j, k] for row, m in rows]
        cofactors.append(jnp.stack([line[c] if (i + c) % 2 == 0 else -line[c] for c in range(4)]))
    adjugate = jnp.stack(cofactors)
    det = sum((a[0][i] * adjugate[i, 0] for i in range(1, 4)), a[0][0] * adjugate[0, 0])
    size = jnp.max(jnp.abs(matrix), axis=(0, 1))
    largest = jnp.max(jnp.abs(adjugate), axis=(0, 1))
    noise = 64.0 * float(jnp.finfo(matrix.dtype).eps) * size**3
    regular = (jnp.abs(det) > pivot_tolerance(matrix.dtype) * size * largest) & (largest > noise)
    inverse = adjugate / jnp.where(regular, det, 1.0)[None, None]
    return jnp.where(regular[None, None], inverse, 0.0), regular


def product_lanes(a: jax.Array, b: jax.Array) -> jax.Array:
    """Multiply A B of (i, j, ...) and (j, l, ...), batch axes last, summed in the order of j.

    XLA multiplies batches of small matrices one by one; here the batch is the vector.
    """
    total = a[:, 0, None] * b[None, 0]
    for j in range(1, b.shape[0]):
        total = total + a[:, j, None] * b[None, j]
    return total


def apply_matrix(matrix: jax.Array, x: jax.Array) -> jax.Array:
    """Multiply a small matrix (..., n) by a vector (n,), as a sum that XLA compiles with its neighbours."""
    return jnp.sum(matrix * jnp.expand_dims(x, range(matrix.ndim - 1)), axis=-1)


UNROLLED = 36  # rows of the largest matrix whose factorisation is written out block by block
BLOCK = 3  # rows that a factorisation eliminates at once


def inverse_factor_lanes(matrix: jax.Array) -> jax.Array:
    """Compute W = L^-1 (n, n, ...) of A = L L^T, A positive definite (Cholesky), batch axes last.

    A^-1 = W^T W, so that a solution is two products: fewer and longer operations than two substitutions.
    Each block of rows gives rows of W in the finished columns, and of L^T in the later ones; the remainder
    loses their products in both.

    A tiny positive number replaces a pivot that round-off has made non-positive. The factor is then useless
    as a direction of search.
    """
    n = matrix.shape[0]
    if n > UNROLLED:
        return _inverse_factor_in_loop(matrix)
    blocks, remainder = [], matrix
    for first in range(0, n, BLOCK):
        end = min(first + BLOCK, n)
        width = end - first
        corner = remainder[:width, first:end]
        unit = _identity(width, matrix)
        rows = jnp.concatenate([remainder[:width, :first], unit, remainder[:width, end:]], axis=1)
        rows = _eliminate_rows(corner, rows)
        blocks.append(jnp.concatenate([rows[:, :end], jnp.zeros_like(rows[:, end:])], axis=1))
        below = remainder[width:].at[:, first:end].set(0.0)
        remainder = below - _products(rows[:, end:], rows)
    return jnp.concatenate(blocks)


def _inverse_factor_in_loop(matrix: jax.Array) -> jax.Array:
    """Compute `inverse_factor_lanes` of a large matrix: one program for all blocks, over the whole matrix."""
    size, padding = matrix.shape[0], -matrix.shape[0] % BLOCK
    n, batch = size + padding, matrix.shape[2:]
    padded = jnp.pad(matrix, [(0, padding)] * 2 + [(0, 0)] * len(batch))
    padded = padded.at[size:, size:].set(_identity(padding, matrix))
    unit = _identity(BLOCK, matrix)
    column = jnp.arange(n).reshape(1, n, *(1,) * len(batch))

    def eliminate(block: jax.Array, carry: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        remainder, inverse = carry
        first = block * BLOCK
        rows = lax.dynamic_slice_in_dim(remainder, first, BLOCK, 0)
        corner = lax.dynamic_slice_in_dim(rows, first, BLOCK, 1)
        rows = _eliminate_rows(corner, lax.dynamic_update_slice_in_dim(rows, unit, first, 1))
        below = jnp.where((column >= first) & (column < first + BLOCK), 0.0, remainder)
        done = jnp.where(column < first + BLOCK, rows, 0.0)
        return below - _products(rows, rows), lax.dynamic_update_slice_in_dim(inverse, done, first, 0)

    _, inverse = lax.fori_loop(0, n // BLOCK, eliminate, (padded, jnp.zeros_like(padded)))
    return inverse[:size, :size]


def _identity(n: int, matrix: jax.Array) -> jax.Array:
    """Make unit matrices (n, n, ...) of the batch and the type of `matrix`."""
    batch = matrix.shape[2:]
    unit = jnp.eye(n, dtype=matrix.dtype).reshape(n, n, *(1,) * len(batch))
    return jnp.broadcast_to(unit, (n, n, *batch))


def _eliminate_rows(corner: jax.Array, rows: jax.Array) -> jax.Array:
    """Compute L^-1 rows (k, n, ...) with the Cholesky factor L of the corner (k, k, ...)."""
    tiny = float(jnp.finfo(corner.dtype).tiny) ** 0.5
    count = corner.shape[0]
    factor: list[list[jax.Array]] = [[] for _ in range(count)]
    done: list[jax.Array] = []
    for i in range(count):
        row, pivot = rows[i], corner[i, i]
        for k in range(i):
            row, pivot = row - factor[i][k][None] * done[k], pivot - factor[i][k] ** 2
        size = jnp.sqrt(jnp.maximum(pivot, tiny))
        # On a CPU XLA would repeat a product of row and 1 / size in every use, but it repeats no division.
        done.append(row / size[None])
        for j in range(i + 1, count):
            left = corner[j, i] - sum((factor[j][k] * factor[i][k] for k in range(i)), jnp.zeros_like(pivot))
            factor[j].append(left / size)
    return jnp.stack(done)


def _products(a: jax.Array, b: jax.Array) -> jax.Array:
    """Compute A^T B (i, l, ...) of a few rows (k, i, ...) and (k, l, ...)."""
    return sum((a[k, :, None] * b[k, None] for k in range(1, a.shape[0])), a[0, :, None] * b[0, None])


def solve_factored_lanes(inverse_factor: jax.Array, rhs: jax.Array) -> jax.Array:
    """Solve A x = b for x (n, ...), by W of `inverse_factor_lanes`, batch axes last: W^T W b."""
    n = rhs.shape[0]
    if n > UNROLLED:
        half = jnp.sum(inverse_factor * rhs[None], axis=1)
        return jnp.sum(inverse_factor * half[:, None], axis=0)
    half = sum((inverse_factor[:, j] * rhs[j][None] for j in range(n)), jnp.zeros_like(rhs))
    x = sum((inverse_factor[j] * half[j][None] for j in range(n)), jnp.zeros_like(rhs))
    return computed_once(x)


def positive_inverse_lanes(matrix: jax.Array) -> jax.Array:
    """Invert A (n, n, ...) whose symmetric part is positive definite, by Gauss and Jordan, batch axes last.

    There is no pivoting. A zero pivot counts as one: the result is then finite and useless.
    """
    n = matrix.shape[0]
    index = jnp.arange(n).reshape(n, *(1,) * (matrix.ndim - 2))

    def eliminate(k: int | jax.Array, a: jax.Array) -> jax.Array:
        pivot, column, hit = a[k, k], a[:, k, None], index == k
        row = jnp.where(hit, 1.0, a[k]) / jnp.where(pivot == 0.0, 1.0, pivot)[None]
        rest = jnp.where(hit[None], 0.0, a) - column * row[None]
        return jnp.where(hit[:, None], row[None], rest)

    if n > UNROLLED:
        inverse: jax.Array = lax.fori_loop(0, n, eliminate, matrix)
        return inverse
    for k in range(n):
        matrix = computed_once(eliminate(k, matrix))
    return matrix
