"""Parts of the surface of a difference of cores, and Newton's steps to directions that separate them."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from jaxcontact.geometry.frames import across, dot, unit
from jaxcontact.geometry.support import Couple, gap_along, round_support

# sine of the angle of a triangle without a normal; of the size, length of a side without extent
SLIVER = 1e-8
FLAT_ROUNDINGS = 64.0  # of the rounding of a curvature; one below is zero
UNIT = 1e-3  # by which the square of the length of a direction may differ from one


class Feature(NamedTuple):
    """A part of the difference b - a that is flat in `rank` directions and else follows the ellipsoids."""

    vertices: jax.Array  # (3, 2) int32, its corners as vertices of a and of b
    disc: jax.Array  # () int32: 0 the cap of a, 1 the cap of b, else none
    rank: jax.Array  # () int32: 2 a face, 1 an edge, 0 a point; -1 keeps the direction


def spans(couple: Couple, feature: Feature) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Compute a point of the difference of the vertices, and two directions in which a feature is flat."""
    corners = couple.vertices_b[feature.vertices[:, 1]] - couple.vertices_a[feature.vertices[:, 0]]
    sides = corners[1:] - corners[:1]
    disc = couple.ellipsoids[jnp.clip(feature.disc, 0, 1)].T[:2]
    sides = jnp.where((feature.disc == 0) | (feature.disc == 1), disc, sides)
    return corners[0], sides[0], sides[1]


def curvatures_in(
    couple: Couple, corner: jax.Array, normal: jax.Array, plane: jax.Array
) -> tuple[jax.Array, jax.Array, tuple[jax.Array, jax.Array, jax.Array]]:
    """Compute the support point (3,) over a corner, the heights (2,) of the ellipsoids, and their curvatures.

    The curvatures are the second derivatives by the directions of `plane` (2, 3): of both, the mixed between.
    """
    points, lengths = round_support(couple.ellipsoids, normal)
    # In the plane of the tangents, the curvature of an ellipsoid is E E^T / length - point point^T / length.
    images = jnp.sum(couple.ellipsoids[:, None] * plane[None, :, :, None], axis=2)  # (2, 2, 3)
    inverse = jnp.where(lengths > 0.0, 1.0 / jnp.where(lengths > 0.0, lengths, 1.0), 0.0)
    slopes = dot(points[:, None], plane[None])

    def bend(i: int, k: int) -> jax.Array:
        curvatures = (dot(images[:, i], images[:, k]) - slopes[:, i] * slopes[:, k]) * inverse
        return curvatures[0] + curvatures[1]

    return corner + points[0] + points[1], lengths, (bend(0, 0), bend(0, 1), bend(1, 1))


def step_to_separate(couple: Couple, feature: Feature, normal: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Take one Newton step to the direction that separates a feature most.

    Returns the unit direction (3,), and whether it is a maximum; faces and fixed directions count as maxima.
    """
    corner, first, second = spans(couple, feature)
    face, _ = unit(jnp.cross(first, second), normal)
    face = jnp.where(dot(face, normal) < 0.0, -face, face)
    is_edge = feature.rank == 1
    tangent = across(normal)
    tangent = jnp.where(is_edge, unit(first, tangent)[0], tangent)
    start, _ = unit(normal - dot(normal, tangent) * tangent, normal)
    plane = jnp.stack([tangent, jnp.cross(start, tangent)])
    gradient, lengths, bend = curvatures_in(couple, corner, start, plane)
    height = dot(gradient, start)
    slope_1, slope_2 = jnp.where(is_edge, 0.0, dot(gradient, plane[0])), dot(gradient, plane[1])
    bend_11 = jnp.where(is_edge, 1.0, bend[0] - height)
    bend_12 = jnp.where(is_edge, 0.0, bend[1])
    bend_22 = bend[2] - height
    determinant = bend_11 * bend_22 - bend_12**2
    floats = jnp.finfo(normal.dtype)
    flat = FLAT_ROUNDINGS * floats.eps * (jnp.abs(height) + lengths[0] + lengths[1])
    is_maximum = (determinant > floats.tiny**0.5) & (bend_22 > flat) & (bend_11 > flat)
    inverse = jnp.where(is_maximum, 1.0 / jnp.where(is_maximum, determinant, 1.0), 0.0)
    moved = (
        start
        + (bend_12 * slope_2 - bend_22 * slope_1) * inverse * plane[0]
        + (bend_12 * slope_1 - bend_11 * slope_2) * inverse * plane[1]
    )
    moved, _ = unit(moved, start)
    result = jnp.where(feature.rank == 2, face, jnp.where(feature.rank < 0, normal, moved))
    return result, is_maximum | (feature.rank == 2) | (feature.rank < 0)


def gap_and_excess(couple: Couple, feature: Feature, normal: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Compute the gap along a direction, and by how much the gap of a feature exceeds it."""
    gap = gap_along(couple, normal)
    corner, _, _ = spans(couple, feature)
    return gap, -dot(corner, normal) - jnp.sum(round_support(couple.ellipsoids, normal)[1]) - gap


def has_extent(couple: Couple, features: Feature, spread: jax.Array) -> jax.Array:
    """Test whether edges have a length and faces an area; points have no need of either."""
    _, first, second = jax.vmap(lambda feature: spans(couple, feature))(features)
    cross = jnp.cross(first, second)
    square_1, square_2, shortest = dot(first, first), dot(second, second), (SLIVER * spread) ** 2
    no_length = square_1 <= shortest
    no_area = no_length | (square_2 <= shortest) | (dot(cross, cross) <= SLIVER**2 * square_1 * square_2)
    return ~(((features.rank == 2) & no_area) | ((features.rank == 1) & no_length))
