"""Convex bodies by support functions: the hull of a few vertices, thickened by an ellipsoid and a ball.

A capsule is two vertices and a ball, a cylinder two vertices and a disc, an ellipsoid one vertex and itself,
a box eight vertices, a mesh its hull. `gap_along` is at most the signed distance for every direction, and
equals it for the best one. Entries: `cores_in_bodies`, `support`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxcontact.geometry.by_kind import of_shapes
from jaxcontact.geometry.frames import across, dot, pose_in_body, unit
from jaxcontact.geometry.shapes import Box, Capsule, Constants, ConvexMesh, Cylinder, Ellipsoid, Shape

FLAT_ROUNDING = 64.0  # in units of rounding: sine of the tilt below which a direction is the axis of a disc


class Core(NamedTuple):
    """A convex body without its ball: the sum of a hull of vertices and of the image of a unit ball."""

    vertices: jax.Array  # (nv, 3), some of them repeated
    ellipsoid: jax.Array  # (3, 3), its columns are semi-axes; zero without one, the last zero for a disc


def num_vertices(shape: Shape) -> int:
    """Count the vertices of the core of a shape, rounded up so that many shapes share one program."""
    if not isinstance(shape, ConvexMesh):
        return 8
    return max(8, 4 ** int(np.ceil(np.log(shape.count) / np.log(4.0) - 1e-9)))


def core_in_body(shape: Shape, constants: Constants, dtype: jax.typing.DTypeLike) -> tuple[Core, jax.Array]:
    """Build the core of a shape in the axes of its body; also return the radius of its ball."""
    zero, no_ellipsoid = jnp.zeros((), dtype), jnp.zeros((3, 3), dtype)
    if isinstance(shape, ConvexMesh):
        return Core(jnp.asarray(constants[shape.vertices], dtype), no_ellipsoid), zero
    if isinstance(shape, Capsule):
        radius = jnp.asarray(constants[shape.radius], dtype)
        return Core(jnp.asarray(constants[shape.ends], dtype), no_ellipsoid), radius
    assert isinstance(shape, Box | Cylinder | Ellipsoid)
    origin, axes = pose_in_body(shape, 3, constants, dtype)
    if isinstance(shape, Ellipsoid):
        return Core(origin[None], axes * jnp.asarray(constants[shape.semi_axes], dtype)[None]), zero
    if isinstance(shape, Cylinder):
        half = jnp.asarray(constants[shape.half_length], dtype) * axes[:, 2]
        radii = jnp.asarray(constants[shape.radius], dtype) * jnp.array([1.0, 1.0, 0.0], dtype)
        return Core(jnp.stack([origin - half, origin + half]), axes * radii[None]), zero
    assert isinstance(shape, Box)
    signs = np.array([[1.0 if k >> axis & 1 else -1.0 for axis in range(3)] for k in range(8)])
    half = 0.5 * jnp.asarray(constants[shape.size], dtype)
    return Core(origin[None] + (half[None] * jnp.asarray(signs, dtype)) @ axes.T, no_ellipsoid), zero


def cores_in_bodies(
    shapes: Sequence[Shape], constants: Constants, dtype: jax.typing.DTypeLike
) -> tuple[Core, jax.Array]:
    """Build cores in the axes of their bodies, and radii; axis 0 is the shape.

    All have as many vertices as the largest needs: some are repeated.
    """
    count = max(num_vertices(shape) for shape in shapes)

    def padded(shape: Shape, numbers: Constants) -> tuple[Core, jax.Array]:
        core, radius = core_in_body(shape, numbers, dtype)
        repeated = np.minimum(np.arange(count), len(core.vertices) - 1)
        return core._replace(vertices=core.vertices[repeated]), radius

    cores: tuple[Core, jax.Array] = of_shapes(padded, shapes, constants)
    return cores


def place_core(core: Core, position: jax.Array, orientation: jax.Array) -> Core:
    """Place a core in the world, from the frame of its body."""
    return Core(position[None] + core.vertices @ orientation.T, orientation @ core.ellipsoid)


class Couple(NamedTuple):
    """Two cores a and b, whose difference b - a is searched."""

    vertices_a: jax.Array  # (na, 3)
    vertices_b: jax.Array  # (nb, 3)
    ellipsoids: jax.Array  # (2, 3, 3)


def round_support(ellipsoids: jax.Array, direction: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Find the points (2, 3) of two ellipsoids farthest along `direction` (3,), and their heights (2,).

    A height is the product x . direction of a point x with the centre at the origin. For a disc and its
    axis, along which all points are equally far, both are zero.
    """
    scaled = jnp.sum(ellipsoids * direction[None, :, None], axis=1)
    square = dot(scaled, scaled)
    rounding = FLAT_ROUNDING * jnp.finfo(direction.dtype).eps
    spread = jax.lax.stop_gradient(jnp.sum(ellipsoids**2, axis=(1, 2)))
    curved = square > rounding**2 * spread
    length = jnp.sqrt(jnp.where(curved, square, 1.0))
    share = scaled * jnp.where(curved, 1.0 / length, 0.0)[:, None]
    return dot(ellipsoids, share[:, None]), jnp.where(curved, length, 0.0)


