"""Calls of the package in notebooks fit its signatures; `tests.run_notebooks` runs them, which takes half an hour."""

import ast
import inspect
import json
from pathlib import Path

import pytest

import jaxcontact as jc

NOTEBOOKS = sorted((Path(__file__).parent.parent / "notebooks").glob("*.ipynb"))


def cells(path):
    """The code cells of a notebook, without lines for the notebook itself."""
    for cell in json.loads(path.read_text())["cells"]:
        if cell["cell_type"] == "code":
            lines = "".join(cell["source"]).splitlines()
            yield "\n".join("" if line.startswith("%") else line for line in lines)


def called(node):
    """The object of a name such as `jc.impact.sample`, None for another expression."""
    parts = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if not (isinstance(node, ast.Name) and node.id == "jc" and parts):
        return None
    found = jc
    for part in reversed(parts):
        found = getattr(found, part)
    return found


def mistakes(source):
    """What calls of the package in a source have that their signatures lack."""
    for node in ast.walk(ast.parse(source)):
        target = called(node.func) if isinstance(node, ast.Call) else None
        if target is None:
            continue
        parameters = inspect.signature(target).parameters.values()
        kinds = {parameter.kind for parameter in parameters}
        named = {parameter.name for parameter in parameters}
        by_place = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
        unknown = {keyword.arg for keyword in node.keywords if keyword.arg} - named
        if unknown and inspect.Parameter.VAR_KEYWORD not in kinds:
            yield f"{ast.unparse(node.func)}: no parameter {', '.join(sorted(unknown))}"
        if len(node.args) > len(by_place) and inspect.Parameter.VAR_POSITIONAL not in kinds:
            yield f"{ast.unparse(node.func)}: {len(node.args)} positional arguments, {len(by_place)} expected"


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_calls_fit_their_signatures(path):
    assert [mistake for source in cells(path) for mistake in mistakes(source)] == []


def test_calls_of_an_earlier_version_are_found():
    old = "jc.Params(mass=m, law=springs)\njc.simulate.rollout(ball, params, start, u, dt=h)"
    assert sorted(mistakes(old)) == [
        "jc.Params: no parameter law",
        "jc.simulate.rollout: 4 positional arguments, 3 expected",
    ]
