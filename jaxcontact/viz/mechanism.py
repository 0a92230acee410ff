"""Pictures of a mechanism: its bodies, joints, ground and contacts, and how fast the contacts move.

Drawings need no description of their own. Joints are found from the kinematics: two bodies share a joint
where one point of both always moves alike.
"""

from __future__ import annotations

import math
import string
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from jaxcontact import geometry
from jaxcontact.geometry import Box, Disc, HalfSpace, Point
from jaxcontact.system import Params, State, Structure, System, body_frames, tangent_jacobian
from jaxcontact.terms import contact_terms
from jaxcontact.viz.ink import AFTER, ARROW, BEFORE, BODIES, GROUND, HATCH, OUTLINE, STILL, arrow, outcomes_of
from jaxcontact.viz.spatial import plot_spatial

if TYPE_CHECKING:  # matplotlib is imported when a picture is asked for
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LINK = 5.0  # line width of a link, pt


class _Scene(NamedTuple):
    """A planar mechanism in world coordinates."""

    structure: Structure
    constants: Mapping[str, Any]
    positions: np.ndarray  # (nb, 2)
    angles: np.ndarray  # (nb,)
    rotations: np.ndarray  # (nb, 2, 2)
    joints: list[tuple[int, int, np.ndarray]]  # two bodies, the second -1 for the world, and the place
    contacts: np.ndarray  # (nc, 2)
    normals: np.ndarray  # (nc, 2)
    tangents: np.ndarray  # (nc, 2)
    J_n: np.ndarray  # (nc, nv)
    J_t: np.ndarray  # (nc, nv)


def plot_mechanism(
    system: System,
    params: Params,
    state: State,
    *,
    v: Any = None,
    names: Sequence[str] | None = None,
    title: str | None = None,
    width: float = 7.2,
) -> Figure:
    """A mechanism and its contact velocities, one panel before the impact and one per outcome.

    After Figs. 1, 4, 5 and 14 of Halm & Posa. Arrows are velocities of contacts, of the first body relative
    to the second; the arrow above a panel is its scale, the same for all panels after the impact. A spatial
    mechanism is drawn in parallel projection.

    Args:
        system: a mechanism.
        params: its numbers.
        state: configuration, and velocity before.
        v: velocities after: (nv,), or several by label.
        names: of the contacts; default A, B, C, ...
        title: of the figure.
        width: of the figure, inches.

    Returns:
        A matplotlib figure that belongs to no window; save it by `savefig`.

    Raises:
        ValueError: velocities of the wrong length, too few names.
        ImportError: matplotlib is not installed.
    """
    from matplotlib.figure import Figure

    if system.structure.dim == 3:
        return plot_spatial(system, params, state, v=v, names=names, title=title, width=width)
    scene = _scene(system, params, state)
    outcomes = outcomes_of(v, system.structure.num_velocities)
    labels = _labels(scene, names)
    before = _contact_velocities(scene, np.asarray(state.v, float))
    after = {label: _contact_velocities(scene, w) for label, w in outcomes.items()}
    low, high = _extent(scene)
    span = high - low + 2.0 * _margin(scene)
    count = 1 + len(after)
    columns = _columns(count, float(span[0] / span[1]))
    rows = math.ceil(count / columns)
    panel = min(width / columns, 3.6)
    tall = (panel - 0.4) * span[1] / span[0] + 0.55
    figure = Figure(figsize=(panel * columns, tall * rows + (0.35 if title else 0.1)), layout="constrained")
    scale = _arrow_scale(scene, *after.values())
    for k, (label, u) in enumerate([("before", before), *after.items()]):
        axes = figure.add_subplot(rows, columns, k + 1)
        if k == 0:
            _draw(axes, scene, labels, u, _arrow_scale(scene, u), BEFORE)
        else:
            _draw(axes, scene, labels, u, scale, AFTER)
        if k + columns < count:
            axes.set_xlabel("")
        if k % columns:
            axes.set_ylabel("")
        if count > 1:
            axes.set_title(label, fontsize=8.5, fontweight="bold")
    if title is not None:
        figure.suptitle(title, fontsize=10)
    return figure


