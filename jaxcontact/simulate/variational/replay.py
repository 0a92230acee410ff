"""The repetition of a motion, piece by piece, as a function that has a derivative, forward and reverse.

Owns the derivative of a motion: the list of pieces, the modes of contact and the orders of single impacts
come from the run; the ends of moves at an event follow by the implicit rule. Entry: `compute_motion`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from jaxcontact._pytree import PyTree
from jaxcontact.algebra.replay_rule import PieceEnd, differentiate_at_once, differentiate_by_replay
from jaxcontact.mechanics.system import Model, Params, State, System
from jaxcontact.simulate.steppers.dry_joints import dry_rows
from jaxcontact.simulate.trajectory import Trajectory
from jaxcontact.simulate.variational.contact_state import (
    Node,
    contact_loads,
    contacts_of,
    drag_at,
    make_end_node,
    make_node,
    terms_and_joints,
)
from jaxcontact.simulate.variational.discrete_mechanics import repeat_step
from jaxcontact.simulate.variational.discrete_momenta import Start
from jaxcontact.simulate.variational.event_log import EVENT, IMPACT, JAM, UNUSED, MotionPieces
from jaxcontact.simulate.variational.event_loop import apply_impact, run_motion
from jaxcontact.simulate.variational.jam import jam_impact
from jaxcontact.simulate.variational.joint_rows import JointRows, num_dry
from jaxcontact.simulate.variational.motion_records import (
    ImpactSetting,
    MotionChoice,
    MotionMemory,
    MotionNumbers,
    RecordedMotion,
)
from jaxcontact.terms import ContactTerms

PIECES = 3  # of the log for each impact on record: its event, the impact, the move after it


def compute_motion(
    system: System, choice: MotionChoice, numbers: MotionNumbers, memory: MotionMemory
) -> tuple[Trajectory, MotionMemory]:
    """Move over `num_steps` steps of dt; return the motion and the memory of its impacts.

    Derivative: that of `replay`; NaN if there are more than `max_impacts` impacts.
    """
    result: tuple[Trajectory, MotionMemory] = _make_motion(system, choice)(numbers, memory)
    return result


@functools.lru_cache(maxsize=64)
def _make_motion(system: System, choice: MotionChoice) -> Callable[..., PyTree]:
    def move(numbers: MotionNumbers, memory: MotionMemory) -> tuple[Trajectory, MotionMemory]:
        return run_motion(system, choice, 0, numbers, memory)[:2]

    def search(numbers: MotionNumbers, memory: MotionMemory) -> tuple[PyTree, RecordedMotion]:
        found = run_motion(system, choice, choice.num_steps + PIECES * choice.max_impacts, numbers, memory)
        return found[:2], found

    def again(
        numbers: MotionNumbers, memory: MotionMemory, found: RecordedMotion
    ) -> tuple[Trajectory, MotionMemory]:
        return replay(system, choice, numbers, memory, found), found.memory

    return differentiate_by_replay(search, again, value=move)


def replay(
    system: System,
    choice: MotionChoice,
    numbers: MotionNumbers,
    memory: MotionMemory,
    recorded: RecordedMotion,
) -> Trajectory:
    """Repeat the motion that `run_motion` found, with the same values and a derivative.

    Derivative: first order, forward and reverse, by all numbers but `zeno`.
    """
    params, state = numbers.params, numbers.state
    dry = dry_rows(Model(system=system, params=params))
    num_rubbing = 0 if dry is None else dry.bound.shape[0]
    branches = _piece_functions(system, choice, recorded.pieces.participants.shape[1] > num_rubbing)
    pieces, trajectory = recorded.pieces, recorded.trajectory
    t_start = jnp.asarray(state.t, state.q.dtype)
    terms, joints = branches.terms(params, state.q, t_start)
    closed = trajectory.contacts[0]
    start = Node(state.q, terms.M @ state.v, state.v, t_start, terms, closed, joints)

    def one(carry: tuple[Node, jax.Array], piece: MotionPieces) -> tuple[PyTree, PyTree]:
        node, number = carry
        strikes = (piece.kind == IMPACT) | (piece.kind == JAM)
        moves = jnp.where(piece.kind == UNUSED, 0, 1)
        which = jnp.where(strikes, jnp.where(piece.kind == JAM, 3, 2), moves)
        at = _PieceAtNode(numbers, memory.key, node, number, piece)
        after, blow, pushed = lax.switch(which, branches.kinds, at)
        row = (after.q, after.v, after.t, pushed, node.t, node.v, after.v, blow)
        return (after._replace(closed=piece.closed), number + strikes), row

    _, rows = lax.scan(one, (start, memory.number), pieces)
    capacity = pieces.kind.shape[0]
    # If pieces are missing, neither the numbers nor their derivatives are known.
    trust = jnp.where(recorded.num_pieces > capacity, jnp.nan, 1.0).astype(start.q.dtype)
    q, v, t, pushed, *blows = (row * trust for row in rows)
    ends = (
        jnp.concatenate([first[None], row[recorded.ends]])
        for first, row in zip((start.q, start.v, start.t), (q, v, t), strict=True)
    )
    (at,) = jnp.nonzero(
        (pieces.kind == IMPACT) | (pieces.kind == JAM),
        size=trajectory.impacts.t.shape[0],
        fill_value=capacity,
    )
    names = ("t", "v_minus", "v_plus", "impulse")
    records = {n: row.at[at].get(mode="fill", fill_value=0) for n, row in zip(names, blows, strict=True)}
    impulse = jnp.zeros_like(trajectory.impulse).at[pieces.step].add(pushed)
    return trajectory.replace(
        states=State(**dict(zip(("q", "v", "t"), ends, strict=True))),
        impulse=impulse,
        info=trajectory.info.replace(impulse=impulse),
        impacts=trajectory.impacts.replace(**records),
    )


class _PieceFunctions(NamedTuple):
    """Functions whose derivatives are one operation: the terms at a configuration, and the kinds of pieces.

    A kind is (start of the piece) -> (node, impulses (nc,) of an impact, (nc, dim) of a move).
    """

    terms: Callable[..., PyTree]
    kinds: tuple[Callable[..., PyTree], ...]


@functools.lru_cache(maxsize=64)
def _piece_functions(system: System, choice: MotionChoice, has_contacts: bool) -> _PieceFunctions:
    read, move = functools.partial(_read_move, system), functools.partial(_repeat_move, system)
    kinds = [_repeat_nothing, differentiate_by_replay(read, move, has_end=True)]
    if has_contacts:
        collide = functools.partial(_repeat_impact, choice)
        kinds += [differentiate_by_replay(_read_impact, kind) for kind in (collide, _repeat_jam)]
    return _PieceFunctions(differentiate_at_once(functools.partial(_terms, system)), tuple(kinds))


def _terms(
    system: System, params: Params, q: jax.Array, t: jax.Array
) -> tuple[ContactTerms, JointRows | None]:
    return terms_and_joints(Model(system=system, params=params), q, t)


class _PieceAtNode(NamedTuple):
    """The node at which a piece is repeated, the number of the next impact, and its `piece` of the log."""

    numbers: MotionNumbers
    key: jax.Array | None
    node: Node
    number: jax.Array
    piece: MotionPieces


def _repeat_nothing(at: _PieceAtNode) -> tuple[PyTree, ...]:
    return at.node, jnp.zeros_like(at.node.terms.phi), jnp.zeros_like(at.piece.impulse)


# The log has the end of each piece; a derivative needs no other values, and no impulses.


def _read_move(system: System, at: _PieceAtNode) -> tuple[tuple[PyTree, ...], tuple]:
    terms, joints = _terms(system, at.numbers.params, at.piece.q, at.piece.t)
    after = make_node(terms, at.piece.q, at.piece.p, at.piece.t, joints)
    return _repeat_nothing(at._replace(node=after)), ()


def _read_impact(at: _PieceAtNode) -> tuple[tuple[PyTree, ...], tuple]:
    after = make_node(at.node.terms, at.piece.q, at.piece.p, at.piece.t, at.node.joints)
    return _repeat_nothing(at._replace(node=after)), ()


def _repeat_impact(choice: MotionChoice, at: _PieceAtNode, log: PyTree) -> tuple[PyTree, ...]:
    numbers, key, node, number, piece = at
    setting = ImpactSetting(numbers.restitution, numbers.zeno, key, number, choice.order, numbers.law)
    after, hit = apply_impact(setting, node, piece.participants, piece.plastic, number, piece.order)
    return after, hit.impulse, jnp.zeros_like(piece.impulse)


def _repeat_jam(at: _PieceAtNode, log: PyTree) -> tuple[PyTree, ...]:
    after, found, _ = jam_impact(at.node, at.piece.participants, at.piece.impulse, True)
    return after, found[:, 0], jnp.zeros_like(at.piece.impulse)


def _repeat_move(
    system: System, at: _PieceAtNode, log: PyTree, late: jax.Array
) -> tuple[tuple[PyTree, ...], PieceEnd]:
    """Repeat a move.

    The log has its length. An event keeps the gap, the load of a closed contact, or the speed of a dry joint
    at zero.
    """
    numbers, _, node, _, piece = at
    model, h = Model(system=system, params=numbers.params), piece.h + late
    controls = None if numbers.controls is None else numbers.controls[piece.step]
    contacts, drags = contacts_of(node.terms, node.closed, node.joints), drag_at(node)
    start = Start(node.q, node.p, node.t, controls, drags)
    step = repeat_step(model, start, piece.w, piece.impulse, piece.slopes, contacts, h)
    after, second, _ = make_end_node(model, node, (step.q, step.p, node.t + h), h, piece.second, True)
    value = after.terms.phi
    if num_dry(node.joints):
        assert node.joints is not None and node.joints.dry is not None
        value = value.at[-num_dry(node.joints) :].set(node.joints.dry.rows @ after.v)
    if value.shape[0] > num_dry(node.joints):
        lets_go = (piece.kind == EVENT) & jnp.any(piece.participants & node.closed)
        guess = piece.impulse / jnp.where(piece.h > 0, piece.h, 1.0)
        value = lax.cond(
            lets_go,
            lambda: contact_loads(model, after, node.closed, numbers.dt, guess, controls, drags)[0],
            lambda: value,
        )
    to_end = numbers.state.t + (piece.step + 1) * numbers.dt - node.t
    end = PieceEnd(jnp.sum(jnp.where(piece.participants, value, 0.0)), piece.kind == EVENT, to_end)
    return (after, jnp.zeros_like(node.terms.phi), step.impulse + second), end
