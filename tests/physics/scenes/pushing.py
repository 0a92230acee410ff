"""Boxes that fingers, arms and hands push, grip and carry, stacks and wedges: bodies that move as one or slip."""

from __future__ import annotations

import math

import numpy as np
from scipy.integrate import solve_ivp

from .scene import (
    ALL,
    COMPLIANT,
    EVENTS,
    FALL,
    PLANE,
    SETTLING,
    STEPPING,
    STIFF,
    VARIATIONAL,
    G,
    Quantity,
    Scene,
    end,
    floor,
    radians,
    world,
)
from .sliding import box

RIGID = (STEPPING, EVENTS, VARIATIONAL)
SMOOTH_PAIR = "<contact><pair geom1='finger' geom2='box' condim='1'/></contact>"


def _pusher(mu: float, pos: str, mass: float, half: str, box_mass: float, smooth: bool, planar: bool) -> str:
    """Write a finger on a slide and a free box on a floor."""
    joint = PLANE if planar else "<freejoint/>"
    off = " contype='0' conaffinity='0'" if smooth else ""
    height = half.split()[2]
    bodies = (
        f"<body pos='{pos}'><joint name='push' type='slide' axis='1 0 0'/>"
        f"<geom name='finger' type='sphere' size='.03' mass='{mass}' friction='{mu}'{off}/></body>"
        f"<body pos='0 0 {height}'>{joint}<geom name='box' type='box' size='{half}' mass='{box_mass}' friction='{mu}'/></body>"
    )
    motor = "<actuator><motor joint='push'/></actuator>"
    return world(floor(mu) + bodies, more=(SMOOTH_PAIR if smooth else "") + motor)


def _struck(name: str, mu: float, smooth: bool, planar: bool) -> Scene:
    """Strike a box of 0.5 kg by a finger of 1 kg at 2 m/s; both slide on with 4/3 m/s against mu 0.5 g / 1.5.

    A rough finger may pass friction of up to mu times its impulse and force on to the floor, either way: rigid
    bodies leave an interval, and only springs say where in it.
    """
    speed, gap, duration = 2.0, 0.17, 0.4
    strikes, common, slows = gap / speed, speed / 1.5, mu * 0.5 * G / 1.5
    slides = duration - strikes
    assert slows * slides < common
    passed = 0.0 if smooth else mu**2 / 1.5  # of a force of the finger, that the floor takes from both
    slower = passed * (common * 0.5 + slows * slides)
    return Scene(
        name=name,
        mjcf=_pusher(mu, "-.3 0 .1", 1.0, ".1 .1 .1", 0.5, smooth, planar),
        planar=planar,
        v={0: speed},
        controls=(0.0,),
        duration=duration,
        claims=ALL if smooth else (COMPLIANT, STIFF),
        not_asked=() if smooth else RIGID,
        quantities=(
            Quantity(
                "x, m", end("q", 1), common * slides - slows * slides**2 / 2, speed, speed * SETTLING,
                span=passed * (common * 0.5 + slows * slides / 2) * slides,
            ),
            Quantity("v, m/s", end("v", 1), common - slows * slides, slows, slows * SETTLING, span=slower),
        ),
    )  # fmt: skip


def finger_strikes() -> Scene:
    """Take a smooth finger, in the plane."""
    return _struck("smooth finger strikes a box", 0.3, True, True)


def rough_finger_strikes() -> Scene:
    """Take a finger with the friction of the floor, in space."""
    return _struck("rough finger strikes a box, in space", 0.3, False, False)


def _force(name: str, smooth: bool, planar: bool) -> Scene:
    """Push a box of 2 kg by a finger of 1 kg and 20 N, from rest: (F - mu m g) / (m + M).

    A rough finger may carry a part of the box, which sinks into the floor, of up to mu times its force.
    """
    mu, force, duration = 0.5, 20.0, 0.4
    rate = (force - mu * 2 * G) / 3
    push = (2 * force + mu * 2 * G) / (3 + mu**2)  # of a finger that carries the most
    most = rate if smooth else force - push
    mean, half = (rate + most) / 2, (most - rate) / 2
    return Scene(
        name=name,
        mjcf=_pusher(mu, "-.13 0 .1", 1.0, ".1 .1 .1", 2.0, smooth, planar),
        planar=planar,
        controls=(force,),
        duration=duration,
        claims=ALL if smooth else (COMPLIANT, STIFF),
        not_asked=() if smooth else RIGID,
        quantities=(
            Quantity(
                "x, m", end("q", 1), mean * duration**2 / 2, rate * duration, rate * SETTLING * duration,
                span=half * duration**2 / 2,
            ),
            Quantity("v, m/s", end("v", 1), mean * duration, rate, rate * SETTLING, span=half * duration),
        ),
    )  # fmt: skip


