"""The discrete Lagrangian of a midpoint step and its momenta: entry `discrete_momenta`.

Page: docs/methods/motion.md.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from jaxcontact.algebra import rotations
from jaxcontact.mechanics.configuration import retract
from jaxcontact.mechanics.motion_equations import applied_forces, energies, kinematics_of
from jaxcontact.mechanics.robot import actuator_forces
from jaxcontact.mechanics.system import Model, State, System


class Start(NamedTuple):
    """The start of a step; the controls (nu,) and the force (nv,) of `drag` that act during it, or None."""

    q: jax.Array
    p: jax.Array
    t: jax.Array
    controls: jax.Array | None = None
    drag: jax.Array | None = None


def lagrangian(model: Model, q: jax.Array, v: jax.Array) -> jax.Array:
    """Compute the kinetic energy minus the potential energy of gravity, J."""
    kinetic, gravity = energies(model, q, v)
    return kinetic - gravity


def applied_force(model: Model, state: State, controls: jax.Array | None) -> jax.Array:
    """Compute the generalized force (nv,) of `forces`, `drive`, controls, and wrenches on bodies."""
    force = jnp.zeros_like(state.v)
    if controls is not None:
        force = force + actuator_forces(model, state, controls)
    if model.system.forces is not None:
        force = force + model.system.forces(model.structure, state.q, state.v, model.params)
    if model.system.drive is not None:
        force = force + model.system.drive(model.structure, state, model.params)
    if model.params.applied is not None:
        force = force + applied_forces(model, state.q, kinematics_of(model, state.q))
    return force


def _at_midpoint(model: Model, start: Start, w: jax.Array, h: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Compute dL/dv and dL/dq + forces (nv,) at the midpoint of a step."""
    middle = retract(model.system, start.q, 0.5 * h * w)
    force, momentum = jax.grad(
        lambda delta, v: lagrangian(model, retract(model.system, middle, delta), v), argnums=(0, 1)
    )(jnp.zeros_like(w), w)
    midpoint = State(q=middle, v=w, t=start.t + 0.5 * h)
    force = force + applied_force(model, midpoint, start.controls)
    return momentum, force if start.drag is None else force + start.drag


def _carry_to_end(system: System, d: jax.Array, momentum: jax.Array, impulse: jax.Array) -> jax.Array:
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
    return _carry_to_end(model.system, -h * w, momentum, -h * force), _carry_to_end(
        model.system, h * w, momentum, h * force
    )
