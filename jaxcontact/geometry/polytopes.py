"""Convex polytopes with rounded edges (capsule, box, polygon, mesh), and the distance of a point to one.

A polytope is the convex hull of its vertices, thickened by a radius. The relations between vertices, edges
and faces (`Topology`) are static; only the coordinates are traced. A capsule in space has no faces.
Entries: `place_polytopes`, `signed_distance`.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxcontact.geometry.by_kind import of_shapes
from jaxcontact.geometry.frames import across, dot, pose_in_body, turned, unit
from jaxcontact.geometry.shapes import Box, Capsule, Constants, ConvexMesh, Polygon, Shape

TOUCHING = 1e-6  # m; features nearer than this count as touching, as in `ContactTerms.active`
BESIDE = 1e-5  # of the extent of a small polytope; a point so near to a face and beside it counts as over it


class Polytope(NamedTuple):
    """The core of a polytope in one frame: the hull of the vertices, {x : normals x <= offsets}."""

    vertices: jax.Array  # (nv, dim)
    normals: jax.Array  # (nf, dim), outward
    offsets: jax.Array  # (nf,)
    radius: jax.Array  # ()


class Topology(NamedTuple):
    """The static part of a polytope: indices of vertices and faces."""

    edges: tuple[tuple[int, int], ...]
    edge_faces: tuple[tuple[int, int], ...]  # two faces at each edge; empty in the plane and for a capsule
    directions: tuple[int, ...]  # one edge for each direction of edges; empty in the plane
    vertices: tuple[int, ...]  # vertices that make contacts
    crossing: tuple[int, ...]  # edges that make contacts with edges
    is_box: bool = False  # faces are at right angles


@functools.lru_cache(maxsize=256)
def topology(dim: int, shape: Capsule | Box | Polygon | ConvexMesh) -> Topology:
    """Build the topology of a shape; edges cross only in space."""
    if isinstance(shape, Capsule):
        line = (0,) if dim == 3 else ()
        return Topology(((0, 1),), (), line, (0, 1), line)
    if isinstance(shape, Polygon):
        ring = tuple((k, (k + 1) % shape.count) for k in range(shape.count))
        return Topology(ring, (), (), tuple(range(shape.count)), ())
    if isinstance(shape, ConvexMesh):
        edges, sides = _mesh_edges(shape.faces)
        all_edges = tuple(range(len(edges)))
        return Topology(edges, sides, all_edges, tuple(range(shape.count)), all_edges)
    corners = tuple(range(2**dim)) if shape.corners is None else shape.corners
    edges = tuple((k, k | 1 << axis) for axis in range(dim) for k in range(2**dim) if not k >> axis & 1)
    if dim == 2:
        return Topology(edges, (), (), corners, (), is_box=True)
    sides = tuple(_box_faces_at(*edge) for edge in edges)
    crossing = tuple(i for i, (a, b) in enumerate(edges) if a in corners and b in corners)
    return Topology(edges, sides, (0, 4, 8), corners, crossing, is_box=True)


def _box_faces_at(a: int, b: int) -> tuple[int, int]:
    """Find the two faces (2 axis + side) of a box at the edge from corner a to b."""
    first, second = [2 * axis + (a >> axis & 1) for axis in range(3) if not (a ^ b) >> axis & 1]
    return first, second


def _mesh_edges(
    faces: tuple[tuple[int, int, int], ...],
) -> tuple[tuple[tuple[int, int], ...], tuple[tuple[int, int], ...]]:
    """List the edges of triangles, and the two faces at each edge."""
    sides: dict[tuple[int, int], list[int]] = {}
    for k, face in enumerate(faces):
        for i in range(3):
            a, b = face[i], face[(i + 1) % 3]
            sides.setdefault((min(a, b), max(a, b)), []).append(k)
    return tuple(sides), tuple((faces_at_edge[0], faces_at_edge[-1]) for faces_at_edge in sides.values())


def _in_body(
    shape: Box | Capsule | Polygon | ConvexMesh, dim: int, constants: Constants, dtype: jax.typing.DTypeLike
) -> Polytope:
    """Build the polytope of a shape in the axes of its body."""
    zero = jnp.zeros((), dtype)
    if isinstance(shape, Box):
        origin, axes = pose_in_body(shape, dim, constants, dtype)
        half = 0.5 * jnp.asarray(constants[shape.size], dtype)
        signs = np.array([[1.0 if k >> axis & 1 else -1.0 for axis in range(dim)] for k in range(2**dim)])
        vertices = origin[None] + (half[None] * jnp.asarray(signs, dtype)) @ axes.T
        normals = jnp.stack([-axes.T, axes.T], axis=1).reshape(2 * dim, dim)
        return Polytope(vertices, normals, jnp.repeat(half, 2) + normals @ origin, zero)
    if isinstance(shape, Capsule):
        ends, radius = jnp.asarray(constants[shape.ends], dtype), jnp.asarray(constants[shape.radius], dtype)
        if dim == 3:
            return Polytope(ends, jnp.zeros((0, 3), dtype), jnp.zeros(0, dtype), radius)
        side = across(ends[1] - ends[0])
        along = jnp.stack([side[1], -side[0]])
        normals = jnp.stack([side, -side, along, -along])
        return Polytope(ends, normals, dot(normals, ends[np.array([0, 0, 1, 0])]), radius)
    vertices = jnp.asarray(constants[shape.vertices], dtype)
    if isinstance(shape, Polygon):
        step = jnp.roll(vertices, -1, axis=0) - vertices
        normals, first = -across(step), vertices
    else:
        triangle = vertices[np.array(shape.faces, int).reshape(-1, 3)]
        first, second, third = triangle[:, 0], triangle[:, 1], triangle[:, 2]
        last_axis = jnp.zeros_like(first).at[:, -1].set(1.0)
        normals, _ = unit(jnp.cross(second - first, third - first), last_axis)
    return Polytope(vertices, normals, dot(normals, first), zero)


def place_polytopes(
    dim: int,
    shapes: Sequence[Shape],
    positions: jax.Array,
    orientations: jax.Array,
    constants: Constants,
) -> Polytope:
    """Place shapes of one topology in the world, from the frames of their bodies; axis 0 is the shape."""
    dtype = positions.dtype
    body = of_shapes(lambda shape, numbers: _in_body(shape, dim, numbers, dtype), shapes, constants)
    normals = turned(orientations, body.normals)
    return Polytope(
        vertices=positions[:, None] + turned(orientations, body.vertices),
        normals=normals,
        offsets=body.offsets + dot(normals, positions[:, None]),
        radius=body.radius,
    )


def rounding_of(*solids: Polytope) -> jax.Array:
    """Bound the rounding of the coordinates of polytopes, m; no derivative."""
    size = sum(jnp.max(jnp.abs(solid.vertices)) for solid in solids)
    rounding = 16.0 * float(jnp.finfo(solids[0].vertices.dtype).eps)
    return rounding * jax.lax.stop_gradient(jnp.asarray(size))


def touching_within(*solids: Polytope) -> jax.Array:
    """Compute the distance that counts as touching, m: 1e-6, or the rounding of the coordinates if larger."""
    return jnp.maximum(TOUCHING, rounding_of(*solids))


def signed_distance(
    solid: Polytope, kind: Topology, point: jax.Array
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Compute the gap of a point (dim,) to the core of a polytope, the outward unit normal, and the foot.

    The foot is the nearest point of the core. If the foot is in a face, or the point is inside, the plane
    of that face gives gap and normal, so the normal is right at zero gap. If the foot is on an edge or a
    vertex, the normal is the direction from the foot to the point.
    """
    if not len(solid.normals):
        foot, along = _nearest_on_edges(solid, kind, point)
        normal, gap = unit(point - foot, across(along), point)
        return gap, normal, foot
    height, face, overhang, foot = _over_box(solid, point) if kind.is_box else _over_faces(solid, kind, point)
    extent = jnp.max(jnp.max(solid.vertices, axis=0) - jnp.min(solid.vertices, axis=0))
    close = jnp.minimum(TOUCHING, BESIDE * jax.lax.stop_gradient(extent))
    close = jnp.maximum(close, rounding_of(solid))
    rounding = 16.0 * jnp.finfo(point.dtype).eps * (jnp.abs(height) + jnp.max(jnp.abs(solid.offsets)))
    flat = (height <= 0.0) | (overhang <= rounding) | ((overhang <= close) & (height <= close))
    normal, gap = unit(point - foot, face)
    normal, gap = jnp.where(flat, face, normal), jnp.where(flat, height, gap)
    return gap, normal, jnp.where(flat, point - height * face, foot)


