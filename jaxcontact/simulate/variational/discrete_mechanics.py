"""Midpoint discrete mechanics: the discrete Lagrangian of a step, its momenta, and the step that they define.

Owns the discrete Euler-Lagrange equations of a step (`discrete_momenta`) and Newton's method for them, with
forces of contacts that stay closed. Entries: `take_step`, `repeat_step`. Page: docs/methods/motion.md.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from jaxcontact._pytree import PyTree
from jaxcontact.algebra import implicit, small_dense
from jaxcontact.batching.bounded_loop import bounded_loop
from jaxcontact.mechanics.configuration import retract
from jaxcontact.mechanics.mocap import at_time
from jaxcontact.mechanics.system import Model
from jaxcontact.simulate.steppers.dry_joints import dry_rows
from jaxcontact.simulate.variational.active_set import contact_impulses
from jaxcontact.simulate.variational.discrete_momenta import Start, discrete_momenta
from jaxcontact.simulate.variational.joint_rows import (
    JointRows,
    LoopRates,
    hold_loops,
    hold_momentum,
    loop_response,
    mean_loop_rates,
    press_rows,
)
from jaxcontact.terms.mocap import relative_velocities
from jaxcontact.tolerances import HALF_DIGITS, rounding

MAX_NEWTON = 24  # iterations of a step; a step that needs more is not solved (bit STALLED)


class StepContacts(NamedTuple):
    """The data of the contacts at the start of a step."""

    rows: jax.Array  # (nc, dim, nv) velocity Jacobians, n first
    mu: jax.Array  # (nc,)
    off: jax.Array  # (nc,) gaps of contacts that touch, as far as they are to be closed, m
    closed: jax.Array  # (nc,) bool, contacts that stay closed unless they are pulled open
    joints: JointRows | None = None
    surface: jax.Array | None = None  # (nc, dim) velocities of moving surfaces, as `ContactTerms.surface`


class Slopes(NamedTuple):
    """Derivatives by the mean velocity w of a step, which carry no derivatives themselves.

    The inverse (nv, nv) of that of the momentum at its start, which is M up to terms of order h; those of the
    momentum at its end (nv, nv), of the mean velocities in contacts (nc, dim, nv), and of the mean rates of
    loops (nb, nv), None for none.
    """

    inverse: jax.Array
    end: jax.Array
    contacts: jax.Array
    loops: jax.Array | None = None


class MidpointStep(NamedTuple):
    """A step: mean velocity w (nv,), impulses (nc, dim) at its start, end (q, p), Newton's outcome.

    The residual is the relative change of w by the last iteration of Newton's method. `closed_by` (nc,) is
    the change of the gaps by `close_gaps` alone, m. The slopes are those at the w before that iteration.
    `held` (nv,) is the impulse of loops at the start, None for none.
    """

    w: jax.Array
    impulse: jax.Array
    q: jax.Array
    p: jax.Array
    solved: jax.Array
    residual: jax.Array
    closed_by: jax.Array
    slopes: Slopes
    held: jax.Array | None = None


def close_gaps(contacts: StepContacts, inverse: jax.Array) -> jax.Array:
    """Compute the tangent step (nv,) that takes touching contacts towards phi = 0, without any momentum.

    A gap is off by its round-off, and by the rest of it when an event is found. As a velocity, in a short
    step, that would be energy from nothing. Each contact moves by its part: several need a few steps.
    """
    normals = contacts.rows[:, 0]
    response = inverse @ normals.T
    mobility = lax.stop_gradient(jnp.sum(normals.T * response, axis=0))
    number = jnp.maximum(jnp.sum(contacts.off != 0), 1)
    return -response @ (contacts.off / (jnp.where(mobility > 0, mobility, 1.0) * number))


def mean_velocities(model: Model, start: Start, w: jax.Array, h: jax.Array) -> jax.Array:
    """Compute the mean velocities (n, dim) of contacts, limits and dry joints over h w from the start.

    These are displacements divided by h, n first, by Gauss's rule of three points, which is exact for a
    corner to the seventh power of the angle of a step: a sticking point is held in its place, and a rolling
    body may roll, also on a path that is no straight line. Those of contacts are of material points.
    """
    q, (middle, reach) = start.q, (0.5, 0.5 * 0.6**0.5)
    parts = jnp.array([middle - reach, middle, middle + reach], q.dtype)
    share = jnp.array([5.0, 8.0, 5.0], q.dtype) / 18.0

    def velocities(length: jax.Array) -> jax.Array:
        rows = jnp.zeros((0, model.structure.dim), q.dtype)
        if model.structure.num_contacts:
            there = at_time(model, start.t + length)
            rows = relative_velocities(there, retract(model.system, q, length * w), w)
        constraints = model.system.constraints
        if constraints is None:
            return rows

        def limits(length: jax.Array) -> jax.Array:
            return constraints(model.structure, retract(model.system, q, length * w), model.params)[1]

        _, rates = jax.jvp(limits, (length,), (jnp.ones_like(length),))
        still = jnp.zeros((rates.shape[0], rows.shape[1] - 1), q.dtype)
        return jnp.concatenate([rows, jnp.concatenate([rates[:, None], still], axis=1)])

    mean = jnp.tensordot(share, jax.vmap(velocities)(parts * h), 1)
    dry = dry_rows(model)
    if dry is None:
        return mean
    rubs = jnp.zeros((dry.bound.shape[0], mean.shape[1]), q.dtype)
    return jnp.concatenate([mean, rubs.at[:, 1].set(small_dense.apply_matrix(dry.rows, w))])


class _Guess(NamedTuple):
    """Mean velocity and impulses that an iteration starts from, momenta at both ends, slopes.

    `measure_contacts` returns the mean velocities (nc, dim) in contacts and their derivative (nc, dim, nv)
    by w. `is_known`: whether the impulses are those of the step. `loops`: None for none.
    """

    w: jax.Array
    impulse: jax.Array
    momenta: tuple[jax.Array, jax.Array]
    slopes: Slopes
    measure_contacts: Callable[[], tuple[jax.Array, jax.Array]]
    is_known: bool = False
    loops: LoopRates | None = None


class _Iteration(NamedTuple):
    """An iteration of Newton's method: the step that it makes, its change of w, that of the one before."""

    step: MidpointStep
    before: jax.Array
    num_iters: jax.Array


