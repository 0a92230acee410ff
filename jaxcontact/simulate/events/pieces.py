"""The pieces of a motion as functions of the state before: a stretch, an impact, a jam, the end of a chatter.

Owns what both the search for events and its repetition do, so that both have the same values.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jaxcontact.algebra import implicit
from jaxcontact.impact.laws.contact_space import collision_tolerance
from jaxcontact.mechanics.system import Params, State, System
from jaxcontact.simulate.events.accumulation import no_chatter, remembered
from jaxcontact.simulate.events.accumulation import limit as chatter_limit
from jaxcontact.simulate.events.event_log import Carry
from jaxcontact.simulate.events.stretch import Motion, parts, settled, start_vector, step, values
from jaxcontact.simulate.variational.contact_state import arrive, terms_at, touching_gap
from jaxcontact.simulate.variational.impact_event import in_turn, struck
from jaxcontact.simulate.variational.jam import jolt
from jaxcontact.solvers.contact_problem import SEPARATE, SLIDE
from jaxcontact.terms import ContactTerms


class Contacts(NamedTuple):
    """The contacts (nc,) at a state: near enough for an impact, striking, closed, and their terms."""

    terms: ContactTerms
    near: jax.Array
    at_zero: jax.Array
    strikes: jax.Array
    closed: jax.Array


def contacts_at(system: System, params: Params, state: State) -> Contacts:
    """Which contacts touch, strike (touch and approach) and are closed (touch and do neither)."""
    terms = terms_at(system, params, state.q, state.t)
    eps, slow = float(jnp.finfo(state.q.dtype).eps), collision_tolerance(state.v.dtype)
    near = terms.phi <= touching_gap(state.q.dtype)
    at_zero = terms.phi <= 4096.0 * eps
    rate = terms.J_n @ state.v
    return Contacts(terms, near, at_zero, at_zero & (rate < -slow), near & (jnp.abs(rate) <= slow))


def stretch(
    system: System, motion: Motion, state: State, h: jax.Array
) -> tuple[State, jax.Array, jax.Array]:
    """The end of a stretch of length h, the impulses (nc, dim) of its contacts, and what may end it (nc, 2).

    Derivative: exact, any order, in the modes given.
    """
    y = start_vector(state, motion.modes.kind.shape[0], system.structure.dim)
    end, impulse = parts(system, state.t + h, step(system, motion, state.t, y, h).x1)
    value, _ = values(system, motion, end)
    return settled(system, motion.params, end, motion.modes.kind), impulse, value


class Blow(NamedTuple):
    """An impact: the state behind it, normal impulses (nc,), N s, bits of its law."""

    state: State
    impulse: jax.Array
    status: jax.Array


def impact(
    system: System, params: Params, carry: Carry, law: Any, key: Any, near: jax.Array, wanted: Any, once: bool
) -> Blow:
    """The impact of the contacts `near` by the law.

    Args:
        wanted: bool, whether there is one; else the state stays.
        once: batches go through the law one by one, so that only those pay that have one; no derivative.
    """
    own = None if key is None else jax.random.fold_in(key, carry.number)
    terms = terms_at(system, params, carry.state.q, carry.state.t).replace(active=near)
    ask = in_turn(struck) if once else struck
    v, impulse, status = ask(law, jnp.asarray(wanted), terms, carry.state.v, own)
    return Blow(carry.state.replace(v=v), impulse, status)


def jam(system: System, params: Params, state: State, closed: jax.Array, guess: jax.Array) -> tuple[Any, ...]:
    """The impact without a collision of closed contacts: `Blow`, impulses (nc, dim), whether there is one."""
    terms = terms_at(system, params, state.q, state.t)
    after, push, happens = jolt(arrive(terms, state.q, terms.M @ state.v, state.t), closed, guess)
    return Blow(state.replace(v=after.v), push[:, 0], jnp.uint32(0)), push, happens


def chatter_end(system: System, params: Params, carry: Carry) -> State:
    """The state at the end of a chatter, where its contacts rest."""
    end = chatter_limit(system, carry.chatter)
    who = jnp.any(carry.chatter.who[:2], axis=0)
    return settled(system, params, end, jnp.where(who, SLIDE, SEPARATE))


def behind_impact(carry: Carry, state: State, who: jax.Array) -> Carry:
    return Carry(state, remembered(carry.chatter, state, who), carry.number + 1)


def behind_chatter(carry: Carry, state: State) -> Carry:
    return Carry(state, no_chatter(state, carry.chatter.who.shape[1]), carry.number + 1)


def jam_guess(terms: ContactTerms, v: jax.Array, closed: jax.Array) -> jax.Array:
    """Impulses (nc, dim) to search a jam from: those that would stop each sliding contact by itself."""
    slip = jnp.einsum("ctv,v->ct", terms.J_t, v)
    response = implicit.solve_spd(terms.M, terms.J_n.T)
    own = jnp.sum(terms.J_n.T * response, axis=0)
    speed = jnp.sqrt(jnp.sum(slip**2, axis=1))
    normal = jnp.where(closed, speed / jnp.where(own > 0, own, 1.0), 0.0)
    way = slip / jnp.where(speed > 0, speed, 1.0)[:, None]
    return jnp.concatenate([normal[:, None], -(terms.mu * normal)[:, None] * way], axis=1)
