"""Friction and restitution from eight tosses of a box by MuJoCo, by `jc.optimize.identify_motions`.

Poses at 100 Hz with normal noise. Tosses are cut into pieces, and the start of each piece is estimated along
with the parameters. Restitution is that of a ball of the same material that falls on the floor: MuJoCo's with
the true numbers, the library's with the fitted ones. Both are of MuJoCo's law, the associated cone: Coulomb's
law, which lifts nothing that slides, parts from MuJoCo by more than the noise after the first impact.
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
from benchmarks.runner import Case
from jaxcontact.algebra.rotations import quaternion_exp, quaternion_log, quaternion_product

TOSSES, RATE, ROWS = 8, 0.01, 43  # number, s between poses, poses of a toss
STEP, FINE_STEP = 1e-3, 2.5e-4  # s, of the library and of MuJoCo
CUTS, CUT_RANGE = (
    (0, 14, 28),
    3,
)  # rows at which pieces of a toss begin, and how far a cut may move into flight
PIECE = 21  # poses of the longest piece; the last of a piece is the first of the next
POSITION_NOISE, ANGLE_NOISE = 1e-3, 1e-2  # m, rad
TRUTH = {"friction": 0.4, "time_constant": 0.01, "damping_ratio": 0.4}
START = {"friction": 0.5, "time_constant": 0.008, "damping_ratio": 0.3}
STARTS = {"friction": [0.3, 0.2], "time_constant": [0.02, 0.015], "damping_ratio": [0.4, 0.8]}
BOUNDS = {"friction": (0.02, 1.5), "time_constant": (0.003, 0.04), "damping_ratio": (0.05, 1.5)}
ENOUGH = (
    0.1  # descent of half the sum of squares that ends the search; one standard deviation changes it by 0.5
)
SEEDS = (0, 1, 2)  # of tosses and noise
FIRST_ROWS = 4  # of a piece, to which its start is guessed
DROPS = (
    20  # of the ball, at heights within a step's way of one another: each meets the floor elsewhere in a step
)
GRAVITY = 9.81  # m/s^2
DROP_SPEED = 1.0  # m/s, at which the ball falls on the floor
BOX, BALL = 'type="box" size="0.05 0.04 0.03"', 'type="sphere" size="0.04"'


def scene(shape: str, friction: float, time_constant: float, damping_ratio: float) -> str:
    """MJCF text of a body on a floor."""
    contact = f'friction="{friction} 0.005 0.0001" solref="{time_constant} {damping_ratio}"'
    return f"""<mujoco><option timestep="{FINE_STEP}" cone="elliptic"/><worldbody>
        <geom type="plane" size="5 5 .1" {contact}/>
        <body pos="0 0 1"><freejoint/><geom {shape} mass="0.4" {contact}/></body>
        </worldbody></mujoco>"""


def by_mujoco(text: str, q: np.ndarray, v: np.ndarray, steps: int) -> tuple[np.ndarray, np.ndarray]:
    """Poses (steps + 1, 7) and velocities (steps + 1, 6) of a motion."""
    import mujoco

    model = mujoco.MjModel.from_xml_string(text)
    data = mujoco.MjData(model)
    data.qpos[:], data.qvel[:] = q, v
    rows = []
    for _ in range(steps + 1):
        rows.append((data.qpos.copy(), data.qvel.copy()))
        mujoco.mj_step(model, data)
    return np.array([row[0] for row in rows]), np.array([row[1] for row in rows])


def measured(seed: int) -> np.ndarray:
    """Noisy poses (TOSSES, ROWS, 7) at RATE."""
    rng = np.random.default_rng(seed)
    stride, tosses = round(RATE / FINE_STEP), []
    for _ in range(TOSSES):
        turn = rng.normal(size=4)
        q = np.concatenate([[0.0, 0.0, 0.15], turn / np.linalg.norm(turn)])
        v = np.concatenate([rng.uniform(-1.5, 1.5, 2), [rng.uniform(-0.5, 0.0)], rng.uniform(-6.0, 6.0, 3)])
        poses = by_mujoco(scene(BOX, **TRUTH), q, v, stride * (ROWS - 1))[0][::stride].copy()
        poses[:, :3] += POSITION_NOISE * rng.normal(size=(ROWS, 3))
        turns = jax.vmap(quaternion_exp)(ANGLE_NOISE * rng.normal(size=(ROWS, 3)))
        poses[:, 3:] = jax.vmap(quaternion_product)(poses[:, 3:], turns)
        tosses.append(poses)
    return np.array(tosses)


def pieces(poses: np.ndarray) -> tuple[np.ndarray, ...]:
    """Poses (n, PIECE, 7) of pieces of the tosses, weights (n, PIECE, 1), and guessed starts (n, 7), (n, 6).

    A cut moves to where straight lines fit best: an impact in the first rows would spoil the guessed start,
    from which the search then ends in a wrong minimum.
    """
    count, rows = poses.shape[:2]
    firsts = range(rows - FIRST_ROWS + 1)
    q, v, misfits = (
        np.stack(each, axis=1) for each in zip(*(lines(poses, row) for row in firsts), strict=True)
    )
    padded = np.concatenate([poses, np.repeat(poses[:, -1:], PIECE, axis=1)], axis=1)
    found = []
    for toss in range(count):
        cuts = [0, *(low + np.argmin(misfits[toss, low : row + CUT_RANGE + 1])
                     for row in CUTS[1:] for low in [row - CUT_RANGE])]  # fmt: skip
        for first, last in zip(cuts, [*cuts[1:], rows - 1], strict=True):
            weights = (np.arange(PIECE) <= last - first)[:, None]
            found.append((padded[toss, first : first + PIECE], weights, q[toss, first], v[toss, first]))
    return tuple(np.array(each, float) for each in zip(*found, strict=True))


def lines(poses: np.ndarray, first: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """States (m, 7), (m, 6) at a row by straight lines and constant rates, and sums of squares (m,)."""
    rows = poses[:, first : first + FIRST_ROWS]
    times = RATE * np.arange(FIRST_ROWS)
    basis = np.stack([np.ones_like(times), times], axis=1)
    fallen = rows[..., :3] + 0.5 * GRAVITY * times[:, None] ** 2 * np.array([0.0, 0.0, 1.0])
    inverse = rows[:, :1, 3:] * np.array([1.0, -1.0, -1.0, -1.0])
    turns = np.asarray(_turns(np.broadcast_to(inverse, fallen.shape[:2] + (4,)), rows[..., 3:]))
    seen = np.concatenate([fallen, turns], axis=2)
    line = np.linalg.pinv(basis) @ seen
    noise = np.repeat([POSITION_NOISE, ANGLE_NOISE], 3)
    turned = jax.vmap(quaternion_product)(rows[:, 0, 3:], jax.vmap(quaternion_exp)(line[:, 0, 3:]))
    q = np.concatenate([line[:, 0, :3], turned], axis=1)
    return q, line[:, 1], np.sum(((seen - basis @ line) / noise) ** 2, axis=(1, 2))


@jax.jit
@jax.vmap
@jax.vmap
def _turns(inverse: jax.Array, later: jax.Array) -> jax.Array:
    return quaternion_log(quaternion_product(inverse, later))


def with_material(model: jc.Model, params: Any) -> jc.Model:
    """The model with a friction coefficient and springs of a time constant and damping ratio."""
    springs = model.params.material.stiffness
    constant, ratio = springs.highest * params["time_constant"], params["damping_ratio"]
    springs = springs.replace(stiffness=1.0 / (constant * ratio) ** 2, damping=2.0 / constant)
    mu = jnp.full_like(model.params.mu, params["friction"])
    material = model.params.material.replace(stiffness=springs)
    return model.replace(params=model.params.replace(mu=mu, material=material))


def motion(model: jc.Model, params: Any, q: Any, v: Any, steps: int) -> jc.State:
    """States of `steps` compliant steps."""
    state = model.initial_state().replace(q=q, v=v)
    stepper = jc.simulate.Compliant(settings=jc.compliant.Settings(cone="associated"))
    return jc.simulate.rollout(
        with_material(model, params), state, jnp.zeros((steps, 6)), stepper=stepper, dt=STEP
    ).states


class Residuals:
    """Residuals (m, r) of pieces, worlds of `jc.simd`; own numbers (m, 12) are changes of guessed starts."""

    def __init__(self) -> None:
        model, stride = jc.load_mjcf(scene(BOX, **TRUTH)), round(RATE / STEP)

        def one(params: Any, own: Any, data: dict[str, Any]) -> Any:
            turned = quaternion_product(data["q"][3:], quaternion_exp(own[3:6]))
            start = jnp.concatenate([data["q"][:3] + own[:3], turned])
            poses = motion(model, params, start, data["v"] + own[6:], stride * (PIECE - 1)).q[::stride]
            residuals = jc.optimize.pose_residuals(
                poses, data["poses"], position_noise=POSITION_NOISE, angle_noise=ANGLE_NOISE
            )
            return (data["weights"] * residuals).ravel()

        self._worlds = jc.simd(one)

    def __call__(self, params: Any, own: Any, data: Any) -> Any:
        """Evaluate all pieces; params are logarithms."""
        every = jax.tree.map(lambda leaf: jnp.broadcast_to(jnp.exp(leaf), (len(own),)), params)
        return self._worlds(every, own, data)


def _drop(extra: Any) -> tuple[Any, Any]:
    q = jnp.array([0.0, 0.0, 0.041, 1.0, 0.0, 0.0, 0.0]).at[2].add(extra * DROP_SPEED * STEP)
    return q, jnp.zeros(6).at[2].set(-DROP_SPEED)


def restitution(params: Any) -> float:
    """Mean restitution of a ball of the material, of the library's step."""
    model = jc.load_mjcf(scene(BALL, **TRUTH))
    speeds = jax.jit(jax.vmap(lambda extra: motion(model, params, *_drop(extra), 100).v[:, 2]))
    return _bounce(speeds(jnp.arange(DROPS) / DROPS))


