"""Midpoint discrete mechanics: the discrete Lagrangian of a step, its momenta, and the step that they define.

Owns the discrete Euler-Lagrange equations of a step (`discrete_momenta`) and Newton's method for them, with
forces of contacts that stay closed. Entries: `take_step`, `repeat_step`. Page: docs/methods/motion.md.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from jaxcontact.algebra import implicit, rotations, small_dense
from jaxcontact.batching.bounded_loop import bounded_loop
from jaxcontact.mechanics.configuration import retract
from jaxcontact.mechanics.motion_equations import energies
from jaxcontact.mechanics.robot import actuator_forces
from jaxcontact.mechanics.system import Model, State, System
from jaxcontact.simulate.variational.active_set import contact_impulses
from jaxcontact.terms import contact_gaps, contact_velocities

MAX_NEWTON = 24  # iterations of a step; a step that needs more is not solved (bit STALLED)
FRESH = 4  # iterations between two derivatives; two or three with the first one usually suffice


def gaps(model: Model, q: jax.Array) -> jax.Array:
    """Compute the gaps (nc,) of all candidate contacts, m; nc may be 0."""
    return contact_gaps(model, q) if model.structure.num_contacts else jnp.zeros(0, q.dtype)


class Contacts(NamedTuple):
    """The data of the contacts at the start of a step."""

    rows: jax.Array  # (nc, dim, nv) velocity Jacobians, n first
    mu: jax.Array  # (nc,)
    off: jax.Array  # (nc,) gaps of contacts that touch, as far as they are to be closed, m
    closed: jax.Array  # (nc,) bool, contacts that stay closed unless they are pulled open


class Start(NamedTuple):
    """The start of a step, and the controls (nu,) that act during it, None for none."""

    q: jax.Array
    p: jax.Array
    t: jax.Array
    controls: jax.Array | None = None


class MidpointStep(NamedTuple):
    """A step: mean velocity w (nv,), impulses (nc, dim) at its start, end (q, p), gaps, Newton's outcome.

    The residual is the relative change of w by one more iteration of Newton's method. `closed_by` (nc,) is
    the change of the gaps by `closing` alone, m.
    """

    w: jax.Array
    impulse: jax.Array
    q: jax.Array
    p: jax.Array
    phi: jax.Array
    solved: jax.Array
    residual: jax.Array
    closed_by: jax.Array


def closing(contacts: Contacts, inverse: jax.Array) -> jax.Array:
    """Compute the tangent step (nv,) that takes touching contacts towards phi = 0, without any momentum.

    A gap is off by its round-off, and by the rest of it when an event is found. As a velocity, in a short
    step, that would be energy from nothing. Each contact moves by its part: several need a few steps.
    """
    normals = contacts.rows[:, 0]
    response = inverse @ normals.T
    mobility = lax.stop_gradient(jnp.sum(normals.T * response, axis=0))
    number = jnp.maximum(jnp.sum(contacts.off != 0), 1)
    return -response @ (contacts.off / (jnp.where(mobility > 0, mobility, 1.0) * number))


def mean_velocities(model: Model, q: jax.Array, w: jax.Array, h: jax.Array) -> jax.Array:
    """Compute the mean velocities (nc, dim) of the material points in contact over the step h w from q.

    These are displacements divided by h, n first, by Gauss's rule of three points, which is exact for a
    corner to the seventh power of the angle of a step: a sticking point is held in its place, and a rolling
    body may roll, also on a path that is no straight line.
    """
    middle, reach = 0.5, 0.5 * 0.6**0.5
    parts = jnp.array([middle - reach, middle, middle + reach], q.dtype)
    share = jnp.array([5.0, 8.0, 5.0], q.dtype) / 18.0
    each = jax.vmap(lambda part: contact_velocities(model, retract(model.system, q, part * h * w), w))(parts)
    return jnp.tensordot(share, each, 1)


def lagrangian(model: Model, q: jax.Array, v: jax.Array) -> jax.Array:
    """Compute the kinetic energy minus the potential energy of gravity, J."""
    kinetic, gravity = energies(model, q, v)
    return kinetic - gravity


def applied_force(model: Model, state: State, controls: jax.Array | None) -> jax.Array:
    """Compute the generalized force (nv,) of `forces`, `drive` and controls."""
    force = jnp.zeros_like(state.v)
    if controls is not None:
        force = force + actuator_forces(model, state, controls)
    if model.system.forces is not None:
        force = force + model.system.forces(model.structure, state.q, state.v, model.params)
    if model.system.drive is not None:
        force = force + model.system.drive(model.structure, state, model.params)
    return force


def _at_midpoint(model: Model, start: Start, w: jax.Array, h: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Compute dL/dv and dL/dq + forces (nv,) at the midpoint of a step."""
    middle = retract(model.system, start.q, 0.5 * h * w)
    force, momentum = jax.grad(
        lambda delta, v: lagrangian(model, retract(model.system, middle, delta), v), argnums=(0, 1)
    )(jnp.zeros_like(w), w)
    midpoint = State(q=middle, v=w, t=start.t + 0.5 * h)
    return momentum, force + applied_force(model, midpoint, start.controls)


