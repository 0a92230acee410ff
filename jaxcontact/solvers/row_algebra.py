"""Products with the rows G and the mass matrix M of a cone program, and factors of its Hessian.

Matrices are whole, G as its transpose, or `Diagonal` and `BodyRows` where many free bodies meet neighbours.
Arrays carry the batch on the last axis where there is one.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax

from jaxcontact import body_rows, linalg
from jaxcontact.block_tridiagonal import BlockTridiagonal, Sweeps, factorise_chain, solve_chain
from jaxcontact.body_rows import BodyRows, Diagonal

Rows = jax.Array | BodyRows
Mass = jax.Array | Diagonal
Factor = jax.Array | Sweeps


def apply_rows(columns: Rows, x: jax.Array) -> jax.Array:
    """G x (nr,), from G^T (nv, nr)."""
    if isinstance(columns, BodyRows):
        return body_rows.apply_rows(columns, x)
    return x @ columns if columns.ndim == 2 else jnp.sum(columns * x[:, None], axis=0)


def apply_columns(columns: Rows, p: jax.Array) -> jax.Array:
    """G^T p (nv,), from G^T (nv, nr)."""
    if isinstance(columns, BodyRows):
        return body_rows.apply_columns(columns, p)
    return columns @ p if columns.ndim == 2 else jnp.sum(columns * p[None], axis=1)


def multiply(M: Mass, x: jax.Array) -> jax.Array:
    """M x (nv,)."""
    return M.values * x if isinstance(M, Diagonal) else apply_columns(M, x)


def diagonal(M: Mass) -> jax.Array:
    """The diagonal (nv,) of M."""
    if isinstance(M, Diagonal):
        return M.values
    return jnp.diagonal(M) if M.ndim == 2 else jnp.stack([M[k, k] for k in range(M.shape[0])])


def lanes_of(matrix: Rows | Mass) -> tuple[int, ...]:
    """Shape of the batch behind a matrix."""
    if isinstance(matrix, BodyRows):
        return matrix.values.shape[4:]
    return matrix.values.shape[1:] if isinstance(matrix, Diagonal) else matrix.shape[2:]


def dot(a: jax.Array, b: jax.Array) -> jax.Array:
    """A . b, over the first axis."""
    return apply_columns(a[None], b)[0]


def row_mobility(masses: jax.Array, columns: Rows, singles: int, nc: int) -> jax.Array:
    """Diagonal (nr,) of G M^-1 G^T for a diagonal mass matrix, else of its order.

    The tangents of a contact share the largest of theirs, so that friction stays isotropic.
    """
    if isinstance(columns, BodyRows):
        own = body_rows.squares(columns, 1.0 / masses)
    else:
        own = jnp.sum(columns**2 / masses[:, None], axis=0)
    if own.shape[0] <= singles + 2 * nc:
        return own
    end = singles + nc
    tangent = jnp.maximum(own[end : end + nc], own[end + nc :])
    return jnp.concatenate([own[:end], tangent, tangent])


def factorise(matrix: jax.Array | BlockTridiagonal) -> Factor:
    """Cholesky factor; a large single one by LAPACK, which would be a hazard in a batch."""
    if isinstance(matrix, BlockTridiagonal):
        return factorise_chain(matrix)
    if matrix.ndim == 2 and matrix.shape[0] > linalg.UNROLLED:
        return lax.linalg.cholesky(matrix, symmetrize_input=False)
    return linalg.cholesky_lanes(matrix)


def solve_factored(factor: Factor, rhs: jax.Array) -> jax.Array:
    """Solution of L L^T x = b for a factor of `factorise`."""
    if isinstance(factor, Sweeps):
        return solve_chain(factor, rhs)
    if factor.ndim == 2 and factor.shape[0] > linalg.UNROLLED:
        half = lax.linalg.triangular_solve(factor, rhs[:, None], left_side=True, lower=True)
        return lax.linalg.triangular_solve(factor, half, left_side=True, lower=True, transpose_a=True)[:, 0]
    return linalg.cholesky_solve_lanes(factor, rhs)
