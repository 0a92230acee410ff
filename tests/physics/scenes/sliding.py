"""Boxes that slide by Coulomb's law: closed forms, and two integrations of hand-written equations."""

from __future__ import annotations

import math

import numpy as np
from scipy.integrate import solve_ivp

from .scene import DEPTH, FALL, PLANE, SETTLING, G, Path, Quantity, Scene, end, floor, radians, world


def box(
    size: str, mass: float, mu: float, *, pos: str = "0 0 0", joint: str = PLANE, euler: str = "0 0 0"
) -> str:
    """Write a body that is a box."""
    return f"<body pos='{pos}' euler='{euler}'>{joint}<geom type='box' size='{size}' mass='{mass}' friction='{mu}'/></body>"


def _stop(name: str, mu: float, speed: float, duration: float, planar: bool) -> Scene:
    """Slide a box by v^2 / (2 mu g), where it stays; backward Euler adds v dt / 2."""
    joint = PLANE if planar else "<freejoint/>"
    rests = duration - speed / (mu * G)  # s since the stop; what leans on its soft edge settles meanwhile
    settles = DEPTH / SETTLING * math.exp(-rests / SETTLING)
    return Scene(
        name=name,
        mjcf=world(floor(mu) + box(".1 .1 .02", 1.0, mu, pos="0 0 .02", joint=joint)),
        planar=planar,
        v={0: speed},
        duration=duration,
        quantities=(
            Quantity("x, m", end("q", 0), speed**2 / (2 * mu * G), 0.6 * speed, 2 * mu * FALL),
            Quantity("v, m/s", end("v", 0), 0.0, 1e-4 * G, settles),
        ),
    )


def stop_on_rough() -> Scene:
    """Take friction 1, in space."""
    return _stop("slide and stop, mu 1, in space", 1.0, 2.0, 0.3, False)


def stop_on_wood() -> Scene:
    """Take friction 0.5."""
    return _stop("slide and stop, mu 0.5", 0.5, 2.0, 0.5, True)


def stop_on_ice() -> Scene:
    """Take friction 0.1."""
    return _stop("slide and stop, mu 0.1", 0.1, 1.0, 1.2, True)


def slide_oblique() -> Scene:
    """Slide a box straight, 11 degrees off its side: friction is opposite to the velocity."""
    mu, speed = 0.5, 2.0
    _, s, c = radians(11.0)
    distance = speed**2 / (2 * mu * G)
    return Scene(
        name="slide 11 degrees off a side, in space",
        mjcf=world(floor(mu) + box(".1 .1 .02", 1.0, mu, pos="0 0 .02", joint="<freejoint/>")),
        planar=False,
        v={0: speed * c, 1: speed * s},
        duration=0.5,
        quantities=(
            Quantity(
                "along, m", lambda p: c * p.q[-1, 0] + s * p.q[-1, 1], distance, 0.6 * speed, 2 * mu * FALL
            ),
            Quantity("aside, m", lambda p: c * p.q[-1, 1] - s * p.q[-1, 0], 0.0, 0.01 * speed, 0.1 * FALL),
        ),
    )


def _incline(name: str, degrees: float, mu: float, duration: float) -> Scene:
    """Put a box on an incline: it slides with g (sin a - mu cos a), or stays."""
    _, s, c = radians(degrees)
    rate = max(0.0, G * (s - mu * c))
    turn = f"0 {degrees} 0"
    incline = f"<geom type='plane' size='9 9 1' euler='{turn}' friction='{mu}'/>"
    return Scene(
        name=name,
        mjcf=world(incline + box(".1 .1 .05", 1.0, mu, pos=f"{0.05 * s} 0 {0.05 * c}", euler=turn)),
        duration=duration,
        quantities=(
            Quantity("x, m", end("q", 0), rate * duration**2 / 2, max(rate, 0.01 * G) * duration, FALL),
            Quantity("v, m/s", end("v", 0), rate * duration, max(rate, 1e-4 * G), 1e-3 * G * DEPTH / 0.05),
        ),
    )


def incline_slides() -> Scene:
    """Take an incline steeper than friction holds."""
    return _incline("incline of 30 degrees, mu 0.3", 30.0, 0.3, 0.6)


def incline_holds() -> Scene:
    """Take an incline on which friction holds."""
    return _incline("incline of 20 degrees, mu 0.5: rests", 20.0, 0.5, 0.6)


def incline_across() -> Scene:
    """Throw a box across an incline: its path bends downhill, then it stops.

    With the speed w and the angle f from downhill: w' = g (sin a cos f - mu cos a), f' = -g sin a sin f / w.
    """
    mu, speed, duration = 0.6, 1.0, 0.6
    _, s, c = radians(25.0)

    def rate(t: float, y: np.ndarray) -> list[float]:
        w, f = y[2], y[3]
        down = G * s * math.cos(f) - mu * G * c
        return [w * math.cos(f), w * math.sin(f), down, -G * s * math.sin(f) / w]

    def stops(t: float, y: np.ndarray) -> float:
        return y[2] - 1e-8

    stops.terminal = True
    path = solve_ivp(rate, (0, duration), [0, 0, speed, math.pi / 2], rtol=1e-11, atol=1e-12, events=stops).y
    gravity = f"<option gravity='{G * s} 0 {-G * c}'/>"
    return Scene(
        name="across an incline of 25 degrees, mu 0.6, in space",
        mjcf=world(
            floor(mu) + box(".1 .1 .02", 1.0, mu, pos="0 0 .02", joint="<freejoint/>"), option=gravity
        ),
        planar=False,
        v={1: speed},
        duration=duration,
        quantities=(
            Quantity("downhill, m", end("q", 0), path[0, -1], 0.6 * speed, 2 * FALL),
            Quantity("across, m", end("q", 1), path[1, -1], 0.6 * speed, 2 * FALL),
        ),
    )


