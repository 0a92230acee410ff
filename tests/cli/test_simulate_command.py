"""`jaxcontact simulate`: what it writes and says, and how it refuses."""

import json

import numpy as np
import pytest

from jaxcontact import impact, simulate
from jaxcontact.cli import catalogue
from jaxcontact.cli.main import main


def run(capsys, *arguments):
    code = main(["simulate", *arguments])
    return code, *capsys.readouterr()


@pytest.mark.long
def test_one_world_is_a_trajectory_and_a_picture(capsys, tmp_path):
    code, out, _ = run(
        capsys,
        "pendulum_limit",
        "--stepper",
        "compliant",
        "--duration",
        "0.05",
        "--out",
        str(tmp_path),
        "--gif",
        "--json",
    )
    said = json.loads(out)
    assert (tmp_path / "pendulum_limit_motion.gif").read_bytes()[:4] == b"GIF8"
    assert len(said["files"]) == 3
    assert code == 0 and said["steps"] == 5 and said["failed"] == 0 and said["law"] is None
    assert (tmp_path / "pendulum_limit_motion.png").stat().st_size > 5000
    found = simulate.Trajectory.load(tmp_path / "pendulum_limit_motion.npz")
    assert found.states.q.shape == (6, 1) and float(found.states.q[-1, 0]) < np.pi / 2


@pytest.mark.slow
def test_many_worlds_are_an_ensemble_and_the_same_command_goes_on(capsys, tmp_path):
    arguments = (
        "rocking_block", "--law", "routh", "--worlds", "3", "--duration", "0.04",
        "--out", str(tmp_path), "--checkpoint", str(tmp_path / "run"), "--gif",
    )  # fmt: skip
    code, out, _ = run(capsys, *arguments)
    assert code == 0 and "worlds   3, 0 failed, status SUCCESS" in out
    assert (tmp_path / "rocking_block_motion.gif").read_bytes()[:4] == b"GIF8"
    found = simulate.Ensemble.load(tmp_path / "rocking_block_motion.npz")
    assert found.path.q.shape == (3, 5, 3) and len(np.unique(found.states.v[:, 2])) == 3
    assert run(capsys, *arguments)[0] == 0


def test_mistakes_are_told_at_once(capsys):
    for arguments, told in (
        (("blok",), "no model 'blok'"),
        (("no_file.xml",), "MODEL: no file 'no_file.xml'"),
        (("pressed_plate",), "pressed_plate is not a mechanism"),
        (("rocking_block", "--dt", "0"), "--dt: expected a finite number > 0, got 0"),
        (("rocking_block", "--checkpoint", "run"), "--checkpoint: for --worlds of 2 and more"),
    ):
        code, _, err = run(capsys, *arguments)
        assert code == 2 and told in err


def test_the_catalogue_has_the_steppers_and_laws_of_the_library():
    for name in catalogue.STEPPERS:
        assert hasattr(simulate, name.title().replace("-", ""))
    for name in catalogue.LAWS:
        assert hasattr(impact, name.title().replace("-", ""))


@pytest.mark.long
def test_controls_of_a_file_push(capsys, tmp_path):
    """A force of 2 N on 1 kg for 0.05 s, without contact: v = 0.1 m/s."""
    robot, controls = tmp_path / "cart.xml", tmp_path / "push.txt"
    robot.write_text("""<mujoco><worldbody><body><joint name="slide" type="slide" axis="1 0 0"/>
    <geom type="sphere" size="0.1" mass="1" contype="0" conaffinity="0"/></body></worldbody>
    <actuator><motor joint="slide"/></actuator></mujoco>""")
    controls.write_text("2.0\n")
    stepping = ("--stepper", "compliant", "--duration", "0.05", "--out", str(tmp_path))
    code, _, err = run(capsys, str(robot), *stepping, "--controls", str(controls))
    assert code == 0, err
    found = simulate.Trajectory.load(tmp_path / "cart_motion.npz")
    np.testing.assert_allclose(found.states.v[-1], [0.1], rtol=1e-6)
    table = tmp_path / "two.csv"
    table.write_text("2.0,1.0\n")
    code, _, err = run(capsys, str(robot), *stepping, "--controls", str(table))
    assert code == 2 and "--controls: expected 5 rows, or one, of 1 numbers, got 1 of 2" in err
    controls.write_text("2.0\n1.0\n")
    code, _, err = run(capsys, str(robot), *stepping, "--controls", str(controls))
    assert code == 2 and "--controls: expected 5 rows, or one, of 1 numbers, got 2 of 1" in err
    robot.write_text(
        robot.read_text().replace("</mujoco>", '<keyframe><key name="push" ctrl="3"/></keyframe></mujoco>')
    )
    named = (*stepping, "--keyframe", "push", "--controls", "keyframe")
    code, _, err = run(capsys, str(robot), *named)
    assert code == 0, err
    found = simulate.Trajectory.load(tmp_path / "cart_motion.npz")
    np.testing.assert_allclose(found.states.v[-1], [0.15], rtol=1e-6)
    code, _, err = run(capsys, str(robot), *stepping, "--controls", "keyframe")
    assert code == 2 and "--controls keyframe: name the --keyframe" in err
    code, _, err = run(capsys, str(robot), "--worlds", "2", "--controls", str(controls))
    assert code == 2 and "--controls: only with --worlds 1" in err
    for name, content in (("a.txt", b"\xf6\x00"), ("b.txt", b"1 a"), ("c.npy", b"\xf6"), ("d.npy", b"")):
        (tmp_path / name).write_bytes(content)
        code, _, err = run(capsys, str(robot), *stepping, "--controls", str(tmp_path / name))
        assert code == 2 and f"--controls: expected a table of numbers in {tmp_path / name}: " in err
    controls.write_text("nan\n")
    code, _, err = run(capsys, str(robot), *stepping, "--controls", str(controls))
    assert code == 2 and f"--controls: expected rows of finite numbers in {controls}" in err