def _over_faces(
    solid: Polytope, kind: Topology, point: jax.Array
) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array]:
    """Find the face over which a point (dim,) is highest, and the point of the edges nearest to it.

    Returns:
        its height over that face, the normal of the face, how far the point's foot in that plane lies outside
        of the core, and the nearest point of the edges.
    """
    heights = dot(solid.normals, point[None]) - solid.offsets
    top = jnp.argmax(heights)
    face, height = solid.normals[top], heights[top]
    overhang = jnp.max(heights - height * dot(solid.normals, face[None]))
    return height, face, overhang, _nearest_on_edges(solid, kind, point)[0]


def _over_box(solid: Polytope, point: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array]:
    """Find the same as `_over_faces` for a box: the heights over faces at right angles add up to its foot."""
    axes = solid.normals[1::2]
    along = dot(axes, point[None])
    above, below = along - solid.offsets[1::2], -along - solid.offsets[::2]
    is_above = above > below
    heights = jnp.where(is_above, above, below)
    top = jnp.argmax(heights)
    overhang = jnp.max(jnp.where(jnp.arange(len(axes)) == top, 0.0, heights))
    outside = jnp.where(heights > 0.0, jnp.where(is_above, above, -below), 0.0)
    foot = point - jnp.sum(outside[:, None] * axes, axis=0)
    return heights[top], jnp.where(is_above[top], axes[top], -axes[top]), overhang, foot


def _nearest_on_edges(solid: Polytope, kind: Topology, point: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Find the point of the edges nearest to a point (dim,), and the vector along its edge."""
    pairs = np.array(kind.edges)
    start, along = solid.vertices[pairs[:, 0]], solid.vertices[pairs[:, 1]] - solid.vertices[pairs[:, 0]]
    square = dot(along, along)
    share = jnp.clip(dot(point[None] - start, along) / jnp.where(square > 0.0, square, 1.0), 0.0, 1.0)
    feet = start + share[:, None] * along
    away = point[None] - feet
    nearest = jnp.argmin(dot(away, away))
    return feet[nearest], along[nearest]
