"""The one line that all drivers print, and what the optimisers say in it."""

import re

import jax.numpy as jnp
import numpy as np
import pytest

import jaxcontact as jc
from jaxcontact.optimize import DesignTask, Progress


def test_a_line_has_the_time_left_of_its_phase(monkeypatch, capsys):
    clock = iter([0.0, 10.0, 12.0, 14.0, 16.0])
    monkeypatch.setattr("jaxcontact.batching.progress.time.perf_counter", lambda: next(clock))
    report = jc.progress_line()
    for step, total in ((1, 5), (2, 5), (1, 4), (2, 4)):
        report(step, total, Progress(0.5, 0.02, 1e-3))
    lines = [line.split("slope 2e-02  ")[1].rstrip() for line in capsys.readouterr().err.split("\r")[1:]]
    assert lines == ["10 s", "12 s, 6 s left", "14 s", "16 s, 4 s left"]


def test_a_report_has_what_there_is():
    assert str(Progress(0.5, 0.02)) == "cost 0.5  slope 2e-02"
    assert str(Progress(1e-9, 0.0, 1e-3, "exact")) == "exact: cost 1e-09  error 1e-03  slope 0e+00"


def trajectory(run):
    jc.optimize.trajectory(
        lambda z: jnp.sum(z**4), jnp.ones(2), constraints=lambda z: z[:1] - 0.5, num_steps=3, run=run
    )


def gait(run):
    problem, params, free0 = jc.optimize.gaits.hopper()
    jc.optimize.gait(problem, params, free0, speed=1.0, num_steps=2, run=run)


def identify(run):
    jc.optimize.identify(
        lambda p, data: (p["a"] - data) ** 2, {"a": jnp.array(1.0)}, jnp.array([3.0, 4.0]), run=run
    )


def identify_motions(run):
    jc.optimize.identify_motions(
        lambda p, motion, data: p["a"] ** 2 * motion - data,
        {"a": jnp.array(1.0)}, jnp.ones((2, 1)), jnp.array([[3.0], [4.0]]), run=run,
    )  # fmt: skip


def impact_design(run):
    model = jc.models.compass_gait()
    task = DesignTask(contacts=(0, 1))
    jc.optimize.impact_design(model, model.initial_state(), task, run=run)


@pytest.mark.parametrize(
    "search, has_error",
    [(trajectory, True), (identify, False), (identify_motions, False), (impact_design, True),
     pytest.param(gait, True, marks=pytest.mark.long)],
)  # fmt: skip
def test_every_optimiser_reports_in_one_form(search, has_error, capsys):
    seen, line = [], jc.progress_line()

    def report(done, total, at):
        seen.append((done, total, at))
        line(done, total, at)

    search(jc.Run(progress=report))
    assert seen
    for done, total, at in seen:
        assert 0 < done <= total and isinstance(at, Progress)
        assert np.isfinite(at.cost) and at.slope >= 0.0 and (at.residual is not None) == has_error
    lines = capsys.readouterr().err.split("\r")[1:]
    assert len(lines) == len(seen)
    assert all(re.search(r"\d+/\d+  .*cost .*slope \S+  \d+ s", text) for text in lines)
