"""The repetition of a time step, piece by piece, as a function with a derivative, forward and reverse.

Owns the derivative of a step: the list of pieces and the modes of contact come from the search; the times
of events follow by the implicit rule. Entry: `event_step`.
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
from jaxcontact.algebra.replay_rule import PieceEnd, differentiate_by_replay
from jaxcontact.mechanics.system import Model, Params, State, System
from jaxcontact.simulate.events.accumulation import extrapolate_chatter
from jaxcontact.simulate.events.event_log import (
    EVENT,
    IMPACT,
    JAM,
    PART,
    SKIP,
    UNUSED,
    WHOLE,
    Carry,
    EventMemory,
    EventPieces,
    StepInputs,
)
from jaxcontact.simulate.events.pieces import (
    apply_impact,
    classify_contacts,
    continue_after_chatter,
    continue_after_impact,
)
from jaxcontact.simulate.events.stretch import (
    StretchMotion,
    remove_drift,
    split_vector,
    start_vector,
    step_stretch,
)
from jaxcontact.simulate.events.tied_landings import Tie, land_together
from jaxcontact.simulate.events.time_step import EventRun, run_time_step
from jaxcontact.simulate.stepper import StepperInfo
from jaxcontact.simulate.variational.contact_state import make_node, terms_at
from jaxcontact.simulate.variational.jam import jam_impact
from jaxcontact.solvers.contact_problem import SEPARATE
from jaxcontact.terms import ContactTerms
from jaxcontact.terms.surfaces import shared_velocity

# The branch that repeats a piece of each kind: 0 nothing, 1 a stretch, 2 an impact, 3 a jam, 4 a skip.
BRANCH = np.zeros(7, np.int32)
BRANCH[[WHOLE, PART, EVENT]], BRANCH[[IMPACT, JAM, SKIP]] = 1, [2, 3, 4]


def event_step(
    system: System, max_events: int, inputs: StepInputs, memory: EventMemory, corner: str = "smooth"
) -> tuple[State, EventMemory, StepperInfo]:
    """Make a step; return the state after it, the new memory, and its info.

    Derivative: that of `repeat_time_step`.
    """
    result: tuple[State, EventMemory, StepperInfo] = _make_step(system, max_events, corner)(inputs, memory)
    return result


@functools.lru_cache(maxsize=64)
def _make_step(system: System, max_events: int, corner: str) -> Callable[..., PyTree]:
    def search(inputs: StepInputs, memory: EventMemory) -> tuple[PyTree, EventRun]:
        found = run_time_step(system, max_events, inputs, memory, corner)
        return found[:3], found

    return differentiate_by_replay(search, functools.partial(repeat_time_step, system, corner))


def repeat_time_step(
    system: System, corner: str, inputs: StepInputs, memory: EventMemory, found: EventRun
) -> tuple[State, EventMemory, StepperInfo]:
    """Repeat the step that `run_time_step` found, with the same values and a derivative.

    Derivative: first order, forward and reverse, by all of `inputs` but `rtol`, and by the impacts
        in memory.
    """
    end, states, blows, pushed = repeat_pieces(system, inputs, memory, found.pieces, corner)
    kind, v = found.pieces.kind, states.v
    (at,) = jnp.nonzero(kind >= IMPACT, size=kind.shape[0], fill_value=kind.shape[0])
    records = {"t": states.t[1:], "v_minus": v[:-1], "v_plus": v[1:], "impulse": blows[:, :, 0]}
    impacts = found.info.impacts.replace(
        **{name: rows.at[at].get(mode="fill", fill_value=0) for name, rows in records.items()}
    )
    info = found.info.replace(impulse=jnp.sum(pushed, axis=0), impacts=impacts)
    chatter = end.chatter._replace(
        participants=found.memory.chatter.participants, used=found.memory.chatter.used
    )
    return end.state, found.memory._replace(chatter=chatter), info


def repeat_pieces(
    system: System, inputs: StepInputs, memory: EventMemory, pieces: EventPieces, corner: str = "smooth"
) -> tuple[Carry, State, jax.Array, jax.Array]:
    """Repeat pieces (K, ...); return the end, states (K + 1) between them, impulses of impacts and of moves.

    Both impulses are (K, nc, dim), N s. A derivative is that of `repeat_time_step`.
    """
    branches = _make_branches(system, pieces.rests.shape[1] > 0, corner)

    def one(start: tuple[Carry, jax.Array], row: tuple[EventPieces, jax.Array]) -> tuple[PyTree, PyTree]:
        (carry, rests), (piece, is_past) = start, row
        at = inputs.params, carry.state, rests
        state, terms = lax.cond(is_past, lambda: (carry.state, nothing), lambda: branches.settle(*at))
        at_piece = _PieceStart(inputs, memory.key, carry._replace(state=state), piece, terms)
        after, *out = lax.switch(jnp.asarray(BRANCH)[piece.kind], branches.kinds, at_piece)
        return (after, piece.rests), (state, *out)

    # One more row, which does nothing, settles the state after the last piece. Later ones are skipped.
    pieces = jax.tree.map(lambda x: jnp.concatenate([x, x[-1:]]), pieces)
    pieces = pieces._replace(kind=pieces.kind.at[-1].set(UNUSED))
    unused = pieces.kind == UNUSED
    is_past = unused & jnp.concatenate([jnp.array([False]), unused[:-1]])
    moves = jnp.full_like(pieces.rests[0], SEPARATE)
    shapes = jax.eval_shape(branches.settle, inputs.params, inputs.state, moves)[1]
    nothing = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), shapes)
    begin = Carry(inputs.state, memory.chatter, memory.number), moves
    (end, _), (states, blows, pushed) = lax.scan(one, begin, (pieces, is_past))
    return end, states, blows[:-1], pushed[:-1]


class _Branches(NamedTuple):
    """Functions whose derivatives are one operation: the settling of a state, and the kinds of pieces.

    A kind is (start of the piece) -> (carry, impulses (nc, dim) of an impact and of a move).
    """

    settle: Callable[..., PyTree]
    kinds: tuple[Callable[..., PyTree], ...]


@functools.lru_cache(maxsize=64)
def _make_branches(system: System, has_contacts: bool, corner: str) -> _Branches:
    move = functools.partial(_repeat_stretch, system)
    kinds = [_repeat_nothing, differentiate_by_replay(_read_stretch, move, has_end=True)]
    if has_contacts:
        collide = _repeat_impact if corner == "smooth" else functools.partial(_repeat_tied_impact, system)
        kinds += [
            differentiate_by_replay(_read_impact, collide),
            differentiate_by_replay(_read_impact, _repeat_jam),
            differentiate_by_replay(_read_chatter, functools.partial(_repeat_skip, system)),
        ]
    read, settle = functools.partial(_read_settling, system), functools.partial(_repeat_settling, system)
    return _Branches(differentiate_by_replay(read, settle), tuple(kinds))


def _read_settling(system: System, params: Params, state: State, rests: jax.Array) -> tuple[PyTree, PyTree]:
    return (state, terms_at(Model(system=system, params=params), state.q, state.t)), ()


def _repeat_settling(
    system: System, params: Params, state: State, rests: jax.Array, log: PyTree
) -> tuple[State, ContactTerms]:
    return remove_drift(Model(system=system, params=params), state, rests)


class _PieceStart(NamedTuple):
    """The start of a piece that is repeated, its `piece` of the log, and the terms there."""

    inputs: StepInputs
    key: jax.Array | None
    carry: Carry
    piece: EventPieces
    terms: ContactTerms


# The log has the end of each piece and its impulses; a derivative needs no other values.


def _repeat_nothing(at: _PieceStart) -> tuple[PyTree, ...]:
    return at.carry, jnp.zeros_like(at.piece.push), jnp.zeros_like(at.piece.push)


def _read_stretch(at: _PieceStart) -> tuple[PyTree, PyTree]:
    return (at.carry._replace(state=at.piece.end), jnp.zeros_like(at.piece.push), at.piece.impulse), ()


def _read_impact(at: _PieceStart) -> tuple[PyTree, PyTree]:
    piece = at.piece
    after = continue_after_impact(at.carry, piece.end.v, piece.participants, piece.breaks)
    return (after._replace(state=piece.end), piece.impulse, jnp.zeros_like(piece.push)), ()


def _read_chatter(at: _PieceStart) -> tuple[PyTree, PyTree]:
    return _repeat_nothing(at._replace(carry=continue_after_chatter(at.carry, at.piece.end))), ()


def _repeat_impact(at: _PieceStart, log: PyTree) -> tuple[PyTree, ...]:
    inputs, key, carry, piece, terms = at
    blow = apply_impact(terms, carry, inputs.law, key, piece.participants, piece.dead, True, piece.impulse)
    after = continue_after_impact(carry, blow.v, piece.participants, piece.breaks)
    return after, blow.impulse, jnp.zeros_like(piece.push)


def _repeat_tied_impact(system: System, at: _PieceStart, log: PyTree) -> tuple[PyTree, ...]:
    """Repeat an impact; if contacts land together, with the one-sided derivative."""
    inputs, key, carry, piece, terms = at
    tie = Tie(inputs, key, carry, piece.participants, piece.jumps, piece.impulse)

    def together() -> tuple[PyTree, ...]:
        state, impulse = land_together(system)(tie)
        after = continue_after_impact(carry, state.v, piece.participants, piece.breaks)
        return after._replace(state=state), impulse, jnp.zeros_like(piece.push)

    strikes = classify_contacts(*lax.stop_gradient((terms, carry.state))).strikes & piece.participants
    return lax.cond(jnp.sum(strikes) > 1, together, lambda: _repeat_impact(at, log))


def _repeat_jam(at: _PieceStart, log: PyTree) -> tuple[PyTree, ...]:
    state, piece, terms = at.carry.state, at.piece, at.terms
    shift = jnp.zeros_like(state.v)
    if terms.surface is not None:
        shift, _ = shared_velocity(terms.replace(active=piece.participants), terms.surface)
    before = make_node(terms, state.q, terms.M @ (state.v + shift), state.t)
    after, push, _ = jam_impact(before, piece.participants, piece.push, True)
    v = after.v - shift
    return continue_after_impact(at.carry, v, piece.participants), push, jnp.zeros_like(piece.push)


def _repeat_skip(system: System, at: _PieceStart, log: PyTree) -> tuple[PyTree, ...]:
    state = extrapolate_chatter(system, at.carry.chatter, at.piece.turns)
    return _repeat_nothing(at._replace(carry=continue_after_chatter(at.carry, state)))


def _repeat_stretch(
    system: System, at: _PieceStart, log: PyTree, late: jax.Array
) -> tuple[tuple[PyTree, ...], PieceEnd]:
    """Repeat a stretch. The log has its length; an event keeps the value that ends the stretch at zero."""
    inputs, _, carry, piece, terms = at
    state, h = carry.state, piece.h + late
    motion = StretchMotion(inputs.params, inputs.controls, piece.modes, inputs.dt)
    trial, looks = step_stretch(system, motion, state.t, start_vector(system, state, terms), h)
    end, pushed, _ = split_vector(system, state.t + h, trial.x1)
    value = jnp.sum(jnp.where(piece.value, looks.value[-1], 0.0))
    to_end = jnp.where(piece.kind == WHOLE, inputs.state.t + inputs.dt - state.t, 0.0)
    out = carry._replace(state=end), jnp.zeros_like(piece.push), pushed
    return out, PieceEnd(value, piece.kind == EVENT, to_end)
