"""Rules for `vmap`: it calls a function once for the whole batch, with the batch as first or as last axis.

The entry functions are `batch_first` and `batch_last`. A last batch axis makes long vectors of small arrays.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp

from jaxcontact._pytree import PyTree
from jaxcontact.precision import all_digits


def batch_last(function: Callable[..., PyTree], *arguments: PyTree) -> PyTree:
    """Call function(*arguments); under `vmap` once, with the batch as last axis of all arrays.

    Nested batches become one batch. `function` takes any pytrees and returns arrays with the same last axis.

    Derivative: none.
    """
    leaves, structure = jax.tree.flatten(arguments)
    ranks = [leaf.ndim for leaf in leaves]

    @jax.custom_batching.custom_vmap
    @all_digits
    def lanes(*arrays: jax.Array) -> PyTree:
        return function(*jax.tree.unflatten(structure, arrays))

    @lanes.def_vmap
    def _(size: int, batched: list[bool], *arrays: jax.Array) -> tuple:
        inner = _inner_lanes(list(arrays), batched, ranks)
        outputs = lanes(*_as_lanes(list(arrays), batched, ranks, inner, size))
        outputs = jax.tree.map(lambda a: _from_lanes(a, inner, size), outputs)
        return outputs, jax.tree.map(lambda _: True, outputs)

    return lanes(*leaves)


def batch_first(
    for_one: Callable[..., PyTree], for_batch: Callable[..., PyTree], *arguments: PyTree
) -> PyTree:
    """Call for_one(*arguments); under `vmap` call for_batch(*arguments) once.

    `for_batch` gets all arrays with the batch as first axis. Nested batches become one batch. Both functions
    take any pytrees and return arrays.

    Derivative: none.
    """
    leaves, structure = jax.tree.flatten(arguments)

    def repeated(array: jax.Array, batched: bool, size: int) -> jax.Array:
        return array if batched else jnp.broadcast_to(array[None], (size, *array.shape))

    @jax.custom_batching.custom_vmap
    @all_digits
    def worlds(*arrays: jax.Array) -> PyTree:
        return for_batch(*jax.tree.unflatten(structure, arrays))

    @worlds.def_vmap
    def _(size: int, batched: list[bool], *arrays: jax.Array) -> tuple:
        arrays = tuple(map(functools.partial(repeated, size=size), arrays, batched))
        outputs = worlds(*[a.reshape(-1, *a.shape[2:]) for a in arrays])
        outputs = jax.tree.map(lambda a: a.reshape(size, -1, *a.shape[1:]), outputs)
        return outputs, jax.tree.map(lambda _: True, outputs)

    @jax.custom_batching.custom_vmap
    @all_digits
    def world(*arrays: jax.Array) -> PyTree:
        return for_one(*jax.tree.unflatten(structure, arrays))

    @world.def_vmap
    def _(size: int, batched: list[bool], *arrays: jax.Array) -> tuple:
        outputs = worlds(*map(functools.partial(repeated, size=size), arrays, batched))
        return outputs, jax.tree.map(lambda _: True, outputs)

    return world(*leaves)


def _inner_lanes(arrays: list[jax.Array], batched: list[bool], ranks: list[int]) -> int | None:
    """Return the size of the last axis that holds an earlier batch; None without an earlier batch."""
    sizes = [a.shape[-1] for a, b, r in zip(arrays, batched, ranks, strict=True) if a.ndim - b > r]
    return max(sizes, default=None)


def _as_lanes(
    arrays: list[jax.Array], batched: list[bool], ranks: list[int], inner: int | None, size: int
) -> list[jax.Array]:
    """Merge the new batch axis, axis 0 of arrays that are `batched`, into the last axis of earlier lanes."""

    def move(a: jax.Array, b: bool, rank: int) -> jax.Array:
        if inner is None:
            return jnp.moveaxis(a, 0, -1) if b else jnp.broadcast_to(a[..., None], (*a.shape, size))
        a = a if b else a[None]
        a = jnp.moveaxis(a if a.ndim - 1 > rank else a[..., None], 0, -1)
        if a.shape[-2:] != (1, 1):
            a = jnp.broadcast_to(a, (*a.shape[:-2], inner, size))
        return a.reshape(*a.shape[:-2], -1)

    return [move(*array_and_flags) for array_and_flags in zip(arrays, batched, ranks, strict=True)]


def _from_lanes(a: jax.Array, inner: int | None, size: int) -> jax.Array:
    return jnp.moveaxis(a if inner is None else a.reshape(*a.shape[:-1], inner, size), -1, 0)
