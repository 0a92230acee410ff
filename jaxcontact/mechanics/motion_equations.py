"""Mass matrix, bias force and energies of any mechanism: by closed forms, or by derivatives of its poses."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from jaxcontact.algebra import rotations
from jaxcontact.arguments import check_type
from jaxcontact.mechanics.configuration import position_rate, tangent_jacobian, velocity_map
from jaxcontact.mechanics.system import Params, State, System, check_mechanism, free_poses
from jaxcontact.precision import all_digits


def kinematics_of(system: System, params: Params, q: jax.Array) -> Any:
    """What the closed forms of a mechanism share at q; None of a mechanism without closed forms.

    Whoever needs several of them computes this once and hands it on. XLA merges equal computations, but not
    those of a loop that is differentiated in reverse: JAX gives each its own copies of what is constant.
    """
    return None if system.mechanics is None else system.mechanics.kinematics(system.structure, q, params)


def body_frames(system: System, params: Params, q: jax.Array) -> tuple[jax.Array, jax.Array]:
    """World positions (nb, dim) and rotation matrices (nb, dim, dim) of the frames of bodies."""
    positions, turned = system.poses(system.structure, q, params)
    return positions, rotations.planar_matrix(turned) if system.structure.dim == 2 else turned


def _body_jacobians(system: System, params: Params, q: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Linear (nb, dim, nv) world and angular (nb, 1 or 3, nv) body-axis velocity Jacobians."""
    structure = system.structure
    linear = tangent_jacobian(system, lambda x: system.poses(structure, x, params)[0], q)
    angular = tangent_jacobian(system, lambda x: system.poses(structure, x, params)[1], q)
    if structure.dim == 2:
        return linear, angular[:, None, :]
    rotation = system.poses(structure, q, params)[1]
    skew = jnp.einsum("bji,bjkv->bvik", rotation, angular)
    return linear, jnp.moveaxis(jax.vmap(jax.vmap(rotations.vee))(skew), 1, 2)


def _inertia(system: System, params: Params) -> jax.Array:
    return params.inertia[:, None] if system.structure.dim == 2 else params.inertia


@all_digits
def mass_matrix(system: System, params: Params, q: jax.Array) -> jax.Array:
    """M(q) (nv, nv): sum over bodies of m J_p^T J_p + J_r^T I J_r.

    Derivative: exact, any order, by q and params.
    """
    check_type("system", system, System)
    check_type("params", params, Params)
    return mass_matrix_at(system, params, q, kinematics_of(system, params, q))


def mass_matrix_at(system: System, params: Params, q: jax.Array, kinematics: Any) -> jax.Array:
    """`mass_matrix` where the kinematics are known."""
    if system.mechanics is not None:
        return system.mechanics.mass_matrix(system.structure, kinematics, params)
    if system.poses is free_poses:
        return jnp.diag(free_masses(system, params).ravel())
    linear, angular = _body_jacobians(system, params, q)
    inertia = _inertia(system, params)
    return jnp.einsum("b,bdi,bdj->ij", params.mass, linear, linear) + jnp.einsum(
        "br,bri,brj->ij", inertia, angular, angular
    )


