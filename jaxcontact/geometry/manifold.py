"""All contacts of two cores: the nearest points, or the corners of the region where flat parts meet.

Support points of slightly tilted directions span a polygon on each core. Each of eight directions across the
normal selects the corner of the common region of the polygons that lies farthest along it, so a contact keeps
its number while the bodies slide, roll and turn a little. Corners that coincide make one contact.
Entry: `touch_couple`.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxcontact.geometry.features import SLIVER
from jaxcontact.geometry.frames import dot, unit
from jaxcontact.geometry.nearest import nearest_points
from jaxcontact.geometry.support import Couple, round_support

DIRECTIONS = 8  # across the normal; at most this many corners of the common region make contacts
CONTACTS = DIRECTIONS + 1  # the nearest points come first
TILT = 0.05  # rad; parts of a surface that lean less from the common tangent plane belong to its polygon
FIRST_ANGLE = 0.2  # rad; no direction is square to the side of a box
SAME_CORNER = 1e-6  # of the size; corners closer than this coincide
LEVEL_DEPTH = 1e-9  # of the size; a corner at the nearest points, as deep up to this tolerance, is them
PARALLEL_DEPTH = 1e-13  # of the size; flat parts as deep up to this are parallel, nearest at corners
PARALLEL_SINE = 1e-6  # sine of the angle between two sides, up to which they do not cross

_ANGLES = FIRST_ANGLE + 2.0 * np.pi * np.arange(DIRECTIONS) / DIRECTIONS
RING = np.stack([np.cos(_ANGLES), np.sin(_ANGLES)], axis=1)


class _Polygon(NamedTuple):
    """Corners of a nearly flat part of a surface, counter-clockwise about the normal; some are repeated."""

    place: jax.Array  # (8, 2) across the normal
    height: jax.Array  # (8,) along the normal

    def plane_at(self, place: jax.Array, tolerance: jax.Array) -> jax.Array:
        """Compute heights (n,) at places (n, 2) of the plane, line or point fitted to the corners."""
        middle, level = jnp.mean(self.place, axis=0), jnp.mean(self.height)
        beside, above = self.place - middle[None], self.height - level
        xx, xy, yy = (jnp.sum(beside[:, i] * beside[:, k]) for i, k in ((0, 0), (0, 1), (1, 1)))
        xz, yz = jnp.sum(beside[:, 0] * above), jnp.sum(beside[:, 1] * above)
        determinant, trace = xx * yy - xy**2, xx + yy
        is_face = determinant > 1e-9 * trace**2
        is_line = trace > tolerance**2
        safe, safe_trace = jnp.where(is_face, determinant, 1.0), jnp.where(is_line, trace, 1.0)
        slope_x = jnp.where(is_face, (yy * xz - xy * yz) / safe, jnp.where(is_line, xz / safe_trace, 0.0))
        slope_y = jnp.where(is_face, (xx * yz - xy * xz) / safe, jnp.where(is_line, yz / safe_trace, 0.0))
        return level + slope_x * (place[:, 0] - middle[0]) + slope_y * (place[:, 1] - middle[1])

    def contains(self, place: jax.Array, tolerance: jax.Array) -> jax.Array:
        """Test whether places (n, 2) lie within the corners, up to `tolerance`."""
        side = jnp.roll(self.place, -1, axis=0) - self.place
        length = jnp.sqrt(dot(side, side))
        beside = place[:, None] - self.place[None]
        left = (side[None, :, 0] * beside[..., 1] - side[None, :, 1] * beside[..., 0]) >= -tolerance * length[
            None
        ]
        extent = jnp.max(self.place @ RING.T.astype(place.dtype), axis=0)[None]
        within = place @ RING.T.astype(place.dtype) <= extent + tolerance
        return jnp.all(left & within, axis=1)


class _Corners(NamedTuple):
    """Corners of the common region of two polygons; axis 0 is the corner."""

    place: jax.Array  # (n, 2)
    height_a: jax.Array  # (n,)
    height_b: jax.Array
    valid: jax.Array


def _polygons(
    couple: Couple, normal: jax.Array, axes: jax.Array, origin: jax.Array, directions: np.ndarray | jax.Array
) -> tuple[_Polygon, _Polygon]:
    """Find the corners of the flat parts of a and b that face one another, by directions (n, 2) across."""
    across = directions.astype(normal.dtype) @ axes
    at_normal, lengths = round_support(couple.ellipsoids, normal)
    at_rim, _ = jax.vmap(lambda direction: round_support(couple.ellipsoids, direction))(across)
    widths = jnp.sqrt(jnp.sum(couple.ellipsoids[:, :, 0] ** 2, axis=1))
    is_cap = jnp.all(couple.ellipsoids[:, :, 2] == 0.0, axis=1) & (lengths < TILT * widths)
    polygons = []
    for k, (vertices, sign) in enumerate(((couple.vertices_a, -1.0), (couple.vertices_b, 1.0))):
        tilted = jax.lax.stop_gradient(sign * normal[None] + TILT * across)
        corner = vertices[jnp.argmax(dot(tilted[:, None], vertices[None]), axis=1)]
        corner = corner + jnp.where(is_cap[k], at_rim[:, k], sign * at_normal[None, k]) - origin[None]
        place = jnp.stack([dot(corner, axis[None]) for axis in axes], axis=1)
        polygons.append(_Polygon(place, dot(corner, normal[None])))
    return polygons[0], polygons[1]


def mark_replaced(
    places: jax.Array, deepest: jax.Array, opposite: jax.Array
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Mark the corner of eight (8, d) nearest to the deepest one, and that nearest to the opposite one.

    The deepest corner of a round part that is all but level goes around it as rounding says. Beside eight
    fixed corners it would tilt the body from step to step; it and the opposite corner, in the place of two,
    do not. Returns two masks (8,), and whether each is as near to what it replaces as in a round part.
    """
    arm = jnp.mean(places, axis=0) - deepest
    near, far = (dot(places - corner[None], places - corner[None]) for corner in (deepest, opposite))
    passed, moved = jnp.argmin(near), jnp.argmin(far)
    # the square of a chord of 26 degrees; on a circle the next of eight corners is within 22.5
    is_round = (jnp.maximum(near[passed], far[moved]) < 0.2 * dot(arm, arm)) & (passed != moved)
    return np.arange(DIRECTIONS) == passed, np.arange(DIRECTIONS) == moved, is_round


