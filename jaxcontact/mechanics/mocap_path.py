"""Smooth motion of mocap bodies through given poses, for motion from event to event: `paths_of_poses`.

Page: docs/methods/motion.md.
"""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np

from jaxcontact.algebra.rotations import (
    exp_jacobian,
    exp_jacobian_inverse,
    quaternion_conjugate,
    quaternion_log,
    quaternion_product,
)
from jaxcontact.precision import jit

STENCIL = 7  # poses from which velocity and acceleration at a pose follow


@functools.partial(jit, static_argnames="dim")
def paths_of_poses(
    position: jax.Array, orientation: jax.Array, dt: jax.typing.ArrayLike, dim: int
) -> jax.Array:
    """Compute the path in each of T steps: coefficients (T, 6, nm, 6 or 3) of powers of the time in it.

    A path goes from one pose to the next, as shift and rotation vector along world axes, with the velocity
    and the acceleration at both ends that the polynomial through the seven nearest poses has: quintic Hermite
    interpolation. Where fewer poses exist it has a lower degree.

    Derivative: exact by poses and dt.
    """
    count = position.shape[0]
    first, weights = _stencils(count)
    near = first[:, None] + np.arange(weights.shape[2])
    turns = jax.vmap(jax.vmap(jax.vmap(rotation_vector), (None, 0)))(orientation, orientation[near])
    shifts = jnp.concatenate([position[near] - position[:, None], turns], axis=3)
    slope, bend = (jnp.einsum("kw,kwmx->kmx", jnp.asarray(rows, shifts.dtype), shifts) for rows in weights)
    turned = jax.vmap(jax.vmap(rotation_vector))(orientation[:-1], orientation[1:])
    end = jnp.concatenate([jnp.diff(position, axis=0), turned], axis=2)
    rates = jax.vmap(jax.vmap(_vector_rates))(turned, slope[1:, :, 3:], bend[1:, :, 3:])
    end_slope, end_bend = slope[1:].at[:, :, 3:].set(rates[0]), bend[1:].at[:, :, 3:].set(rates[1])
    linear, square = slope[:-1], 0.5 * bend[:-1]  # in steps, not seconds
    a, b, c = end - linear - square, end_slope - linear - 2.0 * square, end_bend - 2.0 * square
    terms = [0.0 * linear, linear, square]
    terms += [10.0 * a - 4.0 * b + 0.5 * c, -15.0 * a + 7.0 * b - c, 6.0 * a - 3.0 * b + 0.5 * c]
    powers = jnp.stack([term / dt**k for k, term in enumerate(terms)], axis=1)
    return powers if dim == 3 else jnp.stack([powers[..., 0], powers[..., 2], -powers[..., 4]], axis=-1)


def _stencils(count: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the first pose (n,) of each stencil, and weights (2, n, k) of first and second derivatives."""
    size = min(STENCIL, count)
    first = np.clip(np.arange(count) - size // 2, 0, count - size)
    places = first[:, None] + np.arange(size) - np.arange(count)[:, None]
    powers = places[:, None, :].astype(float) ** np.arange(size)[:, None]
    wanted = np.zeros((count, size, 2))
    wanted[:, 1, 0], wanted[:, 2, 1] = 1.0, 2.0
    return first, np.moveaxis(np.linalg.solve(powers, wanted), 2, 0)


def rotation_vector(start: jax.Array, end: jax.Array) -> jax.Array:
    """Compute the rotation vector (3,) in world axes from a quaternion (4,) to another."""
    return quaternion_log(quaternion_product(end, quaternion_conjugate(start)))


def spin_of(vector: jax.Array, rate: jax.Array) -> jax.Array:
    """Compute the angular velocity in world axes of a rotation vector (3,) that changes at a rate (3,)."""
    return exp_jacobian(-vector) @ rate


def _vector_rates(vector: jax.Array, spin: jax.Array, spin_rate: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Compute first and second rates of a rotation vector (3,) from the spin in world axes and its rate."""

    def rate_of(vector: jax.Array, spin: jax.Array) -> jax.Array:
        return exp_jacobian_inverse(-vector) @ spin

    return jax.jvp(rate_of, (vector, spin), (rate_of(vector, spin), spin_rate))
