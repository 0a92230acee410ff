"""`jaxcontact compare FILE`: a robot that moves or falls, under every stepper and in MuJoCo, side by side."""

from __future__ import annotations

import argparse
import copy
import json
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxcontact import simulate, viz
from jaxcontact.cli import robot_file
from jaxcontact.cli.catalogue import LAWS, UsageError
from jaxcontact.cli.simulate import stepper_of
from jaxcontact.io.mjcf_source import compile_source
from jaxcontact.io.mujoco_package import mujoco_package
from jaxcontact.mechanics.motion_equations import body_frames, energies
from jaxcontact.mechanics.system import Model
from jaxcontact.status import Status
from jaxcontact.terms import contact_terms

PEER = "MuJoCo"
COLUMNS = ("stepper", "height m", "energy J", "lost J", "deepest m", "apart", "status")


def command(options: argparse.Namespace) -> int:
    """Move the robot under every stepper; return 0, or 1 if a step failed.

    Raises:
        UsageError: the file cannot be loaded, or nothing can be written.
    """
    model = robot_file.ready(options.model, options)
    paths = {}
    for name in options.steppers:
        stepper = stepper_of(argparse.Namespace(**vars(options) | {"stepper": name, "law": LAWS[0]}), model)
        run = simulate.run(
            model, model.initial_state(), stepper=stepper,
            duration=options.duration, dt=options.dt, check=False,
        )  # fmt: skip
        paths[name] = (np.asarray(run.states.q), np.asarray(run.states.v), np.asarray(run.status))
    paths[PEER] = _by_mujoco(model, options)
    rows, heights = _measured(model, paths)
    options.out.mkdir(parents=True, exist_ok=True)
    stem = Path(options.model).stem
    picture = options.out / f"{stem}_compare.png"
    times = np.arange(len(next(iter(heights.values())))) * options.dt
    curves = {name: (times, height) for name, height in heights.items()}
    title, height = f"{stem}: one motion, {len(paths)} ways", f"height of {model.structure.bodies[0]} (m)"
    viz.plot_curves(curves, xlabel="time (s)", ylabel=height, title=title).savefig(picture, dpi=110)
    summary = {"model": stem, "dt": options.dt, "duration": options.duration, "rows": rows}
    print(json.dumps(summary | {"files": [str(picture)]}, indent=2) if options.json else _text(rows, picture))
    failed = [np.bitwise_or.reduce(status) for _, _, status in paths.values()]
    return int(any(bool(Status.failed(bits)) for bits in failed))


def _by_mujoco(model: Model, options: argparse.Namespace) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Move the robot by MuJoCo's own steps from the same state; return q, v and a status for each step."""
    mujoco = mujoco_package("jaxcontact compare")
    mj = copy.copy(compile_source(options.model, options.floating, options.floor).mj)
    mj.opt.timestep = options.dt
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


def _measured(model: Model, paths: dict[str, Any]) -> tuple[list[dict[str, Any]], dict[str, np.ndarray]]:
    """Return a row for each stepper, and the heights of the first body over time."""

    def at(q: jax.Array, v: jax.Array) -> tuple[jax.Array, ...]:
        terms = contact_terms(model, model.initial_state().replace(q=q, v=v))
        height = body_frames(model, q)[0][0, -1]
        return height, sum(energies(model, q, v), jnp.zeros(())), jnp.min(terms.phi, initial=jnp.inf)

    over_time = jax.jit(jax.vmap(at))
    found = {name: tuple(map(np.asarray, over_time(q, v))) for name, (q, v, _) in paths.items()}
    peer = found[PEER][0]
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
        for name, (height, energy, gap) in found.items()
    ]  # fmt: skip
    return rows, {name: height for name, (height, _, _) in found.items()}


def _text(rows: list[dict[str, Any]], picture: Path) -> str:
    """Return the rows as a table, and where the picture is."""
    cells = [list(COLUMNS)] + [[x if isinstance(x, str) else f"{x:.4g}" for x in r.values()] for r in rows]
    widths = [max(len(row[k]) for row in cells) for k in range(len(COLUMNS))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in cells]
    notes = [
        "height: of the first body at the end; lost: energy from start to end; deepest: largest penetration",
        f"apart: largest difference of that height from {PEER}'s, m",
        f"picture  {picture}",
    ]
    return "\n".join([line.rstrip() for line in lines] + notes)
