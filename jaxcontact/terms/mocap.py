"""Rates of rows that do not come from v, of running surfaces and moving mocap bodies.

Entries: `rates_beside`, `relative_velocities`.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from jaxcontact._pytree import PyTree
from jaxcontact.mechanics.closed_forms import FrameMotion
from jaxcontact.mechanics.mocap import across, body_twists
from jaxcontact.mechanics.motion_equations import body_frames
from jaxcontact.mechanics.system import Model
from jaxcontact.terms import contacts
from jaxcontact.terms.joints import closure_speed
from jaxcontact.terms.moved_frames import carried_frames
from jaxcontact.terms.owners import Bodies, none_moves, of_bodies, on_bodies
from jaxcontact.terms.surfaces import surface_rows

FoundContacts = tuple[
    tuple[Bodies, Bodies], PyTree, FrameMotion
]  # their bodies, places, and the motion of all bodies


def rates_beside(
    model: Model,
    q: jax.Array,
    num_joint_rows: int,
    found: FoundContacts | None,
    index: jax.Array | None = None,
) -> tuple[jax.Array | None, jax.Array | None]:
    """Compute what running surfaces and mocap bodies add to the rates of all rows: before a step, and in it.

    `found` are the contacts, `index` their numbers among the candidates if some are selected. None where
    no mocap body moves and no surface runs.
    """
    twists = model.params.mocap_velocity
    runs = found is not None and model.params.surface_velocity is not None
    if not runs and twists is None:
        return None, None
    rows = jnp.zeros((2, num_joint_rows), q.dtype)
    if twists is not None and model.structure.tree.closes:
        at_q = body_frames(model, q)
        frames = FrameMotion(*at_q, *at_q)
        loops = [closure_speed(model, carried_frames(model, frames, twist)[0])[1] for twist in twists]
        rows = rows.at[:, : loops[0].shape[0]].set(jnp.stack(loops))
    if found is not None:
        parts = [] if twists is None else [_moved_contacts(model, *found, index)]
        if runs:
            running = surface_rows(model, *found, index)
            parts.append(jnp.broadcast_to(running, (2, *running.shape)))
        rows = jnp.concatenate([rows, sum(parts[1:], parts[0]).reshape(2, -1)], axis=1)
    return rows[0], rows[1]


def relative_velocities(model: Model, q: jax.Array, v: jax.Array) -> jax.Array:
    """Compute the velocities (nc, dim) of all candidate contacts along n, t1[, t2], relative to surfaces."""
    frames = contacts.body_motion(model, q, v)
    places, _ = contacts.place(model, frames.position, frames.rotation)
    bodies = contacts.bodies_of(model.system)
    slips = contacts.slip(bodies, places, frames)
    _, beside = rates_beside(model, q, 0, (bodies, places, frames))
    return slips if beside is None else slips + beside.reshape(slips.shape[0], -1)[:, : slips.shape[1]]


def _moved_contacts(
    model: Model,
    bodies: tuple[Bodies, Bodies],
    places: PyTree,
    frames: FrameMotion,
    index: jax.Array | None = None,
) -> jax.Array:
    """Compute what mocap bodies add to the rows (2, nc, axes) of contacts: before the step, and in it."""
    twists, lever = model.params.mocap_velocity, model.params.spin_friction
    assert twists is not None

    def rows(velocity: jax.Array) -> jax.Array:
        moved, _ = carried_frames(model, frames, velocity)
        spins_of_bodies = body_twists(model, frames.position, velocity)[1]
        sides = [
            _of_side(moved.velocity, spins_of_bodies, owner, points, frames.position)
            for owner, points in zip(bodies, (places.point, places.point_b), strict=True)
        ]
        speed, spin = (first - second for first, second in zip(*sides, strict=True))
        along = jnp.einsum("nak,nk->na", places.axes, speed)
        if lever is None:
            return along
        levers = lever if index is None else lever[index]
        spins = jnp.einsum("nak,nk->na", places.axes, spin)[:, : levers.shape[1]]
        return jnp.concatenate([along, levers * spins], axis=1)

    return jnp.stack([rows(twists[0]), rows(twists[1])])


def _of_side(
    linear: jax.Array, spin: jax.Array, owner: Bodies, points: jax.Array, positions: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Compute velocities and spins of the bodies of one side at world points (nc, dim)."""
    if none_moves(owner):
        return jnp.zeros_like(points), jnp.zeros((points.shape[0], spin.shape[1]), points.dtype)
    turns, lever = of_bodies(spin, owner), points - of_bodies(positions, owner)
    is_on_body = on_bodies(owner)[:, None]
    speed = of_bodies(linear, owner) + across(turns, lever)
    return jnp.where(is_on_body, speed, 0.0), jnp.where(is_on_body, turns, 0.0)
