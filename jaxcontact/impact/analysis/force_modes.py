"""Finite contact forces at a state: every contact mode of the accelerations; entry `force_modes`.

At contacts without normal velocity, the laws of contact hold for accelerations a = rate + D f: 0 <= f_n and
a_n >= 0, complementary. A sliding contact has the friction of its direction for every a_t; another contact
opposes a_t with all its friction. With the friction of sliding there may be several solutions, or none.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from jaxcontact.impact.laws.contact_enumeration import mode_table
from jaxcontact.impact.laws.contact_space import ContactSpace, collision_tolerance, mass_norm
from jaxcontact.solvers import contact_modes
from jaxcontact.solvers.contact_modes import REST_MINUS, REST_PLUS, SEPARATE


def near_zero(space: ContactSpace, v: jax.Array, speed: jax.Array) -> jax.Array:
    """Compute the scaled contact velocities (r,) that count as zero in a motion with |v|_M up to `speed`.

    The limit is 1e-8 m/s (float32: 1e-5), and no less than round-off. No derivative.
    """
    speed = jnp.maximum(speed, mass_norm(space.mass, v))
    noise = 10.0 * contact_modes.feasibility_tolerance(v.dtype) * speed
    return jnp.maximum(noise, collision_tolerance(v.dtype) * space.scale)


def acceleration_size(space: ContactSpace, free: jax.Array, drift: jax.Array) -> jax.Array:
    """Compute the unit of scaled accelerations: from `free`, without contact forces, and drift (r,)."""
    size = mass_norm(space.mass, free) + jnp.max(jnp.abs(drift), initial=0.0)
    return jnp.where(size > 0, size, 1.0)


def force_modes(
    space: ContactSpace,
    rate: jax.Array,
    slides: jax.Array,
    forward: jax.Array,
    size: jax.Array,
    directions: np.ndarray,
) -> tuple[contact_modes.ModeMaps, jax.Array]:
    """Tabulate all modes without a cap, and the relative violation of each, inf for impossible modes.

    Args:
        space: of the contacts without normal velocity.
        rate: (r,) scaled accelerations of contacts without contact forces.
        slides: (nc,) bool, contacts that slide: forward along t1, in space always, else backward.
        forward: (nc,) bool.
        size: () of accelerations, see `acceleration_size`.
        directions: (k, nt) corners of the friction cone.
    """
    table = mode_table(space, directions, capped=False)
    if space.num_tangents == 1:
        sliding = jnp.where(forward, REST_PLUS, REST_MINUS)
    else:  # the corner of the cone that opposes t1
        sliding = jnp.full(slides.shape, 2 + len(directions) // 2)
    codes = table.codes[: slides.shape[0]]  # a further row names the end of a segment that a mode is
    allowed = ~slides[:, None] | (codes == SEPARATE) | (codes == sliding[:, None])
    per_contact = table.margin.shape[0] // slides.shape[0]
    skip = jnp.zeros((slides.shape[0], per_contact), bool)
    for form in range(1, 1 + space.num_tangents):  # of the direction in which a contact begins to slide
        skip = skip.at[:, form].set(slides)
    violation = contact_modes.evaluate(table, rate, skip=skip.reshape(-1)) / size
    return table, jnp.where(jnp.all(allowed, axis=0), violation, jnp.inf)


def presses(space: ContactSpace, slides: jax.Array, direction: jax.Array) -> jax.Array:
    """Find the sliding contacts (nc,) whose own force, by its friction, accelerates them into each other.

    They have D_nn - mu d . D_nt < 0: at rest along the normal they can begin an impact without a collision.

    Args:
        direction: (nc, nt) unit directions of sliding.
    """
    nc = slides.shape[0]
    contact = jnp.arange(nc)
    normal_rows = space.delassus.reshape(nc, 1 + space.num_tangents, nc, -1)[contact, 0, contact]
    slope = normal_rows[:, 0] - space.mu * jnp.sum(direction * normal_rows[:, 1:], axis=1)
    return slides & (slope < 0) & space.active
