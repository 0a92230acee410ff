"""`jaxcontact gait MODEL|FILE`: finds a periodic gait and draws it."""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path

import jax
import numpy as np

from jaxcontact import ess, optimize, viz
from jaxcontact._pytree import PyTree
from jaxcontact.batching.progress import progress_line
from jaxcontact.batching.run_settings import Run
from jaxcontact.cli import robot_gait
from jaxcontact.cli.catalogue import Summary
from jaxcontact.mechanics.system import Model
from jaxcontact.optimize import GaitProblem, gaits
from jaxcontact.status import Status

MODELS = {"hexapod": gaits.hexapod, "hopper": gaits.hopper}
STRIDES = 4  # number of periods that are drawn, and whose status is checked


def command(options: argparse.Namespace) -> int:
    """Run the command; return 0 for a periodic gait at the speed asked for, 1 for none, 2 for wrong usage."""
    try:
        return _find_gait(options) if options.model in MODELS else robot_gait.find(options)
    except (ValueError, OSError, FloatingPointError) as error:
        print(f"jaxcontact: {error}", file=sys.stderr)
        return 1 if isinstance(error, FloatingPointError) else 2


def _find_gait(options: argparse.Namespace) -> int:
    problem, params, free0 = MODELS[options.model]()
    folder: Path = options.out
    folder.mkdir(parents=True, exist_ok=True)
    stem = f"{options.model}_gait"
    begin = time.perf_counter()
    free, info = optimize.gait(
        problem, params, free0, speed=options.speed, num_steps=options.steps,
        run=Run(
            checkpoint=folder / f"{stem}_{options.speed:g}_{options.steps}.checkpoint.npz",
            progress=progress_line(),
        ),
    )  # fmt: skip
    if not np.isfinite(info.cost):
        raise FloatingPointError(f"{options.model}: no stride at {options.speed:g} m/s to start from")
    before, after = (run_strides(problem, params, z, STRIDES) for z in (free0, free))
    _, end_conditions = optimize.gait_outcome(problem, params, free, options.speed)
    summary = {
        "model": options.model,
        "cost_of_transport": info.cost,
        "speed_error": abs(float(end_conditions[-1])),
        "periodicity_error": float(np.max(np.abs(np.asarray(end_conditions[:-1])))),
        "cost_before": float(info.costs[0]),
        "error_before": float(info.residuals[0]),
        "free": {name: np.asarray(value).tolist() for name, value in free.items()},
        "status": Status.describe(np.uint32(info.status) | np.uint32(after.status)),
        "motions": info.evaluations,
        "seconds": time.perf_counter() - begin,
    }
    picture = folder / f"{stem}.png"
    labels = {
        f"start, no gait: errors of a period up to {info.residuals[0]:.2g}": before,
        f"gait: errors up to {info.residual:.0e}": after,
    }
    figure = viz.plot_gait(labels, title=f"{options.model}, {options.speed:g} m/s")
    figure.savefig(picture, dpi=110)
    launch = problem.launch(free, params)
    film = viz.animate_gait(after, launch.params, folder / f"{stem}.gif")
    data = folder / f"{stem}.json"
    data.write_text(json.dumps(summary, indent=1))
    summary["files"] = [str(path) for path in (picture, film, data)]
    print(json.dumps(summary, indent=2) if options.json else _format(summary))
    return 0 if summary["status"] == "SUCCESS" else 1


def run_strides(problem: GaitProblem, params: PyTree, free: PyTree, strides: int) -> ess.EventTrajectory:
    """Integrate the motion over several periods, from the free numbers of one period."""
    launch = problem.launch(free, params)
    settings = problem.settings().replace(
        max_steps=256 * strides,
        max_events=problem.max_events * strides,
        ode=ess.DormandPrince(rtol=1e-9, atol=1e-11, longest=launch.duration / 40),
    )
    trajectory = ess.integrate(
        Model(system=problem.es, params=launch.params), launch.x0, 0.0, strides * launch.duration,
        settings=settings, control=launch.control, crossed0=problem.starts_crossed(),
    )  # fmt: skip
    return jax.block_until_ready(trajectory)


def _format(summary: Summary) -> str:
    free = summary["free"]
    return "\n".join(
        [
            f"{summary['model']}: a periodic gait, status {summary['status']}",
            f"  cost of transport  {summary['cost_of_transport']:.5f}",
            f"  the start          is no gait: {summary['cost_before']:.5f}, with errors of a period up to "
            f"{summary['error_before']:.2g}",
            f"  periodicity error  {summary['periodicity_error']:.1e}",
            f"  speed error        {summary['speed_error']:.1e} m/s",
            *(f"  {name:<18} {np.array2string(np.asarray(v), precision=5)}" for name, v in free.items()),
            f"  time               {summary['seconds']:.0f} s, {summary['motions']} motions with derivatives",
            *(f"  wrote              {path}" for path in summary["files"]),
        ]
    )
