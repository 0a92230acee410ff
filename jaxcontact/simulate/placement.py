"""Robots on the ground, with named contacts at gap 0 or lowered to the first touch: `place_on_ground`."""

from __future__ import annotations

import functools
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxcontact import geometry
from jaxcontact._pytree import PyTree
from jaxcontact.algebra import implicit, small_dense
from jaxcontact.batching.bounded_loop import bounded_loop
from jaxcontact.front_door import checked
from jaxcontact.mechanics.configuration import retract
from jaxcontact.mechanics.motion_equations import mass_matrix
from jaxcontact.mechanics.system import Model, State, Structure
from jaxcontact.precision import jit
from jaxcontact.status import Info, Status, flag, is_finite
from jaxcontact.terms import contact_gaps
from jaxcontact.terms.contacts import body_motion
from jaxcontact.tolerances import HALF_DIGITS, rounding

MAX_ITERS = 50  # Newton iterations; a search that needs more ends with the bit MAX_ITERS
ROUND_OFF = 64.0  # machine epsilons of the largest coordinate (at least 1 m): largest gap that counts as 0
NOT_APPROACHING = 1e-9  # m per m; a smaller change of a gap by displacement is rounding: parallel to a wall
Groups = tuple[tuple[int, ...], ...]  # candidate contacts by name; the smallest gap of each becomes zero


class PlacementInfo(Info):
    """The outcome of `place_on_ground` beside the state.

    Attributes:
        status: uint32 bits of `Status`.
        residual: largest gap that is left, m.
        num_iters: int32, iterations.
    """


@checked()
def place_on_ground(
    model: Model, state: State, *, contacts: Sequence[str] | None = None
) -> tuple[State, PlacementInfo]:
    """Move a robot until it stands on shapes that are fixed to the world.

    With names of `contacts`, the smallest gap of each name to the world becomes 0 by the displacement
    d = M^-1 J^T lam, with the mass matrix and the rows of these gaps at `state`: the nearest configuration in
    the kinetic metric, to first order. Without names, the whole robot moves along gravity to its first touch.

    Args:
        model: the robot (its structure is static).
        state: the start; the velocity stays as it is.
        contacts: names of shapes (geoms) or bodies; None moves along gravity.

    Returns:
        The State, and PlacementInfo.

    Raises:
        TypeError: another kind of argument.
        ValueError: no shape or body has a name, or none of its contacts is with the world; without names,
            the robot has no contacts with the world.

    Status: MAX_ITERS if a gap is not 0 after 50 iterations, NONFINITE for gaps that are not finite, one of
        them if no shape is below; INVALID without names if joints hold the robot or gravity is 0, with names
        if no velocity changes a gap.

    Derivative: exact by state and params, any order, of the contacts that touch.
    """
    groups = _find_groups(model.structure, contacts)
    return _place_on_ground(model, groups, contacts is None, state)


def _find_groups(structure: Structure, contacts: Sequence[str] | None) -> Groups:
    """Find the candidate contacts with the world of every name, or all of them in one group."""
    if isinstance(contacts, str):
        raise TypeError(f"contacts: expected a sequence of names, got {contacts!r}")
    table, start = structure.shape_table, 0
    owned: dict[str, list[int]] = {}
    for pair in structure.pairs:
        count = geometry.num_contacts(structure.dim, table, (pair,))
        bodies = [getattr(table[name], "body", None) for name in pair]
        for name, body, other in zip(pair, bodies, reversed(bodies), strict=True):
            if body is not None and other is None:
                for key in {name, body}:
                    owned.setdefault(key, []).extend(range(start, start + count))
        start += count
    if contacts is None:
        every = sorted({index for indices in owned.values() for index in indices})
        if not every:
            raise ValueError(
                "model: the robot has no contacts with the world; `floor=` of load_mjcf adds one"
            )
        return (tuple(every),)
    if not contacts:
        raise ValueError("contacts: expected None or at least one name, got none")
    for name in contacts:
        if name not in owned:
            raise ValueError(
                f"contacts: expected names with contacts with the world, {', '.join(owned)}; got {name!r}"
            )
    return tuple(tuple(owned[name]) for name in contacts)


def _smallest_gaps(model: Model, groups: Groups, q: jax.Array) -> jax.Array:
    """Find the smallest gap (m,) of each group."""
    gaps = contact_gaps(model, q)
    return jnp.stack([jnp.min(gaps[np.array(group)]) for group in groups])