def finger_pushes() -> Scene:
    """Take a smooth finger, in the plane."""
    return _force("smooth finger pushes a box by 20 N", True, True)


def rough_finger_pushes() -> Scene:
    """Take a finger with the friction of the floor, in space."""
    return _force("rough finger pushes a box by 20 N, in space", False, False)


def arm_pushes() -> Scene:
    """Push a box by the smooth fingertip of an arm of two links; the box moves as the fingertip does along x.

    With the tip at p(a, b) and J = dp, the arm's equations get -J_x^T m_box (x'' + mu g).
    """
    upper, lower, links, mass, mu, tip, duration = 0.4, 0.4, (1.0, 0.6), 0.8, 0.3, 0.03, 0.35
    torque = (0.0, 2.0)
    start = np.array([math.radians(-60.0), math.radians(50.0)])  # from hanging down, forwards; b is absolute

    def equations(y: np.ndarray) -> tuple[np.ndarray, float]:
        """Compute (a'', b'') of absolute angles from the vertical, and the force on the box."""
        (a, b), w = y[:2], y[2:]
        sa, ca, sb, cb = math.sin(a), math.cos(a), math.sin(b), math.cos(b)
        # point masses in the middle of the links
        J1 = np.array([[upper / 2 * ca, 0], [upper / 2 * sa, 0]])
        J2 = np.array([[upper * ca, lower / 2 * cb], [upper * sa, lower / 2 * sb]])
        h1 = np.array([-upper / 2 * sa, upper / 2 * ca]) * w[0] ** 2
        h2 = (
            np.array([-upper * sa, upper * ca]) * w[0] ** 2
            + np.array([-lower / 2 * sb, lower / 2 * cb]) * w[1] ** 2
        )
        M = links[0] * J1.T @ J1 + links[1] * J2.T @ J2 + 1e-3 * np.eye(2)
        weight = np.array([0, G])
        force = np.array([torque[0] - torque[1], torque[1]])  # of motors at relative angles
        force = force - links[0] * J1.T @ (h1 + weight) - links[1] * J2.T @ (h2 + weight)
        Jx = np.array([upper * ca, lower * cb])
        other = -upper * sa * w[0] ** 2 - lower * sb * w[1] ** 2
        acceleration = np.linalg.solve(M + mass * np.outer(Jx, Jx), force - Jx * mass * (other + mu * G))
        return acceleration, mass * (Jx @ acceleration + other + mu * G)

    path = solve_ivp(
        lambda t, y: np.concatenate([y[2:], equations(y)[0]]), (0, duration), [*start, 0, 0], rtol=1e-10, atol=1e-12
    ).y  # fmt: skip
    height = 0.1
    depth = upper * math.cos(start[0]) + lower * math.cos(start[1])  # of the fingertip below the shoulder
    shoulder = depth + height
    for y in path.T:
        assert equations(y)[1] > 0
        z = shoulder - upper * math.cos(y[0]) - lower * math.cos(y[1])
        assert 0.03 < z < 0.2 - 0.01
    reach = upper * math.sin(start[0]) + lower * math.sin(start[1])
    moved = upper * math.sin(path[0, -1]) + lower * math.sin(path[1, -1]) - reach
    off = "contype='0' conaffinity='0'"
    arm = (
        f"<body pos='0 0 {shoulder}'><joint name='shoulder' axis='0 -1 0'/>"
        f"<inertial pos='0 0 {-upper / 2}' mass='{links[0]}' diaginertia='1e-3 1e-3 1e-3'/>"
        f"<body pos='0 0 {-upper}'><joint name='elbow' axis='0 -1 0'/>"
        f"<inertial pos='0 0 {-lower / 2}' mass='{links[1]}' diaginertia='1e-3 1e-3 1e-3'/>"
        f"<geom name='finger' type='sphere' size='{tip}' pos='0 0 {-lower}' {off}/></body></body>"
    )
    at = reach + tip + 0.1
    crate = f"<body pos='{at} 0 .1'>{PLANE}<geom name='box' type='box' size='.1 .1 .1' mass='{mass}' friction='{mu}'/></body>"
    motors = "<actuator><motor joint='shoulder'/><motor joint='elbow'/></actuator>"
    speed = float(upper * math.cos(path[0, -1]) * path[2, -1] + lower * math.cos(path[1, -1]) * path[3, -1])
    return Scene(
        name="arm of two links pushes a box",
        mjcf=world(floor(mu) + arm + crate, more=SMOOTH_PAIR + motors),
        q={0: start[0], 1: start[1] - start[0]},
        controls=torque,
        duration=duration,
        quantities=(
            Quantity("x, m", end("q", 2), moved, speed, speed * SETTLING),
            Quantity("v, m/s", end("v", 2), speed, 4 * speed / duration, speed / duration * SETTLING),
        ),
    )


