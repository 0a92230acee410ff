"""Motion over impulse and time under an impact law, in the plane and in space, with a derivative.

Owns the sum s of time and normal impulses along the pieces of an event-driven motion, and its end at a given
s. Entry: `augmented_motion`. Page: docs/papers/halm_posa.md.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from jaxcontact._pytree import PyTree
from jaxcontact.algebra.replay_rule import differentiate_by_replay
from jaxcontact.arguments import check_array, check_number, check_positive, check_rows
from jaxcontact.front_door import POSITIVE, checked
from jaxcontact.impact.laws.callable_laws import AnitescuPotra, Law, law_as_pytree
from jaxcontact.mechanics.surfaces import refuse_surfaces
from jaxcontact.mechanics.system import Model, State, System, check_mechanism
from jaxcontact.mechanics.tree_constraints import check_no_held_joints
from jaxcontact.precision import all_digits, jit, warn_if_single
from jaxcontact.simulate.augmented.path import AugmentedInfo, AugmentedPath, PieceKind
from jaxcontact.simulate.events.accumulation import LENGTH, no_chatter, series_limit, series_ratio
from jaxcontact.simulate.events.event_log import (
    EVENT,
    IMPACT,
    JAM,
    PART,
    SKIP,
    UNUSED,
    WHOLE,
    EventMemory,
    EventPieces,
    StepInputs,
)
from jaxcontact.simulate.events.repetition import repeat_pieces
from jaxcontact.simulate.events.stretch import (
    StretchMotion,
    point_function,
    split_vector,
    start_vector,
    step_stretch,
)
from jaxcontact.simulate.events.time_step import run_time_step
from jaxcontact.simulate.projection import check_no_penetration
from jaxcontact.simulate.variational.contact_state import count_rows, terms_at
from jaxcontact.solvers.contact_problem import SEPARATE
from jaxcontact.status import Status, flag

NEWTON_STEPS = 6  # to the time at which s has its end, from a linear guess within a step
DEFAULT_LAW = AnitescuPotra()


@checked(length=POSITIVE, max_pieces=check_rows, rtol=POSITIVE)
def augmented_motion(
    model: Model,
    state: State,
    law: Law = DEFAULT_LAW,
    *,
    length: float | jax.Array,
    key: jax.Array | None = None,
    max_pieces: int = 256,
    rtol: float | jax.Array = 1e-10,
) -> tuple[AugmentedPath, AugmentedInfo]:
    """Move over s, time plus accumulated normal impulse (Halm & Posa, Section 4), in the plane or in space.

    Between impacts dt/ds = 1 / (1 + |lam_n|_1) with the contact forces of `EventDriven`: Coulomb's circular
    cone, contacts that stick, slide and leave. An impact has the outcome of the law at once; it takes the sum
    of its normal impulses of s, over which v moves along a straight line. The path within an impact of the
    inclusion (39) is that of `time_augmented`, in the plane. Infinitely many impacts in finite s and time
    are one piece, a `PieceKind.CHATTER`, to the limit of the series that times and impulses are.

    Args:
        model: the mechanism and its numbers, without loops and dry joints.
        state: the start; gaps not below -1e-6 m.
        law: of impacts, as of `EventDriven`.
        length: end of s, which starts at zero. An impact or chatter at the end is completed, and s then ends
            beyond `length`.
        key: of laws that draw.
        max_pieces: K, rows of the path.
        rtol: relative error allowed per step.

    Returns:
        AugmentedPath, in which `lam` and `t_rate` are means over each piece, and AugmentedInfo.

    Raises:
        TypeError, ValueError: as `EventDriven`; no contacts; a length or rtol not positive.

    Status: as a step of `EventDriven`; MAX_ITERS if `max_pieces` do not reach `length`.

    Derivative: first order, forward and reverse, by state, params, length and the numbers of the law,
        including that of the times of events, and of t where s ends. The list of pieces is piecewise
        constant.
    """
    check_mechanism(model, state)
    if not model.structure.num_contacts:
        raise ValueError("system: augmented_motion takes systems with contacts, got none")
    check_no_held_joints(model.system, "augmented_motion")
    refuse_surfaces(model.params)
    check_no_penetration(model, state)
    for name, value in (("length", length), ("rtol", rtol)):
        check_positive(name, value)
    for name, value in (("state.q", state.q), ("state.v", state.v), ("params.gravity", model.params.gravity)):
        check_array(name, value)
        check_number(name, value)
    warn_if_single(state.q.dtype, "`augmented_motion`")
    dtype = state.q.dtype
    length, rtol = jnp.asarray(length, dtype), jnp.asarray(rtol, dtype)
    state = state.replace(t=jnp.asarray(state.t, dtype))
    law = law_as_pytree(law, "law")
    inputs = StepInputs(
        model.params, state, jnp.zeros(model.num_controls, dtype), length, law, lax.stop_gradient(rtol)
    )
    rows = count_rows(model, state)
    return _motion(model.system, int(max_pieces), rows, inputs, length, key)


@functools.partial(jit, static_argnames=("system", "max_pieces", "rows"))
def _motion(
    system: System, max_pieces: int, rows: int, inputs: StepInputs, length: jax.Array, key: jax.Array | None
) -> tuple[AugmentedPath, AugmentedInfo]:
    path, info = _make_motion(system, max_pieces, rows)(inputs, length, key)
    return path, info


class _FoundMotion(NamedTuple):
    """The numbers of a repetition: pieces, the duration to the end of s, and ds/dt there, 0 in an impact."""

    pieces: EventPieces
    duration: jax.Array
    pace: jax.Array


@functools.lru_cache(maxsize=64)
def _make_motion(system: System, max_pieces: int, rows: int) -> Callable[..., PyTree]:
    @all_digits
    def search(inputs: StepInputs, length: jax.Array, key: jax.Array | None) -> tuple[PyTree, _FoundMotion]:
        return _search_pieces(system, max_pieces, rows, inputs, length, key)

    return differentiate_by_replay(search, functools.partial(_replay, system, rows))


def _search_pieces(
    system: System, max_pieces: int, rows: int, inputs: StepInputs, length: jax.Array, key: jax.Array | None
) -> tuple[tuple[AugmentedPath, AugmentedInfo], _FoundMotion]:
    memory = EventMemory(key, no_chatter(inputs.state, rows), jnp.int32(0))
    found = run_time_step(system, max_pieces, inputs, memory)
    states = _prepend_start(inputs.state, found.pieces.end)
    s = _sum_path(found.pieces, states.t, found.pieces.impulse)
    beyond = s[1:] >= length * (1.0 - 8.0 * float(jnp.finfo(length.dtype).eps))
    last = jnp.where(jnp.any(beyond), jnp.argmax(beyond), max_pieces)
    pieces, pace = _cut_at_length(system, inputs, found.pieces, states, s, length, last)
    states = _prepend_start(inputs.state, pieces.end)
    used = jnp.sum(pieces.kind != UNUSED, dtype=jnp.int32)
    # An unused row repeats the last state.
    states = jax.tree.map(lambda x: x[jnp.minimum(jnp.arange(max_pieces + 1), used)], states)
    path = _make_path(pieces, states, pieces.impulse)
    failed = found.info.status & jnp.uint32(~int(Status.MAX_ITERS) & 0xFFFFFFFF)
    hits, jams = ((pieces.kind == kind) for kind in (IMPACT, JAM))
    info = AugmentedInfo(
        status=failed | flag(path.s[-1] < length * (1.0 - 1e-9), Status.MAX_ITERS),
        residual=found.info.residual,
        num_iters=used,
        num_impacts=jnp.sum(hits | jams, dtype=jnp.int32),
        num_without_collision=jnp.sum(jams, dtype=jnp.int32),
    )
    return (path, info), _FoundMotion(pieces, states.t[-1] - inputs.state.t, pace)


def _prepend_start(start: State, ends: State) -> State:
    """Put the start before the states at the ends of pieces."""
    return jax.tree.map(lambda x, rows: jnp.concatenate([x[None], rows]), start, ends)


def _sum_path(pieces: EventPieces, t: jax.Array, impulse: jax.Array) -> jax.Array:
    """Sum time and normal impulses at the nodes (K + 1,); a chatter ends at the limit of its series."""

    def one(carry: tuple[jax.Array, ...], row: tuple[jax.Array, ...]) -> tuple[PyTree, jax.Array]:
        s, times, sums = carry
        kind, turns, breaks, begin, end, push = row
        after = s + (end - begin) + jnp.sum(push[:, 0])
        limit = sums[0] + series_limit(sums - sums[:1], series_ratio(times), turns)
        after = jnp.where(kind == SKIP, limit, jnp.where(kind == UNUSED, s, after))
        hit = (kind == IMPACT) | (kind == JAM)

        def pushed(old: jax.Array, new: jax.Array) -> jax.Array:
            cleared = jnp.where(breaks | (kind == SKIP), new, old)
            return jnp.where(hit & ~breaks, jnp.concatenate([new[None], old[:-1]]), cleared)

        return (after, pushed(times, end), pushed(sums, after)), after

    zero = jnp.zeros((), t.dtype)
    start = (zero, jnp.full(LENGTH, t[0]), jnp.zeros(LENGTH, t.dtype))
    _, s = lax.scan(one, start, (pieces.kind, pieces.turns, pieces.breaks, t[:-1], t[1:], impulse))
    return jnp.concatenate([zero[None], s])


def _cut_at_length(
    system: System, inputs: StepInputs, pieces: EventPieces, states: State, s: jax.Array, length: jax.Array,
    last: jax.Array,
) -> tuple[EventPieces, jax.Array]:  # fmt: skip
    """End the pieces where s is `length`: within a stretch, or after an impact; return also ds/dt there."""
    count = pieces.kind.shape[0]
    at = jnp.minimum(last, count - 1)
    piece = jax.tree.map(lambda x: x[at], pieces)
    start = jax.tree.map(lambda x: x[at], states)
    model = Model(system=system, params=inputs.params)
    motion = StretchMotion(inputs.params, inputs.controls, piece.modes, inputs.dt)
    y0 = start_vector(system, start, terms_at(model, start.q, start.t))
    point = point_function(system)

    def at_length(h: jax.Array) -> tuple[jax.Array, jax.Array, State, jax.Array]:
        end = step_stretch(system, motion, start.t, y0, h)[0].x1
        state, impulse, _ = split_vector(system, start.t + h, end)
        rate = point(motion, start.t + h, end)[0]
        pace = 1.0 + jnp.sum(split_vector(system, start.t, rate)[1][:, 0])
        return s[at] + h + jnp.sum(impulse[:, 0]), pace, state, impulse

    def correct(_: int, h: jax.Array) -> jax.Array:
        reached, pace = at_length(h)[:2]
        return jnp.clip(h - (reached - length) / pace, 0.0, piece.h)

    is_move = (last < count) & ((piece.kind == WHOLE) | (piece.kind == PART) | (piece.kind == EVENT))
    share = (length - s[at]) / jnp.where(s[at + 1] > s[at], s[at + 1] - s[at], 1.0)
    h = lax.fori_loop(0, NEWTON_STEPS, correct, share * piece.h)
    _, pace, end, impulse = at_length(h)
    shorter = piece._replace(
        kind=jnp.int32(WHOLE), h=h, end=end, impulse=impulse, value=jnp.zeros_like(piece.value),
        rests=piece.modes.kind,
    )  # fmt: skip
    chosen = jax.tree.map(lambda a, b: jnp.where(is_move, a, b), shorter, piece)
    pieces = jax.tree.map(lambda rows, row: rows.at[at].set(row), pieces, chosen)
    kind: jax.Array = jnp.where(jnp.arange(count) > last, UNUSED, pieces.kind)
    return pieces._replace(kind=kind), jnp.where(is_move, pace, 0.0)


def _make_path(pieces: EventPieces, states: State, impulse: jax.Array) -> AugmentedPath:
    """Make the path from its pieces, the states (K + 1) between them and their impulses (K, nc, dim)."""
    s, kind = _sum_path(pieces, states.t, impulse), pieces.kind
    span, time = jnp.diff(s), jnp.diff(states.t)
    hits = (kind == IMPACT) | (kind == JAM)
    size = jnp.where(span > 0, span, 1.0)
    moves = jnp.where(jnp.any(pieces.modes.kind != SEPARATE, axis=1), PieceKind.CONTACT, PieceKind.FREE)
    names = jnp.where(hits, PieceKind.IMPACT, jnp.where(kind == SKIP, PieceKind.CHATTER, moves))
    return AugmentedPath(
        s=s,
        t=states.t,
        q=states.q,
        v=states.v,
        lam=impulse / size[:, None, None],
        t_rate=jnp.where(span > 0, time / size, 0.0),
        kind=jnp.where(kind == UNUSED, PieceKind.UNUSED, names).astype(jnp.int32),
        impact=jnp.where(hits, jnp.cumsum(hits) - 1, -1).astype(jnp.int32),
        collision=kind == IMPACT,
    )


def _replay(
    system: System,
    rows: int,
    inputs: StepInputs,
    length: jax.Array,
    key: jax.Array | None,
    found: _FoundMotion,
) -> tuple[AugmentedPath, AugmentedInfo]:
    """Repeat the pieces; the duration follows from s = length at the end by one step of Newton's method."""
    memory = EventMemory(key, no_chatter(inputs.state, rows), jnp.int32(0))
    count = found.pieces.kind.shape[0]
    used = jnp.sum(found.pieces.kind != UNUSED, dtype=jnp.int32)

    def path_of(duration: jax.Array) -> AugmentedPath:
        _, states, hits, moves = repeat_pieces(system, inputs._replace(dt=duration), memory, found.pieces)
        states = jax.tree.map(lambda x: x[jnp.minimum(jnp.arange(count + 1), used)], states)
        return _make_path(found.pieces, states, hits + moves)

    duration = lax.stop_gradient(found.duration)
    moves = found.pace > 0
    late = jnp.where(moves, (length - path_of(duration).s[-1]) / jnp.where(moves, found.pace, 1.0), 0.0)
    path = path_of(duration + late - lax.stop_gradient(late))
    none = jnp.int32(0)
    zero = jnp.zeros((), duration.dtype)
    return path, AugmentedInfo(
        status=jnp.uint32(0), residual=zero, num_iters=none, num_impacts=none, num_without_collision=none
    )
