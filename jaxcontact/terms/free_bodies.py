"""Contact rows of bodies that move freely: only the two bodies of a contact have entries."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxcontact import geometry
from jaxcontact.algebra import body_rows
from jaxcontact.mechanics.system import System, free_poses
from jaxcontact.terms.owners import all_move, of_bodies, on_bodies


def contact_rows(
    system: System, bodies: tuple[Any, Any], found: Any, positions: jax.Array, orientations: jax.Array
) -> jax.Array:
    """Velocity Jacobians (nc, dim, nv) of contacts in the order n, t1[, t2]."""
    nb, dim = len(system.structure.bodies), system.structure.dim
    nc, width = found.phi.shape[0], 3 * dim - 3
    rows = jnp.zeros((dim, nb, width, nc), found.phi.dtype)
    for owner, block in zip(bodies, blocks(dim, bodies, found, positions, orientations), strict=True):
        if nb == 1:
            rows = rows + block[:, None]
            continue
        known = not isinstance(owner, jax.Array)
        moving = np.flatnonzero(on_bodies(owner)) if known else np.arange(nc)
        if moving.size:
            index = np.array(owner)[moving] if known else jnp.maximum(owner, 0)
            place = (slice(None), index, slice(None), moving)  # (moving, dim, width)
            rows = rows.at[place].add(jnp.moveaxis(block[..., moving], -1, 0))
    return jnp.transpose(rows.reshape(dim, nb * width, nc), (2, 0, 1))


def blocks(
    dim: int, bodies: tuple[Any, Any], found: Any, positions: jax.Array, orientations: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Entries (dim, 3 or 6, nc) of those rows for the first and the second body, zero for the world."""
    # The contacts last: long vectors.
    frame = jnp.concatenate([found.normal.T[None], jnp.transpose(found.tangents, (1, 2, 0))])

    def own(sign: float, owner: Any, points: jax.Array) -> jax.Array:
        """F . (p' + R (w x arm)) = f . p' + w . (arm x R^T f), arm in body axes."""
        arm = (points - of_bodies(positions, owner)).T
        if dim == 2:
            around = arm[None, :1] * frame[:, 1:] - arm[None, 1:] * frame[:, :1]
        else:
            turn = jnp.transpose(of_bodies(orientations, owner), (1, 2, 0))

            def back(x: jax.Array) -> jax.Array:
                return turn[0] * x[:1] + turn[1] * x[1:2] + turn[2] * x[2:]

            around = jnp.cross(back(arm)[None], jax.vmap(back)(frame), axis=1)
        block = sign * jnp.concatenate([frame, around], axis=1)
        return block if all_move(owner) else jnp.where(on_bodies(owner)[None, None], block, 0.0)

    return own(1.0, bodies[0], found.point), own(-1.0, bodies[1], found.point_b)


def kept_by_body(system: System) -> bool:
    """Whether `rows_by_body` suits a mechanism: many free bodies, without joints, in a chain."""
    structure = system.structure
    if system.poses is not free_poses or system.constraints is not None or not structure.num_contacts:
        return False
    ends = geometry.contact_bodies(structure.dim, structure.bodies, structure.shape_table, structure.pairs)
    return body_rows.suits(*ends, len(structure.bodies), 3 * structure.dim - 3)
