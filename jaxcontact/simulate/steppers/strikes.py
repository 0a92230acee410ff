"""Strikes of `TimeStepping`: impacts at their times within a step, by the motion between contacts.

Entries `step_with_strikes`, and `step_at_once` for laws of every step. Page: docs/methods/motion.md.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from jaxcontact._pytree import PyTree
from jaxcontact.algebra import implicit
from jaxcontact.impact.laws.callable_laws import Law
from jaxcontact.impact.laws.contact_space import collision_tolerance, mass_norm
from jaxcontact.mechanics.configuration import retract
from jaxcontact.mechanics.free_step import FreeStep, free_step, moves_with, take_free_step
from jaxcontact.mechanics.mocap import carry_mocap
from jaxcontact.mechanics.motion_equations import kinematics_of
from jaxcontact.mechanics.system import Model, Params, State, System
from jaxcontact.simulate.projection import constraint_values, held_rows
from jaxcontact.simulate.steppers.dry_joints import dry_rows, with_dry_joints
from jaxcontact.simulate.steppers.one_sided_step import are_held, is_grazed
from jaxcontact.solvers.roots import Bracket, illinois
from jaxcontact.status import Status, flag
from jaxcontact.terms import ContactTerms, touch_tolerance
from jaxcontact.terms.closed_loops import project_rows, project_velocity
from jaxcontact.terms.motion import carried_terms
from jaxcontact.terms.surfaces import shared_velocity

LEAST_REST = 1e-9  # of dt; the shortest time after a strike, so that gaps over times stay finite
SLOW_FRACTION = 0.25  # of the speed that forces make in a step; slower, open contacts strike too often in it
SEARCHES = 40  # iterations of the search for the time of a strike; eight are usual
HALVE_EVERY = 4  # iterations; every fourth takes the middle, so that no end stays


class Answer(NamedTuple):
    """The answer of laws to a velocity: v (nv,), impulse (nu, 1 + nt), status, residual, number of solves."""

    v: jax.Array
    impulse: jax.Array
    status: jax.Array
    residual: jax.Array
    num_iters: jax.Array


class StrikeProgress(NamedTuple):
    """A step so far: state and terms after its last strike, and the account of all laws.

    `terms` has no gap below zero; `drift` (nu, 1 + nt) are rates of contact velocities at constant v, zero
    after a strike; `beside` (nu, 1 + nt) is what surfaces and mocap bodies add to J v. `left` is what is left
    of dt; `more` is False at the end of the step.
    """

    state: State
    terms: ContactTerms
    drift: jax.Array
    beside: jax.Array | None
    left: jax.Array
    account: Answer
    more: jax.Array


class _Path(NamedTuple):
    """Motion within a step without strikes: q(s) = q (+) s (v + s (rate - v) / left)."""

    params: Params
    q: jax.Array
    v: jax.Array
    rate: jax.Array
    left: jax.Array


Contacts = tuple[ContactTerms, jax.Array, jax.Array | None]  # terms, drift and beside as in `StrikeProgress`


class Laws(NamedTuple):
    """The law of strikes, that of contacts that press, the key of the step or None, and its derivative."""

    strike: Law
    press: Law
    key: jax.Array | None
    is_one_sided: bool = False


def no_answer(v: jax.Array, impulse: jax.Array) -> Answer:
    """Return the answer of a step without contacts: v, and `impulse`, which is zero."""
    return Answer(v, impulse, jnp.uint32(0), jnp.zeros((), v.dtype), jnp.int32(0))


def start_of_constraints(free: FreeStep) -> jax.Array:
    """Compute the velocity (nv,) at the end of a free step, before impulses of contacts and limits."""
    return free.ahead + implicit.solve_spd(free.M, free.push[:, None])[:, 0]


def within_reach(terms: ContactTerms, drift: jax.Array, v: jax.Array, dt: jax.Array) -> jax.Array:
    """Mark the contacts (nu,) that can close within the step.

    No law adds energy, so |J v+| <= |J|_g |v|_M.
    """
    terms, drift, v, dt = lax.stop_gradient((terms, drift, v, dt))
    size = jnp.sqrt(jnp.sum(terms.J_n.T * implicit.solve_spd(terms.M, terms.J_n.T), axis=0))
    return terms.phi + 0.5 * dt**2 * drift[:, 0] <= jnp.maximum(
        dt * size * mass_norm(terms.M, v), touch_tolerance(terms.J_n)
    )


def press(
    laws: Laws,
    model: Model,
    state: State,
    contacts: Contacts,
    free: FreeStep,
    allowed: PyTree,
    dt: jax.Array,
) -> tuple[Answer, jax.Array]:
    """Apply the law of contacts that press, over dt, to dry joints and the `allowed` contacts within reach.

    Gaps and slips of the step are those of rows in its middle: with terms, drift and beside of `contacts`, a
    gap ends at phi + dt (J_n v+ + beside_n) + dt^2 drift_n / 2.
    Loops hold at the velocity that the law starts from, and its impulses do not change that: contacts and dry
    joints act through P, the projection on G v = 0 in the metric of M.

    Returns the answer, and a mask (nv,) of the velocities on which contacts, dry joints or loops act.
    """
    ahead, dry, held = start_of_constraints(free), dry_rows(model), held_rows(model, state.q)
    terms, drift, beside = contacts
    terms = terms.replace(M=free.M)
    if held is not None:
        ahead = project_velocity(free.M, held, ahead)
        rows = jnp.concatenate([terms.J_n[:, None], terms.J_t], axis=1)
        rows = project_rows(free.M, held, rows.reshape(-1, rows.shape[2])).reshape(rows.shape)
        terms = terms.replace(J_n=rows[:, 0], J_t=rows[:, 1:])
        dry = None if dry is None else dry._replace(rows=project_rows(free.M, held, dry.rows))
    nu, nv = terms.phi.shape[0], ahead.shape[0]
    if not nu and dry is None:
        none = jnp.zeros((0, 1 + terms.J_t.shape[1]), ahead.dtype)
        return no_answer(ahead, none), jnp.ones(nv, bool) if held is None else jnp.any(held != 0.0, axis=0)
    # A table that moves may drive a body faster than its own energy does: every gap may close.
    near = within_reach(terms, drift, ahead, dt) if beside is None else jnp.ones(nu, bool)
    terms = terms.replace(active=near & allowed)
    clearance = (0.5 * dt * drift).at[:, 0].add(terms.phi / dt)
    asked = terms, ahead, clearance if beside is None else clearance + beside
    if dry is not None:
        asked = with_dry_joints(*asked, dry, dt)
    v, info = laws.press(*asked[:2], laws.key, clearance=asked[2])
    touched = touched_velocities(asked[0], info.impulse)[:nv]
    if held is not None:
        touched = touched | jnp.any(held != 0.0, axis=0)
    answer = Answer(v[:nv], info.impulse[:nu], info.status, info.residual, info.num_iters)
    if laws.is_one_sided:
        # A part that only grazes moves as if free; pushed, however little, as by backward Euler.
        grazed = is_grazed(asked[0], asked[2], asked[1], v, info.impulse)
        grazes = touched_velocities(asked[0], jnp.broadcast_to(grazed[:, None] * 1.0, info.impulse.shape))
        jumps = jnp.any(moves_with(model.system, grazes[:nv]) & ~moves_with(model.system, touched))
        jumps |= (held is not None) & jnp.any(are_held(terms.J_n, terms.phi, state.q))
        answer = answer._replace(status=answer.status | flag(jumps, Status.JUMP))
    return answer, touched


def touched_velocities(terms: ContactTerms, impulse: jax.Array) -> jax.Array:
    """Mark the velocities (nv,) that pushing contacts move, some by friction alone (a braked wheel)."""
    pushed = (impulse[:, :1] > 0) & (terms.J_n != 0)
    rubbed = jnp.any(impulse[:, 1:] != 0, axis=1)[:, None] & jnp.any(terms.J_t != 0, axis=1)
    return jnp.any(pushed | rubbed, axis=0)


def step_at_once(
    laws: Laws,
    model: Model,
    state: State,
    contacts: Contacts,
    controls: jax.Array,
    dt: jax.Array,
) -> tuple[State, Answer]:
    """Make a step in which contacts press and none strikes; return the end, still deep, and the answer."""
    free = free_step(model, state, controls, dt, contacts[0].M, kinematics_of(model, state.q))
    answer, touched = press(laws, model, state, contacts, free, True, dt)
    v, rate = take_free_step(model, state.q, free, answer.v, touched, dt)
    q = retract(model.system, state.q, dt * rate)
    status = answer.status | flag(~free.settled, Status.MAX_ITERS)
    return State(q=q, v=v, t=state.t + dt), answer._replace(status=status)


def step_with_strikes(
    laws: Laws,
    model: Model,
    state: State,
    contacts: Contacts,
    controls: jax.Array,
    dt: jax.Array,
    max_strikes: int,
) -> tuple[State, Answer]:
    """Make a step with strikes at their times, the first time at which a contact closes, and so on.

    A contact that touches strikes if it approaches faster than the forces of one step make it, an open one
    from a quarter of that speed on. After `max_strikes` times those that are left of the step come at once
    (UNTIMED). Returns as `step_at_once`.
    """
    progress = StrikeProgress(
        state, *contacts, dt, no_answer(state.v, jnp.zeros_like(contacts[1])), jnp.asarray(True)
    )

    def advance(progress: StrikeProgress, number: jax.Array) -> tuple[StrikeProgress, None]:
        key = None if laws.key is None else jax.random.fold_in(laws.key, number)
        more = max_strikes - number  # strikes at their times; zero is one at once, below zero none
        go = functools.partial(_advance_to_strike, laws._replace(key=key), model, controls, dt, more)
        return lax.cond(progress.more, go, lambda progress: progress, progress), None

    progress, _ = lax.scan(advance, progress, jnp.arange(max_strikes + 2))
    return progress.state, progress.account


def _advance_to_strike(
    laws: Laws, model: Model, controls: jax.Array, dt: jax.Array, more: jax.Array, progress: StrikeProgress
) -> StrikeProgress:
    """Advance to the next strike in what is left of the step, else to its end."""
    state, terms, left = progress.state, progress.terms, progress.left
    model = carry_mocap(model, dt - left)
    free = free_step(model, state, controls, left, terms.M, kinematics_of(model, state.q))
    ahead = start_of_constraints(free)
    rate = terms.J_n @ state.v
    slowest = jnp.abs(terms.J_n @ ahead - rate) * (dt / left) + collision_tolerance(rate.dtype)
    rate = rate if progress.beside is None else rate + progress.beside[:, 0]
    touches = terms.phi <= touch_tolerance(terms.J_n)
    fast = progress.more & (more >= 0) & (rate < -jnp.where(touches, 1.0, SLOW_FRACTION) * slowest)
    pressed, touched = press(laws, model, state, (terms, progress.drift, progress.beside), free, ~fast, left)
    pressed = pressed._replace(status=pressed.status | flag(~free.settled, Status.MAX_ITERS))
    v, rate_of_q = take_free_step(model, state.q, free, pressed.v, touched, left)
    path = _Path(model.params, state.q, state.v, rate_of_q, left)
    # A contact that closes at the very end, but for round-off, strikes now, and not at rest in the next step.
    end = collision_tolerance(rate.dtype) * left * jnp.abs(rate + terms.J_n @ (v - state.v))
    closes = fast & (_gaps_on_path(model.system, path, left) <= end)

    def strike() -> StrikeProgress:
        share, first = _first_time(model.system, path, closes)
        share = jnp.where(more > 0, share, 0.0)
        then = State(
            q=_place_on_path(model.system, path, share * left),
            v=state.v + share * (v - state.v),
            t=state.t + share * left,
        )
        at_strike, _, beside = carried_terms(carry_mocap(model, share * left), then)
        near = at_strike.phi <= touch_tolerance(at_strike.J_n)
        near |= jnp.where(more > 0, first, closes) | (pressed.impulse[:, 0] > 0)
        at_strike = at_strike.replace(phi=jnp.maximum(at_strike.phi, 0.0), active=near & jnp.any(closes))
        held = held_rows(model, then.q)
        if held is not None:
            then = then.replace(v=project_velocity(at_strike.M, held, then.v))
        answer = _apply_strike_law(laws, at_strike, then.v, beside)
        answer = answer._replace(status=answer.status | flag(more == 0, Status.UNTIMED))
        rest = left - share * left
        rest = rest + lax.stop_gradient(jnp.maximum(LEAST_REST * dt - rest, 0.0))
        account = add_answers(add_answers(progress.account, pressed, share), answer, 1.0)
        return StrikeProgress(
            then.replace(v=answer.v),
            at_strike,
            jnp.zeros_like(progress.drift),
            beside,
            rest,
            account,
            jnp.asarray(True),
        )

    def finish() -> StrikeProgress:
        q = retract(model.system, state.q, left * rate_of_q)
        then = State(q=q, v=v, t=state.t + left)
        account = add_answers(progress.account, pressed, 1.0)
        ended = jnp.asarray(False)
        return StrikeProgress(then, terms, progress.drift, progress.beside, left, account, ended)

    return lax.cond(jnp.any(closes), strike, finish)


def _apply_strike_law(laws: Laws, terms: ContactTerms, v: jax.Array, beside: jax.Array | None) -> Answer:
    """Apply the law of strikes to relative velocities; only v_plus, status and impulse of it are known."""
    shift, unlike = jnp.zeros_like(v), jnp.asarray(False)
    if beside is not None:
        shift, unlike = shared_velocity(terms, beside)
    v_plus, info = laws.strike(terms, v + shift, laws.key)
    v_plus = v_plus - shift
    impulse = info.impulse
    if impulse.ndim == 1:
        none = jnp.zeros((terms.phi.shape[0], 1 + terms.J_t.shape[1]), v.dtype)
        impulse = none.at[:, 0].set(impulse)
    residual = jnp.asarray(getattr(info, "residual", 0.0), v.dtype)
    solves = jnp.asarray(getattr(info, "num_iters", 1), jnp.int32)
    status = jnp.asarray(info.status, jnp.uint32) | flag(unlike, Status.INVALID)
    return Answer(v_plus, impulse, status, residual, solves)


def add_answers(account: Answer, answer: Answer, share: jax.Array | float) -> Answer:
    """Add a share of the impulses of an answer to the account of a step, which keeps its v."""
    return Answer(
        account.v,
        account.impulse + share * answer.impulse,
        account.status | answer.status,
        jnp.maximum(account.residual, answer.residual),
        account.num_iters + answer.num_iters,
    )


def _place_on_path(system: System, path: _Path, time: jax.Array) -> jax.Array:
    """Compute the configuration (nq,) at a time of the path."""
    mean = path.v + (time / path.left) * (path.rate - path.v)
    return retract(system, path.q, time * mean)


def _gaps_on_path(system: System, path: _Path, time: jax.Array) -> jax.Array:
    """Compute the gaps and limits (nu,) at a time of the path."""
    model = carry_mocap(Model(system=system, params=path.params), time)
    return constraint_values(model, _place_on_path(system, path, time))[1]


def _gap_of(system: System, data: tuple[_Path, jax.Array], share: jax.Array) -> jax.Array:
    """Compute the gap of the contact that `first` (nu,) marks, at a share of the path."""
    path, first = data
    return first @ _gaps_on_path(system, path, share * path.left)


def _divide_by_slope(
    system: System, data: tuple[_Path, jax.Array], share: jax.Array, residual: jax.Array
) -> jax.Array:
    """Divide a gap by its derivative along the path; return 0 where the gap does not fall."""
    slope = lax.stop_gradient(jax.grad(functools.partial(_gap_of, system, data))(share))
    return residual / jnp.where(slope < 0, slope, -jnp.inf)


def _first_time(system: System, path: _Path, closes: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Find the share of the path at which the first contact of `closes` (nu,) closes, and mark that contact.

    Derivative: by the path, from the root of the gap of that contact.
    """
    fixed = lax.stop_gradient(path)

    def smallest(share: jax.Array) -> jax.Array:
        return jnp.min(jnp.where(closes, _gaps_on_path(system, fixed, share * fixed.left), jnp.inf))

    zero, unit = jnp.zeros((), path.q.dtype), jnp.ones((), path.q.dtype)
    begin, end = smallest(zero), smallest(unit)
    epsilon = float(jnp.finfo(zero.dtype).eps)
    enough = epsilon * (begin - end)

    def searching(carry: PyTree) -> jax.Array:
        count, _, bracket, _, size = carry
        return (count < SEARCHES) & (size > enough) & (bracket.high - bracket.low > epsilon * bracket.high)

    def improve(carry: PyTree) -> tuple:
        count, trial, bracket, best, size = carry
        value = smallest(trial)
        better = jnp.abs(value) < size
        best, size = jnp.where(better, trial, best), jnp.where(better, jnp.abs(value), size)
        trial, bracket = illinois(trial, value, bracket, count % HALVE_EVERY == HALVE_EVERY - 1)
        return count + 1, trial, bracket, best, size

    inside = (begin > 0) & (end < 0)
    bracket = Bracket(zero, unit, begin, end, jnp.asarray(True))
    start = begin / jnp.where(inside, begin - end, 1.0)
    size = jnp.where(inside, jnp.minimum(begin, -end), 0.0)
    nearest = jnp.where(begin > jnp.abs(end), unit, zero)
    _, _, _, share, _ = lax.while_loop(searching, improve, (jnp.int32(0), start, bracket, nearest, size))
    gaps = jnp.where(closes, _gaps_on_path(system, fixed, share * fixed.left), jnp.inf)
    first = jnp.arange(gaps.shape[0]) == jnp.argmin(gaps)
    residual = functools.partial(_gap_of, system)
    correct = functools.partial(_divide_by_slope, system)
    share = implicit.attach(residual, correct, (path, first.astype(share.dtype)), share)
    return share, first & closes
