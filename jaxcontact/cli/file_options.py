"""The options of every command that takes a model or a file, with their checks, without loading JAX."""

from __future__ import annotations

import argparse
import math
import os
from pathlib import Path

from jaxcontact.cli.catalogue import UsageError

# Options of `load_mjcf`, and their values if a command does not name them.
DEFAULTS: dict[str, object] = {
    "keyframe": None,
    "planar": False,
    "contacts": "all",
    "unsupported": "error",
    "floating": None,
    "floor": None,
    "max_hull_vertices": None,
}


def add_file_options(run: argparse.ArgumentParser) -> None:
    """Add the options of a robot's file."""
    options = run.add_argument_group("of a robot's file; --fall and --mu also of a model")
    options.add_argument("--keyframe", metavar="NAME", help="name of the keyframe that is the state")
    options.add_argument("--planar", action="store_true", help="as a mechanism of the plane")
    options.add_argument(
        "--contacts",
        type=_contacts,
        default="all",
        metavar="WHICH",
        help="all, world (with the floor and what stands on it), or pairs of names of geoms or bodies, "
        "such as left_foot:floor,right_foot:floor [all]",
    )
    options.add_argument(
        "--unsupported",
        choices=("error", "skip"),
        default="error",
        help="refuse a file with what is not supported, or leave that out [error]",
    )
    options.add_argument(
        "--floating", action="store_true", default=None, help="put a free joint under a base that has none"
    )
    options.add_argument("--floor", type=float, metavar="Z", help="add a floor at the height Z, m")
    options.add_argument(
        "--max-hull-vertices", type=int, metavar="N", help="largest number of corners of the hull of a mesh"
    )
    options.add_argument(
        "--fall",
        type=float,
        metavar="V",
        help="move a robot along gravity to where it first touches, all of it falling at V m/s",
    )
    options.add_argument(
        "--mu",
        type=float,
        nargs="+",
        metavar="MU",
        help="friction, one number or one per candidate contact [the model's]",
    )


def is_file(model: str) -> bool:
    """Tell whether a MODEL|FILE names a file."""
    return bool(Path(model).suffix) or os.sep in model


def check_file_options(name: str, source: str, options: argparse.Namespace) -> None:
    """Raise UsageError if there is no such file, an option is only for files, or a number is wrong."""
    if options.fall is not None and not 0.0 < options.fall < math.inf:
        raise UsageError(f"--fall: expected a speed > 0, m/s, got {options.fall:g}")
    for mu in options.mu or ():
        if not 0.0 <= mu < math.inf:
            raise UsageError(f"--mu: expected finite friction >= 0, got {mu:g}")
    if options.floor is not None and not math.isfinite(options.floor):
        raise UsageError(f"--floor: expected a finite height, m, got {options.floor:g}")
    if is_file(source):
        if not Path(source).is_file():
            raise UsageError(f"{name}: no file {source!r}")
        return
    for option, default in DEFAULTS.items():
        if getattr(options, option) != default:
            raise UsageError(f"--{option.replace('_', '-')}: only with a FILE")


def _contacts(text: str) -> str | list[tuple[str, ...]]:
    """Parse the value of `contacts`: all, world, or pairs of names."""
    if text in ("all", "world"):
        return text
    pairs = [tuple(pair.split(":")) for pair in text.split(",")]
    if any(len(pair) != 2 or not all(pair) for pair in pairs):
        raise argparse.ArgumentTypeError(f"expected all, world, or pairs such as foot:floor, got {text!r}")
    return pairs
