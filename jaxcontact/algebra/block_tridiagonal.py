"""Symmetric block-tridiagonal systems by cyclic reduction: `factorise_chain` and `solve_chain`.

A sweep eliminates every other block at once; the next sweep does the same with the remaining blocks: log2(n)
sweeps over long vectors for n blocks. All sweeps have one shape, so they compile as one: the remaining blocks
come first, and uncoupled unit blocks fill the array. In every array the first two axes are those of a block,
the next axis counts the blocks, and a batch axis, if any, comes last.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax


class BlockTridiagonal(NamedTuple):
    """`diagonal` (m, m, n, ...) and `below` (m, m, n - 1, ...): rows of block k + 1, columns of block k."""

    diagonal: jax.Array
    below: jax.Array


class Sweeps(NamedTuple):
    """The factors of all sweeps; a sweep eliminates the blocks 0, 2, 4, ... of the remaining chain.

    A sweep eliminates k blocks A = L L^T. For each block `inverse` is L^-1; `left` and `right` are L^-1 times
    the coupling to the block before and to the block after, zero without such a block. All are
    (sweeps, m, m, k, ...).
    """

    inverse: jax.Array
    left: jax.Array
    right: jax.Array


def factorise_chain(matrix: BlockTridiagonal) -> Sweeps:
    """Factor a symmetric positive definite A = L L^T in the order of cyclic reduction; return all sweeps.

    A tiny positive number replaces a pivot that round-off has made non-positive. The solution is then finite,
    but useless as a direction of search.
    """
    diagonal, below = matrix
    count = diagonal.shape[2]
    half = (count + 1) // 2
    zero_block = jnp.zeros_like(diagonal[:, :, :1])
    unit = zero_block + jnp.eye(diagonal.shape[0], dtype=diagonal.dtype).reshape(
        *diagonal.shape[:2], *(1,) * (diagonal.ndim - 2)
    )
    unit = jnp.broadcast_to(unit, (*unit.shape[:2], half, *unit.shape[3:]))
    no_coupling = jnp.zeros_like(unit)

    def sweep(chain: tuple[jax.Array, jax.Array], _: None) -> tuple:
        diagonal, below = chain
        to_next, to_earlier = below[:, :, 0::2], below[:, :, 1::2]
        inverse = _inverse_factor(diagonal[:, :, 0::2])
        inverse_transposed = jnp.swapaxes(inverse, 0, 1)
        right = _product(inverse_transposed, jnp.swapaxes(to_next, 0, 1))
        left = _product(inverse_transposed, _later(to_earlier, 2))
        left_of_next = _earlier(left, 2)
        remaining = diagonal[:, :, 1::2] - _product(right, right) - _product(left_of_next, left_of_next)
        coupling = -_earlier(_product(right, left), 2)
        chain = jnp.concatenate([remaining, unit], 2), jnp.concatenate([coupling, no_coupling], 2)
        return chain, Sweeps(inverse, left, right)

    if count % 2:
        diagonal, below = (
            jnp.concatenate([diagonal, unit[:, :, :1]], 2),
            jnp.concatenate([below, zero_block], 2),
        )
    start = diagonal, jnp.concatenate([below, zero_block], 2)
    return lax.scan(sweep, start, None, length=count.bit_length())[1]


def solve_chain(sweeps: Sweeps, rhs: jax.Array) -> jax.Array:
    """Solve A x = b for x (nv, ...) by the factors of `factorise_chain`; b may end within a block."""
    size, half = sweeps.inverse.shape[2:4]
    blocks = as_blocks(rhs, size)
    missing = 2 * half - blocks.shape[1]
    blocks = jnp.concatenate([blocks, jnp.zeros_like(blocks[:, :missing])], 1)
    padding = jnp.zeros_like(blocks[:, :half])

    def eliminate_even(b: jax.Array, sweep: Sweeps) -> tuple[jax.Array, jax.Array]:
        y = _product(jnp.swapaxes(sweep.inverse, 0, 1), b[:, 0::2])
        odd_blocks = b[:, 1::2] - _product(sweep.right, y) - _earlier(_product(sweep.left, y), 1)
        return jnp.concatenate([odd_blocks, padding], 1), y

    def restore_even(
        odd_blocks: jax.Array, sweep_and_rhs: tuple[Sweeps, jax.Array]
    ) -> tuple[jax.Array, None]:
        sweep, y = sweep_and_rhs
        coupling = _product(jnp.swapaxes(sweep.left, 0, 1), _later(odd_blocks[:, :half], 1))
        coupling = coupling + _product(jnp.swapaxes(sweep.right, 0, 1), odd_blocks[:, :half])
        even_blocks = _product(sweep.inverse, y - coupling)
        pairs = jnp.stack([even_blocks, odd_blocks[:, :half]], axis=2)
        return pairs.reshape(*odd_blocks.shape), None

    _, y = lax.scan(eliminate_even, blocks, sweeps)
    solution, _ = lax.scan(restore_even, jnp.zeros_like(blocks), (sweeps, y), reverse=True)
    return jnp.moveaxis(solution, 1, 0).reshape(-1, *rhs.shape[1:])[: rhs.shape[0]]


def as_blocks(x: jax.Array, size: int, fill: float = 0.0) -> jax.Array:
    """Arrange x (nv, ...) as (size, blocks, ...); `fill` completes the last block."""
    missing = -x.shape[0] % size
    padded = jnp.concatenate([x, jnp.full((missing, *x.shape[1:]), fill, x.dtype)]) if missing else x
    return jnp.moveaxis(padded.reshape(-1, size, *x.shape[1:]), 0, 1)


def _inverse_factor(matrix: jax.Array) -> jax.Array:
    """Compute L^-1 of A = L L^T, block by block."""
    tiny = jnp.finfo(matrix.dtype).tiny ** 0.5
    index = jnp.arange(matrix.shape[0]).reshape(-1, *(1,) * (matrix.ndim - 2))
    unit = jnp.zeros_like(matrix) + (index[:, None] == index[None, :])

    def eliminate(k: jax.Array, carry: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        remainder, inverse = carry
        scale = lax.rsqrt(jnp.maximum(remainder[k, k], tiny))[None]
        column, row = remainder[:, k] * scale, inverse[k] * scale
        below = jnp.where(index > k, column, 0.0)
        inverse = jnp.where(index[:, None] == k, row[None], inverse - below[:, None] * row[None])
        return remainder - below[:, None] * column[None], inverse

    return lax.fori_loop(0, matrix.shape[0], eliminate, (matrix, unit))[1]


def _product(a: jax.Array, b: jax.Array) -> jax.Array:
    """Compute a^T b, block by block; b is (m, m, n, ...) or (m, n, ...)."""
    if b.ndim < a.ndim:
        return sum((a[k] * b[k][None] for k in range(1, a.shape[0])), a[0] * b[0][None])
    terms = [a[k][:, None] * b[k][None, :] for k in range(a.shape[0])]
    return sum(terms[1:], terms[0])


def _later(x: jax.Array, axis: int) -> jax.Array:
    """Move every block to the next place, with a zero block first."""
    zero_block = jnp.zeros_like(lax.slice_in_dim(x, 0, 1, axis=axis))
    return jnp.concatenate([zero_block, lax.slice_in_dim(x, 0, x.shape[axis] - 1, axis=axis)], axis)


def _earlier(x: jax.Array, axis: int) -> jax.Array:
    """Move every block to the place before, with a zero block last."""
    zero_block = jnp.zeros_like(lax.slice_in_dim(x, 0, 1, axis=axis))
    return jnp.concatenate([lax.slice_in_dim(x, 1, x.shape[axis], axis=axis), zero_block], axis)
