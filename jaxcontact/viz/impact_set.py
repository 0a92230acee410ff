"""Pictures of the set of post-impact velocities, in the velocities of the contacts.

Owns what Figs. 9 to 11, 13 and 14 of Halm & Posa show: samples through the impact and at its end, beside
the single outcomes that other laws predict.
"""

from __future__ import annotations

import dataclasses
import math
import string
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from jaxcontact.impact import ImpactSamples, anitescu_potra, anitescu_potra_all
from jaxcontact.impact.contact_space import colliding
from jaxcontact.solvers.modes import MAX_ENUMERATED
from jaxcontact.terms import ContactTerms

if TYPE_CHECKING:  # matplotlib is imported when a picture is asked for
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Okabe & Ito's colours, which the common kinds of colour blindness keep apart; shapes differ too.
PATH, END, BEFORE = "#b5b5b5", "#4d4d4d", "#000000"
SIMULTANEOUS, OTHER = "#0072b2", "#cc79a7"
SEQUENCES = ("#d55e00", "#f0b400", "#009e73", "#56b4e9")
MARKERS = ("^", "v", "s", "D")
INK = 0.6  # line width of spines, ticks and marker edges, pt
CELLS = 240  # one end point is drawn per cell of a panel of this many cells either way
MAX_IMPACTS = 50  # single impacts drawn of a sequence
SCALES = 20.0  # spans that differ by more than this are drawn to different scales
# A coordinate: contact, and 0 for its normal or 1 for its tangential velocity.
Coordinate = tuple[int, int]


class _Panel(NamedTuple):
    x: Coordinate
    y: Coordinate


@dataclasses.dataclass(frozen=True)
class _Curves:
    """What to draw, in contact velocities (..., nc, 2): normal, and tangential."""

    before: np.ndarray  # (nc, 2)
    ends: np.ndarray  # (n, nc, 2)
    paths: np.ndarray  # (m, k, nc, 2)
    simultaneous: np.ndarray  # (k, nc, 2)
    sequences: dict[str, np.ndarray]  # each (k, nc, 2)
    other: np.ndarray  # (0 or 1, nc, 2)

    def everything(self) -> np.ndarray:
        nc = self.before.shape[0]
        flat = [self.before[None], self.paths.reshape(-1, nc, 2), *self.sequences.values()]
        return np.concatenate([*flat, self.outcomes()])

    def outcomes(self) -> np.ndarray:
        last = [path[-1:] for path in self.sequences.values()]
        return np.concatenate([self.ends, self.simultaneous, *last])


