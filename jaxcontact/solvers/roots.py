"""Roots in one variable: Newton's method or secants if they stay between two bounds, else halving."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp


def inside_or_middle(trial: jax.Array, low: jax.Array, high: jax.Array) -> jax.Array:
    """Choose the trial if it is in [low, high], else the middle."""
    return jnp.where((trial >= low) & (trial <= high), trial, 0.5 * (low + high))


def safeguarded_newton(
    x: jax.Array, value: jax.Array, slope: jax.Array, low: jax.Array, high: jax.Array
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Compute the next x, low and high in a search for the root of a rising function.

    `value` and `slope` are those of the function at x.
    """
    low, high = jnp.where(value < 0, x, low), jnp.where(value >= 0, x, high)
    newton = jnp.where(slope > 0, x - value / jnp.where(slope > 0, slope, 1.0), jnp.inf)
    return inside_or_middle(newton, low, high), low, high


class Bracket(NamedTuple):
    """Bounds of a root of a falling function: value_low > 0 at `low`, value_high < 0 at `high`.

    `fell` tells whether the last value was below zero.
    """

    low: jax.Array
    high: jax.Array
    value_low: jax.Array
    value_high: jax.Array
    fell: jax.Array


def illinois(x: jax.Array, value: jax.Array, bracket: Bracket, halve: jax.Array) -> tuple[jax.Array, Bracket]:
    """Compute the next x >= 0 and bracket in a search for a root by the Illinois rule, from the value at x.

    The value of an end that stays twice is halved, so that the other end does not creep. `halve` takes the
    middle instead, for bounds above zero the geometric mean: the root may be a thousandth of the way from the
    lower bound.
    """
    below = value < 0
    weight = jnp.where(below == bracket.fell, 0.5, 1.0)
    value_low = jnp.where(below, weight * bracket.value_low, value)
    value_high = jnp.where(below, value, weight * bracket.value_high)
    low, high = jnp.where(below, bracket.low, x), jnp.where(below, x, bracket.high)
    secant = low + (high - low) * value_low / (value_low - value_high)
    middle = jnp.where(low > 0, jnp.sqrt(low) * jnp.sqrt(high), 0.5 * (low + high))
    trial = jnp.where(halve | ~((secant >= low) & (secant <= high)), middle, secant)
    return trial, Bracket(low, high, value_low, value_high, below)


def cubic_dip(
    low: jax.Array, high: jax.Array, slope_low: jax.Array, slope_high: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Find the minimum in [0, 1] of a cubic that falls at 0 and rises at 1, and its place; else its end.

    Args:
        low, high, slope_low, slope_high: its values and slopes at 0 and 1.
    """
    rise = high - low
    a, b = slope_low + slope_high - 2.0 * rise, 3.0 * rise - 2.0 * slope_low - slope_high
    root = jnp.sqrt(jnp.maximum(b**2 - 3.0 * a * slope_low, 0.0)) + b
    turns = (slope_low < 0) & (slope_high > 0) & (root > 0)
    s = jnp.clip(jnp.where(turns, -slope_low / jnp.where(turns, root, 1.0), 1.0), 0.0, 1.0)
    return low + s * (slope_low + s * (b + s * a)), s
