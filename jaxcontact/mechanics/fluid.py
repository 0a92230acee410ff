"""Drag of a fluid on the bodies of a tree, along the axes of each body: `forces` and `yielding`.

A body of velocity u against the wind and of spin w gets, along each of its axes, the force -a u - b |u| u at
its centre of mass and the torque -c w - d |w| w, with the coefficients (a, b, c, d) of that axis.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from jaxcontact.mechanics import kinematics
from jaxcontact.mechanics.dynamics import arms_of_centres, body_velocities
from jaxcontact.mechanics.spatial import (
    Screw,
    Vector,
    add,
    components,
    cross3,
    multiply,
    power,
    scale,
    sum_along,
    transform,
)
from jaxcontact.mechanics.system import Params, Structure
from jaxcontact.mechanics.tree import dofs


def forces(structure: Structure, q: jax.Array, v: jax.Array, params: Params) -> jax.Array:
    """Compute the generalized forces (nv,) of drag."""
    at = kinematics.compute_kinematics(structure, q, params)
    axes, arm = _drag_axes(at, params), arms_of_centres(at, params)
    rates = _along_axes(body_velocities(structure.tree, at, v), axes, arm)
    wind = transform(axes, components(params.tree.wind[None]))
    drag = components(params.tree.drag)

    def push(rate: Vector, rows: tuple[Vector, Vector]) -> Vector:
        x, y, z = (-(rows[0][k] + rows[1][k] * jnp.abs(rate[k])) * rate[k] for k in range(3))
        return x, y, z

    back = _transposed(axes)
    force = transform(back, push(add(rates[1], scale(-1.0, wind)), drag[:2]))
    torque = add(transform(back, push(rates[0], drag[2:])), cross3(arm, force))
    return power(at.motions, sum_along(dofs(structure.tree).moves, (torque, force)))


def yielding(structure: Structure, q: jax.Array, v: jax.Array, params: Params) -> jax.Array:
    """Compute minus the derivative (nv, nv) of the drag by v, a damping matrix."""
    return -jax.jacfwd(lambda v: forces(structure, q, v, params))(v)


def _drag_axes(at: kinematics.Kinematics, params: Params) -> tuple[Vector, Vector, Vector]:
    """Return the axes of drag in the world, as the rows of matrices that turn vectors into these axes."""
    rows: tuple[Vector, Vector, Vector] = components(
        jnp.swapaxes(multiply(at.rotation, params.tree.drag_axes), 1, 2)
    )
    return rows


def _along_axes(motion: Screw, axes: tuple[Vector, Vector, Vector], arm: Vector) -> Screw:
    """Return spin and velocity of centres of mass along the axes of bodies."""
    spin, linear = motion
    return transform(axes, spin), transform(axes, add(linear, cross3(spin, arm)))


def _transposed(rows: tuple[Vector, Vector, Vector]) -> tuple[Vector, Vector, Vector]:
    x, y, z = zip(*rows, strict=True)
    return x, y, z