def _grasp(name: str, mu: float, push: float, rise: float, aside: float, duration: float) -> Scene:
    """Grip a box of 1 kg by two fingers of 0.2 kg, and move the hand of 1 kg up and aside.

    The fingers are lower than the box: no corner passes a corner, where one might catch on the other.
    The grip holds if 2 mu N >= m (g + rise): all of it has one acceleration; else the hand gets what friction
    leaves, and the box lags.
    """
    holds = 2 * mu * push >= 1.0 * (G + rise)
    lift = 2.4 * (G + rise) if holds else 1.4 * (G + rise) + 2 * mu * push
    of_box = rise if holds else 2 * mu * push - G
    fingers = "".join(
        f"<body pos='{-side * 0.08} 0 0'><joint name='{name_of}' type='slide' axis='{side} 0 0'/>"
        f"<geom type='box' size='.03 .04 .02' mass='.2' friction='{mu}'/></body>"
        for name_of, side in (("left", 1), ("right", -1))
    )
    hand = (
        "<body pos='0 0 .5'><joint name='lift' type='slide' axis='0 0 1'/><joint name='aside' type='slide' axis='1 0 0'/>"
        f"<geom type='sphere' size='.01' pos='0 0 .5' mass='1' contype='0' conaffinity='0'/>{fingers}</body>"
    )
    motors = "".join(f"<motor joint='{joint}'/>" for joint in ("lift", "aside", "left", "right"))
    # The fingers accelerate the box and themselves aside: 1 kg + 2 * 0.2 kg.
    left, right = push + 0.7 * aside, push - 0.7 * aside
    return Scene(
        name=name,
        mjcf=world(hand + box(".05 .05 .05", 1.0, mu, pos="0 0 .5"), more=f"<actuator>{motors}</actuator>"),
        controls=(lift, 2.4 * aside, left, right),
        duration=duration,
        quantities=(
            Quantity(
                "box z, m", end("q", 5), of_box * duration**2 / 2, max(abs(of_box), 1) * duration, 2 * FALL
            ),
            Quantity("box x, m", end("q", 4), aside * duration**2 / 2, max(aside, 0.1) * duration, FALL),
            Quantity("hand z, m", end("q", 0), rise * duration**2 / 2, duration, 2 * FALL),
        ),
    )


def grasp_carries() -> Scene:
    """Grip it well, lift it with 1 m/s^2, and move it aside with 0.5 m/s^2."""
    return _grasp("box between two fingers, lifted and carried", 1.0, 20.0, 1.0, 0.5, 0.5)


def grasp_slips() -> Scene:
    """Grip it weakly: the box slips down between fingers that stand still."""
    return _grasp("box slips between two fingers", 0.3, 10.0, 0.0, 0.0, 0.1)


def _stack(name: str, force: float, lower: float, upper: float, duration: float) -> Scene:
    mu = 0.3
    bodies = box(".3 .2 .05", 1.0, mu, pos="0 0 .05", joint=PLANE.replace("<joint", "<joint name='pull'", 1))
    bodies += box(".1 .1 .05", 1.0, mu, pos="0 0 .15")
    return Scene(
        name=name,
        mjcf=world(floor(mu) + bodies, more="<actuator><motor joint='pull'/></actuator>"),
        controls=(force,),
        duration=duration,
        quantities=(
            Quantity(
                "lower, m",
                end("q", 0),
                lower * duration**2 / 2,
                lower * duration,
                lower * SETTLING * duration,
            ),
            Quantity("upper, m", end("q", 3), upper * duration**2 / 2, upper * duration, 2 * FALL),
        ),
    )


