"""Contacts of all pairs of one kind at once: this module places the shapes and vmaps the closed forms."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxcontact._pytree import PyTree
from jaxcontact.algebra.selection import smallest
from jaxcontact.geometry import cylinders, ellipsoids
from jaxcontact.geometry.balls import Balls, Rows, planes_of, touch_ball, touch_plane
from jaxcontact.geometry.by_kind import of_shapes
from jaxcontact.geometry.frames import dot, frames_of, owners, pose_in_body, products, rows, turned
from jaxcontact.geometry.polytopes import (
    Polytope,
    Topology,
    place_polytopes,
    signed_distance,
    touching_within,
)
from jaxcontact.geometry.separation import reach, segments_apart, separate, touch_polytopes
from jaxcontact.geometry.shapes import Constants, Cylinder, Ellipsoid, HalfSpace, Shape


class PlacedBodies(NamedTuple):
    """The frames of the bodies, the balls placed in the world, and the numbers that shapes read by name."""

    dim: int
    bodies: tuple[str, ...]
    positions: jax.Array
    orientations: jax.Array
    constants: Constants
    balls: Balls | None

    def polytopes(self, shapes: Sequence[Shape]) -> Polytope:
        """Place shapes of one topology in the world; axis 0 is the shape."""
        distinct, index = number_distinct(shapes)
        frames = frames_of(owners(distinct, self.bodies), self.positions, self.orientations)
        solids = place_polytopes(self.dim, distinct, *frames, self.constants)
        return Polytope(*(rows(column, index) for column in solids))


def number_distinct(shapes: Sequence[Shape]) -> tuple[list[Shape], list[int]]:
    """List the distinct shapes, and the number of each in that list."""
    distinct = list(dict.fromkeys(shapes))
    return distinct, [distinct.index(shape) for shape in shapes]


def balls_on_planes(world: PlacedBodies, index: Sequence[int], planes: Sequence[HalfSpace]) -> Rows:
    """Compute the contacts of balls, by their indices, with half-spaces."""
    assert world.balls is not None
    normal, offset = planes_of(planes, world.constants, world.positions.dtype)
    return touch_plane(rows(world.balls.centre, index), rows(world.balls.radius, index), normal, offset)


def balls_on_balls(world: PlacedBodies, first: Sequence[int], second: Sequence[int]) -> Rows:
    """Compute the contacts of balls with balls, by their indices."""
    assert world.balls is not None
    return touch_ball(world.balls, first, second)


def balls_on_polytopes(
    world: PlacedBodies, index: Sequence[int], shapes: Sequence[Shape], kind: Topology, swapped: bool
) -> Rows:
    """Compute the contacts of balls with polytopes of one topology."""
    assert world.balls is not None
    centre, radius = rows(world.balls.centre, index), rows(world.balls.radius, index)
    solids = world.polytopes(shapes)
    distance, normal, foot = jax.vmap(lambda s, point: signed_distance(s, kind, point))(solids, centre)
    phi = distance - radius - solids.radius
    contacts = (
        centre - radius[:, None] * normal,
        foot + solids.radius[:, None] * normal,
        phi,
        normal,
    )
    return _swap(contacts) if swapped else contacts


def polytopes_on_polytopes(
    world: PlacedBodies, first: Sequence[Shape], second: Sequence[Shape], kind_a: Topology, kind_b: Topology
) -> Rows:
    """Compute the contacts of pairs of polytopes, all of the same two topologies."""
    a = world.polytopes(first)
    b = world.polytopes(second)
    return flattened(jax.vmap(lambda x, y: touch_polytopes(x, y, kind_a, kind_b))(a, b))


def nearest_polytopes(
    world: PlacedBodies,
    first: Sequence[Shape],
    second: Sequence[Shape],
    kind_a: Topology,
    kind_b: Topology,
    count: int,
) -> tuple[jax.Array, Rows, jax.Array, jax.Array]:
    """Compute the contacts of the `count` nearest pairs of polytopes, as in `polytopes_on_polytopes`.

    Returns the indices of those pairs, their contacts, the gaps of the contacts of all pairs, and whether a
    pair left out touches. The contacts of a pair left out have the separation of its two shapes as their gap.
    If those shapes touch or overlap, the gap is a length larger than both shapes.
    """
    a, b = world.polytopes(first), world.polytopes(second)
    if a.normals.shape[1] or b.normals.shape[1]:
        _, separation = jax.vmap(lambda x, y: separate(x, y, kind_a, kind_b))(a, b)
    else:
        separation = jax.vmap(segments_apart)(a, b)
    separation = separation - jax.lax.stop_gradient(a.radius + b.radius)
    index = smallest(separation, count)
    nearest_contacts = jax.vmap(lambda x, y: touch_polytopes(x, y, kind_a, kind_b))(
        *jax.tree.map(lambda leaf: leaf[index], (a, b))
    )
    touches = separation <= jnp.max(jax.vmap(touching_within)(a, b))
    gap = jnp.where(touches, jax.lax.stop_gradient(jax.vmap(reach)(a, b)), separation)
    nearest_gaps = nearest_contacts[2]
    gaps = jnp.broadcast_to(gap[:, None], (len(first), nearest_gaps.shape[1])).at[index].set(nearest_gaps)
    return index, flattened(nearest_contacts), gaps.ravel(), jnp.any(touches.at[index].set(False))


def _swap(contacts: Rows) -> Rows:
    return contacts[1], contacts[0], contacts[2], -contacts[3]


def flattened(contacts: PyTree) -> Rows:
    """Reshape (pairs, contacts, ...) to (pairs * contacts, ...)."""
    point, point_b, phi, normal = (column.reshape(-1, *column.shape[2:]) for column in contacts)
    return point, point_b, phi, normal


class _Round(NamedTuple):
    """Cylinders or ellipsoids in the world; axis 0 is the shape."""

    origin: jax.Array  # (n, 3)
    axes: jax.Array  # (n, 3, 3)
    sizes: jax.Array  # (n, 2 or 3)

    def local(self, points: jax.Array) -> jax.Array:
        """Express world points (n, k, 3) in the axes of the shapes."""
        return turned(jnp.swapaxes(self.axes, 1, 2), points - self.origin[:, None])


def _sizes(shape: Cylinder | Ellipsoid, constants: Constants, dtype: jax.typing.DTypeLike) -> jax.Array:
    if isinstance(shape, Ellipsoid):
        return jnp.asarray(constants[shape.semi_axes], dtype)
    return jnp.stack([jnp.asarray(constants[name], dtype) for name in (shape.radius, shape.half_length)])


def _place_round(world: PlacedBodies, shapes: Sequence[Shape]) -> _Round:
    dtype, constants = world.positions.dtype, world.constants
    distinct, index = number_distinct(shapes)

    def pose_and_sizes(
        shape: Cylinder | Ellipsoid, numbers: Constants
    ) -> tuple[jax.Array, jax.Array, jax.Array]:
        return *pose_in_body(shape, 3, numbers, dtype), _sizes(shape, numbers, dtype)

    origin, axes, sizes = (
        column[np.array(index)] for column in of_shapes(pose_and_sizes, distinct, constants)
    )
    position, orientation = frames_of(owners(shapes, world.bodies), world.positions, world.orientations)
    return _Round(
        position + products(orientation, origin), jnp.einsum("nij,njk->nik", orientation, axes), sizes
    )


def balls_on_round(
    world: PlacedBodies, index: Sequence[int], shapes: Sequence[Shape], kind: type, swapped: bool
) -> Rows:
    """Compute the contacts of balls with cylinders, or with ellipsoids."""
    assert world.balls is not None
    centre, radius = rows(world.balls.centre, index), rows(world.balls.radius, index)
    solids = _place_round(world, shapes)
    distance = (cylinders if kind is Cylinder else ellipsoids).signed_distance
    gap, direction = jax.vmap(distance)(solids.local(centre[:, None])[:, 0], solids.sizes)
    normal = products(solids.axes, direction)
    touch = centre - radius[:, None] * normal
    contacts = touch, centre - gap[:, None] * normal, gap - radius, normal
    return _swap(contacts) if swapped else contacts


def round_on_planes(
    world: PlacedBodies, shapes: Sequence[Shape], planes: Sequence[HalfSpace], kind: type
) -> Rows:
    """Compute the contacts of the rims of cylinders (two points each) or ellipsoids with half-spaces."""
    normal, offset = planes_of(planes, world.constants, world.positions.dtype)
    solids = _place_round(world, shapes)
    local_normal = products(jnp.swapaxes(solids.axes, 1, 2), normal)
    if kind is Cylinder:
        local = jax.vmap(cylinders.rim_points)(local_normal, solids.sizes[:, 0], solids.sizes[:, 1])
    else:
        local = jax.vmap(ellipsoids.support)(-local_normal, solids.sizes)[:, None]
    point = solids.origin[:, None] + turned(solids.axes, local)
    phi = dot(normal[:, None], point) - offset[:, None]
    normals = jnp.broadcast_to(normal[:, None], point.shape)
    return flattened((point, point - phi[..., None] * normals, phi, normals))
