"""The options of the command `stability`, and their checks, without loading JAX."""

from __future__ import annotations

import argparse
from pathlib import Path

from jaxcontact.cli.catalogue import CHARTS, METHODS, UsageError
from jaxcontact.cli.cluster import add_cluster_option, check_cluster
from jaxcontact.cli.option_checks import add_out, check_folder, check_numbers, parse_seed

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


def add_stability(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> argparse.ArgumentParser:
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
    run.add_argument("--seed", type=parse_seed, default=0, metavar="S", help="seed of the motions [0]")
    add_out(run)
    add_cluster_option(run)
    run.set_defaults(check=check_stability, out=None)
    return run


def check_stability(options: argparse.Namespace) -> None:
    """Raise UsageError if the options of `stability` cannot work; set those that were not named."""
    check_cluster(options, "" if options.chart else "only with --chart")
    defaults: dict[str, object] = {"method": "homogeneous", "points": 30, "out": Path("out")}
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
        check_folder("out", options.out)
        return
    for name in SLOPE_NUMBERS:
        check_numbers(name, [getattr(options, name)], "a finite number")
    for foot in (1, 2):
        check_numbers(f"mu{foot}", [getattr(options, f"mu{foot}")], "friction >= 0", 0.0)
        check_numbers(f"e{foot}", [getattr(options, f"e{foot}")], "restitution in [0, 1)", 0.0, 1.0 - 2**-53)
    if options.d == 0.0:
        raise UsageError("--d: the feet coincide; expected two points")
