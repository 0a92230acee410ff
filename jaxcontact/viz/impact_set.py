"""Pictures of the set of post-impact velocities, in the velocities of the contacts: `plot_impact_set`.

Owns the content of Figs. 9 to 11, 13 and 14 of Halm & Posa: samples through the impact and at its end,
beside the single outcomes that other laws predict; the choice of panels, and the limits of each.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from jaxcontact.arguments import check_whole
from jaxcontact.front_door import POSITIVE, checked
from jaxcontact.impact import ImpactSamples
from jaxcontact.impact.sampling.outcomes import contact_names
from jaxcontact.terms import ContactTerms
from jaxcontact.viz.impact_curves import OtherOutcomes, contact_curves
from jaxcontact.viz.impact_panel import Panel, draw, frame, legend_entries

if TYPE_CHECKING:  # matplotlib is imported when a picture is made
    from matplotlib.artist import Artist
    from matplotlib.figure import Figure
    from matplotlib.gridspec import SubplotSpec

NOISE = 1e-6  # of the largest span; smaller spans are rounding
SCALES = 20.0  # ratio of spans; axes whose spans differ more have different scales


ALL_OUTCOMES = OtherOutcomes()


@checked(max_paths=check_whole, width=POSITIVE)
def plot_impact_set(
    samples: ImpactSamples,
    terms: ContactTerms,
    *,
    beside: OtherOutcomes = ALL_OUTCOMES,
    names: Sequence[str] | None = None,
    title: str | None = None,
    zoom: bool = True,
    max_paths: int = 250,
    width: float = 7.2,
) -> Figure:
    """Plot sampled outcomes of an impact, normal against tangential velocity of the contacts.

    After Figs. 9 to 11, 13 and 14 of Halm & Posa. Two touching contacts make three panels: normal
    velocity of B against A, then each contact's normal against its tangential velocity; one contact makes
    one, more make one each and two of normal velocities, of the first and of the last pair. A panel in which
    nothing moves along one of its axes is left out if there are others, and close up one with a single
    outcome. Spatial contacts show the tangential speed |J_t v|. Axes of a panel have equal scales, unless
    its spans differ more than twentyfold; the panel then says so. Samples that failed are left out.

    Args:
        samples: n samples; trajectories are drawn if `samples.path` is there.
        terms: the contact terms that were sampled.
        beside: outcomes of other laws.
        names: of the nc contacts; default A, B, C, ...
        title: of the figure.
        zoom: whether to repeat the panels below, with limits close around the outcomes.
        max_paths: largest number of trajectories drawn.
        width: of the figure, inches.

    Returns:
        A matplotlib figure that belongs to no window; save it by `savefig`.

    Raises:
        ValueError: for shapes that do not fit the terms, too few names, or no sample without failure.
        ImportError: if matplotlib is not installed.
    """
    labels = _labels(samples, terms, names)
    if max_paths < 0:
        raise ValueError(f"max_paths: expected at least 0, got {max_paths}")
    shown = np.flatnonzero(np.asarray(terms.active))
    shown = shown if shown.size else np.arange(len(terms.phi))
    curves = contact_curves(samples, terms, shown, beside, labels, max_paths)
    panels = _choose_panels([int(i) for i in shown])
    views = [(curves.everything(), _select_spread(curves.everything(), panels, min))]
    if zoom:
        views.append((curves.outcomes(), _select_spread(curves.outcomes(), views[0][1], max)))
    figure, places = _empty_figure([len(chosen) for _, chosen in views], legend_entries(curves), title, width)
    for close, (points, chosen) in enumerate(views):
        windows = _windows(points, curves.other, chosen)
        for k, (panel, window) in enumerate(zip(chosen, windows, strict=True)):
            axes = figure.add_subplot(places[close][k])
            frame(axes, panel, window, labels, np.shape(terms.J_t)[1])
            draw(axes, panel, window, curves)
            if len(chosen) > 3:  # small panels, small markers
                for line in axes.lines:
                    line.set_markersize(0.75 * line.get_markersize())
            if k == 0 and len(views) == 2:
                text = "Outcomes, close up" if close else "Through the impact"
                axes.set_title(text, loc="left", fontsize=8.5, fontweight="bold")
    return figure


def _labels(samples: ImpactSamples, terms: ContactTerms, names: Sequence[str] | None) -> tuple[str, ...]:
    """Return names of the contacts; raise ValueError if samples or names do not fit the terms."""
    nc, _, nv = np.shape(terms.J_t)
    if np.ndim(samples.v_plus) != 2 or np.shape(samples.v_plus)[1] != nv:
        raise ValueError(f"samples: expected v_plus (n, {nv}) as in terms, got {np.shape(samples.v_plus)}")
    labels = tuple(contact_names(nc) if names is None else names)
    if len(labels) < nc:
        raise ValueError(f"names: expected {nc} names, one per contact, got {len(labels)}")
    return labels


def _empty_figure(
    counts: list[int], handles: list[Artist], title: str | None, width: float
) -> tuple[Figure, list[list[SubplotSpec]]]:
    """Make a figure with heading and legend; return it and the places of the panels of each view.

    Views are below each other, but side by side if each has a single panel.
    """
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    views, count = len(counts), max(counts)
    is_row = count == 1
    columns = views if is_row else count if count <= 3 else 4
    rows = 1 if is_row else math.ceil(count / columns)
    legend_columns = (1, 2, 4)[min(columns, 3) - 1]
    # Panels are square: the height follows from the width, in inches.
    side = width / max(columns, 3) - 0.6
    stacked = 1 if is_row else views
    heading = (0.1 if is_row else 0.22 * (views - 1) * views) + (0.3 if title else 0.0)
    height = rows * stacked * (side + 0.42) + heading + 0.2 * math.ceil(len(handles) / legend_columns)
    layout = ConstrainedLayoutEngine(w_pad=0.05, h_pad=0.04)
    figure = Figure(figsize=(width * columns / max(columns, 3), height), layout=layout)
    grid = figure.add_gridspec(rows * stacked, columns)
    if title is not None:
        figure.suptitle(title, fontsize=10)
    figure.legend(
        handles=handles,
        loc="outside lower center",
        ncols=legend_columns,
        frameon=False,
        fontsize=8,
        handlelength=1.6,
        columnspacing=1.6,
    )
    if is_row:
        return figure, [[grid[0, view]] for view in range(views)]
    return figure, [
        [grid[view * rows + k // columns, k % columns] for k in range(number)]
        for view, number in enumerate(counts)
    ]


def _choose_panels(shown: list[int]) -> list[Panel]:
    """Choose the pairs of velocities of the contacts `shown` that panels have as axes."""
    alone = [Panel((i, 1), (i, 0)) for i in shown]
    if len(shown) == 1:
        return alone
    if len(shown) == 2:
        return [Panel((shown[0], 0), (shown[1], 0)), *alone]
    ends = ((shown[0], shown[1]), (shown[-2], shown[-1]))
    return [*alone, *(Panel((i, 0), (j, 0)) for i, j in ends)]


def _select_spread(points: np.ndarray, panels: list[Panel], of_axes: Callable[..., float]) -> list[Panel]:
    """Select panels in which points (n, nc, 2) spread along both axes (min) or one (max), or the first."""
    spans = np.ptp(points, axis=0)
    noise = NOISE * float(np.max(spans))
    return [panel for panel in panels if of_axes(spans[panel.x], spans[panel.y]) > noise] or panels[:1]


def _windows(points: np.ndarray, other: np.ndarray, panels: list[Panel]) -> list[np.ndarray]:
    """Compute limits [[x0, x1], [y0, y1]] of each panel around points (k, nc, 2) and others (j, nc, 2).

    They are squares to equal scales, unless the spans of the points differ much and none of them is noise.
    """
    size = float(np.max(np.ptp(points, axis=0)))
    noise = NOISE * size
    every = np.concatenate([points, other])
    windows = []
    for panel in panels:
        limits = np.array([[every[:, i, k].min(), every[:, i, k].max()] for i, k in panel])
        span = np.array([np.ptp(points[:, i, k]) for i, k in panel])
        half = np.ptp(limits, axis=1) / 2.0
        if not noise < span.min() < span.max() / SCALES:
            half[:] = half.max() if half.max() > noise else size / 2.0 or 0.5
        half *= 1.16
        middle = limits.mean(axis=1)
        windows.append(np.stack([middle - half, middle + half], axis=1))
    return windows
