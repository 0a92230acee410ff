"""Who is fitted on what: the shipped tosses fit and another file is scored, or halves of the shipped by toss.

A toss that is scored has no part in geometry, parameters or spreads that its score rests on. The noise of
poses is measured on all shipped tosses, in flight alone.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.cube_tosses import fit, geometry, impacts, laws, one_impact, scores, tosses, whole_toss
from benchmarks.cube_tosses.impacts import Impacts

HALVES = 2
WHOLE = 120  # tosses that are predicted as a whole, at most


def clean_impacts(parts: list[tuple[Impacts, Counter]], train: Any) -> tuple[geometry.Geometry, Any]:
    """Geometry from the impacts of training tosses, found with the published cube at first."""
    first, _ = impacts.clean(*parts[0], geometry.Geometry())
    first = first.take(np.isin(first.toss, train))
    gap = geometry.corner_gaps(first.q, geometry.Geometry())
    speed = geometry.corner_speeds(first.q, first.before, geometry.Geometry())
    approach = -np.take_along_axis(speed, gap.argmin(axis=1)[:, None], axis=1)[:, 0]
    return geometry.fit(first.q, approach, first.toss)


def split(
    shipped: tosses.Tosses, scored: tosses.Tosses, noise: np.ndarray, train: np.ndarray, test: np.ndarray,
    *, whole: int, seed: int, say: Any,
) -> dict[str, Any]:  # fmt: skip
    """Fit on the tosses `train` of the shipped, score the tosses `test` of the other."""
    known = impacts.candidates(shipped, noise)
    other = known if scored is shipped else impacts.candidates(scored, noise)
    size, size_info = clean_impacts([known], train)
    first, _ = impacts.clean(*known, size)
    second, left = impacts.clean(*other, size)
    fitting = laws.cases_of(first.take(np.isin(first.toss, train)), size)
    cases = laws.cases_of(second.take(np.isin(second.toss, test)), size)
    say(f"  fits {len(fitting.toss)} impacts, scores {len(cases.toss)}")
    fitted, intervals = fit.every_law(fitting, size.side, say)
    say("  one impact")
    names = list(geometry.Geometry._fields)
    intervals["geometry"] = {
        name: [getattr(size, name), float(size_info.lower[name]), float(size_info.upper[name])]
        for name in names
    }
    found = one_impact.judge(fitting, cases, fitted, size.side, seed)
    chosen = test[:whole]
    say(f"  {len(chosen)} whole tosses")
    q, v = whole_toss.starts(scored, chosen, noise, size, seed)
    soft = fitted["compliant"]
    params = laws.soft_cube(size.side, soft["mu"], np.exp(soft["log_stiffness"]), np.exp(soft["log_damping"]))
    motion = {"compliant": whole_toss.compliant(params, q, v)}
    if "MuJoCo" in fitted:
        motion["MuJoCo"] = whole_toss.mujoco(fitted["MuJoCo"], size.side, q, v)
    return {
        "cases": cases, "laws": found, "parameters": intervals, "fitted": fitted,
        "left": left, "toss": chosen,
        "motion": {name: whole_toss.judge(scored, chosen, poses) for name, poses in motion.items()},
        "poses": motion, "truth": [scored.rows(i)[whole_toss.FIRST :] for i in chosen],
    }  # fmt: skip


def run(data: Path | None, limit: int | None = None, say: Any = lambda words: None) -> list[dict[str, Any]]:
    """The splits of a run: one for a file, two halves for the shipped tosses."""
    shipped = tosses.load(limit=limit)
    noise = impacts.pose_noise(tosses.load())
    everything = np.arange(len(shipped))
    if data is not None:
        scored = tosses.load(data, limit)
        say(f"fits {len(shipped)} tosses, scores {len(scored)}")
        given = [(scored, everything, np.arange(len(scored)), WHOLE)]
    else:
        part = tosses.folds(len(shipped), HALVES)
        given = [
            (shipped, np.flatnonzero(part != i), np.flatnonzero(part == i), WHOLE // HALVES)
            for i in range(HALVES)
        ]
    found = []
    for seed, (scored, train, test, whole) in enumerate(given):
        say(f"part {seed + 1} of {len(given)}")
        found.append(split(shipped, scored, noise, train, test, whole=whole, seed=seed, say=say))
    return found


def summary(parts: list[dict[str, Any]]) -> dict[str, Any]:
    """What goes into the tables: means with 95 % bootstrap intervals, tosses drawn whole."""
    toss = np.concatenate([part["cases"].toss + 10_000 * i for i, part in enumerate(parts)])
    several = np.concatenate([part["cases"].several for part in parts])
    laws_found = [name for name in (*one_impact.SINGLE, *one_impact.RANDOM) if name in parts[0]["laws"]]
    score = {name: np.concatenate([part["laws"][name]["score"] for part in parts]) for name in laws_found}
    result: dict[str, Any] = {
        "impacts": {"one corner": int((~several).sum()), "two corners": int(several.sum())},
        "left out": dict(parts[0]["left"]),
        "parameters": [part["parameters"] for part in parts],
        "MuJoCo": [part["fitted"].get("MuJoCo") for part in parts],
        "score": {
            name: {
                kind: scores.interval(values[pick], toss[pick])
                for kind, pick in (("one corner", ~several), ("two corners", several))
            }
            for name, values in score.items()
        },
    }
    single = [name for name in one_impact.SINGLE if name in score]
    means = {name: score[name][several].mean() for name in single}
    best = min(means, key=lambda name: means[name]) if several.any() else single[0]
    result["best single law"] = best
    pairs = {
        f"set - {best}": ("set", best), "set - restitution": ("set", "restitution"),
        "density - set": ("density", "set"), "density - lowest first": ("density", "lowest first"),
        "density + noise - restitution + noise": ("density + noise", "restitution + noise"),
        "density + noise - compliant + noise": ("density + noise", "compliant + noise"),
    }  # fmt: skip
    result["difference on two corners"] = {
        words: scores.interval((score[a] - score[b])[several], toss[several])
        for words, (a, b) in pairs.items()
    }
    result["inside"] = _containment(parts)
    result["whole toss"] = {
        name: {
            key: scores.interval(
                np.concatenate([part["motion"][name][key] for part in parts]), whole_number(parts)
            )
            for key in ("log_score", "energy", "inside_50", "inside_90")
        }
        for name in parts[0]["motion"]
    }
    return result


def whole_number(parts: list[dict[str, Any]]) -> np.ndarray:
    """A number for each toss that was predicted as a whole, different in every part."""
    return np.concatenate([part["toss"] + 10_000 * i for i, part in enumerate(parts)])


def _containment(parts: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Of two-corner impacts: share inside the set at the covariance of the measurement, size, mean rank."""
    found = {}
    for name in (n for n in one_impact.RANDOM if n in parts[0]["laws"]):
        inside, size, rank = [], [], []
        for part in parts:
            cases, pick = part["cases"], part["cases"].several
            cloud = part["laws"][name]["cloud"][pick]
            inside.append(one_impact.inside(cloud, cases.take(np.flatnonzero(pick))))
            size.append(one_impact.spread_of(cloud))
            rank.append(scores.ranks(cloud, np.zeros((len(cloud), 6))))
        found[name] = {
            "inside": float(np.mean(np.concatenate(inside))),
            "size": float(np.mean(np.concatenate(size))),
            "ranks": np.histogram(np.concatenate(rank), bins=5, range=(0, 1))[0].tolist(),
        }
    return found
