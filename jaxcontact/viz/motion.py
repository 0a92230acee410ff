"""Pictures of motions with impacts: the energy in several engines, the distance between two orders."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from jaxcontact._pytree import PyTree
from jaxcontact.front_door import POSITIVE, checked
from jaxcontact.viz.compliant import LINES, STYLES
from jaxcontact.viz.palette import label_axes, label_curves

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MARKS = ("o", "s", "^", "D")


@checked()
def plot_cradle_energy(
    single: Mapping[str, tuple[PyTree, PyTree]],
    repeated: Mapping[str, tuple[PyTree, PyTree]],
    *,
    title: str | None = None,
) -> Figure:
    """Plot the energy of a Newton's cradle in several engines, after Seghete & Murphey, Fig. 2b.

    Args:
        single: by engine, speeds (n,) in m/s of the first ball and energy after the impact over before
            (n, k), a column for each restitution; a line for the first engine, dots for the others.
        repeated: by engine, numbers of impacts (n,) and energy over that at the start (n,).
        title: of the figure.

    Returns:
        A matplotlib figure: one impact against speed, and many impacts on logarithmic axes.
    """
    from matplotlib.figure import Figure
    from matplotlib.ticker import LogFormatter

    figure = Figure(figsize=(7.6, 3.2), layout="constrained")
    single_axes, repeated_axes = figure.subplots(1, 2)
    labels = list(dict.fromkeys([*repeated, *single]))  # an engine has one colour
    for i, (label, (speed, ratio)) in enumerate(single.items()):
        x, y = np.asarray(speed, float), np.asarray(ratio, float).reshape(len(speed), -1)
        k, dotted = labels.index(label), i > 0
        for j in range(y.shape[1]):
            single_axes.plot(
                x, y[:, j], linestyle="none" if dotted else "-", marker=MARKS[k % 4] if dotted else None,
                markersize=3.0, linewidth=1.5, color=LINES[k % len(LINES)], label=label if j == 0 else None,
            )  # fmt: skip
    label_axes(single_axes, "speed of the first ball (m/s)", "energy after / before one impact")
    single_axes.set_ylim(0.0, None)
    single_axes.legend(fontsize=7.5, frameon=False, loc="lower right")
    for label, (count, ratio) in repeated.items():
        k = labels.index(label)
        repeated_axes.plot(
            np.asarray(count), np.asarray(ratio), STYLES[k % len(STYLES)], color=LINES[k % len(LINES)],
            linewidth=1.5, label=label,
        )  # fmt: skip
    repeated_axes.set_xscale("log")
    repeated_axes.set_yscale("log")
    repeated_axes.yaxis.set_major_formatter(LogFormatter())
    repeated_axes.yaxis.set_minor_formatter(LogFormatter(labelOnlyBase=False, minor_thresholds=(1, 0.4)))
    label_axes(repeated_axes, "impacts", "energy / energy at the start")
    repeated_axes.legend(fontsize=7.5, frameon=False)
    if title is not None:
        figure.suptitle(title, fontsize=9.5)
    return figure


@checked(floor=POSITIVE)
def plot_order_difference(
    curves: Mapping[str, tuple[PyTree, PyTree]], *, floor: float = 1e-17, title: str | None = None
) -> Figure:
    """Plot the distance between the motions of two orders of single impacts, after Seghete & Murphey, Fig. 8.

    Args:
        curves: by label, times (T + 1,) in s and relative differences of momentum (T + 1,), for example from
            `simulate.momentum_difference`.
        floor: value at which smaller differences are drawn.
        title: of the figure.

    Returns:
        A matplotlib figure.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5.6, 3.2), layout="constrained")
    axes = figure.add_subplot()
    for k, (label, (t, difference)) in enumerate(curves.items()):
        shown = np.maximum(np.asarray(difference, float), floor)
        axes.semilogy(
            np.asarray(t),
            shown,
            STYLES[k % len(STYLES)],
            color=LINES[k % len(LINES)],
            linewidth=1.3,
            label=label,
        )
    label_axes(axes, "time (s)", "relative difference of momentum")
    label_curves(axes)
    if title is not None:
        axes.set_title(title, fontsize=9.5)
    return figure
