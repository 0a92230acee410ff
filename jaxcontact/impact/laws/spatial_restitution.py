"""Restitution per contact in space: a contact with two tangents gives back its stored energy.

Entry `give_back_in_space`: the push of `energetic_restitution` for the friction cone with k sides of
Algorithm 1. The comment below has the path of a push and its proven and observed properties.
"""

# The normal impulse grows from 0. The friction f per unit of it is a point of mu P, with the polygon P.
# Coulomb's law: the contact takes the f that opposes u_t most. The candidates are a vertex while one
# direction is best, an edge while two tie, all of mu P at u_t = 0; among them the contact takes the f that
# minimises f^T D_tt f / 2 + D_nt f, because then no other f is better a moment later. So u_t follows straight
# pieces; a piece ends when another direction comes to tie.
#
# Proven, in exact arithmetic, in addition to the properties in `energetic_restitution`, which hold here as
# well:
#
# - The path is unique. With h(x) = max of d x over d in P it is u_t' in D_nt - mu D_tt dh(u_t), a maximal
#   monotone inclusion in the metric of D_tt^-1, whose solution moves by its element of minimum norm (Brezis).
# - It has at most 2 k + 1 pieces: |u_t'| in that metric falls from piece to piece, and is one per face.
# - f u_t <= 0 along the path, so friction takes energy. Where u_t leaves 0, or a piece has no end, u_n does
#   not fall: f (D_nt + D_tt f) <= 0 there, and D is positive.
#
# Observed: no more than k / 2 + 4 pieces, in 60 000 random pushes each with k = 4, 8 and 16. A push computes
# that many pieces; the next step takes the rest of a longer push.

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxcontact.impact.laws.energetic_restitution import (
    Compression,
    energy_gain,
    find_loaded,
    least_of,
    reach_of_push,
)
from jaxcontact.tolerances import MODE_VIOLATION, ZERO_FORCE, rounding


class _SpatialPush(NamedTuple):
    """A push in progress: velocity, remainders of the cap and of the store, impulse (n, t1, t2)."""

    u_n: jax.Array
    u_t: jax.Array
    cap_left: jax.Array
    stored: jax.Array
    impulse: jax.Array
    goes: jax.Array


class _Contact(NamedTuple):
    """Parts of the Delassus matrix of one contact, its friction and e^2."""

    nn: jax.Array
    nt: jax.Array
    tt: jax.Array
    mu: jax.Array
    elastic: jax.Array


def give_back_in_space(compression: Compression, directions: np.ndarray) -> tuple[jax.Array, jax.Array]:
    """Store the energy of a compression, then let contacts push, as `energetic_restitution.give_back`.

    Args:
        compression: in space, without batch axes.
        directions: (k, 2) corners of the friction polygon.

    Returns:
        impulse (3m,) of the pushes, stored (m,).

    Derivative: of the pieces taken, which are piecewise constant.
    """
    space, elastic, cap, u, u_next, change, stored, speed, slowest = compression
    m = stored.shape[0]
    noise = rounding(u.dtype, ZERO_FORCE) * speed
    ready = find_loaded(stored, slowest) & (u[0::3] >= -slowest)
    stored = stored + energy_gain(elastic, u, u_next, change, noise, speed)
    blocks = space.delassus.reshape(m, 3, m, 3)
    fan = jnp.asarray(directions, u.dtype)
    pieces = fan.shape[0] // 2 + 4

    def one(carry: tuple[jax.Array, jax.Array], c: jax.Array) -> tuple[tuple[jax.Array, jax.Array], None]:
        impulse, stored = carry
        velocity = u_next.reshape(m, 3)[c] + blocks[c].reshape(3, -1) @ impulse.reshape(-1)
        block = blocks[c, :, c]
        contact = _Contact(block[0, 0], block[0, 1:], block[1:, 1:], space.mu[c], elastic[c])
        goes = ready[c] & (velocity[0] >= -slowest[c])
        push = _SpatialPush(velocity[0], velocity[1:], cap[c], stored[c], jnp.zeros(3, u.dtype), goes)
        end, _ = lax.scan(lambda p, _: (_continue_push(p, contact, fan, noise), None), push, length=pieces)
        return (impulse.at[c].set(end.impulse), stored.at[c].set(end.stored)), None

    order = jnp.argsort(-lax.stop_gradient(cap), stable=True)  # the largest cap first
    (impulse, stored), _ = lax.scan(one, (jnp.zeros((m, 3), u.dtype), stored), order)
    return impulse.reshape(-1), stored


def give_back_in_lanes(compression: Compression, directions: np.ndarray) -> tuple[jax.Array, jax.Array]:
    """Run `give_back_in_space` on lanes, the last axis of cap, u, u_next, change, stored and results."""

    def give_back_in_lane(
        cap: jax.Array, u: jax.Array, u_next: jax.Array, change: jax.Array, stored: jax.Array
    ) -> tuple[jax.Array, jax.Array]:
        lane = compression._replace(cap=cap, u=u, u_next=u_next, change=change, stored=stored)
        return give_back_in_space(lane, directions)

    _, _, *lanes, _, _ = compression
    return jax.vmap(give_back_in_lane, in_axes=-1, out_axes=-1)(*lanes)


