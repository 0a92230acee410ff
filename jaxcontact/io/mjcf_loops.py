"""Equalities, fixed tendons and dry friction of a compiled MuJoCo model, as parts of a tree.

Equalities and tendons that the mechanics lacks are not among them; `mjcf_support` names them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import jax
import numpy as np

from jaxcontact.io.mujoco_package import is_disabled, mujoco_package
from jaxcontact.mechanics.motion_equations import kinematics_of, mass_matrix_at
from jaxcontact.mechanics.system import Model
from jaxcontact.mechanics.tree import WORLD, Loop, Tendon
from jaxcontact.terms.joints import joint_rows
from jaxcontact.terms.records import BILATERAL

if TYPE_CHECKING:
    import mujoco

# Numbers that make a spatial tendon pull; one without any of these only measures, and is left out silently.
PULLS = (
    "tendon_stiffness", "tendon_damping", "tendon_frictionloss", "tendon_limited", "tendon_armature",
    "tendon_stiffnesspoly", "tendon_dampingpoly",
)  # fmt: skip
LOOPS = ("connect", "weld", "joint", "tendon")
CLOSING_TIME = 5e-4  # s; an open loop closes so, critically damped: motors open it less than one of MuJoCo
IMMOBILE = 1e-9  # of the largest mobility of a row; a row that nothing moves


def file_kind(mj: mujoco.MjModel, equality: int) -> str:
    """Return MuJoCo's word for the kind of an equality."""
    kinds = mujoco_package("load_mjcf").mjtEq
    return kinds(int(mj.eq_type[equality])).name.removeprefix("mjEQ_").lower()


def loop_kind(mj: mujoco.MjModel, equality: int) -> str:
    """Return the kind of loop of an equality; a weld with torque scale 0 holds a point only, as connect."""
    kind = file_kind(mj, equality)
    return "connect" if kind == "weld" and mj.eq_data[equality, 10] == 0.0 else kind


def active_loops(mj: mujoco.MjModel) -> list[int]:
    """List the indices of the equalities that are active when the model starts."""
    if is_disabled(mj, "equality", "constraint"):
        return []
    return [e for e in range(mj.neq) if mj.eq_active0[e]]


def supported_loops(mj: mujoco.MjModel) -> list[int]:
    """List the indices of the active equalities that become loops."""
    return [e for e in active_loops(mj) if file_kind(mj, e) in LOOPS and not on_spatial_tendon(mj, e)]


def on_spatial_tendon(mj: mujoco.MjModel, equality: int) -> bool:
    """Tell whether an equality couples a tendon that is not fixed."""
    ends = {int(mj.eq_obj1id[equality]), int(mj.eq_obj2id[equality])}
    return file_kind(mj, equality) == "tendon" and not ends <= {*fixed_tendons(mj), WORLD}


def _of_sites(mj: mujoco.MjModel, equality: int) -> bool:
    return bool(mj.eq_objtype[equality] == mujoco_package("load_mjcf").mjtObj.mjOBJ_SITE)


def loops_of(mj: mujoco.MjModel) -> tuple[Loop, ...]:
    """Return the loops, in the order of the file; body indices do not count the world."""
    loops = []
    tendon_at = {tendon: index for index, tendon in enumerate(fixed_tendons(mj))}
    for e in supported_loops(mj):
        kind, first, second = loop_kind(mj, e), int(mj.eq_obj1id[e]), int(mj.eq_obj2id[e])
        if kind == "tendon":
            first, second = tendon_at[first], tendon_at.get(second, WORLD)
        elif kind != "joint":
            if _of_sites(mj, e):
                first, second = (int(mj.site_bodyid[site]) for site in (first, second))
            first, second = first - 1, max(second - 1, WORLD)
        loops.append(Loop(kind=kind, first=first, second=second))
    return tuple(loops)


