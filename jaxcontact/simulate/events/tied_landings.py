"""Contacts that land at one instant: whether their order matters, and else the one-sided derivative.

Owns the displaced motion through a tie, which lands with one contact after the other, in an order that
depends on the direction. Entries: `order_matters`, `land_together`. Page: docs/methods/motion.md.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxcontact._pytree import PyTree
from jaxcontact.algebra import small_dense
from jaxcontact.algebra.forward_only import forward_only
from jaxcontact.batching.bounded_loop import bounded_loop
from jaxcontact.impact.laws.contact_space import collision_tolerance, mass_norm
from jaxcontact.mechanics.system import Model, State, System
from jaxcontact.precision import all_digits
from jaxcontact.simulate.events.event_log import Carry, StepInputs
from jaxcontact.simulate.events.mode_choice import Ended, choose_modes
from jaxcontact.simulate.events.pieces import Blow, EventContacts, apply_impact, classify_contacts
from jaxcontact.simulate.events.stretch import StretchMotion, point_function, split_vector, start_vector
from jaxcontact.simulate.variational.contact_state import terms_at
from jaxcontact.terms import ContactTerms

SAME_DIGITS = 0.5  # power of eps; velocities of two orders that differ less, relative to |v|_M, are the same

REVERSE = (
    "EventDriven: reverse mode needs a linear map, and with corner='one_sided' the derivative of contacts "
    "that land together is none; use jax.jvp, or corner='smooth' for that of the impact taken"
)
SECOND = (
    "EventDriven: with corner='one_sided' there is no second derivative; use corner='smooth', whose first "
    "and second derivatives are those of the events taken"
)


def order_matters(contacts: EventContacts, carry: Carry, law: PyTree, key: PyTree, v: jax.Array) -> jax.Array:
    """Decide whether the contacts that strike together end elsewhere than at v (nv,), one after the other.

    They strike in cyclic orders, forward and backward: up to three contacts in all orders. Derivative: none.
    """
    nc = contacts.near.shape[0]
    cycle = (np.arange(nc)[:, None] + np.arange(nc)) % nc
    orders = jnp.asarray(np.concatenate([cycle, cycle[:, ::-1]]), jnp.int32)
    terms, slow, no = contacts.terms, collision_tolerance(v.dtype), jnp.array(False)

    def differs(order: jax.Array) -> jax.Array:
        def strike(at: PyTree, k: jax.Array) -> tuple[PyTree, None]:
            v, ahead = at
            hits = ahead[k] & (terms.J_n[k] @ v < -slow)
            first = jnp.arange(nc) == k
            moving = carry._replace(state=carry.state.replace(v=v))
            blow = apply_impact(terms, moving, law, key, contacts.near & (~ahead | first), no, hits)
            return (jnp.where(hits, blow.v, v), ahead & ~(first & hits)), None

        (end, ahead), _ = lax.scan(strike, (carry.state.v, contacts.strikes), order)
        approaches = contacts.near & (small_dense.apply_matrix(terms.J_n, end) < -slow)
        same = float(jnp.finfo(v.dtype).eps) ** SAME_DIGITS * mass_norm(terms.M, carry.state.v)
        return jnp.any(ahead | approaches) | ~(mass_norm(terms.M, end - v) <= same)

    return lax.cond(
        jnp.sum(contacts.strikes) > 1, lambda: jnp.any(lax.map(differs, orders)), lambda: jnp.array(False)
    )


class Tie(NamedTuple):
    """Contacts that land together: the arguments of the step, and the motion before the impact.

    Attributes:
        inputs: of the step.
        key: of all impacts, or None.
        carry: before the impact.
        participants: (nc,) bool, contacts that touch.
        jumps: bool, whether their order matters.
        push: (nc, dim) impulses.
    """

    inputs: StepInputs
    key: jax.Array | None
    carry: Carry
    participants: jax.Array
    jumps: jax.Array
    push: jax.Array


class _Moved(NamedTuple):
    """A displacement along a tie, at one time, of q, v and impulses; and what has happened."""

    dq: jax.Array
    dv: jax.Array
    dpush: jax.Array
    v: jax.Array
    ahead: jax.Array  # (nc,) bool, contacts that still land
    elapsed: jax.Array  # s, per unit of displacement
    is_known: jax.Array


@functools.lru_cache(maxsize=64)
def land_together(system: System) -> Callable[[Tie], tuple[State, jax.Array]]:
    """Return the function of a tie that returns the state after it and its impulses (nc, dim).

    Derivative: forward, first order: that of the displaced motion, which lands one contact after the other;
        NaN if their order matters.
    """

    @jax.custom_jvp
    def land(tie: Tie) -> tuple[State, jax.Array]:
        state = tie.carry.state
        blow = _impact_with_derivative(system, tie, tie.participants, state.q, state.v)
        return state.replace(v=blow.v), blow.impulse

    @land.defjvp
    @all_digits
    def _(primals: tuple[Tie], tangents: tuple[Tie]) -> PyTree:
        (tie,), (change,) = primals, tangents
        state, late = tie.carry.state, change.carry.state.t
        q_rate, v_rate, found = _rates_at_tie(system, tie, state.v)
        contacts = classify_contacts(_terms(system, tie.inputs.params, state), state)
        start = _Moved(
            dq=change.carry.state.q - late * q_rate,
            dv=change.carry.state.v - late * v_rate,
            dpush=jnp.zeros_like(tie.push),
            v=state.v,
            ahead=contacts.strikes & tie.participants,
            elapsed=jnp.zeros_like(late),
            is_known=found & ~tie.jumps,
        )
        size = tie.participants.shape[0]
        end = bounded_loop(
            lambda at: jnp.any(at.ahead) & at.is_known,
            lambda at: _land_next(system, tie, change, at),
            start,
            max_iters=size,
        )
        q_rate, v_rate, found = _rates_at_tie(system, tie, end.v)
        exists = end.is_known & found & ~jnp.any(end.ahead)
        rest = late - end.elapsed
        moved = (end.dq + rest * q_rate, end.dv + rest * v_rate, end.dpush)
        dq, dv, dpush = (
            forward_only(jnp.where(exists, x, jnp.nan), at, reverse=REVERSE, second=SECOND)
            for x, at in zip(moved, (state.q, state.v, tie.push))
        )
        return land(tie), (State(q=dq, v=dv, t=late), dpush)

    return land


def _terms(system: System, params: PyTree, state: State) -> ContactTerms:
    return terms_at(Model(system=system, params=params), state.q, state.t)


def _impact_with_derivative(system: System, tie: Tie, near: jax.Array, q: jax.Array, v: jax.Array) -> Blow:
    """Compute the impact of the contacts `near` at q and v, so that it has a derivative."""
    state = tie.carry.state.replace(q=q, v=v)
    terms = _terms(system, tie.inputs.params, state)
    carry, no = tie.carry._replace(state=state), jnp.array(False)
    return apply_impact(terms, carry, tie.inputs.law, tie.key, near, no, True, tie.push)


def _rates_at_tie(system: System, tie: Tie, v: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Compute the rates of q and v at the tie with velocity v, and whether forces were found."""
    params, controls, dt = lax.stop_gradient((tie.inputs.params, tie.inputs.controls, tie.inputs.dt))
    model, state = Model(system=system, params=params), tie.carry.state.replace(v=v)
    terms = _terms(system, params, state)
    none = jnp.zeros_like(tie.participants)
    slow = jnp.full(none.shape, collision_tolerance(v.dtype), v.dtype)
    ended = Ended(none, none, jnp.zeros_like(tie.push[:, 1:]))
    choice = choose_modes(model, state, controls, dt, classify_contacts(terms, state).closed, slow, ended)
    motion = StretchMotion(params, controls, choice.modes, dt)
    slope, _ = point_function(system)(motion, state.t, start_vector(system, state, terms))
    rate, *_ = split_vector(system, state.t, slope)
    return rate.q, rate.v, choice.found


