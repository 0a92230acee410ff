"""Values that a compiled program computes once instead of in every use.

On a CPU, XLA merges operations into the loops of all that use their result, and so repeats them; it drops
`lax.optimization_barrier` before that. It does not repeat a division.
"""

from __future__ import annotations

from typing import TypeVar

import jax
import jax.numpy as jnp

Arrays = TypeVar("Arrays")


def computed_once(arrays: Arrays) -> Arrays:
    """The same arrays, divided by a number that only the running program knows to be one.

    Derivative: exact, any order.
    """
    return jax.tree.map(lambda x: x / jnp.where(jnp.isnan(x), 2.0, 1.0).astype(x.dtype), arrays)
