"""Várkonyi, Lyapunov stability of rigid body systems with multiple contacts by SOS."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path

import numpy as np

import jaxcontact as jc
from jaxcontact.stability.chart import FIGURES as CHARTS

POINTS = 30
TITLES = {
    "fig2": "slope of 30 degrees, mu2 = 2, e = 0, h = 1",
    "fig3": "slope of 20 degrees, e = 0.1, h = 1, equal friction",
}


def chart(name: str, path: Path) -> None:
    """Figs. 2 and 3: certified, ambiguous, falsified and undecided points over two parameters."""
    make_body, ranges = CHARTS[name]
    grid = {key: np.linspace(*ends, POINTS) for key, ends in ranges.items()}
    found = jc.stability.chart(make_body, grid, num_samples=64)
    jc.viz.plot_stability_chart(found, title=TITLES[name]).savefig(path, dpi=110)


FIGURES: dict[str, Callable[[Path], None]] = {
    "fig2.png": functools.partial(chart, "fig2"),
    "fig3.png": functools.partial(chart, "fig3"),
}
