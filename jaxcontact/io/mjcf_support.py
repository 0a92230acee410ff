"""Which elements of a MuJoCo model are supported, ignored with a warning, or refused by name."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from jaxcontact.io.mjcf_loops import LOOPS, active_loops, loop_kind
from jaxcontact.io.mujoco_package import mujoco_package

# Attributes of `<option>` that MuJoCo's solver reads and the methods of this package ignore.
SOLVER_OPTIONS = (
    "integrator", "cone", "jacobian", "solver", "iterations", "tolerance", "ls_iterations", "ls_tolerance",
    "noslip_iterations", "noslip_tolerance", "impratio", "ccd_iterations", "ccd_tolerance",
)  # fmt: skip
# (field, element, attribute): numbers of unsupported physics. MuJoCo before version 4 lacks some fields.
ABSENT = (
    ("dof_dampingpoly", "joint", "a polynomial damping"),
    ("jnt_stiffnesspoly", "joint", "a polynomial stiffness"),
    ("jnt_plasticadr", "joint", "plasticity"),
    ("body_gravcomp", "body", "gravcomp"),
    ("geom_fluid", "geom", "fluidshape"),
    ("geom_adhesion", "geom", "adhesion"),
    ("pair_adhesion", "pair", "adhesion"),
    ("geom_surfacevel", "geom", "a surface velocity"),
    ("actuator_damping", "actuator", "damping"),
    ("actuator_dampingpoly", "actuator", "a polynomial damping"),
    ("actuator_armature", "actuator", "armature"),
    ("actuator_delay", "actuator", "delay"),
    ("tendon_armature", "tendon", "armature"),
    ("tendon_stiffnesspoly", "tendon", "a polynomial stiffness"),
    ("tendon_dampingpoly", "tendon", "a polynomial damping"),
    ("tendon_actfrclimited", "tendon", "actuatorfrcrange"),
    ("tendon_plasticadr", "tendon", "plasticity"),
)

# Unsupported elements, with the field that counts them.
WITHOUT = {"flex": "nflex", "plugin": "nplugin"}
# Supported actuators: their transmission, and MuJoCo's words for dynamics, gain and bias.
TRANSMISSIONS = ("joint", "tendon")
ACTUATORS = {"dyntype": ("none",), "gaintype": ("fixed",), "biastype": ("none", "affine")}


OWNERS = {"jnt": "joints", "eq": "equalities"}


def refused(mj: Any) -> list[str]:
    """Names of the elements of a compiled model that the mechanics does not support."""
    return [*_whole_elements(mj), *_attributes(mj), *_tendons(mj), *_loops(mj), *_actuators(mj)]


def _whole_elements(mj: Any) -> Iterator[str]:
    for element, number in WITHOUT.items():
        count = getattr(mj, number)
        if count:
            yield f"{element} ({count} of them)"
    if mj.opt.density or mj.opt.viscosity:
        yield "fluid: option density or viscosity is not 0"
    if not mj.njnt:
        yield "no joints: nothing moves"


def _attributes(mj: Any) -> Iterator[str]:
    """Elements in which a number of unsupported physics is set."""
    for field, element, attribute in ABSENT:
        values = np.asarray(getattr(mj, field, np.zeros(0)))
        nothing = -1 if field.endswith("adr") else 0
        if not values.size:
            continue
        for i in np.flatnonzero(np.any(values.reshape(len(values), -1) != nothing, axis=1)):
            index = int(mj.dof_jntid[i]) if field.startswith("dof_") else int(i)
            yield f"{element} {_name(mj, element, index)!r}: {attribute}"


def _tendons(mj: Any) -> Iterator[str]:
    joint = int(mujoco_package("load_mjcf").mjtWrap.mjWRAP_JOINT)
    for tendon in range(mj.ntendon):
        first = int(mj.tendon_adr[tendon])
        if np.any(mj.wrap_type[first : first + int(mj.tendon_num[tendon])] != joint):
            yield f"tendon {_name(mj, 'tendon', tendon)!r}: spatial"


def _loops(mj: Any) -> Iterator[str]:
    site = int(mujoco_package("load_mjcf").mjtObj.mjOBJ_SITE)
    for e in active_loops(mj):
        kind, name = loop_kind(mj, e), mj.equality(e).name or f"equality_{e}"
        if kind not in LOOPS:
            yield f"equality {name!r}: {kind}"
        elif kind in ("connect", "weld") and mj.eq_objtype[e] == site:
            yield f"equality {name!r}: {kind} of sites; name bodies and an anchor"


def _actuators(mj: Any) -> Iterator[str]:
    for a in range(
        len(mj.actuator_trntype)
    ):  # not mj.nu: since MuJoCo 4 an actuator may have several controls
        transmission, joint = _word("Trn", mj.actuator_trntype[a]), int(mj.actuator_trnid[a, 0])
        reasons = []
        if transmission not in TRANSMISSIONS:
            reasons.append(f"transmission {transmission!r}")
        elif (
            transmission == "joint"
            and mj.actuator_biasprm[a, 1] != 0.0
            and _word("Joint", mj.jnt_type[joint]) in ("free", "ball")
        ):
            reasons.append("a position gain on a free or ball joint")
        for kind, supported in ACTUATORS.items():
            word = _word(kind.removesuffix("type").title(), getattr(mj, f"actuator_{kind}")[a])
            if word not in supported:
                reasons.append(f"{kind} {word!r}")
        if reasons:
            yield f"actuator {_name(mj, 'actuator', a)!r}: {', '.join(reasons)}"


def _word(kind: str, value: Any) -> str:
    """MuJoCo's word for a value of one of its enumerations."""
    return _as_word(getattr(mujoco_package("load_mjcf"), f"mjt{kind}")(int(value)))


