"""Extreme outcomes by gradient ascent, which sampling only approaches; entry `extreme`."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
import numpy as np

from jaxcontact._pytree import Record
from jaxcontact.arguments import check_count, check_rows
from jaxcontact.batching.remote_blocks import run_blocks
from jaxcontact.batching.run_settings import DEFAULT_RUN, Run, check_run
from jaxcontact.front_door import checked
from jaxcontact.impact import inputs
from jaxcontact.impact.analysis.order_search import (
    Starts,
    draw_starts,
    reach_along,
    resolve_fractions,
    search_orders,
    searchable,
)
from jaxcontact.impact.laws.routh_law import FittedRouth, Routh
from jaxcontact.precision import jit
from jaxcontact.status import Status
from jaxcontact.terms import ContactTerms

if TYPE_CHECKING:
    from jaxtyping import Float

GROUP = 128  # starts that search together: a round varies the best ends of its group


class Extreme(Record):
    """The outcome farthest along a direction that the search reached, and the impulse order that leads to it.

    Attributes:
        v_plus: (nv,) the outcome.
        value: direction . v_plus.
        impulse_max: (N, nc) caps of the steps, N s; with `pick` they reproduce v_plus by `resolve`.
        pick: (N,) choices among the solutions of the steps.
        status: uint32 bits of `resolve`; UNTERMINATED if no start ended its impact.
        values: (num_starts,) best values of the searches in parallel, -inf if no impact ended.
    """

    v_plus: jax.Array
    value: jax.Array
    impulse_max: jax.Array
    pick: jax.Array
    status: jax.Array
    values: jax.Array


@checked(num_starts=check_rows, num_iters=check_count)
def extreme(
    terms: ContactTerms,
    v: Float[jax.Array, " nv"],
    law: Routh,
    direction: Float[jax.Array, " nv"],
    *,
    num_starts: int = 128,
    num_iters: int = 150,
    seed: int = 0,
    run: Run = DEFAULT_RUN,
) -> Extreme:
    """Search for the impulse order whose outcome lies farthest along a direction.

    The search maximises direction . v_plus over the caps in [0, impulse_step] of `resolve`, by projected
    gradient ascent from many quasi-random starts in parallel; the starts also draw the choices among
    solutions. Three times the best ends of a group, with some of their numbers replaced by new draws, are
    the next starts. The objective is piecewise smooth, so the search is local: its result is an outcome
    with its impulse order, and no proof that no outcome lies farther.

    Args:
        terms: contact terms, nc contacts, of which the active ones count.
        v: (nv,) velocity before the impact.
        law: `jc.impact.Routh(impulse_step=, max_steps=)`; its density plays no part, because the set of
            outcomes does not depend on it.
        direction: (nv,) covector. A row of J_n, for example, maximises the separation speed of its contact.
        num_starts: number of starts; groups of 128 search on their own.
        num_iters: gradient steps of each start, a quarter of them in each round.
        seed: of the starts.
        run: executor, progress. A group is a block of work.

    Returns:
        Extreme.

    Raises:
        ValueError, TypeError: as `sample`; a law with turn_polygon or the selection "visited"; a direction of
            the wrong shape, not finite or zero.

    Status: of the best outcome, as `resolve`.

    Derivative: none; a driver for the host.
    """
    inputs.check(terms, v)
    inputs.check_array("direction", direction)
    if jnp.shape(direction) != jnp.shape(v):
        raise ValueError(f"direction: expected shape {jnp.shape(v)}, got {jnp.shape(direction)}")
    if not np.all(np.isfinite(np.asarray(direction))) or not np.any(np.asarray(direction)):
        raise ValueError(f"direction: expected finite numbers, not all zero, got {direction}")
    for name, number in (("num_starts", num_starts), ("num_iters", num_iters)):
        inputs.check_count(name, number)
    check_run(run, unused=("chunk", "devices", "checkpoint", "about"))
    nc = terms.phi.shape[0]
    terms, fitted, touching = searchable(terms, v, law)
    groups = [(begin, min(begin + GROUP, num_starts)) for begin in range(0, num_starts, GROUP)]
    arguments = terms, v, direction, fitted.replace(density=None), int(num_iters), int(seed)
    parts = []
    for part in run_blocks(run, _GroupSearch, arguments, groups, count=len(groups), num_threads=1):
        parts.append(part)
        if run.progress is not None:
            run.progress(groups[len(parts) - 1][1], num_starts)
    winner = int(np.argmax([np.max(part.values) for part in parts]))
    best: Extreme = jax.tree.map(jnp.asarray, parts[winner])
    best = best.replace(values=jnp.concatenate([part.values for part in parts]))
    if touching is None:
        return best
    caps = jnp.zeros((fitted.max_steps, nc), v.dtype).at[:, touching].set(best.impulse_max)
    return best.replace(impulse_max=caps)


class _GroupSearch:
    """A block of work: called with begin and end, it searches from the starts begin, ..., end - 1."""

    def __init__(
        self, terms: ContactTerms, v: jax.Array, direction: jax.Array, law: FittedRouth, num_iters: int,
        seed: int,
    ) -> None:  # fmt: skip
        self.problem, self.num_iters, self.seed = (terms, v, direction, law), num_iters, seed

    def __call__(self, begin: int, end: int) -> Extreme:
        """Search from the starts of the group; return NumPy arrays."""
        seed = self.seed
        if begin:  # other groups draw from other seeds
            seed = int(np.random.SeedSequence([seed, begin]).generate_state(1)[0])
        starts = draw_starts(self.problem[3], end - begin, seed, self.problem[1].dtype)
        result: Extreme = jax.tree.map(np.asarray, _search_starts(*self.problem, starts, self.num_iters))
        return result


@functools.partial(jit, static_argnames="num_iters")
def _search_starts(
    terms: ContactTerms,
    v: jax.Array,
    direction: jax.Array,
    law: FittedRouth,
    starts: Starts,
    num_iters: int,
) -> Extreme:
    """Search from the starts of all rounds."""
    along = functools.partial(reach_along, terms, v, law, direction)
    order, values = search_orders(along, starts, num_iters)
    winner = jnp.argmax(values)
    draws, v_plus, info = resolve_fractions(terms, v, law, order[winner])
    nothing_ended = ~jnp.isfinite(values[winner])
    return Extreme(
        v_plus=v_plus,
        value=direction @ v_plus,
        impulse_max=draws.impulse_max,
        pick=draws.pick,
        status=info.status | jnp.where(nothing_ended, jnp.uint32(int(Status.UNTERMINATED)), jnp.uint32(0)),
        values=values,
    )
