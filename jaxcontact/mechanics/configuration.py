"""Calculus on configurations with quaternions: N(q), steps along tangents, derivatives along tangents."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from jaxcontact.algebra import rotations
from jaxcontact.arguments import check_array, is_concrete
from jaxcontact.mechanics.system import Structure, System


def velocity_map(system: System, q: jax.Array) -> jax.Array:
    """Return N(q) (nq, nv) with qdot = N(q) v."""
    structure = system.structure
    blocks, index = [], 0
    while index < structure.num_positions:
        if index in structure.quaternions:
            blocks.append(rotations.quaternion_rate_map(q[index : index + 4]))
            index += 4
        else:
            blocks.append(jnp.ones((1, 1), q.dtype))
            index += 1
    return jax.scipy.linalg.block_diag(*blocks)


def position_rate(system: System, q: jax.Array, v: jax.Array) -> jax.Array:
    """Return qdot = N(q) v (nq,) without forming N."""
    return _by_quaternion(
        system.structure, q, v, lambda _, speed: speed, lambda x, w: rotations.quaternion_rate_map(x) @ w
    )


def retract(system: System, q: jax.Array, delta: jax.Array) -> jax.Array:
    """Return the configuration (nq,) reached from q along the tangent step `delta` = v dt (nv,).

    Quaternions may have any length; the result has unit quaternions. A quaternion of length zero is no pose
    and gives NaN, because this function returns no status. A quaternion whose squares leave the range of
    floats also gives NaN.

    Raises:
        TypeError, ValueError: arrays of another shape or dtype; outside of jit, a quaternion of length zero.

    Derivative: exact, any order.
    """
    _check_tangent(system.structure, q, delta)

    def turned_by(quaternion: jax.Array, angle: jax.Array) -> jax.Array:
        turned = rotations.quaternion_product(quaternion, rotations.quaternion_exp(angle))
        square = jnp.sum(turned**2)
        return turned / jnp.sqrt(jnp.where((square > 0) & jnp.isfinite(square), square, jnp.nan))

    return _by_quaternion(system.structure, q, delta, jnp.add, turned_by)


def difference(system: System, q: jax.Array, other: jax.Array) -> jax.Array:
    """Return the tangent step (nv,) from q to another configuration (nq,), the inverse of `retract`.

    Rotations are at most pi. Both configurations have quaternions of any length but zero.

    Derivative: exact, any order, for rotations below pi.
    """
    structure = system.structure
    starts = sorted(structure.quaternions)
    pieces, i = [], 0
    for start in starts:
        pieces.append(other[i:start] - q[i:start])
        back = rotations.quaternion_conjugate(q[start : start + 4])
        pieces.append(rotations.quaternion_log(rotations.quaternion_product(back, other[start : start + 4])))
        i = start + 4
    return jnp.concatenate([*pieces, other[i:] - q[i:]])


def _check_tangent(structure: Structure, q: jax.Array, delta: jax.Array) -> None:
    check_array("q", q, (structure.num_positions,))
    check_array("delta", delta, (structure.num_velocities,))
    for start in structure.quaternions if is_concrete(q) else ():
        if not np.any(np.asarray(q)[start : start + 4]):
            raise ValueError(f"q: expected a quaternion at index {start}, got four zeros")


def _by_quaternion(
    structure: Structure,
    q: jax.Array,
    delta: jax.Array,
    other_rule: Callable[[jax.Array, jax.Array], jax.Array],
    quaternion_rule: Callable[[jax.Array, jax.Array], jax.Array],
) -> jax.Array:
    """Apply one rule to each quaternion (4,) and its delta (3,), another to the rest; return both (nq,)."""
    starts = sorted(structure.quaternions)
    if not starts:
        return other_rule(q, delta)
    period, rest = divmod(structure.num_positions, len(starts))
    if not rest and starts == list(range(starts[0], structure.num_positions, period)):
        # All bodies have the same layout, so each is one row: a hundred bodies compile like one.
        x, d, i = q.reshape(-1, period), delta.reshape(-1, period - 1), starts[0]
        quaternion_block = jax.vmap(quaternion_rule)(x[:, i : i + 4], d[:, i : i + 3])
        blocks = [other_rule(x[:, :i], d[:, :i]), quaternion_block, other_rule(x[:, i + 4 :], d[:, i + 3 :])]
        return jnp.concatenate(blocks, axis=1).ravel()
    pieces, i, j = [], 0, 0
    for k, start in enumerate(starts):  # each quaternion makes delta one shorter than q
        pieces.append(other_rule(q[i:start], delta[j : start - k]))
        pieces.append(quaternion_rule(q[start : start + 4], delta[start - k : start - k + 3]))
        i, j = start + 4, start - k + 3
    return jnp.concatenate([*pieces, other_rule(q[i:], delta[j:])])


def tangent_jacobian(system: System, function: Callable[[jax.Array], jax.Array], q: jax.Array) -> jax.Array:
    """Compute (df/dq) N(q), derivatives of `function(q)` along the tangent directions, last axis (nv,)."""

    def along(v: jax.Array) -> jax.Array:
        return jax.jvp(function, (q,), (position_rate(system, q, v),))[1]

    return jax.vmap(along, out_axes=-1)(jnp.eye(system.structure.num_velocities, dtype=q.dtype))
