"""Velocities of surfaces that run over their shapes, at contacts: `surface_rows`."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from jaxcontact import geometry
from jaxcontact._pytree import PyTree
from jaxcontact.mechanics.closed_forms import FrameMotion
from jaxcontact.mechanics.system import Model
from jaxcontact.terms.owners import Bodies, none_moves, of_bodies, on_bodies


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
