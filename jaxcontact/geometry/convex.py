"""Contacts of a capsule with a smooth convex body, by the signed distance of a point, which is convex.

Along the axis of the capsule that distance has one least value; its derivative is bisected, then polished
by two steps of Newton that carry derivatives. All gaps are those of balls about points of the axis.
"""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp

from jaxcontact.geometry import cylinders, ellipsoids
from jaxcontact.geometry.frames import dot
from jaxcontact.geometry.polytopes import TOUCHING

Distance = Callable[[jax.Array, jax.Array], tuple[jax.Array, jax.Array]]  # (point, sizes) -> (gap, normal)
CYLINDER_CONTACTS = 7


def _slope(
    distance: Distance, start: jax.Array, along: jax.Array, sizes: jax.Array, t: jax.Array
) -> jax.Array:
    """Derivative by t of the distance of start + t along."""
    return dot(distance(start + t * along, sizes)[1], along)


def nearest_share(
    distance: Distance, start: jax.Array, along: jax.Array, sizes: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Where on a segment the distance to a convex body is least: t in [0, 1]; its second derivative there."""
    fixed = jax.lax.stop_gradient((start, along, sizes))

    def halve(_: int, ends: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        middle = 0.5 * (ends[0] + ends[1])
        rising = _slope(distance, *fixed, middle) > 0.0
        return jnp.where(rising, ends[0], middle), jnp.where(rising, middle, ends[1])

    zero = jnp.zeros((), start.dtype)
    low, high = jax.lax.fori_loop(0, jnp.finfo(start.dtype).nmant + 1, halve, (zero, zero + 1.0))
    t = 0.5 * (low + high)
    first, last = _slope(distance, *fixed, zero), _slope(distance, *fixed, zero + 1.0)
    t = jnp.where(first >= 0.0, 0.0, jnp.where(last <= 0.0, 1.0, t))
    inner = (first < 0.0) & (last > 0.0)
    bend = zero
    for _ in range(2):
        slope, bend = jax.jvp(
            lambda share: _slope(distance, start, along, sizes, share), (t,), (jnp.ones_like(t),)
        )
        curved = inner & (bend > 64.0 * jnp.finfo(t.dtype).eps * jnp.sqrt(dot(fixed[1], fixed[1])))
        step = jnp.where(curved, slope / jnp.where(curved, bend, 1.0), 0.0)
        near = jnp.abs(jax.lax.stop_gradient(step)) < 1e-3
        t = t - jnp.where(near, step, 0.0)
    return t, jnp.where(inner, bend, 0.0)


def capsule_on_ellipsoid(
    start: jax.Array, along: jax.Array, sizes: jax.Array
) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array]:
    """Points (1, 3) of the axis nearest an ellipsoid, gap of the axis, normal, valid."""
    t, _ = nearest_share(ellipsoids.signed_distance, start, along, sizes)
    point = start + t * along
    gap, normal = ellipsoids.signed_distance(point, sizes)
    return point[None], gap[None], normal[None], jnp.ones(1, bool)


def capsule_on_cylinder(
    start: jax.Array, along: jax.Array, sizes: jax.Array
) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array]:
    """Points (7, 3) of the axis, gaps, normals, valid: ends, where it passes caps and side, the nearest."""
    nearest, bend = nearest_share(cylinders.signed_distance, start, along, sizes)
    passing, there = cylinders.line_crossings(start, along, sizes)
    t = jnp.concatenate([jnp.array([0.0, 1.0], start.dtype), passing, nearest[None]])
    length = jnp.sqrt(jnp.maximum(dot(along, along), TOUCHING**2))
    margin = TOUCHING / length
    apart = jnp.abs(passing[:, None] - jnp.array([[0.0, 1.0]], start.dtype)) > margin
    there &= jnp.all(apart, axis=1) & (passing > 0.0) & (passing < 1.0)
    new = jnp.all(jnp.where(there, jnp.abs(passing - nearest) > margin, True))
    bent = bend > 64.0 * jnp.finfo(t.dtype).eps * length
    alone = bent & new & (nearest > margin) & (nearest < 1.0 - margin)
    points = start[None] + jnp.clip(t, 0.0, 1.0)[:, None] * along[None]
    gap, normal = jax.vmap(lambda point: cylinders.signed_distance(point, sizes))(points)
    return points, gap, normal, jnp.concatenate([jnp.ones(2, bool), there, alone[None]])
