"""The common parts of pictures of mechanisms: colours, arrows, and the velocities to show."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from jaxcontact._pytree import PyTree

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Style = dict[str, Any]  # keyword arguments of artists of matplotlib
BODIES = ("#e8c872", "#9fc5e0", "#a9d6c0", "#e3b3cc", "#c9c3e6")  # fills, by body
OUTLINE, GROUND, HATCH, CENTRE = "#333333", "#e6e6e6", "#9a9a9a", "#777777"
BEFORE, AFTER = "#000000", "#0072b2"  # arrows
# Groups of worlds; Okabe and Ito's colours, distinguishable with the common kinds of colour blindness.
LINES = OUTCOMES = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")
PUSH = "#c1121f"  # impulses
MIN_SPEED = 1e-6  # m/s; slower contacts get no arrow
LABEL_GAP = 0.065  # between labels at the right edge, relative to the height of the axes
ARROW = 0.22  # length of the longest arrow relative to the size of the mechanism


def outcomes_of(v: PyTree, nv: int) -> dict[str, np.ndarray]:
    """Return velocities (nv,) by label, from None, one of them or several by label.

    Raises:
        ValueError: if one is not finite or has another length.
    """
    outcomes = {} if v is None else dict(v) if isinstance(v, Mapping) else {"after": v}
    velocities = {}
    for label, value in outcomes.items():
        array = np.asarray(value, float)
        if array.shape != (nv,) or not np.all(np.isfinite(array)):
            raise ValueError(f"v: expected finite ({nv},) for {label!r}, got shape {array.shape}")
        velocities[label] = array
    return velocities


def arrow(axes: Axes, start: np.ndarray, along: np.ndarray, colour: str) -> None:
    """Draw an arrow in the plane of the axes, with a head of fixed size."""
    end = start + along
    axes.annotate(
        "",
        xy=(end[0], end[1]),
        xytext=(start[0], start[1]),
        zorder=9,
        arrowprops={
            "arrowstyle": "-|>,head_length=0.4,head_width=0.2",
            "color": colour,
            "linewidth": 1.5,
            "shrinkA": 0.0,
            "shrinkB": 0.0,
            "mutation_scale": 9.0,
        },
    )


def label_axes(axes: Axes, xlabel: str, ylabel: str) -> None:
    """Label axes in small print, with a faint grid and without a frame above and on the right."""
    axes.set_xlabel(xlabel, fontsize=8.5)
    axes.set_ylabel(ylabel, fontsize=8.5)
    axes.tick_params(labelsize=8)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(True, linewidth=0.3, alpha=0.6)


def label_curves(axes: Axes) -> None:
    """Write the label of every curve beside its end, in its colour; near labels move apart."""
    axes.autoscale_view()  # else limits are those before the curves
    ends = []
    for line in axes.lines:
        x, y = np.asarray(line.get_xdata(), float), np.asarray(line.get_ydata(), float)
        finite = np.flatnonzero(np.isfinite(x) & np.isfinite(y))
        if finite.size and not str(line.get_label()).startswith("_"):
            place = axes.transData.transform((x[finite[-1]], y[finite[-1]]))
            ends.append((float(axes.transAxes.inverted().transform(place)[1]), line))
    height = -np.inf
    for end, line in sorted(ends, key=lambda pair: pair[0]):
        height = max(end, height + LABEL_GAP)
        axes.annotate(
            str(line.get_label()),
            (1.0, height),
            (4, 0),
            xycoords="axes fraction",
            textcoords="offset points",
            color=line.get_color(),
            fontsize=8,
            va="center",
            annotation_clip=False,
        )
