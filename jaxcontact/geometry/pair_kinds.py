"""Kinds of pairs of shapes: which solver a pair has, how many contacts, and checks of shapes and pairs.

The number and the order of the contacts of a pair never change. Entries: `num_contacts`, `contact_bodies`,
`check_pair`.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Mapping

from jaxcontact.arguments import check_count
from jaxcontact.front_door import checked
from jaxcontact.geometry.balls import RING_POINTS, num_balls
from jaxcontact.geometry.hulls import MANY_CORNERS
from jaxcontact.geometry.manifold import CONTACTS
from jaxcontact.geometry.polytopes import topology
from jaxcontact.geometry.shapes import (
    CONVEX,
    PLANAR,
    SPATIAL,
    WORLD,
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
from jaxcontact.geometry.support import num_vertices

BALLS = (Point, Points, Disc, Sphere)
POLYTOPES = (Capsule, Box, Polygon, ConvexMesh)
ROUND = (Cylinder, Ellipsoid)


class Family(enum.Enum):
    """The way in which the contacts of a pair (a, b) are computed."""

    BALL_PLANE = enum.auto()
    BALL_BALL = enum.auto()
    BALL_POLYTOPE = enum.auto()
    POLYTOPES = enum.auto()
    BALL_ROUND = enum.auto()
    ROUND_PLANE = enum.auto()
    HULL_PLANE = enum.auto()
    CONVEX = enum.auto()


SIZED = (Family.CONVEX, Family.HULL_PLANE)  # families whose kinds are sizes, known from the shapes


def _family(dim: int, a: Shape, b: Shape) -> Family | None:
    """Choose the family of a pair in this order; None if the pair has none in this order."""
    if isinstance(b, HalfSpace):
        if isinstance(a, ConvexMesh) and a.count > MANY_CORNERS:
            return Family.HULL_PLANE
        return Family.ROUND_PLANE if isinstance(a, ROUND) else Family.BALL_PLANE
    if isinstance(a, BALLS):
        if isinstance(b, BALLS):
            return Family.BALL_BALL
        return Family.BALL_POLYTOPE if isinstance(b, POLYTOPES) else Family.BALL_ROUND
    if isinstance(a, POLYTOPES) and isinstance(b, POLYTOPES) and (dim == 2 or _has_closed_form(a, b)):
        return Family.POLYTOPES
    if isinstance(a, CONVEX) and isinstance(b, CONVEX) and num_vertices(a) >= num_vertices(b):
        return Family.CONVEX
    return None


def _has_closed_form(a: Shape, b: Shape) -> bool:
    """Test whether two polytopes in space are capsules, or boxes and capsules with chosen corners."""
    chosen = any(isinstance(shape, Box) and shape.corners is not None for shape in (a, b))
    return (
        not isinstance(a, ConvexMesh)
        and not isinstance(b, ConvexMesh)
        and (chosen or (isinstance(a, Capsule) and isinstance(b, Capsule)))
    )


def order_pair(dim: int, a: Shape, b: Shape) -> tuple[Family | None, Shape, Shape, bool]:
    """Order the shapes of a pair; return its family, the two shapes and whether they are swapped."""
    family = _family(dim, a, b)
    if family is None and not isinstance(a, HalfSpace):
        return _family(dim, b, a), b, a, True
    return family, a, b, False


@checked()
def check_shape(dim: int, shape: Shape) -> None:
    """Raise ValueError if a shape does not suit the dimension, or its numbers or indices are invalid."""
    kind = type(shape).__name__
    if dim == 2 and isinstance(shape, SPATIAL):
        replacement = {"Sphere": "Disc", "ConvexMesh": "Polygon"}.get(kind)
        raise ValueError(
            f"shapes: {shape.name!r} is a {kind} in the plane"
            + (f"; use {replacement}" if replacement else "")
        )
    if dim == 3 and isinstance(shape, PLANAR) and not isinstance(shape, Disc):
        raise ValueError(f"shapes: {shape.name!r} is a {kind} in space; use ConvexMesh")
    if isinstance(shape, HalfSpace) and (
        len(shape.normal) != dim or abs(math.hypot(*shape.normal) - 1.0) > 1e-9
    ):
        raise ValueError(
            f"shapes: normal of {shape.name!r} needs {dim} numbers of length one, got {shape.normal}"
        )
    if isinstance(shape, Points):
        check_count(f"shapes: count of {shape.name!r}", shape.count)
    if isinstance(shape, Box) and shape.corners is not None:
        distinct_corners = set(shape.corners)
        if (
            not distinct_corners
            or len(distinct_corners) < len(shape.corners)
            or not distinct_corners <= set(range(2**dim))
        ):
            raise ValueError(
                f"shapes: corners of {shape.name!r} must be in 0..{2**dim - 1}, each once, "
                f"got {shape.corners}"
            )
    if isinstance(shape, Polygon) and shape.count < 3:
        raise ValueError(f"shapes: {shape.name!r} needs three vertices or more, got count={shape.count}")
    if isinstance(shape, ConvexMesh) and any(
        len(face) != 3 or not all(0 <= k < shape.count for k in face) for face in shape.faces
    ):
        raise ValueError(f"shapes: faces of {shape.name!r} must be triples of 0..{shape.count - 1}")


@checked()
def check_pair(a: Shape, b: Shape) -> None:
    """Raise ValueError if the package cannot compute contacts of this pair of shapes."""
    if isinstance(a, HalfSpace):
        raise ValueError(f"pairs: expected the half-space second, got {(a.name, b.name)}")
    family = order_pair(2 if isinstance(a, Polygon) or isinstance(b, Polygon) else 3, a, b)[0]
    if family is None:
        kinds = f"{type(a).__name__} and {type(b).__name__}"
        raise ValueError(f"pairs: {(a.name, b.name)}: there are no contacts of {kinds}")
    if isinstance(a, Point | Points) and isinstance(b, Point | Points):
        raise ValueError(
            f"pairs: {a.name!r} and {b.name!r} are points, which never meet; give one of them a radius"
        )
    for mesh, partner in ((a, b), (b, a)):
        if isinstance(mesh, ConvexMesh) and not mesh.faces and family is Family.BALL_POLYTOPE:
            raise ValueError(
                f"pairs: {(a.name, b.name)}: {mesh.name!r} needs faces=hull_faces(vertices) to meet "
                f"{type(partner).__name__}"
            )


def count_contacts(dim: int, a: Shape, b: Shape) -> int:
    """Count the candidate contacts of one pair."""
    family, a, b, _ = order_pair(dim, a, b)
    if family is Family.POLYTOPES:
        topology_a, topology_b = topology(dim, a), topology(dim, b)
        return (
            len(topology_a.vertices)
            + len(topology_b.vertices)
            + len(topology_a.crossing) * len(topology_b.crossing)
        )
    if family in (Family.CONVEX, Family.HULL_PLANE):
        return CONTACTS
    if family is Family.ROUND_PLANE:
        return 2 * RING_POINTS + 4 if isinstance(a, Cylinder) else 1
    return num_balls(dim, a) * (num_balls(dim, b) if family is Family.BALL_BALL else 1)


@checked()
def num_contacts(dim: int, shapes: Mapping[str, Shape], pairs: tuple[tuple[str, str], ...]) -> int:
    """Count the candidate contacts that the pairs of shapes make."""
    return sum(count_contacts(dim, shapes[a], shapes[b]) for a, b in pairs)


def searched_shapes(
    dim: int, shapes: Mapping[str, Shape], pairs: tuple[tuple[str, str], ...]
) -> tuple[Shape, ...]:
    """List the shapes of pairs without a closed form, whose nearest points are searched for."""
    searched = [pair for pair in pairs if order_pair(dim, *(shapes[i] for i in pair))[0] is Family.CONVEX]
    return tuple(dict.fromkeys(shapes[name] for pair in searched for name in pair))


@checked()
def contact_bodies(
    dim: int, bodies: tuple[str, ...], shapes: Mapping[str, Shape], pairs: tuple[tuple[str, str], ...]
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """List the indices of the two bodies of every contact of `candidates`, WORLD for the world."""
    index_of_body = {name: index for index, name in enumerate(bodies)}
    first: list[int] = []
    second: list[int] = []
    for a, b in pairs:
        count = count_contacts(dim, shapes[a], shapes[b])
        for owners, shape in ((first, shapes[a]), (second, shapes[b])):
            body = getattr(shape, "body", None)
            if body is not None and body not in index_of_body:
                raise ValueError(
                    f"bodies: expected the body {body!r} of {shape.name!r} among them, got {bodies}"
                )
            owners += [WORLD if body is None else index_of_body[body]] * count
    return tuple(first), tuple(second)


def seen_as_balls(family: Family | None, a: Shape, b: Shape) -> list[Shape]:
    """List the shapes of a pair that are treated as balls; a and b come in the order of the family."""
    if family is Family.BALL_BALL:
        return [a, b]
    if family in (Family.BALL_PLANE, Family.BALL_POLYTOPE, Family.BALL_ROUND):
        return [a]
    return [a] if family is Family.ROUND_PLANE and isinstance(a, Cylinder) else []
