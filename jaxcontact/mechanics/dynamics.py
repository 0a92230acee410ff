"""Mass matrix and bias force of a tree, by composite inertias and masked sums in world axes.

M_ij = S_i . I^c_j S_j where velocity i moves the body of velocity j, with I^c_j the inertia of all that j
moves (Featherstone, composite rigid bodies); b_j = S_j . sum over the bodies that j moves of
I a + V x* I V (Newton-Euler). Sums along the tree are products with its constant masks.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from jaxcontact.mechanics.kinematics import Kinematics, body_motions, solve
from jaxcontact.mechanics.spatial import FORCE_CROSS, bilinear, inertia, multiply, rotate
from jaxcontact.mechanics.system import Params, Structure
from jaxcontact.mechanics.tree import dofs


def _inertias(params: Params, found: Kinematics) -> jax.Array:
    """(nb, 6, 6) of each body about the origin of its tree."""
    tensor = params.inertia
    if tensor.ndim == 1:  # in the plane: about the axis across it
        across = jnp.zeros((3, 3), tensor.dtype).at[1, 1].set(1.0)
        tensor = tensor[:, None, None] * across[None]
    centre = _centres(params, found) - found.origin
    turned = multiply(multiply(found.rotation, tensor), jnp.swapaxes(found.rotation, 1, 2))
    return inertia(params.mass, centre, turned)


def _centres(params: Params, found: Kinematics) -> jax.Array:
    """Centres of mass (nb, 3) in the world."""
    return found.position + rotate(found.rotation, params.tree.com)


def _gravity(structure: Structure, params: Params) -> jax.Array:
    """Acceleration (3,) in space."""
    g = params.gravity
    return g if structure.dim == 3 else jnp.stack([g[0], jnp.zeros_like(g[0]), g[1]])


def gravity_energy(structure: Structure, q: jax.Array, params: Params) -> jax.Array:
    """Potential energy of gravity, J; zero at the world's origin."""
    centres = _centres(params, solve(structure.tree, params.tree, q))
    return -params.mass @ centres @ _gravity(structure, params)


def mass_matrix(structure: Structure, q: jax.Array, params: Params) -> jax.Array:
    """M(q) (nv, nv)."""
    found = solve(structure.tree, params.tree, q)
    table, screws = dofs(structure.tree), found.screws
    composite = jnp.asarray(table.moves.T, screws.dtype) @ _inertias(params, found).reshape(-1, 36)
    momentum = rotate(composite.reshape(-1, 6, 6), screws)
    both = screws @ momentum.T
    upper = jnp.asarray(table.above, screws.dtype) * both
    return upper + upper.T + jnp.diag(jnp.diagonal(both) + params.tree.armature)


def bias(structure: Structure, q: jax.Array, v: jax.Array, params: Params) -> jax.Array:
    """Coriolis, gyroscopic and gravity force (nv,)."""
    tree, gravity = structure.tree, _gravity(structure, params)
    found = solve(tree, params.tree, q)
    inertias = _inertias(params, found)
    velocity, acceleration = body_motions(tree, found, v)
    falling = jnp.concatenate([jnp.zeros_like(gravity), gravity])[None]
    force = rotate(inertias, acceleration - falling)
    force = force + bilinear(FORCE_CROSS, velocity, rotate(inertias, velocity))
    return jnp.sum(found.screws * (jnp.asarray(dofs(tree).moves.T, v.dtype) @ force), axis=1)
