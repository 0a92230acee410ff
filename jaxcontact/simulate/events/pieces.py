"""The pieces of a motion as functions of the state before: an impact, and the end of a chatter.

Owns the code that the search for events and its repetition share, so that both have the same values.
Entries: `contacts_at`, `apply_impact`.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from jaxcontact._pytree import PyTree
from jaxcontact.impact.laws.callable_laws import AnitescuPotra, pressing_law
from jaxcontact.impact.laws.contact_space import collision_tolerance
from jaxcontact.mechanics.system import Model, State
from jaxcontact.precision import jit
from jaxcontact.simulate.events.accumulation import no_chatter, remember_impact
from jaxcontact.simulate.events.event_log import Carry
from jaxcontact.simulate.projection import allowed_depth
from jaxcontact.simulate.variational.contact_state import terms_at, touching_gap
from jaxcontact.simulate.variational.impact_event import apply_law, one_by_one, stop_contacts
from jaxcontact.status import Status, flag
from jaxcontact.terms import ContactTerms
from jaxcontact.terms.records import normal_rates
from jaxcontact.terms.surfaces import shared_velocity


class EventContacts(NamedTuple):
    """The contacts (nc,) at a state: their terms; near enough for an impact, at zero, striking, closed."""

    terms: ContactTerms
    near: jax.Array
    at_zero: jax.Array
    strikes: jax.Array
    closed: jax.Array


def contacts_at(model: Model, state: State) -> EventContacts:
    """Find the contacts that touch, that strike (touch and approach) and that are closed (touch and rest)."""
    return classify_contacts(terms_at(model, state.q, state.t), state)


def classify_contacts(terms: ContactTerms, state: State) -> EventContacts:
    """Find the same as `contacts_at` from terms. Dry joints, without a normal row, are closed, never near."""
    slow = collision_tolerance(state.v.dtype)
    touches = terms.phi <= touching_gap(state.q.dtype)
    near = touches & jnp.any(terms.J_n != 0.0, axis=1)
    at_zero = near & (terms.phi <= 16.0 * allowed_depth(state.q))
    rate = normal_rates(terms, state.v)
    return EventContacts(terms, near, at_zero, at_zero & (rate < -slow), touches & (jnp.abs(rate) <= slow))


class Blow(NamedTuple):
    """An impact: the velocity after it, impulses (nc, dim), N s, bits of its law."""

    v: jax.Array
    impulse: jax.Array
    status: jax.Array


def apply_impact(
    terms: ContactTerms, carry: Carry, law: PyTree, key: jax.Array | None, near: jax.Array, dead: jax.Array,
    wanted: PyTree, solution: jax.Array | None = None,
) -> Blow:  # fmt: skip
    """Compute the impact of the contacts `near` by the law, or by that of pressing contacts if `dead`.

    For `AnitescuPotra()` this is `stop_contacts`, the same law by the search of closed contacts: a second
    search would be a quarter of the program. Where surfaces move the law gets velocities relative to them.

    Args:
        dead: bool, whether it is made inelastic.
        wanted: bool, whether there is one; else the velocity stays.
        solution: impulses (nc, dim), for a repetition. Without them rows of a batch go through the law one by
            one, so that only those with an impact pay, and there is no derivative.
    """
    impact_key = None if key is None else jax.random.fold_in(key, carry.number)
    ask = one_by_one(apply_law) if solution is None else apply_law
    terms, v = terms.replace(active=near), carry.state.v
    if terms.surface is not None:
        shift, unlike = shared_velocity(terms, terms.surface)
        terms = terms.replace(surface=None)
        relative = carry._replace(state=carry.state.replace(v=v + shift))
        blow = apply_impact(terms, relative, law, key, near, dead, wanted, solution)
        status = blow.status | flag(unlike & jnp.asarray(wanted), Status.INVALID)
        return Blow(blow.v - shift, blow.impulse, status)
    presses = pressing_law(law)
    if presses is law:
        return Blow(*ask(law, jnp.asarray(wanted), terms, v, impact_key))
    live = Blow(*ask(law, jnp.asarray(wanted) & ~dead, terms, v, impact_key))
    if isinstance(presses, AnitescuPotra) and presses.num_directions is None:
        stops = terms.replace(active=near & wanted & dead)
        v_plus, push, found = stop_contacts(stops, v, solution)
        dull = Blow(v_plus, push, flag(~found, Status.STALLED))
    else:
        dull = Blow(*ask(presses, jnp.asarray(wanted) & dead, terms, v, impact_key))
    return jax.tree.map(lambda a, b: jnp.where(dead, b, a), live, dull)


@jit
def continue_after_impact(
    carry: Carry, v: jax.Array, participants: jax.Array, breaks: jax.Array | bool = False
) -> Carry:
    """Continue after an impact of `participants`; one that `breaks` a chatter empties its memory."""
    state = carry.state.replace(v=v)
    chatter, nothing = (
        remember_impact(carry.chatter, state, participants),
        no_chatter(state, participants.shape[0]),
    )
    chatter = jax.tree.map(lambda a, b: jnp.where(breaks, b, a), chatter, nothing)
    return Carry(state, chatter, carry.number + 1)


def continue_after_chatter(carry: Carry, state: State) -> Carry:
    """Continue from `state` after the end of a chatter, with an empty memory of impacts."""
    return Carry(state, no_chatter(state, carry.chatter.participants.shape[1]), carry.number + 1)
