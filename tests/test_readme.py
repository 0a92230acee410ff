"""The examples of README and of the pages in docs/ run as they stand, and what they point to exists."""

import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

README = Path(__file__).parent.parent / "README.md"
PAGES = (README, *sorted((README.parent / "docs").glob("*.md")))
EXAMPLES = [
    example for page in PAGES for example in re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)
]
LONGEST = 150  # lines of README

# One process for all: imports take as long as an example. Each starts with the settings and names of a new one.
RUN = """
import contextlib, io, json, sys, traceback
import jax
found = []
for example in json.load(sys.stdin):
    jax.config.update("jax_enable_x64", False)
    printed, error = io.StringIO(), ""
    try:
        with contextlib.redirect_stdout(printed):
            exec(compile(example, "README", "exec"), {"__name__": "__main__"})
    except BaseException:
        error = traceback.format_exc()
    found.append((printed.getvalue(), error))
json.dump(found, sys.stdout)
"""


@pytest.fixture(scope="module")
def ran() -> list[tuple[str, str]]:
    done = subprocess.run(
        [sys.executable, "-c", RUN], input=json.dumps(EXAMPLES), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("number", range(len(EXAMPLES)))
def test_example_runs(ran: list[tuple[str, str]], number: int) -> None:
    printed, error = ran[number]
    assert not error
    assert printed.strip()


@pytest.mark.parametrize("example", EXAMPLES)
def test_example_asks_for_double_precision(example: str) -> None:
    assert 'jax.config.update("jax_enable_x64", True)\n' in example.partition("jc.")[0]


def test_the_first_example_ends_in_a_derivative_that_says_something(ran: list[tuple[str, str]]) -> None:
    shown = ran[0][0].partition("by the velocity before:")[2]
    entries = np.array(re.findall(r"-?\d+\.\d*(?:e[-+]\d+)?", shown), float)
    assert entries.size == 16
    assert (
        np.linalg.matrix_rank(entries.reshape(4, 4), 0.05) == 2
    )  # the leading foot stays, the other one is free
    assert not re.search(r"e-\d\d", shown)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_pictures_and_files_exist(page) -> None:
    for path in re.findall(r"\]\(([^)]*)\)", page.read_text()):
        assert (page.parent / path).is_file(), path


def test_readme_is_short_has_a_moving_picture_and_points_to_the_pages() -> None:
    text = README.read_text()
    assert text.count("\n") <= LONGEST
    (moving,) = re.findall(r"\(([^)]*\.gif)\)", text)
    assert (README.parent / moving).stat().st_size <= 1.5e6
    assert "docs/index.md" in text
    listed = set()
    for page in PAGES[1:]:
        for block in re.findall(r"```\{toctree\}\n(.*?)```", page.read_text(), re.DOTALL):
            listed |= {line for line in block.splitlines() if line and not line.startswith(":")}
    for page in PAGES[1:]:
        assert page.stem in listed | {"index"}, f"{page.name} is in no table of contents"
