"""Symmetric block-tridiagonal systems by cyclic reduction: every other block at once, then what is left.

A chain of n blocks takes log2(n) sweeps, each over long vectors, where elimination from one end would take n
short steps. Arrays carry the blocks on the axis after those of a block, and a batch, if any, last.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from jaxcontact import linalg


class BlockTridiagonal(NamedTuple):
    """`diagonal` (m, m, n, ...) and `below` (m, m, n - 1, ...): rows of block k + 1, columns of block k."""

    diagonal: jax.Array
    below: jax.Array


class Sweep(NamedTuple):
    """The blocks 0, 2, 4, ... of one sweep, eliminated: their factors L and L^-1 times their couplings."""

    lower: jax.Array  # (m, m, k, ...)
    left: jax.Array  # (m, m, k, ...) to the block before; zero for the first
    right: jax.Array  # (m, m, k, ...) to the block after; zero for the last


def factorise_chain(matrix: BlockTridiagonal) -> tuple[Sweep, ...]:
    """A = L L^T in the order of cyclic reduction, for symmetric positive definite A; as stable as Cholesky.

    Pivots that round-off has made non-positive are treated as in `linalg.cholesky_lanes`.
    """
    diagonal, below = matrix
    size, sweeps = diagonal.shape[0], []
    while diagonal.shape[2] > 1:
        none = jnp.zeros_like(diagonal[:, :, :1])
        if diagonal.shape[2] % 2 == 0:  # one more block that touches nothing
            one = jnp.eye(size, dtype=diagonal.dtype).reshape(size, size, *(1,) * (none.ndim - 2)) + none
            diagonal, below = jnp.concatenate([diagonal, one], 2), jnp.concatenate([below, none], 2)
        lower = linalg.cholesky_lanes(diagonal[:, :, 0::2])
        left = jnp.concatenate([none, below[:, :, 1::2]], 2)
        right = jnp.concatenate([jnp.swapaxes(below[:, :, 0::2], 0, 1), none], 2)
        left, right = (_solve_lower(lower, each) for each in (left, right))
        # Evaluated once: without the barrier the compiler repeats it inside every use.
        lower, left, right = lax.optimization_barrier((lower, left, right))
        sweeps.append(Sweep(lower, left, right))
        before, after = right[:, :, :-1], left[:, :, 1:]
        diagonal = diagonal[:, :, 1::2] - _product(before, before) - _product(after, after)
        below = -_product(right[:, :, 1:-1], left[:, :, 1:-1])
    none = jnp.zeros_like(diagonal)
    return *sweeps, Sweep(linalg.cholesky_lanes(diagonal), none, none)


def solve_chain(sweeps: tuple[Sweep, ...], rhs: jax.Array) -> jax.Array:
    """Solution x (nv, ...) of A x = b for the factors of `factorise_chain`; b may end within a block."""
    found = _solve(sweeps, as_blocks(rhs, sweeps[0].lower.shape[0]))
    return jnp.moveaxis(found, 1, 0).reshape(-1, *rhs.shape[1:])[: rhs.shape[0]]


def as_blocks(x: jax.Array, size: int, fill: float = 0.0) -> jax.Array:
    """X (nv, ...) as (size, blocks, ...), the end of the last block filled up."""
    missing = -x.shape[0] % size
    whole = jnp.concatenate([x, jnp.full((missing, *x.shape[1:]), fill, x.dtype)]) if missing else x
    return jnp.moveaxis(whole.reshape(-1, size, *x.shape[1:]), 0, 1)


def _solve(sweeps: tuple[Sweep, ...], rhs: jax.Array) -> jax.Array:
    count = rhs.shape[1]
    (lower, left, right), *rest = sweeps
    none = jnp.zeros_like(rhs[:, :1])
    if rest and count % 2 == 0:
        rhs = jnp.concatenate([rhs, none], 1)
    half = _solve_lower(lower, rhs[:, 0::2])
    if not rest:
        return _solve_upper(lower, half)
    kept = rhs[:, 1::2] - _product(right[:, :, :-1], half[:, :-1]) - _product(left[:, :, 1:], half[:, 1:])
    kept = _solve(tuple(rest), kept)
    before, after = jnp.concatenate([none, kept], 1), jnp.concatenate([kept, none], 1)
    pulled = _product(jnp.swapaxes(left, 0, 1), before) + _product(jnp.swapaxes(right, 0, 1), after)
    first = _solve_upper(lower, half - pulled)
    pairs = jnp.stack([first[:, :-1], kept], axis=2)
    pairs = pairs.reshape(rhs.shape[0], -1, *rhs.shape[2:])
    return jnp.concatenate([pairs, first[:, -1:]], 1)[:, :count]


def _product(a: jax.Array, b: jax.Array) -> jax.Array:
    """a^T b, block by block; b (m, m, n, ...) or (m, n, ...)."""
    if b.ndim < a.ndim:
        return sum((a[k] * b[k][None] for k in range(1, a.shape[0])), a[0] * b[0][None])
    terms = [a[k][:, None] * b[k][None, :] for k in range(a.shape[0])]
    return sum(terms[1:], terms[0])


def _solve_lower(lower: jax.Array, rhs: jax.Array) -> jax.Array:
    """L^-1 b, block by block; b (m, k, n, ...) or (m, n, ...)."""
    found: list[jax.Array] = []
    for i in range(lower.shape[0]):
        known = [_along(lower[i, j], rhs) * found[j] for j in range(i)]
        found.append((rhs[i] - sum(known[1:], known[0]) if known else rhs[i]) / _along(lower[i, i], rhs))
    return jnp.stack(found)


def _solve_upper(lower: jax.Array, rhs: jax.Array) -> jax.Array:
    """L^-T b, block by block; b (m, n, ...)."""
    size = lower.shape[0]
    found: dict[int, jax.Array] = {}
    for i in reversed(range(size)):
        known = [lower[j, i] * found[j] for j in range(i + 1, size)]
        found[i] = (rhs[i] - sum(known[1:], known[0]) if known else rhs[i]) / lower[i, i]
    return jnp.stack([found[i] for i in range(size)])


def _along(entry: jax.Array, rhs: jax.Array) -> jax.Array:
    """An entry (n, ...) of every block, to be multiplied with the rows of `rhs`."""
    return entry if rhs.ndim == entry.ndim + 1 else entry[None]
