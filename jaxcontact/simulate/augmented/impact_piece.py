"""A piece of an impact over s: time and positions stand still, velocities move along a line.

Owns the choice of its mode, with or without a collision; the mode equations are those of `routh_path`.
Entry: `impact_rate`. Page: docs/papers/halm_posa.md.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from jaxcontact.impact.laws import routh_path
from jaxcontact.impact.laws.contact_space import ContactSpace
from jaxcontact.solvers import contact_modes, mode_choice
from jaxcontact.solvers.contact_modes import CAP_STICK


class ImpactRate(NamedTuple):
    """The continuation of an impact.

    Attributes:
        rate: (r,) scaled impulse per unit of s, normal impulses (in N s) summing to one.
        violation: of the mode's inequalities.
        possible: whether any mode is valid.
    """

    rate: jax.Array
    violation: jax.Array
    possible: jax.Array


def impact_rate(
    space: ContactSpace, u: jax.Array, rates: jax.Array, near: jax.Array, pick: jax.Array | None
) -> ImpactRate:
    """Choose the mode in which the impact inclusion continues at scaled contact velocities u (r,).

    If no contact approaches, only modes in which one begins to approach do: an impact without a collision.

    Args:
        rates: (nc,) relative rates of normal impulse.
        near: (r,) velocities that count as zero.
        pick: as in `choose_modes`.
    """
    dtype = u.dtype
    tolerance = 10.0 * contact_modes.feasibility_tolerance(dtype)
    table = contact_modes.mode_table(space.delassus, space.mu, space.active, capped=True)
    cap = jnp.where(space.active, rates, 0.0) / space.scale[::2]
    cap = cap / jnp.maximum(jnp.max(cap), jnp.finfo(dtype).tiny)
    x = jnp.concatenate([jnp.zeros_like(u), cap])
    violation = routh_path.mode_violation(table, u, x, near)
    change = jnp.einsum("rk,rs->sk", jnp.einsum("rlk,l->rk", table.impulse, x), space.delassus)
    begins = (table.codes >= CAP_STICK) & (change[0::2] < -tolerance)
    collides = jnp.any(u[0::2] < -near[0::2])
    violation = jnp.where(collides | jnp.any(begins, axis=0), violation, jnp.inf)
    valid = violation <= tolerance
    possible = jnp.any(valid)
    if pick is None:
        mode = jnp.argmax(valid)
    else:
        score = jnp.sum(table.score * x[:, None], axis=0)
        mode, _ = mode_choice.choose(valid, score, pick, jnp.ones((), dtype))
    mode = jnp.where(possible, mode, jnp.argmin(violation))
    rate = table.impulse[:, :, mode] @ x
    total = jnp.sum((space.scale * rate)[0::2])
    return ImpactRate(rate / jnp.where(total > 0, total, 1.0), violation[mode], possible & (total > 0))


def piece_length(u: jax.Array, slope: jax.Array, near: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Compute the length in s until the first nonzero velocity reaches zero, and whether none does."""
    tolerance = 10.0 * contact_modes.feasibility_tolerance(u.dtype)
    steady = jnp.abs(slope) <= tolerance * jnp.max(jnp.abs(slope))
    wait = -u / jnp.where(steady, 1.0, slope)
    wait = jnp.where((jnp.abs(u) > near) & ~steady & (wait > 0), wait, jnp.inf)
    length = jnp.min(wait)
    return jnp.where(jnp.isfinite(length), length, 0.0), ~jnp.isfinite(length)
