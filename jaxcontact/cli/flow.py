"""`jaxcontact flow MODEL|FILE`: motion through sprung contacts, with its events, as data and as a picture."""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path

import jax
import numpy as np

from jaxcontact import ess, viz
from jaxcontact._pytree import PyTree
from jaxcontact.cli import robot_file
from jaxcontact.cli.catalogue import Summary
from jaxcontact.cli.file_options import is_file
from jaxcontact.mechanics.event_system import EventSystem
from jaxcontact.mechanics.material import stiff_material
from jaxcontact.mechanics.system import Model
from jaxcontact.status import Status

MAX_STEPS, MAX_EVENTS = 4096, 512  # limits of a run
PANELS = 6  # largest number of components that are drawn
UNITS = {"hinge": "rad", "slide": "m"}
FRAMES = 200  # smallest number of steps of the picture


def command(options: argparse.Namespace) -> int:
    """Run the command; return 0 for a good run, 1 for one that failed, 2 for wrong usage."""
    try:
        return _run_flow(options)
    except (ValueError, TypeError, OSError) as error:
        hint = "; take another pose, by --keyframe" if "crossed0" in str(error) else ""
        print(f"jaxcontact: {error}{hint}", file=sys.stderr)
        return 2


def on_springs(options: argparse.Namespace) -> tuple[Model, list[str] | None]:
    """Load the model, put a mechanism on its springs; return it and names of its states, if joints have any.

    The springs of a file carry its mass at a depth of 1 mm.

    Raises:
        ValueError: a mechanism without springs or without contacts.
    """
    model = robot_file.ready(options.model, options)
    if is_file(options.model):  # the springs of a file are stated per effective mass
        material = stiff_material(float(model.params.mass.sum()))
        model = model.replace(params=model.params.replace(material=material))
    if isinstance(model.system, EventSystem):
        return model, None
    return ess.from_system(model), _names(model)


def _names(model: Model) -> list[str] | None:
    """Name positions and rates of the joints, or as the entries of q and v; None for free and ball joints."""
    tree = model.structure.tree
    if tree is None:
        number = model.structure.num_positions
        return None if model.structure.dim == 3 else [f"{x}[{k}]" for x in "qv" for k in range(number)]
    if any(joint.kind not in UNITS for joint in tree.joints):
        return None
    joints = [(joint.name, UNITS[joint.kind]) for joint in tree.joints]
    return [f"{name} ({unit})" for name, unit in joints] + [f"{name} ({unit}/s)" for name, unit in joints]


def _run_flow(options: argparse.Namespace) -> int:
    begin = time.perf_counter()
    (model, names), stem = on_springs(options), Path(options.model).stem
    x0: PyTree = model.initial_state()  # a vector, for such a system
    settings = ess.Settings(eps=options.eps, tol=options.tol, max_steps=MAX_STEPS, max_events=MAX_EVENTS)
    eps, info = ess.choose_bands(model, x0, 0.0, options.duration, settings=settings)
    steps = ess.DormandPrince(longest=options.duration / FRAMES)
    path = jax.block_until_ready(
        ess.integrate(model, x0, 0.0, options.duration, settings=settings.replace(eps=eps, ode=steps))
    )
    folder: Path = options.out
    folder.mkdir(parents=True, exist_ok=True)
    picture, data = folder / f"{stem}_flow.png", folder / f"{stem}_flow.npz"
    shown = list(range(min(PANELS, x0.shape[0])))
    title = f"{stem}, on springs"
    viz.plot_trajectory(path, components=shown, names=names, title=title).savefig(picture, dpi=110)
    rows, events = int(path.num_rows), int(path.num_events)
    order, places = (np.asarray(x)[:events] for x in (path.order, path.event_rows))
    times = np.asarray(path.t)[places]
    np.savez(data, t=path.t[:rows], x=path.x[:rows], crossed=path.crossed[:rows], guard=order, event_t=times)
    status = np.uint32(info.status) | np.uint32(path.status)
    summary = {
        "model": stem,
        "duration": options.duration,
        "status": Status.describe(status),
        "events": [{"t": float(t), "guard": int(k)} for t, k in zip(times, order, strict=True)],
        "end": np.asarray(path.x)[rows - 1].tolist(),
        "eps": np.asarray(eps).tolist(),
        "band_error": float(np.max(info.band_error)),
        "seconds": time.perf_counter() - begin,
        "files": [str(picture), str(data)],
    }
    print(json.dumps(summary, indent=2) if options.json else _format(summary))
    return int(bool(Status.failed(status)))


def _format(summary: Summary) -> str:
    events = summary["events"]
    shown = ", ".join(f"{event['guard']} at {event['t']:.4g} s" for event in events[:PANELS])
    more = f" and {len(events) - PANELS} more" if len(events) > PANELS else ""
    return "\n".join(
        [
            f"{summary['model']}: {summary['duration']:g} s, {len(events)} events, {summary['status']}",
            f"  guards crossed     {shown}{more}",
            f"  at the end         {np.array2string(np.asarray(summary['end']), precision=5)}",
            f"  bands              {max(summary['eps']):.3g} wide, error {summary['band_error']:.1e}",
            f"  time               {summary['seconds']:.0f} s",
            *(f"  wrote              {path}" for path in summary["files"]),
        ]
    )
