"""Products with the rows G and the mass matrix M of a cone program, and factors of its Hessian.

Matrices are dense, G as its transpose, or `Diagonal` and `BodyRows` if many free bodies meet neighbours.
All functions are for one problem; `vmap` makes batches.
"""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
from jax import lax

from jaxcontact.algebra import body_rows, cholesky, small_dense
from jaxcontact.algebra.block_tridiagonal import BlockTridiagonal, Sweeps, factorise_chain, solve_chain
from jaxcontact.algebra.body_rows import BodyRows, Diagonal
from jaxcontact.batching.once import computed_once
from jaxcontact.batching.world_code import compiles_one_world
from jaxcontact.tolerances import NO_MOTION, SQUARE, rounding

Rows = jax.Array | BodyRows
Mass = jax.Array | Diagonal
Factor = jax.Array | Sweeps


def apply_rows(columns: Rows, x: jax.Array) -> jax.Array:
    """Multiply G x (nr,), from G^T (nv, nr)."""
    if isinstance(columns, BodyRows):
        return body_rows.apply_rows(columns, x)
    return x @ columns


def apply_columns(columns: Rows, p: jax.Array) -> jax.Array:
    """Multiply G^T p (nv,), from G^T (nv, nr)."""
    if isinstance(columns, BodyRows):
        return body_rows.apply_columns(columns, p)
    return columns @ p


def multiply(M: Mass, x: jax.Array) -> jax.Array:
    """Multiply M x (nv,)."""
    return M.values * x if isinstance(M, Diagonal) else M @ x


def diagonal(M: Mass) -> jax.Array:
    """Return the diagonal (nv,) of M."""
    return M.values if isinstance(M, Diagonal) else jnp.diagonal(M)


def row_mobility(masses: jax.Array, columns: Rows, singles: int, nc: int) -> jax.Array:
    """Compute the `isotropic` diagonal (nr,) of G M^-1 G^T from the diagonal `masses` of M.

    For an M that is not diagonal it has the right order of magnitude.
    """
    inverse = 1.0 / masses
    if isinstance(columns, BodyRows):
        squares = body_rows.squares(columns, inverse)
    elif masses.shape[0] <= small_dense.UNROLLED:
        squares = lax.cond(compiles_one_world(), _squares_in_turn, _squares, columns, inverse)
    else:
        squares = _squares(columns, inverse)
    # Otherwise every kernel that reads the mobilities would compute them again.
    return computed_once(_without_round_off(isotropic(squares, singles, nc), singles, nc))


def _without_round_off(mobility: jax.Array, singles: int, nc: int) -> jax.Array:
    """Set the mobilities (nr,) of contacts to zero where they are squares of round-off.

    A link that turns about the normal of a contact moves it by 1e-17 m per radian, along the normal.
    """
    if not nc:
        return mobility
    square = rounding(mobility.dtype, SQUARE)
    rows = mobility[singles:].reshape(-1, nc)
    limit = square * jnp.maximum(NO_MOTION * jnp.max(rows, axis=0), jnp.max(mobility))
    return jnp.concatenate([mobility[:singles], jnp.where(rows > limit[None], rows, 0.0).reshape(-1)])


def _squares(columns: jax.Array, inverse: jax.Array) -> jax.Array:
    return jnp.sum(columns**2 * inverse[:, None], axis=0)


def _squares_in_turn(columns: jax.Array, inverse: jax.Array) -> jax.Array:
    """Compute `_squares` row by row: machine code of one world then stores no matrix."""
    terms = (row**2 * of_mass for row, of_mass in zip(columns, inverse, strict=True))
    return sum(terms, jnp.zeros(columns.shape[1:], columns.dtype))


def isotropic(mobility: jax.Array, singles: int, nc: int) -> jax.Array:
    """Replace mobilities (nr,) of tangents by the largest of their contact, so that friction is isotropic."""
    if mobility.shape[0] <= singles + 2 * nc:
        return mobility
    end = singles + nc
    tangents = [mobility[at : at + nc] for at in range(end, mobility.shape[0], nc)]
    return jnp.concatenate([mobility[:end], *[functools.reduce(jnp.maximum, tangents)] * len(tangents)])


def factorise(matrix: jax.Array | BlockTridiagonal) -> Factor:
    """Compute the Cholesky factor of a symmetric positive definite matrix."""
    return factorise_chain(matrix) if isinstance(matrix, BlockTridiagonal) else cholesky.factorise(matrix)


def solve_factored(factor: Factor, rhs: jax.Array) -> jax.Array:
    """Solve L L^T x = b for a factor L of `factorise`."""
    if isinstance(factor, Sweeps):
        return solve_chain(factor, rhs)
    return cholesky.solve_factored(factor, rhs)
