"""Candidate contacts of pairs of shapes: the kinds of pairs, and the gaps and frames of their contacts.

Conventions: the normal of a pair (a, b) points from b to a, so phi > 0 is separated. In the plane the
tangent is the normal turned by -90 degrees, t = (n_y, -n_x); on a floor n = (0, 1), t = (1, 0).
The number and the order of the contacts of a pair never change. A candidate that is not a contact at some
pose has a large gap there. Entry: `candidates`.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxcontact._pytree import PyTree
from jaxcontact.arguments import check_count
from jaxcontact.front_door import checked
from jaxcontact.geometry import cores, groups
from jaxcontact.geometry.balls import RING_POINTS, Balls, Rows, num_balls, place_balls
from jaxcontact.geometry.frames import rows, tangent_frame
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
    Constants,
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

if TYPE_CHECKING:
    from jaxtyping import Float

BALLS = (Point, Points, Disc, Sphere)
POLYTOPES = (Capsule, Box, Polygon, ConvexMesh)
ROUND = (Cylinder, Ellipsoid)
FEWEST_MESHES = 8  # pairs of two sizes that get their contacts; few links of a robot come near one another
SIZES = (8, 256)  # vertices: pairs whose larger core has as many or fewer share one program


class Candidates(NamedTuple):
    """Candidate contacts of a mechanism at one configuration; axis 0 is the contact.

    There are nc candidates; k of them are computed, all without `near_pairs`.
    """

    body_a: tuple[int, ...]  # (nc,) body index, WORLD for the world
    body_b: tuple[int, ...]
    point: jax.Array  # (k, dim) world point of contact on a's surface
    point_b: jax.Array  # (k, dim) the same on b's surface
    phi: jax.Array  # (k,) gap in m
    normal: jax.Array  # (k, dim)
    gaps: jax.Array  # (nc,) gaps of all, m
    place: jax.Array | None  # (k,) int32, indices of the computed among all; None if all are computed
    left_out: jax.Array  # bool, True if `near_pairs` left out a pair that touches
    near: jax.Array  # (k,) bool, False for a contact without a place, of a pair out of reach
    unseen: jax.Array | None  # m, least bound of the distances of such pairs; None if there can be none

    @property
    def tangents(self) -> jax.Array:
        """Unit tangents (nc, dim - 1, dim); with the normals they are right-handed frames."""
        return jax.vmap(tangent_frame)(self.normal)


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


def _in_order(dim: int, a: Shape, b: Shape) -> tuple[Family | None, Shape, Shape, bool]:
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
    family = _in_order(2 if isinstance(a, Polygon) or isinstance(b, Polygon) else 3, a, b)[0]
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


def _count(dim: int, a: Shape, b: Shape) -> int:
    """Count the candidate contacts of one pair."""
    family, a, b, _ = _in_order(dim, a, b)
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
    return sum(_count(dim, shapes[a], shapes[b]) for a, b in pairs)


def searched_shapes(
    dim: int, shapes: Mapping[str, Shape], pairs: tuple[tuple[str, str], ...]
) -> tuple[Shape, ...]:
    """List the shapes of pairs without a closed form, whose nearest points are searched for."""
    searched = [pair for pair in pairs if _in_order(dim, *(shapes[i] for i in pair))[0] is Family.CONVEX]
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
        count = _count(dim, shapes[a], shapes[b])
        for owners, shape in ((first, shapes[a]), (second, shapes[b])):
            body = getattr(shape, "body", None)
            if body is not None and body not in index_of_body:
                raise ValueError(
                    f"bodies: expected the body {body!r} of {shape.name!r} among them, got {bodies}"
                )
            owners += [WORLD if body is None else index_of_body[body]] * count
    return tuple(first), tuple(second)


def _seen_as_balls(family: Family | None, a: Shape, b: Shape) -> list[Shape]:
    """List the shapes of a pair that are treated as balls; a and b come in the order of the family."""
    if family is Family.BALL_BALL:
        return [a, b]
    if family in (Family.BALL_PLANE, Family.BALL_POLYTOPE, Family.BALL_ROUND):
        return [a]
    return [a] if family is Family.ROUND_PLANE and isinstance(a, Cylinder) else []


# A member of a group: the index of its first contact among all contacts, its first and second shape or ball.
_Members = list[tuple[int, PyTree, PyTree]]
_COMPUTE: dict[Family, Callable[..., Rows]] = {
    Family.BALL_PLANE: groups.balls_on_planes,
    Family.BALL_BALL: groups.balls_on_balls,
    Family.BALL_POLYTOPE: groups.balls_on_polytopes,
    Family.POLYTOPES: groups.polytopes_on_polytopes,
    Family.BALL_ROUND: groups.balls_on_round,
    Family.ROUND_PLANE: groups.round_on_planes,
    Family.HULL_PLANE: cores.hulls_on_planes,
    Family.CONVEX: cores.cores_on_cores,
}


def _kind(dim: int, family: Family | None, a: Shape, b: Shape, swapped: bool) -> tuple[PyTree, ...]:
    """Collect the static properties that pairs of a family must share to be computed together."""
    if family is Family.BALL_POLYTOPE:
        return topology(dim, b), swapped
    if family is Family.POLYTOPES:
        return topology(dim, a), topology(dim, b)
    if family is Family.BALL_ROUND:
        return type(b), swapped
    if family is Family.CONVEX:
        return (sum(num_vertices(a) > size for size in SIZES),)
    if family is Family.HULL_PLANE:
        return (num_vertices(a),)
    return (type(a),) if family is Family.ROUND_PLANE else ()


def _group_pairs(
    dim: int, shapes: Mapping[str, Shape], pairs: tuple[tuple[str, str], ...], start: Mapping[str, int]
) -> dict[tuple[PyTree, ...], _Members]:
    """Group the pairs, or the balls of pairs, whose contacts are computed together."""
    members_of_group: dict[tuple[PyTree, ...], _Members] = {}
    count = 0
    for name_a, name_b in pairs:
        family, a, b, swapped = _in_order(dim, shapes[name_a], shapes[name_b])
        key = (family, *_kind(dim, family, a, b, swapped))
        balls = [start[a.name] + i for i in range(num_balls(dim, a))] if a.name in start else []
        members: _Members = []
        if family is Family.BALL_BALL:
            other_balls = [start[b.name] + i for i in range(num_balls(dim, b))]
            members = [(0, i, k) for i in balls for k in other_balls]
        elif family in (Family.BALL_PLANE, Family.BALL_POLYTOPE, Family.BALL_ROUND):
            members = [(0, i, b) for i in balls]
        elif isinstance(a, Cylinder) and family is Family.ROUND_PLANE:
            caps = members_of_group.setdefault((Family.BALL_PLANE,), [])
            caps += [(count + offset, i, b) for offset, i in enumerate(balls)]
            members_of_group.setdefault(key, []).append((count + len(balls), a, b))
        else:
            members = [(0, a, (b, swapped) if family is Family.CONVEX else b)]
        members_of_group.setdefault(key, []).extend(
            (count + offset, *m[1:]) for offset, m in enumerate(members)
        )
        count += _count(dim, a, b)
    return members_of_group


def _most_pairs(
    dim: int, family: Family | None, first: PyTree, second: PyTree, near_pairs: NearPairs | None
) -> int | None:
    """Choose the number of pairs of a family and two kinds that get their contacts; None for all.

    Large cores of several sizes are searched together, and share what each two of the sizes would get.
    """
    if near_pairs is None:
        return None
    max_pairs = near_pairs.limit
    if family is Family.CONVEX:
        sizes = {(num_vertices(a), num_vertices(b)) for a, (b, _) in zip(first, second, strict=True)}
        if max(sizes)[0] <= SIZES[0]:
            return max_pairs
        return max(2, len(sizes)) * max(FEWEST_MESHES, max_pairs // 2)
    capsules = isinstance(first[0], Capsule) and isinstance(second[0], Capsule)
    # in the plane the distance of two capsules costs as much as their contacts
    if family is not Family.POLYTOPES or (capsules and dim == 2):
        return None
    return 2 * max_pairs if capsules else max_pairs


class NearPairs(NamedTuple):
    """The pairs of convex shapes that get their contacts: so many of the nearest, within reach.

    They are `limit` pairs of polytopes of the same two kinds; of capsules in space twice as many, most of
    which make one contact. Of shapes without a closed form they are `limit` pairs of small shapes; of large
    ones half as many, at least eight, for each two numbers of vertices, at least twice; no pair that is
    farther apart than `reach`, m, gets its contacts.
    """

    limit: int
    reach: jax.Array | float | None = None


@checked()
def candidates(
    dim: int,
    bodies: tuple[str, ...],
    shapes: Mapping[str, Shape],
    pairs: tuple[tuple[str, str], ...],
    positions: Float[jax.Array, "nb dim"],
    orientations: Float[jax.Array, "nb dim dim"],
    constants: Constants,
    near_pairs: NearPairs | None = None,
) -> Candidates:
    """Compute the gaps and frames of the candidate contacts, in the order of `pairs`; see `near_pairs`.

    The order of the contacts within a pair depends on the shapes. Balls: balls of a by balls of b. Polytopes:
    vertices of a, vertices of b, edges of a by edges of b. On a half-space: the corners or ends; for a
    cylinder the points fixed to its caps, then the lowest and the highest point of each rim; for a hull of
    many corners the deepest, then those farthest along eight directions. Other shapes in space: the nearest
    points, then the corners of the region where flat parts meet, by their direction.

    Args:
        positions: (nb, dim) world positions of the body origins, m.
        orientations: (nb, dim, dim) body-to-world rotation matrices.
        near_pairs: which pairs of convex shapes get their contacts, None for all. The contacts of the other
            pairs have only a gap: the distance of the two shapes or a lower bound of it, and for two
            polytopes that touch or overlap a length larger than both.
    """
    ball_shapes: dict[str, None] = {}
    for a, b in pairs:
        ball_shapes.update(
            dict.fromkeys(shape.name for shape in _seen_as_balls(*_in_order(dim, shapes[a], shapes[b])[:3]))
        )
    balls: Balls | None = None
    if ball_shapes:
        balls = place_balls(dim, bodies, shapes, tuple(ball_shapes), positions, orientations, constants)
    world = groups.PlacedBodies(dim, bodies, positions, orientations, constants, balls)
    rows_of_groups, gaps_of_groups, near_of_groups, left_out = [], [], [], jnp.asarray(False)
    unseen: jax.Array | None = None
    computed: list[PyTree] = []  # places of the contacts that are computed, by group
    places: list[np.ndarray] = []
    for (family, *kind), members in _group_pairs(dim, shapes, pairs, balls.start if balls else {}).items():
        starts, first, second = zip(*members, strict=True)
        pair_limit = _most_pairs(dim, family, first, second, near_pairs)
        found: tuple[jax.Array | None, Rows, jax.Array, jax.Array]
        if family is Family.CONVEX and near_pairs is not None and pair_limit is not None:
            limits = min(pair_limit, len(members)), near_pairs.reach
            found, near, bound = cores.nearest_cores(world, first, second, limits)
            unseen = bound if unseen is None else jnp.minimum(unseen, bound)
        elif pair_limit is not None and len(members) > pair_limit:
            found = groups.nearest_polytopes(world, first, second, kind[0], kind[1], pair_limit)
            near = jnp.ones(found[1][2].shape, bool)
        else:
            group_rows = _COMPUTE[family](world, first, second, *(kind if family not in SIZED else ()))
            found = None, group_rows, group_rows[2], jnp.asarray(False)
            near = jnp.ones(group_rows[2].shape, bool)
        chosen, group_rows, gaps, touching_missed = found
        left_out = left_out | touching_missed
        near_of_groups.append(near)
        rows_of_groups.append(group_rows)
        gaps_of_groups.append(gaps)
        of_members = np.add.outer(np.array(starts), np.arange(gaps.shape[0] // len(members))).astype(np.int32)
        places.append(of_members.ravel())
        computed.append(places[-1] if chosen is None else jnp.asarray(of_members)[chosen].ravel())
    order = np.argsort(np.concatenate(places)).tolist()
    columns = [jnp.concatenate(column) for column in zip(*rows_of_groups, strict=True)]
    all_computed = all(isinstance(group, np.ndarray) for group in computed)
    point, point_b, phi, normal = (rows(column, order) if all_computed else column for column in columns)
    near = jnp.concatenate(near_of_groups)
    body_a, body_b = contact_bodies(dim, bodies, shapes, pairs)
    return Candidates(
        body_a=body_a,
        body_b=body_b,
        point=point,
        point_b=point_b,
        phi=phi,
        normal=normal,
        gaps=rows(jnp.concatenate(gaps_of_groups), order),
        place=None if all_computed else jnp.concatenate(computed),
        left_out=left_out,
        near=near[np.array(order)] if all_computed else near,
        unseen=unseen,
    )
