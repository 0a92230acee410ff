"""Pictures of the set of post-impact velocities of spatial contacts: `plot_spatial_impact`.

Owns the parts that `impact_set` leaves out in space: both tangential velocities of each contact, and the
frequency of each combination of contact modes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from jaxcontact._pytree import PyTree
from jaxcontact.arguments import check_number
from jaxcontact.front_door import checked
from jaxcontact.impact import ImpactSamples
from jaxcontact.impact.sampling.outcomes import contact_velocities, named_shares, outcome_counts
from jaxcontact.terms import ContactTerms
from jaxcontact.viz.impact_panel import END, INK, OTHER, SIMULTANEOUS

if TYPE_CHECKING:  # matplotlib is imported when a picture is made
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.gridspec import GridSpec

MOST_SHARES = 10  # combinations of modes with a bar of their own; the others share one
MOST_CONTACTS = 6  # columns of a figure; limits its width
MIN_HALF_WIDTH = 0.02  # of a window, relative to the fastest contact before; round-off stays small
COLUMN, NARROWEST = 2.1, 5.6  # width of a panel and of the figure, inches


@checked(mujoco=check_number)
def plot_spatial_impact(
    samples: ImpactSamples,
    terms: ContactTerms,
    *,
    mujoco: PyTree = None,
    names: Sequence[str] | None = None,
    title: str | None = None,
) -> Figure:
    """Plot sampled outcomes of spatial contacts: a column per contact, and fractions of mode combinations.

    Above, normal velocity against tangential speed; below, the tangential plane about the outcomes, with a
    dotted line from rest to the velocity before. A row has one scale. Last, how often contacts stick, slide
    and lift together. Samples that failed are left out.

    Args:
        samples: n samples, as from `impact.sample`.
        terms: the contact terms that were sampled, of spatial contacts.
        mujoco: (nv,) one outcome of a simulator, drawn as a star.
        names: of the nc contacts; default A, B, C, ...
        title: of the figure.

    Returns:
        A matplotlib figure that belongs to no window; save it by `savefig`.

    Raises:
        ValueError: for planar terms, more than six active contacts, shapes that do not fit, or no sample
            without failure.
        ImportError: if matplotlib is not installed.
    """
    nc, nt, nv = np.shape(terms.J_t)
    shown = np.flatnonzero(np.asarray(terms.active))
    if nt != 2:
        raise ValueError(f"terms: expected spatial contacts (nt = 2), got nt = {nt}")
    if not 1 <= shown.size <= MOST_CONTACTS:
        raise ValueError(f"terms: expected 1 to {MOST_CONTACTS} active contacts, got {shown.size}")
    if np.shape(samples.v_plus)[1:] != (nv,):
        raise ValueError(f"samples: expected v_plus (n, {nv}) as in terms, got {np.shape(samples.v_plus)}")
    if mujoco is not None and np.shape(mujoco) != (nv,):
        raise ValueError(f"mujoco: expected a velocity ({nv},), got shape {np.shape(mujoco)}")
    labels = [chr(ord("A") + i) for i in range(nc)] if names is None else list(names)
    if len(labels) < nc:
        raise ValueError(f"names: expected {nc} names, one per contact, got {len(labels)}")
    good = np.asarray(samples.status) == 0
    if not good.any():
        raise ValueError("samples: expected at least one sample with status 0, got none")

    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

    size = max(COLUMN * shown.size, NARROWEST), 2 * COLUMN + 2.6
    figure = Figure(figsize=size, layout="constrained")
    grid = figure.add_gridspec(3, shown.size)
    if title is not None:
        figure.suptitle(title, fontsize=10, wrap=True)
    axes = _draw_contacts(figure, grid, samples, terms, mujoco, labels, good)
    _draw_shares(figure.add_subplot(grid[2, :]), named_shares(outcome_counts(samples, terms), terms, labels))
    marks = {str(line.get_label()): line for line in axes.lines if not str(line.get_label()).startswith("_")}
    cloud = Line2D([], [], marker="o", color=END, linewidth=0, markersize=3.5)  # larger than the points drawn
    figure.legend(
        handles=[cloud, *marks.values()], labels=["outcomes", *marks], loc="outside lower center",
        ncols=1 + len(marks), frameon=False, fontsize=8,
    )  # fmt: skip
    return figure


def _draw_contacts(
    figure: Figure,
    grid: GridSpec,
    samples: ImpactSamples,
    terms: ContactTerms,
    mujoco: PyTree,
    labels: Sequence[str],
    good: np.ndarray,
) -> Axes:
    """Draw a column of two panels per active contact; return the last axes."""
    shown = np.flatnonzero(np.asarray(terms.active))
    normal, sliding = (values[good] for values in contact_velocities(samples, terms))
    before = _velocities(terms, samples.v_minus)
    after = np.concatenate([normal[..., None], sliding], axis=2)
    if mujoco is not None:
        after = np.concatenate([after, _velocities(terms, mujoco)[None]])
    last = None if mujoco is None else -1  # the simulator's outcome is the last one
    speed = np.stack([np.linalg.norm(after[..., 1:], axis=2), after[..., 0]], axis=2)
    fastest = float(np.abs(before).max())
    of_speeds, of_planes = (
        _window(values[:, shown], fastest, square)
        for values, square in ((speed, False), (after[..., 1:], True))
    )
    for column, i in enumerate(map(int, shown)):
        axes = figure.add_subplot(grid[0, column])
        along = f"{labels[i]} tangential speed (m/s)", "" if column else "normal (m/s)"
        _draw_panel(axes, speed[:last, i], None, speed[last, i] if last else None, along, of_speeds)
        axes = figure.add_subplot(grid[1, column])
        along = f"{labels[i]} tangential 1 (m/s)", "" if column else "tangential 2 (m/s)"
        plane = after[:, i, 1:]
        _draw_panel(axes, plane[:last], before[i, 1:], plane[last] if last else None, along, of_planes)
        axes.set_box_aspect(1.0)
    return axes


def _window(values: np.ndarray, fastest: float, square: bool) -> np.ndarray:
    """Compute limits [[x0, x1], [y0, y1]] around values (n, nc, 2) and rest; round-off stays small."""
    low = np.minimum(values.min(axis=(0, 1)), 0.0)
    high = np.maximum(values.max(axis=(0, 1)), 0.0)
    half = np.maximum(0.55 * (high - low), MIN_HALF_WIDTH * fastest)
    if square:
        half[:] = half.max()
    middle = np.where(high - low < MIN_HALF_WIDTH * fastest, 0.0, (low + high) / 2.0)
    return np.stack([middle - half, middle + half], axis=1)


def _velocities(terms: ContactTerms, v: PyTree) -> np.ndarray:
    """Compute contact velocities (nc, 3), along n, t1, t2."""
    rows = np.concatenate([np.asarray(terms.J_n)[:, None], np.asarray(terms.J_t)], axis=1)
    velocities: np.ndarray = rows @ np.asarray(v, float)
    return velocities


def _draw_panel(
    axes: Axes,
    points: np.ndarray,
    before: np.ndarray | None,
    star: np.ndarray | None,
    labels: tuple[str, str],
    window: np.ndarray,
) -> None:
    """Draw points (n, 2) of one panel, the velocity before and that of a simulator."""
    axes.axhline(0.0, color="#cccccc", linewidth=INK, zorder=0.5)
    axes.axvline(0.0, color="#cccccc", linewidth=INK, zorder=0.5)
    axes.scatter(points[:, 0], points[:, 1], s=2.0, c=END, linewidths=0, alpha=0.5, rasterized=True, zorder=2)
    if before is not None:  # clipped if it is far from the outcomes
        axes.plot(
            (before[0], 0.0), (before[1], 0.0), "X:", color="black", markersize=5.5, markeredgecolor="white",
            linewidth=2 * INK, markevery=[0], scalex=False, scaley=False, zorder=1, label="before",
        )  # fmt: skip
    if star is not None:
        axes.plot(
            *star, "*", color=OTHER, markersize=11, markeredgecolor="black", markeredgewidth=INK, zorder=5,
            label="MuJoCo",
        )  # fmt: skip
    axes.set_xlim(window[0])
    axes.set_ylim(window[1])
    axes.set_xlabel(labels[0], fontsize=8)
    axes.set_ylabel(labels[1], fontsize=8)
    axes.tick_params(labelsize=7.5, width=INK, length=2.5)
    axes.spines[["top", "right"]].set_visible(False)


def _draw_shares(axes: Axes, shares: list[tuple[str, float]]) -> None:
    """Draw a bar per combination of modes, and one for the rare ones together."""
    bars_shown = shares[:MOST_SHARES]
    left = sum(share for _, share in shares[MOST_SHARES:])
    if left > 0:
        bars_shown = [*bars_shown, (f"{len(shares) - MOST_SHARES} other combinations", left)]
    place = np.arange(len(bars_shown))[::-1]
    bars = axes.barh(place, [100.0 * share for _, share in bars_shown], color=SIMULTANEOUS, height=0.7)
    axes.bar_label(bars, fmt="%.3g %%", fontsize=6.5, padding=2.0)
    axes.set_yticks(place, [name for name, _ in bars_shown], fontsize=6.5)
    axes.set_xlabel("share of the samples (%)", fontsize=8)
    axes.tick_params(axis="x", labelsize=7.5, width=INK, length=2.5)
    axes.tick_params(axis="y", length=0)
    axes.spines[["top", "right"]].set_visible(False)
