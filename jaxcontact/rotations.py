"""Rotations: unit quaternions (w, x, y, z), rotation matrices, planar angles.

A quaternion maps body axes to world axes; angular velocities are in body axes.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp


def planar_matrix(angle: jax.Array) -> jax.Array:
    """Rotation matrix (..., 2, 2) of a counter-clockwise angle (...) in rad."""
    c, s = jnp.cos(angle), jnp.sin(angle)
    return jnp.stack([jnp.stack([c, -s], -1), jnp.stack([s, c], -1)], -2)


def quaternion_matrix(quaternion: jax.Array) -> jax.Array:
    """Rotation matrix (3, 3) of a quaternion (4,), homogeneous of degree 0 in its length."""
    w, x, y, z = quaternion
    rows = [
        [w * w + x * x - y * y - z * z, 2 * (x * y - w * z), 2 * (x * z + w * y)],
        [2 * (x * y + w * z), w * w - x * x + y * y - z * z, 2 * (y * z - w * x)],
        [2 * (x * z - w * y), 2 * (y * z + w * x), w * w - x * x - y * y + z * z],
    ]
    return jnp.array(rows) / jnp.sum(quaternion**2)


def quaternion_product(a: jax.Array, b: jax.Array) -> jax.Array:
    """Hamilton product a b (4,)."""
    aw, av, bw, bv = a[0], a[1:], b[0], b[1:]
    vector = aw * bv + bw * av + jnp.cross(av, bv)
    return jnp.concatenate([(aw * bw - jnp.sum(av * bv))[None], vector])


def quaternion_rate_map(quaternion: jax.Array) -> jax.Array:
    """Matrix (4, 3) with qdot = 1/2 q (0, omega), omega in body axes (rad/s)."""
    w, x, y, z = quaternion
    return 0.5 * jnp.array([[-x, -y, -z], [w, -z, y], [z, w, -x], [-y, x, w]])


def quaternion_exp(rotation_vector: jax.Array) -> jax.Array:
    """Unit quaternion (4,) of a rotation vector (3,) in rad; smooth at zero."""
    square = jnp.sum(rotation_vector**2)
    small = square < 1e-8
    safe = jnp.where(small, 1.0, square)
    angle = jnp.sqrt(safe)
    cosine = jnp.where(small, 1.0 - square / 8.0, jnp.cos(0.5 * angle))
    sinc = jnp.where(small, 0.5 - square / 48.0, jnp.sin(0.5 * angle) / angle)
    return jnp.concatenate([cosine[None], sinc * rotation_vector])


def vee(skew: jax.Array) -> jax.Array:
    """Vector (3,) of a skew-symmetric matrix (3, 3)."""
    return 0.5 * jnp.array([skew[2, 1] - skew[1, 2], skew[0, 2] - skew[2, 0], skew[1, 0] - skew[0, 1]])