def take_step(model: Model, start: Start, v: jax.Array, contacts: StepContacts, h: jax.Array) -> MidpointStep:
    """Make the step of length h.

    Closed contacts push with impulses lam at the start such that their gaps are zero at the end, or stop
    pushing; friction opposes the mean sliding velocity as far as mu lam_n allows. Loops push and pull so
    that they are closed at the end.

    Args:
        v: (nv,) velocity to start Newton's method from.

    Derivative: none; see `repeat_step`.
    """
    dtype, nv = start.q.dtype, v.shape[0]
    small = rounding(dtype, HALF_DIGITS)

    def momenta(w: jax.Array) -> tuple[PyTree, PyTree]:
        values = discrete_momenta(model, start, w, h)
        return values, values

    def means(w: jax.Array) -> tuple[jax.Array, jax.Array]:
        values = mean_velocities(model, start, w, h)
        return values, values

    loops = None if contacts.joints is None else contacts.joints.loops

    def loop_rates(w: jax.Array) -> LoopRates | None:
        if loops is None:
            return None

        def rates(w: jax.Array) -> tuple[jax.Array, jax.Array]:
            values = mean_loop_rates(model, start.q, w, h)
            return values, values

        slope, mean = jax.jacfwd(rates, has_aux=True)(w)
        return LoopRates(mean, slope)

    def iterate(carry: _Iteration) -> _Iteration:
        w, impulse = carry.step.w, carry.step.impulse
        (first, last), values = jax.jacfwd(momenta, has_aux=True)(w)
        rates = loop_rates(w)
        of_loops = None if rates is None else rates.slope
        slopes = Slopes(small_dense.generalized_inverse(first)[0], last, carry.step.slopes.contacts, of_loops)

        def measure_contacts() -> tuple[jax.Array, jax.Array]:
            slope, mean = jax.jacfwd(means, has_aux=True)(w)
            return mean, slope

        step = _iterate_once(
            model, start, _Guess(w, impulse, values, slopes, measure_contacts, loops=rates), contacts, h
        )
        return _Iteration(step, carry.step.residual, carry.num_iters + 1)

    def unsolved(carry: _Iteration) -> jax.Array:
        # One more iteration after the first small change, for the last digits.
        return (carry.before > small) & (carry.num_iters < MAX_NEWTON)

    none, far = jnp.zeros(contacts.rows.shape[:2], dtype), jnp.asarray(jnp.inf, dtype)
    square, no_gap = jnp.zeros((nv, nv), dtype), jnp.zeros_like(contacts.off)
    of_loops = None if loops is None else jnp.zeros_like(loops.rows)
    slopes = Slopes(square, square, jnp.zeros((*none.shape, nv), dtype), of_loops)
    held = None if loops is None else jnp.zeros_like(v)
    first = MidpointStep(v, none, start.q, start.p, jnp.array(False), far, no_gap, slopes, held)
    step, before, _ = bounded_loop(
        unsolved, iterate, _Iteration(first, far, jnp.int32(0)), max_iters=MAX_NEWTON
    )
    inverse = step.slopes.inverse
    rounded = jnp.finfo(dtype).eps * jnp.max(jnp.abs(inverse), initial=0.0)
    turns_back = jnp.any(jnp.diagonal(inverse) < -rounded)  # a negative damping too large for h
    solved = (before <= small) & step.solved & ~turns_back & jnp.all(jnp.isfinite(step.p))
    return step._replace(solved=solved)


