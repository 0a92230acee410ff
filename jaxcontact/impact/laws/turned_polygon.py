"""The friction polygon turned at random, so that no direction of sliding is preferred.

Entry `turned`. A polygon turned about the normal is the original polygon in a frame of tangents that is
turned the other way.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from jaxcontact.impact.laws.contact_space import ContactSpace
from jaxcontact.terms import ContactTerms

_TABULATED = 2  # contacts at most whose modes are tabulated in every step: milliseconds per outcome


def check_turning(terms: ContactTerms, selection: str) -> None:
    """Raise ValueError if the friction polygon cannot be turned in every step."""
    nc, nt = jnp.shape(terms.J_t)[:2]
    if nt != 2:
        raise ValueError("turn_polygon: expected spatial contacts, got planar ones, which have no polygon")
    if selection != "lemke" and (selection != "all" or nc > _TABULATED):
        raise ValueError(
            f'turn_polygon: expected selection="lemke", or "all" for up to {_TABULATED} contacts, because '
            f"modes are tabulated anew in every step; got {selection!r} for {nc} contacts"
        )


def random_angles(pick: jax.Array, num_contacts: int) -> jax.Array:
    """Draw an angle for each contact (nc,), uniform in 0..2 pi, from `pick` alone."""
    bits = jax.lax.bitcast_convert_type(pick.astype(jnp.float32), jnp.uint32)
    key = jax.random.fold_in(jax.random.key(1, impl="threefry2x32"), bits)
    return jax.random.uniform(key, (num_contacts,), pick.dtype, 0.0, 2.0 * jnp.pi)


def turned(space: ContactSpace, angle: jax.Array) -> ContactSpace:
    """Turn the tangents of spatial contacts by `angle` (nc,) about their normals."""
    half = turn_rows(space.delassus, angle)
    return space.replace(
        jacobian=turn_rows(space.jacobian, angle),
        response=turn_rows(space.response.T, angle).T,
        delassus=turn_rows(half.T, angle),
    )


def turn_rows(array: jax.Array, angle: jax.Array) -> jax.Array:
    """Express rows (3 nc, ...) of (n, t1, t2) in the frame of tangents turned by `angle` (nc,)."""
    rows = array.reshape(angle.shape[0], 3, -1)
    cos, sin = jnp.cos(angle)[:, None], jnp.sin(angle)[:, None]
    first = cos * rows[:, 1] + sin * rows[:, 2]
    second = cos * rows[:, 2] - sin * rows[:, 1]
    return jnp.stack([rows[:, 0], first, second], axis=1).reshape(array.shape)
