"""A plate pressed through a viscous fluid onto three feet that crush: the order of landings matters."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from jaxcontact._pytree import PyTree
from jaxcontact.mechanics.event_system import EventSystem
from jaxcontact.mechanics.system import Model

ARM = 0.2  # m, from the middle foot to the outer ones
DRAG = 1000.0  # N s/m, of the plate in the fluid


def _field(t: jax.Array, x: jax.Array, signs: jax.Array, control: PyTree, params: PyTree) -> jax.Array:
    force = jnp.where(signs > 0, params["crush"], 0.0) - control["push"]
    moment = force * params["places"] * jnp.cos(x[1])
    return jnp.stack([jnp.sum(force) / params["drag"], jnp.sum(moment) / params["turning_drag"]])


def _guards(x: jax.Array, params: PyTree) -> jax.Array:
    """Compute the depth of each foot below the floor, m."""
    return -(x[0] + params["places"] * jnp.sin(x[1]))


PRESSED_PLATE = EventSystem(_field, _guards)


def pressed_plate() -> Model:
    """Make a plate that sinks slowly under three presses onto three feet that crush; all feet land together.

    `system` is an EventSystem with state (z, tilt), m and rad, without inertia, c zdot = sum F_i and
    c' tiltdot = sum F_i a_i cos(tilt): drag c of 1000 N s/m, and c' = c a^2/3 of a plate dragged evenly. At
    foot i, a_i = (0.2, 0, -0.2) m, a press pushes down with `control["push"]` (3,), N, and the foot pushes
    up with 100 N after it has landed, which is guard i.

    A landing changes velocities, and so the rates of the other guards, Dh_j (f_after - f_before) =
    -F (1/c + a_i a_j / c') != 0, so that the order of landing matters to first order. In a mechanism with
    inertia whose guards depend on positions alone, without impacts, this product is zero, so that the order
    does not matter to first order.
    """
    return Model(
        system=PRESSED_PLATE,
        params={
            "places": jnp.array([ARM, 0.0, -ARM]),
            "crush": jnp.array(100.0),
            "drag": jnp.array(DRAG),
            "turning_drag": jnp.array(DRAG * ARM**2 / 3.0),
        },
        initial=jnp.array([0.1, 0.0]),
    )
