"""Coulomb friction with a cone of sides, as a linear complementarity problem."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from jaxcontact.solvers.friction_newton import FrictionInfo
from jaxcontact.solvers.lcp import solve_lcp


def solve_directions(W: jax.Array, q: jax.Array, mu: jax.Array, sides: int) -> tuple[jax.Array, FrictionInfo]:
    """Solve for the impulses (n,) of contacts in space with friction cones of `sides` sides.

    The friction is r_t = D b, with impulses b >= 0 along k unit directions D and speeds s. Three pairs are
    complementary: r_n and u_n, b and D^T u_t + s, s and mu r_n - sum b. `residual` is that of `solve_lcp`.

    Status, Derivative: see `solve_lcp`.
    """
    nc = mu.shape[0]
    angle = 2.0 * np.pi * np.arange(sides) / sides
    fan = np.stack([np.cos(angle), np.sin(angle)])
    spread = np.zeros((3, 1 + sides))
    spread[0, 0], spread[1:, 1:] = 1.0, np.where(np.abs(fan) < 1e-15, 0.0, fan)
    rays = jnp.asarray(np.kron(np.eye(nc), spread), W.dtype)  # r = rays (r_n, b)
    bounds = jnp.asarray(np.kron(np.eye(nc), np.r_[0.0, np.ones(sides)][None]), W.dtype)
    limits = jnp.asarray(np.kron(np.eye(nc), np.eye(1, 1 + sides)), W.dtype) * mu[:, None]
    matrix = jnp.block([[rays.T @ W @ rays, bounds.T], [limits - bounds, jnp.zeros((nc, nc), W.dtype)]])
    z, info = solve_lcp(matrix, jnp.concatenate([rays.T @ q, jnp.zeros(nc, W.dtype)]))
    impulse = rays @ z[: rays.shape[1]]
    return impulse, FrictionInfo(status=info.status, residual=info.residual, num_iters=info.num_iters)
