"""`jaxcontact stability`: decides whether a planar biped on a slope is stable, or charts many bipeds."""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from pathlib import Path

import numpy as np

from jaxcontact import stability, viz
from jaxcontact.batching.progress import progress_line
from jaxcontact.batching.run_settings import Run
from jaxcontact.cli.cluster import count_of, executor_of
from jaxcontact.stability.chart import FIGURES, biped_on_slope

TITLES = {
    "fig2": "slope of 30 degrees, mu2 = 2, e = 0, h = 1",
    "fig3": "slope of 20 degrees, e = 0.1, h = 1, equal friction",
}


def command(options: argparse.Namespace) -> int:
    """Run the command; return 0, or 1 for a contradiction, 2 for wrong usage."""
    try:
        return _make_chart(options) if options.chart else _judge_point(options)
    except (ValueError, ImportError, OSError) as error:
        print(f"jaxcontact: {error}", file=sys.stderr)
        return 2


def _judge_point(options: argparse.Namespace) -> int:
    body = biped_on_slope(
        math.radians(options.alpha), options.h, options.d, mu1=options.mu1, mu2=options.mu2,
        phi1=math.radians(options.phi1), phi2=math.radians(options.phi2), e1=options.e1, e2=options.e2,
    )  # fmt: skip
    begin = time.perf_counter()
    certificate = stability.certify(body, method=options.method)
    spent = time.perf_counter() - begin
    checked = stability.check(certificate)
    falsified = stability.falsify(body, num_samples=options.samples, seed=options.seed)
    summary = {
        "verdict": certificate.verdict,
        "checked": checked,
        "report": certificate.report,
        "law": certificate.law,
        "margin": certificate.residuals.get("margin"),
        "diverging_motions": float(falsified.share[2]),
        "seconds": spent,
    }
    if options.json:
        print(json.dumps(summary, indent=2))
    else:
        exact = "interval" if certificate.levels is not None else "rational"
        proof = f"checked in {exact} arithmetic" if checked else "no proof"
        print(f"{certificate.verdict}: {certificate.report} ({proof})")
        for number, V in enumerate(certificate.V, 1):
            linear = np.array2string(np.array([float(x) for x in V.linear]), precision=4)
            print(f"  a of V_{number}           {linear}")
        if "margin" in certificate.residuals:
            print(f"  margin             {certificate.residuals['margin']:.3g}")
        print(f"  impacts            {certificate.law}")
        print(f"  diverging motions  {falsified.share[2]:.1%} of {options.samples}")
        print(f"  time               {1e3 * spent:.0f} ms for the certificate")
    return int(certificate.verdict == "stable" and falsified.found)


def _make_chart(options: argparse.Namespace) -> int:
    make_body, ranges = FIGURES[options.chart]
    grid = {name: np.linspace(*ends, options.points) for name, ends in ranges.items()}
    folder: Path = options.out
    folder.mkdir(parents=True, exist_ok=True)
    stem = f"stability_{options.chart}_{options.points}"
    begin = time.perf_counter()
    with executor_of(options) as executor:
        show = progress_line(also=count_of(executor))
        chart = stability.chart(
            make_body, grid, num_samples=options.samples, seed=options.seed,
            run=Run(checkpoint=folder / f"{stem}.npz", progress=show, executor=executor),
        )  # fmt: skip
    picture = folder / f"{stem}.png"
    viz.plot_stability_chart(chart, title=TITLES[options.chart]).savefig(picture, dpi=110)
    counts = {region.name.lower(): int(np.sum(chart.region == region)) for region in stability.Region}
    summary = {
        "chart": options.chart,
        "points": int(chart.region.size),
        **counts,
        "contradictions": chart.contradictions,
        "seconds": time.perf_counter() - begin,
        "files": [str(picture), str(folder / f"{stem}.npz")],
    }
    if options.json:
        print(json.dumps(summary, indent=2))
    else:
        for name, value in summary.items():
            print(f"  {name:<16} {value if not isinstance(value, float) else f'{value:.1f}'}")
    return int(chart.contradictions > 0)
