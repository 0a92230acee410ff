"""Restitution per contact in the set-valued impact: compression stores energy, pushes give it back.

Owns Stronge's energetic coefficient (1990) for the steps of `routh.py`, named as future work by Halm & Posa;
entry `give_back`. The comment below has the algorithm and its properties; docs/methods/set-valued.md and
docs/methods/restitution.md have the laws.
"""

# Contact c keeps a store S_c of energy that it can give back, 0 before the impact. A step does both:
#
# 1. *Compression*, if a contact approaches: a step of Algorithm 1, unchanged. u_n and u_t are linear along
#    it, so its works are trapezoids. The work w_c = -lam_n (u_n + u_n') / 2 of the normal impulse, if
#    positive, compresses contact c, and S_c grows by e_c^2 w_c.
# 2. *Restitution*: a contact with energy in store that did not approach at the beginning of the step pushes,
#    with at most the impulse that was drawn for it, and at most until its store is empty. Contacts push one
#    after the other, the largest draw first. In the plane the path of a push has two pieces in closed form,
#    and Coulomb's law holds along both: the contact slides with full friction against u_t; once u_t = 0 it
#    sticks, or slides back. In space the path has more pieces, see `spatial_restitution`.
#
# A contact that is driven in again compresses again, and its store grows. The impact ends when no contact
# approaches and every store is empty (holds less than the slowest approach that counts would store). Draws of
# 0 keep a contact from moving on, so compression and restitution of the contacts occur in any relative order.
#
# Proven, in exact arithmetic, with E the kinetic energy:
#
# - E + sum S never rises, and S >= 0, so energy never exceeds its value before. In a compression E falls by
#   lost >= 0 (Halm & Posa), and the stores take e^2 w, reduced in proportion if that is more than lost. (It
#   is not, unless an impulse does positive work along the step: at a contact that changes from sliding to
#   sliding back, or from separation to rest.) In a push normal work is taken from the store, and friction
#   opposes u_t.
# - e = 0: stores stay empty; the samples are those of Algorithm 1.
# - mu = 0 and e = 1: E + sum S is constant, so an impact that ends has the energy it began with.
# - One contact, mu = 0 or D_nt = 0: u_n+ = -e u_n-, for all draws.
# - mu = 0 and e = 1: every propagative outcome (`propagate_all`) is that of some draws, each 0 or large: a
#   single elastic impact is one compression and one push.
# - Draws of smaller steps are also draws of larger ones: if steps suffice, the set shrinks with `step`.
#
# If sliding friction drives a loaded contact in (D_nn < mu |D_nt|) its push does negative work, which is
# compression, until it sticks. A contact that sticks and cannot move (a pendulum against a wall) keeps no
# energy.
#
# Observed, not proven: impacts end; their number of steps; convergence is of first order in the step.

from __future__ import annotations

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxcontact.impact import inputs
from jaxcontact.impact.laws.contact_space import ContactSpace
from jaxcontact.solvers import contact_modes
from jaxcontact.terms import ContactTerms
from jaxcontact.tolerances import MODE_VIOLATION, ZERO_FORCE, rounding


def check_coefficients(terms: ContactTerms, restitution: jax.typing.ArrayLike | None) -> jax.Array | None:
    """Check coefficients of restitution; return them (nc,), None if all are known to be 0."""
    if restitution is None:
        return None
    inputs.check_restitution(terms, restitution)
    if inputs.is_concrete(restitution) and not np.any(np.asarray(restitution, float)):
        return None
    return jnp.broadcast_to(jnp.asarray(restitution, terms.M.dtype), terms.J_t.shape[:1])


def find_loaded(stored: jax.Array, slowest: jax.Array) -> jax.Array:
    """Return a mask (m, *batch) of contacts with more energy than an approach at `slowest` (m,) stores."""
    return stored > _column(0.5 * slowest**2, stored)


