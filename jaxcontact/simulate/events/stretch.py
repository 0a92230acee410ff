"""A stretch of motion in which no contact changes its mode: its field, its end, and its event functions.

Owns the equations of motion of contacts that separate, stick or slide; one step of Dormand & Prince along
them; the functions whose zeros are events. Entries: `start_vector`, `step_stretch`. Page:
docs/methods/motion.md.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from jaxcontact._pytree import PyTree
from jaxcontact.algebra import implicit, small_dense
from jaxcontact.algebra.replay_rule import differentiate_at_once
from jaxcontact.impact.laws.contact_space import ContactSpace, contact_space
from jaxcontact.mechanics.configuration import position_rate, retract
from jaxcontact.mechanics.motion_equations import bias_at, kinematics_of, mass_matrix_at
from jaxcontact.mechanics.robot import actuator_forces
from jaxcontact.mechanics.system import Model, Params, State, System
from jaxcontact.simulate.augmented.contact_forces import accelerations, free_motion, shortest_forces
from jaxcontact.simulate.variational.contact_state import terms_at
from jaxcontact.solvers import ode
from jaxcontact.solvers.contact_problem import SEPARATE, SLIDE, STICK
from jaxcontact.terms import ContactTerms, moving_terms
from jaxcontact.terms.closed_loops import project_velocity
from jaxcontact.terms.motion import has_loops
from jaxcontact.terms.records import normal_rates, slips

ROOT, FRICTION = range(2)  # columns of `Look.value`: gap or normal force; sliding velocity or friction left


class Modes(NamedTuple):
    """The modes of contacts: kind (nc,) SEPARATE, STICK, SLIDE; heading (nc, nt) of sliding at the start."""

    kind: jax.Array
    heading: jax.Array


class StretchMotion(NamedTuple):
    """The numbers of a mechanism, its controls, the modes of its contacts, and the whole time step, s."""

    params: Params
    controls: jax.Array
    modes: Modes
    dt: jax.Array


def start_vector(system: System, state: State, terms: ContactTerms) -> jax.Array:
    """Join (q, v, impulses of contacts, sliding velocities in space), which the field moves.

    The smaller a sliding velocity, the faster friction turns with it. The stages of a step have q and v of a
    spinning body not accurately enough for that; rates of their own keep sliding velocities smooth.
    """
    nc, dim = terms.phi.shape[0], system.structure.dim
    slip = jnp.zeros(0, state.q.dtype)
    if nc and dim == 3:
        slip = slips(terms, state.v).reshape(-1)
    return jnp.concatenate([state.q, state.v, jnp.zeros(nc * dim, state.q.dtype), slip])


def split_vector(system: System, t: jax.Array, y: jax.Array) -> tuple[State, jax.Array, jax.Array]:
    """Split a vector of `start_vector` into state, impulses (nc, dim) and sliding velocities (nc, nt).

    In the plane, in which friction has only one line, the latter are zero.
    """
    nq, nv = system.structure.num_positions, system.structure.num_velocities
    dim = system.structure.dim
    rows = dim if dim == 2 else 2 * dim - 1  # of each contact
    nc = (y.shape[0] - nq - nv) // rows
    impulse, slip = jnp.split(y[nq + nv :], [nc * dim])
    slip = slip if slip.shape[0] else jnp.zeros(nc * (dim - 1), y.dtype)
    return State(q=y[:nq], v=y[nq : nq + nv], t=t), impulse.reshape(nc, dim), slip.reshape(nc, dim - 1)


class Look(NamedTuple):
    """The contacts at a point of a stretch.

    Attributes:
        value: (nc, 2) values that end the stretch when they fall below zero. An open contact has its gap, m,
            and 1; a closed one its normal force relative to the size of accelerations, and, if it sticks, the
            friction that is left, likewise relative, or, if it slides, the velocity along its heading, m/s.
        rate: (nc,) of the gaps, m/s.
        friction: (nc, nt) directions of the friction forces, zero without a force.
    """

    value: jax.Array
    rate: jax.Array
    friction: jax.Array


@functools.lru_cache(maxsize=64)
def point_function(system: System) -> Callable[[StretchMotion, jax.Array, jax.Array], tuple[jax.Array, Look]]:
    """Return the function (motion, t, y) -> (rate of `start_vector`, `Look`).

    Derivative: one operation, see `differentiate_at_once`; of the rate, and of values and rates of the look.
    """
    return differentiate_at_once(functools.partial(_evaluate_point, system))


def _evaluate_point(
    system: System, motion: StretchMotion, t: jax.Array, y: jax.Array
) -> tuple[jax.Array, Look]:
    """Compute the rate of `start_vector` and the `Look` at a point of a stretch."""
    state, impulse, slip = split_vector(system, t, y)
    nc, dim = impulse.shape
    kind, heading = motion.modes
    qdot = position_rate(system, state.q, state.v)
    model = Model(system=system, params=motion.params)
    if nc == 0:
        return jnp.concatenate([qdot, _free_acceleration(model, motion.controls, state)]), _no_look(heading)
    at = accelerations(model, state, kind != SEPARATE, motion.controls, motion.dt)

    def pressed() -> jax.Array:
        return shortest_forces(at.space, at.rate, kind, _sliding_direction(slip, heading))

    force = lax.cond(jnp.any(kind != SEPARATE), pressed, lambda: jnp.zeros_like(at.rate))
    scale = at.space.scale.reshape(nc, dim)
    rate = (at.rate + small_dense.apply_matrix(at.space.delassus, force)).reshape(nc, dim)
    turns = [(rate[:, 1:] / scale[:, 1:]).reshape(-1)] if dim == 3 else []
    vdot = at.free + small_dense.apply_matrix(at.space.response, force)
    slope = jnp.concatenate([qdot, vdot, (scale * force.reshape(nc, dim)).reshape(-1), *turns])

    along = jnp.sum(heading * slips(at.terms, state.v), axis=1)
    push, left = (x / at.size for x in split_forces(at.space, force))
    closed = jnp.stack([push, jnp.where(kind == STICK, left, along)], axis=1)
    gaps = jnp.stack([at.terms.phi, jnp.ones_like(push)], axis=1)
    value = jnp.where((kind == SEPARATE)[:, None], gaps, closed)
    tangential = lax.stop_gradient(force.reshape(nc, dim)[:, 1:])
    size = jnp.linalg.norm(tangential, axis=1, keepdims=True)
    return slope, Look(value, normal_rates(at.terms, state.v), tangential / jnp.where(size > 0, size, 1.0))


def _free_acceleration(model: Model, controls: jax.Array, state: State) -> jax.Array:
    """Compute the acceleration (nv,) of a mechanism without contacts."""
    if has_loops(model, state.q):
        return free_motion(model, state, controls).acceleration
    kinematics = kinematics_of(model, state.q)
    force = actuator_forces(model, state, controls) - bias_at(model, state, kinematics)
    return implicit.solve_spd(mass_matrix_at(model, state.q, kinematics), force[:, None])[:, 0]


def _no_look(heading: jax.Array) -> Look:
    return Look(jnp.zeros((0, 2), heading.dtype), jnp.zeros(0, heading.dtype), heading)


def step_stretch(
    system: System, motion: StretchMotion, t: jax.Array, y: jax.Array, h: jax.Array,
    inner: tuple[float, ...] = (),
) -> tuple[ode.OdeStep, Look]:  # fmt: skip
    """Make one step of Dormand & Prince of length h, and look at its start, at fractions `inner`, at its end.

    Derivative: of the discrete step.
    """
    point = point_function(system)
    return ode.step_and_look(lambda t, y: point(motion, t, y), t, y, h, inner)


def split_forces(space: ContactSpace, force: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Split scaled forces into normal ones (nc,), and distances (nc,) of friction from its cone's edge."""
    force = force.reshape(space.mu.shape[0], -1)
    square = jnp.sum(force[:, 1:] ** 2, axis=1)
    length = jnp.sqrt(jnp.where(square > 0, square, 1.0)) * (square > 0)
    return force[:, 0], (space.mu * force[:, 0] - length) * lax.rsqrt(1.0 + space.mu**2)