def draw_mechanism(
    axes: Axes,
    system: System,
    params: Params,
    state: State,
    *,
    v: Any = None,
    names: Sequence[str] | None = None,
    color: str = BEFORE,
    arrow_scale: float | None = None,
) -> None:
    """Draw a planar mechanism into axes, with arrows for the contact velocities.

    Args:
        axes: matplotlib axes; limits, labels and aspect are set.
        system: a planar mechanism.
        params: its numbers.
        state: its configuration and velocity.
        v: (nv,) velocity to show instead of the state's.
        names: of the contacts; default A, B, C, ...
        color: of the arrows.
        arrow_scale: length of arrows, m per m/s; default such that the longest is about a fifth of the
            mechanism.

    Raises:
        ValueError: a spatial mechanism, a velocity of the wrong length, too few names.
    """
    scene = _scene(system, params, state)
    velocity = (
        np.asarray(state.v, float)
        if v is None
        else next(iter(outcomes_of(v, system.structure.num_velocities).values()))
    )
    u = _contact_velocities(scene, velocity)
    scale = _arrow_scale(scene, u) if arrow_scale is None else arrow_scale
    _draw(axes, scene, _labels(scene, names), u, scale, color)


def _columns(count: int, aspect: float) -> int:
    """Panels side by side: few rows, no row with one panel left over where that can be helped."""
    most = 4 if aspect < 1.1 else 3 if aspect < 1.6 else 2
    return 2 if most == 3 and count == 4 else min(count, most)


def _arrow_scale(scene: _Scene, *velocities: np.ndarray) -> float:
    """Length of arrows, m per m/s; 0 where nothing moves."""
    fastest = max((float(np.max(np.linalg.norm(u, axis=1))) for u in velocities), default=0.0)
    low, high = _extent(scene)
    return ARROW * float(np.max(high - low)) / fastest if fastest > STILL else 0.0


def _scene(system: System, params: Params, state: State) -> _Scene:
    structure = system.structure
    if structure.dim != 2:
        raise ValueError("system: only planar mechanisms (dim = 2); draw_bodies draws spatial ones")
    terms = contact_terms(system, params, state)
    positions, rotations = body_frames(system, params, state.q)
    found = geometry.candidates(
        2, structure.bodies, structure.shape_table, structure.pairs, positions, rotations, params.constants
    )
    return _Scene(
        structure=structure,
        constants=params.constants,
        positions=np.asarray(positions),
        angles=np.asarray(system.poses(structure, state.q, params)[1]),
        rotations=np.asarray(rotations),
        joints=_joints(system, params, state),
        contacts=np.asarray(found.point),
        normals=np.asarray(found.normal),
        tangents=np.asarray(found.tangents)[:, 0],
        J_n=np.asarray(terms.J_n),
        J_t=np.asarray(terms.J_t)[:, 0],
    )


def _joints(system: System, params: Params, state: State) -> list[tuple[int, int, np.ndarray]]:
    """Revolute joints: places c where two bodies, or a body and the world, always move alike.

    Solves J_i + w_i perp(c - p_i) = J_j + w_j perp(c - p_j) for c, over all generalized velocities.
    """
    structure = system.structure
    positions, _ = body_frames(system, params, state.q)
    places = np.asarray(positions)
    linear = np.asarray(tangent_jacobian(system, lambda q: system.poses(structure, q, params)[0], state.q))
    turning = np.asarray(tangent_jacobian(system, lambda q: system.poses(structure, q, params)[1], state.q))
    count = len(structure.bodies)
    # perp(r) = (-r_y, r_x); velocities at the origin, moved there from the centres of mass
    perp = np.stack([-places[:, 1], places[:, 0]], axis=1)
    at_origin = linear - perp[:, :, None] * turning[:, None, :]
    at_origin = np.concatenate([at_origin, np.zeros_like(at_origin[:1])])
    turning = np.concatenate([turning, np.zeros_like(turning[:1])])
    tolerance = 1e-9 if places.dtype == np.float64 else 1e-4
    found: list[tuple[int, int, np.ndarray]] = []
    for i in range(count):
        for j in [*range(i + 1, count), count]:
            spin, drift = turning[i] - turning[j], at_origin[i] - at_origin[j]
            square = float(spin @ spin)
            if square <= tolerance:
                continue
            x, y = -(drift[1] @ spin) / square, (drift[0] @ spin) / square
            rest = drift + np.stack([-y * spin, x * spin])
            if np.max(np.abs(rest)) <= tolerance * max(1.0, float(np.max(np.abs(linear)))):
                found.append((i, -1 if j == count else j, np.array([x, y])))
    return found


