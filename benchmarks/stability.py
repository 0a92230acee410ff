"""Certificates, their checks, the falsifier and charts: time per point, and what was proved.

Correctness is the share of points with a checked certificate, and of contradictions between certificate and
motions, of which there must be none.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.runner import Case
from jaxcontact import stability
from jaxcontact.stability.chart import FIGURES

POINTS = 5


def _bodies(name: str) -> list[stability.PlanarBiped]:
    make_body, ranges = FIGURES[name]
    (_, (low, high)), (_, (bottom, top)) = ranges.items()
    x, y = np.linspace(low, high, POINTS), np.linspace(max(bottom, 0.4), top, POINTS)
    return [make_body(a, b) for a in x for b in y]


def _certify(name: str, method: str) -> Callable[[], dict[str, Any]]:
    bodies = _bodies(name)

    def run() -> dict[str, Any]:
        found = [stability.certify(body, method=method) for body in bodies]
        return {
            "stable %": 100.0 * np.mean([each.verdict == "stable" for each in found]),
            "solver ms": 1e3 * float(np.mean([each.residuals.get("solver_seconds", 0.0) for each in found])),
        }

    return run


def _check(name: str) -> Callable[[], dict[str, Any]]:
    found = [stability.certify(body) for body in _bodies(name)]
    stable = [each for each in found if each.verdict == "stable"]

    def run() -> dict[str, Any]:
        passed = [stability.check(each) for each in stable]
        return {"certificates": len(stable), "passed %": 100.0 * float(np.mean(passed))}

    return run


def _falsify(name: str) -> Callable[[], dict[str, Any]]:
    bodies = _bodies(name)

    def run() -> dict[str, Any]:
        found = [stability.falsify(body, num_samples=64) for body in bodies]
        return {
            "falsified %": 100.0 * float(np.mean([each.found for each in found])),
            "undecided motions %": 100.0 * float(np.mean([each.share[0] + each.share[3] for each in found])),
        }

    return run


def _chart(name: str, points: int) -> Callable[[], dict[str, Any]]:
    make_body, ranges = FIGURES[name]
    grid = {key: np.linspace(*ends, points) for key, ends in ranges.items()}

    def run() -> dict[str, Any]:
        found = stability.chart(make_body, grid)
        counts = {f"{r.name.lower()}": int(np.sum(found.region == r)) for r in stability.Region}
        return counts | {"contradictions": found.contradictions}

    return run


_POINT = {"items": POINTS**2, "repeats": 3}
CASES = [
    Case(name="stability certify fig2", setup=functools.partial(_certify, "fig2", "homogeneous"), **_POINT),
    Case(name="stability certify fig3", setup=functools.partial(_certify, "fig3", "homogeneous"), **_POINT),
    Case(
        name="stability certify fig2 full", setup=functools.partial(_certify, "fig2", "full"),
        items=POINTS**2, repeats=1,
    ),
    Case(name="stability check fig2", setup=functools.partial(_check, "fig2"), **_POINT),
    Case(name="stability check fig3", setup=functools.partial(_check, "fig3"), **_POINT),
    Case(name="stability falsify fig2", setup=functools.partial(_falsify, "fig2"), **_POINT),
    Case(name="stability falsify fig3", setup=functools.partial(_falsify, "fig3"), **_POINT),
    Case(name="stability chart fig2", setup=functools.partial(_chart, "fig2", 30), items=900, repeats=1),
    Case(name="stability chart fig3", setup=functools.partial(_chart, "fig3", 30), items=900, repeats=1),
]  # fmt: skip
