"""The runner of the benchmarks: a case whose package is missing says so in its line, and the others run."""

import sys

import pytest

from benchmarks import __main__ as command
from benchmarks import impact, runner


def lacks_module():
    import no_such_peer  # noqa: F401


def lacks_part():
    from json import no_such_part  # noqa: F401


def test_what_is_missing_is_named_line_by_line(monkeypatch, capsys):
    cases = [
        runner.Case(name="peer whole", items=1, setup=lacks_module),
        runner.Case(name="peer part", items=1, setup=lacks_part),
        runner.Case(name="peer ours", items=1, setup=lambda: lambda: {"error": 0.5}, repeats=1),
    ]
    monkeypatch.setattr(impact, "CASES", cases)
    monkeypatch.setattr(sys, "argv", ["benchmarks", "-k", "^peer "])
    assert command.main() == 0
    table = capsys.readouterr().out
    assert "| peer whole | skipped: no_such_peer is not installed |" in table
    assert "| peer part | skipped: json.no_such_part is not installed |" in table
    assert "error 0.5" in table


@pytest.mark.parametrize("name", ["drake", "mujoco-mjx"])
def test_the_header_names_the_peers(name):
    assert name in runner.header()
