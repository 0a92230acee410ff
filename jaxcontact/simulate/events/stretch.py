"""A stretch of motion in which no contact changes what it does: its field, its end, what ends it.

Owns the equations of motion of contacts that separate, stick or slide; one step of Dormand & Prince along
them; the functions whose zeros are events.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from jaxcontact.algebra import implicit
from jaxcontact.impact.laws.contact_space import ContactSpace, contact_space
from jaxcontact.mechanics.configuration import position_rate, retract
from jaxcontact.mechanics.motion_equations import bias, mass_matrix
from jaxcontact.mechanics.robot import actuator_forces
from jaxcontact.mechanics.system import Model, Params, State, System
from jaxcontact.simulate.augmented.contact_forces import Accelerations, accelerations, shortest_forces
from jaxcontact.solvers import ode
from jaxcontact.solvers.contact_problem import SEPARATE, SLIDE, STICK
from jaxcontact.terms import contact_gaps, contact_terms

ROOT, FRICTION = range(2)  # columns of `values`: gap or normal force; sliding velocity or friction left


class Modes(NamedTuple):
    """What every contact does: kind (nc,) SEPARATE, STICK, SLIDE; heading (nc, nt) of sliding at first."""

    kind: jax.Array
    heading: jax.Array


class StretchMotion(NamedTuple):
    """A mechanism, what drives it, what its contacts do, and the length of the time step it is part of, s."""

    params: Params
    controls: jax.Array
    modes: Modes
    dt: jax.Array


def start_vector(model: Model, state: State) -> jax.Array:
    """(q, v, impulses of contacts, sliding velocities in space), which the field moves.

    The smaller a sliding velocity, the faster friction turns with it. The stages of a step know q and v of a
    body that spins too roughly for that; their own rates keep sliding velocities smooth.
    """
    nc, dim = model.structure.num_contacts, model.structure.dim
    slip = jnp.zeros(0, state.q.dtype)
    if nc and dim == 3:
        slip = (contact_terms(model, state).J_t @ state.v).reshape(-1)
    return jnp.concatenate([state.q, state.v, jnp.zeros(nc * dim, state.q.dtype), slip])


def parts(system: System, t: jax.Array, y: jax.Array) -> tuple[State, jax.Array, jax.Array]:
    """The state, the impulses (nc, dim) and the sliding velocities (nc, nt) in a vector of `start_vector`.

    In the plane, where friction has but one line, the latter are zero.
    """
    nq, nv = system.structure.num_positions, system.structure.num_velocities
    nc, dim = system.structure.num_contacts, system.structure.dim
    impulse, slip = jnp.split(y[nq + nv :], [nc * dim])
    slip = slip if slip.shape[0] else jnp.zeros(nc * (dim - 1), y.dtype)
    return State(q=y[:nq], v=y[nq : nq + nv], t=t), impulse.reshape(nc, dim), slip.reshape(nc, dim - 1)


def field(system: System, motion: StretchMotion, t: jax.Array, y: jax.Array) -> jax.Array:
    """The rate of `start_vector`."""
    state, impulse, slip = parts(system, t, y)
    qdot = position_rate(system, state.q, state.v)
    model, controls = Model(system=system, params=motion.params), motion.controls

    def flight() -> tuple[jax.Array, ...]:
        force = actuator_forces(model, state, controls) - bias(model, state)
        mass = mass_matrix(model, state.q)
        return implicit.solve_spd(mass, force[:, None])[:, 0], jnp.zeros_like(impulse), jnp.zeros_like(slip)

    def contact() -> tuple[jax.Array, ...]:
        here, force = _forces(system, motion, state, slip)
        scale = here.space.scale.reshape(impulse.shape)
        rate = (here.rate + here.space.delassus @ force).reshape(impulse.shape)
        return (
            here.free + here.space.response @ force,
            scale * force.reshape(impulse.shape),
            rate[:, 1:] / jnp.where(scale > 0, scale, 1.0)[:, 1:],
        )

    if impulse.shape[0] == 0:
        return jnp.concatenate([qdot, flight()[0]])
    vdot, force, turn = lax.cond(jnp.any(motion.modes.kind != SEPARATE), contact, flight)
    turns = [turn.reshape(-1)] if system.structure.dim == 3 else []
    return jnp.concatenate([qdot, vdot, force.reshape(-1), *turns])


def step(system: System, motion: StretchMotion, t: jax.Array, y: jax.Array, h: jax.Array) -> ode.OdeStep:
    """One step of Dormand & Prince of length h.

    Derivative: of the discrete step, any order.
    """
    return ode.step(lambda t, y: field(system, motion, t, y), t, y, h)


class Look(NamedTuple):
    """The contacts at a point of a stretch.

    Attributes:
        value: (nc, 2) what ends it where it falls below zero. Of an open contact the gap, m; of a closed one
            its normal force, and the friction that is left where it sticks, in parts of the size of
            accelerations, or the velocity along its heading where it slides, m/s.
        rate: (nc,) of the gaps, m/s.
        friction: (nc, nt) directions of the friction forces, zero where there are none.
    """

    value: jax.Array
    rate: jax.Array
    friction: jax.Array


def look(system: System, motion: StretchMotion, state: State, slip: jax.Array) -> Look:
    """The contacts at a state of a stretch, with sliding velocities as in `parts`.

    Derivative: of `value` and `rate`.
    """
    kind, heading = motion.modes
    one = jnp.ones(kind.shape[0], state.q.dtype)
    if one.shape[0] == 0:
        return Look(jnp.zeros((0, 2), one.dtype), one, heading)

    def flight() -> Look:
        gap, rate = jax.jvp(
            lambda q: contact_gaps(Model(system=system, params=motion.params), q),
            (state.q,),
            (position_rate(system, state.q, state.v),),
        )
        return Look(jnp.stack([gap, one], axis=1), rate, jnp.zeros_like(heading))

    def contact() -> Look:
        here, force = _forces(system, motion, state, slip)
        gaps = jnp.stack([here.terms.phi, one], axis=1)
        along = jnp.sum(heading * jnp.einsum("ctv,v->ct", here.terms.J_t, state.v), axis=1)
        push, left = pushes(here.space, force)
        push, left = push / here.size, left / here.size
        closed = jnp.stack([push, jnp.where(kind == STICK, left, along)], axis=1)
        value = jnp.where((kind == SEPARATE)[:, None], gaps, closed)
        tangential = lax.stop_gradient(force.reshape(one.shape[0], -1)[:, 1:])
        size = jnp.linalg.norm(tangential, axis=1, keepdims=True)
        return Look(value, here.terms.J_n @ state.v, tangential / jnp.where(size > 0, size, 1.0))

    return lax.cond(jnp.any(kind != SEPARATE), contact, flight)


def pushes(space: ContactSpace, force: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Scaled normal forces (nc,), and how far friction is from the edge of its cone (nc,)."""
    force = force.reshape(space.mu.shape[0], -1)
    square = jnp.sum(force[:, 1:] ** 2, axis=1)
    length = jnp.sqrt(jnp.where(square > 0, square, 1.0)) * (square > 0)
    return force[:, 0], (space.mu * force[:, 0] - length) * lax.rsqrt(1.0 + space.mu**2)


