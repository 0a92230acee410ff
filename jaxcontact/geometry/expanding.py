"""The signed distance of two cores by an expanding polytope, for cores apart and for overlapping cores.

The polytope lies inside the difference b - a and grows at the part of its surface nearest to the origin: over
a face if the origin is inside, over a point of a triangle if it is outside. All sizes are fixed.
Entry: `expand`.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxcontact.batching.bounded_loop import bounded_loop
from jaxcontact.geometry.frames import across, dot, unit
from jaxcontact.geometry.support import Couple, support
from jaxcontact.tolerances import END_OF_PATH

STEPS = 32  # support points after the first four; random meshes of 100 vertices need 12, cylinders 25
GAIN = 1e-13  # of the size; a support point that gains less ends the search
SINGLE_GAIN = 16.0  # in units of rounding; the same bound in single precision


class Hull(NamedTuple):
    """A polytope inside the difference of two cores."""

    points: jax.Array  # (n, 3)
    vertices: jax.Array  # (n, 2) int32, vertices of a and b that each point came from
    faces: jax.Array  # (f, 3) int32, counter-clockwise from outside
    alive: jax.Array  # (f,) bool


class Summit(NamedTuple):
    """A place at which the surface of a hull is nearest to the origin."""

    gap: jax.Array  # of the two cores along the normal
    normal: jax.Array  # (3,) outward
    vertices: jax.Array  # (3, 2) int32, vertices of a and b of the triangle there
    # (3, 2) int32, the vertices of the triangle whose plane is nearest to the origin or past it
    lowest: jax.Array


def _first_tetrahedron(couple: Couple) -> Hull:
    """Build a tetrahedron of support points; the first two lie along the line of the centres."""
    count, dtype = STEPS + 4, couple.vertices_a.dtype
    both_ways = jax.vmap(lambda direction: support(couple, direction))
    last_axis = jnp.zeros(3, dtype).at[2].set(1.0)
    centres = jnp.mean(couple.vertices_a, axis=0) - jnp.mean(couple.vertices_b, axis=0)
    direction, _ = unit(centres, last_axis)
    points, index = both_ways(jnp.stack([direction, -direction]))
    line = points[1] - points[0]
    for k in (2, 3):
        normal = across(line) if k == 2 else unit(jnp.cross(line, points[2] - points[0]), last_axis)[0]
        pair, pair_index = both_ways(jnp.stack([normal, -normal]))
        away = pair - points[:1]
        rejected = away if k == 3 else jnp.cross(away, line[None])
        size = jnp.abs(dot(rejected, normal[None])) if k == 3 else dot(rejected, rejected)
        farther = jnp.argmax(size)
        points = jnp.concatenate([points, pair[farther][None]])
        index = jnp.concatenate([index, pair_index[farther][None]])
    rises = dot(jnp.cross(line, points[2] - points[0]), points[3] - points[0]) > 0.0
    faces = np.zeros((2 * count - 4, 3), np.int32)
    faces[:4] = [(0, 1, 2), (0, 3, 1), (0, 2, 3), (1, 3, 2)]
    return Hull(
        jnp.zeros((count, 3), dtype).at[:4].set(points),
        jnp.zeros((count, 2), jnp.int32).at[:4].set(index),
        jnp.where(rises, faces[:, ::-1], faces),
        jnp.arange(len(faces)) < 4,
    )


def _nearest_in_triangles(
    corners: jax.Array, normal: jax.Array, offset: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Find the point (f, 3) of each triangle (f, 3, 3) that is nearest to the origin, and if it is within."""
    along = jnp.roll(corners, -1, axis=1) - corners
    foot = offset[:, None] * normal
    side = dot(jnp.cross(along, foot[:, None] - corners), normal[:, None])
    square = dot(along, along)
    share = jnp.clip(-dot(corners, along) / jnp.where(square > 0.0, square, 1.0), 0.0, 1.0)
    feet = corners + share[..., None] * along
    squares = dot(feet, feet)
    nearest = jnp.argmin(squares, axis=1)
    on_edge = jnp.where(
        (nearest == 0)[:, None], feet[:, 0], jnp.where((nearest == 1)[:, None], feet[:, 1], feet[:, 2])
    )
    within = jnp.all(side >= 0.0, axis=1)
    return jnp.where(within[:, None], foot, on_edge), within


