"""A hopping half_cheetah with feedback, of least tail over friction and heights of the ground under its feet.

The policy repeats controls of a stride and adds the regulator of `jc.optimize.track`; free are the controls
and how strong the regulator is for positions and rates. The nominal policy has the least cost in one world,
the robust one, sought from there, the least mean of the worst tenth of drawn worlds.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import jaxcontact as jc
from benchmarks.gait_basin import EFFORT
from benchmarks.robot_gaits import ROBOTS, load
from benchmarks.robust_landings import SHARE, fall_of_tail, tail_of
from benchmarks.runner import Case
from jaxcontact.optimize.multiple_shooting import SIZES, Pieces, control_sizes
from jaxcontact.optimize.robot_gait import NUM_STEPS, SMALL_WORK, WORK, simulate_stride

ROBOT, STRIDES = "half_cheetah", 4
FRICTION, HEIGHT = 0.2, 0.01  # largest shift of friction, and m, of the ground under each foot
DRAWN, JUDGED = 128, 1000  # worlds of a step of the search, and of a judgement
NOMINAL_STEPS, ROBUST_STEPS = 400, 80  # of Adam
RATE = 0.02  # of Adam, scaled
LONGEST_SLOPE = 1.0  # of the cost by scaled variables; longer gradients of a world are shortened
FALLEN = 0.3  # m or rad, error of height or pitch
SEEDS = (0, 1, 2)


class Task(NamedTuple):
    """What a search varies around: the robot, its gait, the regulator and the sizes of the variables."""

    model: Any
    pieces: Pieces
    reference: Any  # q and v (steps, nv) of the gait
    gains: Any  # (steps, nu, 2 nv)
    ranges: np.ndarray  # (nu,)
    speed: float


class World(NamedTuple):
    """Friction in parts of that of the file, and heights (2,) of the ground under back and front foot, m."""

    friction: Any
    heights: Any


def task_of(robot: str = ROBOT) -> Task:
    """Find the gait and the regulator."""
    model, (_, speed, duration) = load(robot), ROBOTS[robot]
    pieces, _ = jc.optimize.robot_gait(model, speed=speed, duration=duration)
    motion, size = simulate_stride(model, pieces), np.repeat(SIZES, model.structure.num_velocities)
    ranges = control_sizes(model)
    policy, _ = jc.optimize.track(
        model, motion, stepper=jc.simulate.Compliant(), state_cost=jnp.asarray(1.0 / size**2),
        control_cost=jnp.asarray(EFFORT / ranges**2), periodic=True,
    )  # fmt: skip
    states = motion.states
    return Task(model, pieces, (states.q[:-1], states.v[:-1]), policy.gains, ranges, speed)


def in_world(model: Any, world: World) -> Any:
    """Shift friction, and the ground under the feet by their radii."""
    params, constants = model.params, dict(model.params.constants)
    for name, height in zip(("bfoot/radius", "ffoot/radius"), world.heights, strict=True):
        constants[name] = constants[name] + height
    return model.replace(params=params.replace(mu=params.mu * world.friction, constants=constants))


def cost_of(task: Task) -> Callable[[Any, Any, Any], tuple[Any, Any]]:
    """Make (numbers, friction, heights) -> (cost, largest error of height or pitch at the end of a stride).

    The cost is that of the gait, mean over strides, and the squared scaled distance from the gait after each.
    """
    model, pieces, nv = task.model, task.pieces, task.model.structure.num_velocities
    steps, dt = len(task.gains), float(pieces.duration) / len(task.gains)
    way = jnp.zeros(nv).at[0].set(task.speed * float(pieces.duration))
    gear = jnp.asarray(model.params.tree.gain)[:, None] * jnp.asarray(model.params.tree.moment)
    weight = float(jnp.sum(model.params.mass) * jnp.linalg.norm(model.params.gravity))
    size = jnp.repeat(jnp.asarray(SIZES), nv)

    def cost(numbers: Any, friction: Any, heights: Any) -> tuple[Any, Any]:
        there = in_world(model, World(friction, heights))
        controls = pieces.controls + task.ranges * numbers[:-2].reshape(pieces.controls.shape)
        strong = jnp.repeat(jnp.exp(numbers[-2:]), nv)

        def advance(at: Any, k: Any) -> tuple[Any, Any]:
            stride, phase = k // steps, k % steps
            x = jnp.concatenate(
                [at.q - stride * way - task.reference[0][phase], at.v - task.reference[1][phase]]
            )
            u = controls[phase // NUM_STEPS] - task.gains[phase] @ (strong * x)
            u = jnp.clip(u, -task.ranges, task.ranges)
            after, _ = jc.compliant.step(there, at, u, dt=dt)
            work = u * (gear @ (after.q - at.q))
            spent = jnp.sum((u / task.ranges) ** 2) / steps
            spent += (
                WORK * jnp.sum(jnp.sqrt(work**2 + SMALL_WORK**2 / 64) - SMALL_WORK / 8) / (weight * way[0])
            )
            missed = jnp.concatenate([
                after.q - (stride + 1) * way - pieces.q[0], after.v - pieces.v[0]
            ]) / size  # fmt: skip
            is_end = phase == steps - 1
            return after, (
                spent + is_end * missed @ missed,
                is_end * jnp.max(jnp.abs(missed[1:3])) * SIZES[0],
            )

        start = model.initial_state().replace(q=pieces.q[0], v=pieces.v[0])
        _, (costs, far) = jax.lax.scan(advance, start, jnp.arange(STRIDES * steps))
        return jnp.sum(costs) / STRIDES, jnp.max(far)

    return cost


def draw_worlds(rng: np.random.Generator, count: int) -> World:
    """Draw friction and heights."""
    return World(
        1.0 + FRICTION * rng.uniform(-1, 1, count), HEIGHT * rng.uniform(-1, 1, (count, 2))
    )  # fmt: skip


def descend(
    lanes: Any, slopes: Any, numbers: np.ndarray, worlds: World, steps: int, report: Any = None
) -> np.ndarray:
    """Go down the tail of costs over worlds by Adam, and return the point of least tail."""
    import optax

    optimizer = optax.adam(optax.cosine_decay_schedule(RATE, steps))
    memory, best = optimizer.init(numbers), (np.inf, numbers)
    count = max(1, round(SHARE * len(worlds.friction)))
    for _ in range(steps):
        repeated = np.tile(numbers, (len(worlds.friction), 1))
        costs = np.nan_to_num(np.asarray(lanes(repeated, *worlds)[0]), nan=1e6)
        worst = np.argsort(-costs)[:count]
        best = min(best, (float(np.mean(costs[worst])), numbers), key=lambda pair: pair[0])
        slope = np.nan_to_num(
            np.asarray(slopes(repeated[worst], worlds.friction[worst], worlds.heights[worst]))
        )
        size = np.linalg.norm(slope, axis=1, keepdims=True)
        change, memory = optimizer.update(
            np.mean(slope / np.maximum(size / LONGEST_SLOPE, 1.0), axis=0), memory
        )
        numbers = numbers + np.asarray(change)
        if report is not None:
            report(best[0], costs, size)
    return best[1]


@functools.cache
def prepared() -> tuple[Task, Any, Any, np.ndarray]:
    """Make the task, lanes of its cost and gradient, and the nominal numbers."""
    task = task_of()
    cost = cost_of(task)
    lanes = jc.simd(cost, nan=False)
    slopes = jc.simd(jax.grad(lambda *numbers: cost(*numbers)[0]), nan=False)
    start = np.zeros(task.pieces.controls.size + 2)
    nominal = descend(lanes, slopes, start, World(np.ones(1), np.zeros((1, 2))), NOMINAL_STEPS)
    return task, lanes, slopes, nominal


def judge(lanes: Any, numbers: np.ndarray, worlds: World) -> tuple[np.ndarray, float]:
    """Return the costs of all worlds, and the share of those in which the robot falls."""
    count = len(worlds.friction)
    costs, far = (np.asarray(x) for x in lanes(np.tile(numbers, (count, 1)), *worlds))
    return costs, float(np.mean(~(far < FALLEN)))


def _robust(seed: int) -> Callable[[], dict[str, Any]]:
    _, lanes, slopes, nominal = prepared()
    planned = World(np.ones(1), np.zeros((1, 2)))

    def run() -> dict[str, Any]:
        drawn = draw_worlds(np.random.default_rng(seed), DRAWN)
        robust = descend(lanes, slopes, nominal, drawn, ROBUST_STEPS)
        judged = draw_worlds(np.random.default_rng(100 + seed), JUDGED)
        costs, row = {}, {}
        for name, numbers in (("nominal", nominal), ("robust", robust)):
            costs[name], fallen = judge(lanes, numbers, judged)
            row |= {
                f"cost as planned, {name}": float(judge(lanes, numbers, planned)[0][0]),
                f"mean, {name}": float(np.mean(costs[name])),
                f"tail, {name}": tail_of(costs[name]),
                f"fallen %, {name}": 100 * fallen,
                f"gains times, {name}": np.round(np.exp(numbers[-2:]), 2).tolist(),
            }
        fall = fall_of_tail(costs["nominal"], costs["robust"])
        return row | dict(zip(("tail falls by", "95 % from", "95 % to"), fall, strict=True))

    return run


CASES = [
    Case(
        name=f"robust gait, half_cheetah, seed {seed}", items=1, repeats=1,
        setup=functools.partial(_robust, seed),
    )
    for seed in SEEDS
]  # fmt: skip
