"""Shapes, candidate pairs, gaps and contact frames.

A shape belongs to a body, or to the world (`body=None`), and names its numbers instead of holding
them: `Disc(name="foot", body="shank", radius="foot_radius")` reads `params.constants["foot_radius"]`,
so a mechanism stays hashable while every length can be differentiated by.

A contact of two balls with one centre has no normal: there it is the last axis, and its derivative zero.

Conventions: the normal of a pair (a, b) points from b to a, so phi > 0 is separated. In the plane the
tangent is the normal turned by -90 degrees, t = (n_y, -n_x); on a floor n = (0, 1), t = (1, 0).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np


@dataclasses.dataclass(frozen=True, kw_only=True)
class Point:
    """A point fixed to a body. `at` names its body coordinates (dim,); default the body origin."""

    name: str
    body: str
    at: str | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Points:
    """`count` points fixed to a body; `at` names their body coordinates (count, dim)."""

    name: str
    body: str
    at: str
    count: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class Disc:
    """A disc in the plane: `radius` (m) and centre `at` in body coordinates, both by name."""

    name: str
    body: str | None
    radius: str
    at: str | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Sphere:
    """A sphere in space: `radius` (m) and centre `at` in body coordinates, both by name."""

    name: str
    body: str | None
    radius: str
    at: str | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Box:
    """Corners of a box (rectangle in the plane) of side lengths `size` (dim,), centred on its body.

    Corner k has the sign + along axis j where bit j of k is set: in the plane 0 is lower left,
    1 lower right, 2 upper left, 3 upper right. `corners` keeps only the listed ones; None is all.
    """

    name: str
    body: str
    size: str
    corners: tuple[int, ...] | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class HalfSpace:
    """Solid below a plane fixed to the world (half-plane in 2-D): {x : normal . x <= offset}.

    `normal` is a unit tuple; `offset` names its distance from the origin in m, None is zero.
    """

    name: str
    normal: tuple[float, ...]
    offset: str | None = None


Shape = Point | Points | Disc | Sphere | Box | HalfSpace
WORLD = -1


class Candidates(NamedTuple):
    """All candidate contacts of a mechanism at one configuration; axis 0 is the contact."""

    body_a: tuple[int, ...]  # body index, WORLD for the world
    body_b: tuple[int, ...]
    point: jax.Array  # (nc, dim) world point where the pair touches, on a's surface
    point_b: jax.Array  # (nc, dim) the same on b's surface
    phi: jax.Array  # (nc,) gap in m
    normal: jax.Array  # (nc, dim)
    tangents: jax.Array  # (nc, dim - 1, dim)


def check_pair(a: Shape, b: Shape) -> None:
    """Raise ValueError for shapes that would pass through each other, as only corners or points meet."""
    for one, other in ((a, b), (b, a)):
        if isinstance(one, Box) and not isinstance(other, HalfSpace):
            raise ValueError(
                f"pairs: the box {one.name!r} meets half-spaces only, for it is made of its corners; "
                f"{other.name!r}, a {type(other).__name__}, would pass through its faces"
            )
    if isinstance(a, Point | Points) and isinstance(b, Point | Points):
        raise ValueError(
            f"pairs: {a.name!r} and {b.name!r} are points, which never meet; give one of them a radius"
        )


def num_balls(dim: int, shape: Shape) -> int:
    """Number of balls (points, corners, discs, spheres) that a shape is made of; 1 for a half-space."""
    if isinstance(shape, Points):
        return shape.count
    if isinstance(shape, Box):
        return 2**dim if shape.corners is None else len(shape.corners)
    return 1


def num_contacts(dim: int, shapes: Mapping[str, Shape], pairs: tuple[tuple[str, str], ...]) -> int:
    """Number of candidate contacts that the pairs of shapes make."""
    return sum(num_balls(dim, shapes[a]) * num_balls(dim, shapes[b]) for a, b in pairs)


def contact_bodies(
    dim: int, bodies: tuple[str, ...], shapes: Mapping[str, Shape], pairs: tuple[tuple[str, str], ...]
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Indices of the two bodies of every candidate contact, WORLD for the world, as in `candidates`."""
    place = {name: index for index, name in enumerate(bodies)}
    first: list[int] = []
    second: list[int] = []
    for a, b in pairs:
        count = num_balls(dim, shapes[a]) * num_balls(dim, shapes[b])
        for found, shape in ((first, shapes[a]), (second, shapes[b])):
            body = getattr(shape, "body", None)
            found += [WORLD if body is None else place[body]] * count
    return tuple(first), tuple(second)


