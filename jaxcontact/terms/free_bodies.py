"""Contact rows of bodies that move freely: only the two bodies of a contact have entries."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from jaxcontact import geometry
from jaxcontact._pytree import PyTree
from jaxcontact.algebra import body_rows
from jaxcontact.front_door import checked
from jaxcontact.mechanics.system import System, free_poses
from jaxcontact.terms.owners import all_move, of_bodies, on_bodies


def contact_rows(
    system: System,
    bodies: tuple[PyTree, PyTree],
    places: PyTree,
    positions: jax.Array,
    orientations: jax.Array,
) -> jax.Array:
    """Compute the velocity Jacobians (nc, dim, nv) of contacts in the order n, t1[, t2]."""
    nb, dim = len(system.structure.bodies), system.structure.dim
    nc, width = places.phi.shape[0], 3 * dim - 3
    rows = jnp.zeros((nb, width, dim, nc), places.phi.dtype)
    for owner, block in zip(bodies, row_blocks(dim, bodies, places, positions, orientations), strict=True):
        columns = jnp.swapaxes(block, 0, 1)  # (width, dim, nc), the order of axes that a step uses
        if nb == 1:
            rows = rows + columns[None]
            continue
        static_owner = not isinstance(owner, jax.Array)
        contact_index = np.flatnonzero(on_bodies(owner)) if static_owner else np.arange(nc)
        if contact_index.size:
            body_index = np.array(owner)[contact_index] if static_owner else jnp.maximum(owner, 0)
            entries = (body_index, slice(None), slice(None), contact_index)  # (contacts, width, dim)
            rows = rows.at[entries].add(jnp.moveaxis(columns[..., contact_index], -1, 0))
    return jnp.transpose(rows.reshape(nb * width, dim, nc), (2, 1, 0))


def row_blocks(
    dim: int, bodies: tuple[PyTree, PyTree], places: PyTree, positions: jax.Array, orientations: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Compute entries (dim, 3 or 6, nc) of the contact rows for first and second body, zero for the world."""
    # The contact is the last axis, so that XLA works on long vectors.
    frame = jnp.concatenate([places.normal.T[None], jnp.transpose(places.tangents, (1, 2, 0))])

    def body_block(sign: float, owner: PyTree, points: jax.Array) -> jax.Array:
        """Compute the row of f in f . (p' + R (w x arm)) = f . p' + w . (arm x R^T f), arm in body axes."""
        arm = (points - of_bodies(positions, owner)).T
        if dim == 2:
            around = arm[None, :1] * frame[:, 1:] - arm[None, 1:] * frame[:, :1]
        else:
            rotation = jnp.transpose(of_bodies(orientations, owner), (1, 2, 0))

            def in_body_axes(x: jax.Array) -> jax.Array:
                return rotation[0] * x[:1] + rotation[1] * x[1:2] + rotation[2] * x[2:]

            around = jnp.cross(in_body_axes(arm)[None], jax.vmap(in_body_axes)(frame), axis=1)
        block = sign * jnp.concatenate([frame, around], axis=1)
        return block if all_move(owner) else jnp.where(on_bodies(owner)[None, None], block, 0.0)

    return body_block(1.0, bodies[0], places.point), body_block(-1.0, bodies[1], places.point_b)


@checked()
def kept_by_body(system: System) -> bool:
    """Tell whether `rows_by_body` suits a mechanism: a chain of many free bodies without joints."""
    structure = system.structure
    if system.poses is not free_poses or system.constraints is not None or not structure.num_contacts:
        return False
    ends = geometry.contact_bodies(structure.dim, structure.bodies, structure.shape_table, structure.pairs)
    return body_rows.suits(*ends, len(structure.bodies), 3 * structure.dim - 3)
