"""Ellipsoids in their axes: signed distance of a point, and the point that lies deepest along a direction."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from jaxcontact.geometry.frames import dot, unit

NEWTON = 24  # steps to the multiplier; a handful is needed but at points by the plane across the least axis
POLISH = 2  # further ones that carry derivatives, exact to second order


def support(normal: jax.Array, semi_axes: jax.Array) -> jax.Array:
    """The point (3,) of an ellipsoid that lies farthest along a unit normal: E^2 n / |E n|."""
    scaled = semi_axes * normal
    return semi_axes * scaled / jnp.sqrt(dot(scaled, scaled))


def signed_distance(point: jax.Array, semi_axes: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Gap of a point (3,) to an ellipsoid with `semi_axes` (3,), and the outward unit normal.

    The foot is x_i = e_i^2 y_i / (e_i^2 + s), with s > -min e_i^2 such that |x / e| = 1: found by Newton's
    method on 1 / |x / e| - 1, almost linear in s. Where the point is in the plane across the least axis, so
    deep that both sides are as near, the upper one is taken.
    """
    sign = jnp.where(point >= 0.0, 1.0, -1.0).astype(point.dtype)
    y = sign * point
    least = jnp.argmin(semi_axes)
    square = semi_axes**2

    def step(s: jax.Array, y: jax.Array, square: jax.Array) -> jax.Array:
        room = square + s
        safe = jnp.where(room > 0.0, room, 1.0)
        scaled = jnp.where(room > 0.0, jnp.sqrt(square) * y / safe, 0.0)  # x / e
        size = dot(scaled, scaled)
        fall = dot(scaled, scaled / safe)
        ready = fall > 0.0
        gain = size * (jnp.sqrt(jnp.where(ready, size, 1.0)) - 1.0) / jnp.where(ready, fall, 1.0)
        return s + jnp.where(ready, gain, 0.0)

    fixed_y, fixed = jax.lax.stop_gradient((y, square))
    pole = -fixed[least]
    start = pole + jnp.sqrt(fixed[least]) * fixed_y[least]
    s = jax.lax.fori_loop(0, NEWTON, lambda _, s: jnp.maximum(step(s, fixed_y, fixed), start), start)
    room = square + s
    # At the pole the least coordinate is not y / 0 but what is left of the unit sphere.
    off_pole = fixed[least] + s > 16.0 * jnp.finfo(point.dtype).eps * fixed[least]
    for _ in range(POLISH):
        s = jnp.where(off_pole, step(s, y, square), s)
    s = jnp.where(off_pole, s, -square[least])
    room = jnp.where(jnp.arange(3) == least, jnp.where(off_pole, square[least] + s, 1.0), square + s)
    room = jnp.where(room > 0.0, room, square)
    scaled = semi_axes * y / room
    others = jnp.where(jnp.arange(3) == least, 0.0, scaled)
    left = 1.0 - dot(others, others)
    rest = jnp.sqrt(jnp.where(left > 0.0, left, 1.0)) * (left > 0.0)
    scaled = jnp.where((jnp.arange(3) == least) & ~off_pole, rest, scaled)
    normal, _ = unit(sign * scaled / semi_axes, jnp.zeros_like(point).at[2].set(1.0))
    return dot(normal, point - sign * semi_axes * scaled), normal
