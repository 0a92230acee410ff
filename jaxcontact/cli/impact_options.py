"""The options of the command `impact`, and their checks, without loading JAX."""

from __future__ import annotations

import argparse
from pathlib import Path

from jaxcontact.cli.catalogue import LEAST_COVERED, SELECTIONS, UsageError, find_kind, with_impacts
from jaxcontact.cli.cluster import add_cluster_option, check_cluster
from jaxcontact.cli.file_options import add_file_options, check_file_options, is_file
from jaxcontact.cli.option_checks import add_out, check_folder, check_numbers, parse_count, parse_seed


def add_impact(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> argparse.ArgumentParser:
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
        type=parse_count,
        metavar="N",
        help="how many, e.g. 2^20 [2^14; by Lemke's method or searches 2^11, 2^8 above 12 contacts]",
    )
    run.add_argument("--seed", type=parse_seed, default=0, metavar="S", help="seed of the draws [0]")
    run.add_argument(
        "--impulse-step",
        type=float,
        metavar="H",
        help="largest normal impulse of a step, N s [the model's; of a file "
        "the largest with which a contact stops, alone or with the others]",
    )
    run.add_argument(
        "--max-steps", type=parse_count, metavar="N", help="largest number of steps [the model's]"
    )
    run.add_argument(
        "--selection",
        choices=SELECTIONS,
        help="solutions of a step: all of them, those among the contact modes met so far, or the one that "
        "Lemke's method finds [all; visited from four contacts on; lemke in space for up to four contacts, "
        "where others take minutes, and for more than 12; visited between, which searches each step]",
    )
    run.add_argument(
        "--restitution",
        type=float,
        nargs="+",
        metavar="E",
        help="Stronge's coefficient of restitution, one number or one per contact, 0..1; --max-steps is "
        "then four times the model's, unless given [0]",
    )
    add_out(run)
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
    check_numbers("restitution", options.restitution, "numbers in 0..1", 0.0, 1.0)
    check_numbers("impulse-step", [options.impulse_step], "a finite number > 0", 5e-324)
    if options.coverage and options.samples is not None and options.samples < LEAST_COVERED:
        raise UsageError(f"--coverage: samples: expected at least {LEAST_COVERED}, got {options.samples}")
    check_folder("out", options.out)
    if (
        options.checkpoint is not None and not options.checkpoint.is_dir()
    ):  # the run checks an existing folder
        check_folder("checkpoint", options.checkpoint)


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
