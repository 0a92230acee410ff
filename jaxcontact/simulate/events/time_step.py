"""A time step from event to event: the order of its pieces.

Owns the search; entry `run_time_step`. The pieces are in `pieces`, the derivative is in `repetition`.
Page: docs/methods/motion.md.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from jaxcontact.algebra import implicit
from jaxcontact.batching.bounded_loop import bounded_loop
from jaxcontact.impact.laws.contact_space import collision_tolerance
from jaxcontact.mechanics.numbers import is_mechanism, usable_numbers
from jaxcontact.mechanics.system import Model, State, System
from jaxcontact.precision import jit
from jaxcontact.simulate.events.accumulation import DENSE, LENGTH, extrapolate_chatter, predict_chatter
from jaxcontact.simulate.events.event_log import (
    EVENT,
    IMPACT,
    JAM,
    PART,
    SKIP,
    WHOLE,
    Carry,
    EventMemory,
    EventPieces,
    StepInputs,
    no_piece,
)
from jaxcontact.simulate.events.first_event import EventFilter, first_event
from jaxcontact.simulate.events.mode_choice import Ended, choose_modes
from jaxcontact.simulate.events.pieces import (
    EventContacts,
    apply_impact,
    classify_contacts,
    contacts_at,
    continue_after_chatter,
    continue_after_impact,
)
from jaxcontact.simulate.events.stretch import (
    FRICTION,
    ROOT,
    Modes,
    StretchMotion,
    remove_drift,
    split_vector,
    start_vector,
)
from jaxcontact.simulate.events.tied_landings import order_matters
from jaxcontact.simulate.stepper import StepperInfo
from jaxcontact.simulate.trajectory import Impacts, append_impact, no_impacts
from jaxcontact.solvers import ode
from jaxcontact.solvers.contact_problem import SEPARATE, SLIDE, STICK
from jaxcontact.status import Status, flag
from jaxcontact.terms import ContactTerms, touch_tolerance
from jaxcontact.terms.records import slips

CROWDED = 0.4  # fraction of the pieces of a step after which a chatter without a known limit is ended
ALWAYS = 4  # pieces that any step may take without progress in time
PROGRESS = 1e-3  # fraction of a step; if all pieces together take less time, the step is stuck
SHRUNK = 0.75  # of the time of the earlier half; impacts come ever faster if the later half takes less


class _Step(NamedTuple):
    carry: Carry
    contacts: EventContacts
    ended: Ended
    modes: Modes  # of the last stretch
    located: jax.Array  # bool, whether the time of the state is that of an event or an impact
    stops: jax.Array  # (nc,) bool, contacts that began to stick at the end of a stretch without an event
    over: jax.Array  # bool, whether the last piece went to the end of the step
    impacts: Impacts
    impulse: jax.Array  # (nc, dim) of closed contacts
    pieces: EventPieces
    num_pieces: jax.Array  # number of pieces
    status: jax.Array


class EventRun(NamedTuple):
    """A step: its end, the memory after it, its info, its pieces."""

    state: State
    memory: EventMemory
    info: StepperInfo
    pieces: EventPieces


class _StepContext(NamedTuple):
    """The quantities that stay constant during a step."""

    system: System
    inputs: StepInputs
    key: jax.Array | None
    t_end: jax.Array
    solver: ode.DormandPrince
    unused: EventPieces
    corner: str


@functools.partial(jit, static_argnames=("system", "max_events", "corner"))
def run_time_step(
    system: System, max_events: int, inputs: StepInputs, memory: EventMemory, corner: str = "smooth"
) -> EventRun:
    """Search for the events of a time step and make it; return its end, memory, info and pieces.

    Derivative: none; see `repetition`.
    """
    state, dtype = inputs.state, inputs.state.q.dtype
    start = contacts_at(Model(system=system, params=inputs.params), state)
    nc, nv, dim = start.near.shape[0], state.v.shape[0], system.structure.dim
    bad = _bad_numbers(inputs, start)
    deep = flag(jnp.any(start.terms.phi < -touch_tolerance(start.terms.J_n)), Status.PENETRATION)
    rtol = jnp.maximum(inputs.rtol, 64.0 * float(jnp.finfo(dtype).eps))
    solver = ode.DormandPrince(rtol=rtol, atol=1e-2 * rtol)
    unused = no_piece(nc, dim, state)
    t_end = state.t + inputs.dt
    context = _StepContext(system, inputs, memory.key, t_end, solver, unused, corner)
    begin = _Step(
        carry=Carry(state, memory.chatter, memory.number),
        contacts=start,
        ended=_nothing_ended(jnp.zeros((nc, dim), dtype)),
        modes=unused.modes,
        located=jnp.array(False),
        stops=jnp.zeros(nc, bool),
        over=jnp.array(False),
        impacts=no_impacts(nv, nc, max_events, dtype),
        impulse=jnp.zeros((nc, dim), dtype),
        pieces=jax.tree.map(lambda x: jnp.broadcast_to(x, (max_events, *x.shape)), unused),
        num_pieces=jnp.int32(0),
        status=bad | deep,
    )

    def unfinished(c: _Step) -> jax.Array:
        wanted = ~c.over | jnp.any(c.contacts.strikes) | jnp.any(c.stops)
        return wanted & (bad == 0) & _is_finite(c.carry.state) & (c.num_pieces < max_events)

    end = bounded_loop(unfinished, lambda c: _append_piece(context, c), begin, max_iters=max_events)
    last = end.contacts
    late = (bad == 0) & ~end.over | jnp.any(last.strikes)
    status = end.status | flag(late & (end.num_pieces >= max_events), Status.MAX_ITERS)
    status = status | flag(~_is_finite(end.carry.state), Status.NONFINITE)
    info = StepperInfo(
        status=status,
        residual=jnp.max(jnp.where(last.closed, jnp.abs(last.terms.phi), 0.0), initial=0.0),
        num_iters=end.num_pieces,
        impulse=end.impulse,
        contacts=last.closed,
        impacts=end.impacts,
    )
    return EventRun(
        end.carry.state, EventMemory(memory.key, end.carry.chatter, end.carry.number), info, end.pieces
    )


def _is_finite(state: State) -> jax.Array:
    return jnp.all(jnp.isfinite(state.q)) & jnp.all(jnp.isfinite(state.v)) & jnp.isfinite(state.t)


def _bad_numbers(inputs: StepInputs, start: EventContacts) -> jax.Array:
    """Set the status bits of numbers that are not finite or out of range."""
    finite = usable_numbers(inputs.params, inputs.state) & jnp.all(jnp.isfinite(inputs.controls))
    good = is_mechanism(inputs.params, start.terms.M) & (inputs.dt > 0)
    return flag(~finite, Status.NONFINITE) | flag(finite & ~good, Status.INVALID)


def _nothing_ended(impulse: jax.Array) -> Ended:
    none = jnp.zeros(impulse.shape[0], bool)
    return Ended(none, none, jnp.zeros_like(impulse[:, 1:]))


def _append_piece(context: _StepContext, c: _Step) -> _Step:
    """Append the end of a chatter if it is known, an impact if one is due, else a stretch.

    An impact follows an event, so that derivatives include its time: if a stretch ends without an event while
    a contact strikes or comes to stick, or a motion begins so, an event of no length comes between.
    """
    model = Model(system=context.system, params=context.inputs.params)
    if c.impulse.shape[0]:
        strikes = jnp.any(c.contacts.strikes)
        view = predict_chatter(model.system, c.carry.chatter, context.t_end, context.inputs.dt)
        # The limit is used only right after an impact: later events may have interrupted the chatter.
        fresh = (c.carry.chatter.t[0] == c.carry.state.t) & ~strikes
        hidden = ~c.located & (strikes | jnp.any(c.stops))
        due = jnp.where(hidden, 3, jnp.where(strikes, 1, 2))
        which = jnp.where(_is_stuck(context, c), 2, jnp.where(fresh & view.is_series, 0, due))
        branches = [
            lambda: _append_skip(context, c, view.turns),
            lambda: _append_impact(context, c, view.dense | _is_crowded(c), _follows_dead_impact(context, c)),
            lambda: _append_stretch(context, c),
            lambda: _append_event(context, c),
        ]
        after, piece = lax.switch(which, branches)
    else:
        after, piece = _append_stretch(context, c)
    state, terms = remove_drift(model, after.carry.state, piece.rests)
    pieces = jax.tree.map(
        lambda rows, row: rows.at[c.num_pieces].set(row, mode="drop"), c.pieces, piece._replace(end=state)
    )
    return after._replace(
        carry=after.carry._replace(state=state),
        contacts=classify_contacts(terms, state),
        pieces=pieces,
        located=(piece.kind != WHOLE) & (piece.kind != PART),
        over=piece.kind == WHOLE,
        num_pieces=c.num_pieces + 1,
    )


def _append_skip(context: _StepContext, c: _Step, turns: jax.Array) -> tuple[_Step, EventPieces]:
    """Append many impacts of a chatter at once; after infinitely many its contacts rest."""
    state = extrapolate_chatter(context.system, c.carry.chatter, turns)
    participants = jnp.any(c.carry.chatter.participants[:2], axis=0)
    none = jnp.zeros_like(c.contacts.terms.phi)
    after = c._replace(
        carry=continue_after_chatter(c.carry, state),
        impacts=append_impact(c.impacts, c.carry.state, state, participants, participants, True, none),
        status=c.status | flag(True, Status.ZENO),
    )
    rests = jnp.where(participants & jnp.isinf(turns), SLIDE, SEPARATE).astype(jnp.int32)
    return after, context.unused._replace(
        kind=jnp.int32(SKIP), participants=participants, turns=turns, rests=rests
    )


def _is_crowded(c: _Step) -> jax.Array:
    """Decide whether impacts that come ever faster have used a fraction `CROWDED` of the step's pieces."""
    half = c.impacts.count // 2
    first, middle, last = (c.impacts.t.at[k].get(mode="clip") for k in (0, half, 2 * half))
    shrinks = last - middle < SHRUNK * (middle - first)
    return (c.num_pieces >= CROWDED * c.pieces.kind.shape[0]) & (half >= LENGTH) & shrinks


