"""Rates of the frames of bodies that mocap bodies carry: `add_mocap_motion`, `carried_frames`."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from jaxcontact.mechanics.closed_forms import FrameMotion
from jaxcontact.mechanics.mocap import across, body_twists
from jaxcontact.mechanics.system import Model

Motions = tuple[FrameMotion, FrameMotion]


def add_mocap_motion(model: Model, motions: Motions) -> Motions:
    """Add the motion of the mocap bodies in a step to the frames of the bodies and their rates."""
    velocity = model.params.mocap_velocity
    if velocity is None:
        return motions
    moved, moved_rate = carried_frames(model, motions[0], velocity[1])
    if velocity.shape[0] == 3:
        gains, _ = carried_frames(model, motions[0], velocity[2])
        linear, turning = moved_rate.velocity + gains.velocity, moved_rate.turning + gains.turning
        moved_rate = moved_rate._replace(velocity=linear, turning=turning)
    frames, rates = motions
    return (
        frames._replace(velocity=frames.velocity + moved.velocity, turning=frames.turning + moved.turning),
        FrameMotion(*(a + b for a, b in zip(rates, moved_rate, strict=True))),
    )


def carried_frames(model: Model, frames: FrameMotion, velocity: jax.Array) -> Motions:
    """Compute frames of bodies with the rates, and rates of both, by twists (nm, w) of mocap bodies."""
    origin_speed, spin, lever = body_twists(model, frames.position, velocity)
    round_origin, turning = across(spin, lever), _turn_columns(spin, frames.rotation)
    moved = frames._replace(velocity=origin_speed + round_origin, turning=turning)
    return moved, FrameMotion(
        moved.velocity, turning, across(spin, round_origin), _turn_columns(spin, turning)
    )


def _turn_columns(spin: jax.Array, axes: jax.Array) -> jax.Array:
    """Compute the rates (nb, dim, dim) of matrices whose columns turn at spins."""
    columns = jnp.swapaxes(axes, 1, 2)
    turning = across(jnp.broadcast_to(spin[:, None], (*columns.shape[:2], spin.shape[1])), columns)
    return jnp.swapaxes(turning, 1, 2)
