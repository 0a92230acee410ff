"""Pictures of event-selected systems: trajectories with their events, a corner, the order plot."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
import numpy as np

from jaxcontact._pytree import PyTree
from jaxcontact.arguments import check_number_leaves, check_positive, check_rows
from jaxcontact.ess import EventTrajectory, Settings, integrate
from jaxcontact.ess.inputs import system_of
from jaxcontact.front_door import POSITIVE, checked
from jaxcontact.mechanics.system import Model
from jaxcontact.viz.palette import LINES

if TYPE_CHECKING:  # matplotlib is imported when a picture is made
    from jaxtyping import Float, Real
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Okabe & Ito's colours, distinguishable with the common kinds of colour blindness.
INK, PALE = "#4d4d4d", "#b5b5b5"
DASHES = ("-", "--", "-.", ":")
GRID = 160  # points along an axis of the picture of a corner; limits the evaluations of the guards
MAX_LABELS = 12  # guards named in a legend; limits its height


def _figure(width: float, height: float) -> Figure:
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    return Figure(figsize=(width, height), layout=ConstrainedLayoutEngine(w_pad=0.05, h_pad=0.05))


def _simplify_axes(axes: Axes) -> None:
    """Hide the upper and right spine of a plot, and make its ticks small."""
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(labelsize=8)


@checked(width=POSITIVE)
def plot_trajectory(
    trajectory: EventTrajectory,
    *,
    components: Sequence[int] | None = None,
    names: Sequence[str] | None = None,
    guards: Sequence[str] | None = None,
    title: str | None = None,
    width: float = 7.2,
) -> Figure:
    """Plot states over time, a panel each, with a mark at every crossing and the steps as ticks below.

    Steps are joined by straight lines; if they are long, bound them by `DormandPrince(longest=...)`.

    Args:
        trajectory: one run of `integrate`.
        components: of the state; default all, at most six.
        names: of these components; default x0, x1, ...
        guards: names of all guards, for the legend; default their indices.
        title: of the figure.
        width: of the figure, inches.

    Returns:
        A matplotlib figure that belongs to no window.

    Raises:
        ValueError: if the trajectory has batch axes, a component does not exist, or there are too few names.
    """
    if np.ndim(trajectory.x) != 2:
        raise ValueError(f"trajectory: expected x (N, n) of one run, got {np.shape(trajectory.x)}")
    n, m = np.shape(trajectory.x)[1], np.shape(trajectory.crossed)[1]
    shown = list(range(min(n, 6))) if components is None else list(components)
    if not shown or not all(0 <= i < n for i in shown):
        raise ValueError(f"components: expected indices in 0..{n - 1}, got {shown}")
    labels = [f"x{i}" for i in shown] if names is None else list(names)
    marks = [f"guard {k}" for k in range(m)] if guards is None else list(guards)
    if len(labels) < len(shown) or len(marks) < m:
        raise ValueError(f"names, guards: expected {len(shown)} and {m}, got {len(labels)} and {len(marks)}")
    rows, count = int(trajectory.num_rows), int(trajectory.num_events)
    t, x = np.asarray(trajectory.t)[:rows], np.asarray(trajectory.x)[:rows]
    order, at = np.asarray(trajectory.order)[:count], np.asarray(trajectory.event_rows)[:count]

    figure = _figure(width, 0.7 + 1.4 * len(shown))
    panels = figure.subplots(len(shown), 1, sharex=True, squeeze=False)[:, 0]
    for axes, i, label in zip(panels, shown, labels, strict=False):
        axes.plot(t, x[:, i], color=INK, lw=1.2, zorder=2)
        for k in np.unique(order):
            hits = at[order == k]
            style = {"color": LINES[k % len(LINES)], "zorder": 3}
            marker = "o^svDP"[(k // len(LINES)) % 6]
            axes.plot(t[hits], x[hits, i], marker, ms=5, mec="white", mew=0.6, **style)
        axes.set_ylabel(label, fontsize=9)
        _simplify_axes(axes)
    panels[-1].set_xlabel("time (s)", fontsize=9)
    # The steps are ticks at the foot of the lowest panel.
    low, high = panels[-1].get_ylim()
    panels[-1].set_ylim(low - 0.12 * (high - low), high)
    panels[-1].plot(t, np.full(rows, low - 0.06 * (high - low)), "|", color=PALE, ms=6, mew=0.7)
    _add_guard_legend(figure, order, marks)
    if title:
        figure.suptitle(title, fontsize=10)
    return figure


def _add_guard_legend(figure: Figure, order: np.ndarray, marks: Sequence[str]) -> None:
    from matplotlib.lines import Line2D

    met = [int(k) for k in np.unique(order)][:MAX_LABELS]
    handles = [
        Line2D(
            [], [], ls="", marker="o^svDP"[(k // len(LINES)) % 6], color=LINES[k % len(LINES)],
            mec="white", label=marks[k],
        )
        for k in met
    ]  # fmt: skip
    handles.append(Line2D([], [], ls="", marker="|", color=PALE, label="steps"))
    figure.legend(handles=handles, loc="outside lower center", ncols=4, fontsize=8, frameon=False)


@checked(
    eps=check_positive, radius=POSITIVE, duration=POSITIVE, starts=check_rows, width=POSITIVE,
    control=check_number_leaves,
)  # fmt: skip
def plot_corner(
    model: Model,
    x_corner: Float[jax.Array, " 2"],
    *,
    eps: float | jax.Array,
    radius: float,
    duration: float,
    starts: int = 9,
    control: PyTree = None,
    width: float = 5.0,
) -> Figure:
    """Plot a corner of guards in the plane, with trajectories coloured by their order of crossing.

    After Fig. 2 of Anderson & Revzen: guards and their bands; each colour is one linear piece of the
    B-derivative. Dots are the ends of steps, thick lines the steps inside the bands.

    Args:
        model: an event-selected system with two states, and its numbers.
        x_corner: (2,) point at which the guards meet.
        eps: half width of the bands, one number or (m,).
        radius: half width of the picture.
        duration: of each trajectory; it is at the corner's height after half of that.
        starts: number of trajectories.
        control: as for the field.
        width: of the figure, inches.

    Returns:
        A matplotlib figure that belongs to no window; `figure.axes[0].set_title` gives it a title.

    Raises:
        ValueError: if the state is not two numbers.
    """
    if jnp.shape(x_corner) != (2,):
        raise ValueError(f"x_corner: expected shape (2,), got {jnp.shape(x_corner)}")
    es, params, corner = system_of(model), model.params, np.asarray(x_corner)
    figure = _figure(width, width)
    axes = figure.add_subplot()
    side = np.linspace(-radius, radius, GRID)
    grid = np.stack(np.meshgrid(corner[0] + side, corner[1] + side), axis=-1)
    h = np.asarray(jax.vmap(jax.vmap(lambda x: es.guards(x, params)))(jnp.asarray(grid)))
    m = h.shape[-1]
    widths = np.broadcast_to(np.asarray(eps), (m,))
    for k in range(m):
        at = (grid[..., 0], grid[..., 1], h[..., k])
        axes.contourf(*at, levels=[-widths[k], widths[k]], colors=[PALE], alpha=0.3, zorder=0)
        axes.contour(*at, levels=[0.0], colors=[INK], linestyles=[DASHES[k % 4]], linewidths=1.2, zorder=1)

    before = jnp.zeros(m, bool)
    f = np.asarray(es.xdot(jnp.zeros(()), jnp.asarray(corner), before, control, params))
    across = np.array([-f[1], f[0]]) / np.hypot(*f)
    offsets = np.linspace(-0.6, 0.6, starts) * radius
    settings = Settings(eps=eps, max_steps=256)
    colors: dict[tuple[int, ...], str] = {}
    for offset in offsets:
        x0 = jnp.asarray(corner - 0.5 * duration * f + offset * across)
        run = integrate(model, x0, 0.0, duration, settings=settings, control=control, crossed0=before)
        _draw_run(axes, run, colors)
    axes.set(xlim=corner[0] + [-radius, radius], ylim=corner[1] + [-radius, radius], aspect="equal")
    axes.set_xlabel("x0", fontsize=9)
    axes.set_ylabel("x1", fontsize=9)
    _simplify_axes(axes)
    axes.legend(loc="upper left", fontsize=8, framealpha=0.9, title="order of crossing", title_fontsize=8)
    return figure


def _draw_run(axes: Axes, run: EventTrajectory, colors: dict[tuple[int, ...], str]) -> None:
    rows, count = int(run.num_rows), int(run.num_events)
    x, at = np.asarray(run.x)[:rows], np.asarray(run.event_rows)[:count]
    order = tuple(int(k) for k in np.asarray(run.order)[:count])
    fresh = order not in colors
    color = colors.setdefault(order, LINES[len(colors) % len(LINES)])
    label = ", ".join(map(str, order)) if fresh else None
    axes.plot(*x.T, color=color, lw=0.9, zorder=2, label=label)
    axes.plot(*x.T, ".", color=color, ms=3, zorder=2)
    for row in at:
        axes.plot(*x[row - 1 : row + 1].T, color=color, lw=2.6, solid_capstyle="round", zorder=3)


@checked(width=POSITIVE, widths=check_positive, errors=check_positive)
def plot_order(
    widths: Real[np.ndarray, " k"], errors: Real[np.ndarray, " k"], *, fit: tuple[float, float] | None = None,
    title: str | None = None, width: float = 4.6,
) -> Figure:  # fmt: skip
    """Plot error over 1 / eps, both logarithmic, with the fitted order, after Fig. 3 of Anderson & Revzen.

    Args:
        widths: (k,) values of eps.
        errors: (k,) of the end point.
        fit: range of eps that is fitted; default all of them.
        title: of the figure.
        width: of the figure, inches.

    Raises:
        ValueError: for fewer than two points to fit, or numbers that are not positive.
    """
    eps, error = np.asarray(widths, float), np.asarray(errors, float)
    if eps.shape != error.shape or not (np.all(eps > 0) and np.all(error > 0)):
        raise ValueError(f"widths, errors: expected positive numbers, {eps.shape} and {error.shape} of them")
    low, high = (eps.min(), eps.max()) if fit is None else fit
    used = (eps >= low * (1 - 1e-9)) & (eps <= high * (1 + 1e-9))
    if used.sum() < 2:
        raise ValueError(f"fit: expected at least two widths in {(low, high)}, got {int(used.sum())}")
    order, offset = np.polyfit(np.log(eps[used]), np.log(error[used]), 1)
    figure = _figure(width, 0.8 * width)
    axes = figure.add_subplot()
    axes.axvspan(1 / high, 1 / low, color=PALE, alpha=0.25, lw=0, label="fitted")
    axes.loglog(
        1 / eps, np.exp(offset) * eps**order, "--", color=LINES[0], lw=1.2, label=f"order {order:.3f}"
    )
    axes.loglog(1 / eps, error, "o", color=LINES[1], ms=4, label="error")
    axes.set_xlabel("1 / eps", fontsize=9)
    axes.set_ylabel("error at the end", fontsize=9)
    _simplify_axes(axes)
    axes.legend(fontsize=8, frameon=False)
    if title:
        axes.set_title(title, fontsize=10)
    return figure
