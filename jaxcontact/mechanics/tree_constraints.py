"""Constraints on the joints of a tree: bounds, closed loops, couplings and dry friction.

Three kinds of equality (MuJoCo's word) close a loop: two points of bodies coincide (`connect`), two bodies
keep their relative pose (`weld`), or a polynomial couples two joints or two tendons.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from jaxcontact.algebra import rotations
from jaxcontact.mechanics import joints
from jaxcontact.mechanics.actuators import turns_from
from jaxcontact.mechanics.system import Params, Structure, System
from jaxcontact.mechanics.tendons import fixed_lengths, lengths
from jaxcontact.mechanics.tree import WORLD, Tree, TreeParams, scalar_places


def _joint_limits(tree: Tree, q: jax.Array, numbers: TreeParams) -> list[jax.Array]:
    """Compute the slack of joints to their lower, then upper bounds; then the slack of balls to theirs."""
    bounds = numbers.limits
    limited = [j for j, joint in enumerate(tree.joints) if joint.limited]
    scalar = np.array([j for j in limited if tree.joints[j].kind != "ball"], int)
    ball = np.array([j for j in limited if tree.joints[j].kind == "ball"], int)
    position = q[np.array(tree.position_starts, int)[scalar]]
    rows = [position - bounds[scalar, 0], bounds[scalar, 1] - position]
    if ball.size:
        square = jnp.sum(turns_from(tree, q, numbers.reference, ball) ** 2, axis=1)
        turned = square > 0.0
        rows.append(bounds[ball, 1] - jnp.where(turned, jnp.sqrt(jnp.where(turned, square, 1.0)), 0.0))
    return rows


def _couplings(tree: Tree, q: jax.Array, numbers: TreeParams) -> list[jax.Array]:
    """Compute the deviations of joints and tendons that follow another one, or that stay at a constant."""
    _, at_q, _ = scalar_places(tree)
    joint_positions = (q - numbers.reference)[np.array(tree.position_starts, int)]
    tendon_lengths = fixed_lengths(tree, (q - numbers.reference)[at_q], numbers)
    rows = []
    for k, loop in enumerate(tree.loops):
        if loop.kind in ("joint", "tendon"):
            coordinates = joint_positions if loop.kind == "joint" else tendon_lengths
            leader = jnp.zeros((), q.dtype) if loop.second == WORLD else coordinates[loop.second]
            rows.append(
                (coordinates[loop.first] - jnp.polyval(numbers.loop_polynomial[k, ::-1], leader))[None]
            )
    return rows


def constraints(structure: Structure, q: jax.Array, params: Params) -> tuple[jax.Array, jax.Array]:
    """Compute the deviations of couplings, and the slack (nl,) of joints and tendons to their bounds."""
    tree, numbers = structure.tree, params.tree
    limited_tendons = [index for index, tendon in enumerate(tree.tendons) if tendon.limited]
    rows = _joint_limits(tree, q, numbers)
    if limited_tendons:
        length, bounds = (
            lengths(structure, q, numbers)[np.array(limited_tendons)],
            numbers.tendon_limits[np.array(limited_tendons)],
        )
        rows += [length - bounds[:, 0], bounds[:, 1] - length]
    return jnp.concatenate([jnp.zeros(0, q.dtype), *_couplings(tree, q, numbers)]), jnp.concatenate(rows)


def closures(
    structure: Structure, positions: jax.Array, orientations: jax.Array, params: Params
) -> jax.Array:
    """Compute deviations (nb,) of loops between bodies with these frames: points in m, welded axes in rad."""
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
            relative_rotation = rotations.quaternion_matrix(numbers.loop_turn[k])
            welded_frame = joints.point(first, at_first), first[1] @ relative_rotation
            rows.append(joints.weld(welded_frame, jnp.zeros_like(at_first), second, at_second))
    return jnp.concatenate(rows)


def dry_friction(structure: Structure, params: Params) -> tuple[jax.Array, jax.Array]:
    """Return the sliding Jacobian (nd, nv) of dry joints and tendons, and their largest friction (nd,)."""
    tree, numbers = structure.tree, params.tree
    dry_velocities = np.array(tree.dry, int)
    dry_tendons = np.array([index for index, tendon in enumerate(tree.tendons) if tendon.dry], int)
    rows = jnp.eye(tree.num_velocities, dtype=numbers.dry_friction.dtype)[dry_velocities]
    return (
        jnp.concatenate([rows, numbers.tendon_moment[dry_tendons]]),
        jnp.concatenate([numbers.dry_friction[dry_velocities], numbers.tendon_dry_friction[dry_tendons]]),
    )


def check_no_held_joints(system: System, method: str) -> None:
    """Raise ValueError if a tree has closed loops or dry friction, which `method` does not support."""
    tree = system.structure.tree
    if tree is not None and (tree.loops or tree.rubs):
        raise ValueError(
            f"system: {method} takes no closed loops (equality) and no dry friction (frictionloss); "
            "EventDriven, TimeStepping and Compliant have both"
        )
