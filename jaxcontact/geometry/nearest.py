"""The signed distance of two cores, its direction and the nearest points, with one derivative rule.

The signed distance is the greatest gap between the projections on a direction. `expand` finds the direction
up to its tolerance. The triangle of support points of that direction proposes exact directions. Newton's
method on the sphere refines them; two more steps for the best carry the derivatives.
Entry: `nearest_points`.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxcontact.geometry.climbs import circle, climb_where_deep
from jaxcontact.geometry.expanding import Summit, expand
from jaxcontact.geometry.features import (
    SLIVER,
    UNIT,
    Feature,
    gap_and_excess,
    has_extent,
    spans,
    step_to_separate,
)
from jaxcontact.geometry.frames import across, dot, unit
from jaxcontact.geometry.support import Couple, gap_along, round_support, support
from jaxcontact.tolerances import SQUARE, rounding

NEWTON = 8  # steps from the tolerance of `expand`
POLISH = 2  # further steps that carry derivatives, exact to second order
AROUND = 16  # directions around an edge from which the search may start
GAP_EXCESS = 1e-10  # of the size, by which the gap of a feature may exceed that of the bodies
STAY = 1e-12  # of the size, by which a refined direction may be worse than the one it comes from
# Corners of the triangle that span a feature: three of a face, two of a side, one of a point.
CORNERS = ((0, 1, 2), (0, 1, 1), (1, 2, 2), (2, 0, 0), (0, 0, 0), (1, 1, 1), (2, 2, 2))

# Three corners of each face of a box, whose corner k is at the upper end of the axes of the bits of k.
BOX_FACES = np.array([(0, 2, 4), (1, 3, 5), (0, 1, 4), (2, 3, 6), (0, 1, 2), (4, 5, 6)], np.int32)


class NearestPoints(NamedTuple):
    """The signed distance of two cores, the unit direction from b to a, the nearest points."""

    gap: jax.Array
    normal: jax.Array  # (3,)
    point_a: jax.Array  # (3,)
    point_b: jax.Array


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
    is_part = has_extent(couple, features, spread)
    return features._replace(rank=jnp.where(is_part, features.rank, -1)), starts


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
    corner, first, _ = spans(couple, feature)
    along, _ = unit(first, normal)
    tangent = across(along)

    def rejected(vector: jax.Array) -> jax.Array:
        beside = vector - dot(vector, along) * along
        # The direction of a vector along the edge would be one of rounding, and not of length one.
        has_side = dot(beside, beside) > SLIVER**2 * dot(vector, vector)
        return unit(jnp.where(has_side, beside, tangent), tangent)[0]

    turns = jnp.asarray(circle(AROUND), normal.dtype)
    around = turns[:, :1] * tangent[None] + turns[:, 1:] * jnp.cross(along, tangent)[None]
    axes = jnp.cross(couple.ellipsoids[:, :, 0], couple.ellipsoids[:, :, 1])
    beside = jax.vmap(rejected)(jnp.concatenate([normal[None], -corner[None], axes, -axes]))
    starts = jnp.concatenate([beside, around])
    best = jnp.argmax(jax.vmap(lambda start: gap_along(couple, start))(starts))
    return jnp.where(feature.rank == 1, starts[best], normal)


def _points(couple: Couple, feature: Feature, normal: jax.Array) -> NearestPoints:
    """Compute the gap along a direction, and points of a and b on a feature that are that far apart."""
    corner, first, second = spans(couple, feature)
    rounds, _ = round_support(couple.ellipsoids, normal)
    difference = corner + rounds[0] + rounds[1]
    height = dot(difference, normal)
    beside = height * normal - difference
    is_face, is_edge = feature.rank == 2, feature.rank == 1
    square, mixed = dot(first, first), dot(first, second)
    slides = (is_face | is_edge) & (square > 0.0)
    safe_square = jnp.where(slides, square, 1.0)
    # Across the first side: of a sliver the determinant of both sides would have no digits.
    across = second - (mixed / safe_square) * first
    width = dot(across, across)
    is_wide = is_face & (width > rounding(width.dtype, SQUARE) * square)
    share_2 = jnp.where(is_wide, dot(beside, across) / jnp.where(is_wide, width, 1.0), 0.0)
    share_1 = jnp.where(slides, (dot(beside, first) - mixed * share_2) / safe_square, 0.0)
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
    return NearestPoints(-height, normal, on_a - 0.5 * sideways, on_b + 0.5 * sideways)


def nearest_points(couple: Couple, has_round: bool = True) -> NearestPoints:
    """Compute the signed distance of two cores, its direction and the nearest points.

    Without `has_round` neither core has an ellipsoid, and the program is shorter.

    Derivative: of the feature that is nearest; at a tie between features, of the selected one.
    """
    fixed = jax.lax.stop_gradient(couple)
    spread = jnp.sqrt(jnp.sum(fixed.ellipsoids**2))
    for vertices in fixed[:2]:
        spread += jnp.sum(jnp.max(vertices, axis=0) - jnp.min(vertices, axis=0))
    summit = expand(fixed, spread)
    features, starts = _proposals(fixed, summit, spread)

    same = max(GAP_EXCESS, 16.0 * float(jnp.finfo(spread.dtype).eps))

    def refine(feature: Feature, start: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array]:
        start = _beside_edge(fixed, feature, start)
        normal, is_maximum = jax.lax.fori_loop(
            0, NEWTON, lambda _, carry: step_to_separate(fixed, feature, carry[0]), (start, jnp.asarray(True))
        )
        # Around coaxial bodies all directions beside the edge are alike, and none is a maximum.
        stays = ~is_maximum & (feature.rank == 1)
        normal, rank = jnp.where(stays, start, normal), jnp.where(stays, -1, feature.rank)
        gap, excess = gap_and_excess(fixed, feature, normal)
        # In single precision a direction that degenerates has another length than one.
        is_unit = jnp.abs(dot(normal, normal) - 1.0) < UNIT
        gap = jnp.where(is_unit, gap, -jnp.inf)
        is_nearest = is_unit & (is_maximum | stays) & (excess < same * spread)
        return normal, jnp.where(is_nearest, gap, -jnp.inf), rank, gap

    normals, gaps, ranks, along = jax.vmap(refine)(features, starts)
    features = features._replace(rank=ranks)
    if has_round:
        climbed = climb_where_deep(fixed, (normals, along, gaps), spread, same)
        features, normals, gaps = jax.tree.map(
            lambda x, y: jnp.concatenate([x, y[None]]), (features, normals, gaps), climbed
        )
    preference = jnp.where(features.rank < 0, -1.0, jnp.where(features.rank == 2, 0.1, 0.0))
    best = jnp.argmax(gaps + preference * STAY * spread)
    feature = jax.tree.map(lambda leaf: leaf[best], features)
    normal, _ = jax.lax.scan(
        lambda normal, _: (step_to_separate(couple, feature, normal)[0], None),
        normals[best],
        None,
        length=POLISH,
    )
    return _points(couple, feature, normal)
