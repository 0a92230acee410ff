"""Frames: unit vectors that stay finite at zero, contact frames, poses of shapes, small batched products."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxcontact.algebra import rotations
from jaxcontact.geometry.shapes import WORLD


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


def unit(vector: jax.Array, fallback: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Direction (..., dim) and length (...) of a vector; where it is zero `fallback` and 0, derivatives 0.

    So short that the square of the length, or its inverse, is no number is zero, too.
    """
    square = jnp.sum(vector**2, axis=-1, keepdims=True)
    there = square > jnp.finfo(vector.dtype).tiny ** 0.5
    length = jnp.sqrt(jnp.where(there, square, 1.0))
    return jnp.where(there, vector / length, fallback), jnp.where(there, length, 0.0)[..., 0]


def across(vector: jax.Array) -> jax.Array:
    """A unit vector (..., dim) perpendicular to a vector; the last axis for a vector of zero."""
    if vector.shape[-1] == 2:
        turned = jnp.stack([-vector[..., 1], vector[..., 0]], axis=-1)
    else:
        least = jnp.argmin(jnp.abs(vector), axis=-1)
        turned = jnp.cross(jnp.cross(vector, jnp.eye(3, dtype=vector.dtype)[least]), vector)
    last = jnp.zeros_like(vector).at[..., -1].set(1.0)
    return unit(turned, last)[0]


def dot(a: jax.Array, b: jax.Array) -> jax.Array:
    """Sum of products along the last axis."""
    return jnp.sum(a * b, axis=-1)


def pose_in_body(
    shape: Any, dim: int, constants: Mapping[str, Any], dtype: Any
) -> tuple[jax.Array, jax.Array]:
    """Origin (dim,) and axes (dim, dim) of a shape in its body, from `at` and `rotation`."""
    at = jnp.zeros(dim, dtype) if shape.at is None else jnp.asarray(constants[shape.at], dtype)
    if shape.rotation is None:
        return at, jnp.eye(dim, dtype=dtype)
    turn = jnp.asarray(constants[shape.rotation], dtype)
    return at, rotations.planar_matrix(turn) if dim == 2 else rotations.quaternion_matrix(turn)


def owners(shapes: Sequence[Any], bodies: tuple[str, ...]) -> tuple[int, ...]:
    """Index of the body of each shape, WORLD for the world."""
    found = [getattr(shape, "body", None) for shape in shapes]
    return tuple(WORLD if body is None else bodies.index(body) for body in found)


def frames_of(
    owner: Sequence[int], positions: jax.Array, orientations: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Positions (n, dim) and orientations (n, dim, dim) of bodies by index, those of the world at WORLD."""
    index = [max(body, 0) for body in owner]
    place, turn = rows(positions, index), rows(orientations, index)
    fixed = np.array(owner) == WORLD
    if fixed.any():
        place = jnp.where(fixed[:, None], 0.0, place)
        turn = jnp.where(fixed[:, None, None], jnp.eye(place.shape[1], dtype=place.dtype), turn)
    return place, turn


def turned(matrices: jax.Array, vectors: jax.Array) -> jax.Array:
    """R_k x_kj (k, j, dim) of (k, dim, dim) and (k, j, dim), written out as `products` is."""
    terms = [matrices[:, None, :, j] * vectors[:, :, j, None] for j in range(vectors.shape[2])]
    return sum(terms[1:], terms[0])