def _continue_push(p: _SpatialPush, contact: _Contact, fan: jax.Array, noise: jax.Array) -> _SpatialPush:
    """Continue a push by its next straight piece, unless it has ended."""
    friction, first, tied, still, sticks = _friction(p.u_t, contact, fan, noise)
    rate_n, rate_t = contact.nn + contact.nt @ friction, contact.nt + contact.tt @ friction
    # Up to the point at which another direction opposes u_t as much as the current ones do.
    gap = (fan - fan[first][None]) @ p.u_t
    closing = (fan[first][None] - fan) @ rate_t
    nears = ~tied & ~still & (closing > 0)
    waits = jnp.where(nears, gap / jnp.where(nears, closing, 1.0), jnp.inf)
    until = waits[jnp.argmin(waits)]  # the derivative of jnp.min may find no minimum, and be NaN
    far, spends = reach_of_push(p.u_n, rate_n, p.stored, noise)
    wedged = sticks & (rate_n <= rounding(p.u_t.dtype, MODE_VIOLATION) * contact.nn)
    moves = p.goes & ~wedged
    length = jnp.where(moves, least_of(p.cap_left, until, far), 0.0)
    work = length * (p.u_n + 0.5 * rate_n * length)
    stored = p.stored - jnp.where(work > 0, work, contact.elastic * work)
    empty = (p.goes & wedged) | (moves & spends & (length >= far))
    # A sticking contact has u_t within `noise` of 0: from now on it is 0.
    hold = jnp.where(moves & sticks & (length > 0), _solve_tangents(contact.tt, p.u_t), 0.0)
    tangential = length * friction - hold
    return _SpatialPush(
        u_n=p.u_n + rate_n * length - contact.nt @ hold,
        u_t=p.u_t + length * rate_t - contact.tt @ hold,
        cap_left=p.cap_left - length,
        stored=jnp.where(empty, 0.0, stored),
        impulse=p.impulse + jnp.concatenate([length[None], tangential]),
        goes=moves & (length >= until) & (p.cap_left > length),
    )


def _friction(
    u_t: jax.Array, contact: _Contact, fan: jax.Array, noise: jax.Array
) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array, jax.Array]:
    """Compute the friction per unit of normal impulse at u_t.

    Returns:
        friction (2,); one of the directions that oppose u_t most; (k,) bool mask of all of them; whether u_t
        is 0; whether it stays 0.
    """
    k = fan.shape[0]
    power = -lax.stop_gradient(fan @ u_t)
    first = jnp.argmax(power)
    number = jnp.arange(k)
    second = jnp.argmax(jnp.where(number == first, -jnp.inf, power))
    still = jnp.max(jnp.abs(u_t)) <= noise
    two = ~still & (power[first] - power[second] <= noise)
    # The best point of every edge of mu P.
    start, edge = contact.mu * fan, contact.mu * (jnp.roll(fan, -1, axis=0) - fan)
    square = jnp.sum((edge @ contact.tt) * edge, axis=1)
    slope = jnp.sum(edge * (contact.nt[None] + start @ contact.tt), axis=1)
    along = jnp.where(square > 0, -slope / jnp.where(square > 0, square, 1.0), 0.0)
    along = jnp.where(along > 0, jnp.where(along < 1, along, 1.0), 0.0)
    best = start + along[:, None] * edge
    cost = best @ contact.nt + 0.5 * jnp.sum((best @ contact.tt) * best, axis=1)
    between = jnp.where((first + 1) % k == second, first, second)
    at = jnp.where(still, jnp.argmin(cost), between)
    # Or, at u_t = 0, the point within mu P that keeps it there.
    free = -_solve_tangents(contact.tt, contact.nt)
    inward = 0.5 * (fan + jnp.roll(fan, -1, axis=0))
    sticks = still & jnp.all(inward @ free <= contact.mu * jnp.sum(inward * inward, axis=1))
    friction = jnp.where(still | two, best[at], contact.mu * fan[first])
    friction = jnp.where(sticks, free, friction)
    # Of two tied directions the one that opposes u_t more from now on.
    ahead = (fan[first] - fan[second]) @ (contact.nt + contact.tt @ friction) > 0
    tied = (number == first) | (two & (number == second))
    return friction, jnp.where(two & ahead, second, first), tied, still, sticks


def _solve_tangents(matrix: jax.Array, rhs: jax.Array) -> jax.Array:
    """Solve a symmetric positive 2 x 2 system; components (2,) of tangents that cannot move are zero."""
    ridge = 4.0 * float(jnp.finfo(rhs.dtype).eps) * jnp.trace(matrix)
    a, b, c = matrix[0, 0] + ridge, matrix[0, 1], matrix[1, 1] + ridge
    det = a * c - b * b
    solution = jnp.stack([c * rhs[0] - b * rhs[1], a * rhs[1] - b * rhs[0]])
    return solution / jnp.where(det > 0, det, 1.0)