class Compression(NamedTuple):
    """A compression of m contacts with r rows, scaled; batch axes come last.

    Attributes:
        space: the contact space.
        elastic: (m,) e^2.
        cap: (m, *batch) largest impulse of a push.
        u, u_next: (r, *batch) contact velocities before and after it, equal if there was none.
        change: (r, *batch) its impulse.
        stored: (m, *batch) energy in store before.
        speed: () |v|_M before the impact.
        slowest: (m,) speed below which an approach does not count, see `contact_space.slowest_approach`.
    """

    space: ContactSpace
    elastic: jax.Array
    cap: jax.Array
    u: jax.Array
    u_next: jax.Array
    change: jax.Array
    stored: jax.Array
    speed: jax.Array
    slowest: jax.Array


def give_back(compression: Compression) -> tuple[jax.Array, jax.Array]:
    """Store the energy of a compression in the plane, then let loaded contacts push.

    Returns:
        impulse (2m, *batch) of the pushes, stored (m, *batch).

    Derivative: of the pieces taken, which are piecewise constant.
    """
    space, elastic, cap, u, u_next, change, stored, speed, slowest = compression
    m = stored.shape[0]
    noise = rounding(u.dtype, ZERO_FORCE) * speed
    slowest_column = _column(slowest, stored)
    ready = find_loaded(stored, slowest) & (u[0::2] >= -slowest_column)
    stored = stored + energy_gain(elastic, u, u_next, change, noise, speed)
    order = _order_pushes(lax.stop_gradient(cap))
    delassus = space.delassus
    entries = ((0, 0), (0, 1), (1, 1))
    blocks = [jnp.stack([delassus[2 * c + i, 2 * c + j] for c in range(m)]) for i, j in entries]
    contact_numbers = [*blocks, space.mu, elastic]
    impulse = jnp.zeros_like(u)
    for place in range(m):
        chosen = order == place  # one contact of each lane
        velocity = u_next + contact_modes.apply(delassus.T, impulse)
        go = chosen & ready & (velocity[0::2] >= -slowest_column)
        columns = [_column(a, stored) for a in contact_numbers]
        numbers = [velocity[0::2], velocity[1::2], cap, stored, *columns]
        piece = _Push(*(_sum_in_order(jnp.where(chosen, a, 0.0)) for a in numbers))
        normal, tangent, rest = _push_once(piece, noise)
        push = jnp.stack([jnp.where(go, a, 0.0) for a in (normal[None], tangent[None])], axis=1)
        impulse = impulse + push.reshape(u.shape)
        stored = jnp.where(go, rest[None], stored)
    return impulse, stored


class _Push(NamedTuple):
    """One contact of each lane: velocity, largest impulse, store, Delassus matrix, friction, e^2."""

    u_n: jax.Array
    u_t: jax.Array
    cap: jax.Array
    stored: jax.Array
    nn: jax.Array
    nt: jax.Array
    tt: jax.Array
    mu: jax.Array
    elastic: jax.Array


