"""Products with the rows G and the mass matrix M of a cone program, and factors of its Hessian.

Arrays carry the batch on the last axis where there is one.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax

from jaxcontact import linalg

UNROLLED = 48  # longest sum that is written out term by term: several times faster in lanes


def apply_rows(G: jax.Array, x: jax.Array) -> jax.Array:
    """G x (nr,)."""
    if G.shape[1] > UNROLLED:
        return G @ x if G.ndim == 2 else jnp.sum(G * x[None], axis=1)
    return sum((G[:, k] * x[k][None] for k in range(1, G.shape[1])), G[:, 0] * x[0][None])


def apply_columns(G: jax.Array, p: jax.Array) -> jax.Array:
    """G^T p (nv,)."""
    if G.shape[0] > UNROLLED or G.shape[0] == 0:
        return p @ G if G.ndim == 2 else jnp.sum(G * p[:, None], axis=0)
    return sum((G[i] * p[i][None] for i in range(1, G.shape[0])), G[0] * p[0][None])


def multiply(M: jax.Array, x: jax.Array) -> jax.Array:
    """M x (nv,)."""
    return apply_rows(M, x)


def dot(a: jax.Array, b: jax.Array) -> jax.Array:
    """A . b, over the first axis."""
    return apply_columns(a[:, None], b)[0]


def row_mobility(diagonal: jax.Array, G: jax.Array, singles: int, axes: int) -> jax.Array:
    """Diagonal (nr,) of G M^-1 G^T for a diagonal mass matrix, else of its order.

    The tangents of a contact share the largest of theirs, so that friction stays isotropic.
    """
    own = jnp.sum(G**2 / diagonal[None], axis=1)
    if axes < 3:
        return own
    contacts = own[singles:].reshape(-1, axes, *own.shape[1:])
    tangent = jnp.max(contacts[:, 1:], axis=1, keepdims=True)
    shared = jnp.concatenate([contacts[:, :1], *[tangent] * (axes - 1)], axis=1)
    return jnp.concatenate([own[:singles], shared.reshape(-1, *own.shape[1:])])


def factorise(matrix: jax.Array) -> jax.Array:
    """Cholesky factor; a large single one by LAPACK, which would be a hazard in a batch."""
    if matrix.ndim == 2 and matrix.shape[0] > linalg.UNROLLED:
        return lax.linalg.cholesky(matrix, symmetrize_input=False)
    return linalg.cholesky_lanes(matrix)


def solve_factored(factor: jax.Array, rhs: jax.Array) -> jax.Array:
    """Solution of L L^T x = b for a factor of `factorise`."""
    if factor.ndim == 2 and factor.shape[0] > linalg.UNROLLED:
        half = lax.linalg.triangular_solve(factor, rhs[:, None], left_side=True, lower=True)
        return lax.linalg.triangular_solve(factor, half, left_side=True, lower=True, transpose_a=True)[:, 0]
    return linalg.cholesky_solve_lanes(factor, rhs)
