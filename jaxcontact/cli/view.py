"""`jaxcontact view`: a mechanism, a robot file or a motion as a page to look at."""

from __future__ import annotations

import argparse
from pathlib import Path

import jax.numpy as jnp

from jaxcontact.cli import robot_file
from jaxcontact.cli.catalogue import UsageError
from jaxcontact.mechanics.system import Model, State
from jaxcontact.simulate import Trajectory
from jaxcontact.viz.animation import animate


def command(options: argparse.Namespace) -> int:
    """Write the page and print its path; return 0.

    Raises:
        UsageError: it cannot be loaded, drawn or written.
    """
    try:
        if options.what.endswith(".npz"):
            trajectory = Trajectory.load(options.what)
            model = robot_file.ready(options.model, options)
        else:
            model = robot_file.ready(options.what, options)
            trajectory = at_rest(model)
        animate(trajectory, model, options.out, title=Path(options.what).stem)
    except (ValueError, OSError, ImportError) as error:
        raise UsageError(str(error)) from None
    print(options.out)
    return 0


def at_rest(model: Model) -> Trajectory:
    """Return a model in its initial state, as a motion of one row."""
    row = State(
        q=model.initial_state().q[None],
        v=model.initial_state().v[None],
        t=jnp.asarray(model.initial_state().t)[None],
    )
    return Trajectory(states=row, contacts=None, impulse=None, impacts=None, status=None)  # type: ignore[arg-type]
