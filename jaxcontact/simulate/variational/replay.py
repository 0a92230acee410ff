"""A motion again, piece by piece, as a function that one can differentiate, forward and reverse.

Owns the derivative of a motion: which pieces there are, the modes of contact and the orders of single impacts
come from the run; the ends of moves at an event follow by the implicit rule.
"""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from jaxcontact.mechanics.system import Model, State, System
from jaxcontact.precision import all_digits
from jaxcontact.simulate.trajectory import Trajectory
from jaxcontact.simulate.variational.contact_state import Node, contacts_of, land, loads
from jaxcontact.simulate.variational.discrete_mechanics import Start, repeat_step, step_inverse
from jaxcontact.simulate.variational.event_log import EVENT, IMPACT, JAM, UNUSED, Pieces
from jaxcontact.simulate.variational.event_loop import (
    ImpactSetting,
    MotionChoice,
    MotionMemory,
    MotionNumbers,
    Run,
    impact,
    impact_setting,
    run,
    start_of,
)
from jaxcontact.simulate.variational.jam import jolt


@functools.partial(jax.custom_jvp, nondiff_argnums=(0, 1))
def motion(
    system: System, choice: MotionChoice, numbers: MotionNumbers, memory: MotionMemory
) -> tuple[Trajectory, MotionMemory]:
    """The motion over `num_steps` steps of dt, and what it remembers of its impacts.

    Derivative: that of `replay`; NaN where there are more than `max_impacts` impacts.
    """
    motion_run = run(system, choice, 0, numbers, memory)
    return motion_run.trajectory, motion_run.memory


@motion.defjvp
@all_digits
def _motion_jvp(
    system: System, choice: MotionChoice, primals: tuple[Any, ...], tangents: tuple[Any, ...]
) -> tuple[Any, Any]:
    numbers, memory = primals
    motion_run = run(system, choice, choice.num_steps + 2 * choice.max_impacts, numbers, memory)

    def again(numbers: MotionNumbers) -> Trajectory:
        return replay(system, numbers, impact_setting(choice, numbers, memory), motion_run)

    _, tangent = jax.jvp(again, (numbers,), tangents[:1])
    # What is remembered decides only which impacts are plastic.
    remembered = tangents[1]._replace(last=jnp.zeros_like(motion_run.memory.last))
    return (motion_run.trajectory, motion_run.memory), (tangent, remembered)


