"""Forces on a tree: springs, dampers, tendons, drag, actuators.

An actuator pushes with the force gain u + b_0 + b_1 length + b_2 velocity along its gears (MuJoCo's motor,
position, velocity and general actuators with fixed gain and affine bias). Its length is the sum of gear times
joint position. Controls, actuator forces and the sum of forces at a joint are clipped to their ranges.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from jaxcontact.algebra import rotations
from jaxcontact.mechanics import fluid, tendons
from jaxcontact.mechanics.system import Params, Structure
from jaxcontact.mechanics.tree import VELOCITIES, Tree, TreeParams, dofs, of_kind, scalar_places


def turns_from(tree: Tree, q: jax.Array, reference: jax.Array, joints: np.ndarray) -> jax.Array:
    """Return the rotation vectors (k, 3) of ball and free joints from `reference` to q, in body axes."""
    shift = {"free": 3, "ball": 0}
    starts = [tree.position_starts[j] + shift[tree.joints[j].kind] for j in joints]
    index = np.array(starts)[:, None] + np.arange(4)

    def rotation_vector(quaternion: jax.Array, start_quaternion: jax.Array) -> jax.Array:
        inverse = rotations.quaternion_conjugate(start_quaternion)
        return rotations.quaternion_log(rotations.quaternion_product(inverse, quaternion))

    return jax.vmap(rotation_vector)(q[index], reference[index])


def extensions(tree: Tree, q: jax.Array, numbers: TreeParams) -> jax.Array:
    """Compute the extension (nv,) of the spring along each velocity from its relaxed position, rad or m."""
    _, at_q, at_v = scalar_places(tree)
    extension = q[at_q] - numbers.rest[at_q]
    if not np.array_equal(at_v, np.arange(tree.num_velocities)):
        extension = jnp.zeros(tree.num_velocities, q.dtype).at[at_v].set(extension)
    if not tree.springs:
        return extension
    turning_joints, free_joints = of_kind(tree, "ball", "free"), of_kind(tree, "free")
    starts = np.array(tree.velocity_starts)
    angular_starts = starts[turning_joints] + np.array(
        [VELOCITIES[tree.joints[j].kind] - 3 for j in turning_joints]
    )
    extension = extension.at[angular_starts[:, None] + np.arange(3)].set(
        turns_from(tree, q, numbers.rest, turning_joints)
    )
    places = np.array(tree.position_starts)[free_joints][:, None] + np.arange(3)
    return extension.at[starts[free_joints][:, None] + np.arange(3)].set(q[places] - numbers.rest[places])


def passive_forces(structure: Structure, q: jax.Array, v: jax.Array, params: Params) -> jax.Array:
    """Compute the generalized forces (nv,) of springs and dampers of joints and tendons, and of drag."""
    tree, numbers = structure.tree, params.tree
    stiffness = numbers.stiffness[dofs(tree).joint]
    force = -stiffness * extensions(tree, q, numbers) - numbers.damping * v
    if tree.tendons:
        force = force + tendons.passive_forces(structure, q, v, params)
    return force + fluid.forces(structure, q, v, params) if tree.drags else force


def spring_energy(structure: Structure, q: jax.Array, params: Params) -> jax.Array:
    """Compute the potential energy of the springs of joints and tendons, J."""
    tree, numbers = structure.tree, params.tree
    energy = 0.5 * jnp.sum(numbers.stiffness[dofs(tree).joint] * extensions(tree, q, numbers) ** 2)
    return energy + tendons.spring_energy(structure, q, numbers) if tree.tendons else energy


def _actuator_forces(
    tree: Tree, q: jax.Array, v: jax.Array, numbers: TreeParams, controls: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Compute the unclipped force (nu,) of each actuator, and the generalized forces (nv,) of all actuators.

    The generalized forces are those of the actuator forces after clipping to the actuators' ranges; the
    ranges of joints do not yet clip them.
    """
    _, at_q, at_v = scalar_places(tree)
    ranges = numbers.control_range
    clipped = jnp.clip(controls, ranges[:, 0], ranges[:, 1])
    length = numbers.moment[:, at_v] @ q[at_q]
    bias = numbers.bias
    force = numbers.gain * clipped + bias[:, 0] + bias[:, 1] * length + bias[:, 2] * (numbers.moment @ v)
    bounded = jnp.clip(force, numbers.force_range[:, 0], numbers.force_range[:, 1])
    return force, numbers.moment.T @ bounded


def drive(structure: Structure, q: jax.Array, v: jax.Array, params: Params, controls: jax.Array) -> jax.Array:
    """Compute the generalized forces (nv,) of actuators under controls (nu,); without any, the controls."""
    if not structure.tree.actuators:
        return controls
    numbers = params.tree
    _, total = _actuator_forces(structure.tree, q, v, numbers, controls)
    return jnp.clip(total, numbers.joint_force_range[:, 0], numbers.joint_force_range[:, 1])


def yielding(
    structure: Structure, q: jax.Array, v: jax.Array, params: Params, controls: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Compute the stiffness and damping matrices (nv, nv) of springs, dampers, drag, actuators at a state.

    Both matrices are positive semidefinite, but for a negative damping of a file. An actuator at the end of
    its range pushes with a constant force, so it adds nothing. A gain that feeds energy into the motion adds
    nothing either: a step treats it explicitly.
    """
    tree, numbers = structure.tree, params.tree
    stiffness = jnp.diag(numbers.stiffness[dofs(tree).joint])
    damping = jnp.diag(numbers.damping)
    if tree.tendons:
        tendon_stiffness, tendon_damping = tendons.yielding(structure, q, params)
        stiffness, damping = stiffness + tendon_stiffness, damping + tendon_damping
    if tree.drags:
        damping = damping + fluid.yielding(structure, q, v, params)
    if not tree.actuators:
        return stiffness, damping
    by_position, by_velocity = _slopes(tree, q, v, numbers, controls, jnp.maximum(-numbers.bias[:, 1:], 0.0))
    return stiffness + by_position, damping + by_velocity


def drive_slopes(
    structure: Structure, q: jax.Array, v: jax.Array, params: Params, controls: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Compute minus the derivatives (nv, nv) of `drive` by position and velocity, zero at a range's end."""
    if not structure.tree.actuators:
        return jnp.zeros((v.size, v.size), v.dtype), jnp.zeros((v.size, v.size), v.dtype)
    return _slopes(structure.tree, q, v, params.tree, controls, -params.tree.bias[:, 1:])


def _slopes(
    tree: Tree, q: jax.Array, v: jax.Array, numbers: TreeParams, controls: jax.Array, gains: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Compute stiffness and damping (nv, nv) of actuators in range from gains (nu, 2) per length and speed.

    The derivative of a clipped number would compare it with itself, which compilers compute twice.
    """
    force, joint_force = _actuator_forces(tree, q, v, numbers, controls)

    def within(x: jax.Array, ranges: jax.Array) -> jax.Array:
        return (x > ranges[:, 0]) & (x < ranges[:, 1])

    gears = jnp.where(within(joint_force, numbers.joint_force_range)[None], numbers.moment, 0.0)
    gains = jnp.where(within(force, numbers.force_range)[:, None], gains, 0.0)
    _, _, at_v = scalar_places(tree)
    lengthening = gears * jnp.zeros(tree.num_velocities, gears.dtype).at[at_v].set(1.0)[None]
    return lengthening.T @ (gains[:, :1] * lengthening), gears.T @ (gains[:, 1:] * gears)