def _push_once(p: _Push, noise: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Compute the impulses (n, t) of one push and the energy left in store; each (*batch)."""
    tt = jnp.where(p.tt > 0, p.tt, 1.0)
    slides = jnp.abs(p.u_t) > noise
    sign = jnp.where(slides, jnp.sign(p.u_t), 0.0)
    # While the contact slides: rates of u_n and u_t, and the impulse up to u_t = 0.
    rate_n, rate_t = p.nn - sign * p.mu * p.nt, p.nt - sign * p.mu * p.tt
    slows = sign * rate_t < 0
    until = jnp.where(slows, -p.u_t / jnp.where(slows, rate_t, 1.0), jnp.inf)
    far, spends = reach_of_push(p.u_n, rate_n, p.stored, noise)
    first = jnp.where(slides, least_of(p.cap, until, far), 0.0)
    stops = ~slides | (first >= until)
    empty = slides & spends & (first >= far)
    work = first * (p.u_n + 0.5 * rate_n * first)
    left = p.stored - jnp.where(work > 0, work, p.elastic * work)
    # Then it sticks, if friction suffices, or slides in the direction that the normal impulse gives it.
    u_n = p.u_n + rate_n * first
    sticks = jnp.abs(p.nt) <= p.mu * p.tt
    ratio = jnp.where(sticks, p.nt / tt, jnp.sign(p.nt) * p.mu)
    rate_n = p.nn - ratio * p.nt
    wedged = rate_n <= rounding(left.dtype, MODE_VIOLATION) * p.nn
    goes_on = stops & ~empty & ~wedged & (u_n >= -noise)
    far, spends = reach_of_push(u_n, rate_n, left, noise)
    second = jnp.where(goes_on, least_of(p.cap - first, far), 0.0)
    empty |= (stops & wedged) | (goes_on & spends & (second >= far))
    left = left - second * (u_n + 0.5 * rate_n * second)
    # A contact that sticks from the beginning has u_t within `noise` of 0: from now on it is 0.
    hold = jnp.where(~slides & sticks & (second > 0), p.u_t / tt, 0.0)
    return first + second, -sign * p.mu * first - ratio * second - hold, jnp.where(empty, 0.0, left)


def reach_of_push(
    u_n: jax.Array, rate: jax.Array, stored: jax.Array, noise: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Compute the largest impulse p of a push, and whether it empties the store; if not, u_n falls to 0 at p.

    The store is empty at u_n p + rate p^2 / 2 = S. The impulse is inf if neither happens.
    """
    square = u_n * u_n + 2.0 * rate * stored
    bottom = u_n + jnp.sqrt(jnp.where(square > 0, square, 1.0))
    spends = (square > 0) & (bottom > 0) & ((rate > 0) | (u_n > noise))
    spent = jnp.where(spends, 2.0 * stored / jnp.where(spends, bottom, 1.0), jnp.inf)
    falls = ~spends & (rate < 0) & (u_n > noise)
    return jnp.where(falls, -u_n / jnp.where(falls, rate, 1.0), spent), spends


def least_of(*lengths: jax.Array) -> jax.Array:
    """Return the smallest length with its derivative; of equal ones, the first."""
    return functools.reduce(lambda a, b: jnp.where(b < a, b, a), lengths)


def energy_gain(
    elastic: jax.Array, u: jax.Array, u_next: jax.Array, change: jax.Array, noise: jax.Array, speed: jax.Array
) -> jax.Array:
    """Compute the energy (m, *batch) that a compression adds to the stores."""
    rows = u.shape[0] // elastic.shape[0]
    mean = 0.5 * (u + u_next)
    power = [change[i::rows] * mean[i::rows] for i in range(rows)]
    lost = -_sum_in_order(functools.reduce(jnp.add, power))
    at_rest = (jnp.abs(u[0::rows]) <= noise) & (jnp.abs(u_next[0::rows]) <= noise)
    work = jnp.where(at_rest, 0.0, -power[0])
    added = _column(elastic, work) * jnp.where(work > 0, work, 0.0)
    total = _sum_in_order(added)
    more = total > lost + 64.0 * float(jnp.finfo(u.dtype).eps) * speed**2
    share = jnp.where(more, jnp.where(lost > 0, lost, 0.0) / jnp.where(more, total, 1.0), 1.0)
    return added * share[None]


def _order_pushes(cap: jax.Array) -> jax.Array:
    """Compute the place (m, *batch) int32 of each contact in the order of pushes, the largest cap first."""
    m = cap.shape[0]
    before = [[(cap[d] > cap[c]) | ((cap[d] == cap[c]) & (d < c)) for d in range(m)] for c in range(m)]
    return jnp.stack([sum(b.astype(jnp.int32) for b in row) for row in before])


def _sum_in_order(x: jax.Array) -> jax.Array:
    """Sum x over its first axis, always in the same order."""
    return functools.reduce(jnp.add, [x[c] for c in range(x.shape[0])])


def _column(a: jax.Array, like: jax.Array) -> jax.Array:
    """Reshape `a` from (m,) to (m, 1, ..., 1), to broadcast against (m, *batch)."""
    return a.reshape(-1, *(1,) * (like.ndim - 1))
