"""Impulses of contacts that stay closed: unilateral normals, friction of maximal dissipation.

Owns the search for their modes in velocities that are affine in the impulses; entry `contact_impulses`.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from jaxcontact.algebra import implicit, small_dense
from jaxcontact.batching.bounded_loop import bounded_loop
from jaxcontact.tolerances import NO_MOTION, SQUARE, rounding

TRIES = 8  # iterations of Newton's method for a step, and at first for the law itself
MAX_TRIES = 800  # iterations in all; a search that needs more is not settled
OTHERWISE = 100  # iterations after which contacts follow at other speeds, to leave a cycle
LONGER, SHORTER = 2.0, 4.0  # factors of the length: longer after a step that was found, else shorter


class _ContactModes(NamedTuple):
    """Contacts (nc,) that push, those of them that slide, and their targets lam - u / C (nc, dim)."""

    pushes: jax.Array
    slides: jax.Array
    pulled: jax.Array


class _ImpulseSearch(NamedTuple):
    """The state of the search.

    Attributes:
        lam: (nc, dim) impulses.
        start: (nc, dim) impulses at the start of the step.
        rate: 1 / length of the step; 0 is the law itself.
        inverse, modes: of the last equations.
        settled: bool, whether the law holds.
        left: iterations left for this step.
        tries: iterations made in all.
    """

    lam: jax.Array
    start: jax.Array
    rate: jax.Array
    inverse: jax.Array
    modes: _ContactModes
    settled: jax.Array
    left: jax.Array
    tries: jax.Array


def contact_impulses(
    delassus: jax.Array, velocity: jax.Array, mu: jax.Array, closed: jax.Array, guess: jax.Array,
    is_known: bool = False,
) -> tuple[jax.Array, jax.Array]:  # fmt: skip
    """Find impulses with 0 <= lam_n, u_n >= 0 complementary, |lam_t| <= mu lam_n of maximal dissipation.

    Velocities are u = u_0 + D lam; D need not be symmetric. Newton's method on the law itself finds most
    solutions at once. It can cycle, and of contacts that share a load it may ask one to pull although the
    others could carry it. Then impulses follow C dlam/ds = -u, kept in their cones and C the diagonal of D,
    which comes to rest at solutions of the law: steps of implicit Euler, each found by Newton's method,
    longer after a step that was found and shorter after one that was not. Long ones are Newton's method on
    the law, so that unstable solutions are found as well. If this cycles, contacts follow at other speeds.

    Args:
        delassus: D (nc dim, nc dim), contact-major.
        velocity: u_0 (nc, dim), n first, without impulses.
        mu: (nc,) friction.
        closed: (nc,) bool; the others carry nothing.
        guess: (nc, dim) impulses to start the search from; it carries no derivative.
        is_known: whether the guess is the solution, which needs no search but the equations of its modes.

    Returns:
        lam (nc, dim), and whether it was found.

    Derivative: by D, u_0 and mu, first order, in the modes found (open, stick, slide).
    """
    nc, dim = velocity.shape
    eps = float(jnp.finfo(velocity.dtype).eps)
    scale = _mobilities(delassus, velocity.shape)
    law, friction = lax.stop_gradient((delassus, velocity)), lax.stop_gradient(mu)
    reference = jnp.max(jnp.abs(law[1] / scale), initial=0.0)

    def modes_of(lam: jax.Array, matrix: jax.Array, free: jax.Array) -> _ContactModes:
        z = lam - (free + small_dense.apply_matrix(matrix, lam.reshape(-1)).reshape(nc, dim)) / scale
        normal, length = _lengths(z, closed)
        return _ContactModes(normal > 0, length > friction * normal, z)

    def good(lam: jax.Array, matrix: jax.Array, free: jax.Array) -> jax.Array:
        """Decide whether impulses obey the law; noise that only changes the name of a mode is ignored."""
        error = jnp.abs(lam - _project(modes_of(lam, matrix, free).pulled, friction, closed))
        size = jnp.maximum(reference, jnp.max(jnp.abs(lam), initial=0.0))
        return jnp.max(error, initial=0.0) <= 256.0 * eps * size

    def improve(c: _ImpulseSearch) -> _ImpulseSearch:
        speeds = 10.0 ** jnp.sin(2.4 * (c.tries // OTHERWISE) * jnp.arange(1, nc + 1, dtype=velocity.dtype))
        yields = c.rate * speeds[:, None] * scale
        matrix, free = law[0] + jnp.diag(yields.reshape(-1)), law[1] - yields * c.start
        modes = modes_of(c.lam, matrix, free)
        rows, rhs = _build_equations(matrix, free, friction, scale, modes)
        inverse, _ = small_dense.generalized_inverse(rows)
        # If a load can be shared in many ways, its distribution does not change.
        flat = c.lam.reshape(-1)
        change = small_dense.apply_matrix(inverse, rhs - small_dense.apply_matrix(rows, flat))
        lam = c.lam + change.reshape(nc, dim)
        found, there, plain = good(lam, matrix, free), good(lam, *law), c.rate == 0
        ends, start = found | (c.left == 1), jnp.where(found, lam, c.start)
        rate = jnp.where(plain, 1.0, jnp.where(found, c.rate / LONGER, c.rate * SHORTER))
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

    lam, rate, inverse = jnp.zeros_like(guess), jnp.zeros_like(reference), jnp.zeros_like(delassus)
    counts = jnp.array(False), jnp.int32(TRIES), jnp.int32(0)
    first = _ImpulseSearch(guess, lam, rate, inverse, modes_of(guess, *law), *counts)
    end = improve(first) if is_known else bounded_loop(searching, improve, first, max_iters=MAX_TRIES)
    rows, rhs = _build_equations(delassus, velocity, mu, scale, lax.stop_gradient(end.modes))
    exact = implicit.refine(rows, rhs, lax.stop_gradient(end.lam).reshape(-1), end.inverse).reshape(nc, dim)
    # Nearly singular equations may lead away from the solution that was found.
    away = jnp.where(good(lax.stop_gradient(exact), *law), 0.0, lax.stop_gradient(end.lam - exact))
    return exact + away, end.settled


def _mobilities(delassus: jax.Array, shape: tuple[int, ...]) -> jax.Array:
    """Compute the velocity (nc, dim) of each row per impulse on itself, one for all tangents; 1 if none."""
    diagonal = jnp.abs(jnp.diagonal(lax.stop_gradient(delassus))).reshape(shape)
    tangential = jnp.max(diagonal[:, 1:], axis=1, keepdims=True, initial=0.0)
    sizes = jnp.concatenate([diagonal[:, :1], jnp.broadcast_to(tangential, diagonal[:, 1:].shape)], axis=1)
    round_off = NO_MOTION * rounding(delassus.dtype, SQUARE) * jnp.max(sizes, initial=0.0)
    return jnp.where(sizes > round_off, sizes, 1.0)


def _lengths(z: jax.Array, closed: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Compute normal parts (nc,), zero if they would pull or the contact is open, and tangential lengths."""
    square = jnp.sum(z[:, 1:] ** 2, axis=1)
    return jnp.where(closed, jnp.maximum(z[:, 0], 0.0), 0.0), jnp.sqrt(jnp.where(square > 0, square, 1.0)) * (
        square > 0
    )


def _project(z: jax.Array, mu: jax.Array, closed: jax.Array) -> jax.Array:
    """Clip the friction of impulses (nc, dim) at mu times the normal part."""
    normal, length = _lengths(z, closed)
    share = jnp.minimum(1.0, mu * normal / jnp.where(length > 0, length, 1.0))
    share = jnp.where(length > 0, share, 0.0)
    return jnp.concatenate([normal[:, None], share[:, None] * z[:, 1:]], axis=1)


def _build_equations(
    delassus: jax.Array, velocity: jax.Array, mu: jax.Array, scale: jax.Array, modes: _ContactModes
) -> tuple[jax.Array, jax.Array]:
    """Build the linear equations of given modes: u = 0, lam_t = mu lam_n direction, or lam = 0.

    Rows have similar size. The direction is that of lam_t - u_t / C, which turns with the impulses.
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
