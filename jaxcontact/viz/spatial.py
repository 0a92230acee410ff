"""Spatial mechanisms in parallel projection: spheres, boxes, points and half-spaces, far ones first."""

from __future__ import annotations

import math
import string
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from jaxcontact import geometry
from jaxcontact.geometry import Box, HalfSpace, Point, Points, Sphere
from jaxcontact.mechanics.motion_equations import body_frames
from jaxcontact.mechanics.system import Params, State, System
from jaxcontact.terms import contact_terms
from jaxcontact.viz import outline as outlines
from jaxcontact.viz.palette import (
    AFTER,
    ARROW,
    BEFORE,
    BODIES,
    GROUND,
    HATCH,
    OUTLINE,
    STILL,
    arrow,
    outcomes_of,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Corners of the six faces of a box, by the bits of its corners, and the outward axis of each.
FACES = ((0, 2, 6, 4), (1, 3, 7, 5), (0, 1, 5, 4), (2, 3, 7, 6), (0, 1, 3, 2), (4, 5, 7, 6))
LIGHT = np.array([0.35, -0.5, 0.79])
MARGIN = 0.12  # of the size, around a mechanism


class View(NamedTuple):
    """A direction to look from: x to the right, y up, z towards the eye, as rows (3, 3)."""

    axes: np.ndarray

    def flat(self, points: np.ndarray) -> np.ndarray:
        """Points (..., 3) in the plane of the picture (..., 2)."""
        return points @ self.axes[:2].T

    def near(self, points: np.ndarray) -> np.ndarray:
        """Nearness to the eye (...,)."""
        return points @ self.axes[2]


def look(azimuth: float = -60.0, elevation: float = 18.0) -> View:
    """The view from a direction, in degrees; azimuth -90, elevation 0 has x to the right and z up."""
    a, e = math.radians(azimuth), math.radians(elevation)
    eye = np.array([math.cos(e) * math.cos(a), math.cos(e) * math.sin(a), math.sin(e)])
    right = np.array([-math.sin(a), math.cos(a), 0.0])
    return View(np.stack([right, np.cross(eye, right), eye]))


def draw_bodies(
    axes: Axes,
    system: System,
    params: Params,
    state: State,
    *,
    view: View | None = None,
    ground: bool = True,
) -> None:
    """Draw a spatial mechanism into axes, in metres of the projection.

    Args:
        axes: matplotlib axes; limits and aspect are set, the frame is hidden.
        system: a spatial mechanism.
        params: its numbers.
        state: its configuration.
        view: where from, `look(azimuth, elevation)`.
        ground: also draw half-spaces.

    Raises:
        ValueError: a planar mechanism.
    """
    structure = system.structure
    if structure.dim != 3:
        raise ValueError("system: expected a spatial mechanism (dim = 3), got a planar one")
    view = look() if view is None else view
    centres, turns = (np.asarray(x) for x in body_frames(system, params, state.q))
    low, high = _extent(system, params, centres, turns)
    size = float(np.max(high - low))
    if ground:
        for shape in structure.shapes:
            if isinstance(shape, HalfSpace):
                offset = 0.0 if shape.offset is None else float(params.constants[shape.offset])
                _draw_plane(axes, view, np.array(shape.normal), offset, (low + high) / 2, 0.8 * size)
    for shape in structure.shapes:
        if isinstance(shape, HalfSpace):
            continue
        body = -1 if shape.body is None else structure.bodies.index(shape.body)
        fill = BODIES[body % len(BODIES)]
        centre, turn = (centres[body], turns[body]) if body >= 0 else (np.zeros(3), np.eye(3))
        if isinstance(shape, Box):
            corners = centre + outlines.box_corners(shape, 3, params.constants) @ turn.T
            _draw_box(axes, view, corners, turn @ outlines.axes_of(shape, 3, params.constants), fill)
            continue
        if isinstance(shape, outlines.OUTLINED):
            _draw_outline(axes, view, centre + outlines.surface(shape, 3, params.constants) @ turn.T, fill)
            continue
        places, radius = _balls(shape, params)
        for place in centre + places @ turn.T:
            _draw_ball(axes, view, place, radius, turn, fill)
    _set_limits(axes, view, low, high)


def plot_spatial(
    system: System,
    params: Params,
    state: State,
    *,
    v: Any = None,
    names: Sequence[str] | None = None,
    title: str | None = None,
    width: float = 7.2,
) -> Figure:
    """`plot_mechanism` of a spatial mechanism; arguments and errors as there."""
    from matplotlib.figure import Figure

    outcomes = outcomes_of(v, system.structure.num_velocities)
    panels = {"before": np.asarray(state.v, float), **outcomes}
    view, columns = look(), min(len(panels), 3)
    rows = math.ceil(len(panels) / columns)
    side = min(width / columns, 4.2)
    figure = Figure(figsize=(side * columns, 0.85 * side * rows + 0.3), layout="constrained")
    contacts = _contacts(system, params, state) if system.structure.num_contacts else None
    labels = tuple(string.ascii_uppercase if names is None else names)
    if contacts is not None and names is not None and len(labels) < len(contacts.places):
        raise ValueError(f"names: expected {len(contacts.places)}, one per contact, got {len(labels)}")
    for k, (label, velocity) in enumerate(panels.items()):
        axes = figure.add_subplot(rows, columns, k + 1)
        draw_bodies(axes, system, params, state, view=view)
        if contacts is not None:
            _draw_contacts(axes, view, contacts, velocity, labels, AFTER if k else BEFORE)
        if len(panels) > 1:
            axes.set_title(label, fontsize=8.5, fontweight="bold")
    if title is not None:
        figure.suptitle(title, fontsize=10)
    return figure


class _Contacts(NamedTuple):
    places: np.ndarray  # (nc, 3)
    rows: np.ndarray  # (nc, 3, nv), relative velocity in the world
    size: float  # of the mechanism, m


def _contacts(system: System, params: Params, state: State) -> _Contacts:
    structure, constants = system.structure, params.constants
    terms = contact_terms(system, params, state)
    frames = body_frames(system, params, state.q)
    contacts = geometry.candidates(
        3, structure.bodies, structure.shape_table, structure.pairs, *frames, constants
    )
    frame = np.concatenate([np.asarray(contacts.normal)[:, None], np.asarray(contacts.tangents)], axis=1)
    J = np.concatenate([np.asarray(terms.J_n)[:, None], np.asarray(terms.J_t)], axis=1)
    low, high = _extent(system, params, *(np.asarray(x) for x in frames))
    return _Contacts(
        np.asarray(contacts.point), np.einsum("cfd,cfv->cdv", frame, J), float(np.max(high - low))
    )


def _draw_contacts(
    axes: Axes, view: View, contacts: _Contacts, v: np.ndarray, labels: Sequence[str], colour: str
) -> None:
    u = contacts.rows @ v
    fastest = float(np.max(np.linalg.norm(u, axis=1)))
    metres = ARROW * contacts.size / fastest if fastest > STILL else 0.0
    for k, place in enumerate(contacts.places):
        flat = view.flat(place)
        axes.plot(*flat, "o", markersize=3.5, color=colour, markeredgecolor="white", zorder=8)
        if k < len(labels) and len(contacts.places) <= len(string.ascii_uppercase):
            axes.annotate(
                labels[k],
                (flat[0], flat[1]),
                xytext=(-7, -7),
                textcoords="offset points",
                fontsize=8,
                zorder=10,
            )
        if metres > 0.0 and np.linalg.norm(view.flat(u[k])) > STILL:
            arrow(axes, flat, metres * view.flat(u[k]), colour)


def _balls(shape: Point | Points | Sphere | Any, params: Params) -> tuple[np.ndarray, float]:
    """Centres (k, 3) in body coordinates and the radius of a point, points or a sphere."""
    at = np.zeros(3) if shape.at is None else np.asarray(params.constants[shape.at], float)
    radius = float(params.constants[shape.radius]) if isinstance(shape, Sphere) else 0.0
    return at.reshape(-1, 3), radius


def _extent(
    system: System, params: Params, centres: np.ndarray, turns: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Least and greatest coordinates (3,) of all bodies."""
    points = [centres]
    for shape in system.structure.shapes:
        if isinstance(shape, HalfSpace) or shape.body is None:
            continue
        body = system.structure.bodies.index(shape.body)
        if isinstance(shape, Box):
            local, radius = outlines.box_corners(shape, 3, params.constants), 0.0
        elif isinstance(shape, outlines.OUTLINED):
            local, radius = outlines.surface(shape, 3, params.constants), 0.0
        else:
            local, radius = _balls(shape, params)
        placed = centres[body] + local @ turns[body].T
        points += [placed - radius, placed + radius]
    every = np.concatenate(points)
    return every.min(axis=0), every.max(axis=0)


def _shade(fill: str, brightness: float) -> tuple[float, float, float]:
    from matplotlib.colors import to_rgb

    red, green, blue = (min(1.0, c * (0.72 + 0.34 * brightness)) for c in to_rgb(fill))
    return red, green, blue


def _draw_outline(axes: Axes, view: View, points: np.ndarray, fill: str) -> None:
    """The silhouette of a convex surface, from its points (k, 3)."""
    from matplotlib.patches import Polygon

    depth = 3.0 + 1e-3 * float(view.near(points.mean(axis=0)))
    edge = outlines.outline(view.flat(points))
    axes.add_patch(Polygon(edge, facecolor=fill, edgecolor=OUTLINE, lw=0.8, zorder=depth))


def _draw_box(axes: Axes, view: View, corners: np.ndarray, turn: np.ndarray, fill: str) -> None:
    """The faces that look at the eye, brighter the more they look at the light."""
    from matplotlib.patches import Polygon

    centre = corners.mean(axis=0)
    for k, face in enumerate(FACES):
        outward = (1.0 if k % 2 else -1.0) * turn[:, k // 2]
        if view.near(outward) > 1e-9:
            colour = _shade(fill, max(0.0, float(outward @ LIGHT)))
            depth = 3.0 + 1e-3 * float(view.near(centre))
            axes.add_patch(
                Polygon(
                    view.flat(corners[list(face)]), facecolor=colour, edgecolor=OUTLINE, lw=0.8, zorder=depth
                )
            )


def _draw_ball(axes: Axes, view: View, place: np.ndarray, radius: float, turn: np.ndarray, fill: str) -> None:
    """A disc with the visible half of two great circles, which show how it has turned."""
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
    """A square piece of a plane below the mechanism, with a few lines."""
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


def _set_limits(axes: Axes, view: View, low: np.ndarray, high: np.ndarray) -> None:
    corners = view.flat(np.array([np.where([k >> i & 1 for i in range(3)], high, low) for k in range(8)]))
    margin = MARGIN * float(np.max(high - low))
    axes.set_xlim(corners[:, 0].min() - 2 * margin, corners[:, 0].max() + 2 * margin)
    axes.set_ylim(corners[:, 1].min() - 2 * margin, corners[:, 1].max() + margin)
    axes.set_aspect("equal", adjustable="box")
    axes.set_axis_off()
