"""Rates of the frames of bodies that mocap bodies carry: `frames_moved`, `frame_rates`."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from jaxcontact.mechanics.closed_forms import FrameMotion
from jaxcontact.mechanics.mocap import across, body_twists
from jaxcontact.mechanics.system import Model

Motions = tuple[FrameMotion, FrameMotion]


def frames_moved(model: Model, motions: Motions) -> Motions:
    """Add to the frames of the bodies and their rates the motion of the mocap bodies in a step."""
    velocity = model.params.mocap_velocity
    if velocity is None:
        return motions
    moved, moved_rate = frame_rates(model, motions[0], velocity[1])
    frames, rates = motions
    return (
        frames._replace(velocity=frames.velocity + moved.velocity, turning=frames.turning + moved.turning),
        FrameMotion(*(a + b for a, b in zip(rates, moved_rate, strict=True))),
    )


def frame_rates(model: Model, frames: FrameMotion, velocity: jax.Array) -> Motions:
    """Compute frames of the bodies, with the rates that twists (nm, w) of mocap bodies alone give them."""
    origin_speed, spin, lever = body_twists(model, frames.position, velocity)
    round_origin, turning = across(spin, lever), _turned(spin, frames.rotation)
    moved = frames._replace(velocity=origin_speed + round_origin, turning=turning)
    return moved, FrameMotion(moved.velocity, turning, across(spin, round_origin), _turned(spin, turning))


def _turned(spin: jax.Array, axes: jax.Array) -> jax.Array:
    """Compute the rates (nb, dim, dim) of matrices whose columns turn at spins."""
    columns = jnp.swapaxes(axes, 1, 2)
    turning = across(jnp.broadcast_to(spin[:, None], (*columns.shape[:2], spin.shape[1])), columns)
    return jnp.swapaxes(turning, 1, 2)
