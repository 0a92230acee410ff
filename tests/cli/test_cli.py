"""The command line, as a person uses it."""

import inspect
import json
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from jaxcontact import impact, models, stability, viz
from jaxcontact.cli import catalogue, gait
from jaxcontact.cli import impact as impact_command
from jaxcontact.cli.main import main
from jaxcontact.cli.progress import rate_of_samples
from jaxcontact.cli.report import as_text
from jaxcontact.impact.analysis.coverage import MIN_SAMPLES
from jaxcontact.impact.laws import routh_law
from jaxcontact.impact.sampling import lemke_on_host
from jaxcontact.mechanics.system import Model, System
from jaxcontact.models.robots import file_of
from jaxcontact.stability.chart import FIGURES


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    try:
        code = main(list(arguments))
    except SystemExit as stop:  # argparse
        code = int(stop.code or 0)
    out, err = capsys.readouterr()
    return code, out, err


def test_models_are_listed_with_one_line_each(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "models")
    lines = out.splitlines()
    assert code == 0
    names = [line.split()[0] for line in lines]
    assert {"rocking_block", "compass_gait", "box_and_wall", "ramone", "disk_stack"} <= set(names)
    assert all(len(line.split()) > 5 for line in lines)


@pytest.mark.long
def test_summary_picture_and_data(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, saved: dict[str, Any]
) -> None:
    folder = tmp_path / "a folder"
    code, out, _ = run(capsys, "impact", "rocking_block", "--samples", "2^10", "--out", str(folder))
    assert code == 0
    for needed in (
        "A lifts, B sticks",
        "normal",
        "tangential",
        "kinetic energy",
        "terminated       100.00 %",
        "LCPs per sample  2.4",
        "s to load, ",
        "s to compile, ",
        "s to draw",
        "us per sample",
    ):
        assert needed in out
    for name in ("rocking_block_impact.png", "rocking_block_mechanism.png", "rocking_block_impact.npz"):
        assert str(folder / name) in out
        assert (folder / name).exists()
    data = np.load(folder / "rocking_block_impact.npz")
    assert data["v_plus"].shape == (1024, 3)
    mechanism, outcomes = (saved[f"rocking_block_{kind}.png"].axes for kind in ("mechanism", "impact"))
    assert [axes.get_title() for axes in mechanism] == ["before", "simultaneous", "A first", "B first"]
    speeds = data["v_plus"] @ np.vstack([data["J_n"], data["J_t"][:, 0]]).T  # of the contacts
    for axes in outcomes:
        dots = axes.collections[1].get_offsets()
        assert len(dots) > 30
        for drawn in np.asarray(dots).T:
            assert np.max(np.min(np.abs(drawn[:, None] - speeds.ravel()), axis=1)) < 1e-6
    assert json.loads(str(data["settings"]))["impulse_step"] == 0.3
    # The data are those of the library with the same settings.
    assert np.all(data["status"] == 0)
    assert np.max(data["v_plus"] @ data["J_n"].T) <= 0.21 * np.sqrt(2 * 9.81 * 0.01) * (1 + 1e-9)


