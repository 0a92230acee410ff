"""Mass matrix, bias force and energies of any mechanism: by closed forms, or by derivatives of its poses."""

from __future__ import annotations

from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp

from jaxcontact._pytree import PyTree
from jaxcontact.algebra import rotations
from jaxcontact.front_door import checked
from jaxcontact.mechanics.configuration import position_rate, tangent_jacobian, velocity_map
from jaxcontact.mechanics.system import Model, State, System, check_mechanism, check_model, free_poses
from jaxcontact.precision import all_digits

if TYPE_CHECKING:
    from jaxtyping import Float


def kinematics_of(model: Model, q: jax.Array) -> PyTree:
    """Compute the kinematics that the closed forms of a mechanism share at q; None if it has no closed forms.

    A caller of several closed forms computes this once and passes it to each. XLA merges equal computations,
    but not those of a loop that is differentiated in reverse: JAX gives each its own copies of constants.
    """
    return (
        None
        if model.system.mechanics is None
        else model.system.mechanics.kinematics(model.structure, q, model.params)
    )


def body_frames(model: Model, q: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Compute the world positions (nb, dim) and rotation matrices (nb, dim, dim) of the frames of bodies."""
    positions, turned = model.system.poses(model.structure, q, model.params)
    return positions, rotations.planar_matrix(turned) if model.structure.dim == 2 else turned


def _body_jacobians(model: Model, q: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Compute the linear (nb, dim, nv) world and angular (nb, 1 or 3, nv) body-axis velocity Jacobians."""
    structure = model.structure
    linear = tangent_jacobian(model.system, lambda x: model.system.poses(structure, x, model.params)[0], q)
    angular = tangent_jacobian(model.system, lambda x: model.system.poses(structure, x, model.params)[1], q)
    if structure.dim == 2:
        return linear, angular[:, None, :]
    rotation = model.system.poses(structure, q, model.params)[1]
    skew = jnp.einsum("bji,bjkv->bvik", rotation, angular)
    return linear, jnp.moveaxis(jax.vmap(jax.vmap(rotations.vee))(skew), 1, 2)


def _inertia(model: Model) -> jax.Array:
    """Return the moments of inertia (nb, 1 or 3) of bodies whose axes are principal."""
    return model.params.inertia[:, None] if model.structure.dim == 2 else model.params.inertia


@checked()
@all_digits
def mass_matrix(model: Model, q: Float[jax.Array, " nq"]) -> jax.Array:
    """Compute the mass matrix M(q) (nv, nv), the sum over bodies of m J_p^T J_p + J_r^T I J_r.

    Derivative: exact, any order, by q and params.
    """
    check_model(model)
    return mass_matrix_at(model, q, kinematics_of(model, q))


def mass_matrix_at(model: Model, q: jax.Array, kinematics: object) -> jax.Array:
    """Compute `mass_matrix` from the kinematics at q."""
    if model.system.mechanics is not None:
        return model.system.mechanics.mass_matrix(model.structure, kinematics, model.params)
    if model.system.poses is free_poses:
        return jnp.diag(free_masses(model).ravel())
    linear, angular = _body_jacobians(model, q)
    inertia = _inertia(model)
    return jnp.einsum("b,bdi,bdj->ij", model.params.mass, linear, linear) + jnp.einsum(
        "br,bri,brj->ij", inertia, angular, angular
    )


@all_digits
def energies(model: Model, q: jax.Array, v: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Compute the kinetic energy, and the potential energy of gravity, zero at the world's origin, J.

    Derivative: exact, any order.
    """
    structure = model.structure
    if model.system.mechanics is not None:
        kinematics = kinematics_of(model, q)
        kinetic = 0.5 * v @ model.system.mechanics.mass_matrix(structure, kinematics, model.params) @ v
        return kinetic, model.system.mechanics.gravity_energy(structure, kinematics, model.params)
    # The velocities of the bodies take one derivative of the poses; the mass matrix would take nv.
    (x, turned), (x_dot, turning) = jax.jvp(
        lambda q: model.system.poses(structure, q, model.params), (q,), (position_rate(model.system, q, v),)
    )
    if structure.dim == 2:
        spin = turning[:, None]
    else:
        spin = jax.vmap(rotations.vee)(jnp.einsum("bji,bjk->bik", turned, turning))
    twice = jnp.sum(model.params.mass * jnp.sum(x_dot**2, axis=1)) + jnp.sum(_inertia(model) * spin**2)
    return 0.5 * twice, -jnp.sum(model.params.mass * (x @ model.params.gravity))


@checked()
@all_digits
def bias(model: Model, state: State) -> jax.Array:
    """Compute the force b(q, v) (nv,) in M vdot + b = tau + J^T lam: Coriolis, gyroscopic, gravity, `forces`.

    By Kane's equations: b = sum J_p^T m (Jdot_p v - g) + J_r^T (I Jdot_r v + w x I w) - forces - drive.

    Derivative: exact, any order, by q, v and params.
    """
    check_mechanism(model, state)
    return bias_at(model, state, kinematics_of(model, state.q))


def bias_at(model: Model, state: State, kinematics: object) -> jax.Array:
    """Compute `bias` from the kinematics at q."""
    q, v = state.q, state.v
    total = _inertial_bias(model, q, v, kinematics)
    if model.system.forces is not None:
        total = total - model.system.forces(model.structure, q, v, model.params)
    if model.system.drive is not None:
        total = total - model.system.drive(model.structure, state, model.params)
    return total if model.params.applied is None else total - applied_forces(model, q, kinematics)


def applied_forces(model: Model, q: jax.Array, kinematics: object) -> jax.Array:
    """Compute the generalized forces (nv,) of `params.applied` from the kinematics at q."""
    structure, dim = model.structure, model.structure.dim
    if model.system.mechanics is not None:
        return model.system.mechanics.wrenches(structure, kinematics, model.params)
    assert model.params.applied is not None
    push, torque = jnp.split(model.params.applied, [dim], axis=1)
    if dim == 3:  # angular Jacobians have body axes
        torque = jnp.einsum("bji,bj->bi", body_frames(model, q)[1], torque)
    if model.system.poses is free_poses:
        return jnp.concatenate([push, torque], axis=1).ravel()
    linear, angular = _body_jacobians(model, q)
    return jnp.einsum("bd,bdi->i", push, linear) + jnp.einsum("br,bri->i", torque, angular)


def _inertial_bias(model: Model, q: jax.Array, v: jax.Array, kinematics: object) -> jax.Array:
    """Compute the Coriolis, gyroscopic and gravity force (nv,)."""
    if model.system.mechanics is not None:
        return model.system.mechanics.bias(model.structure, kinematics, v, model.params)
    if model.system.poses is free_poses:
        return _free_bias(model, v)
    linear, angular = _body_jacobians(model, q)

    def velocities(x: jax.Array) -> tuple[jax.Array, jax.Array]:
        j_p, j_r = _body_jacobians(model, x)
        return j_p @ v, j_r @ v

    _, (acceleration, spin_rate) = jax.jvp(velocities, (q,), (velocity_map(model.system, q) @ v,))
    inertia = _inertia(model)
    torque = inertia * spin_rate
    if model.structure.dim == 3:
        spin = angular @ v
        torque = torque + jnp.cross(spin, inertia * spin)
    force = model.params.mass[:, None] * (acceleration - model.params.gravity[None, :])
    return jnp.einsum("bd,bdi->i", force, linear) + jnp.einsum("br,bri->i", torque, angular)


def free_masses(model: Model) -> jax.Array:
    """Return the mass and inertia (nb, 3 or 6) along each velocity of free bodies."""
    dim = model.structure.dim
    mass = jnp.broadcast_to(model.params.mass[:, None], (*model.params.mass.shape, dim))
    return jnp.concatenate([mass, _inertia(model)], axis=1)


def free_rates(system: System, orientations: jax.Array, v: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Compute the rates of the positions (nb, dim) and rotation matrices (nb, dim, dim) of free bodies.

    R' = R [w]x with w in body axes. The derivative of the poses would be expensive to differentiate again.
    """
    dim = system.structure.dim
    bodies = v.reshape(orientations.shape[0], -1)
    spin = bodies[:, None, dim:]
    if dim == 3:
        return bodies[:, :dim], jnp.cross(orientations, spin)
    return bodies[:, :dim], spin * jnp.stack([orientations[:, :, 1], -orientations[:, :, 0]], axis=2)


def _free_bias(model: Model, v: jax.Array) -> jax.Array:
    """Compute minus the weight, and w x I w, of free bodies (nv,)."""
    dim = model.structure.dim
    force = -model.params.mass[:, None] * model.params.gravity[None, :]
    spin = v.reshape(force.shape[0], -1)[:, dim:]
    torque = jnp.cross(spin, model.params.inertia * spin) if dim == 3 else jnp.zeros_like(spin)
    return jnp.concatenate([force, torque], axis=1).ravel()
