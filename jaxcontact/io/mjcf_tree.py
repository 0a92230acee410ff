"""The tree of bodies of a compiled MuJoCo model: topology (`tree_of`) and numbers (`tree_numbers`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import jax
import numpy as np

from jaxcontact._pytree import PyTree
from jaxcontact.io.mjcf_actuators import (
    KINDS,
    actuator_armature,
    actuator_numbers,
    control_names,
    ranges_of,
)
from jaxcontact.io.mjcf_loops import (
    dry_frictions,
    loop_numbers,
    loops_of,
    tendon_numbers,
    tendons_of,
)
from jaxcontact.io.mujoco_package import is_disabled
from jaxcontact.mechanics.tree import Joint, Tree, TreeParams

if TYPE_CHECKING:
    import mujoco

LEAST_INERTIA = 1e-15  # kg or kg m^2, MuJoCo's smallest number, below which a body has no drag


def names_of(count: int, element: Callable[[int], PyTree], kind: str) -> tuple[str, ...]:
    """Return the name of each element; element i without a name in the file is called `kind`_i."""
    return tuple(element(i).name or f"{kind}_{i}" for i in range(count))


def body_names(mj: mujoco.MjModel) -> tuple[str, ...]:
    """Return the names of all bodies except the world."""
    return names_of(mj.nbody, mj.body, "body")[1:]


def tree_of(mj: mujoco.MjModel) -> Tree:
    """Make the topology of a model; body 0 of MuJoCo is the world."""
    limits_off = is_disabled(mj, "limit", "constraint")
    joints = names_of(mj.njnt, mj.joint, "joint")
    kinds = [KINDS[int(kind)] for kind in mj.jnt_type]
    turning = [j for j, kind in enumerate(kinds) if kind in ("free", "ball")]
    return Tree(
        parents=tuple(int(parent) - 1 for parent in mj.body_parentid[1:]),
        joints=tuple(
            Joint(
                name=name,
                kind=kinds[j],
                body=int(mj.jnt_bodyid[j]) - 1,
                limited=bool(mj.jnt_limited[j]) and not limits_off,
            )
            for j, name in enumerate(joints)
        ),
        actuators=() if is_disabled(mj, "actuation") else control_names(mj),
        springs=any(mj.jnt_stiffness[j] != 0.0 for j in turning),
        dry=tuple(int(i) for i in np.flatnonzero(dry_frictions(mj)[0])),
        loops=loops_of(mj),
        tendons=tendons_of(mj),
        rotors=bool(np.any(actuator_armature(mj))),
        lifted=bool(np.any(_gravcomp(mj))),
        drags=bool(np.any(_drag(mj))),
        mocap=movable_mocap(mj),
    )


def movable_mocap(mj: mujoco.MjModel) -> tuple[int, ...]:
    """Return the mocap bodies, without the world, that given poses may move.

    Joints of a body that one carries would feel its acceleration, and so would a tendon that ends on one.
    """
    parents, bound = np.asarray(mj.body_parentid), {int(mj.jnt_bodyid[j]) for j in range(mj.njnt)}
    bound |= {body + 1 for tendon in tendons_of(mj) for body in tendon.path}
    carriers = set()
    for body in bound:
        while body > 0:
            carriers.add(body)
            body = int(parents[body])
    mocap = np.flatnonzero(np.asarray(mj.body_mocapid) >= 0)
    return tuple(int(body) - 1 for body in mocap if int(body) not in carriers)


def tree_numbers(mj: mujoco.MjModel) -> TreeParams:
    """Collect the numbers of frames, joints, actuators, loops and tendons of a model."""
    springs, dampers = (0.0 if is_disabled(mj, word) else 1.0 for word in ("spring", "damper"))
    of_dof, inward = mj.dof_jntid, np.asarray(mj.jnt_margin)[:, None] * np.array([1.0, -1.0])
    numbers = {
        "position": mj.body_pos[1:],
        "orientation": mj.body_quat[1:],
        "com": mj.body_ipos[1:],
        "anchor": mj.jnt_pos,
        "axis": mj.jnt_axis,
        "reference": mj.qpos0,
        "armature": mj.dof_armature,
        "damping": dampers * mj.dof_damping,
        "stiffness": springs * _first(mj.jnt_stiffness),
        "rest": mj.qpos_spring,
        "limits": mj.jnt_range + inward,
        "joint_force_range": ranges_of(mj.jnt_actfrclimited, mj.jnt_actfrcrange)[of_dof],
        "dry_friction": dry_frictions(mj)[0],
        "gravcomp": _gravcomp(mj),
        "drag": _drag(mj),
        "drag_axes": np.stack([rotation(quaternion) for quaternion in mj.body_iquat[1:]]),
        "wind": mj.opt.wind,
        **actuator_numbers(mj),
        **loop_numbers(mj),
        **tendon_numbers(mj, springs, dampers),
    }
    return TreeParams(**jax.device_put({name: np.array(value, float) for name, value in numbers.items()}))


def _is_passive_off(mj: mujoco.MjModel) -> bool:
    """Tell whether MuJoCo skips drag and gravcomp: both flags of its passive forces are off."""
    return is_disabled(mj, "spring") and is_disabled(mj, "damper")


def _gravcomp(mj: mujoco.MjModel) -> np.ndarray:
    return np.array(mj.body_gravcomp[1:]) * (not _is_passive_off(mj))


def _drag(mj: mujoco.MjModel) -> np.ndarray:
    """Compute the coefficients (nb, 4, 3) of a fluid on the box of equal inertia of each body.

    Viscosity acts as on a sphere, density on the area across (MuJoCo's documentation, fluid forces, "inertia
    model"). A body without mass has no box; one with a `fluidshape` has a model of its own.
    """
    mass = np.asarray(mj.body_mass[1:])
    inertia = np.asarray(mj.body_inertia[1:])
    square = np.maximum(inertia.sum(axis=1, keepdims=True) - 2.0 * inertia, LEAST_INERTIA)
    massless = mass < LEAST_INERTIA
    box = np.sqrt(6.0 * square / np.where(massless, 1.0, mass)[:, None])
    diameter, product = box.mean(axis=1, keepdims=True) * np.ones((1, 3)), box.prod(axis=1, keepdims=True)
    fourth = (box**4).sum(axis=1, keepdims=True) - box**4
    drag = np.stack(
        [
            3.0 * np.pi * mj.opt.viscosity * diameter,
            0.5 * mj.opt.density * product / box,
            np.pi * mj.opt.viscosity * diameter**3,
            mj.opt.density * box * fourth / 64.0,
        ],
        axis=1,
    )
    bodies = np.arange(1, mj.nbody)
    shaped = np.isin(bodies, np.asarray(mj.geom_bodyid)[np.any(mj.geom_fluid, axis=1)])
    drag[shaped | massless] = 0.0
    if _is_passive_off(mj):
        drag[:] = 0.0
    return drag


def inertia_tensors(mj: mujoco.MjModel) -> np.ndarray:
    """Compute the inertias (nb, 3, 3) about centres of mass, in body axes."""
    axes = np.stack([rotation(quaternion) for quaternion in mj.body_iquat[1:]])
    return np.einsum("bij,bj,bkj->bik", axes, mj.body_inertia[1:], axes)


def rotation(quaternion: np.ndarray) -> np.ndarray:
    """Compute the rotation matrix (3, 3) of a unit quaternion (4,)."""
    import mujoco

    matrix = np.zeros(9)
    mujoco.mju_quat2Mat(matrix, np.array(quaternion, float))
    return matrix.reshape(3, 3)


def _first(values: np.ndarray) -> np.ndarray:
    return values if values.ndim == 1 else values[:, 0]
