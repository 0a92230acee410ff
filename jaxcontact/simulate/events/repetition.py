"""A time step again, piece by piece, as a function that one can differentiate, forward and reverse.

Owns the derivative of a step: which pieces there are and the modes of contact come from the search; the
times of events follow by the implicit rule.
"""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxcontact.mechanics.system import Model, State, System
from jaxcontact.precision import all_digits
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
from jaxcontact.simulate.events.stretch import StretchMotion, look, parts, settled, start_vector, step
from jaxcontact.simulate.events.time_step import EventRun, run
from jaxcontact.simulate.stepper import StepperInfo
from jaxcontact.simulate.variational.contact_state import arrive, terms_at
from jaxcontact.simulate.variational.jam import jolt

# Which branch repeats a piece: nothing, a stretch, an impact, a jam, impacts left out.
BRANCH = np.zeros(7, np.int32)
BRANCH[[WHOLE, PART, EVENT]], BRANCH[[IMPACT, JAM, SKIP]] = 1, [2, 3, 4]


@functools.partial(jax.custom_jvp, nondiff_argnums=(0, 1))
def event_step(
    system: System, max_events: int, given: Given, memory: EventMemory
) -> tuple[State, EventMemory, StepperInfo]:
    """The state after a step, what it leaves to remember, and its info.

    Derivative: that of `repeated`.
    """
    return run(system, max_events, given, memory)[:3]


@event_step.defjvp
@all_digits
def _event_step_jvp(
    system: System, max_events: int, primals: tuple[Any, ...], tangents: tuple[Any, ...]
) -> tuple[Any, Any]:
    found = run(system, max_events, *primals)

    def again(given: Given, memory: EventMemory) -> Any:
        return repeated(system, given, memory, found)

    _, moved = jax.jvp(again, primals, tangents)
    return found[:3], moved


def repeated(
    system: System, given: Given, memory: EventMemory, found: EventRun
) -> tuple[State, EventMemory, StepperInfo]:
    """The step that `run` found, with the same values and a derivative.

    Derivative: first order, forward and reverse, by all of `given` but `rtol`, and by the remembered impacts.
    """
    t_end = given.state.t + given.dt
    nc = found.pieces.who.shape[1]

    def one(carry: Carry, piece: EventPieces) -> tuple[Carry, Any]:
        nothing = jnp.zeros_like(piece.push[:, 0]), jnp.zeros_like(piece.push)
        terms = terms_at(Model(system=system, params=given.params), carry.state.q, carry.state.t)

        def rest() -> tuple[Any, ...]:
            return carry, *nothing

        def move() -> tuple[Any, ...]:
            state, pushed = _moved(system, given, carry.state, piece, t_end)
            return carry._replace(state=state), nothing[0], pushed

        def collide() -> tuple[Any, ...]:
            blow = impact(terms, carry, given.law, memory.key, piece.who, piece.dead, True, False)
            return behind_impact(carry, blow.v, piece.who, piece.breaks), blow.impulse, nothing[1]

        def jolted() -> tuple[Any, ...]:
            after, push, _ = jolt(
                arrive(terms, carry.state.q, terms.M @ carry.state.v, carry.state.t), piece.who, piece.push
            )
            return behind_impact(carry, after.v, piece.who), push[:, 0], nothing[1]

        def skip() -> tuple[Any, ...]:
            return behind_chatter(carry, ahead(system, carry.chatter, piece.turns)), *nothing

        branches = (rest, move, collide, jolted, skip)
        after, blow, pushed = lax.switch(jnp.asarray(BRANCH)[piece.kind], branches if nc else branches[:2])
        v = after.state.v
        after = after._replace(
            state=settled(Model(system=system, params=given.params), after.state, piece.rests)
        )
        return after, (after.state.t, carry.state.v, v, blow, pushed)

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


def _moved(
    system: System, given: Given, state: State, piece: EventPieces, t_end: jax.Array
) -> tuple[State, jax.Array]:
    """The state behind a stretch, and the impulses (nc, dim) of its contacts.

    Its length is known; the length that keeps what ends it at zero moves the end along its rates.
    """
    motion = StretchMotion(given.params, given.controls, piece.modes, given.dt)

    def along(h: jax.Array) -> tuple[Any, jax.Array]:
        y = start_vector(Model(system=system, params=given.params), state)
        end, impulse, slip = parts(system, state.t + h, step(system, motion, state.t, y, h).x1)
        return (end, impulse), look(system, motion, end, slip).value

    (ahead, value), (rates, rate) = jax.jvp(along, (piece.h,), (jnp.ones_like(piece.h),))
    rates, rate = lax.stop_gradient((rates, rate))
    value, rate = (jnp.sum(jnp.where(piece.value, x, 0.0)) for x in (value, rate))
    event = -value / jnp.where(rate != 0, rate, 1.0)
    whole = t_end - state.t
    later = jnp.where(piece.kind == EVENT, event, jnp.where(piece.kind == WHOLE, whole, 0.0))
    later = later - lax.stop_gradient(later)  # zero, with the derivative of the length
    moved: tuple[State, jax.Array] = jax.tree.map(lambda x, by: x + later * by, ahead, rates)
    return moved
