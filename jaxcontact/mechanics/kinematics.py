"""Where the bodies of a tree are, what each velocity does to them, and how points on them move.

A pose is composed of the frames from the world down to a body; a round of composition doubles the distance
of all of them, so a chain of 64 links takes seven rounds. All else is a product with a constant mask: the
motion of body b is sum_j moves[b, j] S_j v_j, with the screw S_j in world axes about the origin of its tree.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxcontact.mechanics.spatial import (
    MOTION_CROSS,
    bilinear,
    compose,
    cross,
    matrices,
    pick,
    placement,
    rotate,
    unit,
)
from jaxcontact.mechanics.system import FrameMotion, Params, Structure
from jaxcontact.mechanics.tree import Tree, TreeParams, dofs, nodes, of_kind, roots, scalar_places


class Kinematics(NamedTuple):
    """A tree at one configuration, in world axes.

    Attributes:
        placement: (nb, 3, 4) rotation and position of every body.
        screws: (nv, 6) motion that a unit of each velocity makes, about the origin of its tree.
        origin: (nb, 3) that origin, of each body's tree.
    """

    placement: jax.Array
    screws: jax.Array
    origin: jax.Array

    @property
    def position(self) -> jax.Array:
        """Positions (nb, 3) of the bodies."""
        return self.placement[:, :, 3]

    @property
    def rotation(self) -> jax.Array:
        """Rotation matrices (nb, 3, 3) of the bodies."""
        return self.placement[:, :, :3]


def scalar_positions(tree: Tree, q: jax.Array) -> jax.Array:
    """Angle or length (nj,) of each hinge and slide, 0 for the other joints."""
    joints, at_q, _ = scalar_places(tree)
    found = pick(q, at_q)
    if len(joints) == len(tree.joints):
        return found
    return jnp.zeros(len(tree.joints), q.dtype).at[joints].set(found)


def _joint_placements(tree: Tree, numbers: TreeParams, axis: jax.Array, q: jax.Array) -> jax.Array:
    """What each joint does to its body (nj, 3, 4), in body axes."""
    kinds = np.array([joint.kind for joint in tree.joints])
    moved = scalar_positions(tree, q - numbers.reference)[:, None]
    half = jnp.asarray(0.5 * (kinds == "hinge")[:, None], q.dtype) * moved
    quaternion = jnp.concatenate([jnp.cos(half), jnp.sin(half) * axis], axis=1)
    shift = jnp.asarray((kinds == "slide")[:, None], q.dtype) * moved * axis
    turning, free = of_kind(tree, "free", "ball"), of_kind(tree, "free")
    if turning.size:
        starts = np.array(tree.quaternions)[:, None] + np.arange(4)
        quaternion = quaternion.at[turning].set(q[starts])
    if free.size:
        starts = np.array(tree.position_starts)[free][:, None] + np.arange(3)
        shift = shift.at[free].set(q[starts])
    rotation = matrices(quaternion)
    return placement(rotation, shift + numbers.anchor - rotate(rotation, numbers.anchor))


def place_nodes(tree: Tree, numbers: TreeParams, axis: jax.Array, q: jax.Array) -> jax.Array:
    """Frames (n, 3, 4) of all nodes of a tree at q (nq,), in the world."""
    table = nodes(tree)
    still = jnp.asarray(np.eye(3, 4)[None], q.dtype)
    moved = jnp.concatenate([_joint_placements(tree, numbers, axis, q), still])
    moved = pick(moved, np.where(table.joint < 0, len(tree.joints), table.joint))
    # A body's own frame comes before its first joint; that of a free joint is in q.
    own = jnp.concatenate([placement(matrices(numbers.orientation), numbers.position), still])
    kinds = np.array([tree.joints[j].kind if j >= 0 else "" for j in table.joint])
    found = compose(
        pick(own, np.where(table.first & (kinds != "free"), table.body, len(tree.parents))), moved
    )
    for ancestor in table.jumps:
        found = compose(pick(jnp.concatenate([found, still]), ancestor), found)
    return found


@functools.partial(jax.jit, static_argnums=0)  # a program that asks for it twice has it once
def solve(tree: Tree, numbers: TreeParams, q: jax.Array) -> Kinematics:
    """Placements and screws of a tree at a configuration q (nq,).

    Screws are taken about the first body of their tree: it moves along, so numbers stay small far from the
    world's origin. No result depends on that point; a derivative takes it as fixed.
    """
    table, axis = dofs(tree), unit(numbers.axis)
    frames = place_nodes(tree, numbers, axis, q)
    bodies = pick(frames, nodes(tree).of_body)
    origin = lax.stop_gradient(pick(bodies[:, :, 3], roots(tree)))
    own = jnp.asarray(np.where(table.axis[:, None] >= 0, np.eye(3)[np.maximum(table.axis, 0)], 0.0), q.dtype)
    along = jnp.where((table.axis < 0)[:, None], pick(axis, table.joint), own)
    at = pick(frames, table.node)
    direction = jnp.where(table.in_world[:, None], along, rotate(at[:, :, :3], along))
    arm = at[:, :, 3] + rotate(at[:, :, :3], pick(numbers.anchor, table.joint)) - pick(origin, table.body)
    turns = jnp.asarray(table.turns[:, None], q.dtype)
    linear = turns * cross(arm, direction) + (1.0 - turns) * direction
    return Kinematics(bodies, jnp.concatenate([turns * direction, linear], axis=1), origin)


def body_motions(tree: Tree, found: Kinematics, v: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Motions (nb, 6) of the bodies, and their rates while v stays as it is.

    The frame in which a screw is fixed takes it along: dS/dt = V x S, with V of what moves that frame.
    """
    table = dofs(tree)
    own = found.screws * v[:, None]
    rates = bilinear(MOTION_CROSS, jnp.asarray(table.before, v.dtype) @ own, own)
    both = jnp.asarray(table.moves, v.dtype) @ jnp.concatenate([own, rates], axis=1)
    return both[:, :6], both[:, 6:]


