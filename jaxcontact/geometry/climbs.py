"""Climbs to the direction that separates two deep cores most. Entry: `climb_where_deep`.

Deep bodies have several best directions, and the polytope may have found another.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from jaxcontact._pytree import PyTree
from jaxcontact.batching.bounded_loop import bounded_loop
from jaxcontact.geometry.features import (
    SLIVER,
    UNIT,
    Feature,
    curvatures_in,
    gap_and_excess,
    has_extent,
    spans,
    step_to_separate,
)
from jaxcontact.geometry.frames import across, dot, unit
from jaxcontact.geometry.support import Couple, gap_along, support

CLIMBS = 4  # directions from which a climb starts
MAX_COSINE = 0.995  # cosine of the smallest angle between them
CLIMB_ROUNDS, CLIMB_NEWTON = 5, 3  # rounds of a climb and Newton steps in each
CLIMB_TILT = 0.1  # rad; a climb starts with the corners of directions so far from its own
# Features of four corners with the first: a point, sides and faces; the corners that the next round keeps.
CLIMBED = np.array([(0, 0, 0), (0, 1, 1), (0, 2, 2), (0, 3, 3), (0, 1, 2), (0, 1, 3), (0, 2, 3)])
CLIMBED_RANKS = np.array([0, 1, 1, 1, 2, 2, 2], np.int32)
DESCENTS, LONGEST_MOVE = 10, 0.5  # damped Newton steps, and the length of the longest, rad
DAMPING = np.array([1.0, 0.5, 0.12, 0.02])
TOP, FACE_ROUNDS = 6, 3  # highest corners of a direction, whose faces are all tried; rounds of that
FACES_OF_TOP = np.array([(i, j, k) for k in range(TOP) for j in range(k) for i in range(j)], np.int32)
KEPT_CORNERS = np.array([(0, 1, 2), (0, 1, 2), (0, 2, 1), (0, 3, 1), (0, 1, 2), (0, 1, 3), (0, 2, 3)])


def circle(count: int) -> np.ndarray:
    """Spread unit vectors (count, 2) over a circle."""
    angles = 2.0 * np.pi * np.arange(count) / count
    return np.stack([np.cos(angles), np.sin(angles)], axis=1)


def _sphere(count: int) -> np.ndarray:
    """Spread unit vectors (count, 3) over the sphere, along a spiral of equal areas."""
    z = 1.0 - (2.0 * np.arange(count) + 1.0) / count
    angle, radius = np.pi * (3.0 - np.sqrt(5.0)) * np.arange(count), np.sqrt(1.0 - z**2)
    return np.stack([radius * np.cos(angle), radius * np.sin(angle), z], axis=1)


MIRRORS = 1.0 - 2.0 * np.array([[k & 1, k >> 1 & 1, k >> 2 & 1] for k in range(1, 8)])
SAMPLES, RING, TRIANGLE = _sphere(128), circle(64), circle(3)


def climb_where_deep(
    couple: Couple, refined: tuple[jax.Array, jax.Array, jax.Array], spread: jax.Array, same: float
) -> tuple[Feature, jax.Array, jax.Array]:
    """Climb from the best of many directions where a round core is deep in another; return the highest end.

    `refined` are directions, the gaps along them, and those of features that are nearest, else -inf. The end
    is a feature, its direction, and its gap, -inf if there is none.
    """
    normals, along, gaps = refined
    is_round = jnp.any(couple.ellipsoids != 0.0)

    def climb(carry: tuple) -> tuple:
        samples = jnp.concatenate([_samples(couple), _mirrored(couple, normals[jnp.argmax(along)])])
        heights = jnp.concatenate([along, jax.vmap(lambda sample: gap_along(couple, sample))(samples)])
        samples = jnp.concatenate([normals, samples])

        def again(_: jax.Array, carry: tuple) -> tuple:
            left, best = carry
            start = samples[jnp.argmax(left)]
            best = _higher(_climb_over_faces(couple, start, spread, same), best)
            best = _higher(_climb(couple, _descend(couple, start), spread, same), best)
            return jnp.where(dot(samples, start[None]) > MAX_COSINE, -jnp.inf, left), best

        return carry[0] + 1, jax.lax.fori_loop(0, CLIMBS, again, (heights, carry[1]))[1]

    corners, none = jnp.zeros((3, 2), jnp.int32), jnp.int32(-1)
    start = jnp.int32(0), (Feature(corners, none, none), normals[0], jnp.full_like(gaps[0], -jnp.inf))
    end: tuple[Feature, jax.Array, jax.Array] = bounded_loop(
        lambda carry: (carry[0] < 1) & is_round & (jnp.max(gaps) < 0.0), climb, start, max_iters=1
    )[1]
    return end


def _descend(couple: Couple, start: jax.Array) -> jax.Array:
    """Move a direction to one that separates more by damped Newton steps, which ends at corners and edges."""

    def descend(_: jax.Array, carry: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        normal, gap = carry
        _, index = support(couple, normal)
        corner = couple.vertices_b[index[1]] - couple.vertices_a[index[0]]
        first = across(normal)
        plane = jnp.stack([first, jnp.cross(normal, first)])
        gradient, _, (xx, xy, yy) = curvatures_in(couple, corner, normal, plane)
        height, slope = dot(gradient, normal), dot(gradient[None], plane)
        xx, yy = xx - height, yy - height
        # The matrix with the eigenvalues of this one, all made positive, times a factor.
        determinant = jnp.abs(xx * yy - xy**2)
        x, y, mixed = xx**2 + xy**2 + determinant, yy**2 + xy**2 + determinant, xy * (xx + yy)
        factor = jnp.sqrt(xx**2 + yy**2 + 2.0 * (xy**2 + determinant))
        divisor = x * y - mixed**2
        inverse = jnp.where(divisor > 0.0, factor / jnp.where(divisor > 0.0, divisor, 1.0), 0.0)
        move = jnp.stack([mixed * slope[1] - y * slope[0], mixed * slope[0] - x * slope[1]]) * inverse
        length = jnp.sqrt(jnp.maximum(dot(move, move), LONGEST_MOVE**2))
        move = (move[:1] * plane[0] + move[1:] * plane[1]) * LONGEST_MOVE / length
        tried, _ = unit(normal[None] + jnp.asarray(DAMPING, move.dtype)[:, None] * move[None], normal)
        gaps = jax.vmap(lambda direction: gap_along(couple, direction))(tried)
        highest = jnp.argmax(gaps)
        is_higher = gaps[highest] > gap
        return jnp.where(is_higher, tried[highest], normal), jnp.where(is_higher, gaps[highest], gap)

    return jax.lax.fori_loop(0, DESCENTS, descend, (start, gap_along(couple, start)))[0]


def _higher(
    x: tuple[Feature, jax.Array, jax.Array], y: tuple[Feature, jax.Array, jax.Array]
) -> tuple[Feature, jax.Array, jax.Array]:
    """Choose the end of the greater gap; the second of two that are equal."""
    higher: tuple[Feature, jax.Array, jax.Array] = jax.tree.map(
        lambda new, old: jnp.where(x[2] > y[2], new, old), x, y
    )
    return higher


def _climb_over_faces(
    couple: Couple, start: jax.Array, spread: jax.Array, same: float
) -> tuple[Feature, jax.Array, jax.Array]:
    """Climb from a direction to the face nearby that separates most; return it as `_climb` does.

    Each round tries the faces of all triples of the highest corners, of the start and then of the best face.
    """
    difference = (couple.vertices_b[None] - couple.vertices_a[:, None]).reshape(-1, 3)
    num_b = len(couple.vertices_b)
    none = Feature(jnp.zeros((3, 2), jnp.int32), jnp.asarray(-1, jnp.int32), jnp.asarray(2, jnp.int32))

    def climb(
        _: jax.Array, best: tuple[Feature, jax.Array, jax.Array]
    ) -> tuple[Feature, jax.Array, jax.Array]:
        heights, top = dot(difference, best[1][None]), []
        for _rank in range(TOP):
            top.append(jnp.argmax(heights))
            away = difference - difference[top[-1]][None]
            heights = jnp.where(dot(away, away) <= (SLIVER * spread) ** 2, -jnp.inf, heights)
        index = jnp.stack(top)[FACES_OF_TOP]
        corners = difference[index]
        first, second = corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0]
        normals = jnp.cross(first, second)
        has_area = dot(normals, normals) > SLIVER**2 * dot(first, first) * dot(second, second)
        normals, _ = unit(normals, best[1])
        normals = jnp.where(dot(normals, best[1][None])[:, None] < 0.0, -normals, normals)
        gaps = jnp.where(has_area, jax.vmap(lambda normal: gap_along(couple, normal))(normals), -jnp.inf)
        highest = jnp.argmax(gaps)
        vertices = jnp.stack([index[highest] // num_b, index[highest] % num_b], axis=1).astype(jnp.int32)
        return _higher((none._replace(vertices=vertices), normals[highest], gaps[highest]), best)

    start_gap = jnp.asarray(-jnp.inf, start.dtype)
    feature, normal, gap = jax.lax.fori_loop(0, FACE_ROUNDS, climb, (none, start, start_gap))
    is_face = gap_and_excess(couple, feature, normal)[1] < same * spread
    return feature, normal, jnp.where(is_face, gap, -jnp.inf)


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

    def climb(count: jax.Array, carry: PyTree) -> PyTree:
        corners, normal, best = carry
        _, index = support(couple, normal)
        four = jnp.concatenate([index[None], corners])
        features = Feature(four[CLIMBED], jnp.full(len(CLIMBED), -1, jnp.int32), jnp.asarray(CLIMBED_RANKS))

        def refine(feature: Feature) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array]:
            refined, is_maximum = jax.lax.fori_loop(
                0,
                CLIMB_NEWTON,
                lambda _, carry: step_to_separate(couple, feature, carry[0]),
                (normal, jnp.asarray(True)),
            )
            gap, excess = gap_and_excess(couple, feature, refined)
            of_four = couple.vertices_b[four[:, 1]] - couple.vertices_a[four[:, 0]]
            below = jnp.max(dot(of_four, refined[None])) - dot(spans(couple, feature)[0], refined)
            return (
                refined,
                gap,
                jnp.where(is_maximum & (below < same * spread), gap + excess, -jnp.inf),
                excess,
            )

        normals, gaps, models, excess = jax.vmap(refine)(features)
        models = jnp.where(has_extent(couple, features, spread), models, -jnp.inf)
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


def _mirrored(couple: Couple, normal: jax.Array) -> jax.Array:
    """Mirror a direction in the planes of symmetry of both ellipsoids; return all 14 mirror images."""
    columns, _ = unit(jnp.swapaxes(couple.ellipsoids, 1, 2), jnp.zeros_like(normal))
    axes = jnp.stack([columns[:, 0], columns[:, 1], jnp.cross(columns[:, 0], columns[:, 1])], axis=1)
    along = dot(axes, normal[None, None])[:, None] * jnp.asarray(MIRRORS, normal.dtype)[None]
    return unit(jnp.einsum("kmi,kij->kmj", along, axes).reshape(-1, 3), normal)[0]


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
