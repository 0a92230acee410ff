"""The runner of the benchmarks: a case whose package is missing says so in its line, and the others run."""

import sys

import numpy as np
import pytest

from benchmarks import __main__ as command
from benchmarks import impact, robot_files, runner


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


@pytest.mark.parametrize("turn", [0.0, 0.3])
def test_the_smallest_overlap_of_two_geoms_is_that_of_closed_forms(turn):
    axes = np.array([[np.cos(turn), 0.0, np.sin(turn)], [0.0, 1.0, 0.0], [-np.sin(turn), 0.0, np.cos(turn)]])
    ball = robot_files.Placed("sphere", np.array([0.3, 0.0, 0.0]), np.eye(3), np.array([0.1, 0.2, 0.0]), None)
    can = robot_files.Placed("cylinder", np.array([0.2, 0.5, 0.0]), axes, np.array([0.1, 0.2, 0.0]), None)
    deep = ball._replace(centre=can.centre + axes[:, 2] * 0.7)  # over the end of the cylinder
    assert robot_files._depth_by_directions(deep, can) == pytest.approx(-0.1, abs=1e-9)
    wide = ball._replace(centre=can.centre + axes[:, 0] * 0.4)  # beside it
    assert robot_files._depth_by_directions(wide, can) == pytest.approx(-0.1, abs=1e-9)
