"""What of MuJoCo's models is there, what is left out with a note, and what is refused by its name."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from jaxcontact.io.mjcf_loops import LOOPS, active_loops, loop_kind
from jaxcontact.io.mujoco_package import mujoco_package

# Of `<option>`: what MuJoCo's solver reads and our methods do not.
SOLVER_OPTIONS = (
    "integrator", "cone", "jacobian", "solver", "iterations", "tolerance", "ls_iterations", "ls_tolerance",
    "noslip_iterations", "noslip_tolerance", "impratio", "ccd_iterations", "ccd_tolerance",
)  # fmt: skip
# (field, element, attribute): numbers of physics that is not there; MuJoCo before 4 lacks some of the fields.
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

# Whole elements that are not there, with what counts them.
WITHOUT = {"flex": "nflex", "plugin": "nplugin"}
# What an actuator may be: its transmission, and MuJoCo's words for dynamics, gain and bias.
TRANSMISSIONS = ("joint", "tendon")
ACTUATORS = {"dyntype": ("none",), "gaintype": ("fixed",), "biastype": ("none", "affine")}


OWNERS = {"jnt": "joints", "eq": "equalities"}


def refused(mj: Any) -> list[str]:
    """The elements of a compiled model that the mechanics lacks, each by its name."""
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
    """Elements with a number that is not what "absent" is."""
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
    for a in range(len(mj.actuator_trntype)):  # since MuJoCo 4 one may have several controls
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
        for kind, there in ACTUATORS.items():
            found = _word(kind.removesuffix("type").title(), getattr(mj, f"actuator_{kind}")[a])
            if found not in there:
                reasons.append(f"{kind} {found!r}")
        if reasons:
            yield f"actuator {_name(mj, 'actuator', a)!r}: {', '.join(reasons)}"


def _word(kind: str, value: Any) -> str:
    """MuJoCo's word for a value of one of its enumerations."""
    return _as_word(getattr(mujoco_package("load_mjcf"), f"mjt{kind}")(int(value)))


def _as_word(member: Any) -> str:
    return str(member.name.partition("_")[2].lower())


def words(kind: str) -> list[str]:
    """All of MuJoCo's words of one of its enumerations."""
    members = getattr(mujoco_package("load_mjcf"), f"mjt{kind}").__members__.values()
    return [_as_word(member) for member in members]


def ignored(mj: Any) -> list[str]:
    """What a compiled model sets that is left out: settings of MuJoCo's own contacts and solver."""
    mujoco = mujoco_package("load_mjcf")
    usual, found = mujoco.MjOption(), []
    changed = [name for name in SOLVER_OPTIONS if getattr(mj.opt, name, 0) != getattr(usual, name, 0)]
    if changed:
        found.append(f"option {', '.join(changed)}")
    for kind in ("geom", "jnt", "pair", "eq"):
        reference = np.asarray(getattr(mj, f"{kind}_solref"))
        impedance = np.asarray(getattr(mj, f"{kind}_solimp"))
        own = [name for name, values, default in (
            ("solref", reference, (0.02, 1.0)), ("solimp", impedance, (0.9, 0.95, 0.001, 0.5, 2.0))
        ) if values.size and np.any(values != np.array(default))]  # fmt: skip
        own += [name for name in ("margin", "gap") if np.any(getattr(mj, f"{kind}_{name}", 0.0))]
        if own:
            found.append(f"{', '.join(own)} of {OWNERS.get(kind, kind + 's')}")
    if np.any(mj.geom_condim[(mj.geom_contype | mj.geom_conaffinity) > 0] > 3) or np.any(mj.pair_dim > 3):
        found.append("torsional and rolling friction (condim 4, 6)")
    if mj.npair and not np.array_equal(mj.pair_friction[:, 0], mj.pair_friction[:, 1]):
        found.append("the second tangent's friction of pairs")
    if len(active_loops(mj)) < mj.neq:
        found.append("equalities that are not active")
    if mj.nmocap:
        found.append("mocap: such bodies stand still")
    return found


def _name(mj: Any, element: str, index: int) -> str:
    if element == "pair":
        return str(index)
    return getattr(mj, element)(index).name or f"{element}_{index}"


def default_law(mj: Any) -> tuple[float, float]:
    """Stiffness (N/m) and damping (N s/m) of constraints: one contact carries all weight at a depth of 1 mm.

    Damping is critical for the whole mass on one contact.
    """
    mass = float(np.sum(mj.body_mass))
    stiffness = 9.81 * mass / 1e-3
    return stiffness, 2.0 * math.sqrt(stiffness * mass)
