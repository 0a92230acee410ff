"""The search for the time of an event within a step: an open gap closes, or a closed contact lets go.

Owns when a contact's event has happened, and the next length of a step to try.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from jaxcontact.simulate.variational.contact_state import Node
from jaxcontact.solvers.roots import inside_or_middle


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


def whole_step(remaining: jax.Array, nc: int) -> EventSearch:
    """A first trial: all that remains of the step."""
    zero = jnp.zeros_like(remaining)
    none = jnp.zeros(nc, bool)
    return EventSearch(
        zero, remaining, remaining, none, jnp.array(False), jnp.int32(0), zero, jnp.zeros(nc, zero.dtype)
    )


def events(
    node: Node,
    search: EventSearch,
    phi: jax.Array,
    rate: jax.Array,
    load: jax.Array,
    load_0: jax.Array,
    least: jax.Array,
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """What each contact's event is a zero of (nc,), its rate, and whether it has gone through.

    Args:
        load, load_0: (nc,) loads at the end and at the start, in parts of their size.
        least: load that counts.
    """
    eps = float(jnp.finfo(phi.dtype).eps)
    # A gap that starts a little below zero, by round-off, closes when it comes back to where it was.
    gap = phi - jnp.minimum(node.terms.phi, 0.0)
    # Contacts that carry nothing, as redundant ones may, open without an event.
    first = search.tries == 0
    opens = (load_0 > least) & (load < jnp.where(first, -least, -512.0 * eps))
    fell = jnp.where(node.closed, opens, gap < -512.0 * eps)
    span = search.h - search.before
    secant = (load - jnp.where(first, load_0, search.load)) / jnp.where(span != 0, span, 1.0)
    return jnp.where(node.closed, load, gap), jnp.where(node.closed, secant, rate), fell


def narrowed(
    search: EventSearch,
    value: jax.Array,
    rate: jax.Array,
    fell: jax.Array,
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
    early = jnp.any(suspects & (value < -allowed))
    near = jnp.any(suspects & (jnp.abs(value) <= allowed)) & ~early
    low = jnp.where(crossed, search.low, search.h)
    high = jnp.where(crossed, search.h, search.high)
    shut = (high - low <= 4.0 * eps * (jnp.abs(t_end) + high)) & ~crossed
    # One more step of Newton's method from a point on the event, for the last digits of the time.
    located = (near & search.near) | shut
    falls = suspects & (rate < 0)
    ahead = jnp.where(falls, search.h - value / jnp.where(falls, rate, -1.0), jnp.inf)
    newton = jnp.min(ahead, initial=jnp.inf)
    halved = search.tries % 8 == 7  # now and then, lest a bound stays where it is
    trial = jnp.where(near, newton, inside_or_middle(jnp.where(halved, jnp.inf, newton), low, high))
    load = jnp.where(closed, value, 0.0)
    return EventSearch(low, high, trial, suspects, near, search.tries + 1, search.h, load), whole, located
