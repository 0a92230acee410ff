"""Dictionaries of Lemke's method: basic variables as functions of the others, and pivots between them."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

if TYPE_CHECKING:
    pass

RUNNING, SOLVED, RAY = 0, 1, 2


class Dictionary(NamedTuple):
    """Basic variables as functions of the nonbasic ones: x_basic = table @ (x_nonbasic, 1, eps).

    The columns of `table` are the n + 1 nonbasic variables, the right-hand side and its perturbation.
    Variables are numbered: slack i is i, z_i is n + i, the artificial variable is 2 n.
    """

    table: jax.Array  # (n, n + 3)
    basic: jax.Array  # (n,)
    nonbasic: jax.Array  # (n + 3,), -1 for the two right-hand sides
    entering: jax.Array  # number of the variable that enters next
    outcome: jax.Array
    pivots: jax.Array


def pivot(d: Dictionary, row: jax.Array, column: jax.Array, go: jax.Array) -> Dictionary:
    """Exchange the basic variable of `row` with the nonbasic variable of `column`, if `go`."""
    table = d.table
    n, dtype = table.shape[0], table.dtype
    # Numbers of rows and columns are floats, and `go` is in vectors only: one pass over the table.
    in_row = (jnp.arange(n, dtype=dtype) == row.astype(dtype)) & go
    in_column = (jnp.arange(n + 3, dtype=dtype) == column.astype(dtype)) & go
    old_row, old_column = table[row], table[:, column]
    pivot = old_row[column]
    new_row = jnp.where(in_column, 1.0, -old_row) / jnp.where(go & (pivot != 0), pivot, 1.0)
    change = jnp.where(go, old_column, 0.0)[:, None] * new_row[None, :]
    new = jnp.where(in_column[None, :], 0.0, table) + change
    # The difference of two equal numbers is rounding: set to zero, it is never a pivot or a tie-break.
    noise = 16 * float(jnp.finfo(dtype).eps)
    new = jnp.where(jnp.abs(new) <= noise * jnp.abs(change), 0.0, new)
    new = jnp.where(in_row[:, None], new_row[None, :], new)
    leaving, entered = d.basic[row], d.nonbasic[column]
    outcome = jnp.where(leaving == 2 * n, jnp.int32(SOLVED), jnp.int32(RUNNING))
    return Dictionary(
        table=new,
        basic=jnp.where(in_row, entered, d.basic),
        nonbasic=jnp.where(in_column, leaving, d.nonbasic),
        entering=jnp.where(go, jnp.where(leaving < n, leaving + n, leaving - n), d.entering),
        outcome=jnp.where(go, outcome, d.outcome),
        pivots=d.pivots + go.astype(jnp.int32),
    )


def argmin(mask: jax.Array, key: jax.Array) -> jax.Array:
    """Find the index of the smallest `key` under `mask`, by two reductions, which XLA vectorises."""
    key = jnp.where(mask, key, jnp.inf)
    return first_true(mask & (key == jnp.min(key)))


def first_true(mask: jax.Array) -> jax.Array:
    """Find the index of the first true element, the last index if there is none."""
    n = mask.shape[0]
    return jnp.min(jnp.where(mask, jnp.arange(n, dtype=jnp.int32), n - 1))


def generic_vectors(attempts: int, n: int) -> np.ndarray:
    """Make covering vectors and perturbations (2, attempts, n); the first covering vector is all ones.

    They are generic: no two ratios of a perturbation tie.
    """
    generic = np.random.default_rng(20240229).uniform(0.5, 1.5, (2, attempts, n))
    generic[0, 0] = 1.0
    return generic
