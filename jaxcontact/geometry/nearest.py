"""The signed distance of two cores, its direction and the nearest points, with one derivative rule.

The signed distance is the greatest gap between the projections on a direction. `expand` finds the direction
up to its tolerance. The triangle of support points of that direction proposes exact directions. Newton's
method on the sphere refines them; two more steps for the best carry the derivatives.
Entry: `nearest_points`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxcontact.geometry.expanding import Summit, expand
from jaxcontact.geometry.frames import across, dot, unit
from jaxcontact.geometry.support import Couple, gap_along, round_support, support

NEWTON = 8  # steps from the tolerance of `expand`
POLISH = 2  # further steps that carry derivatives, exact to second order
# sine of the angle of a triangle without a normal; of the size, length of a side without extent
SLIVER = 1e-8
AROUND = 16  # directions around an edge from which the search may start
FLAT = 64.0  # of the rounding of a curvature; one below is zero
SAME = 1e-10  # of the size, by which the gap of a feature may exceed that of the bodies
STAY = 1e-12  # of the size, by which a refined direction may be worse than the one it comes from
UNIT = 1e-3  # by which the square of the length of a direction may differ from one
CLIMBS = 4  # directions from which a climb starts
APART = 0.995  # cosine of the smallest angle between them
CLIMB_ROUNDS, CLIMB_NEWTON = 5, 3  # rounds of a climb and Newton steps in each
CLIMB_TILT = 0.1  # rad; a climb starts with the corners of directions so far from its own
# Features of four corners with the first: a point, sides and faces; the corners that the next round keeps.
CLIMBED = np.array([(0, 0, 0), (0, 1, 1), (0, 2, 2), (0, 3, 3), (0, 1, 2), (0, 1, 3), (0, 2, 3)])
CLIMBED_RANKS = np.array([0, 1, 1, 1, 2, 2, 2], np.int32)
KEPT_CORNERS = np.array([(0, 1, 2), (0, 1, 2), (0, 2, 1), (0, 3, 1), (0, 1, 2), (0, 1, 3), (0, 2, 3)])
# Corners of the triangle that span a feature: three of a face, two of a side, one of a point.
CORNERS = ((0, 1, 2), (0, 1, 1), (1, 2, 2), (2, 0, 0), (0, 0, 0), (1, 1, 1), (2, 2, 2))

# Three corners of each face of a box, whose corner k is at the upper end of the axes of the bits of k.
BOX_FACES = np.array([(0, 2, 4), (1, 3, 5), (0, 1, 4), (2, 3, 6), (0, 1, 2), (4, 5, 6)], np.int32)


def _circle(count: int) -> np.ndarray:
    """Spread unit vectors (count, 2) over a circle."""
    angles = 2.0 * np.pi * np.arange(count) / count
    return np.stack([np.cos(angles), np.sin(angles)], axis=1)


def _sphere(count: int) -> np.ndarray:
    """Spread unit vectors (count, 3) over the sphere, along a spiral of equal areas."""
    z = 1.0 - (2.0 * np.arange(count) + 1.0) / count
    angle, radius = np.pi * (3.0 - np.sqrt(5.0)) * np.arange(count), np.sqrt(1.0 - z**2)
    return np.stack([radius * np.cos(angle), radius * np.sin(angle), z], axis=1)


SAMPLES, RING, TRIANGLE = _sphere(128), _circle(64), _circle(3)


class Feature(NamedTuple):
    """A part of the difference b - a that is flat in `rank` directions and else follows the ellipsoids."""

    vertices: jax.Array  # (3, 2) int32, its corners as vertices of a and of b
    disc: jax.Array  # () int32: 0 the cap of a, 1 the cap of b, else none
    rank: jax.Array  # () int32: 2 a face, 1 an edge, 0 a point; -1 keeps the direction


class Nearest(NamedTuple):
    """The signed distance of two cores, the unit direction from b to a, the nearest points."""

    gap: jax.Array
    normal: jax.Array  # (3,)
    point_a: jax.Array  # (3,)
    point_b: jax.Array


def _spans(couple: Couple, feature: Feature) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Compute a point of the difference of the vertices, and two directions in which a feature is flat."""
    corners = couple.vertices_b[feature.vertices[:, 1]] - couple.vertices_a[feature.vertices[:, 0]]
    sides = corners[1:] - corners[:1]
    disc = couple.ellipsoids[jnp.clip(feature.disc, 0, 1)].T[:2]
    sides = jnp.where((feature.disc == 0) | (feature.disc == 1), disc, sides)
    return corners[0], sides[0], sides[1]


