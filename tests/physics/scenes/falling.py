"""Rods, blocks and balls that fall, lean and let go: integrations of hand-written equations with their events."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.integrate import solve_ivp

from .scene import (
    DEPTH,
    FALL,
    FRICTIONLESS,
    PLANE,
    SETTLING,
    G,
    Quantity,
    Scene,
    end,
    floor,
    world,
)

TIGHT = {"rtol": 1e-11, "atol": 1e-12}
TIP = 0.02  # m, radius of the caps of ladders and rods
WALL = "<geom type='plane' size='9 9 1' euler='0 90 0'{}/>"


def until(
    rate: Callable[..., Any], y: Any, start: float, duration: float, event: Callable[..., Any]
) -> tuple[float, np.ndarray, bool]:
    """Integrate until an event falls through zero or the duration ends; return the time, y, whether it came."""
    event.terminal, event.direction = True, -1  # type: ignore[attr-defined]
    path = solve_ivp(rate, (start, duration), y, events=event, **TIGHT)
    return float(path.t[-1]), path.y[:, -1], bool(path.t_events[0].size)


def rod(half: float, mass: float, place: str, mu: float | None = None) -> str:
    """Write a rod along z, with caps, and the inertia of a thin one."""
    inertia = mass * half**2 / 3
    friction = "" if mu is None else f" friction='{mu}'"
    return (
        f"<body pos='{place}'>{PLANE}<inertial pos='0 0 0' mass='{mass}' diaginertia='{inertia} {inertia} 1e-4'/>"
        f"<geom type='capsule' size='{TIP}' fromto='0 0 {-half} 0 0 {half}'{friction}/></body>"
    )


def ladder_smooth() -> Scene:
    """Slide a ladder down a wall without friction: it leaves at cos a = 2/3 cos a_0, a from the wall.

    At the wall a'' = 3 g sin a / (4 l); then v_x stays, and on the floor
    (1/3 + sin^2 a) a'' + sin a cos a a'^2 = g sin a / l.
    """
    half, mass, lean, duration = 0.5, 1.0, math.radians(30.0), 0.45

    def at_wall(t: float, y: np.ndarray) -> list[float]:
        return [y[1], 0.75 * G / half * math.sin(y[0])]

    def on_floor(t: float, y: np.ndarray) -> list[float]:
        s, c = math.sin(y[0]), math.cos(y[0])
        return [y[1], (G / half * s - s * c * y[1] ** 2) / (1 / 3 + s * s)]

    leaves = math.acos(2 / 3 * math.cos(lean))
    t, y, came = until(at_wall, [lean, 0.0], 0.0, duration, lambda t, y: leaves - y[0])
    assert came
    sideways = half * math.cos(leaves) * y[1]
    angle = solve_ivp(on_floor, (t, duration), y, **TIGHT).y[0, -1]
    assert angle < 1.5
    place = f"{TIP + half * math.sin(lean)} 0 {TIP + half * math.cos(lean)}"

    def angle_of_departure(path: Any) -> float:
        """Compute it by the speed sideways: at departure v_x^2 = 3/4 g l cos^3 a, and later it stays."""
        return math.acos(min(1.0, (4 * path.v[-1, 0] ** 2 / (3 * half * G)) ** (1 / 3)))

    return Scene(
        name="ladder leaves a smooth wall",
        mjcf=world(floor() + WALL.format("") + rod(half, mass, place), default=FRICTIONLESS),
        q={2: -lean},
        duration=duration,
        quantities=(
            Quantity("departure, rad", angle_of_departure, leaves, y[1], y[1] * SETTLING),
            Quantity("v_x, m/s", end("v", 0), sideways, G / 4, G / 4 * SETTLING),
            Quantity("angle, rad", lambda p: -p.q[-1, 2], angle, 2 * y[1], 2 * DEPTH / half),
        ),
    )


def ladder_rough() -> Scene:
    """Slide a ladder with friction at the wall and at the floor; it slips from the start."""
    half, mass, mu, lean, duration = 0.5, 1.0, 0.2, math.radians(35.0), 0.55
    inertia = mass * half**2 / 3

    def unknowns(y: np.ndarray, wall: bool) -> np.ndarray:
        """Solve for a'', x'', N_floor, N_wall."""
        s, c, w2 = half * math.sin(y[0]), half * math.cos(y[0]), y[1] ** 2
        foot, head = np.array([s, -c - TIP]), np.array([-s - TIP, c])
        on_foot, on_head = np.array([-mu, 1.0]), np.array([1.0, mu])  # the foot slips outwards, the head down
        torque = [foot[0] * on_foot[1] - foot[1] * on_foot[0], head[0] * on_head[1] - head[1] * on_head[0]]
        A = np.array(
            [
                [inertia, 0, -torque[0], -torque[1]],
                [0, mass, -on_foot[0], -on_head[0]],
                [-mass * s, 0, -on_foot[1], -on_head[1]],
                [c, -1.0, 0, 0] if wall else [0, 0, 0, 1.0],
            ]
        )
        return np.linalg.solve(A, [0, 0, -mass * G + mass * c * w2, s * w2 if wall else 0])

    def rate(wall: bool) -> Callable[..., Any]:
        def rates(t: float, y: np.ndarray) -> list[float]:
            a, x, *_ = unknowns(y, wall)
            return [y[1], a, y[3], x]

        return rates

    start = [lean, 0.0, TIP + half * math.sin(lean), 0.0]
    t, y, came = until(rate(True), start, 0.0, duration, lambda t, y: unknowns(y, True)[3])
    assert came
    last = solve_ivp(rate(False), (t, duration), y, **TIGHT).y[:, -1]
    assert last[0] < 1.5 and unknowns(last, False)[2] > 0 and last[3] + half * math.cos(last[0]) * last[1] > 0
    friction = f" friction='{mu}'"
    place = f"{start[2]} 0 {TIP + half * math.cos(lean)}"
    return Scene(
        name="ladder with friction 0.2",
        mjcf=world(floor(mu) + WALL.format(friction) + rod(half, mass, place, mu)),
        q={2: -lean},
        duration=duration,
        quantities=(
            Quantity("x, m", end("q", 0), last[2] - start[2], 2 * last[3], 2 * FALL),
            Quantity("angle, rad", lambda p: -p.q[-1, 2], last[0], 2 * y[1], 2 * FALL / half),
        ),
    )


def rod_on_ice() -> Scene:
    """Let a rod fall over on a smooth floor: its centre falls straight down."""
    half, mass, lean, duration = 0.5, 1.0, math.radians(25.0), 0.35

    def rate(t: float, y: np.ndarray) -> list[float]:
        s, c = math.sin(y[0]), math.cos(y[0])
        return [y[1], (G / half * s - s * c * y[1] ** 2) / (1 / 3 + s * s)]

    last = solve_ivp(rate, (0, duration), [lean, 0.0], **TIGHT).y[:, -1]
    assert last[0] < 1.5
    return Scene(
        name="rod falls over on a smooth floor",
        mjcf=world(floor() + rod(half, mass, f"0 0 {TIP + half * math.cos(lean)}"), default=FRICTIONLESS),
        q={2: lean},
        duration=duration,
        quantities=(
            Quantity("x, m", end("q", 0), 0.0, 1e-6, 1e-8),
            Quantity("angle, rad", end("q", 2), last[0], last[1], 2 * DEPTH / half),
        ),
    )


def _corner(half: tuple[float, float], turn: float, side: int) -> np.ndarray:
    """Return the lower right (1) or left (-1) corner of a box from its centre; z turns towards x."""
    s, c = math.sin(turn), math.cos(turn)
    x, z = side * half[0], -half[1]
    return np.array([x * c + z * s, -x * s + z * c])


def _rock(half: tuple[float, float], y: np.ndarray, side: int) -> list[float]:
    """Compute the rates of (turn, rate) of a box that turns about a corner."""
    r = _corner(half, y[0], side)
    return [y[1], -G * r[0] / ((half[0] ** 2 + half[1] ** 2) / 3 + r @ r)]


def _blocks(half: tuple[float, float], mu: float, centre: np.ndarray) -> str:
    size = f"{half[0]} .1 {half[1]}"
    place = f"{centre[0]} 0 {centre[1]}"
    block = f"<body pos='{place}'>{PLANE}<geom type='box' size='{size}' mass='1' friction='{mu}'/></body>"
    return world(floor(mu) + block)


def drop_on_an_edge() -> Scene:
    """Drop a box on its edge, which stays where it strikes; the box turns about it."""
    half, mu, tilt, height, duration = (0.2, 0.1), 1.0, math.radians(20.0), 0.1, 0.2
    r = _corner(half, tilt, 1)
    strikes, speed = math.sqrt(2 * height / G), math.sqrt(2 * height * G)
    about = (half[0] ** 2 + half[1] ** 2) / 3 + r @ r
    spin = -r[0] * speed / about  # r x v about the corner, z towards x
    impulse = np.array([-r[1] * spin, speed + r[0] * spin])  # of the corner: v+ - v-, v+ = w x (-r)
    assert abs(impulse[0]) < mu * impulse[1]
    last = solve_ivp(lambda t, y: _rock(half, y, 1), (strikes, duration), [tilt, spin], **TIGHT).y[:, -1]
    centre = np.array([0.0, height - r[1]])
    place = np.array([r[0], 0.0]) - _corner(half, last[0], 1)
    assert last[0] > 0.02  # the other edge is still up
    return Scene(
        name="box drops on an edge",
        mjcf=_blocks(half, mu, centre),
        q={2: tilt},
        duration=duration,
        quantities=(
            Quantity("turn, rad", end("q", 2), last[0], abs(spin), abs(spin) * SETTLING),
            Quantity("x, m", end("q", 0), place[0], speed, speed * SETTLING),
            Quantity("w, rad/s", end("v", 2), last[1], 2 * G / half[0], 2 * G / half[0] * SETTLING),
        ),
    )


def rocking_block() -> Scene:
    """Rock a block from edge to edge; an impact leaves 1 - 3/2 sin^2 a of its rate, tan a = width / height (Housner).

    An impact that comes a step late has the other edge's torque for a step, and rates are half a step off; the
    block is a pendulum upside down, in which an error of the rate grows as cosh.
    """
    half, mu, tilt, duration = (0.1, 0.2), 1.0, 0.2, 0.5
    kept = 1 - 1.5 * half[0] ** 2 / (half[0] ** 2 + half[1] ** 2)
    t, y, side, times, rate = 0.0, np.array([tilt, 0.0]), 1, [], 0.0
    while True:

        def rates(t: float, y: np.ndarray, side: int = side) -> list[float]:
            return _rock(half, y, side)

        def upright(t: float, y: np.ndarray, side: int = side) -> float:
            return side * y[0]

        t, y, came = until(rates, y, t, duration, upright)
        if not came:
            break
        rate, side = max(rate, abs(y[1])), -side
        times.append(t)
        y = np.array([side * 1e-14, kept * y[1]])
    assert len(times) == 2
    turning, growth = (G * arm / (4 / 3 * (half[0] ** 2 + half[1] ** 2)) for arm in half)  # 1/s^2
    late = 2 * turning * sum(math.cosh(math.sqrt(growth) * (duration - each)) for each in times)
    late += turning / 2 * math.cosh(math.sqrt(growth) * duration)
    return Scene(
        name="block rocks from edge to edge",
        mjcf=_blocks(half, mu, np.array([half[0], 0.0]) - _corner(half, tilt, 1)),
        q={2: tilt},
        duration=duration,
        quantities=(
            Quantity("turn, rad", end("q", 2), y[0], 3 * rate, 3 * rate * SETTLING),
            Quantity("w, rad/s", end("v", 2), y[1], late, G / half[1] * SETTLING),
        ),
    )


def _painleve(name: str, height: float, duration: float) -> Scene:
    """Slide a rod's lower end with friction 3: no finite force lets it slide on, and the end stops at once.

    The impact takes the velocity of the end away; then the rod turns about its end, a ball that rolls.
    """
    half, mass, tip, angle, speed, mu = 0.7, 1.0, 0.001, 1.0, 1.0, 3.0
    inertia = mass * half**2 / 3

    def touch(a: float) -> np.ndarray:
        return np.array([-half * math.cos(a), -half * math.sin(a) - tip])

    def forces(y: np.ndarray) -> tuple[float, np.ndarray]:
        """Compute a'' and the force of the floor; a turns x towards z."""
        r, moves = touch(y[0]), np.array([half * math.sin(y[0]), -half * math.cos(y[0])]) * y[1]
        other = np.array([moves[1], -moves[0]]) * y[1]  # acceleration of the centre, but for a''
        load = mass * (other + [0, G])
        turning = (r[0] * load[1] - r[1] * load[0]) / (inertia + mass * r @ r)
        return turning, load + mass * turning * np.array([r[1], -r[0]])

    r = touch(angle)
    share = 1 / mass + r[0] / inertia * (r[0] - mu * r[1])  # of the normal force in its own acceleration
    assert share < 0  # Painleve: friction presses the end into the floor
    strikes, falls = math.sqrt(2 * height / G), math.sqrt(2 * height * G)
    rows = np.array([[1, 0, -r[1]], [0, 1, r[0]]])
    inverse = np.diag([1 / mass, 1 / mass, 1 / inertia])
    before = np.array([-speed, -falls, 0.0])
    impulse = -np.linalg.solve(rows @ inverse @ rows.T, rows @ before)
    assert impulse[1] > 0 and abs(impulse[0]) < mu * impulse[1]
    after = before + inverse @ rows.T @ impulse
    path = solve_ivp(lambda t, y: [y[1], forces(y)[0]], (strikes, duration), [angle, after[2]], **TIGHT).y
    for y in path.T:
        force = forces(y)[1]
        assert force[1] > 0 and abs(force[0]) < mu * force[1]
    last = path[:, -1]
    tip_x = half * math.cos(angle) * -1 - speed * strikes - tip * (last[0] - angle)  # of the ball's centre
    inertial = f"<inertial pos='0 0 0' mass='{mass}' diaginertia='{inertia} {inertia} 1e-3'/>"
    ball = f"<geom type='sphere' size='{tip}' pos='{-half} 0 0' friction='{mu}'/>"
    place = f"0 0 {half * math.sin(angle) + tip + height}"
    return Scene(
        name=name,
        mjcf=world(floor(mu) + f"<body pos='{place}'>{PLANE}{inertial}{ball}</body>"),
        q={2: -angle},
        v={0: -speed},
        duration=duration,
        quantities=(
            Quantity("angle, rad", lambda p: -p.q[-1, 2], last[0], 2 * speed / half, speed / half * SETTLING),
            Quantity("x, m", end("q", 0), tip_x + half * math.cos(last[0]), 2 * speed, speed * SETTLING),
            Quantity("w, rad/s", lambda p: -p.v[-1, 2], last[1], G / half, G / half * SETTLING),
        ),
    )


def painleve_jams() -> Scene:
    """Let the end slide on the floor and jam."""
    return _painleve("Painleve's rod jams", 0.0, 0.3)


def painleve_catches() -> Scene:
    """Drop the rod by 2 cm; its end is caught where it strikes."""
    return _painleve("Painleve's rod drops and catches", 0.02, 0.3)


def ball_off_a_ball() -> Scene:
    """Slide a smooth ball off a fixed one, which it leaves at cos a = 2/3 cos a_0."""
    large, small, lean, duration = 0.5, 0.1, 0.3, 0.7
    R = large + small
    leaves = math.acos(2 / 3 * math.cos(lean))
    t, y, came = until(
        lambda t, y: [y[1], G / R * math.sin(y[0])], [lean, 0.0], 0.0, duration, lambda t, y: leaves - y[0]
    )
    assert came
    flies, s, c = duration - t, math.sin(leaves), math.cos(leaves)
    x, z = R * (s + y[1] * c * flies), R * (c - y[1] * s * flies) - G * flies**2 / 2
    speed = R * y[1]
    bodies = (
        f"<geom type='sphere' size='{large}'/><body pos='{R * math.sin(lean)} 0 {R * math.cos(lean)}'>{PLANE}"
        f"<geom type='sphere' size='{small}' mass='1'/></body>"
    )
    return Scene(
        name="smooth ball slides off a fixed one",
        mjcf=world(bodies, default=FRICTIONLESS),
        duration=duration,
        quantities=(
            Quantity("x, m", end("q", 0), x - R * math.sin(lean), speed, 2 * FALL),
            Quantity("z, m", end("q", 1), z - R * math.cos(lean), 2 * speed, 4 * FALL),
        ),
    )


def ball_wedges_two_apart() -> Scene:
    """Sink a ball between two that it pushes apart, without friction, and that leave it.

    With the line of centres at an angle a to the vertical: x = 2 r sin a, z = 2 r cos a, one Lagrangian.
    """
    r, upper, lower, lean, duration = 0.1, 2.0, 1.0, math.radians(35.0), 0.2
    d = 2 * r

    def turning(y: np.ndarray) -> float:
        s, c = math.sin(y[0]), math.cos(y[0])
        inertia = 2 * lower * c * c + upper * s * s
        return (upper * G / d * s - (upper - 2 * lower) * s * c * y[1] ** 2) / inertia

    def pushes(t: float, y: np.ndarray) -> float:
        return math.cos(y[0]) * turning(y) - math.sin(y[0]) * y[1] ** 2  # x'' of the lower ones

    t, y, came = until(lambda t, y: [y[1], turning(y)], [lean, 0.0], 0.0, duration, pushes)
    assert came
    flies, s, c = duration - t, math.sin(y[0]), math.cos(y[0])
    z = d * (c - s * y[1] * flies) - G * flies**2 / 2
    x = d * (s + c * y[1] * flies)
    assert z > 0
    balls = "".join(
        f"<body pos='{side * d * math.sin(lean)} 0 {r}'>{PLANE}<geom type='sphere' size='{r}' mass='{lower}'/></body>"
        for side in (-1, 1)
    )
    balls += f"<body pos='0 0 {r + d * math.cos(lean)}'>{PLANE}<geom type='sphere' size='{r}' mass='{upper}'/></body>"
    speed = d * y[1]
    return Scene(
        name="ball sinks between two, as a wedge",
        mjcf=world(floor() + balls, default=FRICTIONLESS),
        duration=duration,
        quantities=(
            Quantity("x, m", end("q", 3), x - d * math.sin(lean), 2 * speed, 4 * FALL),
            Quantity("z, m", end("q", 7), z - d * math.cos(lean), 2 * speed, 4 * FALL),
        ),
    )


def ball_spins_in_a_corner() -> Scene:
    """Spin a ball that friction on the floor presses to the wall: N = m g / (1 + mu^2) and mu N; both brake the spin."""
    r, mass, mu, spin, duration = 0.1, 1.0, 0.3, 40.0, 0.3
    slows = mu * (1 + mu) / (1 + mu**2) * G * r / (0.4 * r**2)
    assert slows * duration < spin
    ball = (
        f"<body pos='{r} 0 {r}'>{PLANE}<geom type='sphere' size='{r}' mass='{mass}' friction='{mu}'/></body>"
    )
    return Scene(
        name="ball spins in a corner",
        mjcf=world(floor(mu) + WALL.format(f" friction='{mu}'") + ball),
        v={2: -spin},
        duration=duration,
        quantities=(
            Quantity("w, rad/s", end("v", 2), slows * duration - spin, slows, slows * SETTLING),
            Quantity("x, m", end("q", 0), 0.0, 0.01 * G * duration, 2 * DEPTH),
        ),
    )


SCENES = (
    ladder_smooth, ladder_rough, rod_on_ice, drop_on_an_edge, rocking_block, painleve_jams, painleve_catches,
    ball_off_a_ball, ball_wedges_two_apart, ball_spins_in_a_corner,
)  # fmt: skip
