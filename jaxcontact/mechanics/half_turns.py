"""Momenta and forces of quaternions in the middle of a step that turns them by twice a half turn.

Owns the terms that rotations add to the midpoint rule of `free_step`; docs/methods/compliant.md derives them.
"""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from jaxcontact.mechanics.system import Structure

SMALL_SQUARE = 1e-4  # rad^2; below it series have smaller errors than quotients


def _coefficients(half: jax.Array) -> tuple[jax.Array, ...]:
    """Compute sin a / a, (1 - cos a) / a^2, (a / sin a - 1) / a^2 and tan(a / 2) / a of a = |half|."""
    square = jnp.sum(half**2)
    small = square < SMALL_SQUARE
    safe_square = jnp.where(small, 1.0, square)
    angle = jnp.sqrt(safe_square)
    exact = (
        jnp.sin(angle) / angle,
        (1.0 - jnp.cos(angle)) / safe_square,
        (angle / jnp.sin(angle) - 1.0) / safe_square,
        jnp.tan(0.5 * angle) / angle,
    )
    series = (
        1.0 - square / 6.0 + square**2 / 120.0,
        0.5 - square / 24.0 + square**2 / 720.0,
        1.0 / 6.0 + 7.0 * square / 360.0 + 31.0 * square**2 / 15120.0,
        0.5 + square / 24.0 + square**2 / 240.0,
    )
    return tuple(jnp.where(small, a, b) for a, b in zip(series, exact, strict=True))


def turn_back(momentum: jax.Array, half: jax.Array) -> jax.Array:
    """Turn a momentum (3,) by minus the half turn: from body axes before it to those after it."""
    sine, versine, _, _ = _coefficients(half)
    across = jnp.cross(half, momentum)
    return momentum - sine * across + versine * jnp.cross(half, across)


def spread(momentum: jax.Array, half: jax.Array, impulse: jax.Array) -> jax.Array:
    """Convert a momentum (3,) of the rate of the rotation vector to one of the angular velocity at the ends.

    `impulse` (3,) is that of the forces over the whole step.
    """
    _, _, widen, skew = _coefficients(half)
    across = jnp.cross(half, jnp.cross(half, momentum))
    return momentum - widen * across + 0.5 * skew * jnp.cross(half, impulse)


def spin_places(structure: Structure) -> np.ndarray:
    """List the indices in v (k, 3) of the angular velocities of all quaternions."""
    starts = np.array([start - k for k, start in enumerate(sorted(structure.quaternions))], int)
    return starts[:, None] + np.arange(3)


def by_spin(
    structure: Structure, rule: Callable[..., jax.Array], first: jax.Array, *rest: jax.Array
) -> jax.Array:
    """Replace the angular parts of `first` (nv,) by `rule` of those of all vectors; the others stay."""
    if not structure.quaternions:
        return first
    places = spin_places(structure)
    return first.at[places].set(jax.vmap(rule)(*(vector[places] for vector in (first, *rest))))


def skew_blocks(structure: Structure, vector: jax.Array) -> jax.Array:
    """Assemble a matrix (nv, nv) whose blocks of quaternions are those of the cross product with `vector`."""
    matrix = jnp.zeros((vector.size, vector.size), vector.dtype)
    if not structure.quaternions:
        return matrix
    x, y, z = spin_places(structure).T
    for row, column, value in ((z, y, x), (x, z, y), (y, x, z)):
        matrix = matrix.at[row, column].set(vector[value]).at[column, row].set(-vector[value])
    return matrix
