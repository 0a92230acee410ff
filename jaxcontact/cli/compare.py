"""`jaxcontact compare FILE`: a robot that moves or falls, under every stepper and in MuJoCo, side by side."""

from __future__ import annotations

import argparse
import copy
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
import numpy as np

from jaxcontact import simulate
from jaxcontact.cli import robot_file
from jaxcontact.cli.catalogue import LAWS, UsageError
from jaxcontact.cli.simulate import stepper_of
from jaxcontact.io.mjcf_source import compile_source
from jaxcontact.io.mujoco_package import mujoco_package
from jaxcontact.mechanics.motion_equations import body_frames, energies
from jaxcontact.mechanics.system import Model
from jaxcontact.status import Status
from jaxcontact.terms import contact_terms
from jaxcontact.viz.compliant import STYLES
from jaxcontact.viz.palette import LINES

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PEER = "MuJoCo"
COLUMNS = ("stepper", "height m", "energy J", "lost J", "deepest m", "apart", "status")


def command(options: argparse.Namespace) -> int:
    """Move the robot under every stepper; return 0, or 1 if a step failed.

    Raises:
        UsageError: the file cannot be loaded, or nothing can be written.
    """
    model = robot_file.ready(options.model, options)
    paths, refused = {}, {}
    for name in options.steppers:
        stepper = stepper_of(argparse.Namespace(**vars(options) | {"stepper": name, "law": LAWS[0]}), model)
        print(f"  {name}, {max(1, round(options.duration / options.dt))} steps", file=sys.stderr)
        try:
            motion = simulate.MotionSettings(stepper=stepper, duration=options.duration, dt=options.dt)
            run = simulate.run(model, model.initial_state(), motion, check=False)
        except (ValueError, TypeError) as error:  # such as a start in the floor
            refused[name] = str(error).splitlines()[0]
            continue
        paths[name] = (np.asarray(run.states.q), np.asarray(run.states.v), np.asarray(run.status))
    paths[PEER] = _move_by_mujoco(model, options)
    rows, heights = _measure(model, paths)
    options.out.mkdir(parents=True, exist_ok=True)
    stem = Path(options.model).stem
    picture = options.out / f"{stem}_compare.png"
    times = np.arange(len(heights[PEER])) * options.dt
    _draw_heights(times, heights, stem, model.structure.bodies[0]).savefig(picture, dpi=110)
    summary = {
        "model": stem,
        "dt": options.dt,
        "duration": options.duration,
        "rows": rows,
        "refused": refused,
    }
    if options.json:
        print(json.dumps(summary | {"files": [str(picture)]}, indent=2))
    else:
        print(_as_text(rows, refused, picture))
    failed = [np.bitwise_or.reduce(status) for _, _, status in paths.values()]
    return int(any(bool(Status.failed(bits)) for bits in failed))


def _draw_heights(times: np.ndarray, heights: dict[str, np.ndarray], stem: str, body: str) -> Figure:
    """Draw the heights over time, and below their differences from MuJoCo's."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.4, 5.4), layout="constrained")
    above, below = figure.subplots(2, 1, sharex=True)
    for k, (name, height) in enumerate(heights.items()):
        color, dashes = "black" if name == PEER else LINES[k % len(LINES)], STYLES[k % len(STYLES)]
        above.plot(times, height, dashes, label=name, color=color, linewidth=1.5)
        if name != PEER:
            below.plot(times, 1e3 * (height - heights[PEER]), dashes, color=color, linewidth=1.5)
    below.axhline(0.0, color="black", linewidth=1.0)
    above.set(ylabel=f"height of {body} (m)", title=f"{stem}: one motion, {len(heights)} ways")
    below.set(xlabel="time (s)", ylabel=f"difference from {PEER} (mm)")
    above.legend(fontsize=8, frameon=False)
    for axes in (above, below):
        axes.grid(True, linewidth=0.3, alpha=0.6)
        axes.spines[["top", "right"]].set_visible(False)
    return figure


def _move_by_mujoco(model: Model, options: argparse.Namespace) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Move the robot by MuJoCo's own steps from the same state; return q, v and a status for each step."""
    mujoco = mujoco_package("jaxcontact compare")
    mj = copy.copy(compile_source(options.model, options.floating, options.floor).mj)
    mj.opt.timestep = options.dt
    if options.mu is not None:
        mj.geom_friction[:, 0] = mj.pair_friction[:, :2] = options.mu[0]
    data, start = mujoco.MjData(mj), model.initial_state()
    if len(data.qpos) != start.q.size:
        sizes = f"MuJoCo has {len(data.qpos)} coordinates, the model {start.q.size}"
        raise UsageError(f"{options.model}: {sizes}")
    data.qpos[:], data.qvel[:] = np.asarray(start.q), np.asarray(start.v)
    rows, status = [(data.qpos.copy(), data.qvel.copy())], []
    for _ in range(max(1, round(options.duration / options.dt))):
        mujoco.mj_step(mj, data)
        rows.append((data.qpos.copy(), data.qvel.copy()))
        status.append(0 if np.all(np.isfinite(data.qpos)) else int(Status.NONFINITE))
    q, v = (np.stack(column) for column in zip(*rows, strict=True))
    return q, v, np.array(status, np.uint32)


def _measure(
    model: Model, paths: dict[str, tuple[np.ndarray, np.ndarray, np.ndarray]]
) -> tuple[list[dict[str, object]], dict[str, np.ndarray]]:
    """Make a row of each motion (q, v, status), by stepper; return also the heights of the first body."""

    def measure_state(q: jax.Array, v: jax.Array) -> tuple[jax.Array, ...]:
        terms = contact_terms(model, model.initial_state().replace(q=q, v=v))
        height = body_frames(model, q)[0][0, -1]
        return height, sum(energies(model, q, v), jnp.zeros(())), jnp.min(terms.phi, initial=jnp.inf)

    over_time = jax.jit(jax.vmap(measure_state))
    measures = {name: tuple(map(np.asarray, over_time(q, v))) for name, (q, v, _) in paths.items()}
    peer = measures[PEER][0]
    rows = [
        dict(
            zip(
                COLUMNS,
                (
                    name, float(height[-1]), float(energy[-1]), float(energy[0] - energy[-1]),
                    float(-np.min(np.minimum(gap, 0.0))), float(np.max(np.abs(height - peer))),
                    Status.describe(np.bitwise_or.reduce(paths[name][2])),
                ),
                strict=True,
            )
        )
        for name, (height, energy, gap) in measures.items()
    ]  # fmt: skip
    return rows, {name: height for name, (height, _, _) in measures.items()}


def _as_text(rows: list[dict[str, object]], refused: dict[str, str], picture: Path) -> str:
    """Return the rows as a table, why steppers refuse, and where the picture is."""
    cells = [list(COLUMNS)] + [[x if isinstance(x, str) else f"{x:.4g}" for x in r.values()] for r in rows]
    widths = [max(len(row[k]) for row in cells) for k in range(len(COLUMNS))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in cells]
    notes = [
        *(f"{name} refuses: {why}" for name, why in refused.items()),
        "height: of the first body at the end; lost: energy from start to end; deepest: largest penetration",
        f"apart: largest difference of that height from {PEER}'s, m",
        f"picture  {picture}",
    ]
    return "\n".join([line.rstrip() for line in lines] + notes)