def _forces(
    system: System, motion: StretchMotion, state: State, slip: jax.Array
) -> tuple[Accelerations, jax.Array]:
    """Accelerations of the closed contacts, and their scaled forces (r,)."""
    kind, heading = motion.modes
    here = accelerations(
        Model(system=system, params=motion.params), state, kind != SEPARATE, motion.controls, motion.dt
    )
    return here, shortest_forces(here.space, here.rate, kind, _direction(slip, heading))


def _direction(slip: jax.Array, heading: jax.Array) -> jax.Array:
    """Unit directions (nc, nt) of sliding, which go on smoothly where a sliding velocity goes through zero.

    Where it is zero at the start, the heading. In the plane there is but one line.
    """
    if heading.shape[1] == 1:
        return heading
    forward = jnp.sum(slip * heading, axis=1, keepdims=True) >= 0
    none = float(jnp.finfo(slip.dtype).eps) ** 0.75  # m/s, below which only the heading counts
    along = jnp.where(forward, slip, -slip) + none * heading
    square = jnp.sum(along**2, axis=1, keepdims=True)
    return along * jnp.where(square > 0, lax.rsqrt(jnp.where(square > 0, square, 1.0)), 0.0)


def settled(model: Model, state: State, kind: jax.Array) -> State:
    """The state with what rests at rest: what the integration has let drift of gaps and velocities goes.

    Quaternions come out with length one.
    """
    q, v = retract(model.system, state.q, jnp.zeros_like(state.v)), state.v

    def rest() -> tuple[jax.Array, jax.Array]:
        closed = kind != SEPARATE
        terms = contact_terms(model, state.replace(q=q))
        space = contact_space(terms.replace(active=closed, mu=jnp.zeros_like(terms.mu)))
        none = jnp.zeros_like(terms.J_t[:, :, 0])
        gap = jnp.concatenate([jnp.where(closed, terms.phi, 0.0)[:, None], none], axis=1).reshape(-1)
        kinds = jnp.stack([jnp.where(closed, SLIDE, SEPARATE), kind])
        off = jnp.stack([space.scale * gap, space.jacobian @ v])
        moves = jax.vmap(lambda x, kind: shortest_forces(space, x, kind, none))(off, kinds)
        delta, change = moves @ space.response.T
        return retract(model.system, q, delta), v + change

    if kind.shape[0]:
        q, v = lax.cond(jnp.any(kind != SEPARATE), rest, lambda: (q, v))
    return state.replace(q=q, v=v)
