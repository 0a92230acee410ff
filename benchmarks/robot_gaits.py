"""Periodic gaits of planar robots, found by `jc.optimize.robot_gait` from its own guess.

A motion is one evaluation of all pieces of a stride with their derivatives by states, controls and duration.
Time includes loading and compiling; processor seconds do not depend on what else the machine does.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jaxcontact as jc
from benchmarks.robot_files import FOLDER, path_of
from benchmarks.runner import Case
from jaxcontact.models.robots import NAMES, file_of

DATA = Path(__file__).parent / "data"
# file of gymnasium or of `data`, or name in the package, speed in m/s, s of the stride of the guess
ROBOTS = {
    "hopper": ("hopper.xml", 0.5, 0.54),
    "walker2d": ("walker2d_v5.xml", 0.6, 0.5),
    "half_cheetah": ("half_cheetah.xml", 1.0, 0.4),
    "planar_walker": ("planar_walker", 0.5, 0.5),
    "ramone": ("ramone.xml", 0.5, 0.25),
}


def path_of_robot(robot: str) -> Path:
    """Find the file of a robot of gymnasium or of `data`."""
    name = ROBOTS[robot][0]
    if (DATA / name).exists():
        return DATA / name
    path = path_of("gymnasium", f"gymnasium/envs/mujoco/assets/{name}", FOLDER)
    if path is None:
        raise FileNotFoundError(f"{name}: unpack gymnasium of tests/robot_packages.txt into {FOLDER}")
    return path


def load(robot: str) -> jc.Model:
    """Read a robot of gymnasium, of `data` or of the package."""
    name = ROBOTS[robot][0]
    if name in NAMES:
        return jc.load_mjcf(file_of(name), planar=True, contacts="world")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return jc.load_mjcf(path_of_robot(robot), planar=True, contacts="world")


def _gait(robot: str) -> Callable[[], dict[str, Any]]:
    _, speed, duration = ROBOTS[robot]

    def run() -> dict[str, Any]:
        begin = time.process_time()
        model = load(robot)
        _, info = jc.optimize.robot_gait(model, speed=speed, duration=duration)
        return {
            "motions": info.evaluations,
            "cost of transport": info.cost_of_transport,
            "speed": info.speed,
            "periodicity error": info.periodicity,
            "largest control": info.largest_control,
            "largest friction": info.friction,
            "processor s": time.process_time() - begin,
            "status": jc.Status.describe(info.status),
        }

    return run


CASES = [
    Case(name=f"robot gait {robot}", items=1, setup=lambda robot=robot: _gait(robot), repeats=1)
    for robot in ROBOTS
]
