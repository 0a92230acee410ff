"""Dictionaries of Lemke's method: basic variables as functions of the others, and pivots between them."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxcontact.algebra import small_dense
from jaxcontact.batching import compacting_loop
from jaxcontact.batching.bounded_loop import bounded_loop, ends_early

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


def max_pivots(n: int) -> int:
    """Return the limit on the pivots of one path of n variables."""
    return 10 * n + 20


def enter(
    matrix: jax.Array, w: jax.Array, cover: jax.Array, perturbation: jax.Array, wanted: jax.Array
) -> Dictionary:
    """Begin a path, if `wanted`: the artificial variable enters at the value that lifts the deepest row to 0.

    A dictionary that is not wanted has the outcome SOLVED, with z = 0.
    """
    n = w.shape[0]
    start = Dictionary(
        table=jnp.concatenate([matrix, cover[:, None], w[:, None], perturbation[:, None]], axis=1),
        basic=jnp.arange(n, dtype=jnp.int32),
        nonbasic=jnp.concatenate([jnp.arange(n, 2 * n + 1, dtype=jnp.int32), jnp.full(2, -1, jnp.int32)]),
        entering=jnp.int32(2 * n),
        outcome=jnp.where(wanted, jnp.int32(RUNNING), jnp.int32(SOLVED)),
        pivots=jnp.int32(0),
    )
    depth = w / cover
    deepest = depth <= jnp.min(depth) + small_dense.pivot_tolerance(w.dtype)
    return pivot(start, argmin(deepest, perturbation / cover), jnp.int32(n), wanted)


def leave(
    matrix: jax.Array, w: jax.Array, basis: tuple[jax.Array, jax.Array], cover: jax.Array,
    perturbation: jax.Array,
) -> Dictionary:  # fmt: skip
    """Begin the path of another covering vector at a solution; its other end is another solution, or a ray.

    The table is computed again from the basis, for tables lose digits from pivot to pivot: with z_A positive,
    z_A = W_AA^-1 (s_A - W_AN z_N - w_A) and s_N = W_NA z_A + W_NN z_N + w_N.

    Args:
        basis: the positive z, (n,) bool, and the inverse of W_AA, the identity elsewhere.
    """
    n, (active, inverse) = w.shape[0], basis
    both, unit = active[:, None] & active[None], jnp.eye(n, dtype=matrix.dtype)
    inverse = inverse + inverse @ (unit - jnp.where(both, matrix, unit) @ inverse)
    inverse = jnp.where(both, inverse, 0.0)
    by_slack, by_z = matrix @ inverse, inverse @ matrix
    of_active = jnp.where(active[None], inverse, -by_z)
    of_slack = jnp.where(active[None], by_slack, matrix - matrix @ by_z)
    sides = jnp.stack([cover, w], axis=1)
    solved = inverse @ sides
    sides = jnp.where(active[:, None], -solved, sides - matrix @ solved)
    number = jnp.arange(n, dtype=jnp.int32)
    return Dictionary(
        table=jnp.concatenate(
            [jnp.where(active[:, None], of_active, of_slack), sides, perturbation[:, None]], axis=1
        ),
        basic=jnp.where(active, n + number, number),
        nonbasic=jnp.concatenate(
            [jnp.where(active, number, n + number), jnp.array([2 * n, -1, -1], jnp.int32)]
        ),
        entering=jnp.int32(2 * n),
        outcome=jnp.int32(RUNNING),
        pivots=jnp.int32(0),
    )


def follow_path(start: Dictionary, limit: int, early_exit: bool) -> Dictionary:
    """Pivot until the artificial variable leaves, nothing blocks (a ray), or `limit` pivots are done."""
    n, dtype = start.table.shape[0], start.table.dtype
    tie = small_dense.pivot_tolerance(dtype)

    def body(d: Dictionary) -> Dictionary:
        column = first_true(d.nonbasic == d.entering)
        slope = d.table[:, column]
        falls = slope < -tie * jnp.max(jnp.abs(slope))
        rate = jnp.where(falls, -slope, 1.0)
        # Ratio test in two levels: for rows that reach 0 together, up to rounding (Harris), the ratios of
        # the perturbation decide, as if the problem were w + (small) perturbation.
        values = jnp.maximum(d.table[:, n + 1], 0.0)
        step = jnp.min(jnp.where(falls, (values + tie) / rate, jnp.inf))
        ties = falls & (values <= step * rate)
        # The artificial variable leaves whenever it can: that is a solution.
        key = jnp.where(d.basic == 2 * n, -jnp.inf, d.table[:, n + 2] / rate)
        going = (d.outcome == RUNNING) & (d.pivots < limit)
        after = pivot(d, argmin(ties, key), column, going & jnp.any(falls))
        return after._replace(outcome=jnp.where(going & ~jnp.any(falls), jnp.int32(RAY), after.outcome))

    def running(d: Dictionary) -> jax.Array:
        return (d.outcome == RUNNING) & (d.pivots < limit)

    if ends_early(early_exit):
        return compacting_loop.while_loop(running, body, start)
    return bounded_loop(running, body, start, max_iters=limit, early_exit=False)
