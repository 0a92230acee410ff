"""Mass, centre of mass and inertia of what an arm holds, with friction and stiffness of its contact.

Eight motions of a three-joint arm by MuJoCo: known torques, a tip that strikes the floor and slides, angles
and their rates at 100 Hz with noise, cut into pieces. `jc.optimize.identify_motions` finds the ten numbers of
`jc.optimize.inertia_of` beside the logarithms of friction and time constant, and the start of every piece.
Beside it the same search with mass, centre and inertia themselves as unknowns, which may end at a body that
cannot be.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import jaxcontact as jc
from benchmarks.identify_tosses import with_material
from benchmarks.runner import Case

MOTIONS, ROWS, RATE = 8, 41, 0.01  # number, angles of a motion, s between them
PIECE = 5  # of these intervals; each piece has a start of its own, or kinks of impacts would trap the search
STEP, FINE_STEP = 5e-4, 5e-5  # s, of the library and of MuJoCo
NOISE = 2e-3  # rad, of every angle
RATE_NOISE = 0.05  # rad/s
LAW = {"friction": 0.5, "time_constant": 0.02}
STARTS = {"friction": (0.3, 0.7), "time_constant": (0.03, 0.015)}  # with the hand empty and full
DAMPING_RATIO = 0.7
HAND = {"mass": 1.2, "com": (0.17, 0.03, -0.02), "inertia": (0.004, 0.012, 0.011, 0.0006, -0.0004, 0.0003)}
EMPTY = {"mass": 0.5, "com": (0.12, 0.0, 0.0), "inertia": (0.001, 0.006, 0.006, 0.0, 0.0, 0.0)}
FULL = {"mass": 2.0, "com": (0.2, 0.0, 0.0), "inertia": (0.008, 0.02, 0.02, 0.0, 0.0, 0.0)}
SIX = ((0, 0), (1, 1), (2, 2), (0, 1), (0, 2), (1, 2))  # entries of an inertia
TORQUES = (1.0, 3.0, 2.0)  # N m, of waves of torque
SEEDS = (0, 1, 2)
PRIOR = 0.5  # standard deviation of the ten numbers about those of the empty hand
PLAIN_SIZES = (0.5, *(0.1,) * 3, *(0.01,) * 6)  # kg, m, kg m^2: the same of plain numbers
BOUNDS = {"friction": (0.02, 1.5), "time_constant": (0.004, 0.1)}


def scene(body: dict[str, Any], friction: float, time_constant: float) -> str:
    """MJCF text of the arm with something in its hand."""
    contact = f'friction="{friction} 0.005 0.0001" solref="{time_constant} {DAMPING_RATIO}"'
    com, inertia = (" ".join(map(repr, body[name])) for name in ("com", "inertia"))
    joint = 'type="hinge" armature="0.005" damping="0.05"'
    return f"""<mujoco><option timestep="{FINE_STEP}" cone="elliptic"/><worldbody>
        <geom type="plane" size="5 5 .1" {contact}/>
        <body name="base" pos="0 0 0.35"><joint name="yaw" axis="0 0 1" {joint}/>
        <inertial pos="0 0 0" mass="1" diaginertia="0.01 0.01 0.01"/>
        <body name="arm"><joint name="lift" axis="0 1 0" {joint}/>
        <inertial pos="0.15 0 0" mass="1" diaginertia="0.002 0.01 0.01"/>
        <body name="hand" pos="0.3 0 0"><joint name="bend" axis="0 0.8 0.6" {joint}/>
        <inertial pos="{com}" mass="{body["mass"]}" fullinertia="{inertia}"/>
        <geom type="sphere" size="0.03" pos="0.3 0 0" mass="0" {contact}/></body></body></body></worldbody>
        <actuator><motor joint="yaw"/><motor joint="lift"/><motor joint="bend"/></actuator></mujoco>"""


def torques(seed: int) -> np.ndarray:
    """Torques (MOTIONS, steps, 3) of the library's steps: two waves for each joint."""
    rng = np.random.default_rng(100 + seed)
    t = STEP * np.arange(round(RATE / STEP) * (ROWS - 1))[:, None]
    waves = [
        sum(np.sin(rng.uniform(5, 30, 3) * t + rng.uniform(0, 6, 3)) for _ in range(2))
        for _ in range(MOTIONS)
    ]
    return np.array(TORQUES) * np.array(waves)


