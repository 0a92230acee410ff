"""Several solutions of one linear complementarity problem, by paths from solution to solution.

Lemke's method from random covering vectors ends at solutions of one index only; from each of them the path of
another covering vector leads to one of the other index, or to a ray. Entry `search_solutions`. Page:
docs/methods/impacts-in-space.md.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxcontact.precision import jit
from jaxcontact.solvers.lcp import Lemke, equilibrate, read_solution, residuals
from jaxcontact.solvers.lemke_dictionary import (
    SOLVED,
    enter,
    follow_path,
    generic_vectors,
    leave,
    max_pivots,
)
from jaxcontact.tolerances import REDUNDANT, RESIDUAL, rounding

WALKS = 16  # from solution to solution
PATHS = 16  # of a walk, the first from a covering vector; long walks reach rare solutions
SPREAD = 0.305  # covering vectors lie in eps^SPREAD..eps^-SPREAD; narrower ones miss more


class _Place(NamedTuple):
    """Where a walk is: the positive z of a solution, the inverse of their equations; whether there is one."""

    active: jax.Array
    inverse: jax.Array
    is_solution: jax.Array


@jit
def search_solutions(W: jax.Array, w: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Search for z (WALKS PATHS, n) with 0 <= z, W z + w >= 0, z (W z + w) = 0, and tell which solve that.

    Solutions come many times, and none is certain to come. No derivative.
    """
    W, w = lax.stop_gradient((W, w))
    n, dtype = w.shape[0], w.dtype
    scaled, _ = equilibrate(W, w, Lemke().scaling_sweeps)
    perturbation = jnp.asarray(generic_vectors(1, n)[1, 0], dtype)
    drawn = np.random.default_rng(20240229).uniform(-SPREAD, SPREAD, (PATHS, WALKS, n))
    covers = float(jnp.finfo(dtype).eps) ** drawn
    moves = jnp.min(scaled.w) < 0  # else z = 0 is a solution

    limit, tolerance = max_pivots(n), rounding(dtype, RESIDUAL)

    def walk(at: _Place, cover: jax.Array) -> tuple[_Place, tuple[jax.Array, ...]]:
        fresh = enter(scaled.W, scaled.w, cover, perturbation, moves)
        away = leave(scaled.W, scaled.w, (at.active, at.inverse), cover, perturbation)
        begin = jax.tree.map(lambda a, b: jnp.where(at.is_solution, a, b), away, fresh)
        end = follow_path(begin, limit, True)
        z, active, inverse = read_solution(end, scaled)
        solves = (end.outcome == SOLVED) & (residuals(scaled, z, tolerance)[0] <= tolerance)
        # Of a continuum, rounding that became a pivot takes any point; corners have a regular basis.
        is_corner = solves & (jnp.max(jnp.abs(inverse)) <= 1.0 / rounding(dtype, REDUNDANT))
        after = _Place(active, inverse, is_corner)
        after = jax.tree.map(lambda a, b: jnp.where(is_corner, a, b), after, at)
        return after, (z * scaled.columns, solves, is_corner)

    start = _Place(jnp.zeros((WALKS, n), bool), jnp.zeros((WALKS, n, n), dtype), jnp.zeros(WALKS, bool))
    _, (z, solves, is_corner) = lax.scan(jax.vmap(walk), start, jnp.asarray(covers, dtype))
    return z.reshape(-1, n), jnp.where(jnp.any(is_corner), is_corner, solves).reshape(-1)