def _land_next(system: System, tie: Tie, change: Tie, at: _Moved) -> _Moved:
    """Move on to the contact that the displaced motion meets next, and through its impact."""
    state = tie.carry.state
    terms, rates = jax.jvp(
        lambda params, q: _terms(system, params, state.replace(q=q)),
        (tie.inputs.params, state.q),
        (change.inputs.params, at.dq),
    )
    speed = small_dense.apply_matrix(terms.J_n, at.v)
    lands = at.ahead & (speed < -collision_tolerance(speed.dtype))
    wait = jnp.where(lands, -rates.phi / jnp.where(lands, speed, 1.0), jnp.inf)
    first = jnp.arange(wait.shape[0]) == jnp.argmin(wait)
    wait = jnp.min(wait)
    q_rate, v_rate, found = _rates_at_tie(system, tie, at.v)
    exists = found & jnp.isfinite(wait)
    wait = jnp.where(exists, wait, 0.0)
    dq, dv = at.dq + wait * q_rate, at.dv + wait * v_rate
    near = tie.participants & (~at.ahead | first)

    def blow(inputs: StepInputs, q: jax.Array, v: jax.Array) -> tuple[jax.Array, jax.Array]:
        after = _impact_with_derivative(system, tie._replace(inputs=inputs), near, q, v)
        return after.v, after.impulse

    (v, _), (dv, dpush) = jax.jvp(blow, (tie.inputs, state.q, at.v), (change.inputs, dq, dv))
    return _Moved(dq, dv, at.dpush + dpush, v, at.ahead & ~first, at.elapsed + wait, at.is_known & exists)