def _centres(shape: Shape, dim: int, constants: Mapping[str, Any], dtype: Any) -> jax.Array:
    """Centres (k, dim) in body coordinates of the balls of a shape."""
    if isinstance(shape, Box):
        half = 0.5 * jnp.asarray(constants[shape.size], dtype)
        corners = range(2**dim) if shape.corners is None else shape.corners
        signs = np.array([[1.0 if k >> axis & 1 else -1.0 for axis in range(dim)] for k in corners])
        return half[None, :] * jnp.asarray(signs, dtype)
    assert not isinstance(shape, HalfSpace)
    if shape.at is None:
        return jnp.zeros((1, dim), dtype)
    return jnp.asarray(constants[shape.at], dtype).reshape(num_balls(dim, shape), dim)


def rows(array: jax.Array, index: Sequence[int]) -> jax.Array:
    """array[index] for a static index, as a slice or a broadcast where it is one."""
    first, count = index[0], len(index)
    if all(i == first for i in index):
        return jnp.broadcast_to(array[first : first + 1], (count, *array.shape[1:]))
    if list(index) == list(range(first, first + count)):
        return array[first : first + count]
    return array[np.array(index)]


def products(matrices: jax.Array, vectors: jax.Array) -> jax.Array:
    """A_k x_k (k, m) of (k, m, n) and (k, n), written out: batches of small matrix products are slow."""
    terms = [matrices[:, :, j] * vectors[:, j, None] for j in range(vectors.shape[1])]
    return sum(terms[1:], terms[0])


def tangent_frame(normal: jax.Array) -> jax.Array:
    """Tangents (dim - 1, dim) completing a unit normal (dim,) to a right-handed frame."""
    if normal.shape[0] == 2:
        return jnp.stack([normal[1], -normal[0]])[None, :]
    axis = jnp.where(jnp.abs(normal[0]) < 0.9, jnp.array([1.0, 0.0, 0.0]), jnp.array([0.0, 1.0, 0.0])).astype(
        normal.dtype
    )
    first = axis - normal * jnp.sum(axis * normal)
    first = first / jnp.sqrt(jnp.sum(first**2))
    return jnp.stack([first, jnp.cross(normal, first)])


class _Balls(NamedTuple):
    """Every ball of every shape that occurs in a pair; axis 0 is the ball."""

    start: dict[str, int]  # first ball of a shape
    body: tuple[int, ...]
    centre: jax.Array  # (n, dim) in the world
    radius: jax.Array  # (n,)


def _place_balls(
    dim: int,
    bodies: tuple[str, ...],
    shapes: Mapping[str, Shape],
    names: Sequence[str],
    positions: jax.Array,
    orientations: jax.Array,
    constants: Mapping[str, Any],
) -> _Balls:
    start: dict[str, int] = {}
    owner: list[int] = []
    local, radius = [], []
    for name in names:
        shape: Any = shapes[name]
        start[name] = len(owner)
        count = num_balls(dim, shape)
        owner += [WORLD if shape.body is None else bodies.index(shape.body)] * count
        local.append(_centres(shape, dim, constants, positions.dtype))
        size = constants[shape.radius] if isinstance(shape, Disc | Sphere) else 0.0
        radius.append(jnp.broadcast_to(jnp.asarray(size, positions.dtype), (count,)))
    at = jnp.concatenate(local)
    where = [max(body, 0) for body in owner]
    placed = rows(positions, where) + products(rows(orientations, where), at)
    fixed = np.array(owner) == WORLD
    if fixed.any():
        placed = jnp.where(fixed[:, None], at, placed)
    return _Balls(start, tuple(owner), placed, jnp.concatenate(radius))


