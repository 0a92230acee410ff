"""Row and column scales of a matrix by alternating geometric means, with the matrices in the last axis.

Entry: `scales`.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import lax

from jaxcontact.batching import platforms
from jaxcontact.precision import all_digits

_TILE = 64  # matrices at a time on a CPU, which stay in its cache
SMALL_IN_LINES = 4.0  # eps, of the maximum of its row and of its column; a smaller entry is round-off
SMALL_BY_DIAGONALS = 256.0  # eps; round-off of the products in a positive semidefinite matrix


def scales(matrix: jax.Array, sweeps: int) -> tuple[jax.Array, jax.Array]:
    """Compute powers of two r (n,), c (n,) > 0 that bring the entries of r_i A_ij c_j near 1.

    They are powers of two up to rounding. Derivative: none, they are constants.
    """
    r, c = _make_entry(sweeps)(lax.stop_gradient(matrix)[None])
    return r[0], c[0]


@functools.cache
def _make_entry(sweeps: int) -> Callable[[jax.Array], tuple[jax.Array, jax.Array]]:
    @jax.custom_batching.custom_vmap
    @all_digits
    def entry(matrices: jax.Array) -> tuple[jax.Array, jax.Array]:
        together = functools.partial(_tile, sweeps=sweeps)
        if matrices.shape[0] <= _TILE:
            return together(matrices)
        return platforms.choose(
            matrices, cpu=functools.partial(_scale_in_tiles, sweeps=sweeps), other=together
        )

    @entry.def_vmap
    def many(
        size: int, batched: list[bool], matrices: jax.Array
    ) -> tuple[tuple[jax.Array, jax.Array], tuple[bool, bool]]:
        r, c = entry(matrices.reshape(-1, *matrices.shape[2:]))
        return (r.reshape(size, -1, r.shape[-1]), c.reshape(size, -1, c.shape[-1])), (True, True)

    return entry


def _scale_in_tiles(matrices: jax.Array, sweeps: int) -> tuple[jax.Array, jax.Array]:
    count, n = matrices.shape[:2]
    tiles = -(-count // _TILE)
    padded = jnp.pad(matrices, ((0, tiles * _TILE - count), (0, 0), (0, 0)))
    r, c = lax.map(functools.partial(_tile, sweeps=sweeps), padded.reshape(tiles, _TILE, n, n))
    return r.reshape(-1, n)[:count], c.reshape(-1, n)[:count]


def _tile(matrices: jax.Array, sweeps: int) -> tuple[jax.Array, jax.Array]:
    """Compute scales (B, n) of matrices (B, n, n)."""
    n, dtype = matrices.shape[1], matrices.dtype
    size = jnp.abs(jnp.moveaxis(matrices, 0, 2))
    # Round-off in place of a zero must not set the scale: small in its row and in its column, or small with
    # its mirror image next to both diagonals, which no units of rows and columns change.
    noise_share = SMALL_IN_LINES * float(jnp.finfo(dtype).eps)
    present = size > noise_share * jnp.max(size, axis=1, keepdims=True)
    present |= size > noise_share * jnp.max(size, axis=0, keepdims=True)
    # Linear between powers of two: within 0.09 of the logarithm, and much cheaper.
    mantissa, exponent = jnp.frexp(jnp.where(size > 0, size, 1.0))
    logs = exponent.astype(dtype) + 2 * mantissa - 2
    index = jnp.arange(n)
    diagonal_logs = jnp.where(size[index, index] > 0, logs[index, index], -jnp.inf)
    pairs = jnp.where((size > 0) & (jnp.swapaxes(size, 0, 1) > 0), logs + jnp.swapaxes(logs, 0, 1), jnp.inf)
    noise = 2.0 * math.log2(SMALL_BY_DIAGONALS * float(jnp.finfo(dtype).eps))
    present &= ~(pairs <= noise + diagonal_logs[:, None] + diagonal_logs[None, :])
    logs = jnp.where(present, logs, jnp.nan)

    def balance(_: int, exponents: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        r, c = exponents
        r = -_middle(logs + c[None], 1)
        c = -_middle(logs + r[:, None], 0)
        return r, c

    zero = jnp.zeros((n, matrices.shape[0]), dtype)
    r, c = lax.fori_loop(0, sweeps, balance, (zero, zero))
    return jnp.exp2(jnp.round(r)).T, jnp.exp2(jnp.round(c)).T


def _middle(logs: jax.Array, axis: int) -> jax.Array:
    """Compute the middle of the extremes along an axis without NaN; 0 if all are NaN."""
    present = ~jnp.isnan(logs)
    low = jnp.min(jnp.where(present, logs, jnp.inf), axis=axis)
    high = jnp.max(jnp.where(present, logs, -jnp.inf), axis=axis)
    return jnp.where(jnp.isfinite(low), 0.5 * (low + high), 0.0)
