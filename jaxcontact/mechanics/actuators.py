"""Forces at the joints of a tree: springs, dampers, tendons, actuators.

An actuator pushes with gain u + b_0 + b_1 length + b_2 velocity along its gears, its length the sum of gear
times joint position (MuJoCo: motor, position, velocity, general with fixed gain and affine bias). Controls,
forces, and the sum at a joint are clipped to their ranges.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from jaxcontact.algebra import rotations
from jaxcontact.mechanics import tendons
from jaxcontact.mechanics.system import Params, Structure
from jaxcontact.mechanics.tree import VELOCITIES, Tree, TreeParams, dofs, of_kind, scalar_places


def turns_from(tree: Tree, q: jax.Array, reference: jax.Array, joints: np.ndarray) -> jax.Array:
    """Rotation vectors (k, 3) of ball and free joints from their place at `reference`, in body axes."""
    shift = {"free": 3, "ball": 0}
    starts = [tree.position_starts[j] + shift[tree.joints[j].kind] for j in joints]
    index = np.array(starts)[:, None] + np.arange(4)

    def turn(now: jax.Array, then: jax.Array) -> jax.Array:
        back = rotations.quaternion_conjugate(then)
        return rotations.quaternion_log(rotations.quaternion_product(back, now))

    return jax.vmap(turn)(q[index], reference[index])


def extensions(tree: Tree, q: jax.Array, numbers: TreeParams) -> jax.Array:
    """How far each velocity's coordinate (nv,) is from where its spring is relaxed, rad or m."""
    _, at_q, at_v = scalar_places(tree)
    moved = jnp.zeros(tree.num_velocities, q.dtype).at[at_v].set(q[at_q] - numbers.rest[at_q])
    if not tree.springs:
        return moved
    turning, free = of_kind(tree, "ball", "free"), of_kind(tree, "free")
    starts = np.array(tree.velocity_starts)
    last = starts[turning] + np.array([VELOCITIES[tree.joints[j].kind] - 3 for j in turning])
    moved = moved.at[last[:, None] + np.arange(3)].set(turns_from(tree, q, numbers.rest, turning))
    places = np.array(tree.position_starts)[free][:, None] + np.arange(3)
    return moved.at[starts[free][:, None] + np.arange(3)].set(q[places] - numbers.rest[places])


def passive_forces(structure: Structure, q: jax.Array, v: jax.Array, params: Params) -> jax.Array:
    """Generalized forces (nv,) of the springs and dampers of joints and tendons."""
    tree, numbers = structure.tree, params.tree
    stiffness = numbers.stiffness[dofs(tree).joint]
    force = -stiffness * extensions(tree, q, numbers) - numbers.damping * v
    return force + tendons.passive_forces(tree, q, v, numbers) if tree.tendons else force


def spring_energy(structure: Structure, q: jax.Array, params: Params) -> jax.Array:
    """Potential energy of the springs of joints and tendons, J."""
    tree, numbers = structure.tree, params.tree
    energy = 0.5 * jnp.sum(numbers.stiffness[dofs(tree).joint] * extensions(tree, q, numbers) ** 2)
    return energy + tendons.spring_energy(tree, q, numbers) if tree.tendons else energy


def _actuator_forces(
    tree: Tree, q: jax.Array, v: jax.Array, numbers: TreeParams, controls: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Force (nu,) of each actuator before its range, and its generalized forces (nv,) before theirs."""
    _, at_q, at_v = scalar_places(tree)
    ranges = numbers.control_range
    clipped = jnp.clip(controls, ranges[:, 0], ranges[:, 1])
    length = numbers.moment[:, at_v] @ q[at_q]
    bias = numbers.bias
    force = numbers.gain * clipped + bias[:, 0] + bias[:, 1] * length + bias[:, 2] * (numbers.moment @ v)
    bounded = jnp.clip(force, numbers.force_range[:, 0], numbers.force_range[:, 1])
    return force, numbers.moment.T @ bounded


def drive(structure: Structure, q: jax.Array, v: jax.Array, params: Params, controls: jax.Array) -> jax.Array:
    """Generalized forces (nv,) of the actuators under controls (nu,); of none, the controls themselves."""
    if not structure.tree.actuators:
        return controls
    numbers = params.tree
    _, total = _actuator_forces(structure.tree, q, v, numbers, controls)
    return jnp.clip(total, numbers.joint_force_range[:, 0], numbers.joint_force_range[:, 1])


def yielding(
    structure: Structure, q: jax.Array, v: jax.Array, params: Params, controls: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Stiffness and damping matrices (nv, nv) of springs, dampers and actuators at a state.

    An actuator at the end of its range pushes with a constant force, and a gain that feeds energy in stays
    explicit, so that both are positive semidefinite.
    """
    tree, numbers = structure.tree, params.tree
    stiffness = jnp.diag(numbers.stiffness[dofs(tree).joint])
    damping = jnp.diag(numbers.damping)
    if tree.tendons:
        pulled, damped = tendons.yielding(tree, q, numbers)
        stiffness, damping = stiffness + pulled, damping + damped
    if not tree.actuators:
        return stiffness, damping
    force, total = _actuator_forces(tree, q, v, numbers, controls)

    def within(x: jax.Array, ranges: jax.Array) -> jax.Array:
        return (x > ranges[:, 0]) & (x < ranges[:, 1])

    gears = jnp.where(within(total, numbers.joint_force_range)[None], numbers.moment, 0.0)
    gains = jnp.where(
        within(force, numbers.force_range)[:, None], jnp.maximum(-numbers.bias[:, 1:], 0.0), 0.0
    )
    _, _, at_v = scalar_places(tree)
    long = gears * jnp.zeros(tree.num_velocities, gears.dtype).at[at_v].set(1.0)[None]
    stiffness = stiffness + long.T @ (gains[:, :1] * long)
    return stiffness, damping + gears.T @ (gains[:, 1:] * gears)
