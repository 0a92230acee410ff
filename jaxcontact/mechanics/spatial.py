"""Spatial algebra of frames in rows, and of motions, forces and inertias by components.

A motion is (angular velocity, linear velocity of the point at the origin), a force is (torque about the
origin, force). Each component of a vector is an array with one entry per body or velocity, so all products
are elementwise, without the zeros of spatial matrices. Frames are placements (n, 3, 4).
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxcontact._pytree import PyTree

Vector = tuple[jax.Array, jax.Array, jax.Array]
Screw = tuple[Vector, Vector]

# (a x b)_k is the sum of CROSS[i, j, k] a_i b_j; R |q|^2 of a quaternion q is the sum of TURN[a, b] q_a q_b.
CROSS = np.cross(np.eye(3)[:, None, :], np.eye(3)[None])
TURN = np.zeros((4, 4, 3, 3))
TURN[0, 0] = np.eye(3)
TURN[0, 1:] = -2.0 * np.moveaxis(CROSS, 2, 0)
TURN[1:, 1:] = 2.0 * np.einsum("ak,bl->abkl", np.eye(3), np.eye(3))
TURN[range(1, 4), range(1, 4)] -= np.eye(3)


def pick(array: jax.Array, index: Sequence[int] | np.ndarray) -> jax.Array:
    """Return array[index] for a static index within bounds; a slice if the index is 0, 1, 2, ..."""
    places = np.asarray(index, int)
    if np.array_equal(places, np.arange(places.size)):
        return array[: places.size]
    return array.at[places].get(mode="promise_in_bounds", wrap_negative_indices=False)


def bilinear(table: np.ndarray, a: jax.Array, b: jax.Array) -> jax.Array:
    """Compute the sums (n, k) of table[i, j, k] a_i b_j of rows a (n, i), b (n, j).

    It multiplies all pairs of entries and sums them by a constant matrix, in few operations.
    """
    products = (a[:, :, None] * b[:, None, :]).reshape(-1, a.shape[1] * b.shape[1])
    return products @ jnp.asarray(table.reshape(products.shape[1], -1), a.dtype)


def cross(a: jax.Array, b: jax.Array) -> jax.Array:
    """Compute the cross products (n, 3) of vectors (n, 3)."""
    return bilinear(CROSS, a, b)


def matrices(quaternions: jax.Array) -> jax.Array:
    """Compute the rotation matrices (n, 3, 3) of quaternions (n, 4) of any length."""
    square = jnp.sum(quaternions**2, axis=1, keepdims=True)
    return (bilinear(TURN, quaternions, quaternions) / square).reshape(-1, 3, 3)


def rotate(matrix: jax.Array, x: jax.Array) -> jax.Array:
    """Multiply matrices (n, m, k) by vectors (n, k)."""
    return _sum([matrix[:, :, k] * x[:, k, None] for k in range(x.shape[1])])


def multiply(a: jax.Array, b: jax.Array) -> jax.Array:
    """Multiply matrices (n, m, k) by matrices (n, k, l), entry by entry: batched dot products are slow."""
    return _sum([a[:, :, k, None] * b[:, None, k] for k in range(b.shape[1])])


def _sum(terms: list[jax.Array]) -> jax.Array:
    """Add a few arrays term by term: XLA makes a reduction slower than its terms."""
    return functools.reduce(jnp.add, terms)


def placement(rotation: jax.Array, position: jax.Array) -> jax.Array:
    """Join rotations (n, 3, 3) and positions (n, 3) side by side; return placements (n, 3, 4)."""
    return jnp.concatenate([rotation, position[:, :, None]], axis=2)


def compose(a: jax.Array, b: jax.Array) -> jax.Array:
    """Compose placements (n, 3, 4): b is relative to a, the result is relative to the base of a."""
    shift = jnp.asarray(np.array([0.0, 0.0, 0.0, 1.0]), a.dtype)
    return multiply(a[:, :, :3], b) + a[:, :, 3:] * shift[None, None]


def unit(x: jax.Array) -> jax.Array:
    """Return unit vectors (n, m) along x; a zero vector stays zero, with a finite derivative."""
    square = jnp.sum(x**2, axis=1, keepdims=True)
    return x / jnp.sqrt(jnp.where(square > 0.0, square, 1.0))


class Inertia(NamedTuple):
    """Spatial inertia about a point: mass, first moment of mass, and tensor (xx, yy, zz, yz, zx, xy)."""

    mass: jax.Array
    moment: Vector
    tensor: tuple[jax.Array, ...]


def components(array: jax.Array) -> PyTree:
    """Split rows (n, ...) into their components (n,), as nested tuples."""
    if array.ndim == 1:
        return array
    return tuple(components(array[:, i]) for i in range(array.shape[1]))


def add(a: Vector, b: Vector) -> Vector:
    """Add two vectors."""
    return a[0] + b[0], a[1] + b[1], a[2] + b[2]


def scale(factor: float | jax.Array, a: Vector) -> Vector:
    """Multiply a vector by a number."""
    return factor * a[0], factor * a[1], factor * a[2]


def dot3(a: Vector, b: Vector) -> jax.Array:
    """Compute the inner product of two vectors."""
    return a[0] * b[0] + a[1] * b[1] + a[2] * b[2]


def cross3(a: Vector, b: Vector) -> Vector:
    """Compute the cross product of two vectors."""
    return a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0]


def transform(matrix: tuple[Vector, Vector, Vector], x: Vector) -> Vector:
    """Multiply a matrix, a tuple of rows, by a vector."""
    return dot3(matrix[0], x), dot3(matrix[1], x), dot3(matrix[2], x)


def add_screws(a: Screw, b: Screw) -> Screw:
    """Add two motions or two forces."""
    return add(a[0], b[0]), add(a[1], b[1])


def motion_cross(a: Screw, b: Screw) -> Screw:
    """Compute V x S = (w x w', w x l' + l x w') of motions V, S (Featherstone, 2.31)."""
    return cross3(a[0], b[0]), add(cross3(a[0], b[1]), cross3(a[1], b[0]))


def force_cross(a: Screw, b: Screw) -> Screw:
    """Compute V x* f = (w x t + l x f, w x f) of a motion V and a force f (Featherstone, 2.32)."""
    return add(cross3(a[0], b[0]), cross3(a[1], b[1])), cross3(a[0], b[1])


def power(a: Screw, b: Screw) -> jax.Array:
    """Compute the power S . f of a motion S and a force f."""
    return dot3(a[0], b[0]) + dot3(a[1], b[1])


def powers(a: PyTree, b: PyTree) -> jax.Array:
    """Compute S_i . f_k (n, m) of all motions (n,) and forces (m,), or their sum over tuples of screws.

    One product of matrices: the compiler would repeat sums of components in every use of the pairs.
    """
    return jnp.stack(jax.tree.leaves(a), axis=1) @ jnp.stack(jax.tree.leaves(b))


def inertia_about(
    mass: jax.Array,
    centre: Vector,
    rotation: tuple[Vector, Vector, Vector],
    tensor: tuple[Vector, Vector, Vector],
) -> Inertia:
    """Compute the inertia about the origin of a mass at `centre`; `rotation` turns the axes of `tensor`."""
    turned = [transform(tensor, row) for row in rotation]  # the tensor is symmetric
    square = dot3(centre, centre)

    def entry(i: int, j: int) -> jax.Array:
        product = dot3(rotation[i], turned[j]) - mass * centre[i] * centre[j]
        return product + mass * square if i == j else product

    places = ((0, 0), (1, 1), (2, 2), (1, 2), (2, 0), (0, 1))
    return Inertia(mass, scale(mass, centre), tuple(entry(i, j) for i, j in places))


def momentum(inertia: Inertia, motion: Screw) -> Screw:
    """Compute the momentum I V = (J w + h x l, m l + w x h), about the origin."""
    (w, linear), h = motion, inertia.moment
    xx, yy, zz, yz, zx, xy = inertia.tensor
    turned = transform(((xx, xy, zx), (xy, yy, yz), (zx, yz, zz)), w)
    return add(turned, cross3(h, linear)), add(scale(inertia.mass, linear), cross3(w, h))


def sum_along(mask: np.ndarray, parts: PyTree) -> PyTree:
    """Sum all components (n,) of a pytree by a constant mask (n, m); return components (m,)."""
    leaves, structure = jax.tree.flatten(parts)
    sums = jnp.stack(leaves) @ jnp.asarray(mask, leaves[0].dtype)
    return jax.tree.unflatten(structure, [sums[i] for i in range(len(leaves))])