def _labels(scene: _Scene, names: Sequence[str] | None) -> tuple[str, ...]:
    labels = tuple(string.ascii_uppercase if names is None else names)
    if len(labels) < len(scene.contacts):
        raise ValueError(f"names: expected {len(scene.contacts)}, one per contact, got {len(labels)}")
    return labels


def _contact_velocities(scene: _Scene, v: np.ndarray) -> np.ndarray:
    """(nc, 2) relative velocities in the world."""
    return (scene.J_n @ v)[:, None] * scene.normals + (scene.J_t @ v)[:, None] * scene.tangents


def _box(scene: _Scene, shape: Box) -> np.ndarray:
    """Corners (4, 2) of a box, counter-clockwise."""
    body = scene.structure.bodies.index(shape.body)
    half = np.asarray(scene.constants[shape.size]) / 2.0
    corners = np.array([[-1, -1], [1, -1], [1, 1], [-1, 1]]) * half
    return np.asarray(scene.positions[body] + corners @ scene.rotations[body].T)


def _ball(scene: _Scene, shape: Disc | Point) -> tuple[np.ndarray, float]:
    """Centre in the world and radius."""
    local = np.zeros(2) if shape.at is None else np.asarray(scene.constants[shape.at])
    radius = float(scene.constants[shape.radius]) if isinstance(shape, Disc) else 0.0
    if shape.body is None:
        return local, radius
    body = scene.structure.bodies.index(shape.body)
    return scene.positions[body] + scene.rotations[body] @ local, radius


def _extent(scene: _Scene) -> tuple[np.ndarray, np.ndarray]:
    """Lower left and upper right of all that moves."""
    points = [scene.positions, scene.contacts, *(place[None] for *_, place in scene.joints)]
    for shape in scene.structure.shapes:
        if isinstance(shape, Box):
            points.append(_box(scene, shape))
        elif isinstance(shape, Disc | Point):
            centre, radius = _ball(scene, shape)
            points += [centre[None] - radius, centre[None] + radius]
    every = np.concatenate(points)
    return every.min(axis=0), every.max(axis=0)


def _margin(scene: _Scene) -> float:
    low, high = _extent(scene)
    return (ARROW + 0.06) * float(np.max(high - low))


def _draw(
    axes: Axes,
    scene: _Scene,
    labels: tuple[str, ...],
    velocities: np.ndarray,
    metres: float,
    colour: str,
) -> None:
    low, high = _extent(scene)
    size, margin = float(np.max(high - low)), _margin(scene)
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


def _draw_ground(axes: Axes, scene: _Scene, depth: float, length: float) -> None:
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


def _draw_body(axes: Axes, scene: _Scene, body: int, fill: str) -> None:
    """A box or disc as it is; any other body as a link from its joints and shapes to its centre of mass."""
    from matplotlib.patches import Circle, Polygon

    centre = scene.positions[body]
    shapes = [s for s in scene.structure.shapes if getattr(s, "body", None) == scene.structure.bodies[body]]
    solid = False
    ends = [place for i, j, place in scene.joints if body in (i, j)]
    discs = []
    for shape in shapes:
        if isinstance(shape, Box):
            axes.add_patch(
                Polygon(_box(scene, shape), facecolor=fill, edgecolor=OUTLINE, linewidth=0.8, zorder=3)
            )
            solid = True
        elif isinstance(shape, Disc | Point):
            place, radius = _ball(scene, shape)
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
    scene: _Scene,
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


def _draw_scale(axes: Axes, scene: _Scene, metres: float, colour: str) -> None:
    """An arrow of a round speed, above the mechanism on the left."""
    low, high = _extent(scene)
    margin = _margin(scene)
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
