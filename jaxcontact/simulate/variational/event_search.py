"""The search for the time of an event within a step: a gap closes, a contact lets go, a dry joint stops.

Owns the tests of whether a contact's event has happened, and the next length of a step to try. Gaps that
close and open again within a step are in `gap_dips`. Entries: `start_search`, `event_values`,
`narrow_search`.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from jaxcontact.algebra import small_dense
from jaxcontact.simulate.variational.contact_state import Node
from jaxcontact.simulate.variational.discrete_mechanics import MidpointStep
from jaxcontact.simulate.variational.joint_rows import dry_speeds, num_dry
from jaxcontact.solvers.roots import inside_or_middle
from jaxcontact.terms.records import normal_rates

MIN_FRACTION = 1e-3  # of the last trial, for the next one: never the zero that a gap starts at


class Ends(NamedTuple):
    """Gaps (nc,) at the end of a step of length h (nc,), and their rates."""

    h: jax.Array
    gap: jax.Array
    rate: jax.Array


class GapLook(NamedTuple):
    """The state of the look for gaps that close and open again within a step.

    Attributes:
        between: whether the trial is one of a length in between.
        goal: length of the step that is taken if no dip is found, s; 0 before a step would be taken.
        left, right: the nearest known gaps on either side of the dips.
        number: number of trials in between.
    """

    between: jax.Array
    goal: jax.Array
    left: Ends
    right: Ends
    number: jax.Array


class EventSearch(NamedTuple):
    """The state of a search: bounds of the length of the step, next trial and suspects."""

    low: jax.Array  # no event has happened after this long
    high: jax.Array  # one has
    h: jax.Array  # the next trial
    suspects: jax.Array  # (nc,) bool, contacts whose events are in between
    near: jax.Array  # whether the last trial ended on an event
    tries: jax.Array
    before: jax.Array  # the last trial
    load: jax.Array  # (nc,) loads of closed contacts, and speeds of dry joints, there
    look: GapLook


def start_search(remaining: jax.Array, nc: int) -> EventSearch:
    """Start a search with a first trial of all that remains of the step."""
    zero = jnp.zeros_like(remaining)
    none, zeros, no = jnp.zeros(nc, bool), jnp.zeros(nc, zero.dtype), jnp.array(False)
    ends = Ends(zeros, zeros, zeros)
    look = GapLook(no, zero, ends, ends, jnp.int32(0))
    return EventSearch(zero, remaining, remaining, none, no, jnp.int32(0), zero, zeros, look)


def round_off(dtype: jnp.dtype) -> float:
    """Return the largest gap in m, or load relative to its size, that is zero: 512 eps, 1e-13 in float64."""
    return 512.0 * float(jnp.finfo(dtype).eps)


def event_values(
    node: Node,
    search: EventSearch,
    step: MidpointStep,
    arrived: Node,
    load: jax.Array,
    load_0: jax.Array,
    smallest_load: jax.Array,
) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array]:
    """Evaluate the functions (nc,) whose zeros are the events of the contacts.

    Args:
        arrived: the end of the step.
        load, load_0: (nc,) loads at the end and at the start, relative to their size.
        smallest_load: smallest load that counts.

    Returns:
        The values, their rates, whether each has passed through zero, and an estimate of the time of the
        zero (inf if there is none).
    """
    noise = round_off(load.dtype)
    begin, base = gaps_after_closing(node, step)
    gap, rate = arrived.terms.phi - base, normal_rates(arrived.terms, arrived.v)
    # Contacts that carry nothing, as redundant ones may, open without an event.
    first = search.tries == 0
    opens = (load_0 > smallest_load) & (
        load < jnp.where(first | (search.look.goal > 0), -smallest_load, -noise)
    )
    fell = jnp.where(node.closed, opens, gap < -noise)
    value, value_0 = jnp.where(node.closed, load, gap), load_0
    by_secant = node.closed
    count = num_dry(node.joints)
    if count:
        assert node.joints is not None
        size = jnp.abs(small_dense.apply_matrix(jnp.abs(step.slopes.inverse), jnp.abs(node.p)))
        speed, speed_0, slides = dry_speeds(node.joints, node.v, arrived.v, node.closed, size)
        value, value_0 = value.at[-count:].set(speed), value_0.at[-count:].set(speed_0)
        fell = fell.at[-count:].set(slides & (speed < -noise))
        by_secant = by_secant.at[-count:].set(True)
    span = search.h - search.before
    secant = (value - jnp.where(first, value_0, search.load)) / jnp.where(span != 0, span, 1.0)
    # A gap that has just opened is a parabola from zero; Newton's method would halve its way down to it.
    zero = jnp.where(by_secant, jnp.inf, _zero_of_parabola(begin, gap, rate, search.h))
    return value, jnp.where(by_secant, secant, rate), fell, zero


def gaps_after_closing(node: Node, step: MidpointStep) -> tuple[jax.Array, jax.Array]:
    """Compute the gaps (nc,) of a step of no length, and the values that gaps count from, m.

    A gap that starts a little below zero, by round-off, closes when it returns to its start. The displacement
    that closes another contact may have pushed it there in a step of any length: that is no event.
    """
    begin = node.terms.phi + step.closed_by
    base = jnp.minimum(begin, 0.0)
    return begin - base, base


def _zero_of_parabola(begin: jax.Array, end: jax.Array, rate: jax.Array, h: jax.Array) -> jax.Array:
    """Find the zero of the parabola with value `begin` at 0, `end` and `rate` at h; inf if it has none."""
    bends = (rate * h - (end - begin)) / h**2
    rises = rate - 2.0 * bends * h
    square = rises**2 - 4.0 * bends * begin
    root = jnp.sqrt(jnp.maximum(square, 0.0))
    up = rises > 0
    above, below = jnp.where(up, rises + root, 2.0 * begin), jnp.where(up, -2.0 * bends, root - rises)
    exists = (square >= 0) & (below > 0) & (above > 0)
    found = above / jnp.where(exists, below, 1.0)
    return jnp.where(exists, jnp.maximum(found, MIN_FRACTION * h), jnp.inf)


def narrow_search(
    search: EventSearch,
    value: jax.Array,
    rate: jax.Array,
    fell: jax.Array,
    zero: jax.Array,
    by_secant: jax.Array,
    t_end: jax.Array,
) -> tuple[EventSearch, jax.Array, jax.Array]:
    """Narrow the search after a trial; return it, whether the trial is a whole step or ends on an event.

    Args:
        by_secant: (nc,) bool, values whose rates are those of a secant, which the search remembers.
    """
    eps = float(jnp.finfo(value.dtype).eps)
    crossed = jnp.any(fell)
    is_full_step = (search.tries == 0) & ~crossed
    suspects = jnp.where(crossed, fell, search.suspects)
    # On an event: within 450 eps seconds, 1e-13 in float64, or within round-off.
    allowed = 450.0 * eps * jnp.abs(rate) + jnp.where(by_secant, 64.0, 16.0) * eps
    late = jnp.any(suspects & (value < -allowed))
    near = jnp.any(suspects & (jnp.abs(value) <= allowed)) & ~late
    # A trial that is late by less than the threshold that starts a search counts as late.
    beyond = crossed | late
    low = jnp.where(beyond, search.low, search.h)
    high = jnp.where(beyond, search.h, search.high)
    shut = (high - low <= 4.0 * eps * (jnp.abs(t_end) + high)) & ~crossed
    falls = suspects & (rate < 0)
    ahead = jnp.where(falls, search.h - value / jnp.where(falls, rate, -1.0), jnp.inf)
    newton = jnp.min(ahead, initial=jnp.inf)
    # One more step of Newton's method from a point on the event, for the last digits of the time: a short
    # one, because a load that falls by little more than round-off does not determine the time.
    again = near & ~search.near & (jnp.abs(newton - search.h) <= MIN_FRACTION * search.h)
    located = (near & ~again) | shut
    first = jnp.min(jnp.where(suspects, jnp.where(jnp.isfinite(zero), zero, ahead), jnp.inf), initial=jnp.inf)
    halved = search.tries % 8 == 7  # every eighth trial, so that both bounds move
    trial = jnp.where(again, newton, inside_or_middle(jnp.where(halved, jnp.inf, first), low, high))
    load = jnp.where(by_secant, value, 0.0)
    following = EventSearch(low, high, trial, suspects, near, search.tries + 1, search.h, load, search.look)
    return following, is_full_step, located
