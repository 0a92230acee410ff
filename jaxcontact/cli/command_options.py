"""The options of the commands, and the checks of options that need no JAX.

This module imports only the standard library and the catalogue, so a mistake is reported at once.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from jaxcontact.cli.catalogue import (
    CHARTS,
    GAITS,
    LAWS,
    LEAST_COVERED,
    METHODS,
    SELECTIONS,
    STEPPERS,
    UsageError,
    find_kind,
    with_impacts,
)
from jaxcontact.cli.cluster import add_cluster_option, check_cluster
from jaxcontact.cli.file_options import add_file_options, check_file_options, is_file

KEYFRAME = Path("keyframe")  # as value of --controls: those of the keyframe
LARGEST_STEPS = 2**31 - 1  # of a motion, which programs count in 32 bits
SLOPE_NUMBERS = {
    "alpha": (30.0, "slope, degrees"),
    "h": (1.0, "height of the centre of mass"),
    "d": (0.8, "half the distance of the feet"),
    "mu1": (0.8, "friction of the uphill foot"),
    "mu2": (2.0, "friction of the downhill foot"),
    "phi1": (0.0, "inclination under foot 1, degrees"),
    "phi2": (0.0, "inclination under foot 2, degrees"),
    "e1": (0.0, "restitution of foot 1"),
    "e2": (0.0, "restitution of foot 2"),
}


def add_impact(commands: Any) -> argparse.ArgumentParser:
    """Add the sub-command `impact`."""
    run: argparse.ArgumentParser = commands.add_parser(
        "impact",
        help="sample the outcomes of a simultaneous impact",
        description="Sample the outcomes of a simultaneous impact over random impulse orders, print a "
        "summary, and write a picture and an .npz file. Defaults are the settings of Halm & Posa.",
        epilog="example: jaxcontact impact compass_gait --samples 2^18 --out results. A robot of your "
        "own that lands: jaxcontact impact robot.xml --keyframe home --fall 1. A long run: jaxcontact "
        "impact disk_stack --samples 2^24 --checkpoint run; interrupted, the same command continues.",
    )
    run.add_argument(
        "model", metavar="MODEL|FILE", help="a mechanism (`jaxcontact models`), or an MJCF or URDF file"
    )
    add_file_options(run)
    run.add_argument(
        "--law",
        choices=("set-valued", "propagative"),
        default="set-valued",
        help="set-valued: samples with friction; propagative: every outcome of single elastic impacts, one "
        "after the other, without friction, and the order that leads there, of the other options only --json "
        "[set-valued]",
    )
    run.add_argument(
        "--samples",
        type=_count,
        metavar="N",
        help="how many, e.g. 2^20 [2^14; with selection lemke 2^11, or 2^9 above 12 contacts]",
    )
    run.add_argument("--seed", type=_seed, default=0, metavar="S", help="seed of the draws [0]")
    run.add_argument(
        "--impulse-step",
        type=float,
        metavar="H",
        help="largest normal impulse of a step, N s [the model's; of a file "
        "what would stop its fastest contact alone]",
    )
    run.add_argument("--max-steps", type=_count, metavar="N", help="largest number of steps [the model's]")
    run.add_argument(
        "--selection",
        choices=SELECTIONS,
        help="solutions of a step: all of them, those among the contact modes met so far, or the one that "
        "Lemke's method finds [all; visited from four contacts on; lemke in space, for four contacts there "
        "take minutes]",
    )
    run.add_argument(
        "--restitution",
        type=float,
        nargs="+",
        metavar="E",
        help="Stronge's coefficient of restitution, one number or one per contact, 0..1; --max-steps is "
        "then four times the model's, unless given [0]",
    )
    _add_out(run)
    run.add_argument(
        "--checkpoint",
        type=Path,
        metavar="DIR",
        help="keep the samples in DIR as they come, in bounded memory, instead of an .npz file at the end; a "
        "run that was interrupted, at any moment, continues and ends with the same bits",
    )
    run.add_argument(
        "--coverage",
        action="store_true",
        help="also draw as many independent samples, say with 99 %% confidence how near they come to how "
        "many of the outcomes, and draw how that depends on their number",
    )
    add_cluster_option(run)
    run.set_defaults(check=check_impact)
    return run


def check_impact(options: argparse.Namespace) -> None:
    """Raise UsageError if the options of `impact` cannot work; set `options.name`, which names its files."""
    options.name = Path(options.model).stem
    if not is_file(options.model):
        _check_ready_model(options)
    check_file_options("MODEL", options.model, options)
    check_cluster(options, "not with --law propagative" if options.law == "propagative" else "")
    if options.law == "propagative":
        for option in ("restitution", "mu", "checkpoint"):
            if getattr(options, option) is not None:
                raise UsageError(f"--{option}: not with --law propagative")
        return
    _check_numbers("restitution", options.restitution, "numbers in 0..1", 0.0, 1.0)
    _check_numbers("impulse-step", [options.impulse_step], "a finite number > 0", 5e-324)
    if options.coverage and options.samples is not None and options.samples < LEAST_COVERED:
        raise UsageError(f"--coverage: samples: expected at least {LEAST_COVERED}, got {options.samples}")
    _check_folder("out", options.out)
    if (
        options.checkpoint is not None and not options.checkpoint.is_dir()
    ):  # the run checks an existing folder
        _check_folder("checkpoint", options.checkpoint)


def _check_ready_model(options: argparse.Namespace) -> None:
    """Raise UsageError if the model of that name has no impact with these options."""
    name, kind = options.model, find_kind(options.model)
    if not kind.dim:
        raise UsageError(f"{name} is not a mechanism: it has no impact; {with_impacts()}")
    if not kind.num_contacts:
        raise UsageError(f"{name} has no contacts, so no impact; {with_impacts()}")
    if options.law == "propagative":
        return
    if not kind.has_impact and options.fall is None and None in (options.impulse_step, options.max_steps):
        raise UsageError(
            f"{name} is an example of motion in time, not set up for an impact; let it --fall, give "
            f"--impulse-step and --max-steps, or {with_impacts()}"
        )
    for option in ("mu", "restitution"):
        numbers = getattr(options, option)
        if numbers is not None and len(numbers) not in (1, kind.num_contacts):
            raise UsageError(f"--{option}: expected 1 or {kind.num_contacts} numbers, got {len(numbers)}")


def add_simulate(commands: Any) -> argparse.ArgumentParser:
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
    run.add_argument("--worlds", type=_count, default=1, metavar="N", help="how many, each with its key [1]")
    run.add_argument("--seed", type=_seed, default=0, metavar="S", help="seed of the keys [0]")
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
    _add_out(run)
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
    _check_numbers("duration", [options.duration], "a finite number > 0", 5e-324)
    _check_numbers("dt", [options.dt], "a finite number > 0", 5e-324)
    steps = options.duration / options.dt
    if not steps <= LARGEST_STEPS:
        raise UsageError(f"--duration over --dt: expected at most {LARGEST_STEPS} steps, got {steps:.3g}")
    check_cluster(options, "for --worlds of 2 and more" if options.worlds == 1 else "")
    if options.checkpoint is not None and options.worlds == 1:
        raise UsageError("--checkpoint: for --worlds of 2 and more")
    for folder in ("out", "checkpoint"):
        if getattr(options, folder) is not None:
            _check_folder(folder, getattr(options, folder))


def add_compare(commands: Any) -> argparse.ArgumentParser:
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
    _add_out(run)
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
        _check_numbers(name, [getattr(options, name)], "a finite number > 0", 5e-324)
    _check_folder("out", options.out)


def add_flow(commands: Any) -> argparse.ArgumentParser:
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
    _add_out(run)
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
        _check_numbers(name, [getattr(options, name)], "a finite number > 0", 5e-324)
    _check_folder("out", options.out)


def add_gait(commands: Any) -> argparse.ArgumentParser:
    """Add the sub-command `gait`."""
    run: argparse.ArgumentParser = commands.add_parser(
        "gait",
        help="find a periodic gait of least cost of transport",
        description="Find a periodic gait of least cost of transport at a fixed speed, from a stride that is "
        "not periodic; writes a picture before and after, an animation, and the numbers. A run that was "
        "stopped continues from its checkpoint when the same command is given again. A planar robot of "
        "a file walks on two equal legs, or hops on others; without pictures of its start and checkpoint.",
        epilog="example: jaxcontact gait hexapod --speed 1.1 --out results",
    )
    run.add_argument(
        "model", metavar="MODEL|FILE", help=f"{' or '.join(GAITS)}, or the file of a planar robot"
    )
    run.add_argument("--duration", type=float, metavar="T", help="of a robot's stride at the start, s [0.5]")
    add_file_options(run)
    run.add_argument("--speed", type=float, default=1.0, metavar="V", help="speed, m/s [1]")
    run.add_argument("--steps", type=int, default=150, metavar="N", help="steps of the optimizer [150]")
    _add_out(run)
    run.set_defaults(check=check_gait)
    return run


def check_gait(options: argparse.Namespace) -> None:
    """Raise UsageError if the options of `gait` cannot work."""
    if options.model not in GAITS and not Path(options.model).is_file():
        raise UsageError(f"MODEL: expected {' or '.join(GAITS)}, or a file, got {options.model!r}")
    if options.model in GAITS:
        for option in ("duration", "mu", "fall"):
            if getattr(options, option) is not None:
                raise UsageError(f"--{option}: only with a FILE")
    check_file_options("MODEL", options.model, options)
    if options.fall is not None:
        raise UsageError("--fall: a gait has a start of its own")
    options.duration = 0.5 if options.duration is None else options.duration
    _check_numbers("duration", [options.duration], "a finite number > 0", 1e-3, 1e3)
    _check_numbers("speed", [options.speed], "a finite number")
    _check_numbers("steps", [options.steps], "an integer in 0..1000000", 0, 10**6)
    _check_folder("out", options.out)


def add_inspect(commands: Any) -> argparse.ArgumentParser:
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


def add_view(commands: Any) -> argparse.ArgumentParser:
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


def add_stability(commands: Any) -> argparse.ArgumentParser:
    """Add the sub-command `stability`."""
    run: argparse.ArgumentParser = commands.add_parser(
        "stability",
        help="certify or falsify the stability of an equilibrium on two feet",
        description="A rigid body stands on a slope on two feet, 2 d apart, its weight midway between them; "
        "foot 1 is uphill. Looks for a proof that it is Lyapunov stable, and for a motion that shows that it "
        "is not. With --chart, does so on a grid and draws the result; a chart that was stopped continues.",
        epilog="example: jaxcontact stability --alpha 30 --h 1 --d 0.8 --mu1 0.8 --mu2 2",
    )
    run.add_argument("--chart", choices=CHARTS, help="a chart of Varkonyi's paper")
    run.add_argument("--points", type=int, metavar="N", help="points of a chart along each axis [30]")
    for name, (default, text) in SLOPE_NUMBERS.items():
        run.add_argument(f"--{name}", type=float, metavar="X", help=f"{text} [{default:g}]")
    run.add_argument("--method", choices=METHODS, help="of the proof, without --chart [homogeneous]")
    run.add_argument("--samples", type=int, default=64, metavar="N", help="motions of the falsifier [64]")
    run.add_argument("--seed", type=_seed, default=0, metavar="S", help="seed of the motions [0]")
    _add_out(run)
    add_cluster_option(run)
    run.set_defaults(check=check_stability, out=None)
    return run


def check_stability(options: argparse.Namespace) -> None:
    """Raise UsageError if the options of `stability` cannot work; set those that were not named."""
    check_cluster(options, "" if options.chart else "only with --chart")
    defaults: dict[str, Any] = {"method": "homogeneous", "points": 30, "out": Path("out")}
    defaults |= {name: default for name, (default, _) in SLOPE_NUMBERS.items()}
    of_chart = ("points", "out")
    for name, default in defaults.items():
        if getattr(options, name) is None:
            setattr(options, name, default)
        elif bool(options.chart) != (name in of_chart):
            raise UsageError(f"--{name}: only {'with' if name in of_chart else 'without'} --chart")
    for name, smallest, largest in (("points", 2, 10_000), ("samples", 1, 10**7)):
        value = getattr(options, name)
        if not smallest <= value <= largest:
            raise UsageError(f"--{name}: expected an integer in {smallest}..{largest}, got {value}")
    if options.chart:
        _check_folder("out", options.out)
        return
    for name in SLOPE_NUMBERS:
        _check_numbers(name, [getattr(options, name)], "a finite number")
    for foot in (1, 2):
        _check_numbers(f"mu{foot}", [getattr(options, f"mu{foot}")], "friction >= 0", 0.0)
        _check_numbers(f"e{foot}", [getattr(options, f"e{foot}")], "restitution in [0, 1)", 0.0, 1.0 - 2**-53)
    if options.d == 0.0:
        raise UsageError("--d: the feet coincide; expected two points")


def _add_out(run: argparse.ArgumentParser) -> None:
    run.add_argument("--out", type=Path, default=Path("out"), metavar="DIR", help="folder to write to [out]")
    run.add_argument("--json", action="store_true", help="print the summary as JSON")


def _count(text: str) -> int:
    """Parse a positive whole number, which may be a power such as 2^14."""
    try:
        base, _, power = text.replace("**", "^").partition("^")
        value = _whole(base) ** min(_whole(power), 64) if power else _whole(base)
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"expected a whole number such as 5000 or 2^14, got {text!r}"
        ) from None
    if not 1 <= value < 2**63:
        raise argparse.ArgumentTypeError(f"expected at least 1 and less than 2^63, got {text}")
    return value


def _whole(text: str) -> int:
    """Parse an integer of at most 19 digits."""
    if len(text) > 20:
        raise argparse.ArgumentTypeError(f"expected at most 19 digits, got {len(text)}")
    return int(text)


def _seed(text: str) -> int:
    """Parse a seed, an integer >= 0 of at most 64 bits."""
    if not text.isdecimal() or len(text) > 20 or int(text) >= 2**64:
        raise argparse.ArgumentTypeError(f"expected an integer >= 0 and < 2^64, got {text[:40]!r}")
    return int(text)


def _check_numbers(
    name: str,
    numbers: Iterable[float | None] | None,
    expected: str,
    smallest: float = -math.inf,
    largest: float = math.inf,
) -> None:
    """Raise UsageError for a number that is not finite or not in smallest..largest; None is allowed."""
    for number in numbers or ():
        if number is not None and not (math.isfinite(number) and smallest <= number <= largest):
            raise UsageError(f"--{name}: expected {expected}, got {number:g}")


def _check_folder(name: str, folder: Path) -> None:
    """Raise UsageError for a folder that cannot be written to; of a new one its nearest parent is tried."""
    existing = next(path for path in (folder.absolute(), *folder.absolute().parents) if path.exists())
    if not existing.is_dir():
        raise UsageError(f"--{name}: cannot write to {folder}: {existing} is not a folder")
    import tempfile

    try:  # permissions tell less: some folders refuse even their owner
        tempfile.TemporaryFile(dir=existing).close()
    except OSError as error:
        raise UsageError(
            f"--{name}: cannot write to {folder}: no file can be made in {existing} ({error.strerror})"
        ) from None
