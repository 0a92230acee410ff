"""Search for the impulse order that maximises a function of the outcome, by projected gradient ascent.

Owns the starts of the search, which are orders of several kinds, and its rounds; entry `search_orders`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxcontact.impact.laws import routh
from jaxcontact.impact.laws.contact_space import ImpactInfo, residual_limit
from jaxcontact.impact.laws.routh_law import FittedRouth, Routh, fitted_law
from jaxcontact.impact.laws.routh_steps import ImpactDraws
from jaxcontact.impact.sampling.by_steps import BySteps
from jaxcontact.impact.sampling.draws import sobol
from jaxcontact.precision import jit
from jaxcontact.terms import ContactTerms

ROUNDS = 4  # number of rounds of ascents; each but the first varies the best ends so far
RENEWED = 0.5  # fraction of the numbers of a good end that a round replaces by new draws
PARENTS = 16  # number of ends that a round varies
SAME_VALUE = 1e-4  # difference of two values, relative to the largest, below which their ends count as one
KINDS = 4  # of starts: two of independent steps, one of equal rates in all steps, one of phases
PHASES = 8  # largest number of phases of a start in which one contact after the other pushes alone
FREE_STEPS, FULL_STEPS = 16, 16  # with searched caps, then with full ones; for the energy
NUM_STARTS, NUM_ITERS = 64, 64  # of a search for one outcome; larger numbers rarely come nearer
_Ends = tuple[jax.Array, jax.Array]  # orders (n, N, nc + 1), as those of `Starts`, and their values (n,)
Outcome = tuple[ImpactDraws, jax.Array, ImpactInfo]


class Starts(NamedTuple):
    """Impulse orders (ROUNDS, num_starts, N, nc + 1) of all rounds, fractions and picks.

    Where `renewed` is False, a round keeps the number of the best end.
    """

    orders: jax.Array
    renewed: jax.Array


def draw_starts(law: FittedRouth, num_starts: int, seed: int, dtype: jnp.dtype) -> Starts:
    """Draw the starts of all rounds: orders of independent steps, of constant rates, and of phases.

    With small steps independent draws average out to equal rates. Constant rates and phases in which one
    contact pushes alone reach the ends of the set, too.
    """
    nc, max_steps = law.impulse_step.shape[0], law.max_steps
    size = max_steps * (nc + 1)
    index = jnp.arange(ROUNDS * num_starts, dtype=jnp.uint32)
    drawn = np.asarray(sobol(size, seed).uniform(index, 0, size, dtype)).T.reshape(-1, max_steps, nc + 1)
    fractions, picks = drawn[..., :nc], drawn[..., nc:]
    rates = fractions[:, :1] / np.max(fractions[:, :1], axis=2, keepdims=True)
    rng = np.random.default_rng(seed)
    pushing = rng.integers(0, nc, (index.size, PHASES))
    ends = np.sort(rng.uniform(size=(index.size, PHASES - 1)) ** 2 * max_steps, axis=1)
    phase = np.sum(np.arange(max_steps)[None, :, None] >= ends[:, None], axis=2)
    alone = np.take_along_axis(pushing, phase, axis=1)[..., None] == np.arange(nc)
    kind = np.asarray(index % KINDS)[:, None, None]
    fractions = np.where(kind == 1, np.round(fractions), fractions)  # corners of the cube of caps
    fractions = np.where(kind == 2, rates, fractions)
    fractions = np.where(kind == 3, alone, fractions)
    orders = np.concatenate([fractions, picks], axis=2).reshape(ROUNDS, num_starts, max_steps, nc + 1)
    renewed = rng.uniform(size=orders.shape) < RENEWED
    renewed[0] = True
    return Starts(jnp.asarray(orders, dtype), jnp.asarray(renewed))


def resolve_fractions(terms: ContactTerms, v: jax.Array, law: FittedRouth, order: jax.Array) -> Outcome:
    """Resolve the impact with an order (N, nc + 1) of fractions and picks; return draws, v_plus and info."""
    draws = ImpactDraws(law.impulse_step[None] * order[:, :-1], order[:, -1])
    return draws, *routh.resolve_unchecked(terms, v, draws, law.steps, law.restitution)


def reach_along(
    terms: ContactTerms, v: jax.Array, law: FittedRouth, direction: jax.Array, order: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Compute how far the outcome of an order reaches along a direction (nv,), and its status."""
    _, v_plus, info = resolve_fractions(terms, v, law, order)
    return direction @ v_plus, info.status


