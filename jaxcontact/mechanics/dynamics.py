"""Mass matrix and bias force of a tree, by composite inertias and masked sums in world axes.

M_ij = S_i . I^c_j S_j where velocity i moves the body of velocity j, with I^c_j the inertia of all that j
moves (Featherstone, composite rigid bodies); b_j = S_j . sum over the bodies that j moves of
I a + V x* I V (Newton-Euler). Sums along the tree are products with its constant masks.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from jaxcontact.mechanics.kinematics import (
    Frames,
    cross,
    multiply,
    place,
    rotate,
    screw_rates,
    screws,
    summed,
    tree_origins,
)
from jaxcontact.mechanics.tree import Tree, dofs
from jaxcontact.system import Params, Structure


def _inertias(tree: Tree, params: Params, frames: Frames) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Of each body mass (nb, 1), first moment (nb, 3) and inertia (nb, 3, 3) about the origin of its tree."""
    tensor = params.inertia
    if tensor.ndim == 1:  # in the plane: about the axis across it
        across = jnp.zeros((3, 3), tensor.dtype).at[1, 1].set(1.0)
        tensor = tensor[:, None, None] * across[None]
    mass = params.mass[:, None]
    centre = frames.position + rotate(frames.rotation, params.tree.com) - tree_origins(tree, frames)
    turned = multiply(multiply(frames.rotation, tensor), jnp.swapaxes(frames.rotation, 1, 2))
    moment = mass * centre
    square = jnp.sum(moment * centre, axis=1)[:, None, None] * jnp.eye(3, dtype=mass.dtype)[None]
    return mass, moment, turned + square - moment[:, :, None] * centre[:, None, :]


def _momentum(
    inertia: tuple[jax.Array, jax.Array, jax.Array], angular: jax.Array, linear: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Angular and linear momentum (n, 3) of inertias that move like this."""
    mass, moment, tensor = inertia
    return rotate(tensor, angular) + cross(moment, linear), mass * linear + cross(angular, moment)


def mass_matrix(structure: Structure, q: jax.Array, params: Params) -> jax.Array:
    """M(q) (nv, nv)."""
    tree = structure.tree
    frames, table = place(tree, params.tree, q), dofs(tree)
    screw = screws(tree, params.tree, frames)
    mass, moment, tensor = _inertias(tree, params, frames)
    mass, moment, tensor = summed(table.moves.T, mass, moment, tensor.reshape(-1, 9))
    spin, push = _momentum((mass, moment, tensor.reshape(-1, 3, 3)), screw.angular, screw.linear)
    both = screw.angular @ spin.T + screw.linear @ push.T
    upper = jnp.asarray(table.above, q.dtype) * both
    return upper + upper.T + jnp.diag(jnp.diagonal(both) + params.tree.armature)


def bias(structure: Structure, q: jax.Array, v: jax.Array, params: Params) -> jax.Array:
    """Coriolis, gyroscopic and gravity force (nv,)."""
    tree, gravity = structure.tree, params.gravity
    if structure.dim == 2:
        gravity = jnp.stack([gravity[0], jnp.zeros_like(gravity[0]), gravity[1]])
    frames, table = place(tree, params.tree, q), dofs(tree)
    screw = screws(tree, params.tree, frames)
    inertia = _inertias(tree, params, frames)
    spin, drift = summed(table.moves, screw.angular * v[:, None], screw.linear * v[:, None])
    spin_rate, drift_rate = summed(table.moves, *screw_rates(table, screw, v))
    angular, linear = _momentum(inertia, spin, drift)
    torque, force = _momentum(inertia, spin_rate, drift_rate - gravity[None])
    torque = torque + cross(spin, angular) + cross(drift, linear)
    force = force + cross(spin, linear)
    torque, force = summed(table.moves.T, torque, force)
    return jnp.sum(screw.angular * torque + screw.linear * force, axis=1)
