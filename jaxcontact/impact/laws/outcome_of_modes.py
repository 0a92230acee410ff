"""The last step of an impact law: the outcome of the contact modes in which a solver leaves the contacts.

Owns the linear equations of known modes, with which v_plus and its derivatives are exact. Entries: `outcome`,
`mode_impulse`. Page: docs/methods/impacts-in-space.md.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxcontact.algebra import implicit, small_dense
from jaxcontact.impact.laws.contact_space import ContactSpace, mass_norm, residual, residual_limit
from jaxcontact.tolerances import ZERO_FORCE

AT_CAP = 1e-12  # distance of a load to its cap, relative to it, below which it is at its cap; rounding
UNLOADED = 1.0 / 64.0  # relative size of columns of unloaded contacts, which are then eliminated last


def outcome(
    space: ContactSpace,
    v: jax.Array,
    guess: jax.Array,
    directions: np.ndarray,
    impulse_max: jax.Array | None = None,
    impulse_min: jax.Array | None = None,
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Compute the exact outcome of the contact modes in which a solver's impulse leaves the contacts.

    Modes follow from the outgoing velocity, not from index sets: a contact that does not slide sticks
    (u_t = 0) even if its friction impulse is zero; a contact that neither approaches nor separates rests
    (u_n = 0) even if its normal impulse is zero. The outcome solves the linear equations of the modes, and
    derivatives are those of this solution. Redundant contacts make the equations rank-deficient: the
    solver's distribution of the load then stays, see `implicit.refine`. For almost redundant contacts the
    solver's answer may stay unchanged, with the derivative of the modes.

    Args:
        v: (nv,) velocity before.
        guess: (r,) scaled impulse from a solver; it carries no derivative.
        directions: (k, nt) extreme friction directions.
        impulse_max: (nc,) scaled cap on the normal impulse, or None.
        impulse_min: (nc,) minimum scaled normal impulse of a contact, or None for 0; not with a cap.

    Returns:
        v_plus (nv,), scaled impulse (r,), and the residual of `ImpactInfo`.
    """
    nt = space.num_tangents
    nc = space.mu.shape[0]
    dtype = v.dtype
    fan = jnp.asarray(directions, dtype)
    u = space.rates(v)
    guess = lax.stop_gradient(guess)
    eps = float(jnp.finfo(dtype).eps)
    # Relative to |v|_M, and above the round-off of D lam: jammed contacts press with any impulse.
    noise = 64.0 * eps * jnp.max(jnp.abs(guess))
    tolerance = jnp.maximum(eps**ZERO_FORCE * mass_norm(space.mass, v), noise)

    out = (lax.stop_gradient(u) + lax.stop_gradient(space.delassus) @ guess).reshape(nc, 1 + nt)
    separates = (out[:, 0] > tolerance) | ~space.active
    capped = (out[:, 0] < -tolerance) & space.active
    if impulse_max is not None:
        # Of redundant contacts at rest a solver leaves some at their caps, which then share no more load.
        load, cap_now = guess.reshape(nc, 1 + nt)[:, 0], lax.stop_gradient(impulse_max)
        capped |= space.active & ~separates & (jnp.abs(load - cap_now) <= AT_CAP * cap_now)
    if impulse_min is not None:  # a separating contact keeps its minimum impulse
        capped = (out[:, 0] > tolerance) & space.active & (impulse_min > 0)
        separates, impulse_max = separates & ~capped, impulse_min
    sliding = out[:, 1:]
    sticks = jnp.max(jnp.abs(sliding), axis=1) <= tolerance
    # The friction directions that dissipate most: one (a vertex of the cone) or two (an edge).
    power = -jnp.sum(fan[None] * sliding[:, None, :], axis=-1)  # (nc, k)
    best = power >= jnp.max(power, axis=1, keepdims=True) - tolerance
    first = fan[jnp.argmax(best, axis=1)]
    last = fan[fan.shape[0] - 1 - jnp.argmax(best[:, ::-1], axis=1)]
    edge = first - last
    square = jnp.sum(edge**2, axis=1)[:, None, None]
    free = edge[:, :, None] * edge[:, None, :] / jnp.where(square > 0, square, 1.0)
    free = jnp.where(
        sticks[:, None, None], jnp.eye(nt, dtype=dtype)[None], free
    )  # projector on undetermined friction

    boundary = _friction_bounds(space.mu, guess.reshape(nc, 1 + nt), directions)
    modes = KnownModes(separates, capped, free, first)
    impulse = mode_impulse(space, u, impulse_max, modes, guess, boundary)
    cap = impulse_max if impulse_min is None else None
    worst = residual(space, v, impulse, directions, cap, impulse_min)
    # The corners of an almost flat block take huge impulses against each other to lose a speed below the
    # tolerance. The solver's answer, which leaves them that speed, is then better.
    solved = residual(space, v, guess, directions, cap, impulse_min)
    stands = (worst > residual_limit(dtype)) & (solved <= residual_limit(dtype))
    impulse = jnp.where(stands, guess + (impulse - lax.stop_gradient(impulse)), impulse)
    return v + space.response @ impulse, impulse, jnp.where(stands, solved, worst)


