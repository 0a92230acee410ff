"""`jaxcontact compare`: what it says of a ball that falls, and how it refuses."""

import json

import pytest

from jaxcontact.cli.main import main

BALL = """<mujoco><worldbody><geom type="plane" size="5 5 1"/><body name="ball" pos="0 0 1"><freejoint/>
<geom type="sphere" size="0.1" mass="2"/></body></worldbody></mujoco>"""


@pytest.fixture
def ball(tmp_path):
    path = tmp_path / "ball.xml"
    path.write_text(BALL)
    return path


@pytest.mark.long
def test_a_free_fall_is_that_of_mujoco(ball, capsys, tmp_path):
    """Before it lands the height is the closed form 1 - g t^2 / 2; MuJoCo's step is of first order."""
    steppers = ("--steppers", "compliant", "--duration", "0.1", "--json", "--out", str(tmp_path))
    assert main(["compare", str(ball), *steppers]) == 0
    printed = capsys.readouterr()
    assert printed.err == "  compliant, 50 steps\n"  # a stepper of a robot may take minutes
    own, peer = json.loads(printed.out)["rows"]
    assert own["height m"] == pytest.approx(1 - 9.81 * 0.1**2 / 2, abs=1e-9)
    assert own["lost J"] == pytest.approx(0.0, abs=1e-9) and own["deepest m"] == 0.0
    assert peer["height m"] == pytest.approx(own["height m"], abs=9.81 * 0.1 * 0.002)
    assert own["apart"] == pytest.approx(own["height m"] - peer["height m"], rel=1e-6)
    assert (tmp_path / "ball_compare.png").stat().st_size > 5000


@pytest.mark.slow
def test_a_landing_under_every_stepper(ball, capsys, tmp_path):
    assert main(["compare", str(ball), "--fall", "1", "--duration", "0.1", "--out", str(tmp_path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[1:6]] == [
        "time-stepping", "compliant", "variational", "event-driven", "MuJoCo",
    ]  # fmt: skip
    assert all("SUCCESS" in line for line in lines[1:6])


SLED = """<mujoco><option cone="elliptic" impratio="10"/><worldbody><geom type="plane" size="5 5 1"/>
<body name="sled" pos="0 0 0.1"><freejoint/><geom type="box" size="0.2 0.2 0.1" mass="2"/></body></worldbody>
<keyframe><key name="slides" qpos="0 0 0.1 1 0 0 0" qvel="1 0 0 0 0 0"/></keyframe></mujoco>"""


@pytest.mark.slow
def test_friction_is_that_of_both_simulators(capsys, tmp_path):
    """A sled at 1 m/s loses (1 - (1 - mu g t)^2) / 2 J per kg."""
    path = tmp_path / "sled.xml"
    path.write_text(SLED)
    words = ("--keyframe", "slides", "--mu", "0.3", "--steppers", "compliant", "--duration", "0.1", "--json")
    assert main(["compare", str(path), *words, "--out", str(tmp_path)]) == 0
    said = json.loads(capsys.readouterr().out)
    lost = 2.0 * (1 - (1 - 0.3 * 9.81 * 0.1) ** 2) / 2
    for row in said["rows"]:
        assert row["lost J"] == pytest.approx(lost, rel=0.05), row["stepper"]


@pytest.mark.long
def test_a_stepper_that_refuses_the_robot_is_named(capsys, tmp_path):
    path = tmp_path / "ball.xml"
    path.write_text(BALL.replace("0 0 1", "0 0 0.05"))  # half in the floor
    words = ("--steppers", "event-driven", "--duration", "0.01", "--json", "--out", str(tmp_path))
    assert main(["compare", str(path), *words]) == 0
    said = json.loads(capsys.readouterr().out)
    assert [row["stepper"] for row in said["rows"]] == ["MuJoCo"]
    assert "penetration" in said["refused"]["event-driven"]


def test_it_refuses_what_has_no_effect(ball, capsys):
    assert main(["compare", "rocking_block"]) == 2
    assert "expected an MJCF or URDF file" in capsys.readouterr().err
    assert main(["compare", str(ball), "--mu", "1", "2"]) == 2
    assert "--mu: expected one number" in capsys.readouterr().err
    assert main(["simulate", str(ball), "--stepper", "compliant", "--law", "plastic"]) == 2
    assert "--law: --stepper compliant takes none" in capsys.readouterr().err
