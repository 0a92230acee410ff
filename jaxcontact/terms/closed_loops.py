"""Rows of contacts on a mechanism with closed loops and couplings, which change its effective mass.

Entries: `project_rows`, `project_velocity`. With P = I - M^-1 G^T (G M^-1 G^T)^+ G,
J P M^-1 P^T J^T = J P M^-1 J^T is the Delassus matrix of the mechanism with its loops, so laws that see M and
J P need no data of loops.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax

from jaxcontact.algebra import implicit, small_dense

PASSES = 2  # of the projection; the second removes the rounding errors of the first


def project_rows(M: jax.Array, G: jax.Array, rows: jax.Array) -> jax.Array:
    """Return J P (n, nv) of rows J (n, nv), whose impulses do not change G v; rows that loops hold are 0.

    Args:
        M: (nv, nv) mass matrix.
        G: (nb, nv) rows of loops and couplings; dependent ones count once.

    Derivative: exact if the rank of G is constant, forward and reverse.
    """
    response = implicit.solve_spd(M, G.T)  # (nv, nb)
    gram = G @ response
    size = lax.stop_gradient(jnp.sqrt(jnp.diagonal(gram)))
    scale = jnp.where(size > 0, 1.0 / jnp.where(size > 0, size, 1.0), 0.0)
    gram = gram * scale[:, None] * scale[None]
    inverse, _ = small_dense.generalized_inverse(lax.stop_gradient(gram))
    before = _lengths(M, rows)
    for _ in range(PASSES):
        load = scale[:, None] * (response.T @ rows.T)
        impulse = implicit.solve_spd(gram, load, inverse)
        rows = rows - (scale[:, None] * impulse).T @ G
    moves = _lengths(M, rows) > small_dense.pivot_tolerance(rows.dtype) * before
    return jnp.where(moves[:, None], rows, 0.0)


def project_velocity(M: jax.Array, G: jax.Array, v: jax.Array, drift: jax.Array | float = 0.0) -> jax.Array:
    """Return the vector (nv,) nearest to v in the kinetic metric with G v + drift = 0; without drift, P v.

    Derivative: as `project_rows`.
    """
    response = implicit.solve_spd(M, G.T)
    return v - response @ implicit.refine(G @ response, G @ v + drift, jnp.zeros(G.shape[0], v.dtype))


def _lengths(M: jax.Array, rows: jax.Array) -> jax.Array:
    """Return the lengths (n,) of rows in the metric of M^-1. No derivative."""
    M, rows = lax.stop_gradient((M, rows))
    return jnp.sqrt(jnp.maximum(jnp.sum(rows.T * implicit.solve_spd(M, rows.T), axis=0), 0.0))
