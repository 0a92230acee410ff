"""Rows of joints at a state: closed loops, deviations, dry friction, limits."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp

from jaxcontact.mechanics.configuration import position_rate, tangent_jacobian
from jaxcontact.mechanics.system import FrameMotion, Params, State, System
from jaxcontact.terms.records import BILATERAL, DRY, LIMIT, Kind

Rows = tuple[jax.Array, jax.Array, jax.Array]  # G (n, nv), phi (n,), Gdot v (n,)


def joint_rows(
    system: System, params: Params, state: State
) -> tuple[Rows, tuple[Kind, ...], jax.Array | None]:
    """All rows but contacts, their kinds, and the most of dry friction; None without any."""
    structure, tree = system.structure, system.structure.tree
    nb, nl = count_constraints(system, params, state.q)
    none = _still(jnp.zeros((0, structure.num_velocities), state.q.dtype))
    loops, slides, others, dry = none, none, none, None
    if nb + nl:
        others = _holonomic_rows(system, params, state)
    if tree is not None and tree.closes:
        loops = _closure_rows(system, params, state)
    if tree is not None and tree.rubs:
        assert system.mechanics is not None
        sliding, dry = system.mechanics.dry_friction(structure, params)
        slides = _still(sliding)
    parts = [loops, [each[:nb] for each in others], slides, [each[nb:] for each in others]]
    G, phi, gdot_v = (jnp.concatenate(column) for column in zip(*parts, strict=True))
    held = (BILATERAL,) * (loops[1].shape[0] + nb) + (DRY,) * slides[1].shape[0]
    return (G, phi, gdot_v), held + (LIMIT,) * nl, dry


def _still(G: jax.Array) -> Rows:
    """Rows without deviation or drift."""
    return G, jnp.zeros(G.shape[0], G.dtype), jnp.zeros(G.shape[0], G.dtype)


def _closure_rows(system: System, params: Params, state: State) -> Rows:
    """Rows of loops between bodies; of a tree, whose motion has closed forms."""
    mechanics, structure = system.mechanics, system.structure
    assert mechanics is not None

    def moving(v: jax.Array) -> tuple[FrameMotion, FrameMotion]:
        return mechanics.motion(structure, state.q, v, params)

    def deviation(positions: jax.Array, orientations: jax.Array) -> jax.Array:
        return mechanics.closures(structure, positions, orientations, params)

    def speed(motion: FrameMotion) -> tuple[jax.Array, jax.Array]:
        return jax.jvp(deviation, motion[:2], motion[2:])

    now, rate = moving(state.v)
    (phi, _), (_, drift) = jax.jvp(speed, (now,), (rate,))
    basis = jnp.eye(structure.num_velocities, dtype=state.q.dtype)
    return jax.vmap(lambda v: speed(moving(v)[0])[1], out_axes=-1)(basis), phi, drift


def _holonomic_rows(system: System, params: Params, state: State) -> Rows:
    """G, phi and Gdot v of the deviations of joints and of the limits."""
    q, v = state.q, state.v

    def holonomic(x: jax.Array) -> jax.Array:
        assert system.constraints is not None
        return jnp.concatenate(system.constraints(system.structure, x, params))

    def rate(x: jax.Array) -> tuple[jax.Array, jax.Array]:
        return jax.jvp(holonomic, (x,), (position_rate(system, x, v),))

    (phi, _), (_, drift) = jax.jvp(rate, (q,), (position_rate(system, q, v),))
    return tangent_jacobian(system, holonomic, q), phi, drift


def count_constraints(system: System, params: Params, q: jax.Array) -> tuple[int, int]:
    """Number of joint and of limit rows, found without computing them."""
    if system.constraints is None:
        return 0, 0
    found = jax.eval_shape(functools.partial(system.constraints, system.structure), q, params)
    shapes = [each.shape for each in found] if isinstance(found, tuple) else []
    if len(shapes) != 2 or any(len(shape) != 1 for shape in shapes):
        raise ValueError(
            f"system.constraints: expected two vectors (deviations, limits), got shapes {shapes or found}"
        )
    return shapes[0][0], shapes[1][0]