def _common_corners(a: _Polygon, b: _Polygon, tolerance: jax.Array) -> _Corners:
    """Find the corners of a within b and of b within a, and the crossings of their sides."""
    side_a, side_b = (jnp.roll(x.place, -1, axis=0) - x.place for x in (a, b))
    rise_a, rise_b = (jnp.roll(x.height, -1, axis=0) - x.height for x in (a, b))

    def cross(u: jax.Array, v: jax.Array) -> jax.Array:
        return u[..., 0] * v[..., 1] - u[..., 1] * v[..., 0]

    between = b.place[None] - a.place[:, None]
    sine = cross(side_a[:, None], side_b[None])
    square_a, square_b = dot(side_a, side_a)[:, None], dot(side_b, side_b)[None]
    crosses = (sine**2 > PARALLEL_SINE**2 * square_a * square_b) & (
        jnp.minimum(square_a, square_b) > tolerance**2
    )
    inverse = jnp.where(crosses, 1.0 / jnp.where(crosses, sine, 1.0), 0.0)
    share_a, share_b = cross(between, side_b[None]) * inverse, cross(between, side_a[:, None]) * inverse
    crosses &= (share_a >= 0.0) & (share_a <= 1.0) & (share_b >= 0.0) & (share_b <= 1.0)
    crossing = a.place[:, None] + share_a[..., None] * side_a[:, None]
    return _Corners(
        jnp.concatenate([a.place, b.place, crossing.reshape(-1, 2)]),
        jnp.concatenate(
            [
                a.height,
                a.plane_at(b.place, tolerance),
                (a.height[:, None] + share_a * rise_a[:, None]).ravel(),
            ]
        ),
        jnp.concatenate(
            [b.plane_at(a.place, tolerance), b.height, (b.height[None] + share_b * rise_b[None]).ravel()]
        ),
        jnp.concatenate([b.contains(a.place, tolerance), a.contains(b.place, tolerance), crosses.ravel()]),
    )


