"""Robots as MJCF files of the package: two legs, one leg, a cat, an insect, a dog, a humanoid (file alone).

MuJoCo reads them (the extra `mujoco`); all numbers are in `params`, as for any file. Page:
docs/understand/mjcf.md.
"""

from __future__ import annotations

from importlib import resources

import jax

from jaxcontact.io.mjcf import load_mjcf
from jaxcontact.mechanics.material import stiff_material
from jaxcontact.mechanics.system import Model

NAMES = ("planar_walker", "hopper", "half_cheetah", "ant", "quadruped")


def file_of(name: str) -> str:
    """Read the XML text of a robot of the package."""
    return (resources.files("jaxcontact.models") / "mjcf" / f"{name}.xml").read_text()


@jax.ensure_compile_time_eval()  # numbers of a file are numbers inside of jit, too
def _robot(name: str, *, keyframe: str | None = None, planar: bool = False) -> Model:
    model = load_mjcf(file_of(name), keyframe=keyframe, planar=planar)
    material = stiff_material(float(model.params.mass.sum()))
    return model.replace(params=model.params.replace(material=material))


def planar_walker() -> Model:
    """Load a biped that lands on both flat feet at once: four contacts, in the plane; six motors.

    q = (x, height, pitch) of the trunk from upright, then hip, knee, ankle of the left and of the right leg.
    """
    return _robot("planar_walker", keyframe="landing", planar=True).replace(impulse_step=2.0, max_steps=15)


def hopper() -> Model:
    """Load one leg with a foot, in the plane; three motors.

    q = (x, height, pitch) of the trunk from upright, then hip, knee and ankle.
    """
    return _robot("hopper", keyframe="crouched", planar=True)


def half_cheetah() -> Model:
    """Load half of a galloping cat, in the plane, with springs at its joints; six motors.

    q = (x, height, pitch) of the trunk, then hip, knee and ankle of the hind and of the fore leg.
    """
    return _robot("half_cheetah", planar=True)


def ant() -> Model:
    """Load a ball on four legs of two links; eight motors.

    q = (x, y, z, qw, qx, qy, qz) of the trunk, then hip and knee of each leg.
    """
    return _robot("ant")


def quadruped() -> Model:
    """Load a dog of 12 kg standing on ball feet; twelve position servos.

    q = (x, y, z, qw, qx, qy, qz) of the trunk, then hip, thigh, calf of each leg; controls are joint angles.
    """
    return _robot("quadruped", keyframe="stand")
