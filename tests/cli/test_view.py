"""`jaxcontact view`, as a person uses it."""

import jax.numpy as jnp
import pytest

import jaxcontact as jc
from jaxcontact.cli.main import main
from jaxcontact.models.robots import file_of


@pytest.mark.long
def test_a_model_a_robot_file_and_a_motion_become_pages(tmp_path, capsys, monkeypatch):
    pytest.importorskip("mujoco")
    monkeypatch.chdir(tmp_path)
    assert main(["view", "rocking_block"]) == 0
    assert capsys.readouterr().out.strip() == "rocking_block.html"
    (tmp_path / "dog.xml").write_text(file_of("quadruped"))
    assert main(["view", "dog.xml", "--keyframe", "stand", "--out", "pages/dog.html"]) == 0
    model = jc.models.rocking_block()
    q = jnp.stack([model.initial_state().q, model.initial_state().q + 0.1])
    states = jc.State(q=q, v=jnp.zeros((2, 3)), t=jnp.array([0.0, 0.5]))
    jc.simulate.Trajectory(states=states, contacts=None, impulse=None, impacts=None, status=None).save(
        "run.npz"
    )
    assert main(["view", "run.npz", "--model", "rocking_block"]) == 0
    for name, title in (("rocking_block", "rocking_block"), ("pages/dog", "dog"), ("run", "run")):
        assert f"<title>{title}</title>" in (tmp_path / f"{name}.html").read_text()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nothing"], "no model 'nothing'"),
        (["pressed_plate"], "pressed_plate is not a mechanism"),
        (["robot.xml"], "FILE: no file 'robot.xml'"),
        (["run.npz"], "FILE: no file 'run.npz'"),
        (["bad.npz"], "--model: which mechanism bad.npz is a motion of"),
        (["bad.npz", "--model", "rocking_block"], "bad.npz is damaged, or was not written by this package"),
        (["rocking_block", "--model", "x"], "--model: only with a .npz file"),
        (["rocking_block", "--out", "x.avi"], "--out: expected a name that ends in .html, .gif or .mp4"),
    ],
)
def test_mistakes_are_told_in_one_line(arguments, message, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    jnp.savez(tmp_path / "bad.npz", x=jnp.zeros(2))
    assert main(["view", *arguments]) == 2
    told = capsys.readouterr().err
    assert message in told and told.count("\n") == 1