def _step(couple: Couple, feature: Feature, normal: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Take one Newton step to the direction that separates a feature most.

    Returns the unit direction (3,), and whether it is a maximum; faces and fixed directions count as maxima.
    """
    corner, first, second = _spans(couple, feature)
    face, _ = unit(jnp.cross(first, second), normal)
    face = jnp.where(dot(face, normal) < 0.0, -face, face)
    is_edge = feature.rank == 1
    tangent = across(normal)
    tangent = jnp.where(is_edge, unit(first, tangent)[0], tangent)
    start, _ = unit(normal - dot(normal, tangent) * tangent, normal)
    plane = jnp.stack([tangent, jnp.cross(start, tangent)])
    points, lengths = round_support(couple.ellipsoids, start)
    gradient = corner + points[0] + points[1]
    height = dot(gradient, start)
    # In the plane of the tangents, the curvature of an ellipsoid is E E^T / length - point point^T / length.
    images = jnp.sum(couple.ellipsoids[:, None] * plane[None, :, :, None], axis=2)  # (2, 2, 3)
    inverse = jnp.where(lengths > 0.0, 1.0 / jnp.where(lengths > 0.0, lengths, 1.0), 0.0)
    slopes = dot(points[:, None], plane[None])

    def bend(i: int, k: int) -> jax.Array:
        curvatures = (dot(images[:, i], images[:, k]) - slopes[:, i] * slopes[:, k]) * inverse
        return curvatures[0] + curvatures[1]

    slope_1, slope_2 = jnp.where(is_edge, 0.0, dot(gradient, plane[0])), dot(gradient, plane[1])
    bend_11 = jnp.where(is_edge, 1.0, bend(0, 0) - height)
    bend_12 = jnp.where(is_edge, 0.0, bend(0, 1))
    bend_22 = bend(1, 1) - height
    determinant = bend_11 * bend_22 - bend_12**2
    floats = jnp.finfo(normal.dtype)
    flat = FLAT * floats.eps * (jnp.abs(height) + lengths[0] + lengths[1])
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


def _proposals(couple: Couple, summit: Summit, spread: jax.Array) -> tuple[Feature, jax.Array]:
    """Propose features (n,) that may carry the nearest direction, and directions (n, 3) to start from.

    They come from two triangles of support points and from the axes of discs and segments: deep in a curved
    body many directions are nearly alike, and the triangles may lie at another one.
    """
    normal = summit.normal
    columns = jnp.swapaxes(couple.ellipsoids, 1, 2)
    axes, _ = unit(jnp.cross(columns[:, 0], columns[:, 1]), normal)
    is_disc = jnp.any(columns[:, 0] != 0.0, axis=1) & jnp.all(columns[:, 2] == 0.0, axis=1)
    last_a, last_b = len(couple.vertices_a) - 1, len(couple.vertices_b) - 1
    side, _ = unit(
        jnp.cross(
            couple.vertices_a[last_a] - couple.vertices_a[0], couple.vertices_b[last_b] - couple.vertices_b[0]
        ),
        normal,
    )
    ends = jnp.stack([axes[0], axes[1], -axes[0], -axes[1], normal])
    _, at_ends = jax.vmap(lambda direction: support(couple, direction))(ends)
    segments = np.array(
        [[(0, k), (last_a, k), (last_a, k)] for k in (0, last_b)]
        + [[(k, 0), (k, last_b), (k, last_b)] for k in (0, last_a)]
        + 2 * [[(0, 0), (last_a, 0), (0, last_b)]],
        np.int32,
    )
    num_corners = len(CORNERS)
    ranks = np.array([len(set(corners)) - 1 for corners in CORNERS], np.int32)
    features = Feature(
        jnp.concatenate(
            [
                summit.vertices[np.array(CORNERS)],
                jnp.broadcast_to(at_ends[:, None], (5, 3, 2)),
                summit.lowest[None],
                segments,
            ]
        ),
        jnp.asarray(np.array([-1] * num_corners + [0, 1, 0, 1] + [-1] * 8, np.int32)),
        jnp.concatenate(
            [
                ranks,
                jnp.where(is_disc, 2, -1),
                jnp.where(is_disc, 2, -1),
                jnp.array([-1, 2, 1, 1, 1, 1, 2, 2]),
            ]
        ).astype(jnp.int32),
    )
    starts = jnp.concatenate(
        [
            jnp.broadcast_to(normal[None], (num_corners, 3)),
            ends,
            jnp.broadcast_to(normal[None], (5, 3)),
            jnp.stack([side, -side]),
        ]
    )
    box_faces, outward = _box_faces(couple)
    features = jax.tree.map(lambda x, y: jnp.concatenate([x, y]), features, box_faces)
    starts = jnp.concatenate([starts, outward])
    # An edge or a face without extent keeps its direction.
    has_extent = _has_extent(couple, features, spread)
    return features._replace(rank=jnp.where(has_extent, features.rank, -1)), starts


def _box_faces(couple: Couple) -> tuple[Feature, jax.Array]:
    """Propose the faces of cores that may be boxes, with their directions; other planes are never nearest."""
    vertices, starts = [], []
    for number, corners in enumerate(couple[:2]):
        if len(corners) != 2**3:
            continue
        faces = corners[BOX_FACES]
        middle = jnp.mean(corners, axis=0)
        outward, _ = unit(
            jnp.cross(faces[:, 1] - faces[:, 0], faces[:, 2] - faces[:, 0]),
            jnp.zeros_like(middle).at[2].set(1.0)[None],
        )
        points_out = dot(outward, faces[:, 0] - middle[None])[:, None] > 0.0
        start = jnp.where(points_out == (number == 1), outward, -outward)
        _, index = jax.vmap(lambda direction: support(couple, direction))(start)
        others = jnp.broadcast_to(index[:, None, 1 - number], (len(faces), 3))
        pair = [jnp.asarray(BOX_FACES), others] if number == 0 else [others, jnp.asarray(BOX_FACES)]
        vertices.append(jnp.stack(pair, axis=2))
        starts.append(start)
    if not starts:
        none = jnp.zeros((0, 3, 2), jnp.int32)
        return Feature(none, none[:, 0, 0], none[:, 0, 0]), jnp.zeros((0, 3), couple.vertices_a.dtype)
    count = sum(len(start) for start in starts)
    features = Feature(
        jnp.concatenate(vertices), jnp.full(count, -1, jnp.int32), jnp.full(count, 2, jnp.int32)
    )
    return features, jnp.concatenate(starts)


def _beside_edge(couple: Couple, feature: Feature, normal: jax.Array) -> jax.Array:
    """Return the start of the search over the directions normal to an edge; others keep theirs.

    It is the best of the given direction, of that from the edge to the origin, which round bodies have as
    their nearest, of those beside the axes of discs, whose maxima may be sharp, and of some at equal angles.
    """
    corner, first, _ = _spans(couple, feature)
    along, _ = unit(first, normal)
    tangent = across(along)

    def rejected(vector: jax.Array) -> jax.Array:
        beside = vector - dot(vector, along) * along
        # The direction of a vector along the edge would be one of rounding, and not of length one.
        has_side = dot(beside, beside) > SLIVER**2 * dot(vector, vector)
        return unit(jnp.where(has_side, beside, tangent), tangent)[0]

    circle = jnp.asarray(_circle(AROUND), normal.dtype)
    around = circle[:, :1] * tangent[None] + circle[:, 1:] * jnp.cross(along, tangent)[None]
    axes = jnp.cross(couple.ellipsoids[:, :, 0], couple.ellipsoids[:, :, 1])
    beside = jax.vmap(rejected)(jnp.concatenate([normal[None], -corner[None], axes, -axes]))
    starts = jnp.concatenate([beside, around])
    best = jnp.argmax(jax.vmap(lambda start: gap_along(couple, start))(starts))
    return jnp.where(feature.rank == 1, starts[best], normal)


def _own_excess(couple: Couple, feature: Feature, normal: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Compute the gap along a direction, and by how much the gap of a feature exceeds it."""
    gap = gap_along(couple, normal)
    corner, _, _ = _spans(couple, feature)
    return gap, -dot(corner, normal) - jnp.sum(round_support(couple.ellipsoids, normal)[1]) - gap


def _has_extent(couple: Couple, features: Feature, spread: jax.Array) -> jax.Array:
    """Test whether edges have a length and faces an area; points have no need of either."""
    _, first, second = jax.vmap(lambda feature: _spans(couple, feature))(features)
    cross = jnp.cross(first, second)
    square_1, square_2, shortest = dot(first, first), dot(second, second), (SLIVER * spread) ** 2
    no_length = square_1 <= shortest
    no_area = no_length | (square_2 <= shortest) | (dot(cross, cross) <= SLIVER**2 * square_1 * square_2)
    return ~(((features.rank == 2) & no_area) | ((features.rank == 1) & no_length))


def _climb(
    couple: Couple, start: jax.Array, spread: jax.Array, same: float
) -> tuple[Feature, jax.Array, jax.Array]:
    """Climb from a direction to the one nearby that separates most; return its feature, itself and its gap.

    Each round adds the support point of the direction to three others, and moves to the feature that is
    nearest of these four. The gap is -inf if no round finds a feature that is nearest of all.
    """

    def corners_around(normal: jax.Array, tilt: jax.Array) -> jax.Array:
        first = across(normal)
        beside = TRIANGLE[:, :1] * first[None] + TRIANGLE[:, 1:] * jnp.cross(normal, first)[None]
        return jax.vmap(lambda direction: support(couple, direction)[1])(normal[None] + tilt * beside)

    none = Feature(jnp.zeros((3, 2), jnp.int32), jnp.asarray(-1, jnp.int32), jnp.asarray(-1, jnp.int32))
    best = none, start, jnp.asarray(-jnp.inf, start.dtype)

    def climb(count: jax.Array, carry: Any) -> Any:
        corners, normal, best = carry
        _, index = support(couple, normal)
        four = jnp.concatenate([index[None], corners])
        features = Feature(four[CLIMBED], jnp.full(len(CLIMBED), -1, jnp.int32), jnp.asarray(CLIMBED_RANKS))

        def refine(feature: Feature) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array]:
            refined, is_maximum = jax.lax.fori_loop(
                0,
                CLIMB_NEWTON,
                lambda _, carry: _step(couple, feature, carry[0]),
                (normal, jnp.asarray(True)),
            )
            gap, excess = _own_excess(couple, feature, refined)
            of_four = couple.vertices_b[four[:, 1]] - couple.vertices_a[four[:, 0]]
            below = jnp.max(dot(of_four, refined[None])) - dot(_spans(couple, feature)[0], refined)
            return (
                refined,
                gap,
                jnp.where(is_maximum & (below < same * spread), gap + excess, -jnp.inf),
                excess,
            )

        normals, gaps, models, excess = jax.vmap(refine)(features)
        models = jnp.where(_has_extent(couple, features, spread), models, -jnp.inf)
        nearest = jnp.argmax(models)
        found = models[nearest] > -jnp.inf
        is_unit = jnp.abs(dot(normals[nearest], normals[nearest]) - 1.0) < UNIT
        value = jnp.where(found & is_unit & (excess[nearest] < same * spread), gaps[nearest], -jnp.inf)
        is_better = value > best[2]
        candidate = jax.tree.map(lambda leaf: leaf[nearest], features), normals[nearest], value
        best = jax.tree.map(lambda new, old: jnp.where(is_better, new, old), candidate, best)
        closer = corners_around(normal, CLIMB_TILT * 0.3 ** (count + 1).astype(normal.dtype))
        corners = jnp.where(found, four[jnp.asarray(KEPT_CORNERS)[nearest]], closer)
        return corners, jnp.where(found, normals[nearest], normal), best

    carry = corners_around(start, jnp.asarray(CLIMB_TILT, start.dtype)), start, best
    return jax.lax.fori_loop(0, CLIMB_ROUNDS, climb, carry)[2]


