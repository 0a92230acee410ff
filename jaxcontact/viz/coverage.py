"""Picture of the quality of a sampled set: fractions of outcomes far from it, against its size."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from jaxcontact.front_door import POSITIVE, checked
from jaxcontact.impact import Coverage

if TYPE_CHECKING:  # matplotlib is imported when a picture is made
    from matplotlib.figure import Figure

SHADES = ("#c6dbef", "#6baed6", "#2171b5", "#08306b")  # from small sets to the largest
UNIFORM = "#d55e00"
LINES = ("#d55e00", "#009e73", "#0072b2", "#cc79a7")
DASHES = ("-", "--", "-.", ":")


@checked(width=POSITIVE)
def plot_coverage(found: Coverage, *, title: str | None = None, width: float = 7.2) -> Figure:
    """Plot upper confidence bounds on the fraction of outcomes farther than r from a sampled set.

    Left: the bounds against r, for sets of a few sizes; for the largest also the bound that holds for all r
    at once. Right: the distance beyond which at most a given fraction of the outcomes lies, against the size
    of the set. Distances of zero, if a set has atoms, fall off the logarithmic axes.

    Args:
        found: result of `impact.coverage`.
        title: of the figure.
        width: of the figure, inches.

    Returns:
        A matplotlib figure that belongs to no window; save it by `savefig`.

    Raises:
        ImportError: if matplotlib is not installed.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, 0.47 * width), layout="constrained")
    left, right = figure.subplots(1, 2)
    chosen = np.unique(np.linspace(0, len(found.num_set) - 1, len(SHADES)).round().astype(int))
    for k, shade in zip(chosen, SHADES[-len(chosen) :], strict=True):
        left.loglog(found.r, found.share_bound[k], color=shade, label=f"{found.num_set[k]} samples")
    left.loglog(
        found.r, found.uniform_bound[-1], color=UNIFORM, linestyle="--", linewidth=1.2, label="all r at once"
    )
    unit = r"kg$^{1/2}$ m/s"
    left.set(xlabel=f"distance r, {unit}", ylabel="share of outcomes farther, at most")
    left.set_ylim(0.5 * float(np.min(found.share_bound)), 1.3)
    left.legend(fontsize=7, loc="lower left")
    for share, radius, color, dash in zip(found.shares, found.radius.T, LINES, DASHES, strict=False):
        seen = np.isfinite(radius) & (radius > 0)
        if not seen.any():
            continue  # too few test samples bound so small a share
        label = f"{100 * share:g} % of the outcomes"
        right.loglog(
            found.num_set[seen],
            radius[seen],
            color=color,
            linestyle=dash,
            marker="o",
            markersize=3,
            label=label,
        )
    right.set(xlabel="samples in the set", ylabel=f"distance that at most these exceed, {unit}")
    if right.lines:
        right.legend(fontsize=7)
    for axes in (left, right):
        axes.grid(True, which="major", color="0.9", linewidth=0.6)
        axes.tick_params(labelsize=8)
        axes.xaxis.label.set_size(9)
        axes.yaxis.label.set_size(9)
    note = f"bounds of {100 * found.confidence:g} % confidence, {found.num_test} test samples"
    figure.suptitle(f"{title}: {note}" if title else note, fontsize=10)
    return figure
