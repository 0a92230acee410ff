"""Contacts at a state: their places, sliding velocities and velocity Jacobians.

The geometry is evaluated once, together with its rates if a step needs rates. All other quantities are
products of the places with the frames of the bodies.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxcontact import geometry
from jaxcontact._pytree import PyTree
from jaxcontact.algebra.tree_rows import TreeRows
from jaxcontact.front_door import checked
from jaxcontact.mechanics.closed_forms import FrameMotion
from jaxcontact.mechanics.configuration import position_rate
from jaxcontact.mechanics.kinematics import unit_wrenches
from jaxcontact.mechanics.motion_equations import body_frames, free_rates, kinematics_of
from jaxcontact.mechanics.system import Model, System, free_poses
from jaxcontact.mechanics.tree import dofs
from jaxcontact.terms import free_bodies
from jaxcontact.terms.owners import Bodies, all_move, none_moves, of_bodies, on_bodies

if TYPE_CHECKING:
    from jaxtyping import Float


class Places(NamedTuple):
    """Points, gaps and normals of contacts in the world, as `geometry.Candidates`; axis 0 is the contact.

    Where two bodies that move overlap, both points are midway, so that friction makes no torque on the pair.
    """

    point: jax.Array
    point_b: jax.Array
    phi: jax.Array
    normal: jax.Array

    @property
    def tangents(self) -> jax.Array:
        """Unit tangents (nc, dim - 1, dim); with the normals they are right-handed frames."""
        return jax.vmap(geometry.tangent_frame)(self.normal)

    @property
    def axes(self) -> jax.Array:
        """Normal and tangents (nc, dim, dim) of every contact, as rows."""
        return jnp.concatenate([self.normal[:, None], self.tangents], axis=1)


def bodies_of(system: System) -> tuple[Bodies, Bodies]:
    """Return the first and the second body of every candidate."""
    structure = system.structure
    return geometry.contact_bodies(structure.dim, structure.bodies, structure.shape_table, structure.pairs)


def place(
    model: Model,
    positions: jax.Array,
    orientations: jax.Array,
    near_pairs: geometry.NearPairs | None = None,
) -> tuple[Places, geometry.Candidates]:
    """Find the contacts of bodies with these frames; return their places, and all data of the candidates."""
    structure = model.structure
    candidates = geometry.candidates(
        structure.dim, structure.bodies, structure.shape_table, structure.pairs,
        positions, orientations, model.params.constants, near_pairs,
    )  # fmt: skip
    if model.params.margin is not None:
        margin = jnp.asarray(model.params.margin, candidates.phi.dtype)
        near = margin if candidates.place is None else margin[candidates.place]
        candidates = candidates._replace(phi=candidates.phi - near, gaps=candidates.gaps - margin)
    points = _points_of_forces(model.system, candidates)
    return Places(*points, candidates.phi, candidates.normal), candidates


def _points_of_forces(system: System, candidates: geometry.Candidates) -> tuple[jax.Array, jax.Array]:
    """Find the points (k, dim) of the first and of the second body at which forces act."""
    moves = np.ones(len(system.structure.bodies) + 1, bool)
    if system.structure.tree is not None:
        moves[:-1] = np.any(dofs(system.structure.tree).moves, axis=1)
    moves[geometry.WORLD] = False
    both = np.all([moves[list(owners)] for owners in bodies_of(system)], axis=0)
    point, point_b = candidates.point, candidates.point_b
    if not np.any(both):
        return point, point_b
    shared = jnp.asarray(both) if candidates.place is None else jnp.asarray(both)[candidates.place]
    middle, overlap = 0.5 * (point + point_b), (shared & (candidates.phi <= 0.0))[:, None]
    return jnp.where(overlap, middle, point), jnp.where(overlap, middle, point_b)


def body_motion(model: Model, q: jax.Array, v: jax.Array) -> FrameMotion:
    """Compute the frames of the bodies and their rates."""
    if model.system.mechanics is not None:
        return model.system.mechanics.motion(model.structure, kinematics_of(model, q), v)[0]
    if model.system.poses is free_poses:
        frames = body_frames(model, q)
        return FrameMotion(*frames, *free_rates(model.system, frames[1], v))
    qdot = position_rate(model.system, q, v)
    frames, rates = jax.jvp(lambda x: body_frames(model, x), (q,), (qdot,))
    return FrameMotion(*frames, *rates)


def motion_and_rate(
    model: Model, q: jax.Array, v: jax.Array, kinematics: object
) -> tuple[FrameMotion, FrameMotion]:
    """Compute `body_motion`, and its rate of change at constant v."""
    if model.system.mechanics is not None:
        return model.system.mechanics.motion(model.structure, kinematics, v)
    qdot = position_rate(model.system, q, v)
    return jax.jvp(lambda x: body_motion(model, x, v), (q,), (qdot,))


def slip(bodies: tuple[Bodies, Bodies], places: Places, frame_motion: FrameMotion) -> jax.Array:
    """Compute velocities (nc, dim) of a's material point in contact relative to b's, along n, t1[, t2]."""
    positions, orientations, velocities, orientation_rates = frame_motion

    def velocity(owner: Bodies, points: jax.Array) -> jax.Array:
        if none_moves(owner):
            return jnp.zeros_like(points)
        orientation, orientation_rate, origin, speed = (
            of_bodies(x, owner) for x in (orientations, orientation_rates, positions, velocities)
        )
        local = geometry.products(jnp.swapaxes(orientation, 1, 2), points - origin)
        point_velocity = speed + geometry.products(orientation_rate, local)
        return (
            point_velocity if all_move(owner) else jnp.where(on_bodies(owner)[:, None], point_velocity, 0.0)
        )

    relative = velocity(bodies[0], places.point) - velocity(bodies[1], places.point_b)
    return geometry.products(places.axes, relative)


def slip_rate(
    bodies: tuple[Bodies, Bodies],
    places: Places,
    place_rates: Places,
    frame_motion: FrameMotion,
    motion_rate: FrameMotion,
) -> jax.Array:
    """Compute the rate (nc, dim) of `slip` at constant v."""
    return jax.jvp(functools.partial(slip, bodies), (places, frame_motion), (place_rates, motion_rate))[1]


def rows_of(
    model: Model,
    q: jax.Array,
    bodies: tuple[Bodies, Bodies],
    places: Places,
    kinematics: object,
) -> jax.Array:
    """Compute the velocity Jacobians (nc, dim, nv) of contacts in the order n, t1[, t2]."""
    if model.system.poses is free_poses:
        return free_bodies.contact_rows(model.system, bodies, places, *body_frames(model, q))
    if model.system.mechanics is not None:
        sides = zip((1.0, -1.0), bodies, (places.point, places.point_b), strict=True)
        moving = [
            sign
            * model.system.mechanics.point_jacobians(model.structure, kinematics, owner, points, places.axes)
            for sign, owner, points in sides
            if not none_moves(owner)
        ]
        return sum(moving[1:], moving[0])
    basis = jnp.eye(model.structure.num_velocities, dtype=q.dtype)
    return jax.vmap(lambda v: slip(bodies, places, body_motion(model, q, v)), out_axes=-1)(basis)


def spin_rows(
    model: Model,
    q: jax.Array,
    bodies: tuple[Bodies, Bodies],
    places: Places,
    kinematics: object,
    rows: jax.Array,
) -> jax.Array:
    """Compute the Jacobians (nc, 3, nv) of the relative spins about n, t1, t2, from `rows_of` at the places.

    A spin is the difference of the velocities of two points of a body, a unit vector apart.
    """
    normal, first, second = (places.axes[:, k] for k in range(3))

    def beside(shift: jax.Array, axis: int) -> jax.Array:
        moved = places._replace(point=places.point + shift, point_b=places.point_b + shift)
        return rows_of(model, q, bodies, moved, kinematics)[:, axis] - rows[:, axis]

    return jnp.stack([beside(first, 2), beside(second, 0), beside(normal, 1)], axis=1)


def tree_rows_of(
    model: Model,
    bodies: tuple[jax.Array, jax.Array],
    places: Places,
    kinematics: PyTree,
    lever: jax.Array | None,
) -> TreeRows | None:
    """Describe the rows of selected contacts, and of spins with `lever`, by wrenches; None without a tree.

    Derivative: none.
    """
    if model.system.mechanics is None:
        return None
    table, groups = dofs(model.structure.tree), groups_of_velocities(model.system)
    moves = np.zeros((len(table.moves) + 1, max(groups) + 1))  # the last row, index -1, is the world
    moves[:-1, list(groups)] = table.moves
    axes, (first, second) = places.axes, bodies
    wrench = jnp.where(
        (first >= 0)[:, None, None],
        unit_wrenches(model.structure, kinematics, first, places.point, axes),
        unit_wrenches(model.structure, kinematics, second, places.point_b, axes),
    )
    if lever is not None:
        spins = jnp.concatenate([axes, jnp.zeros_like(axes)], axis=-1)[:, : lever.shape[1]]
        wrench = jnp.concatenate([wrench, lever[:, :, None] * spins], axis=1)
    below = jnp.asarray(moves, wrench.dtype)[first] + jnp.asarray(moves, wrench.dtype)[second]
    pair = None
    if any(min(owners) >= 0 for owners in zip(*bodies_of(model.system), strict=True)):
        pair = (first >= 0) & (second >= 0)
        below = jnp.where(pair[:, None], 0.0, below)
    above = tuple(tuple(np.flatnonzero(column).tolist()) for column in table.above.T)
    rows = TreeRows(
        wrench=wrench, below=below, pair=pair, screws=kinematics.screws, group=groups, above=above
    )
    return lax.stop_gradient(rows)


def groups_of_velocities(system: System) -> tuple[int, ...]:
    """Number the velocities (nv,) so that those of one group move the same bodies that may touch."""
    touching = sorted({body for owners in bodies_of(system) for body in owners if body >= 0})
    columns = [tuple(column) for column in dofs(system.structure.tree).moves[touching].T]
    distinct = list(dict.fromkeys(columns))
    return tuple(distinct.index(column) for column in columns)


def friction(model: Model, dtype: jax.typing.DTypeLike) -> jax.Array:
    """Return the friction coefficient (nc,) of every candidate contact."""
    return jnp.broadcast_to(jnp.asarray(model.params.mu, dtype), (model.structure.num_contacts,))


@checked()
def contact_gaps(model: Model, q: Float[jax.Array, " nq"]) -> jax.Array:
    """Compute the gaps (nc,) of all candidate contacts, m."""
    return place(model, *body_frames(model, q))[0].phi


@checked()
def contact_velocities(model: Model, q: Float[jax.Array, " nq"], v: Float[jax.Array, " nv"]) -> jax.Array:
    """Compute velocities (nc, dim) of a's material point in contact relative to b's, along n, t1[, t2]."""
    frame_motion = body_motion(model, q, v)
    return slip(bodies_of(model.system), place(model, *frame_motion[:2])[0], frame_motion)