def _samples(couple: Couple) -> jax.Array:
    """Collect directions (n, 3): evenly spread, along axes of ellipsoids, and square to long bodies."""
    dtype = couple.vertices_a.dtype
    last_axis = jnp.zeros(3, dtype).at[2].set(1.0)
    axes, _ = unit(jnp.swapaxes(couple.ellipsoids, 1, 2).reshape(6, 3), last_axis)
    rings = []
    for vertices in couple[:2]:
        away = vertices - vertices[:1]
        farthest = jnp.argmax(dot(away, away))
        away = vertices - vertices[farthest][None]
        long, _ = unit(away[jnp.argmax(dot(away, away))], last_axis)
        first = across(long)
        ring = jnp.asarray(RING, dtype)
        rings.append(ring[:, :1] * first[None] + ring[:, 1:] * jnp.cross(long, first)[None])
    return jnp.concatenate([jnp.asarray(SAMPLES, dtype), axes, -axes, *rings])


def _points(couple: Couple, feature: Feature, normal: jax.Array) -> Nearest:
    """Compute the gap along a direction, and points of a and b on a feature that are that far apart."""
    corner, first, second = _spans(couple, feature)
    rounds, _ = round_support(couple.ellipsoids, normal)
    difference = corner + rounds[0] + rounds[1]
    height = dot(difference, normal)
    beside = height * normal - difference
    is_face, is_edge = feature.rank == 2, feature.rank == 1
    square_1, mixed, square_2 = dot(first, first), dot(first, second), dot(second, second)
    mixed, square_2 = jnp.where(is_edge, 0.0, mixed), jnp.where(is_edge, 1.0, square_2)
    determinant = square_1 * square_2 - mixed**2
    slides = is_face | is_edge
    inverse = jnp.where(slides, 1.0 / jnp.where(slides, determinant, 1.0), 0.0)
    along_1, along_2 = dot(beside, first), jnp.where(is_edge, 0.0, dot(beside, second))
    share_1 = (square_2 * along_1 - mixed * along_2) * inverse
    share_2 = (square_1 * along_2 - mixed * along_1) * inverse
    is_cap = feature.disc >= 0
    shift = jnp.where(is_cap, share_1 * first + share_2 * second, 0.0)
    shares = jnp.stack([1.0 - share_1 - share_2, share_1, share_2])
    # A weight may be negative: a flat part has several triangles, and any of them spans it.
    shares = jnp.where(is_cap, jnp.array([1.0, 0.0, 0.0], normal.dtype), shares)
    on_a = dot(couple.vertices_a[feature.vertices[:, 0]].T, shares[None]) - rounds[0]
    on_b = dot(couple.vertices_b[feature.vertices[:, 1]].T, shares[None]) + rounds[1]
    on_a = on_a - jnp.where(feature.disc == 0, shift, 0.0)
    on_b = on_b + jnp.where(feature.disc == 1, shift, 0.0)
    # If flat parts have several nearest points, those of a and b may differ sideways.
    sideways = on_a - on_b + height * normal
    return Nearest(-height, normal, on_a - 0.5 * sideways, on_b + 0.5 * sideways)


