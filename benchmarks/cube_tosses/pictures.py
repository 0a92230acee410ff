"""Four pictures: an impact among its sampled outcomes, scores, resting places, calibration."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.cube_tosses import laws

SHOWN = (
    "simultaneous",
    "restitution",
    "compliant",
    "MuJoCo",
    "set",
    "density",
    "density + noise",
    "compliant + noise",
)


def draw(parts: list[dict[str, Any]], found: dict[str, Any], folder: Path) -> None:
    """Draw all pictures into a folder."""
    import matplotlib

    matplotlib.use("Agg")
    folder.mkdir(parents=True, exist_ok=True)
    for name, picture in (
        ("impact", _impact),
        ("scores", _scores),
        ("resting", _resting),
        ("calibration", _ranks),
    ):
        figure = picture(parts, found)
        figure.savefig(folder / f"cube_tosses_{name}.png", dpi=120)


def _figure(width: float, height: float, columns: int = 1) -> tuple[Any, Any]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    return figure, figure.subplots(1, columns)


def _impact(parts: list[dict[str, Any]], found: dict[str, Any]) -> Any:
    """Normal velocities of both corners after the impact whose set is largest, off the measured ones."""
    part = parts[0]
    cases, several = part["cases"], np.flatnonzero(part["cases"].several)
    cloud = part["laws"]["density"]["cloud"][several]
    size = np.sqrt(((cloud - cloud.mean(axis=1, keepdims=True)) ** 2).sum(axis=(1, 2)))
    pick = int(np.argmax(size))
    one = several[pick]
    rows = np.asarray(cases.terms.J_n[one])
    scale = np.linalg.norm(np.asarray(cases.v[one]) * np.sqrt(laws.MASS_DIAGONAL))
    back = lambda white: np.asarray(cases.after[one]) + white * scale / np.sqrt(laws.MASS_DIAGONAL)  # noqa: E731
    figure, axes = _figure(5.5, 4.5)
    for name, mark in (("set", "o"), ("density", "x")):
        u = back(part["laws"][name]["cloud"][one]) @ rows.T
        axes.plot(u[:, 0], u[:, 1], mark, ms=5, alpha=0.6, label=f"{name}: impulse orders")
    spread = np.linalg.cholesky(rows @ cases.covariance[one] @ rows.T)
    ring = np.stack([np.cos(np.linspace(0, 2 * np.pi, 60)), np.sin(np.linspace(0, 2 * np.pi, 60))])
    measured = np.asarray(cases.after[one]) @ rows.T
    axes.plot(*(measured[:, None] + 2.45 * spread @ ring), "k-", lw=1, label="measured, 95 %")
    axes.plot(*measured, "k*", ms=11)
    axes.set_xlabel("normal velocity of the lowest corner, m/s")
    axes.set_ylabel("normal velocity of the other corner, m/s")
    axes.set_title(
        f"An impact of two corners (toss {cases.toss[one]}), impulse orders and outcome", fontsize=10
    )
    axes.legend(fontsize=8)
    return figure


def _scores(parts: list[dict[str, Any]], found: dict[str, Any]) -> Any:
    """Energy score of every law against the number of contacts, with intervals."""
    figure, axes = _figure(7.5, 4.2)
    names = [name for name in SHOWN if name in found["score"]]
    for k, (kind, colour) in enumerate((("one corner", "C0"), ("two corners", "C1"))):
        value = np.array([found["score"][name][kind] for name in names])
        place = np.arange(len(names)) + 0.2 * (k - 0.5)
        reach = np.abs(value[:, 1:] - value[:, :1]).T
        axes.errorbar(value[:, 0], place, xerr=reach, fmt="o", color=colour, ms=4, label=kind)
    axes.set_yticks(range(len(names)), names)
    axes.invert_yaxis()
    axes.set_xlim(left=0.0)
    axes.set_xlabel("energy score, share of the speed before (least is best); 95 % intervals")
    axes.legend(fontsize=8, loc="lower left")
    return figure


def _resting(parts: list[dict[str, Any]], found: dict[str, Any]) -> Any:
    """Where the cube comes to rest, off the mean of each ensemble, and error over time."""
    figure, axes = _figure(10.0, 4.2, 2)
    part = parts[0]
    toss = 0
    for name, mark in zip(part["poses"], ("o", "x"), strict=False):
        ends = part["poses"][name][toss, :, -1, :2]
        axes[0].plot(ends[:, 0], ends[:, 1], mark, ms=5, alpha=0.7, label=name)
        error = np.concatenate([p["motion"][name]["over_time"] for p in parts])
        count = np.sum(np.isfinite(error), axis=0)
        rows = np.flatnonzero(count > 0.5 * len(error))
        axes[1].plot(rows * laws.DT, np.nanmean(error[:, rows], axis=0), label=name)
    truth = part["truth"][toss]
    axes[0].plot(truth[:, 0], truth[:, 1], "k-", lw=0.8)
    axes[0].plot(*truth[-1, :2], "k*", ms=11, label="tracked")
    axes[0].set_aspect("equal", adjustable="datalim")
    axes[0].set_xlabel("x, m")
    axes[0].set_ylabel("y, m")
    axes[0].set_title("one toss: path of the centre, and where worlds rest", fontsize=10)
    axes[1].set_xlabel("time after the given rows, s")
    axes[1].set_ylabel("mean distance of the ensemble's mean, m")
    axes[1].set_title("error over time", fontsize=10)
    for each in axes:
        each.legend(fontsize=8)
    return figure


def _ranks(parts: list[dict[str, Any]], found: dict[str, Any]) -> Any:
    """Rank of the measured velocity among samples (impacts) and coverage of regions (whole tosses)."""
    figure, axes = _figure(10.0, 4.0, 2)
    names = [name for name in SHOWN if name in found["inside"]]
    for k, name in enumerate(names):
        counts = np.array(found["inside"][name]["ranks"], float)
        axes[0].bar(
            np.arange(5) + 0.8 * (k / len(names) - 0.5), counts / counts.sum(), 0.8 / len(names), label=name
        )
    axes[0].axhline(0.2, color="k", lw=0.8)
    axes[0].set_xticks(range(5), ["0-20", "20-40", "40-60", "60-80", "80-100"])
    axes[0].set_xlabel("rank of the measured velocity's distance from the mean, %")
    axes[0].set_ylabel("share of impacts of two corners")
    for name, of in found["whole toss"].items():
        share = 100 * np.array([of["inside_50"], of["inside_90"]])
        reach = np.abs(share[:, 1:] - share[:, :1]).T
        axes[1].errorbar([50, 90], share[:, 0], yerr=reach, fmt="o-", label=name)
    axes[1].plot([0, 100], [0, 100], "k-", lw=0.8)
    axes[1].set_xlabel("region of the ensemble, %")
    axes[1].set_ylabel("resting places inside, %")
    for each in axes:
        each.legend(fontsize=8)
    return figure
