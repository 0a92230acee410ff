"""Makes the picture of the trot of go1: `python -m benchmarks.figures.trot`. See `benchmarks/trot.py`."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import jaxcontact as jc
from benchmarks import trot

TARGET = "docs/_static/trot.png"
PUSHED = trot.SETTLING + 1.25  # strides
POSES = 4  # of a stride, that the picture shows
SHOWN = 3.0  # strides before the push, from where curves are drawn


def our_path(numbers: np.ndarray) -> trot.Path:
    """Compute the motion of our robot, pushed; without the power of its joints."""
    _, model = trot.load()

    def policy(model: jc.Model, state: jc.State, t: Any, memory: Any, key: Any) -> tuple[Any, Any]:
        return trot.control(jnp, numbers, trot.SPEED, t, state.q, state.v), memory

    def go(state: jc.State, steps: int) -> jc.State:
        return jc.simulate.rollout(
            model, state, policy, stepper=jc.simulate.Compliant(), dt=numbers[0] / trot.STEPS, num_steps=steps
        ).states

    first = round(PUSHED * trot.STEPS)
    start = model.initial_state().replace(q=jnp.asarray(trot.stance()))
    before = jax.jit(lambda: go(start, first))()
    end = jax.tree.map(lambda leaf: leaf[-1], before)
    pushed = end.replace(v=end.v.at[1].add(trot.PUSH))
    after = jax.jit(lambda: go(pushed, trot.STEPS * (trot.SETTLING + trot.JUDGED) - first))()
    q, v = (np.concatenate([a[1:], b[1:]]) for a, b in ((before.q, after.q), (before.v, after.v)))
    return trot.Path(q, v, np.zeros(len(q)))


def touching_parts(q: np.ndarray) -> set[str]:
    """Name the parts other than feet that touch anything at poses q, by MuJoCo, with all contacts."""
    import mujoco

    mj = trot.load(trot.ALL_CONTACTS)[0]
    data, found = mujoco.MjData(mj), set()
    for row in q:
        data.qpos[:] = row
        mujoco.mj_forward(mj, data)
        parts = {int(geom) for contact in data.contact if contact.dist <= 0 for geom in contact.geom}
        found |= {mj.geom(part).name or f"shape {part}" for part in parts}
    return found - {"floor", "FR", "FL", "RR", "RL"}


def over_a_stride(values: np.ndarray, steps: int) -> np.ndarray:
    """Compute means over the stride before each step."""
    sums = np.concatenate([[0.0], np.cumsum(values)])
    return (sums[steps:] - sums[:-steps]) / steps


def main() -> None:
    """Draw poses of a stride, and the speed of the trunk in three engines before and after a push."""
    from matplotlib.figure import Figure

    jax.config.update("jax_enable_x64", True)
    numbers = trot.FOUND
    push = {"push": trot.PUSH, "pushed": PUSHED}
    ours = our_path(numbers)
    print("parts that touch besides feet:", touching_parts(ours.q[:: trot.STEPS // 30]) or "none")
    paths = {
        "ours, 4 ms": (ours, trot.STEPS),
        "MuJoCo, 4 ms": (trot.path_in_mujoco(numbers, trot.Contact(), **push), numbers[0] / 0.004),
        "MuJoCo, stiff": (trot.path_in_mujoco(numbers, trot.STIFF, **push), numbers[0] / trot.STIFF.dt),
    }
    figure = Figure(figsize=(8.0, 4.6), layout="constrained")
    grid = figure.add_gridspec(2, POSES, height_ratios=(1.0, 1.3))
    shown = trot.load(trot.ALL_CONTACTS)[1]
    for k in range(POSES):
        axes = figure.add_subplot(grid[0, k])
        q = ours.q[trot.SETTLING * trot.STEPS + k * trot.STEPS // POSES]
        state = jc.State(q=q, v=np.zeros(18), t=0.0)
        jc.viz.draw_bodies(axes, shown, state, view=jc.viz.look(-60.0, 12.0), ground=False)
        axes.set_title(f"{k}/{POSES} of a stride", fontsize=9)
    for place, name, column in ((slice(0, 2), "forward", 0), (slice(2, 4), "to the left", 1)):
        axes = figure.add_subplot(grid[1, place])
        for label, (path, steps) in paths.items():
            time = np.arange(1, len(path.q) + 1) / steps - PUSHED
            speed = over_a_stride(path.v[:, column], round(steps))
            inside = time[round(steps) - 1 :] >= -SHOWN
            axes.plot(time[round(steps) - 1 :][inside], speed[inside], label=label)
        axes.axvline(0.0, color="0.6", linestyle=":")
        axes.set_xlabel("strides after a push of 0.3 m/s to the left")
        axes.set_ylabel(f"speed {name}, m/s, mean of a stride")
    axes.legend(frameon=False, loc="upper right")
    figure.savefig(TARGET, dpi=80)


if __name__ == "__main__":
    main()
