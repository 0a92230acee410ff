"""Motion of mocap bodies by given poses, as the numbers of each step: `mocap_rows`, `apply_mocap`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxcontact._pytree import Record
from jaxcontact.algebra import rotations
from jaxcontact.arguments import check_array, check_type
from jaxcontact.mechanics.mocap_path import paths_of_poses, rotation_vector, spin_of
from jaxcontact.mechanics.system import Model
from jaxcontact.mechanics.tree import Tree, lineage

# Poses (T + 1, 7) of bodies by their names: position, m, quaternion; in the plane (T + 1, 3): x, z, angle.
Mocap = Mapping[str, jax.Array]


class MocapPoses(Record):
    """The poses of the nm mocap bodies at T + 1 times.

    Attributes:
        position: (T + 1, nm, 3) m.
        orientation: (T + 1, nm, 4) quaternion.
    """

    position: jax.Array
    orientation: jax.Array


class MocapRows(NamedTuple):
    """The motion of the nm mocap bodies in each of T steps.

    Attributes:
        position: (T, nm, 3) at the start of the step, m.
        orientation: (T, nm, 4) quaternion there.
        velocity: (T, 2, nm, 6), in the plane (T, 2, nm, 3): twists before the step and in it.
        path: (T, 6, nm, 6), in the plane (T, 6, nm, 3): smooth motion in it, as `paths_of_poses`; None of a
            single step.
    """

    position: jax.Array
    orientation: jax.Array
    velocity: jax.Array
    path: jax.Array | None


def mocap_rows(
    model: Model, mocap: Mocap | None, dt: jax.typing.ArrayLike, num_steps: int
) -> MocapRows | None:
    """Compute the motion of named bodies from their poses at the start of each step and at the end.

    A body moves in a step at the constant velocity that takes it from one pose to the next; it starts
    without a jump of velocity. Bodies without a name here stay at their pose in the file. None stays None.

    Raises:
        TypeError: no mapping from names to arrays.
        ValueError: no such mocap body, or an array of another shape.

    Derivative: exact by poses and dt.
    """
    poses = mocap_poses(model, mocap, num_steps)
    return None if poses is None else rows_of_poses(poses, dt, model.structure.dim)


def mocap_poses(model: Model, mocap: Mocap | None, num_steps: int) -> MocapPoses | None:
    """Check the poses of named bodies; return those of all mocap bodies, or None. Errors as `mocap_rows`."""
    if mocap is None:
        return None
    check_type("mocap", mocap, Mapping, '; expected such as {"table": poses}')
    poses_in_file = still_poses(model)
    if poses_in_file is None:
        raise ValueError("mocap: expected None, for the model has no mocap body that can move")
    names, dim = [model.structure.bodies[body] for body in model.structure.tree.mocap], model.structure.dim
    position = jnp.tile(poses_in_file.position, (num_steps + 1, 1, 1))
    orientation = jnp.tile(poses_in_file.orientation, (num_steps + 1, 1, 1))
    for name, poses in mocap.items():
        if name not in names:
            raise ValueError(f"mocap: expected names of mocap bodies, {', '.join(names)}; got {name!r}")
        check_array(f"mocap[{name!r}]", poses, (num_steps + 1, 7 if dim == 3 else 3))
        at, poses = names.index(name), jnp.asarray(poses, position.dtype)
        if dim == 3:
            position = position.at[:, at].set(poses[:, :3])
            orientation = orientation.at[:, at].set(poses[:, 3:])
        else:  # an angle from x to z turns about -y
            half, zero = 0.5 * poses[:, 2], jnp.zeros_like(poses[:, 2])
            position = position.at[:, at, ::2].set(poses[:, :2])
            turn = jnp.stack([jnp.cos(half), zero, -jnp.sin(half), zero], axis=1)
            orientation = orientation.at[:, at].set(turn)
    return MocapPoses(position=position, orientation=orientation)


def still_poses(model: Model) -> MocapPoses | None:
    """Return the poses (nm, ...) that the mocap bodies have in the file; None without any."""
    tree: Tree | None = model.structure.tree
    if tree is None or not tree.mocap:
        return None
    places, numbers = np.array(tree.mocap, int), model.params.tree
    return MocapPoses(position=numbers.position[places], orientation=numbers.orientation[places])


def rows_of_poses(poses: MocapPoses, dt: jax.typing.ArrayLike, dim: int) -> MocapRows:
    """Compute the motion in each step between poses."""
    position, orientation = poses.position, poses.orientation
    linear = jnp.diff(position, axis=0) / dt
    turned = jax.vmap(jax.vmap(rotation_vector))(orientation[:-1], orientation[1:]) / dt
    twist = jnp.concatenate([linear, turned], axis=2)
    if dim == 2:
        twist = jnp.stack([twist[..., 0], twist[..., 2], -twist[..., 4]], axis=-1)
    before = jnp.concatenate([twist[:1], twist[:-1]])
    path = paths_of_poses(position, orientation, dt, dim) if position.shape[0] > 2 else None
    return MocapRows(position[:-1], orientation[:-1], jnp.stack([before, twist], axis=1), path)


def apply_mocap(model: Model, row: MocapRows | None, start: jax.typing.ArrayLike) -> Model:
    """Put the mocap bodies of a model at the poses of a step, with its motion; None changes nothing.

    `start` is the time at the start of the step.
    """
    if row is None:
        return model
    moved = at_poses(model, MocapPoses(position=row.position, orientation=row.orientation))
    params = moved.params.replace(mocap_velocity=row.velocity, mocap_path=row.path)
    return moved.replace(params=params.replace(mocap_start=jnp.asarray(start, row.position.dtype)))


def at_poses(model: Model, poses: MocapPoses) -> Model:
    """Put the mocap bodies of a model at poses (nm, ...), at rest."""
    places, numbers = np.array(model.structure.tree.mocap, int), model.params.tree
    numbers = numbers.replace(
        position=numbers.position.at[places].set(poses.position),
        orientation=numbers.orientation.at[places].set(poses.orientation),
    )
    return model.replace(params=model.params.replace(tree=numbers))


def carry_mocap(model: Model, time: jax.Array) -> Model:
    """Move the mocap bodies of a model on for a time at the velocities that they have in a step."""
    velocity = model.params.mocap_velocity
    return model if velocity is None else _shift_mocap(model, time * velocity[1])


def at_time(model: Model, t: jax.Array) -> Model:
    """Put the mocap bodies of a model where their path in a step has them at a time, with rates."""
    params = model.params
    if params.mocap_path is None or params.mocap_start is None:
        return model
    path, count = params.mocap_path, params.mocap_path.shape[0]

    def evaluate(time: jax.Array) -> tuple[jax.Array, jax.Array]:
        shift = slope = jnp.zeros_like(path[0])
        for k in range(count - 1, -1, -1):  # Horner's rule
            shift, slope = path[k] + time * shift, shift + time * slope
        if path.shape[2] == 6:
            slope = slope.at[:, 3:].set(jax.vmap(spin_of)(shift[:, 3:], slope[:, 3:]))
        return shift, slope

    time = jnp.asarray(t, path.dtype) - params.mocap_start
    (shift, twist), (_, rate) = jax.jvp(evaluate, (time,), (jnp.ones_like(time),))
    moved = _shift_mocap(model, shift)
    velocity = jnp.stack([twist, twist, rate])
    return moved.replace(params=moved.params.replace(mocap_velocity=velocity, mocap_path=None))


def _shift_mocap(model: Model, shift: jax.Array) -> Model:
    """Move the mocap bodies of a model by shifts and rotation vectors (nm, 6), in the plane (nm, 3)."""
    tree, dim = model.structure.tree, model.structure.dim
    places, numbers = np.array(tree.mocap, int), model.params.tree
    if dim == 2:
        zero = jnp.zeros_like(shift[:, 0])
        shift = jnp.stack([shift[:, 0], zero, shift[:, 1], zero, -shift[:, 2], zero], axis=1)
    turns = jax.vmap(rotations.quaternion_exp)(shift[:, 3:])
    turned = jax.vmap(rotations.quaternion_product)(turns, numbers.orientation[places])
    position = numbers.position[places] + shift[:, :3]
    return at_poses(model, MocapPoses(position=position, orientation=turned))


def body_twists(
    model: Model, positions: jax.Array, velocity: jax.Array
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Return of each body the velocity and spin of the mocap body that carries it, and its lever from there.

    `velocity` (nm, 6), in the plane (nm, 3), are the twists of the mocap bodies at their origins. Bodies that
    none carries have zeros.
    """
    dim, places = model.structure.dim, np.array(model.structure.tree.mocap, int)
    carries = jnp.asarray(lineage(model.structure.tree)[:, places], velocity.dtype)  # (nb, nm)
    lever = jnp.sum(carries, axis=1, keepdims=True) * positions - carries @ positions[places]
    return carries @ velocity[:, :dim], carries @ velocity[:, dim:], lever


def across(spin: jax.Array, lever: jax.Array) -> jax.Array:
    """Compute the velocities (..., dim) of levers that turn at spins (..., 3), in the plane (..., 1)."""
    if lever.shape[-1] == 3:
        return jnp.cross(spin, lever)
    return spin * jnp.stack([-lever[..., 1], lever[..., 0]], axis=-1)
