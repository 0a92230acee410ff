"""Roots in one variable, by Newton's method where that stays between two bounds, else by halving them."""

from __future__ import annotations

import jax
import jax.numpy as jnp


def inside_or_middle(trial: jax.Array, low: jax.Array, high: jax.Array) -> jax.Array:
    """The trial where it is in [low, high], else the middle."""
    return jnp.where((trial >= low) & (trial <= high), trial, 0.5 * (low + high))


def safeguarded_newton(
    x: jax.Array, value: jax.Array, slope: jax.Array, low: jax.Array, high: jax.Array
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """The next x, low and high on the way to the root of a function with this value and slope at x."""
    low, high = jnp.where(value < 0, x, low), jnp.where(value >= 0, x, high)
    newton = jnp.where(slope > 0, x - value / jnp.where(slope > 0, slope, 1.0), jnp.inf)
    return inside_or_middle(newton, low, high), low, high
