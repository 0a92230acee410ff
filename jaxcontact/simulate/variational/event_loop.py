"""The loop over time: trial steps, impacts, contacts that stay closed.

Owns the order of moves and impacts within one time step; entry `run_motion`. The step itself is in
`discrete_mechanics`, the search for the time of an event in `event_search`, the impact in `impact_event`.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from jaxcontact._pytree import PyTree
from jaxcontact.batching.bounded_loop import bounded_loop, ends_early
from jaxcontact.impact.laws.contact_space import collision_tolerance
from jaxcontact.mechanics.numbers import is_mechanism, usable_numbers
from jaxcontact.mechanics.system import Model, State, System
from jaxcontact.precision import jit
from jaxcontact.simulate.stepper import StepperInfo
from jaxcontact.simulate.trajectory import Impacts, append_impact, motion_record, no_impacts
from jaxcontact.simulate.variational.contact_state import (
    Node,
    contacts_of,
    drag_at,
    find_approaching,
    find_touching,
    loads_at_ends,
    make_end_node,
    make_node,
    terms_and_joints,
)
from jaxcontact.simulate.variational.discrete_mechanics import take_step
from jaxcontact.simulate.variational.discrete_momenta import Start
from jaxcontact.simulate.variational.energy import impact_gains, move_gains
from jaxcontact.simulate.variational.event_log import (
    EVENT,
    IMPACT,
    JAM,
    UNUSED,
    WHOLE,
    MotionPieces,
    append_piece,
    no_pieces,
)
from jaxcontact.simulate.variational.event_search import (
    EventSearch,
    event_values,
    narrow_search,
    start_search,
)
from jaxcontact.simulate.variational.gap_dips import look_for_dips
from jaxcontact.simulate.variational.impact_event import Strike, strike
from jaxcontact.simulate.variational.jam import find_jammed, jam_impact
from jaxcontact.simulate.variational.joint_rows import num_dry, without_dry
from jaxcontact.simulate.variational.motion_records import (
    ImpactSetting,
    MotionChoice,
    MotionMemory,
    MotionNumbers,
    RecordedMotion,
)
from jaxcontact.status import Status, flag
from jaxcontact.terms import touch_tolerance
from jaxcontact.terms.records import normal_rates
from jaxcontact.terms.surfaces import shared_velocity
from jaxcontact.tolerances import GAP

MAX_TURNS = 1000  # iterations of the loop within one step: trial steps and impacts; then bit MAX_ITERS
STATIC_TURNS = 16  # as many, in a loop of static length, for each recorded impact and for the end of the step


class _StepCarry(NamedTuple):
    node: Node
    search: EventSearch
    last: jax.Array  # (nc,) time of the last impact
    impacts: Impacts
    impulse: jax.Array  # (nc, dim) of closed contacts in this step, N s
    status: jax.Array
    residual: jax.Array  # the largest of the moves
    turns: jax.Array  # number of trial steps and impacts
    let_go: jax.Array  # (nc,) bool, contacts that let go in this step; once is enough
    located: jax.Array  # whether the time of the node is that of an event or an impact
    over: jax.Array  # whether the last piece went to the end of the step
    pieces: MotionPieces
    num_pieces: jax.Array


class _TimeStep(NamedTuple):
    """The quantities that stay constant during one time step."""

    model: Model
    setting: ImpactSetting
    controls: jax.Array | None
    dt: jax.Array
    t_end: jax.Array
    unused: MotionPieces


def impact_setting(choice: MotionChoice, numbers: MotionNumbers, memory: MotionMemory) -> ImpactSetting:
    """Make the settings of the impacts of a motion that continues one with this memory."""
    return ImpactSetting(
        numbers.restitution, numbers.zeno, memory.key, memory.number, choice.order, numbers.law
    )


def start_node(model: Model, state: State) -> Node:
    """Make the node that a motion starts from."""
    terms, joints = terms_and_joints(model, state.q, state.t)
    return make_node(terms, state.q, terms.M @ state.v, jnp.asarray(state.t, state.q.dtype), joints)


@functools.partial(jit, static_argnames=("system", "choice", "max_pieces"))
def run_motion(
    system: System, choice: MotionChoice, max_pieces: int, numbers: MotionNumbers, memory: MotionMemory
) -> RecordedMotion:
    """Compute the motion over `num_steps` steps of dt; return it with its pieces.

    Derivative: none; see `replay`.
    """
    setting = impact_setting(choice, numbers, memory)
    model = Model(system=system, params=numbers.params)
    start = start_node(model, numbers.state)
    nc, dim = start.terms.phi.shape[0], system.structure.dim
    deep = flag(jnp.any(start.terms.phi < -touch_tolerance(start.terms.J_n)), Status.PENETRATION)
    if start.joints is not None and start.joints.loops is not None:
        loops = start.joints.loops
        is_open = jnp.abs(loops.deviation) > touch_tolerance(loops.rows, start.q)
        deep = deep | flag(jnp.any(is_open), Status.PENETRATION)
    bad = _bad_numbers(numbers, start)
    impacts, unused = _empty_records(system, setting, start, choice.max_impacts)
    pieces = jax.tree.map(lambda x: jnp.broadcast_to(x, (max_pieces, *x.shape)), unused)
    max_turns = MAX_TURNS if ends_early() else min(MAX_TURNS, STATIC_TURNS * (choice.max_impacts + 1))

    def body(carry: tuple[PyTree, ...], inputs: tuple[jax.Array, PyTree]) -> tuple[PyTree, PyTree]:
        node, last, impacts, pieces, count = carry
        k, controls = inputs
        t_end = start.t + (k + 1) * numbers.dt
        context = _TimeStep(model, setting, controls, numbers.dt, t_end, unused)
        none, zero = jnp.zeros((nc, dim), node.q.dtype), jnp.zeros((), node.q.dtype)
        begin = _StepCarry(
            node, start_search(t_end - node.t, nc), last, impacts, none, jnp.uint32(0), zero, jnp.int32(0),
            node.closed & False, jnp.array(False), jnp.array(False), pieces, count,
        )  # fmt: skip

        def moving(c: _StepCarry) -> jax.Array:
            unfinished = ~c.over | jnp.any(find_approaching(c.node))
            goes_on = (bad == 0) & (c.turns < max_turns) & jnp.all(jnp.isfinite(c.node.p))
            return unfinished & goes_on

        def turn(c: _StepCarry) -> _StepCarry:
            c, piece = _impact_or_move(context, c)
            node, is_full_step, used = c.node, piece.kind == WHOLE, piece.kind != UNUSED
            piece = piece._replace(step=k, closed=node.closed, q=node.q, p=node.p, t=node.t)
            pieces, count = append_piece(c.pieces, c.num_pieces, piece)
            return c._replace(
                pieces=pieces, num_pieces=count, turns=c.turns + 1,
                located=jnp.where(used, ~is_full_step, c.located), over=jnp.where(used, is_full_step, c.over),
            )  # fmt: skip

        end = bounded_loop(moving, turn, begin, max_iters=max_turns)
        status = end.status | flag(end.turns >= max_turns, Status.MAX_ITERS)
        status = status | flag(~jnp.all(jnp.isfinite(end.node.p)), Status.NONFINITE)
        status = status | bad | jnp.where(k == 0, deep, 0)
        info = StepperInfo(
            status=status, residual=end.residual, num_iters=end.turns, impulse=end.impulse,
            contacts=end.node.closed,
        )  # fmt: skip
        row = (State(q=end.node.q, v=end.node.v, t=end.node.t), info, end.num_pieces - 1)
        return (end.node, end.last, end.impacts, end.pieces, end.num_pieces), row

    steps = jnp.arange(choice.num_steps, dtype=jnp.int32)
    begin = (start, memory.last, impacts, pieces, jnp.int32(0))
    (_, last, impacts, pieces, count), rows = lax.scan(body, begin, (steps, numbers.controls))
    states, info, ends = rows
    trajectory = motion_record(State(q=start.q, v=start.v, t=start.t), start.closed, states, info, impacts)
    return RecordedMotion(
        trajectory, MotionMemory(memory.key, last, memory.number + impacts.count), pieces, count, ends
    )


def _bad_numbers(numbers: MotionNumbers, start: Node) -> jax.Array:
    """Set the status bits of numbers that are not finite or out of range."""
    restitution, finite = numbers.restitution, usable_numbers(numbers.params, numbers.state)
    share = (restitution >= 0) & (restitution <= 1)
    good = is_mechanism(numbers.params, start.terms.M) & share & (numbers.zeno >= 0)
    if start.joints is not None and start.joints.dry is not None:
        good = good & jnp.all(start.joints.dry.bound >= 0)
    return flag(~finite, Status.NONFINITE) | flag(finite & ~good, Status.INVALID)


def _impact_or_move(context: _TimeStep, carry: _StepCarry) -> tuple[_StepCarry, MotionPieces]:
    """Append an impact if one is due, else a trial step.

    An impact follows an event, so that derivatives include its time: if a step ends without an event while a
    contact strikes, or a motion begins so, an event of no length comes between.
    """
    if carry.last.shape[0] == num_dry(carry.node.joints):
        return _try_move(context, carry)
    return lax.cond(
        carry.located & jnp.any(find_approaching(carry.node)),
        lambda c: _append_impact(context, c),
        lambda c: _try_move(context, c),
        carry,
    )


def _append_impact(context: _TimeStep, carry: _StepCarry) -> tuple[_StepCarry, MotionPieces]:
    """Append the impact of all touching contacts."""
    node, impacts = carry.node, carry.impacts
    near, striking = without_dry(node.joints, find_touching(node.terms)), find_approaching(node)
    soon = jnp.any(striking & (node.t - carry.last < context.setting.zeno))
    number = context.setting.first + impacts.count
    # In a batch, worlds without an impact pass through as well, without a call of the law.
    after, hit = apply_impact(context.setting, node, near, soon | ~jnp.any(striking), number)
    status = (
        carry.status | hit.status | flag(soon, Status.ZENO) | flag(impact_gains(node, after), Status.ENERGY)
    )
    carry = carry._replace(
        node=after,
        search=start_search(jnp.maximum(context.t_end - node.t, 0.0), near.shape[0]),
        last=jnp.where(striking, node.t, carry.last),
        impacts=append_impact(impacts, node, after, near, striking, soon, hit.impulse, hit.order),
        status=status | flag(jnp.sum(near) > 1, Status.SIMULTANEOUS),
    )
    piece = context.unused._replace(kind=jnp.int32(IMPACT), participants=near, plastic=soon, order=hit.order)
    return carry, piece


def apply_impact(
    setting: ImpactSetting, node: Node, near: jax.Array, plastic: jax.Array, number: jax.Array,
    sequence: jax.Array | None = None,
) -> tuple[Node, Strike]:  # fmt: skip
    """Compute the node after impact `number` of the contacts `near`, in the order on record if given."""
    key = None if setting.key is None else jax.random.fold_in(setting.key, number)
    terms, v = node.terms.replace(active=near, surface=None), node.v
    shift, unlike = jnp.zeros_like(v), jnp.array(False)
    if node.terms.surface is not None:
        shift, unlike = shared_velocity(terms, node.terms.surface)
        v = v + shift
    hit = strike(terms, v, key, plastic, setting.restitution, setting.order, setting.law, sequence)
    hit = hit._replace(v_plus=hit.v_plus - shift, status=hit.status | flag(unlike, Status.INVALID))
    p = node.p + terms.M @ (hit.v_plus - node.v)  # velocities without a change keep their momentum to the bit
    return make_node(node.terms, node.q, p, node.t, node.joints), hit


def _empty_records(
    system: System, setting: ImpactSetting, node: Node, rows: int
) -> tuple[Impacts, MotionPieces]:
    """Make an empty record with room for `rows` impacts, and an unused piece."""
    nc, nv, dtype = node.terms.phi.shape[0], node.v.shape[0], node.v.dtype
    length = 1
    if nc:
        key, order, law = setting.key, setting.order, setting.law
        unit = jnp.zeros((), dtype)
        length = jax.eval_shape(
            lambda terms, v: strike(terms, v, key, jnp.array(False), unit, order, law), node.terms, node.v
        ).order.shape[0]
    impacts = no_impacts(nv, nc, rows, dtype, length)
    loops = None if node.joints is None else node.joints.loops
    num_loops = None if loops is None else loops.deviation.shape[0]
    return impacts, no_pieces((node.q.shape[0], nv, nc, num_loops), system.structure.dim, length, dtype)


def _try_move(context: _TimeStep, carry: _StepCarry) -> tuple[_StepCarry, MotionPieces]:
    """Make a trial step: to the end of the time step if no event happens, else nearer to the first event."""
    model, t_end = context.model, context.t_end
    node, nc = carry.node, carry.last.shape[0]
    strikes = find_approaching(node)
    hidden = jnp.any(strikes)
    none_left = start_search(jnp.zeros_like(t_end), nc)
    search = jax.tree.map(lambda a, b: jnp.where(hidden, a, b), none_left, carry.search)
    start = Start(node.q, node.p, node.t, context.controls, drag_at(node))
    contacts = contacts_of(node.terms, node.closed, node.joints)
    step = take_step(model, start, node.v, contacts, search.h)
    finite = jnp.all(jnp.isfinite(step.p)) & jnp.isfinite(search.h)
    t = jnp.where((search.h == t_end - node.t) & ~hidden, t_end, node.t + search.h)
    arrived, second, is_solved = make_end_node(model, node, (step.q, step.p, t), search.h, step.impulse)
    guess = step.impulse / jnp.where(search.h > 0, search.h, 1.0)
    searching = search.tries > 0
    load, load_0, size = loads_at_ends(model, context.dt, context.controls, node, arrived, guess, searching)
    # A contact that changes no velocity by more than the slowest approach that counts carries no load.
    smallest_load = collision_tolerance(size.dtype) / (context.dt * size)
    value, rate, fell, zero = event_values(node, search, step, arrived, load, load_0, smallest_load)
    fell = fell & ~(node.closed & carry.let_go)
    by_secant, gap, count = node.closed, value, num_dry(node.joints)
    if count:
        by_secant = by_secant.at[-count:].set(True)
        gap = gap.at[-count:].set(arrived.terms.phi[-count:])  # a speed is no gap
    following, is_full_step, located = narrow_search(
        search, value, rate, fell & finite, zero, by_secant, t_end
    )
    done = is_full_step | located
    if nc > count:
        crossed = jnp.any(fell) & finite
        following, done, again = look_for_dips(
            node,
            search,
            following,
            step,
            gap,
            normal_rates(arrived.terms, arrived.v),
            crossed,
            done,
        )
        is_full_step = done & (is_full_step | (again & (search.h == t_end - node.t)))
    is_full_step = is_full_step & ~hidden
    accept = done | hidden | ~finite

    # The contact of the event: the one whose zero is nearest to the last trial, in time.
    eps = float(jnp.finfo(node.q.dtype).eps)
    suspects = following.suspects & ~(node.closed & (jnp.abs(value) > eps**GAP))
    apart = jnp.where(suspects, jnp.abs(value) / jnp.where(rate != 0, jnp.abs(rate), eps), jnp.inf)
    participants = suspects & (jnp.arange(nc) == jnp.argmin(apart)) if nc else suspects
    participants = (
        jnp.where(hidden, strikes & (jnp.arange(nc) == jnp.argmax(strikes)), participants)
        if nc
        else participants
    )
    piece = context.unused._replace(
        kind=jnp.where(is_full_step | ~finite, WHOLE, EVENT).astype(jnp.int32),
        h=search.h, w=step.w, impulse=step.impulse, second=second, participants=participants,
        slopes=step.slopes,
    )  # fmt: skip
    gains = move_gains(model, node, step, arrived, second, search.h, context.controls)
    status = flag(~(step.solved & is_solved), Status.STALLED) | flag(gains, Status.ENERGY)
    accepted = (
        arrived, start_search(jnp.maximum(t_end - t, 0.0), nc), carry.impulse + step.impulse + second,
        carry.status | status, jnp.maximum(carry.residual, step.residual), piece,
    )  # fmt: skip
    refused = (node, following, carry.impulse, carry.status, carry.residual, context.unused)
    node, search, impulse, status, residual, piece = jax.tree.map(
        lambda new, old: jnp.where(accept, new, old), accepted, refused
    )
    let_go = carry.let_go | (accept & ~is_full_step & following.suspects & carry.node.closed)
    moved = carry._replace(
        node=node, search=search, impulse=impulse, status=status, residual=residual, let_go=let_go
    )
    return _replace_by_jam(context, carry, accept & finite, step.impulse, arrived, (moved, piece))


def _replace_by_jam(
    context: _TimeStep, carry: _StepCarry, accept: jax.Array, impulse: jax.Array, arrived: Node,
    moved: tuple[_StepCarry, MotionPieces],
) -> tuple[_StepCarry, MotionPieces]:  # fmt: skip
    """Replace a move by the impact without a collision that its step found, if it found one."""
    node, impacts = carry.node, carry.impacts
    nc = carry.last.shape[0]
    if nc == num_dry(node.joints):
        return moved
    asked = accept & jnp.any(without_dry(node.joints, find_jammed(node, arrived, impulse)))
    closed = without_dry(node.joints, node.closed)
    nothing = node, jnp.zeros_like(impulse), jnp.array(False)
    # In a batch, worlds without a jam pass through as well; none of their contacts takes part.
    after, push, jams = lax.cond(asked, lambda: jam_impact(node, closed & asked, impulse), lambda: nothing)

    def jammed() -> tuple[_StepCarry, MotionPieces]:
        gains, several = impact_gains(node, after), jnp.sum(closed) > 1
        none = jnp.zeros(nc, bool)
        behind = carry._replace(
            node=after,
            search=start_search(jnp.maximum(context.t_end - node.t, 0.0), nc),
            impacts=append_impact(impacts, node, after, closed, none, jnp.array(False), push[:, 0]),
            status=carry.status | flag(gains, Status.ENERGY) | flag(several, Status.SIMULTANEOUS),
        )
        return behind, context.unused._replace(kind=jnp.int32(JAM), participants=closed, impulse=push)

    return lax.cond(jams, jammed, lambda: moved)