class KnownModes(NamedTuple):
    """The modes in which contacts leave an impact.

    Attributes:
        separates, capped: (nc,) bool.
        free: (nc, nt, nt) projector on the tangential directions that stick.
        direction: (nc, nt) friction direction of sliding.
    """

    separates: jax.Array
    capped: jax.Array
    free: jax.Array
    direction: jax.Array


def mode_impulse(
    space: ContactSpace,
    u: jax.Array,
    impulse_max: jax.Array | None,
    modes: KnownModes,
    guess: jax.Array,
    boundary: FrictionBounds | None = None,
) -> jax.Array:
    """Compute the scaled impulse (r,) that known contact modes determine, as the solution of their equations.

    Per contact: lam = 0 (separates); else u'_n = 0, or lam_n = impulse_max (capped), and P u'_t = 0,
    (1 - P) (lam_t - mu lam_n d) = 0 with the projector P of `free` and d of `direction`.

    Args:
        u: (r,) scaled contact velocity before.
        impulse_max: (nc,) scaled cap, or None.
        modes: of the contacts; they are constants.
        guess: (r,) a solution up to round-off; it stays where the equations do not determine lam.
        boundary: the bounds of friction that hold in `guess`, and go on holding where they may; or None.

    Derivative: by space, u and impulse_max.
    """
    separates, capped, free, direction = modes
    nt, nc, dtype = space.num_tangents, space.mu.shape[0], u.dtype
    delassus = space.delassus.reshape(nc, 1 + nt, -1)
    unit = jnp.eye(nc * (1 + nt), dtype=dtype).reshape(nc, 1 + nt, -1)
    u_rows = u.reshape(nc, 1 + nt)
    rests = ~separates & ~capped
    row_n = jnp.where(rests[:, None], delassus[:, 0], unit[:, 0])
    cap = jnp.zeros(nc, dtype) if impulse_max is None else impulse_max
    rhs_n = jnp.where(rests, -u_rows[:, 0], jnp.where(capped, cap, 0.0))
    ray = lax.rsqrt(1.0 + lax.stop_gradient(space.mu) ** 2)[:, None, None]  # rows of length one
    cone = (unit[:, 1:] - (space.mu[:, None] * direction)[:, :, None] * unit[:, :1]) * ray
    bound = jnp.eye(nt, dtype=dtype)[None] - free
    rows_t = free @ delassus[:, 1:] + bound @ cone
    rows_t = jnp.where(separates[:, None, None], unit[:, 1:], rows_t)
    rhs_t = jnp.where(separates[:, None], 0.0, -jnp.einsum("cij,cj->ci", free, u_rows[:, 1:]))
    equations = jnp.concatenate([row_n[:, None], rows_t], axis=1).reshape(unit.shape[2], -1)
    rhs = jnp.concatenate([rhs_n[:, None], rhs_t], axis=1).reshape(-1)
    # If redundant contacts slide, v_plus and its derivatives depend on how they divide the load.
    # Contacts without a load stay without: smaller columns are eliminated last.
    loads = jnp.abs(guess.reshape(nc, 1 + nt)[:, 0])
    unloaded = loads <= 64.0 * float(jnp.finfo(dtype).eps) * jnp.max(loads)
    size = jnp.repeat(jnp.where(unloaded, UNLOADED, 1.0).astype(dtype), 1 + nt)
    if boundary is None:
        inverse, _ = small_dense.generalized_inverse(lax.stop_gradient(equations) * size[None])
        return implicit.refine(equations, rhs, guess, size[:, None] * inverse)
    # Unknowns (lam_n, slack or friction): a slack of zero is eliminated last, too.
    facets, tight, on_cone = boundary
    back = _inverse(facets) if nt == 2 else facets  # -1 and 1 are their own inverses
    bound = jnp.sum(back * on_cone[:, None].astype(dtype), axis=2)
    pull = jnp.concatenate([(space.mu[:, None] * bound)[..., None], -back], axis=2)
    pull = jnp.concatenate([jnp.broadcast_to(jnp.eye(1, 1 + nt, dtype=dtype), (nc, 1, 1 + nt)), pull], axis=1)
    equations = jnp.einsum("rci,cij->rcj", equations.reshape(-1, nc, 1 + nt), pull).reshape(equations.shape)
    loose = jnp.concatenate([jnp.zeros((nc, 1), bool), tight], axis=1).reshape(-1)
    size = jnp.minimum(size, jnp.where(loose, UNLOADED, 1.0).astype(dtype))
    parts = guess.reshape(nc, 1 + nt)
    friction = -jnp.einsum("cij,cj->ci", facets, parts[:, 1:])
    unknowns = jnp.concatenate([parts[:, :1], jnp.where(tight, 0.0, friction)], axis=1).reshape(-1)
    inverse, _ = small_dense.generalized_inverse(lax.stop_gradient(equations) * size[None])
    unknowns = implicit.refine(equations, rhs, unknowns, size[:, None] * inverse)
    return jnp.einsum("cij,cj->ci", pull, unknowns.reshape(nc, 1 + nt)).reshape(-1)


