"""Impulses of contacts that stay closed: unilateral normals, friction of maximal dissipation.

Owns the search for their modes in velocities that are affine in the impulses, u = u_0 + D lam, by a
primal-dual active set; D need not be symmetric. Of 2000 random problems of three contacts, half of them
redundant, 3 in the plane and 16 in space are not found: sweeps get slow there, or go round in circles, too.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax

from jaxcontact.algebra import implicit, small_dense

MAX_CHANGES = 48
PATIENCE, SWEEPS = 8, 30  # changes of modes before sweeps, and number of these, at first


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

    def pulled(lam: jax.Array, delassus: jax.Array, velocity: jax.Array) -> jax.Array:
        return lam - weight * (velocity + (delassus @ lam.reshape(-1)).reshape(nc, dim))

    def modes(lam: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
        """Which contacts push, which of these slide, and where to (nc, dim - 1)."""
        z = pulled(lam, *fixed[:2])
        normal, length = _lengths(z, closed)
        return normal > 0, length > fixed[2] * normal, z[:, 1:] / jnp.where(length > 0, length, 1.0)[:, None]

    def error(lam: jax.Array) -> jax.Array:
        """How far impulses are from the law; noise that only changes the name of a mode is none."""
        return jnp.max(jnp.abs(lam - _projected(pulled(lam, *fixed[:2]), fixed[2], closed)), initial=0.0)

    def sweep(_: int, lam: jax.Array) -> jax.Array:
        """Each contact in turn takes what the law gives it beside the others as they are."""
        for i in range(nc):
            own = _projected(pulled(lam, *fixed[:2]), fixed[2], closed)[i]
            lam = lam.at[i].set(own)
        return lam

    tolerance = 256.0 * float(jnp.finfo(velocity.dtype).eps)
    reference = jnp.max(jnp.abs(weight * fixed[1]), initial=0.0)

    def searching(carry: tuple) -> jax.Array:
        *_, settled, count = carry
        return ~settled & (count < MAX_CHANGES)

    def good(lam: jax.Array) -> jax.Array:
        scale = jnp.maximum(reference, jnp.max(jnp.abs(lam), initial=0.0))
        return error(lam) <= tolerance * scale

    def improve(carry: tuple) -> tuple:
        lam, calm, *_, count = carry
        # Sets that go round in circles, as redundant contacts can, are left by sweeps, which go on from where
        # they were: the impulses of a wrong set are no better start. Twice as many each time: where contacts
        # nearly oppose each other it takes some hundreds until the modes are right.
        tired = count % PATIENCE == PATIENCE - 1
        number = jnp.where(tired, SWEEPS << (count // PATIENCE), 0)
        calm = lax.fori_loop(0, number, sweep, calm)
        lam = jnp.where(tired, calm, lam)
        active = modes(lam)
        equations, rhs = _equations(*fixed, *active)
        inverse, _ = small_dense.generalized_inverse(equations)
        solved = (inverse @ rhs).reshape(nc, dim)
        # Where the modes are ambiguous and their equations singular, sweeps may be there already.
        there = tired & good(lam) & ~good(solved)
        lam = jnp.where(there, lam, solved)
        return lam, calm, inverse, active, good(lam), count + 1

    zeros = jnp.zeros_like(delassus)
    first = (guess, guess, zeros, modes(guess), jnp.array(False), jnp.int32(0))
    lam, _, inverse, active, settled, _ = lax.while_loop(searching, improve, first)
    equations, rhs = _equations(delassus, velocity, mu, *lax.stop_gradient(active))
    exact = implicit.refine(equations, rhs, lax.stop_gradient(lam).reshape(-1), inverse)
    return exact.reshape(nc, dim), settled


def _lengths(z: jax.Array, closed: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Normal parts (nc,), zero where they would pull or the contact is open, and lengths of the tangents."""
    square = jnp.sum(z[:, 1:] ** 2, axis=1)
    return jnp.where(closed, jnp.maximum(z[:, 0], 0.0), 0.0), jnp.sqrt(jnp.where(square > 0, square, 1.0)) * (
        square > 0
    )


def _projected(z: jax.Array, mu: jax.Array, closed: jax.Array) -> jax.Array:
    """Impulses (nc, dim) with the friction clipped at mu times the normal part."""
    normal, length = _lengths(z, closed)
    share = jnp.minimum(1.0, mu * normal / jnp.where(length > 0, length, 1.0))
    share = jnp.where(length > 0, share, 0.0)
    return jnp.concatenate([normal[:, None], share[:, None] * z[:, 1:]], axis=1)


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