def replay(system: System, numbers: MotionNumbers, setting: ImpactSetting, recorded: Run) -> Trajectory:
    """The motion that `run` found, with the same values and a derivative.

    Derivative: first order, forward and reverse, by all numbers but `zeno`.
    """
    params, dt = numbers.params, numbers.dt
    start = start_of(Model(system=system, params=params), numbers.state)
    pieces, known = recorded.pieces, recorded.trajectory

    def one(carry: tuple[Node, jax.Array], piece: Pieces) -> tuple[Any, Any]:
        node, number = carry
        t_end = start.t + (piece.step + 1) * dt

        def rest(_: None) -> tuple[Any, ...]:
            return node, jnp.zeros_like(node.terms.phi), jnp.zeros_like(piece.impulse)

        def collide(_: None) -> tuple[Any, ...]:
            after, hit = impact(setting, node, piece.who, piece.plastic, number, piece.order)
            return after, hit.impulse, jnp.zeros_like(piece.impulse)

        def jolted(_: None) -> tuple[Any, ...]:
            after, found = jolt(node, piece.who, piece.impulse)[:2]
            return after, found[:, 0], jnp.zeros_like(piece.impulse)

        def move(_: None) -> tuple[Any, ...]:
            controls = None if numbers.controls is None else numbers.controls[piece.step]
            after, pushed = _move(Model(system=system, params=params), node, piece, t_end, dt, controls)
            return after, jnp.zeros_like(node.terms.phi), pushed

        branches: tuple[Any, ...] = (
            (rest, move) if node.terms.phi.shape[0] == 0 else (rest, move, collide, jolted)
        )
        strikes = (piece.kind == IMPACT) | (piece.kind == JAM)
        which = jnp.where(piece.kind == UNUSED, 0, jnp.where(strikes, jnp.where(piece.kind == JAM, 3, 2), 1))
        after, blow, pushed = lax.switch(which, branches, None)
        after = after._replace(closed=piece.closed)
        row = (after.q, after.v, after.t, pushed, node.t, node.v, after.v, blow)
        return (after, number + strikes), row

    _, rows = lax.scan(one, (start, setting.first), pieces)
    room = pieces.kind.shape[0]
    # Where pieces are missing, numbers are no longer known, nor are their derivatives.
    trust = jnp.where(recorded.num_pieces > room, jnp.nan, 1.0).astype(start.q.dtype)
    q, v, t, pushed, *blows = (row * trust for row in rows)
    ends = (
        jnp.concatenate([first[None], row[recorded.ends]])
        for first, row in zip((start.q, start.v, start.t), (q, v, t), strict=True)
    )
    (at,) = jnp.nonzero(
        (pieces.kind == IMPACT) | (pieces.kind == JAM), size=known.impacts.t.shape[0], fill_value=room
    )
    names = ("t", "v_minus", "v_plus", "impulse")
    records = {n: row.at[at].get(mode="fill", fill_value=0) for n, row in zip(names, blows, strict=True)}
    impulse = jnp.zeros_like(known.impulse).at[pieces.step].add(pushed)
    return known.replace(
        states=State(**dict(zip(("q", "v", "t"), ends, strict=True))),
        impulse=impulse,
        info=known.info.replace(impulse=impulse),
        impacts=known.impacts.replace(**records),
    )


def _move(
    model: Model, node: Node, piece: Pieces, t_end: jax.Array, dt: jax.Array,
    controls: jax.Array | None,
) -> tuple[Node, jax.Array]:  # fmt: skip
    """The node behind a move, and the impulses (nc, dim) of its contacts.

    A move that ends on an event is known with its length; the length that keeps the gap, or the load of a
    closed contact, at zero moves the node along the rates of the step.
    """
    contacts = contacts_of(node.terms, node.closed)
    start = Start(node.q, node.p, node.t, controls)
    inverse = step_inverse(*lax.stop_gradient((model, start)), piece.w, piece.h)
    lets_go = (piece.kind == EVENT) & jnp.any(piece.who & node.closed)

    def step(h: jax.Array) -> tuple[Any, ...]:
        step_taken = repeat_step(model, start, piece.w, piece.impulse, inverse, contacts, h)
        after, second, _ = land(model, node, step_taken.q, step_taken.p, node.t + h, piece.second)
        value = step_taken.phi
        if value.shape[0]:
            guess = piece.impulse / piece.h

            def load() -> jax.Array:
                return loads(model, after, node.closed, dt, guess, controls)[0]

            value = lax.cond(lets_go, load, lambda: value)
        return (after, step_taken.impulse + second), value

    step_taken, rates, value, rate = _with_rates(step, piece.h)
    value, rate = (jnp.sum(jnp.where(piece.who, x, 0.0)) for x in (value, rate))
    event = -value / jnp.where(rate != 0, rate, 1.0)
    later = jnp.where(piece.kind == EVENT, event, t_end - node.t)
    later = later - lax.stop_gradient(later)  # zero, with the derivative of the length
    return jax.tree.map(lambda x, by: x if x.dtype == bool else x + later * by, step_taken, rates)


def _with_rates(step: Any, h: jax.Array) -> tuple[Any, Any, jax.Array, jax.Array]:
    """Both results of `step` at h, each with its rate, which carries no derivative."""
    (values, value), (rates, rate) = jax.jvp(step, (h,), (jnp.ones_like(h),))
    rates = jax.tree.map(lambda x, by: x if x.dtype == bool else lax.stop_gradient(by), values, rates)
    return values, rates, value, lax.stop_gradient(rate)
