"""The calibration of Anderson & Revzen, figure 4 and table 2: a hopper in one dimension, ours and MuJoCo's.

A mass of 1 kg on a spring of 1000 N/m and 1 m that only pushes, dropped from rest at 2 m, for 2 s; both
take steps of 2 ms at most. The band is the widest whose error is at most MuJoCo's, and so is that of steps as
long as their tolerance allows. MuJoCo's spring is a tendon with a dead band to an anchor far above
(`benchmarks/ess.py`), the same law.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import jaxcontact as jc
from benchmarks.ess import GRAVITY, HEIGHT, REST, STIFFNESS, seconds
from benchmarks.runner import Case

DT, END = 2e-3, 2.0
REPEATS = 51


def exact(t: np.ndarray) -> np.ndarray:
    """Height and speed (k, 2) in closed form: parabolas and arcs of a harmonic oscillation in turn."""
    w, fall = np.sqrt(STIFFNESS), np.sqrt(2.0 / GRAVITY)
    v, sag = GRAVITY * fall, GRAVITY / STIFFNESS
    size, phase = np.hypot(sag, v / w), np.arctan2(v / w, sag)
    stance = 2.0 * (np.pi - phase) / w
    period = 2.0 * fall + stance
    s = (t + fall) % period - 2.0 * fall  # since touch-down; negative in flight, from one apex to either side
    rise = np.where(s < 0, s + fall, 0.0)
    flight = np.stack([2.0 - 0.5 * GRAVITY * rise**2, -GRAVITY * rise], axis=-1)
    turn = w * s + phase
    ground = np.stack([REST - sag + size * np.cos(turn), -w * size * np.sin(turn)], axis=-1)
    return np.where((s < 0)[:, None], flight, ground)


def mujoco_model() -> Any:
    import mujoco

    return mujoco.MjModel.from_xml_string(
        f'<mujoco><option timestep="{DT}" gravity="0 0 -{GRAVITY}"><flag contact="disable"/></option>'
        f'<worldbody><site name="a" pos="0 0 {HEIGHT}"/><body pos="0 0 2"><joint type="slide" axis="0 0 1"/>'
        '<inertial pos="0 0 0" mass="1" diaginertia="1 1 1"/><site name="p"/></body></worldbody>'
        f'<tendon><spatial stiffness="{STIFFNESS}" springlength="0 {HEIGHT - REST}"><site site="p"/>'
        '<site site="a"/></spatial></tendon></mujoco>'
    )


def mujoco_run(model: Any) -> np.ndarray:
    """Height and speed after every step, the start first."""
    import mujoco

    data = mujoco.MjData(model)
    rows = [(2.0, 0.0)]
    for _ in range(round(END / DT)):
        mujoco.mj_step(model, data)
        rows.append((data.qpos[0] + 2.0, data.qvel[0]))
    return np.array(rows)


def ours(fixed: bool = True, method: Any = jc.ess.integrate) -> Callable[[Any], Any]:
    """The model's trajectory as a function of eps, in steps of 2 ms or in steps as long as 1e-6 allows.

    `method=jc.ess.flow` gives the end alone, as MuJoCo's many steps in one call do; times are of that.
    """
    model = jc.models.hopper_1d()
    events = jc.ess.from_system(model)
    x0 = events.initial_state()
    ode = jc.ess.DormandPrince(dt=DT) if fixed else jc.ess.DormandPrince(rtol=1e-6, atol=1e-6)
    steps = 1200 if fixed else 128
    settings = jc.ess.Settings(eps=0.0, ode=ode, max_steps=steps, max_events=16)
    return jax.jit(lambda eps: method(events, x0, 0.0, END, settings=settings.replace(eps=eps)))


def _rms(x: np.ndarray, t: np.ndarray) -> float:
    return float(np.sqrt(np.mean((x - exact(t)) ** 2)))


def _error(trajectory: jc.ess.EventTrajectory) -> float:
    rows = int(trajectory.num_rows)
    return _rms(np.asarray(trajectory.x)[:rows], np.asarray(trajectory.t)[:rows])


def calibrate(allowed: float, run: Callable[[Any], jc.ess.EventTrajectory]) -> float:
    """The widest band in m, up to 1, whose error is at most `allowed`, by bisection of its logarithm."""
    low, high = 1e-6, 1.0
    for _ in range(30):
        middle = float(np.sqrt(low * high))
        trajectory = run(middle)
        good = int(trajectory.status) == 0 and _error(trajectory) <= allowed
        low, high = (middle, high) if good else (low, middle)
    return low


def _calibration() -> Callable[[], dict[str, Any]]:
    import mujoco

    model, run, free = mujoco_model(), ours(), ours(fixed=False)
    t = DT * np.arange(round(END / DT) + 1)
    allowed = _rms(mujoco_run(model), t)
    eps, wide = calibrate(allowed, run), calibrate(allowed, free)
    data = mujoco.MjData(model)

    def theirs() -> None:
        mujoco.mj_resetData(model, data)
        mujoco.mj_step(model, data, round(END / DT))

    def median(call: Callable[[], Any]) -> float:
        call()
        return float(np.median([seconds(call) for _ in range(REPEATS)]))

    def work() -> dict[str, Any]:
        end, free_end = ours(method=jc.ess.flow), ours(False, jc.ess.flow)
        one, two = jnp.asarray(eps), jnp.asarray(wide)
        return {
            "eps": eps,
            "eps adaptive": wide,
            "ms": 1e3 * median(lambda: jax.block_until_ready(end(one))),
            "ms adaptive": 1e3 * median(lambda: jax.block_until_ready(free_end(two))),
            "ms MuJoCo": 1e3 * median(theirs),
            "error": _error(run(eps)),
            "error adaptive": _error(free(wide)),
            "error of MuJoCo": allowed,
            "error at eps 1e-3": _error(run(1e-3)),
            "status": int(run(eps).status | free(wide).status),
        }

    return work


def draw(rows: list[dict[str, Any]], path: Path) -> None:
    """Heights and speeds, and below them what is left of them, as figure 4 of Anderson & Revzen."""
    import matplotlib.pyplot as plt

    eps = rows[0]["eps"]
    trajectory = ours()(eps)
    count = int(trajectory.num_rows)
    t, x = np.asarray(trajectory.t)[:count], np.asarray(trajectory.x)[:count]
    grid = DT * np.arange(round(END / DT) + 1)
    theirs = mujoco_run(mujoco_model())
    figure, axes = plt.subplots(2, 2, figsize=(7.2, 4.2), layout="constrained", sharex=True)
    for i, name in enumerate(("height, m", "speed, m/s")):
        axes[0, i].plot(t, x[:, i], color="#d55e00", lw=1.2, label=f"jaxcontact, eps = {eps:.3g} m")
        axes[0, i].plot(grid, theirs[:, i], "--", color="#0072b2", lw=1.2, label="MuJoCo, 2 ms")
        axes[0, i].plot(grid, exact(grid)[:, i], ":", color="#4d4d4d", lw=1.2, label="exact")
        axes[1, i].plot(t, x[:, i] - exact(t)[:, i], color="#d55e00", lw=1.0)
        axes[1, i].plot(grid, theirs[:, i] - exact(grid)[:, i], "--", color="#0072b2", lw=1.0)
        axes[0, i].set_title(name, fontsize=9)
        axes[1, i].set_xlabel("time, s", fontsize=9)
    axes[1, 0].set_ylabel("error", fontsize=9)
    for panel in axes.flat:
        panel.spines[["top", "right"]].set_visible(False)
        panel.tick_params(labelsize=8)
    lines, labels = axes[0, 0].get_legend_handles_labels()
    figure.legend(lines, labels, loc="outside upper center", ncols=3, fontsize=8, frameon=False)
    figure.savefig(path, dpi=110)
    plt.close(figure)


CASES = [Case(name="ess hopper calibration", items=1, setup=_calibration, repeats=1)]
