"""Contacts of convex hulls of many corners with half-spaces: at most nine corners, chosen by direction.

Among corners up to a slight tilt, the ones farthest along eight directions across the normal carry a hull
that rests on a face; a contact keeps its number while the hull turns a little. Entry: `touch_half_space`.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from jaxcontact.geometry.balls import Rows
from jaxcontact.geometry.frames import dot, unit
from jaxcontact.geometry.manifold import (
    CONTACTS,
    DIRECTIONS,
    LEVEL_DEPTH,
    RING,
    TILT,
    axes_across,
    mark_replaced,
)

MANY_CORNERS = 32  # a hull of more than so many makes `CONTACTS` contacts, another one for each corner


def touch_half_space(
    vertices: jax.Array, position: jax.Array, orientation: jax.Array, normal: jax.Array, offset: jax.Array
) -> Rows:
    """Compute points, gaps and normals of the contacts of a hull with a half-space.

    The first contact is the deepest corner, if none of the others is as deep. A contact that does not count
    has a gap larger than the hull. Vertices (n, 3) are in the axes of the body, other arguments in the world.

    Derivative: of the chosen corners.
    """
    down = jax.lax.stop_gradient(-normal @ orientation)
    fixed = jax.lax.stop_gradient(vertices)
    across = RING.astype(down.dtype) @ axes_across(down)
    tilted = down[None] + TILT * across
    chosen = jnp.argmax(fixed @ tilted.T, axis=0)
    depth = fixed @ down
    deepest, size = jnp.argmax(depth), jnp.sum(jnp.max(fixed, axis=0) - jnp.min(fixed, axis=0))
    sticks_out = depth[deepest] - jnp.max(depth[chosen]) > LEVEL_DEPTH * size
    earlier = np.tril(np.ones((DIRECTIONS, DIRECTIONS), bool), -1)
    repeats = jnp.any((chosen[:, None] == chosen[None]) & earlier, axis=1)
    arm = jnp.mean(fixed[chosen], axis=0) - fixed[deepest]
    away, _ = unit(arm - down * dot(arm, down), down)
    opposite = jnp.argmax(fixed @ (down + TILT * away))
    passed, moves, is_round = mark_replaced(fixed[chosen], fixed[deepest], fixed[opposite])
    swaps = sticks_out & is_round & ~jnp.any(repeats)
    chosen = jnp.where(moves & swaps, opposite, chosen)
    counts = jnp.concatenate([sticks_out[None], ~repeats & ~(passed & swaps)])
    corners = vertices[jnp.concatenate([deepest[None], chosen])]
    point = position[None] + corners @ orientation.T
    gap = dot(point, normal[None]) - offset
    masked = jax.lax.stop_gradient(size + jnp.abs(gap[0]))
    normals = jnp.broadcast_to(normal[None], (CONTACTS, 3))
    return point, point - gap[:, None] * normals, jnp.where(counts, gap, masked), normals
