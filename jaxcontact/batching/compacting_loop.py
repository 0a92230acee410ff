"""Loops over many lanes that stop computing the finished lanes: `while_loop` and `while_lanes`.

Under `vmap`, `lax.while_loop` computes every lane until the slowest lane is done. On a CPU the loops of this
module run a batch in tiles that stay in cache. A tile stops when few of its lanes still run, and those lanes
are gathered into new tiles. The arithmetic of a lane does not depend on the other lanes of its tile.
"""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import lax

from jaxcontact._pytree import PyTree
from jaxcontact.batching import platforms
from jaxcontact.precision import all_digits

_TILE = 64  # lanes of a tile of `while_loop`, few enough to stay in cache
_RUNNING = 0.75  # fraction of the lanes of a tile of `while_lanes` that still run when it stops
_FINISH = 4  # tiles of `while_lanes` that are finished together
_FEW = 32  # running lanes at which `while_lanes` starts to gather on devices other than a CPU
_LEFT = 16  # a tile of `while_loop` stops at this many running lanes if there are lanes to join them


def while_loop(
    running: Callable[[PyTree], jax.Array], body: Callable[[PyTree], PyTree], start: PyTree
) -> PyTree:
    """Run `lax.while_loop(running, body, start)`; `body` must not change a finished lane.

    Neither function may close over traced arrays.

    Derivative: none; hold the arguments fixed.
    """

    @jax.custom_batching.custom_vmap
    @all_digits
    def entry(lanes: PyTree) -> PyTree:
        return _run_lanes(jax.vmap(running), jax.vmap(body), lanes)

    @entry.def_vmap
    def merged_batch(size: int, batched: list[PyTree], lanes: PyTree) -> tuple[PyTree, PyTree]:
        lanes = jax.tree.map(
            lambda x, has: x if has else jnp.broadcast_to(x[None], (size, *x.shape)), lanes, batched[0]
        )
        final = entry(jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), lanes))
        final = jax.tree.map(lambda x: x.reshape(size, -1, *x.shape[1:]), final)
        return final, jax.tree.map(lambda _: True, final)

    return jax.tree.map(lambda x: x[0], entry(jax.tree.map(lambda x: x[None], start)))