def _sliding_direction(slip: jax.Array, heading: jax.Array) -> jax.Array:
    """Compute unit directions (nc, nt) of sliding that stay smooth as a sliding velocity passes through zero.

    A sliding velocity that is zero at the start has its heading. In the plane there is only one line.
    """
    if heading.shape[1] == 1:
        return heading
    forward = jnp.sum(slip * heading, axis=1, keepdims=True) >= 0
    none = float(jnp.finfo(slip.dtype).eps) ** 0.75  # m/s, below which only the heading counts
    along = jnp.where(forward, slip, -slip) + none * heading
    square = jnp.sum(along**2, axis=1, keepdims=True)
    return along * jnp.where(square > 0, lax.rsqrt(jnp.where(square > 0, square, 1.0)), 0.0)


def remove_drift(model: Model, state: State, kind: jax.Array) -> tuple[State, ContactTerms]:
    """Remove the drift of the gaps and velocities of contacts at rest from a state; return it and its terms.

    The quaternions of the result have length one.
    """
    q = retract(model.system, state.q, jnp.zeros_like(state.v))
    nothing = jax.tree.map(
        lambda x: jnp.zeros(x.shape, x.dtype), jax.eval_shape(lambda q: terms_at(model, q, state.t), q)
    )
    loops = has_loops(model, q)
    rests = jnp.any(kind != SEPARATE) | loops

    def evaluate(q: jax.Array, v: jax.Array, last: jax.Array) -> tuple[jax.Array, jax.Array, ContactTerms]:
        terms = terms_at(model, q, state.t)
        if kind.shape[0] or loops:
            q, v = lax.cond(last, lambda: (q, v), lambda: _remove_drift_once(model, q, v, terms, kind))
        return q, v, terms

    def correct(carry: tuple[jax.Array, jax.Array], last: jax.Array) -> tuple[PyTree, ContactTerms]:
        q, v = carry
        q, v, terms = lax.cond(rests | last, evaluate, lambda q, v, _: (q, v, nothing), q, v, last)
        return (q, v), terms

    # The terms before and after are evaluated by the same code.
    (q, v), terms = lax.scan(correct, (q, state.v), jnp.array([False, True]))
    return state.replace(q=q, v=v), jax.tree.map(lambda x: x[-1], terms)


