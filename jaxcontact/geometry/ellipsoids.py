"""Formulas for an ellipsoid in its own axes: the signed distance of a point, and the support function."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from jaxcontact.geometry.frames import dot, unit

NEWTON = 24  # Newton steps; a few suffice, except near the plane perpendicular to the shortest axis
POLISH = 2  # further Newton steps that carry derivatives, exact to second order


def support(normal: jax.Array, semi_axes: jax.Array) -> jax.Array:
    """Find the point (3,) of an ellipsoid that lies farthest along a unit normal: E^2 n / |E n|."""
    scaled = semi_axes * normal
    return semi_axes * scaled / jnp.sqrt(dot(scaled, scaled))


def signed_distance(point: jax.Array, semi_axes: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Compute the gap of a point (3,) to an ellipsoid with `semi_axes` (3,), and the outward unit normal.

    The nearest point of the surface is x_i = e_i^2 y_i / (e_i^2 + s). The multiplier s > -min e_i^2 makes
    |x / e| = 1. Newton's method solves 1 / |x / e| = 1, which is almost linear in s. A deep point in the
    plane perpendicular to the shortest axis may be equally near to both sides; then the upper side counts.
    """
    sign = jnp.where(point >= 0.0, 1.0, -1.0).astype(point.dtype)
    y = sign * point
    shortest = jnp.argmin(semi_axes)
    square = semi_axes**2

    def step(s: jax.Array, y: jax.Array, square: jax.Array) -> jax.Array:
        denominator = square + s
        safe_denominator = jnp.where(denominator > 0.0, denominator, 1.0)
        scaled = jnp.where(denominator > 0.0, jnp.sqrt(square) * y / safe_denominator, 0.0)  # x / e
        size = dot(scaled, scaled)
        fall = dot(scaled, scaled / safe_denominator)
        ready = fall > 0.0
        gain = size * (jnp.sqrt(jnp.where(ready, size, 1.0)) - 1.0) / jnp.where(ready, fall, 1.0)
        return s + jnp.where(ready, gain, 0.0)

    fixed_y, fixed = jax.lax.stop_gradient((y, square))
    pole = -fixed[shortest]
    start = pole + jnp.sqrt(fixed[shortest]) * fixed_y[shortest]
    s = jax.lax.fori_loop(0, NEWTON, lambda _, s: jnp.maximum(step(s, fixed_y, fixed), start), start)
    denominator = square + s
    # At the pole the coordinate along the shortest axis is not y / 0; |x / e| = 1 determines it.
    off_pole = fixed[shortest] + s > 16.0 * jnp.finfo(point.dtype).eps * fixed[shortest]
    # The branch not selected gets a regular point, because reverse mode multiplies its derivative by zero.
    any_y = jnp.where(off_pole, y, fixed**0.5)
    for _ in range(POLISH):
        s = jnp.where(off_pole, step(jnp.where(off_pole, s, 0.0), any_y, square), s)
    s = jnp.where(off_pole, s, -square[shortest])
    denominator = jnp.where(
        jnp.arange(3) == shortest, jnp.where(off_pole, square[shortest] + s, 1.0), square + s
    )
    denominator = jnp.where(denominator > 0.0, denominator, square)
    scaled = semi_axes * y / denominator
    other_coordinates = jnp.where(jnp.arange(3) == shortest, 0.0, scaled)
    remainder = 1.0 - dot(other_coordinates, other_coordinates)
    shortest_coordinate = jnp.sqrt(jnp.where(remainder > 0.0, remainder, 1.0)) * (remainder > 0.0)
    scaled = jnp.where((jnp.arange(3) == shortest) & ~off_pole, shortest_coordinate, scaled)
    normal, _ = unit(sign * scaled / semi_axes, jnp.zeros_like(point).at[2].set(1.0))
    return dot(normal, point - sign * semi_axes * scaled), normal