def stool() -> Scene:
    """Slide and turn a stool on three feet, whose loads balance the moments."""
    mu, mass, reach, height, turn, speed, duration = 0.3, 2.0, 0.15, 0.1, 6.0, 1.5, 0.4
    axial, lateral = 0.02, 0.015
    angles = 2 * math.pi / 3 * np.arange(3)

    def rate(t: float, y: np.ndarray) -> np.ndarray:
        x, z = reach * np.cos(angles + y[2]), reach * np.sin(angles + y[2])
        slip = np.stack([y[3] - y[5] * z, y[4] + y[5] * x])
        ux, uz = -mu * slip / np.linalg.norm(slip, axis=0)
        loads = np.linalg.solve([np.ones(3), z + height * uz, x + height * ux], [mass * G, 0, 0])
        turning = np.sum(loads * (x * uz - z * ux)) / axial
        return np.array([*y[3:], loads @ ux / mass, loads @ uz / mass, turning])

    last = solve_ivp(rate, (0, duration), [0, 0, 0, speed, 0, turn], rtol=1e-10, atol=1e-12).y[:, -1]
    feet = "".join(
        f"<geom type='sphere' size='.01' pos='{reach * math.cos(a)} {reach * math.sin(a)} {0.01 - height}' friction='{mu}'/>"
        for a in angles
    )
    inertial = f"<inertial pos='0 0 0' mass='{mass}' diaginertia='{lateral} {lateral} {axial}'/>"
    return Scene(
        name="stool on three feet slides and turns",
        mjcf=world(floor(mu) + f"<body pos='0 0 {height}'><freejoint/>{inertial}{feet}</body>"),
        planar=False,
        v={0: speed, 5: turn},
        duration=duration,
        quantities=(
            Quantity("x, m", end("q", 0), last[0], 0.6 * speed, 2 * FALL),
            Quantity("y, m", end("q", 1), last[1], 0.6 * speed, 2 * FALL),
            Quantity("turn, rad", _heading, last[2], turn, 2 * FALL / reach),
        ),
    )


def _heading(path: Path) -> float:
    return 2.0 * math.atan2(path.q[-1, 6], path.q[-1, 3])


def conveyor() -> Scene:
    """Put a crate on a moving belt: friction accelerates it until both have one speed."""
    mu, belt, crate, speed, duration = 0.4, 100.0, 1.0, 1.0, 0.6
    common = belt * speed / (belt + crate)
    grips = common / (mu * G)
    moving = (
        f"<body pos='0 0 -.05'><joint type='slide' axis='1 0 0'/><geom type='box' size='3 .2 .05' mass='{belt}'"
        f" friction='{mu}'/></body>"
    )
    return Scene(
        name="crate on a conveyor",
        mjcf=world(moving + box(".1 .1 .05", crate, mu, pos="0 0 .05")),
        v={0: speed},
        duration=duration,
        quantities=(
            Quantity("x, m", end("q", 1), common * (duration - grips / 2), 0.6 * speed, 2 * FALL),
            Quantity("slip, m/s", lambda p: p.v[-1, 0] - p.v[-1, 1], 0.0, 1e-3 * G, 1e-6),
        ),
    )


def _pressed(name: str, push: float, mu: float, duration: float) -> Scene:
    """Press a book against a wall: it falls with g - mu N / m, or friction holds it."""
    rate = min(0.0, mu * push - G)
    wall = f"<geom type='plane' size='9 9 1' euler='0 90 0' friction='{mu}'/>"
    motor = f"<actuator><motor joint='across' gear='{-push}'/></actuator>"
    joints = PLANE.replace("<joint", "<joint name='across'", 1)
    return Scene(
        name=name,
        mjcf=world(wall + box(".05 .1 .1", 1.0, mu, pos=".05 0 0", joint=joints), more=motor),
        controls=(1.0,),
        duration=duration,
        quantities=(
            Quantity("z, m", end("q", 1), rate * duration**2 / 2, max(-rate, 0.02 * G) * duration, 2 * FALL),
        ),
    )


def wall_slips() -> Scene:
    """Push too weakly."""
    return _pressed("book at a wall slips", 15.0, 0.4, 0.5)


def wall_holds() -> Scene:
    """Push strongly enough."""
    return _pressed("book at a wall holds", 30.0, 0.4, 0.5)


SCENES = (
    stop_on_rough, stop_on_wood, stop_on_ice, slide_oblique, incline_slides, incline_holds, incline_across,
    stool, conveyor, wall_slips, wall_holds,
)  # fmt: skip
