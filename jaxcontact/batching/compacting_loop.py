"""A while loop over many lanes that leaves the finished ones behind.

Under `vmap`, `lax.while_loop` carries every lane until the slowest is done. Here, on a CPU, a batch runs in
tiles that stay in cache; a tile stops when few of its lanes are left, and those are gathered into new tiles.
The arithmetic of a lane does not depend on its company.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from jaxcontact.batching import platforms

_TILE = 64  # lanes at a time
_FEW = 4  # lanes for which a tile of `while_lanes` does not go on
_LEFT = 16  # lanes for which a tile does not go on while others could join them


def while_loop(running: Callable[[Any], jax.Array], body: Callable[[Any], Any], start: Any) -> Any:
    """`lax.while_loop(running, body, start)` with a `body` that leaves a finished lane as it is.

    Neither function may close over traced arrays.

    Derivative: none; hold the arguments fixed.
    """

    @jax.custom_batching.custom_vmap
    def entry(lanes: Any) -> Any:
        return _lanes(jax.vmap(running), jax.vmap(body), lanes)

    @entry.def_vmap
    def many(size: int, batched: list[Any], lanes: Any) -> tuple[Any, Any]:
        lanes = jax.tree.map(
            lambda x, has: x if has else jnp.broadcast_to(x[None], (size, *x.shape)), lanes, batched[0]
        )
        done = entry(jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), lanes))
        done = jax.tree.map(lambda x: x.reshape(size, -1, *x.shape[1:]), done)
        return done, jax.tree.map(lambda _: True, done)

    return jax.tree.map(lambda x: x[0], entry(jax.tree.map(lambda x: x[None], start)))


def _lanes(running: Callable[[Any], jax.Array], body: Callable[[Any], Any], lanes: Any) -> Any:
    """All lanes (B, ...) to their end."""
    count = jax.tree.leaves(lanes)[0].shape[0]

    def together(lanes: Any) -> Any:
        return lax.while_loop(lambda some: jnp.any(running(some)), body, lanes)

    def tile(lanes: Any, at: jax.Array, enough: jax.Array) -> Any:
        some = jax.tree.map(lambda x: x.at[at].get(mode="promise_in_bounds"), lanes)
        some = lax.while_loop(lambda some: _number(running(some)) > enough, body, some)
        return jax.tree.map(
            lambda x, new: x.at[at].set(new, mode="promise_in_bounds", unique_indices=True), lanes, some
        )

    def sweep(carry: tuple[Any, jax.Array]) -> tuple[Any, jax.Array]:
        lanes, on = carry
        left = _number(on)
        place = jnp.where(on, jnp.cumsum(on, dtype=jnp.int32), left + jnp.cumsum(~on, dtype=jnp.int32)) - 1
        order = jnp.zeros_like(place).at[place].set(jnp.arange(count, dtype=jnp.int32), unique_indices=True)
        enough = jnp.where(left > _TILE, _LEFT, 0)

        def visit(k: jax.Array, lanes: Any) -> Any:
            first = jnp.minimum(k * _TILE, count - _TILE)
            return tile(lanes, lax.dynamic_slice(order, (first,), (_TILE,)), enough)

        lanes = lax.fori_loop(0, (left + _TILE - 1) // _TILE, visit, lanes)
        return lanes, running(lanes)

    def tiled(lanes: Any) -> Any:
        return lax.while_loop(lambda carry: jnp.any(carry[1]), sweep, (lanes, running(lanes)))[0]

    if count <= _TILE:
        return together(lanes)
    return platforms.choose(lanes, cpu=tiled, other=together)


def while_lanes(
    running: Callable[[Any], jax.Array],
    body: Callable[[Any, Any], Any],
    finish: Callable[[Any, Any], Any],
    fixed: Any,
    start: Any,
    *,
    wide: int,
) -> Any:
    """Repeats now = body(fixed, now) in every lane while running(now), then finish(fixed, now).

    The functions take a tile of lanes at once, each apart, and `body` leaves finished lanes as they are.
    Lanes are the first axis of all leaves.

    Args:
        wide: lanes of a tile on a CPU, as many as its cache holds.

    Derivative: none; hold the arguments fixed.
    """
    count = jax.tree.leaves(start)[0].shape[0]

    def loop(fixed: Any, now: Any, enough: int) -> Any:
        return lax.while_loop(lambda s: _number(running(s)) > enough, lambda s: body(fixed, s), now)

    def cut(tree: Any, at: jax.Array, width: int) -> Any:
        return jax.tree.map(lambda x: lax.dynamic_slice_in_dim(x, at, width), tree)

    def each(visit: Callable[[Any, Any], Any], width: int, now: Any) -> Any:
        def one(k: jax.Array, now: Any) -> Any:
            at = jnp.minimum(k * width, count - width)
            some = visit(cut(fixed, at, width), cut(now, at, width))
            return jax.tree.map(lambda x, y: lax.dynamic_update_slice_in_dim(x, y, at, 0), now, some)

        return lax.fori_loop(0, -(-count // width), one, now)

    def gathered(now: Any) -> Any:
        (index,) = jnp.nonzero(running(now), size=wide // 2, fill_value=count)  # out of bounds: dropped
        some, here = jax.tree.map(lambda x: x.at[index].get(mode="clip"), (now, fixed))
        some = loop(here, some, 0)
        return jax.tree.map(lambda x, y: x.at[index].set(y, mode="drop"), now, some)

    def tiled(width: int, enough: int) -> Callable[[Any], Any]:
        def run(now: Any) -> Any:
            now = each(lambda fixed, some: loop(fixed, some, enough), width, now)
            now = lax.while_loop(lambda s: jnp.any(running(s)), gathered, now)
            return each(finish, width, now)

        return run

    if count <= wide:
        return finish(fixed, loop(fixed, start, 0))
    return platforms.choose(start, cpu=tiled(wide, _FEW), other=tiled(count, wide // 2))


def _number(mask: jax.Array) -> jax.Array:
    return jnp.sum(mask, dtype=jnp.int32)
