"""Extreme outcomes by gradient ascent, which sampling only approaches; entry `extreme`."""

from __future__ import annotations

import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxcontact._pytree import Record
from jaxcontact.batching.remote_blocks import run_blocks
from jaxcontact.batching.run_settings import DEFAULT_RUN, Run, check_run
from jaxcontact.impact import inputs
from jaxcontact.impact.laws import routh
from jaxcontact.impact.laws.contact_space import ImpactInfo
from jaxcontact.impact.laws.routh_law import FittedRouth, Routh, fitted_law
from jaxcontact.impact.laws.routh_steps import ImpactDraws
from jaxcontact.impact.sampling.draws import sobol
from jaxcontact.precision import jit
from jaxcontact.status import Status
from jaxcontact.terms import ContactTerms

GROUP = 128  # starts that search together: a round varies the best ends of its group
ROUNDS = 4  # number of rounds of ascents; each but the first varies the best ends so far
RENEWED = 0.5  # fraction of the numbers of a good end that a round replaces by new draws
PARENTS = 16  # number of ends that a round varies
ALIKE = 1e-4  # difference of two values, relative to the largest, below which their ends count as one
_Ends = tuple[
    jax.Array, jax.Array
]  # fractions of `impulse_step` and picks (n, N, nc + 1), and their values (n,)


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


