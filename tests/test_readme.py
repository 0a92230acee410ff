"""The examples of README and of the pages in docs/ run as they stand, and what they point to exists."""

import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import jaxcontact as jc
from benchmarks.figures import gallery

README = Path(__file__).parent.parent / "README.md"
CONTRIBUTING = README.parent / "CONTRIBUTING.md"
PAGES = (
    README,
    *sorted(path for path in (README.parent / "docs").rglob("*.md") if "_build" not in path.parts),
)
EXAMPLES = {
    page: re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL) for page in PAGES
}  # by page
LONGEST = 120  # lines of README

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


def run(examples: list[str]) -> list[tuple[str, str]]:
    """What each printed, and the error in which it ended, if any."""
    done = subprocess.run(
        [sys.executable, "-c", RUN], input=json.dumps(examples), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def of_readme() -> list[tuple[str, str]]:
    return run(EXAMPLES[README])


def test_examples_of_the_readme_run(of_readme: list[tuple[str, str]]) -> None:
    assert len(of_readme) == 2
    for printed, error in of_readme:
        assert not error
        assert printed.strip()


@pytest.mark.slow
def test_examples_of_the_pages_run() -> None:
    pages = [
        page for page in PAGES if page not in (README, gallery.PAGE)
    ]  # the gallery has a test of its own
    elsewhere = [example for page in pages for example in EXAMPLES[page]]
    for (printed, error), example in zip(run(elsewhere), elsewhere, strict=True):
        assert not error, example
        assert printed.strip(), example


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_examples_ask_for_double_precision(page: Path) -> None:
    for example in EXAMPLES[page]:
        assert 'jax.config.update("jax_enable_x64", True)\n' in example.partition("jc.")[0]


def test_the_first_example_ends_in_a_derivative_that_says_something(of_readme: list[tuple[str, str]]) -> None:
    shown = of_readme[0][0].partition("by the velocity before:")[2]
    entries = np.array(re.findall(r"-?\d+\.\d*(?:e[-+]\d+)?", shown), float)
    assert entries.size == 16
    assert (
        np.linalg.matrix_rank(entries.reshape(4, 4), 0.05) == 2
    )  # the leading foot stays, the other one is free
    assert not re.search(r"e-\d\d", shown)


@pytest.mark.parametrize("page", [*PAGES, CONTRIBUTING], ids=lambda page: page.name)
def test_pictures_and_files_exist(page) -> None:
    for path in re.findall(r"\]\(([^)]*)\)", page.read_text()):
        is_drawn = (
            "_static/gallery/" in path and Path(path).name in gallery.pictures()
        )  # when the site is built
        assert path.startswith("https://") or is_drawn or (page.parent / path).is_file(), path


def test_readme_is_short_has_a_moving_picture_and_points_to_the_pages() -> None:
    text = README.read_text()
    assert text.count("\n") <= LONGEST
    (moving,) = re.findall(r"\(([^)]*\.gif)\)", text)
    assert (README.parent / moving).stat().st_size <= 1.5e6
    assert "docs/index.md" in text
    for place in ("pyproject.toml", "jaxcontact/", "benchmarks/", "notebooks/", "tests/"):
        assert place in text.partition("## Layout")[2]
        assert (README.parent / place).exists()
    listed = set()
    for page in PAGES[1:]:
        for block in re.findall(r"```\{toctree\}\n(.*?)```", page.read_text(), re.DOTALL):
            listed |= {line for line in block.splitlines() if line and not line.startswith(":")}
    for page in PAGES[1:]:
        place = page.relative_to(README.parent / "docs").with_suffix("").as_posix()
        assert place in listed | {"index"}, f"{place} is in no table of contents"


def test_contributing_and_changes_take_a_page_or_less() -> None:
    assert CONTRIBUTING.read_text().count("\n") <= 60
    prose = [
        line for line in (README.parent / "CHANGELOG.md").read_text().splitlines() if not line.startswith("|")
    ]
    assert len(prose) <= 30


def test_every_limit_is_one_row_that_says_what_to_do() -> None:
    page = (README.parent / "docs" / "understand" / "limits.md").read_text()
    tables = re.findall(r"\|---\|---\|\n((?:\|.*\n)+)", page)
    rows = [re.split(r"(?<!\\)\|", line)[1:-1] for table in tables for line in table.splitlines()]
    assert len(rows) > 30
    for row in rows:
        assert len(row) == 2, row
        assert row[1].strip(), row
        assert len(row[0].split()) <= 40, row


@pytest.mark.parametrize("page", [*PAGES, CONTRIBUTING], ids=lambda page: page.name)
def test_calls_named_on_a_page_exist(page: Path) -> None:
    for name in sorted(set(re.findall(r"\bjc((?:\.[A-Za-z_]\w*)+)", page.read_text()))):
        value = jc
        for part in name.split(".")[1:]:
            assert hasattr(value, part), f"{page.name}: jc{name}"
            value = getattr(value, part)


@pytest.mark.parametrize("page", [*PAGES, CONTRIBUTING], ids=lambda page: page.name)
def test_a_page_has_none_of_the_words_that_are_read_twice(page: Path) -> None:
    words = r", too\b|\banew\b|\blest\b|\bbehind\b|\bgo(?:es)? on\b"
    assert not re.findall(words, page.read_text(), re.IGNORECASE)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_examples_show_something(page: Path) -> None:
    for example in EXAMPLES[page]:
        assert any(word in example for word in ("print(", "progress=", "savefig(", "animate")), example
