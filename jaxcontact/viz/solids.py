"""Shapes for pictures: hulls of points, rounded by a radius, in the axes of their body.

Owns the only place that looks at the class of a shape; a new shape registers with `solids_of`.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

import jax
import numpy as np

from jaxcontact.algebra import rotations
from jaxcontact.geometry import (
    Box,
    Capsule,
    ConvexMesh,
    Cylinder,
    Disc,
    Ellipsoid,
    HalfSpace,
    Point,
    Points,
    Polygon,
    Shape,
    Sphere,
)
from jaxcontact.geometry.frames import Posed
from jaxcontact.geometry.shapes import Constants

ROUND = 48  # points of a drawn circle
CREASE = 0.8  # cosine between normals of neighbouring faces; below it their edge is visible
FLAT_THICKNESS = 1e-9  # relative thickness; points with less count as a line or a plane


class Solid(NamedTuple):
    """All points within `radius` of the hull of points (k, dim), m."""

    points: np.ndarray
    radius: float

    def contains(self, point: np.ndarray) -> bool:
        """Return whether a point (dim,) is inside, by the support in many directions."""
        directions = ball_points(self.points.shape[1], 24)
        reach = np.max(directions @ self.points.T, axis=1) + self.radius
        return bool(np.all(directions @ point <= reach + 1e-9 * (1.0 + np.abs(reach))))


class Plane(NamedTuple):
    """Solid below {x : normal . x = offset}."""

    normal: np.ndarray
    offset: float


class Mesh(NamedTuple):
    """The surface of a solid in space: corners (k, 3) and its faces, counter-clockwise from outside."""

    corners: np.ndarray
    faces: list[np.ndarray]
    normals: np.ndarray  # (faces, 3)


@functools.singledispatch
def solids_of(shape: object, dim: int, constants: Constants) -> list[Solid | Plane]:
    """List the solids and planes that draw a shape, in the axes of its body.

    Raises:
        TypeError: for a shape that is not registered.
    """
    kind = type(shape).__name__
    raise TypeError(f"shape: a {kind} has no picture; register one by solids_of.register({kind})")


def of_body(shape: Shape) -> str | None:
    """Return the name of the body of a shape, None for the world."""
    return getattr(shape, "body", None)


@solids_of.register
def _half_space(shape: HalfSpace, dim: int, constants: Constants) -> list[Solid | Plane]:
    offset = 0.0 if shape.offset is None else float(constants[shape.offset])
    return [Plane(np.array(shape.normal), offset)]


@solids_of.register(Point)
@solids_of.register(Points)
def _points(shape: Point | Points, dim: int, constants: Constants) -> list[Solid | Plane]:
    return [Solid(point[None], 0.0) for point in _place(shape.at, dim, constants).reshape(-1, dim)]


@solids_of.register(Disc)
@solids_of.register(Sphere)
def _ball(shape: Disc | Sphere, dim: int, constants: Constants) -> list[Solid | Plane]:
    return [Solid(_place(shape.at, dim, constants)[None], float(constants[shape.radius]))]


@solids_of.register
def _capsule(shape: Capsule, dim: int, constants: Constants) -> list[Solid | Plane]:
    return [Solid(np.asarray(constants[shape.ends], float), float(constants[shape.radius]))]


@solids_of.register
def _box_solid(shape: Box, dim: int, constants: Constants) -> list[Solid | Plane]:
    signs = np.array([[1.0 if k >> axis & 1 else -1.0 for axis in range(dim)] for k in range(2**dim)])
    return _posed(shape, dim, constants, 0.5 * np.asarray(constants[shape.size], float) * signs)


@solids_of.register
def _cylinder(shape: Cylinder, dim: int, constants: Constants) -> list[Solid | Plane]:
    ring = np.concatenate([float(constants[shape.radius]) * ball_points(2), np.zeros((ROUND, 1))], axis=1)
    cap = np.array([0.0, 0.0, float(constants[shape.half_length])])
    return _posed(shape, dim, constants, np.concatenate([ring - cap, ring + cap]))


@solids_of.register
def _ellipsoid(shape: Ellipsoid, dim: int, constants: Constants) -> list[Solid | Plane]:
    return _posed(shape, dim, constants, np.asarray(constants[shape.semi_axes], float) * ball_points(3, 24))


@solids_of.register(Polygon)
@solids_of.register(ConvexMesh)
def _vertices(shape: Polygon | ConvexMesh, dim: int, constants: Constants) -> list[Solid | Plane]:
    return [Solid(np.asarray(constants[shape.vertices], float), 0.0)]


def _place(at: str | None, dim: int, constants: Constants) -> np.ndarray:
    return np.zeros(dim) if at is None else np.asarray(constants[at], float)


planar_matrix, quaternion_matrix = jax.jit(rotations.planar_matrix), jax.jit(rotations.quaternion_matrix)


def _posed(shape: Posed, dim: int, constants: Constants, points: np.ndarray) -> list[Solid | Plane]:
    """Make the hull of points in the axes of a shape with `at` and `rotation`."""
    turn = np.eye(dim)
    if shape.rotation is not None:
        number = constants[shape.rotation]
        turn = np.asarray(planar_matrix(number) if dim == 2 else quaternion_matrix(number))
    return [Solid(points @ turn.T + _place(shape.at, dim, constants), 0.0)]


@functools.cache
def ball_points(dim: int, around: int = ROUND) -> np.ndarray:
    """Compute points of the unit circle, or of the unit sphere in rings of latitude."""
    angle = 2.0 * np.pi * np.arange(around) / around
    ring = np.stack([np.cos(angle), np.sin(angle)], axis=1)
    if dim == 2:
        return ring
    tilt = np.pi * np.arange(1, around // 2) / (around // 2)
    rings = np.concatenate(
        [
            np.sin(tilt)[:, None, None] * ring[None],
            np.broadcast_to(np.cos(tilt)[:, None, None], (len(tilt), around, 1)),
        ],
        axis=2,
    )
    return np.concatenate([rings.reshape(-1, 3), [[0.0, 0.0, 1.0], [0.0, 0.0, -1.0]]])


def outline(points: np.ndarray, radius: float = 0.0) -> np.ndarray:
    """Compute the edge (m, 2) of the hull of points (k, 2) rounded by a radius, counter-clockwise."""
    if radius > 0.0:
        points = (points[:, None] + radius * ball_points(2)[None]).reshape(-1, 2)
    low, high = _thickness(points)
    if low <= FLAT_THICKNESS * high:  # seen from its edge
        along = points @ (points[np.argmax(np.linalg.norm(points - points[0], axis=1))] - points[0])
        return points[[np.argmin(along), np.argmax(along)]]
    return points[_hull_corners(points, FLAT_THICKNESS * high**2)]


def _hull_corners(points: np.ndarray, flat: float) -> list[int]:
    """Find the corners of the hull of points (k, 2), counter-clockwise, by the monotone chain.

    A point is no corner if twice the area of its triangle with its neighbours is at most `flat`.
    """
    order = np.lexsort(points.T[::-1])
    chains: list[list[int]] = []
    for way in (order, order[::-1]):
        chain: list[int] = []
        for k in way:
            while len(chain) > 1 and _twice_area(points[chain[-2]], points[chain[-1]], points[k]) <= flat:
                chain.pop()
            chain.append(int(k))
        chains.append(chain[:-1])
    return chains[0] + chains[1]


def _twice_area(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> float:
    """Compute twice the area of the triangle a, b, c, positive counter-clockwise."""
    return float((b[0] - a[0]) * (c[1] - a[1]) - (b[1] - a[1]) * (c[0] - a[0]))


def mesh_of(solid: Solid, around: int = 16) -> Mesh | None:
    """Compute the surface of a solid in space; None for a point or a solid without thickness."""
    from scipy.spatial import ConvexHull

    points = solid.points
    if solid.radius > 0.0:
        points = (points[:, None] + solid.radius * ball_points(3, around)[None]).reshape(-1, 3)
    low, high = _thickness(points)
    if low <= FLAT_THICKNESS * high:
        return None
    hull = ConvexHull(points)
    planes: dict[tuple[int, ...], list[int]] = {}
    for k, plane in enumerate(np.round(hull.equations / [1.0, 1.0, 1.0, high], 6)):
        planes.setdefault(tuple((plane * 1e6).astype(int)), []).append(k)
    faces, normals = [], []
    for members in planes.values():  # triangles of one plane are one face
        normal = hull.equations[members[0], :3]
        corners = np.unique(hull.simplices[members])
        middle = points[corners].mean(axis=0)
        across = points[corners[0]] - middle
        other = np.cross(normal, across)
        turn = np.arctan2((points[corners] - middle) @ other, (points[corners] - middle) @ across)
        faces.append(corners[np.argsort(turn)])
        normals.append(normal)
    used = np.unique(np.concatenate(faces))
    return Mesh(points[used], [np.searchsorted(used, face) for face in faces], np.stack(normals))


def _thickness(points: np.ndarray) -> tuple[float, float]:
    """Return the minimum and maximum spread of points along their principal axes."""
    spread = np.linalg.svd(points - points.mean(axis=0), compute_uv=False)
    return (float(spread[-1]) if len(spread) == points.shape[1] else 0.0), float(spread[0])
