"""Formulas for an ellipsoid in its own axes: the signed distance of a point, and the support function."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from jaxcontact.geometry.frames import dot, unit
from jaxcontact.tolerances import SQUARE, rounding

HALVINGS = 12  # of a bracket's logarithm; near the middle plane Newton's steps are small
NEWTON = 8  # Newton steps from there
POLISH = 2  # further Newton steps that carry derivatives, exact to second order


def support(normal: jax.Array, semi_axes: jax.Array) -> jax.Array:
    """Find the point (3,) of an ellipsoid that lies farthest along a unit normal: E^2 n / |E n|."""
    scaled = semi_axes * normal
    return semi_axes * scaled / jnp.sqrt(dot(scaled, scaled))


def signed_distance(point: jax.Array, semi_axes: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Compute the gap of a point (3,) to an ellipsoid with `semi_axes` (3,), and the outward unit normal.

    The nearest point of the surface is x_i = e_i^2 y_i / (e_i^2 - e_min^2 + t). The multiplier t > 0 makes
    |x / e| = 1. Newton's method solves 1 / |x / e| = 1, which is almost linear in t. A deep point in the
    plane perpendicular to the shortest axis may be equally near to both sides; then the upper side counts.
    """
    sign = jnp.where(point >= 0.0, 1.0, -1.0).astype(point.dtype)
    y = sign * point
    shortest = jnp.argmin(semi_axes)
    width = semi_axes[shortest]
    beyond = (semi_axes - width) * (semi_axes + width)

    def step(t: jax.Array, y: jax.Array, axes: jax.Array, beyond: jax.Array) -> jax.Array:
        denominator = beyond + t
        safe_denominator = jnp.where(denominator > 0.0, denominator, 1.0)
        scaled = jnp.where(denominator > 0.0, axes * y / safe_denominator, 0.0)  # x / e
        size = dot(scaled, scaled)
        fall = dot(scaled, scaled / safe_denominator)
        ready = fall > 0.0
        gain = size * (jnp.sqrt(jnp.where(ready, size, 1.0)) - 1.0) / jnp.where(ready, fall, 1.0)
        return t + jnp.where(ready, gain, 0.0)

    fixed = jax.lax.stop_gradient((y, semi_axes, beyond))
    scaled_y = fixed[0] * fixed[1]
    at_pole = rounding(point.dtype, SQUARE) * jax.lax.stop_gradient(width) ** 2

    def halve(_: jax.Array, bracket: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        low, high = bracket
        middle = jnp.sqrt(low) * jnp.sqrt(high)
        terms = scaled_y / (fixed[2] + middle)
        is_low = dot(terms, terms) > 1.0
        return jnp.where(is_low, middle, low), jnp.where(is_low, high, middle)

    lowest = jnp.maximum(jnp.max(scaled_y - fixed[2]), at_pole)
    highest = jnp.maximum(jnp.sqrt(dot(scaled_y, scaled_y)), lowest)
    start = jax.lax.fori_loop(0, HALVINGS, halve, (lowest, highest))[0]
    t = jax.lax.fori_loop(0, NEWTON, lambda _, t: jnp.maximum(step(t, *fixed), start), start)
    # At the pole the coordinate along the shortest axis is not y / 0; |x / e| = 1 determines it.
    off_pole = t > 2.0 * at_pole
    # The branch not selected gets a regular point, because reverse mode multiplies its derivative by zero.
    any_y = jnp.where(off_pole, y, fixed[1])
    for _ in range(POLISH):
        t = jnp.where(off_pole, step(jnp.where(off_pole, t, width**2), any_y, semi_axes, beyond), 0.0)
    denominator = jnp.where(
        jnp.arange(3) == shortest, jnp.where(off_pole, beyond[shortest] + t, 1.0), beyond + t
    )
    denominator = jnp.where(denominator > 0.0, denominator, semi_axes**2)
    scaled = semi_axes * y / denominator
    other_coordinates = jnp.where(jnp.arange(3) == shortest, 0.0, scaled)
    remainder = 1.0 - dot(other_coordinates, other_coordinates)
    shortest_coordinate = jnp.sqrt(jnp.where(remainder > 0.0, remainder, 1.0)) * (remainder > 0.0)
    scaled = jnp.where((jnp.arange(3) == shortest) & ~off_pole, shortest_coordinate, scaled)
    normal, _ = unit(sign * scaled / semi_axes, jnp.zeros_like(point).at[2].set(1.0))
    return dot(normal, point - sign * semi_axes * scaled), normal