def _remove_drift_once(
    model: Model, q: jax.Array, v: jax.Array, terms: ContactTerms, kind: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Remove the gaps and velocities of contacts at rest, and the deviations of loops, to first order."""
    if has_loops(model, q):
        loops = moving_terms(model, State(q=q, v=v, t=jnp.zeros((), q.dtype))).loops
        still = jnp.zeros_like(v)
        q = retract(model.system, q, project_velocity(terms.M, loops.rows, still, loops.deviation))
        v = project_velocity(terms.M, loops.rows, v)
        if not kind.shape[0]:
            return q, v
    closed = kind != SEPARATE
    space = contact_space(terms.replace(active=closed, mu=jnp.zeros_like(terms.mu)))
    none = jnp.zeros_like(terms.J_t[:, :, 0])
    gap = jnp.concatenate([jnp.where(closed, terms.phi, 0.0)[:, None], none], axis=1).reshape(-1)
    kinds = jnp.stack([jnp.where(closed, SLIDE, SEPARATE), kind])
    speed = small_dense.apply_matrix(space.jacobian, v)
    if terms.surface is not None:
        speed = speed + space.scale * jnp.where(closed[:, None], terms.surface, 0.0).reshape(-1)
    off = jnp.stack([space.scale * gap, speed])
    moves = jax.vmap(lambda x, kind: shortest_forces(space, x, kind, none))(off, kinds)
    delta, change = moves @ space.response.T
    return retract(model.system, q, delta), v + change