def support(couple: Couple, direction: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Find the point (3,) of b - a farthest along `direction` (3,), and its vertices (2,) of a and b."""
    vertex_a = jnp.argmin(dot(couple.vertices_a, direction[None]))
    vertex_b = jnp.argmax(dot(couple.vertices_b, direction[None]))
    of_vertices = couple.vertices_b[vertex_b] - couple.vertices_a[vertex_a]
    of_ellipsoids, _ = round_support(couple.ellipsoids, direction)
    index = jnp.stack([vertex_a, vertex_b]).astype(jnp.int32)
    return of_vertices + of_ellipsoids[0] + of_ellipsoids[1], index


def gap_along(couple: Couple, direction: jax.Array) -> jax.Array:
    """Compute the gap between the projections of a and b on a unit direction (3,) from b to a."""
    nearest_a = jnp.min(dot(couple.vertices_a, direction[None]))
    farthest_b = jnp.max(dot(couple.vertices_b, direction[None]))
    return nearest_a - farthest_b - jnp.sum(round_support(couple.ellipsoids, direction)[1])


def boxes_around(
    shapes: Sequence[Shape], constants: Constants, dtype: jax.typing.DTypeLike
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Compute boxes around shapes in their bodies: centres (n, 3), axes (n, 3, 3) as rows, half sizes (n, 3).

    The axes are those of the shape, of a capsule its own, of a mesh those of its body.
    """

    def own_axes(shape: Shape, numbers: Constants) -> jax.Array:
        if isinstance(shape, Capsule):
            ends = jnp.asarray(numbers[shape.ends], dtype)
            along, _ = unit(ends[1] - ends[0], jnp.zeros(3, dtype).at[2].set(1.0))
            beside = across(along)
            return jnp.stack([along, beside, jnp.cross(along, beside)])
        if isinstance(shape, ConvexMesh):
            return jnp.eye(3, dtype=dtype)
        assert isinstance(shape, Box | Cylinder | Ellipsoid)
        return pose_in_body(shape, 3, numbers, dtype)[1].T

    cores, radius = cores_in_bodies(shapes, constants, dtype)
    axes = of_shapes(own_axes, shapes, constants)
    places = dot(cores.vertices[:, :, None], axes[:, None])
    lower, upper = jnp.min(places, axis=1), jnp.max(places, axis=1)
    columns = dot(jnp.swapaxes(cores.ellipsoid, 1, 2)[:, :, None], axes[:, None])
    half = 0.5 * (upper - lower) + jnp.sqrt(jnp.sum(columns**2, axis=1)) + radius[:, None]
    middle = 0.5 * (lower + upper)
    return dot(jnp.swapaxes(axes, 1, 2), middle[:, None]), axes, half
