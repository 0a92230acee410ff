"""What users call stays as it is: every public name, its parameters, defaults, fields and results.

`public_names.txt` holds the functions and methods, `public_records.txt` classes, fields and constants. After a change
that is meant, `python tests/test_signatures.py` writes both again.
"""

import difflib
from pathlib import Path

from helpers.signatures import public_lines

FUNCTIONS, RECORDS = (Path(__file__).parent / f"public_{kind}.txt" for kind in ("names", "records"))


def by_file():
    """The lines of each file: a line of a function has its parenthesis at the end of the name."""
    lines = public_lines()
    functions = [line for line in lines if "(" in line.split(" ")[0]]
    return {FUNCTIONS: functions, RECORDS: [line for line in lines if "(" not in line.split(" ")[0]]}


def changes(before, after):
    """Lines that went (-) and came (+); the order of parameters counts."""
    return [line for line in difflib.ndiff(before, after) if line[:2] in ("- ", "+ ")]


def test_public_names_and_signatures_are_those_of_the_golden_files():
    changed = [
        line for path, lines in by_file().items() for line in changes(path.read_text().splitlines(), lines)
    ]
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
    for path, lines in by_file().items():
        path.write_text("\n".join(lines) + "\n")