def _at_end(system: System, d: jax.Array, momentum: jax.Array, impulse: jax.Array) -> jax.Array:
    """Carry dL/dv and h times the force at the midpoint to the covector (nv,) at the end of tangent step d.

    Plain coordinates: momentum + impulse / 2. With -d it is the covector at the start.
    """
    result = momentum + 0.5 * impulse
    for k, start in enumerate(sorted(system.structure.quaternions)):
        part = slice(start - k, start - k + 3)
        inverse = rotations.exp_jacobian_inverse(d[part])
        middle = 0.5 * rotations.exp_jacobian(0.5 * d[part]) @ inverse
        result = result.at[part].set(inverse.T @ momentum[part] + middle.T @ impulse[part])
    return result


def discrete_momenta(model: Model, start: Start, w: jax.Array, h: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Compute the momenta -D_1 L_d - F^- at the start and D_2 L_d + F^+ at the end of a step, (nv,) each.

    With w = d / h, d the tangent step from q_0 to q_1, and the midpoint q_m = q_0 (+) d / 2,

        L_d(q_0, q_1) = h L(q_m, w),    p_0 = -D_1 L_d - F^- - J^T lam,    p_1 = D_2 L_d + F^+

    (Seghete & Murphey, eqs 28-29, with the forces of Leyendecker et al.). Variations of a quaternion are
    turns in its body axes, so that a body turning in space keeps its angular momentum.
    """
    momentum, force = _at_midpoint(model, start, w, h)
    return _at_end(model.system, -h * w, momentum, -h * force), _at_end(
        model.system, h * w, momentum, h * force
    )


class EndRates(NamedTuple):
    """Rates of the end of a step by its length: of gaps (nc,), q, p and impulses (nc, dim)."""

    phi: jax.Array
    q: jax.Array
    p: jax.Array
    impulse: jax.Array


def take_step(
    model: Model, start: Start, v: jax.Array, contacts: Contacts, h: jax.Array
) -> tuple[MidpointStep, EndRates]:
    """Make the step of length h; return it and the rates of its end by h.

    Closed contacts push with impulses lam at the start such that their gaps are zero at the end, or stop
    pushing; friction opposes the mean sliding velocity as far as mu lam_n allows.

    Args:
        v: (nv,) velocity to start Newton's method from.

    Derivative: none; see `repeat_step`.
    """
    dtype = start.q.dtype
    small = float(jnp.finfo(dtype).eps) ** 0.5

    def unsolved(carry: tuple[jax.Array, ...]) -> jax.Array:
        *_, change, fresh, count = carry
        return ((change > small) | ~fresh) & (count < MAX_NEWTON)

    def iterate(carry: tuple) -> tuple:
        w, impulse, inverse, change, _, count = carry
        fresh = (count % FRESH == 0) | (change <= small)
        inverse = lax.cond(fresh, lambda: step_inverse(model, start, w, h), lambda: inverse)
        new, impulse, _, free = _newton(model, start, w, impulse, inverse, contacts, h)
        return new, impulse, inverse, _change(w, new, free), fresh, count + 1

    none = jnp.zeros(contacts.rows.shape[:2], dtype)
    zeros, far = jnp.zeros((v.shape[0], v.shape[0]), dtype), jnp.asarray(jnp.inf, dtype)
    first = (v, none, zeros, far, jnp.array(False), jnp.int32(0))
    w, impulse, inverse, change, *_ = bounded_loop(unsolved, iterate, first, max_iters=MAX_NEWTON)

    def last(h: jax.Array) -> tuple[EndRates, MidpointStep]:
        step = repeat_step(model, start, w, impulse, inverse, contacts, h)
        return EndRates(step.phi, step.q, step.p, step.impulse), step

    _, rates, step = jax.jvp(last, (h,), (jnp.ones_like(h),), has_aux=True)
    solved = (change <= small) & step.solved & jnp.all(jnp.isfinite(step.p))
    return step._replace(solved=solved), rates


def _change(w: jax.Array, new: jax.Array, free: jax.Array) -> jax.Array:
    """Compute the relative change of the velocity w by an iteration.

    For bodies at rest only the velocity that they would have without contacts sets a scale.
    """
    size = jnp.maximum(jnp.max(jnp.abs(new)), jnp.max(jnp.abs(free))) + float(jnp.finfo(w.dtype).tiny)
    return jnp.max(jnp.abs(new - w)) / size


def repeat_step(
    model: Model, start: Start, w: jax.Array, impulse: jax.Array, inverse: jax.Array,
    contacts: Contacts, h: jax.Array,
) -> MidpointStep:  # fmt: skip
    """Repeat the step from its mean velocity w: one more iteration, for the last digits and the derivative.

    Args:
        impulse: (nc, dim), to find the modes of contact from.
        inverse: `step_inverse` at w.

    Derivative: of the solution, first order, forward and reverse, by everything but `w`, `impulse`, `inverse`
        and the modes of contact.
    """
    exact, lam, fine, free = _newton(model, start, w, impulse, inverse, contacts, h)
    closes = closing(contacts, inverse)
    q_end = retract(model.system, start.q, h * exact + closes)
    p_end = discrete_momenta(model, start, exact, h)[1]
    residual = lax.stop_gradient(_change(w, exact, free))
    closed_by = contacts.rows[:, 0] @ closes
    return MidpointStep(exact, lam, q_end, p_end, gaps(model, q_end), fine, residual, closed_by)


def step_inverse(model: Model, start: Start, w: jax.Array, h: jax.Array) -> jax.Array:
    """Invert the derivative (nv, nv) of the start momentum by w, which is M up to terms of order h."""
    derivative = jax.jacfwd(lambda w: discrete_momenta(model, start, w, h)[0])(w)
    return small_dense.generalized_inverse(derivative)[0]


def _newton(
    model: Model, start: Start, w: jax.Array, impulse: jax.Array, inverse: jax.Array,
    contacts: Contacts, h: jax.Array,
) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array]:  # fmt: skip
    """Make one iteration; return w (nv,), impulses (nc, dim), if they were found, and w without contacts."""
    fixed_params, fixed_q, fixed_h = lax.stop_gradient((model.params, start.q, h))
    free = w + inverse @ (start.p - discrete_momenta(model, start, w, h)[0])

    def pushed(_: None) -> tuple[jax.Array, jax.Array, jax.Array]:
        nc, dim, nv = contacts.rows.shape
        flat = contacts.rows.reshape(nc * dim, nv)
        mean = mean_velocities(model, start.q, w, h)
        slope = jax.jacfwd(
            lambda w: mean_velocities(model.replace(params=fixed_params), fixed_q, w, fixed_h)
        )(w)
        velocity = mean + slope @ (free - w)
        rows = slope.reshape(nc * dim, nv)
        response = inverse @ flat.T
        pushes, fine = contact_impulses(
            rows @ response, velocity, contacts.mu, contacts.closed, lax.stop_gradient(impulse)
        )
        return free + response @ pushes.reshape(-1), pushes, fine

    def alone(_: None) -> tuple[jax.Array, jax.Array, jax.Array]:
        return free, jnp.zeros_like(impulse), jnp.array(True)

    if contacts.mu.shape[0] == 0:
        return *alone(None), free
    return *lax.cond(jnp.any(contacts.closed), pushed, alone, None), free


def onto_closed_contacts(
    mass: jax.Array, p: jax.Array, contacts: Contacts, guess: jax.Array
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Make the momentum (nv,) at the end of a step tangent to the contacts that stay closed.

    Returns:
        p + J^T lam with 0 <= lam_n, J_n v >= 0 complementary and friction of maximal dissipation;
        lam (nc, dim); whether the modes were found.
    """

    def pushed(_: None) -> tuple[jax.Array, jax.Array, jax.Array]:
        nc, dim, nv = contacts.rows.shape
        flat = contacts.rows.reshape(nc * dim, nv)
        response = implicit.solve_spd(mass, jnp.concatenate([flat.T, p[:, None]], axis=1))
        velocity = (flat @ response[:, -1]).reshape(nc, dim)
        pushes, fine = contact_impulses(
            flat @ response[:, :-1], velocity, contacts.mu, contacts.closed, lax.stop_gradient(guess)
        )
        return p + flat.T @ pushes.reshape(-1), pushes, fine

    def alone(_: None) -> tuple[jax.Array, jax.Array, jax.Array]:
        return p, jnp.zeros_like(guess), jnp.array(True)

    if contacts.mu.shape[0] == 0:
        return alone(None)
    return lax.cond(jnp.any(contacts.closed), pushed, alone, None)
