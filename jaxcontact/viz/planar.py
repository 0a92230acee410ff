"""A planar scene drawn into axes: ground, bodies, joints, contacts and the arrows of their velocities."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from jaxcontact.geometry import Box, Disc, HalfSpace, Point
from jaxcontact.viz.outline import OUTLINED
from jaxcontact.viz.palette import ARROW, BODIES, GROUND, HATCH, OUTLINE, STILL, arrow
from jaxcontact.viz.scene import Scene, ball, box_corners, extent, margin_of, shape_outline

if TYPE_CHECKING:
    from matplotlib.axes import Axes

LINK = 5.0  # line width of a link, pt


def draw_scene(
    axes: Axes,
    scene: Scene,
    labels: tuple[str, ...],
    velocities: np.ndarray,
    metres: float,
    colour: str,
) -> None:
    """The whole scene, with limits, labels of the axes, and arrows of `metres` per m/s."""
    low, high = extent(scene)
    size, margin = float(np.max(high - low)), margin_of(scene)
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
    _draw_ground(axes, scene, depth=0.1 * size, length=4.0 * (size + margin))
    for body in range(len(scene.structure.bodies)):
        _draw_body(axes, scene, body, BODIES[body % len(BODIES)])
    for _, second, place in scene.joints:
        marker = "o" if second >= 0 else "^"
        axes.plot(
            *place,
            marker,
            markersize=5.0,
            color="white",
            markeredgecolor=OUTLINE,
            markeredgewidth=0.8,
            zorder=6,
        )
    _draw_contacts(axes, scene, labels, velocities, metres, colour)
    if metres > 0.0:
        _draw_scale(axes, scene, metres, colour)


def _draw_ground(axes: Axes, scene: Scene, depth: float, length: float) -> None:
    """A hatched band inside every half-plane, cut off where it is deep inside another."""
    from matplotlib.patches import Polygon

    middle = (scene.contacts.min(axis=0) + scene.contacts.max(axis=0)) / 2.0
    planes = [shape for shape in scene.structure.shapes if isinstance(shape, HalfSpace)]
    offsets = [0.0 if s.offset is None else float(scene.constants[s.offset]) for s in planes]
    for shape, offset in zip(planes, offsets, strict=True):
        normal = np.array(shape.normal)
        along = np.array([normal[1], -normal[0]])
        origin = middle + (offset - normal @ middle) * normal
        ends = [-length, length]
        for other, beyond in zip(planes, offsets, strict=True):
            slope = float(np.array(other.normal) @ along)
            if abs(slope) > 1e-9:  # origin + t along is no deeper than `depth` on one side of t
                t = float(beyond - depth - np.array(other.normal) @ origin) / slope
                ends = [max(ends[0], t), ends[1]] if slope > 0 else [ends[0], min(ends[1], t)]
        top = np.stack([origin + t * along for t in ends])
        # The edge lies below all fills, so that it ends where another half-plane begins.
        axes.plot(*top.T, color=OUTLINE, linewidth=1.6, solid_capstyle="butt", zorder=1)
        corners = np.concatenate([top, top[::-1] - depth * normal])
        axes.add_patch(
            Polygon(corners, facecolor=GROUND, edgecolor=HATCH, hatch="////", linewidth=0.0, zorder=1.1)
        )


def _draw_body(axes: Axes, scene: Scene, body: int, fill: str) -> None:
    """A box or disc as it is; any other body as a link from its joints and shapes to its centre of mass."""
    from matplotlib.patches import Circle, Polygon

    centre = scene.centres[body]
    shapes = [s for s in scene.structure.shapes if getattr(s, "body", None) == scene.structure.bodies[body]]
    solid = False
    ends = [place for i, j, place in scene.joints if body in (i, j)]
    discs = []
    for shape in shapes:
        if isinstance(shape, (Box, *OUTLINED)):
            edge = box_corners(scene, shape) if isinstance(shape, Box) else shape_outline(scene, shape)
            axes.add_patch(Polygon(edge, facecolor=fill, edgecolor=OUTLINE, linewidth=0.8, zorder=3))
            solid = True
        elif isinstance(shape, Disc | Point):
            place, radius = ball(scene, shape)
            around = bool(np.linalg.norm(place - centre) <= radius)
            solid = solid or around
            discs.append((place, radius, around))
            if not around:
                ends.append(place)
    if not solid:
        for end in ends or [centre]:
            pair = np.stack([end, centre]).T
            axes.plot(*pair, color=OUTLINE, linewidth=LINK + 1.6, solid_capstyle="round", zorder=3.0)
        for end in ends or [centre]:
            pair = np.stack([end, centre]).T
            axes.plot(*pair, color=fill, linewidth=LINK, solid_capstyle="round", zorder=3.1)
    for place, radius, around in discs:
        if radius == 0.0:
            continue
        axes.add_patch(
            Circle((place[0], place[1]), radius, facecolor=fill, edgecolor=OUTLINE, linewidth=0.8, zorder=3.2)
        )
        if around:
            rim = place + radius * scene.rotations[body] @ np.array([0.0, 1.0])
            axes.plot(*np.stack([place, rim]).T, color=OUTLINE, linewidth=0.8, zorder=3.3)
    axes.plot(*centre, "o", markersize=3.5, color=OUTLINE, zorder=5)


def _draw_contacts(
    axes: Axes,
    scene: Scene,
    labels: tuple[str, ...],
    velocities: np.ndarray,
    metres: float,
    colour: str,
) -> None:
    from matplotlib.patheffects import withStroke

    halo = [withStroke(linewidth=2.5, foreground="white")]
    for place, normal, tangent, label, u in zip(
        scene.contacts, scene.normals, scene.tangents, labels, velocities, strict=False
    ):
        axes.plot(
            *place, "o", markersize=4.0, color=colour, markeredgecolor="white", markeredgewidth=0.6, zorder=8
        )
        # Into the second body, and aside of an arrow that goes there too.
        away = -normal
        if metres > 0.0 and np.linalg.norm(u) > STILL and -(u @ normal) > 0.5 * np.linalg.norm(u):
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
        if metres > 0.0 and np.linalg.norm(u) > STILL:
            arrow(axes, place, metres * u, colour)


def _draw_scale(axes: Axes, scene: Scene, metres: float, colour: str) -> None:
    """An arrow of a round speed, above the mechanism on the left."""
    low, high = extent(scene)
    margin = margin_of(scene)
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
