"""Valid modes among hundreds: four telling forms of every mode first, all forms of the few modes left.

At a given x most modes violate some form, and mostly the same ones. So four forms of each mode, chosen at
typical x, rule out nearly all that are not valid; the choice affects the speed, not the answer.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxcontact._pytree import Record
from jaxcontact.solvers import modes

TELLING = 4  # forms per mode
_BLOCK = 128  # modes looked at together
_LEFT = 32  # of those left


class Sieve(Record):
    """Forms of K modes, L numbers in x.

    Attributes:
        telling: (K / 128, 4, L, 128) four forms of each mode, in blocks of modes.
        blocks: (K / 128, 128) the same blocks of regular.
        forms: (K, 3m, L) all of them.
        score: (K, L) as in `modes.ModeTable`.
        regular: (K,) as there.
    """

    telling: jax.Array
    blocks: jax.Array
    forms: jax.Array
    score: jax.Array
    regular: jax.Array


def telling_rows(margin: np.ndarray, x: np.ndarray) -> np.ndarray:
    """(4, K), the forms of margin (3m, L, K) that most of x (L, n) violate, one after the other.

    In NumPy: counting is not vectorised on a CPU by JAX.
    """
    count, length, number = margin.shape
    values = margin.transpose(0, 2, 1).reshape(-1, length) @ x
    bad = (values < -modes.feasibility_tolerance(x.dtype)).reshape(count, number, x.shape[1])
    rows = np.empty((TELLING, number), np.int64)
    for row in rows:
        row[:] = np.argmax(np.count_nonzero(bad, axis=2), axis=0)
        bad = bad & ~bad[row, np.arange(number)]
    return rows


def sieve(table: modes.ModeTable, rows: np.ndarray) -> Sieve:
    """The sieve of a table from `telling_rows`; K is a multiple of 128."""
    telling = jnp.take_along_axis(table.margin, jnp.asarray(rows)[:, None], axis=0)
    return Sieve(
        telling=_blocks(telling),
        blocks=_blocks(table.regular),
        forms=jnp.moveaxis(table.margin, -1, 0),
        score=table.score.T,
        regular=table.regular,
    )


def possible(these: Sieve, x: jax.Array, limit: jax.Array) -> jax.Array:
    """(K, *batch) bool, whether no telling form of the mode at x (L, *batch) is below -limit."""

    def of_block(block: tuple[jax.Array, jax.Array]) -> jax.Array:
        telling, regular = block
        worst = jnp.zeros((), x.dtype)
        for form in telling:
            worst = jnp.minimum(worst, modes.apply(form, x))
        return (worst >= -limit) & regular.reshape((-1,) + (1,) * (x.ndim - 1))

    # What comes out of a loop is computed once.
    return lax.map(of_block, (these.telling, these.blocks)).reshape(-1, *x.shape[1:])


def scores(these: Sieve, index: jax.Array, count: jax.Array, x: jax.Array, limit: jax.Array) -> jax.Array:
    """(Q, *batch), the scores of the modes index[:count] of Q where they are valid, elsewhere inf.

    Valid as `modes.evaluate(table, x) <= limit`; index (Q,).
    """
    size = min(_LEFT, index.shape[0])

    def of_some(k: jax.Array, found: jax.Array) -> jax.Array:
        at = k * size
        some = lax.dynamic_slice_in_dim(index, at, size)
        forms = these.forms.at[some].get(mode="clip")
        worst = jnp.zeros((), x.dtype)
        for row in range(forms.shape[1]):
            worst = jnp.minimum(worst, modes.apply(forms[:, row].T, x))
        regular = these.regular.at[some].get(mode="fill", fill_value=False)
        valid = (worst >= -limit) & regular.reshape((-1,) + (1,) * (x.ndim - 1))
        score = modes.apply(these.score.at[some].get(mode="clip").T, x)
        return lax.dynamic_update_slice_in_dim(found, jnp.where(valid, score, jnp.inf), at, 0)

    nothing = jnp.full((index.shape[0], *x.shape[1:]), jnp.inf, x.dtype)
    return lax.fori_loop(0, (count + size - 1) // size, of_some, nothing)


def _blocks(array: jax.Array) -> jax.Array:
    """(..., K) -> (K / B, ..., B)."""
    return jnp.moveaxis(array.reshape(*array.shape[:-1], -1, _BLOCK), -2, 0)
