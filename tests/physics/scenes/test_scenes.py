"""Exact values against MuJoCo with stiff contacts and tiny steps; scenes under the steppers that claim them."""

import numpy as np
import pytest

from benchmarks.scenes import measure, table

from . import MAKERS, movers, scene
from .scene import ALL, COMPLIANT, EVENTS, MUJOCO, STEPPING, STIFF, VARIATIONAL

pytest.importorskip("mujoco")

LAWS = ("ball_bounces", "elastic_chain", "billiards", "limit_with_restitution")  # MuJoCo has no restitution
# MuJoCo's springs flutter in the corner under friction, and rebound from a limit by 13 %; both have closed forms.
NOT_BY_SPRINGS = ("ball_spins_in_a_corner", "limit_stops")
# Time step and time constant of contacts, s: the smallest tolerances need small ones.
TINY = dict.fromkeys(("slide_oblique", "top_on_the_floor", "dry_pendulum"), (2e-5, 4e-4))
TINY["dry_slide"] = (2e-5, 4e-5)
CHEAP = (
    ("incline_slides", COMPLIANT),
    ("dry_slide", COMPLIANT),
    ("dry_slide", STEPPING),
    ("limit_stops", STIFF),
    ("brake", STEPPING),
    ("limit_with_restitution", STEPPING),
    ("limit_with_restitution", EVENTS),
    ("dry_pendulum", EVENTS),
    ("four_bar", EVENTS),
    ("painleve_jams", EVENTS),
    ("ball_off_a_ball", EVENTS),
    ("ball_wedges_two_apart", EVENTS),
    ("top_on_a_joint", VARIATIONAL),
    ("dry_slide", VARIATIONAL),
    ("dry_pendulum", VARIATIONAL),
    ("four_bar", VARIATIONAL),
)


@pytest.mark.long
@pytest.mark.parametrize("name", [name for name in MAKERS if name not in (*LAWS, *NOT_BY_SPRINGS)])
def test_an_exact_value_is_that_of_mujoco_with_stiff_contacts(name):
    example = scene(name)
    dt, constant = TINY.get(name, (1e-4, 1e-3))
    path = movers.mujoco_path(example, dt, solref=(constant, 1.0))
    allowed = example.tolerances(STEPPING, example.dts[0])
    np.testing.assert_array_less(example.errors(path), allowed)


@pytest.mark.slow
@pytest.mark.slow_cases(
    "brake-TimeStepping",
    "limit_with_restitution-EventDriven",
    "dry_pendulum-EventDriven",
    "four_bar-EventDriven",
    "painleve_jams-EventDriven",
    "ball_off_a_ball-EventDriven",
    "ball_wedges_two_apart-EventDriven",
)
@pytest.mark.parametrize("name, stepper", CHEAP)
def test_a_scene_is_right_at_a_coarse_step(name, stepper):
    example = scene(name)
    dt = example.dts[0]
    (run,) = movers.move(example, stepper, (dt,))
    assert run.path is not None and run.failed == 0, (run.refusal, run.status)
    np.testing.assert_array_less(example.errors(run.path), example.tolerances(stepper, dt))


def test_a_stepper_that_refuses_a_scene_says_why(monkeypatch):
    def refuse(name, law):
        raise ValueError("system: no such joints")

    monkeypatch.setattr(movers, "stepper_of", refuse)
    (run,) = movers.move(scene("dry_slide"), VARIATIONAL, (0.01,))
    assert run.path is None and run.refusal == "system: no such joints"


def test_the_table_shows_what_fails_in_bold():
    lines = [measure("dry_slide", MUJOCO), measure("billiards", COMPLIANT)]
    assert lines[1]["verdict"] == "not asked"
    lines.append(lines[0] | {"stepper": VARIATIONAL, "verdict": "refused"})
    bad = dict(
        lines[0], stepper=COMPLIANT, ratios=[0.5, 2.0, np.nan], verdict="FAILS", status=["STALLED", "", ""]
    )
    text = table([bad, *lines])
    assert "**0.5 2 nan** (STALLED)" in text and "1 fail" in text and "| refused |" in text


@pytest.mark.slow
@pytest.mark.parametrize("stepper", ALL)
@pytest.mark.parametrize("name", MAKERS)
def test_every_scene_under_every_stepper(name, stepper):
    line = measure(name, stepper)
    assert line["verdict"] != "FAILS", line
