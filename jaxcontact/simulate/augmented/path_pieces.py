"""The pieces of a motion over impulse and time, one after the other: of impacts, or of smooth motion.

Entry: `run_pieces`. Page: docs/papers/halm_posa.md.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from jaxcontact._pytree import PyTree
from jaxcontact.impact import inputs
from jaxcontact.impact.analysis.force_modes import near_zero
from jaxcontact.impact.laws.contact_space import ContactSpace, contact_space, mass_norm
from jaxcontact.mechanics.numbers import usable_numbers
from jaxcontact.mechanics.system import Model, Params, State, System
from jaxcontact.precision import jit
from jaxcontact.simulate.augmented.contact_forces import Choice, accelerations, choose_modes
from jaxcontact.simulate.augmented.impact_piece import ImpactRate, impact_rate, piece_length
from jaxcontact.simulate.augmented.path import AugmentedInfo, AugmentedPath, PieceKind
from jaxcontact.simulate.augmented.smooth_piece import SmoothMotion, smooth_piece
from jaxcontact.simulate.variational.contact_state import touching_gap
from jaxcontact.solvers import contact_modes, ode
from jaxcontact.status import Status, flag
from jaxcontact.terms import ContactTerms, contact_terms


class PathNumbers(NamedTuple):
    """The arguments of `time_augmented` that are numbers."""

    params: Params
    state: State
    length: jax.Array
    rates: jax.Array | None
    key: jax.Array | None
    longest: jax.Array
    rtol: jax.Array


class _AugmentedCarry(NamedTuple):
    state: State
    s: jax.Array
    codes: jax.Array  # (nc,) modes of a smooth motion
    continues: jax.Array  # whether they continue
    ended: jax.Array  # (nc, 4) bool, modes that ended at this s
    speed: jax.Array  # |v|_M before the last impact
    rates: jax.Array  # (nc,) of the impact
    collides: jax.Array  # whether it began with an approach
    in_impact: jax.Array
    step: jax.Array  # s, to try next
    impacts: jax.Array
    jolts: jax.Array  # impacts without a collision
    pieces: jax.Array
    residual: jax.Array
    status: jax.Array


class _Row(NamedTuple):
    lam: jax.Array
    t_rate: jax.Array
    kind: jax.Array
    impact: jax.Array
    collision: jax.Array


@functools.partial(jit, static_argnames=("system", "max_pieces"))
def run_pieces(system: System, max_pieces: int, numbers: PathNumbers) -> tuple[AugmentedPath, AugmentedInfo]:
    """Follow the motion piece by piece, to its length or to `max_pieces`; return the path and its info."""
    state = jax.tree.map(lambda x: jnp.asarray(x, numbers.state.q.dtype), numbers.state)
    nc, dtype = system.structure.num_contacts, state.q.dtype
    bad = _bad_numbers(system, numbers, state)
    zero, none = jnp.zeros((), dtype), jnp.int32(0)
    start = _AugmentedCarry(
        state=state, s=zero, codes=jnp.zeros(nc, jnp.int32), continues=jnp.array(False),
        ended=jnp.zeros((nc, 4), bool), speed=zero, rates=jnp.ones(nc, dtype), collides=jnp.array(False),
        in_impact=jnp.array(False), step=jnp.asarray(1e-2, dtype), impacts=none, jolts=none, pieces=none,
        residual=zero, status=bad,
    )  # fmt: skip

    def body(carry: _AugmentedCarry, number: jax.Array) -> tuple[_AugmentedCarry, tuple[PyTree, ...]]:
        goes_on = (carry.s < numbers.length) & ~Status.failed(carry.status)
        after, row = lax.cond(
            goes_on,
            lambda c: _append_piece(system, numbers, number, c),
            lambda c: (c, _make_empty_row(nc, dtype)),
            carry,
        )
        return after, (after.s, after.state, row)

    end, (s, states, rows) = lax.scan(body, start, jnp.arange(max_pieces, dtype=jnp.int32))
    s, states = jax.tree.map(
        lambda first, later: jnp.concatenate([first[None], later]), (start.s, start.state), (s, states)
    )
    path = AugmentedPath(s=s, t=states.t, q=states.q, v=states.v, **rows._asdict())
    short = (end.s < numbers.length) & ~Status.failed(end.status)
    info = AugmentedInfo(
        status=end.status | flag(short, Status.MAX_ITERS),
        residual=end.residual,
        num_iters=end.pieces,
        num_impacts=end.impacts,
        num_without_collision=end.jolts,
    )
    return path, info


def _bad_numbers(system: System, numbers: PathNumbers, state: State) -> jax.Array:
    """Set the status bits of numbers that are not finite or out of range."""
    terms = contact_terms(Model(system=system, params=numbers.params), state)
    _, _, status = inputs.prepare(terms, state.v)
    settings = jax.tree.leaves((numbers.length, numbers.rates, numbers.rtol))
    finite = jnp.stack([jnp.all(jnp.isfinite(x)) for x in settings]).all()
    finite &= usable_numbers(numbers.params, state)
    positive = (numbers.length > 0) & (numbers.longest > 0) & (numbers.rtol > 0)
    if numbers.rates is not None:
        positive &= jnp.all(numbers.rates > 0)
    return status | flag(~finite, Status.NONFINITE) | flag(finite & ~positive, Status.INVALID)


def _make_empty_row(nc: int, dtype: jax.typing.DTypeLike) -> _Row:
    return _Row(
        jnp.zeros((nc, 2), dtype),
        jnp.zeros((), dtype),
        jnp.int32(PieceKind.UNUSED),
        jnp.int32(-1),
        jnp.array(False),
    )


def _append_piece(
    system: System, numbers: PathNumbers, number: jax.Array, carry: _AugmentedCarry
) -> tuple[_AugmentedCarry, _Row]:
    """Append the next piece: of an impact if a contact approaches, else of a smooth motion."""
    state, dtype = carry.state, carry.s.dtype
    terms = contact_terms(Model(system=system, params=numbers.params), state)
    touches = terms.phi <= touching_gap(dtype)
    space = contact_space(terms.replace(active=touches))
    near = near_zero(space, state.v, carry.speed)
    contacts = _ContactState(terms, touches, space, space.jacobian @ state.v, near)
    approaches = jnp.any(contacts.u[0::2] < -near[0::2])
    lots = _draw_lots(numbers, number, carry)
    begins = approaches & ~carry.in_impact
    carry = carry._replace(
        rates=jnp.where(carry.in_impact, carry.rates, lots.rates),
        speed=jnp.where(begins, mass_norm(space.mass, state.v), carry.speed),
    )
    undecided = ~approaches & ~carry.continues

    def push_on() -> ImpactRate:
        return impact_rate(space, contacts.u, carry.rates, near, lots.mode)

    push = _compute_if(approaches | undecided, push_on)
    choice = _compute_if(undecided, lambda: _choose_modes(system, numbers, contacts, carry, lots))
    options = choice.options + (lots.option is not None)
    drawn = False if lots.option is None else lots.option * options >= choice.options
    jolts = undecided & push.possible & ((choice.options == 0) | drawn)
    stuck = jnp.where(approaches, ~push.possible, undecided & (choice.options == 0) & ~jolts)
    violation = jnp.where(approaches | jolts, push.violation, jnp.where(undecided, choice.violation, 0.0))
    carry = carry._replace(
        codes=jnp.where(undecided, choice.codes, carry.codes),
        collides=jnp.where(carry.in_impact, carry.collides, approaches),
        impacts=carry.impacts + (begins | jolts),
        jolts=carry.jolts + jolts,
        pieces=carry.pieces + 1,
        residual=jnp.maximum(carry.residual, jnp.where(stuck, 0.0, violation)),
        status=carry.status | flag(stuck, Status.STALLED),
    )
    return lax.switch(
        jnp.where(stuck, 0, jnp.where(approaches | jolts, 1, 2)),
        (
            lambda c: (c, _make_empty_row(c.codes.shape[0], dtype)),
            lambda c: _move_velocities(numbers, contacts, push, c),
            lambda c: _move_smoothly(system, numbers, contacts, c),
        ),
        carry,
    )


class _ContactState(NamedTuple):
    """The contacts at the start of a piece: scaled velocities u (r,), and sizes `near` that count as zero."""

    terms: ContactTerms
    touches: jax.Array
    space: ContactSpace
    u: jax.Array
    near: jax.Array


class _Lots(NamedTuple):
    """Random numbers of a piece, in [0, 1) but for the rates; None without a key."""

    mode: jax.Array | None
    force: jax.Array | None
    option: jax.Array | None
    rates: jax.Array


def _draw_lots(numbers: PathNumbers, number: jax.Array, carry: _AugmentedCarry) -> _Lots:
    """Draw the random numbers of piece `number`, if there is a key."""
    if numbers.key is None:
        return _Lots(None, None, None, carry.rates if numbers.rates is None else numbers.rates)
    of_choice, of_rates = jax.random.split(jax.random.fold_in(numbers.key, number))
    mode, force, option = jax.random.uniform(of_choice, (3,), carry.s.dtype)
    rates = numbers.rates
    if rates is None:
        rates = jax.random.exponential(of_rates, carry.rates.shape, carry.s.dtype)
    return _Lots(mode, force, option, rates)


def _compute_if(wanted: jax.Array, function: Callable[..., PyTree]) -> PyTree:
    """Call the function if `wanted`, else return zeros of the same shapes."""
    shapes = jax.eval_shape(function)
    return lax.cond(wanted, function, lambda: jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), shapes))


def _choose_modes(
    system: System, numbers: PathNumbers, contacts: _ContactState, carry: _AugmentedCarry, lots: _Lots
) -> Choice:
    """Choose modes of the contacts that are closed and neither approach nor leave."""
    closed = contacts.touches & (jnp.abs(contacts.u[0::2]) <= contacts.near[0::2])
    rates = accelerations(Model(system=system, params=numbers.params), carry.state, closed)
    return choose_modes(rates, contacts.u, contacts.near, carry.ended, lots.force)


def _move_velocities(
    numbers: PathNumbers, contacts: _ContactState, push: ImpactRate, carry: _AugmentedCarry
) -> tuple[_AugmentedCarry, _Row]:
    """Move the velocities along a line until one reaches zero; time and positions stand still."""
    space, state = contacts.space, carry.state
    far, never = piece_length(contacts.u, space.delassus @ push.rate, contacts.near)
    far = jnp.minimum(far, numbers.length - carry.s)
    lam = (space.scale * push.rate).reshape(-1, 2)
    row = _Row(lam, jnp.zeros_like(far), jnp.int32(PieceKind.IMPACT), carry.impacts - 1, carry.collides)
    carry = carry._replace(
        state=state.replace(v=state.v + space.response @ (far * push.rate)),
        s=carry.s + far,
        continues=jnp.array(False),
        ended=jnp.zeros_like(carry.ended),
        in_impact=jnp.array(True),
        status=carry.status | flag(never, Status.UNTERMINATED),
    )
    return carry, row


def _move_smoothly(
    system: System, numbers: PathNumbers, contacts: _ContactState, carry: _AugmentedCarry
) -> tuple[_AugmentedCarry, _Row]:
    """Move the state in its modes until one of them ends or the step is over; time runs."""
    state, codes = carry.state, carry.codes
    u_n = contacts.u[0::2]
    leaves = contacts.touches & (u_n > contacts.near[0::2])
    smooth = SmoothMotion(
        codes=codes,
        state=state,
        s=carry.s,
        length=numbers.length,
        base=jnp.where(contacts.touches, contacts.terms.phi, 0.0),
        leaving=jnp.where(leaves, contacts.terms.J_n @ state.v, jnp.nan),
        near=contacts.near,
        longest=numbers.longest,
    )
    solver = ode.DormandPrince(rtol=numbers.rtol, atol=1e-2 * numbers.rtol)
    piece = smooth_piece(Model(system=system, params=numbers.params), smooth, carry.step, solver)
    t_rate = 1.0 / (1.0 + jnp.sum(piece.force[:, 0]))
    kind = jnp.where(jnp.any(codes != contact_modes.SEPARATE), PieceKind.CONTACT, PieceKind.FREE)
    row = _Row(t_rate * piece.force, t_rate, kind.astype(jnp.int32), jnp.int32(-1), jnp.array(False))
    # An impact left a velocity that counts as zero here but is more than round-off: infinitely many impacts
    # were cut short.
    speed = jnp.maximum(carry.speed, mass_norm(contacts.space.mass, state.v))
    round_off = 1e3 * float(jnp.finfo(state.v.dtype).eps) * speed
    cut = (codes != contact_modes.SEPARATE) & (u_n > round_off) & carry.in_impact
    stays = (piece.s <= carry.s) & carry.ended
    gone = (piece.event & piece.ending & (codes != contact_modes.SEPARATE))[:, None] & (
        jnp.arange(4)[None] == codes[:, None]
    )
    carry = carry._replace(
        state=piece.state,
        s=piece.s,
        continues=~piece.event,
        ended=stays | gone,
        speed=jnp.zeros_like(carry.speed),
        in_impact=jnp.array(False),
        step=piece.next_step,
        status=carry.status | flag(piece.failed, Status.STALLED) | flag(jnp.any(cut), Status.ZENO),
    )
    return carry, row
