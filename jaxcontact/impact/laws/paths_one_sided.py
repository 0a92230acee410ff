"""Routh's path with restitution and its one-sided derivative, where contacts reach events together.

Owns the path of a point that moves by an infinitesimal h: all numbers have a change, and what is zero has the
sign of its change. Pieces of the path are finite, or as short as h. Entry `follow_path`.
Page: docs/understand/derivatives.md.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxcontact._pytree import PyTree
from jaxcontact.algebra.forward_only import forward_only
from jaxcontact.impact import inputs
from jaxcontact.impact.laws.contact_space import ContactSpace, contact_space, mass_norm, slowest_approach
from jaxcontact.impact.laws.energetic_restitution import find_loaded
from jaxcontact.impact.laws.routh_path import RouthPathInfo, find_spent, impulse_rates, next_mode, routh_path
from jaxcontact.precision import all_digits, jit
from jaxcontact.solvers import contact_modes
from jaxcontact.solvers.contact_directions import BORDER_DIGITS, REVERSE, SECOND
from jaxcontact.status import Status, flag
from jaxcontact.terms import ContactTerms
from jaxcontact.tolerances import rounding

PROBES = 8  # random motions for each contact, to see whether orders of events end elsewhere
SAME_DIGITS = 0.75  # of a border; ends closer than that are the same
LONGER = 2  # pieces of a displaced path for each piece of the path


class ScaledNumbers(NamedTuple):
    """The numbers of a path, scaled: D (r, r), friction, rates and e^2 (nc,), velocities before (r,)."""

    delassus: jax.Array
    mu: jax.Array
    cap: jax.Array
    elastic: jax.Array
    u: jax.Array


class PathRule(NamedTuple):
    """What carries no derivative: modes, tolerances, impulse (r,) of the path, and whether orders matter."""

    space: ContactSpace
    table: contact_modes.ModeMaps
    near: jax.Array
    slowest: jax.Array
    impulse: jax.Array
    jumps: jax.Array


class _Point(NamedTuple):
    """A point of a displaced path; names with d are changes per h, `second` is the store per h^2."""

    u: jax.Array
    du: jax.Array
    impulse: jax.Array
    dimpulse: jax.Array
    stored: jax.Array
    dstored: jax.Array
    second: jax.Array
    fails: jax.Array


class _Contacts(NamedTuple):
    """What contacts do at a point: masks (r,) or (nc,), and velocities."""

    faint: jax.Array  # (r,) velocities that are zero and change
    seen: jax.Array  # (r,) velocities, with the sign of the change where they are zero
    pushes: jax.Array  # with energy in store
    late: jax.Array  # with energy of the order of h
    again: jax.Array  # with energy of the order of h^2
    needed: jax.Array  # () whether the path continues


def follow_path(
    terms: ContactTerms, v: jax.Array, rates: jax.Array, max_events: int, restitution: jax.Array
) -> tuple[jax.Array, RouthPathInfo]:
    """Compute the end of `routh_path` with its one-sided derivative; the note JUMP tells that there is none.

    Derivative: forward, first order, by terms, v, rates and restitution; NaN with JUMP, and in a direction
        whose path ends elsewhere.
    """
    fixed = lax.stop_gradient((terms, v, rates, restitution))
    v_smooth, info = routh_path(*fixed[:3], max_events=max_events, restitution=fixed[3])
    v_plus, jumps = _follow(terms, v, rates, restitution, info.impulse, max_events)
    failed = Status.failed(info.status)
    status = info.status | jnp.where(failed, jnp.uint32(0), flag(jumps, Status.JUMP))
    return jnp.where(failed, v_smooth, v_plus), info.replace(status=status)


@functools.partial(jit, static_argnames="max_events")
def _follow(
    terms: ContactTerms, v: jax.Array, rates: jax.Array, restitution: jax.Array, impulse: jax.Array,
    max_events: int,
) -> tuple[jax.Array, jax.Array]:  # fmt: skip
    terms, v, _ = inputs.prepare(terms, v)
    space = contact_space(terms)
    normals = space.scale[::2]
    elastic = jnp.broadcast_to(restitution, terms.phi.shape) ** 2
    numbers = ScaledNumbers(
        space.delassus, space.mu, jnp.where(terms.active, rates, 0.0) / normals, elastic, space.jacobian @ v
    )
    fixed = lax.stop_gradient(space)
    near = _tolerance(v.dtype) * mass_norm(fixed.mass, lax.stop_gradient(v))
    near = jnp.maximum(near, float(jnp.finfo(v.dtype).tiny) ** 0.5)  # a body at rest may begin to strike
    rule = PathRule(
        space=fixed,
        table=contact_modes.mode_table(fixed.delassus, fixed.mu, fixed.active, capped=True),
        near=near,
        slowest=jnp.maximum(near, slowest_approach(fixed, lax.stop_gradient(v))),
        impulse=lax.stop_gradient(impulse).reshape(-1) / fixed.scale,
        jumps=jnp.array(False),
    )
    length = LONGER * max_events
    rule = rule._replace(jumps=_order_matters(length, lax.stop_gradient(numbers), rule))
    return v + space.response @ one_sided_path(length, numbers, rule), rule.jumps


@functools.partial(jax.custom_jvp, nondiff_argnums=(0,))
def one_sided_path(length: int, numbers: ScaledNumbers, rule: PathRule) -> jax.Array:
    """Return the scaled impulse (r,) of a path; its forward derivative is that of the displaced path."""
    return rule.impulse


@one_sided_path.defjvp
@all_digits
def _one_sided_jvp(length: int, primals: tuple, tangents: tuple) -> tuple[jax.Array, jax.Array]:
    numbers, rule = primals
    end, is_same = _displace(length, numbers, tangents[0], rule)
    change = jnp.where(is_same & ~rule.jumps, end.dimpulse, jnp.nan)
    return one_sided_path(length, *primals), forward_only(change, numbers.u, reverse=REVERSE, second=SECOND)


def _order_matters(length: int, numbers: ScaledNumbers, rule: PathRule) -> jax.Array:
    """Decide whether displaced paths end elsewhere in some of many random motions of the bodies."""
    nc = numbers.mu.shape[0]
    pushes = np.random.default_rng(0).normal(size=(PROBES * nc, 2 * nc))
    still = jax.tree.map(jnp.zeros_like, numbers)

    def differs(push: jax.Array) -> jax.Array:
        return ~_displace(length, numbers, still._replace(u=numbers.delassus @ push), rule)[1]

    return jnp.any(lax.map(differs, jnp.asarray(pushes, numbers.u.dtype)))


def _displace(
    length: int, numbers: ScaledNumbers, changes: ScaledNumbers, rule: PathRule
) -> tuple[_Point, jax.Array]:
    """Follow a displaced path, at most `length` pieces; return its end, and whether it tends to the path."""
    none, zero = jnp.zeros_like(numbers.u), jnp.zeros_like(numbers.mu)
    start = _Point(numbers.u, changes.u, none, none, zero, zero, zero, jnp.array(False))
    size = jnp.max(jnp.abs(changes.u))

    def step(at: _Point, _: None) -> tuple[_Point, None]:
        return _add_piece(numbers, changes, rule, at, size), None

    end, _ = lax.scan(step, start, length=length)
    needed = _look(rule, at=end, small=_small(numbers, end, size)).needed
    apart = numbers.delassus @ (end.impulse - rule.impulse)
    border = rounding(numbers.u.dtype, SAME_DIGITS * BORDER_DIGITS) * jnp.max(jnp.abs(numbers.u))
    return end, ~needed & ~end.fails & (jnp.max(jnp.abs(apart)) <= border)


def _tolerance(dtype: jnp.dtype) -> float:
    return 10.0 * contact_modes.feasibility_tolerance(dtype)


def _small(numbers: ScaledNumbers, at: _Point, size: jax.Array) -> jax.Array:
    """Compute the change of a velocity per h below which it is round-off."""
    moved = jnp.max(jnp.abs(numbers.delassus @ at.dimpulse))
    return rounding(at.u.dtype, BORDER_DIGITS) * jnp.maximum(
        jnp.maximum(size, moved), jnp.max(jnp.abs(at.du))
    )


def _look(rule: PathRule, at: _Point, small: jax.Array) -> _Contacts:
    """Find what contacts do at a point."""
    zero = jnp.abs(at.u) <= rule.near
    faint = zero & (jnp.abs(at.du) > small)
    seen = jnp.where(faint, jnp.sign(at.du) * 2.0 * rule.near, jnp.where(zero, 0.0, at.u))
    loaded, opens = find_loaded(at.stored, rule.slowest), seen[0::2] >= -rule.near
    speed = jnp.max(jnp.abs(at.u))
    late = ~loaded & (at.dstored > small * speed) & (at.u[0::2] > rule.near)
    again = ~loaded & (at.second > 0.5 * small**2) & zero[0::2] & opens
    approaches = (at.u[0::2] < -rule.slowest) | (faint[0::2] & (at.du[0::2] < 0))
    pushes = loaded & opens
    return _Contacts(faint, seen, pushes, late, again, jnp.any(approaches | pushes | late | again))


class _Piece(NamedTuple):
    """A piece of constant rates (r,) of impulse and velocity, and its length."""

    rate: jax.Array
    slope: jax.Array
    length: jax.Array


def _add_piece(
    numbers: ScaledNumbers, changes: ScaledNumbers, rule: PathRule, at: _Point, size: jax.Array
) -> _Point:
    """Continue a displaced path by a piece up to the next event, if it has not ended."""
    tolerance = _tolerance(at.u.dtype)
    contacts = _look(rule, at, _small(numbers, at, size))
    active = contacts.pushes | contacts.late | contacts.again
    largest = jnp.max(jnp.where((contacts.seen[0::2] <= rule.near) | active, numbers.cap, 0.0))
    unit = jnp.where(largest > 0, largest, 1.0)
    counts = numbers.cap / unit > tolerance**0.75
    cap, dcap = (jnp.where(counts, x / unit, 0.0) for x in (numbers.cap, changes.cap))
    x = jnp.concatenate([jnp.zeros_like(at.u), cap])
    mode, violation = next_mode(rule.table, contacts.seen, x, rule.near, tolerance, active)

    def move(delassus: jax.Array, mu: jax.Array, cap: jax.Array) -> tuple[jax.Array, jax.Array]:
        space = rule.space.replace(delassus=delassus, mu=mu)
        guess = rule.table.impulse[:, :, mode] @ x
        rate, _ = impulse_rates(space, rule.table, mode, jnp.zeros_like(at.u), cap, guess)
        return rate, delassus @ rate

    (rate, slope), (drate, dslope) = jax.jvp(
        move, (numbers.delassus, numbers.mu, cap), (changes.delassus, changes.mu, dcap)
    )
    event, is_short, length, dlength = _next_event(
        rule, at, contacts, (_Piece(rate, slope, cap[0]), _Piece(drate, dslope, cap[0]))
    )
    never = ~jnp.isfinite(length) | ~jnp.isfinite(dlength)
    length, dlength = (jnp.where(never, 0.0, x) for x in (length, dlength))
    piece, dpiece = _Piece(rate, slope, length), _Piece(drate, dslope, dlength)
    moved = _move(numbers.elastic, changes.elastic, at, piece, dpiece)
    moved = _end_at_event(rule, at, moved, event, is_short, never)
    stuck = (violation > tolerance) | (never & ~jnp.any(active))
    after = jax.tree.map(lambda new, old: jnp.where(contacts.needed & ~stuck, new, old), moved, at)
    return after._replace(fails=at.fails | (contacts.needed & stuck))


def _next_event(
    rule: PathRule, at: _Point, contacts: _Contacts, pieces: tuple[_Piece, _Piece]
) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array]:
    """Find the next event: its number, whether it is as near as h, the length to it, and its change per h.

    Events 0..r-1 are zeros of velocities, the others are stores that are empty.
    """
    (rate, slope, _), (drate, dslope, _) = pieces
    steady = jnp.abs(slope) <= _tolerance(slope.dtype)
    safe = jnp.where(steady, 1.0, slope)
    wait, short = -at.u / safe, -at.du / safe
    wait = jnp.where((jnp.abs(at.u) > rule.near) & ~steady & (wait > 0), wait, jnp.inf)
    dwait = jnp.where(
        jnp.isfinite(wait), (-at.du - jnp.where(jnp.isfinite(wait), wait, 0.0) * dslope) / safe, 0.0
    )
    short = jnp.where(contacts.faint & ~steady & (short > 0), short, jnp.inf)
    never = jnp.full((), -1.0, at.u.dtype)
    spent, dspent = jax.jvp(
        lambda u, slope, rate, stored: find_spent(u, slope, rate, stored, contacts.pushes, never)[0],
        (at.u, slope, rate, at.stored), (at.du, dslope, drate, at.dstored),
    )  # fmt: skip
    again, _ = find_spent(at.du, slope, rate, at.second, contacts.again, never)
    power = rate[0::2] * at.u[0::2]
    late = jnp.where(contacts.late & (power > 0), at.dstored / jnp.where(power > 0, power, 1.0), jnp.inf)
    times, dtimes = jnp.concatenate([wait, spent]), jnp.concatenate([dwait, dspent])
    shorts = jnp.concatenate([short, jnp.minimum(again, late)])
    earliest = jnp.min(times)
    slack = jnp.concatenate([rule.near / jnp.abs(safe), _tolerance(slope.dtype) * jnp.abs(spent)])
    ties = (times <= earliest) | (jnp.isfinite(times) & (times - earliest <= slack))
    first, first_short = jnp.argmin(jnp.where(ties, dtimes, jnp.inf)), jnp.argmin(shorts)
    is_short = jnp.isfinite(shorts[first_short])
    return (
        jnp.where(is_short, first_short, first),
        is_short,
        jnp.where(is_short, 0.0, times[first]),
        jnp.where(is_short, shorts[first_short], dtimes[first]),
    )


def _move(elastic: jax.Array, delastic: jax.Array, at: _Point, piece: _Piece, dpiece: _Piece) -> _Point:
    """Move a point along a piece."""

    def end(piece: _Piece, u: jax.Array, impulse: jax.Array, stored: jax.Array, elastic: jax.Array) -> PyTree:
        middle = u[0::2] + 0.5 * piece.length * piece.slope[0::2]
        work = piece.length * piece.rate[0::2] * middle
        left = stored - jnp.where(middle > 0, work, elastic * work)
        return u + piece.length * piece.slope, impulse + piece.length * piece.rate, left

    (u, impulse, stored), (du, dimpulse, dstored) = jax.jvp(
        end,
        (piece, at.u, at.impulse, at.stored, elastic),
        (dpiece, at.du, at.dimpulse, at.dstored, delastic),
    )
    middle = at.du[0::2] + 0.5 * dpiece.length * piece.slope[0::2]
    work = dpiece.length * piece.rate[0::2] * middle
    second = at.second - jnp.where(middle > 0, work, elastic * work)
    return _Point(u, du, impulse, dimpulse, stored, dstored, jnp.maximum(second, 0.0), at.fails)


def _end_at_event(
    rule: PathRule, at: _Point, moved: _Point, event: jax.Array, is_short: jax.Array, never: jax.Array
) -> _Point:
    """Set what the event of a piece makes zero, all stores if none comes; only rest keeps energy per h^2."""
    rows = at.u.shape[0]
    at_event = (jnp.arange(rows) == event) & ~never
    empties = (jnp.arange(rows // 2) + rows == event) | never
    rests = is_short & (jnp.abs(at.u[0::2]) <= rule.near)
    return moved._replace(
        u=jnp.where(at_event, 0.0, moved.u),
        du=jnp.where(at_event, 0.0, moved.du),
        stored=jnp.where(empties, 0.0, moved.stored),
        dstored=jnp.where(empties, 0.0, moved.dstored),
        second=jnp.where(rests & ~empties, moved.second, 0.0),
    )
