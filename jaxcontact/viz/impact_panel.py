"""One panel of a picture of an impact: its frame, its curves and their styles.

Owns the colours and markers of the legend, which are those of the curves.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from jaxcontact.viz.impact_curves import Curves
from jaxcontact.viz.palette import Style

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes

# Okabe & Ito's colours, distinguishable with the common kinds of colour blindness; shapes also differ.
PATH, END, BEFORE = "#b5b5b5", "#4d4d4d", "#000000"
SIMULTANEOUS, OTHER = "#0072b2", "#cc79a7"
SEQUENCES = ("#d55e00", "#f0b400", "#009e73", "#56b4e9")
MARKERS = ("^", "v", "s", "D")
INK = 0.6  # line width of spines, ticks and marker edges, pt
CELLS = 240  # cells of a panel along an axis; one end point is drawn per cell, to limit their number
# A coordinate: contact, and 0 for its normal or 1 for its tangential velocity.
Coordinate = tuple[int, int]


class Panel(NamedTuple):
    """The coordinates along the two axes of a panel."""

    x: Coordinate
    y: Coordinate


def frame(axes: Axes, panel: Panel, window: np.ndarray, labels: tuple[str, ...], nt: int) -> None:
    """Set limits, labels, thin spines and the lines of zero velocity."""
    from matplotlib.ticker import MaxNLocator

    axes.set_xlim(*window[0])
    axes.set_ylim(*window[1])
    width, height = np.ptp(window, axis=1)
    if math.isclose(width, height, rel_tol=1e-9):
        axes.set_aspect("equal", adjustable="box")
    else:
        axes.set_box_aspect(1.0)
        axes.text(
            1.02,
            1.0,
            "different scales",
            rotation=-90,
            va="top",
            transform=axes.transAxes,
            fontsize=7,
            color="#555555",
        )
    kinds = ("normal", "tangential" if nt == 1 else "tangential speed")
    for axis, limits, (contact, kind) in zip((axes.xaxis, axes.yaxis), window, panel, strict=True):
        power = math.floor(math.log10(float(np.abs(limits).max())))
        power = 0 if -2 <= power <= 2 else power
        unit = f"$10^{{{power}}}$ m/s" if power else "m/s"
        axis.set_label_text(f"{labels[contact]} {kinds[kind]} ({unit})", fontsize=8)
        axis.set_major_locator(MaxNLocator(4, steps=[1, 2, 5, 10]))
        axis.set_major_formatter(_in_powers(power))
        axis.labelpad = 2.0
    axes.tick_params(labelsize=7.5, width=INK, length=2.5, pad=2.0)
    for side, spine in axes.spines.items():
        spine.set_linewidth(INK)
        spine.set_visible(side in ("left", "bottom"))
    for draw, limits in ((axes.axvline, window[0]), (axes.axhline, window[1])):
        if limits[0] < 0.0 < limits[1]:
            draw(0.0, color="#cccccc", linewidth=INK, zorder=0.5)


def _in_powers(power: int) -> Callable[[float, float], str]:
    """Make a formatter of tick labels in units of 10^power, with a proper minus sign."""

    def text(value: float, _: float) -> str:
        return f"{round(value / 10.0**power, 6):g}".replace("-", "\u2212")

    return text


def _thin(x: np.ndarray, y: np.ndarray, window: np.ndarray) -> np.ndarray:
    """Select the indices of points to draw: one per occupied cell of the window."""
    low, size = window[:, 0], np.ptp(window, axis=1) / CELLS
    column = np.floor((x - low[0]) / size[0]).astype(np.int64)
    row = np.floor((y - low[1]) / size[1]).astype(np.int64)
    inside = np.flatnonzero((column >= 0) & (column < CELLS) & (row >= 0) & (row < CELLS))
    first = np.full(CELLS * CELLS, -1)
    first[(column[inside] * CELLS + row[inside])[::-1]] = inside[::-1]  # the last one written stays
    return first[first >= 0]


def draw(axes: Axes, panel: Panel, window: np.ndarray, curves: Curves) -> None:
    """Draw all curves into one panel; of the samples' ends, one per cell of its window."""
    from matplotlib.collections import LineCollection

    def pick(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return values[..., panel.x[0], panel.x[1]], values[..., panel.y[0], panel.y[1]]

    if curves.paths.shape[0]:
        lines = np.stack(pick(curves.paths), axis=-1)
        axes.add_collection(
            LineCollection(list(lines), colors=PATH, linewidths=0.35, alpha=0.45, rasterized=True, zorder=1),
            autolim=False,
        )
    x, y = pick(curves.ends)
    drawn = _thin(x, y, window)
    size = float(np.clip(4000.0 / max(drawn.size, 1), 1.6, 5.0))  # pt^2; few points are drawn larger
    axes.scatter(x[drawn], y[drawn], s=size, c=END, linewidths=0, rasterized=True, zorder=2)
    start = pick(curves.before)
    for end in zip(*pick(curves.simultaneous), strict=True):
        axes.plot(
            *zip(start, end, strict=True), color=SIMULTANEOUS, linewidth=0.9, linestyle=(0, (4, 2)), zorder=3
        )
    for k, path in enumerate(curves.sequences.values()):
        x, y = pick(path)
        style = _sequence_style(k)
        # Later lines are thinner, so that all show if they coincide.
        axes.plot(x, y, color=style["color"], linewidth=_line_width(k), zorder=4)
        axes.plot(x[1:-1], y[1:-1], linestyle="none", zorder=5, **{**style, "markersize": 3.5})
        axes.plot(x[-1:], y[-1:], linestyle="none", zorder=6, clip_on=False, **style)
    # Rings and a star leave coinciding marks visible.
    axes.plot(*pick(curves.simultaneous), linestyle="none", zorder=7, **_ring_style())
    axes.plot(*pick(curves.other), linestyle="none", zorder=8, **_star_style())
    axes.plot(*start, linestyle="none", zorder=9, **_before_style())


def _line_width(k: int) -> float:
    return 2.2 if k == 0 else 1.0


def _sequence_style(k: int) -> Style:
    colour, marker = SEQUENCES[k % len(SEQUENCES)], MARKERS[k % len(MARKERS)]
    return {
        "color": colour,
        "marker": marker,
        "markersize": 6.0,
        "markeredgecolor": "black",
        "markeredgewidth": INK,
    }


def _ring_style() -> Style:
    return {
        "color": SIMULTANEOUS,
        "marker": "o",
        "markersize": 9.0,
        "markerfacecolor": "none",
        "markeredgewidth": 1.6,
    }


def _star_style() -> Style:
    return {
        "color": OTHER,
        "marker": "*",
        "markersize": 11.0,
        "markeredgecolor": "black",
        "markeredgewidth": INK,
    }


def _before_style() -> Style:
    return {
        "color": BEFORE,
        "marker": "X",
        "markersize": 5.5,
        "markeredgecolor": "white",
        "markeredgewidth": 0.5,
    }


def legend_entries(curves: Curves) -> list[Artist]:
    """List a legend entry for every kind of curve that is drawn."""
    from matplotlib.lines import Line2D

    def entry(label: str, **style: Any) -> Line2D:  # matplotlib's styles
        return Line2D([], [], label=label, **style)

    count = curves.ends.shape[0]
    handles: list[Artist] = [entry("before the impact", linestyle="none", **_before_style())]
    if curves.paths.shape[0]:
        handles.append(entry(f"through it ({curves.paths.shape[0]} samples)", color=PATH, linewidth=1.0))
    number = f"{count:,}".replace(",", "\u2009")
    handles.append(
        entry(f"outcomes ({number} samples)", linestyle="none", marker="o", markersize=3.5, color=END)
    )
    if curves.simultaneous.shape[0]:
        handles.append(entry("simultaneous law", linestyle=(0, (4, 2)), linewidth=0.9, **_ring_style()))
    for k, label in enumerate(curves.sequences):
        handles.append(entry(label, linewidth=_line_width(k), **_sequence_style(k)))
    if curves.other.shape[0]:
        handles.append(entry("MuJoCo", linestyle="none", **_star_style()))
    return handles
