"""Values that a compiled program computes once instead of in every use. The entry is `computed_once`.

On a CPU, XLA merges operations into all loops that use their result, and so repeats them; it drops
`lax.optimization_barrier` before that. It does not repeat a division.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir

from jaxcontact._pytree import PyTree
from jaxcontact.native import registry

Arrays = TypeVar("Arrays")
SMALL_COUNT = 2048  # numbers of all arrays of a call that one kernel computes


def computed_once(arrays: Arrays, in_batches: bool = True) -> Arrays:
    """Divide arrays of floats by a number that only the running program knows to be one; return equal arrays.

    One kernel computes all arrays of a call, if they are small.

    Args:
        in_batches: whether this holds for large batches, too; False leaves these to XLA.

    Derivative: exact, any order.
    """
    leaves, structure = jax.tree.flatten(arrays)
    result: Arrays = jax.tree.unflatten(structure, _once.bind(*leaves, in_batches=in_batches, batched=False))
    return result


def _divide_by_one(*arrays: jax.Array, in_batches: bool, batched: bool) -> list[jax.Array]:
    """Divide arrays by one, which no compiler repeats; small arrays of one type in a single row."""
    if sum(x.size for x in arrays) > SMALL_COUNT or len({x.dtype for x in arrays}) > 1:
        return [_divide(x) for x in arrays] if in_batches or not batched else list(arrays)
    row = _divide(jnp.concatenate([x.ravel() for x in arrays]))
    ends = np.cumsum([x.size for x in arrays])[:-1].tolist()
    return [part.reshape(x.shape) for part, x in zip(jnp.split(row, ends), arrays, strict=True)]


def _divide(x: jax.Array) -> jax.Array:
    return x / jnp.where(jnp.isnan(x), 2.0, 1.0).astype(x.dtype)


def _of_nonzero(arrays: Sequence[PyTree], **params: bool) -> list[PyTree]:
    """Compute once the tangents or cotangents that are not symbolic zeros."""
    moving = [x for x in arrays if not isinstance(x, ad.Zero)]
    results = iter(_once.bind(*moving, **params) if moving else [])
    return [x if isinstance(x, ad.Zero) else next(results) for x in arrays]


def _tangents(primals: Sequence[PyTree], tangents: Sequence[PyTree], **params: bool) -> tuple[PyTree, PyTree]:
    return _once.bind(*primals, **params), _of_nonzero(tangents, **params)


def _batched(
    arrays: Sequence[PyTree], axes: Sequence[PyTree], *, in_batches: bool, batched: bool
) -> tuple[PyTree, PyTree]:
    return _once.bind(*arrays, in_batches=in_batches, batched=True), axes


_once = Primitive("once")
_once.multiple_results = True
_once.def_impl(lambda *arrays, **_: list(arrays))
_once.def_abstract_eval(lambda *arrays, **_: list(arrays))
ad.primitive_jvps[_once] = _tangents
ad.primitive_transposes[_once] = lambda changes, *arrays, **params: _of_nonzero(changes, **params)
batching.primitive_batchers[_once] = _batched
mlir.register_lowering(_once, mlir.lower_fun(_divide_by_one, multiple_results=True))
registry.rule(_once.name)(registry.unchanged)
