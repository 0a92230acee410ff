"""The pages on the papers say what is so: every row names a test or a command that exists."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from papers import anderson_revzen

ROOT = Path(__file__).parent.parent
PAGES = sorted(path for path in (ROOT / "docs" / "papers").glob("*.md") if path.name != "README.md")
STATES = ("reproduced", "bettered", "corrected", "refuted", "missing", "observed")
NAMES = ("halm_posa", "seghete_murphey", "drumwright", "anderson_revzen", "varkonyi")


def rows(page):
    """Claim, state and proof of each row of the table of a page."""
    lines = [line for line in page.read_text().splitlines() if line.startswith("|")]
    assert lines[0] == "| claim | here | shown by |" and set(lines[1]) == {"|", "-"}
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines[2:]]


def figures():
    """Names of the files that `python -m papers` writes, read off its source."""
    return [
        f"{name}_{file}"
        for name in NAMES
        for file in re.findall(r'^    "(\w+\.\w+)": ', (ROOT / "papers" / f"{name}.py").read_text(), re.M)
    ]


def complaint(state, shown):
    """What is wrong with a row, or ""."""
    if not state.startswith(STATES):
        return f"{state!r} begins with none of {STATES}"
    if shown == "none":
        return "" if state.startswith("missing") else f"nothing shows that it is {state!r}"
    test = re.fullmatch(r"`(tests/[\w/]+\.py)::(\w+)`", shown)
    if test:
        file, name = ROOT / test[1], test[2]
        if not file.exists() or f"\ndef {name}(" not in file.read_text():
            return f"there is no {shown}"
        return ""
    command = re.fullmatch(r"`python -m (papers|benchmarks) -k (\w+)`", shown)
    if not command:
        return f"{shown} is neither a test nor a command"
    if command[1] == "papers":
        return "" if any(command[2] in name for name in figures()) else f"no figure is named {command[2]}"
    sources = "".join(path.read_text() for path in (ROOT / "benchmarks").glob("*.py"))
    return (
        ""
        if re.search(rf'(name=|_case\()f?"[^"]*{command[2]}', sources)
        else f"no benchmark is named {command[2]}"
    )


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_claim_names_what_shows_it(page):
    found = rows(page)
    assert len(found) > 5
    wrong = [(cells[0], complaint(*cells[1:])) for cells in found if len(cells) == 3]
    assert [claim for claim, trouble in wrong if trouble] == [], [each for each in wrong if each[1]]
    assert all(len(cells) == 3 for cells in found)


def test_every_paper_has_a_page_and_figures():
    assert {page.stem for page in PAGES} == set(NAMES)
    for name in NAMES:
        assert any(each.startswith(name) for each in figures())
        assert f"({name}.md)" in (ROOT / "docs" / "papers" / "README.md").read_text()


def test_the_check_finds_what_is_wrong():
    good = "`tests/test_papers.py::test_the_check_finds_what_is_wrong`"
    assert complaint("reproduced", good) == ""
    for state, shown in (
        ("true", good), ("reproduced", "none"), ("reproduced", "`tests/test_papers.py::test_nothing`"),
        ("bettered", "`python -m papers -k nothing`"), ("bettered", "`python -m benchmarks -k nothing`"),
        ("refuted", "by reading"),
    ):  # fmt: skip
        assert complaint(state, shown)


def test_the_error_of_a_projection_is_within_section_6s_bound():
    """Anderson & Revzen: an error of second order below a bound of first order."""
    (coarse, limit), (fine, lower) = (anderson_revzen.projection_error(eps) for eps in (3e-3, 1e-3))
    assert fine < 0.05 * lower and coarse < 0.05 * limit
    assert 8.0 < coarse / fine < 11.0 and 2.9 < limit / lower < 3.2