@all_digits
def energies(system: System, params: Params, q: jax.Array, v: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Kinetic energy, and that of gravity, zero at the world's origin, J.

    Derivative: exact, any order.
    """
    structure = system.structure
    if system.mechanics is not None:
        kinematics = kinematics_of(system, params, q)
        kinetic = 0.5 * v @ system.mechanics.mass_matrix(structure, kinematics, params) @ v
        return kinetic, system.mechanics.gravity_energy(structure, kinematics, params)
    # The velocities of the bodies take one derivative of the poses; the mass matrix would take nv.
    (x, turned), (x_dot, turning) = jax.jvp(
        lambda q: system.poses(structure, q, params), (q,), (position_rate(system, q, v),)
    )
    if structure.dim == 2:
        spin = turning[:, None]
    else:
        spin = jax.vmap(rotations.vee)(jnp.einsum("bji,bjk->bik", turned, turning))
    twice = jnp.sum(params.mass * jnp.sum(x_dot**2, axis=1)) + jnp.sum(_inertia(system, params) * spin**2)
    return 0.5 * twice, -jnp.sum(params.mass * (x @ params.gravity))


@all_digits
def bias(system: System, params: Params, state: State) -> jax.Array:
    """The force b(q, v) (nv,) in M vdot + b = tau + J^T lam: Coriolis, gyroscopic, gravity, `forces`.

    By Kane's equations: b = sum J_p^T m (Jdot_p v - g) + J_r^T (I Jdot_r v + w x I w) - forces - drive.

    Derivative: exact, any order, by q, v and params.
    """
    check_mechanism(system, params, state)
    return bias_at(system, params, state, kinematics_of(system, params, state.q))


def bias_at(system: System, params: Params, state: State, kinematics: Any) -> jax.Array:
    """`bias` where the kinematics are known."""
    q, v = state.q, state.v
    total = _inertial_bias(system, params, q, v, kinematics)
    if system.forces is not None:
        total = total - system.forces(system.structure, q, v, params)
    if system.drive is not None:
        total = total - system.drive(system.structure, state, params)
    return total


def _inertial_bias(system: System, params: Params, q: jax.Array, v: jax.Array, kinematics: Any) -> jax.Array:
    """Coriolis, gyroscopic and gravity force (nv,)."""
    if system.mechanics is not None:
        return system.mechanics.bias(system.structure, kinematics, v, params)
    if system.poses is free_poses:
        return _free_bias(system, params, v)
    linear, angular = _body_jacobians(system, params, q)

    def velocities(x: jax.Array) -> tuple[jax.Array, jax.Array]:
        j_p, j_r = _body_jacobians(system, params, x)
        return j_p @ v, j_r @ v

    _, (acceleration, spin_rate) = jax.jvp(velocities, (q,), (velocity_map(system, q) @ v,))
    inertia = _inertia(system, params)
    torque = inertia * spin_rate
    if system.structure.dim == 3:
        spin = angular @ v
        torque = torque + jnp.cross(spin, inertia * spin)
    force = params.mass[:, None] * (acceleration - params.gravity[None, :])
    return jnp.einsum("bd,bdi->i", force, linear) + jnp.einsum("br,bri->i", torque, angular)


def free_masses(system: System, params: Params) -> jax.Array:
    """Mass and inertia (nb, 3 or 6) along each velocity of free bodies."""
    dim = system.structure.dim
    mass = jnp.broadcast_to(params.mass[:, None], (*params.mass.shape, dim))
    return jnp.concatenate([mass, _inertia(system, params)], axis=1)


def free_rates(system: System, orientations: jax.Array, v: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Rates of the positions (nb, dim) and of the rotation matrices (nb, dim, dim) of free bodies.

    R' = R [w]x with w in body axes. The derivative of the poses would be expensive to differentiate again.
    """
    dim = system.structure.dim
    bodies = v.reshape(orientations.shape[0], -1)
    spin = bodies[:, None, dim:]
    if dim == 3:
        return bodies[:, :dim], jnp.cross(orientations, spin)
    return bodies[:, :dim], spin * jnp.stack([orientations[:, :, 1], -orientations[:, :, 0]], axis=2)


def _free_bias(system: System, params: Params, v: jax.Array) -> jax.Array:
    """Gravity and w x I w of free bodies (nv,)."""
    dim = system.structure.dim
    force = -params.mass[:, None] * params.gravity[None, :]
    spin = v.reshape(force.shape[0], -1)[:, dim:]
    torque = jnp.cross(spin, params.inertia * spin) if dim == 3 else jnp.zeros_like(spin)
    return jnp.concatenate([force, torque], axis=1).ravel()
