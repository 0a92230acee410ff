"""Shapes, candidate pairs, gaps and contact frames.

A shape belongs to a body, or to the world (`body=None`), and names its numbers instead of holding
them: `Disc(name="foot", body="shank", radius="foot_radius")` reads `params.constants["foot_radius"]`,
so a mechanism stays hashable while every length can be differentiated by.

Conventions: the normal of a pair (a, b) points from b to a, so phi > 0 is separated. In the plane the
tangent is the normal turned by -90 degrees, t = (n_y, -n_x); on a floor n = (0, 1), t = (1, 0).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp


@dataclasses.dataclass(frozen=True, kw_only=True)
class Point:
    """A point fixed to a body. `at` names its body coordinates (dim,); default the body origin."""

    name: str
    body: str
    at: str | None = None


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


Shape = Point | Disc | Sphere | Box | HalfSpace
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


def _balls(shape: Shape, dim: int, constants: Mapping[str, Any]) -> list[tuple[Any, Any]]:
    """A shape as balls (centre in body coordinates, radius); points and corners have radius 0."""
    if isinstance(shape, Box):
        half = 0.5 * jnp.asarray(constants[shape.size])
        corners = range(2**dim) if shape.corners is None else shape.corners
        signs = [[1.0 if k >> axis & 1 else -1.0 for axis in range(dim)] for k in corners]
        return [(half * jnp.array(sign, half.dtype), 0.0) for sign in signs]
    assert not isinstance(shape, HalfSpace)
    centre = jnp.zeros(dim) if shape.at is None else jnp.asarray(constants[shape.at])
    return [(centre, 0.0 if isinstance(shape, Point) else constants[shape.radius])]


def num_contacts(dim: int, shapes: Mapping[str, Shape], pairs: tuple[tuple[str, str], ...]) -> int:
    """Number of candidate contacts that the pairs of shapes make."""

    def count(shape: Shape) -> int:
        if isinstance(shape, Box):
            return 2**dim if shape.corners is None else len(shape.corners)
        return 1

    return sum(count(shapes[a]) * count(shapes[b]) for a, b in pairs)


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
    dtype = positions.dtype

    def world(shape: Any, centre: jax.Array) -> jax.Array:
        centre = jnp.asarray(centre, dtype)
        if shape.body is None:
            return centre
        index = bodies.index(shape.body)
        return positions[index] + orientations[index] @ centre

    def body_index(shape: Any) -> int:
        body = getattr(shape, "body", None)
        return WORLD if body is None else bodies.index(body)

    rows: list[tuple[int, int, jax.Array, jax.Array, jax.Array, jax.Array]] = []
    for name_a, name_b in pairs:
        a, b = shapes[name_a], shapes[name_b]
        for centre_a, radius_a in _balls(a, dim, constants):
            ball = world(a, centre_a)
            if isinstance(b, HalfSpace):
                normal = jnp.array(b.normal, dtype)
                offset = 0.0 if b.offset is None else constants[b.offset]
                phi = jnp.sum(normal * ball) - offset - radius_a
                touch = ball - radius_a * normal
                rows.append((body_index(a), WORLD, touch, touch - phi * normal, phi, normal))
                continue
            for centre_b, radius_b in _balls(b, dim, constants):
                other = world(b, centre_b)
                distance = jnp.sqrt(jnp.sum((ball - other) ** 2))
                normal = (ball - other) / distance
                phi = distance - radius_a - radius_b
                touch = ball - radius_a * normal
                rows.append((body_index(a), body_index(b), touch, other + radius_b * normal, phi, normal))
    columns = list(zip(*rows, strict=True))
    normals = jnp.stack(columns[5])
    return Candidates(
        body_a=tuple(columns[0]),
        body_b=tuple(columns[1]),
        point=jnp.stack(columns[2]),
        point_b=jnp.stack(columns[3]),
        phi=jnp.stack(columns[4]),
        normal=normals,
        tangents=jnp.stack([tangent_frame(normals[i]) for i in range(len(rows))]),
    )
