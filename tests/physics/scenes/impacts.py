"""Impacts, a see-saw, dominoes, joint limits and dry friction of joints."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from scipy.integrate import solve_ivp

import jaxcontact as jc

from .falling import TIGHT, until
from .scene import (
    COMPLIANT,
    EVENTS,
    FRICTIONLESS,
    PLANE,
    SETTLING,
    SLIDES,
    STEPPING,
    STIFF,
    VARIATIONAL,
    G,
    Quantity,
    Scene,
    end,
    floor,
    world,
)

WITH_LAW = (STEPPING, EVENTS, VARIATIONAL)  # springs have no law of impact


def ball_bounces() -> Scene:
    """Bounce a ball with restitution 0.8, without friction."""
    e, height, radius, duration = 0.8, 0.3, 0.05, 1.0
    speed, t = math.sqrt(2 * G * height), math.sqrt(2 * height / G)
    bounces = 0
    while t + 2 * e * speed / G < duration:
        speed, bounces = e * speed, bounces + 1
        t += 2 * speed / G
    speed *= e
    left = duration - t
    z = speed * left - G * left**2 / 2
    ball = f"<body pos='0 0 {radius + height}'>{PLANE}<geom type='sphere' size='{radius}' mass='1'/></body>"
    first = math.sqrt(2 * G * height)
    return Scene(
        name=f"ball bounces {bounces + 1} times, restitution 0.8",
        mjcf=world(floor() + ball, default=FRICTIONLESS),
        law=jc.impact.Newton(restitution=e),
        claims=WITH_LAW,
        not_asked=(COMPLIANT, STIFF),
        v={0: 0.5},
        duration=duration,
        quantities=(
            Quantity("z, m", end("q", 1), z - height, first * (bounces + 2), 0.0),
            Quantity("v_z, m/s", end("v", 1), speed - G * left, G * (bounces + 2), 0.0),
            Quantity("x, m", end("q", 0), 0.5 * duration, 1e-6, 0.0),
        ),
    )


def elastic_chain() -> Scene:
    """Strike three balls in line, gaps between them, restitution 1: the impacts come one by one."""
    masses, starts, radius, duration = (3.0, 1.0, 0.5), (0.0, 0.3, 0.6), 0.1, 0.5
    x, v, t = np.array(starts), np.array([2.0, 0.0, 0.0]), 0.0
    impacts = 0
    while True:
        closing = v[:-1] - v[1:]
        with np.errstate(divide="ignore"):
            waits = np.where(closing > 1e-12, (x[1:] - x[:-1] - 2 * radius) / closing, np.inf)
        k = int(np.argmin(waits))
        if t + waits[k] >= duration:
            break
        t, x, impacts = t + waits[k], x + waits[k] * v, impacts + 1
        (m, M), (a, b) = masses[k : k + 2], v[k : k + 2]
        v[k : k + 2] = ((m - M) * a + 2 * M * b) / (m + M), ((M - m) * b + 2 * m * a) / (m + M)
    x = x + (duration - t) * v
    assert impacts >= 2
    balls = "".join(
        f"<body pos='{start} 0 0'><joint type='slide' axis='1 0 0'/><geom type='sphere' size='{radius}' mass='{mass}'/></body>"
        for mass, start in zip(masses, starts)
    )
    return Scene(
        name="elastic chain of three balls",
        mjcf=world(balls, default=FRICTIONLESS),
        law=jc.impact.Newton(restitution=1.0),
        claims=WITH_LAW,
        not_asked=(COMPLIANT, STIFF),
        v={0: 2.0},
        duration=duration,
        quantities=tuple(
            Quantity(f"x {k}, m", end("q", k), x[k] - starts[k], 2 * (abs(v[k]) + 2.0), 0.0) for k in range(3)
        ),
    )


def billiards() -> Scene:
    """Strike a ball off its centre, restitution 1: the two part at a right angle."""
    radius, aside, speed, duration = 0.05, 0.06, 1.0, 0.5
    along = math.sqrt(4 * radius**2 - aside**2)
    strikes = (0.3 - along) / speed
    n = np.array([along, -aside]) / (2 * radius)
    second = speed * n[0] * n
    first = np.array([speed, 0.0]) - second
    flies = duration - strikes
    balls = "".join(
        f"<body pos='{x} 0 {z}'>{SLIDES}<geom type='sphere' size='{radius}' mass='1'/></body>"
        for x, z in ((0.0, aside), (0.3, 0.0))
    )
    return Scene(
        name="billiards, seen from above",
        mjcf=world(balls, option="<option gravity='0 0 0'/>", default=FRICTIONLESS),
        law=jc.impact.Newton(restitution=1.0),
        claims=WITH_LAW,
        not_asked=(COMPLIANT, STIFF),
        v={0: speed},
        duration=duration,
        quantities=(
            # The contact may be found up to a step early: the line of centres then turns by v dt / 2 r.
            Quantity("first x, m", end("q", 0), speed * strikes + first[0] * flies, 4 * speed, 0.0),
            Quantity("first z, m", end("q", 1), first[1] * flies, 4 * speed, 0.0),
            Quantity("second z, m", end("q", 3), second[1] * flies, 4 * speed, 0.0),
        ),
    )


def limit_with_restitution() -> Scene:
    """Swing a pendulum into its limit, restitution 0.5."""
    e, length, mass, start, stop, duration = 0.5, 0.5, 1.0, 1.0, -0.3, 0.9
    inertia = mass * length**2 + 0.01

    def rate(t: float, y: np.ndarray) -> list[float]:
        return [y[1], -mass * G * length / inertia * math.sin(y[0])]

    t, y, came, fastest = 0.0, np.array([start, 0.0]), True, 0.0
    impacts = 0
    while came:
        t, y, came = until(rate, y, t, duration, lambda t, y: y[0] - stop)
        if came:
            fastest, impacts = max(fastest, abs(y[1])), impacts + 1
            y = np.array([stop + 1e-13, -e * y[1]])
    assert impacts >= 1
    inertial = f"<inertial pos='0 0 {-length}' mass='{mass}' diaginertia='.01 .01 .01'/>"
    joint = f"<joint axis='0 1 0' limited='true' range='{math.degrees(stop)} 170'/>"
    return Scene(
        name="pendulum strikes a joint limit, restitution 0.5",
        mjcf=world(f"<body>{joint}{inertial}</body>"),
        law=jc.impact.Newton(restitution=e),
        claims=WITH_LAW,
        not_asked=(COMPLIANT, STIFF),
        q={0: start},
        duration=duration,
        quantities=(
            Quantity("angle, rad", end("q", 0), y[0], fastest * (impacts + 1), 0.0),
            Quantity("w, rad/s", end("v", 0), y[1], 2 * G / length * (impacts + 1), 0.0),
        ),
    )


def limit_stops() -> Scene:
    """Move a slide to the end of its range, where it stays, without restitution.

    The stop is exact at any dt, so C has a hundredth of the speeds. A spring with critical damping that cannot
    pull lets go at exp(-2) of the speed; in long steps, dt^2 K > m, at the fraction m / (dt^2 K) at most.
    """
    speed, limit, duration = 1.0, 0.2, 0.4
    rebound = math.exp(-2.0) * speed
    return Scene(
        name="slide stops at its limit",
        mjcf=world(
            f"<body><joint type='slide' axis='1 0 0' limited='true' range='-1 {limit}'/><geom type='sphere' size='.1' mass='1'/></body>"
        ),
        v={0: speed},
        duration=duration,
        quantities=(
            Quantity("x, m", end("q", 0), limit, 0.01 * speed, rebound * (duration - limit / speed)),
            Quantity("v, m/s", end("v", 0), 0.0, 0.01 * speed / duration, rebound),
        ),
    )


def dry_slide() -> Scene:
    """Stop a slide by dry friction of 2 N and a push of 1 N, against which it stays."""
    speed, force, push, mass, duration = 1.5, 2.0, 1.0, 1.0, 0.7
    slows = (force - push) / mass
    stops = speed / (force + push) * mass
    joint = f"<joint name='rail' type='slide' axis='1 0 0' frictionloss='{force}'/>"
    return Scene(
        name="slide with dry friction stops and stays",
        mjcf=world(
            f"<body>{joint}<geom type='sphere' size='.1' mass='{mass}'/></body>",
            more="<actuator><motor joint='rail'/></actuator>",
        ),
        v={0: speed},
        controls=(-push,),
        duration=duration,
        quantities=(
            Quantity("x, m", end("q", 0), speed * stops / 2, 0.6 * speed, 0.0),
            Quantity("v, m/s", end("v", 0), 0.0, 1e-4 * slows, 1e-6),
        ),
    )


def dry_pendulum() -> Scene:
    """Swing a pendulum whose hinge has dry friction until it sticks, out of the vertical."""
    length, mass, friction, start, duration = 0.5, 1.0, 1.5, 1.2, 2.0
    inertia, weight = mass * length**2 + 0.01, mass * G * length
    t, y = 0.0, np.array([start, 0.0])
    while t < duration and abs(weight * math.sin(y[0])) > friction:
        way = -math.copysign(1.0, y[0])  # of the motion that begins
        y[1] = way * 1e-9

        def rate(t: float, y: np.ndarray, way: float = way) -> list[float]:
            return [y[1], (-weight * math.sin(y[0]) - way * friction) / inertia]

        def turns(t: float, y: np.ndarray, way: float = way) -> float:
            return way * y[1]

        t, y, _ = until(rate, y, t, duration, turns)
    assert t < duration
    inertial = f"<inertial pos='0 0 {-length}' mass='{mass}' diaginertia='.01 .01 .01'/>"
    return Scene(
        name="pendulum with dry friction sticks",
        mjcf=world(f"<body><joint axis='0 1 0' frictionloss='{friction}'/>{inertial}</body>"),
        q={0: start},
        duration=duration,
        quantities=(
            # Backward Euler of the friction: its impulse may last half a step longer, in every half swing.
            Quantity("angle, rad", end("q", 0), y[0], 2 * math.sqrt(2 * weight / inertia), 0.0),
            Quantity("w, rad/s", end("v", 0), 0.0, 1e-3, 1e-6),
        ),
    )


def see_saw() -> Scene:
    """Drop a ball on the high end of a see-saw, whose low end lies on a ball: one impact, then one Lagrangian.

    With the ball at s along the plank and w above it, z turning towards x by f:
    s'' + w f'' = s f'^2 + g sin f,
    (J + m (s^2 + w^2)) f'' + m w s'' + 2 m s s' f' = m g (s cos f + w sin f) + M g d cos f.
    """
    mass, plank, J, d, thick, radius = 1.0, 2.0, 0.3, -0.1, 0.02, 0.05
    start, height, at, duration = -0.25, 0.2, 0.4, 0.4
    w = radius + thick
    sn, c = math.sin(start), math.cos(start)
    s = (at - w * sn) / c  # the centre's x is s cos f + w sin f
    z = -s * sn + w * c
    strikes, speed = math.sqrt(2 * height / G), math.sqrt(2 * height * G)
    normal, along = -speed * c, speed * sn
    impulse = -normal / (1 / mass + s * s / J)
    turn = s * impulse / J
    y = [s, along - w * turn, start, turn]

    def accelerations(y: np.ndarray) -> tuple[np.ndarray, float]:
        s, s1, f, f1 = y
        A = np.array([[mass, mass * w], [mass * w, J + mass * (s * s + w * w)]])
        right = [
            mass * (s * f1**2 + G * math.sin(f)),
            mass * G * (s * math.cos(f) + w * math.sin(f)) + plank * G * d * math.cos(f)
            - 2 * mass * s * s1 * f1,
        ]  # fmt: skip
        a = np.linalg.solve(A, right)
        # acceleration of the ball along the normal of the plank
        push = mass * (-s * a[1] - 2 * s1 * f1 - w * f1**2 + G * math.cos(f))
        return a, push

    def rate(t: float, y: np.ndarray) -> list[float]:
        a, _ = accelerations(y)
        return [y[1], a[0], y[3], a[1]]

    path = solve_ivp(rate, (strikes, duration), y, **TIGHT).y
    assert all(accelerations(each)[1] > 0 for each in path.T) and path[0].max() < 0.6
    s, s1, f, f1 = path[:, -1]
    x_end, z_end = s * math.cos(f) + w * math.sin(f), -s * math.sin(f) + w * math.cos(f)
    below, out = (
        -(thick + radius),
        -0.5,
    )  # of the ball that the low end lies on, along the plank's normal and plank
    post = f"{out * c + below * sn} 0 {-out * sn + below * c}"
    bodies = (
        f"<geom name='post' type='sphere' size='{radius}' pos='{post}'/><body><joint axis='0 1 0'/>"
        f"<inertial pos='{d} 0 0' mass='{plank}' diaginertia='.2 {J - plank * d * d} .2'/>"
        f"<geom type='box' size='.6 .1 {thick}'/></body>"
        f"<body pos='{at} 0 {z + height}'>{PLANE}<geom type='sphere' size='{radius}' mass='{mass}'/></body>"
    )
    return Scene(
        name="ball drops on a see-saw",
        mjcf=world(bodies, default=FRICTIONLESS),
        q={0: start},
        duration=duration,
        quantities=(
            Quantity("turn, rad", end("q", 0), f, 2 * f1, 2 * f1 * SETTLING),
            Quantity("w, rad/s", end("v", 0), f1, 2 * G / at, 2 * G / at * SETTLING),
            Quantity("x, m", end("q", 1), x_end - at, speed, speed * SETTLING),
            Quantity("z, m", end("q", 2), z_end - z - height, speed, speed * SETTLING),
        ),
    )


class Dominoes:
    """Three dominoes on hinges at their lower right edges, on balls, without friction and restitution.

    The upper right corner of k touches the left face of k + 1 if h sin(a_k - a_{k+1}) = s cos a_{k+1} - t.
    """

    height, thick, pitch, mass = 0.2, 0.02, 0.08, 0.1
    count = 3

    def __init__(self) -> None:
        self.inertia = self.mass * (self.height**2 + self.thick**2) / 3

    def gap(self, a: np.ndarray, k: int) -> float:
        """Compute the gap between k and k + 1."""
        return self.pitch * math.cos(a[k + 1]) - self.thick - self.height * math.sin(a[k] - a[k + 1])

    def row(self, a: np.ndarray, k: int) -> np.ndarray:
        """Compute the derivative of the gap by the angles."""
        close = self.height * math.cos(a[k] - a[k + 1])
        row = np.zeros(self.count)
        row[k], row[k + 1] = -close, close - self.pitch * math.sin(a[k + 1])
        return row

    def bias(self, a: np.ndarray, w: np.ndarray, k: int) -> float:
        """Compute the second derivative of the gap without accelerations."""
        swing = self.height * math.sin(a[k] - a[k + 1]) * (w[k] - w[k + 1]) ** 2
        return swing - self.pitch * math.cos(a[k + 1]) * w[k + 1] ** 2

    def forces(self, y: np.ndarray, touch: tuple[int, ...], still: set[int]) -> tuple[np.ndarray, np.ndarray]:
        """Compute angular accelerations, and the forces of the contacts `touch`; dominoes in `still` stand."""
        a, w = y[: self.count], y[self.count :]
        torque = self.mass * G / 2 * (self.height * np.sin(a) - self.thick * np.cos(a))
        free = np.array([0.0 if k in still else 1.0 for k in range(self.count)]) / self.inertia
        J = np.array([self.row(a, k) for k in touch]).reshape(len(touch), self.count)
        bias = np.array([self.bias(a, w, k) for k in touch])
        force = np.linalg.solve((J * free) @ J.T, -(J @ (free * torque) + bias)) if touch else np.zeros(0)
        return free * (torque + J.T @ force), force

    def fall(self, first: float, duration: float) -> tuple[np.ndarray, int]:
        """Integrate from upright, the first pushed with a rate; return angles and rates, and the impacts.

        Raises:
            AssertionError: a contact would let go: then these modes are wrong.
        """
        n = self.count
        y, t, touch, still, impacts = np.zeros(2 * n), 0.0, (), set(range(1, n)), 0
        y[n] = first
        while True:
            last = max(touch, default=-1) + 1  # of the dominoes that move

            def rate(
                t: float, y: np.ndarray, touch: Any = touch, still: Any = frozenset(still)
            ) -> np.ndarray:
                return np.concatenate([y[n:], self.forces(y, touch, still)[0]])

            def closes(t: float, y: np.ndarray, last: int = last) -> float:
                return self.gap(y[:n], last) if last + 1 < n else 1.0

            t, y, came = until(rate, y, t, duration, closes)
            assert np.all(self.forces(y, touch, still)[1] > 0)
            if not came:
                return y, impacts
            still.discard(last + 1)
            touch, impacts = (*touch, last), impacts + 1
            J = np.array([self.row(y[:n], k) for k in touch])
            impulse = np.linalg.solve(J @ J.T / self.inertia, -J @ y[n:])
            assert np.all(impulse >= 0)
            y[n:] += J.T @ impulse / self.inertia


def dominoes() -> Scene:
    """Push the first of three dominoes; each strikes the next, and leans on it."""
    row, first, duration = Dominoes(), 3.0, 0.3
    y, impacts = row.fall(first, duration)
    assert impacts == 2
    size = f"{row.thick / 2} .05 {row.height / 2}"
    off = "contype='0' conaffinity='0'"
    bodies = "".join(
        f"<geom name='post{k}' type='sphere' size='.01' pos='{k * row.pitch - 0.75 * row.thick} 0 -.01' {off}/>"
        f"<body pos='{k * row.pitch} 0 0'><joint axis='0 1 0'/><geom name='domino{k}' type='box' size='{size}'"
        f" pos='{-row.thick / 2} 0 {row.height / 2}' mass='{row.mass}' {off}/></body>"
        for k in range(row.count)
    )
    touching = [(f"domino{k}", f"post{k}") for k in range(row.count)]
    touching += [(f"domino{k}", f"domino{k + 1}") for k in range(row.count - 1)]
    pairs = "".join(f"<pair geom1='{a}' geom2='{b}' condim='1'/>" for a, b in touching)
    n = row.count
    return Scene(
        name="three dominoes",
        mjcf=world(bodies, more=f"<contact>{pairs}</contact>"),
        v={0: first},
        duration=duration,
        quantities=tuple(
            Quantity(f"angle {k}, rad", end("q", k), y[k], 3 * max(first, y[n + k]), 3 * y[n + k] * SETTLING)
            for k in range(n)
        ),
    )


SCENES = (
    ball_bounces, elastic_chain, billiards, limit_with_restitution, limit_stops, dry_slide, dry_pendulum, see_saw,
    dominoes,
)  # fmt: skip
