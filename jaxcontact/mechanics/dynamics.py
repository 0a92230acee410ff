"""Mass matrix and bias force of a tree, by composite inertias and masked sums in world axes.

M_ij = S_i . I^c_j S_j where velocity i moves the body of velocity j; I^c_j is the inertia of all bodies that
velocity j moves (Featherstone, composite rigid bodies). b_j = S_j . f, with f the sum of I a + V x* I V over
the bodies that velocity j moves (Newton-Euler). Sums along the tree are products with constant masks.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from jaxcontact.mechanics.kinematics import Kinematics, body_motions, solve
from jaxcontact.mechanics.spatial import FORCE_CROSS, bilinear, inertia, multiply, rotate
from jaxcontact.mechanics.system import Params, Structure
from jaxcontact.mechanics.tree import dofs


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
