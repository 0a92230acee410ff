"""Where the bodies of a tree are, what each velocity does to them, and how points on them move.

A pose is composed of the frames from the world down to a body; a round of composition doubles the distance
of all of them, so a chain of 64 links takes seven rounds. All else is a product with a constant mask: the
velocity of body b is sum_j moves[b, j] S_j v_j, with the screw S_j in world axes about the origin of its tree.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxcontact import rotations
from jaxcontact.geometry import rows
from jaxcontact.mechanics.tree import Dofs, Tree, TreeParams, dofs, nodes, of_kind, roots, scalar_places
from jaxcontact.system import Motion, Params, Structure


class Frames(NamedTuple):
    """Frames in world axes after each joint, and of each body."""

    node_position: jax.Array  # (n, 3)
    node_rotation: jax.Array  # (n, 3, 3)
    position: jax.Array  # (nb, 3)
    rotation: jax.Array  # (nb, 3, 3)


class Screws(NamedTuple):
    """What each velocity does: angular velocity (nv, 3), and linear (nv, 3) of the point at `origin` (nv, 3)."""

    angular: jax.Array
    linear: jax.Array
    origin: jax.Array


def multiply(a: jax.Array, b: jax.Array) -> jax.Array:
    """Products of small matrices (n, 3, 3), written out: batches of them are slow as dot products."""
    return jnp.sum(a[:, :, :, None] * b[:, None], axis=2)


def rotate(a: jax.Array, x: jax.Array) -> jax.Array:
    """Matrices (n, 3, 3) times vectors (n, 3)."""
    return jnp.sum(a * x[:, None, :], axis=2)


def cross(a: jax.Array, b: jax.Array) -> jax.Array:
    """Cross products of vectors (n, 3)."""
    ahead, behind = (lambda x: jnp.roll(x, -1, axis=1)), (lambda x: jnp.roll(x, 1, axis=1))
    return ahead(a) * behind(b) - behind(a) * ahead(b)


def unit(x: jax.Array) -> jax.Array:
    """Vectors (n, m) over their lengths; where one is zero it stays so, and its derivative is zero."""
    square = jnp.sum(x**2, axis=1, keepdims=True)
    return x / jnp.sqrt(jnp.where(square > 0.0, square, 1.0))


def matrices(quaternions: jax.Array) -> jax.Array:
    """Rotation matrices (n, 3, 3) of quaternions (n, 4) of any length."""
    return jax.vmap(rotations.quaternion_matrix)(quaternions)


def scalar_positions(tree: Tree, q: jax.Array) -> jax.Array:
    """Angle or length (nj,) of each hinge and slide, 0 for the other joints."""
    joints, at_q, _ = scalar_places(tree)
    if len(joints) == len(tree.joints):
        return rows(q, at_q.tolist())
    return jnp.zeros(len(tree.joints), q.dtype).at[joints].set(q[at_q])


def _joint_motions(tree: Tree, numbers: TreeParams, q: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Rotation (nj, 3, 3) and shift (nj, 3) that each joint makes, in body axes."""
    kinds = np.array([joint.kind for joint in tree.joints])
    moved = scalar_positions(tree, q) - scalar_positions(tree, numbers.reference)
    axis = unit(numbers.axis)
    half = jnp.where(kinds == "hinge", 0.5 * moved, 0.0)[:, None]
    quaternion = jnp.concatenate([jnp.cos(half), jnp.sin(half) * axis], axis=1)
    shift = jnp.where(kinds == "slide", moved, 0.0)[:, None] * axis
    turning, free = of_kind(tree, "free", "ball"), of_kind(tree, "free")
    if turning.size:
        starts = np.array(tree.quaternions)[:, None] + np.arange(4)
        quaternion = quaternion.at[turning].set(q[starts])
    if free.size:
        starts = np.array(tree.position_starts)[free][:, None] + np.arange(3)
        shift = shift.at[free].set(q[starts])
    rotation = matrices(quaternion)
    return rotation, shift + numbers.anchor - rotate(rotation, numbers.anchor)


def place(tree: Tree, numbers: TreeParams, q: jax.Array) -> Frames:
    """All frames of a tree at a configuration q (nq,)."""
    table, dtype = nodes(tree), q.dtype
    turn, shift = _joint_motions(tree, numbers, q)
    eye = jnp.eye(3, dtype=dtype)
    fixed = (table.joint < 0)[:, None]
    joints = np.maximum(table.joint, 0).tolist()
    turn = jnp.where(fixed[:, :, None], eye[None], rows(turn, joints))
    shift = jnp.where(fixed, 0.0, rows(shift, joints))
    # A body's own frame comes before its first joint; that of a free joint is in q.
    bodies = table.body.tolist()
    kinds = np.array([tree.joints[j].kind if j >= 0 else "" for j in table.joint])
    own = (table.first & (kinds != "free"))[:, None]
    base = jnp.where(own[:, :, None], rows(matrices(numbers.orientation), bodies), eye[None])
    position = jnp.where(own, rows(numbers.position, bodies), 0.0) + rotate(base, shift)
    rotation = multiply(base, turn)
    for ancestor in table.jumps:
        above = jnp.concatenate([rotation, eye[None]])[ancestor]
        position = jnp.concatenate([position, jnp.zeros((1, 3), dtype)])[ancestor] + rotate(above, position)
        rotation = multiply(above, rotation)
    last = table.of_body.tolist()
    return Frames(position, rotation, rows(position, last), rows(rotation, last))


def tree_origins(tree: Tree, frames: Frames) -> jax.Array:
    """(nb, 3) the point about which each body's spatial vectors are taken: the first body of its tree.

    It moves along, so numbers stay small far from the world's origin. No result depends on it; a derivative
    takes it as fixed.
    """
    return lax.stop_gradient(rows(frames.position, roots(tree).tolist()))


