"""Drops of robot files: where they start, what is added for them, and the table of all."""

import mujoco
import numpy as np
import pytest

from benchmarks import robot_motions

BALL = """<mujoco><worldbody>{floor}<body pos="0 0 3"><freejoint/>
<geom size="0.1" mass="2"/></body></worldbody></mujoco>"""
FLOOR = '<geom type="plane" size="5 5 1"/>'


def test_a_drop_starts_above_its_first_touch():
    mj = mujoco.MjModel.from_xml_string(BALL.format(floor=FLOOR))
    (joint,) = robot_motions.falling_joints(mj)
    q = robot_motions.lifted(mj, np.array(mj.qpos0), [joint])
    assert abs(q[2] - 0.1 - robot_motions.HEIGHT) < 2e-4
    np.testing.assert_array_equal(q[3:], mj.qpos0[3:])


def test_a_file_gets_what_it_lacks_for_a_fall(tmp_path):
    texts = {"ball.xml": BALL.format(floor=""), "floor.xml": BALL.format(floor=FLOOR)}
    texts["held.xml"] = BALL.format(floor=FLOOR).replace("freejoint", 'joint axis="0 1 0"')
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    assert robot_motions.options_of(tmp_path / "ball.xml") == {"floor": 0.0}
    assert robot_motions.options_of(tmp_path / "floor.xml") == {}
    assert robot_motions.options_of(tmp_path / "held.xml") == {}


@pytest.mark.slow
def test_a_ball_rests_with_its_weight_on_the_floor(tmp_path):
    path = tmp_path / "ball.xml"
    path.write_text(BALL.format(floor=FLOOR))
    row = robot_motions.measure(path, tmp_path / "pages")
    assert robot_motions.rests(row) and row["drop converged %"] == 100.0
    assert row["error"] < 1e-2 and row["us"] > 0.0
    assert {file.suffix for file in (tmp_path / "pages").iterdir()} == {".html", ".png"}


def test_the_table_counts_what_was_not_done():
    done = {
        "nv": 6, "candidates": 4, "seen": None, "dt": 0.002, "added": ["floor"], "left_out": [],
        "first_cpu_s": 9.0, "speed": 1e-6, "drop converged %": 100.0, "carried": 1.0, "us": 3.0,
        "mujoco us": 2.0, "error": 1e-4, "mujoco error": 1e-3, "converged %": 100.0,
    }  # fmt: skip
    names = [{"package": "p", "file": f"folder/{k}.xml"} for k in range(3)]
    rows = [names[0] | done, names[1] | {"error": "not done"}]
    rows.append(names[2] | {"error": robot_motions.NOT_BEGUN})
    text = robot_motions.as_table(rows)
    assert text.startswith("1 of 3 files were measured; 1 failed or were not done in ")
    assert "1 were not begun" in text and "2.xml" not in text
    lines = [line for line in text.splitlines() if line.startswith("|")]
    assert len(lines) == 4 and {line.count("|") for line in lines} == {len(robot_motions.COLUMNS) + 1}
    assert "| yes |" in lines[2] and "| 1.5 |" in lines[2]
