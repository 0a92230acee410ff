"""The choice among the outcomes of many contact modes: distinct ones, in the order of their score.

Redundant modes have one outcome. Owns the tolerance of one outcome, and the mode that represents it.
Entries: `choose`, `fold_over_outcomes`, `distinct`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TypeVar

import jax
import jax.numpy as jnp
from jax import lax

from jaxcontact._pytree import PyTree
from jaxcontact.batching.bounded_loop import bounded_loop, ends_early
from jaxcontact.solvers.contact_modes import feasibility_tolerance

_SWEEPS = 4  # distinct outcomes found without a loop
_Carried = TypeVar("_Carried")


def choose(
    valid: jax.Array, score: jax.Array, pick: jax.Array, scale: jax.Array, early_exit: bool = True
) -> tuple[jax.Array, jax.Array]:
    """Pick uniformly among the distinct valid outcomes, in the order of their score.

    Args:
        valid: (K, *batch) bool.
        score: (K, *batch); outcomes whose scores differ by less than 1e-8 scale are one.
        pick: (*batch) in [0, 1).
        scale: (*batch) size of the velocities, |v|_M.
        early_exit: sweep over the modes until all outcomes are found. False sorts them, in one pass of static
            length.

    Returns:
        mode (*batch) int32, the first mode of the chosen outcome (K if none is valid), and count (*batch)
        int32 of distinct outcomes.
    """
    number = valid.shape[0]
    merge = 100.0 * feasibility_tolerance(score.dtype) * scale
    keyed = jnp.where(valid, score, jnp.inf)
    chosen, count = (_by_sweeps if ends_early(early_exit) else _by_sorting)(keyed, merge, pick)
    iota = jnp.arange(number, dtype=jnp.int32).reshape((-1,) + (1,) * merge.ndim)
    member = (keyed >= chosen[None]) & (keyed <= (chosen + merge)[None]) & valid
    return jnp.min(jnp.where(member, iota, number), axis=0), count


def fold_over_outcomes(
    valid: jax.Array,
    score: jax.Array,
    scale: jax.Array,
    visit: Callable[[jax.Array, jax.Array, _Carried], _Carried],
    start: _Carried,
) -> _Carried:
    """Carry `start` over the distinct valid outcomes of all lanes, in the order of their scores.

    Args:
        valid, score, scale: as in `choose`.
        visit: function of the first mode of the outcome (*batch), whether the lane has one more outcome
            (*batch), and the carried value.
    """
    number = valid.shape[0]
    merge = 100.0 * feasibility_tolerance(score.dtype) * scale
    keyed = jnp.where(valid, score, jnp.inf)
    iota = jnp.arange(number, dtype=jnp.int32).reshape((-1,) + (1,) * merge.ndim)

    def lowest(above: jax.Array) -> jax.Array:
        return jnp.min(jnp.where(keyed > above[None], keyed, jnp.inf), axis=0)

    def body(carry: tuple[jax.Array, _Carried]) -> tuple[jax.Array, _Carried]:
        low, carried = carry
        member = (keyed >= low[None]) & (keyed <= (low + merge)[None])
        first = jnp.min(jnp.where(member, iota, number), axis=0)
        return lowest(low + merge), visit(first, jnp.isfinite(low), carried)

    first = lowest(jnp.full_like(merge, -jnp.inf))
    return bounded_loop(
        lambda carry: jnp.any(jnp.isfinite(carry[0])), body, (first, start), max_iters=number
    )[1]


def _rank(pick: jax.Array, count: jax.Array) -> jax.Array:
    return jnp.clip((pick * count).astype(jnp.int32), 0, jnp.maximum(count - 1, 0))


def _by_sorting(keyed: jax.Array, merge: jax.Array, pick: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Find the same as `_by_sweeps`, in one pass over the scores in their order."""

    def visit(low: jax.Array, score: jax.Array) -> tuple[jax.Array, jax.Array]:
        begins = (score > low + merge) & jnp.isfinite(score)
        return jnp.where(begins, score, low), begins

    scores = jnp.sort(keyed, axis=0)
    _, begins = lax.scan(visit, jnp.full_like(merge, -jnp.inf), scores)
    place = jnp.cumsum(begins, axis=0, dtype=jnp.int32) - 1
    count = place[-1] + 1
    chosen = begins & (place == _rank(pick, count)[None])
    return jnp.min(jnp.where(chosen, scores, jnp.inf), axis=0), count


def _by_sweeps(keyed: jax.Array, merge: jax.Array, pick: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Find the lowest score of the outcome picked (inf if there is none); count the distinct outcomes."""

    def next_outcome(after: jax.Array) -> jax.Array:
        # The barrier keeps the compiler from repeating one sweep inside the next.
        return lax.optimization_barrier(jnp.min(jnp.where(keyed > after[None], keyed, jnp.inf), axis=0))

    lowest = [next_outcome(jnp.full_like(merge, -jnp.inf))]
    for _ in range(_SWEEPS):
        lowest.append(next_outcome(lowest[-1] + merge))
    present = [jnp.isfinite(low).astype(jnp.int32) for low in lowest[:-1]]
    count = functools.reduce(jnp.add, present)

    def count_on() -> jax.Array:
        def sweep(carry: PyTree) -> PyTree:
            low, more = carry
            return next_outcome(low + merge), more + jnp.isfinite(low).astype(jnp.int32)

        return lax.while_loop(lambda c: jnp.any(jnp.isfinite(c[0])), sweep, (lowest[-1], count))[1]

    many = jnp.any(jnp.isfinite(lowest[-1]))
    count = lax.cond(many, count_on, lambda: count)
    rank = _rank(pick, count)
    chosen = lowest[-1]
    for place in range(_SWEEPS):
        chosen = jnp.where(rank == place, lowest[place], chosen)

    def advance(carry: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        low, left = carry
        return jnp.where(left > 0, next_outcome(low + merge), low), left - 1

    chosen = lax.cond(
        many,
        lambda: lax.while_loop(lambda c: jnp.any(c[1] > 0), advance, (chosen, rank - _SWEEPS))[0],
        lambda: chosen,
    )
    return chosen, count


def distinct(
    valid: jax.Array, score: jax.Array, scale: jax.Array, max_outcomes: int
) -> tuple[jax.Array, jax.Array]:
    """List one mode (max_outcomes,) per distinct valid outcome, in the order of scores; return the count.

    For one x: valid and score (K,), scale () as in `choose`. Entries after the last outcome are 0.
    """
    keyed = jnp.where(valid, score, jnp.inf)
    merge = 100.0 * feasibility_tolerance(score.dtype) * scale

    def body(carry: tuple[jax.Array, jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array, jax.Array]:
        modes, count, above = carry
        mode = jnp.argmin(jnp.where(keyed > above, keyed, jnp.inf)).astype(jnp.int32)
        return modes.at[count].set(mode, mode="drop"), count + 1, keyed[mode] + merge

    start = (jnp.zeros(max_outcomes, jnp.int32), jnp.int32(0), jnp.array(-jnp.inf, score.dtype))
    modes, count, _ = bounded_loop(
        lambda c: jnp.any((keyed > c[2]) & jnp.isfinite(keyed)), body, start, max_iters=valid.shape[0]
    )
    return modes, count