def loop_numbers(mj: mujoco.MjModel) -> dict[str, np.ndarray]:
    """Return the anchors, turns and polynomials of the loops."""
    equalities = supported_loops(mj)
    anchors, turns = np.zeros((len(equalities), 2, 3)), np.tile([1.0, 0.0, 0.0, 0.0], (len(equalities), 1))
    polynomials = np.zeros((len(equalities), 5))
    for row, e in enumerate(equalities):
        kind, data = file_kind(mj, e), np.array(mj.eq_data[e])
        if kind in ("joint", "tendon"):
            polynomials[row] = data[:5]
        elif _of_sites(mj, e):
            first, second = int(mj.eq_obj1id[e]), int(mj.eq_obj2id[e])
            anchors[row] = mj.site_pos[first], mj.site_pos[second]
            turns[row] = _relative_turn(mj.site_quat[first], mj.site_quat[second])
        elif kind == "connect":
            anchors[row] = data[:3], data[3:6]
        else:  # MuJoCo names the point of the second body first
            anchors[row], turns[row] = (data[3:6], data[:3]), data[6:10]
    return {"loop_anchor": anchors, "loop_turn": turns, "loop_polynomial": polynomials}


def _relative_turn(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Compute the quaternion of the second body in the axes of the first if two frames on them coincide."""
    mujoco = mujoco_package("load_mjcf")
    back, turn = np.zeros(4), np.zeros(4)
    mujoco.mju_negQuat(back, np.array(second, float))
    mujoco.mju_mulQuat(turn, np.array(first, float), back)
    return turn


def dry_frictions(mj: mujoco.MjModel) -> tuple[np.ndarray, np.ndarray]:
    """Return the largest dry friction of every velocity (nv,) and of every supported tendon (nt,)."""
    factor = 0.0 if is_disabled(mj, "frictionloss", "constraint") else 1.0
    return factor * np.array(mj.dof_frictionloss), factor * np.array(mj.tendon_frictionloss)[
        supported_tendons(mj)
    ]


def fixed_tendons(mj: mujoco.MjModel) -> list[int]:
    """List the indices of the tendons whose length is a sum of joint positions."""
    joint = int(mujoco_package("load_mjcf").mjtWrap.mjWRAP_JOINT)
    starts, counts = np.asarray(mj.tendon_adr), np.asarray(mj.tendon_num)
    return [
        t
        for t in range(mj.ntendon)
        if np.all(np.asarray(mj.wrap_type)[starts[t] : starts[t] + counts[t]] == joint)
    ]


def is_path(mj: mujoco.MjModel, tendon: int) -> bool:
    """Tell whether a tendon runs straight from site to site, without dry friction or inertia."""
    first = int(mj.tendon_adr[tendon])
    kinds = np.asarray(mj.wrap_type)[first : first + int(mj.tendon_num[tendon])]
    armature = getattr(mj, "tendon_armature", np.zeros(mj.ntendon))
    straight = np.all(kinds == int(mujoco_package("load_mjcf").mjtWrap.mjWRAP_SITE))
    return bool(straight) and not (mj.tendon_frictionloss[tendon] or armature[tendon])


def pulls(mj: mujoco.MjModel, tendon: int) -> bool:
    """Tell whether a tendon has a force of its own; one without only measures."""
    return any(np.any(np.asarray(getattr(mj, field))[tendon]) for field in PULLS if hasattr(mj, field))


def supported_tendons(mj: mujoco.MjModel) -> list[int]:
    """List the indices of the tendons that a tree has: fixed ones, then paths that pull."""
    fixed = fixed_tendons(mj)
    spatial = [t for t in range(mj.ntendon) if t not in fixed and pulls(mj, t) and is_path(mj, t)]
    return [*fixed, *spatial]


def _sites_of(mj: mujoco.MjModel, tendon: int) -> np.ndarray:
    """Return the indices of the sites of a path; none for a fixed tendon."""
    first, count = int(mj.tendon_adr[tendon]), int(mj.tendon_num[tendon])
    empty = tendon in fixed_tendons(mj)
    return np.asarray(mj.wrap_objid)[first : first + (0 if empty else count)]


def tendons_of(mj: mujoco.MjModel) -> tuple[Tendon, ...]:
    """Return the supported tendons."""
    limits_off = is_disabled(mj, "limit", "constraint")
    rubbing, heavy = dry_frictions(mj)[1], tendon_armature(mj)
    return tuple(
        Tendon(
            name=mj.tendon(t).name or f"tendon_{t}",
            limited=bool(mj.tendon_limited[t]) and not limits_off,
            dry=bool(rubbing[index]),
            heavy=bool(heavy[index]),
            path=tuple(int(mj.site_bodyid[site]) - 1 for site in _sites_of(mj, t)),
        )
        for index, t in enumerate(supported_tendons(mj))
    )


def tendon_armature(mj: mujoco.MjModel) -> np.ndarray:
    """Return the inertia (nt,) of the supported tendons; an older MuJoCo has none."""
    return np.asarray(getattr(mj, "tendon_armature", np.zeros(mj.ntendon)))[supported_tendons(mj)]


def tendon_moments(mj: mujoco.MjModel) -> np.ndarray:
    """Return the length (nt, nv) of each fixed tendon per position of each joint."""
    tendons = fixed_tendons(mj)
    moment = np.zeros((len(tendons), mj.nv))
    for row, t in enumerate(tendons):
        first = int(mj.tendon_adr[t])
        for k in range(first, first + int(mj.tendon_num[t])):
            moment[row, mj.jnt_dofadr[mj.wrap_objid[k]]] += mj.wrap_prm[k]
    return moment


def tendon_numbers(mj: mujoco.MjModel, springs: float, dampers: float) -> dict[str, np.ndarray]:
    """Return the numbers of tendons; `springs`, `dampers` are 0 if the file disables them, else 1."""
    tendons = supported_tendons(mj)
    paths = len(tendons) - len(fixed_tendons(mj))
    sites = np.concatenate([np.zeros(0, int), *(_sites_of(mj, t) for t in tendons)])
    inward = np.asarray(mj.tendon_margin)[tendons, None] * np.array([1.0, -1.0])
    return {
        "tendon_moment": np.concatenate([tendon_moments(mj), np.zeros((paths, mj.nv))]),
        "tendon_points": np.asarray(mj.site_pos).reshape(-1, 3)[sites],
        "tendon_stiffness": springs * np.asarray(mj.tendon_stiffness)[tendons],
        "tendon_damping": dampers * np.asarray(mj.tendon_damping)[tendons],
        "tendon_dry_friction": dry_frictions(mj)[1],
        "tendon_rest": np.asarray(mj.tendon_lengthspring)[tendons],
        "tendon_limits": np.asarray(mj.tendon_range)[tendons] + inward,
        "tendon_armature": tendon_armature(mj),
    }


def stiffen_loops(model: Model) -> Model:
    """Give each row of a loop the stiffer of two springs, that of the material or one of its effective mass.

    A row with G M^-1 G^T = 1/m at the initial state gets m / t^2 and 2 m / t, where t is `CLOSING_TIME`.
    """
    state, material = model.initial_state(), model.params.material
    kinematics = kinematics_of(model, state.q)
    (G, _, _), kinds, _ = joint_rows(model, state, kinematics)
    rows_of_loops = np.asarray(G)[: kinds.count(BILATERAL)]
    inverse = np.linalg.pinv(np.asarray(mass_matrix_at(model, state.q, kinematics)), hermitian=True)
    mobility = np.einsum("ri,ij,rj->r", rows_of_loops, inverse, rows_of_loops)
    largest = np.max(mobility, initial=0.0)
    if not largest > 0:
        return model
    mass = 1.0 / np.where(mobility > IMMOBILE * largest, mobility, largest)
    springs = material.stiffness
    stiffness, damping = (
        np.full(len(mass), np.asarray(x)) for x in (springs.joint_stiffness, springs.joint_damping)
    )
    rows = np.flatnonzero(mass > CLOSING_TIME**2 * stiffness)
    stiffness[rows], damping[rows] = mass[rows] / CLOSING_TIME**2, 2.0 * mass[rows] / CLOSING_TIME
    springs = springs.replace(
        joint_stiffness=jax.device_put(stiffness), joint_damping=jax.device_put(damping)
    )
    return model.replace(params=model.params.replace(material=material.replace(stiffness=springs)))
