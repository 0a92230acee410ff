"""Valid modes among hundreds: four telling forms of every mode first, all forms of the few modes left.

At a given x most modes violate some form, and mostly the same forms. So four forms of each mode, chosen at
typical x, exclude nearly all invalid modes; the choice affects the speed, not the answer. Single precision
evaluates them; they exclude only modes invalid beyond its rounding. Entries: `possible`, `scores`.
"""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxcontact._pytree import PyTree, Record
from jaxcontact.batching.bounded_loop import bounded_count
from jaxcontact.solvers import contact_modes

TELLING = 4  # forms of each mode that are evaluated first
BLOCK = 128  # modes evaluated together
_LEFT = 32  # of the modes that remain, evaluated together with all forms
_CLEARLY = 1e-6  # relative; a form below minus this is violated beyond single precision


class Rows(Record):
    """All forms of K modes, L numbers in x; the forms of a mode are adjacent.

    Attributes:
        forms: (K, 3m, L) as `contact_modes.ModeMaps.margin`.
        score: (K, L) as in `contact_modes.ModeMaps`.
        regular: (K,) as there.
    """

    forms: jax.Array
    score: jax.Array
    regular: jax.Array


class Sieve(Record):
    """Forms of K modes, L numbers in x, as NumPy arrays that a caller may place on a device.

    Attributes:
        telling: (K / 128, 4, L + 1, 128) float32, four forms of each mode and the sums of their absolute
            weights, in blocks of modes.
        blocks: (K / 128, 128) the same blocks of regular.
        count: () int32, number of first blocks that contain all regular modes.
        rows: all forms.
    """

    telling: jax.Array
    blocks: jax.Array
    count: jax.Array
    rows: Rows


def telling_rows(margin: np.ndarray, x: np.ndarray) -> np.ndarray:
    """Choose the forms (4, K) of margin (3m, L, K) that most of x (L, n) violate, one after the other.

    In NumPy: counting is not vectorised on a CPU by JAX. In single precision, which suffices for the choice.
    """
    count, length, number = margin.shape
    values = margin.transpose(0, 2, 1).astype(np.float32).reshape(-1, length) @ in_single(x)
    return most_violated((values < -_CLEARLY).reshape(count, number, x.shape[1]))


def in_single(x: np.ndarray) -> np.ndarray:
    """Convert x of any unit to single precision, relative to its largest number."""
    return (x / max(np.abs(x).max(), np.finfo(x.dtype).tiny)).astype(np.float32)


def most_violated(bad: np.ndarray) -> np.ndarray:
    """Choose the forms (4, K) that most of n points violate, one after the other; bad (3m, K, n) bool."""
    number = bad.shape[1]
    bits = np.packbits(bad, axis=2)
    bits = np.pad(bits, [(0, 0), (0, 0), (0, -bits.shape[2] % 8)]).view(np.uint64)
    rows = np.empty((TELLING, number), np.int64)
    for row in rows:
        row[:] = np.argmax(np.bitwise_count(bits).sum(axis=2, dtype=np.uint16), axis=0)
        bits &= ~bits[row, np.arange(number)]
    return rows


