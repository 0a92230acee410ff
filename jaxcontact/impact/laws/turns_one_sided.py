"""Single impacts in a cycle of contacts, such that a direction may add impacts: `visit_in_turn`, `end_turns`.

The law skips contacts that do not approach; these loops visit those as well that neither approach nor
separate, in the same order, because in some directions they approach. Page: docs/understand/derivatives.md.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from jaxcontact._pytree import PyTree
from jaxcontact.algebra.forward_only import forward_only
from jaxcontact.batching.bounded_loop import bounded_loop
from jaxcontact.impact.laws.contact_space import collision_tolerance
from jaxcontact.solvers.contact_directions import BORDER_DIGITS, REVERSE, SECOND
from jaxcontact.tolerances import rounding

FAINT_DIGITS = 0.5  # power of the slowest approach that counts; slower impacts tell of an accumulation


class Turns(NamedTuple):
    """Visits of contacts in the order of a cycle.

    Attributes:
        state: of the law.
        place: position in the cycle of the next visit, counted on from cycle to cycle.
        number: impacts of contacts that approach.
        latest: contact of the latest visit, -1 before.
        accumulates: () bool, whether impacts became so slow that infinitely many may follow.
    """

    state: PyTree
    place: jax.Array
    number: jax.Array
    latest: jax.Array
    accumulates: jax.Array


class Visitor(NamedTuple):
    """A law of single impacts.

    Attributes:
        rates: state -> normal velocities (nc,).
        strike: (state, contact) -> state after an impact of the contact.
        active: (nc,) bool.
        slowest: (nc,) rates of approach above which contacts have an impact.
        border: (nc,) rates within which contacts neither approach nor separate, above `slowest`.
    """

    rates: Callable[[PyTree], jax.Array]
    strike: Callable[[PyTree, jax.Array], PyTree]
    active: jax.Array
    slowest: jax.Array
    border: jax.Array


def visit_in_turn(visitor: Visitor, start: PyTree, cycle: jax.Array, max_impacts: int) -> Turns:
    """Visit the contacts of a cycle until none approaches, and none at a border may have to be visited."""
    faint = collision_tolerance(visitor.slowest.dtype) ** FAINT_DIGITS
    length, numbers = cycle.shape[0], jnp.arange(visitor.active.shape[0])
    in_cycle = jnp.zeros(visitor.active.shape, bool).at[cycle].set(True) & visitor.active

    def running(turns: Turns) -> jax.Array:
        rates = visitor.rates(turns.state)
        approaches = in_cycle & (rates < -visitor.slowest)
        left = in_cycle & (rates <= visitor.border) & (numbers != turns.latest)
        return jnp.any(jnp.where(jnp.any(approaches), turns.number < max_impacts, left)) & (
            turns.place < max_impacts * length
        )

    def visit(turns: Turns) -> Turns:
        contact = cycle[turns.place % length]
        rate = visitor.rates(turns.state)[contact]
        is_visited = visitor.active[contact] & (rate <= visitor.border[contact])
        is_impact = visitor.active[contact] & (rate < -visitor.slowest[contact])
        is_faint = is_impact & (rate > -visitor.slowest[contact] / faint) & (rate < -visitor.border[contact])
        after = visitor.strike(turns.state, contact)
        return Turns(
            state=jax.tree.map(lambda new, old: jnp.where(is_visited, new, old), after, turns.state),
            place=turns.place + 1,
            number=turns.number + is_impact.astype(jnp.int32),
            latest=jnp.where(is_visited, contact, turns.latest),
            accumulates=turns.accumulates | is_faint,
        )

    first = Turns(start, jnp.int32(0), jnp.int32(0), jnp.int32(-1), jnp.array(False))
    return bounded_loop(running, visit, first, max_iters=max_impacts * length)


@jax.custom_jvp
def end_turns(value: jax.Array, before: jax.Array, after: jax.Array, is_left: jax.Array) -> jax.Array:
    """Return the value; its forward derivative is NaN if impacts of the direction have not ended.

    Args:
        before: (nc,) normal velocities before the first impact.
        after: (nc,) normal velocities after the last one.
        is_left: (nc,) bool, contacts that must not approach.
    """
    return value


@end_turns.defjvp
def _end_turns_jvp(primals: tuple, tangents: tuple) -> tuple[jax.Array, jax.Array]:
    change, before, after, _ = tangents
    size = jnp.maximum(jnp.max(jnp.abs(before)), jnp.max(jnp.abs(after)))
    small = rounding(change.dtype, BORDER_DIGITS)
    goes_on = jnp.any(primals[3] & ~(after >= -small * size))
    return end_turns(*primals), forward_only(
        jnp.where(goes_on, jnp.nan, change), primals[0], reverse=REVERSE, second=SECOND
    )