def _append_event(context: _StepContext, c: _Step) -> tuple[_Step, EventPieces]:
    """Append the event of a contact that strikes, or else comes to stick, at the end of a stretch."""
    strikes = jnp.any(c.contacts.strikes)
    first = jnp.argmax(jnp.where(strikes, c.contacts.strikes, c.stops))
    column = jnp.where(strikes, ROOT, FRICTION)
    value = context.unused.value.at[first, column].set(True)
    # The event of a striking contact is the zero of its gap, in any mode before.
    kind = c.modes.kind.at[first].set(jnp.where(strikes, SEPARATE, c.modes.kind[first]))
    modes = c.modes._replace(kind=kind)
    piece = context.unused._replace(kind=jnp.int32(EVENT), modes=modes, value=value)
    return c._replace(stops=jnp.zeros_like(c.stops)), piece


def _is_stuck(context: _StepContext, c: _Step) -> jax.Array:
    """Decide whether only the last piece is left and none took time: the next step would begin alike."""
    last = c.num_pieces == c.pieces.kind.shape[0] - 1
    return (
        last
        & (c.num_pieces >= ALWAYS)
        & (context.t_end - c.carry.state.t > (1.0 - PROGRESS) * context.inputs.dt)
    )


def _follows_dead_impact(context: _StepContext, c: _Step) -> jax.Array:
    """Decide whether a contact strikes that has just been in an impact made inelastic."""
    just = c.impacts.plastic & (c.carry.state.t - c.impacts.t < DENSE * context.inputs.dt)
    return jnp.any(just[:, None] & c.impacts.touching & c.contacts.strikes[None])