def true_restitution() -> float:
    """The same in MuJoCo with the true numbers."""
    drops = [map(np.asarray, _drop(extra)) for extra in np.arange(DROPS) / DROPS]
    steps = round(100 * STEP / FINE_STEP)
    return _bounce(np.array([by_mujoco(scene(BALL, **TRUTH), *drop, steps)[1][:, 2] for drop in drops]))


def _bounce(speeds: Any) -> float:
    speeds = np.asarray(speeds)
    return float(np.mean(-speeds.max(axis=1) / speeds.min(axis=1)))


def fit(poses: np.ndarray) -> tuple[dict[str, float], jc.optimize.MotionsInfo]:
    """Parameters and what `identify_motions` says, from several starts."""
    data = dict(zip(("poses", "weights", "q", "v"), map(jnp.asarray, pieces(poses)), strict=True))
    per_motion0 = jnp.zeros((len(data["q"]), 12))
    bounds = {name: tuple(np.log(pair)) for name, pair in BOUNDS.items()}
    logs, _, info = jc.optimize.identify_motions(
        Residuals(),
        jax.tree.map(np.log, START),
        per_motion0,
        data,
        bounds=bounds,
        search=jc.optimize.SearchSettings(
            max_steps=15, tol=ENOUGH, starts={name: jnp.log(jnp.array(row)) for name, row in STARTS.items()}
        ),
    )
    return {name: float(np.exp(log)) for name, log in logs.items()}, info


def _case(seed: int) -> Callable[[], dict[str, Any]]:
    poses = measured(seed)

    def run() -> dict[str, Any]:
        begin = time.perf_counter(), time.process_time()
        params, info = fit(poses)
        seconds, processor = time.perf_counter() - begin[0], time.process_time() - begin[1]
        found, true = restitution(params), true_restitution()
        return {
            "friction": float(params["friction"]),
            "95 % from": float(np.exp(info.lower["friction"])),
            "95 % to": float(np.exp(info.upper["friction"])),
            "error of friction": abs(float(params["friction"]) / TRUTH["friction"] - 1.0),
            "restitution": found,
            "error of restitution": abs(found - true),
            "misfit": info.misfit,
            "misfits from all starts": " ".join(f"{misfit:.2f}" for misfit in info.misfits),
            "evaluations": info.evaluations,
            "s with compiling": seconds,
            "processor s": processor,
            "status": jc.Status.describe(info.status),
        }

    return run


CASES = [
    Case(
        name=f"identify eight tosses, seed {seed}",
        items=1,
        setup=functools.partial(_case, seed),
        repeats=1,
    )
    for seed in SEEDS
]
