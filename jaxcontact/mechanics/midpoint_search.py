"""Roots of the midpoint rule: simplified Newton (`search`), and rotations (`turn_free_bodies`)."""

from __future__ import annotations

import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import lax

from jaxcontact._pytree import PyTree
from jaxcontact.algebra import implicit
from jaxcontact.batching.bounded_loop import bounded_loop
from jaxcontact.mechanics.half_turns import spread, turn_back
from jaxcontact.tolerances import CONVERGED, NO_ENERGY

MAX_ITERS = 30  # iterations; a body that turns by half a radian in a step takes eight
ROUNDING = 50.0  # eps; a relative change of a velocity that counts as rounding
LOSS = 16.0  # ratio of a next change's energy to the one predicted; the change is at most four times as large
RESOLUTION = 16.0  # eps; a relative change of a position that counts as rounding


def search(
    equations: Callable[[jax.Array], tuple[jax.Array, PyTree]],
    invert: Callable[[jax.Array], jax.Array],
    start: jax.Array,
    first: tuple[jax.Array, PyTree],
    parts: jax.Array,
    resolution: jax.Array,
) -> tuple[jax.Array, jax.Array, PyTree, jax.Array]:
    """Find the rate w (nv,) with misfit zero; return it, its last change, the impulse, and success.

    `equations`(w) are the misfit and the impulse, `first` those at `start`; `invert` divides by the Jacobian.
    `parts` (nv,) are the sizes of the terms of a misfit, and a velocity of `resolution` moves positions by
    rounding. The search ends if a change of w, or the one that the last two predict next, has no energy next
    to the parts, or if changes of little energy, or below the resolution, do not become smaller. The impulse
    is that at the rate plus the last change.
    """
    eps = float(jnp.finfo(start.dtype).eps)
    rounding, close, small = (ROUNDING * eps) ** 2, eps**NO_ENERGY, eps**CONVERGED
    size = jnp.abs(parts @ invert(parts))

    def improve(carry: tuple, values: tuple[jax.Array, PyTree]) -> tuple:
        (k, w, _, last, largest, *_), (residual, impulse) = carry, values
        change = invert(residual)
        energy = jnp.abs(change @ residual)
        largest = jnp.maximum(largest, energy)
        scale = largest + size
        solved = energy <= rounding * scale
        following = LOSS * energy * (energy / jnp.where(last > 0, last, 1.0))
        solved = solved | ((k > 0) & (following <= rounding * scale) & (energy <= close * scale))
        minute = (energy <= small * scale) | (jnp.max(jnp.abs(change)) <= resolution)
        solved = solved | (minute & (energy > 0.25 * last))
        return k + 1, w - change, change, energy, largest, impulse, solved, solved | minute

    zero = jnp.zeros((), start.dtype)
    no = jnp.asarray(False)
    begin = jnp.int32(0), start, start, jnp.full_like(zero, jnp.inf), zero, first[1], no, no
    _, rate, change, _, _, impulse, _, solved = bounded_loop(
        lambda carry: (carry[0] < MAX_ITERS) & ~carry[6],
        lambda carry: improve(carry, equations(carry[1])),
        improve(begin, first),
        max_iters=MAX_ITERS - 1,
    )
    return rate, change, impulse, solved


def resolution_of(positions: jax.Array, dt: jax.Array) -> jax.Array:
    """Compute the velocity that moves positions, or angles of a radian, by rounding in dt."""
    return RESOLUTION * jnp.finfo(positions.dtype).eps * (1.0 + jnp.max(jnp.abs(positions))) / dt


def turn_free_bodies(
    inertia: jax.Array, spin: jax.Array, torque_impulse: jax.Array, dt: jax.Array
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Compute turning rates over a step, spins (nb, 3) at its end in body axes, and whether all are found.

    The angular momentum in space changes by the torque's impulse, given in the axes of the middle.
    """
    data = inertia, inertia * spin, torque_impulse, jnp.broadcast_to(dt, inertia.shape[:1])
    fixed = lax.stop_gradient(data)

    def one(inertia: jax.Array, momentum: jax.Array, impulse: jax.Array, dt: jax.Array) -> tuple:
        start = momentum / inertia
        turned = turn_back(momentum, 0.5 * dt * start)
        invert = functools.partial(_divide_by, inertia, -0.5 * dt * turned)
        parts = jnp.abs(momentum) + jnp.abs(impulse)
        resolution = resolution_of(jnp.zeros_like(start), dt)

        def equations(w: jax.Array) -> tuple[jax.Array, tuple[()]]:
            return _angular_misfit((inertia, momentum, impulse, dt), w), ()

        return search(equations, invert, start, equations(start), parts, resolution)

    rates, _, _, solved = jax.vmap(one)(*fixed)
    rates = jax.vmap(functools.partial(implicit.attach, _angular_misfit, _correct))(data, rates)

    def end(momentum: jax.Array, impulse: jax.Array, half: jax.Array) -> jax.Array:
        return turn_back(turn_back(momentum, half) + impulse, half)

    after = jax.vmap(end)(data[1], torque_impulse, 0.5 * dt * rates)
    return rates, after / inertia, jnp.all(solved)


def _angular_misfit(data: tuple, w: jax.Array) -> jax.Array:
    """Compute the misfit (3,) of a free body's angular momentum midway in a step that turns it at w."""
    inertia, momentum, impulse, dt = data
    half = 0.5 * dt * w
    return spread(inertia * w, half, impulse) - turn_back(momentum, half) - 0.5 * impulse


def _correct(data: tuple, w: jax.Array, residual: jax.Array) -> jax.Array:
    """Divide a residual (3,) by the Jacobian of `_angular_misfit`."""
    return implicit.positive_solver(jax.jacfwd(functools.partial(_angular_misfit, data))(w))(residual)


def _divide_by(diagonal: jax.Array, axis: jax.Array, rhs: jax.Array) -> jax.Array:
    """Solve diag(diagonal) x + axis x x = rhs for x (3,)."""
    a, b, c = diagonal
    inner = diagonal * axis
    cofactors = jnp.array([b * c, c * a, a * b])
    determinant = a * b * c + axis @ inner
    return (cofactors * rhs + axis * (axis @ rhs) - jnp.cross(inner, rhs)) / determinant