def _append_impact(
    context: _StepContext, c: _Step, dense: jax.Array, follows: jax.Array
) -> tuple[_Step, EventPieces]:
    """Append the impact of all contacts that touch."""
    inputs, near, strikes = context.inputs, c.contacts.near, c.contacts.strikes
    dead = dense | follows
    blow = apply_impact(c.contacts.terms, c.carry, inputs.law, context.key, near, dead, jnp.any(strikes))
    after = _record_impact(c, blow.v, near, strikes, dead, blow.impulse, dead & ~follows)
    jumps = jnp.array(False)
    if context.corner == "one_sided":
        ties = dead & (jnp.sum(strikes) > 1)
        jumps = ties | order_matters(c.contacts, c.carry, inputs.law, context.key, blow.v)
    status = after.status | blow.status | flag(dead, Status.ZENO) | flag(jumps, Status.JUMP)
    breaks = dead & ~follows
    return after._replace(status=status), context.unused._replace(
        kind=jnp.int32(IMPACT), participants=near, dead=dead, breaks=breaks, jumps=jumps, impulse=blow.impulse
    )


def _record_impact(
    c: _Step, v: jax.Array, touching: jax.Array, strikes: jax.Array,
    dead: jax.Array | bool, impulse: jax.Array, breaks: jax.Array | bool = False,
) -> _Step:  # fmt: skip
    """Record an impact of the contacts `touching`; return the step after it."""
    before, M = c.carry.state, c.contacts.terms.M
    old, new = before.v @ M @ before.v, v @ M @ v
    if c.contacts.terms.surface is not None:  # which does work, so that the energy relative to it counts
        work = 2.0 * jnp.sum(impulse * c.contacts.terms.surface)
        old, new = old + jnp.abs(work), new + work + jnp.abs(work)
    gains = new > old * (1.0 + float(jnp.finfo(old.dtype).eps) ** 0.5)
    carry = continue_after_impact(c.carry, v, touching, breaks)
    return c._replace(
        carry=carry,
        ended=_nothing_ended(c.impulse),
        impacts=append_impact(c.impacts, before, carry.state, touching, strikes, dead, impulse[:, 0]),
        status=c.status | flag(gains, Status.ENERGY) | flag(jnp.sum(touching) > 1, Status.SIMULTANEOUS),
    )


