"""Gaps that close and open again within a step: the look between its ends before it is taken.

Owns the trials in between; entry `look_for_dips`. A cubic through the gaps and their rates at both ends
estimates the minimum of a gap; a trial of that length evaluates the gap, and the next cubic is nearer.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from jaxcontact.simulate.variational.contact_state import Node
from jaxcontact.simulate.variational.discrete_mechanics import MidpointStep
from jaxcontact.simulate.variational.event_search import (
    Ends,
    EventSearch,
    GapLook,
    gaps_after_closing,
    round_off,
)
from jaxcontact.solvers.roots import cubic_dip
from jaxcontact.terms.records import normal_rates

MAX_TRIALS = 8  # trials in between at most
DIP_ERROR_FRACTION = 0.1  # possible error of a dip, as a fraction of its depth below the lower end


def look_for_dips(
    node: Node, before: EventSearch, after: EventSearch, step: MidpointStep, value: jax.Array,
    rate: jax.Array, crossed: jax.Array, accepted: jax.Array,
) -> tuple[EventSearch, jax.Array, jax.Array]:  # fmt: skip
    """Look for gaps that dip below zero within a trial step; return the search, and if its step is taken.

    The third value is whether the trial repeats the step that waited for this look.

    Args:
        before, after: the search that asked for the trial, and its continuation by `narrow_search`.
        value, rate: (nc,) gaps of open contacts at its end, and their rates.
        crossed: whether an event has happened there.
        accepted: whether the step would be taken.
    """
    gap = gaps_after_closing(node, step)[0]
    begin = Ends(jnp.zeros_like(gap), gap, normal_rates(node.terms, node.v))
    end = Ends(jnp.full_like(gap, before.h), value, rate)
    look = before.look
    between, again = look.between & ~crossed, ~look.between & (look.goal == before.h)
    falls = end.rate < 0
    left = jax.tree.map(lambda a, b, c: jnp.where(between, jnp.where(falls, a, b), c), end, look.left, begin)
    right = jax.tree.map(lambda a, b: jnp.where(between & falls, b, a), end, look.right)
    span = right.h - left.h
    dip, share = cubic_dip(left.gap, right.gap, span * left.rate, span * right.rate)
    lowest = dip - DIP_ERROR_FRACTION * (jnp.minimum(left.gap, right.gap) - dip)
    below = ~node.closed & (lowest < -round_off(dip.dtype)) & (look.number < MAX_TRIALS)
    deepest = jnp.argmin(jnp.where(below, dip, jnp.inf))
    length = left.h[deepest] + share[deepest] * span[deepest]
    first = accepted & ~look.between & ~again & jnp.any(below)
    goes_on = first | (between & jnp.any(below))
    goal = jnp.where(first, before.h, jnp.where(look.between & crossed, 0.0, look.goal))
    search = jax.tree.map(lambda a, b: jnp.where(between, a, b), before, after)
    search = search._replace(
        h=jnp.where(goes_on, length, jnp.where(between, goal, search.h)),
        low=jnp.where(first, 0.0, search.low),
        high=jnp.where(first, before.h, search.high),
        tries=after.tries,
        look=GapLook(goes_on, goal, left, right, look.number + goes_on),
    )
    return search, (accepted | again) & ~goes_on & ~between, again
