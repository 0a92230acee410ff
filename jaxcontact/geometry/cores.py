"""Contacts of pairs of convex shapes by their support functions: of all pairs, or of the nearest in turn.

A box around each shape bounds the distance of a pair from below. The nearest pairs get their contacts if
their bounds are within `reach`. Where one world is computed at a time one pair follows the other, and a pair
beyond reach costs nothing.
Entries: `cores_on_cores`, `nearest_cores`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxcontact.algebra.selection import smallest
from jaxcontact.batching.world_code import takes_one_at_a_time
from jaxcontact.geometry.balls import Rows, planes_of
from jaxcontact.geometry.frames import dot, frames_of, owners, rows, turned
from jaxcontact.geometry.groups import PlacedBodies, flattened, number_distinct
from jaxcontact.geometry.hulls import touch_half_space
from jaxcontact.geometry.manifold import CONTACTS, touch_couple
from jaxcontact.geometry.shapes import Constants, Cylinder, Ellipsoid, HalfSpace, Shape
from jaxcontact.geometry.support import Core, Couple, boxes_around, cores_in_bodies, place_core

MARGIN = 1e-3  # of the size; a pair within it is never beyond reach


class _Cores(NamedTuple):
    """Cores in the axes of their bodies, with the frames of those; axis 0 is the shape or the pair."""

    core: Core
    radius: jax.Array
    position: jax.Array
    orientation: jax.Array

    def at(self, index: np.ndarray | jax.Array) -> _Cores:
        """Select cores by index."""
        return _Cores(*jax.tree.map(lambda leaf: leaf[index], tuple(self)))


class _Boxes(NamedTuple):
    """Boxes around shapes, in the world; axis 0 is the shape or the pair."""

    centre: jax.Array  # (n, 3)
    axes: jax.Array  # (n, 3, 3), rows
    half: jax.Array  # (n, 3) half of the sizes


def _place_cores(world: PlacedBodies, shapes: Sequence[Shape]) -> _Cores:
    """Compute the cores of shapes and the frames of their bodies."""
    cores, radii = cores_in_bodies(shapes, world.constants, world.positions.dtype)
    return _Cores(cores, radii, *frames_of(owners(shapes, world.bodies), world.positions, world.orientations))


def extents(shapes: Sequence[Shape], constants: Constants, dtype: jax.typing.DTypeLike) -> jax.Array:
    """Bound the distances of points of convex shapes from the origins of their bodies, m, one per shape."""
    centres, _, halves = boxes_around(shapes, constants, dtype)
    return jnp.sqrt(dot(centres, centres)) + jnp.sqrt(dot(halves, halves))


def cores_on_cores(
    world: PlacedBodies,
    first: Sequence[Shape],
    second: Sequence[tuple[Shape, bool]],
) -> Rows:
    """Compute the contacts of pairs of convex shapes by their support functions; a pair may be swapped."""
    (kinds_a, index_a), (kinds_b, index_b) = (
        number_distinct(first),
        number_distinct([shape for shape, _ in second]),
    )
    a, b = _place_cores(world, kinds_a), _place_cores(world, kinds_b)
    has_round = _has_round(first, second)
    contacts = jax.vmap(lambda x, y: _touch(x, y, has_round))(
        a.at(np.array(index_a)), b.at(np.array(index_b))
    )
    swapped = jnp.asarray(np.array([swap for _, swap in second]))
    return _swap_back(contacts, swapped)


def nearest_cores(
    world: PlacedBodies,
    first: Sequence[Shape],
    second: Sequence[tuple[Shape, bool]],
    limits: tuple[int, jax.Array | float | None],
) -> tuple[tuple[jax.Array, Rows, jax.Array, jax.Array], jax.Array, jax.Array]:
    """Compute the contacts of the pairs of convex shapes with the smallest bounds.

    `limits` are the number of pairs and their reach, m.
    Returns as `nearest_polytopes`, with the bound of a pair as its separation: a pair left out whose bound is
    not positive counts as touching. A pair farther apart than its reach keeps its bound, too, as the gap of a
    contact without a place; returns also which contacts have a place, and the least bound without one.
    """
    (kinds_a, of_a), (kinds_b, of_b) = (
        number_distinct(first),
        number_distinct([shape for shape, _ in second]),
    )
    a, b = _place_cores(world, kinds_a), _place_cores(world, kinds_b)
    count, reach = limits
    bound, size = _bound_distances(
        *(
            _Boxes(*(rows(leaf, index) for leaf in _place_boxes(world, kinds)))
            for kinds, index in ((kinds_a, of_a), (kinds_b, of_b))
        )
    )
    index = smallest(bound, count)
    is_near = jnp.ones(count, bool) if reach is None else bound[index] <= reach + MARGIN * size[index]
    chosen_a, chosen_b = (jnp.asarray(np.array(numbers, np.int32))[index] for numbers in (of_a, of_b))
    pair = _Pair(chosen_a, chosen_b, bound[index], size[index], is_near)
    contacts = _touch_near(a, b, pair, _has_round(first, second), is_known=reach is None)
    swapped = jnp.asarray(np.array([swap for _, swap in second]))[index]
    nearest_contacts = _swap_back(contacts, swapped)
    gaps = jnp.broadcast_to(bound[:, None], (len(first), CONTACTS))
    gaps = gaps.at[index].set(nearest_contacts[2].reshape(-1, CONTACTS))
    touches = (bound <= 0.0).at[index].set(False)
    found = index, nearest_contacts, gaps.ravel(), jnp.any(touches)
    unseen = jnp.min(jnp.where(is_near, jnp.inf, bound[index]))
    return found, jnp.repeat(is_near, CONTACTS), unseen


class _Pair(NamedTuple):
    """The numbers of the two shapes of a pair, its bound, the size of its shapes, and whether it is near."""

    first: jax.Array
    second: jax.Array
    bound: jax.Array
    size: jax.Array
    is_near: jax.Array


def _touch_near(a: _Cores, b: _Cores, pairs: _Pair, has_round: bool, is_known: bool) -> Rows:
    """Compute the contacts (k, 9, ...) of pairs of the shapes a and b, without a place for those not near."""

    # Contacts are rows (9, 10) of one array: a scan whose results have no cotangent has no reverse mode.
    def near(pair: _Pair, a: _Cores, b: _Cores) -> jax.Array:
        point_a, point_b, gaps, normal = _touch(a.at(pair.first), b.at(pair.second), has_round)
        return jnp.concatenate([point_a, point_b, normal, gaps[:, None]], axis=1)

    def far(pair: _Pair, a: _Cores, b: _Cores) -> jax.Array:
        gaps = jnp.full(CONTACTS, pair.bound + pair.size).at[0].set(pair.bound)
        up = jnp.zeros((CONTACTS, 3), gaps.dtype).at[:, 2].set(1.0)
        # With the origins of the bodies as points it does not close faster than they move.
        origin_a, origin_b = a.position[pair.first], b.position[pair.second]
        return jnp.concatenate(
            [0.0 * up + origin_a[None], 0.0 * up + origin_b[None], up, gaps[:, None]], axis=1
        )

    def in_turn(pairs: _Pair, a: _Cores, b: _Cores) -> jax.Array:
        def one(_: None, pair: _Pair) -> tuple[None, jax.Array]:
            return None, near(pair, a, b) if is_known else lax.cond(pair.is_near, near, far, pair, a, b)

        return lax.scan(one, None, pairs)[1]

    def at_once(pairs: _Pair, a: _Cores, b: _Cores) -> jax.Array:
        def one(pair: _Pair) -> jax.Array:
            return jnp.where(pair.is_near, near(pair, a, b), far(pair, a, b))

        return jax.vmap(one)(pairs)

    found: jax.Array = lax.cond(takes_one_at_a_time(pairs.first), in_turn, at_once, pairs, a, b)
    return found[..., :3], found[..., 3:6], found[..., 9], found[..., 6:9]


def _place_boxes(world: PlacedBodies, shapes: Sequence[Shape]) -> _Boxes:
    centre, axes, half = boxes_around(shapes, world.constants, world.positions.dtype)
    position, orientation = frames_of(owners(shapes, world.bodies), world.positions, world.orientations)
    boxes = _Boxes(
        position + turned(orientation, centre[:, None])[:, 0],
        turned(orientation, axes),
        half,
    )
    return jax.lax.stop_gradient(boxes)


def _bound_distances(a: _Boxes, b: _Boxes) -> tuple[jax.Array, jax.Array]:
    """Bound the signed distances (n,) of pairs of boxes from below; also return the sizes of the pairs.

    The bound is the largest gap along the axes of both boxes and along the line of their centres.
    """
    between = b.centre - a.centre
    cosines = jnp.abs(dot(a.axes[:, :, None], b.axes[:, None]))
    along_a = jnp.abs(dot(a.axes, between[:, None]))
    along_b = jnp.abs(dot(b.axes, between[:, None]))
    gap_a = along_a - a.half - dot(cosines, b.half[:, None])
    gap_b = along_b - b.half - dot(jnp.swapaxes(cosines, 1, 2), a.half[:, None])
    square = dot(between, between)
    distance = jnp.sqrt(square)
    widths = dot(along_a, a.half) + dot(along_b, b.half)
    on_line = distance - widths / jnp.where(square > 0.0, distance, 1.0)
    bound = jnp.max(jnp.concatenate([gap_a, gap_b, on_line[:, None]], axis=1), axis=1)
    rounding = 8.0 * float(jnp.finfo(bound.dtype).eps)  # of places far from the origin
    bound = bound - rounding * jnp.max(jnp.abs(jnp.concatenate([a.centre, b.centre], axis=1)), axis=1)
    return bound, 2.0 * (jnp.max(a.half, axis=1) + jnp.max(b.half, axis=1))


def _has_round(first: Sequence[Shape], second: Sequence[tuple[Shape, bool]]) -> bool:
    """Test whether a cylinder or ellipsoid is among the shapes of pairs."""
    return any(isinstance(shape, Cylinder | Ellipsoid) for shape in (*first, *(b for b, _ in second)))


def _swap_back(contacts: Rows, swapped: jax.Array) -> Rows:
    """Return contacts (pairs, 9, ...) as rows, with the two bodies of `swapped` pairs exchanged again."""
    points_a, points_b, gaps, normals = flattened(contacts)
    swaps = jnp.repeat(swapped, CONTACTS)[:, None]
    return (
        jnp.where(swaps, points_b, points_a),
        jnp.where(swaps, points_a, points_b),
        gaps,
        jnp.where(swaps, -normals, normals),
    )


def _touch(a: _Cores, b: _Cores, has_round: bool) -> Rows:
    """Compute the contacts of one pair in the axes of the first body, so that its place does not matter."""
    turn = a.orientation.T
    core_b = place_core(b.core, turn @ (b.position - a.position), turn @ b.orientation)
    couple = Couple(a.core.vertices, core_b.vertices, jnp.stack([a.core.ellipsoid, core_b.ellipsoid]))
    point_a, point_b, gap, normal = touch_couple(couple, has_round)
    return (
        a.position[None] + (point_a - a.radius * normal) @ turn,
        a.position[None] + (point_b + b.radius * normal) @ turn,
        gap - a.radius - b.radius,
        normal @ turn,
    )


def hulls_on_planes(world: PlacedBodies, shapes: Sequence[Shape], planes: Sequence[HalfSpace]) -> Rows:
    """Compute the contacts of hulls of many corners with half-spaces."""
    normal, offset = planes_of(planes, world.constants, world.positions.dtype)
    distinct, index = number_distinct(shapes)
    hulls = _place_cores(world, distinct).at(np.array(index))
    return flattened(
        jax.vmap(touch_half_space)(hulls.core.vertices, hulls.position, hulls.orientation, normal, offset)
    )
