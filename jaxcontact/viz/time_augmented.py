"""Pictures of motions over impulse and time, and of Painleve's paradox (Halm & Posa, Section 4)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from jaxcontact._pytree import PyTree
from jaxcontact.arguments import check_mapping, check_number
from jaxcontact.front_door import checked
from jaxcontact.impact import Paradox
from jaxcontact.simulate import AugmentedPath, PieceKind
from jaxcontact.viz.palette import LINES, label_axes

if TYPE_CHECKING:  # matplotlib is imported when a picture is made
    from jaxtyping import Int, Real
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Gap = Callable[[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]  # (q, v) -> gaps and their rates
FROZEN = "#e3d9ef"  # impacts, during which time does not advance
REGIONS = {
    Paradox.NONE: ("#ffffff", "one solution"),
    Paradox.INDETERMINATE: ("#9fc5e0", "indeterminate: several solutions"),
    Paradox.INCONSISTENT: ("#f4a582", "inconsistent: no finite force, an impact without a collision"),
}


@checked()
def plot_path(path: AugmentedPath, coordinate: int, *, name: str = "q", title: str | None = None) -> Figure:
    """Plot one coordinate and its velocity over t and s, and the rates of t and impulses, after Fig. 8.

    Impacts are shaded: they are jumps over t and intervals of s.

    Args:
        path: result of `simulate.time_augmented`.
        coordinate: index in q and v.
        name: of the coordinate.
        title: of the figure.

    Returns:
        A matplotlib figure.
    """
    from matplotlib.figure import Figure
    from matplotlib.patches import Patch

    nodes, rows = _in_use(path), slice(0, _in_use(path).stop - 1)
    s, t, q, v = (np.asarray(getattr(path, x))[nodes] for x in ("s", "t", "q", "v"))
    hits = np.asarray(path.kind)[rows] == PieceKind.IMPACT
    figure = Figure(figsize=(9.6, 3.3), layout="constrained")
    over_t, over_s, rates = figure.subplots(1, 3)
    for axes, x, label in ((over_t, t, "t (s)"), (over_s, s, "s (s and N s)")):
        axes.plot(x, q[:, coordinate], color=LINES[0], linewidth=1.3, label=name)
        axes.plot(x, v[:, coordinate], color=LINES[1], linewidth=1.1, label=f"rate of {name}")
        label_axes(axes, label, "")
    edges = np.append(np.asarray(path.t_rate)[rows], np.nan)
    rates.step(s, edges, where="post", color="black", linewidth=1.0, label="dt/ds")
    normal = np.asarray(path.lam)[rows, :, 0]
    for i in range(normal.shape[1]):
        rates.step(
            s, np.append(normal[:, i], np.nan), where="post", color=LINES[i % len(LINES)], linewidth=1.0,
            label=f"impulse {i}",
        )  # fmt: skip
    label_axes(rates, "s (s and N s)", "by unit of s")
    lines = [*over_t.get_lines(), *rates.get_lines()]
    handles: list[Artist] = [*lines, Patch(color=FROZEN, label="impact: time stands still")]
    figure.legend(handles=handles, loc="outside lower center", ncols=len(handles), fontsize=8, frameon=False)
    for axes in (over_s, rates):
        for k in np.flatnonzero(hits):
            axes.axvspan(s[k], s[k + 1], color=FROZEN, linewidth=0, zorder=0)
    if title is not None:
        figure.suptitle(title, fontsize=9.5)
    return figure


@checked()
def plot_phase(paths: dict[str, AugmentedPath], gap: Gap, *, title: str | None = None) -> Figure:
    """Plot a gap against its velocity: impacts go straight up at gap zero, after Fig. 6.

    Args:
        paths: by label.
        gap: q (n, nq) and v (n, nv) to gaps (n,) and their rates (n,).
        title: of the figure.

    Returns:
        A matplotlib figure.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(4.2, 3.2), layout="constrained")
    axes = figure.add_subplot()
    for k, (label, path) in enumerate(paths.items()):
        nodes = _in_use(path)
        phi, rate = gap(np.asarray(path.q)[nodes], np.asarray(path.v)[nodes])
        axes.plot(phi, rate, color=LINES[k % len(LINES)], linewidth=1.3, label=label)
    axes.axvspan(axes.get_xlim()[0], 0.0, color="0.9", linewidth=0, zorder=0)
    axes.axhline(0.0, color="0.6", linewidth=0.5)
    label_axes(axes, "gap (m)", "its rate (m/s)")
    axes.legend(fontsize=8, frameon=False)
    if title is not None:
        axes.set_title(title, fontsize=9.5)
    return figure


