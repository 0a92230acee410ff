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
    cross3,
    dot3,
    force_cross,
    momentum,
    motion_cross,
    power,
    powers,
    scale,
    sum_along,
    transform,
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
    inertias = kinematics.inertias
    moment = add(inertias.moment, scale(inertias.mass, components(kinematics.origin)))
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


def wrenches(structure: Structure, kinematics: Kinematics, params: Params) -> jax.Array:
    """Compute the generalized forces (nv,) of forces and torques applied to the bodies."""
    assert params.applied is not None
    rows = components(params.applied)
    zero = jnp.zeros_like(rows[0])
    # Angles in the plane turn from x to z, torques about y from z to x.
    push, torque = (
        (rows[:3], rows[3:]) if structure.dim == 3 else ((rows[0], zero, rows[1]), (zero, -rows[2], zero))
    )
    wrench = add(torque, cross3(arms_of_centres(kinematics, params), push)), push
    return power(kinematics.motions, sum_along(dofs(structure.tree).moves, wrench))


def arms_of_centres(kinematics: Kinematics, params: Params) -> Vector:
    """Compute the centres of mass of the bodies from the origin of their tree, in world axes, m."""
    return add(
        components(kinematics.position - kinematics.origin),
        transform(components(kinematics.rotation), components(params.tree.com)),
    )


def _swept(table: Dofs, screws: Screw, v: jax.Array) -> Screw:
    """Compute W_k x S_k of each velocity; W_k is the motion of the frame in which S_k is fixed."""
    return motion_cross(sum_along(table.before.T, jax.tree.map(lambda x: x * v, screws)), screws)


def rotor_momentum(structure: Structure, v: jax.Array, params: Params) -> jax.Array:
    """Compute the momentum (nv,) of rotors of joints, actuators and tendons, the part of M v of no body."""
    return _armature(structure.tree, params.tree) @ v


def momentum_and_pull(
    structure: Structure, kinematics: Kinematics, v: jax.Array, params: Params, lever: jax.Array | None
) -> tuple[jax.Array, jax.Array]:
    """Compute M v (nv,) without rotors, and the derivative (nv,) of kinetic minus gravity energy along q.

    A tangent k turns the inertias and motions of the bodies that velocity k moves, but not the motion W_k of
    the frame of S_k. So the derivative of the kinetic energy is h^c . (W_k x S_k), with the sum h^c of the
    momenta I V of these bodies. If `lever` (nv, 3) is given, its product with the rates of the linear
    momentum of the trees along the tangents is subtracted.
    """
    table = dofs(structure.tree)
    screws, inertias = kinematics.motions, kinematics.inertias
    velocity = body_velocities(structure.tree, kinematics, v)
    zero = jnp.zeros_like(inertias.mass)
    falling = (zero, zero, zero), _gravity(structure, params)
    carried, pulled = sum_along(table.moves, (momentum(inertias, velocity), momentum(inertias, falling)))
    swept = _swept(table, screws, v)
    pull = power(swept, carried) + power(screws, pulled)
    if lever is not None:
        mass, moment = sum_along(table.moves, (inertias.mass, inertias.moment))
        linear = add(scale(mass, swept[1]), cross3(swept[0], moment))
        pull = pull - dot3(components(lever), add(linear, cross3(screws[0], carried[1])))
    return power(screws, carried), pull


def momentum_rate(structure: Structure, kinematics: Kinematics, v: jax.Array) -> jax.Array:
    """Compute the matrix P (nv, nv), where P_ik is the derivative of (M v)_i along the tangent k of q.

    If k is before i in the tree, or both are of one ball, P_ik = I^c_i S_i . (W_k x S_k); if i is before k,
    it is S_i . (S_k x* h^c_k + I^c_k (W_k x S_k)); otherwise it is zero.
    """
    table = dofs(structure.tree)
    screws, inertias = kinematics.motions, kinematics.inertias
    velocity = body_velocities(structure.tree, kinematics, v)
    composite, carried = sum_along(table.moves, (inertias, momentum(inertias, velocity)))
    swept = _swept(table, screws, v)
    rate = add_screws(force_cross(screws, carried), momentum(composite, swept))
    carries = table.moves[table.body]
    level = carries * carries.T * (1.0 - table.before) * (1.0 - table.before.T)
    above = powers(swept, momentum(composite, screws)).T
    return (table.before + level) * above + table.before.T * powers(screws, rate)


def body_velocities(tree: Tree, kinematics: Kinematics, v: jax.Array) -> Screw:
    """Compute the motions of the bodies, about the origin of their tree."""
    moved = jax.tree.map(lambda x: x * v, kinematics.motions)
    velocities: Screw = sum_along(dofs(tree).moves.T, moved)
    return velocities
