"""Impulses of contacts that stay closed: unilateral normals, friction of maximal dissipation.

Owns the search for their modes in velocities that are affine in the impulses, u = u_0 + D lam; D need not be
symmetric. Newton's method on the law as it is finds most at once. It can go round in circles, and of contacts
that share a load it may ask one to pull where the others could carry it. Then impulses follow C dlam/ds = -u,
kept in their cones and C the diagonal of D, which comes to rest where the law holds: steps of implicit Euler,
each found by Newton's method, longer behind one that was found and shorter behind one that was not. Long ones
are Newton's method on the law, so that unstable solutions are found, too. Where even that goes round in
circles, contacts follow at other speeds.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from jaxcontact.algebra import implicit, small_dense

TRIES = 8  # of Newton's method for a step, and at first for the law as it is
MAX_TRIES = 800  # all together
OTHERWISE = 100  # tries behind which contacts follow at other speeds
LONGER, SHORTER = 2.0, 4.0  # a step behind one that was found, and behind one that was not


class _Modes(NamedTuple):
    """Which contacts (nc,) push, which of these slide, and what they are pulled to, lam - u / C (nc, dim)."""

    pushes: jax.Array
    slides: jax.Array
    pulled: jax.Array


class _ImpulseSearch(NamedTuple):
    """Where the search is.

    Attributes:
        lam: (nc, dim) impulses.
        start: (nc, dim) where the step starts.
        rate: 1 / length of the step; 0 is the law as it is.
        inverse, modes: of the last equations.
        settled: bool.
        left: tries of this step.
        tries: all of them.
    """

    lam: jax.Array
    start: jax.Array
    rate: jax.Array
    inverse: jax.Array
    modes: _Modes
    settled: jax.Array
    left: jax.Array
    tries: jax.Array


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

    Derivative: by D, u_0 and mu, first order, in the modes found (open, stick, slide).
    """
    nc, dim = velocity.shape
    eps = float(jnp.finfo(velocity.dtype).eps)
    diagonal = jnp.abs(jnp.diagonal(lax.stop_gradient(delassus))).reshape(nc, dim)
    tangential = jnp.max(diagonal[:, 1:], axis=1, keepdims=True, initial=0.0)
    scale = jnp.concatenate([diagonal[:, :1], jnp.broadcast_to(tangential, (nc, dim - 1))], axis=1)
    scale = jnp.where(scale > 0, scale, 1.0)
    law, friction = lax.stop_gradient((delassus, velocity)), lax.stop_gradient(mu)
    reference = jnp.max(jnp.abs(law[1] / scale), initial=0.0)

    def modes_of(lam: jax.Array, matrix: jax.Array, free: jax.Array) -> _Modes:
        z = lam - (free + (matrix @ lam.reshape(-1)).reshape(nc, dim)) / scale
        normal, length = _lengths(z, closed)
        return _Modes(normal > 0, length > friction * normal, z)

    def good(lam: jax.Array, matrix: jax.Array, free: jax.Array) -> jax.Array:
        """Whether impulses obey the law; noise that only changes the name of a mode is no matter."""
        error = jnp.abs(lam - _projected(modes_of(lam, matrix, free).pulled, friction, closed))
        size = jnp.maximum(reference, jnp.max(jnp.abs(lam), initial=0.0))
        return jnp.max(error, initial=0.0) <= 256.0 * eps * size

    def improve(c: _ImpulseSearch) -> _ImpulseSearch:
        speeds = 10.0 ** jnp.sin(2.4 * (c.tries // OTHERWISE) * jnp.arange(1, nc + 1, dtype=velocity.dtype))
        yields = c.rate * speeds[:, None] * scale
        matrix, free = law[0] + jnp.diag(yields.reshape(-1)), law[1] - yields * c.start
        modes = modes_of(c.lam, matrix, free)
        rows, rhs = _equations(matrix, free, friction, scale, modes)
        inverse, _ = small_dense.generalized_inverse(rows)
        # A load that can be shared in many ways stays shared as it is.
        lam = c.lam + (inverse @ (rhs - rows @ c.lam.reshape(-1))).reshape(nc, dim)
        found, there, plain = good(lam, matrix, free), good(lam, *law), c.rate == 0
        ends = found | (c.left == 1)
        rate = jnp.where(plain, 1.0, jnp.where(found, c.rate / LONGER, c.rate * SHORTER))
        start = jnp.where(found, lam, c.start)
        return _ImpulseSearch(
            lam=jnp.where(ends, start, lam),
            start=jnp.where(ends, start, c.start),
            rate=jnp.where(ends, jnp.where(there & ~plain, 0.0, rate), c.rate),
            inverse=inverse,
            modes=modes,
            settled=plain & there,
            left=jnp.where(ends, TRIES, c.left - 1),
            tries=c.tries + 1,
        )

    def searching(c: _ImpulseSearch) -> jax.Array:
        return ~c.settled & (c.tries < MAX_TRIES) & jnp.isfinite(reference)

    none = jnp.zeros_like(guess)
    first = _ImpulseSearch(
        guess, none, jnp.zeros_like(reference), jnp.zeros_like(delassus), modes_of(guess, *law),
        jnp.array(False), jnp.int32(TRIES), jnp.int32(0),
    )  # fmt: skip
    end = lax.while_loop(searching, improve, first)
    rows, rhs = _equations(delassus, velocity, mu, scale, lax.stop_gradient(end.modes))
    exact = implicit.refine(rows, rhs, lax.stop_gradient(end.lam).reshape(-1), end.inverse).reshape(nc, dim)
    # Equations that are all but singular may lead away from what was found.
    away = jnp.where(good(lax.stop_gradient(exact), *law), 0.0, lax.stop_gradient(end.lam - exact))
    return exact + away, end.settled


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
    delassus: jax.Array, velocity: jax.Array, mu: jax.Array, scale: jax.Array, modes: _Modes
) -> tuple[jax.Array, jax.Array]:
    """Linear equations of given modes, rows of similar size: u = 0, lam_t = mu lam_n direction, lam = 0.

    The direction is that of lam_t - w u_t, which turns with the impulses.
    """
    nc, dim = velocity.shape
    unit = jnp.eye(nc * dim, dtype=velocity.dtype).reshape(nc, dim, nc * dim)
    response = delassus.reshape(nc, dim, -1)
    size = jnp.max(jnp.abs(lax.stop_gradient(response)), axis=(1, 2))
    per_size = (1.0 / jnp.where(size > 0, size, 1.0))[:, None, None]
    rests, stays = response * per_size, -velocity * per_size[:, :, 0]
    tangent = modes.pulled[:, 1:]
    length = jnp.sqrt(jnp.sum(tangent**2, axis=1))
    length = jnp.where(modes.slides & (length > 0), length, 1.0)[:, None]
    direction = tangent / length
    cone = unit[:, 1:] - (mu[:, None] * direction)[:, :, None] * unit[:, :1]
    push = jnp.zeros_like(tangent)
    if dim == 3:
        across = jnp.eye(2, dtype=velocity.dtype)[None] - direction[:, :, None] * direction[:, None, :]
        turns = (lax.stop_gradient(mu)[:, None] * modes.pulled[:, :1] / length)[:, :, None] * across
        per_scale = 1.0 / scale[:, 1:]
        cone = cone - turns @ (unit[:, 1:] - response[:, 1:] * per_scale[:, :, None])
        push = -jnp.einsum("cij,cj->ci", turns, velocity[:, 1:] * per_scale + tangent)
    slides, pushes = modes.slides[:, None], modes.pushes[:, None]
    rows = jnp.concatenate([rests[:, :1], jnp.where(slides[:, :, None], cone, rests[:, 1:])], axis=1)
    rhs = jnp.concatenate([stays[:, :1], jnp.where(slides, push, stays[:, 1:])], axis=1)
    rows = jnp.where(pushes[:, :, None], rows, unit)
    return rows.reshape(nc * dim, nc * dim), jnp.where(pushes, rhs, 0.0).reshape(-1)
