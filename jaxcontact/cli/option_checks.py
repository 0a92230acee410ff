"""Numbers, folders and `--out` on the command line: their options and checks, without loading JAX."""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterable
from pathlib import Path

from jaxcontact.cli.catalogue import UsageError


def add_out(run: argparse.ArgumentParser) -> None:
    """Add the options `--out` and `--json`."""
    run.add_argument("--out", type=Path, default=Path("out"), metavar="DIR", help="folder to write to [out]")
    run.add_argument("--json", action="store_true", help="print the summary as JSON")


def parse_count(text: str) -> int:
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


def parse_seed(text: str) -> int:
    """Parse a seed, an integer >= 0 of at most 64 bits."""
    if not text.isdecimal() or len(text) > 20 or int(text) >= 2**64:
        raise argparse.ArgumentTypeError(f"expected an integer >= 0 and < 2^64, got {text[:40]!r}")
    return int(text)


def check_numbers(
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


def check_folder(name: str, folder: Path) -> None:
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
