"""The softness of limits and contacts of a compiled MuJoCo model: solref and solimp as `ScaledSprings`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import jax
import numpy as np

from jaxcontact.io.mjcf_loops import supported_tendons
from jaxcontact.io.mjcf_pairs import Pair
from jaxcontact.io.mujoco_package import is_disabled, mujoco_package
from jaxcontact.mechanics.scaled_springs import ScaledSprings
from jaxcontact.mechanics.tree import Tree

if TYPE_CHECKING:
    import mujoco

SAFE_STEPS = 2.0  # time steps of the file, MuJoCo's smallest time constant (flag refsafe)
SMOOTH_SHARE = 1e-3  # share of the mobility that a smooth pyramid keeps; MuJoCo's shrinks with the friction
LOWEST, HIGHEST = 1e-4, 0.9999  # MuJoCo's bounds on impedances and midpoints


def scaled_springs(
    mj: mujoco.MjModel, tree: Tree, pairs: Sequence[tuple[Pair, int]], joint_law: tuple[float, float]
) -> ScaledSprings:
    """Make the springs of all limits and contacts; `pairs` have their numbers of candidates.

    Rows come in the order of the constraints of a tree. Bilateral rows have the stiffness and damping of
    `joint_law`.
    """
    limits = [*_limits_of_joints(mj, tree), *_limits_of_tendons(mj, tree)]
    contacts = [(_mobility(mj, pair), pair.softness) for pair, count in pairs for _ in range(count)]
    rows = np.array([[mobility, *softness] for mobility, softness in (*limits, *contacts)]).reshape(-1, 8)
    mobility, reference, impedance = rows[:, 0], rows[:, 1:3], rows[:, 3:]
    lowest, highest = np.clip(impedance[:, :2].T, LOWEST, HIGHEST)
    width = np.maximum(impedance[:, 2], 1e-15)
    midpoint, power = np.clip(impedance[:, 3], LOWEST, HIGHEST), np.maximum(impedance[:, 4], 1.0)
    stiffness, damping = _spring(mj, reference, highest)
    numbers = {
        "stiffness": stiffness, "damping": damping, "lowest": lowest, "highest": highest,
        "width": width, "midpoint": midpoint, "power": power,
        "joint_stiffness": np.array(joint_law[0]), "joint_damping": np.array(joint_law[1]),
    }  # fmt: skip
    return ScaledSprings(
        mobility=jax.device_put(mobility),
        **{name: jax.device_put(_as_number(value)) for name, value in numbers.items()},
    )


def _as_number(values: np.ndarray) -> np.ndarray:
    """Return one number if all entries are equal."""
    same = values.size > 0 and np.all(values == values.flat[0])
    return np.array(values.flat[0]) if same else values


def _spring(mj: mujoco.MjModel, reference: np.ndarray, highest: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Compute k (1/s^2) and b (1/s) from solref: time constant and damping ratio, or minus k and b."""
    constant, ratio = np.maximum(reference.T, 1e-15)
    if not is_disabled(mj, "refsafe"):
        constant = np.maximum(constant, SAFE_STEPS * float(mj.opt.timestep))
    standard = reference[:, 0] > 0.0
    stiffness = np.where(standard, 1.0 / (highest * constant * ratio) ** 2, -reference[:, 0] / highest**2)
    damping = np.where(standard, 2.0 / (highest * constant), -reference[:, 1] / highest)
    return stiffness, damping


def _mobility(mj: mujoco.MjModel, pair: Pair) -> float:
    """Compute the mobility of a contact's normal, at the centres of bodies; edges of a pyramid share it."""
    bodies = mj.geom_bodyid[[pair.first, pair.second]]
    mobility = float(np.sum(mj.body_invweight0[bodies, 0]))
    is_pyramid = int(mj.opt.cone) == int(mujoco_package("load_mjcf").mjtCone.mjCONE_PYRAMIDAL)
    if pair.condim == 1 or not is_pyramid:
        return mobility
    square = pair.mu**2 / float(mj.opt.impratio)
    return mobility * max((1.0 + pair.mu**2) * square / (pair.condim - 1), SMOOTH_SHARE)


def _limits_of_joints(mj: mujoco.MjModel, tree: Tree) -> list[tuple[float, np.ndarray]]:
    """List mobility and softness of joint limits: lower bounds, then upper ones, then balls."""
    limited = [j for j, joint in enumerate(tree.joints) if joint.limited]
    scalar = [j for j in limited if tree.joints[j].kind != "ball"]
    ball = [j for j in limited if tree.joints[j].kind == "ball"]
    return [
        (float(mj.dof_invweight0[mj.jnt_dofadr[j]]), np.append(mj.jnt_solref[j], mj.jnt_solimp[j]))
        for j in (*scalar, *scalar, *ball)
    ]


def _limits_of_tendons(mj: mujoco.MjModel, tree: Tree) -> list[tuple[float, np.ndarray]]:
    """List mobility and softness of the limits of tendons: lower bounds, then upper ones."""
    limited = [t for t, tendon in zip(supported_tendons(mj), tree.tendons, strict=True) if tendon.limited]
    return [
        (float(mj.tendon_invweight0[t]), np.append(mj.tendon_solref_lim[t], mj.tendon_solimp_lim[t]))
        for t in (*limited, *limited)
    ]