def sieve(table: contact_modes.ModeMaps, rows: np.ndarray) -> Sieve:
    """Build the sieve of a table from its `telling_rows`; K is a multiple of 128."""
    margin, regular = np.asarray(table.margin), np.asarray(table.regular)
    telling = np.take_along_axis(margin, rows[:, None], axis=0)
    telling = np.concatenate([telling, np.abs(telling).sum(axis=1, keepdims=True)], axis=1)
    used = np.flatnonzero(regular)
    arrays: dict[str, PyTree] = {
        "telling": _blocks(telling.astype(np.float32)),
        "blocks": _blocks(regular),
        "count": np.int32(used[-1] // BLOCK + 1 if used.size else 0),
    }
    return Sieve(**arrays, rows=rows_of(table))


def rows_of(table: contact_modes.ModeMaps) -> Rows:
    """Order the forms of a table by modes, in NumPy."""
    margin, score = np.asarray(table.margin), np.asarray(table.score)
    arrays: dict[str, PyTree] = {
        "forms": np.ascontiguousarray(np.moveaxis(margin, -1, 0)),
        "score": np.ascontiguousarray(score.T),
    }
    return Rows(**arrays, regular=table.regular)


def possible(sieve: Sieve, x: jax.Array, live: jax.Array, limit: jax.Array) -> jax.Array:
    """Mark the modes (K,) of which no telling form is clearly below -limit at some live x (L, tile)."""
    # In units of limit no number that matters under- or overflows; NaN excludes no mode.
    single = jnp.where(live[None], x / limit, 0.0).astype(jnp.float32)
    rounding = 4.0 * x.shape[0] * float(jnp.finfo(jnp.float32).eps) * jnp.max(jnp.abs(single))
    single = jnp.concatenate([single, jnp.broadcast_to(rounding, (1, single.shape[1]))])

    def of_block(k: jax.Array, maybe: jax.Array) -> jax.Array:
        telling = lax.dynamic_index_in_dim(sieve.telling, k, keepdims=False)
        worst = jnp.zeros((), jnp.float32)
        for form in telling:
            worst = jnp.minimum(worst, contact_modes.apply(form, single))
        regular = lax.dynamic_index_in_dim(sieve.blocks, k, keepdims=False)
        passed = ~(worst < -1.0) & live[None] & regular[:, None]
        return lax.dynamic_update_slice_in_dim(maybe, passed, k * BLOCK, 0)

    # The result of a loop is computed once; without the loop it would be computed for each of eight lanes.
    nothing = jnp.zeros((sieve.rows.regular.shape[0], x.shape[1]), bool)
    return any_lane(bounded_count(sieve.count, of_block, nothing, max_iters=sieve.blocks.shape[0]))


def scores(rows: Rows, index: jax.Array, count: jax.Array, x: jax.Array, limit: jax.Array) -> jax.Array:
    """Compute the scores (Q, *batch) of the modes index[:count] of Q at which they are valid, else inf.

    Valid as `contact_modes.evaluate(table, x) <= limit`; index (Q,).
    """
    size = min(_LEFT, index.shape[0])

    def of_some(k: jax.Array, scored: jax.Array) -> jax.Array:
        at = k * size
        some = lax.dynamic_slice_in_dim(index, at, size)
        forms = rows.forms.at[some].get(mode="clip")
        worst = jnp.zeros((), x.dtype)
        for row in range(forms.shape[1]):
            worst = jnp.minimum(worst, contact_modes.apply(forms[:, row].T, x))
        regular = rows.regular.at[some].get(mode="fill", fill_value=False)
        valid = (worst >= -limit) & regular.reshape((-1,) + (1,) * (x.ndim - 1))
        score = contact_modes.apply(rows.score.at[some].get(mode="clip").T, x)
        return lax.dynamic_update_slice_in_dim(scored, jnp.where(valid, score, jnp.inf), at, 0)

    nothing = jnp.full((index.shape[0], *x.shape[1:]), jnp.inf, x.dtype)
    return bounded_count((count + size - 1) // size, of_some, nothing, max_iters=-(-index.shape[0] // size))


def places(bitmap: jax.Array, size: int) -> jax.Array:
    """List the indices (size,) int32 of the true entries of (K,) bool, ascending, then K; 32 divides K.

    As `jnp.nonzero`, without sums over all numbers, which are slow on a CPU: in words of 32 bits.
    """
    bits = bitmap.reshape(-1, 32).astype(jnp.uint32) << jnp.arange(32, dtype=jnp.uint32)[None]
    words = lax.optimization_barrier(jnp.sum(bits, axis=1, dtype=jnp.uint32))
    held = lax.population_count(words).astype(jnp.int32)
    up_to = lax.optimization_barrier(jnp.cumsum(held, dtype=jnp.int32))
    turn = jnp.arange(size, dtype=jnp.int32)
    at = jnp.searchsorted(up_to, turn, side="right", method="scan_unrolled").astype(jnp.int32)
    word = words.at[at].get(mode="clip")
    left = turn - (up_to - held).at[at].get(mode="clip")
    place = 32 * at
    for width in (16, 8, 4, 2, 1):  # halves the part of the word that has the bit
        low = lax.population_count(word & jnp.uint32(2**width - 1)).astype(jnp.int32)
        above = left >= low
        left = jnp.where(above, left - low, left)
        word = jnp.where(above, word >> width, word)
        place = jnp.where(above, place + width, place)
    return jnp.where(at < words.shape[0], place, bitmap.shape[0])


def any_lane(valid: jax.Array) -> jax.Array:
    """Reduce by any(valid, axis=1), eight lanes at a time: a row-wise reduction of booleans is slow."""
    folded = valid.astype(jnp.uint8).reshape(valid.shape[0], -1, 8)
    either = functools.reduce(jnp.bitwise_or, [folded[:, i] for i in range(folded.shape[1])])
    return lax.bitcast_convert_type(either.reshape(-1, 2, 4), jnp.uint32).any(axis=1)


def _blocks(array: np.ndarray) -> np.ndarray:
    """Split the last axis into blocks: (..., K) -> (K / B, ..., B)."""
    return np.ascontiguousarray(np.moveaxis(array.reshape(*array.shape[:-1], -1, BLOCK), -2, 0))
