"""Actuators of a compiled MuJoCo model: which are supported, and their numbers."""

from __future__ import annotations

import enum
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from jaxcontact.io.mjcf_loops import fixed_tendons, tendon_moments
from jaxcontact.io.mujoco_package import is_disabled, mujoco_package

if TYPE_CHECKING:
    import mujoco

KINDS = ("free", "ball", "slide", "hinge")  # joints, in the order of MuJoCo's mjtJoint
# Supported actuators: their transmission, and MuJoCo's words for dynamics, gain and bias.
TRANSMISSIONS = ("joint", "tendon", "jointinparent")
ACTUATORS = {"dyntype": ("none",), "gaintype": ("fixed",), "biastype": ("none", "affine")}
LAGS = ("filter", "filterexact")  # of dyntype; without them the control acts at once


def word_of(kind: str, value: int) -> str:
    """Return MuJoCo's word for a value of one of its enumerations."""
    return _as_word(getattr(mujoco_package("load_mjcf"), f"mjt{kind}")(int(value)))


def words(kind: str) -> list[str]:
    """List all of MuJoCo's words for the values of one of its enumerations."""
    members = getattr(mujoco_package("load_mjcf"), f"mjt{kind}").__members__.values()
    return [_as_word(member) for member in members]


def _as_word(member: enum.Enum) -> str:
    return str(member.name.partition("_")[2].lower())


def unsupported_reasons(mj: mujoco.MjModel, actuator: int) -> Iterator[str]:
    """Yield the features of an actuator that the mechanics lacks."""
    transmission = word_of("Trn", mj.actuator_trntype[actuator])
    target = int(mj.actuator_trnid[actuator, 0])
    if transmission not in TRANSMISSIONS:
        yield f"transmission {transmission!r}"
    elif transmission == "tendon":
        if target not in fixed_tendons(mj):
            yield "a spatial tendon"
    elif KINDS[int(mj.jnt_type[target])] in ("free", "ball"):
        if transmission == "jointinparent":
            yield f"transmission {transmission!r} of a free or ball joint"
        if mj.actuator_biasprm[actuator, 1] != 0.0:
            yield "a position gain on a free or ball joint"
    for kind, supported in ACTUATORS.items():
        word = word_of(kind.removesuffix("type").title(), getattr(mj, f"actuator_{kind}")[actuator])
        if word not in supported:
            yield f"{kind} {word!r}"


def supported_actuators(mj: mujoco.MjModel) -> np.ndarray:
    """Tell for each actuator whether the mechanics applies its force; one with a lag acts without it."""
    lags = {f"dyntype {word!r}" for word in LAGS}
    count = len(mj.actuator_trntype)
    return np.array([set(unsupported_reasons(mj, a)) <= lags for a in range(count)], bool)


def control_names(mj: mujoco.MjModel) -> tuple[str, ...]:
    """Return a name for each control, that of its actuator; several controls of one are numbered from 0."""
    names = [mj.actuator(a).name or f"actuator_{a}" for a in range(len(mj.actuator_trntype))]
    owners = control_owners(mj).tolist()
    return tuple(
        f"{names[a]}_{k - owners.index(a)}" if owners.count(a) > 1 else names[a] for k, a in enumerate(owners)
    )


def control_owners(mj: mujoco.MjModel) -> np.ndarray:
    """Return the actuator (nu,) of each control; since MuJoCo 4 an actuator may have several."""
    return np.repeat(np.arange(len(mj.actuator_trntype)), getattr(mj, "actuator_ctrlnum", 1))


def actuator_numbers(mj: mujoco.MjModel) -> dict[str, np.ndarray]:
    """Return the numbers of the actuators, a row per control; zero if `mjcf_support` refuses the actuator."""
    owners = control_owners(mj)
    active = slice(0, 0 if is_disabled(mj, "actuation") else mj.nu)
    control = ranges_of(mj.actuator_ctrllimited, mj.actuator_ctrlrange)
    if is_disabled(mj, "clampctrl"):
        control = np.full_like(control, np.inf) * np.array([-1.0, 1.0])
    in_use = (_in_use(mj) & supported_actuators(mj))[owners][active]
    affine = in_use & (np.asarray(mj.actuator_biastype)[owners][active] == 1)
    limited = np.asarray(mj.actuator_forcelimited, bool)[owners][active]
    return {
        "moment": transmission(mj)[active],
        "gain": np.where(in_use, mj.actuator_gainprm[owners, 0][active], 0.0),
        "bias": np.where(affine[:, None], mj.actuator_biasprm[owners, :3][active], 0.0),
        "control_range": control[active],
        "force_range": ranges_of(in_use & limited, mj.actuator_forcerange[owners][active]),
        "actuator_armature": actuator_armature(mj)[owners][active],
    }


def actuator_armature(mj: mujoco.MjModel) -> np.ndarray:
    """Return the inertia of every actuator before its gears; an older MuJoCo has none."""
    return np.asarray(getattr(mj, "actuator_armature", np.zeros(len(mj.actuator_trntype))))


def transmission(mj: mujoco.MjModel) -> np.ndarray:
    """Return the generalized force (nu, nv) of each control's actuator at unit force, by joint or tendon."""
    row_of_tendon = dict(zip(fixed_tendons(mj), tendon_moments(mj), strict=True))
    moment, supported = np.zeros((mj.nu, mj.nv)), supported_actuators(mj)
    for row, a in enumerate(control_owners(mj)):
        target, gear = int(mj.actuator_trnid[a, 0]), mj.actuator_gear[a]
        if not supported[a]:
            continue
        if word_of("Trn", mj.actuator_trntype[a]) == "tendon":
            moment[row] = gear[0] * row_of_tendon[target]
        else:
            first, kind = int(mj.jnt_dofadr[target]), KINDS[int(mj.jnt_type[target])]
            width = {"free": 6, "ball": 3}.get(kind, 1)
            moment[row, first : first + width] = gear[:width]
    return moment


def _in_use(mj: mujoco.MjModel) -> np.ndarray:
    """Tell for each actuator whether `option actuatorgroupdisable` leaves its group enabled."""
    disabled_groups = [group for group in range(31) if mj.opt.disableactuator >> group & 1]
    return ~np.isin(mj.actuator_group, disabled_groups)


def ranges_of(limited: np.ndarray, ranges: np.ndarray) -> np.ndarray:
    """Return bounds (n, 2), infinite for rows without limits."""
    unlimited = np.array([-np.inf, np.inf])
    return np.where(np.asarray(limited, bool)[:, None], ranges, unlimited)
