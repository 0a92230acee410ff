"""Rows of joints at a state: closed loops, deviations, dry friction, limits; the entry is `joint_rows`."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp

from jaxcontact._pytree import PyTree
from jaxcontact.mechanics.closed_forms import FrameMotion
from jaxcontact.mechanics.configuration import position_rate, tangent_jacobian
from jaxcontact.mechanics.system import Model, State
from jaxcontact.terms.moved_frames import add_mocap_motion
from jaxcontact.terms.records import BILATERAL, DRY, LIMIT, Kind

Rows = tuple[jax.Array, jax.Array, jax.Array]  # G (n, nv), phi (n,), Gdot v (n,)


def joint_rows(
    model: Model, state: State, kinematics: PyTree
) -> tuple[Rows, tuple[Kind, ...], jax.Array | None]:
    """Compute all rows except contacts, their kinds, and the largest dry friction of each dry row or None."""
    structure, tree = model.structure, model.structure.tree
    nb, nl = count_constraints(model, state.q)
    no_rows = _still(jnp.zeros((0, structure.num_velocities), state.q.dtype))
    loop_rows, dry_rows, holonomic, dry = no_rows, no_rows, no_rows, None
    if nb + nl:
        holonomic = _holonomic_rows(model, state)
    if tree is not None and tree.closes:
        loop_rows = _closure_rows(model, state, kinematics)
    if tree is not None and tree.rubs:
        assert model.system.mechanics is not None
        sliding_jacobian, dry = model.system.mechanics.dry_friction(structure, model.params)
        dry_rows = _still(sliding_jacobian)
    row_groups = [
        loop_rows,
        [column[:nb] for column in holonomic],
        dry_rows,
        [column[nb:] for column in holonomic],
    ]
    G, phi, gdot_v = (jnp.concatenate(column) for column in zip(*row_groups, strict=True))
    kinds = (BILATERAL,) * (loop_rows[1].shape[0] + nb) + (DRY,) * dry_rows[1].shape[0]
    return (G, phi, gdot_v), kinds + (LIMIT,) * nl, dry


def _still(G: jax.Array) -> Rows:
    """Make rows with the Jacobian G, whose deviation and drift are zero."""
    return G, jnp.zeros(G.shape[0], G.dtype), jnp.zeros(G.shape[0], G.dtype)


def _closure_rows(model: Model, state: State, kinematics: PyTree) -> Rows:
    """Compute the rows of closed loops between bodies of a tree, whose motion has closed forms."""
    mechanics, structure = model.system.mechanics, model.structure
    assert mechanics is not None

    def motion_at(v: jax.Array) -> tuple[FrameMotion, FrameMotion]:
        return mechanics.motion(structure, kinematics, v)

    speed = functools.partial(closure_speed, model)
    body_motion, body_motion_rate = add_mocap_motion(model, motion_at(state.v))
    (phi, _), (_, drift) = jax.jvp(speed, (body_motion,), (body_motion_rate,))
    basis = jnp.eye(structure.num_velocities, dtype=state.q.dtype)
    return jax.vmap(lambda v: speed(motion_at(v)[0])[1], out_axes=-1)(basis), phi, drift


def closure_speed(model: Model, motion: FrameMotion) -> tuple[jax.Array, jax.Array]:
    """Compute the deviations (nb,) of closed loops between bodies that move so, and their rates."""
    mechanics = model.system.mechanics
    assert mechanics is not None
    deviation = functools.partial(mechanics.closures, model.structure, params=model.params)
    return jax.jvp(deviation, motion[:2], motion[2:])


def _holonomic_rows(model: Model, state: State) -> Rows:
    """Compute G, phi and Gdot v of the deviations of joints and of the limits."""
    q, v = state.q, state.v

    def holonomic(x: jax.Array) -> jax.Array:
        assert model.system.constraints is not None
        return jnp.concatenate(model.system.constraints(model.structure, x, model.params))

    def rate(x: jax.Array) -> tuple[jax.Array, jax.Array]:
        return jax.jvp(holonomic, (x,), (position_rate(model.system, x, v),))

    (phi, _), (_, drift) = jax.jvp(rate, (q,), (position_rate(model.system, q, v),))
    return tangent_jacobian(model.system, holonomic, q), phi, drift


def count_constraints(model: Model, q: jax.Array) -> tuple[int, int]:
    """Count the joint rows and the limit rows, from the shapes that `System.constraints` returns."""
    if model.system.constraints is None:
        return 0, 0
    outputs = jax.eval_shape(functools.partial(model.system.constraints, model.structure), q, model.params)
    shapes = [output.shape for output in outputs] if isinstance(outputs, tuple) else []
    if len(shapes) != 2 or any(len(shape) != 1 for shape in shapes):
        raise ValueError(
            f"system.constraints: expected two vectors (deviations, limits), got shapes {shapes or outputs}"
        )
    return shapes[0][0], shapes[1][0]
