"""Picture of a stability chart: its stable, unstable and undecided regions in one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from jaxcontact.front_door import POSITIVE, checked
from jaxcontact.stability import Chart, Region
from jaxcontact.viz.palette import Style

if TYPE_CHECKING:  # matplotlib is imported when a picture is made
    from matplotlib.artist import Artist
    from matplotlib.figure import Figure

COLOURS = {
    Region.UNDECIDED: ("#ffffff", "undecided"),
    Region.CERTIFIED: ("#a6d8a8", "stable: proven"),
    Region.FALSIFIED: ("#f4a582", "unstable: a motion grows without end"),
    Region.AMBIGUOUS: ("#8c510a", "unstable: at rest, it may also set off by itself"),
    Region.NO_EQUILIBRIUM: ("#bdbdbd", "no equilibrium"),
}
DOTS = "#1b7837"


@checked(width=POSITIVE)
def plot_stability_chart(chart: Chart, *, title: str | None = None, width: float = 5.6) -> Figure:
    """Plot every point of a chart as a cell coloured by its region; dots grow with the margin.

    Args:
        chart: result of `stability.chart`.
        title: of the figure.
        width: of the figure, inches.

    Returns:
        A matplotlib figure that belongs to no window; save it by `savefig`.

    Raises:
        ImportError: if matplotlib is not installed.
    """
    from matplotlib.colors import BoundaryNorm, ListedColormap
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    figure = Figure(figsize=(width, 0.92 * width), layout="constrained")
    axes = figure.subplots()
    colours = ListedColormap([colour for colour, _ in COLOURS.values()])
    norm = BoundaryNorm(np.arange(-0.5, len(COLOURS)), colours.N)
    axes.pcolormesh(_edges(chart.x), _edges(chart.y), chart.region, cmap=colours, norm=norm)
    certified = chart.region == Region.CERTIFIED
    x, y = np.meshgrid(chart.x, chart.y)
    largest = float(np.max(chart.margin))
    min_area, max_area = 1.0, 15.0  # area of the dots, points^2
    size = min_area + (max_area - min_area) * chart.margin[certified] / max(largest, 1e-300)
    axes.scatter(x[certified], y[certified], s=size, color=DOTS, linewidths=0)
    axes.set(xlabel=chart.names[0], ylabel=chart.names[1])
    present = [region for region in COLOURS if np.any(chart.region == region)]
    handles: list[Artist] = [
        Patch(facecolor=COLOURS[region][0], edgecolor="0.5", linewidth=0.5, label=COLOURS[region][1])
        for region in present
    ]
    if np.any(certified):
        for area, margin in ((min_area, "barely"), (max_area, f"with a wide margin, {largest:.2g}")):
            dot: Style = {"marker": "o", "linestyle": "none", "color": DOTS, "markeredgewidth": 0}
            handles.append(Line2D([], [], markersize=area**0.5, label=f"proven {margin}", **dot))
    figure.legend(handles=handles, loc="outside lower center", ncols=2, fontsize=8, frameon=False)
    if title:
        axes.set_title(title, fontsize=10)
    return figure


def _edges(values: np.ndarray) -> np.ndarray:
    """Compute the borders of cells around the values."""
    if values.size == 1:
        return np.array([values[0] - 0.5, values[0] + 0.5])
    inner = 0.5 * (values[1:] + values[:-1])
    return np.concatenate([[2 * values[0] - inner[0]], inner, [2 * values[-1] - inner[-1]]])
