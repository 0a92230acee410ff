"""Symmetric block-tridiagonal systems by cyclic reduction: every other block at once, then what is left.

A chain of n blocks takes log2(n) sweeps, each over long vectors, where elimination from one end would take n
short steps. Every sweep has the same shape, so that they compile as one: what is left of the chain comes
first, blocks that touch nothing fill it up. Arrays carry the blocks on the axis after those of a block, and a
batch, if any, last.
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
    """What eliminating the blocks 0, 2, 4, ... of the chain that is left takes, sweep by sweep.

    For each of the k blocks A = L L^T of a sweep L^-1, and L^-1 times the coupling to the block before and to
    the one after, all (sweeps, m, m, k, ...); zero where there is none.
    """

    inverse: jax.Array
    left: jax.Array
    right: jax.Array


def factorise_chain(matrix: BlockTridiagonal) -> Sweeps:
    """A = L L^T in the order of cyclic reduction, for symmetric positive definite A.

    A pivot that round-off has made non-positive is replaced by a tiny one: no NaN, but a useless direction.
    """
    diagonal, below = matrix
    count = diagonal.shape[2]
    half = (count + 1) // 2
    nothing = jnp.zeros_like(diagonal[:, :, :1])
    unit = nothing + jnp.eye(diagonal.shape[0], dtype=diagonal.dtype).reshape(
        *diagonal.shape[:2], *(1,) * (diagonal.ndim - 2)
    )
    unit = jnp.broadcast_to(unit, (*unit.shape[:2], half, *unit.shape[3:]))
    none = jnp.zeros_like(unit)

    def sweep(chain: tuple[jax.Array, jax.Array], _: None) -> tuple:
        diagonal, below = chain
        to_next, to_last = below[:, :, 0::2], below[:, :, 1::2]
        inverse = _inverse_factor(diagonal[:, :, 0::2])
        lift = jnp.swapaxes(inverse, 0, 1)
        right = _product(lift, jnp.swapaxes(to_next, 0, 1))
        left = _product(lift, _later(to_last, 2))
        after = _earlier(left, 2)
        kept = diagonal[:, :, 1::2] - _product(right, right) - _product(after, after)
        coupling = -_earlier(_product(right, left), 2)
        chain = jnp.concatenate([kept, unit], 2), jnp.concatenate([coupling, none], 2)
        return chain, Sweeps(inverse, left, right)

    if count % 2:
        diagonal, below = jnp.concatenate([diagonal, unit[:, :, :1]], 2), jnp.concatenate([below, nothing], 2)
    start = diagonal, jnp.concatenate([below, nothing], 2)
    return lax.scan(sweep, start, None, length=count.bit_length())[1]


def solve_chain(sweeps: Sweeps, rhs: jax.Array) -> jax.Array:
    """Solution x (nv, ...) of A x = b for the factors of `factorise_chain`; b may end within a block."""
    size, half = sweeps.inverse.shape[2:4]
    blocks = as_blocks(rhs, size)
    missing = 2 * half - blocks.shape[1]
    blocks = jnp.concatenate([blocks, jnp.zeros_like(blocks[:, :missing])], 1)
    none = jnp.zeros_like(blocks[:, :half])

    def down(b: jax.Array, sweep: Sweeps) -> tuple[jax.Array, jax.Array]:
        y = _product(jnp.swapaxes(sweep.inverse, 0, 1), b[:, 0::2])
        kept = b[:, 1::2] - _product(sweep.right, y) - _earlier(_product(sweep.left, y), 1)
        return jnp.concatenate([kept, none], 1), y

    def up(kept: jax.Array, blocks_above: tuple[Sweeps, jax.Array]) -> tuple[jax.Array, None]:
        sweep, y = blocks_above
        pulled = _product(jnp.swapaxes(sweep.left, 0, 1), _later(kept[:, :half], 1))
        pulled = pulled + _product(jnp.swapaxes(sweep.right, 0, 1), kept[:, :half])
        first = _product(sweep.inverse, y - pulled)
        pairs = jnp.stack([first, kept[:, :half]], axis=2)
        return pairs.reshape(*kept.shape), None

    _, y = lax.scan(down, blocks, sweeps)
    blocks_above, _ = lax.scan(up, jnp.zeros_like(blocks), (sweeps, y), reverse=True)
    return jnp.moveaxis(blocks_above, 1, 0).reshape(-1, *rhs.shape[1:])[: rhs.shape[0]]


def as_blocks(x: jax.Array, size: int, fill: float = 0.0) -> jax.Array:
    """X (nv, ...) as (size, blocks, ...), the end of the last block filled up."""
    missing = -x.shape[0] % size
    whole = jnp.concatenate([x, jnp.full((missing, *x.shape[1:]), fill, x.dtype)]) if missing else x
    return jnp.moveaxis(whole.reshape(-1, size, *x.shape[1:]), 0, 1)


def _inverse_factor(matrix: jax.Array) -> jax.Array:
    """L^-1 of A = L L^T, block by block."""
    tiny = jnp.finfo(matrix.dtype).tiny ** 0.5
    index = jnp.arange(matrix.shape[0]).reshape(-1, *(1,) * (matrix.ndim - 2))
    unit = jnp.zeros_like(matrix) + (index[:, None] == index[None, :])

    def eliminate(k: jax.Array, carry: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        rest, inverse = carry
        scale = lax.rsqrt(jnp.maximum(rest[k, k], tiny))[None]
        column, row = rest[:, k] * scale, inverse[k] * scale
        below = jnp.where(index > k, column, 0.0)
        inverse = jnp.where(index[:, None] == k, row[None], inverse - below[:, None] * row[None])
        return rest - below[:, None] * column[None], inverse

    return lax.fori_loop(0, matrix.shape[0], eliminate, (matrix, unit))[1]


def _product(a: jax.Array, b: jax.Array) -> jax.Array:
    """a^T b, block by block; b (m, m, n, ...) or (m, n, ...)."""
    if b.ndim < a.ndim:
        return sum((a[k] * b[k][None] for k in range(1, a.shape[0])), a[0] * b[0][None])
    terms = [a[k][:, None] * b[k][None, :] for k in range(a.shape[0])]
    return sum(terms[1:], terms[0])


def _later(x: jax.Array, axis: int) -> jax.Array:
    """Every block moved on by one place, nothing first."""
    first = jnp.zeros_like(lax.slice_in_dim(x, 0, 1, axis=axis))
    return jnp.concatenate([first, lax.slice_in_dim(x, 0, x.shape[axis] - 1, axis=axis)], axis)


def _earlier(x: jax.Array, axis: int) -> jax.Array:
    """Every block moved back by one place, nothing last."""
    last = jnp.zeros_like(lax.slice_in_dim(x, 0, 1, axis=axis))
    return jnp.concatenate([lax.slice_in_dim(x, 1, x.shape[axis], axis=axis), last], axis)
