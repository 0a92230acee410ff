"""Spatial algebra in rows: placements (n, 3, 4), motions and forces (n, 6), inertias (n, 6, 6).

A motion is (angular velocity, linear velocity of the point at the origin), a force is (torque about the
origin, force). A bilinear product multiplies all pairs of entries and sums them by a constant matrix, so the
compiled program has few operations. Small matrices are multiplied entry by entry, because batched dot
products of small matrices are slow.
"""

from __future__ import annotations

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np

# (a x b)_k is the sum of CROSS[i, j, k] a_i b_j; R |q|^2 of a quaternion q is the sum of TURN[a, b] q_a q_b.
CROSS = np.cross(np.eye(3)[:, None, :], np.eye(3)[None])
TURN = np.zeros((4, 4, 3, 3))
TURN[0, 0] = np.eye(3)
TURN[0, 1:] = -2.0 * np.moveaxis(CROSS, 2, 0)
TURN[1:, 1:] = 2.0 * np.einsum("ak,bl->abkl", np.eye(3), np.eye(3))
TURN[range(1, 4), range(1, 4)] -= np.eye(3)
# V x S = (w x w', w x l' + l x w') and V x* f = (w x t + l x f, w x f), Featherstone (2.31, 2.32)
MOTION_CROSS, FORCE_CROSS = np.zeros((2, 6, 6, 6))
for _i, _j, _k in ((0, 0, 0), (0, 1, 1), (1, 0, 1)):
    MOTION_CROSS[3 * _i :, 3 * _j :, 3 * _k :][:3, :3, :3] = CROSS
for _i, _j, _k in ((0, 0, 0), (1, 1, 0), (0, 1, 1)):
    FORCE_CROSS[3 * _i :, 3 * _j :, 3 * _k :][:3, :3, :3] = CROSS


def pick(array: jax.Array, index: Sequence[int] | np.ndarray) -> jax.Array:
    """array[index] for a static index within bounds; a slice where the index is 0, 1, 2, ..."""
    places = np.asarray(index, int)
    if np.array_equal(places, np.arange(places.size)):
        return array[: places.size]
    return array.at[places].get(mode="promise_in_bounds", wrap_negative_indices=False)


def bilinear(table: np.ndarray, a: jax.Array, b: jax.Array) -> jax.Array:
    """(n, k) sums of table[i, j, k] a_i b_j of rows a (n, i), b (n, j)."""
    products = (a[:, :, None] * b[:, None, :]).reshape(-1, a.shape[1] * b.shape[1])
    return products @ jnp.asarray(table.reshape(products.shape[1], -1), a.dtype)


def cross(a: jax.Array, b: jax.Array) -> jax.Array:
    """Cross products of vectors (n, 3)."""
    return bilinear(CROSS, a, b)


def matrices(quaternions: jax.Array) -> jax.Array:
    """Rotation matrices (n, 3, 3) of quaternions (n, 4) of any length."""
    square = jnp.sum(quaternions**2, axis=1, keepdims=True)
    return (bilinear(TURN, quaternions, quaternions) / square).reshape(-1, 3, 3)


def rotate(matrix: jax.Array, x: jax.Array) -> jax.Array:
    """Matrices (n, m, k) times vectors (n, k)."""
    return jnp.sum(matrix * x[:, None, :], axis=2)


def multiply(a: jax.Array, b: jax.Array) -> jax.Array:
    """Matrices (n, m, k) times matrices (n, k, l)."""
    return jnp.sum(a[:, :, :, None] * b[:, None], axis=2)


def placement(rotation: jax.Array, position: jax.Array) -> jax.Array:
    """Rotations (n, 3, 3) and positions (n, 3) side by side (n, 3, 4)."""
    return jnp.concatenate([rotation, position[:, :, None]], axis=2)


def compose(a: jax.Array, b: jax.Array) -> jax.Array:
    """Composition (n, 3, 4) of placements: b is relative to a, the result is relative to the base of a."""
    shift = jnp.asarray(np.array([0.0, 0.0, 0.0, 1.0]), a.dtype)
    return multiply(a[:, :, :3], b) + a[:, :, 3:] * shift[None, None]


def unit(x: jax.Array) -> jax.Array:
    """Unit vectors (n, m) along x; a zero vector stays zero, with a finite derivative."""
    square = jnp.sum(x**2, axis=1, keepdims=True)
    return x / jnp.sqrt(jnp.where(square > 0.0, square, 1.0))


def inertia(mass: jax.Array, centre: jax.Array, tensor: jax.Array) -> jax.Array:
    """Inertias (n, 6, 6) about the origin, of masses (n,) at `centre` (n, 3) with `tensor` (n, 3, 3)."""
    eye = jnp.eye(3, dtype=mass.dtype)[None]
    moment = mass[:, None] * centre
    skew = jnp.swapaxes((moment @ jnp.asarray(CROSS.reshape(3, 9), mass.dtype)).reshape(-1, 3, 3), 1, 2)
    square = jnp.sum(moment * centre, axis=1)[:, None, None]
    about_origin = tensor + square * eye - moment[:, :, None] * centre[:, None, :]
    top = jnp.concatenate([about_origin, skew], axis=2)
    return jnp.concatenate([top, jnp.concatenate([-skew, mass[:, None, None] * eye], axis=2)], axis=1)
