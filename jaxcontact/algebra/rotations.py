"""Rotations: unit quaternions (w, x, y, z), rotation matrices, planar angles.

A quaternion maps body axes to world axes; angular velocities are in body axes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp

from jaxcontact.front_door import checked
from jaxcontact.precision import all_digits

if TYPE_CHECKING:
    from jaxtyping import Float


@checked()
def planar_matrix(angle: Float[jax.Array, " ..."]) -> jax.Array:
    """Compute the rotation matrix (..., 2, 2) of a counter-clockwise angle (...) in rad."""
    c, s = jnp.cos(angle), jnp.sin(angle)
    return jnp.stack([jnp.stack([c, -s], -1), jnp.stack([s, c], -1)], -2)


@checked()
def quaternion_matrix(quaternion: Float[jax.Array, " 4"]) -> jax.Array:
    """Compute the rotation matrix (3, 3) of a quaternion (4,), homogeneous of degree 0 in its length."""
    w, x, y, z = quaternion
    rows = [
        [w * w + x * x - y * y - z * z, 2 * (x * y - w * z), 2 * (x * z + w * y)],
        [2 * (x * y + w * z), w * w - x * x + y * y - z * z, 2 * (y * z - w * x)],
        [2 * (x * z - w * y), 2 * (y * z + w * x), w * w - x * x - y * y + z * z],
    ]
    return jnp.array(rows) / jnp.sum(quaternion**2)


@checked()
def quaternion_product(a: Float[jax.Array, " 4"], b: Float[jax.Array, " 4"]) -> jax.Array:
    """Compute the Hamilton product a b (4,)."""
    aw, av, bw, bv = a[0], a[1:], b[0], b[1:]
    vector = aw * bv + bw * av + jnp.cross(av, bv)
    return jnp.concatenate([(aw * bw - jnp.sum(av * bv))[None], vector])


@checked()
def quaternion_conjugate(quaternion: Float[jax.Array, " 4"]) -> jax.Array:
    """Return the quaternion (4,) of the inverse rotation, for a unit quaternion."""
    return jnp.concatenate([quaternion[:1], -quaternion[1:]])


@checked()
def quaternion_rate_map(quaternion: Float[jax.Array, " 4"]) -> jax.Array:
    """Return the matrix (4, 3) with qdot = 1/2 q (0, omega), omega in body axes (rad/s)."""
    w, x, y, z = quaternion
    return 0.5 * jnp.array([[-x, -y, -z], [w, -z, y], [z, w, -x], [-y, x, w]])


@checked()
def quaternion_exp(rotation_vector: Float[jax.Array, " 3"]) -> jax.Array:
    """Compute the unit quaternion (4,) of a rotation vector (3,) in rad; smooth at zero."""
    square = jnp.sum(rotation_vector**2)
    small = square < 1e-8
    safe_square = jnp.where(small, 1.0, square)
    angle = jnp.sqrt(safe_square)
    cosine = jnp.where(small, 1.0 - square / 8.0, jnp.cos(0.5 * angle))
    sinc = jnp.where(small, 0.5 - square / 48.0, jnp.sin(0.5 * angle) / angle)
    return jnp.concatenate([cosine[None], sinc * rotation_vector])


@checked()
def vee(skew: Float[jax.Array, "3 3"]) -> jax.Array:
    """Return the vector (3,) of a skew-symmetric matrix (3, 3)."""
    return 0.5 * jnp.array([skew[2, 1] - skew[1, 2], skew[0, 2] - skew[2, 0], skew[1, 0] - skew[0, 1]])


def _skew(vector: jax.Array) -> jax.Array:
    """Return the matrix (3, 3) of the cross product with a vector (3,)."""
    x, y, z = vector
    zero = jnp.zeros_like(x)
    return jnp.array([[zero, -z, y], [z, zero, -x], [-y, x, zero]])


@checked()
@all_digits
def exp_jacobian(rotation_vector: Float[jax.Array, " 3"]) -> jax.Array:
    """Compute the matrix J (3, 3) that maps the rate of a rotation vector (3,) to an angular velocity.

    The angular velocity is that of the exp of the vector, in body axes:
    J = 1 - (1 - cos a) / a^2 [d] + (a - sin a) / a^3 [d]^2, a = |d|; smooth at zero.
    """
    square = jnp.sum(rotation_vector**2)
    small = square < 1e-4
    safe_square = jnp.where(small, 1.0, square)
    angle = jnp.sqrt(safe_square)
    first = jnp.where(small, 0.5 - square / 24.0 + square**2 / 720.0, (1.0 - jnp.cos(angle)) / safe_square)
    second = jnp.where(
        small,
        1.0 / 6.0 - square / 120.0 + square**2 / 5040.0,
        (angle - jnp.sin(angle)) / (safe_square * angle),
    )
    skew = _skew(rotation_vector)
    return jnp.eye(3, dtype=skew.dtype) - first * skew + second * skew @ skew


@checked()
@all_digits
def exp_jacobian_inverse(rotation_vector: Float[jax.Array, " 3"]) -> jax.Array:
    """Compute the inverse (3, 3) of `exp_jacobian`: 1 + [d] / 2 + c [d]^2; smooth at zero.

    It holds for angles below 2 pi.
    """
    square = jnp.sum(rotation_vector**2)
    small = square < 1e-4
    safe_square = jnp.where(small, 1.0, square)
    half = 0.5 * jnp.sqrt(safe_square)
    second = jnp.where(
        small, 1.0 / 12.0 + square / 720.0 + square**2 / 30240.0, (1.0 - half / jnp.tan(half)) / safe_square
    )
    skew = _skew(rotation_vector)
    return jnp.eye(3, dtype=skew.dtype) + 0.5 * skew + second * skew @ skew


@checked()
def quaternion_log(quaternion: Float[jax.Array, " 4"]) -> jax.Array:
    """Compute the rotation vector (3,) in rad, at most pi long, of a quaternion (4,) of any length.

    It is smooth at zero.
    """
    w, axis = quaternion[0], quaternion[1:]
    sign = jnp.where(w < 0.0, -1.0, 1.0).astype(w.dtype)  # the shorter of two rotations
    square = jnp.sum(axis**2)
    small = square < 1e-8 * w**2
    sine = jnp.sqrt(jnp.where(small, 1.0, square))
    ratio = square / jnp.where(small, w**2, 1.0)
    series = 2.0 / jnp.where(small, jnp.abs(w), 1.0) * (1.0 - ratio / 3.0)
    factor = jnp.where(small, series, 2.0 * jnp.arctan2(sine, jnp.abs(w)) / sine)
    return sign * factor * axis
