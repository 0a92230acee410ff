"""`jaxcontact flow`: events and the end of a run on springs, against independent numbers; its mistakes."""

import json
from pathlib import Path

import numpy as np
import pytest
from scipy.integrate import solve_ivp

import jaxcontact as jc
from jaxcontact.cli.flow import _names
from jaxcontact.cli.main import main

HOPPER = str(
    Path(jc.__file__).parent / "models" / "mjcf" / "hopper.xml"
)  # its foot touches in the reference pose


@pytest.mark.slow
def test_a_hopper_lands_when_it_has_fallen(tmp_path, capsys):
    assert main(["flow", "hopper_1d", "--json", "--out", str(tmp_path), "--duration", "0.5"]) == 0
    found = json.loads(capsys.readouterr().out)
    model = jc.models.hopper_1d()
    terms = jc.contact_terms(model, model.initial_state())
    g = -float(model.params.gravity[-1])
    fall = np.sqrt(2 * float(terms.phi[0]) / g)
    assert found["status"] == "SUCCESS" and [event["guard"] for event in found["events"]] == [0]
    assert found["events"][0]["t"] == pytest.approx(fall, abs=1e-6)
    k, m = float(model.params.material.stiffness), float(model.params.mass[0])
    start = [0.0, -g * fall]
    law = solve_ivp(lambda t, x: [x[1], -g - k / m * x[0]], (0, 0.5 - fall), start, rtol=1e-11, atol=1e-13)
    assert found["end"][1] == pytest.approx(law.y[1, -1], abs=1e-6)
    data = np.load(tmp_path / "hopper_1d_flow.npz")
    assert data["t"][-1] == 0.5 and data["event_t"][0] == found["events"][0]["t"]
    assert (tmp_path / "hopper_1d_flow.png").stat().st_size > 1000


@pytest.mark.long
def test_a_ball_of_a_file_lands_when_its_spring_begins_to_push(tmp_path, capsys):
    """A damped spring pushes from the depth -B/K times its rate on, a little before the ball has fallen 10 cm."""
    ball = tmp_path / "ball.xml"
    ball.write_text("""<mujoco><worldbody><geom type="plane" size="1 1 1"/>
      <body pos="0 0 0.2"><joint type="slide" axis="0 0 1"/><geom type="sphere" size="0.1"/></body>
    </worldbody></mujoco>""")
    assert main(["flow", str(ball), "--json", "--out", str(tmp_path), "--duration", "0.2"]) == 0
    (event, *_) = json.loads(capsys.readouterr().out)["events"]
    ahead = 2.0 * np.sqrt(
        1e-3 / 9.81
    )  # s, B / K of a spring that carries the ball at 1 mm, critically damped
    assert event["t"] == pytest.approx(np.sqrt(ahead**2 + 2.0 * 0.1 / 9.81) - ahead, abs=1e-6)


def test_states_are_named_by_joints_with_units():
    assert _names(jc.models.hopper())[2:9:6] == ["root_pitch (rad)", "root_pitch (rad/s)"]
    assert _names(jc.models.plate_on_springs())[1:5:3] == ["q[1]", "v[1]"]
    assert _names(jc.models.quadruped()) is None  # a free body


@pytest.mark.long
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nothing"], "no model 'nothing'"),
        (["pendulum_joint"], "pendulum_joint has no contacts, so no events"),
        (["affine_3d", "--tol", "0"], "--tol: expected a finite number > 0"),
        (["affine_3d", "--eps", "nan"], "--eps: expected a finite number > 0"),
        (["affine_3d", "--duration", "-1"], "--duration: expected a finite number > 0"),
        (["affine_3d", "--planar"], "--planar: only with a FILE"),
        (["rocking_block"], "params.material: expected springs and dampers"),
        ([HOPPER, "--planar"], "take another pose, by --keyframe"),
    ],
)
def test_mistakes_are_named(arguments, message, capsys, tmp_path):
    assert main(["flow", *arguments, "--out", str(tmp_path)]) == 2
    assert message in capsys.readouterr().err
