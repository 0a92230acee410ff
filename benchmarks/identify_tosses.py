"""Friction and restitution from eight tosses of a box by MuJoCo, by `jc.optimize.identify_motions`.

Poses at 100 Hz with normal noise. Tosses are cut into pieces, and the start of each piece is estimated along
with the parameters. Restitution is that of a ball of the same material that falls on the floor: MuJoCo's with
the true numbers, the library's with the fitted ones. Both are of MuJoCo's law, the associated cone: Coulomb's
law, which lifts nothing that slides, parts from MuJoCo by more than the noise after the first impact.
"""

from __future__ import annotations

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
PIECE = 15  # poses of a piece of a toss, the last of which is the first of the next
POSITION_NOISE, ANGLE_NOISE = 1e-3, 1e-2  # m, rad
TRUTH = {"friction": 0.4, "time_constant": 0.01, "damping_ratio": 0.4}
START = {"friction": 0.5, "time_constant": 0.008, "damping_ratio": 0.3}
STARTS = {"friction": [0.3, 0.2], "time_constant": [0.02, 0.015], "damping_ratio": [0.4, 0.8]}
BOUNDS = {"friction": (0.02, 1.5), "time_constant": (0.003, 0.04), "damping_ratio": (0.05, 1.5)}
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


def pieces(poses: np.ndarray) -> np.ndarray:
    """Pieces (n, PIECE, 7) of the tosses: where a model errs at an impact, the next piece starts anew."""
    firsts = range(0, poses.shape[1] - PIECE + 1, PIECE - 1)
    return np.concatenate([poses[:, first : first + PIECE] for first in firsts])


def guessed_starts(poses: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Starts (m, 7), (m, 6) from the first rows: straight lines and constant rates, gravity known."""
    times = RATE * np.arange(FIRST_ROWS)
    basis = np.stack([np.ones_like(times), times], axis=1)
    fallen = poses[:, :FIRST_ROWS, :3] + 0.5 * GRAVITY * times[:, None] ** 2 * np.array([0.0, 0.0, 1.0])
    first = poses[:, :1, 3:] * np.array([1.0, -1.0, -1.0, -1.0])
    turns = np.asarray(_turns(np.broadcast_to(first, fallen.shape[:2] + (4,)), poses[:, :FIRST_ROWS, 3:]))
    lines = np.linalg.pinv(basis) @ np.concatenate([fallen, turns], axis=2)
    turned = jax.vmap(quaternion_product)(poses[:, 0, 3:], jax.vmap(quaternion_exp)(lines[:, 0, 3:]))
    return np.concatenate([lines[:, 0, :3], turned], axis=1), lines[:, 1]


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

        def one(params: Any, own: Any, q: Any, v: Any, seen: Any) -> Any:
            turned = quaternion_product(q[3:], quaternion_exp(own[3:6]))
            start = jnp.concatenate([q[:3] + own[:3], turned])
            poses = motion(model, params, start, v + own[6:], stride * (PIECE - 1)).q[::stride]
            return jc.optimize.pose_residuals(
                poses, seen, position_noise=POSITION_NOISE, angle_noise=ANGLE_NOISE
            ).ravel()

        self._worlds = jc.simd(one)

    def __call__(self, params: Any, own: Any, data: Any) -> Any:
        """Evaluate all pieces; params are logarithms."""
        every = jax.tree.map(lambda leaf: jnp.broadcast_to(jnp.exp(leaf), (len(own),)), params)
        return self._worlds(every, own, data["q"], data["v"], data["seen"])


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
    seen = pieces(poses)
    q, v = guessed_starts(seen)
    data = {"q": jnp.asarray(q), "v": jnp.asarray(v), "seen": jnp.asarray(seen)}
    per_motion0 = jnp.zeros((len(seen), 12))
    bounds = {name: tuple(np.log(pair)) for name, pair in BOUNDS.items()}
    logs, _, info = jc.optimize.identify_motions(
        Residuals(),
        jax.tree.map(np.log, START),
        per_motion0,
        data,
        bounds=bounds,
        search=jc.optimize.SearchSettings(
            max_steps=30, starts={name: jnp.log(jnp.array(row)) for name, row in STARTS.items()}
        ),
    )
    return {name: float(np.exp(log)) for name, log in logs.items()}, info


def _case() -> Callable[[], dict[str, Any]]:
    poses = measured(0)

    def run() -> dict[str, Any]:
        begin = time.perf_counter()
        params, info = fit(poses)
        seconds = time.perf_counter() - begin
        found, true = restitution(params), true_restitution()
        return {
            "friction": float(params["friction"]),
            "error of friction": abs(float(params["friction"]) / TRUTH["friction"] - 1.0),
            "restitution": found,
            "error of restitution": abs(found - true),
            "misfit": info.misfit,
            "misfits from all starts": " ".join(f"{misfit:.2f}" for misfit in info.misfits),
            "evaluations": info.evaluations,
            "s with compiling": seconds,
            "status": jc.Status.describe(info.status),
        }

    return run


CASES = [Case(name="identify eight tosses", items=1, setup=_case, repeats=1)]
