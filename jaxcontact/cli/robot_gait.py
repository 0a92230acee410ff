"""`jaxcontact gait FILE`: finds a periodic gait of a planar robot of a file; numbers and a film."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import jax.numpy as jnp
import numpy as np

from jaxcontact import optimize, viz
from jaxcontact.batching.progress import progress_line
from jaxcontact.batching.run_settings import Run
from jaxcontact.cli import robot_file
from jaxcontact.cli.catalogue import Summary
from jaxcontact.optimize import stride_guess
from jaxcontact.optimize.robot_gait import simulate_stride
from jaxcontact.simulate.trajectory import Trajectory
from jaxcontact.status import Status

STRIDES = 6  # in the film


def find(options: argparse.Namespace) -> int:
    """Find a gait; return 0 for a periodic one at the speed, whose cost may still fall, 1 for none."""
    folder: Path = options.out
    folder.mkdir(parents=True, exist_ok=True)
    options.planar = True
    if options.contacts == "all":
        options.contacts = "world"  # legs that pass each other do not touch
    model = robot_file.ready(options.model, options)
    stem = folder / f"{Path(options.model).stem}_gait"
    checkpoint = stem.with_name(
        f"{stem.name}_{options.speed:g}_{options.duration:g}_{options.steps}.checkpoint.npz"
    )
    stride, info = optimize.robot_gait(
        model, speed=options.speed, duration=options.duration, num_steps=options.steps,
        run=Run(checkpoint=checkpoint, progress=progress_line()),
    )  # fmt: skip
    motion = repeat_stride(simulate_stride(model, stride), stride_guess.find_legs(model), STRIDES)
    summary = {
        "file": options.model,
        "status": Status.describe(info.status),
        "cost_of_transport": info.cost_of_transport,
        "speed": info.speed,
        "periodicity_error": info.periodicity,
        "duration": float(stride.duration),
        "half_stride": info.is_mirrored,
        "dt": info.dt,
        "largest_control": info.largest_control,
        "largest_friction": info.friction,
        "motions": info.evaluations,
        "seconds": info.seconds,
    }
    numbers = {name: np.asarray(getattr(stride, name)).tolist() for name in ("q", "v", "controls")}
    data = stem.with_suffix(".json")
    data.write_text(json.dumps({**summary, **numbers}, indent=1))
    film = viz.animate(motion, model, stem.with_suffix(".html"), title=f"{stem.stem}, {info.speed:g} m/s")
    summary["files"] = [str(data), str(film)]
    print(json.dumps(summary, indent=2) if options.json else _format(summary))
    return 0 if int(info.status) in (0, int(Status.MAX_ITERS)) else 1


def repeat_stride(stride: Trajectory, legs: stride_guess.Legs, count: int) -> Trajectory:
    """Append a stride to itself, with its legs exchanged each time if they are a pair."""
    q, v = np.asarray(stride.states.q), np.asarray(stride.states.v)
    way, dt = q[-1, 0] - q[0, 0], float(stride.states.t[1])
    order = np.arange(q.shape[1]) if legs.mirror is None else legs.mirror
    exchange = np.arange(stride.contacts.shape[1])
    if legs.mirror is not None:
        exchange[np.concatenate(legs.contacts)] = np.concatenate(legs.contacts[::-1])
    rows: list[list[np.ndarray]] = [[q[:1]], [v[:1]], [np.asarray(stride.contacts[:1])], []]
    touches, impulse = np.asarray(stride.contacts[1:]), np.asarray(stride.impulse)
    for k in range(count):
        shifted = q[1:] + np.eye(q.shape[1])[0] * way * k
        for row, part in zip(rows, (shifted, v[1:], touches, impulse), strict=True):
            row.append(part)
        q, v = q[:, order], v[:, order]
        touches, impulse = touches[:, exchange], impulse[:, exchange]
    joined = [jnp.asarray(np.concatenate(row)) for row in rows]
    states = stride.states.replace(q=joined[0], v=joined[1], t=dt * jnp.arange(len(joined[0]) + 0.0))
    return stride.replace(
        states=states,
        contacts=joined[2],
        impulse=joined[3],
        inputs=None,
        status=jnp.tile(stride.status, count),
    )


def _format(summary: Summary) -> str:
    names = {
        "cost_of_transport": "cost of transport", "speed": "speed, m/s",
        "periodicity_error": "periodicity error", "duration": "duration, s", "dt": "time step, s",
        "largest_control": "largest control", "largest_friction": "largest friction",
        "seconds": "time, s", "motions": "motions",
    }  # fmt: skip
    half = ", half of one, then with legs exchanged" if summary["half_stride"] else ""
    return "\n".join(
        [
            f"{summary['file']}: a periodic stride{half}, status {summary['status']}",
            *(f"  {text:<18} {summary[name]:.6g}" for name, text in names.items()),
            *(f"  wrote              {path}" for path in summary["files"]),
        ]
    )
