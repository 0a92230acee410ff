"""The options of the commands for motion, `simulate`, `compare`, `flow` and `gait`, without loading JAX."""

from __future__ import annotations

import argparse
from pathlib import Path

from jaxcontact.cli.catalogue import GAITS, LAWS, STEPPERS, WALKERS, UsageError, find_kind
from jaxcontact.cli.cluster import add_cluster_option, check_cluster
from jaxcontact.cli.file_options import add_file_options, check_file_options, is_file
from jaxcontact.cli.option_checks import add_out, check_folder, check_numbers, parse_count, parse_seed

KEYFRAME = Path("keyframe")  # as value of --controls: those of the keyframe
LARGEST_STEPS = 2**31 - 1  # of a motion, which programs count in 32 bits


def add_simulate(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> argparse.ArgumentParser:
    """Add the sub-command `simulate`."""
    run: argparse.ArgumentParser = commands.add_parser(
        "simulate",
        help="move a mechanism or a robot file in time, in one world or in many",
        description="Move a mechanism in time from the state its example starts from; "
        "print a summary, and write the states as an .npz file and the heights of bodies as a picture.",
        epilog="example: jaxcontact simulate rocking_block --law routh --worlds 100 --duration 2",
    )
    run.add_argument(
        "model", metavar="MODEL", help="a mechanism (`jaxcontact models`), or an MJCF or URDF file"
    )
    add_file_options(run)
    run.add_argument("--stepper", choices=STEPPERS, default=STEPPERS[0], help=f"[{STEPPERS[0]}]")
    run.add_argument(
        "--law", choices=LAWS,
        help=f"impact law; routh draws an impulse order for every impact; compliant takes none [{LAWS[0]}]",
    )  # fmt: skip
    run.add_argument(
        "--controls", type=Path, metavar="FILE|keyframe",
        help="of one world, numbers of its actuators: a row for each step or one for all, .npy or text; or "
        "`keyframe`, those of the --keyframe [0]",
    )  # fmt: skip
    run.add_argument(
        "--worlds", type=parse_count, default=1, metavar="N", help="how many, each with its key [1]"
    )
    run.add_argument("--seed", type=parse_seed, default=0, metavar="S", help="seed of the keys [0]")
    run.add_argument("--duration", type=float, default=1.0, metavar="T", help="s [1]")
    run.add_argument("--dt", type=float, default=0.01, metavar="H", help="step, s [0.01]")
    run.add_argument(
        "--checkpoint", type=Path, metavar="DIR",
        help="keep finished worlds in DIR; interrupted, the same command continues with the same bits",
    )  # fmt: skip
    run.add_argument(
        "--gif", action="store_true",
        help="also write the motion as a .gif; of many worlds one solid and the others as ghosts",
    )  # fmt: skip
    add_out(run)
    add_cluster_option(run)
    run.set_defaults(check=check_simulate)
    return run


def check_simulate(options: argparse.Namespace) -> None:
    """Raise UsageError if the options of `simulate` cannot work."""
    name = options.model
    if not is_file(name) and not find_kind(name).dim:
        raise UsageError(f"{name} is not a mechanism; see `jaxcontact models`")
    check_file_options("MODEL", name, options)
    if options.stepper == "compliant" and options.law is not None:
        raise UsageError("--law: --stepper compliant takes none")
    options.law = options.law or LAWS[0]
    if options.controls is not None and options.worlds > 1:
        raise UsageError("--controls: only with --worlds 1")
    if options.controls == KEYFRAME and options.keyframe is None:
        raise UsageError("--controls keyframe: name the --keyframe")
    check_numbers("duration", [options.duration], "a finite number > 0", 5e-324)
    check_numbers("dt", [options.dt], "a finite number > 0", 5e-324)
    steps = options.duration / options.dt
    if not steps <= LARGEST_STEPS:
        raise UsageError(f"--duration over --dt: expected at most {LARGEST_STEPS} steps, got {steps:.3g}")
    check_cluster(options, "for --worlds of 2 and more" if options.worlds == 1 else "")
    if options.checkpoint is not None and options.worlds == 1:
        raise UsageError("--checkpoint: for --worlds of 2 and more")
    for folder in ("out", "checkpoint"):
        if getattr(options, folder) is not None:
            check_folder(folder, getattr(options, folder))


def add_compare(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> argparse.ArgumentParser:
    """Add the sub-command `compare`."""
    run: argparse.ArgumentParser = commands.add_parser(
        "compare",
        help="move a robot file under every stepper and in MuJoCo, and draw the difference",
        description="Move a robot from its initial state, without controls, by every stepper and MuJoCo; "
        "print height, energy, penetration and status of each, and draw the height of its first body and the "
        "difference from MuJoCo.",
        epilog="example: jaxcontact compare robot.xml --keyframe home --fall 1",
    )
    run.add_argument("model", metavar="FILE", help="an MJCF or URDF file")
    add_file_options(run)
    run.add_argument(
        "--steppers", nargs="+", choices=STEPPERS, default=list(STEPPERS), metavar="NAME",
        help=f"some of {', '.join(STEPPERS)} [all]",
    )  # fmt: skip
    run.add_argument("--duration", type=float, default=0.5, metavar="T", help="s [0.5]")
    run.add_argument("--dt", type=float, default=0.002, metavar="H", help="step, s [0.002]")
    add_out(run)
    run.set_defaults(check=check_compare)
    return run


def check_compare(options: argparse.Namespace) -> None:
    """Raise UsageError if the options of `compare` cannot work."""
    if not is_file(options.model):
        raise UsageError(f"FILE: expected an MJCF or URDF file, got {options.model}")
    check_file_options("FILE", options.model, options)
    if options.mu is not None and len(options.mu) > 1:
        raise UsageError(
            f"--mu: expected one number, for MuJoCo orders contacts otherwise, got {len(options.mu)}"
        )
    for name in ("duration", "dt"):
        check_numbers(name, [getattr(options, name)], "a finite number > 0", 5e-324)
    check_folder("out", options.out)


def add_flow(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> argparse.ArgumentParser:
    """Add the sub-command `flow`."""
    run: argparse.ArgumentParser = commands.add_parser(
        "flow",
        help="move an event-selected system, or a mechanism on springs, through its contacts",
        description="Move an event-selected system (Anderson & Revzen), or a mechanism whose contacts are "
        "springs, from the state its example starts from; print its events and its end, and write the states "
        "as an .npz file and as a picture. Bands are as wide as the tolerance allows.",
        epilog="example: jaxcontact flow plate_on_springs --duration 0.5",
    )
    run.add_argument(
        "model", metavar="MODEL|FILE", help="a model (`jaxcontact models`), or an MJCF or URDF file"
    )
    add_file_options(run)
    run.add_argument("--duration", type=float, default=0.5, metavar="T", help="s [0.5]")
    run.add_argument("--eps", type=float, default=1e-2, metavar="E", help="widest band to try [0.01]")
    run.add_argument("--tol", type=float, default=1e-6, metavar="X", help="error of the end by bands [1e-6]")
    add_out(run)
    run.set_defaults(check=check_flow)
    return run


def check_flow(options: argparse.Namespace) -> None:
    """Raise UsageError if the options of `flow` cannot work."""
    if not is_file(options.model):
        kind = find_kind(options.model)
        if kind.dim and not kind.num_contacts:
            raise UsageError(f"{options.model} has no contacts, so no events")
    if options.mu is not None:
        raise UsageError("--mu: contacts of `flow` are springs without friction")
    check_file_options("MODEL", options.model, options)
    for name in ("duration", "eps", "tol"):
        check_numbers(name, [getattr(options, name)], "a finite number > 0", 5e-324)
    check_folder("out", options.out)


def add_gait(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> argparse.ArgumentParser:
    """Add the sub-command `gait`."""
    run: argparse.ArgumentParser = commands.add_parser(
        "gait",
        help="find a periodic gait of least cost of transport",
        description="Find a periodic gait of least cost of transport at a fixed speed, from a stride that is "
        "not periodic; writes a picture before and after, an animation, and the numbers. A run that was "
        "stopped continues from its checkpoint when the same command is given again. A planar robot of the "
        "package or a file walks on two equal legs, or hops on others; without pictures of its start.",
        epilog="example: jaxcontact gait hexapod --speed 1.1 --out results",
    )
    run.add_argument(
        "model", metavar="MODEL|FILE", help=f"{', '.join(GAITS + WALKERS)}, or the file of a planar robot"
    )
    run.add_argument("--duration", type=float, metavar="T", help="of a robot's stride at the start, s [0.5]")
    add_file_options(run)
    run.add_argument("--speed", type=float, default=1.0, metavar="V", help="speed, m/s [1]")
    run.add_argument("--steps", type=int, default=150, metavar="N", help="steps of the optimizer [150]")
    add_out(run)
    run.set_defaults(check=check_gait)
    return run


def check_gait(options: argparse.Namespace) -> None:
    """Raise UsageError if the options of `gait` cannot work."""
    if options.model in WALKERS:
        options.model = str(Path(__file__).parents[1] / "models" / "mjcf" / f"{options.model}.xml")
    if options.model not in GAITS and not Path(options.model).is_file():
        raise UsageError(f"MODEL: expected {', '.join(GAITS + WALKERS)}, or a file, got {options.model!r}")
    if options.model in GAITS:
        for option in ("duration", "mu", "fall"):
            if getattr(options, option) is not None:
                raise UsageError(f"--{option}: only with a FILE")
    check_file_options("MODEL", options.model, options)
    if options.fall is not None:
        raise UsageError("--fall: a gait has a start of its own")
    options.duration = 0.5 if options.duration is None else options.duration
    check_numbers("duration", [options.duration], "a finite number > 0", 1e-3, 1e3)
    check_numbers("speed", [options.speed], "a finite number")
    check_numbers("steps", [options.steps], "an integer in 0..1000000", 0, 10**6)
    check_folder("out", options.out)
