"""Pictures of compliant motion: the pressure under a body, and curves by label."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from jaxcontact._pytree import PyTree
from jaxcontact.arguments import check_choice, check_number
from jaxcontact.front_door import POSITIVE, checked
from jaxcontact.mechanics.motion_equations import body_frames
from jaxcontact.mechanics.system import Model, State
from jaxcontact.viz.palette import LINES, label_axes, label_curves
from jaxcontact.viz.spatial import View, draw_bodies, look

if TYPE_CHECKING:
    from matplotlib.figure import Figure

STYLES = ("-", "--", "-.", ":")


@checked(area=POSITIVE, lam=check_number, load_at=check_number)
def plot_pressure(
    model: Model,
    state: State,
    lam: PyTree,
    *,
    area: float,
    load_at: PyTree = None,
    title: str | None = None,
) -> Figure:
    """Plot a body on an elastic foundation and the pressure below it, after Drumwright, Fig. 7.

    Args:
        model: a mechanism of one body and its numbers.
        state: its configuration.
        lam: (n,) forces of the elements, N.
        area: of one element, m^2.
        load_at: (3,) point of the body where a load is applied, drawn as a white dot.
        title: of the figure.

    Returns:
        A matplotlib figure: the body from the side, and its footprint from above.

    Raises:
        ValueError: if there is not one force per element.
    """
    from matplotlib.figure import Figure

    points = np.asarray(model.params.constants["elements"], float)
    pressure = np.asarray(lam, float) / area
    if pressure.shape != points.shape[:1]:
        raise ValueError(f"lam: expected {points.shape[:1]}, one per element, got {pressure.shape}")
    centres, turns = (np.asarray(x) for x in body_frames(model, state.q))
    placed = centres[0] + points @ turns[0].T
    figure = Figure(figsize=(7.2, 3.3), layout="constrained")
    beside, above = figure.subplots(1, 2, width_ratios=[1.0, 1.0])
    view: View = look(azimuth=-60.0, elevation=14.0)
    draw_bodies(beside, model, state, view=view, ground=False)
    tall = 0.35 * float(np.ptp(placed[:, 0])) / max(float(pressure.max()), 1e-300)
    order = np.argsort(view.near(placed))
    flat = view.flat(placed)[order]
    below = view.flat(placed - np.outer(tall * pressure, [0.0, 0.0, 1.0]))[order]
    from matplotlib.collections import LineCollection

    bars = LineCollection(
        list(np.stack([flat, below], axis=1)), array=pressure[order], cmap="magma_r", linewidths=2.0, zorder=2
    )
    beside.add_collection(bars)
    beside.set_ylim(below[:, 1].min() - 0.05, None)
    if load_at is not None:
        at = centres[0] + turns[0] @ np.asarray(load_at, float)
        beside.plot(*view.flat(at), "o", markersize=7, color="white", markeredgecolor="black", zorder=9)
        above.plot(at[0], at[1], "o", markersize=7, color="white", markeredgecolor="black", zorder=9)
    shown = above.scatter(
        placed[:, 0], placed[:, 1], c=pressure, cmap="magma_r", marker="s",
        s=(150.0 / np.sqrt(len(points))) ** 2, linewidths=0,
    )  # fmt: skip
    above.set_aspect("equal")
    above.set_xlabel("x (m)", fontsize=8)
    above.set_ylabel("y (m)", fontsize=8)
    above.tick_params(labelsize=7.5)
    bar = figure.colorbar(shown, ax=above, shrink=0.85)
    bar.set_label("pressure (Pa)", fontsize=8)
    bar.ax.tick_params(labelsize=7.5)
    if title is not None:
        figure.suptitle(title, fontsize=10)
    return figure


@checked(xscale=check_choice("linear", "log"), yscale=check_choice("linear", "log"))
def plot_curves(
    curves: Mapping[str, tuple[PyTree, PyTree]],
    *,
    xlabel: str,
    ylabel: str,
    title: str | None = None,
    xscale: str = "linear",
    yscale: str = "linear",
    markers: bool = False,
) -> Figure:
    """Plot curves (x, y), each with its label at its end, as in Drumwright's Figs. 1 to 4, 6, 9 and 10.

    Args:
        curves: (x (n,), y (n,)) by label.
        xlabel: quantity and unit.
        ylabel: quantity and unit.
        title: of the figure.
        xscale: "linear" or "log".
        yscale: "linear" or "log".
        markers: also mark every point.

    Returns:
        A matplotlib figure.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5.2, 3.2), layout="constrained")
    axes = figure.add_subplot()
    for k, (label, (x, y)) in enumerate(curves.items()):
        axes.plot(
            np.asarray(x), np.asarray(y), STYLES[k % len(STYLES)], color=LINES[k % len(LINES)], linewidth=1.5,
            label=label, marker="o" if markers else None, markersize=3.5,
        )  # fmt: skip
    axes.set_xscale(xscale)
    axes.set_yscale(yscale)
    if yscale == "linear":
        axes.ticklabel_format(axis="y", useOffset=False)
    label_axes(axes, xlabel, ylabel)
    if len(curves) > 1:
        label_curves(axes)
    if title is not None:
        axes.set_title(title, fontsize=9.5)
    return figure
