"""The loop over time: trial steps, the search for the time of an event, impacts, contacts that stay closed.

Owns what happens within one time step. The step itself is in `discrete.py`, the impact in `strike.py`.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from jaxcontact.algebra import small_dense
from jaxcontact.impact.laws.contact_space import collision_tolerance
from jaxcontact.mechanics.system import Params, State, System
from jaxcontact.simulate.trajectory import Impacts, Trajectory
from jaxcontact.simulate.variational.contact_state import (
    Node,
    approaching,
    arrive,
    contacts_of,
    loads,
    terms_at,
    touching,
)
from jaxcontact.simulate.variational.discrete_mechanics import onto_closed_contacts, take_step
from jaxcontact.simulate.variational.energy import impact_gains, move_gains
from jaxcontact.simulate.variational.event_log import EVENT, IMPACT, WHOLE, Pieces, kept, no_pieces
from jaxcontact.simulate.variational.impact_event import Law, Strike, strike
from jaxcontact.status import Status, flag
from jaxcontact.terms import CONTACT_TOLERANCE

MAX_TURNS = 1000  # of the loop within one step: trial steps and impacts


class _Search(NamedTuple):
    """The search for the time of an event within a step: an open gap closes, or a closed contact lets go."""

    low: jax.Array  # no event has happened after this long
    high: jax.Array  # one has
    h: jax.Array  # the next trial
    suspects: jax.Array  # (nc,) bool, contacts whose events are in between
    near: jax.Array  # whether the last trial ended on an event
    tries: jax.Array
    before: jax.Array  # the last trial
    load: jax.Array  # (nc,) loads of closed contacts there


class _Carry(NamedTuple):
    node: Node
    search: _Search
    last: jax.Array  # (nc,) time of the last impact
    impacts: Impacts
    impulse: jax.Array  # (nc, dim) of closed contacts in this step
    status: jax.Array
    turns: jax.Array
    let_go: jax.Array  # (nc,) bool, contacts that let go in this step; once is enough
    pieces: Pieces
    num_pieces: jax.Array


class MotionSetting(NamedTuple):
    """How a motion goes: arguments of `variational`, static but for the first three."""

    restitution: jax.Array
    zeno: jax.Array
    key: jax.Array | None
    order: str | tuple[int, ...]
    law: Law | None


class Run(NamedTuple):
    """A motion and how to repeat it.

    Attributes:
        trajectory: the motion.
        pieces: its pieces, with a first axis of `max_pieces`.
        num_pieces: how many there are, also of those beyond that.
        ends: (T,) index of the last piece of each time step.
    """

    trajectory: Trajectory
    pieces: Pieces
    num_pieces: jax.Array
    ends: jax.Array


@functools.partial(jax.jit, static_argnums=(0, 7, 8, 9, 10, 11))
def run(
    system: System, params: Params, state: State, dt: jax.Array, restitution: jax.Array, zeno: jax.Array,
    key: jax.Array | None, order: str | tuple[int, ...], law: Law | None, num_steps: int, max_impacts: int,
    max_pieces: int,
) -> Run:  # fmt: skip
    """The motion over `num_steps` steps of dt from `state`; arguments as `variational`.

    Derivative: none; see `replay`.
    """
    setting = MotionSetting(restitution, zeno, key, order, law)
    terms = terms_at(system, params, state.q, state.t)
    start = arrive(terms, state.q, terms.M @ state.v, jnp.asarray(state.t, state.q.dtype))
    nc, dim = terms.phi.shape[0], system.structure.dim
    deep = flag(jnp.any(terms.phi < -CONTACT_TOLERANCE), Status.PENETRATION)
    bad = _bad_numbers(params, state, start, setting)
    impacts, unused = _no_impacts(system, setting, start, max_impacts)
    pieces = jax.tree.map(lambda x: jnp.broadcast_to(x, (max_pieces, *x.shape)), unused)
    last = jnp.full(nc, -jnp.inf, start.q.dtype)

    def body(carry: tuple[Any, ...], k: jax.Array) -> tuple[Any, Any]:
        node, last, impacts, pieces, count = carry
        t_end = start.t + (k + 1) * dt
        none = jnp.zeros((nc, dim), node.q.dtype)
        search = _whole(t_end - node.t, nc)
        begin = _Carry(
            node, search, last, impacts, none, jnp.uint32(0), jnp.int32(0), node.closed & False, pieces, count
        )

        def moving(c: _Carry) -> jax.Array:
            unfinished = (c.node.t < t_end) | jnp.any(approaching(c.node))
            goes_on = (bad == 0) & (c.turns < MAX_TURNS) & jnp.all(jnp.isfinite(c.node.p))
            return unfinished & goes_on

        def turn(c: _Carry) -> _Carry:
            c, piece = _turn(system, params, setting, t_end, dt, unused, c)
            pieces, count = kept(c.pieces, c.num_pieces, piece._replace(step=k, closed=c.node.closed))
            return c._replace(pieces=pieces, num_pieces=count, turns=c.turns + 1)

        end = lax.while_loop(moving, turn, begin)
        status = end.status | flag(end.turns >= MAX_TURNS, Status.MAX_ITERS)
        status = status | flag(~jnp.all(jnp.isfinite(end.node.p)), Status.NONFINITE)
        status = status | bad | jnp.where(k == 0, deep, 0)
        row = (end.node.q, end.node.v, end.node.t, end.node.closed, end.impulse, status, end.num_pieces - 1)
        return (end.node, end.last, end.impacts, end.pieces, end.num_pieces), row

    steps = jnp.arange(num_steps, dtype=jnp.int32)
    (_, _, impacts, pieces, count), rows = lax.scan(body, (start, last, impacts, pieces, jnp.int32(0)), steps)
    first = (start.q, start.v, start.t, start.closed)
    q, v, t, closed = (jnp.concatenate([a[None], b]) for a, b in zip(first, rows[:4], strict=True))
    trajectory = Trajectory(
        states=State(q=q, v=v, t=t), contacts=closed, impulse=rows[4], impacts=impacts, status=rows[5]
    )
    return Run(trajectory, pieces, count, rows[6])


def _bad_numbers(params: Params, state: State, start: Node, setting: MotionSetting) -> jax.Array:
    """Bits of numbers that no motion has."""
    numbers = [x for x in jax.tree.leaves((params, state)) if jnp.issubdtype(jnp.result_type(x), jnp.inexact)]
    finite = jnp.stack([jnp.all(jnp.isfinite(x)) for x in numbers]).all()
    mass = (small_dense.spd_inverse(start.terms.M)[1] > 0) & jnp.all(params.mass >= 0)
    restitution, zeno = setting[:2]
    share = (restitution >= 0) & (restitution <= 1)
    good = mass & jnp.all(params.inertia >= 0) & jnp.all(params.mu >= 0) & share & (zeno >= 0)
    return flag(~finite, Status.NONFINITE) | flag(finite & ~good, Status.INVALID)


def _whole(remaining: jax.Array, nc: int) -> _Search:
    """A first trial: all that remains of the step."""
    zero = jnp.zeros_like(remaining)
    none = jnp.zeros(nc, bool)
    return _Search(
        zero, remaining, remaining, none, jnp.array(False), jnp.int32(0), zero, jnp.zeros(nc, zero.dtype)
    )


def _turn(
    system: System, params: Params, setting: MotionSetting, t_end: jax.Array, dt: jax.Array, unused: Pieces,
    carry: _Carry,
) -> tuple[_Carry, Pieces]:  # fmt: skip
    """An impact where one is due, else a trial step."""
    if carry.last.shape[0] == 0:
        return _move(system, params, t_end, dt, unused, carry)
    return lax.cond(
        jnp.any(approaching(carry.node)),
        lambda c: _collide(setting, t_end, unused, c),
        lambda c: _move(system, params, t_end, dt, unused, c),
        carry,
    )


def _collide(
    setting: MotionSetting, t_end: jax.Array, unused: Pieces, carry: _Carry
) -> tuple[_Carry, Pieces]:
    """The impact of all touching contacts."""
    node, impacts = carry.node, carry.impacts
    near, striking = touching(node.terms), approaching(node)
    soon = jnp.any(striking & (node.t - carry.last < setting.zeno))
    # In a batch worlds without an impact come along; they ask no law.
    after, hit = impact(setting, node, near, soon | ~jnp.any(striking), impacts.count)
    status = (
        carry.status | hit.status | flag(soon, Status.ZENO) | flag(impact_gains(node, after), Status.ENERGY)
    )
    carry = carry._replace(
        node=after,
        search=_whole(t_end - node.t, near.shape[0]),
        last=jnp.where(striking, node.t, carry.last),
        impacts=_recorded(impacts, node, after, near, striking, soon, hit),
        status=status | flag(jnp.sum(near) > 1, Status.SIMULTANEOUS),
    )
    piece = unused._replace(kind=jnp.int32(IMPACT), who=near, plastic=soon, order=hit.order)
    return carry, piece


def impact(
    setting: MotionSetting, node: Node, near: jax.Array, plastic: jax.Array, number: jax.Array,
    sequence: jax.Array | None = None,
) -> tuple[Node, Strike]:  # fmt: skip
    """The node behind impact `number` of the contacts `near`, in the order on record if there is one."""
    key = None if setting.key is None else jax.random.fold_in(setting.key, number)
    terms = node.terms.replace(active=near)
    hit = strike(terms, node.v, key, plastic, setting.restitution, setting.order, setting.law, sequence)
    p = node.p + terms.M @ (hit.v_plus - node.v)  # what the impact leaves alone stays as it is, to the bit
    return arrive(node.terms, node.q, p, node.t), hit


def _no_impacts(system: System, setting: MotionSetting, node: Node, rows: int) -> tuple[Impacts, Pieces]:
    """Room for impacts, and an unused piece."""
    nc, nv, dtype = node.terms.phi.shape[0], node.v.shape[0], node.v.dtype
    length = 1
    if nc:
        key, order, law = setting.key, setting.order, setting.law
        one = jnp.zeros((), dtype)
        length = jax.eval_shape(
            lambda terms, v: strike(terms, v, key, jnp.array(False), one, order, law), node.terms, node.v
        ).order.shape[0]
    impacts = Impacts(
        t=jnp.full(rows, jnp.nan, dtype),
        touching=jnp.zeros((rows, nc), bool),
        approaching=jnp.zeros((rows, nc), bool),
        order=jnp.full((rows, length), -1, jnp.int32),
        impulse=jnp.zeros((rows, nc), dtype),
        v_minus=jnp.full((rows, nv), jnp.nan, dtype),
        v_plus=jnp.full((rows, nv), jnp.nan, dtype),
        plastic=jnp.zeros(rows, bool),
        count=jnp.int32(0),
    )
    return impacts, no_pieces(nv, nc, system.structure.dim, length, dtype)


def _recorded(
    impacts: Impacts, before: Node, after: Node, touching: jax.Array, approaching: jax.Array,
    soon: jax.Array, hit: Strike,
) -> Impacts:  # fmt: skip
    i = impacts.count
    return Impacts(
        t=impacts.t.at[i].set(before.t, mode="drop"),
        touching=impacts.touching.at[i].set(touching, mode="drop"),
        approaching=impacts.approaching.at[i].set(approaching, mode="drop"),
        order=impacts.order.at[i].set(hit.order, mode="drop"),
        impulse=impacts.impulse.at[i].set(hit.impulse, mode="drop"),
        v_minus=impacts.v_minus.at[i].set(before.v, mode="drop"),
        v_plus=impacts.v_plus.at[i].set(after.v, mode="drop"),
        plastic=impacts.plastic.at[i].set(soon, mode="drop"),
        count=i + 1,
    )


def _move(
    system: System, params: Params, t_end: jax.Array, dt: jax.Array, unused: Pieces, carry: _Carry
) -> tuple[_Carry, Pieces]:
    """A trial step: to the end of the time step if nothing happens, else nearer to the first event."""
    node, search = carry.node, carry.search
    nc = carry.last.shape[0]
    step, rate = take_step(
        system, params, node.q, node.p, node.t, node.v, contacts_of(node.terms, node.closed), search.h
    )
    finite = jnp.all(jnp.isfinite(step.p)) & jnp.isfinite(search.h)
    t = jnp.where(search.h == t_end - node.t, t_end, node.t + search.h)
    arrived, second, fine = land(system, params, node, step.q, step.p, t, step.impulse)
    load, load_0, size = _loads(system, params, node, arrived, dt, step.impulse / search.h, search.tries > 0)
    # A contact that changes no velocity by more than what counts as approaching carries nothing.
    least = collision_tolerance(size.dtype) / (dt * size)
    value, rate, fell = _events(node, search, step.phi, rate, load, load_0, least)
    fell = fell & ~(node.closed & carry.let_go)
    following, whole, found = _narrowed(search, value, rate, fell & finite, node.closed, t_end)
    accept = whole | found | ~finite

    # Whose event it is: that which the last trial is nearest to, in time.
    eps = float(jnp.finfo(node.q.dtype).eps)
    suspects = following.suspects & ~(node.closed & (jnp.abs(value) > eps**0.4))
    apart = jnp.where(suspects, jnp.abs(value) / jnp.where(rate != 0, jnp.abs(rate), eps), jnp.inf)
    who = suspects & (jnp.arange(nc) == jnp.argmin(apart)) if nc else suspects
    piece = unused._replace(
        kind=jnp.where(whole | ~finite, WHOLE, EVENT).astype(jnp.int32),
        h=search.h, w=step.w, impulse=step.impulse, second=second, who=who,
    )  # fmt: skip
    gains = move_gains(system, params, node, step, arrived, second, search.h)
    status = flag(~(step.solved & fine), Status.STALLED) | flag(gains, Status.ENERGY)
    taken = (arrived, _whole(t_end - t, nc), carry.impulse + step.impulse + second, status, piece)
    refused = (node, following, carry.impulse, jnp.uint32(0), unused)
    new, search, impulse, status, piece = jax.tree.map(
        lambda one, other: jnp.where(accept, one, other), taken, refused
    )
    let_go = carry.let_go | (accept & ~whole & following.suspects & node.closed)
    status = carry.status | status
    return carry._replace(node=new, search=search, impulse=impulse, status=status, let_go=let_go), piece


def _loads(
    system: System, params: Params, node: Node, arrived: Node, dt: jax.Array, guess: jax.Array,
    searching: jax.Array,
) -> tuple[jax.Array, jax.Array, jax.Array]:  # fmt: skip
    """Loads (nc,) of the contacts that are closed at `node`, where the step arrived and at its start.

    In parts of the size of accelerations at the start, m/s^2, which comes third. Where nothing is being
    searched for and no contact has to pull at the end, the start is not looked at.
    """
    none = jnp.zeros_like(node.terms.phi)
    start = (jnp.stack([none, none]), jnp.ones((2,), dt.dtype), jnp.int32(0))
    if none.shape[0] == 0:
        return none, none, start[1][0]
    both = jax.tree.map(lambda *x: jnp.stack(x), arrived, node)
    least = collision_tolerance(none.dtype) / dt

    def wanted(carry: tuple[Any, ...]) -> jax.Array:
        found, _, k = carry
        again = (k == 1) & (searching | jnp.any(found[0] < -least))
        return jnp.any(node.closed) & ((k == 0) | again)

    def find(carry: tuple[Any, ...]) -> tuple[Any, ...]:
        found, size, k = carry
        each = jax.tree.map(lambda x: x[k], both)
        load, gross = loads(system, params, each, node.closed, dt, guess)
        return found.at[k].set(load), size.at[k].set(gross), k + 1

    found, sizes, _ = lax.while_loop(wanted, find, start)
    size = jnp.where(sizes[1] > 0, sizes[1], 1.0)
    return found[0] / size, found[1] / size, size


def _events(
    node: Node,
    search: _Search,
    phi: jax.Array,
    rate: jax.Array,
    load: jax.Array,
    load_0: jax.Array,
    least: jax.Array,
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """What each contact's event is a zero of (nc,), its rate, and whether it has gone through.

    Args:
        load, load_0: (nc,) loads at the end and at the start, in parts of their size.
        least: load that counts.
    """
    eps = float(jnp.finfo(phi.dtype).eps)
    # A gap that starts a little below zero, by round-off, closes when it comes back to where it was.
    gap = phi - jnp.minimum(node.terms.phi, 0.0)
    # Contacts that carry nothing, as redundant ones may, open without an event.
    first = search.tries == 0
    opens = (load_0 > least) & (load < jnp.where(first, -least, -512.0 * eps))
    fell = jnp.where(node.closed, opens, gap < -512.0 * eps)
    span = search.h - search.before
    secant = (load - jnp.where(first, load_0, search.load)) / jnp.where(span != 0, span, 1.0)
    return jnp.where(node.closed, load, gap), jnp.where(node.closed, secant, rate), fell


def _narrowed(
    search: _Search, value: jax.Array, rate: jax.Array, fell: jax.Array, closed: jax.Array, t_end: jax.Array
) -> tuple[_Search, jax.Array, jax.Array]:
    """The search behind a trial; whether the trial is a whole step, and whether it ends on an event."""
    eps = float(jnp.finfo(value.dtype).eps)
    crossed = jnp.any(fell)
    whole = (search.tries == 0) & ~crossed
    suspects = jnp.where(crossed, fell, search.suspects)
    # On an event: within 450 eps seconds, 1e-13 in float64, or as near as round-off lets one see.
    allowed = 450.0 * eps * jnp.abs(rate) + jnp.where(closed, 64.0, 16.0) * eps
    early = jnp.any(suspects & (value < -allowed))
    near = jnp.any(suspects & (jnp.abs(value) <= allowed)) & ~early
    low = jnp.where(crossed, search.low, search.h)
    high = jnp.where(crossed, search.h, search.high)
    shut = (high - low <= 4.0 * eps * (jnp.abs(t_end) + high)) & ~crossed
    # One more step of Newton's method from a point on the event, for the last digits of the time.
    found = (near & search.near) | shut
    falls = suspects & (rate < 0)
    ahead = jnp.where(falls, search.h - value / jnp.where(falls, rate, -1.0), jnp.inf)
    newton = jnp.min(ahead, initial=jnp.inf)
    inside = (newton >= low) & (newton <= high) & (search.tries % 8 != 7)
    trial = jnp.where(inside | near, newton, 0.5 * (low + high))
    load = jnp.where(closed, value, 0.0)
    return _Search(low, high, trial, suspects, near, search.tries + 1, search.h, load), whole, found


def land(
    system: System, params: Params, node: Node, q: jax.Array, p: jax.Array, t: jax.Array, guess: jax.Array
) -> tuple[Node, jax.Array, jax.Array]:
    """The node at the end (q, p) of a step from `node`, impulses (nc, dim) there, and whether found."""
    terms = terms_at(system, params, q, node.t)
    stay = node.closed & touching(terms)
    p, second, fine = onto_closed_contacts(terms.M, p, contacts_of(terms, stay), guess)
    return arrive(terms, q, p, t), second, fine
