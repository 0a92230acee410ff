"""Mass matrix and bias force of a tree, by composite inertias and masked sums in world axes.

M_ij = S_i . I^c_j S_j where velocity i moves the body of velocity j; I^c_j is the inertia of all bodies that
velocity j moves (Featherstone, composite rigid bodies). b_j = S_j . f, with f the sum of I a + V x* I V over
the bodies that velocity j moves (Newton-Euler). Sums along the tree are products with constant masks.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from jaxcontact.mechanics.kinematics import Kinematics, body_motions, solve
from jaxcontact.mechanics.spatial import FORCE_CROSS, MOTION_CROSS, bilinear, inertia, multiply, rotate
from jaxcontact.mechanics.system import Params, Structure
from jaxcontact.mechanics.tree import Dofs, dofs


def _inertias(params: Params, kinematics: Kinematics) -> jax.Array:
    """Spatial inertia (nb, 6, 6) of each body about the origin of its tree."""
    tensor = params.inertia
    if tensor.ndim == 1:  # in the plane: about the axis across it
        across = jnp.zeros((3, 3), tensor.dtype).at[1, 1].set(1.0)
        tensor = tensor[:, None, None] * across[None]
    centre = _centres(params, kinematics) - kinematics.origin
    world_tensor = multiply(multiply(kinematics.rotation, tensor), jnp.swapaxes(kinematics.rotation, 1, 2))
    return inertia(params.mass, centre, world_tensor)


def _centres(params: Params, kinematics: Kinematics) -> jax.Array:
    """Centres of mass (nb, 3) in the world."""
    return kinematics.position + rotate(kinematics.rotation, params.tree.com)


def _gravity(structure: Structure, params: Params) -> jax.Array:
    """Acceleration of gravity (3,) in space."""
    g = params.gravity
    return g if structure.dim == 3 else jnp.stack([g[0], jnp.zeros_like(g[0]), g[1]])


def gravity_energy(structure: Structure, q: jax.Array, params: Params) -> jax.Array:
    """Potential energy of gravity, J; zero at the world's origin."""
    centres = _centres(params, solve(structure.tree, params.tree, q))
    return -params.mass @ centres @ _gravity(structure, params)


def mass_matrix(structure: Structure, q: jax.Array, params: Params) -> jax.Array:
    """M(q) (nv, nv)."""
    kinematics = solve(structure.tree, params.tree, q)
    table, screws = dofs(structure.tree), kinematics.screws
    composite = jnp.asarray(table.moves.T, screws.dtype) @ _inertias(params, kinematics).reshape(-1, 36)
    momentum = rotate(composite.reshape(-1, 6, 6), screws)
    full = screws @ momentum.T
    upper = jnp.asarray(table.above, screws.dtype) * full
    return upper + upper.T + jnp.diag(jnp.diagonal(full) + params.tree.armature)


def bias(structure: Structure, q: jax.Array, v: jax.Array, params: Params) -> jax.Array:
    """Coriolis, gyroscopic and gravity force (nv,)."""
    tree, gravity = structure.tree, _gravity(structure, params)
    kinematics = solve(tree, params.tree, q)
    inertias = _inertias(params, kinematics)
    velocity, acceleration = body_motions(tree, kinematics, v)
    gravity_acceleration = jnp.concatenate([jnp.zeros_like(gravity), gravity])[None]
    force = rotate(inertias, acceleration - gravity_acceleration)
    force = force + bilinear(FORCE_CROSS, velocity, rotate(inertias, velocity))
    return jnp.sum(kinematics.screws * (jnp.asarray(dofs(tree).moves.T, v.dtype) @ force), axis=1)


def _swept(table: Dofs, kinematics: Kinematics, v: jax.Array) -> jax.Array:
    """W_k x S_k (nv, 6), where W_k sums the motions on the path of a body except those from k down to it.

    These are the motions that move the frame of S_k, and those of its path whose frames k does not move.
    """
    carries = table.moves[table.body]
    summed = jnp.asarray(table.before + carries * (1.0 - table.before.T), v.dtype)
    return bilinear(MOTION_CROSS, summed @ (kinematics.screws * v[:, None]), kinematics.screws)


def bias_rate(structure: Structure, q: jax.Array, v: jax.Array, params: Params) -> jax.Array:
    """Derivative K (nv, nv) by v of the Coriolis and gyroscopic force c(v) = K v / 2.

    The force of a body changes with a velocity k that moves it by N S_k + I (W_k x S_k). Here
    N S = V x* I S - I (V x S) + S x* I V. So K_ik is S_i . (N^c S_k + I^c W_k x S_k), with the sums N^c, I^c
    over the bodies that both velocities move.
    """
    tree, dtype = structure.tree, v.dtype
    kinematics, table = solve(tree, params.tree, q), dofs(tree)
    screws, inertias = kinematics.screws, _inertias(params, kinematics)
    motion, _ = body_motions(tree, kinematics, v)
    # V x S as a matrix times S, and S x* h likewise.
    turns = (motion @ jnp.asarray(MOTION_CROSS.transpose(0, 2, 1).reshape(6, 36), dtype)).reshape(-1, 6, 6)
    momentum = rotate(inertias, motion)
    carried = (momentum @ jnp.asarray(FORCE_CROSS.transpose(1, 2, 0).reshape(6, 36), dtype)).reshape(-1, 6, 6)
    turned = multiply(inertias, turns)
    rates = carried - turned - jnp.swapaxes(turned, 1, 2)
    both = jnp.concatenate([inertias.reshape(-1, 36), rates.reshape(-1, 36)], axis=1)
    composite = (jnp.asarray(table.moves.T, dtype) @ both).reshape(-1, 2, 6, 6)
    mass, rate, swept = composite[:, 0], composite[:, 1], _swept(table, kinematics, v)
    at_second = screws @ (rotate(rate, screws) + rotate(mass, swept)).T
    at_first = rotate(jnp.swapaxes(rate, 1, 2), screws) @ screws.T + rotate(mass, screws) @ swept.T
    upper = jnp.asarray(table.above + np.eye(len(table.above)), dtype)
    return upper * at_second + jnp.asarray(table.above.T, dtype) * at_first


def gyroscopic(structure: Structure, q: jax.Array, v: jax.Array, params: Params) -> jax.Array:
    """The part (nv,) of minus the Coriolis and gyroscopic force c(v) that does no work at any v.

    It is (K^T v - K v) / 3 with K of `bias_rate`. K v = 2 c. As N^T V is zero, (K^T v)_k = h^c . (W_k x S_k)
    with the sum h^c of the momenta of the bodies that velocity k moves.
    """
    tree = structure.tree
    kinematics, table = solve(tree, params.tree, q), dofs(tree)
    inertias = _inertias(params, kinematics)
    velocity, acceleration = body_motions(tree, kinematics, v)
    momentum = rotate(inertias, velocity)
    force = rotate(inertias, acceleration) + bilinear(FORCE_CROSS, velocity, momentum)
    composite = jnp.asarray(table.moves.T, v.dtype) @ jnp.concatenate([momentum, force], axis=1)
    swept = _swept(table, kinematics, v)
    return jnp.sum(swept * composite[:, :6] - 2.0 * kinematics.screws * composite[:, 6:], axis=1) / 3.0
