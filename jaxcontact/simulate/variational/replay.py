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

from jaxcontact.mechanics.system import Params, State, System
from jaxcontact.simulate.trajectory import Trajectory
from jaxcontact.simulate.variational.contact_state import Node, arrive, contacts_of, loads, terms_at
from jaxcontact.simulate.variational.discrete_mechanics import repeat_step, step_inverse
from jaxcontact.simulate.variational.event_log import EVENT, IMPACT, UNUSED, Pieces
from jaxcontact.simulate.variational.event_loop import MotionSetting, Run, impact, land, run
from jaxcontact.simulate.variational.impact_event import Law


@functools.partial(jax.custom_jvp, nondiff_argnums=(0, 1, 2, 3, 4))
def motion(
    system: System, order: str | tuple[int, ...], law: Law | None, num_steps: int, max_impacts: int,
    params: Params, state: State, dt: jax.Array, restitution: jax.Array, zeno: jax.Array,
    key: jax.Array | None,
) -> Trajectory:  # fmt: skip
    """The motion over `num_steps` steps of dt from `state`; arguments as `variational`.

    Derivative: that of `replay`; NaN where there are more than `max_impacts` impacts.
    """
    numbers = (dt, restitution, zeno, key)
    return run(system, params, state, *numbers, order, law, num_steps, max_impacts, 0).trajectory


@motion.defjvp
def _motion_jvp(
    system: System, order: str | tuple[int, ...], law: Law | None, num_steps: int, max_impacts: int,
    primals: tuple[Any, ...], tangents: tuple[Any, ...],
) -> tuple[Any, Any]:  # fmt: skip
    params, state, dt, restitution, zeno, key = primals
    max_pieces = num_steps + 2 * max_impacts
    numbers = (dt, restitution, zeno, key)
    found = run(system, params, state, *numbers, order, law, num_steps, max_impacts, max_pieces)

    def again(params: Params, state: State, dt: jax.Array, restitution: jax.Array) -> Trajectory:
        return replay(system, params, state, dt, MotionSetting(restitution, zeno, key, order, law), found)

    _, tangent = jax.jvp(again, primals[:4], tangents[:4])
    return found.trajectory, tangent


def replay(
    system: System, params: Params, state: State, dt: jax.Array, setting: MotionSetting, found: Run
) -> Trajectory:
    """The motion that `run` found, with the same values and a derivative.

    Derivative: first order, forward and reverse, by params, state, dt and restitution.
    """
    terms = terms_at(system, params, state.q, state.t)
    start = arrive(terms, state.q, terms.M @ state.v, jnp.asarray(state.t, state.q.dtype))
    pieces, known = found.pieces, found.trajectory

    def one(carry: tuple[Node, jax.Array], piece: Pieces) -> tuple[Any, Any]:
        node, number = carry
        t_end = start.t + (piece.step + 1) * dt

        def rest(_: None) -> tuple[Any, ...]:
            return node, jnp.zeros_like(node.terms.phi), jnp.zeros_like(piece.impulse)

        def collide(_: None) -> tuple[Any, ...]:
            after, hit = impact(setting, node, piece.who, piece.plastic, number, piece.order)
            return after, hit.impulse, jnp.zeros_like(piece.impulse)

        def move(_: None) -> tuple[Any, ...]:
            after, pushed = _move(system, params, node, piece, t_end, dt)
            return after, jnp.zeros_like(node.terms.phi), pushed

        branches = (rest, move) if node.terms.phi.shape[0] == 0 else (rest, move, collide)
        which = jnp.where(piece.kind == UNUSED, 0, jnp.where(piece.kind == IMPACT, 2, 1))
        after, blow, pushed = lax.switch(which, branches, None)
        after = after._replace(closed=piece.closed)
        row = (after.q, after.v, after.t, pushed, node.t, node.v, after.v, blow)
        return (after, number + (piece.kind == IMPACT)), row

    _, rows = lax.scan(one, (start, jnp.int32(0)), pieces)
    room = pieces.kind.shape[0]
    # Where pieces are missing, numbers are no longer known, nor are their derivatives.
    trust = jnp.where(found.num_pieces > room, jnp.nan, 1.0).astype(start.q.dtype)
    q, v, t, pushed, *blows = (row * trust for row in rows)
    ends = (
        jnp.concatenate([first[None], row[found.ends]])
        for first, row in zip((start.q, start.v, start.t), (q, v, t), strict=True)
    )
    (at,) = jnp.nonzero(pieces.kind == IMPACT, size=known.impacts.t.shape[0], fill_value=room)
    names = ("t", "v_minus", "v_plus", "impulse")
    records = {n: row.at[at].get(mode="fill", fill_value=0) for n, row in zip(names, blows, strict=True)}
    return known.replace(
        states=State(**dict(zip(("q", "v", "t"), ends, strict=True))),
        impulse=jnp.zeros_like(known.impulse).at[pieces.step].add(pushed),
        impacts=known.impacts.replace(**records),
    )


def _move(
    system: System, params: Params, node: Node, piece: Pieces, t_end: jax.Array, dt: jax.Array
) -> tuple[Node, jax.Array]:
    """The node behind a move, and the impulses (nc, dim) of its contacts.

    A move that ends on an event is known with its length; the length that keeps the gap, or the load of a
    closed contact, at zero moves the node along the rates of the step.
    """
    contacts = contacts_of(node.terms, node.closed)
    fixed = lax.stop_gradient((params, node.q, node.t))
    inverse = step_inverse(system, *fixed, piece.w, piece.h)
    lets_go = (piece.kind == EVENT) & jnp.any(piece.who & node.closed)

    def step(h: jax.Array) -> tuple[Any, ...]:
        found = repeat_step(
            system, params, node.q, node.p, node.t, piece.w, piece.impulse, inverse, contacts, h
        )
        after, second, _ = land(system, params, node, found.q, found.p, node.t + h, piece.second)
        value = found.phi
        if value.shape[0]:
            guess = piece.impulse / piece.h
            value = lax.cond(
                lets_go, lambda: loads(system, params, after, node.closed, dt, guess)[0], lambda: value
            )
        return (after, found.impulse + second), value

    found, rates, value, rate = _with_rates(step, piece.h)
    value, rate = (jnp.sum(jnp.where(piece.who, x, 0.0)) for x in (value, rate))
    event = -value / jnp.where(rate != 0, rate, 1.0)
    later = jnp.where(piece.kind == EVENT, event, t_end - node.t)
    later = later - lax.stop_gradient(later)  # zero, with the derivative of the length
    return jax.tree.map(lambda x, by: x if x.dtype == bool else x + later * by, found, rates)


def _with_rates(step: Any, h: jax.Array) -> tuple[Any, Any, jax.Array, jax.Array]:
    """Both results of `step` at h, each with its rate, which carries no derivative."""
    (found, value), (rates, rate) = jax.jvp(step, (h,), (jnp.ones_like(h),))
    rates = jax.tree.map(lambda x, by: x if x.dtype == bool else lax.stop_gradient(by), found, rates)
    return found, rates, value, lax.stop_gradient(rate)
