"""`jaxcontact simulate MODEL|FILE.xml`: motion in time, of one world or many, as data and as a picture."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from jaxcontact import impact, simulate, viz
from jaxcontact._pytree import PyTree
from jaxcontact.batching.progress import progress_line
from jaxcontact.batching.run_settings import Run
from jaxcontact.cli import robot_file
from jaxcontact.cli.catalogue import Summary
from jaxcontact.cli.cluster import count_of, executor_of
from jaxcontact.cli.motion_options import KEYFRAME
from jaxcontact.io.mjcf_source import compile_source
from jaxcontact.mechanics.motion_equations import body_frames
from jaxcontact.mechanics.system import Model
from jaxcontact.status import Status

MOST_CURVES = 5  # largest number of bodies whose heights are drawn for a single motion
MOST_GHOSTS = 24  # largest number of worlds in an animation
QUANTILES = (0.05, 0.5, 0.95)  # of the height over many worlds, drawn as curves


def command(options: argparse.Namespace) -> int:
    """Run the command; return 0 if every world is good, 1 if one failed, 2 for wrong usage."""
    try:
        return _simulate(options)
    except (ValueError, OSError, ImportError) as error:
        print(f"jaxcontact: {error}", file=sys.stderr)
        return 2


def stepper_of(options: argparse.Namespace, model: Model) -> simulate.Stepper:
    """Make the stepper of the options.

    Raises:
        ValueError: `routh` for a model without the settings of an impact.
    """
    if options.stepper == "compliant":
        return simulate.Compliant()
    if options.law == "routh" and (model.impulse_step is None or model.max_steps is None):
        raise ValueError(f"--law routh: {options.model} is not set up for an impact; use another law")
    laws: dict[str, Callable[[], PyTree]] = {
        "anitescu-potra": impact.AnitescuPotra,
        "routh": lambda: impact.Routh(
            impulse_step=model.impulse_step, max_steps=2 * int(model.max_steps or 0)
        ),
        "sequential": impact.Sequential,
        "propagative": impact.Propagative,
        "plastic": impact.Plastic,
    }
    steppers: dict[str, Callable[..., simulate.Stepper]] = {
        "time-stepping": simulate.TimeStepping,
        "variational": simulate.Variational,
        "event-driven": simulate.EventDriven,
    }
    return steppers[options.stepper](impact=laws[options.law]())


def _simulate(options: argparse.Namespace) -> int:
    begin = time.perf_counter()
    model, stem = robot_file.ready(options.model, options), Path(options.model).stem
    folder: Path = options.out
    folder.mkdir(parents=True, exist_ok=True)
    picture, data = folder / f"{stem}_motion.png", folder / f"{stem}_motion.npz"
    start = (model, model.initial_state())
    stepper = stepper_of(options, model)
    control = None if options.controls is None else jnp.asarray(_read_controls(options, model))
    motion = simulate.MotionSettings(
        stepper=stepper, dt=options.dt, duration=options.duration, controls=control
    )
    if options.worlds == 1:
        key = jax.random.key(options.seed)
        trajectory = simulate.run(*start, motion, key=key, check=False, run=Run(progress=progress_line()))
        trajectory.save(data)
        status = np.bitwise_or.reduce(np.asarray(trajectory.status))
        failed, notes = int(bool(Status.failed(status))), trajectory.notes
        shown: PyTree = trajectory
        curves, what = _height_curves(model, trajectory.states), "the frames of bodies"
    else:
        with executor_of(options) as executor:
            run = Run(
                checkpoint=options.checkpoint, about={"model": stem}, executor=executor,
                progress=progress_line(also=count_of(executor)),
            )  # fmt: skip
            worlds = simulate.ensemble(
                *start, motion, num_worlds=options.worlds, seed=options.seed, keep_path=True, run=run
            )
        worlds.save(data)
        status = np.bitwise_or.reduce(np.asarray(worlds.status))
        failed, notes = int(np.sum(worlds.failed_step >= 0)), worlds.summary.splitlines()[1:]
        shown = _some_worlds(worlds)
        curves, what = _height_quantiles(model, worlds.path), model.structure.bodies[0]
    title = f"{stem}, {options.stepper}, {options.worlds} world{'s' if options.worlds > 1 else ''}"
    heights = viz.plot_curves(curves, xlabel="time (s)", ylabel=f"height of {what} (m)", title=title)
    heights.savefig(picture, dpi=110)
    files = [picture, data]
    if options.gif and (shown is None or not np.all(np.isfinite(shown.states.q))):
        notes = [*notes, "no .gif: no world has numbers that can be drawn"]
    elif options.gif:
        film = folder / f"{stem}_motion.gif"
        files.append(viz.animate(shown, model, film, title=title))
    summary = {
        "model": stem,
        "stepper": options.stepper,
        "law": None if options.stepper == "compliant" else options.law,
        "worlds": options.worlds,
        "seed": options.seed,
        "dt": options.dt,
        "steps": max(1, round(options.duration / options.dt)),
        "failed": failed,
        "status": Status.describe(status),
        "notes": notes,
        "seconds": time.perf_counter() - begin,
        "files": [str(path) for path in files],
    }
    print(json.dumps(summary, indent=2) if options.json else _format(summary))
    return 1 if failed else 0


def _read_controls(options: argparse.Namespace, model: Model) -> np.ndarray:
    """Read the controls (steps, nu) of a file or of the keyframe; one row serves all steps."""
    path, steps = options.controls, max(1, round(options.duration / options.dt))
    try:
        if path == KEYFRAME:
            mj = compile_source(options.model, options.floating, options.floor).mj
            rows = mj.key(options.keyframe).ctrl
        else:
            delimiter = "," if path.suffix == ".csv" else None
            rows = np.load(path) if path.suffix == ".npy" else np.loadtxt(path, ndmin=2, delimiter=delimiter)
        rows = np.atleast_2d(np.asarray(rows, float))
    except (OSError, ValueError, EOFError, TypeError) as error:
        raise ValueError(f"--controls: expected a table of numbers in {path}: {error}") from None
    if rows.ndim != 2 or not np.all(np.isfinite(rows)):
        raise ValueError(f"--controls: expected rows of finite numbers in {path}, got NaN, inf or more axes")
    if rows.shape not in ((1, model.num_controls), (steps, model.num_controls)):
        expected = f"{steps} rows, or one, of {model.num_controls} numbers"
        raise ValueError(f"--controls: expected {expected}, got {rows.shape[0]} of {rows.shape[1]}")
    return np.broadcast_to(rows, (steps, model.num_controls)).copy()


def _some_worlds(worlds: simulate.Ensemble) -> simulate.Trajectory | None:
    """Select the first worlds that can be drawn, as motions for `viz.animate`; None if there is none."""
    good = np.flatnonzero(np.all(np.isfinite(worlds.path.q), axis=(1, 2)))[:MOST_GHOSTS]
    if not good.size:
        return None
    states = jax.tree.map(lambda rows: rows[good], worlds.path)
    return simulate.Trajectory(states=states, contacts=None, impulse=None, impacts=None, status=None)  # type: ignore[arg-type]


def _compute_heights(model: Model, q: jax.Array) -> np.ndarray:
    """Compute the heights (..., nb) of the frames of the bodies."""

    def heights(q: jax.Array) -> jax.Array:
        return body_frames(model, q)[0][:, -1]

    flat = jax.jit(jax.vmap(heights))(np.reshape(q, (-1, np.shape(q)[-1])))
    return np.asarray(flat).reshape(*np.shape(q)[:-1], -1)


def _height_curves(
    model: Model, states: PyTree
) -> dict[str, tuple[Sequence[float] | np.ndarray, Sequence[float] | np.ndarray]]:
    """Compute curves (time, height) of one motion by body, for the first bodies."""
    high = _compute_heights(model, states.q)
    names = model.structure.bodies[:MOST_CURVES]
    return {name: (states.t, high[:, k]) for k, name in enumerate(names)}


def _height_quantiles(
    model: Model, states: PyTree
) -> dict[str, tuple[Sequence[float] | np.ndarray, Sequence[float] | np.ndarray]]:
    """Compute quantiles of the height of the first body over the worlds that can be drawn, as curves."""
    high = _compute_heights(model, states.q)[..., 0]
    good = np.all(np.isfinite(high), axis=1)
    if not np.any(good):
        return {"no world": ([], [])}
    lines = np.quantile(high[good], QUANTILES, axis=0)
    return {
        f"{100 * q:g} % of worlds are below": (states.t[0], row)
        for q, row in zip(QUANTILES, lines, strict=True)
    }


def _format(summary: Summary) -> str:
    law = f" under {summary['law']}" if summary["law"] else ""
    return "\n".join(
        [
            f"{summary['model']}: {summary['steps']} steps of {summary['dt']:g} s",
            f"  stepper  {summary['stepper']}{law}",
            f"  worlds   {summary['worlds']}, {summary['failed']} failed, status {summary['status']}",
            *(f"  {note.strip()}" for note in summary["notes"]),
            f"  time     {summary['seconds']:.1f} s",
            *(f"  wrote    {path}" for path in summary["files"]),
        ]
    )
