"""Contact forces of a smooth motion: their values in given modes, and the choice of modes.

Owns the accelerations at a state and the forces that keep the contacts of a piece in their modes. Entries:
`accelerations`, `choose_modes`.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxcontact.algebra import implicit, small_dense
from jaxcontact.impact.analysis.force_modes import acceleration_size, force_modes
from jaxcontact.impact.laws.contact_space import (
    ContactSpace,
    contact_space,
    friction_directions,
    mass_norm,
)
from jaxcontact.mechanics.motion_equations import bias_at
from jaxcontact.mechanics.robot import actuator_forces
from jaxcontact.mechanics.system import Model, State
from jaxcontact.solvers import contact_modes, mode_choice
from jaxcontact.solvers.contact_modes import REST_MINUS, REST_PLUS, REST_STICK, SEPARATE
from jaxcontact.solvers.contact_problem import SEPARATE as FREE
from jaxcontact.solvers.contact_problem import (
    SLIDE,
    STICK,
    ContactModes,
    ContactProblem,
    mode_equations,
)
from jaxcontact.terms import ContactTerms, moving_terms
from jaxcontact.terms.closed_loops import project_velocity
from jaxcontact.terms.motion import project_terms
from jaxcontact.tolerances import NO_MOTION, SQUARE, ZERO_FORCE, rounding

FORCE_TOLERANCE = ZERO_FORCE  # power of eps; a smaller force, relative to the size of accelerations, is zero
SHARE_OF_FRICTION = 2.0**-6  # weight of friction that shares a load with normal forces; it carries the square


class Accelerations(NamedTuple):
    """The accelerations of a state without contact forces.

    Attributes:
        terms: the terms there.
        space: contact space of the closed contacts.
        free: (nv,) acceleration.
        rate: (r,) scaled acceleration of the closed contacts.
        size: () reference that scaled accelerations are compared with.
    """

    terms: ContactTerms
    space: ContactSpace
    free: jax.Array
    rate: jax.Array
    size: jax.Array


def accelerations(
    model: Model,
    state: State,
    closed: jax.Array,
    controls: jax.Array | None = None,
    dt: jax.Array | None = None,
) -> Accelerations:
    """Compute M^-1 F and J M^-1 F + (dJ/dt) v at a state; loops hold, and limits and dry joints are contacts.

    The reference `size` is not below the acceleration that changes v by round-off within `dt` s.
    """
    terms, drift, bound, free = free_motion(model, state, controls)
    space = contact_space(terms.replace(active=closed))
    drift = space.scale * jnp.where(closed[:, None], drift, 0.0).reshape(-1)
    size = acceleration_size(space, free, drift)
    if dt is not None:
        round_off = rounding(drift.dtype, 1.0 - FORCE_TOLERANCE)
        size = jnp.maximum(size, round_off * mass_norm(terms.M, state.v) / dt)
    rate = small_dense.apply_matrix(space.jacobian, free) + drift
    if bound.shape[0]:
        space, rate = _press_dry_joints(space, rate, bound)
    return Accelerations(terms, space, free, rate, size)


class FreeMotion(NamedTuple):
    """Terms and drifts (n, dim) of contacts, bounds (nd,) of dry joints, free acceleration (nv,)."""

    terms: ContactTerms
    drift: jax.Array
    bound: jax.Array
    acceleration: jax.Array


def free_motion(
    model: Model, state: State, controls: jax.Array | None, other: jax.Array | None = None
) -> FreeMotion:
    """Compute the acceleration without contacts, in which loops hold, and the terms of contacts.

    Args:
        other: (nv,) further forces.
    """
    terms, drift, kinematics, bound, loops = moving_terms(model, state)
    force = -bias_at(model, state, kinematics)
    if controls is not None:
        force = force + actuator_forces(model, state, controls)
    if other is not None:
        force = force + other
    free = implicit.solve_spd(terms.M, force[:, None])[:, 0]
    if loops is not None:
        free, bare = project_velocity(terms.M, loops.rows, free, loops.drift), terms
        terms = project_terms(terms, loops.rows)
        # Loops have an acceleration of their own: J vdot is not J P vdot.
        drift = drift.at[:, 0].add(small_dense.apply_matrix(bare.J_n - terms.J_n, free))
        drift = drift.at[:, 1:].add(small_dense.apply_matrix(bare.J_t - terms.J_t, free))
    return FreeMotion(terms, drift, bound, free)


def _press_dry_joints(
    space: ContactSpace, rate: jax.Array, bound: jax.Array
) -> tuple[ContactSpace, jax.Array]:
    """Let the last contacts approach so fast that normal forces of the size `bound` (nd,) stop them.

    Their normal rows, which nothing else moves, have the scale of their tangents.
    """
    axes = 1 + space.num_tangents
    normal = np.arange(space.mu.shape[0] - bound.shape[0], space.mu.shape[0]) * axes
    scale = space.scale[normal + 1]
    space = space.replace(
        delassus=space.delassus.at[normal, normal].set(1.0),
        scale=space.scale.at[normal].set(scale),
        mu=space.mu.at[normal // axes].set(1.0),
    )
    return space, rate.at[normal].set(-bound / scale)


def forces_in_modes(space: ContactSpace, rate: jax.Array, codes: jax.Array) -> jax.Array:
    """Compute the shortest scaled forces (r,) in given modes: contacts may share a load in many ways."""
    slip = jnp.where(codes == REST_PLUS, 1.0, -1.0)[:, None].astype(rate.dtype)
    kind = jnp.where(codes == SEPARATE, FREE, jnp.where(codes == REST_STICK, STICK, SLIDE))
    return shortest_forces(space, rate, kind, slip)


def shortest_forces(space: ContactSpace, rate: jax.Array, kind: jax.Array, slip: jax.Array) -> jax.Array:
    """Compute the shortest scaled forces (r,) of contacts that separate, stick or slide along slip (nc, nt).

    Rows of contacts may be zero, parallel or dependent. If friction can share a load with normal forces,
    it counts as longer by 1 / `SHARE_OF_FRICTION`, so that it stays inside of its cone.
    """
    uncapped = jnp.zeros_like(space.mu)
    problem = ContactProblem(
        delassus=space.delassus, velocity=rate, mu=space.mu, cap=uncapped, mask=space.active
    )
    rows, rhs = mode_equations(problem, ContactModes(kind=kind, capped=uncapped > 0, direction=slip))
    mu = lax.stop_gradient(space.mu)
    share = SHARE_OF_FRICTION * jnp.sqrt(jnp.where(mu > 0, jnp.minimum(mu, 1.0), 1.0))[:, None]
    weight = jnp.concatenate([jnp.ones_like(share), jnp.broadcast_to(share, slip.shape)], axis=1).reshape(-1)
    rows = rows * weight[None]
    square = jnp.sum(rows**2, axis=1)
    moves = square > NO_MOTION * rounding(rows.dtype, SQUARE) * jnp.max(square, initial=0.0)
    per_length = lax.rsqrt(jnp.where(moves, square, 1.0)) * moves
    rows, rhs = rows * per_length[:, None], rhs * per_length
    fixed = lax.stop_gradient(rows)
    square, _ = small_dense.generalized_inverse(fixed @ fixed.T)
    inverse, multipliers = fixed.T @ square, small_dense.apply_matrix(square, lax.stop_gradient(rhs))
    # `refine` would not change the distribution of a load. The shortest forces are rows^T times multipliers,
    # so their distribution turns with the rows; its part without an effect on the rows is zero in value, but
    # its derivative is not.
    turned = small_dense.apply_matrix(rows.T, multipliers)
    guess, without = (
        small_dense.apply_matrix(inverse, rhs),
        small_dense.apply_matrix(inverse, small_dense.apply_matrix(fixed, turned)),
    )
    force = implicit.refine(rows, rhs, guess, inverse) + turned - without
    return weight * force


def cone_distances(space: ContactSpace, force: jax.Array) -> jax.Array:
    """Compute the distances (nc, 3) of scaled forces inside their cones: f_n, mu f_n - f_t, mu f_n + f_t."""
    normal, tangential = force[0::2], force[1::2]
    ray = lax.rsqrt(1.0 + space.mu**2)
    limit = space.mu * normal
    return jnp.stack([normal / ray, (limit - tangential) * ray, (limit + tangential) * ray], axis=1)


class Choice(NamedTuple):
    """The chosen modes (nc,) of contacts, the number of distinct options, and the violation of this one."""

    codes: jax.Array
    options: jax.Array
    violation: jax.Array


def choose_modes(
    rates: Accelerations, u: jax.Array, near: jax.Array, ended: jax.Array, pick: jax.Array | None
) -> Choice:
    """Choose the modes of the closed contacts at scaled contact velocities u (r,); below `near` they are 0.

    Args:
        ended: (nc, 4) bool, modes that end here.
        pick: in [0, 1), chooses among the distinct solutions; None takes the first.
    """
    space, rate, size = rates.space, rates.rate, rates.size
    u_t = u[1::2]
    slides = space.active & (jnp.abs(u_t) > near[1::2])
    table, violation = force_modes(space, rate, slides, u_t > 0, size, friction_directions(1, 2))
    over = jnp.any(jnp.take_along_axis(ended, table.codes, axis=1), axis=0)
    violation = jnp.where(over, jnp.inf, violation)
    valid = violation <= contact_modes.feasibility_tolerance(rate.dtype)
    score = jnp.sum(table.score * rate[:, None], axis=0)
    wanted = jnp.zeros((), rate.dtype) if pick is None else pick
    mode, count = mode_choice.choose(valid, score, wanted, size)
    mode = jnp.where(count == 0, jnp.argmin(violation), jnp.argmax(valid) if pick is None else mode)
    codes = table.codes[:, mode]
    # If a load can be shared in many ways, a mode has an extreme distribution; the shortest forces vary less.
    out = space.delassus @ (table.impulse[:, :, mode] @ rate) + rate
    noise = contact_modes.feasibility_tolerance(rate.dtype) * size * 100.0
    rests, sticks = jnp.abs(out[0::2]) <= noise, ~slides & (jnp.abs(out[1::2]) <= noise)
    direction = jnp.where(jnp.where(slides, u_t, out[1::2]) > 0, REST_PLUS, REST_MINUS)
    shared = jnp.where(space.active & rests, jnp.where(sticks, REST_STICK, direction), SEPARATE)
    inside = cone_distances(space, forces_in_modes(space, rate, shared)) >= -noise
    has_ended = jnp.take_along_axis(ended, shared[:, None], axis=1)
    fits = jnp.all(inside) & ~jnp.any(has_ended) & (count > 0)
    return Choice(jnp.where(fits, shared, codes).astype(jnp.int32), count, violation[mode])
