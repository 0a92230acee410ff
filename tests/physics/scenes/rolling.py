"""Wheels, balls, a coin and tops: closed forms, and one integration of a body that rolls."""

from __future__ import annotations

import math

import numpy as np
from scipy.integrate import solve_ivp

from . import rolling_body
from .scene import (
    FALL,
    PLANE,
    SETTLING,
    G,
    Path,
    Quantity,
    Scene,
    end,
    floor,
    radians,
    world,
)

RADIUS = 0.1  # m, of the wheels and balls


def ball(mu: float, *, joint: str = PLANE, pos: str = f"0 0 {RADIUS}", mass: float = 1.0) -> str:
    """Write a body that is a ball."""
    return (
        f"<body pos='{pos}'>{joint}<geom type='sphere' size='{RADIUS}' mass='{mass}' friction='{mu}'/></body>"
    )


def _thrown(name: str, speed: float, spin: float, mu: float, duration: float, planar: bool) -> Scene:
    """Slide a ball until it rolls, with v = w r = (5 v_0 + 2 w_0 r) / 7; `spin` is w_0 r."""
    rolls = (5 * speed + 2 * spin) / 7
    changes = abs(speed - rolls) / (mu * G)
    x = (speed + rolls) / 2 * changes + rolls * (duration - changes)
    turns = 2 if planar else 4
    return Scene(
        name=name,
        mjcf=world(floor(mu) + ball(mu, joint=PLANE if planar else "<freejoint/>")),
        planar=planar,
        v={0: speed, turns: spin / RADIUS},
        duration=duration,
        quantities=(
            Quantity("x, m", end("q", 0), x, 0.6 * abs(speed - rolls), 2 * mu * FALL),
            Quantity(
                "w r, m/s", lambda p: RADIUS * p.v[-1, turns], rolls, 0.05 * mu * G, 1e-3 * G * SETTLING
            ),
        ),
    )


def ball_slides_then_rolls() -> Scene:
    """Throw it without a spin: it keeps 5/7 of its speed."""
    return _thrown("ball slides, then rolls, in space", 2.0, 0.0, 0.2, 0.5, False)


def backspin() -> Scene:
    """Throw it forward so that it comes back."""
    return _thrown("ball with backspin comes back", 1.0, -4.0, 0.3, 1.0, True)


def wheel_rolls_down() -> Scene:
    """Roll a cylinder on its side down, with 2/3 g sin a."""
    turn, duration, mu = 15.0, 0.8, 0.5
    _, s, c = radians(turn)
    rate = 2 / 3 * G * s
    wheel = (
        f"<body pos='0 0 {RADIUS}'><freejoint/><geom type='cylinder' size='{RADIUS} .05' euler='90 0 0' mass='1'"
        f" friction='{mu}'/></body>"
    )
    return Scene(
        name="cylinder on its side rolls down 15 degrees, in space",
        mjcf=world(floor(mu) + wheel, option=f"<option gravity='{G * s} 0 {-G * c}'/>"),
        planar=False,
        duration=duration,
        quantities=(
            Quantity(
                "x, m", end("q", 0), rate * duration**2 / 2, rate * duration, 0.01 * rate * duration**2 / 2
            ),
            Quantity(
                "w r, m/s", lambda p: RADIUS * p.v[-1, 4], rate * duration, rate, 0.01 * rate * duration
            ),
        ),
    )


def wheel_slips() -> Scene:
    """Let a ball slip on an incline too smooth to roll on: it slides with g (sin a - mu cos a), and friction turns it, with 2/5 m r^2."""
    turn, duration, mu = 30.0, 0.6, 0.05
    _, s, c = radians(turn)
    rate, turning = G * (s - mu * c), 2.5 * mu * G * c
    incline = f"<geom type='plane' size='9 9 1' euler='0 {turn} 0' friction='{mu}'/>"
    return Scene(
        name="ball slips down 30 degrees, mu 0.05",
        mjcf=world(incline + ball(mu, pos=f"{RADIUS * s} 0 {RADIUS * c}")),
        duration=duration,
        quantities=(
            Quantity("x, m", end("q", 0), rate * duration**2 / 2 * c, rate * duration, FALL),
            Quantity(
                "w r, m/s", lambda p: RADIUS * p.v[-1, 2], turning * duration, turning, turning * SETTLING
            ),
        ),
    )


