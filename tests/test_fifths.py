"""Every file of tests is in one fifth, and a run of one fifth and a run of the others are all files."""

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
    return {line.partition("::")[0] for line in done.stdout.splitlines() if "::" in line}


@pytest.mark.slow  # five processes that import JAX
def test_the_fifths_share_no_file_and_leave_none_out():
    every = collected()
    fifths = [collected("--fifth", str(k)) for k in range(5)]
    assert sorted(path for fifth in fifths for path in fifth) == sorted(every)
    assert collected("--all-but-fifth", "2") == every - fifths[2]
