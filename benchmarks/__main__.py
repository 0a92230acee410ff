"""`python -m benchmarks [-k REGEX] [--json FILE] [--figures DIR] [--list]`, `python -m benchmarks robots`.

On an accelerator `python -m benchmarks gpu`, which elsewhere says what bound bytes and FLOPs give;
without one `python -m benchmarks kernels` counts what programs would launch there.
Of impacts in space also `python -m benchmarks missed_outcomes`, `missed_steps` and `polygon_sides`,
of motion `python -m benchmarks scenes` and `python -m benchmarks steppers_compared`,
of random problems against independent oracles `python -m benchmarks fuzz [--minutes N] [--seed S]`,
of friction problems `python -m benchmarks friction`, of loops `python -m benchmarks fixed_iterations`,
of gradients of many worlds `python -m benchmarks lanes`.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from pathlib import Path

import jax

from benchmarks import (
    boxes,
    cluster,
    compliant,
    ess,
    fixed_iterations,
    friction,
    gait,
    gait_basin,
    gait_gradients,
    gait_peers,
    gpu,
    gpu_kernels,
    hop_by_openscvx,
    hop_by_scipy,
    hopper,
    identify_arm,
    identify_tosses,
    impact,
    invariant_landing,
    lanes,
    lcp,
    missed_outcomes,
    missed_steps,
    motion,
    one_outcome_robot,
    own_optimiser,
    polygon_sides,
    push_from_afar,
    report,
    robot_files,
    robot_gaits,
    robot_motions,
    robots,
    robust_cheetah,
    robust_gait,
    robust_landings,
    runner,
    scaling,
    scenes,
    stability,
    steppers_compared,
    tie,
    trot,
)


def main() -> int:
    """Run the cases whose names match and print a Markdown table."""
    if sys.argv[1:2] == ["fuzz"]:
        from benchmarks.fuzz.__main__ import main as fuzz

        return fuzz(sys.argv[2:])
    apart = {
        "fixed_iterations": fixed_iterations,
        "cluster": cluster,
        "friction": friction,
        "robots": robots,
        "robot_files": robot_files,
        "robot_motions": robot_motions,
        "gpu": gpu,
        "kernels": gpu_kernels,
        "lanes": lanes,
        "missed_outcomes": missed_outcomes,
        "missed_steps": missed_steps,
        "polygon_sides": polygon_sides,
        "scenes": scenes,
        "steppers_compared": steppers_compared,
    }
    if sys.argv[1:2] and sys.argv[1] in apart:
        return apart[sys.argv[1]].main(sys.argv[2:])
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("-k", default="", metavar="REGEX", help="only cases whose name matches")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the figures there")
    parser.add_argument("--figures", type=Path, metavar="DIR", help="also draw the plots there")
    parser.add_argument(
        "--put", nargs=2, metavar=("PAGE", "NAME"), help="put the table on a page, at its marks"
    )
    parser.add_argument("--list", action="store_true", help="only list the cases")
    options = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    known = [
        *impact.CASES,
        *lcp.CASES,
        *scaling.CASES,
        *compliant.CASES,
        *boxes.CASES,
        *ess.CASES,
        *hopper.CASES,
        *gait.CASES,
        *robot_gaits.CASES,
        *gait_basin.CASES,
        *gait_peers.CASES,
        *gait_gradients.CASES,
        *own_optimiser.CASES,
        *hop_by_openscvx.CASES,
        *hop_by_scipy.CASES,
        *robust_gait.CASES,
        *robust_cheetah.CASES,
        *robust_landings.CASES,
        *invariant_landing.CASES,
        *push_from_afar.CASES,
        *identify_arm.CASES,
        *one_outcome_robot.CASES,
        *identify_tosses.CASES,
        *tie.CASES,
        *trot.CASES,
        *motion.CASES,
        *stability.CASES,
    ]
    cases = [case for case in known if re.search(options.k, case.name)]
    if options.list:
        print("\n".join(case.name for case in cases))
        return 0
    head = runner.header()
    print("\n".join(f"{key}: {value}" for key, value in head.items()), flush=True)
    rows = []
    for case in cases:
        print(f"  {case.name} ...", file=sys.stderr, flush=True)
        try:
            rows.append(runner.measure(case))
        except ImportError as error:
            rows.append({"name": case.name, "skipped": runner.reason_to_skip(error)})
    print(runner.as_table(rows))
    if options.put:
        told = ", ".join(
            f"{key} {head[key]}" for key in ("device", "dtype", "jax", "mujoco", "date", "commit")
        )
        report.put(Path(options.put[0]), options.put[1], f"{told}.\n\n{runner.as_table(rows)}")
    if options.json:
        options.json.write_text(json.dumps({"header": head, "results": rows}, indent=2))
    if options.figures:
        options.figures.mkdir(parents=True, exist_ok=True)
        drawings = (("scaling ", scaling), ("ess_vs_mujoco ", ess), ("ess hopper ", hopper))
        for prefix, module in drawings:
            mine = [row for row in rows if row["name"].startswith(prefix) and "skipped" not in row]
            if mine:
                module.draw(mine, options.figures / f"{prefix.strip().replace(' ', '_')}.png")
        motion.draw(options.figures)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
