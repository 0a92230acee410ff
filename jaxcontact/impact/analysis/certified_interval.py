"""Intervals of a linear function of the outcomes, by search and by programs; entry `bounds`.

The outer end holds for every order and choice among solutions; docs/methods/set-valued.md.
"""

from __future__ import annotations

import functools
import math
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
import numpy as np

from jaxcontact._pytree import Record, static
from jaxcontact.arguments import check_count, check_rows, check_whole
from jaxcontact.front_door import checked
from jaxcontact.impact import inputs
from jaxcontact.impact.analysis.impulse_programs import ImpulsePrograms
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
from jaxcontact.terms import ContactTerms

if TYPE_CHECKING:
    from jaxtyping import Float

NODES = 10_000  # of the search tree of a mixed-integer program; the bound holds at any number


class OutcomeInterval(Record):
    """Ends of direction . v_plus over all impulse orders; values in the unit of direction . v.

    Attributes:
        inner_low, inner_high: values that orders reach; NaN if no impact of the search ended.
        outer_low, outer_high: values that no order passes, of those with at most `num_steps` steps.
        num_steps: as asked; None if the outer ends hold for any number of steps.
        gap: outer width minus inner width.
        v_low, v_high: (nv,) the outcomes at the inner ends.
    """

    inner_low: float = static()
    inner_high: float = static()
    outer_low: float = static()
    outer_high: float = static()
    gap: float = static()
    num_steps: int | None = static(default=None)
    v_low: jax.Array
    v_high: jax.Array


def _check_steps(name: str, value: object) -> None:
    """Check a number of steps or None."""
    if value is not None:
        check_count(name, value)


@checked(num_starts=check_rows, num_iters=check_whole, num_steps=_check_steps)
def bounds(
    terms: ContactTerms,
    v: Float[jax.Array, " nv"],
    law: Routh,
    direction: Float[jax.Array, " nv"],
    *,
    num_starts: int = 64,
    num_iters: int = 64,
    seed: int = 0,
    num_steps: int | None = None,
) -> OutcomeInterval:
    """Bound a linear function of the outcomes of an impact from both sides, for any number of contacts.

    Inside: the search of `extreme` in both directions. Outside: linear programs over the total impulses p_jd
    of contact j along the friction directions d, which relax the impact. Every outcome has

        v+ = v + sum_jd p_jd g_jd,  g_jd = M^-1 (J_n + mu d . J_t)_j,  p >= 0,  |v+|_M <= |v|_M,  J_n v+ >= 0,
        u_n,i+ <= max(0, u_n,i) + sum_(j != i) max(0, J_n,i g_jd) p_jd,
        |b . u_t,i+| <= |b . u_t,i| + sum_jd s_ijd p_jd,

    the last two without restitution: a contact stops pushing before it separates, and across a border b of
    the slips that its friction directions oppose each of them slows. Energy enters by tangent planes. The
    interval is narrower than that of energy and momentum, and often much wider than the set.

    With `num_steps` mixed-integer programs follow that many steps, each of any size, with the mode of each
    contact at the end of each step; successive steps in one mode are one. For up to four contacts in the
    plane and three steps the ends are reached by such impacts to 2 % in the examples of the page. Each more
    step or contact multiplies the time.

    Args:
        terms: contact terms, of which the active contacts count.
        v: (nv,) velocity before the impact.
        law: `jc.impact.Routh(...)`; its step and number of steps limit the search alone.
        direction: (nv,) covector.
        num_starts: orders of each round of the search.
        num_iters: gradient steps of each start; 0 only evaluates the starts, for many contacts.
        seed: of the starts.
        num_steps: steps to which the outer ends may refer; None for any number. The inner ends may then be of
            larger steps than the law's.

    Returns:
        OutcomeInterval.

    Raises:
        ValueError, TypeError: as `extreme`; num_steps with restitution or with a friction cone that is not
            pointed.

    Derivative: none; a driver for the host.
    """
    inputs.check(terms, v)
    inputs.check_array("direction", direction, jnp.shape(v))
    covector = np.asarray(direction, float)
    if not np.all(np.isfinite(covector)) or not np.any(covector):
        raise ValueError(f"direction: expected finite numbers, not all zero, got {direction}")
    inputs.check_count("num_starts", num_starts)
    terms, fitted, _ = searchable(terms, v, law)
    starts, along = draw_starts(fitted, num_starts, seed, v.dtype), jnp.asarray(direction, v.dtype)
    ends = [_search_farthest(terms, v, sign * along, fitted, starts, num_iters) for sign in (-1, 1)]
    (v_low, _), (v_high, _) = ends
    inner = [float(covector @ np.asarray(end)) if ended else math.nan for end, ended in ends]
    programs = ImpulsePrograms(terms, np.asarray(v, float), fitted)
    outer = [-programs.maximise(-covector), programs.maximise(covector)]
    reached = [v_low, v_high]
    for side, sign in enumerate((-1.0, 1.0)):
        if num_steps is None:
            break
        value, v_plus = programs.maximise_in_steps(sign * covector, num_steps, NODES)
        outer[side] = sign * min(sign * outer[side], value)
        if v_plus is not None and not sign * inner[side] > sign * float(covector @ v_plus):
            inner[side], reached[side] = float(covector @ v_plus), v_plus
    return OutcomeInterval(
        inner_low=inner[0],
        inner_high=inner[1],
        outer_low=outer[0],
        outer_high=outer[1],
        gap=(outer[1] - outer[0]) - (inner[1] - inner[0]),
        num_steps=num_steps,
        v_low=jnp.asarray(reached[0], v.dtype),
        v_high=jnp.asarray(reached[1], v.dtype),
    )


@functools.partial(jit, static_argnames="num_iters")
def _search_farthest(
    terms: ContactTerms, v: jax.Array, direction: jax.Array, law: FittedRouth, starts: Starts, num_iters: int
) -> tuple[jax.Array, jax.Array]:
    """Search for the outcome farthest along a direction; return it and whether its impact ended."""
    along = functools.partial(reach_along, terms, v, law, direction)
    if num_iters:
        order, values = search_orders(along, starts, num_iters)
    else:
        order = starts.orders.reshape(-1, *starts.orders.shape[2:])
        reached, status = jax.lax.map(along, order, batch_size=starts.orders.shape[1])
        values = jnp.where(status == 0, reached, -jnp.inf)
    best = jnp.argmax(values)
    return resolve_fractions(terms, v, law, order[best])[1], jnp.isfinite(values[best])