def _inverse(matrices: jax.Array) -> jax.Array:
    """Invert matrices (n, 2, 2)."""
    (a, b), (c, d) = matrices[:, 0].T, matrices[:, 1].T
    adjugate = jnp.stack([jnp.stack([d, -b], axis=1), jnp.stack([-c, a], axis=1)], axis=1)
    return adjugate / (a * d - b * c)[:, None, None]


class FrictionBounds(NamedTuple):
    """The bounds that hold the friction of each contact.

    Attributes:
        rows: (nc, nt, nt) rows f; a row without a bound is a direction of friction that is free.
        tight: (nc, nt) bool, rows with a bound: f . lam_t is mu lam_n on a facet of the cone, else 0.
        on_cone: (nc, nt) bool, rows that are facets.
    """

    rows: jax.Array
    tight: jax.Array
    on_cone: jax.Array


def _friction_bounds(mu: jax.Array, guess: jax.Array, directions: np.ndarray) -> FrictionBounds:
    """Find the bounds that hold friction: facets of its cone; within it, one corner that pulls alone, or 0.

    `guess` is (nc, 1 + nt). Of redundant contacts that stick, a solver leaves some at their cones and some
    with fewer corners of the cone than tangents; the others then share the load. No derivative.
    """
    dtype = guess.dtype
    fan = jnp.asarray(directions, dtype)
    mu, guess = lax.stop_gradient((mu, guess))
    limit, friction = mu * guess[:, 0], guess[:, 1:]
    rounding = 256.0 * float(jnp.finfo(dtype).eps) * limit
    beneath = limit - rounding
    if fan.shape[1] == 1:
        on_cone = (jnp.abs(friction[:, 0]) >= beneath) & (limit > 0)
        facets = jnp.where(on_cone & (friction[:, 0] > 0), 1.0, -1.0).astype(dtype)
        tight = on_cone | (jnp.abs(friction[:, 0]) <= rounding)
        return FrictionBounds(facets[:, None, None], tight[:, None], on_cone[:, None])
    middle = fan + jnp.roll(fan, -1, axis=0)
    middle = middle / jnp.sum(middle[0] * fan[0])
    reach = jnp.sum(middle[None] * friction[:, None], axis=2)  # (nc, k)
    k, rows = fan.shape[0], jnp.arange(guess.shape[0])
    best = jnp.argmax(reach, axis=1)
    after, before = (best + 1) % k, (best - 1) % k
    second = jnp.where(reach[rows, after] > reach[rows, before], after, before)
    on_cone = jnp.stack([reach[rows, best], reach[rows, second]], axis=1) >= beneath[:, None]
    on_cone = on_cone & (limit[:, None] > 0)
    along = jnp.stack([-middle[best, 1], middle[best, 0]], axis=1)
    # Within the cone: the corner nearest to the friction, and the direction across it.
    corner = fan[jnp.argmax(friction @ fan.T, axis=1)]
    across = jnp.stack([-corner[:, 1], corner[:, 0]], axis=1)
    inside = ~on_cone[:, 0]
    alone = inside & (jnp.abs(jnp.sum(across * friction, axis=1)) <= rounding)
    nothing = alone & (jnp.abs(jnp.sum(corner * friction, axis=1)) <= rounding)
    first = jnp.where(on_cone[:, :1], middle[best], -across)
    other = jnp.where(on_cone[:, 1:], middle[second], jnp.where(on_cone[:, :1], along, -corner))
    tight = on_cone | jnp.stack([alone, nothing], axis=1)
    return FrictionBounds(jnp.stack([first, other], axis=1), tight, on_cone)