def ball_on_a_plank() -> Scene:
    """Pull a plank away under a ball, which rolls and gets 2/7 of the plank's acceleration."""
    mu, plank, mass, duration = 0.8, 2.0, 1.0, 0.6
    pull = 6.0
    rate = pull / (plank + 2 / 7 * mass)
    bodies = (
        "<body pos='0 0 -.05'><joint name='pull' type='slide' axis='1 0 0'/>"
        f"<geom type='box' size='3 .2 .05' mass='{plank}' friction='{mu}'/></body>"
    )
    return Scene(
        name="plank is pulled away under a ball",
        mjcf=world(bodies + ball(mu, mass=mass), more="<actuator><motor joint='pull'/></actuator>"),
        controls=(pull,),
        duration=duration,
        quantities=(
            Quantity("plank, m", end("q", 0), rate * duration**2 / 2, rate * duration, 2 * FALL),
            Quantity("ball, m", end("q", 1), rate * duration**2 / 7, rate * duration, 2 * FALL),
        ),
    )


def cart() -> Scene:
    """Drive a cart by two wheels: it gets 2 tau / r over M + 2 m + 2 I / r^2."""
    mu, body, wheel, torque, duration = 1.0, 3.0, 0.5, 0.8, 0.8
    rate = 2 * torque / RADIUS / (body + 2 * wheel * (1 + 2 / 5))
    wheels = "".join(
        f"<body pos='{x} 0 -.02'><joint name='{name}' axis='0 1 0'/>"
        f"<geom type='sphere' size='{RADIUS}' mass='{wheel}' friction='{mu}'/></body>"
        for name, x in (("rear", -0.3), ("front", 0.3))
    )
    chassis = f"<geom type='box' size='.3 .1 .02' mass='{body}' contype='0' conaffinity='0'/>"
    motors = "<actuator><motor joint='rear'/><motor joint='front'/></actuator>"
    return Scene(
        name="cart driven by its wheels",
        mjcf=world(
            floor(mu) + f"<body pos='0 0 {RADIUS + 0.02}'>{PLANE}{chassis}{wheels}</body>", more=motors
        ),
        controls=(torque, torque),
        duration=duration,
        quantities=(
            Quantity("x, m", end("q", 0), rate * duration**2 / 2, rate * duration, 2 * FALL),
            Quantity("v, m/s", end("v", 0), rate * duration, rate, rate * SETTLING),
        ),
    )


def brake() -> Scene:
    """Press a shoe on a wheel, which loses mu N r / I, and stops for good."""
    mu, mass, push, spin, duration = 0.4, 2.0, 10.0, 12.0, 0.4
    slows = mu * push * RADIUS / (0.4 * mass * RADIUS**2)
    stops = spin / slows
    bodies = (
        f"<body><joint axis='0 1 0'/><geom type='sphere' size='{RADIUS}' mass='{mass}' friction='{mu}'/></body>"
        f"<body pos='0 0 {RADIUS + 0.05}'><joint name='press' type='slide' axis='0 0 -1'/>"
        f"<geom type='box' size='.1 .1 .05' mass='.2' friction='{mu}'/></body>"
    )
    return Scene(
        name="brake shoe on a wheel",
        mjcf=world(
            bodies, option="<option gravity='0 0 0'/>", more="<actuator><motor joint='press'/></actuator>"
        ),
        v={0: spin},
        controls=(push,),
        duration=duration,
        quantities=(
            Quantity("turn, rad", end("q", 0), spin * stops / 2, 0.6 * spin, spin * SETTLING),
            Quantity("w, rad/s", end("v", 0), 0.0, 1e-3 * slows, 1e-6 * slows),
        ),
    )


def _rolls(
    name: str, body: rolling_body.RollingBody, geoms: str, tilt: float, spin: np.ndarray, **settings
) -> Scene:
    """Roll a body of revolution; look at where it is and where its axis points."""
    mu, duration = settings.pop("mu"), settings["duration"]
    place, axis = body.roll(tilt, spin, duration, mu)
    q, v = body.start(tilt, spin)
    inertial = (
        f"<inertial pos='0 0 0' mass='{body.mass}' diaginertia='{body.lateral} {body.lateral} {body.axial}'/>"
    )
    speed, turn = float(np.linalg.norm(v[:3])), float(np.linalg.norm(axis - _axis_of(q)))
    rate = turn / duration  # of the axis
    geoms = geoms.replace("<geom", f"<geom friction='{mu}'")
    return Scene(
        name=name,
        mjcf=world(floor(mu) + f"<body><freejoint/>{inertial}{geoms}</body>"),
        planar=False,
        q=dict(enumerate(q.tolist())),
        v=dict(enumerate(v.tolist())),
        quantities=(
            Quantity("x, m", end("q", 0), place[0], speed, 2 * FALL),
            Quantity("y, m", end("q", 1), place[1], speed, 2 * FALL),
            Quantity("axis x", lambda p: _axis_of(p.q[-1])[0], axis[0], 3 * rate, rate * SETTLING),
            Quantity("axis y", lambda p: _axis_of(p.q[-1])[1], axis[1], 3 * rate, rate * SETTLING),
        ),
        **settings,
    )