def extreme(
    terms: ContactTerms,
    v: jax.Array,
    law: Routh,
    direction: jax.Array,
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
        terms: contact terms, nc contacts.
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
    fitted = fitted_law(terms, v, law)
    inputs.check_array("direction", direction)
    if jnp.shape(direction) != jnp.shape(v):
        raise ValueError(f"direction: expected shape {jnp.shape(v)}, got {jnp.shape(direction)}")
    if not np.all(np.isfinite(np.asarray(direction))) or not np.any(np.asarray(direction)):
        raise ValueError("direction: expected finite numbers, not all zero")
    for name, number in (("num_starts", num_starts), ("num_iters", num_iters)):
        inputs.check_count(name, number)
    routh.check_selection(terms, fitted.selection, routh.SELECTIONS, fitted.num_directions)
    if fitted.turn_polygon:
        raise ValueError("law.turn_polygon: expected False, because the draws turn the polygon; got True")
    check_run(run, unused=("chunk", "devices", "checkpoint", "about"))
    groups = [(begin, min(begin + GROUP, num_starts)) for begin in range(0, num_starts, GROUP)]
    arguments = terms, v, direction, fitted.replace(density=None), int(num_iters), int(seed)
    results = []
    for result in run_blocks(run, _Group, arguments, groups, count=len(groups), num_threads=1):
        results.append(result)
        if run.progress is not None:
            run.progress(groups[len(results) - 1][1], num_starts)
    winner = int(np.argmax([np.max(part.values) for part in results]))
    best: Extreme = jax.tree.map(jnp.asarray, results[winner])
    return best.replace(values=jnp.concatenate([part.values for part in results]))


class _Group:
    """Function of the numbers of the starts begin, ..., end - 1: the result of their search."""

    def __init__(
        self, terms: ContactTerms, v: jax.Array, direction: jax.Array, law: FittedRouth, num_iters: int,
        seed: int,
    ) -> None:  # fmt: skip
        self.problem, self.num_iters, self.seed = (terms, v, direction, law), num_iters, seed

    def __call__(self, begin: int, end: int) -> Extreme:
        """Search from the starts of the group; return NumPy arrays."""
        terms, v, _, law = self.problem
        nc, max_steps, num_starts = terms.phi.shape[0], law.max_steps, end - begin
        size = max_steps * (nc + 1)
        index = jnp.arange(ROUNDS * begin, ROUNDS * end, dtype=jnp.uint32)
        drawn = sobol(size, self.seed).uniform(index, 0, size, v.dtype).T.reshape(-1, max_steps, nc + 1)
        # Sequences of single impacts are corners of the cube of caps, so half of the starts are corners.
        corner = (index % 2 == 1)[:, None, None] & (np.arange(nc + 1) < nc)[None, None]
        orders = jnp.where(corner, jnp.round(drawn), drawn)
        orders = orders.reshape(ROUNDS, num_starts, max_steps, nc + 1)
        key = jax.random.key(self.seed)
        key = key if begin == 0 else jax.random.fold_in(key, begin)
        renewed = jax.random.bernoulli(key, RENEWED, orders.shape).at[0].set(True)
        result: Extreme = jax.tree.map(np.asarray, _search(*self.problem, orders, renewed, self.num_iters))
        return result


@functools.partial(jit, static_argnums=6)
def _search(
    terms: ContactTerms,
    v: jax.Array,
    direction: jax.Array,
    law: FittedRouth,
    orders: jax.Array,
    renewed: jax.Array,
    num_iters: int,
) -> Extreme:
    """Search from the impulse orders (ROUNDS, num_starts, N, nc + 1) of all rounds: fractions and picks.

    If `renewed` is False, a round keeps the number of the best end.
    """

    def resolved(order: jax.Array) -> tuple[ImpactDraws, jax.Array, ImpactInfo]:
        draws = ImpactDraws(law.impulse_step[None] * order[:, :-1], order[:, -1])
        return draws, *routh.resolve_unchecked(terms, v, draws, law.steps, law.restitution)

    def outcome(order: jax.Array) -> tuple[jax.Array, jax.Array]:
        _, v_plus, info = resolved(order)
        return direction @ v_plus, info.status

    def next_round(best: _Ends, fresh: tuple[jax.Array, jax.Array]) -> tuple[_Ends, None]:
        drawn, new = fresh
        starts = jnp.where(new, drawn, best[0][_parents(best[1])])
        order, value = _climb(outcome, starts, -(-num_iters // ROUNDS))
        better = value > best[1]
        order = jnp.where(better[:, None, None], order, best[0])
        return (order, jnp.where(better, value, best[1])), None

    nothing = orders[0], jnp.full(orders.shape[1], -jnp.inf, v.dtype)
    (order, values), _ = lax.scan(next_round, nothing, (orders, renewed))
    winner = jnp.argmax(values)
    draws, v_plus, info = resolved(order[winner])
    nothing_ended = ~jnp.isfinite(values[winner])
    return Extreme(
        v_plus=v_plus,
        value=direction @ v_plus,
        impulse_max=draws.impulse_max,
        pick=draws.pick,
        status=info.status | jnp.where(nothing_ended, jnp.uint32(int(Status.UNTERMINATED)), jnp.uint32(0)),
        values=values,
    )


def _parents(values: jax.Array) -> jax.Array:
    """Choose for every start of a round (n,) the search whose end it varies: the best ones, cyclically.

    Ends with equal values count once.
    """
    order = jnp.argsort(-values)
    fall = -jnp.diff(values[order], prepend=jnp.inf)
    distinct = fall > ALIKE * jnp.max(jnp.where(jnp.isfinite(values), jnp.abs(values), 0.0))
    ranked = order[jnp.argsort(~distinct, stable=True)]
    return ranked[jnp.arange(values.shape[0]) % PARENTS]


def _climb(
    outcome: Callable[[jax.Array], tuple[jax.Array, jax.Array]], orders: jax.Array, num_iters: int
) -> _Ends:
    """Climb by projected gradient ascent from the fractions `orders` (n, N, nc + 1); return the best ones."""
    slopes = jax.vmap(jax.value_and_grad(outcome, has_aux=True))

    def iterate(carry: tuple, fraction: jax.Array) -> tuple[tuple, None]:
        order, best_order, best_value = carry
        (value, status), slope = slopes(order)
        slope = slope.at[..., -1].set(0.0)
        improved = (status == 0) & (value > best_value)
        best_value = jnp.where(improved, value, best_value)
        best_order = jnp.where(improved[:, None, None], order, best_order)
        # The size of a step does not depend on the slope, because slopes of the pieces differ by orders of
        # magnitude. The steps shrink geometrically from the best point so far, so they settle on the edge of
        # its piece.
        size = jnp.max(jnp.abs(slope), axis=(1, 2), keepdims=True)
        move = fraction * slope / jnp.where(size > 0, size, 1.0)
        off_best = ~improved & (fraction < 0.02) & jnp.isfinite(best_value)
        base = jnp.where(off_best[:, None, None], best_order, order)
        return (jnp.clip(base + move, 0.0, 1.0), best_order, best_value), None

    fractions = jnp.geomspace(0.3, 1e-7, num_iters, dtype=orders.dtype)
    begin = orders, orders, jnp.full(orders.shape[0], -jnp.inf, orders.dtype)
    (_, best_order, best_value), _ = lax.scan(iterate, begin, fractions)
    return best_order, best_value
