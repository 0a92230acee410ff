"""`python -m benchmarks missed_outcomes [-k WORD] [--results FILE]`: what other selections miss of "all".

A box lands turning on some of its corners. The same draws serve "all", "visited" and "lemke", so a sample
ends elsewhere only where some step missed a solution. A step of n solutions that lacks one changes a
quarter to a half of the picks: at most four times as many steps miss a solution as samples end elsewhere.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import jaxcontact as jc
from benchmarks import report, runner
from benchmarks.impact import landing_box
from jaxcontact.cli.cluster import add_cluster_option
from jaxcontact.impact.sampling.outcomes import outcome_shares

STEP, MAX_STEPS = 0.2, 15  # N s; steps
SAME = 1e-9  # m/s, rad/s; outcomes that differ by less are one


class Case(NamedTuple):
    """A landing on so many corners, sides of its friction cones, samples of the pilot and behind it."""

    corners: int
    friction: float
    sides: int
    pilot: int
    samples: int


CASES = (
    Case(2, 0.6, 4, 2048, 6144),
    Case(2, 1.5, 4, 2048, 6144),
    Case(3, 0.6, 4, 2048, 6144),
    Case(3, 1.5, 4, 2048, 6144),
    Case(3, 1.5, 8, 512, 1536),
    Case(4, 0.6, 4, 512, 1536),
    Case(4, 1.5, 4, 512, 1536),
)


def compare(case: Case) -> dict[str, Any]:
    """Samples of "visited", behind its pilot, and of "lemke", beside those of "all" with the same draws."""
    terms, v = landing_box(case.corners)
    terms = terms.replace(mu=jnp.full(case.corners, case.friction))
    samples, spent = {}, {}
    for selection in ("all", "visited", "lemke"):
        begin = time.process_time()
        samples[selection] = jc.impact.sample(
            terms,
            v,
            jc.impact.Routh(
                impulse_step=STEP, max_steps=MAX_STEPS, num_directions=case.sides, selection=selection
            ),
            num_samples=case.pilot + case.samples,
        )
        spent[selection] = time.process_time() - begin
    outcome = {name: np.asarray(each.v_plus) for name, each in samples.items()}
    elsewhere = {
        name: np.abs(outcome["all"] - outcome[name]).max(axis=1) > SAME for name in ("visited", "lemke")
    }
    shares = {name: dict(outcome_shares(each, terms)) for name, each in samples.items()}
    every, pivoted = shares["all"], shares["lemke"]
    return {
        "case": case,
        "complete": samples["all"].complete,
        "failed": sum(int(np.count_nonzero(np.asarray(each.status))) for each in samples.values()),
        "steps": int(np.asarray(samples["all"].num_iters)[case.pilot :].sum()),
        "visited": int(elsewhere["visited"][case.pilot :].sum()),
        "lemke": float(elsewhere["lemke"].mean()),
        "variation": sum(abs(every.get(k, 0) - pivoted.get(k, 0)) for k in every | pivoted) / 2,
        "never": sum(share for name, share in every.items() if name not in pivoted),
        "spent": spent,
    }


def table(found: list[dict[str, Any]]) -> str:
    """A row per landing."""
    head = runner.header()
    columns = (
        "corners, friction, sides", '"all" complete', "samples (steps) behind the pilot",
        'of "visited" end elsewhere', "steps that miss a solution", 'of "lemke" end elsewhere',
        "its shares of combinations are off by", "of combinations that it never finds",
        "processor s: all, visited, lemke", "failed",
    )  # fmt: skip
    lines = [
        f"Processor times are of a busy machine, with compiling. {head['device']}, {head['dtype']}, "
        f"jax {head['jax']}; {head['date']}, commit {head['commit']}.",
        "",
        f"| {' | '.join(columns)} |",
        "|---" * len(columns) + "|",
    ]
    for row in found:
        case, count = row["case"], row["visited"]
        spent = ", ".join(f"{seconds:.0f}" for seconds in row["spent"].values())
        bound = 4 * max(count, 3) / row["steps"]  # of none, 95 % confidence
        lines.append(
            f"| {case.corners}, {case.friction}, {case.sides} | {row['complete']} "
            f"| {case.samples} ({row['steps']}) | {count} | at most {100 * bound:.2g} % "
            f"| {100 * row['lemke']:.1f} % | {100 * row['variation']:.1f} % | {100 * row['never']:.1f} % "
            f"| {spent} | {row['failed']} |"
        )
    return "\n".join(lines)


def main(arguments: list[str]) -> int:
    """Print the table; with --results also put it on that page."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks missed_outcomes", description=__doc__)
    parser.add_argument("-k", default="", metavar="WORD", help='only cases that begin so: "3, 1.5"')
    parser.add_argument("--results", type=Path, metavar="FILE", help="also put the table there")
    add_cluster_option(parser)
    options = parser.parse_args(arguments)
    jax.config.update("jax_enable_x64", True)
    cases = [
        (case,) for case in CASES if f"{case.corners}, {case.friction}, {case.sides}".startswith(options.k)
    ]
    found = []
    for row in runner.results_of(compare, cases, options):
        found.append(row)
        print(f"  {row}", file=sys.stderr, flush=True)
    print(table(found))
    if options.results:
        report.put(options.results, "missed outcomes", table(found))
    return 0
