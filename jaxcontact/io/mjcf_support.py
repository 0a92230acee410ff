"""Elements of a MuJoCo model that are refused by name (`refused`) or ignored with a warning (`ignored`)."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from jaxcontact.io.mjcf_actuators import KINDS, unsupported_reasons
from jaxcontact.io.mjcf_loops import (
    LOOPS,
    active_loops,
    file_kind,
    on_spatial_tendon,
    pulls,
    supported_tendons,
)
from jaxcontact.io.mjcf_tree import movable_mocap
from jaxcontact.io.mujoco_package import is_disabled, mujoco_package

if TYPE_CHECKING:
    import mujoco

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
    ("geom_fluid", "geom", "fluidshape"),
    ("geom_adhesion", "geom", "adhesion"),
    ("pair_adhesion", "pair", "adhesion"),
    ("actuator_damping", "actuator", "damping"),
    ("actuator_dampingpoly", "actuator", "a polynomial damping"),
    ("actuator_delay", "actuator", "delay"),
    ("tendon_stiffnesspoly", "tendon", "a polynomial stiffness"),
    ("tendon_dampingpoly", "tendon", "a polynomial damping"),
    ("tendon_actfrclimited", "tendon", "actuatorfrcrange"),
    ("tendon_plasticadr", "tendon", "plasticity"),
)
# (field, element, attribute): numbers that must be finite and not negative.
NOT_NEGATIVE = (
    ("body_mass", "body", "mass"),
    ("body_inertia", "body", "inertia"),
    ("dof_armature", "joint", "armature"),
    ("dof_frictionloss", "joint", "frictionloss"),
    ("jnt_stiffness", "joint", "stiffness"),
    ("geom_friction", "geom", "friction"),
    ("pair_friction", "pair", "friction"),
    ("tendon_stiffness", "tendon", "stiffness"),
    ("tendon_frictionloss", "tendon", "frictionloss"),
    ("tendon_armature", "tendon", "armature"),
    ("actuator_armature", "actuator", "armature"),
    ("actuator_damping", "actuator", "damping"),
)
# (field, element, attribute): numbers that must be finite.
FINITE = (
    ("body_pos", "body", "pos"),
    ("body_gravcomp", "body", "gravcomp"),
    ("jnt_pos", "joint", "pos"),
    ("dof_damping", "joint", "damping"),
    ("geom_pos", "geom", "pos"),
    ("geom_size", "geom", "size"),
    ("geom_margin", "geom", "margin"),
    ("geom_surfacevel", "geom", "surfacevel"),
    ("actuator_gear", "actuator", "gear"),
    ("actuator_gainprm", "actuator", "gain"),
    ("actuator_biasprm", "actuator", "bias"),
    ("tendon_damping", "tendon", "damping"),
    ("tendon_lengthspring", "tendon", "springlength"),
)
# Unsupported elements, with the field that counts them.
WITHOUT = {"flex": "nflex"}
OWNERS = {"jnt": "joints", "eq": "equalities"}


def refused(mj: mujoco.MjModel) -> list[str]:
    """List the elements of a compiled model that the mechanics does not support, by name."""
    return [
        *_list_refused_elements(mj),
        *_list_refused_attributes(mj),
        *_list_refused_tendons(mj),
        *_list_refused_loops(mj),
        *_list_refused_actuators(mj),
    ]


def bad_numbers(mj: mujoco.MjModel) -> list[str]:
    """List the elements with an infinite number, or with a negative number that must not be negative."""
    table = [(*row, True) for row in NOT_NEGATIVE] + [(*row, False) for row in FINITE]
    lines = []
    for field, element, attribute, from_zero in table:
        values = np.asarray(getattr(mj, field, np.zeros(0)), float)
        values = values.reshape(len(values), -1 if values.size else 0)
        bad = np.isinf(values) | (from_zero & (values < 0.0))
        for i in np.flatnonzero(bad.any(axis=1)):
            index = int(mj.dof_jntid[i]) if field.startswith("dof_") else int(i)
            expected = "finite numbers >= 0" if from_zero else "finite numbers"
            got = " ".join(f"{x:g}" for x in values[i])
            lines.append(
                f"{element} {_name(mj, element, index)!r}: {attribute}: expected {expected}, got {got}"
            )
    if not np.all(np.isfinite(mj.opt.gravity)):
        lines.append(f"option: gravity: expected finite numbers, got {mj.opt.gravity}")
    return list(dict.fromkeys(lines))


def _list_refused_elements(mj: mujoco.MjModel) -> Iterator[str]:
    """Name the elements that are refused whatever they are, and plugins that move something."""
    for element, number in WITHOUT.items():
        count = getattr(mj, number)
        if count:
            yield f"{element} ({count} of them)"
    for field in ("body_plugin", "geom_plugin", "actuator_plugin"):  # a plugin of a sensor moves nothing
        element = field.partition("_")[0]
        for i in np.flatnonzero(np.asarray(getattr(mj, field, np.zeros(0))) >= 0) if mj.nplugin else ():
            yield f"{element} {_name(mj, element, int(i))!r}: plugin"


def _list_refused_attributes(mj: mujoco.MjModel) -> Iterator[str]:
    """Yield the elements in which a number of unsupported physics is set."""
    for field, element, attribute in ABSENT:
        values = np.asarray(getattr(mj, field, np.zeros(0)))
        nothing = -1 if field.endswith("adr") else 0
        if not values.size:
            continue
        for i in np.flatnonzero(np.any(values.reshape(len(values), -1) != nothing, axis=1)):
            index = int(mj.dof_jntid[i]) if field.startswith("dof_") else int(i)
            yield f"{element} {_name(mj, element, index)!r}: {attribute}"
    clipped = np.asarray(mj.jnt_actfrclimited, bool) & np.asarray(mj.jnt_actgravcomp, bool)
    for joint in np.flatnonzero(clipped) if np.any(mj.body_gravcomp) else ():
        yield f"joint {_name(mj, 'joint', int(joint))!r}: actuatorgravcomp within an actuatorfrcrange"


def _list_refused_tendons(mj: mujoco.MjModel) -> Iterator[str]:
    for tendon in sorted(set(range(mj.ntendon)) - set(supported_tendons(mj))):
        if pulls(mj, tendon):
            yield (
                f"tendon {_name(mj, 'tendon', tendon)!r}: spatial, over a geom or a pulley, "
                "or with frictionloss or armature"
            )


def _list_refused_loops(mj: mujoco.MjModel) -> Iterator[str]:
    for e in active_loops(mj):
        kind, name = file_kind(mj, e), mj.equality(e).name or f"equality_{e}"
        if kind not in LOOPS:
            yield f"equality {name!r}: {kind}"
        elif on_spatial_tendon(mj, e):
            yield f"equality {name!r}: of a spatial tendon"


def _list_refused_actuators(mj: mujoco.MjModel) -> Iterator[str]:
    if is_disabled(mj, "actuation"):
        return
    for a in range(len(mj.actuator_trntype)):
        reasons = list(unsupported_reasons(mj, a))
        if reasons:
            yield f"actuator {_name(mj, 'actuator', a)!r}: {', '.join(reasons)}"


def ignored(mj: mujoco.MjModel, planar: bool = False) -> list[str]:
    """List the settings of MuJoCo's contacts and solver that a model changes and this package ignores."""
    mujoco = mujoco_package("load_mjcf")
    default_options, left_out = mujoco.MjOption(), []
    changed = [
        name for name in SOLVER_OPTIONS if getattr(mj.opt, name, 0) != getattr(default_options, name, 0)
    ]
    if changed:
        left_out.append(f"option {', '.join(changed)}")
    for kind in ("eq",):
        reference = np.asarray(getattr(mj, f"{kind}_solref"))
        impedance = np.asarray(getattr(mj, f"{kind}_solimp"))
        attributes = [name for name, values, default in (
            ("solref", reference, (0.02, 1.0)), ("solimp", impedance, (0.9, 0.95, 0.001, 0.5, 2.0))
        ) if values.size and np.any(values != np.array(default))]  # fmt: skip
        if attributes:
            left_out.append(f"{', '.join(attributes)} of {OWNERS.get(kind, kind + 's')}")
    touching = (mj.geom_contype | mj.geom_conaffinity) > 0
    if planar and (np.any(mj.geom_condim[touching] > 3) or np.any(mj.pair_dim > 3)):
        left_out.append("torsional and rolling friction (condim 4, 6), in the plane")
    if mj.npair and not np.array_equal(mj.pair_friction[:, 0], mj.pair_friction[:, 1]):
        left_out.append("the second tangent's friction of pairs")
    if len(active_loops(mj)) < mj.neq and not is_disabled(mj, "equality", "constraint"):
        left_out.append("equalities that are not active")
    still = sorted({*np.flatnonzero(mj.body_mocapid >= 0)} - {body + 1 for body in movable_mocap(mj)})
    if still:
        names = ", ".join(repr(_name(mj, "body", int(body))) for body in still)
        left_out.append(f"motion of mocap {names}, which has joints or tendons on it")
    return left_out


