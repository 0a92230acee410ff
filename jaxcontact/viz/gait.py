"""Pictures of running on springy legs: strips of ground contact, height and speed, a small animation."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from jaxcontact._pytree import PyTree
from jaxcontact.arguments import check_names, check_rows
from jaxcontact.ess import EventTrajectory
from jaxcontact.front_door import POSITIVE, checked

if TYPE_CHECKING:  # matplotlib is imported when a picture is made
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLOURS = ("tab:blue", "tab:orange")
COIL = 0.012  # m, by which the zigzag of a drawn spring goes to either side
ASIDE = 0.2  # m, seen before and after the body
LONGEST_VIEW = 2.0  # m; the camera follows a longer run
MARK = 0.1  # m, between marks on the ground


@checked()
def contact_intervals(trajectory: EventTrajectory) -> list[list[tuple[float, float]]]:
    """List per leg the intervals of ground contact, s, of a `spring_legged` model's trajectory."""
    t, _, down = _used(trajectory)
    intervals: list[list[tuple[float, float]]] = []
    for leg in np.moveaxis(down, 1, 0):
        edges = np.flatnonzero(np.diff(np.concatenate([[False], leg, [False]]).astype(int)))
        ends = [float(t[min(int(i), t.size - 1)]) for i in edges]
        intervals.append(list(zip(ends[::2], ends[1::2], strict=True)))
    return intervals


