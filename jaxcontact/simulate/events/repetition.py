"""The repetition of a time step, piece by piece, as a function with a derivative, forward and reverse.

Owns the derivative of a step: the list of pieces and the modes of contact come from the search; the times
of events follow by the implicit rule. Entry: `event_step`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxcontact.algebra.replay_rule import differentiate_at_once, differentiate_by_replay
from jaxcontact.mechanics.system import Model, Params, State, System
from jaxcontact.simulate.events.accumulation import ahead
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
    Given,
)
from jaxcontact.simulate.events.pieces import behind_chatter, behind_impact, impact
from jaxcontact.simulate.events.stretch import StretchMotion, parts, point_of, settled, start_vector, step
from jaxcontact.simulate.events.time_step import EventRun, run
from jaxcontact.simulate.stepper import StepperInfo
from jaxcontact.simulate.variational.contact_state import arrive, terms_at
from jaxcontact.simulate.variational.jam import jolt
from jaxcontact.solvers.contact_problem import SEPARATE
from jaxcontact.terms import ContactTerms

# The branch that repeats a piece of each kind: 0 nothing, 1 a stretch, 2 an impact, 3 a jam, 4 a skip.
BRANCH = np.zeros(7, np.int32)
BRANCH[[WHOLE, PART, EVENT]], BRANCH[[IMPACT, JAM, SKIP]] = 1, [2, 3, 4]


def event_step(
    system: System, max_events: int, given: Given, memory: EventMemory
) -> tuple[State, EventMemory, StepperInfo]:
    """Make a step; return the state after it, the new memory, and its info.

    Derivative: that of `repeated`.
    """
    result: tuple[State, EventMemory, StepperInfo] = _paired(system, max_events)(given, memory)
    return result


@functools.lru_cache(maxsize=64)
def _paired(system: System, max_events: int) -> Callable[..., Any]:
    def search(given: Given, memory: EventMemory) -> tuple[Any, EventRun]:
        found = run(system, max_events, given, memory)
        return found[:3], found

    return differentiate_by_replay(search, functools.partial(repeated, system))


def repeated(
    system: System, given: Given, memory: EventMemory, found: EventRun
) -> tuple[State, EventMemory, StepperInfo]:
    """Repeat the step that `run` found, with the same values and a derivative.

    Derivative: first order, forward and reverse, by all of `given` but `rtol`, and by the remembered impacts.
    """
    branches = _branches(system)

    def one(carry: Carry, piece: EventPieces) -> tuple[Carry, Any]:
        before = carry.state
        terms = branches.terms(given.params, before.q, before.t)
        after, *row = lax.switch(
            jnp.asarray(BRANCH)[piece.kind], branches.kinds, given, memory.key, carry, piece, terms
        )
        return after, (after.state.t, before.v, after.state.v, *row)

    begin = Carry(given.state, memory.chatter, memory.number)
    end, (t, v_minus, v_plus, blows, pushed) = lax.scan(one, begin, found.pieces)
    (at,) = jnp.nonzero(found.pieces.kind >= IMPACT, size=t.shape[0], fill_value=t.shape[0])
    records = {"t": t, "v_minus": v_minus, "v_plus": v_plus, "impulse": blows}
    impacts = found.info.impacts.replace(
        **{name: rows.at[at].get(mode="fill", fill_value=0) for name, rows in records.items()}
    )
    info = found.info.replace(impulse=jnp.sum(pushed, axis=0), impacts=impacts)
    chatter = end.chatter._replace(who=found.memory.chatter.who, used=found.memory.chatter.used)
    return end.state, found.memory._replace(chatter=chatter), info


class _Branches(NamedTuple):
    """Functions whose derivatives are one operation: the terms at a state, and the kinds of pieces.

    A kind is (given, key, carry, piece, terms) -> (carry, impulses (nc,) of an impact, (nc, dim) of a move).
    """

    terms: Callable[..., Any]
    kinds: tuple[Callable[..., Any], ...]


@functools.lru_cache(maxsize=64)
def _branches(system: System) -> _Branches:
    kinds = [_read_nothing, differentiate_by_replay(_read_move, functools.partial(_move, system))]
    if system.structure.num_contacts:
        kinds += [
            differentiate_by_replay(_read_impact, _collide),
            differentiate_by_replay(_read_impact, _jam),
            differentiate_by_replay(_read_chatter, functools.partial(_skip, system)),
        ]
    return _Branches(differentiate_at_once(functools.partial(_terms, system)), tuple(kinds))


def _terms(system: System, params: Params, q: jax.Array, t: jax.Array) -> ContactTerms:
    return terms_at(Model(system=system, params=params), q, t)


# The log has the end of each piece; a derivative needs no other values, and no impulses.


def _read_nothing(given: Given, key: Any, carry: Carry, piece: EventPieces, terms: Any) -> tuple[Any, ...]:
    return carry, jnp.zeros_like(piece.push[:, 0]), jnp.zeros_like(piece.push)


def _read_move(given: Given, key: Any, carry: Carry, piece: EventPieces, terms: Any) -> tuple[Any, Any]:
    return _read_nothing(given, key, carry._replace(state=piece.end), piece, terms), ()


def _read_impact(given: Given, key: Any, carry: Carry, piece: EventPieces, terms: Any) -> tuple[Any, Any]:
    after = behind_impact(carry, piece.end.v, piece.who, piece.breaks)
    return _read_nothing(given, key, after._replace(state=piece.end), piece, terms), ()


def _read_chatter(given: Given, key: Any, carry: Carry, piece: EventPieces, terms: Any) -> tuple[Any, Any]:
    return _read_nothing(given, key, behind_chatter(carry, piece.end), piece, terms), ()


def _collide(
    given: Given, key: Any, carry: Carry, piece: EventPieces, terms: ContactTerms, log: Any
) -> tuple[Any, ...]:
    blow = impact(terms, carry, given.law, key, piece.who, piece.dead, True, False)
    after = behind_impact(carry, blow.v, piece.who, piece.breaks)
    return after, blow.impulse, jnp.zeros_like(piece.push)


def _jam(
    given: Given, key: Any, carry: Carry, piece: EventPieces, terms: ContactTerms, log: Any
) -> tuple[Any, ...]:
    state = carry.state
    after, push, _ = jolt(arrive(terms, state.q, terms.M @ state.v, state.t), piece.who, piece.push)
    return behind_impact(carry, after.v, piece.who), push[:, 0], jnp.zeros_like(piece.push)


def _skip(
    system: System,
    given: Given,
    key: Any,
    carry: Carry,
    piece: EventPieces,
    terms: ContactTerms,
    log: Any,
) -> tuple[Any, ...]:
    after = behind_chatter(carry, ahead(system, carry.chatter, piece.turns))
    state = settled(Model(system=system, params=given.params), after.state, piece.rests)
    return after._replace(state=state), jnp.zeros_like(piece.push[:, 0]), jnp.zeros_like(piece.push)


def _move(
    system: System,
    given: Given,
    key: Any,
    carry: Carry,
    piece: EventPieces,
    terms: ContactTerms,
    log: Any,
) -> tuple[Any, ...]:
    """Repeat a stretch.

    The log has its length. Its derivative keeps the value that ends the stretch at zero; it moves the end
    along the rates there.
    """
    state = carry.state
    motion = StretchMotion(given.params, given.controls, piece.modes, given.dt)
    trial, looks = step(system, motion, state.t, start_vector(system, state, terms), piece.h)
    value, gap_rate = looks.value[-1], looks.rate[-1]
    # Rates carry no derivative, so they are taken at numbers that have none.
    fixed, slope, t, y = lax.stop_gradient((motion, trial.k[6], state.t + piece.h, trial.x1))

    def by_time() -> jax.Array:
        point = functools.partial(point_of(system), fixed)
        rate: jax.Array = jax.jvp(lambda *at: point(*at)[1].value, (t, y), (jnp.ones_like(t), slope))[1]
        return rate

    later = jnp.where(piece.kind == WHOLE, given.state.t + given.dt - state.t, 0.0)
    if value.shape[0]:
        opens = piece.value & (piece.modes.kind != SEPARATE)[:, None]
        rate = lax.cond(jnp.any(opens), by_time, lambda: jnp.zeros_like(value).at[:, 0].set(gap_rate))
        value, rate = (jnp.sum(jnp.where(piece.value, x, 0.0)) for x in (value, lax.stop_gradient(rate)))
        later = jnp.where(piece.kind == EVENT, -value / jnp.where(rate != 0, rate, 1.0), later)
    later = later - lax.stop_gradient(later)  # zero, with the derivative of the length
    end, pushed, _ = parts(system, state.t + piece.h + later, trial.x1 + later * slope)
    end = settled(Model(system=system, params=given.params), end, piece.rests)
    return carry._replace(state=end), jnp.zeros_like(piece.push[:, 0]), pushed
