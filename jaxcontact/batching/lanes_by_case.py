"""A switch between functions; a lane of a batch runs only the branch of its case. The entry is `switch`.

Under `vmap`, `lax.switch` computes all branches in every lane. Here the lanes of each case are gathered into
tiles, and a tile runs one branch. A tile also stays in cache, while a whole batch of large tables does not.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
from jax import lax

from jaxcontact._pytree import PyTree
from jaxcontact.batching import platforms
from jaxcontact.batching.batch_axes import batch_first
from jaxcontact.batching.bounded_loop import bounded_count


def switch(
    case: jax.Array, branches: Sequence[Callable[[PyTree], PyTree]], arguments: PyTree, *, tile: int = 64
) -> PyTree:
    """Compute `lax.switch(case, branches, arguments)`; the branches must not close over traced arrays.

    Nested batches become one batch.

    Args:
        tile: lanes of a tile on a CPU: few if branches loop over large tables, because all lanes of a tile
            wait for the slowest; many if calls cost more than the work.

    Derivative: none.
    """
    return batch_first(
        lambda case, arguments: lax.switch(case, branches, arguments),
        functools.partial(_run_cases, branches, tile),
        case,
        arguments,
    )


def _run_cases(
    branches: Sequence[Callable[[PyTree], PyTree]], width: int, case: jax.Array, arguments: PyTree
) -> PyTree:
    """Compute the results of all lanes; the first axis is the lane."""
    count = case.shape[0]
    case = jnp.clip(case, 0, len(branches) - 1)
    lane = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape[1:], x.dtype), arguments)
    shapes = jax.eval_shape(branches[0], lane)
    nothing = jax.tree.map(lambda x: jnp.zeros((count, *x.shape), x.dtype), shapes)

    def in_tiles(width: int) -> Callable[[jax.Array, PyTree, PyTree], PyTree]:
        def run(case: jax.Array, arguments: PyTree, results: PyTree) -> PyTree:
            for number, branch in enumerate(branches):
                in_case = case == number
                # The lanes of this case come first; after them an index out of bounds, whose result is
                # dropped. Such a place computes a lane of the case instead.
                (index,) = jnp.nonzero(in_case, size=count + width, fill_value=count)

                def visit(
                    k: jax.Array, results: PyTree, index: jax.Array = index, branch: PyTree = branch
                ) -> PyTree:
                    tile_index = lax.dynamic_slice(index, (k * width,), (width,))
                    safe_index = jnp.where(tile_index < count, tile_index, index[0])
                    tile = jax.tree.map(lambda x: x.at[safe_index].get(mode="clip"), arguments)

                    def put(rows: jax.Array, new: jax.Array) -> jax.Array:
                        return rows.at[tile_index].set(new, mode="drop")

                    return jax.tree.map(put, results, jax.vmap(branch)(tile))

                num_tiles = (jnp.sum(in_case, dtype=jnp.int32) + width - 1) // width
                results = bounded_count(num_tiles, visit, results, max_iters=-(-count // width))
            return results

        return run

    cpu, other = in_tiles(min(width, count)), in_tiles(count)
    return platforms.choose(case, arguments, nothing, cpu=cpu, other=other)
