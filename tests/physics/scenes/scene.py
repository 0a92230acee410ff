"""A scene: MJCF text, a start, quantities with their exact values, and tolerances that stand before any run."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

import jaxcontact as jc

G = 9.81  # m/s^2, as in MuJoCo's files
DEPTH = 1e-3  # m; a contact of a file's default material carries the weight at this depth,
SETTLING = 0.02  # s; and comes to rest there in about this time
FALL = G * SETTLING**2  # m; the weight moves a body by this much while its contacts settle
EXACT = 1e-6  # of C times the duration: what a motion from event to event may miss
FRICTIONLESS = "<default><geom condim='1'/></default>"
# Free in the plane; a positive angle turns z towards x, as a wheel that rolls along x.
PLANE = (
    "<joint type='slide' axis='1 0 0'/><joint type='slide' axis='0 0 1'/><joint type='hinge' axis='0 1 0'/>"
)
SLIDES = "<joint type='slide' axis='1 0 0'/><joint type='slide' axis='0 0 1'/>"
SMOOTH = jc.impact.AnitescuPotra()
COMPLIANT, STIFF, STEPPING, EVENTS, VARIATIONAL = ALL = (
    "Compliant", "Compliant, stiff", "TimeStepping", "EventDriven", "Variational",
)  # fmt: skip
MUJOCO = "MuJoCo"  # beside them, with its defaults: springs


def world(bodies: str, *, option: str = "", default: str = "", more: str = "") -> str:
    """Write an MJCF file."""
    return f"<mujoco>{option}{default}<worldbody>{bodies}</worldbody>{more}</mujoco>"


def floor(mu: float | None = None, size: float = 9.0) -> str:
    """Write a floor."""
    friction = "" if mu is None else f" friction='{mu}'"
    return f"<geom name='floor' type='plane' size='{size} {size} 1'{friction}/>"


@dataclasses.dataclass(frozen=True)
class Path:
    """A motion of T steps: times (T + 1,), q and v in MuJoCo's order, (T + 1, nq) and (T + 1, nv)."""

    t: np.ndarray
    q: np.ndarray
    v: np.ndarray


@dataclasses.dataclass(frozen=True)
class Quantity:
    """What is looked at, and how far off it may be.

    Attributes:
        name: with its unit.
        read: of the motion.
        exact: of rigid bodies, from a closed form or an independent integration.
        C: |error| <= C dt^order; from the scene's speeds and accelerations, for a step may shift what happens
            by about one dt.
        soft: added for the springs of the file's own material, which are a depth and a settling time off
            rigid bodies. Not for stiff ones.
        span: half the interval that the laws of rigid bodies leave, around `exact`; 0 where there is one answer.
    """

    name: str
    read: Callable[[Path], Any]
    exact: float
    C: float
    soft: float = 0.0
    span: float = 0.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class Scene:
    """What moves, for how long, and what is looked at.

    Attributes:
        mjcf: the file.
        duration: s, a multiple of every dt.
        quantities: at the end of the motion, mostly.
        q, v: entries of the start that are not the file's.
        controls: constant, of the actuators of the file.
        planar: as `load_mjcf`.
        law: of impacts, for the steppers that take one.
        claims: the steppers that must be right; the others must be right, refuse, or set a bit of a failure.
        not_asked: steppers for which there is no question: springs about a restitution, rigid laws where the
            answer is that of springs.
        dts: s.
        order: p of the tolerances.
    """

    name: str
    mjcf: str
    duration: float
    quantities: tuple[Quantity, ...]
    q: Mapping[int, float] = dataclasses.field(default_factory=dict)
    v: Mapping[int, float] = dataclasses.field(default_factory=dict)
    controls: tuple[float, ...] = ()
    planar: bool = True
    law: Any = SMOOTH
    claims: tuple[str, ...] = ALL
    not_asked: tuple[str, ...] = ()
    dts: tuple[float, float, float] = (0.01, 0.005, 0.0025)
    order: int = 1

    def errors(self, path: Path) -> np.ndarray:
        """Compute |measured - exact| of every quantity."""
        return np.array([abs(float(each.read(path)) - each.exact) for each in self.quantities])

    def tolerances(self, stepper: str, dt: float) -> np.ndarray:
        """Return the largest errors allowed of a stepper at dt."""
        if stepper == EVENTS:
            return np.array([each.span + EXACT * each.C * self.duration for each in self.quantities])
        soft = stepper in (COMPLIANT, MUJOCO)
        return np.array([each.span + each.C * dt**self.order + soft * each.soft for each in self.quantities])


def end(name: str, index: int) -> Callable[[Path], float]:
    """Read an entry of q or v at the end of a motion."""
    return lambda path: getattr(path, name)[-1, index]


def radians(degrees: float) -> tuple[float, float, float]:
    """Return an angle, its sine and its cosine."""
    angle = math.radians(degrees)
    return angle, math.sin(angle), math.cos(angle)