@pytest.mark.slow_cases("box_and_wall")
@pytest.mark.parametrize(
    "model",
    [
        "box_and_wall",
        *(
            pytest.param(m, marks=pytest.mark.slow)
            for m in ("compass_gait", "ramone", "disk_stack", "box_drop_3d", "planar_walker")
        ),
    ],
)
def test_every_model_runs(model: str, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    code, out, _ = run(capsys, "impact", model, "--samples", "64", "--json", "--out", str(tmp_path))
    summary = json.loads(out)
    assert code == 0
    assert summary["model"] == model
    assert summary["samples"] == 64
    assert summary["failures"] == "SUCCESS"
    assert abs(sum(summary["outcomes"].values()) - 1) < 1e-12
    assert all(Path(path).is_file() for path in summary["files"])


@pytest.mark.slow
def test_options_reach_the_sampler(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    arguments = ["impact", "rocking_block", "--samples", "32", "--out", str(tmp_path), "--json"]
    options = [
        "--mu",
        "0.1",
        "0.2",
        "--impulse-step",
        "0.05",
        "--max-steps",
        "3",
        "--seed",
        "7",
        "--selection",
        "lemke",
    ]
    code, out, _ = run(capsys, *arguments, *options)
    summary = json.loads(out)
    assert code == 0
    assert (summary["impulse_step"], summary["max_steps"], summary["seed"]) == (0.05, 3, 7)
    assert summary["selection"] == "lemke"
    assert not summary["complete"]
    assert summary["terminated"] == 0.0  # three small steps do not end this impact
    assert list(np.load(tmp_path / "rocking_block_impact.npz")["mu"]) == [0.1, 0.2]


@pytest.mark.slow
def test_restitution_reaches_the_sampler(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    arguments = ["impact", "rocking_block", "--samples", "64", "--out", str(tmp_path)]
    code, out, _ = run(capsys, *arguments, "--restitution", "0.5", "1", "--json")
    summary = json.loads(out)
    assert (code, summary["restitution"], summary["max_steps"]) == (0, [0.5, 1.0], 40)
    assert summary["terminated"] == 1.0 and 0.25 < summary["energy_ratio"][0] < summary["energy_ratio"][1] < 1
    code, out, _ = run(capsys, *arguments, "--restitution", "0.5")
    assert code == 0 and "restitution      0.5" in out


@pytest.mark.long
def test_a_robot_of_a_file_lands_on_the_contacts_that_touch(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, saved: dict[str, Any]
) -> None:
    """The hopper has eight candidates; it falls onto the two of its foot."""
    pytest.importorskip("mujoco")
    file = tmp_path / "robot.xml"
    file.write_text(file_of("hopper"))
    start = ["impact", str(file), "--planar", "--out", str(tmp_path), "--json"]
    code, out, _ = run(
        capsys, *start, "--keyframe", "crouched", "--fall", "2", "--mu", "0.3", "--samples", "64"
    )
    summary = json.loads(out)
    assert code == 0 and summary["complete"] and summary["terminated"] == 1.0
    assert summary["model"] == "robot" and list(summary["contact_velocity"]) == ["A", "B"]
    assert list(summary["contacts"]) == ["A", "B"] and len(set(summary["contacts"].values())) == 1
    (body,) = set(summary["contacts"].values())
    assert f"  contacts         A B of {body}\n" in as_text(summary)
    with np.load(tmp_path / "robot_impact.npz") as data:
        np.testing.assert_allclose(data["phi"], 0.0, atol=1e-9)
        np.testing.assert_allclose(data["J_n"] @ data["v_minus"], -2.0, rtol=1e-9)
        assert data["impulse"].shape == (64, 2, 2)
    assert sorted(saved) == ["robot_mechanism.png", "robot_outcomes.png"]
    (axes,) = saved["robot_mechanism.png"].axes  # before the impact; outcomes.png has what comes after
    letters = {text.get_text() for text in axes.texts}
    assert {"A", "B"} <= letters and not letters & set("CDEFGH")
    for more, message in (
        (["--keyframe", "crouched"], "robot: no contact touches and approaches in this state"),
        (
            ["--keyframe", "home"],
            "keyframe: expected one of ['crouched', 'landing'] or its number, got 'home'",
        ),
        (["--fall", "1", "--mu", "1", "2"], "--mu: expected 1 or 8 numbers, got 2"),
    ):
        code, _, err = run(capsys, *start, *more)
        assert code == 2 and message in err and "Traceback" not in err


@pytest.mark.slow
def test_a_ball_of_a_file_lands_in_space_beside_mujoco(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, saved: dict[str, Any]
) -> None:
    pytest.importorskip("mujoco")
    file = tmp_path / "ball.xml"
    file.write_text(
        """<mujoco><worldbody><geom type="plane" size="1 1 1"/><body pos="0 0 1"><freejoint/>
        <geom type="sphere" size="0.1" mass="2"/></body></worldbody></mujoco>"""
    )
    start = ["impact", str(file), "--out", str(tmp_path), "--json", "--fall", "1", "--samples", "16"]
    code, out, _ = run(capsys, *start)
    summary = json.loads(out)
    assert code == 0 and not summary["complete"] and str(tmp_path / "ball_outcomes.png") in summary["files"]
    assert [axes.get_title() for axes in saved["ball_outcomes.png"].axes][-1] == "MuJoCo\none outcome"


@pytest.mark.slow
def test_more_than_two_contacts_are_drawn_as_kinds_of_outcomes(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, saved: dict[str, Any]
) -> None:
    code, _, _ = run(capsys, "impact", "disk_stack", "--out", str(tmp_path), "--json", "--samples", "16")
    assert code == 0 and sorted(saved) == ["disk_stack_mechanism.png", "disk_stack_outcomes.png"]
    named = [text.get_text() for text in saved["disk_stack_outcomes.png"].axes[0].texts]
    assert set("ABCDE") <= set(named)


@pytest.mark.slow
def test_every_order_of_single_impacts_is_listed(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "impact", "newtons_cradle", "--law", "propagative")
    assert code == 0 and "1 outcome of" in out and "A B" in out and "Theorem 3" in out
    assert "status           SUCCESS" in out
    code, out, _ = run(capsys, "impact", "newtons_cradle", "--law", "propagative", "--json")
    summary = json.loads(out)
    np.testing.assert_allclose(summary["outcomes"][0]["v_plus"], [0.0, 0.0, 1.0], atol=1e-14)
    assert summary["indeterminacy"] < 1e-12 and summary["plastic_energy_ratio"] == pytest.approx(1 / 3)


@pytest.mark.parametrize(
    ("arguments", "message"),
    MISTAKES := [
        (
            ["impact", "rocking_block", "--law", "propagative", "--mu", "1"],
            "--mu: not with --law propagative",
        ),
        (["impact", "rocking_block", "--restitution", "1.5"], "restitution: expected numbers in 0..1"),
        (["impact", "rocking_blok"], "did you mean 'rocking_block'"),
        (["impact", "no_robot.xml"], "MODEL: no file 'no_robot.xml'"),
        (["impact", "rocking_block", "--keyframe", "home"], "--keyframe: only with a FILE"),
        (["impact", "rocking_block", "--fall", "-1"], "--fall: expected a speed > 0, m/s, got -1"),
        (["impact", "xyzzy"], ", box_and_wall, "),
        (["impact", "pendulum_joint"], "no contacts, so no impact; models of impacts: box_and_wall"),
        (["impact", "sphere_stack"], "give --impulse-step and --max-steps, or models of impacts"),
        (["impact", "rocking_block", "--samples", "many"], "2^14"),
        (["impact", "rocking_block", "--samples", "0"], "at least 1"),
        (["impact", "rocking_block", "--mu", "1", "2", "3"], "--mu: expected 1 or 2"),
        (["impact", "rocking_block", "--mu", "-1"], "--mu: expected finite friction >= 0, got -1"),
        (["impact", "rocking_block", "--mu", "nan"], "--mu: expected finite friction >= 0, got nan"),
        (
            ["impact", "rocking_block", "--impulse-step", "0"],
            "--impulse-step: expected a finite number > 0, got 0",
        ),
        (
            ["impact", "rocking_block", "--seed", "-1"],
            "--seed: expected an integer >= 0 and < 2^64, got '-1'",
        ),
        (
            ["impact", "rocking_block", "--restitution", "0", "0", "0"],
            "--restitution: expected 1 or 2 numbers",
        ),
        (
            ["impact", "rocking_block", "--samples", "8", "--coverage"],
            "--coverage: samples: expected at least",
        ),
        (["impact", "rocking_block", "--checkpoint", "/dev/null/x"], "--checkpoint: cannot write"),
        (["impact", "pressed_plate"], "pressed_plate is not a mechanism"),
        (["gait", "hexapod", "--speed", "inf"], "--speed: expected a finite number, got inf"),
        (["gait", "hexapod", "--steps", "-1"], "--steps: expected an integer in 0..1000000, got -1"),
        (["gait", "hexapod", "--out", "/dev/null/x"], "--out: cannot write"),
        (
            ["stability", "--chart", "fig2", "--points", "1"],
            "--points: expected an integer in 2..10000, got 1",
        ),
        (["stability", "--mu1", "-1"], "--mu1: expected friction >= 0, got -1"),
        (["stability", "--e2", "1"], "--e2: expected restitution in [0, 1), got 1"),
        (["stability", "--alpha", "nan"], "--alpha: expected a finite number, got nan"),
        (["stability", "--d", "0"], "--d: the feet coincide"),
        (["stability", "--chart", "fig2", "--out", "/dev/null/x"], "--out: cannot write"),
        (["impact", "rocking_block", "--selection", "best"], "invalid choice"),
        (["impact", "rocking_block", "--samples", "8", "--out", "/dev/null/x"], "--out: cannot write"),
        ([], "COMMAND"),
    ],
)
def test_mistakes_are_named(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = run(capsys, *arguments)
    assert code == 2
    assert message in err
    assert "Traceback" not in err


def test_mistakes_are_told_before_anything_is_loaded() -> None:
    code = """
import contextlib, io, json, sys
from jaxcontact.cli import main
for arguments in json.load(sys.stdin):
    with contextlib.redirect_stderr(io.StringIO()):
        try:
            assert main(arguments) == 2, arguments
        except SystemExit as stop:
            assert stop.code == 2, arguments
    loaded = {"jax", "numpy", "scipy", "matplotlib"} & set(sys.modules)
    assert not loaded, (arguments, loaded)
"""
    given = json.dumps([arguments for arguments, _ in MISTAKES])
    done = subprocess.run(
        [sys.executable, "-c", code], input=given, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def made_without_being_told_anything() -> dict[str, Any]:
    found = {name: f for name, f in vars(models).items() if inspect.isfunction(f)}
    signatures = {name: inspect.signature(f) for name, f in found.items()}
    return {
        name: found[name]
        for name, signature in signatures.items()
        if signature.return_annotation in (Model, "Model")
        and all(p.default is not p.empty for p in signature.parameters.values())
    }


def test_the_catalogue_names_every_model() -> None:
    assert sorted(made_without_being_told_anything()) == list(catalogue.KINDS)


@pytest.mark.long
@pytest.mark.parametrize("name", catalogue.KINDS)
def test_the_catalogue_knows_the_models(name: str) -> None:
    model = getattr(models, name)()
    if not isinstance(model.system, System):
        assert catalogue.KINDS[name] == catalogue.ModelKind()
        return
    structure = model.structure
    has_impact = None not in (model.impulse_step, model.max_steps)
    assert catalogue.KINDS[name] == (structure.dim, structure.num_contacts, has_impact)


def test_the_catalogue_knows_the_choices_of_the_options() -> None:
    assert catalogue.SELECTIONS == routh_law.SELECTIONS
    assert catalogue.LEAST_COVERED == 2 * MIN_SAMPLES
    assert tuple(gait.MODELS) == catalogue.GAITS
    assert catalogue.METHODS == stability.METHODS
    assert tuple(FIGURES) == catalogue.CHARTS


@pytest.mark.parametrize("command", ["models", "impact", "flow", "gait", "stability", "inspect"])
def test_every_command_has_help(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, command, "--help")
    assert code == 0
    assert f"usage: jaxcontact {command}" in " ".join(out.split())


def test_as_a_module() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "jaxcontact", "--help"], capture_output=True, text=True, check=True
    )
    assert "impact" in done.stdout


@pytest.mark.slow
def test_a_checkpoint_holds_the_samples(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    folder = tmp_path / "run"
    arguments = ["impact", "rocking_block", "--samples", "2^10", "--out", str(tmp_path / "out"), "--json"]
    _, plain, _ = run(capsys, *arguments)
    for stored in (0, 1024):
        code, out, err = run(capsys, *arguments, "--checkpoint", str(folder))
        assert code == 0
        summary, expected = json.loads(out), json.loads(plain)
        for key in ("outcomes", "contact_velocity", "energy_ratio", "lcps_per_sample", "worst_residual"):
            assert summary[key] == expected[key]
        assert (f"holds {stored} samples" in err) is bool(stored)
        assert summary["files"][-1] == str(folder)
        assert not any(path.endswith(".npz") for path in summary["files"])
    data = np.load(tmp_path / "out" / "rocking_block_impact.npz")
    assert np.array_equal(np.load(folder / "v_plus.npy"), data["v_plus"])

    code, _, err = run(capsys, *arguments, "--seed", "1", "--checkpoint", str(folder))
    assert code == 2
    assert "left as it is" in err
    assert "seed (0 there, 1 now)" in err
    code, _, err = run(capsys, "impact", "ramone", "--checkpoint", str(folder))
    assert code == 2
    assert 'about model ("rocking_block" there, "ramone" now)' in err
    code, _, err = run(capsys, *arguments, "--checkpoint", "/dev/null/x")
    assert code == 2
    assert "cannot write to /dev/null/x" in err
    assert "Traceback" not in err


@pytest.mark.slow
def test_the_picture_of_a_long_run_says_how_much_it_shows(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("jaxcontact.cli.impact.SHOWN", 100)
    monkeypatch.setattr("jaxcontact.impact.sampling.driver.CHECKPOINT_CHUNK", 150)
    titles = []
    plot = viz.plot_impact_set
    monkeypatch.setattr(
        viz, "plot_impact_set", lambda *a, **k: titles.append((k["title"], a[0].status.size)) or plot(*a, **k)
    )
    code, out, _ = run(
        capsys, "impact", "rocking_block", "--samples", "400", "--json",
        "--checkpoint", str(tmp_path / "run"), "--out", str(tmp_path),
    )  # fmt: skip
    assert code == 0
    assert json.loads(out)["samples"] == 400
    ((title, count),) = titles
    assert count == 150 and title.startswith("Rocking block, the first 150 of 400 samples: ")


def test_progress_has_a_rate_without_what_was_stored(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = iter([0.0, 1.0, 3.0, 5.0, 6.0, 15.0])
    monkeypatch.setattr("jaxcontact.cli.progress.time.perf_counter", lambda: next(clock))
    report = rate_of_samples(500)
    for done in (400, 500, 600, 700, 1600):
        report(done, 2600)
    lines = [line.strip() for line in capsys.readouterr().err.split("\r") if line.strip()]
    assert lines == [
        "500 of 2600 samples",
        "600 of 2600 samples",
        "700 of 2600 samples, 100 per second, 19 s left",
        "1600 of 2600 samples, 100 per second, 10 s left",
    ]


def test_interrupted(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(impact, "sample", interrupt)
    code, _, err = run(capsys, "impact", "rocking_block", "--checkpoint", "nowhere")
    assert code == 130
    assert "interrupted; the same command continues" in err


@pytest.mark.slow
def test_coverage_is_stated_and_drawn(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, saved: dict[str, Any]
) -> None:
    arguments = ["impact", "rocking_block", "--samples", "1024", "--out", str(tmp_path), "--coverage"]
    code, out, _ = run(capsys, *arguments)
    assert code == 0
    assert "of 512 samples, 99 % confidence each" in out
    assert "at most   1.00 % of the outcomes are farther than" in out
    assert "0.10 % of the outcomes are farther than ?: too few samples" in out
    _, radii = saved["rocking_block_coverage.png"].axes
    assert (tmp_path / "rocking_block_coverage.png").exists()
    code, out, _ = run(capsys, *arguments, "--json")
    said = json.loads(out)["coverage"]
    np.testing.assert_allclose(radii.lines[0].get_ydata()[-1], said["farther_than"][0], rtol=1e-12)
    assert said["at_most"] == [0.1, 0.01, 0.001]
    assert said["farther_than"][0] < said["farther_than"][1] < 0.05
    assert said["farther_than"][2] is None
    code, _, err = run(capsys, *arguments[:2], "--samples", "8", "--out", str(tmp_path), "--coverage")
    assert code == 2 and "--coverage: samples: expected at least 16" in err


@pytest.mark.long
def test_a_reader_may_leave_early() -> None:
    command = f"{shlex.quote(sys.executable)} -m jaxcontact models | true"
    ran = subprocess.run(command, shell=True, capture_output=True, text=True, check=True)
    assert ran.stderr == ""


def test_inspect_tells_what_a_robot_is_made_of(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "walker.xml"
    path.write_text(file_of("planar_walker").replace("<option ", '<option integrator="RK4" '))
    assert main(["inspect", str(path), "--planar"]) == 0
    printed = capsys.readouterr().out
    for line in (
        "plane: 7 bodies, nq 9, nv 9, 20.96 kg, 6 joints limited",
        "    left_shank: hinge left_knee, 2.141 kg",
        "shapes that may touch: 4 Disc, 1 HalfSpace; 4 candidate contacts",
        "  left_heel on floor: 1, friction 0.8",
        "actuators: left_hip, left_knee",
        "  left_ankle: force of left_ankle, N m, gear 30",
        "  ignored: option integrator",
    ):
        assert line in printed, printed
    assert main(["inspect", "missing.xml"]) == 2
    assert capsys.readouterr().err == "jaxcontact: FILE: no file 'missing.xml'\n"


def test_slow_samples_are_announced(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    v = np.zeros(3)
    impact_command._tell_of_machine_code("lemke", v)
    impact_command._tell_of_machine_code("all", v)
    assert not capsys.readouterr().err
    monkeypatch.setattr(lemke_on_host, "is_offered", lambda v: False)
    impact_command._tell_of_machine_code("all", v)
    assert not capsys.readouterr().err
    impact_command._tell_of_machine_code("lemke", v)
    assert "pip install jaxcontact[friction]" in capsys.readouterr().err
