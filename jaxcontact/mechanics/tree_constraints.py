"""What holds the joints of a tree: bounds, closed loops, couplings, dry friction; as deviations and rows.

A loop is closed by two points of bodies that coincide (`connect`), by two bodies that keep their relative
pose (`weld`), or by a polynomial between two joints or two tendons (MuJoCo: equality).
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from jaxcontact.algebra import rotations
from jaxcontact.mechanics import joints
from jaxcontact.mechanics.actuators import turns_from
from jaxcontact.mechanics.system import Params, Structure, System
from jaxcontact.mechanics.tendons import lengths
from jaxcontact.mechanics.tree import WORLD, Tree, TreeParams, scalar_places


def _joint_limits(tree: Tree, q: jax.Array, numbers: TreeParams) -> list[jax.Array]:
    """How far joints are from their lower, then from their upper bounds; then balls from theirs."""
    bounds = numbers.limits
    kept = [j for j, joint in enumerate(tree.joints) if joint.limited]
    scalar = np.array([j for j in kept if tree.joints[j].kind != "ball"], int)
    ball = np.array([j for j in kept if tree.joints[j].kind == "ball"], int)
    at = q[np.array(tree.position_starts, int)[scalar]]
    rows = [at - bounds[scalar, 0], bounds[scalar, 1] - at]
    if ball.size:
        square = jnp.sum(turns_from(tree, q, numbers.reference, ball) ** 2, axis=1)
        turned = square > 0.0
        rows.append(bounds[ball, 1] - jnp.where(turned, jnp.sqrt(jnp.where(turned, square, 1.0)), 0.0))
    return rows


def _couplings(tree: Tree, q: jax.Array, numbers: TreeParams) -> list[jax.Array]:
    """Deviations of joints and tendons that follow another one, or stand still."""
    _, at_q, _ = scalar_places(tree)
    moved = (q - numbers.reference)[np.array(tree.position_starts, int)]
    pulled = lengths(tree, (q - numbers.reference)[at_q], numbers)
    rows = []
    for k, loop in enumerate(tree.loops):
        if loop.kind in ("joint", "tendon"):
            place = moved if loop.kind == "joint" else pulled
            leader = jnp.zeros((), q.dtype) if loop.second == WORLD else place[loop.second]
            rows.append((place[loop.first] - jnp.polyval(numbers.loop_polynomial[k, ::-1], leader))[None])
    return rows


def constraints(structure: Structure, q: jax.Array, params: Params) -> tuple[jax.Array, jax.Array]:
    """Deviations of couplings, and how far joints and tendons are from their bounds (nl,)."""
    tree, numbers = structure.tree, params.tree
    held = [each for each, tendon in enumerate(tree.tendons) if tendon.limited]
    rows = _joint_limits(tree, q, numbers)
    if held:
        _, at_q, _ = scalar_places(tree)
        length, bounds = (
            lengths(tree, q[at_q], numbers)[np.array(held)],
            numbers.tendon_limits[np.array(held)],
        )
        rows += [length - bounds[:, 0], bounds[:, 1] - length]
    return jnp.concatenate([jnp.zeros(0, q.dtype), *_couplings(tree, q, numbers)]), jnp.concatenate(rows)


def closures(
    structure: Structure, positions: jax.Array, orientations: jax.Array, params: Params
) -> jax.Array:
    """Deviations (nb,) of loops between bodies in these frames: points in m, welded axes in rad."""
    dim, numbers = structure.dim, params.tree
    world = jnp.zeros(dim, positions.dtype), jnp.eye(dim, dtype=positions.dtype)
    rows = [jnp.zeros(0, positions.dtype)]
    for k, loop in enumerate(structure.tree.loops):
        if loop.kind not in ("connect", "weld"):
            continue
        at_first, at_second = numbers.loop_anchor[k] if dim == 3 else numbers.loop_anchor[k, :, ::2]
        first, second = (
            world if body == WORLD else (positions[body], orientations[body])
            for body in (loop.first, loop.second)
        )
        if loop.kind == "connect":
            rows.append(joints.ball(first, at_first, second, at_second))
        else:
            turn = rotations.quaternion_matrix(numbers.loop_turn[k])
            carried = joints.point(first, at_first), first[1] @ turn
            rows.append(joints.weld(carried, jnp.zeros_like(at_first), second, at_second))
    return jnp.concatenate(rows)


def dry_friction(structure: Structure, params: Params) -> tuple[jax.Array, jax.Array]:
    """Sliding (nd, nv) by velocity of joints and tendons with dry friction, and the most of it (nd,)."""
    tree, numbers = structure.tree, params.tree
    own = np.array(tree.dry, int)
    strung = np.array([each for each, tendon in enumerate(tree.tendons) if tendon.dry], int)
    rows = jnp.eye(tree.num_velocities, dtype=numbers.dry_friction.dtype)[own]
    return (
        jnp.concatenate([rows, numbers.tendon_moment[strung]]),
        jnp.concatenate([numbers.dry_friction[own], numbers.tendon_dry_friction[strung]]),
    )


def check_no_held_joints(system: System, what: str) -> None:
    """Raise ValueError where a tree has closed loops or dry friction, for a method that has neither."""
    tree = system.structure.tree
    if tree is not None and (tree.loops or tree.rubs):
        raise ValueError(
            f"system: {what} takes no closed loops (equality) and no dry friction (frictionloss); "
            "they are rows of compliant steps alone"
        )
