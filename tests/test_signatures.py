"""What users call stays as it is: every public name, its parameters, defaults, fields and results.

After a change that is meant: `python tests/test_signatures.py` writes public_names.txt anew.
"""

import difflib
from pathlib import Path

from helpers.signatures import public_lines

GOLDEN = Path(__file__).parent / "public_names.txt"


def changes(before, after):
    """Lines that went (-) and came (+); the order of parameters counts."""
    return [line for line in difflib.ndiff(before, after) if line[:2] in ("- ", "+ ")]


def test_public_names_and_signatures_are_those_of_the_golden_file():
    changed = changes(GOLDEN.read_text().splitlines(), public_lines())
    assert not changed, (
        "public names changed (-: before, +: now); if this is meant, run `python tests/test_signatures.py`:\n"
        + "\n".join(changed)
    )


def test_a_change_is_told_by_its_name():
    told = public_lines()
    assert told == public_lines()
    first = next(
        i for i, line in enumerate(told) if line.startswith("jaxcontact.impact.propagate(restitution)")
    )
    other = [*told[:first], told[first] + "0", *told[first + 1 :]]
    assert changes(told, other) == ["- " + told[first], "+ " + told[first] + "0"]
    swapped = [*told[: first - 1], told[first], told[first - 1], *told[first + 1 :]]
    assert len(changes(told, swapped)) == 2


if __name__ == "__main__":
    GOLDEN.write_text("\n".join(public_lines()) + "\n")