def _opposite_corners(
    couple: Couple,
    flat: tuple[jax.Array, jax.Array, jax.Array],
    parts: tuple[_Polygon, _Polygon],
    middle: jax.Array,
    tolerance: jax.Array,
) -> _Corners:
    """Find the corners of a and of b beyond the middle (2,) of the region, seen from the nearest points."""
    a, b = parts
    away, _ = unit(middle, jnp.array([1.0, 0.0], middle.dtype))
    at_a, at_b = _polygons(couple, *flat, jax.lax.stop_gradient(away)[None])
    return _Corners(
        jnp.concatenate([at_a.place, at_b.place]),
        jnp.concatenate([at_a.height, a.plane_at(at_b.place, tolerance)]),
        jnp.concatenate([b.plane_at(at_a.place, tolerance), at_b.height]),
        jnp.concatenate([b.contains(at_a.place, tolerance), a.contains(at_b.place, tolerance)]),
    )


def _balanced(region: _Corners, opposite: _Corners, is_unique: jax.Array) -> _Corners:
    """Let the nearest points, at place 0, and the opposite corner replace the corners beside them."""
    nearer = jnp.argmin(jnp.where(opposite.valid, dot(opposite.place, opposite.place), jnp.inf))
    other = _Corners(*(leaf[nearer] for leaf in opposite))
    passed, moves, is_round = mark_replaced(region.place, jnp.zeros_like(other.place), other.place)
    swaps = is_round & is_unique & other.valid & jnp.all(region.valid)
    moves = moves & swaps
    return _Corners(
        jnp.where(moves[:, None], other.place[None], region.place),
        jnp.where(moves, other.height_a, region.height_a),
        jnp.where(moves, other.height_b, region.height_b),
        region.valid & ~(passed & swaps),
    )


def axes_across(normal: jax.Array) -> jax.Array:
    """Choose two unit vectors (2, 3) across the normal that turn with the axes of a."""
    axis = jnp.where(jnp.abs(normal[2]) < 0.9, jnp.array([0.0, 0.0, 1.0]), jnp.array([1.0, 0.0, 0.0]))
    first, _ = unit(axis - normal * dot(axis, normal), axis)
    return jnp.stack([first, jnp.cross(normal, first)]).astype(normal.dtype)


def _is_unique(couple: Couple, normal: jax.Array, exact: jax.Array) -> jax.Array:
    """Test whether only one pair of points is nearest: the flat parts at a normal share no direction."""
    shortest = max(SLIVER, 16.0 * float(jnp.finfo(normal.dtype).eps)) ** 2
    _, lengths = round_support(couple.ellipsoids, normal)
    ranks, lines = [], []
    for k, (vertices, sign) in enumerate(((couple.vertices_a, -1.0), (couple.vertices_b, 1.0))):
        heights = sign * dot(vertices, normal[None])
        away = vertices - vertices[jnp.argmax(heights)][None]
        away = jnp.where((heights >= jnp.max(heights) - exact)[:, None], away, 0.0)
        line = away[jnp.argmax(dot(away, away))]
        beside = jnp.cross(line[None], away)
        is_line = dot(line, line) > exact**2
        is_face = is_line & (jnp.max(dot(beside, beside)) > shortest * dot(line, line) ** 2)
        is_face |= jnp.any(couple.ellipsoids[k] != 0.0) & (lengths[k] == 0.0)
        ranks.append(jnp.where(is_face, 2, is_line.astype(jnp.int32)))
        lines.append(line)
    common = jnp.cross(lines[0], lines[1])
    crosses = dot(common, common) > shortest * dot(lines[0], lines[0]) * dot(lines[1], lines[1])
    lower_rank, higher_rank = jnp.minimum(ranks[0], ranks[1]), jnp.maximum(ranks[0], ranks[1])
    return (lower_rank == 0) | ((higher_rank == 1) & crosses)


