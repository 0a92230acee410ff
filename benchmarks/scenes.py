"""`python -m benchmarks scenes [-k REGEX] [--steppers LIST] [--json FILE] [--put PAGE]`: everyday scenes.

Every scene of tests/physics/scenes under every stepper and three dt, beside MuJoCo: the error in parts of the
tolerance that stands in the scene's file. Compiling is most of the time: about a minute a scene.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import time
from pathlib import Path
from typing import Any

import jax
import numpy as np

from benchmarks import report, runner


def measure(name: str, stepper: str) -> dict[str, Any]:
    """Run a scene by a stepper at its three dt; return a line for the table."""
    from tests.physics import scenes
    from tests.physics.scenes import movers
    from tests.physics.scenes.scene import MUJOCO

    scene = scenes.scene(name)
    line: dict[str, Any] = {"maker": name, "scene": scene.name, "stepper": stepper, "dts": scene.dts}
    line["claimed"] = stepper in scene.claims or stepper == MUJOCO
    line["quantities"] = [(each.name, each.exact) for each in scene.quantities]
    if stepper in scene.not_asked:
        return line | {"verdict": "not asked"}
    begin = time.perf_counter()
    runs = movers.move(scene, stepper, scene.dts)
    line["seconds"] = round(time.perf_counter() - begin, 2)
    if any(run.path is None for run in runs):
        line["refusal"] = next(run.refusal for run in runs if run.path is None)
        return line | {"verdict": "FAILS" if line["claimed"] else "refused"}
    errors = np.array([scene.errors(run.path) for run in runs])
    tolerances = np.array([scene.tolerances(stepper, dt) for dt in scene.dts])
    line |= {"errors": errors.tolist(), "ratios": (errors / tolerances).max(axis=1).tolist()}
    line |= {"status": [run.status for run in runs], "failed": [run.failed for run in runs]}
    flagged = [run.failed > 0 for run in runs]
    wrong = [not ratio <= 1.0 for ratio in line["ratios"]]  # NaN is wrong
    if line["claimed"]:
        bad = any(wrong) or any(flagged)
    else:
        bad = any(is_wrong and not is_flagged for is_wrong, is_flagged in zip(wrong, flagged))
    return line | {"verdict": "FAILS" if bad else "right" if not any(wrong) else "says so"}


def cell(line: dict[str, Any] | None) -> str:
    """Write a cell: the largest error at each dt in parts of its tolerance, and the bits."""
    if line is None:
        return ""
    if line["verdict"] in ("not asked", "refused"):
        return "-" if line["verdict"] == "not asked" else "refused"
    if "ratios" not in line:
        return "**refused**"
    text = " ".join(f"{ratio:.2g}" if ratio < 1e4 else f"{ratio:.0e}" for ratio in line["ratios"])
    if line["verdict"] == "FAILS":
        text = f"**{text}**"
    bits = sorted({bit for status in line["status"] for bit in status.split("|") if bit})
    share = max(line["failed"])
    failures = f", {100 * share:.2g} %" if share else ""
    return text + (f" ({', '.join(bits)}{failures})" if bits else "")


def table(lines: list[dict[str, Any]]) -> str:
    """Write the table, a list of what fails, and the exact values."""
    from tests.physics.scenes.scene import ALL, MUJOCO

    columns = (*ALL, MUJOCO)
    by_place = {(line["maker"], line["stepper"]): line for line in lines}
    makers = list(dict.fromkeys(line["maker"] for line in lines))
    rows, values = [], []
    for maker in makers:
        first = next(line for line in lines if line["maker"] == maker)
        dts = " ".join(f"{1e3 * dt:g}" for dt in first["dts"])
        cells = " | ".join(cell(by_place.get((maker, column))) for column in columns)
        rows.append(f"| {first['scene']} | {dts} | {cells} |")
        values.append(
            f"| {first['scene']} | " + ", ".join(f"{n} {x:.5g}" for n, x in first["quantities"]) + " |"
        )
    asked = [line for line in lines if line["stepper"] != MUJOCO and line["verdict"] != "not asked"]
    failing = sum(line["verdict"] == "FAILS" for line in asked)
    return "\n".join(
        [
            f"{len(makers)} scenes; of {len(asked)} rows of a scene and a stepper {failing} fail (bold).",
            "",
            f"| scene | dt, ms | {' | '.join(columns)} |",
            "|---" * (len(columns) + 2) + "|",
            *rows,
            "",
            "| scene | exact values at the end |",
            "|---|---|",
            *values,
        ]
    )


def main(arguments: list[str]) -> int:
    """Run the scenes that match, and print the table; 1 if a row fails."""
    from tests.physics import scenes
    from tests.physics.scenes.scene import ALL, MUJOCO, STIFF

    parser = argparse.ArgumentParser(prog="python -m benchmarks scenes", description=__doc__)
    parser.add_argument("-k", default="", metavar="REGEX", help="only scenes whose maker matches")
    parser.add_argument(
        "--steppers",
        default=",".join((*ALL, MUJOCO)).replace(STIFF, "stiff"),
        metavar="LIST",
        help="some of Compliant,stiff,TimeStepping,EventDriven,Variational,MuJoCo",
    )
    parser.add_argument(
        "--json", type=Path, metavar="FILE", help="lines of a run before, replaced and added to"
    )
    parser.add_argument("--put", type=Path, metavar="PAGE", help="also put the table there, at its marks")
    options = parser.parse_args(arguments)
    jax.config.update("jax_enable_x64", True)
    lines = {}
    if options.json and options.json.exists():
        for text in options.json.read_text().splitlines():
            line = json.loads(text)
            lines[line["maker"], line["stepper"]] = line
    chosen = [name.replace("stiff", STIFF) for name in options.steppers.split(",") if name]
    for maker in scenes.MAKERS:
        for stepper in chosen if re.search(options.k, maker) else ():
            print(f"  {maker}, {stepper} ...", end=" ", file=sys.stderr, flush=True)
            line = measure(maker, stepper)
            print(cell(line), line["verdict"], line.get("refusal", ""), file=sys.stderr, flush=True)
            lines[maker, stepper] = line
            if options.json:
                with options.json.open("a") as file:
                    file.write(json.dumps(line) + "\n")
        if re.search(options.k, maker):
            jax.clear_caches()  # every compiled program holds memory maps
    places = {maker: k for k, maker in enumerate(scenes.MAKERS)}
    ordered = sorted(
        (line for line in lines.values() if line["maker"] in places), key=lambda x: places[x["maker"]]
    )
    head = runner.header()
    packages = ", ".join(f"{key} {head[key]}" for key in ("dtype", "jax", "mujoco", "date", "commit"))
    text = f"{packages}.\n\n{table(ordered)}"
    print(text)
    if options.put:
        report.put(options.put, "scenes", text)
    return int(any(line["verdict"] == "FAILS" and line["stepper"] != MUJOCO for line in ordered))
