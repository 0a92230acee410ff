"""Pictures of the set of post-impact velocities of spatial contacts, where they go in the tangential plane.

Owns what `impact_set` leaves out in space: both tangential velocities of each contact, and how often each
combination of contact modes comes out.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from jaxcontact.impact import ImpactSamples
from jaxcontact.impact.sampling.outcomes import contact_velocities, outcome_shares
from jaxcontact.terms import ContactTerms
from jaxcontact.viz.impact_panel import END, INK, OTHER, SIMULTANEOUS

if TYPE_CHECKING:  # matplotlib is imported when a picture is asked for
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST_SHARES = 10  # combinations of modes that have a bar of their own
MOST_CONTACTS = 6
ROUND_OFF = 1e-6  # of the fastest contact before; a spread below it is none
COLUMN = 2.1  # width of a panel, inches


def plot_spatial_impact(
    samples: ImpactSamples,
    terms: ContactTerms,
    *,
    mujoco: Any = None,
    names: Sequence[str] | None = None,
    title: str | None = None,
) -> Figure:
    """Sampled outcomes of spatial contacts: a column per contact, and shares of the combinations of modes.

    Above, normal velocity against tangential speed; below, the tangential plane, with the velocity before as
    a cross. Last, how often contacts stick, slide and lift together. Samples that failed are left out.

    Args:
        samples: n samples, as from `impact.sample`.
        terms: the contact terms that were sampled, of spatial contacts.
        mujoco: (nv,) one outcome of a simulator, drawn as a star.
        names: of the nc contacts; default A, B, C, ...
        title: of the figure.

    Returns:
        A matplotlib figure that belongs to no window; save it by `savefig`.

    Raises:
        ValueError: planar terms, more than six active contacts, shapes that do not fit, no sample without
            failure.
        ImportError: matplotlib is not installed.
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

    columns = shown.size
    figure = Figure(figsize=(max(COLUMN * columns, 5.0), 2 * COLUMN + 2.3), layout="constrained")
    grid = figure.add_gridspec(3, columns)
    if title is not None:
        figure.suptitle(title, fontsize=10)
    normal, sliding = (values[good] for values in contact_velocities(samples, terms))
    before = _velocities(terms, samples.v_minus)
    fastest = float(np.abs(before).max())
    other = None if mujoco is None else _velocities(terms, mujoco)
    for column, i in enumerate(shown):
        _draw(
            figure.add_subplot(grid[0, column]),
            np.stack([np.linalg.norm(sliding[:, i], axis=1), normal[:, i]], axis=1),
            None,
            None if other is None else (np.linalg.norm(other[i, 1:]), other[i, 0]),
            (f"{labels[i]} tangential speed (m/s)", "normal (m/s)" if column == 0 else ""),
            fastest,
        )
        axes = figure.add_subplot(grid[1, column])
        star = None if other is None else (other[i, 1], other[i, 2])
        along = (f"{labels[i]} tangential 1 (m/s)", "tangential 2 (m/s)" if column == 0 else "")
        _draw(axes, sliding[:, i], before[i, 1:], star, along, fastest)
        axes.set_aspect("equal", adjustable="datalim")
    _draw_shares(figure.add_subplot(grid[2, :]), outcome_shares(samples, terms))
    return figure


def _velocities(terms: ContactTerms, v: Any) -> np.ndarray:
    """(nc, 3) contact velocities (n, t1, t2)."""
    rows = np.concatenate([np.asarray(terms.J_n)[:, None], np.asarray(terms.J_t)], axis=1)
    velocities: np.ndarray = rows @ np.asarray(v, float)
    return velocities


def _draw(
    axes: Axes, points: np.ndarray, before: Any, star: Any, labels: tuple[str, str], fastest: float
) -> None:
    """Points (n, 2) of one panel, the velocity before and that of a simulator; round-off stays small."""
    axes.axhline(0.0, color="#cccccc", linewidth=INK, zorder=0.5)
    axes.axvline(0.0, color="#cccccc", linewidth=INK, zorder=0.5)
    axes.scatter(points[:, 0], points[:, 1], s=2.0, c=END, linewidths=0, alpha=0.5, rasterized=True, zorder=2)
    if before is not None:
        axes.plot(*before, "X", color="black", markersize=5.5, markeredgecolor="white", zorder=4)
    if star is not None:
        axes.plot(
            *star, "*", color=OTHER, markersize=11, markeredgecolor="black", markeredgewidth=INK, zorder=5
        )
    for limits, values in ((axes.set_xlim, points[:, 0]), (axes.set_ylim, points[:, 1])):
        if before is None and star is None and np.abs(values).max() < ROUND_OFF * fastest:
            limits(-0.1 * fastest, 0.1 * fastest)
    axes.set_xlabel(labels[0], fontsize=8)
    axes.set_ylabel(labels[1], fontsize=8)
    axes.tick_params(labelsize=7.5, width=INK, length=2.5)
    axes.spines[["top", "right"]].set_visible(False)


def _draw_shares(axes: Axes, shares: list[tuple[str, float]]) -> None:
    """A bar per combination of modes, the rare ones together."""
    kept = shares[:MOST_SHARES]
    left = sum(share for _, share in shares[MOST_SHARES:])
    if left > 0:
        kept = [*kept, (f"{len(shares) - MOST_SHARES} other combinations", left)]
    place = np.arange(len(kept))[::-1]
    axes.barh(place, [100.0 * share for _, share in kept], color=SIMULTANEOUS, height=0.7)
    axes.set_yticks(place, [name for name, _ in kept], fontsize=6.5)
    axes.set_xlabel("share of the samples (%)", fontsize=8)
    axes.tick_params(axis="x", labelsize=7.5, width=INK, length=2.5)
    axes.tick_params(axis="y", length=0)
    axes.spines[["top", "right"]].set_visible(False)