def unusual(mj: mujoco.MjModel, q: np.ndarray, has_keyframe: bool) -> list[str]:
    """List negative dampings, and the joints whose position at q is out of their range."""
    return [*_negative_dampings(mj), *_out_of_range(mj, q, has_keyframe)]


def _out_of_range(mj: mujoco.MjModel, q: np.ndarray, has_keyframe: bool) -> list[str]:
    """List the joints whose position at q is out of their range, and keyframes to start from, if none is."""
    lines = []
    for j in np.flatnonzero(np.asarray(mj.jnt_limited, bool)):
        if is_disabled(mj, "limit", "constraint") or KINDS[int(mj.jnt_type[j])] not in ("hinge", "slide"):
            continue
        position, (low, high) = float(q[mj.jnt_qposadr[j]]), mj.jnt_range[j]
        if not low <= position <= high:
            name = f"joint {_name(mj, 'joint', int(j))!r}"
            lines.append(f"{name} starts at {position:.4g}, out of its range {low:.4g} .. {high:.4g}")
    names = [repr(mj.key(k).name) for k in range(mj.nkey) if mj.key(k).name]
    if lines and names and not has_keyframe:
        lines.append(f"keyframes to start from: {', '.join(names)} (keyframe=)")
    return lines


def _negative_dampings(mj: mujoco.MjModel) -> list[str]:
    """List the joints and tendons whose damping is negative: they gain energy as they move, as in MuJoCo."""
    lines = []
    for field, element in (("dof_damping", "joint"), ("tendon_damping", "tendon")):
        damping = np.asarray(getattr(mj, field), float)
        for i in np.flatnonzero(damping < 0.0) if not is_disabled(mj, "damper") else ():
            index = int(mj.dof_jntid[i]) if element == "joint" else int(i)
            lines.append(f"{element} {_name(mj, element, index)!r} has the damping {damping[i]:.4g} < 0")
    return list(dict.fromkeys(lines))


def _name(mj: mujoco.MjModel, element: str, index: int) -> str:
    if element == "pair":
        return str(index)
    return getattr(mj, element)(index).name or f"{element}_{index}"


def default_law(mj: mujoco.MjModel) -> tuple[float, float]:
    """Compute the stiffness (N/m) and damping (N s/m) of the default material.

    One contact carries the whole weight at a depth of 1 mm. The damping is critical for the whole mass on one
    contact.
    """
    mass = float(np.sum(mj.body_mass))
    stiffness = 9.81 * mass / 1e-3
    return stiffness, 2.0 * math.sqrt(stiffness * mass)
