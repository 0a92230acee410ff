"""Shapes: the records that describe the contact geometry of bodies.

A shape names its numbers: `Disc(name="foot", body="shank", radius="r")` reads `params.constants["r"]`, so a
mechanism is hashable and every length can be differentiated by. Positions are in body coordinates, or in
world coordinates for `body=None`, the world. `rotation` names the rotation from the axes of a shape to those
of its body: an angle in the plane, a quaternion (w, x, y, z) in space.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np

from jaxcontact._pytree import PyTree
from jaxcontact.arguments import check_count, check_not_empty, check_number
from jaxcontact.front_door import checked


@checked()
@dataclasses.dataclass(frozen=True, kw_only=True)
class Point:
    """A point fixed to a body. `at` names its body coordinates (dim,); default the body origin."""

    name: str
    body: str | None
    at: str | None = None


@checked(count=check_count)
@dataclasses.dataclass(frozen=True, kw_only=True)
class Points:
    """`count` points fixed to a body; `at` names their body coordinates (count, dim)."""

    name: str
    body: str | None
    at: str
    count: int


@checked()
@dataclasses.dataclass(frozen=True, kw_only=True)
class Disc:
    """A disc in the plane: `radius` (m) and centre `at` in body coordinates, both by name."""

    name: str
    body: str | None
    radius: str
    at: str | None = None


@checked()
@dataclasses.dataclass(frozen=True, kw_only=True)
class Sphere:
    """A sphere in space: `radius` (m) and centre `at` in body coordinates, both by name."""

    name: str
    body: str | None
    radius: str
    at: str | None = None


@checked()
@dataclasses.dataclass(frozen=True, kw_only=True)
class Capsule:
    """All points within `radius` (m) of the segment between two `ends` (2, dim); a stadium in the plane."""

    name: str
    body: str | None
    radius: str
    ends: str


@checked()
@dataclasses.dataclass(frozen=True, kw_only=True)
class Box:
    """A box (rectangle in the plane) of side lengths `size` (dim,), with pose `at`, `rotation` in its body.

    Corner k is on the positive side along axis j if bit j of k is set: in the plane 0 is lower left,
    1 lower right, 2 upper left, 3 upper right. Only the listed `corners`, and edges between them, make
    contacts; None lists all corners.
    """

    name: str
    body: str | None
    size: str
    corners: tuple[int, ...] | None = None
    at: str | None = None
    rotation: str | None = None


@checked()
@dataclasses.dataclass(frozen=True, kw_only=True)
class Cylinder:
    """A cylinder in space, its axis the local z: `radius` and `half_length` (m), pose `at`, `rotation`."""

    name: str
    body: str | None
    radius: str
    half_length: str
    at: str | None = None
    rotation: str | None = None


@checked()
@dataclasses.dataclass(frozen=True, kw_only=True)
class Ellipsoid:
    """An ellipsoid in space with `semi_axes` (3,) in m along its local axes, pose `at`, `rotation`."""

    name: str
    body: str | None
    semi_axes: str
    at: str | None = None
    rotation: str | None = None


@checked(count=check_count)
@dataclasses.dataclass(frozen=True, kw_only=True)
class Polygon:
    """A convex polygon in the plane: `vertices` (count, 2), counter-clockwise."""

    name: str
    body: str | None
    vertices: str
    count: int


@checked(count=check_count)
@dataclasses.dataclass(frozen=True, kw_only=True)
class ConvexMesh:
    """A convex polyhedron in space: `vertices` (count, 3) of its hull, by name.

    `faces` are triples of vertices, counter-clockwise seen from outside; `hull_faces` computes them. Contacts
    with half-spaces need no faces. The coordinates may change as long as the same faces bound the hull.
    """

    name: str
    body: str | None
    vertices: str
    count: int
    faces: tuple[tuple[int, int, int], ...] = ()


@checked()
@dataclasses.dataclass(frozen=True, kw_only=True)
class HalfSpace:
    """The solid below a plane fixed to the world (a half-plane in 2-D): {x : normal . x <= offset}.

    `normal` is a unit vector; `offset` names the distance of the plane from the origin in m, None is zero.
    """

    name: str
    normal: tuple[float, ...]
    offset: str | None = None


Shape = (
    Point | Points | Disc | Sphere | Capsule | Box | Cylinder | Ellipsoid | Polygon | ConvexMesh | HalfSpace
)
Constants = Mapping[str, Any]  # the named numbers of a mechanism: arrays of any shape
PLANAR = (Disc, Polygon)  # shapes of the plane alone
SPATIAL = (Sphere, Cylinder, Ellipsoid, ConvexMesh)  # shapes of space alone
CONVEX = (Capsule, Box, ConvexMesh, Cylinder, Ellipsoid)  # in space pairs of these, without a closed form
NUMBERS = ("size", "at", "radius", "offset", "rotation", "ends", "half_length", "semi_axes", "vertices")
WORLD = -1  # index that stands for the world in a list of body indices
ON_HULL = 1e-9  # of the size; rounding may put a corner of a hull this deep inside it, not deeper


@checked()
def check_constants(dim: int, shapes: tuple[Shape, ...], constants: Constants) -> None:
    """Raise ValueError if a constant that a shape names is missing, or has the wrong array shape."""
    for shape in shapes:
        count = getattr(shape, "count", 0)
        expected = {
            "rotation": () if dim == 2 else (4,),
            "ends": (2, dim),
            "half_length": (),
            "semi_axes": (3,),
            "vertices": (count, dim),
        }
        for attribute in NUMBERS:
            needed = getattr(shape, attribute, None)
            if needed is None:
                continue
            if needed not in constants:
                raise ValueError(
                    f"params.constants: no {needed!r}, the {attribute} of shape {shape.name!r}; "
                    f"there are {sorted(constants)}"
                )
            actual_shape = np.shape(constants[needed])
            if actual_shape != expected.get(attribute, actual_shape):
                raise ValueError(
                    f"params.constants: {needed!r}, the {attribute} of shape {shape.name!r}: "
                    f"expected shape {expected[attribute]}, got {actual_shape}"
                )


@checked(vertices=(check_number, check_not_empty))
def hull_faces(vertices: PyTree) -> tuple[tuple[int, int, int], ...]:
    """Find the faces of a `ConvexMesh`: triangles of the hull of `vertices`, counter-clockwise from outside.

    A vertex on the hull up to rounding, such as one of two that nearly coincide, may belong to no face.

    Raises:
        ValueError: vertices inside their hull, all in one plane, or no array (n, 3).
    """
    from scipy.spatial import ConvexHull, QhullError

    points = np.asarray(vertices, float)
    if points.ndim != 2 or points.shape[1] != 3:
        raise ValueError(f"vertices: expected shape (n, 3), got {points.shape}")
    try:
        hull = ConvexHull(points)
    except QhullError:
        raise ValueError(
            f"vertices: expected four points or more that are not in one plane, got {len(points)} that are"
        ) from None
    others = sorted(set(range(len(points))) - set(hull.vertices.tolist()))
    heights = np.max(points[others] @ hull.equations[:, :3].T + hull.equations[:, 3], axis=1, initial=-np.inf)
    inner = np.array(others)[heights < -ON_HULL * np.max(np.ptp(points, axis=0))].tolist()
    if inner:
        raise ValueError(f"vertices: {inner} are no corners of the convex hull; leave them out")
    faces = []
    for face, plane in zip(hull.simplices.tolist(), hull.equations, strict=True):
        corner = points[face]
        outward = np.cross(corner[1] - corner[0], corner[2] - corner[0]) @ plane[:3] > 0.0
        faces.append(tuple(face if outward else face[::-1]))
    return tuple(faces)