def _relative_change(w: jax.Array, new: jax.Array, free: jax.Array) -> jax.Array:
    """Compute the relative change of the velocity w by an iteration.

    For bodies at rest only the velocity that they would have without contacts sets a scale.
    """
    size = jnp.maximum(jnp.max(jnp.abs(new)), jnp.max(jnp.abs(free))) + float(jnp.finfo(w.dtype).tiny)
    return jnp.max(jnp.abs(new - w)) / size


def repeat_step(
    model: Model, start: Start, w: jax.Array, impulse: jax.Array, slopes: Slopes,
    contacts: StepContacts, h: jax.Array,
) -> MidpointStep:  # fmt: skip
    """Repeat the step from its mean velocity w, with a derivative.

    Args:
        impulse: (nc, dim) of the step, from which the modes of contact follow.
        slopes: those of the step.

    Derivative: of the solution, first order, forward and reverse, by everything but `w`, `impulse`, `slopes`
        and the modes of contact.
    """
    values = discrete_momenta(model, start, w, h)

    def measure_contacts() -> tuple[jax.Array, jax.Array]:
        return mean_velocities(model, start, w, h), slopes.contacts

    rates = None
    if slopes.loops is not None:
        rates = LoopRates(mean_loop_rates(model, start.q, w, h), slopes.loops)
    return _iterate_once(
        model, start, _Guess(w, impulse, values, slopes, measure_contacts, True, rates), contacts, h
    )