_Rows = tuple[jax.Array, jax.Array, jax.Array, jax.Array]  # point on a, point on b, gap, normal


def _ball_on_plane(
    balls: _Balls, found: list[tuple[int, int, HalfSpace]], constants: Mapping[str, Any]
) -> _Rows:
    index, planes = [i for _, i, _ in found], [plane for *_, plane in found]
    dtype = balls.centre.dtype
    distinct = list(dict.fromkeys(planes))
    offsets = [0.0 if plane.offset is None else constants[plane.offset] for plane in distinct]
    offset = rows(jnp.stack([jnp.asarray(x, dtype) for x in offsets]), [distinct.index(p) for p in planes])
    centre, radius = rows(balls.centre, index), rows(balls.radius, index)
    normal = jnp.asarray(np.array([plane.normal for plane in planes]), dtype)
    phi = jnp.sum(normal * centre, axis=1) - offset - radius
    touch = centre - radius[:, None] * normal
    return touch, touch - phi[:, None] * normal, phi, normal


def _ball_on_ball(balls: _Balls, found: list[tuple[int, int, int]]) -> _Rows:
    first, second = [i for _, i, _ in found], [k for *_, k in found]
    centre_a, centre_b = rows(balls.centre, first), rows(balls.centre, second)
    radius_a, radius_b = rows(balls.radius, first), rows(balls.radius, second)
    square = jnp.sum((centre_a - centre_b) ** 2, axis=1)
    apart = square > 0.0
    distance = jnp.sqrt(jnp.where(apart, square, 1.0))
    last_axis = jnp.zeros_like(centre_a).at[:, -1].set(1.0)
    normal = jnp.where(apart[:, None], (centre_a - centre_b) / distance[:, None], last_axis)
    phi = jnp.where(apart, distance, 0.0) - radius_a - radius_b
    return centre_a - radius_a[:, None] * normal, centre_b + radius_b[:, None] * normal, phi, normal


def candidates(
    dim: int,
    bodies: tuple[str, ...],
    shapes: Mapping[str, Shape],
    pairs: tuple[tuple[str, str], ...],
    positions: jax.Array,
    orientations: jax.Array,
    constants: Mapping[str, Any],
) -> Candidates:
    """Gaps and frames of every candidate contact, in the order of `pairs`, corners within a pair.

    Args:
        positions: (nb, dim) world positions of the body origins, m.
        orientations: (nb, dim, dim) body-to-world rotation matrices.
    """
    used = dict.fromkeys(n for pair in pairs for n in pair if not isinstance(shapes[n], HalfSpace))
    balls = _place_balls(dim, bodies, shapes, tuple(used), positions, orientations, constants)
    on_plane, on_ball = [], []  # contacts with half-spaces, and of two balls: (place in the list, ...)
    count = 0
    for name_a, name_b in pairs:
        b = shapes[name_b]
        for i in range(num_balls(dim, shapes[name_a])):
            first = balls.start[name_a] + i
            for k in range(num_balls(dim, b)):
                if isinstance(b, HalfSpace):
                    on_plane.append((count, first, b))
                else:
                    on_ball.append((count, first, balls.start[name_b] + k))
                count += 1
    parts = []
    if on_plane:
        parts.append(_ball_on_plane(balls, on_plane, constants))
    if on_ball:
        parts.append(_ball_on_ball(balls, on_ball))
    order = np.argsort([c for c, *_ in on_plane] + [c for c, *_ in on_ball])
    point, point_b, phi, normal = (
        rows(jnp.concatenate(column), order.tolist()) for column in zip(*parts, strict=True)
    )
    body_a = [balls.body[i] for _, i, _ in on_plane] + [balls.body[i] for _, i, _ in on_ball]
    body_b = [WORLD for _ in on_plane] + [balls.body[k] for *_, k in on_ball]
    return Candidates(
        body_a=tuple(body_a[i] for i in order),
        body_b=tuple(body_b[i] for i in order),
        point=point,
        point_b=point_b,
        phi=phi,
        normal=normal,
        tangents=jax.vmap(tangent_frame)(normal),
    )
