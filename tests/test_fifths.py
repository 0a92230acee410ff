"""Every file of tests is in one fifth; a fifth and the run beside it are all short tests, and a twentieth of the long ones."""

import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
FOLDER = TESTS / "algebra"  # imports little


def collected(*options):
    command = [
        sys.executable,
        "-m",
        "pytest",
        "--collect-only",
        "-q",
        "-p",
        "no:cacheprovider",
        *options,
        str(FOLDER),
    ]
    done = subprocess.run(command, capture_output=True, text=True, cwd=TESTS.parent)
    return {line for line in done.stdout.splitlines() if "::" in line}


@pytest.mark.slow  # ten processes that import JAX
def test_the_fifths_share_no_file_and_leave_no_short_test_out():
    every, short = collected(), collected("-m", "not long")
    fifths = [collected("--fifth", str(k)) for k in range(5)]
    assert sorted(test for fifth in fifths for test in fifth) == sorted(every)
    days = [collected("--day", str(day)) for day in range(2, 22)]
    assert all(day & short == short - fifths[k % 5] for k, day in enumerate(days, start=2))
    long = [test for day in days for test in day - short]
    assert sorted(long) == sorted(every - short)  # each on one day of twenty