def _iterate_once(
    model: Model, start: Start, guess: _Guess, contacts: StepContacts, h: jax.Array
) -> MidpointStep:
    """Make one iteration from the guess, and the step that it leads to."""
    w, impulse, momenta, slopes, measure_contacts, is_known, rates = guess
    inverse, joints = slopes.inverse, contacts.joints
    loops = None if joints is None else joints.loops
    answer = None if loops is None or rates is None else loop_response(loops, rates.slope, inverse)
    free = w + small_dense.apply_matrix(inverse, start.p - momenta[0])

    def with_contacts() -> tuple[jax.Array, ...]:
        nc, dim, nv = contacts.rows.shape
        flat = contacts.rows.reshape(nc * dim, nv)
        mean, slope = measure_contacts()
        bare = inverse @ flat.T
        response, rest = bare, free - w
        if answer is not None and rates is not None:
            response, rest = (
                hold_loops(answer, bare)[0],
                hold_loops(answer, rest[:, None], rates.mean[:, None])[0][:, 0],
            )
        velocity = mean + small_dense.apply_matrix(slope, rest)
        delassus, velocity = press_rows(joints, slope.reshape(nc * dim, nv) @ response, velocity, 0.5 * h)
        pushes, settled = contact_impulses(
            delassus, velocity, contacts.mu, contacts.closed, lax.stop_gradient(impulse), is_known
        )
        return free + small_dense.apply_matrix(bare, pushes.reshape(-1)), pushes, settled, slope

    def without_contacts() -> tuple[jax.Array, ...]:
        return free, jnp.zeros_like(impulse), jnp.array(True), slopes.contacts

    new, pushes, settled, slope = without_contacts()
    if contacts.mu.shape[0]:
        new, pushes, settled, slope = lax.cond(jnp.any(contacts.closed), with_contacts, without_contacts)
    closes, held = close_gaps(contacts, inverse), None
    if answer is not None and loops is not None and rates is not None:
        change, pull = hold_loops(answer, (new - w)[:, None], rates.mean[:, None])
        new, held = w + change[:, 0], loops.rows.T @ pull[:, 0]
        closes = hold_loops(answer, closes[:, None], loops.deviation[:, None])[0][:, 0]
    return MidpointStep(
        w=new,
        impulse=pushes,
        q=retract(model.system, start.q, h * new + closes),
        p=momenta[1] + small_dense.apply_matrix(slopes.end, new - w),
        solved=settled,
        residual=lax.stop_gradient(_relative_change(w, new, free)),
        closed_by=small_dense.apply_matrix(contacts.rows[:, 0], closes),
        slopes=slopes._replace(contacts=slope),
        held=held,
    )


def project_momentum(
    mass: jax.Array, p: jax.Array, contacts: StepContacts, guess: jax.Array, is_known: bool, h: jax.Array
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Make the momentum (nv,) at the end of a step of length h tangent to loops and closed contacts.

    Args:
        guess: (nc, dim) impulses, and with `is_known` the solution.

    Returns:
        p + J^T lam with 0 <= lam_n, J_n v >= 0 complementary and friction of maximal dissipation;
        lam (nc, dim); whether the modes were found.
    """
    joints = contacts.joints
    if joints is not None and joints.loops is not None:
        p = hold_momentum(mass, joints.loops.rows, p)

    def with_contacts(_: None) -> tuple[jax.Array, jax.Array, jax.Array]:
        nc, dim, nv = contacts.rows.shape
        flat = contacts.rows.reshape(nc * dim, nv)
        response = implicit.solve_spd(mass, jnp.concatenate([flat.T, p[:, None]], axis=1))
        velocity = small_dense.apply_matrix(flat, response[:, -1]).reshape(nc, dim)
        if contacts.surface is not None:
            velocity = velocity + contacts.surface
        delassus, velocity = press_rows(joints, flat @ response[:, :-1], velocity, 0.5 * h)
        pushes, is_solved = contact_impulses(
            delassus, velocity, contacts.mu, contacts.closed, lax.stop_gradient(guess), is_known
        )
        return p + small_dense.apply_matrix(flat.T, pushes.reshape(-1)), pushes, is_solved

    def without_contacts(_: None) -> tuple[jax.Array, jax.Array, jax.Array]:
        return p, jnp.zeros_like(guess), jnp.array(True)

    if contacts.mu.shape[0] == 0:
        return without_contacts(None)
    return lax.cond(jnp.any(contacts.closed), with_contacts, without_contacts, None)