def _append_stretch(context: _StepContext, c: _Step) -> tuple[_Step, EventPieces]:
    """Append a stretch up to its first event, or an impact without a collision if no finite forces exist."""
    system, inputs, state, contacts = context.system, context.inputs, c.carry.state, c.contacts
    nc = contacts.near.shape[0]
    slow = jnp.full(nc, collision_tolerance(state.v.dtype), state.v.dtype)
    if nc == 0:
        modes, found = context.unused.modes, jnp.array(True)
    else:
        choice = choose_modes(
            Model(system=system, params=inputs.params),
            state,
            inputs.controls,
            inputs.dt,
            contacts.closed,
            slow,
            c.ended,
        )
        modes, found = choice.modes, choice.found
    motion = StretchMotion(inputs.params, inputs.controls, modes, inputs.dt)
    remaining = jnp.maximum(context.t_end - state.t, 0.0)
    stuck = _is_stuck(context, c)
    y0 = start_vector(system, state, contacts.terms)
    no_events = EventFilter(contacts.at_zero, slow, stuck)
    ahead = first_event(system, motion, state, y0, remaining, context.solver, no_events)
    reaches_end = ~ahead.event & (ahead.h == remaining)
    end, impulse, slip = split_vector(
        system, jnp.where(reaches_end, context.t_end, state.t + ahead.h), ahead.y
    )
    closed, sticks = modes.kind != SEPARATE, modes.kind == STICK
    # In space several contacts may come to rest together, without an event. A sliding velocity that friction
    # has reduced to the size that counts as zero is zero, and so are its derivatives.
    slid = slips(contacts.terms, state.v)
    stops = (modes.kind == SLIDE) & (contacts.terms.mu > 0) & (system.structure.dim == 3)
    stops = stops & (jnp.sum(slid**2, axis=1) > slow**2) & (jnp.sum(slip**2, axis=1) <= slow**2)
    hidden = (modes.kind == SLIDE) & (contacts.terms.mu > 0) & ~ahead.event & (system.structure.dim == 2)
    hidden = hidden & (jnp.abs(slid[:, 0]) > slow)
    hidden = hidden & (jnp.abs(ahead.along) <= slow)
    slipped = ahead.participants[:, FRICTION] & sticks
    # With it begin to slip those that were at the edges of their cones without a sliding velocity.
    edge = (modes.kind == SLIDE) & (contacts.terms.mu > 0) & (jnp.abs(ahead.along) <= slow)
    after = c._replace(
        carry=c.carry._replace(state=end),
        modes=modes,
        stops=hidden,
        ended=Ended(
            (ahead.participants[:, ROOT] & closed) | ahead.unloads,
            slipped | (edge & jnp.any(slipped)),
            -ahead.friction,
        ),
        impulse=c.impulse + impulse,
        status=c.status | flag(~(ahead.is_resolved & found), Status.STALLED) | flag(stuck, Status.MAX_ITERS),
    )
    kind = jnp.where(ahead.event, EVENT, jnp.where(reaches_end, WHOLE, PART)).astype(jnp.int32)
    piece = context.unused._replace(
        kind=kind, h=ahead.h, modes=modes, value=ahead.participants, impulse=impulse,
        rests=jnp.where(stops, STICK, modes.kind),
    )  # fmt: skip
    if nc == 0:
        return after, piece
    moved = after, piece

    def jammed() -> tuple[_Step, EventPieces]:
        v = state.v + _velocity_change(contacts.terms, choice.push)
        none = jnp.zeros_like(contacts.closed)
        after = _record_impact(c, v, contacts.closed, none, False, choice.push)
        return after, context.unused._replace(
            kind=jnp.int32(JAM), participants=contacts.closed, push=choice.push, impulse=choice.push
        )

    return lax.cond(choice.jams, jammed, lambda: moved)


def _velocity_change(terms: ContactTerms, push: jax.Array) -> jax.Array:
    """Compute the change of velocity (nv,) by impulses (nc, dim), N s."""
    force = push[:, 0] @ terms.J_n + jnp.einsum("ct,ctv->v", push[:, 1:], terms.J_t)
    return implicit.solve_spd(terms.M, force[:, None])[:, 0]
