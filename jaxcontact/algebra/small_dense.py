"""Small dense factorisations written as a few vector operations per pivot.

They replace LAPACK where a problem is small and batched. Two independent batched LAPACK calls in one program
can deadlock XLA's CPU thread pool, and for small matrices the dispatch of LAPACK costs more than the algebra.
No function has a derivative rule; `implicit.py` wraps the functions with the rule of the package.
"""

from __future__ import annotations

import itertools

import jax
import jax.numpy as jnp
from jax import lax


def pivot_tolerance(dtype: jnp.dtype) -> float:
    """Pivot, relative to the largest entry, below which a matrix counts as singular: eps^0.7."""
    return float(jnp.finfo(dtype).eps) ** 0.7


def spd_inverse(matrix: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Inverse of a symmetric positive definite matrix by the sweep operator, and its worst pivot.

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


def generalized_inverse(matrix: jax.Array) -> tuple[jax.Array, jax.Array]:
    """A matrix G with A G b = b for all b in the range of A, by elimination with complete pivoting.

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
    """Inverse (4, 4, ...) of matrices (4, 4, ...) by cofactors, and (...) bool, whether they are regular.

    A tenth of the time of `generalized_inverse`. Singular matrices get zeros; one that two small pivots make
    all but singular may get an inverse of no use.
    """
    a = [[matrix[i, j] for j in range(4)] for i in range(4)]

    def minors(first: list[jax.Array], second: list[jax.Array]) -> dict[tuple[int, int], jax.Array]:
        pairs = itertools.combinations(range(4), 2)
        return {(i, j): first[i] * second[j] - first[j] * second[i] for i, j in pairs}

    # What stands in a barrier is computed once; else the compiler repeats it in every use.
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
    """A B of (i, j, ...) and (j, l, ...), batch axes last, summed in the order of j.

    XLA multiplies batches of small matrices one by one; here the batch is the vector.
    """
    total = a[:, 0, None] * b[None, 0]
    for j in range(1, b.shape[0]):
        total = total + a[:, j, None] * b[None, j]
    return total


UNROLLED = 12  # largest matrix whose factorisation is written out pivot by pivot
BLOCK = 3  # columns that the factorisation of a larger one eliminates at once


def cholesky_lanes(matrix: jax.Array) -> jax.Array:
    """Lower triangular L (n, n, ...) with L L^T = A for symmetric positive definite A, batch axes last.

    A tiny positive number replaces a pivot that round-off has made non-positive. The factor is then finite,
    but the solution is useless as a direction of search.
    """
    n = matrix.shape[0]
    tiny = float(jnp.finfo(matrix.dtype).tiny) ** 0.5

    def column(a: jax.Array, k: int | jax.Array) -> jax.Array:
        pivot = jnp.maximum(a[k, k], tiny)
        return a[:, k] * lax.rsqrt(pivot)[None]

    if n <= UNROLLED:
        columns, remainder = [], matrix
        for k in range(n):
            pivot_column = column(remainder, 0)
            columns.append(
                jnp.concatenate([jnp.zeros((k, *pivot_column.shape[1:]), pivot_column.dtype), pivot_column])
            )
            remainder = remainder[1:, 1:] - pivot_column[1:, None] * pivot_column[None, 1:]
            remainder = lax.optimization_barrier(remainder)  # else the compiler repeats it inside every use
        return jnp.stack(columns, axis=1)
    return _blocked_cholesky(matrix, tiny)


def _blocked_cholesky(matrix: jax.Array, tiny: float) -> jax.Array:
    """`cholesky_lanes` by blocks of columns: one pass over the matrix for each block, not for each column."""
    size, padded = matrix.shape[0], _padded(matrix)
    n = padded.shape[0]
    row = jnp.arange(n).reshape(n, *(1,) * (matrix.ndim - 2))

    def eliminate(block: jax.Array, carry: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        remainder, factor = carry
        first = block * BLOCK
        columns = lax.dynamic_slice_in_dim(remainder, first, BLOCK, 1)
        corner = lax.dynamic_slice_in_dim(columns, first, BLOCK, 0)
        done: list[tuple[jax.Array, jax.Array]] = []  # each column of the factor, and its part in the corner
        for j in range(BLOCK):
            column, part = columns[:, j], corner[:, j]
            for earlier, earlier_part in done:
                column = column - earlier * earlier_part[j][None]
                part = part - earlier_part * earlier_part[j][None]
            scale = lax.rsqrt(jnp.maximum(part[j], tiny))[None]
            done.append((jnp.where(row >= first + j, column * scale, 0.0), part * scale))
        made = lax.optimization_barrier(jnp.stack([column for column, _ in done], axis=1))
        remainder = remainder - sum(made[:, None, j] * made[None, :, j] for j in range(BLOCK))
        return remainder, lax.dynamic_update_slice_in_dim(factor, made, first, 1)

    factor = lax.fori_loop(0, n // BLOCK, eliminate, (padded, jnp.zeros_like(padded)))[1]
    return factor[:size, :size]


def cholesky_solve_lanes(factor: jax.Array, rhs: jax.Array) -> jax.Array:
    """Solution x (n, ...) of L L^T x = b, batch axes last."""
    n = factor.shape[0]
    if n <= UNROLLED:
        x = [rhs[k] for k in range(n)]
        for k in range(n):
            x[k] = (x[k] - sum((factor[k, j] * x[j] for j in range(k)), 0.0)) / factor[k, k]
        for k in reversed(range(n)):
            x[k] = (x[k] - sum((factor[j, k] * x[j] for j in range(k + 1, n)), 0.0)) / factor[k, k]
        return jnp.stack(x)

    return _blocked_solve(factor, rhs)


def _blocked_solve(factor: jax.Array, rhs: jax.Array) -> jax.Array:
    """`cholesky_solve_lanes` by blocks of rows."""
    size, factor = rhs.shape[0], _padded(factor)
    n = factor.shape[0]
    rhs = jnp.pad(rhs, [(0, n - size)] + [(0, 0)] * (rhs.ndim - 1))

    def solve(block: jax.Array, x: jax.Array, transposed: bool) -> jax.Array:
        """The numbers of a block from those found before; the others are still zero."""
        first = block * BLOCK
        lines = lax.dynamic_slice_in_dim(factor, first, BLOCK, 1 if transposed else 0)
        corner = lax.dynamic_slice_in_dim(lines, first, BLOCK, 0 if transposed else 1)
        known = jnp.sum(lines * (x[:, None] if transposed else x[None]), axis=0 if transposed else 1)
        left = lax.dynamic_slice_in_dim(half if transposed else rhs, first, BLOCK, 0) - known
        found: dict[int, jax.Array] = {}
        for i in reversed(range(BLOCK)) if transposed else range(BLOCK):
            sums = ((corner[j, i] if transposed else corner[i, j]) * found[j] for j in found)
            found[i] = (left[i] - sum(sums, jnp.zeros_like(left[i]))) / corner[i, i]
        made = jnp.stack([found[i] for i in range(BLOCK)])
        return lax.dynamic_update_slice_in_dim(x, made, first, 0)

    count, unknown = n // BLOCK, jnp.zeros_like(rhs)
    half = lax.fori_loop(0, count, lambda k, x: solve(k, x, False), unknown)
    return lax.fori_loop(0, count, lambda i, x: solve(count - 1 - i, x, True), unknown)[:size]


def _padded(matrix: jax.Array) -> jax.Array:
    """`matrix` (n, n, ...) with unit rows and columns added, so that blocks make it up."""
    n, batch = matrix.shape[0], matrix.shape[2:]
    padding = -n % BLOCK
    if not padding:
        return matrix
    added = jnp.pad(jnp.eye(padding, dtype=matrix.dtype), (n, 0)).reshape(
        n + padding, n + padding, *(1,) * len(batch)
    )
    return jnp.pad(matrix, [(0, padding)] * 2 + [(0, 0)] * len(batch)) + added


def lu_lanes(matrix: jax.Array) -> jax.Array:
    """Factors of A = L U in one array (n, n, ...), batch axes last: U, and L below its unit diagonal.

    Without pivoting, for matrices whose symmetric part is positive definite. A zero pivot counts as one: the
    factor is then finite and useless.
    """
    n = matrix.shape[0]
    index = jnp.arange(n).reshape(n, *(1,) * (matrix.ndim - 2))

    def eliminate(k: jax.Array, a: jax.Array) -> jax.Array:
        pivot = jnp.where(a[k, k] == 0.0, 1.0, a[k, k])
        column = jnp.where(index > k, a[:, k] / pivot[None], 0.0)[:, None]
        row = jnp.where(index > k, a[k], 0.0)[None]
        return jnp.where((index == k)[None] & (index > k)[:, None], column, a - column * row)

    return lax.fori_loop(0, n, eliminate, matrix)


def lu_solve_lanes(factor: jax.Array, rhs: jax.Array, transposed: bool = False) -> jax.Array:
    """Solution x (n, ...) of A x = b, or of A^T x = b, for a factor of `lu_lanes`, batch axes last."""
    n = factor.shape[0]
    index = jnp.arange(n).reshape(n, *(1,) * (factor.ndim - 2))
    lines = factor if transposed else jnp.swapaxes(factor, 0, 1)

    def eliminate(k: jax.Array, x: jax.Array, others: jax.Array, by_pivot: bool) -> jax.Array:
        pivot = jnp.where(factor[k, k] == 0.0, 1.0, factor[k, k])
        value = x[k] / pivot if by_pivot else x[k]
        return x.at[k].set(value) - jnp.where(others, lines[k], 0.0) * value[None]

    half = lax.fori_loop(0, n, lambda k, x: eliminate(k, x, index > k, transposed), rhs)
    return lax.fori_loop(0, n, lambda i, x: eliminate(n - 1 - i, x, index < n - 1 - i, not transposed), half)
