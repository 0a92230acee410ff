"""Mass matrix and bias force of a tree, by composite inertias and masked sums in world axes.

M_ik = S_i . I^c_k S_k if velocity i moves the body of velocity k; I^c_k is the inertia of all bodies that
velocity k moves (Featherstone, composite rigid bodies). b_k = S_k . f, with f the sum of I a + V x* I V over
the bodies that velocity k moves (Newton-Euler). Sums along the tree are products with constant masks.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from jaxcontact.mechanics.kinematics import Kinematics, body_motions
from jaxcontact.mechanics.spatial import (
    Screw,
    Vector,
    add,
    add_screws,
    components,
    dot3,
    force_cross,
    momentum,
    motion_cross,
    power,
    powers,
    scale,
    sum_along,
)
from jaxcontact.mechanics.system import Params, Structure
from jaxcontact.mechanics.tree import Dofs, Tree, TreeParams, dofs


def _gravity(structure: Structure, params: Params) -> Vector:
    """Return the acceleration of gravity in space; one for each body if the tree compensates weights."""
    g = params.gravity
    gravity = (g[0], g[1], g[2]) if structure.dim == 3 else (g[0], jnp.zeros_like(g[0]), g[1])
    return scale(1.0 - params.tree.gravcomp, gravity) if structure.tree.lifted else gravity


def gravity_energy(structure: Structure, kinematics: Kinematics, params: Params) -> jax.Array:
    """Compute the potential energy of gravity, J; zero at the world's origin."""
    own = kinematics.inertias
    moment = add(own.moment, scale(own.mass, components(kinematics.origin)))
    return -jnp.sum(dot3(moment, _gravity(structure, params)))


def mass_matrix(structure: Structure, kinematics: Kinematics, params: Params) -> jax.Array:
    """Compute the mass matrix M(q) (nv, nv)."""
    table, screws = dofs(structure.tree), kinematics.motions
    force = momentum(sum_along(table.moves, kinematics.inertias), screws)
    not_below = table.above + np.eye(len(table.above))
    pairs = powers(screws, force)
    full = not_below * pairs + table.above.T * pairs.T
    return full + _armature(structure.tree, params.tree)


def _armature(tree: Tree, numbers: TreeParams) -> jax.Array:
    """Compute the inertia (nv, nv) of rotors at joints, of actuators through their gears, and of tendons."""
    total = jnp.diag(numbers.armature)
    if tree.rotors:
        total = total + numbers.moment.T @ (numbers.actuator_armature[:, None] * numbers.moment)
    if any(tendon.heavy for tendon in tree.tendons):
        moment = numbers.tendon_moment
        total = total + moment.T @ (numbers.tendon_armature[:, None] * moment)
    return total


def bias(structure: Structure, kinematics: Kinematics, v: jax.Array, params: Params) -> jax.Array:
    """Compute the Coriolis, gyroscopic and gravity force (nv,)."""
    inertias = kinematics.inertias
    velocity, acceleration = body_motions(structure.tree, kinematics, v)
    upward = acceleration[0], add(acceleration[1], scale(-1.0, _gravity(structure, params)))
    force = add_screws(momentum(inertias, upward), force_cross(velocity, momentum(inertias, velocity)))
    return power(kinematics.motions, sum_along(dofs(structure.tree).moves, force))


def _swept(table: Dofs, screws: Screw, v: jax.Array) -> Screw:
    """Compute W_k x S_k of each velocity; W_k sums the motions on a body's path except those from k down.

    These are the motions that move the frame of S_k, and those of its path whose frames k does not move.
    """
    carries = table.moves[table.body]
    summed = table.before + carries * (1.0 - table.before.T)
    return motion_cross(sum_along(summed.T, jax.tree.map(lambda x: x * v, screws)), screws)


def gyroscopic_matrix(structure: Structure, kinematics: Kinematics, v: jax.Array) -> jax.Array:
    """Compute the skew A(v) (nv, nv), linear in v, with `gyroscopic` = A(v) v: (K^T - K) / 3, K = dc/dv.

    The Coriolis and gyroscopic force of a body is c = I a + V x* I V. It changes with a velocity k that moves
    the body by N S_k + I (W_k x S_k), with N S = V x* I S - I (V x S) + S x* I V. The skew part of N is
    S -> S x* I V. So with i above k and the sums I^c, h^c of inertias and momenta I V over the bodies that k
    moves, 3 A_ki = S_i . (2 S_k x* h^c + I^c (W_k x S_k)) - (W_i x S_i) . I^c S_k.
    """
    table = dofs(structure.tree)
    screws, inertias = kinematics.motions, kinematics.inertias
    velocity, _ = body_motions(structure.tree, kinematics, v)
    composite, carried = sum_along(table.moves, (inertias, momentum(inertias, velocity)))
    swept, force = _swept(table, screws, v), momentum(composite, screws)
    turned = force_cross(screws, carried)
    rate = add_screws(add_screws(turned, turned), momentum(composite, swept))
    below = powers((rate, force), (screws, jax.tree.map(jnp.negative, swept)))
    return (table.above.T * below - table.above * below.T) / 3.0


def gyroscopic(structure: Structure, kinematics: Kinematics, v: jax.Array) -> jax.Array:
    """Compute the part (nv,) of minus the Coriolis and gyroscopic force c(v) that does no work at any v.

    It is (K^T v - K v) / 3 with K = dc/dv. K v = 2 c, and (K^T v)_k = h^c . (W_k x S_k) with the sum h^c of
    the momenta of the bodies that velocity k moves.
    """
    table = dofs(structure.tree)
    screws, inertias = kinematics.motions, kinematics.inertias
    velocity, acceleration = body_motions(structure.tree, kinematics, v)
    own = momentum(inertias, velocity)
    force = add_screws(momentum(inertias, acceleration), force_cross(velocity, own))
    carried, pushed = sum_along(table.moves, (own, force))
    return (power(_swept(table, screws, v), carried) - 2.0 * power(screws, pushed)) / 3.0
