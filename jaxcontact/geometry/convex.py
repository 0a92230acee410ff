"""Contacts of a capsule with a cylinder or an ellipsoid.

The signed distance of a point to a convex body is a convex function, so it has one minimum along the axis of
the capsule. Bisection of the slope finds the minimum, and two Newton steps refine the minimum and carry the
derivatives. Every contact is that of a ball about a point of the axis.
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
    """Derivative by t of the distance of the point start + t along."""
    return dot(distance(start + t * along, sizes)[1], along)


def nearest_share(
    distance: Distance, start: jax.Array, along: jax.Array, sizes: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Share t in [0, 1] where a segment is nearest to a convex body, and the second derivative there."""
    fixed = jax.lax.stop_gradient((start, along, sizes))

    def halve(_: int, ends: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        middle = 0.5 * (ends[0] + ends[1])
        rising = _slope(distance, *fixed, middle) > 0.0
        return jnp.where(rising, ends[0], middle), jnp.where(rising, middle, ends[1])

    zero = jnp.zeros((), start.dtype)
    low, high = jax.lax.fori_loop(0, jnp.finfo(start.dtype).nmant + 1, halve, (zero, zero + 1.0))
    t = 0.5 * (low + high)
    slope_at_start, slope_at_end = _slope(distance, *fixed, zero), _slope(distance, *fixed, zero + 1.0)
    t = jnp.where(slope_at_start >= 0.0, 0.0, jnp.where(slope_at_end <= 0.0, 1.0, t))
    inside = (slope_at_start < 0.0) & (slope_at_end > 0.0)
    curvature = zero
    for _ in range(2):
        slope, curvature = jax.jvp(
            lambda share: _slope(distance, start, along, sizes, share), (t,), (jnp.ones_like(t),)
        )
        curved = inside & (curvature > 64.0 * jnp.finfo(t.dtype).eps * jnp.sqrt(dot(fixed[1], fixed[1])))
        step = jnp.where(curved, slope / jnp.where(curved, curvature, 1.0), 0.0)
        small_step = jnp.abs(jax.lax.stop_gradient(step)) < 1e-3
        t = t - jnp.where(small_step, step, 0.0)
    return t, jnp.where(inside, curvature, 0.0)


def capsule_on_ellipsoid(
    start: jax.Array, along: jax.Array, sizes: jax.Array
) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array]:
    """The point (1, 3) of the axis nearest to an ellipsoid, its gap and normal, and a constant True."""
    t, _ = nearest_share(ellipsoids.signed_distance, start, along, sizes)
    point = start + t * along
    gap, normal = ellipsoids.signed_distance(point, sizes)
    return point[None], gap[None], normal[None], jnp.ones(1, bool)


def capsule_on_cylinder(
    start: jax.Array, along: jax.Array, sizes: jax.Array
) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array]:
    """Seven points (7, 3) of the axis, their gaps and normals, and which of them count as contacts.

    The points are both ends, the crossings of the planes of the caps and of the side, and the nearest point.
    """
    t_side, gap_to_side, normal_of_side, nearest_to_side = cylinders.nearest_to_side(start, along, sizes)
    t_nearest, curvature = nearest_share(cylinders.signed_distance, start, along, sizes)
    t_nearest = jnp.where(nearest_to_side, t_side, t_nearest)
    t_crossing, crosses = cylinders.line_crossings(start, along, sizes)
    t = jnp.concatenate([jnp.array([0.0, 1.0], start.dtype), t_crossing, t_nearest[None]])
    length = jnp.sqrt(jnp.maximum(dot(along, along), TOUCHING**2))
    margin = TOUCHING / length
    off_ends = jnp.abs(t_crossing[:, None] - jnp.array([[0.0, 1.0]], start.dtype)) > margin
    crosses &= jnp.all(off_ends, axis=1) & (t_crossing > 0.0) & (t_crossing < 1.0)
    nearest_is_distinct = jnp.all(jnp.where(crosses, jnp.abs(t_crossing - t_nearest) > margin, True))
    curved = nearest_to_side | (curvature > 64.0 * jnp.finfo(t.dtype).eps * length)
    nearest_counts = curved & nearest_is_distinct & (t_nearest > margin) & (t_nearest < 1.0 - margin)
    points = start[None] + jnp.clip(t, 0.0, 1.0)[:, None] * along[None]
    gap, normal = jax.vmap(lambda point: cylinders.signed_distance(point, sizes))(points)
    gap = gap.at[-1].set(jnp.where(nearest_to_side, gap_to_side, gap[-1]))
    normal = normal.at[-1].set(jnp.where(nearest_to_side, normal_of_side, normal[-1]))
    return points, gap, normal, jnp.concatenate([jnp.ones(2, bool), crosses, nearest_counts[None]])
