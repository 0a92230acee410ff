"""Velocities of surfaces that run over their shapes, at contacts: `surface_rows`, `shared_velocity`."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np

from jaxcontact import geometry
from jaxcontact._pytree import PyTree
from jaxcontact.algebra import implicit
from jaxcontact.mechanics.closed_forms import FrameMotion
from jaxcontact.mechanics.system import Model
from jaxcontact.terms.owners import Bodies, none_moves, of_bodies, on_bodies
from jaxcontact.terms.records import ContactTerms
from jaxcontact.tolerances import HALF_DIGITS, rounding


def shapes_of(model: Model) -> np.ndarray:
    """Return the two shapes (nc, 2) of every candidate contact, by their numbers."""
    structure, table = model.structure, model.structure.shape_table
    numbers = {shape.name: k for k, shape in enumerate(structure.shapes)}
    counts = [geometry.num_contacts(structure.dim, table, (pair,)) for pair in structure.pairs]
    rows = np.array([[numbers[name] for name in pair] for pair in structure.pairs], int).reshape(-1, 2)
    return np.repeat(rows, counts, axis=0)


def surface_velocities(
    model: Model,
    bodies: tuple[Bodies, Bodies],
    places: PyTree,
    frames: FrameMotion,
    index: jax.Array | None = None,
) -> tuple[jax.Array, jax.Array]:
    """Compute velocities (nc, dim) and spins of the first surfaces less those of the second, in the world.

    A spin is a vector (nc, 3), in the plane a number (nc, 1). `index` selects candidate contacts.
    """
    twists = model.params.surface_velocity
    assert twists is not None
    shapes = jnp.asarray(shapes_of(model)) if index is None else jnp.asarray(shapes_of(model))[index]
    sides = [
        _of_side(twists[shapes[:, k]], owner, points, frames)
        for k, (owner, points) in enumerate(zip(bodies, (places.point, places.point_b), strict=True))
    ]
    (first, first_spin), (second, second_spin) = sides
    return first - second, first_spin - second_spin


def _of_side(
    twist: jax.Array, owner: Bodies, points: jax.Array, frames: FrameMotion
) -> tuple[jax.Array, jax.Array]:
    """Compute velocity and spin of the surfaces of one side at world points (nc, dim)."""
    dim = points.shape[1]
    if none_moves(owner):
        linear, angular, lever = twist[:, :dim], twist[:, dim:], points
    else:
        on_body = on_bodies(owner)[:, None]
        turns, origin = of_bodies(frames.rotation, owner), of_bodies(frames.position, owner)
        turns = jnp.where(on_body[:, None], turns, jnp.eye(dim, dtype=points.dtype))
        linear = geometry.products(turns, twist[:, :dim])
        angular = twist[:, dim:] if dim == 2 else geometry.products(turns, twist[:, dim:])
        lever = points - jnp.where(on_body, origin, 0.0)
    if dim == 2:
        return linear + angular * jnp.stack([-lever[:, 1], lever[:, 0]], axis=1), angular
    return linear + jnp.cross(angular, lever), angular


def surface_rows(
    model: Model,
    bodies: tuple[Bodies, Bodies],
    places: PyTree,
    frames: FrameMotion,
    index: jax.Array | None = None,
) -> jax.Array:
    """Compute what running surfaces add to the rows (nc, axes) of contacts: 0, along tangents, spins."""
    velocity, spin = surface_velocities(model, bodies, places, frames, index)
    along = jnp.einsum("ntk,nk->nt", places.tangents, velocity)
    rows = jnp.concatenate([jnp.zeros((along.shape[0], 1), along.dtype), along], axis=1)
    lever = model.params.spin_friction
    if lever is None:
        return rows
    lever = lever if index is None else lever[index]
    spins = jnp.einsum("nak,nk->na", places.axes, spin)[:, : lever.shape[1]]
    return jnp.concatenate([rows, lever * spins], axis=1)


def surface_drift(
    model: Model,
    bodies: tuple[Bodies, Bodies],
    places: tuple[PyTree, PyTree],
    motion: tuple[FrameMotion, FrameMotion],
    index: jax.Array | None = None,
) -> jax.Array:
    """Compute the rates of `surface_rows` from places and frames with their rates."""
    rows = functools.partial(surface_rows, model, bodies, index=index)
    return jax.jvp(rows, (places[0], motion[0]), (places[1], motion[1]))[1]


def shared_velocity(terms: ContactTerms, surface: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Find the velocity (nv,) whose active contacts have the velocities `surface`; say whether there is none.

    A law sees J v alone, so that it may take v with this velocity added where surfaces move. Rows that
    nothing moves do not count.

    Derivative: of the velocities that exist.
    """
    rows = jnp.concatenate([terms.J_n[:, None], terms.J_t], axis=1)
    rows = jnp.where(terms.active[:, None, None], rows, 0.0).reshape(-1, rows.shape[2])
    moves = jnp.any(rows != 0.0, axis=1)
    wanted = jnp.where(moves, surface.ravel(), 0.0)
    response = implicit.solve_spd(terms.M, rows.T)
    shift = response @ implicit.refine(rows @ response, wanted, jnp.zeros_like(wanted))
    miss = jnp.max(jnp.abs(rows @ shift - wanted), initial=0.0)
    return shift, miss > rounding(shift.dtype, HALF_DIGITS) * jnp.max(jnp.abs(wanted), initial=0.0)
