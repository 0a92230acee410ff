"""Values that a compiled program computes once instead of in every use. The entry is `computed_once`.

On a CPU, XLA merges operations into all loops that use their result, and so repeats them; it drops
`lax.optimization_barrier` before that. It does not repeat a division.
"""

from __future__ import annotations

from typing import TypeVar

import jax
import jax.numpy as jnp
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir

from jaxcontact.native import registry

Arrays = TypeVar("Arrays")


def computed_once(arrays: Arrays) -> Arrays:
    """Divide arrays of floats by a number that only the running program knows to be one; return equal arrays.

    Derivative: exact, any order.
    """
    return jax.tree.map(_once.bind, arrays)


def _divided(x: jax.Array) -> jax.Array:
    return x / jnp.where(jnp.isnan(x), 2.0, 1.0).astype(x.dtype)


_once = Primitive("once")
_once.def_impl(lambda x: x)
_once.def_abstract_eval(lambda x: x)
ad.deflinear2(_once, lambda cotangent, x: [_once.bind(cotangent)])
batching.defvectorized(_once)
mlir.register_lowering(_once, mlir.lower_fun(_divided, multiple_results=False))
registry.rule(_once.name)(registry.unchanged)