def _axis_of(q: np.ndarray) -> np.ndarray:
    return rolling_body.rotation(np.asarray(q[3:7]))[:, 2]


def coin() -> Scene:
    """Roll a coin in a curve, leaning by 20 degrees."""
    body = rolling_body.coin(0.1, RADIUS, 0.002)
    tilt = math.radians(70.0)
    axis = np.array([math.sin(tilt), 0.0, math.cos(tilt)])
    geoms = f"<geom type='cylinder' size='{RADIUS} .002'/>"
    spin = 12.0 * axis + np.array([0.0, 0.0, 0.5])
    return _rolls("coin rolls in a curve, in space", body, geoms, tilt, spin, mu=0.9, duration=0.5)


def top_on_the_floor() -> Scene:
    """Spin a top that rolls on the ball of its tip, and precesses."""
    body = rolling_body.top(0.2, 6e-4, 1e-3, 0.08, 0.01)
    tilt = math.radians(20.0)
    axis = np.array([math.sin(tilt), 0.0, math.cos(tilt)])
    geoms = "<geom type='sphere' size='.01' pos='0 0 -.08'/>"
    dts = (0.002, 0.001, 0.0005)
    return _rolls(
        "spinning top on the floor, in space", body, geoms, tilt, 150.0 * axis, mu=1.0, duration=0.3, dts=dts
    )


def top_on_a_joint() -> Scene:
    """Spin a top on a ball joint: no contact, so every stepper is of second order.

    About the joint, in body axes: I w' + w x I w = r x m g.
    """
    mass, length, lateral, axial, duration = 0.5, 0.1, 6e-3, 1e-3, 0.5
    tilt = math.radians(30.0)
    inertia, arm = np.array([lateral, lateral, axial]), np.array([0, 0, length])
    q = np.array([math.cos(tilt / 2), 0, math.sin(tilt / 2), 0])
    w = np.array([0.0, 0.5, 100.0])

    def rate(t: float, y: np.ndarray) -> np.ndarray:
        R, spin = rolling_body.rotation(y[:4] / np.linalg.norm(y[:4])), y[4:]
        torque = np.cross(arm, R.T @ [0, 0, -mass * G]) - np.cross(spin, inertia * spin)
        return np.concatenate([rolling_body.quaternion_rate(y[:4], R @ spin), torque / inertia])

    last = solve_ivp(rate, (0, duration), np.concatenate([q, w]), method="DOP853", **rolling_body.CLOSE).y[
        :, -1
    ]
    axis = rolling_body.rotation(last[:4] / np.linalg.norm(last[:4]))[:, 2]
    about_centre = lateral - mass * length**2
    inertial = (
        f"<inertial pos='0 0 {length}' mass='{mass}' diaginertia='{about_centre} {about_centre} {axial}'/>"
    )
    nutation = axial * w[2] / lateral  # rad/s: the fastest motion of the axis

    def axis_of(path: Path) -> np.ndarray:
        return rolling_body.rotation(path.q[-1])[:, 2]

    return Scene(
        name="spinning top on a ball joint, no contact",
        mjcf=world(f"<body><joint type='ball'/>{inertial}</body>"),
        planar=False,
        q=dict(enumerate(q.tolist())),
        v=dict(enumerate(w.tolist())),
        duration=duration,
        order=2,
        dts=(0.004, 0.002, 0.001),
        quantities=(
            Quantity("axis x", lambda p: axis_of(p)[0], axis[0], 3 * nutation**2, 0.0),
            Quantity("axis z", lambda p: axis_of(p)[2], axis[2], 3 * nutation**2, 0.0),
        ),
    )


SCENES = (
    ball_slides_then_rolls, backspin, wheel_rolls_down, wheel_slips, ball_on_a_plank, cart, brake, coin,
    top_on_the_floor, top_on_a_joint,
)  # fmt: skip
