"""Interior-point steps for Coulomb friction: predictor, corrector, and the longest step inside the cones.

Per contact r_n u_n = k and (mu r_n, r_t) o (psi, u_t) = (k, 0) in the Jordan algebra of second-order cones;
k tends to zero. Friction does not lift a sliding contact. Page: docs/methods/friction.md.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from jaxcontact.algebra.cones import positive
from jaxcontact.solvers.friction_law import (
    Blocks,
    Rows,
    ScaledFriction,
    apply_blocks,
    dot,
    scale_lines,
    split,
)

INTERIOR_FRACTION = 0.99  # of the longest step that stays inside the cones
CENTRING_POWER = 3  # Mehrotra's exponent of the fraction of complementarity that the predictor leaves


class Interior(NamedTuple):
    """Impulses and velocities (n,) strictly inside the cones, and the dual speeds psi (nc,) > |u_t|."""

    impulse: jax.Array
    velocity: jax.Array
    speed: jax.Array


class _Parts(NamedTuple):
    """An `Interior` by axis, with `bound` = mu r_n; 1 for a contact without a cone."""

    r_n: jax.Array
    r_t: Rows
    u_n: jax.Array
    u_t: Rows
    psi: jax.Array
    bound: jax.Array
    mu: jax.Array
    rubs: jax.Array


class InteriorChange(NamedTuple):
    """Changes of an `Interior`."""

    impulse: jax.Array
    velocity: jax.Array
    speed: jax.Array


def begin(problem: ScaledFriction, size: jax.Array | float = 1.0) -> Interior:
    """Start with unit impulses and velocities along the normals, times `size`."""
    nc, n = problem.mu.shape[0], problem.q.shape[0]
    normal = jnp.where(jnp.arange(n) < nc, jnp.tile(problem.active, n // nc), False)
    rows = normal.astype(problem.q.dtype) * size
    return Interior(rows, rows, jnp.ones(nc, rows.dtype) * size)


def find_rubbing(problem: ScaledFriction) -> jax.Array:
    """Find the contacts (nc,) whose friction is above rounding."""
    return problem.active & (problem.mu > 4.0 * jnp.finfo(problem.mu.dtype).eps)


def _parts(problem: ScaledFriction, now: Interior) -> _Parts:
    nc = problem.mu.shape[0]
    (r_n, *r_t), (u_n, *u_t) = split(now.impulse, nc), split(now.velocity, nc)
    rubs = find_rubbing(problem)
    mu = jnp.where(rubs, problem.mu, 0.0)
    bound = jnp.where(rubs, mu * r_n, 1.0)
    return _Parts(r_n, r_t, u_n, u_t, now.speed, bound, mu, rubs)


def complementarity(problem: ScaledFriction, now: Interior) -> jax.Array:
    """Compute the mean product of impulses and velocities, which tends to zero."""
    p = _parts(problem, now)
    friction = jnp.where(p.rubs, p.bound * p.psi + dot(p.r_t, p.u_t), 0.0)
    products = jnp.sum(jnp.where(problem.active, p.r_n * p.u_n, 0.0)) + jnp.sum(friction)
    count = jnp.sum(problem.active) + jnp.sum(p.rubs)
    return products / jnp.maximum(count, 1).astype(products.dtype)


def linearise_law(problem: ScaledFriction, now: Interior) -> tuple[Blocks, Blocks, Rows]:
    """Linearise the law: by_impulse dr + by_velocity du in lines of unit size; also return their factors."""
    p = _parts(problem, now)
    nt = len(p.r_t)
    zeros, ones = jnp.zeros_like(p.r_n), jnp.ones_like(p.r_n)
    by_impulse = [[jnp.where(problem.active, p.u_n, ones)] + [zeros] * nt]
    by_velocity = [[jnp.where(problem.active, p.r_n, zeros)] + [zeros] * nt]
    for j in range(nt):
        ratio = p.r_t[j] / p.bound
        a = [(p.bound if j == k else 0.0) - ratio * p.r_t[k] for k in range(nt)]
        b = [(p.psi if j == k else 0.0) - ratio * p.u_t[k] for k in range(nt)]
        c = p.mu * (p.u_t[j] - p.psi * ratio)
        by_velocity.append([zeros, *[jnp.where(p.rubs, x, 0.0) for x in a]])
        unit = [ones if j == k else zeros for k in range(nt)]
        by_impulse.append(
            [jnp.where(p.rubs, c, 0.0), *[jnp.where(p.rubs, x, e) for x, e in zip(b, unit, strict=True)]]
        )
    return scale_lines(by_impulse, by_velocity)


def right_hand_sides(
    problem: ScaledFriction,
    now: Interior,
    law: tuple[Blocks, Blocks, Rows],
    misfit: jax.Array,
    target: jax.Array | float,
    before: InteriorChange | None,
) -> tuple[jax.Array, jax.Array]:
    """Compute right-hand sides (n,) of the equations, and e (nc,) of the cones, for products of `target`.

    `misfit` (n,) is W r + q - u, `before` the predictor, whose products are subtracted.
    """
    p, nc = _parts(problem, now), problem.mu.shape[0]
    normal = target - p.r_n * p.u_n
    cone = target - p.psi * p.bound - dot(p.r_t, p.u_t)
    turning = [-(p.psi * r + p.bound * u) for r, u in zip(p.r_t, p.u_t, strict=True)]
    if before is not None:
        (dr_n, *dr_t), (du_n, *du_t) = split(before.impulse, nc), split(before.velocity, nc)
        db = p.mu * dr_n
        normal = normal - dr_n * du_n
        cone = cone - db * before.speed - dot(dr_t, du_t)
        turning = [e - before.speed * r - db * u for e, r, u in zip(turning, dr_t, du_t, strict=True)]
    rhs = [jnp.where(problem.active, normal, 0.0)]
    rhs += [jnp.where(p.rubs, e - r * (cone / p.bound), 0.0) for e, r in zip(turning, p.r_t, strict=True)]
    _, by_velocity, weights = law
    pulled = apply_blocks(by_velocity, split(misfit, nc))
    return jnp.concatenate([w * e - x for w, e, x in zip(weights, rhs, pulled, strict=True)]), cone


def direct(
    problem: ScaledFriction, now: Interior, change: jax.Array, misfit: jax.Array, cone: jax.Array
) -> InteriorChange:
    """Complete a change (n,) of the impulses to a direction; `cone` (nc,) is that of `right_hand_sides`."""
    p, nc = _parts(problem, now), problem.mu.shape[0]
    velocity = problem.W @ change + misfit
    (dr_n, *dr_t), (_, *du_t) = split(change, nc), split(velocity, nc)
    speed = (cone - p.psi * (p.mu * dr_n) - dot(p.r_t, du_t) - dot(p.u_t, dr_t)) / p.bound
    return InteriorChange(change, velocity, jnp.where(p.rubs, speed, 0.0))


def longest_step(problem: ScaledFriction, now: Interior, move: InteriorChange) -> jax.Array:
    """Compute the length in (0, 1] of a step that stays strictly inside the cones."""
    p, nc = _parts(problem, now), problem.mu.shape[0]
    (dr_n, *dr_t), (du_n, *du_t) = split(move.impulse, nc), split(move.velocity, nc)
    limits = [distance_to_zero(p.r_n, dr_n), distance_to_zero(p.u_n, du_n)]
    limits = [jnp.where(problem.active, limit, jnp.inf) for limit in limits]
    cones = [
        distance_to_boundary(p.bound, p.r_t, p.mu * dr_n, dr_t),
        distance_to_boundary(p.psi, p.u_t, move.speed, du_t),
    ]
    limits += [jnp.where(p.rubs, limit, jnp.inf) for limit in cones]
    return fraction(jnp.stack(limits))


def fraction(limits: jax.Array) -> jax.Array:
    """Choose a length in (0, 1] that stays below all limits."""
    return jnp.minimum(1.0, INTERIOR_FRACTION * jnp.min(limits))


def distance_to_zero(x: jax.Array, dx: jax.Array) -> jax.Array:
    """Compute the a > 0 at which x + a dx = 0, inf if x does not fall."""
    falls = dx < 0
    return jnp.where(falls, x / jnp.where(falls, -dx, 1.0), jnp.inf)


def distance_to_boundary(s: jax.Array, t: Rows, ds: jax.Array, dt: Rows) -> jax.Array:
    """Compute the smallest a > 0 at which |t + a dt| = s + a ds."""
    square, half = ds * ds - dot(dt, dt), s * ds - dot(t, dt)
    rest = s * s - dot(t, t)
    root = jnp.sqrt(jnp.maximum(half * half - square * rest, 0.0))
    reaches = (half * half >= square * rest) & (root > half)
    step = jnp.where(reaches, rest / positive(root - half), jnp.inf)
    return jnp.minimum(step, distance_to_zero(s, ds))


def advance(now: Interior, move: InteriorChange, step: jax.Array) -> Interior:
    """Move an interior point along a direction by `step`."""
    return Interior(*(x + step * dx for x, dx in zip(now, move, strict=True)))


def centring(before: jax.Array, after: jax.Array) -> jax.Array:
    """Choose the target fraction of complementarity from its values before and after the predictor."""
    return jnp.clip(jnp.maximum(after, 0.0) / positive(before), 0.0, 1.0) ** CENTRING_POWER