def measured(seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Noisy angles and rates (MOTIONS, ROWS, 3), by MuJoCo."""
    import mujoco

    rng, rows = np.random.default_rng(seed), []
    model = mujoco.MjModel.from_xml_string(scene(HAND, **LAW))
    repeats, stride = round(STEP / FINE_STEP), round(RATE / STEP)
    for pushes in torques(seed):
        data = mujoco.MjData(model)
        data.qpos[:] = rng.uniform((-1.0, -0.2, -0.4), (1.0, 0.3, 0.6))
        data.qvel[:] = rng.uniform(-2.0, 2.0, 3)
        seen = [(data.qpos.copy(), data.qvel.copy())]
        for k, push in enumerate(pushes):
            data.ctrl[:] = push
            mujoco.mj_step(model, data, repeats)
            if (k + 1) % stride == 0:
                seen.append((data.qpos.copy(), data.qvel.copy()))
        rows.append(seen)
    angles, rates = np.moveaxis(np.array(rows), 2, 0)
    return tuple(
        exact + noise * rng.normal(size=exact.shape)
        for exact, noise in ((angles, NOISE), (rates, RATE_NOISE))
    )


def pieces(angles: np.ndarray, rates: np.ndarray, pushes: np.ndarray) -> dict[str, jax.Array]:
    """Angles, rates (n, PIECE + 1, 3) and torques of pieces; the last row of one is the first of the next."""
    stride = round(RATE / STEP)
    firsts = range(0, ROWS - 1, PIECE)
    cut = {
        "angles": [angles[:, row : row + PIECE + 1] for row in firsts],
        "rates": [rates[:, row : row + PIECE + 1] for row in firsts],
        "controls": [pushes[:, stride * row : stride * (row + PIECE)] for row in firsts],
    }
    return {name: jnp.asarray(np.concatenate(parts)) for name, parts in cut.items()}


def inertia_matrix(six: Any) -> jax.Array:
    """Matrix (3, 3) of six entries."""
    full = jnp.zeros((3, 3))
    for value, (i, j) in zip(six, SIX, strict=True):
        full = full.at[i, j].set(value).at[j, i].set(value)
    return full


def with_hand(model: jc.Model, params: dict[str, Any], plain: bool) -> jc.Model:
    """The model with friction, springs and a hand of these parameters."""
    law = {name: jnp.exp(params[name]) for name in LAW}
    model = with_material(model, {**law, "damping_ratio": DAMPING_RATIO})
    if not plain:
        return jc.optimize.with_inertias(model, {"hand": params["hand"]})
    place, mine = model.structure.bodies.index("hand"), model.params
    hand = params["hand"]
    return model.replace(
        params=mine.replace(
            mass=mine.mass.at[place].set(hand[0]),
            inertia=mine.inertia.at[place].set(inertia_matrix(hand[4:])),
            tree=mine.tree.replace(com=mine.tree.com.at[place].set(hand[1:4])),
        )
    )


class Residuals:
    """Residuals (n, r) of pieces in units of noise, worlds of `jc.simd`; own numbers (n, 6) are starts."""

    def __init__(self, plain: bool) -> None:
        model, stride = jc.load_mjcf(scene(EMPTY, **LAW)), round(RATE / STEP)
        empty, sizes = hand_numbers(EMPTY, plain), jnp.array(PLAIN_SIZES) if plain else PRIOR
        stepper = jc.simulate.Compliant(settings=jc.compliant.Settings(cone="associated"))

        def one(params: Any, own: Any, data: dict[str, Any]) -> Any:
            state = model.initial_state().replace(q=own[:3], v=own[3:])
            states = jc.simulate.rollout(
                with_hand(model, params, plain), state, data["controls"], stepper=stepper, dt=STEP
            ).states
            q, v = states.q[::stride], states.v[::stride]
            errors = (q - data["angles"]) / NOISE, (v - data["rates"]) / RATE_NOISE
            beside = (params["hand"] - empty) / (sizes * np.sqrt(MOTIONS * (ROWS - 1) / PIECE))
            return jnp.concatenate([*(error.ravel() for error in errors), beside])

        self._worlds = jc.simd(one)

    def __call__(self, params: Any, own: Any, data: Any) -> Any:
        """Evaluate all pieces."""
        every = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (len(own), *jnp.shape(leaf))), params)
        return self._worlds(every, own, data)


def hand_numbers(body: dict[str, Any], plain: bool) -> jax.Array:
    """The ten unknowns of a body."""
    if plain:
        return jnp.array([body["mass"], *body["com"], *body["inertia"]])
    return jc.optimize.inertia_numbers(body["mass"], jnp.array(body["com"]), inertia_matrix(body["inertia"]))


def fit(seed: int, plain: bool) -> tuple[dict[str, Any], jc.optimize.MotionsInfo]:
    """Parameters, and what `identify_motions` says, from two starts."""
    data = pieces(*measured(seed), torques(seed))
    own0 = jnp.concatenate([data["angles"][:, 0], data["rates"][:, 0]], axis=1)
    starts = {name: jnp.log(jnp.array(pair)) for name, pair in STARTS.items()}
    starts["hand"] = jnp.stack([hand_numbers(body, plain) for body in (EMPTY, FULL)])
    params0 = {name: pair[0] for name, pair in starts.items()}
    bounds = {name: tuple(np.log(pair)) for name, pair in BOUNDS.items()} | {"hand": (-np.inf, np.inf)}
    params, _, info = jc.optimize.identify_motions(
        Residuals(plain), params0, own0, data, bounds=bounds,
        search=jc.optimize.SearchSettings(
            max_steps=60, tol=0.1, starts={name: pair[1:] for name, pair in starts.items()}
        ),
    )  # fmt: skip
    return params, info


def _body_of(params: dict[str, Any], plain: bool) -> tuple[np.ndarray, ...]:
    hand = params["hand"]
    body = (hand[0], hand[1:4], inertia_matrix(hand[4:])) if plain else jc.optimize.inertia_of(hand)
    return tuple(map(np.asarray, body))


def _case(seed: int, plain: bool) -> Callable[[], dict[str, Any]]:
    def run() -> dict[str, Any]:
        begin = time.perf_counter(), time.process_time()
        params, info = fit(seed, plain)
        seconds, processor = time.perf_counter() - begin[0], time.process_time() - begin[1]
        mass, com, inertia = _body_of(params, plain)
        moments, right = np.linalg.eigvalsh(inertia), np.asarray(inertia_matrix(HAND["inertia"]))
        return {
            "mass, kg": float(mass),
            "error of the centre, mm": 1e3 * float(np.linalg.norm(com - np.array(HAND["com"]))),
            "error of the inertia": float(np.linalg.norm(inertia - right) / np.linalg.norm(right)),
            "moments, g m^2": " ".join(f"{1e3 * moment:.2f}" for moment in moments),
            "can be a body": bool(moments[0] > 0 and moments[2] <= (moments[0] + moments[1]) * (1 + 1e-9)),
            "friction": float(np.exp(params["friction"])),
            "time constant, ms": 1e3 * float(np.exp(params["time_constant"])),
            "misfit": info.misfit,
            "misfits from both starts": " ".join(f"{misfit:.2f}" for misfit in info.misfits),
            "evaluations": info.evaluations,
            "s with compiling": seconds,
            "processor s": processor,
            "status": jc.Status.describe(info.status),
        }

    return run


CASES = [
    Case(
        name=f"identify an arm's hand, {'plain numbers, ' if plain else ''}seed {seed}",
        items=1,
        setup=functools.partial(_case, seed, plain),
        repeats=1,
    )
    for plain in (False, True)
    for seed in SEEDS
]
