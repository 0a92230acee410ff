"""Closed forms for a cylinder whose axis is z: distance of a point, lowest points."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
import numpy as np

from jaxcontact.geometry.frames import dot, unit
from jaxcontact.geometry.polytopes import TOUCHING

LEVEL_SINE = 1e-9  # sine of the tilt below which a rim counts as level
HELD = 3e-3  # sine of the tilt below which the lowest point of a rim is held in derivatives
RING = math.sqrt(0.5)  # of the radius; a ring of this size resists tilting as an elastic cap does


def cap_points(
    radius: jax.typing.ArrayLike, half_length: jax.typing.ArrayLike, count: int, dtype: jax.typing.DTypeLike
) -> jax.Array:
    """Place points (2 count, 3) at equal angles on a ring of each cap, within the rim; the lower cap first.

    The points carry a cylinder that stands. Points on the rim itself would brake one that rolls.
    """
    angle = 2.0 * np.pi * np.arange(count) / count
    ring = np.stack([np.cos(angle), np.sin(angle)], axis=1)
    radial = RING * jnp.asarray(radius, dtype) * jnp.asarray(ring, dtype)
    height = jnp.asarray(half_length, dtype) * jnp.ones((count, 1), dtype)
    return jnp.concatenate(
        [jnp.concatenate([radial, -height], axis=1), jnp.concatenate([radial, height], axis=1)]
    )


def rim_points(normal: jax.Array, radius: jax.Array, half_length: jax.Array) -> jax.Array:
    """Find the deepest point along -normal and the one opposite of both rims (4, 3), the lower rim first.

    The pair does not tilt a rim that is all but level, whose deepest point goes around it as rounding says.
    Below a tilt `LEVEL_SINE` its direction is the local x. Derivative: below `HELD` that of points held fast,
    for the direction turns by 1 / tilt.
    """
    side = normal[:2]
    square = dot(side, side)
    side = jnp.where(square > HELD**2, side, jax.lax.stop_gradient(side))
    direction, _ = unit(jnp.where(square > LEVEL_SINE**2, side, 0.0), jnp.zeros_like(side).at[0].set(1.0))
    radial = radius * jnp.stack([-direction, direction])
    height = half_length * jnp.ones((2, 1), normal.dtype)
    return jnp.concatenate([jnp.concatenate([radial, sign * height], axis=1) for sign in (-1.0, 1.0)])


def signed_distance(point: jax.Array, sizes: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Compute the gap of a point (3,) to a cylinder, and the outward unit normal.

    `sizes` (2,) are radius and half length. For a point on the axis whose nearest surface is the side, the
    normal is the local x.
    """
    radial, distance = unit(point[:2], jnp.zeros_like(point[:2]).at[0].set(1.0))
    cap_sign = jnp.where(point[2] >= 0.0, 1.0, -1.0)
    # distances beyond the side and beyond the cap
    excess = jnp.stack([distance - sizes[0], cap_sign * point[2] - sizes[1]])
    sideways = excess[0] > excess[1]
    face = jnp.where(sideways, jnp.array([1.0, 0.0]), jnp.array([0.0, 1.0])).astype(point.dtype)
    corner, length = unit(excess, face)
    # not jnp.max: its derivative searches for the largest again, and finds none if XLA rounds differently
    largest = jnp.where(sideways, excess[0], excess[1])
    at_rim = (jnp.min(excess) > 0.0) & (largest > TOUCHING)
    direction = jnp.where(at_rim, corner, face)
    gap = jnp.where(at_rim, length, largest)
    return gap, jnp.concatenate([direction[0] * radial, (direction[1] * cap_sign)[None]])
