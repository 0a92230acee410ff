"""The search for the time of an event within a step: an open gap closes, or a closed contact lets go.

Owns when a contact's event has happened, and the next length of a step to try. Gaps that close and open again
within a step are in `gap_dips`.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from jaxcontact.simulate.variational.contact_state import Node
from jaxcontact.simulate.variational.discrete_mechanics import MidpointStep
from jaxcontact.solvers.roots import inside_or_middle

LEAST = 1e-3  # share of the last trial that the next one is, lest it be the zero that a gap starts from


class Ends(NamedTuple):
    """Gaps (nc,) at the end of a step of length h (nc,), and their rates."""

    h: jax.Array
    gap: jax.Array
    rate: jax.Array


class GapLook(NamedTuple):
    """A look for gaps that close and open again within a step.

    Attributes:
        between: whether the trial is one of a length in between.
        goal: the length of the step that is taken if nothing is found; 0 before one would be.
        left, right: what is known of either side of the dips.
        number: of trials in between.
    """

    between: jax.Array
    goal: jax.Array
    left: Ends
    right: Ends
    number: jax.Array


class EventSearch(NamedTuple):
    """Where a search is."""

    low: jax.Array  # no event has happened after this long
    high: jax.Array  # one has
    h: jax.Array  # the next trial
    suspects: jax.Array  # (nc,) bool, contacts whose events are in between
    near: jax.Array  # whether the last trial ended on an event
    tries: jax.Array
    before: jax.Array  # the last trial
    load: jax.Array  # (nc,) loads of closed contacts there
    look: GapLook


def whole_step(remaining: jax.Array, nc: int) -> EventSearch:
    """A first trial: all that remains of the step."""
    zero = jnp.zeros_like(remaining)
    none, zeros, no = jnp.zeros(nc, bool), jnp.zeros(nc, zero.dtype), jnp.array(False)
    ends = Ends(zeros, zeros, zeros)
    look = GapLook(no, zero, ends, ends, jnp.int32(0))
    return EventSearch(zero, remaining, remaining, none, no, jnp.int32(0), zero, zeros, look)


def round_off(dtype: jnp.dtype) -> float:
    """Gaps in m, and loads in parts of their size, that are zero: 512 eps, 1e-13 in float64."""
    return 512.0 * float(jnp.finfo(dtype).eps)


def events(
    node: Node,
    search: EventSearch,
    step: MidpointStep,
    rate: jax.Array,
    load: jax.Array,
    load_0: jax.Array,
    least: jax.Array,
) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array]:
    """What each contact's event is a zero of (nc,), its rate, whether it went through, and where it may be.

    Args:
        load, load_0: (nc,) loads at the end and at the start, in parts of their size.
        least: load that counts.
    """
    noise = round_off(rate.dtype)
    begin, base = behind_closing(node, step)
    gap = step.phi - base
    # Contacts that carry nothing, as redundant ones may, open without an event.
    first = search.tries == 0
    opens = (load_0 > least) & (load < jnp.where(first | (search.look.goal > 0), -least, -noise))
    fell = jnp.where(node.closed, opens, gap < -noise)
    span = search.h - search.before
    secant = (load - jnp.where(first, load_0, search.load)) / jnp.where(span != 0, span, 1.0)
    # A gap that has just opened is a parabola from zero, which Newton's method would halve its way down to.
    zero = jnp.where(node.closed, jnp.inf, _zero_of_parabola(begin, gap, rate, search.h))
    return jnp.where(node.closed, load, gap), jnp.where(node.closed, secant, rate), fell, zero


def behind_closing(node: Node, step: MidpointStep) -> tuple[jax.Array, jax.Array]:
    """Gaps (nc,) of a step of no length, and what gaps count from, m.

    A gap that starts a little below zero, by round-off, closes when it comes back to where it was. What
    closes another contact may have pushed it there, however short the step: that is no event.
    """
    begin = node.terms.phi + step.closed_by
    base = jnp.minimum(begin, 0.0)
    return begin - base, base


def _zero_of_parabola(begin: jax.Array, end: jax.Array, rate: jax.Array, h: jax.Array) -> jax.Array:
    """Where a parabola is zero that is `begin` at 0 and `end` at h, with that rate there; inf if nowhere."""
    bends = (rate * h - (end - begin)) / h**2
    rises = rate - 2.0 * bends * h
    square = rises**2 - 4.0 * bends * begin
    root = jnp.sqrt(jnp.maximum(square, 0.0))
    up = rises > 0
    above, below = jnp.where(up, rises + root, 2.0 * begin), jnp.where(up, -2.0 * bends, root - rises)
    exists = (square >= 0) & (below > 0) & (above > 0)
    found = above / jnp.where(exists, below, 1.0)
    return jnp.where(exists, jnp.maximum(found, LEAST * h), jnp.inf)


def narrowed(
    search: EventSearch,
    value: jax.Array,
    rate: jax.Array,
    fell: jax.Array,
    zero: jax.Array,
    closed: jax.Array,
    t_end: jax.Array,
) -> tuple[EventSearch, jax.Array, jax.Array]:
    """The search behind a trial; whether the trial is a whole step, and whether it ends on an event."""
    eps = float(jnp.finfo(value.dtype).eps)
    crossed = jnp.any(fell)
    whole = (search.tries == 0) & ~crossed
    suspects = jnp.where(crossed, fell, search.suspects)
    # On an event: within 450 eps seconds, 1e-13 in float64, or as near as round-off lets one see.
    allowed = 450.0 * eps * jnp.abs(rate) + jnp.where(closed, 64.0, 16.0) * eps
    late = jnp.any(suspects & (value < -allowed))
    near = jnp.any(suspects & (jnp.abs(value) <= allowed)) & ~late
    # Late by less than what starts a search is late nevertheless.
    beyond = crossed | late
    low = jnp.where(beyond, search.low, search.h)
    high = jnp.where(beyond, search.h, search.high)
    shut = (high - low <= 4.0 * eps * (jnp.abs(t_end) + high)) & ~crossed
    falls = suspects & (rate < 0)
    ahead = jnp.where(falls, search.h - value / jnp.where(falls, rate, -1.0), jnp.inf)
    newton = jnp.min(ahead, initial=jnp.inf)
    # One more step of Newton's method from a point on the event, for the last digits of the time: a short
    # one, for a load that falls by little more than round-off says nothing of it.
    again = near & ~search.near & (jnp.abs(newton - search.h) <= LEAST * search.h)
    located = (near & ~again) | shut
    first = jnp.min(jnp.where(suspects, jnp.where(jnp.isfinite(zero), zero, ahead), jnp.inf), initial=jnp.inf)
    halved = search.tries % 8 == 7  # now and then, lest a bound stays where it is
    trial = jnp.where(again, newton, inside_or_middle(jnp.where(halved, jnp.inf, first), low, high))
    load = jnp.where(closed, value, 0.0)
    following = EventSearch(low, high, trial, suspects, near, search.tries + 1, search.h, load, search.look)
    return following, whole, located