def _as_word(member: Any) -> str:
    return str(member.name.partition("_")[2].lower())


def words(kind: str) -> list[str]:
    """All of MuJoCo's words for the values of one of its enumerations."""
    members = getattr(mujoco_package("load_mjcf"), f"mjt{kind}").__members__.values()
    return [_as_word(member) for member in members]


def ignored(mj: Any) -> list[str]:
    """Settings of MuJoCo's own contacts and solver that a compiled model sets and this package ignores."""
    mujoco = mujoco_package("load_mjcf")
    default_options, left_out = mujoco.MjOption(), []
    changed = [
        name for name in SOLVER_OPTIONS if getattr(mj.opt, name, 0) != getattr(default_options, name, 0)
    ]
    if changed:
        left_out.append(f"option {', '.join(changed)}")
    for kind in ("geom", "jnt", "pair", "eq"):
        reference = np.asarray(getattr(mj, f"{kind}_solref"))
        impedance = np.asarray(getattr(mj, f"{kind}_solimp"))
        attributes = [name for name, values, default in (
            ("solref", reference, (0.02, 1.0)), ("solimp", impedance, (0.9, 0.95, 0.001, 0.5, 2.0))
        ) if values.size and np.any(values != np.array(default))]  # fmt: skip
        attributes += [name for name in ("margin", "gap") if np.any(getattr(mj, f"{kind}_{name}", 0.0))]
        if attributes:
            left_out.append(f"{', '.join(attributes)} of {OWNERS.get(kind, kind + 's')}")
    if np.any(mj.geom_condim[(mj.geom_contype | mj.geom_conaffinity) > 0] > 3) or np.any(mj.pair_dim > 3):
        left_out.append("torsional and rolling friction (condim 4, 6)")
    if mj.npair and not np.array_equal(mj.pair_friction[:, 0], mj.pair_friction[:, 1]):
        left_out.append("the second tangent's friction of pairs")
    if len(active_loops(mj)) < mj.neq:
        left_out.append("equalities that are not active")
    if mj.nmocap:
        left_out.append("mocap: such bodies stand still")
    return left_out


def _name(mj: Any, element: str, index: int) -> str:
    if element == "pair":
        return str(index)
    return getattr(mj, element)(index).name or f"{element}_{index}"


def default_law(mj: Any) -> tuple[float, float]:
    """Stiffness (N/m) and damping (N s/m) of the default material.

    One contact carries the whole weight at a depth of 1 mm. The damping is critical for the whole mass on one
    contact.
    """
    mass = float(np.sum(mj.body_mass))
    stiffness = 9.81 * mass / 1e-3
    return stiffness, 2.0 * math.sqrt(stiffness * mass)
