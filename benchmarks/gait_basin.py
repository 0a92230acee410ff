"""How hard a gait can be pushed before and after feedback: shares of worlds that still hop, by `ensemble`.

The stride is that of `jc.optimize.robot_gait`, the feedback that of `jc.optimize.track`. Each world starts on
the gait with velocities changed at random; it survives if, after `STRIDES` strides, height and pitch are near
those of the gait.
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
from jaxcontact.optimize.multiple_shooting import SIZES
from jaxcontact.optimize.robot_gait import simulate_stride

WORLDS, STRIDES = 64, 10
KICKS = (0.0, 0.01, 0.4, 1.0, 2.0, 4.0)  # m/s and rad/s, standard deviations of the change of every velocity
NEAR = 0.3  # m and rad, of height and pitch, from those of the gait
EFFORT = 1.0  # cost of a control in parts of its range beside a state in parts of `SIZES`


def _survivors(model: Any, motion: Any, policy: Any) -> np.ndarray:
    """Shares of worlds that go on after pushes of each size; the same pushes for every policy."""
    steps, dt = motion.inputs.shape[0], float(motion.states.t[1])
    start = jax.tree.map(lambda leaf: jnp.repeat(leaf[:1], WORLDS * len(KICKS), axis=0), motion.states)
    pushes = np.random.default_rng(0).normal(size=start.v.shape)
    start = start.replace(v=start.v + np.repeat(KICKS, WORLDS)[:, None] * pushes)
    settings = jc.simulate.MotionSettings(
        stepper=jc.simulate.Compliant(), dt=dt, duration=STRIDES * steps * dt, controls=policy
    )
    ended = jc.simulate.ensemble(model, start, settings, num_worlds=WORLDS * len(KICKS))
    miss = np.abs(np.asarray(ended.states.q[:, 1:3] - motion.states.q[0, 1:3]))
    good = np.all(miss < NEAR, axis=1) & (np.asarray(ended.failed_step) < 0)
    return np.mean(good.reshape(len(KICKS), WORLDS), axis=1)


def basins(model: Any, pieces: Any) -> dict[str, Any]:
    """Shares of survivors by size of the push, without and with feedback, and the multipliers of a stride."""
    motion = simulate_stride(model, pieces)
    size = np.repeat(SIZES, model.structure.num_velocities)
    ranges = np.asarray(model.params.tree.control_range)
    policy, info = jc.optimize.track(
        model, motion, stepper=jc.simulate.Compliant(), state_cost=jnp.asarray(1.0 / size**2),
        control_cost=jnp.asarray(EFFORT / (0.5 * (ranges[:, 1] - ranges[:, 0])) ** 2), periodic=True,
    )  # fmt: skip
    repeated = policy.replace(gains=jnp.zeros_like(policy.gains))
    figures: dict[str, Any] = {
        "largest multiplier without": float(info.without[0]),
        "largest multiplier with": float(info.with_feedback[0]),
        "status": jc.Status.describe(info.status),
    }
    for name, controls in (("without", repeated), ("with", policy)):
        shares = _survivors(model, motion, controls)
        figures[f"survivors % {name}"] = " ".join(f"{100 * share:.0f}" for share in shares)
    return figures


def _hopper() -> Callable[[], dict[str, Any]]:
    model = load("hopper")

    def run() -> dict[str, Any]:
        _, speed, duration = ROBOTS["hopper"]
        pieces, _ = jc.optimize.robot_gait(model, speed=speed, duration=duration)
        begin = time.process_time()
        return basins(model, pieces) | {"pushes": str(KICKS), "processor s": time.process_time() - begin}

    return run


CASES = [Case(name="basin of a gait, hopper", items=1, setup=_hopper, repeats=1)]
