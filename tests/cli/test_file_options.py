"""Options of a robot's file, in every command that takes one."""

import pytest

from jaxcontact.cli.impact_options import add_impact
from jaxcontact.cli.main import main
from jaxcontact.cli.motion_options import add_compare, add_flow, add_gait, add_simulate
from jaxcontact.cli.view_options import add_inspect, add_view
from jaxcontact.models.robots import file_of

pytest.importorskip("mujoco")

ARM = """
<mujoco>
  <worldbody>
    <body name="base"><inertial pos="0 0 0" mass="1" diaginertia="1 1 1"/><geom name="pad" size="0.1"/>
      <body name="hand" pos="0 0 0.5"><joint name="wrist" axis="0 1 0" range="20 40" limited="true"/>
        <inertial pos="0 0 0" mass="1" diaginertia="1 1 1"/><geom name="tip" size="0.05"/></body></body>
  </worldbody>
  <actuator><motor name="jet" site="s"/><motor name="turn" joint="wrist" ctrlrange="-2 2"/></actuator>
</mujoco>""".replace('<geom name="tip"', '<site name="s"/><geom name="tip"')


@pytest.fixture
def arm(tmp_path):
    path = tmp_path / "arm.xml"
    path.write_text(ARM)
    return str(path)


@pytest.mark.long
def test_inspect_takes_the_options_and_lists_what_is_skipped(arm, capsys):
    assert main(["inspect", arm]) == 2
    error = capsys.readouterr().err
    assert "actuator 'jet': transmission 'site'; --unsupported skip leaves this out" in error
    words = [
        "--unsupported",
        "skip",
        "--floating",
        "--floor",
        "-0.3",
        "--contacts",
        "pad:floor",
        "--fall",
        "1",
    ]
    assert main(["inspect", arm, *words]) == 0
    printed = capsys.readouterr().out
    for line in (
        "space: 2 bodies, nq 8, nv 7",
        "shapes that may touch: 1 HalfSpace, 1 Sphere; 1 candidate contacts",
        "  turn: force of wrist, N m, -2 .. 2",
        "  left out: actuator 'jet': transmission 'site'",
        "  joint 'wrist' starts at 0, out of its range 0.3491 .. 0.6981",
    ):
        assert line in printed, printed


def test_every_command_of_files_has_the_same_options():
    import argparse

    commands = argparse.ArgumentParser().add_subparsers()
    for add in (add_impact, add_inspect, add_simulate, add_view, add_compare, add_flow, add_gait):
        run = add(commands)
        flags = {flag for action in run._actions for flag in action.option_strings}
        assert {
            "--keyframe", "--planar", "--contacts", "--unsupported", "--floating", "--floor",
            "--max-hull-vertices", "--fall", "--mu",
        } <= flags  # fmt: skip


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["impact", "quadruped", "--fall", "1", "--contacts", "world"], "--contacts: only with a FILE"),
        (["view", "quadruped", "--max-hull-vertices", "8"], "--max-hull-vertices: only with a FILE"),
        (["simulate", "hopper", "--floating"], "--floating: only with a FILE"),
        (["inspect", "gone.xml", "--floor", "nan"], "FILE: no file 'gone.xml'"),
        (["simulate", "gone.xml"], "MODEL: no file 'gone.xml'"),
        (["view", "quadruped", "--mu", "0.5"], "--mu: friction is not seen"),
        (["flow", "hopper_1d", "--mu", "0.5"], "--mu: contacts of `flow` are springs without friction"),
        (["gait", "hopper", "--mu", "1"], "--mu: only with a FILE"),
        (["gait", "hopper", "--duration", "1"], "--duration: only with a FILE"),
        (["gait", "hopper", "--planar"], "--planar: only with a FILE"),
        (["simulate", "hopper", "--mu", "-1"], "--mu: expected finite friction >= 0, got -1"),
        (["simulate", "hopper", "--mu", "1", "2"], "--mu: expected 1 or 8 numbers, got 2"),
        (["simulate", "pendulum_joint", "--mu", "1"], "--mu: expected contacts, got 1"),
        (["stability", "--chart", "fig2", "--alpha", "3"], "--alpha: only without --chart"),
        (["stability", "--chart", "fig2", "--method", "return_map"], "--method: only without --chart"),
        (["stability", "--points", "3"], "--points: only with --chart"),
        (["stability", "--out", "x"], "--out: only with --chart"),
        (["simulate", "hopper", "--fall", "-1"], "--fall: expected a speed > 0, m/s, got -1"),
        (
            ["impact", "quadruped"],
            "quadruped is an example of motion in time, not set up for an impact; let it --fall",
        ),
    ],
)
def test_an_option_that_cannot_be_is_named(words, message, capsys):
    assert main(words) == 2
    assert capsys.readouterr().err.startswith(f"jaxcontact: {message}")


def test_a_gait_has_a_start_of_its_own(arm, capsys):
    for walker in (arm, "planar_walker"):
        assert main(["gait", walker, "--fall", "1"]) == 2
        assert "--fall: a gait has a start of its own" in capsys.readouterr().err


@pytest.mark.long
def test_view_writes_a_robot_that_touches(arm, tmp_path):
    page = tmp_path / "arm.html"
    words = ["--unsupported", "skip", "--floating", "--floor", "0", "--contacts", "world", "--fall", "1"]
    assert main(["view", arm, *words, "--out", str(page)]) == 0
    assert page.stat().st_size > 1000


def test_inspect_tells_the_friction_that_is_asked_for(arm, capsys):
    words = ["--unsupported", "skip", "--floor", "-0.3", "--floating", "--contacts", "pad:floor"]
    assert main(["inspect", arm, *words, "--mu", "0.25"]) == 0
    assert "pad on floor: 1, friction 0.25" in capsys.readouterr().out


@pytest.mark.slow
def test_a_model_of_the_package_falls_as_its_file_does(tmp_path, capsys):
    path = tmp_path / "quadruped.xml"
    path.write_text(file_of("quadruped"))
    words = ["--fall", "1", "--samples", "64", "--json", "--out", str(tmp_path / "out")]
    assert main(["impact", "quadruped", *words]) == 0
    named = capsys.readouterr().out
    assert main(["impact", str(path), "--keyframe", "stand", *words]) == 0
    of_file = capsys.readouterr().out
    strip = [line for line in named.splitlines() if "seconds" not in line and "second" not in line]
    assert strip[:6] == [line for line in of_file.splitlines() if "second" not in line][:6]
