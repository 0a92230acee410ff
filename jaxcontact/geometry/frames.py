"""Unit vectors that stay finite at zero, contact frames, poses of shapes, small batched products."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

import jax
import jax.numpy as jnp
import numpy as np

from jaxcontact.algebra import rotations
from jaxcontact.front_door import checked
from jaxcontact.geometry.shapes import WORLD, Constants, Shape

if TYPE_CHECKING:
    from jaxtyping import Float


@checked()
def rows(array: jax.Array, index: Sequence[int]) -> jax.Array:
    """Select array[index] for a static index, by a slice or a broadcast if the index is regular."""
    first, count = index[0], len(index)
    if all(i == first for i in index):
        return jnp.broadcast_to(array[first : first + 1], (count, *array.shape[1:]))
    if list(index) == list(range(first, first + count)):
        return array[first : first + count]
    return array[np.array(index)]


@checked()
def products(matrices: Float[jax.Array, "k m n"], vectors: Float[jax.Array, "k n"]) -> jax.Array:
    """Multiply A_k x_k (k, m) of (k, m, n) and (k, n), entry by entry: small batched products are slow."""
    terms = [matrices[:, :, j] * vectors[:, j, None] for j in range(vectors.shape[1])]
    return sum(terms[1:], terms[0])


@checked()
def tangent_frame(normal: Float[jax.Array, " 2"] | Float[jax.Array, " 3"]) -> jax.Array:
    """Compute tangents (dim - 1, dim) that complete a unit normal (dim,) to a right-handed frame."""
    if normal.shape[0] == 2:
        return jnp.stack([normal[1], -normal[0]])[None, :]
    axis = jnp.where(jnp.abs(normal[0]) < 0.9, jnp.array([1.0, 0.0, 0.0]), jnp.array([0.0, 1.0, 0.0])).astype(
        normal.dtype
    )
    first = axis - normal * dot(axis, normal)
    first = first / jnp.sqrt(dot(first, first))
    return jnp.stack([first, jnp.cross(normal, first)])


def unit(vector: jax.Array, fallback: jax.Array, end: jax.Array | None = None) -> tuple[jax.Array, jax.Array]:
    """Split a vector into its direction (..., dim) and length (...); a zero vector has `fallback` and 0.

    The derivatives by a zero vector are zero. A vector also counts as zero if the square of its length or the
    inverse of the square leaves the floats, or if, given its end point `end` (..., dim), only rounding
    distinguishes its two ends.
    """
    square = dot(vector, vector)[..., None]
    floats = jnp.finfo(vector.dtype)
    nonzero = square > floats.tiny**0.5
    if end is not None:
        nonzero &= square > (8.0 * floats.eps) ** 2 * dot(end, end)[..., None]
    length = jnp.sqrt(jnp.where(nonzero, square, 1.0))
    return jnp.where(nonzero, vector / length, fallback), jnp.where(nonzero, length, 0.0)[..., 0]


def across(vector: jax.Array) -> jax.Array:
    """Choose a unit vector (..., dim) perpendicular to a vector; the last axis for a vector of zero."""
    if vector.shape[-1] == 2:
        turned = jnp.stack([-vector[..., 1], vector[..., 0]], axis=-1)
    else:
        smallest_axis = jnp.argmin(jnp.abs(vector), axis=-1)
        turned = jnp.cross(jnp.cross(vector, jnp.eye(3, dtype=vector.dtype)[smallest_axis]), vector)
    last_axis = jnp.zeros_like(vector).at[..., -1].set(1.0)
    return unit(turned, last_axis)[0]


def dot(a: jax.Array, b: jax.Array) -> jax.Array:
    """Sum the products along the last axis, entry by entry: many short sums are slow."""
    terms = [a[..., i] * b[..., i] for i in range(a.shape[-1])]
    return sum(terms[1:], terms[0])


class Posed(Protocol):
    """A shape with a place and a rotation in its body, None for those of the body."""

    @property
    def at(self) -> str | None:
        """The name of the place (dim,)."""

    @property
    def rotation(self) -> str | None:
        """The name of the quaternion (4,), in the plane of the angle."""


def pose_in_body(
    shape: Posed, dim: int, constants: Constants, dtype: jax.typing.DTypeLike
) -> tuple[jax.Array, jax.Array]:
    """Compute the origin (dim,) and axes (dim, dim) of a shape in its body, from `at` and `rotation`."""
    origin = jnp.zeros(dim, dtype) if shape.at is None else jnp.asarray(constants[shape.at], dtype)
    if shape.rotation is None:
        return origin, jnp.eye(dim, dtype=dtype)
    rotation = jnp.asarray(constants[shape.rotation], dtype)
    return origin, rotations.planar_matrix(rotation) if dim == 2 else rotations.quaternion_matrix(rotation)


def owners(shapes: Sequence[Shape], bodies: tuple[str, ...]) -> tuple[int, ...]:
    """Look up the index of the body of each shape, WORLD for the world."""
    body_names = [getattr(shape, "body", None) for shape in shapes]
    return tuple(WORLD if body is None else bodies.index(body) for body in body_names)


def frames_of(
    owner: Sequence[int], positions: jax.Array, orientations: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Select positions (n, dim) and orientations (n, dim, dim) of bodies by index, the world's for WORLD."""
    index = [max(body, 0) for body in owner]
    position, orientation = rows(positions, index), rows(orientations, index)
    fixed = np.array(owner) == WORLD
    if fixed.any():
        position = jnp.where(fixed[:, None], 0.0, position)
        orientation = jnp.where(
            fixed[:, None, None], jnp.eye(position.shape[1], dtype=position.dtype), orientation
        )
    return position, orientation


def turned(matrices: jax.Array, vectors: jax.Array) -> jax.Array:
    """Multiply R_k x_kj (k, j, dim) of (k, dim, dim) and (k, j, dim), entry by entry as in `products`."""
    terms = [matrices[:, None, :, j] * vectors[:, :, j, None] for j in range(vectors.shape[2])]
    return sum(terms[1:], terms[0])
