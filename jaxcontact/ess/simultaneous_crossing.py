"""A displacement through a corner: the order in which it crosses the guards, and its value after them.

Owns the polygon of Council, Revzen & Burden (2022): the displaced trajectory is followed in the tangent
space from guard to guard, so that n! orders cost n crossings. Entry: `across_corner`. Page:
docs/methods/event-selected.md.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from jaxcontact._pytree import PyTree
from jaxcontact.batching.bounded_loop import bounded_loop
from jaxcontact.ess.inputs import RunInputs
from jaxcontact.mechanics.event_system import EventSystem


class InputDisplacement(NamedTuple):
    """A displacement of `params` and `control`, which stay constant along the trajectory."""

    params: PyTree
    control: PyTree


class ForcedOrder(NamedTuple):
    """An order in which every displacement crosses the guards; dx and leads are affine in it then.

    Attributes:
        order: (k,) guards.
        weight: of the values of the guards at the corner: 0 as if all were zero there, 1 as they are.
    """

    order: jax.Array
    weight: jax.Array

    def from_event(self, event: jax.Array, count: int) -> ForcedOrder:
        """Return the order of the crossings of a corner, which begins with an event."""
        return self._replace(order=lax.dynamic_slice(self.order, (event,), (count,)))


class CornerPoint(NamedTuple):
    """The point of a trajectory at which several guards are crossed together: time, state, mask before."""

    t: jax.Array
    x: jax.Array
    crossed: jax.Array


class Corner(NamedTuple):
    """A displacement after a corner.

    Attributes:
        dx: (n,).
        order: (m,) of its crossings, -1 beyond.
        stuck: a guard that it never meets, or -1.
        leads: (m, m) s; row i has by how much the guard of crossing i is met before each of those ahead.
    """

    dx: jax.Array
    order: jax.Array
    stuck: jax.Array
    leads: jax.Array


def across_corner(
    es: EventSystem,
    inputs: RunInputs,
    direction: InputDisplacement,
    point: CornerPoint,
    members: jax.Array,
    dx: jax.Array,
    forced: ForcedOrder | None = None,
) -> Corner:
    """Follow a displacement dx of the corner's point through the crossings of its `members` (m,) bool.

    With fields frozen at the corner and guards replaced by their tangent planes, the displaced
    trajectory is a polygon y(s); its next crossing is the minimum of -(Dh_k y + dh_k) / (Dh_k f) over the
    guards still ahead. At the end it is compared with the trajectory itself, which left the corner at s = 0.
    With `forced` the displaced trajectory takes that order instead.
    """
    params, control = inputs.params, inputs.control
    (t, x, crossed), m = point, members.shape[0]

    def crossing(i: jax.Array, carry: PyTree) -> PyTree:
        y, s, corner, mask, ahead, order, stuck, leads = carry
        f = es.xdot(t, corner, mask, control, params)
        values, offset = jax.jvp(es.guards, (corner, params), (y, direction.params))
        if forced is not None:
            offset = offset + forced.weight * values
        _, rate = es.guard_rates(corner, f, params)
        wait = jnp.where(ahead & (rate > 0), -offset / jnp.where(rate > 0, rate, 1.0), jnp.inf)
        k = jnp.argmin(wait).astype(jnp.int32) if forced is None else forced.order[i]
        lead = jnp.where(jnp.isfinite(wait) & (jnp.arange(m) != k), wait - wait[k], 0.0)
        good = jnp.isfinite(wait[k])
        stuck = jnp.where(jnp.any(ahead) & ~good & (stuck < 0), jnp.argmax(ahead).astype(jnp.int32), stuck)
        wait_k = jnp.where(good, wait[k], 0.0)
        moved = y + wait_k * f
        if es.jump is None:
            landed, jumped = corner, moved
        else:
            landed, jumped = jax.jvp(
                lambda x, p: es.after(x, k, p), (corner, params), (moved, direction.params)
            )
        return (
            jnp.where(good, jumped, y),
            s + wait_k,
            jnp.where(good, landed, corner),
            jnp.where(good, es.cross(mask, k), mask),
            ahead & ~((jnp.arange(m) == k) & good),
            order.at[i].set(jnp.where(good, k, -1)),
            stuck,
            leads.at[i].set(lead),
        )

    start = (
        dx, jnp.zeros((), x.dtype), x, crossed, members, jnp.full(m, -1, jnp.int32), jnp.int32(-1),
        jnp.zeros((m, m), x.dtype),
    )  # fmt: skip
    # Most corners have one guard: stop when none is ahead.
    _, (y, s, corner, mask, _, order, stuck, leads) = bounded_loop(
        lambda c: (c[0] < m) & jnp.any(c[1][4]),
        lambda c: (c[0] + 1, crossing(c[0], c[1])),
        (jnp.int32(0), start),
        max_iters=m,
    )
    f = es.xdot(t, corner, mask, control, params)
    return Corner(y - s * f, order, stuck, leads)