def _find_fall(model: Model, q: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Find the velocity (nv,) by which all bodies move along gravity at 1 m/s, and whether there is one."""
    strength = jnp.linalg.norm(lax.stop_gradient(model.params.gravity))
    direction = model.params.gravity / jnp.where(strength > 0, strength, 1.0)

    def speeds(v: jax.Array) -> jax.Array:
        rates = body_motion(model, q, v)
        return jnp.concatenate([rates.velocity.ravel(), rates.turning.ravel()])

    rows = jax.jacfwd(speeds)(jnp.zeros(model.structure.num_velocities, q.dtype))
    count = len(model.structure.bodies)
    wanted = jnp.concatenate([jnp.tile(direction, count), jnp.zeros(rows.shape[0] - count * direction.size)])
    down = implicit.solve_spd(rows.T @ rows, (rows.T @ wanted)[:, None])[:, 0]
    follows = jnp.max(jnp.abs(rows @ down - wanted)) < rounding(q.dtype, HALF_DIGITS)
    return down, follows & (strength > 0)


def _directions(
    model: Model, groups: Groups, along_gravity: bool, q: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Compute the displacements (nv, m) that close each group, and whether all of them exist."""
    if along_gravity:
        down, good = _find_fall(model, q)
        return down[:, None], good

    def gaps(d: jax.Array) -> jax.Array:
        return _smallest_gaps(model, groups, retract(model.system, q, d))

    rows = jax.jacfwd(gaps)(jnp.zeros(model.structure.num_velocities, q.dtype))
    response = implicit.solve_spd(mass_matrix(model, q), rows.T)
    size = jnp.sqrt(jnp.sum(lax.stop_gradient(rows * response.T), axis=1))
    return response / jnp.where(size > 0, size, 1.0)[None], jnp.all(size > 0)


def _gaps_after(
    groups: Groups, along_gravity: bool, data: tuple[Model, jax.Array], steps: jax.Array
) -> jax.Array:
    """Compute the gaps (m,) of the groups after the displacement by `steps` (m,)."""
    model, q = data
    directions, _ = _directions(model, groups, along_gravity, q)
    return _smallest_gaps(model, groups, retract(model.system, q, directions @ steps))


def _apply_inverse_slope(
    groups: Groups, along_gravity: bool, data: PyTree, steps: jax.Array, residual: jax.Array
) -> jax.Array:
    """Apply J^-1 to a residual, J the Jacobian of the gaps by `steps`; a generalized inverse if singular."""
    jacobian = jax.jacfwd(functools.partial(_gaps_after, groups, along_gravity, data))(steps)
    jacobian = lax.stop_gradient(jnp.where(jnp.abs(jacobian) < NOT_APPROACHING, 0.0, jacobian))
    inverse, _ = small_dense.generalized_inverse(jacobian)
    return inverse @ residual


@functools.partial(jit, static_argnames=("groups", "along_gravity"))
def _place_on_ground(
    model: Model, groups: Groups, along_gravity: bool, state: State
) -> tuple[State, PlacementInfo]:
    data = model, state.q
    fixed = lax.stop_gradient(data)
    gaps_after = functools.partial(_gaps_after, groups, along_gravity)
    newton = functools.partial(_apply_inverse_slope, groups, along_gravity)
    directions, good = _directions(model, groups, along_gravity, state.q)
    scale = jnp.maximum(1.0, jnp.max(jnp.abs(fixed[1])))
    allowed = ROUND_OFF * float(jnp.finfo(state.q.dtype).eps) * scale

    def searching(carry: tuple[jax.Array, jax.Array, jax.Array]) -> jax.Array:
        _, residual, tries = carry
        return (jnp.max(jnp.abs(residual)) > allowed) & (tries < MAX_ITERS)

    def improve(carry: tuple[jax.Array, jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array, jax.Array]:
        steps, residual, tries = carry
        steps = steps - newton(fixed, steps, residual)
        return steps, gaps_after(fixed, steps), tries + 1

    start = jnp.zeros(len(groups), state.q.dtype)
    steps, residual, tries = bounded_loop(
        searching, improve, (start, gaps_after(fixed, start), jnp.int32(0)), max_iters=MAX_ITERS
    )
    steps = implicit.attach(gaps_after, newton, data, lax.stop_gradient(steps))
    largest = jnp.max(jnp.abs(residual))
    status = (
        flag(~(jnp.isfinite(largest) & is_finite((state.v, state.t))), Status.NONFINITE)
        | flag(largest > allowed, Status.MAX_ITERS)
        | flag(~good, Status.INVALID)
    )
    info = PlacementInfo(status=status, residual=largest, num_iters=tries)
    return state.replace(q=retract(model.system, state.q, directions @ steps)), info
