"""Contacts of two polytopes: each vertex of one against the other, and in space each pair of edges.

The number and order of the contacts never change; a masked contact has a gap larger than both shapes.
Support functions give the separation of the polytopes. Entry: `touch_polytopes`.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxcontact._pytree import PyTree
from jaxcontact.geometry.frames import dot
from jaxcontact.geometry.polytopes import Polytope, Topology, rounding_of, signed_distance, touching_within

OUTWARD = 0.1  # sine by which the normal of two edges may leave their faces' normals: planks that fall flat
MIN_COSINE = 0.9  # minimum cosine between the normal of two edges and the direction of separation
FEW_VERTICES = 16  # vertices; up to this number the extent is computed entry by entry
PARALLEL_ROUNDINGS = 16.0  # in units of rounding: squared sine below which two edges are parallel


class CoreContacts(NamedTuple):
    """Contacts of two cores; axis 0 is the contact, the normal points from b to a."""

    point_a: jax.Array
    point_b: jax.Array
    gap: jax.Array
    normal: jax.Array
    valid: jax.Array


def touch_polytopes(
    a: Polytope, b: Polytope, kind_a: Topology, kind_b: Topology
) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array]:
    """Compute points on a and b, gaps and normals of all contacts of two polytopes.

    The order is: vertices of a, vertices of b, edges of a by edges of b. If the separation is above
    `touching_within`, the gap of a vertex is its true distance to the other polytope. Else the polytopes
    touch or overlap: then the gap of a vertex is its height over the face whose normal is most along the
    direction of separation. A vertex beside that face is masked, so neither a rim nor the far side makes a
    contact. Two edges make a contact if they cross within both, and their common normal points outward of
    both.
    """
    # Capsules have no faces to fall flat on, and may be as short as the distance that counts as touching.
    has_faces = len(a.normals) or len(b.normals)
    tolerance = touching_within(a, b) if has_faces else rounding_of(a, b)
    towards_a, separation = separate(a, b, kind_a, kind_b)
    cores_apart = separation > tolerance
    contacts = list(_vertices(a, b, kind_a, kind_b, towards_a, cores_apart, tolerance))
    if kind_a.crossing and kind_b.crossing:
        contacts.append(_edges(a, b, kind_a, kind_b, towards_a, cores_apart, tolerance))
    core = CoreContacts(*(jnp.concatenate(column) for column in zip(*contacts, strict=True)))
    masked_gap = reach(a, b)
    return (
        core.point_a - a.radius * core.normal,
        core.point_b + b.radius * core.normal,
        jnp.where(core.valid, core.gap - a.radius - b.radius, masked_gap),
        core.normal,
    )


def reach(a: Polytope, b: Polytope) -> jax.Array:
    """Compute a length, m, larger than the distance of any two points of two polytopes; no derivative."""
    vertices = jnp.concatenate([a.vertices, b.vertices])
    if len(vertices) > FEW_VERTICES:
        spread = jnp.max(vertices, axis=0) - jnp.min(vertices, axis=0)
    else:  # entry by entry: small reductions are slow
        spread = functools.reduce(jnp.maximum, vertices) - functools.reduce(jnp.minimum, vertices)
    return jax.lax.stop_gradient(dot(spread, jnp.ones_like(spread)) + 2.0 * (a.radius + b.radius))


def segments_apart(a: Polytope, b: Polytope) -> jax.Array:
    """Compute the distance of the cores of two capsules in space, at their crossing or from an end.

    Derivative: none.
    """
    a, b = jax.lax.stop_gradient((a, b))
    first, second = a.vertices[1] - a.vertices[0], b.vertices[1] - b.vertices[0]
    between = a.vertices[0] - b.vertices[0]
    along, crossed, across = dot(first, first), dot(first, second), dot(second, second)
    ahead, behind = dot(first, between), dot(second, between)

    def share(numerator: jax.Array, denominator: jax.Array) -> jax.Array:
        positive = denominator > 0.0
        return jnp.where(positive, jnp.clip(numerator / jnp.where(positive, denominator, 1.0), 0.0, 1.0), 0.0)

    def square(on_a: PyTree, on_b: PyTree) -> jax.Array:
        apart = between + on_a * first - on_b * second
        return dot(apart, apart)

    crossing = share(crossed * behind - ahead * across, along * across - crossed**2)
    squares = [square(end, share(crossed * end + behind, across)) for end in (crossing, 0.0, 1.0)]
    squares += [square(share(crossed * end - ahead, along), end) for end in (0.0, 1.0)]
    return jnp.sqrt(functools.reduce(jnp.minimum, squares))


def separate(a: Polytope, b: Polytope, kind_a: Topology, kind_b: Topology) -> tuple[jax.Array, jax.Array]:
    """Find the unit direction (dim,) from b to a with the largest separation of two cores; return both.

    The separation along n is s(n) = min over a of n.x - max over b of n.x. Its maximum is at a normal of the
    Minkowski difference: the normal of a face or of a pair of edges. For overlapping cores it is minus the
    depth. Two segments in space count as apart. Neither result has a derivative.
    """
    a, b = jax.lax.stop_gradient((a, b))
    axes = [b.normals, -a.normals]
    if not len(a.normals) and not len(b.normals):
        return jnp.zeros_like(a.vertices[0]).at[-1].set(1.0), jnp.asarray(jnp.inf, a.vertices.dtype)
    if kind_a.directions and kind_b.directions:
        first, second = (_along(s, k.edges, k.directions) for s, k in ((a, kind_a), (b, kind_b)))
        common, skew = _common_normals(first, second)
        common = jnp.where(skew[..., None], common, 0.0).reshape(-1, 3)
        axes += [common, -common]
    candidates = jnp.concatenate(axes)
    over_a, over_b = (dot(candidates[:, None], solid.vertices[None]) for solid in (a, b))
    separations = jnp.min(over_a, axis=1) - jnp.max(over_b, axis=1)
    separations = jnp.where(dot(candidates, candidates) > 0.5, separations, -jnp.inf)
    widest = jnp.argmax(separations)
    return candidates[widest], separations[widest]


def _along(solid: Polytope, edges: tuple[tuple[int, int], ...], index: tuple[int, ...]) -> jax.Array:
    chosen = np.array(edges)[np.array(index)]
    return solid.vertices[chosen[:, 1]] - solid.vertices[chosen[:, 0]]


def _common_normals(first: jax.Array, second: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Compute unit vectors (k, m, 3) perpendicular to pairs of edges, and whether a pair is not parallel."""
    common = jnp.cross(first[:, None], second[None])
    square = dot(common, common)
    scale = dot(first, first)[:, None] * dot(second, second)[None]
    skew = square > PARALLEL_ROUNDINGS * jnp.finfo(common.dtype).eps * scale
    length = jnp.sqrt(jnp.where(skew, square, 1.0))
    last_axis = jnp.zeros_like(common).at[..., -1].set(1.0)
    return jnp.where(skew[..., None], common / length[..., None], last_axis), skew


