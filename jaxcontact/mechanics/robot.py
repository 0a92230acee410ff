"""A tree as a `System`; public functions for poses, Jacobians, energies, accelerations of any mechanism."""

from __future__ import annotations

from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
from jax import lax

from jaxcontact.algebra import implicit, small_dense
from jaxcontact.arguments import check_array, check_type, is_concrete
from jaxcontact.front_door import checked
from jaxcontact.mechanics import actuators, configuration, dynamics, kinematics, tree_constraints
from jaxcontact.mechanics.closed_forms import Mechanics
from jaxcontact.mechanics.configuration import tangent_jacobian
from jaxcontact.mechanics.motion_equations import (
    bias_at,
    body_frames,
    energies,
    kinematics_of,
    mass_matrix_at,
)
from jaxcontact.mechanics.system import Model, State, Structure, System, check_mechanism, check_model
from jaxcontact.precision import all_digits

if TYPE_CHECKING:
    from jaxtyping import Float


def _count_controls(structure: Structure) -> int:
    return len(structure.tree.actuators)


TREE = Mechanics(
    kinematics=kinematics.compute_kinematics,
    mass_matrix=dynamics.mass_matrix,
    bias=dynamics.bias,
    momentum_and_pull=dynamics.momentum_and_pull,
    rotor_momentum=dynamics.rotor_momentum,
    momentum_rate=dynamics.momentum_rate,
    gravity_energy=dynamics.gravity_energy,
    motion=kinematics.frame_motion,
    point_jacobians=kinematics.point_jacobians,
    spring_energy=actuators.spring_energy,
    drive=actuators.drive,
    drive_slopes=actuators.drive_slopes,
    yielding=actuators.yielding,
    num_controls=_count_controls,
    wrenches=dynamics.wrenches,
    closures=tree_constraints.closures,
    dry_friction=tree_constraints.dry_friction,
)


@checked()
def tree_system(structure: Structure) -> System:
    """Make the mechanism of a structure that has a tree.

    Raises:
        ValueError: the structure has no tree, or differs from it in bodies, positions or quaternions.
    """
    tree = structure.tree
    if tree is None:
        raise ValueError("structure.tree: expected a mechanics.Tree, got None")
    expected = (len(tree.parents), tree.num_positions, tree.quaternions)
    actual = (len(structure.bodies), structure.num_positions, structure.quaternions)
    if actual != expected:
        raise ValueError(
            f"structure: expected (bodies, positions, quaternions) {expected} of its tree, got {actual}"
        )
    limited = any(part.limited for part in (*tree.joints, *tree.tendons))
    coupled = any(loop.kind in ("joint", "tendon") for loop in tree.loops)
    return System(
        structure,
        poses=kinematics.poses,
        forces=actuators.passive_forces,
        constraints=tree_constraints.constraints if limited or coupled else None,
        mechanics=TREE,
    )


@checked()
@all_digits
def forward_kinematics(model: Model, q: Float[jax.Array, " nq"]) -> tuple[jax.Array, jax.Array]:
    """Compute the world positions (nb, dim) of body frames, m, and their rotation matrices (nb, dim, dim).

    The frame of a body is the one of its file for a robot, or the one that `poses` places otherwise.

    Raises:
        TypeError: arguments in another order, or q no array.

    Derivative: exact by q and params, any order.
    """
    check_model(model)
    check_array("q", q)
    return body_frames(model, q)


@checked()
@all_digits
def point_jacobian(
    model: Model, q: Float[jax.Array, " nq"], body: str | int, at: Float[jax.Array, " dim"]
) -> jax.Array:
    """Compute the Jacobian J (dim, nv) of the point `at` of a body, whose world velocity is J v.

    Args:
        model: the mechanism and its numbers.
        q: (nq,).
        body: its name or index.
        at: (dim,) in the frame of the body, m.

    Raises:
        ValueError: no such body.

    Derivative: exact by q, params and at, any order.
    """
    check_model(model)
    names = model.structure.bodies
    if body not in (names if isinstance(body, str) else range(len(names))):
        raise ValueError(f"body: expected one of {', '.join(names)} or its index, got {body!r}")
    index = names.index(body) if isinstance(body, str) else body

    def place(x: jax.Array) -> jax.Array:
        positions, orientations = body_frames(model, x)
        return positions[index] + orientations[index] @ at

    if model.system.mechanics is None:
        return tangent_jacobian(model.system, place, q)
    kinematics = kinematics_of(model, q)
    axes = jnp.eye(model.structure.dim, dtype=q.dtype)
    return model.system.mechanics.point_jacobians(
        model.structure, kinematics, (index,), place(q)[None], axes[None]
    )[0]