@checked(outline=check_number, rows=check_mapping)
def plot_snapshots(
    path: AugmentedPath, outline: Real[np.ndarray, "k 2"], rows: PyTree, *, title: str | None = None
) -> Figure:
    """Plot a planar body at some nodes of a path with the velocity of its centre, after Fig. 7.

    Args:
        path: result of `simulate.time_augmented`, of one free body (x, y, theta).
        outline: (n, 2) corners in body coordinates.
        rows: labels and indices of nodes.
        title: of the figure.

    Returns:
        A matplotlib figure.
    """
    from matplotlib.figure import Figure
    from matplotlib.patches import Polygon

    from jaxcontact.viz.palette import AFTER, BODIES, GROUND, OUTLINE, arrow

    shown = dict(rows)
    figure = Figure(figsize=(2.3 * len(shown), 2.8), layout="constrained")
    size = float(np.max(np.linalg.norm(outline, axis=1)))
    fastest = max(float(np.linalg.norm(np.asarray(path.v)[k, :2])) for k in shown.values())
    for axes, (label, k) in zip(np.atleast_1d(figure.subplots(1, len(shown))), shown.items(), strict=True):
        x, y, theta = np.asarray(path.q)[k]
        omega = float(np.asarray(path.v)[k, 2])
        turn = np.array([[np.cos(theta), -np.sin(theta)], [np.sin(theta), np.cos(theta)]])
        corners = outline @ turn.T + [x, y]
        axes.axhspan(-0.4 * size, 0.0, color=GROUND, linewidth=0)
        axes.add_patch(Polygon(corners, facecolor=BODIES[0], edgecolor=OUTLINE))
        along = 0.6 * size * np.asarray(path.v)[k, :2] / max(fastest, 1e-300)
        if np.linalg.norm(along) > 0.02 * size:
            arrow(axes, np.array([x, y]), along, AFTER)
        axes.set(xlim=(x - 1.3 * size, x + 1.3 * size), ylim=(-0.3 * size, 2.2 * size), aspect="equal")
        axes.set(xticks=[], yticks=[])
        axes.set_title(
            f"{label}\nt = {float(np.asarray(path.t)[k]):.3f} s, turning {omega:+.3f} rad/s", fontsize=8
        )
    if title is not None:
        figure.suptitle(title, fontsize=9.5)
    return figure


@checked(x=check_number, y=check_number)
def plot_paradox(
    x: Real[np.ndarray, " n"], y: Real[np.ndarray, " m"], kind: Int[np.ndarray, "m n"], *,
    names: tuple[str, str] = ("", ""), boundaries: dict[str, tuple[PyTree, PyTree]] | None = None,
    title: str | None = None,
) -> Figure:  # fmt: skip
    """Plot a chart of `impact.paradox`: one solution, indeterminate, inconsistent.

    Args:
        x: (n,) values along the first axis.
        y: (m,) along the second.
        kind: (m, n) `Paradox`.
        names: of the axes.
        boundaries: lines (x, y) by label, such as closed forms.
        title: of the figure.

    Returns:
        A matplotlib figure.
    """
    from matplotlib.colors import BoundaryNorm, ListedColormap
    from matplotlib.figure import Figure
    from matplotlib.patches import Patch

    figure = Figure(figsize=(5.0, 4.3), layout="constrained")
    axes: Axes = figure.add_subplot()
    colours = ListedColormap([colour for colour, _ in REGIONS.values()])
    norm = BoundaryNorm(np.arange(-0.5, len(REGIONS)), colours.N)
    axes.pcolormesh(
        np.asarray(x), np.asarray(y), np.asarray(kind), cmap=colours, norm=norm, shading="nearest"
    )
    handles: list[Artist] = [
        Patch(facecolor=colour, edgecolor="0.5", linewidth=0.5, label=label)
        for region, (colour, label) in REGIONS.items()
        if np.any(np.asarray(kind) == region)
    ]
    limits = axes.get_xlim(), axes.get_ylim()
    for k, (label, (line_x, line_y)) in enumerate((boundaries or {}).items()):
        handles += axes.plot(line_x, line_y, color=LINES[k % len(LINES)], linewidth=1.2, label=label)
    axes.set(xlim=limits[0], ylim=limits[1], xlabel=names[0], ylabel=names[1])
    figure.legend(handles=handles, loc="outside lower center", ncols=1, fontsize=8, frameon=False)
    if title is not None:
        axes.set_title(title, fontsize=9.5)
    return figure


def _in_use(path: AugmentedPath) -> slice:
    """Return the nodes of a path up to its end."""
    return slice(0, int(np.sum(np.asarray(path.kind) != PieceKind.UNUSED)) + 1)
