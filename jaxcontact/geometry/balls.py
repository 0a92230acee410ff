"""Contacts of balls with half-spaces and with balls.

A ball is a point with a radius: a point or disc or sphere itself, a corner of a box, an end of a capsule, a
vertex of a mesh. Two balls with the same centre, up to rounding, have no normal; then the last axis replaces
the normal, and its derivative is zero. Entry: `place_balls`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxcontact.batching.once import computed_once
from jaxcontact.geometry.by_kind import by_kind
from jaxcontact.geometry.cylinders import cap_points
from jaxcontact.geometry.frames import dot, pose_in_body, products, rows, unit
from jaxcontact.geometry.shapes import (
    WORLD,
    Box,
    Capsule,
    Constants,
    ConvexMesh,
    Cylinder,
    Disc,
    Ellipsoid,
    HalfSpace,
    Points,
    Polygon,
    Shape,
    Sphere,
)

RING_POINTS = 6  # points fixed to each cap of a cylinder


def num_balls(dim: int, shape: Shape) -> int:
    """Count the balls that replace a shape: its points, corners, vertices or ends; 1 for a half-space."""
    if isinstance(shape, Points | Polygon | ConvexMesh):
        return shape.count
    if isinstance(shape, Box):
        return 2**dim if shape.corners is None else len(shape.corners)
    if isinstance(shape, Capsule):
        return 2
    return 2 * RING_POINTS if isinstance(shape, Cylinder) else 1


class Balls(NamedTuple):
    """The balls of all shapes that a pair names; axis 0 is the ball."""

    start: dict[str, int]  # first ball of a shape
    body: tuple[int, ...]
    centre: jax.Array  # (n, dim) in the world
    radius: jax.Array  # (n,)


def _centres(shape: Shape, dim: int, constants: Constants, dtype: jax.typing.DTypeLike) -> jax.Array:
    """Compute the centres (k, dim) in body coordinates of the balls of a shape."""
    assert not isinstance(shape, HalfSpace | Ellipsoid)
    if isinstance(shape, Box):
        half = 0.5 * jnp.asarray(constants[shape.size], dtype)
        corners = range(2**dim) if shape.corners is None else shape.corners
        signs = np.array([[1.0 if k >> axis & 1 else -1.0 for axis in range(dim)] for k in corners])
        local = half[None, :] * jnp.asarray(signs, dtype)
    elif isinstance(shape, Cylinder):
        local = cap_points(constants[shape.radius], constants[shape.half_length], RING_POINTS, dtype)
    elif isinstance(shape, Capsule):
        return jnp.asarray(constants[shape.ends], dtype)
    elif isinstance(shape, Polygon | ConvexMesh):
        return jnp.asarray(constants[shape.vertices], dtype)
    elif shape.at is None:
        return jnp.zeros((1, dim), dtype)
    else:
        return jnp.asarray(constants[shape.at], dtype).reshape(num_balls(dim, shape), dim)
    if shape.at is None and shape.rotation is None:
        return local
    origin, axes = pose_in_body(shape, dim, constants, dtype)
    return origin[None] + local @ axes.T


def place_balls(
    dim: int,
    bodies: tuple[str, ...],
    shapes: Mapping[str, Shape],
    names: Sequence[str],
    positions: jax.Array,
    orientations: jax.Array,
    constants: Constants,
) -> Balls:
    """Place the balls of the named shapes in the world."""
    start: dict[str, int] = {}
    owner: list[int] = []
    dtype = positions.dtype
    for name in names:
        start[name] = len(owner)
        body = getattr(shapes[name], "body", None)
        owner += [WORLD if body is None else bodies.index(body)] * num_balls(dim, shapes[name])

    def balls_of(shape: Shape, numbers: Constants) -> tuple[jax.Array, jax.Array]:
        size = numbers[shape.radius] if isinstance(shape, Disc | Sphere | Capsule) else 0.0
        radius = jnp.broadcast_to(jnp.asarray(size, dtype), (num_balls(dim, shape),))
        return _centres(shape, dim, numbers, dtype), radius

    groups = by_kind(balls_of, [shapes[name] for name in names], constants)
    place = [
        start[names[i]] + k for members, (_, radii) in groups for i in members for k in range(radii.shape[1])
    ]
    order = np.argsort(place).tolist()
    local_centre = rows(jnp.concatenate([centres.reshape(-1, dim) for _, (centres, _) in groups]), order)
    radius = rows(jnp.concatenate([radii.ravel() for _, (_, radii) in groups]), order)
    body_index = [max(body, 0) for body in owner]
    centre = rows(positions, body_index) + products(rows(orientations, body_index), local_centre)
    fixed = np.array(owner) == WORLD
    if fixed.any():
        centre = jnp.where(fixed[:, None], local_centre, centre)
    return Balls(start, tuple(owner), computed_once(centre, in_batches=False), radius)


Rows = tuple[jax.Array, jax.Array, jax.Array, jax.Array]  # point on a, point on b, gap, normal


def planes_of(
    planes: Sequence[HalfSpace], constants: Constants, dtype: jax.typing.DTypeLike
) -> tuple[jax.Array, jax.Array]:
    """Collect the normals (n, dim) and offsets (n,) of half-spaces."""
    distinct = list(dict.fromkeys(planes))
    offsets = [0.0 if plane.offset is None else constants[plane.offset] for plane in distinct]
    offset = rows(jnp.stack([jnp.asarray(x, dtype) for x in offsets]), [distinct.index(p) for p in planes])
    return jnp.asarray(np.array([plane.normal for plane in planes]), dtype), offset


def touch_plane(centre: jax.Array, radius: jax.Array, normal: jax.Array, offset: jax.Array) -> Rows:
    """Compute the contacts of balls with planes; axis 0 is the contact."""
    phi = dot(normal, centre) - offset - radius
    touch = centre - radius[:, None] * normal
    return touch, touch - phi[:, None] * normal, phi, normal


def touch_ball(balls: Balls, first: Sequence[int], second: Sequence[int]) -> Rows:
    """Compute the contacts of balls with balls, by their indices."""
    centre_a, centre_b = rows(balls.centre, first), rows(balls.centre, second)
    radius_a, radius_b = rows(balls.radius, first), rows(balls.radius, second)
    last_axis = jnp.zeros_like(centre_a).at[:, -1].set(1.0)
    normal, distance = computed_once(unit(centre_a - centre_b, last_axis, centre_a), in_batches=False)
    phi = distance - radius_a - radius_b
    return centre_a - radius_a[:, None] * normal, centre_b + radius_b[:, None] * normal, phi, normal