def screws(tree: Tree, numbers: TreeParams, frames: Frames) -> Screws:
    """The screw of each velocity, in world axes about the origin of its tree."""
    table = dofs(tree)
    dtype = frames.position.dtype
    own = np.where(table.axis[:, None] >= 0, np.eye(3)[np.maximum(table.axis, 0)], 0.0)
    scalar = (table.axis < 0)[:, None]
    joint, node = table.joint.tolist(), table.node.tolist()
    local = jnp.where(scalar, rows(unit(numbers.axis), joint), jnp.asarray(own, dtype))
    rotation, position = rows(frames.node_rotation, node), rows(frames.node_position, node)
    along = rotate(rotation, local)
    if table.in_world.any():
        along = jnp.where(table.in_world[:, None], local, along)
    turns = table.turns[:, None]
    origin = lax.stop_gradient(rows(frames.position, table.root.tolist()))
    arm = position + rotate(rotation, rows(numbers.anchor, joint)) - origin
    angular = jnp.where(turns, along, 0.0)
    return Screws(angular, jnp.where(turns, cross(arm, along), along), origin)


def summed(mask: np.ndarray, *columns: jax.Array) -> tuple[jax.Array, ...]:
    """The products of a constant mask (n, m) with each of the columns (m, k)."""
    widths = [column.shape[1] for column in columns]
    total = jnp.asarray(mask, columns[0].dtype) @ jnp.concatenate(columns, axis=1)
    return tuple(jnp.split(total, np.cumsum(widths)[:-1].tolist(), axis=1))


def screw_rates(table: Dofs, screw: Screws, v: jax.Array) -> tuple[jax.Array, jax.Array]:
    """(dS_j/dt) v_j (nv, 3) twice, angular and linear: the frame in which S_j is fixed takes it along."""
    angular, linear = screw.angular * v[:, None], screw.linear * v[:, None]
    spin, drift = summed(table.before, angular, linear)
    return cross(spin, angular), cross(spin, linear) + cross(drift, angular)


def motion(structure: Structure, q: jax.Array, v: jax.Array, params: Params) -> tuple[Motion, Motion]:
    """Where bodies are and how fast they move, and the rates of all that while v stays as it is."""
    tree, numbers = structure.tree, params.tree
    frames, table = place(tree, numbers, q), dofs(tree)
    screw = screws(tree, numbers, frames)
    spin, drift = summed(table.moves, screw.angular * v[:, None], screw.linear * v[:, None])
    spin_rate, drift_rate = summed(table.moves, *screw_rates(table, screw, v))
    arm = frames.position - tree_origins(tree, frames)
    velocity = drift + cross(spin, arm)
    acceleration = drift_rate + cross(spin_rate, arm) + cross(spin, velocity)

    def turned(w: jax.Array, rotation: jax.Array) -> jax.Array:
        return jnp.cross(w[:, :, None], rotation, axis=1)

    turning = turned(spin, frames.rotation)
    turning_rate = turned(spin_rate, frames.rotation) + turned(spin, turning)
    now = Motion(frames.position, frames.rotation, velocity, turning)
    rate = Motion(velocity, turning, acceleration, turning_rate)
    return (now, rate) if structure.dim == 3 else (_in_plane(now), _in_plane(rate))


def point_jacobians(
    structure: Structure, q: jax.Array, params: Params, bodies: Sequence[int], points: jax.Array
) -> jax.Array:
    """(nc, dim, nv) velocity of world points (nc, dim) of these bodies, zero for the world, by each velocity."""
    tree = structure.tree
    frames = place(tree, params.tree, q)
    screw = screws(tree, params.tree, frames)
    if structure.dim == 2:
        points = jnp.stack([points[:, 0], jnp.zeros_like(points[:, 0]), points[:, 1]], axis=1)
    arm = points[:, None, :] - screw.origin[None]
    velocity = screw.linear[None] + jnp.cross(jnp.broadcast_to(screw.angular[None], arm.shape), arm)
    on_body = np.array(bodies) >= 0
    moves = np.where(on_body[:, None], dofs(tree).moves[np.maximum(bodies, 0)], 0.0)
    jacobian = jnp.swapaxes(jnp.asarray(moves, q.dtype)[:, :, None] * velocity, 1, 2)
    return jacobian if structure.dim == 3 else jacobian[:, ::2]


def _in_plane(motion: Motion) -> Motion:
    """The x-z plane of space as the plane."""
    return Motion(
        motion.position[:, ::2], motion.rotation[:, ::2, ::2], motion.velocity[:, ::2], motion.turning[:, ::2, ::2]
    )


def poses(structure: Structure, q: jax.Array, params: Params) -> tuple[jax.Array, jax.Array]:
    """Positions (nb, dim) and rotation matrices (nb, 3, 3), or angles (nb,) in the plane, of body frames."""
    tree = structure.tree
    frames = place(tree, params.tree, q)
    if structure.dim == 3:
        return frames.position, frames.rotation
    # Angles are counter-clockwise in the plane, hinges of MuJoCo turn from z to x.
    hinges = np.array([joint.kind == "hinge" for joint in tree.joints])
    moved = scalar_positions(tree, q) - scalar_positions(tree, params.tree.reference)
    turns = jnp.where(hinges, -jnp.sign(params.tree.axis[:, 1]) * moved, 0.0)
    joint_of = [dofs(tree).joint.tolist().index(j) for j in range(len(tree.joints))]
    moves = jnp.asarray(dofs(tree).moves[:, joint_of], q.dtype)
    return frames.position[:, ::2], moves @ turns
