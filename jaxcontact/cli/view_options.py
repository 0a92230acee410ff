"""The options of the commands that show a mechanism or a file, `inspect` and `view`, without loading JAX."""

from __future__ import annotations

import argparse
from pathlib import Path

from jaxcontact.cli.catalogue import UsageError, find_kind
from jaxcontact.cli.file_options import add_file_options, check_file_options, is_file


def add_inspect(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> argparse.ArgumentParser:
    """Add the sub-command `inspect`."""
    run: argparse.ArgumentParser = commands.add_parser(
        "inspect",
        help="list the bodies, shapes and actuators of a robot file, and ignored settings",
        description="Print the bodies, joints, shapes, contacts and actuators that are read from a robot "
        "file, and the settings that have no effect here.",
    )
    run.add_argument("file", metavar="FILE", help="MJCF or URDF file")
    add_file_options(run)
    run.set_defaults(check=check_inspect)
    return run


def check_inspect(options: argparse.Namespace) -> None:
    """Raise UsageError if the file does not exist, or a number is wrong."""
    if not Path(options.file).is_file():
        raise UsageError(f"FILE: no file {options.file!r}")
    check_file_options("FILE", options.file, options)


def add_view(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> argparse.ArgumentParser:
    """Add the sub-command `view`."""
    run: argparse.ArgumentParser = commands.add_parser(
        "view",
        help="write a mechanism, a robot or a motion as a page to look at",
        description="Write one page for a browser, which needs nothing else: a mechanism or robot in its "
        "state, or a motion that `Trajectory.save` wrote, to play, to turn and to zoom.",
        epilog="example: jaxcontact view quadruped --out dog.html; jaxcontact view run.npz --model dog.xml",
    )
    run.add_argument(
        "what", metavar="MODEL|FILE", help="a mechanism, an MJCF or URDF file, or .npz of a motion"
    )
    run.add_argument("--model", metavar="MODEL|FILE", help="of the motion in a .npz file")
    add_file_options(run)
    run.add_argument("--out", type=Path, metavar="PAGE", help="file to write: .html, .gif, .mp4 [NAME.html]")
    run.set_defaults(check=check_view)
    return run


def check_view(options: argparse.Namespace) -> None:
    """Raise UsageError if there is no such mechanism or file, or a motion has no model; set `options.out`."""
    what = options.what
    if what.endswith(".npz"):
        if not Path(what).is_file():
            raise UsageError(f"FILE: no file {what!r}")
        if options.model is None:
            raise UsageError(f"--model: which mechanism {what} is a motion of, a MODEL or a FILE")
        what = options.model
    elif options.model is not None:
        raise UsageError("--model: only with a .npz file")
    if not is_file(what) and not find_kind(what).dim:
        raise UsageError(f"{what} is not a mechanism: there is nothing to draw")
    if options.mu is not None:
        raise UsageError("--mu: friction is not seen")
    check_file_options("FILE", what, options)
    options.out = options.out or Path(f"{Path(options.what).stem}.html")
    if options.out.suffix not in (".html", ".gif", ".mp4"):
        raise UsageError(f"--out: expected a name that ends in .html, .gif or .mp4, got {str(options.out)!r}")
