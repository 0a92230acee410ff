"""Free joints of a tree in the velocity of the centre of mass of all their bodies, which flies in a line.

In these variables the linear velocity of a free joint is that of the centre of its tree. The kinetic energy
is that of the centre plus that of the tree about it. Entry functions: `centres_at`, `retract_centres`.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxcontact._pytree import PyTree
from jaxcontact.mechanics.configuration import retract
from jaxcontact.mechanics.kinematics import Kinematics
from jaxcontact.mechanics.motion_equations import kinematics_of
from jaxcontact.mechanics.spatial import add, cross3, scale, sum_along
from jaxcontact.mechanics.system import Model, Structure, System
from jaxcontact.mechanics.tree import dofs, of_kind, roots


class Centres(NamedTuple):
    """The centres of the k trees with a free joint, and how they move: linear + sum of arm v.

    Attributes:
        linear: (k, 3) places of the linear velocities of free joints in v.
        member: (k, nv) 1 if a velocity is of a tree, and not linear.
        centre: (k, 3) centre of mass of each tree in the world, m.
        mass: (k,) kg.
        arm: (nv, 3) velocity of the centre of its tree per unit of each velocity.
    """

    linear: np.ndarray
    member: np.ndarray
    centre: jax.Array
    mass: jax.Array
    arm: jax.Array

    def drift(self, v: jax.Array) -> jax.Array:
        """Compute the velocities (k, 3) of the centres relative to the free joints."""
        return jnp.asarray(self.member, v.dtype) @ (self.arm * v[:, None])

    def drift_rows(self) -> jax.Array:
        """Return the rows (k, 3, nv) of `drift`."""
        return jnp.asarray(self.member, self.arm.dtype)[:, None] * self.arm.T[None]

    def velocity_of_joints(self, v: jax.Array) -> jax.Array:
        """Convert velocities (nv,) of the centres to those of the joints."""
        return v.at[self.linear].add(-self.drift(v))

    def velocity_of_centres(self, v: jax.Array) -> jax.Array:
        """Convert velocities (nv,) of the joints to those of the centres."""
        return v.at[self.linear].add(self.drift(v))

    def velocity_about_centres(self, v: jax.Array) -> jax.Array:
        """Return the velocities (nv,) of the joints with the centres at rest."""
        return v.at[self.linear].set(-self.drift(v))

    def _lever(self, f: jax.Array) -> jax.Array:
        return jnp.sum(self.arm * (jnp.asarray(self.member.T, f.dtype) @ f[self.linear]), axis=1)

    def lever(self, momentum: jax.Array) -> jax.Array:
        """Compute the centres' velocity (nv, 3) by a momentum's (nv,) linear part, for each velocity."""
        return jnp.asarray(self.member.T, momentum.dtype) @ (momentum[self.linear] / self.mass[:, None])

    def force_at_centres(self, f: jax.Array) -> jax.Array:
        """Convert forces or momenta (nv,) at the joints to those at the centres."""
        return f - self._lever(f)

    def force_at_joints(self, f: jax.Array) -> jax.Array:
        """Convert forces or momenta (nv,) at the centres to those at the joints."""
        return f + self._lever(f)

    def matrix_at_centres(self, matrix: jax.Array) -> jax.Array:
        """Convert a matrix (nv, nv) from velocities to forces at the joints to that at the centres."""
        columns = jax.vmap(self.force_at_centres)(matrix)
        return jax.vmap(self.force_at_centres, in_axes=1, out_axes=1)(columns)


def linear_places(structure: Structure) -> np.ndarray:
    """List the indices in v (k, 3) of the linear velocities of free joints of a tree."""
    tree = structure.tree
    assert tree is not None
    return np.array(tree.velocity_starts)[of_kind(tree, "free")][:, None] + np.arange(3)


def centres_at(system: System, kinematics: Kinematics) -> Centres | None:
    """Compute the centres of a tree from its kinematics; return None without a free joint."""
    tree = system.structure.tree
    if tree is None or not (free := of_kind(tree, "free")).size:
        return None
    table, inertias = dofs(tree), kinematics.inertias
    bodies = np.array([tree.joints[j].body for j in free])
    carries = (roots(tree)[None] == bodies[:, None]).astype(float)  # (k, nb)
    total, moment = sum_along(carries.T, (inertias.mass, inertias.moment))
    linear = linear_places(system.structure)
    member = carries[:, table.body]
    member[:, linear.ravel()] = 0.0
    (spin, velocity), (mass, arm) = (
        kinematics.motions,
        sum_along(table.moves, (inertias.mass, inertias.moment)),
    )
    carried = jnp.stack(add(scale(mass, velocity), cross3(spin, arm)), axis=1)
    of_tree = jnp.asarray(member.T, total.dtype) @ (1.0 / total)
    centre = kinematics.origin[bodies] + jnp.stack(moment, axis=1) / total[:, None]
    return Centres(linear, member, centre, total, carried * of_tree[:, None])


def retract_centres(
    model: Model, q: jax.Array, centre: jax.Array | None, delta: jax.Array
) -> tuple[jax.Array, PyTree]:
    """Compute `retract` with `delta` (nv,) of the centres (k, 3), and kinematics except for translations."""
    if centre is None:
        moved = retract(model.system, q, delta)
        return moved, kinematics_of(model, moved)
    tree = model.structure.tree
    free = of_kind(tree, "free")
    linear = linear_places(model.structure)
    moved = retract(model.system, q, delta.at[linear].set(0.0))
    kinematics = kinematics_of(model, moved)
    centres = centres_at(model.system, kinematics)
    assert centres is not None
    places = np.array(tree.position_starts)[free][:, None] + np.arange(3)
    return moved.at[places].add(centre + delta[linear] - centres.centre), kinematics