@checked()
def plot_gait(trajectories: dict[str, EventTrajectory], *, title: str | None = None) -> Figure:
    """Plot strips of ground contact per leg, with height and forward speed of the body, one column per run.

    Args:
        trajectories: label -> trajectory of a `spring_legged` model, such as before and after.
        title: of the figure.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5.2 * len(trajectories), 5.6), layout="constrained")
    axes = figure.subplots(
        3, len(trajectories), squeeze=False, sharex="col", sharey="row", height_ratios=(2, 1, 1)
    )
    for column, (label, trajectory) in zip(axes.T, trajectories.items(), strict=True):
        t, x, _ = _used(trajectory)
        _draw_strips(column[0], contact_intervals(trajectory))
        column[0].set_title(label)
        column[1].plot(t, x[:, 1], color="0.2")
        column[2].plot(t, x[:, 3], color="0.2")
        column[2].set_xlabel("time (s)")
    axes[1, 0].set_ylabel("height (m)")
    axes[2, 0].set_ylabel("speed (m/s)")
    if title is not None:
        figure.suptitle(title)
    return figure


def _draw_strips(axes: Axes, intervals: list[list[tuple[float, float]]]) -> None:
    names = [f"leg {i + 1}" for i in range(len(intervals))]
    if len(intervals) == 6:
        names = [f"{place} {tripod}" for tripod in "AB" for place in ("front", "middle", "rear")]
    for i, bars in enumerate(intervals):
        colour = COLOURS[i // 3 % 2]
        axes.broken_barh([(a, b - a) for a, b in bars], (i - 0.35, 0.7), color=colour)
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(len(names) - 0.5, -0.5)


@checked(params=check_names("hips", "angle", "length"), frames=check_rows, slower=POSITIVE)
def animate_gait(
    trajectory: EventTrajectory,
    params: PyTree,
    path: Path | str,
    *,
    frames: int = 48,
    slower: float = 8.0,
    title: str | None = None,
) -> Path:
    """Write a GIF of a `spring_legged` model on the run, seen from the side, over a ground marked in metres.

    The camera stands still; it follows a run of over two metres.

    Args:
        trajectory: the run.
        params: the model's numbers: hips, angle, length.
        path: file to write.
        frames: number of pictures.
        slower: factor by which the animation is slower than the motion.
        title: of the animation.
    """
    from matplotlib.animation import FuncAnimation, PillowWriter
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.ticker import MultipleLocator

    t, x, down = _used(trajectory)
    times = np.linspace(t[0], t[-1], frames)
    rows = np.minimum(np.searchsorted(t, times, side="right") - 1, t.size - 1)
    body = np.stack([np.interp(times, t, x[:, i]) for i in range(3)], axis=-1)
    hips, angle, length = (np.asarray(params[name]) for name in ("hips", "angle", "length"))
    ends_of_view = _ends_of_view(body[:, 0])
    tall = float(np.clip(1.6 / (ends_of_view[0, 1] - ends_of_view[0, 0]), 1.2, 2.0))
    figure = Figure(figsize=(5.2, tall + (0.9 if title else 0.6)), layout="constrained")
    FigureCanvasAgg(figure)  # an animation draws on it
    figure.suptitle(title or "", fontsize=9)
    axes = figure.subplots()

    def draw(i: int) -> None:
        axes.clear()
        spot, row = body[i], rows[i]
        points = spot[:2] + hips[:, None] * np.array([np.cos(spot[2]), np.sin(spot[2])])
        axes.axhline(0.0, color="0.4", lw=1)
        for leg, hip in enumerate(points):
            aim = hip + length * np.array([np.sin(angle[leg]), -np.cos(angle[leg])])
            foot = np.array([x[row, 7 + leg], 0.0]) if down[row, leg] else hip + 0.75 * (aim - hip)
            colour = COLOURS[leg // 3 % 2]
            alpha = 1.0 if down[row, leg] else 0.35
            axes.plot(*_spring(hip, foot).T, color=colour, lw=1.8, alpha=alpha, solid_joinstyle="round")
        ends = points if len(points) > 1 else spot[:2] + np.array([[-0.06, 0.0], [0.06, 0.0]])
        axes.plot(ends[:, 0], ends[:, 1], color="0.15", lw=7, solid_capstyle="round")
        axes.set(xlim=ends_of_view[i], ylim=(-0.02, 0.3), yticks=[], aspect="equal")
        axes.xaxis.set_major_locator(MultipleLocator(MARK))
        axes.tick_params(labelsize=7)
        axes.set_xlabel("along the ground (m)", fontsize=8)
        axes.spines[:].set_visible(False)
        axes.set_title(f"{times[i] - t[0]:.2f} s, {slower:g} times slower", fontsize=8, loc="right")

    duration = max(float(t[-1] - t[0]), 1e-3)
    writer = PillowWriter(fps=max(round(frames / (duration * slower)), 1))
    FuncAnimation(figure, draw, frames=frames, init_func=lambda: None).save(path, writer=writer, dpi=100)
    return Path(path)


def _ends_of_view(x: np.ndarray) -> np.ndarray:
    """Return left and right end of the view per picture (n, 2), m; a short run has one view."""
    if x.max() - x.min() + 2 * ASIDE <= LONGEST_VIEW:
        return np.tile([x.min() - ASIDE, x.max() + ASIDE], (x.size, 1))
    return x[:, None] + 2 * np.array([-ASIDE, ASIDE])


def _spring(hip: np.ndarray, foot: np.ndarray) -> np.ndarray:
    """Return the corners (n, 2) of a zigzag from hip to foot, straight at its ends."""
    along = foot - hip
    across = np.array([-along[1], along[0]]) / max(float(np.linalg.norm(along)), 1e-12)
    aside = np.concatenate([[0.0, 0.0], np.resize([COIL, -COIL], 8), [0.0, 0.0]])
    share = np.concatenate([[0.0, 0.15], np.linspace(0.2, 0.8, 8), [0.85, 1.0]])
    return np.asarray(hip + share[:, None] * along + aside[:, None] * across)


def _used(trajectory: EventTrajectory) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return times, states and the standing legs (k, n), without the rows that repeat the end."""
    k = int(trajectory.num_rows)
    crossed = np.asarray(trajectory.crossed)[:k]
    legs = crossed.shape[1] // 3
    return (
        np.asarray(trajectory.t)[:k],
        np.asarray(trajectory.x)[:k],
        crossed[:, :legs] & ~crossed[:, 2 * legs :],
    )