def nearest_points(couple: Couple) -> Nearest:
    """Compute the signed distance of two cores, its direction and the nearest points.

    Derivative: of the feature that is nearest; at a tie between features, of the selected one.
    """
    fixed = jax.lax.stop_gradient(couple)
    spread = jnp.sqrt(jnp.sum(fixed.ellipsoids**2))
    for vertices in fixed[:2]:
        spread += jnp.sum(jnp.max(vertices, axis=0) - jnp.min(vertices, axis=0))
    summit = expand(fixed, spread)
    features, starts = _proposals(fixed, summit, spread)

    same = max(SAME, 16.0 * float(jnp.finfo(spread.dtype).eps))

    def refine(feature: Feature, start: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array]:
        start = _beside_edge(fixed, feature, start)
        normal, is_maximum = jax.lax.fori_loop(
            0, NEWTON, lambda _, carry: _step(fixed, feature, carry[0]), (start, jnp.asarray(True))
        )
        # Around coaxial bodies all directions beside the edge are alike, and none is a maximum.
        stays = ~is_maximum & (feature.rank == 1)
        normal, rank = jnp.where(stays, start, normal), jnp.where(stays, -1, feature.rank)
        gap, excess = _own_excess(fixed, feature, normal)
        # In single precision a direction that degenerates has another length than one.
        is_unit = jnp.abs(dot(normal, normal) - 1.0) < UNIT
        gap = jnp.where(is_unit, gap, -jnp.inf)
        is_nearest = is_unit & (is_maximum | stays) & (excess < same * spread)
        return normal, jnp.where(is_nearest, gap, -jnp.inf), rank, gap

    normals, gaps, ranks, along = jax.vmap(refine)(features, starts)
    features = features._replace(rank=ranks)
    samples = _samples(fixed)
    along = jnp.concatenate([along, jax.vmap(lambda sample: gap_along(fixed, sample))(samples)])
    samples = jnp.concatenate([normals, samples])
    # Deep bodies have several best directions, and the polytope may have found another.
    tops: list[jax.Array] = []
    for _ in range(CLIMBS):
        start = samples[jnp.argmax(along)]
        along = jnp.where(dot(samples, start[None]) > APART, -jnp.inf, along)
        tops.append(start)
    climbed, directions, heights = jax.vmap(lambda top: _climb(fixed, top, spread, same))(jnp.stack(tops))
    features = jax.tree.map(lambda x, y: jnp.concatenate([x, y]), features, climbed)
    normals, gaps = jnp.concatenate([normals, directions]), jnp.concatenate([gaps, heights])
    preference = jnp.where(features.rank < 0, -1.0, jnp.where(features.rank == 2, 0.1, 0.0))
    best = jnp.argmax(gaps + preference * STAY * spread)
    feature = jax.tree.map(lambda leaf: leaf[best], features)
    normal, _ = jax.lax.scan(
        lambda normal, _: (_step(couple, feature, normal)[0], None), normals[best], None, length=POLISH
    )
    return _points(couple, feature, normal)