def _vertices(
    a: Polytope,
    b: Polytope,
    kind_a: Topology,
    kind_b: Topology,
    towards_a: jax.Array,
    cores_apart: jax.Array,
    tolerance: jax.Array,
) -> tuple[CoreContacts, CoreContacts]:
    """Compute the contacts of the vertices of a with b, and of b with a.

    Two vertices that meet make one contact, that of a.
    """
    points_a, points_b = a.vertices[np.array(kind_a.vertices)], b.vertices[np.array(kind_b.vertices)]
    gap_a, out_b, foot_b, valid_a = _contacts_over(b, kind_b, points_a, towards_a, cores_apart, tolerance)
    gap_b, out_a, foot_a, valid_b = _contacts_over(a, kind_a, points_b, -towards_a, cores_apart, tolerance)
    meet = _coincide(foot_b[:, None], points_b[None], tolerance) & _coincide(
        points_a[:, None], foot_a[None], tolerance
    )
    valid_b = valid_b & ~jnp.any(meet & valid_a[:, None], axis=0)
    return (
        CoreContacts(points_a, foot_b, gap_a, out_b, valid_a),
        CoreContacts(foot_a, points_b, gap_b, -out_a, valid_b),
    )


def _coincide(x: jax.Array, y: jax.Array, tolerance: jax.Array) -> jax.Array:
    return dot(x - y, x - y) <= (2.0 * tolerance) ** 2


def _contacts_over(
    solid: Polytope,
    kind: Topology,
    points: jax.Array,
    outward: jax.Array,
    cores_apart: jax.Array,
    tolerance: jax.Array,
) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array]:
    """Compute gap, outward normal, foot and validity of points (k, dim) that lie `outward` of a polytope."""
    gap, normal, foot = jax.vmap(lambda point: signed_distance(solid, kind, point))(points)
    if not len(solid.normals):
        return gap, normal, foot, jnp.broadcast_to(cores_apart, gap.shape)
    face = jnp.argmax(dot(solid.normals, outward[None]))
    direction = solid.normals[face]
    height = dot(points, direction[None]) - solid.offsets[face]
    below = points - height[:, None] * direction[None]
    inside = jnp.max(dot(below[:, None], solid.normals[None]) - solid.offsets[None], axis=1) <= tolerance
    return (
        jnp.where(cores_apart, gap, height),
        jnp.where(cores_apart, normal, direction[None]),
        jnp.where(cores_apart, foot, below),
        cores_apart | inside,
    )


