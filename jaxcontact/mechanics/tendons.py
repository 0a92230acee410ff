"""Tendons: lengths that are sums of joint positions, or of distances of points, with spring, damper, bounds.

The spring acts if the length leaves the interval in which the spring is relaxed. The interval may be a
point.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from jaxcontact.mechanics import kinematics
from jaxcontact.mechanics.spatial import pick, rotate, unit
from jaxcontact.mechanics.system import Params, Structure
from jaxcontact.mechanics.tree import WORLD, Tree, TreeParams, nodes, scalar_places


def fixed_lengths(tree: Tree, positions: jax.Array, numbers: TreeParams) -> jax.Array:
    """Compute the sum (nt,) of joint positions of each tendon from the positions of all hinges and slides."""
    _, _, at_v = scalar_places(tree)
    return numbers.tendon_moment[:, at_v] @ positions


def lengths(structure: Structure, q: jax.Array, numbers: TreeParams) -> jax.Array:
    """Compute the length (nt,) of each tendon, rad or m."""
    tree = structure.tree
    total = fixed_lengths(tree, q[scalar_places(tree)[1]], numbers)
    return total + _owners(tree).T @ _segments(tree, q, numbers)[1] if _has_paths(tree) else total


def moments(structure: Structure, q: jax.Array, params: Params) -> jax.Array:
    """Compute the derivative (nt, nv) of the length of each tendon by the velocities."""
    tree, numbers = structure.tree, params.tree
    if not _has_paths(tree):
        return numbers.tendon_moment
    points, _, direction = _segments(tree, q, numbers)
    joined = np.sum(_owners(tree), axis=1)[:, None] > 0  # False for the last point of each tendon
    along = jnp.where(joined, direction, 0.0)
    pull = jnp.concatenate([jnp.zeros_like(along[:1]), along[:-1]]) - along
    if structure.dim == 2:
        points, pull = points[:, ::2], pull[:, ::2]
    bodies = [body for tendon in tree.tendons for body in tendon.path]
    at = kinematics.compute_kinematics(structure, q, params)
    rows = kinematics.point_jacobians(structure, at, bodies, points, pull[:, None])[:, 0]
    members = np.repeat(np.arange(len(tree.tendons)), [len(tendon.path) for tendon in tree.tendons])
    chosen = jnp.asarray(members == np.arange(len(tree.tendons))[:, None], q.dtype)
    return numbers.tendon_moment + chosen @ rows


def stretches(structure: Structure, q: jax.Array, numbers: TreeParams) -> tuple[jax.Array, jax.Array]:
    """Compute the stretch (nt,) of each tendon beyond its relaxed interval, and whether its spring acts."""
    length = lengths(structure, q, numbers)
    shortest, longest = numbers.tendon_rest[:, 0], numbers.tendon_rest[:, 1]
    stretch = jnp.where(
        length > longest, length - longest, jnp.where(length < shortest, length - shortest, 0.0)
    )
    return stretch, (length > longest) | (length < shortest) | (shortest == longest)


def passive_forces(structure: Structure, q: jax.Array, v: jax.Array, params: Params) -> jax.Array:
    """Compute the generalized forces (nv,) of the springs and dampers of tendons."""
    numbers, moment = params.tree, moments(structure, q, params)
    stretch = stretches(structure, q, numbers)[0]
    return -moment.T @ (numbers.tendon_stiffness * stretch + numbers.tendon_damping * (moment @ v))


def spring_energy(structure: Structure, q: jax.Array, numbers: TreeParams) -> jax.Array:
    """Compute the potential energy of the springs of tendons, J."""
    return 0.5 * jnp.sum(numbers.tendon_stiffness * stretches(structure, q, numbers)[0] ** 2)


def yielding(structure: Structure, q: jax.Array, params: Params) -> tuple[jax.Array, jax.Array]:
    """Compute the stiffness and damping matrices (nv, nv) of tendons, at constant moments."""
    numbers, moment = params.tree, moments(structure, q, params)
    stiffness = jnp.where(stretches(structure, q, numbers)[1], numbers.tendon_stiffness, 0.0)
    return moment.T @ (stiffness[:, None] * moment), moment.T @ (numbers.tendon_damping[:, None] * moment)


def _has_paths(tree: Tree) -> bool:
    return any(tendon.path for tendon in tree.tendons)


def _owners(tree: Tree) -> np.ndarray:
    """Return a mask (np, nt) of the tendon of the segment that begins at each point of all paths."""
    rows = [
        np.eye(len(tree.tendons))[k] * (point < len(tendon.path) - 1)
        for k, tendon in enumerate(tree.tendons)
        for point in range(len(tendon.path))
    ]
    return np.array(rows)


def _segments(tree: Tree, q: jax.Array, numbers: TreeParams) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Compute the points (np, 3) of all paths in the world, and the distance and direction to the next one.

    Two points that coincide have the direction zero. The last point is beside itself.
    """
    frames = kinematics.place_nodes(tree, numbers, unit(numbers.axis), q)[nodes(tree).of_body]
    frames = jnp.concatenate([frames, jnp.asarray(np.eye(3, 4)[None], q.dtype)])
    bodies = [body for tendon in tree.tendons for body in tendon.path]
    carriers = pick(frames, np.where(np.array(bodies) == WORLD, len(tree.parents), bodies))
    points = carriers[:, :, 3] + rotate(carriers[:, :, :3], numbers.tendon_points)
    step = jnp.concatenate([points[1:] - points[:-1], jnp.zeros_like(points[:1])])
    direction = unit(step)
    return points, jnp.sum(direction * step, axis=1), direction
