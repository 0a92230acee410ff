"""Spatial mechanisms in parallel projection, far ones first. The entry function is `draw_bodies`."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from jaxcontact.front_door import POSITIVE, checked
from jaxcontact.mechanics.system import Model, State
from jaxcontact.viz.palette import BODIES, GROUND, HATCH, MIN_SPEED, OUTLINE, arrow
from jaxcontact.viz.scene import Frames, Scene, extent, scene_frames, scene_of
from jaxcontact.viz.solids import Solid, mesh_of, outline

if TYPE_CHECKING:
    from matplotlib.axes import Axes

LIGHT = np.array([0.35, -0.5, 0.79])  # direction to the light in world axes, about unit length
MARGIN = 0.12  # of the size of a mechanism, left free around it
MANY_FACES = 32  # faces; a surface with more counts as round and is drawn without edges


class View(NamedTuple):
    """A direction to look from, and the width of an animation.

    Attributes:
        axes: x to the right, y up, z towards the eye, as rows (3, 3).
        width: of an animation, in units of 100 pixels.
    """

    axes: np.ndarray
    width: float = 4.8

    def flat(self, points: np.ndarray) -> np.ndarray:
        """Project points (..., 3) to the plane of the picture (..., 2)."""
        return points @ self.axes[:2].T

    def near(self, points: np.ndarray) -> np.ndarray:
        """Compute the nearness to the eye (...,), m."""
        return points @ self.axes[2]


@checked(width=POSITIVE)
def look(azimuth: float = -60.0, elevation: float = 18.0, *, width: float = 4.8) -> View:
    """Make the view from a direction, in degrees; azimuth -90, elevation 0 has x to the right and z up.

    An animation is as wide as `width`, in units of 100 pixels.
    """
    a, e = math.radians(azimuth), math.radians(elevation)
    eye = np.array([math.cos(e) * math.cos(a), math.cos(e) * math.sin(a), math.sin(e)])
    right = np.array([-math.sin(a), math.cos(a), 0.0])
    return View(np.stack([right, np.cross(eye, right), eye]), width)


@checked()
def draw_bodies(
    axes: Axes,
    model: Model,
    state: State,
    *,
    view: View | None = None,
    ground: bool = True,
) -> None:
    """Draw a spatial mechanism into axes, in metres of the projection.

    Args:
        axes: matplotlib axes; limits and aspect are set, the frame is hidden.
        model: a spatial mechanism and its numbers.
        state: its configuration.
        view: direction to look from, `look(azimuth, elevation)`.
        ground: also draw half-spaces.

    Raises:
        ValueError: for a planar mechanism.
    """
    if model.structure.dim != 3:
        raise ValueError("system: expected a spatial mechanism (dim = 3), got a planar one")
    scene, frame = scene_of(model), scene_frames(model, state.q, contacts=False)
    if not ground:
        scene = scene._replace(planes=())
    draw_spatial(axes, scene, frame, look() if view is None else view, *extent(scene, frame))


def draw_spatial(
    axes: Axes, scene: Scene, frame: Frames, view: View, low: np.ndarray, high: np.ndarray
) -> None:
    """Draw ground and bodies of a scene, with limits around the box from `low` to `high`."""
    size = float(np.max(high - low))
    for normal, offset in scene.planes:
        _draw_plane(axes, view, normal, offset, (low + high) / 2, 0.8 * size)
    draw_spatial_bodies(axes, scene, frame, view)
    _set_limits(axes, view, low, high)


def draw_spatial_bodies(
    axes: Axes, scene: Scene, frame: Frames, view: View, *, colour: str | None = None, alpha: float = 1.0
) -> None:
    """Draw the solids of a scene; given a colour, all in that colour as ghosts."""
    from matplotlib.patches import Polygon

    for body, solid, _ in scene.parts:
        points = frame.placed(body, solid.points)
        if colour is not None:
            edge = outline(view.flat(points), solid.radius)
            depth = 2.0 + 1e-3 * float(view.near(points.mean(axis=0)))
            axes.add_patch(Polygon(edge, facecolor=colour, linewidth=0.0, alpha=alpha, zorder=depth))
            rim = min(2.0 * alpha, 1.0)
            axes.add_patch(Polygon(edge, fill=False, edgecolor=colour, lw=0.6, alpha=rim, zorder=depth))
            continue
        turn = frame.rotations[body] if body >= 0 else np.eye(3)
        fill = BODIES[body % len(BODIES)]
        if len(points) == 1:
            _draw_ball(axes, view, points[0], solid.radius, turn, fill)
        else:
            _draw_solid(axes, view, Solid(points, solid.radius), fill)


def draw_spatial_contacts(
    axes: Axes,
    frame: Frames,
    view: View,
    labels: tuple[str, ...],
    velocities: np.ndarray,
    metres: float,
    colour: str,
) -> None:
    """Draw contacts, their names and arrows of `metres` per m/s; if some have a name, only those."""
    for place, label, u in zip(frame.contacts, labels, velocities, strict=False):
        if any(labels) and not label:
            continue
        flat = view.flat(place)
        axes.plot(*flat, "o", markersize=3.5, color=colour, markeredgecolor="white", zorder=8)
        if label:
            axes.annotate(
                label,
                (flat[0], flat[1]),
                xytext=(-7, -7),
                textcoords="offset points",
                fontsize=8,
                zorder=10,
            )
        if metres > 0.0 and np.linalg.norm(view.flat(u)) > MIN_SPEED:
            arrow(axes, flat, metres * view.flat(u), colour)


def _shade(fill: str, brightness: float) -> tuple[float, float, float]:
    from matplotlib.colors import to_rgb

    red, green, blue = (min(1.0, c * (0.72 + 0.34 * brightness)) for c in to_rgb(fill))
    return red, green, blue


def _draw_solid(axes: Axes, view: View, solid: Solid, fill: str) -> None:
    """Draw the faces that look at the eye, brighter towards the light; of a round solid, its outline."""
    from matplotlib.patches import Polygon

    depth = 3.0 + 1e-3 * float(view.near(solid.points.mean(axis=0)))
    mesh = None if solid.radius > 0.0 else mesh_of(solid)
    if mesh is None or len(mesh.faces) > MANY_FACES:
        edge = outline(view.flat(solid.points), solid.radius)
        axes.add_patch(Polygon(edge, facecolor=fill, edgecolor=OUTLINE, lw=0.8, zorder=depth))
        return
    for face, outward in zip(mesh.faces, mesh.normals, strict=True):
        if view.near(outward) > 1e-9:
            colour = _shade(fill, max(0.0, float(outward @ LIGHT)))
            corners = view.flat(mesh.corners[face])
            axes.add_patch(Polygon(corners, facecolor=colour, edgecolor=OUTLINE, lw=0.8, zorder=depth))


def _draw_ball(axes: Axes, view: View, place: np.ndarray, radius: float, turn: np.ndarray, fill: str) -> None:
    """Draw a disc with the visible half of two great circles, which show the rotation."""
    from matplotlib.patches import Circle

    flat, depth = view.flat(place), 3.0 + 1e-3 * float(view.near(place))
    if radius == 0.0:
        axes.plot(*flat, "o", markersize=3.0, color=OUTLINE, zorder=depth)
        return
    axes.add_patch(
        Circle((flat[0], flat[1]), radius, facecolor=fill, edgecolor=OUTLINE, linewidth=0.8, zorder=depth)
    )
    angle = np.linspace(0.0, 2.0 * np.pi, 73)
    for first, second in ((0, 2), (1, 2)):
        ring = radius * (np.outer(np.cos(angle), turn[:, first]) + np.outer(np.sin(angle), turn[:, second]))
        seen = np.where((view.near(ring) >= 0.0)[:, None], view.flat(place + ring), np.nan)
        axes.plot(*seen.T, color=OUTLINE, linewidth=0.5, alpha=0.5, zorder=depth + 1e-5)


def _draw_plane(
    axes: Axes, view: View, normal: np.ndarray, offset: float, middle: np.ndarray, half: float
) -> None:
    """Draw a square piece of a plane below the mechanism, with a few lines."""
    from matplotlib.patches import Polygon

    along = np.cross(normal, [0.0, 1.0, 0.0] if abs(normal[1]) < 0.9 else [1.0, 0.0, 0.0])
    along /= np.linalg.norm(along)
    across = np.cross(normal, along)
    origin = middle - (normal @ middle - offset) * normal
    square = np.array([[-1, -1], [1, -1], [1, 1], [-1, 1]]) * half
    corners = origin + square @ np.stack([along, across])
    axes.add_patch(Polygon(view.flat(corners), facecolor=GROUND, edgecolor=HATCH, linewidth=0.8, zorder=1.0))
    for t in np.linspace(-half, half, 9)[1:-1]:
        for a, b in ((along, across), (across, along)):
            ends = origin + t * a + np.outer([-half, half], b)
            axes.plot(*view.flat(ends).T, color=HATCH, linewidth=0.3, zorder=1.1)


def limits(view: View, low: np.ndarray, high: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return lower left and upper right of the picture of a box, m."""
    corners = view.flat(np.array([np.where([k >> i & 1 for i in range(3)], high, low) for k in range(8)]))
    margin = MARGIN * float(np.max(high - low))
    return corners.min(axis=0) - 2 * margin, corners.max(axis=0) + margin * np.array([2.0, 1.0])


def _set_limits(axes: Axes, view: View, low: np.ndarray, high: np.ndarray) -> None:
    lower, upper = limits(view, low, high)
    axes.set_xlim(lower[0], upper[0])
    axes.set_ylim(lower[1], upper[1])
    axes.set_aspect("equal", adjustable="box")
    axes.set_axis_off()
