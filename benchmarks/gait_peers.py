"""Gaits of planar robots by gradient beside CMA-ES (pip package `cma`) and beside plain differences.

CMA-ES varies the start, controls and duration of one stride, from the same guess, with motions in one piece;
as many motions as the gradient's, then as many as differences take for it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import jaxcontact as jc
from benchmarks.robot_gaits import ROBOTS, load
from benchmarks.runner import Case
from jaxcontact.optimize import stride_guess
from jaxcontact.optimize.multiple_shooting import SIZES, Pieces, control_sizes
from jaxcontact.optimize.robot_gait import BENDS, NUM_STEPS, WORK

NAMES, NUM_PIECES = ("hopper", "walker2d", "half_cheetah"), 12
SEEDS, SPREAD = (1, 2, 3), 0.1  # of CMA-ES; its first standard deviation, scaled
PENALTY = 100.0  # of the square of the largest scaled error of a stride that should repeat
DIFFERENCES = (1e-3, 1e-5, 1e-7)  # scaled steps


def _stride(model: Any, speed: float) -> Callable[..., Any]:
    """Make lanes of (q, v, controls, duration) -> (error of the period, effort, cost of transport)."""
    state, nv = model.initial_state(), model.structure.num_velocities
    gear = jnp.asarray(model.params.tree.gain)[:, None] * jnp.asarray(model.params.tree.moment)
    weight = float(jnp.sum(model.params.mass) * jnp.linalg.norm(model.params.gravity))
    ranges = control_sizes(model)

    def run(q: Any, v: Any, controls: Any, duration: Any) -> Any:
        dt = duration / (NUM_PIECES * NUM_STEPS)
        end, _ = jc.compliant.rollout(
            model, state.replace(q=q, v=v), jnp.repeat(controls, NUM_STEPS, axis=0), dt=dt
        )
        way = jnp.zeros(nv).at[0].set(speed * duration)
        miss = jnp.concatenate([(end.q[-1] - q - way) / SIZES[0], (end.v[-1] - v) / SIZES[1]])
        states = jnp.concatenate([q[None], end.q[NUM_STEPS - 1 :: NUM_STEPS]])
        work = jnp.sum(jnp.abs(controls * (jnp.diff(states, axis=0) @ gear.T)))
        effort = jnp.mean(jnp.sum((controls / ranges[None]) ** 2, axis=1))
        return jnp.max(jnp.abs(miss)), effort, work / (weight * speed * duration)

    return jc.simd(run, nan=False)


def _by_cma(motions: int, seed: int, model: Any, guess: Pieces, speed: float) -> tuple[float, float, float]:
    """Return error of the period, scaled, effort and cost of transport of the best stride."""
    import cma

    nv, count = model.structure.num_velocities, guess.controls.size
    ranges, lanes = control_sizes(model), _stride(model, speed)

    def read(x: np.ndarray) -> tuple[np.ndarray, ...]:
        q, v = guess.q[0] + SIZES[0] * x[:, :nv], guess.v[0] + SIZES[1] * x[:, nv : 2 * nv]
        controls = x[:, 2 * nv : -1].reshape(len(x), NUM_PIECES, -1)
        return (
            q,
            v,
            np.clip(controls, -1, 1) * ranges,
            float(guess.duration) * np.clip(1 + x[:, -1], 0.5, 1.8),
        )

    start = np.concatenate([np.zeros(2 * nv), np.zeros(count), [0.0]])
    search = cma.CMAEvolutionStrategy(start, SPREAD, {"seed": seed, "verbose": -9, "maxfevals": motions})
    best = (np.inf, (np.inf, np.inf, np.inf))
    while not search.stop():
        candidates = search.ask()
        found = np.stack([np.asarray(each) for each in lanes(*read(np.array(candidates)))], axis=1)
        costs = np.nan_to_num(PENALTY * found[:, 0] ** 2 + found[:, 1] + WORK * found[:, 2], nan=1e9)
        search.tell(candidates, list(costs))
        best = min(best, (float(np.min(costs)), tuple(found[int(np.argmin(costs))])))
    return best[1]


def _cma(robot: str, seed: int) -> Callable[[], dict[str, Any]]:
    model, (_, speed, duration) = load(robot), ROBOTS[robot]
    directions = 2 * model.structure.num_velocities + model.num_controls + 1  # of start, control and duration

    def run() -> dict[str, Any]:
        legs = stride_guess.find_legs(model)
        schedule = stride_guess.plan_stances(legs, NUM_PIECES)
        guess = stride_guess.guess_stride(model, legs, schedule, speed, duration, BENDS[0])
        figures: dict[str, Any] = {}
        for motions in (300, 300 * (1 + directions)):
            begin = time.process_time()
            miss, effort, transport = _by_cma(motions, seed, model, guess, speed)
            figures |= {
                f"error of the period, {motions} motions": miss, f"effort, {motions}": effort,
                f"cost of transport, {motions}": transport,
                f"processor s, {motions}": time.process_time() - begin,
            }  # fmt: skip
        return figures

    return run


def difference_errors(model: Any, pieces: Pieces) -> dict[str, Any]:
    """Relative errors of central differences beside the exact derivative of the pieces of a stride."""
    state, nv = model.initial_state(), model.structure.num_velocities
    units = jnp.asarray(np.concatenate([np.repeat(SIZES, nv), control_sizes(model)]))
    dt = float(pieces.duration) / (NUM_PIECES * NUM_STEPS)

    def end(z: Any) -> Any:
        x = z * units
        controls = jnp.broadcast_to(x[2 * nv :], (NUM_STEPS, x.size - 2 * nv))
        states, _ = jc.compliant.rollout(model, state.replace(q=x[:nv], v=x[nv : 2 * nv]), controls, dt=dt)
        return jnp.concatenate([states.q[-1], states.v[-1]]) / units[: 2 * nv]

    z = np.concatenate([pieces.q[:-1], pieces.v[:-1], pieces.controls], axis=1) / np.asarray(units)
    exact = np.asarray(jc.simd(jax.jacfwd(end), nan=False)(z))
    lanes, figures = jc.simd(end, nan=False), {}
    for step in DIFFERENCES:
        slopes = [
            (np.asarray(lanes(z + step * row)) - np.asarray(lanes(z - step * row))) / (2 * step)
            for row in np.eye(z.shape[1])
        ]
        errors = np.linalg.norm(np.stack(slopes, axis=2) - exact, axis=(1, 2)) / np.linalg.norm(
            exact, axis=(1, 2)
        )
        figures[f"error of differences, {step:g}"] = f"{np.median(errors):.1e}, worst {np.max(errors):.1e}"
    return figures


def _differences(robot: str) -> Callable[[], dict[str, Any]]:
    model, (_, speed, duration) = load(robot), ROBOTS[robot]
    return lambda: difference_errors(model, jc.optimize.robot_gait(model, speed=speed, duration=duration)[0])


CASES = [
    Case(
        name=f"robot gait by CMA-ES, {robot}, seed {seed}", items=1, repeats=1,
        setup=lambda robot=robot, seed=seed: _cma(robot, seed),
    )
    for robot in NAMES
    for seed in SEEDS
] + [
    Case(
        name=f"robot gait, differences, {robot}", items=1, repeats=1,
        setup=lambda robot=robot: _differences(robot),
    )
    for robot in NAMES
]  # fmt: skip
