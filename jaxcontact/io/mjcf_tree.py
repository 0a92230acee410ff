"""The tree of bodies of a compiled MuJoCo model: its topology and its numbers."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from jaxcontact.io.mjcf_loops import (
    dry_frictions,
    loop_numbers,
    loops_of,
    tendon_moments,
    tendon_numbers,
    tendons_of,
)
from jaxcontact.mechanics.tree import Joint, Tree, TreeParams

KINDS = ("free", "ball", "slide", "hinge")  # in the order of MuJoCo's mjtJoint


def names_of(mj: Any, count: int, element: Any, kind: str) -> tuple[str, ...]:
    """The name of each element; element i without a name in the file is called `kind`_i."""
    return tuple(element(i).name or f"{kind}_{i}" for i in range(count))


def body_names(mj: Any) -> tuple[str, ...]:
    """Names of all bodies except the world."""
    return names_of(mj, mj.nbody, mj.body, "body")[1:]


def tree_of(mj: Any) -> Tree:
    """The topology of a model; body 0 of MuJoCo is the world."""
    limits_off = bool(mj.opt.disableflags & (_bit("mjDSBL_LIMIT") | _bit("mjDSBL_CONSTRAINT")))
    joints = names_of(mj, mj.njnt, mj.joint, "joint")
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
        actuators=() if _actuation_off(mj) else names_of(mj, mj.nu, mj.actuator, "actuator"),
        springs=any(mj.jnt_stiffness[j] != 0.0 for j in turning),
        dry=tuple(int(i) for i in np.flatnonzero(dry_frictions(mj)[0])),
        loops=loops_of(mj),
        tendons=tendons_of(mj),
    )


def tree_numbers(mj: Any, moment: np.ndarray) -> TreeParams:
    """Frames, joints and actuators of a model; `moment` (nu, nv) is the transmission of its actuators."""
    active = slice(0, 0 if _actuation_off(mj) else mj.nu)
    springs = 0.0 if mj.opt.disableflags & _bit("mjDSBL_SPRING") else 1.0
    dampers = 0.0 if mj.opt.disableflags & _bit("mjDSBL_DAMPER") else 1.0
    control = _ranges(mj.actuator_ctrllimited, mj.actuator_ctrlrange)
    if mj.opt.disableflags & _bit("mjDSBL_CLAMPCTRL"):
        control = np.full_like(control, np.inf) * np.array([-1.0, 1.0])
    of_dof = mj.dof_jntid
    in_use = _in_use(mj)[active, None]
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
        "limits": mj.jnt_range,
        "moment": moment[active],
        "gain": np.where(in_use, mj.actuator_gainprm[active, :1], 0.0)[:, 0],
        "bias": np.where(
            in_use & (mj.actuator_biastype[active, None] == 1), mj.actuator_biasprm[active, :3], 0.0
        ),
        "control_range": control[active],
        "force_range": _ranges(mj.actuator_forcelimited, mj.actuator_forcerange)[active],
        "joint_force_range": _ranges(mj.jnt_actfrclimited, mj.jnt_actfrcrange)[of_dof],
        "dry_friction": dry_frictions(mj)[0],
        **loop_numbers(mj),
        **tendon_numbers(mj, springs, dampers),
    }
    return TreeParams(**jax.device_put({name: np.array(value, float) for name, value in numbers.items()}))


def inertia_tensors(mj: Any) -> np.ndarray:
    """Inertias (nb, 3, 3) about centres of mass, in body axes."""
    axes = np.stack([rotation(quaternion) for quaternion in mj.body_iquat[1:]])
    return np.einsum("bij,bj,bkj->bik", axes, mj.body_inertia[1:], axes)


def rotation(quaternion: np.ndarray) -> np.ndarray:
    """Rotation matrix (3, 3) of a unit quaternion (4,)."""
    import mujoco

    matrix = np.zeros(9)
    mujoco.mju_quat2Mat(matrix, np.array(quaternion, float))
    return matrix.reshape(3, 3)


def transmission(mj: Any) -> np.ndarray:
    """Generalized force (nu, nv) of each actuator at unit force; joints and fixed tendons."""
    import mujoco

    moment, tendons = np.zeros((mj.nu, mj.nv)), tendon_moments(mj)
    for a in range(mj.nu):
        target, gear = int(mj.actuator_trnid[a, 0]), mj.actuator_gear[a]
        if mj.actuator_trntype[a] == mujoco.mjtTrn.mjTRN_TENDON:
            moment[a] = gear[0] * tendons[target]
        else:
            first, kind = int(mj.jnt_dofadr[target]), KINDS[int(mj.jnt_type[target])]
            width = {"free": 6, "ball": 3}.get(kind, 1)
            moment[a, first : first + width] = gear[:width]
    return moment


def _first(values: np.ndarray) -> np.ndarray:
    return values if values.ndim == 1 else values[:, 0]


def _ranges(limited: np.ndarray, ranges: np.ndarray) -> np.ndarray:
    unlimited = np.array([-np.inf, np.inf])
    return np.where(np.asarray(limited, bool)[:, None], ranges, unlimited)


def _bit(name: str) -> int:
    import mujoco

    return int(getattr(mujoco.mjtDisableBit, name, 0))


def _in_use(mj: Any) -> np.ndarray:
    """Whether each actuator (nu,) is in a group that `option actuatorgroupdisable` leaves enabled."""
    disabled_groups = [group for group in range(31) if mj.opt.disableactuator >> group & 1]
    return ~np.isin(mj.actuator_group, disabled_groups)


def _actuation_off(mj: Any) -> bool:
    return bool(mj.opt.disableflags & _bit("mjDSBL_ACTUATION"))
