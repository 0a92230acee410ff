"""The pages on the papers say what is so: every row names a test or a command that exists."""

from __future__ import annotations

import functools
import re
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxcontact as jc
from benchmarks import ess
from benchmarks.papers import anderson_revzen, drumwright

ROOT = Path(__file__).parent.parent
PAGES = sorted(path for path in (ROOT / "docs" / "papers").glob("*.md") if path.name != "README.md")
STATES = ("reproduced", "bettered", "corrected", "refuted", "missing", "observed")
NAMES = ("halm_posa", "seghete_murphey", "drumwright", "anderson_revzen", "varkonyi")


def rows(page):
    """Claim, state and proof of each row of the table of a page."""
    lines = [line for line in page.read_text().splitlines() if line.startswith("|")]
    assert lines[0] == "| claim | here | call | shown by |" and set(lines[1]) == {"|", "-"}
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines[2:]]


def figures():
    """Names of the files that `python -m benchmarks.papers` writes, read off its source."""
    return [
        f"{name}_{file}"
        for name in NAMES
        for file in re.findall(
            r'^    "(\w+\.\w+)": ', (ROOT / "benchmarks" / "papers" / f"{name}.py").read_text(), re.M
        )
    ]


def is_public(call):
    """Whether a cell such as `jc.impact.sample` names something, between back-quotes."""
    path = re.fullmatch(r"`jc\.([\w.]+)`", call)
    try:
        return path is not None and callable(functools.reduce(getattr, path[1].split("."), jc))
    except AttributeError:
        return False


def complaint(state, call, shown):
    """What is wrong with a row, or ""."""
    if call != "-" and not is_public(call):
        return f"{call} is no public call"
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
    command = re.fullmatch(r"`python -m (benchmarks\.papers|benchmarks) -k (\w+)`", shown)
    if not command:
        return f"{shown} is neither a test nor a command"
    if command[1] == "benchmarks.papers":
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
    wrong = [(cells[0], complaint(*cells[1:])) for cells in found if len(cells) == 4]
    assert [claim for claim, trouble in wrong if trouble] == [], [each for each in wrong if each[1]]
    assert all(len(cells) == 4 for cells in found)


def test_every_paper_has_a_page_and_figures():
    assert {page.stem for page in PAGES} == set(NAMES)
    for name in NAMES:
        assert any(each.startswith(name) for each in figures())
        assert f"({name}.md)" in (ROOT / "docs" / "papers" / "README.md").read_text()


def test_the_check_finds_what_is_wrong():
    good = "`tests/test_papers.py::test_the_check_finds_what_is_wrong`"
    assert complaint("reproduced", "`jc.ess.flow`", good) == ""
    assert complaint("reproduced", "`jc.ess.flows`", good) and complaint("reproduced", "jc.ess.flow", good)
    for state, shown in (
        ("true", good), ("reproduced", "none"), ("reproduced", "`tests/test_papers.py::test_nothing`"),
        ("bettered", "`python -m benchmarks.papers -k nothing`"), ("bettered", "`python -m benchmarks -k nothing`"),
        ("refuted", "by reading"),
    ):  # fmt: skip
        assert complaint(state, "-", shown)


def test_the_error_of_a_projection_is_within_section_6s_bound():
    """Anderson & Revzen: an error of second order below a bound of first order."""
    (coarse, limit), (fine, lower) = (anderson_revzen.projection_error(eps) for eps in (3e-3, 1e-3))
    assert fine < 0.05 * lower and coarse < 0.05 * limit
    assert 8.0 < coarse / fine < 11.0 and 2.9 < limit / lower < 3.2


@pytest.mark.long
@pytest.mark.parametrize(
    ("dt", "start"),
    [(1e-7, (1e-6, -4.4)), (1e-6, (1e-6, -4.4)), (1e-5, (1e-6, -4.4)), (1e-2, (np.pi / 2, 0.0))],
)
def test_the_loop_of_fig_6_takes_the_steps_of_the_paper(dt, start):
    """Drumwright: 10^8 steps are drawn by the closed form of a step that takes gravity at its start."""
    model = jc.models.pendulum_limit()

    def by_program(carry, _):
        state = jc.State(q=carry[0], v=carry[1], t=jnp.zeros(()))
        M, terms = jc.mass_matrix(model, state.q), jc.constraint_terms(model, state)
        force = -jc.bias(model, state)
        problem = jc.compliant.Problem(
            M=M, v=state.v, f=force, terms=terms, material=model.params.material, dt=jnp.asarray(dt)
        )
        v = state.v + dt * jnp.linalg.solve(M, force + terms.G.T @ jc.compliant.solve(problem)[0])
        carry = (state.q + dt * v, v)
        return carry, carry

    def by_hand(carry, _):
        carry = drumwright.limited_step(*carry, dt)
        return carry, carry

    begin = tuple(jnp.array([x]) for x in start)
    _, (q, v) = jax.lax.scan(by_program, begin, None, length=100)
    _, (theta, rate) = jax.lax.scan(by_hand, tuple(map(jnp.asarray, start)), None, length=100)
    np.testing.assert_allclose(q[:, 0], theta, rtol=1e-9, atol=1e-15)
    np.testing.assert_allclose(v[:, 0], rate, rtol=1e-9, atol=1e-9)
    assert theta.min() < 1e-7  # it met the limit


def test_how_deep_a_foot_sinks_by_drumwrights_formula():
    """(121): f = E* sqrt(r d^3) with E* = 1e11 N/m^2, r = 0.01 m and 2.5 N; the text has 1e-8 m."""
    depth = (2.5 / (1e11 * 0.01**0.5)) ** (2 / 3)
    assert depth == pytest.approx(4.0e-7, rel=0.01)
    law = jc.models.box_on_incline().params.material.potential  # with the 4/3 of Hertz's law
    push = jax.grad(lambda d: jnp.sum(law(d)))(jnp.array(depth))
    assert float(push) == pytest.approx(4 / 3 * 2.5, rel=1e-9)


@pytest.mark.slow
def test_spring_dampers_agree_with_mujoco_before_they_are_timed(monkeypatch):
    """Anderson & Revzen, Fig. 5: the same law in both to 1e-4 at small steps, or no time is told."""
    for n in (2, 10):
        _, failures, apart = ess.agreed(n, ess.starts(8), ess.DAMPING)
        assert failures == 0 and apart < 1e-4
    monkeypatch.setattr(ess, "AGREED", 1e-9)
    with pytest.raises(RuntimeError, match="10 contacts"):
        ess.agreed(10, ess.starts(8), ess.DAMPING)
