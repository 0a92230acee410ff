"""Candidate contacts of pairs of shapes, at one configuration: their gaps and frames; kinds in `pair_kinds`.

Conventions: the normal of a pair (a, b) points from b to a, so phi > 0 is separated. In the plane the
tangent is the normal turned by -90 degrees, t = (n_y, -n_x); on a floor n = (0, 1), t = (1, 0).
The number and the order of the contacts of a pair never change. A candidate that is not a contact at some
pose has a large gap there. Entry: `candidates`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxcontact._pytree import PyTree
from jaxcontact.front_door import checked
from jaxcontact.geometry import cores, groups
from jaxcontact.geometry.balls import Balls, Rows, num_balls, place_balls
from jaxcontact.geometry.frames import rows, tangent_frame
from jaxcontact.geometry.pair_kinds import (
    SIZED,
    Family,
    count_contacts,
    order_pair,
    seen_as_balls,
)
from jaxcontact.geometry.polytopes import topology
from jaxcontact.geometry.shapes import (
    Capsule,
    Constants,
    Cylinder,
    Shape,
)
from jaxcontact.geometry.support import num_vertices

if TYPE_CHECKING:
    from jaxtyping import Float

FEWEST_MESHES = 8  # pairs of two sizes that get their contacts; few links of a robot come near one another
SIZES = (8, 256)  # vertices: pairs whose larger core has as many or fewer share one program


class Candidates(NamedTuple):
    """Candidate contacts of a mechanism at one configuration; axis 0 is the contact.

    There are nc candidates; k of them are computed, all without `near_pairs`.
    """

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
        family, a, b, swapped = order_pair(dim, shapes[name_a], shapes[name_b])
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
        count += count_contacts(dim, a, b)
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
            dict.fromkeys(shape.name for shape in seen_as_balls(*order_pair(dim, shapes[a], shapes[b])[:3]))
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
    return Candidates(
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
