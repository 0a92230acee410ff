"""A time step from event to event: which piece follows which.

Owns the search. What a piece does is in `pieces`, the derivative in `repetition`.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from jaxcontact.algebra import small_dense
from jaxcontact.impact.laws.contact_space import collision_tolerance
from jaxcontact.mechanics.system import State, System, usable_numbers
from jaxcontact.simulate.events.accumulation import ends, limit
from jaxcontact.simulate.events.event_log import (
    EVENT,
    IMPACT,
    JAM,
    LIMIT,
    PART,
    WHOLE,
    Carry,
    Given,
    Memory,
    Pieces,
    no_impacts,
    no_piece,
    recorded,
)
from jaxcontact.simulate.events.first_event import first_event
from jaxcontact.simulate.events.mode_choice import Ended, choose_modes
from jaxcontact.simulate.events.pieces import (
    Contacts,
    behind_chatter,
    behind_impact,
    chatter_end,
    contacts_at,
    impact,
    jam,
    jam_guess,
    stretch,
)
from jaxcontact.simulate.events.stretch import FRICTION, ROOT, Motion, friction_directions_at
from jaxcontact.simulate.stepper import StepperInfo
from jaxcontact.simulate.trajectory import Impacts
from jaxcontact.solvers import ode
from jaxcontact.solvers.contact_problem import SEPARATE, STICK
from jaxcontact.status import Status, flag
from jaxcontact.terms import CONTACT_TOLERANCE


class _Step(NamedTuple):
    carry: Carry
    ended: Ended
    impacts: Impacts
    impulse: jax.Array  # (nc, dim) of closed contacts
    pieces: Pieces
    count: jax.Array
    status: jax.Array


class Run(NamedTuple):
    """A step: its end, the memory behind it, its info, its pieces."""

    state: State
    memory: Memory
    info: StepperInfo
    pieces: Pieces


class _Here(NamedTuple):
    """What stays as it is during a step."""

    system: System
    given: Given
    key: Any
    t_end: jax.Array
    solver: ode.DormandPrince
    unused: Pieces


@functools.partial(jax.jit, static_argnums=(0, 1))
def run(system: System, max_events: int, given: Given, memory: Memory) -> Run:
    """The step, its events at their time.

    Derivative: none; see `repetition`.
    """
    state, dtype = given.state, given.state.q.dtype
    start = contacts_at(system, given.params, state)
    nc, nv, dim = start.near.shape[0], state.v.shape[0], system.structure.dim
    bad = _bad_numbers(given, start)
    deep = flag(jnp.any(start.terms.phi < -CONTACT_TOLERANCE), Status.PENETRATION)
    rtol = jnp.maximum(given.rtol, 64.0 * float(jnp.finfo(dtype).eps))
    solver = ode.DormandPrince(rtol=rtol, atol=1e-2 * rtol)
    unused = no_piece(nc, dim, dtype)
    t_end = state.t + given.dt
    here = _Here(system, given, memory.key, t_end, solver, unused)
    begin = _Step(
        carry=Carry(state, memory.chatter, memory.number),
        ended=_nothing_ended(nc, dim, dtype),
        impacts=no_impacts(nv, nc, max_events, dtype),
        impulse=jnp.zeros((nc, dim), dtype),
        pieces=jax.tree.map(lambda x: jnp.broadcast_to(x, (max_events, *x.shape)), unused),
        count=jnp.int32(0),
        status=bad | deep,
    )

    def unfinished(c: _Step) -> jax.Array:
        strikes = contacts_at(system, given.params, c.carry.state).strikes
        wanted = (c.carry.state.t < t_end) | jnp.any(strikes)
        return wanted & (bad == 0) & _finite(c.carry.state) & (c.count < max_events)

    end = lax.while_loop(unfinished, lambda c: _piece(here, c), begin)
    last = contacts_at(system, given.params, end.carry.state)
    late = (bad == 0) & (end.carry.state.t < t_end) | jnp.any(last.strikes)
    status = end.status | flag(late & (end.count >= max_events), Status.MAX_ITERS)
    status = status | flag(~_finite(end.carry.state), Status.NONFINITE)
    info = StepperInfo(
        status=status,
        residual=jnp.max(jnp.where(last.closed, jnp.abs(last.terms.phi), 0.0), initial=0.0),
        num_iters=end.count,
        impulse=end.impulse,
        contacts=last.closed,
        impacts=end.impacts,
    )
    return Run(
        end.carry.state, Memory(memory.key, end.carry.chatter, end.carry.number), info, end.pieces
    )


def _finite(state: State) -> jax.Array:
    return jnp.all(jnp.isfinite(state.q)) & jnp.all(jnp.isfinite(state.v)) & jnp.isfinite(state.t)


def _bad_numbers(given: Given, start: Contacts) -> jax.Array:
    """Bits of numbers that no motion has."""
    params = given.params
    finite = usable_numbers(params, given.state) & jnp.all(jnp.isfinite(given.controls))
    mass = (small_dense.spd_inverse(start.terms.M)[1] > 0) & jnp.all(params.mass >= 0)
    good = mass & jnp.all(params.inertia >= 0) & jnp.all(params.mu >= 0) & (given.dt > 0)
    return flag(~finite, Status.NONFINITE) | flag(finite & ~good, Status.INVALID)


def _nothing_ended(nc: int, dim: int, dtype: Any) -> Ended:
    none = jnp.zeros(nc, bool)
    return Ended(none, none, jnp.zeros((nc, dim - 1), dtype))


def _piece(here: _Here, c: _Step) -> _Step:
    """The end of a chatter if it is known, an impact where one is due, else a stretch."""
    system, given = here.system, here.given
    nc = c.impulse.shape[0]
    if nc == 0:
        return _kept(c, *_stretch(here, c, contacts_at(system, given.params, c.carry.state)))
    contacts = contacts_at(system, given.params, c.carry.state)
    over = limit(system, c.carry.chatter)
    # Known right behind an impact: later the chatter may have been something else.
    fresh = c.carry.chatter.t[0] == c.carry.state.t
    known = fresh & ~jnp.any(contacts.strikes) & ends(c.carry.chatter, over, here.t_end, given.dt)
    which = jnp.where(known, 0, jnp.where(jnp.any(contacts.strikes), 1, 2))
    branches = (_limit, _impact, _stretch)
    return _kept(c, *lax.switch(which, [lambda f=f: f(here, c, contacts) for f in branches]))


def _kept(c: _Step, after: _Step, piece: Pieces) -> _Step:
    """The step behind a piece, with the piece on record."""
    pieces = jax.tree.map(lambda rows, one: rows.at[c.count].set(one, mode="drop"), c.pieces, piece)
    return after._replace(pieces=pieces, count=c.count + 1)


def _limit(here: _Here, c: _Step, contacts: Contacts) -> tuple[_Step, Pieces]:
    """Infinitely many impacts at once."""
    who = jnp.any(c.carry.chatter.who[:2], axis=0)
    state = chatter_end(here.system, here.given.params, c.carry)
    none = jnp.zeros_like(contacts.terms.phi)
    after = c._replace(
        carry=behind_chatter(c.carry, state),
        impacts=recorded(c.impacts, c.carry.state, state, who, who, True, none),
        status=c.status | flag(True, Status.ZENO),
    )
    return after, here.unused._replace(kind=jnp.int32(LIMIT), who=who)


def _impact(here: _Here, c: _Step, contacts: Contacts) -> tuple[_Step, Pieces]:
    """The impact of all contacts that touch."""
    given, near, before = here.given, contacts.near, c.carry.state
    blow = impact(
        here.system, given.params, c.carry, given.law, here.key, near, jnp.any(contacts.strikes), True
    )
    M = contacts.terms.M
    old, new = before.v @ M @ before.v, blow.state.v @ M @ blow.state.v
    gains = new > old * (1.0 + float(jnp.finfo(old.dtype).eps) ** 0.5)
    status = c.status | blow.status | flag(gains, Status.ENERGY)
    after = c._replace(
        carry=behind_impact(c.carry, blow.state, contacts.strikes),
        ended=_nothing_ended(*c.impulse.shape, before.q.dtype),
        impacts=recorded(c.impacts, before, blow.state, near, contacts.strikes, False, blow.impulse),
        status=status | flag(jnp.sum(near) > 1, Status.SIMULTANEOUS),
    )
    return after, here.unused._replace(kind=jnp.int32(IMPACT), who=near)


def _stretch(here: _Here, c: _Step, contacts: Contacts) -> tuple[_Step, Pieces]:
    """A stretch up to its first event, or where no finite forces go on an impact without a collision."""
    system, given, state = here.system, here.given, c.carry.state
    nc = contacts.near.shape[0]
    slow = jnp.full(nc, collision_tolerance(state.v.dtype), state.v.dtype)
    if nc == 0:
        modes, found = here.unused.modes, jnp.array(True)
    else:
        choice = choose_modes(
            system, given.params, state, given.controls, contacts.closed, slow, c.ended
        )
        modes, found = choice.modes, choice.found
    motion = Motion(given.params, given.controls, modes)
    remaining = here.t_end - state.t
    ahead = first_event(system, motion, state, remaining, contacts.at_zero, slow, here.solver)
    end, impulse, _ = stretch(system, motion, state, ahead.h)
    whole = ~ahead.event & (ahead.h == remaining)
    end = end.replace(t=jnp.where(whole, here.t_end, end.t))
    ended = _nothing_ended(nc, system.structure.dim, state.q.dtype)
    if nc:
        closed = modes.kind != SEPARATE
        slipped = ahead.who[:, FRICTION] & (modes.kind == STICK)
        way = lax.cond(
            jnp.any(slipped), lambda: -friction_directions_at(system, motion, end), lambda: ended.way
        )
        ended = Ended(ahead.who[:, ROOT] & closed, slipped, way)
    after = c._replace(
        carry=c.carry._replace(state=end),
        ended=ended,
        impulse=c.impulse + impulse,
        status=c.status | flag(~(ahead.fine & found), Status.STALLED),
    )
    kind = jnp.where(ahead.event, EVENT, jnp.where(whole, WHOLE, PART)).astype(jnp.int32)
    piece = here.unused._replace(kind=kind, h=ahead.h, modes=modes, value=ahead.who)
    if nc == 0:
        return after, piece
    return _or_jammed(here, c, contacts, found, (after, piece))


def _or_jammed(
    here: _Here, c: _Step, contacts: Contacts, found: jax.Array, moved: tuple[_Step, Pieces]
) -> tuple[_Step, Pieces]:
    """What a stretch leads to, or the impact without a collision where there is none."""
    before = c.carry.state
    guess = jam_guess(contacts.terms, before.v, contacts.closed)

    def jammed() -> tuple[_Step, Pieces]:
        blow, push, happens = jam(here.system, here.given.params, before, contacts.closed, guess)
        none = jnp.zeros_like(contacts.closed)
        after = c._replace(
            carry=behind_impact(c.carry, blow.state, none),
            ended=_nothing_ended(*c.impulse.shape, before.q.dtype),
            impacts=recorded(c.impacts, before, blow.state, contacts.closed, none, False, blow.impulse),
            status=c.status | flag(jnp.sum(contacts.closed) > 1, Status.SIMULTANEOUS),
        )
        piece = here.unused._replace(kind=jnp.int32(JAM), who=contacts.closed, push=push)
        return jax.tree.map(lambda one, other: jnp.where(happens, one, other), (after, piece), moved)

    return lax.cond(found, lambda: moved, jammed)
