"""Equalities, fixed tendons and dry friction of a compiled MuJoCo model, as parts of a tree."""

from __future__ import annotations

from typing import Any

import numpy as np

from jaxcontact.io.mujoco_package import mujoco_package
from jaxcontact.mechanics.tree import WORLD, Loop, Tendon

LOOPS = ("connect", "weld", "joint", "tendon")


def loop_kind(mj: Any, equality: int) -> str:
    """MuJoCo's word for the kind of an equality."""
    kinds = mujoco_package("load_mjcf").mjtEq
    return kinds(int(mj.eq_type[equality])).name.removeprefix("mjEQ_").lower()


def active_loops(mj: Any) -> list[int]:
    """Indices of the equalities that are active when the model starts."""
    if mj.opt.disableflags & int(mujoco_package("load_mjcf").mjtDisableBit.mjDSBL_EQUALITY):
        return []
    return [e for e in range(mj.neq) if mj.eq_active0[e]]


def loops_of(mj: Any) -> tuple[Loop, ...]:
    """The loops, in the order of the file; body indices do not count the world."""
    loops = []
    for e in active_loops(mj):
        kind, first, second = loop_kind(mj, e), int(mj.eq_obj1id[e]), int(mj.eq_obj2id[e])
        shift = 1 if kind in ("connect", "weld") else 0  # our bodies do not count the world
        loops.append(Loop(kind=kind, first=first - shift, second=max(second - shift, WORLD)))
    return tuple(loops)


def loop_numbers(mj: Any) -> dict[str, np.ndarray]:
    """Anchors, turns and polynomials of the loops."""
    equalities = active_loops(mj)
    anchors, turns = np.zeros((len(equalities), 2, 3)), np.tile([1.0, 0.0, 0.0, 0.0], (len(equalities), 1))
    polynomials = np.zeros((len(equalities), 5))
    for row, e in enumerate(equalities):
        kind, data = loop_kind(mj, e), np.array(mj.eq_data[e])
        if kind == "connect":
            anchors[row] = data[:3], data[3:6]
        elif kind == "weld":  # MuJoCo names the point of the second body first
            anchors[row], turns[row] = (data[3:6], data[:3]), data[6:10]
        else:
            polynomials[row] = data[:5]
    return {"loop_anchor": anchors, "loop_turn": turns, "loop_polynomial": polynomials}


def dry_frictions(mj: Any) -> tuple[np.ndarray, np.ndarray]:
    """Largest dry friction of every velocity (nv,) and tendon (nt,)."""
    disabled = mj.opt.disableflags & int(mujoco_package("load_mjcf").mjtDisableBit.mjDSBL_FRICTIONLOSS)
    factor = 0.0 if disabled else 1.0
    return factor * np.array(mj.dof_frictionloss), factor * np.array(mj.tendon_frictionloss)


def tendons_of(mj: Any) -> tuple[Tendon, ...]:
    """The tendons, in the order of the file."""
    limits_off = bool(mj.opt.disableflags & int(mujoco_package("load_mjcf").mjtDisableBit.mjDSBL_LIMIT))
    rubbing = dry_frictions(mj)[1]
    return tuple(
        Tendon(
            name=mj.tendon(t).name or f"tendon_{t}",
            limited=bool(mj.tendon_limited[t]) and not limits_off,
            dry=bool(rubbing[t]),
        )
        for t in range(mj.ntendon)
    )


def tendon_moments(mj: Any) -> np.ndarray:
    """Length (nt, nv) of each fixed tendon per position of each joint."""
    moment = np.zeros((mj.ntendon, mj.nv))
    for t in range(mj.ntendon):
        first = int(mj.tendon_adr[t])
        for k in range(first, first + int(mj.tendon_num[t])):
            moment[t, mj.jnt_dofadr[mj.wrap_objid[k]]] += mj.wrap_prm[k]
    return moment


def tendon_numbers(mj: Any, springs: float, dampers: float) -> dict[str, np.ndarray]:
    """The numbers of the tendons; `springs` and `dampers` are 0 where the file switches them off, else 1."""
    return {
        "tendon_moment": tendon_moments(mj),
        "tendon_stiffness": springs * np.array(mj.tendon_stiffness).reshape(mj.ntendon),
        "tendon_damping": dampers * np.array(mj.tendon_damping).reshape(mj.ntendon),
        "tendon_dry_friction": dry_frictions(mj)[1],
        "tendon_rest": np.array(mj.tendon_lengthspring).reshape(mj.ntendon, 2),
        "tendon_limits": np.array(mj.tendon_range).reshape(mj.ntendon, 2),
    }