def _run_lanes(
    running: Callable[[PyTree], jax.Array], body: Callable[[PyTree], PyTree], lanes: PyTree
) -> PyTree:
    """Compute the final values of all lanes (B, ...)."""
    count = jax.tree.leaves(lanes)[0].shape[0]

    def all_at_once(lanes: PyTree) -> PyTree:
        return lax.while_loop(lambda carry: jnp.any(running(carry)), body, lanes)

    def tile(lanes: PyTree, index: jax.Array, stop_at: jax.Array) -> PyTree:
        tile_lanes = jax.tree.map(lambda x: x.at[index].get(mode="promise_in_bounds"), lanes)
        tile_lanes = lax.while_loop(
            lambda tile_lanes: _count_true(running(tile_lanes)) > stop_at, body, tile_lanes
        )
        return jax.tree.map(
            lambda x, updated: x.at[index].set(updated, mode="promise_in_bounds", unique_indices=True),
            lanes,
            tile_lanes,
        )

    def sweep(carry: tuple[PyTree, jax.Array]) -> tuple[PyTree, jax.Array]:
        lanes, active = carry
        num_active, order = _count_true(active), _first_where(active)
        stop_at = jnp.where(num_active > _TILE, _LEFT, 0)

        def visit(k: jax.Array, lanes: PyTree) -> PyTree:
            first = jnp.minimum(k * _TILE, count - _TILE)
            return tile(lanes, lax.dynamic_slice(order, (first,), (_TILE,)), stop_at)

        lanes = lax.fori_loop(0, (num_active + _TILE - 1) // _TILE, visit, lanes)
        return lanes, running(lanes)

    def tiled(lanes: PyTree) -> PyTree:
        return lax.while_loop(lambda carry: jnp.any(carry[1]), sweep, (lanes, running(lanes)))[0]

    if count <= _TILE:
        return all_at_once(lanes)
    return platforms.choose(lanes, cpu=tiled, other=all_at_once)


def while_lanes(
    running: Callable[[PyTree], jax.Array],
    body: Callable[[PyTree, PyTree], PyTree],
    finish: Callable[[PyTree, PyTree], PyTree],
    fixed: PyTree,
    start: PyTree,
    *,
    wide: int,
) -> PyTree:
    """Repeat carry = body(fixed, carry) in each lane while running(carry); return finish(fixed, carry).

    The functions take a tile of lanes at once, and no lane may depend on another. `body` must not change a
    finished lane. Lanes are the first axis of all leaves.

    Args:
        wide: lanes of a tile on a CPU; with few, a hard lane keeps few others waiting.

    Derivative: none; hold the arguments fixed.
    """
    count = jax.tree.leaves(start)[0].shape[0]
    finished, few = min(_FINISH * wide, count), min(_FEW, count)

    def loop(fixed: PyTree, carry: PyTree, stop_at: PyTree) -> PyTree:
        return lax.while_loop(lambda s: _count_true(running(s)) > stop_at, lambda s: body(fixed, s), carry)

    def finish_tiles(carry: PyTree) -> PyTree:
        # Each tile reads the unfinished lanes, so that lanes of two tiles are finished only once.
        def visit(k: jax.Array, results: PyTree) -> PyTree:
            begin = jnp.minimum(k * finished, count - finished)
            tile = jax.tree.map(lambda x: lax.dynamic_slice_in_dim(x, begin, finished), (fixed, carry))
            return jax.tree.map(
                lambda x, y: lax.dynamic_update_slice_in_dim(x, y, begin, 0), results, finish(*tile)
            )

        return lax.fori_loop(0, -(-count // finished), visit, carry)

    def sweep(carry: PyTree) -> PyTree:
        active = running(carry)
        num_active, order = _count_true(active), _first_where(active)
        stop_at = jnp.where(num_active > wide, int(_RUNNING * wide), 0)

        def visit(k: jax.Array, carry: PyTree) -> PyTree:
            index = lax.dynamic_slice(order, (jnp.minimum(k * wide, count - wide),), (wide,))
            return advance(carry, index, stop_at)

        return lax.fori_loop(0, (num_active + wide - 1) // wide, visit, carry)

    def advance(carry: PyTree, index: jax.Array, stop_at: PyTree) -> PyTree:
        tile_carry, tile_fixed = jax.tree.map(lambda x: x.at[index].get(mode="clip"), (carry, fixed))
        tile_carry = loop(tile_fixed, tile_carry, stop_at)
        return jax.tree.map(lambda x, y: x.at[index].set(y, mode="drop"), carry, tile_carry)

    def in_tiles(carry: PyTree) -> PyTree:
        carry = lax.while_loop(lambda s: jnp.any(running(s)), sweep, carry)
        return finish_tiles(carry)

    def at_once(carry: PyTree) -> PyTree:
        def stragglers(carry: PyTree) -> PyTree:
            (index,) = jnp.nonzero(running(carry), size=few, fill_value=count)  # out of bounds: dropped
            return advance(carry, index, 0)

        carry = loop(fixed, carry, few)
        carry = lax.while_loop(lambda s: jnp.any(running(s)), stragglers, carry)
        return finish(fixed, carry)

    if count <= wide:
        return finish(fixed, loop(fixed, start, 0))
    return platforms.choose(start, cpu=in_tiles, other=at_once)


def _first_where(active: jax.Array) -> jax.Array:
    """List the indices of all lanes, int32, with those of the active lanes first."""
    count = active.shape[0]
    after = _count_true(active) + jnp.cumsum(~active, dtype=jnp.int32)
    place = jnp.where(active, jnp.cumsum(active, dtype=jnp.int32), after) - 1
    return jnp.zeros_like(place).at[place].set(jnp.arange(count, dtype=jnp.int32), unique_indices=True)


def _count_true(mask: jax.Array) -> jax.Array:
    return jnp.sum(mask, dtype=jnp.int32)
