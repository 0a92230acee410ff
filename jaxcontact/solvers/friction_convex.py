"""Interior-point steps for the associated friction law, whose impulses and velocities lie in dual cones.

Per contact (mu r_n, r_t) o (u_n / mu, u_t) = (k, 0) in the Jordan algebra of second-order cones, and
r_n u_n = k without friction; k tends to zero. The functions are those of `friction_interior`.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from jaxcontact.solvers.friction_interior import (
    Interior,
    InteriorChange,
    distance_to_boundary,
    find_rubbing,
    fraction,
)
from jaxcontact.solvers.friction_law import (
    Blocks,
    Rows,
    ScaledFriction,
    apply_blocks,
    dot,
    scale_lines,
    split,
)


def _parts(problem: ScaledFriction, impulse: jax.Array, velocity: jax.Array) -> tuple[Rows, Rows, jax.Array]:
    """Split rows by axis, with zero tangents for contacts without friction; also return a safe mu (nc,)."""
    nc, rubs = problem.mu.shape[0], find_rubbing(problem)
    (r_n, *r_t), (u_n, *u_t) = split(impulse, nc), split(velocity, nc)
    pushes = [r_n, *[jnp.where(rubs, x, 0.0) for x in r_t]]
    rates = [u_n, *[jnp.where(rubs, x, 0.0) for x in u_t]]
    return pushes, rates, jnp.where(rubs, problem.mu, 1.0)


def complementarity(problem: ScaledFriction, now: Interior) -> jax.Array:
    """Compute the mean product of impulses and velocities, which tends to zero."""
    r, u, _ = _parts(problem, now.impulse, now.velocity)
    products = jnp.sum(jnp.where(problem.active, dot(r, u), 0.0))
    return products / jnp.maximum(jnp.sum(problem.active), 1).astype(products.dtype)


def linearise_law(problem: ScaledFriction, now: Interior) -> tuple[Blocks, Blocks, Rows]:
    """Linearise the law: by_impulse dr + by_velocity du in lines of unit size; also return their factors."""
    r, u, mu = _parts(problem, now.impulse, now.velocity)
    rubs, nt = find_rubbing(problem), len(r) - 1
    zeros, ones = jnp.zeros_like(mu), jnp.ones_like(mu)
    by_impulse = [[jnp.where(problem.active, u[0], ones), *u[1:]]]
    by_velocity = [[jnp.where(problem.active, r[0], zeros), *r[1:]]]
    for j in range(nt):
        bound, speed = jnp.where(rubs, mu * r[0], 0.0), jnp.where(rubs, u[0] / mu, ones)
        by_impulse.append([mu * u[j + 1], *[speed if j == k else zeros for k in range(nt)]])
        by_velocity.append([r[j + 1] / mu, *[bound if j == k else zeros for k in range(nt)]])
    return scale_lines(by_impulse, by_velocity)


def right_hand_sides(
    problem: ScaledFriction,
    now: Interior,
    law: tuple[Blocks, Blocks, Rows],
    misfit: jax.Array,
    target: jax.Array | float,
    before: InteriorChange | None,
) -> tuple[jax.Array, jax.Array]:
    """Compute right-hand sides (n,) and cones (nc,) for products of `target`; `before` is the predictor."""
    r, u, mu = _parts(problem, now.impulse, now.velocity)
    rubs, nc = find_rubbing(problem), problem.mu.shape[0]
    cone = target - dot(r, u)
    turning = [-(u[0] / mu * x + mu * r[0] * y) for x, y in zip(r[1:], u[1:], strict=True)]
    if before is not None:
        dr, du, _ = _parts(problem, before.impulse, before.velocity)
        cone = cone - dot(dr, du)
        turning = [
            e - mu * dr[0] * y - du[0] / mu * x for e, x, y in zip(turning, dr[1:], du[1:], strict=True)
        ]
    rhs = [jnp.where(problem.active, cone, 0.0), *[jnp.where(rubs, e, 0.0) for e in turning]]
    _, by_velocity, weights = law
    pulled = apply_blocks(by_velocity, split(misfit, nc))
    return jnp.concatenate([w * e - x for w, e, x in zip(weights, rhs, pulled, strict=True)]), cone


def direct(
    problem: ScaledFriction, now: Interior, change: jax.Array, misfit: jax.Array, cone: jax.Array
) -> InteriorChange:
    """Complete a change (n,) of the impulses to a direction."""
    del cone
    return InteriorChange(change, problem.W @ change + misfit, jnp.zeros_like(now.speed))


def longest_step(problem: ScaledFriction, now: Interior, move: InteriorChange) -> jax.Array:
    """Compute the length in (0, 1] of a step that stays strictly inside the cones."""
    r, u, mu = _parts(problem, now.impulse, now.velocity)
    dr, du, _ = _parts(problem, move.impulse, move.velocity)
    limits = [
        distance_to_boundary(mu * r[0], r[1:], mu * dr[0], dr[1:]),
        distance_to_boundary(u[0] / mu, u[1:], du[0] / mu, du[1:]),
    ]
    return fraction(jnp.where(problem.active, jnp.minimum(*limits), jnp.inf))