def plot_impact_set(
    samples: ImpactSamples,
    terms: ContactTerms,
    *,
    simultaneous: Any = None,
    sequences: Mapping[str, Any] | None = None,
    mujoco: Any = None,
    names: Sequence[str] | None = None,
    title: str | None = None,
    zoom: bool = True,
    max_paths: int = 250,
    width: float = 7.2,
) -> Figure:
    """Sampled outcomes of an impact, normal against tangential velocity of the contacts.

    After Figs. 9 to 11, 13 and 14 of Halm & Posa. Two touching contacts make three panels: normal
    velocity of B against A, then each contact's normal against its tangential velocity; one contact makes
    one, more make one each and two of normal velocities, of the first and of the last pair. Spatial
    contacts show the tangential speed |J_t v|. Axes of a panel have equal scales, unless its spans differ
    more than twentyfold; the panel then says so. Samples that failed are left out.

    Args:
        samples: n samples; trajectories are drawn if `samples.path` is there.
        terms: the contact terms that were sampled.
        simultaneous: (k, nv) outcomes of the simultaneous law; default all of Anitescu & Potra's in the
            plane, one of them in space or beyond five contacts. An empty sequence draws none.
        sequences: (k, nv) velocities from before to after one or more single impacts, by label; default
            the cyclic orders of two contacts. An empty mapping draws none.
        mujoco: (nv,) one outcome of a simulator, drawn as a star.
        names: of the nc contacts; default A, B, C, ...
        title: of the figure.
        zoom: whether to repeat the panels below, with limits close about the outcomes.
        max_paths: largest number of trajectories drawn.
        width: of the figure, inches.

    Returns:
        A matplotlib figure that belongs to no window; save it by `savefig`.

    Raises:
        ValueError: shapes that do not fit the terms, too few names, no sample without failure.
        ImportError: matplotlib is not installed.
    """
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    nc, nt, nv = np.shape(terms.J_t)
    if np.ndim(samples.v_plus) != 2 or np.shape(samples.v_plus)[1] != nv:
        raise ValueError(f"samples: expected v_plus (n, {nv}) as in terms, got {np.shape(samples.v_plus)}")
    labels = tuple(string.ascii_uppercase if names is None else names)
    if len(labels) < nc:
        raise ValueError(f"names: expected {nc} names, one per contact, got {len(labels)}")
    if max_paths < 0:
        raise ValueError(f"max_paths: expected at least 0, got {max_paths}")
    shown = np.flatnonzero(np.asarray(terms.active))
    shown = shown if shown.size else np.arange(nc)
    curves = _curves(samples, terms, shown, simultaneous, sequences, mujoco, labels, max_paths)
    panels = _panels([int(i) for i in shown])
    views = (False, True) if zoom else (False,)

    columns = len(panels) if len(panels) <= 3 else 4
    rows = math.ceil(len(panels) / columns)
    handles = _legend(curves)
    legend_columns = 4 if columns > 1 else 1
    # Panels are square: the height follows from the width, inches.
    side = width / max(columns, 3) - 0.6
    heading = 0.22 * (len(views) - 1) * len(views) + (0.3 if title else 0.0)
    height = rows * len(views) * (side + 0.42) + heading + 0.2 * math.ceil(len(handles) / legend_columns)
    layout = ConstrainedLayoutEngine(w_pad=0.05, h_pad=0.04)
    figure = Figure(figsize=(width * columns / max(columns, 3), height), layout=layout)
    grid = figure.add_gridspec(rows * len(views), columns)
    for view, close in enumerate(views):
        points = curves.outcomes() if close else curves.everything()
        windows = _windows(points, curves.other, panels)
        for k, (panel, window) in enumerate(zip(panels, windows, strict=True)):
            axes = figure.add_subplot(grid[view * rows + k // columns, k % columns])
            _frame(axes, panel, window, labels, nt)
            _draw(axes, panel, window, curves)
            if columns > 3:  # small panels, small markers
                for line in axes.lines:
                    line.set_markersize(0.75 * line.get_markersize())
            if k == 0 and len(views) == 2:
                text = "Outcomes, close up" if close else "Through the impact"
                axes.set_title(text, loc="left", fontsize=8.5, fontweight="bold")
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
    return figure


def _curves(
    samples: ImpactSamples,
    terms: ContactTerms,
    shown: np.ndarray,
    simultaneous: Any,
    sequences: Mapping[str, Any] | None,
    mujoco: Any,
    labels: tuple[str, ...],
    max_paths: int,
) -> _Curves:
    nv = np.shape(terms.M)[0]
    good = np.flatnonzero(np.asarray(samples.status) == 0)
    if not good.size:
        raise ValueError("samples: expected at least one sample with status 0, got none")
    if simultaneous is None:
        simultaneous = _simultaneous(samples, terms)
    if sequences is None:
        sequences = _sequences(samples, terms, shown, labels) if shown.size == 2 else {}

    def contact_velocities(name: str, values: Any) -> np.ndarray:
        """(k, nv) to (k, nc, 2)."""
        values = np.asarray(values, float)
        if values.size == 0:
            return np.zeros((0, np.shape(terms.phi)[0], 2))
        values = np.atleast_2d(values)
        if values.ndim != 2 or values.shape[1] != nv or not np.all(np.isfinite(values)):
            raise ValueError(f"{name}: expected finite velocities (k, {nv}), got {values.shape}")
        normal = values @ np.asarray(terms.J_n).T
        tangential = np.einsum("kv,ctv->kct", values, np.asarray(terms.J_t))
        planar = tangential.shape[2] == 1
        slip = tangential[:, :, 0] if planar else np.linalg.norm(tangential, axis=2)
        return np.stack([normal, slip], axis=-1)

    paths = np.zeros((0, 1, np.shape(terms.phi)[0], 2))
    if samples.path is not None:
        chosen = np.asarray(samples.path[good[:max_paths]])
        if chosen.size:
            flat = contact_velocities("samples.path", chosen.reshape(-1, nv))
            paths = flat.reshape(*chosen.shape[:2], *flat.shape[1:])
    return _Curves(
        before=contact_velocities("samples.v_minus", samples.v_minus)[0],
        ends=contact_velocities("samples.v_plus", np.asarray(samples.v_plus)[good]),
        paths=paths,
        simultaneous=contact_velocities("simultaneous", simultaneous),
        sequences={k: contact_velocities(f"sequences[{k!r}]", v) for k, v in sequences.items()},
        other=contact_velocities("mujoco", () if mujoco is None else mujoco),
    )


def _simultaneous(samples: ImpactSamples, terms: ContactTerms) -> np.ndarray:
    """(k, nv) outcomes of the simultaneous law: all where they can be enumerated, else one."""
    nc, nt, _ = np.shape(terms.J_t)
    if nt == 1 and nc <= MAX_ENUMERATED:
        velocities, valid = anitescu_potra_all(terms, samples.v_minus)
        return np.asarray(velocities)[np.asarray(valid)]
    velocity, info = anitescu_potra(terms, samples.v_minus)
    return np.asarray(velocity)[None] if int(info.status) == 0 else np.zeros((0, velocity.shape[0]))


def _sequences(
    samples: ImpactSamples, terms: ContactTerms, shown: np.ndarray, labels: tuple[str, ...]
) -> dict[str, np.ndarray]:
    """Velocities through single impacts one at a time, as `impact.sequential`, for either contact first.

    In single steps that share one compilation, because the velocities in between are wanted.
    """
    found: dict[str, np.ndarray] = {}
    first, second = (int(i) for i in shown)
    for order in ((first, second), (second, first)):
        v, path, place = samples.v_minus, [np.asarray(samples.v_minus)], 0
        for _ in range(MAX_IMPACTS):
            approaching = np.asarray(colliding(terms, v))
            if not approaching.any():
                break
            contact = order[place] if approaching[order[place]] else order[1 - place]
            place = 1 - order.index(contact)
            v, _info = anitescu_potra(_only(terms, contact), v)
            path.append(np.asarray(v))
        found[f"one at a time, {labels[order[0]]} first"] = np.stack(path)
    return found


def _only(terms: ContactTerms, contact: int) -> ContactTerms:
    """The terms of one contact."""
    one = slice(contact, contact + 1)
    return terms.replace(
        J_n=terms.J_n[one],
        J_t=terms.J_t[one],
        phi=terms.phi[one],
        mu=terms.mu[one],
        active=terms.active[one],
    )


def _panels(shown: list[int]) -> list[_Panel]:
    alone = [_Panel((i, 1), (i, 0)) for i in shown]
    if len(shown) == 1:
        return alone
    if len(shown) == 2:
        return [_Panel((shown[0], 0), (shown[1], 0)), *alone]
    ends = ((shown[0], shown[1]), (shown[-2], shown[-1]))
    return [*alone, *(_Panel((i, 0), (j, 0)) for i, j in ends)]


def _windows(points: np.ndarray, other: np.ndarray, panels: list[_Panel]) -> list[np.ndarray]:
    """Limits [[x0, x1], [y0, y1]] of each panel about points (k, nc, 2) and others (j, nc, 2).

    Squares to equal scales, unless the spans of the points, small noise of others aside, differ much.
    """
    size = float(np.max(np.ptp(points, axis=0)))
    noise = 1e-6 * size
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


def _frame(axes: Axes, panel: _Panel, window: np.ndarray, labels: tuple[str, ...], nt: int) -> None:
    """Limits, labels, thin spines and the lines of zero velocity."""
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
    """Tick labels in units of 10^power, with a proper minus sign."""

    def text(value: float, _: float) -> str:
        return f"{round(value / 10.0**power, 6):g}".replace("-", "\u2212")

    return text


def _thin(x: np.ndarray, y: np.ndarray, window: np.ndarray) -> np.ndarray:
    """Indices of one point per occupied cell of the window: no point stands more than a cell aside."""
    low, size = window[:, 0], np.ptp(window, axis=1) / CELLS
    column = np.floor((x - low[0]) / size[0]).astype(np.int64)
    row = np.floor((y - low[1]) / size[1]).astype(np.int64)
    inside = np.flatnonzero((column >= 0) & (column < CELLS) & (row >= 0) & (row < CELLS))
    first = np.full(CELLS * CELLS, -1)
    first[(column[inside] * CELLS + row[inside])[::-1]] = inside[::-1]  # the last to be written stays
    return first[first >= 0]


def _draw(axes: Axes, panel: _Panel, window: np.ndarray, curves: _Curves) -> None:
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
    kept = _thin(x, y, window)
    size = float(np.clip(4000.0 / max(kept.size, 1), 1.6, 5.0))  # pt^2; few points are drawn larger
    axes.scatter(x[kept], y[kept], s=size, c=END, linewidths=0, rasterized=True, zorder=2)
    start = pick(curves.before)
    for end in zip(*pick(curves.simultaneous), strict=True):
        axes.plot(
            *zip(start, end, strict=True), color=SIMULTANEOUS, linewidth=0.9, linestyle=(0, (4, 2)), zorder=3
        )
    for k, path in enumerate(curves.sequences.values()):
        x, y = pick(path)
        style = _sequence_style(k)
        # The later ones thinner, so that all show where they coincide.
        axes.plot(x, y, color=style["color"], linewidth=_line_width(k), zorder=4)
        axes.plot(x[1:-1], y[1:-1], linestyle="none", zorder=5, **{**style, "markersize": 3.5})
        axes.plot(x[-1:], y[-1:], linestyle="none", zorder=6, clip_on=False, **style)
    # Rings and a star: what coincides with them stays visible.
    axes.plot(*pick(curves.simultaneous), linestyle="none", zorder=7, **_ring_style())
    axes.plot(*pick(curves.other), linestyle="none", zorder=8, **_star_style())
    axes.plot(*start, linestyle="none", zorder=9, **_before_style())


def _line_width(k: int) -> float:
    return 2.2 if k == 0 else 1.0


def _sequence_style(k: int) -> dict[str, Any]:
    colour, marker = SEQUENCES[k % len(SEQUENCES)], MARKERS[k % len(MARKERS)]
    return {
        "color": colour,
        "marker": marker,
        "markersize": 6.0,
        "markeredgecolor": "black",
        "markeredgewidth": INK,
    }


def _ring_style() -> dict[str, Any]:
    return {
        "color": SIMULTANEOUS,
        "marker": "o",
        "markersize": 9.0,
        "markerfacecolor": "none",
        "markeredgewidth": 1.6,
    }


def _star_style() -> dict[str, Any]:
    return {
        "color": OTHER,
        "marker": "*",
        "markersize": 11.0,
        "markeredgecolor": "black",
        "markeredgewidth": INK,
    }


def _before_style() -> dict[str, Any]:
    return {
        "color": BEFORE,
        "marker": "X",
        "markersize": 5.5,
        "markeredgecolor": "white",
        "markeredgewidth": 0.5,
    }


def _legend(curves: _Curves) -> list[Any]:
    from matplotlib.lines import Line2D

    def entry(label: str, **style: Any) -> Line2D:
        return Line2D([], [], label=label, **style)

    count = curves.ends.shape[0]
    handles = [entry("before the impact", linestyle="none", **_before_style())]
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
