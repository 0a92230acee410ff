"""Projections on friction cones in a diagonal metric, with their derivatives: `project_friction`.

In every array axis 0 is the contact, and the last axis is the batch, if any; all operations are elementwise
over both. No function has a derivative rule of its own; every `where` is safe to differentiate.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp


def positive(x: jax.Array) -> jax.Array:
    """Return x if it is positive, else 1: a safe denominator for the branch that `where` does not select."""
    return jnp.where(x > 0, x, 1.0)


def directions(tangent: list[jax.Array], pyramid: bool) -> tuple[list[jax.Array], list[list[jax.Array]]]:
    """Compute magnitude and unit direction of the slip that each friction bound limits.

    The cone has one bound, on the length of the tangential vector. The pyramid has one bound on each tangent.
    """
    if pyramid or len(tangent) == 1:
        zero = jnp.zeros_like(tangent[0])
        sizes = [jnp.abs(t) for t in tangent]
        units = [
            [jnp.sign(t) if i == j else zero for j in range(len(tangent))] for i, t in enumerate(tangent)
        ]
        return sizes, units
    square = sum((t * t for t in tangent), jnp.zeros_like(tangent[0]))
    size = jnp.sqrt(positive(square)) * (square > 0)
    return [size], [[t / positive(size) for t in tangent]]


def project_friction(
    normal: jax.Array,
    tangent: list[jax.Array],
    slope_n: jax.Array,
    slope_t: jax.Array,
    mu: jax.Array,
    pyramid: bool,
) -> tuple[list[jax.Array], list[list[jax.Array]]]:
    """Find the impulse of the friction cone nearest to (normal, tangent); return it and its derivative.

    Minimises (p_n - z_n)^2 / slope_n + |p_t - z_t|^2 / slope_t over |p_t| <= mu p_n; with `pyramid` over
    |p_t1| <= mu p_n, |p_t2| <= mu p_n. With dz = -slope du, u the velocity, the projection changes by
    dp = -S du, S symmetric and positive semi-definite.

    Args:
        normal: z_n (nc,), any sign.
        tangent: z_t, one (nc,) per tangent.
        slope_n: metric of the normal, >= 0 (nc,); if it is 0, z_n must be 0.
        slope_t: metric of the tangents, >= 0 (nc,); if it is 0, z_t must be 0.
        mu: friction >= 0 (nc,).

    Returns:
        p as [p_n, p_t1, ...] of (nc,), and S as a list of rows of (nc,).
    """
    sizes, units = directions(tangent, pyramid)
    ordered = sizes if len(sizes) == 1 else [jnp.maximum(*sizes), jnp.minimum(*sizes)]
    # The largest slips reach the bound first: grow the set of sliding directions until it is consistent.
    force, count, reach = normal, jnp.zeros_like(normal), jnp.zeros_like(normal)
    for size in ordered:
        slides = size > mu * force
        count = count + slides
        reach = reach + jnp.where(slides, size, 0.0)
        weight = positive(slope_t + count * mu * mu * slope_n)
        force = jnp.where(slides, (slope_t * normal + mu * slope_n * reach) / weight, force)
    pushes = force > 0
    force = jnp.where(pushes, force, 0.0)
    sliding = [size > mu * force for size in sizes]
    ray = [jnp.ones_like(normal)] + [
        mu * sum(jnp.where(s, unit[j], 0.0) for s, unit in zip(sliding, units, strict=True))
        for j in range(len(tangent))
    ]
    # In a cone a contact slides or sticks in all its tangents together.
    sticks = [jnp.where(sliding[min(j, len(sizes) - 1)], 0.0, 1.0) for j in range(len(tangent))]
    impulse = [force] + [ray[j + 1] * force + sticks[j] * t * pushes for j, t in enumerate(tangent)]
    along = jnp.where(
        pushes, slope_n * jnp.where(count > 0, slope_t, 1.0) / jnp.where(count > 0, weight, 1.0), 0.0
    )
    yielding = [[along * a * b for b in ray] for a in ray]
    for j in range(len(tangent)):
        yielding[j + 1][j + 1] = yielding[j + 1][j + 1] + sticks[j] * slope_t * pushes
    if len(sizes) < len(tangent):  # the direction of sliding turns
        turning = jnp.where(sliding[0] & pushes, mu * force * slope_t / positive(sizes[0]), 0.0)
        for j, a in enumerate(units[0]):
            for k, b in enumerate(units[0]):
                yielding[j + 1][k + 1] = yielding[j + 1][k + 1] + turning * ((j == k) - a * b)
    return impulse, yielding


def clip_friction(
    tangent: list[jax.Array], slope_t: jax.Array, bound: jax.Array
) -> tuple[list[jax.Array], list[list[jax.Array]], list[jax.Array]]:
    """Find the friction impulse nearest to `tangent` within a bound on its length.

    Returns:
        p_t, one (nc,) per tangent; S with dp_t = -S du_t as a list of rows; and the derivative of p_t by the
        bound, zero if the contact sticks.
    """
    square = sum((t * t for t in tangent), jnp.zeros_like(tangent[0]))
    size = jnp.sqrt(positive(square)) * (square > 0)
    slides = size > bound
    unit = [t / positive(size) for t in tangent]
    share = jnp.where(slides, bound / positive(size), 1.0)
    impulse = [t * share for t in tangent]
    yielding = [
        [slope_t * share * ((j == k) - jnp.where(slides, a * b, 0.0)) for k, b in enumerate(unit)]
        for j, a in enumerate(unit)
    ]
    return impulse, yielding, [jnp.where(slides, a, 0.0) for a in unit]
