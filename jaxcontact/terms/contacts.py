"""Contacts at a state: where they are, how fast they move, their velocity Jacobians.

Geometry is evaluated once, with its rates where a step asks for them; all else is a product with frames.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jaxcontact import geometry
from jaxcontact.mechanics.configuration import position_rate
from jaxcontact.mechanics.motion_equations import body_frames, free_rates
from jaxcontact.mechanics.system import FrameMotion, Params, System, free_poses
from jaxcontact.terms import free_bodies
from jaxcontact.terms.owners import Bodies, all_move, none_moves, of_bodies, on_bodies


class Places(NamedTuple):
    """Where contacts are, in the world; axis 0 is the contact. As `geometry.Candidates`."""

    point: jax.Array
    point_b: jax.Array
    phi: jax.Array
    normal: jax.Array

    @property
    def tangents(self) -> jax.Array:
        """(nc, dim - 1, dim), which complete the normals to frames."""
        return jax.vmap(geometry.tangent_frame)(self.normal)

    @property
    def axes(self) -> jax.Array:
        """Normal and tangents (nc, dim, dim) of every contact, as rows."""
        return jnp.concatenate([self.normal[:, None], self.tangents], axis=1)


def bodies_of(system: System) -> tuple[Bodies, Bodies]:
    """The first and the second body of every candidate."""
    structure = system.structure
    return geometry.contact_bodies(structure.dim, structure.bodies, structure.shape_table, structure.pairs)


def place(
    system: System,
    params: Params,
    positions: jax.Array,
    orientations: jax.Array,
    max_pairs: int | None = None,
) -> tuple[Places, jax.Array]:
    """All candidates of bodies in these frames, and whether `max_pairs` left out a pair that touches."""
    structure = system.structure
    found = geometry.candidates(
        structure.dim, structure.bodies, structure.shape_table, structure.pairs,
        positions, orientations, params.constants, max_pairs,
    )  # fmt: skip
    return Places(found.point, found.point_b, found.phi, found.normal), found.left_out


def motion(system: System, params: Params, q: jax.Array, v: jax.Array) -> FrameMotion:
    """Frames of the bodies and their rates."""
    if system.mechanics is not None:
        return system.mechanics.motion(system.structure, q, v, params)[0]
    if system.poses is free_poses:
        frames = body_frames(system, params, q)
        return FrameMotion(*frames, *free_rates(system, frames[1], v))
    qdot = position_rate(system, q, v)
    frames, rates = jax.jvp(lambda x: body_frames(system, params, x), (q,), (qdot,))
    return FrameMotion(*frames, *rates)


def motion_and_rate(
    system: System, params: Params, q: jax.Array, v: jax.Array
) -> tuple[FrameMotion, FrameMotion]:
    """`motion`, and its rate while v stays as it is."""
    if system.mechanics is not None:
        return system.mechanics.motion(system.structure, q, v, params)
    qdot = position_rate(system, q, v)
    return jax.jvp(lambda x: motion(system, params, x, v), (q,), (qdot,))


def slip(bodies: tuple[Bodies, Bodies], found: Places, moving: FrameMotion) -> jax.Array:
    """Velocity (nc, dim) of the material point of a in contact relative to b's, along n, t1[, t2]."""
    positions, orientations, drift, turning = moving

    def velocity(owner: Bodies, points: jax.Array) -> jax.Array:
        if none_moves(owner):
            return jnp.zeros_like(points)
        turn, rate, at, speed = (of_bodies(x, owner) for x in (orientations, turning, positions, drift))
        local = geometry.products(jnp.swapaxes(turn, 1, 2), points - at)
        moved = speed + geometry.products(rate, local)
        return moved if all_move(owner) else jnp.where(on_bodies(owner)[:, None], moved, 0.0)

    relative = velocity(bodies[0], found.point) - velocity(bodies[1], found.point_b)
    return geometry.products(found.axes, relative)


def slip_rate(
    bodies: tuple[Bodies, Bodies], found: Places, rate: Places, moving: FrameMotion, changing: FrameMotion
) -> jax.Array:
    """The rate (nc, dim) of `slip` while v stays as it is."""
    return jax.jvp(functools.partial(slip, bodies), (found, moving), (rate, changing))[1]


def rows_of(
    system: System, params: Params, q: jax.Array, bodies: tuple[Bodies, Bodies], found: Places
) -> jax.Array:
    """Velocity Jacobians (nc, dim, nv) of contacts in the order n, t1[, t2]."""
    if system.poses is free_poses:
        return free_bodies.contact_rows(system, bodies, found, *body_frames(system, params, q))
    if system.mechanics is not None:
        relative = sum(
            sign * system.mechanics.point_jacobians(system.structure, q, params, owner, points)
            for sign, owner, points in zip((1.0, -1.0), bodies, (found.point, found.point_b), strict=True)
            if not none_moves(owner)
        )
        return jnp.einsum("cad,cdv->cav", found.axes, relative)
    basis = jnp.eye(system.structure.num_velocities, dtype=q.dtype)
    return jax.vmap(lambda v: slip(bodies, found, motion(system, params, q, v)), out_axes=-1)(basis)


def friction(system: System, params: Params, dtype: Any) -> jax.Array:
    """Friction coefficient (nc,) of every candidate contact."""
    return jnp.broadcast_to(jnp.asarray(params.mu, dtype), (system.structure.num_contacts,))


def contact_gaps(system: System, params: Params, q: jax.Array) -> jax.Array:
    """Gaps (nc,) of all candidate contacts, m."""
    return place(system, params, *body_frames(system, params, q))[0].phi


def contact_velocities(system: System, params: Params, q: jax.Array, v: jax.Array) -> jax.Array:
    """Velocity (nc, dim) of the material point of a in contact relative to b's, along n, t1[, t2]."""
    moving = motion(system, params, q, v)
    return slip(bodies_of(system), place(system, params, *moving[:2])[0], moving)
