"""What `vmap` makes of a function: one call for the whole batch, which goes first or last in every array.

Last are long vectors where the arrays themselves are small.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp


def batch_last(function: Callable[..., Any], *arguments: Any) -> Any:
    """function(*arguments), which `vmap` calls once, with the batch as the last axis of every array.

    Batches of batches become one. `function` returns arrays with the same batch last and takes any pytrees.

    Derivative: none.
    """
    leaves, structure = jax.tree.flatten(arguments)
    ranks = [leaf.ndim for leaf in leaves]

    @jax.custom_batching.custom_vmap
    def lanes(*arrays: jax.Array) -> Any:
        return function(*jax.tree.unflatten(structure, arrays))

    @lanes.def_vmap
    def _(size: int, batched: list[bool], *arrays: jax.Array) -> tuple:
        inner = _inner_lanes(list(arrays), batched, ranks)
        out = lanes(*_as_lanes(list(arrays), batched, ranks, inner, size))
        out = jax.tree.map(lambda a: _from_lanes(a, inner, size), out)
        return out, jax.tree.map(lambda _: True, out)

    return lanes(*leaves)


def batch_first(one: Callable[..., Any], many: Callable[..., Any], *arguments: Any) -> Any:
    """one(*arguments); under `vmap` many(*arguments), once, with the batch as first axis of every array.

    Batches of batches become one. Both return arrays and take any pytrees.

    Derivative: none.
    """
    leaves, structure = jax.tree.flatten(arguments)

    def repeated(array: jax.Array, batched: bool, size: int) -> jax.Array:
        return array if batched else jnp.broadcast_to(array[None], (size, *array.shape))

    @jax.custom_batching.custom_vmap
    def worlds(*arrays: jax.Array) -> Any:
        return many(*jax.tree.unflatten(structure, arrays))

    @worlds.def_vmap
    def _(size: int, batched: list[bool], *arrays: jax.Array) -> tuple:
        arrays = tuple(map(functools.partial(repeated, size=size), arrays, batched))
        out = worlds(*[a.reshape(-1, *a.shape[2:]) for a in arrays])
        out = jax.tree.map(lambda a: a.reshape(size, -1, *a.shape[1:]), out)
        return out, jax.tree.map(lambda _: True, out)

    @jax.custom_batching.custom_vmap
    def world(*arrays: jax.Array) -> Any:
        return one(*jax.tree.unflatten(structure, arrays))

    @world.def_vmap
    def _(size: int, batched: list[bool], *arrays: jax.Array) -> tuple:
        out = worlds(*map(functools.partial(repeated, size=size), arrays, batched))
        return out, jax.tree.map(lambda _: True, out)

    return world(*leaves)


def _inner_lanes(arrays: list[jax.Array], batched: list[bool], ranks: list[int]) -> int | None:
    """Size of the last axis that holds an earlier batch; None where there is none."""
    sizes = [a.shape[-1] for a, b, r in zip(arrays, batched, ranks, strict=True) if a.ndim - b > r]
    return max(sizes, default=None)


def _as_lanes(
    arrays: list[jax.Array], batched: list[bool], ranks: list[int], inner: int | None, size: int
) -> list[jax.Array]:
    """Moves a new batch axis, the first where `batched`, to the last place, merged with earlier lanes."""

    def move(a: jax.Array, b: bool, rank: int) -> jax.Array:
        if inner is None:
            return jnp.moveaxis(a, 0, -1) if b else jnp.broadcast_to(a[..., None], (*a.shape, size))
        a = a if b else a[None]
        a = jnp.moveaxis(a if a.ndim - 1 > rank else a[..., None], 0, -1)
        if a.shape[-2:] != (1, 1):
            a = jnp.broadcast_to(a, (*a.shape[:-2], inner, size))
        return a.reshape(*a.shape[:-2], -1)

    return [move(*each) for each in zip(arrays, batched, ranks, strict=True)]


def _from_lanes(a: jax.Array, inner: int | None, size: int) -> jax.Array:
    return jnp.moveaxis(a if inner is None else a.reshape(*a.shape[:-1], inner, size), -1, 0)