def motion(
    structure: Structure, q: jax.Array, v: jax.Array, params: Params
) -> tuple[FrameMotion, FrameMotion]:
    """Where bodies are and how fast they move, and the rates of all that while v stays as it is."""
    found = solve(structure.tree, params.tree, q)
    now, later = body_motions(structure.tree, found, v)
    spin, spin_rate = now[:, :3], later[:, :3]
    arm = found.position - found.origin
    velocity = now[:, 3:] + cross(spin, arm)
    acceleration = later[:, 3:] + cross(spin_rate, arm) + cross(spin, velocity)

    def turned(w: jax.Array, rotation: jax.Array) -> jax.Array:
        return jnp.cross(w[:, :, None], rotation, axis=1)

    turning = turned(spin, found.rotation)
    turning_rate = turned(spin_rate, found.rotation) + turned(spin, turning)
    first = FrameMotion(found.position, found.rotation, velocity, turning)
    rate = FrameMotion(velocity, turning, acceleration, turning_rate)
    return (first, rate) if structure.dim == 3 else (_in_plane(first), _in_plane(rate))


def point_jacobians(
    structure: Structure, q: jax.Array, params: Params, bodies: Sequence[int] | jax.Array, points: jax.Array
) -> jax.Array:
    """(nc, dim, nv) velocity of world points (nc, dim) of bodies by each velocity; zero for the world."""
    tree = structure.tree
    found, table = solve(tree, params.tree, q), dofs(tree)
    if structure.dim == 2:
        points = jnp.stack([points[:, 0], jnp.zeros_like(points[:, 0]), points[:, 1]], axis=1)
    angular, linear = found.screws[:, :3], found.screws[:, 3:]
    arm = points[:, None, :] - pick(found.origin, table.body)[None]
    turned = cross(jnp.broadcast_to(angular[None], arm.shape).reshape(-1, 3), arm.reshape(-1, 3))
    known = np.concatenate([table.moves, np.zeros_like(table.moves[:1])])  # the world comes last, at -1
    moves = jnp.asarray(known, q.dtype)[bodies] if isinstance(bodies, jax.Array) else known[list(bodies)]
    velocity = jnp.asarray(moves, q.dtype)[:, :, None] * (linear[None] + turned.reshape(arm.shape))
    jacobian = jnp.swapaxes(velocity, 1, 2)
    return jacobian if structure.dim == 3 else jacobian[:, ::2]


def _in_plane(motion: FrameMotion) -> FrameMotion:
    """The x-z plane of space as the plane."""
    return FrameMotion(
        motion.position[:, ::2],
        motion.rotation[:, ::2, ::2],
        motion.velocity[:, ::2],
        motion.turning[:, ::2, ::2],
    )


def poses(structure: Structure, q: jax.Array, params: Params) -> tuple[jax.Array, jax.Array]:
    """Positions (nb, dim) and rotation matrices (nb, 3, 3), or angles (nb,) in the plane, of body frames."""
    tree, numbers = structure.tree, params.tree
    found = solve(tree, numbers, q)
    if structure.dim == 3:
        return found.position, found.rotation
    # Angles are counter-clockwise in the plane, hinges of MuJoCo turn from z to x.
    hinges = np.array([joint.kind == "hinge" for joint in tree.joints], float)
    turns = -jnp.asarray(hinges, q.dtype) * jnp.sign(numbers.axis[:, 1])
    first = [dofs(tree).joint.tolist().index(j) for j in range(len(tree.joints))]
    moves = jnp.asarray(dofs(tree).moves[:, first], q.dtype)
    return found.position[:, ::2], moves @ (turns * scalar_positions(tree, q - numbers.reference))
