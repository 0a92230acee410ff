"""Várkonyi, Lyapunov stability of rigid body systems with multiple contacts by SOS."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path

import numpy as np

import jaxcontact as jc
from jaxcontact.stability.chart import FIGURES as CHARTS
from jaxcontact.stability.chart import figure_2

POINTS = 30
TITLES = {
    "fig2": "slope of 30 degrees, mu2 = 2, e = 0, h = 1",
    "fig3": "slope of 20 degrees, e = 0.1, h = 1, equal friction",
}


def boundary(d: float, low: float, high: float) -> float:
    """The friction mu1 of Fig. 2 above which no motion grows, by bisection; NaN if it is not in between."""

    def grows(mu1: float) -> bool:
        # At the right end of the chart transients last for hundreds of events.
        return jc.stability.chatter_rate(figure_2(d, mu1), num_events=512) > 0

    if not grows(low) or grows(high):
        return float("nan")
    while high - low > 1e-5:
        middle = 0.5 * (low + high)
        low, high = (middle, high) if grows(middle) else (low, middle)
    return 0.5 * (low + high)


def chart(name: str, path: Path) -> None:
    """Figs. 2 and 3: certified, ambiguous, falsified and undecided points over two parameters."""
    make_body, ranges = CHARTS[name]
    grid = {key: np.linspace(*ends, POINTS) for key, ends in ranges.items()}
    found = jc.stability.chart(make_body, grid, num_samples=64)
    figure = jc.viz.plot_stability_chart(found, title=TITLES[name])
    if name == "fig2":
        d = grid["d"]
        axes = figure.axes[0]
        axes.plot(
            d,
            [boundary(x, *ranges["mu1"]) for x in d],
            "k-",
            label="boundary of stability, by the return map",
        )
        axes.legend(loc="upper right", fontsize=8)
    figure.savefig(path, dpi=110)


FIGURES: dict[str, Callable[[Path], None]] = {
    "fig2.png": functools.partial(chart, "fig2"),
    "fig3.png": functools.partial(chart, "fig3"),
}