def _edges(
    a: Polytope,
    b: Polytope,
    kind_a: Topology,
    kind_b: Topology,
    towards_a: jax.Array,
    cores_apart: jax.Array,
    tolerance: jax.Array,
) -> CoreContacts:
    """Compute the contacts of each edge of a with each edge of b; a contact is valid if the two cross."""
    start_a = a.vertices[np.array(kind_a.edges)[np.array(kind_a.crossing), 0]][:, None]
    start_b = b.vertices[np.array(kind_b.edges)[np.array(kind_b.crossing), 0]][None]
    first, second = _along(a, kind_a.edges, kind_a.crossing), _along(b, kind_b.edges, kind_b.crossing)
    normal, skew = _common_normals(first, second)
    outward, usable = _outward(a, b, kind_a, kind_b, start_a - start_b)
    normal = jnp.where(dot(normal, outward)[..., None] >= 0.0, normal, -normal)
    # Parameters of the closest points of two lines, from determinants.
    cross = jnp.cross(first[:, None], second[None])
    square = jnp.where(skew, dot(cross, cross), 1.0)
    between = start_b - start_a
    share_a = jnp.where(skew, dot(jnp.cross(between, second[None]), cross) / square, 0.5)
    share_b = jnp.where(skew, dot(jnp.cross(between, first[:, None]), cross) / square, 0.5)
    point_a = start_a + jnp.clip(share_a, 0.0, 1.0)[..., None] * first[:, None]
    point_b = start_b + jnp.clip(share_b, 0.0, 1.0)[..., None] * second[None]
    gap = dot(point_a - point_b, normal)
    within = _within(share_a, first[:, None], tolerance) & _within(share_b, second[None], tolerance)
    valid = skew & usable & within & _leaves(a, kind_a, -normal, 0) & _leaves(b, kind_b, normal, 1)
    if len(a.normals) or len(b.normals):
        valid &= (dot(normal, towards_a[None, None]) >= MIN_COSINE) & ~(cores_apart & (gap < 0.0))
    flat = [column.reshape(-1, *column.shape[2:]) for column in (point_a, point_b, gap, normal, valid)]
    return CoreContacts(*flat)


def _within(share: jax.Array, along: jax.Array, tolerance: jax.Array) -> jax.Array:
    """Test whether a crossing lies between the ends of an edge; at an end the vertex makes the contact."""
    margin = tolerance / jnp.sqrt(jnp.maximum(dot(along, along), tolerance**2))
    return (share > margin) & (share < 1.0 - margin)


def _sides(solid: Polytope, kind: Topology) -> tuple[jax.Array, jax.Array]:
    """Select the normals (k, 3) of the two faces at each edge that makes contacts."""
    faces = np.array(kind.edge_faces)[np.array(kind.crossing)]
    return solid.normals[faces[:, 0]], solid.normals[faces[:, 1]]


def _outward(
    a: Polytope, b: Polytope, kind_a: Topology, kind_b: Topology, from_b_to_a: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Compute directions (k, m, 3) out of edges of b into those of a.

    Returns them, and whether the two faces at both edges form angles.
    """
    outward, usable = jnp.zeros_like(from_b_to_a), jnp.asarray(True)
    level = 1.0 - max(1e-8, 4.0 * float(jnp.finfo(from_b_to_a.dtype).eps))
    for solid, kind, axis, sign in ((a, kind_a, 0, -1.0), (b, kind_b, 1, 1.0)):
        if len(solid.normals):
            first, second = _sides(solid, kind)
            outward = outward + sign * jnp.expand_dims(first + second, 1 - axis)
            usable = usable & jnp.expand_dims(dot(first, second) < level, 1 - axis)
    return (outward, usable) if len(a.normals) or len(b.normals) else (from_b_to_a, usable)


def _leaves(solid: Polytope, kind: Topology, normal: jax.Array, axis: int) -> jax.Array:
    """Test whether normals (k, m, 3) point outward of the edges along `axis` of a solid, up to `OUTWARD`."""
    if not len(solid.normals):
        return jnp.asarray(True)
    first, second = (jnp.expand_dims(side, 1 - axis) for side in _sides(solid, kind))
    return (dot(normal, first) >= -OUTWARD) & (dot(normal, second) >= -OUTWARD)
