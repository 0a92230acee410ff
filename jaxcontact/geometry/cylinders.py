"""Cylinders with the axis z: distance of a point, lowest points of the rims, where a line meets them."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxcontact.geometry.frames import dot, unit
from jaxcontact.geometry.polytopes import TOUCHING

FLAT = 1e-2  # sine of the tilt below which the lowest point of a rim moves to the centre of its cap


def rim_points(radius: Any, half_length: Any, count: int, dtype: Any) -> jax.Array:
    """Points (2 count, 3) at equal angles on the rims, those of the lower cap first."""
    angle = 2.0 * np.pi * np.arange(count) / count
    ring = np.stack([np.cos(angle), np.sin(angle)], axis=1)
    radial = jnp.asarray(radius, dtype) * jnp.asarray(ring, dtype)
    height = jnp.asarray(half_length, dtype) * jnp.ones((count, 1), dtype)
    return jnp.concatenate(
        [jnp.concatenate([radial, -height], axis=1), jnp.concatenate([radial, height], axis=1)]
    )


def lowest_points(normal: jax.Array, radius: jax.Array, half_length: jax.Array) -> jax.Array:
    """Point (2, 3) of either rim that lies deepest along -normal; inside the rim below a tilt `FLAT`.

    The deepest point of a level rim is not unique, and runs about it at a tilt of rounding: there the points
    that are fixed to the rim carry, and this one slides smoothly inward.
    """
    side = normal[:2]
    square = dot(side, side)
    steep = square > FLAT**2
    length = jnp.sqrt(jnp.where(steep, square, 1.0))
    weight = jnp.where(steep, 1.0 / length, (3.0 - square / FLAT**2) / (2.0 * FLAT))
    radial = jnp.broadcast_to(-radius * weight * side, (2, 2))
    return jnp.concatenate([radial, half_length * jnp.array([[-1.0], [1.0]], normal.dtype)], axis=1)


def signed_distance(point: jax.Array, sizes: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Gap of a point (3,) to a cylinder of radius and half length `sizes` (2,), and the outward unit normal.

    On the axis, where the side is nearest, the normal is the local x.
    """
    radial, distance = unit(point[:2], jnp.zeros_like(point[:2]).at[0].set(1.0))
    up = jnp.where(point[2] >= 0.0, 1.0, -1.0)
    over = jnp.stack([distance - sizes[0], up * point[2] - sizes[1]])  # beyond the side, beyond the cap
    sideways = over[0] > over[1]
    face = jnp.where(sideways, jnp.array([1.0, 0.0]), jnp.array([0.0, 1.0])).astype(point.dtype)
    corner, length = unit(over, face)
    at_rim = (jnp.min(over) > 0.0) & (jnp.max(over) > TOUCHING)
    turn = jnp.where(at_rim, corner, face)
    gap = jnp.where(at_rim, length, jnp.max(over))
    return gap, jnp.concatenate([turn[0] * radial, (turn[1] * up)[None]])


def line_crossings(start: jax.Array, along: jax.Array, sizes: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Where a line start + t along meets the planes of both caps, and the side: t (4,), valid."""
    rise = along[2]
    slanted = jnp.abs(rise) > TOUCHING * sizes[1]
    caps = (jnp.array([-1.0, 1.0], start.dtype) * sizes[1] - start[2]) / jnp.where(slanted, rise, 1.0)
    square = dot(along[:2], along[:2])
    across = square > (TOUCHING * sizes[0]) ** 2
    safe = jnp.where(across, square, 1.0)
    middle = -dot(start[:2], along[:2]) / safe
    off = start[:2] + middle * along[:2]
    room = (sizes[0] ** 2 - dot(off, off)) / safe
    through = across & (room > 1e-6)  # tangent lines have one contact, and roots without derivative
    half = jnp.sqrt(jnp.where(through, room, 1.0))
    sides = jnp.stack([middle - half, middle + half])
    return jnp.concatenate([caps, sides]), jnp.stack([slanted, slanted, through, through])
