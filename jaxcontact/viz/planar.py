"""A planar scene drawn into axes: ground, bodies, joints, contacts and arrows. The entry is `draw_planar`."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from jaxcontact.viz.palette import ARROW, BODIES, GROUND, HATCH, MIN_SPEED, OUTLINE, Style, arrow
from jaxcontact.viz.scene import Frames, Scene
from jaxcontact.viz.solids import outline

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def draw_planar(axes: Axes, scene: Scene, frame: Frames, low: np.ndarray, high: np.ndarray) -> None:
    """Draw ground, bodies and joints; set the labels, and limits around the box from `low` to `high`."""
    size, margin = float(np.max(high - low)), margin_of(low, high)
    axes.set_xlim(low[0] - margin, high[0] + margin)
    axes.set_ylim(low[1] - margin, high[1] + margin)
    axes.set_aspect("equal", adjustable="box")
    axes.set_xlabel("x (m)", fontsize=8, labelpad=2.0)
    axes.set_ylabel("y (m)", fontsize=8, labelpad=2.0)
    axes.tick_params(labelsize=7.5, width=0.6, length=2.5, pad=2.0)
    axes.locator_params(nbins=5)
    for side, spine in axes.spines.items():
        spine.set_linewidth(0.6)
        spine.set_visible(side in ("left", "bottom"))
    _draw_ground(axes, scene, (low + high) / 2.0, depth=0.1 * size, length=4.0 * (size + margin))
    draw_planar_bodies(axes, scene, frame)


def margin_of(low: np.ndarray, high: np.ndarray) -> float:
    """Return the margin for arrows around all that moves, m."""
    return (ARROW + 0.06) * float(np.max(high - low))


def _draw_ground(axes: Axes, scene: Scene, middle: np.ndarray, depth: float, length: float) -> None:
    """Draw a hatched band inside every half-plane, cut off if it is deep inside another."""
    from matplotlib.patches import Polygon

    for normal, offset in scene.planes:
        along = np.array([normal[1], -normal[0]])
        origin = middle + (offset - normal @ middle) * normal
        ends = [-length, length]
        for other, beyond in scene.planes:
            slope = float(other @ along)
            if abs(slope) > 1e-9:  # on one side of t, origin + t along is no deeper than `depth`
                t = float(beyond - depth - other @ origin) / slope
                ends = [max(ends[0], t), ends[1]] if slope > 0 else [ends[0], min(ends[1], t)]
        top = np.stack([origin + t * along for t in ends])
        # The edge is drawn below all fills, so that it ends where another half-plane begins.
        axes.plot(*top.T, color=OUTLINE, linewidth=1.6, solid_capstyle="butt", zorder=1)
        corners = np.concatenate([top, top[::-1] - depth * normal])
        axes.add_patch(
            Polygon(corners, facecolor=GROUND, edgecolor=HATCH, hatch="////", linewidth=0.0, zorder=1.1)
        )


def draw_planar_bodies(
    axes: Axes, scene: Scene, frame: Frames, *, colour: str | None = None, alpha: float = 1.0
) -> None:
    """Draw solids, joints and centres of mass; given a colour, only solids, in that colour as a ghost."""
    from matplotlib.patches import Polygon

    ghost = colour is not None
    for body, solid, is_link in scene.parts:
        if len(solid.points) == 1 and solid.radius == 0.0:
            continue
        edge = outline(frame.placed(body, solid.points), solid.radius)
        fill = colour or BODIES[body % len(BODIES)]
        line = 0.0 if ghost else 0.8
        style: Style = {"alpha": alpha, "zorder": 2.0 if ghost else 3.0 - 0.1 * is_link}
        axes.add_patch(Polygon(edge, facecolor=fill, edgecolor=OUTLINE, linewidth=line, **style))
        if len(solid.points) == 1 and not ghost:  # a spoke shows the rotation
            rim = frame.placed(body, solid.points + solid.radius * np.array([[0.0, 1.0]]))
            spoke = np.concatenate([frame.placed(body, solid.points), rim])
            axes.plot(*spoke.T, color=OUTLINE, linewidth=0.8, zorder=3.3)
    if ghost:
        return
    for joint in scene.joints:
        (place,) = frame.placed(joint.body, joint.at[None])
        marker: Style = {"color": "white", "markeredgecolor": OUTLINE, "markeredgewidth": 0.8}
        axes.plot(*place, "^" if joint.on_world else "o", markersize=5.0, zorder=6, **marker)
    axes.plot(*frame.centres.T, "o", markersize=3.5, color=OUTLINE, zorder=5)


def draw_planar_contacts(
    axes: Axes,
    frame: Frames,
    labels: tuple[str, ...],
    velocities: np.ndarray,
    metres: float,
    colour: str,
) -> None:
    """Draw contacts that have a name, and arrows of `metres` per m/s."""
    from matplotlib.patheffects import withStroke

    halo = [withStroke(linewidth=2.5, foreground="white")]
    for place, (normal, tangent), label, u in zip(
        frame.contacts, frame.axes, labels, velocities, strict=False
    ):
        if not label:
            continue
        axes.plot(
            *place, "o", markersize=4.0, color=colour, markeredgecolor="white", markeredgewidth=0.6, zorder=8
        )
        # The label is in the second body, and beside an arrow that also points there.
        away = -normal
        if metres > 0.0 and np.linalg.norm(u) > MIN_SPEED and -(u @ normal) > 0.5 * np.linalg.norm(u):
            away = tangent - 0.6 * normal
        axes.annotate(
            label,
            (place[0], place[1]),
            xytext=(9.0 * away[0], 9.0 * away[1]),
            textcoords="offset points",
            fontsize=9,
            fontweight="bold",
            ha="center",
            va="center",
            zorder=10,
            path_effects=halo,
        )
        if metres > 0.0 and np.linalg.norm(u) > MIN_SPEED:
            arrow(axes, place, metres * u, colour)


def draw_scale(axes: Axes, low: np.ndarray, high: np.ndarray, metres: float, colour: str) -> None:
    """Draw an arrow of a round speed, above the mechanism on the left."""
    margin = margin_of(low, high)
    longest = ARROW * float(np.max(high - low)) / metres
    power = 10.0 ** math.floor(math.log10(longest))
    speed = max(k * power for k in (1.0, 2.0, 5.0) if k * power <= longest * (1.0 + 1e-9))
    start = np.array([low[0] - 0.85 * margin, high[1] + 0.78 * margin])
    end = start + np.array([metres * speed, 0.0])
    arrow(axes, start, end - start, colour)
    axes.annotate(
        f"{speed:g} m/s",
        (end[0], end[1]),
        xytext=(4, 0),
        textcoords="offset points",
        fontsize=8,
        va="center",
    )