@checked()
def kinetic_energy(model: Model, state: State) -> jax.Array:
    """Compute the kinetic energy v^T M(q) v / 2, J.

    Derivative: exact by state and params, any order.
    """
    check_mechanism(model, state)
    return energies(model, state.q, state.v)[0]


@checked()
@all_digits
def potential_energy(model: Model, state: State) -> jax.Array:
    """Compute the energy of gravity, zero at the world's origin, plus that of a robot's springs, J.

    The energy does not include forces that a mechanism defines by its own function `forces`.

    Derivative: exact by state and params, any order.
    """
    check_mechanism(model, state)
    gravity = energies(model, state.q, state.v)[1]
    if model.system.mechanics is None:
        return gravity
    return gravity + model.system.mechanics.spring_energy(model.structure, state.q, model.params)


@checked()
@all_digits
def inverse_dynamics(model: Model, state: State, acceleration: Float[jax.Array, " nv"]) -> jax.Array:
    """Compute the generalized forces M vdot + b (nv,) of an acceleration vdot (nv,), without contacts.

    Derivative: exact by all arguments, any order.
    """
    check_mechanism(model, state)
    check_array("acceleration", acceleration)
    kinematics = kinematics_of(model, state.q)
    M = mass_matrix_at(model, state.q, kinematics)
    return M @ acceleration + bias_at(model, state, kinematics)


@checked()
@all_digits
def forward_dynamics(model: Model, state: State, tau: Float[jax.Array, " nv"]) -> jax.Array:
    """Compute the acceleration vdot (nv,) under forces tau (nv,), M vdot + b = tau, without contacts.

    For a robot's controls, tau is the result of `actuator_forces`.

    Raises:
        ValueError: a mass matrix that is not positive definite, as with a mass of zero; inside jit NaN.

    Derivative: exact by all arguments, any order.
    """
    check_mechanism(model, state)
    check_array("tau", tau)
    kinematics = kinematics_of(model, state.q)
    M = mass_matrix_at(model, state.q, kinematics)
    force = tau - bias_at(model, state, kinematics)
    inverse, pivot = small_dense.spd_inverse(lax.stop_gradient(M))
    if is_concrete(pivot) and not pivot > 0:
        raise ValueError(
            "params: expected masses and inertias that make the mass matrix positive definite; give every "
            "velocity some mass, inertia or armature"
        )
    return jnp.where(pivot > 0, implicit.solve_spd(M, force[:, None], inverse)[:, 0], jnp.nan)


@checked()
@all_digits
def actuator_forces(model: Model, state: State, controls: Float[jax.Array, " nu"]) -> jax.Array:
    """Compute the generalized forces (nv,) of a robot's actuators under controls (nu,).

    The forces of a mechanism without actuators are its controls.

    Derivative: exact by all arguments; zero if a range clips.

    Raises:
        ValueError: controls have another shape.
    """
    check_mechanism(model, state)
    check_array("controls", controls)
    if jnp.shape(controls) != (model.num_controls,):
        raise ValueError(f"controls: expected shape ({model.num_controls},), got {jnp.shape(controls)}")
    if model.system.mechanics is None:
        return controls
    return model.system.mechanics.drive(model.structure, state.q, state.v, model.params, controls)


@checked()
def retract(model: Model, q: Float[jax.Array, " nq"], delta: Float[jax.Array, " nv"]) -> jax.Array:
    """Return the configuration (nq,) reached from q along the tangent step `delta` = v dt (nv,).

    Quaternions may have any length; the result has unit quaternions. A quaternion of length zero, or one
    whose squares leave the range of floats, gives NaN.

    Raises:
        TypeError, ValueError: arrays of another shape or dtype; outside of jit, a quaternion of length zero.

    Derivative: exact, any order.
    """
    check_type("model", model, Model)
    return configuration.retract(model.system, q, delta)


@checked()
def velocity_map(model: Model, q: Float[jax.Array, " nq"]) -> jax.Array:
    """Return N(q) (nq, nv) with qdot = N(q) v.

    Raises:
        TypeError: no Model.

    Derivative: exact, any order.
    """
    check_type("model", model, Model)
    return configuration.velocity_map(model.system, q)
