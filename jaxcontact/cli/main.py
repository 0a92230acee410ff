"""The command line: `impact`, `simulate`, `compare`, `flow`, `gait`, `stability` and others.

This module owns the start and the end of a command: mistakes are reported before JAX is loaded, and an
interrupt ends the process. Entry functions: `process` for a shell, `main` for a Python program.
"""

from __future__ import annotations

import signal
import sys
import time

from jaxcontact.cli import surroundings

TYPE_CHECKING = False  # imports delay `process`, and until then Python shows a traceback on a signal
if TYPE_CHECKING:
    import argparse
    from typing import NoReturn


def process() -> NoReturn:
    """Run the command line as a process, and end the process with the exit status of `run`.

    The command runs on a second thread, and the first thread only waits. XLA crashes if a signal raises an
    exception while XLA compiles. So an interrupt raises no exception in the command; it ends the process at
    once. A checkpoint is valid at any moment.
    """
    surroundings.prepare_streams()
    surroundings.end_on_signals("")
    options = _parse_options()
    surroundings.end_on_signals(_resume_hint(options))
    surroundings.compile_quickly()
    import threading

    codes: list[int] = []
    work = threading.Thread(target=lambda: codes.append(run(options)), name="jaxcontact", daemon=True)
    work.start()
    while work.is_alive():  # short waits, because a signal that another thread receives wakes no wait
        work.join(0.1)
    surroundings.ignore_signals()
    sys.exit(codes[0] if codes else 1)


def _parse_options() -> argparse.Namespace:
    """Parse the options; end the process after a help text or a mistake."""
    try:
        return _make_parser().parse_args()
    except SystemExit as end:
        problem = surroundings.flush_output()
        sys.exit(end.code if problem is None else _refuse(problem))


def main(arguments: list[str] | None = None) -> int:
    """Run the command line within a Python program, on the calling thread; return the exit status.

    The status is 0 for success, 1 for a failed result such as a failed sample, 2 for wrong usage or unusable
    files, 130 for an interrupt.
    """
    options = _make_parser().parse_args(arguments)
    try:
        return run(options)
    except KeyboardInterrupt:
        print(surroundings.ending(signal.SIGINT, _resume_hint(options)), file=sys.stderr, end="")
        return surroundings.INTERRUPTED


def run(options: argparse.Namespace) -> int:
    """Check the options, then run their command, which loads its modules; return the exit status."""
    from jaxcontact.cli.catalogue import UsageError

    options.begin = time.perf_counter()
    try:
        options.check(options)
        code = int(options.run(options))
    except UsageError as error:
        return _refuse(str(error))
    except BrokenPipeError:
        code = 0
    except OSError as error:
        if not surroundings.is_output_error(error):
            raise
        code = 2
    problem = surroundings.flush_output()
    return code if problem is None else _refuse(problem)


def _refuse(problem: str) -> int:
    """Print why a command cannot run; return the exit status."""
    print(f"jaxcontact: {problem}", file=sys.stderr)
    return 2


def _resume_hint(options: argparse.Namespace) -> str:
    return "; the same command continues" if getattr(options, "checkpoint", None) else ""


def _make_parser() -> argparse.ArgumentParser:
    import argparse

    from jaxcontact.cli import impact_options, motion_options, stability_options, view_options

    parser = argparse.ArgumentParser(
        prog="jaxcontact",
        description="Bodies that touch at several points: which outcomes an impact can have, periodic gaits, "
        "and which equilibria are stable. Writes pictures and numbers.",
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    listing = commands.add_parser("models", help="list the ready mechanisms")
    listing.set_defaults(check=lambda _: None, run=_list_models)
    impact_options.add_impact(commands).set_defaults(run=_impact)
    motion_options.add_simulate(commands).set_defaults(run=_simulate)
    motion_options.add_compare(commands).set_defaults(run=_compare)
    motion_options.add_flow(commands).set_defaults(run=_flow)
    motion_options.add_gait(commands).set_defaults(run=_gait)
    stability_options.add_stability(commands).set_defaults(run=_stability)
    view_options.add_inspect(commands).set_defaults(run=_inspect)
    view_options.add_view(commands).set_defaults(run=_view)
    return parser


def _list_models(_: argparse.Namespace) -> int:
    from jaxcontact import models
    from jaxcontact.cli.catalogue import KINDS

    width = max(map(len, KINDS))
    for name in KINDS:
        print(f"{name:{width}}  {(getattr(models, name).__doc__ or '').splitlines()[0]}")
    return 0


def _impact(options: argparse.Namespace) -> int:
    _start_jax()
    from jaxcontact.cli import impact

    return impact.command(options)


def _simulate(options: argparse.Namespace) -> int:
    _start_jax()
    from jaxcontact.cli import simulate

    return simulate.command(options)


def _compare(options: argparse.Namespace) -> int:
    _start_jax()
    from jaxcontact.cli import compare

    return compare.command(options)


def _flow(options: argparse.Namespace) -> int:
    _start_jax()
    from jaxcontact.cli import flow

    return flow.command(options)


def _gait(options: argparse.Namespace) -> int:
    _start_jax()
    from jaxcontact.cli import gait

    return gait.command(options)


def _stability(options: argparse.Namespace) -> int:
    _start_jax()
    from jaxcontact.cli import stability

    return stability.command(options)


def _inspect(options: argparse.Namespace) -> int:
    _start_jax()
    from jaxcontact.cli import inspect

    return inspect.run(options)


def _view(options: argparse.Namespace) -> int:
    _start_jax()
    from jaxcontact.cli import view

    return view.command(options)


def _start_jax() -> None:
    """Start JAX; raise UsageError for settings of the environment with which no command runs."""
    from jaxcontact.cli.catalogue import UsageError

    if problem := surroundings.check_jax():
        raise UsageError(problem)