def _horizon(
    hull: Hull, heights: jax.Array, level: jax.Array, face: jax.Array, gains: jax.Array
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Find the faces (f,) that a point at `heights` (f,) over them sees, and their border.

    Rounding may choose faces of a nearly flat part that do not form a disc. Then the point sees one face, so
    that the hull stays closed. The border is the points (n,) from which its edges start, and their ends.
    """
    visible = hull.alive & (heights > level) & gains
    ends, number = jnp.roll(hull.faces, -1, axis=1), len(hull.points)
    directed = jnp.zeros((number, number), bool).at[hull.faces, ends].max(visible[:, None])
    # Directed edges of visible faces whose reverse belongs to no visible face are the border.
    border = directed & ~directed.T
    starts, end, length = jnp.any(border, axis=1), jnp.argmax(border, axis=1), jnp.sum(border)
    is_disc = (length == jnp.sum(starts)) & (
        2 * jnp.sum(jnp.any(directed, axis=1)) == length + jnp.sum(visible) + 2
    )
    highest = jnp.where(visible[face], face, jnp.argmax(jnp.where(visible, heights, -jnp.inf)))
    alone = (jnp.arange(len(heights)) == highest) & visible
    is_corner = (jnp.arange(number)[:, None] == hull.faces[highest][None]) & visible[highest]
    starts = jnp.where(is_disc, starts, jnp.any(is_corner, axis=1))
    end = jnp.where(is_disc, end, jnp.sum(jnp.where(is_corner, ends[highest][None], 0), axis=1))
    return jnp.where(is_disc, visible, alone), starts, end.astype(jnp.int32)


def _grow(couple: Couple, size: jax.Array, count: jax.Array, hull: Hull) -> tuple[Hull, Summit, jax.Array]:
    """Find the place of the hull nearest to the origin, and add the support point over it as point `count`.

    The hull does not change if that point gains nothing, or if its arrays are full: return also if it grew.
    """
    eps = float(jnp.finfo(size.dtype).eps)
    corners = hull.points[hull.faces]
    normals = jnp.cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0])
    normals, _ = unit(normals, jnp.zeros_like(normals))
    offsets = dot(normals, corners[:, 0])
    has_area = hull.alive & (dot(normals, normals) > 0.5)
    lowest = jnp.argmin(jnp.where(has_area, offsets, jnp.inf))
    feet, within = _nearest_in_triangles(corners, normals, offsets)
    # Of nearly flat faces, that over the origin is nearer than their edges by less than rounding.
    squares = dot(feet, feet) * jnp.where(within, 1.0 - 8.0 * eps, 1.0)
    closest = jnp.argmin(jnp.where(has_area & (offsets < 4.0 * eps * size), squares, jnp.inf))
    away, distance = unit(-feet[closest], normals[closest])
    is_outside = (offsets[lowest] < 0.0) & (distance > eps**END_OF_PATH * size)
    face = jnp.where(is_outside, closest, lowest)
    normal = jnp.where(is_outside, away, normals[face])
    point, index = support(couple, normal)
    max_points = len(hull.points)
    gains = dot(normal, point - corners[face, 0]) > max(GAIN, SINGLE_GAIN * eps) * size
    gains &= count < max_points
    gains &= ~is_outside | (dot(normal, point - feet[face]) > max(GAIN, SINGLE_GAIN * eps) * size)
    heights = dot(normals, point[None]) - offsets
    visible, starts, end = _horizon(hull, heights, 4.0 * eps * size, face, gains)
    order = jnp.where(starts, jnp.cumsum(starts) - 1, max_points)
    numbers = np.arange(max_points, dtype=np.int32)
    start_of = jnp.zeros(max_points, jnp.int32).at[order].set(numbers, mode="drop")
    free = visible | ~hull.alive
    place = jnp.cumsum(free) - 1
    fills = free & (place < jnp.sum(starts))
    start = start_of[jnp.clip(place, 0, max_points - 1)]
    fan = jnp.stack([start, end[start], jnp.full_like(start, count)], axis=1)
    grown = Hull(
        hull.points.at[count].set(point, mode="drop"),
        hull.vertices.at[count].set(index, mode="drop"),
        jnp.where(fills[:, None], fan, hull.faces),
        (hull.alive & ~visible) | fills,
    )
    triangles = hull.vertices[hull.faces[face]], hull.vertices[hull.faces[lowest]]
    return grown, Summit(-dot(normal, point), normal, *triangles), gains


def expand(couple: Couple, size: jax.Array) -> Summit:
    """Grow a polytope in the difference of two cores; return the best place of its surface that it passes.

    Derivative: none.
    """
    couple, size = jax.lax.stop_gradient((couple, size))
    start = _first_tetrahedron(couple)
    triangle = jnp.zeros((3, 2), jnp.int32)
    rounding = 4.0 * jnp.finfo(size.dtype).eps * size
    summit = Summit(-jnp.inf * jnp.ones_like(size), jnp.zeros_like(start.points[0]), triangle, triangle)

    def grow(carry: tuple[jax.Array, Hull, Summit, jax.Array]) -> tuple[jax.Array, Hull, Summit, jax.Array]:
        count, hull, best, _ = carry
        grown, summit, grew = _grow(couple, size, count, hull)
        # Of equal places the last has the triangle that the hull ends with.
        is_better = summit.gap > best.gap - rounding
        best = jax.tree.map(lambda new, old: jnp.where(is_better, new, old), summit, best)
        return count + 1, grown, best, grew

    carry = jnp.int32(4), start, summit, jnp.asarray(True)
    best: Summit = bounded_loop(lambda carry: carry[3], grow, carry, max_iters=STEPS + 1)[2]
    return best
