"""The command line: sub-commands `impact`, `gait`, `stability`, `inspect` and `models`."""

from __future__ import annotations

import argparse
import os
import sys

import jax

from jaxcontact import gait_command, impact_command, inspect_command, stability_command
from jaxcontact.catalogue import catalogue


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; returns the exit status.

    0 good, 1 failed samples, 2 wrong usage or files that cannot be used, 130 interrupted.
    """
    parser = _parser()
    options = parser.parse_args(arguments)
    jax.config.update("jax_enable_x64", True)
    try:
        code = int(options.run(options))
        sys.stdout.flush()
        return code
    except BrokenPipeError:  # the reader of a pipe, such as head, has left; nor may the exit write to it
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        kept = "; the same command goes on" if getattr(options, "checkpoint", None) else ""
        print(f"\njaxcontact: interrupted{kept}", file=sys.stderr)
        return 130


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="jaxcontact",
        description="Bodies that touch at several points: which outcomes an impact can have, periodic gaits, "
        "and which equilibria are stable. Writes pictures and numbers.",
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    listing = commands.add_parser("models", help="list the ready mechanisms")
    listing.set_defaults(run=_models)

    impact_command.add_parser(commands)
    gait_command.add_parser(commands)
    stability_command.add_parser(commands)
    inspect_command.add_parser(commands)
    return parser


def _models(_: argparse.Namespace) -> int:
    every = catalogue()
    width = max(map(len, every))
    for name, factory in every.items():
        print(f"{name:{width}}  {(factory.__doc__ or '').splitlines()[0]}")
    return 0