def search_orders(
    objective: Callable[[jax.Array], tuple[jax.Array, jax.Array]], starts: Starts, num_iters: int
) -> _Ends:
    """Maximise `objective`, order -> (value, status); return the best orders and their values (num_starts,).

    A value is -inf if no impact of its search ended with status 0.
    """

    def next_round(best: _Ends, fresh: tuple[jax.Array, jax.Array]) -> tuple[_Ends, None]:
        drawn, new = fresh
        begins = jnp.where(new, drawn, best[0][_choose_parents(best[1])])
        order, value = _ascend(objective, begins, -(-num_iters // ROUNDS))
        better = value > best[1]
        order = jnp.where(better[:, None, None], order, best[0])
        return (order, jnp.where(better, value, best[1])), None

    none = starts.orders[0], jnp.full(starts.orders.shape[1], -jnp.inf, starts.orders.dtype)
    return lax.scan(next_round, none, (starts.orders, starts.renewed))[0]


def nearest_by_orders(terms: ContactTerms, v: jax.Array, law: Routh, targets: np.ndarray) -> np.ndarray:
    """Search for impulse orders that lead to velocities (k, nv); return the distances (k,) |dv|_M left.

    Raises:
        ValueError: a law that `extreme` refuses.
    """
    terms, fitted, _ = searchable(terms, v, law)
    starts = draw_starts(fitted, NUM_STARTS, 0, v.dtype)
    return np.array(
        [float(_search_nearest(terms, v, fitted, starts, jnp.asarray(t, v.dtype))) for t in targets]
    )


def highest_energy(terms: ContactTerms, v: jax.Array, law: Routh, num_starts: int, seed: int = 0) -> float:
    """Search for the impulse order that leaves most kinetic energy; return it over that before.

    Without derivatives, for the steps run in machine code: rounds of drawn orders, of which all but the first
    vary the best ones so far. NaN if no impact ended.

    Raises:
        ValueError: a law that `extreme` refuses, or one without machine code.
    """
    terms, fitted, _ = searchable(terms, v, law)
    fitted = fitted.replace(max_steps=min(fitted.max_steps, FREE_STEPS + FULL_STEPS))
    by_steps = BySteps(terms, v, fitted, jax.local_devices(), keep_path=False)
    starts = draw_starts(fitted, num_starts, seed, v.dtype)
    step = np.asarray(fitted.impulse_step)
    is_full = np.arange(fitted.max_steps)[:, None] >= FREE_STEPS  # all contacts push, so that the impact ends
    orders, best = np.asarray(starts.orders[0]), np.full(num_starts, -np.inf)
    for drawn, new in zip(*jax.tree.map(np.asarray, tuple(starts)), strict=True):
        tried = np.where(new, drawn, orders[np.asarray(_choose_parents(jnp.asarray(best)))])
        caps = step * np.where(is_full, 1.0, tried[..., :-1])
        info = by_steps.resolve_orders(caps, tried[..., -1])
        ended = info.residual <= residual_limit(v.dtype)
        energy = np.where(ended, info.energy_ratio, -np.inf)
        orders = np.where((energy > best)[:, None, None], tried, orders)
        best = np.maximum(best, energy)
    highest = float(np.max(best))
    return highest if np.isfinite(highest) else float("nan")


@jit
def _search_nearest(
    terms: ContactTerms, v: jax.Array, law: FittedRouth, starts: Starts, target: jax.Array
) -> jax.Array:
    """Compute the smallest distance |v_plus - target|_M that the search reaches."""

    def closeness(order: jax.Array) -> tuple[jax.Array, jax.Array]:
        _, v_plus, info = resolve_fractions(terms, v, law, order)
        apart = v_plus - target
        return -apart @ terms.M @ apart, info.status

    values = search_orders(closeness, starts, NUM_ITERS)[1]
    return jnp.sqrt(-jnp.max(values))


def searchable(
    terms: ContactTerms, v: jax.Array, law: Routh
) -> tuple[ContactTerms, FittedRouth, np.ndarray | None]:
    """Return the terms and the law of the contacts that take part, and their numbers if they are not all.

    Raises:
        ValueError, TypeError: terms, a velocity or a law whose orders cannot be searched.
    """
    fitted = fitted_law(terms, v, law)
    if fitted.turn_polygon:
        raise ValueError("law.turn_polygon: expected False, because the draws turn the polygon; got True")
    active = np.flatnonzero(np.asarray(terms.active))
    touching = active if 0 < active.size < terms.phi.shape[0] else None
    if touching is not None:
        terms = terms.take(touching)
        e = fitted.restitution
        fitted = fitted.replace(
            impulse_step=fitted.impulse_step[touching], restitution=None if e is None else e[touching]
        )
    routh.check_selection(terms, fitted.selection, routh.SELECTIONS, fitted.num_directions)
    return terms, fitted, touching


@jit
def _choose_parents(values: jax.Array) -> jax.Array:
    """Choose for every start of a round (n,) the search whose end it varies: the best ones, cyclically.

    Ends with equal values count once.
    """
    order = jnp.argsort(-values)
    fall = -jnp.diff(values[order], prepend=jnp.inf)
    distinct = fall > SAME_VALUE * jnp.max(jnp.where(jnp.isfinite(values), jnp.abs(values), 0.0))
    ranked = order[jnp.argsort(~distinct, stable=True)]
    return ranked[jnp.arange(values.shape[0]) % PARENTS]


def _ascend(
    objective: Callable[[jax.Array], tuple[jax.Array, jax.Array]], orders: jax.Array, num_iters: int
) -> _Ends:
    """Climb by projected gradient ascent from the fractions `orders` (n, N, nc + 1); return the best ones."""
    slopes = jax.vmap(jax.value_and_grad(objective, has_aux=True))

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
