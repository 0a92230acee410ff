"""Kinematics of a tree: poses of its bodies, their motion under each velocity, Jacobians of points on them.

A pose composes the frames from the world down to a body. Each round of composition doubles the number of
frames in every pose, so a chain of 64 links takes seven rounds. All other quantities are products with a
constant mask: the motion of body b is sum_j moves[b, j] S_j v_j, with the screw S_j in world axes about the
origin of its tree. The entry function is `compute_kinematics`.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxcontact.batching.once import computed_once
from jaxcontact.mechanics.closed_forms import FrameMotion
from jaxcontact.mechanics.spatial import (
    Inertia,
    Screw,
    Vector,
    add,
    components,
    compose,
    cross,
    cross3,
    inertia_about,
    matrices,
    motion_cross,
    pick,
    placement,
    rotate,
    sum_along,
    transform,
    unit,
)
from jaxcontact.mechanics.system import Params, Structure
from jaxcontact.mechanics.tree import Tree, TreeParams, dofs, lineage, nodes, of_kind, roots, scalar_places
from jaxcontact.precision import jit


class Kinematics(NamedTuple):
    """A tree at one configuration, in world axes.

    Attributes:
        placement: (nb, 3, 4) rotation and position of every body.
        screws: (nv, 6) motion at one unit of each velocity, about the origin of its tree.
        motions: the screws by their components (nv,).
        origin: (nb, 3) origin of the tree of each body.
        inertias: spatial inertia of each body about the origin of its tree, components (nb,).
    """

    placement: jax.Array
    screws: jax.Array
    motions: Screw
    origin: jax.Array
    inertias: Inertia

    @property
    def position(self) -> jax.Array:
        """Positions (nb, 3) of the bodies."""
        return self.placement[:, :, 3]

    @property
    def rotation(self) -> jax.Array:
        """Rotation matrices (nb, 3, 3) of the bodies."""
        return self.placement[:, :, :3]


def scalar_positions(tree: Tree, q: jax.Array) -> jax.Array:
    """Return the angle or length (nj,) of each hinge and slide, 0 for the other joints."""
    joints, at_q, _ = scalar_places(tree)
    values = pick(q, at_q)
    if len(joints) == len(tree.joints):
        return values
    return jnp.zeros(len(tree.joints), q.dtype).at[joints].set(values)


def _joint_placements(tree: Tree, numbers: TreeParams, axis: jax.Array, q: jax.Array) -> jax.Array:
    """Compute the placement (nj, 3, 4) that each joint adds to its body, in body axes."""
    kinds = np.array([joint.kind for joint in tree.joints])
    displacement = scalar_positions(tree, q - numbers.reference)[:, None]
    half = jnp.asarray(0.5 * (kinds == "hinge")[:, None], q.dtype) * displacement
    quaternion = jnp.concatenate([jnp.cos(half), jnp.sin(half) * axis], axis=1)
    shift = jnp.asarray((kinds == "slide")[:, None], q.dtype) * displacement * axis
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
    """Compute the frames (n, 3, 4) of all nodes of a tree at q (nq,), in the world."""
    table = nodes(tree)
    identity = jnp.asarray(np.eye(3, 4)[None], q.dtype)
    joint_placements = jnp.concatenate([_joint_placements(tree, numbers, axis, q), identity])
    joint_placements = pick(joint_placements, np.where(table.joint < 0, len(tree.joints), table.joint))
    # The frame of a body comes before its first joint. A free joint has its whole frame in q.
    body_frames = jnp.concatenate([placement(matrices(numbers.orientation), numbers.position), identity])
    kinds = np.array([tree.joints[j].kind if j >= 0 else "" for j in table.joint])
    frames = compose(
        pick(body_frames, np.where(table.first & (kinds != "free"), table.body, len(tree.parents))),
        joint_placements,
    )
    for ancestor in table.jumps:
        frames = compose(pick(jnp.concatenate([frames, identity]), ancestor), frames)
    return frames


def _select_frames(frames: jax.Array, index: np.ndarray) -> jax.Array:
    """Return frames[index] (m, 3, 4), as a product: the compiler would compose a frame again for each use."""
    choice = jnp.asarray(np.arange(frames.shape[0]) == index[:, None], frames.dtype)
    return (choice @ frames.reshape(-1, 12)).reshape(-1, 3, 4)


def compute_kinematics(structure: Structure, q: jax.Array, params: Params) -> Kinematics:
    """Compute the kinematics of the tree of a structure at a configuration q (nq,).

    Screws are about the origin of the first body of their tree. This point moves with the tree, so numbers
    stay small far from the world's origin. No result depends on the point, and derivatives hold it fixed.
    """
    kinematics: Kinematics = _compute_kinematics(structure.tree, params.tree, params.mass, params.inertia, q)
    return kinematics


@functools.partial(
    jit, static_argnames="tree"
)  # a program that calls `compute_kinematics` twice compiles it once
def _compute_kinematics(
    tree: Tree, numbers: TreeParams, mass: jax.Array, inertia: jax.Array, q: jax.Array
) -> Kinematics:
    table, axis = dofs(tree), unit(numbers.axis)
    frames = place_nodes(tree, numbers, axis, q)
    bodies = _select_frames(frames, nodes(tree).of_body)
    origin = lax.stop_gradient(pick(bodies[:, :, 3], roots(tree)))
    constant_axes = jnp.asarray(
        np.where(table.axis[:, None] >= 0, np.eye(3)[np.maximum(table.axis, 0)], 0.0), q.dtype
    )
    local_axes = jnp.where((table.axis < 0)[:, None], pick(axis, table.joint), constant_axes)
    node_frames = _select_frames(frames, table.node)
    direction = jnp.where(table.in_world[:, None], local_axes, rotate(node_frames[:, :, :3], local_axes))
    arm = (
        node_frames[:, :, 3]
        + rotate(node_frames[:, :, :3], pick(numbers.anchor, table.joint))
        - pick(origin, table.body)
    )
    turns = jnp.asarray(table.turns[:, None], q.dtype)
    linear = turns * cross(arm, direction) + (1.0 - turns) * direction
    screws = computed_once(jnp.concatenate([turns * direction, linear], axis=1))
    x = components(screws)
    return Kinematics(
        bodies, screws, (x[:3], x[3:]), origin, _inertias(bodies, origin, numbers, mass, inertia)
    )


def _inertias(
    bodies: jax.Array, origin: jax.Array, numbers: TreeParams, mass: jax.Array, inertia: jax.Array
) -> Inertia:
    """Compute the inertia of each body about the origin of its tree, from placements (nb, 3, 4)."""
    if inertia.ndim == 1:  # in the plane: about the axis across it
        across = jnp.zeros((3, 3), inertia.dtype).at[1, 1].set(1.0)
        inertia = inertia[:, None, None] * across[None]
    rotation = components(bodies[:, :, :3])
    centre = add(components(bodies[:, :, 3] - origin), transform(rotation, components(numbers.com)))
    return computed_once(inertia_about(mass, centre, rotation, components(inertia)))


def body_motions(tree: Tree, kinematics: Kinematics, v: jax.Array) -> tuple[Screw, Screw]:
    """Compute the motions of the bodies, and the rates of these motions at constant v.

    A screw is fixed in a frame and moves with it: dS/dt = V x S, with V the motion of that frame.
    """
    table = dofs(tree)
    moved = jax.tree.map(lambda x: x * v, kinematics.motions)
    rates = computed_once(motion_cross(sum_along(table.before.T, moved), moved))
    motions: tuple[Screw, Screw] = sum_along(table.moves.T, (moved, rates))
    return motions


def frame_motion(
    structure: Structure, kinematics: Kinematics, v: jax.Array
) -> tuple[FrameMotion, FrameMotion]:
    """Compute the frames of the bodies with their rates, and the rates of both at constant v."""
    (spin, linear), (spin_rate, linear_rate) = body_motions(structure.tree, kinematics, v)
    arm = components(kinematics.position - kinematics.origin)
    velocity = add(linear, cross3(spin, arm))
    acceleration = add(add(linear_rate, cross3(spin_rate, arm)), cross3(spin, velocity))
    axes = components(jnp.swapaxes(kinematics.rotation, 1, 2))
    turning = [cross3(spin, axis) for axis in axes]
    turning_rate = [
        add(cross3(spin_rate, axis), cross3(spin, rate)) for axis, rate in zip(axes, turning, strict=True)
    ]

    def rows(vector: Vector) -> jax.Array:
        return jnp.stack(vector, axis=1)

    def columns(vectors: list[Vector]) -> jax.Array:
        return jnp.stack([rows(vector) for vector in vectors], axis=2)

    frames = FrameMotion(kinematics.position, kinematics.rotation, rows(velocity), columns(turning))
    rate = FrameMotion(frames.velocity, frames.turning, rows(acceleration), columns(turning_rate))
    return (frames, rate) if structure.dim == 3 else (_in_plane(frames), _in_plane(rate))


def point_jacobians(
    structure: Structure,
    kinematics: Kinematics,
    bodies: Sequence[int] | jax.Array,
    points: jax.Array,
    axes: jax.Array,
) -> jax.Array:
    """Compute velocities (nc, k, nv) along `axes` (nc, k, dim) of points (nc, dim) fixed to `bodies`.

    Each is for one unit of one velocity, hence the power of a unit force along the axis; zero for the world.
    """
    table, dtype = dofs(structure.tree), points.dtype
    # The world is the last row, index -1.
    moves_with_world = np.concatenate([table.moves, np.zeros_like(table.moves[:1])])
    if isinstance(bodies, jax.Array):
        moves = jnp.asarray(moves_with_world, dtype)[bodies]
    else:
        moves = jnp.asarray(moves_with_world[list(bodies)], dtype)
    wrench = unit_wrenches(structure, kinematics, bodies, points, axes)
    rates = (wrench.reshape(-1, 6) @ kinematics.screws.T).reshape(*axes.shape[:2], -1)
    return moves[:, None] * rates


def unit_wrenches(
    structure: Structure,
    kinematics: Kinematics,
    bodies: Sequence[int] | jax.Array,
    points: jax.Array,
    axes: jax.Array,
) -> jax.Array:
    """Compute wrenches (nc, k, 6) of unit forces along `axes` at points, about the origin of a body's tree.

    The origin of the world is arbitrary.
    """
    if structure.dim == 2:
        points, axes = (_into_space(x) for x in (points, axes))
    if isinstance(bodies, jax.Array):
        origin = kinematics.origin[bodies]
    else:
        origin = pick(kinematics.origin, np.maximum(bodies, 0))
    torque = cross3(_split_vectors((points - origin)[:, None]), _split_vectors(axes))
    return jnp.concatenate([jnp.stack(torque, axis=-1), axes], axis=-1)


def _split_vectors(x: jax.Array) -> Vector:
    """Split vectors (..., 3) into their three components (...)."""
    return x[..., 0], x[..., 1], x[..., 2]


def _into_space(x: jax.Array) -> jax.Array:
    """Put vectors (..., 2) of the plane into the x-z plane of space; return vectors (..., 3)."""
    return jnp.stack([x[..., 0], jnp.zeros_like(x[..., 0]), x[..., 1]], axis=-1)


def _in_plane(motion: FrameMotion) -> FrameMotion:
    """Project a motion of frames in space to the x-z plane."""
    return FrameMotion(
        motion.position[:, ::2],
        motion.rotation[:, ::2, ::2],
        motion.velocity[:, ::2],
        motion.turning[:, ::2, ::2],
    )


def poses(structure: Structure, q: jax.Array, params: Params) -> tuple[jax.Array, jax.Array]:
    """Compute positions (nb, dim) and rotations (nb, 3, 3), in the plane angles (nb,), of body frames."""
    tree, numbers = structure.tree, params.tree
    kinematics = compute_kinematics(structure, q, params)
    if structure.dim == 3:
        return kinematics.position, kinematics.rotation
    # Angles in the plane are counter-clockwise (x to z); hinges of MuJoCo turn from z to x.
    hinges = np.array([joint.kind == "hinge" for joint in tree.joints], float)
    turns = -jnp.asarray(hinges, q.dtype) * jnp.sign(numbers.axis[:, 1])
    first = [dofs(tree).joint.tolist().index(j) for j in range(len(tree.joints))]
    moves = jnp.asarray(dofs(tree).moves[:, first], q.dtype)
    angles = moves @ (turns * scalar_positions(tree, q - numbers.reference))
    if tree.mocap:
        places = np.array(tree.mocap, int)
        w, about_y = numbers.orientation[places, 0], numbers.orientation[places, 2]
        carries = jnp.asarray(lineage(tree)[:, places], q.dtype)
        angles = angles - carries @ (2.0 * jnp.arctan2(about_y, w))
    return kinematics.position[:, ::2], angles
