"""Differences of measured and predicted poses in units of their noise: `pose_residuals`, `pose_score`."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp

from jaxcontact.algebra.rotations import quaternion_conjugate, quaternion_log, quaternion_product
from jaxcontact.front_door import POSITIVE, checked

if TYPE_CHECKING:
    from jaxtyping import Float


@functools.partial(jnp.vectorize, signature="(4),(4)->(3)")
def _rotation_between(measured: jax.Array, predicted: jax.Array) -> jax.Array:
    """Compute the rotation vector (3,), in body axes, from one quaternion to another."""
    return quaternion_log(quaternion_product(quaternion_conjugate(measured), predicted))


@checked(position_noise=POSITIVE, angle_noise=POSITIVE)
def pose_residuals(
    predicted: Float[jax.Array, "... 7"],
    measured: Float[jax.Array, "... 7"],
    *,
    position_noise: float,
    angle_noise: float,
) -> jax.Array:
    """Compute (..., 6): position, and the shorter rotation from measured to predicted, over their noise.

    Args:
        predicted, measured: (..., 7) positions (m) and quaternions, of either sign and any length, not zero.
        position_noise: standard deviation of each coordinate, m.
        angle_noise: of the rotation about each body axis, rad.

    Raises:
        ValueError: poses of two shapes.

    Derivative: exact, but at differences of half a turn.
    """
    if jnp.shape(predicted) != jnp.shape(measured):
        raise ValueError(
            f"measured: expected the shape of predicted, {jnp.shape(predicted)}, got {jnp.shape(measured)}"
        )
    place = (predicted[..., :3] - measured[..., :3]) / position_noise
    return jnp.concatenate(
        [place, _rotation_between(measured[..., 3:], predicted[..., 3:]) / angle_noise], axis=-1
    )


@checked(position_noise=POSITIVE, angle_noise=POSITIVE)
def pose_score(
    predicted: Float[jax.Array, "... 7"],
    measured: Float[jax.Array, "... 7"],
    *,
    position_noise: float,
    angle_noise: float,
) -> jax.Array:
    """Compute half the sum of squares of `pose_residuals` (...,): minus the log likelihood, up to a constant.

    At the truth its mean is 3: `SearchSettings(largest=)` of `identify` marks a fit that is much worse.

    Derivative: exact, but at differences of half a turn.
    """
    residuals = pose_residuals(predicted, measured, position_noise=position_noise, angle_noise=angle_noise)
    return 0.5 * jnp.sum(residuals**2, axis=-1)