def stack_together() -> Scene:
    """Pull the lower of two boxes by 8 N: both move as one."""
    rate = (8.0 - 0.3 * 2 * G) / 2
    return _stack("stack pulled from below by 8 N", 8.0, rate, rate, 0.4)


def stack_slips() -> Scene:
    """Pull the lower one away by 20 N: the upper gets mu g."""
    return _stack("stack pulled from below by 20 N", 20.0, 20.0 - 0.9 * G, 0.3 * G, 0.2)


def wedge() -> Scene:
    """Slide a block down a wedge that it pushes away, friction 0.2 between them.

    N (1/m + (sin - mu cos) sin / M) = g cos: the block stays on the face.
    """
    mu, m, M, duration = 0.2, 1.0, 3.0, 0.45
    _, s, c = radians(30.0)
    load = G * c / (1 / m + (s - mu * c) * s / M)
    of_wedge = -load * (s - mu * c) / M
    x, z = load * (s - mu * c) / m, load * (c + mu * s) / m - G
    bodies = f"<body><joint type='slide' axis='1 0 0'/><geom type='box' size='1 .2 .3' euler='0 30 0' mass='{M}' friction='{mu}'/></body>"
    place = f"{0.35 * s} 0 {0.35 * c}"
    bodies += f"<body pos='{place}'>{PLANE}<geom type='box' size='.1 .1 .05' euler='0 30 0' mass='{m}' friction='{mu}'/></body>"
    return Scene(
        name="block on a wedge that gives way",
        mjcf=world(bodies),
        duration=duration,
        quantities=(
            Quantity("wedge x, m", end("q", 0), of_wedge * duration**2 / 2, -of_wedge * duration, FALL),
            Quantity("block x, m", end("q", 1), x * duration**2 / 2, x * duration, 2 * FALL),
            Quantity("block z, m", end("q", 2), z * duration**2 / 2, -z * duration, 2 * FALL),
        ),
    )


def four_bar() -> Scene:
    """Carry a box on the coupler of a parallel four-bar, which swings as a pendulum and does not turn."""
    length, crank, coupler, load, mu, start, duration = 0.5, 0.4, 1.0, 0.5, 1.0, 0.4, 0.6
    inertia = 2 * crank * length**2 / 3 + (coupler + load) * length**2
    moment = (crank + coupler + load) * G * length

    def rate(t: float, y: np.ndarray) -> list[float]:
        return [y[1], -moment / inertia * math.sin(y[0])]

    path = solve_ivp(rate, (0, duration), [start, 0.0], rtol=1e-11, atol=1e-12).y
    a, w = path[:, -1]
    off = "contype='0' conaffinity='0'"

    def bar(name: str, x: float, inner: str) -> str:
        return (
            f"<body name='{name}' pos='{x} 0 1'><joint axis='0 -1 0'/><inertial pos='0 0 {-length / 2}' mass='{crank}'"
            f" diaginertia='.01 {crank * length**2 / 12} .01'/>"
            f"<geom type='capsule' size='.01' fromto='0 0 0 0 0 {-length}' {off}/>{inner}</body>"
        )

    plate = (
        f"<body name='plate' pos='0 0 {-length}'><joint axis='0 -1 0'/>"
        f"<geom type='box' size='.3 .1 .02' pos='.3 0 0' mass='{coupler}' friction='{mu}'/></body>"
    )
    place = f"{0.3 + length * math.sin(start)} 0 {1 - length * math.cos(start) + 0.07}"
    rider = box(".05 .05 .05", load, mu, pos=place)
    loop = "<equality><connect body1='plate' body2='back' anchor='.6 0 0'/></equality>"
    return Scene(
        name="box on the coupler of a four-bar",
        mjcf=world(bar("front", 0.0, plate) + bar("back", 0.6, "") + rider, more=loop),
        q={0: start, 1: -start, 2: start},
        duration=duration,
        quantities=(
            Quantity("crank, rad", end("q", 0), a, abs(w) + start, start * SETTLING),
            Quantity(
                "box x, m",
                end("q", 3),
                length * (math.sin(a) - math.sin(start)),
                start * G * duration / 2,
                2 * FALL,
            ),
        ),
    )


SCENES = (
    finger_strikes, rough_finger_strikes, finger_pushes, rough_finger_pushes, arm_pushes, grasp_carries,
    grasp_slips, stack_together, stack_slips, wedge, four_bar,
)  # fmt: skip
