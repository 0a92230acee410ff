"""The indices of the smallest entries of a vector: `smallest`."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax


def smallest(values: jax.Array, count: int) -> jax.Array:
    """Find the indices (count,) of the smallest entries of `values` (n,), int32; NaN counts as smallest.

    Entries that agree to seven digits count as equal, and of those the first are taken: on a CPU XLA sorts
    all doubles to find a few, but selects numbers in single precision.

    Derivative: none.
    """
    negative = -lax.stop_gradient(values).astype(jnp.float32)
    return lax.top_k(jnp.where(jnp.isnan(negative), jnp.inf, negative), count)[1]