def touch_couple(couple: Couple, has_round: bool = True) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array]:
    """Compute points on a and b, gaps and normals of `CONTACTS` contacts of two cores in the axes of a.

    A contact that does not count has a gap larger than both cores. The smallest gap is the signed distance.
    Without `has_round` neither core has an ellipsoid.
    """
    nearest = nearest_points(couple, has_round)
    normal, origin = nearest.normal, jax.lax.stop_gradient(nearest.point_b)
    axes = axes_across(normal)
    fixed = jax.lax.stop_gradient(couple)
    size = 2.0 * jnp.sum(jnp.sqrt(jnp.sum(fixed.ellipsoids**2, axis=(1, 2))))
    for vertices in fixed[:2]:
        size += jnp.sum(jnp.max(vertices, axis=0) - jnp.min(vertices, axis=0))
    tolerance = jnp.maximum(SAME_CORNER, 64.0 * float(jnp.finfo(size.dtype).eps)) * size
    parts = _polygons(couple, normal, axes, origin, RING)
    corners = _common_corners(*parts, tolerance)
    along = corners.place @ RING.T.astype(size.dtype)
    chosen = jnp.argmax(jnp.where(corners.valid[:, None], along, -jnp.inf), axis=0)
    region = _Corners(*(leaf[chosen] for leaf in corners))
    distance = region.place[:, None] - region.place[None]
    earlier = np.tril(np.ones((DIRECTIONS, DIRECTIONS), bool), -1)
    coincide = (dot(distance, distance) <= (2.0 * tolerance) ** 2) & earlier & region.valid[None]
    region = region._replace(valid=region.valid & ~jnp.any(coincide, axis=1))
    exact = jnp.maximum(PARALLEL_DEPTH, 16.0 * float(jnp.finfo(size.dtype).eps)) * size
    is_unique = _is_unique(fixed, jax.lax.stop_gradient(normal), exact)
    if has_round or max(len(vertices) for vertices in fixed[:2]) > DIRECTIONS:
        middle = jnp.mean(region.place, axis=0)
        opposite = _opposite_corners(couple, (normal, axes, origin), parts, middle, tolerance)
        region = _balanced(region, opposite, is_unique)
    place, height_a, height_b, valid = region
    excess = height_a - height_b - nearest.gap
    level = LEVEL_DEPTH / SAME_CORNER * tolerance
    # Of parts that are nearly parallel a corner may be all but as deep, and far from the nearest points.
    is_there = valid & (dot(place, place) <= (0.1 * tolerance) ** 2) & (jnp.abs(excess) <= level)
    is_nearest = is_unique & (is_there | (excess < 0.0))
    gap = jnp.where(is_nearest | (excess < -level), nearest.gap, height_a - height_b)
    several = jnp.sum(valid) > 1
    is_deepest = is_there | (valid & ~is_unique & (jnp.abs(excess) <= exact))
    counts = jnp.concatenate([(~several | ~jnp.any(is_deepest))[None], valid & several])
    flat = origin[None] + place[:, :1] * axes[:1] + place[:, 1:] * axes[1:]
    on_b = flat + height_b[:, None] * normal[None]
    # A corner of parts that are not flat may seem deeper than the nearest points: it takes their place.
    takes_nearest = is_unique & (is_there | (excess < -exact))
    on_b = jnp.where(takes_nearest[:, None], nearest.point_b[None], on_b)
    gaps = jnp.concatenate([nearest.gap[None], gap])
    return (
        jnp.concatenate([nearest.point_a[None], on_b + gap[:, None] * normal[None]]),
        jnp.concatenate([nearest.point_b[None], on_b]),
        jnp.where(counts, gaps, jax.lax.stop_gradient(size + jnp.abs(nearest.gap))),
        jnp.broadcast_to(normal[None], (CONTACTS, 3)),
    )
