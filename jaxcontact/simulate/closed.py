"""Impulses of contacts that stay closed: unilateral normals, friction of maximal dissipation.

Owns the search for their modes in velocities that are affine in the impulses, u = u_0 + D lam, by a
primal-dual active set; D need not be symmetric.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax

from jaxcontact import implicit, linalg

MAX_CHANGES = 40


def contact_impulses(
    delassus: jax.Array, velocity: jax.Array, mu: jax.Array, closed: jax.Array, guess: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Impulses with 0 <= lam_n, u_n >= 0 complementary, |lam_t| <= mu lam_n opposing u_t all it can.

    Args:
        delassus: D (nc dim, nc dim), contact-major.
        velocity: u_0 (nc, dim), n first, without impulses.
        mu: (nc,) friction.
        closed: (nc,) bool; the others carry nothing.
        guess: (nc, dim) impulses to start the search from; it carries no derivative.

    Returns:
        lam (nc, dim), and whether it was found.

    Derivative: by D, u_0 and mu, in the modes found (open, stick, slide).
    """
    nc, dim = velocity.shape
    diagonal = jnp.abs(jnp.diagonal(lax.stop_gradient(delassus))).reshape(nc, dim)
    tangential = jnp.max(diagonal[:, 1:], axis=1, keepdims=True, initial=0.0)
    scale = jnp.concatenate([diagonal[:, :1], jnp.broadcast_to(tangential, (nc, dim - 1))], axis=1)
    weight = 1.0 / jnp.where(scale > 0, scale, 1.0)
    fixed = lax.stop_gradient((delassus, velocity, mu))

    def modes(lam: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
        """Which contacts push, which of these slide, and where to (nc, dim - 1)."""
        u = fixed[1] + (fixed[0] @ lam.reshape(-1)).reshape(nc, dim)
        z = lam - weight * u
        pushes = closed & (z[:, 0] > 0)
        square = jnp.sum(z[:, 1:] ** 2, axis=1)
        length = jnp.sqrt(jnp.where(square > 0, square, 1.0)) * (square > 0)
        slides = length > fixed[2] * jnp.maximum(z[:, 0], 0.0)
        return pushes, slides, z[:, 1:] / jnp.where(length > 0, length, 1.0)[:, None]

    def searching(carry: tuple) -> jax.Array:
        *_, settled, count = carry
        return ~settled & (count < MAX_CHANGES)

    def improve(carry: tuple) -> tuple:
        lam, _, old, _, count = carry
        equations, rhs = _equations(*fixed, *old)
        inverse, _ = linalg.generalized_inverse(equations)
        lam = (inverse @ rhs).reshape(nc, dim)
        new = modes(lam)
        same = jnp.all(old[0] == new[0]) & jnp.all((old[1] == new[1]) | ~new[0])
        turned = jnp.abs(new[2] - old[2]) * (new[0] & new[1])[:, None]
        settled = same & jnp.all(turned <= 16.0 * jnp.sqrt(jnp.finfo(lam.dtype).eps))
        return lam, inverse, new, settled, count + 1

    zeros = jnp.zeros_like(delassus)
    first = (guess, zeros, modes(guess), jnp.array(False), jnp.int32(0))
    lam, inverse, found, settled, _ = lax.while_loop(searching, improve, first)
    equations, rhs = _equations(delassus, velocity, mu, *lax.stop_gradient(found))
    exact = implicit.refine(equations, rhs, lax.stop_gradient(lam).reshape(-1), inverse)
    return exact.reshape(nc, dim), settled


def _equations(
    delassus: jax.Array, velocity: jax.Array, mu: jax.Array,
    pushes: jax.Array, slides: jax.Array, direction: jax.Array,
) -> tuple[jax.Array, jax.Array]:  # fmt: skip
    """Linear equations of given modes, rows of similar size: u = 0, lam_t = mu lam_n direction, lam = 0."""
    nc, dim = velocity.shape
    unit = jnp.eye(nc * dim, dtype=velocity.dtype).reshape(nc, dim, nc * dim)
    size = jnp.max(jnp.abs(lax.stop_gradient(delassus)).reshape(nc, -1), axis=1)
    per_size = (1.0 / jnp.where(size > 0, size, 1.0))[:, None, None]
    rests = delassus.reshape(nc, dim, -1) * per_size
    cone = unit[:, 1:] - (mu[:, None] * direction)[:, :, None] * unit[:, :1]
    tangent = jnp.where(slides[:, None, None], cone, rests[:, 1:])
    rows = jnp.where(pushes[:, None, None], jnp.concatenate([rests[:, :1], tangent], axis=1), unit)
    sticks = jnp.broadcast_to(~slides[:, None], (nc, dim - 1))
    held = jnp.concatenate([jnp.ones((nc, 1), bool), sticks], axis=1)
    rhs = jnp.where(pushes[:, None] & held, -velocity * per_size[:, :, 0], 0.0)
    return rows.reshape(nc * dim, nc * dim), rhs.reshape(-1)
