"""Pictures of a mechanism: its bodies, joints, ground and contacts, and the velocities of the contacts.

The entry functions are `plot_mechanism` and `draw_mechanism`. Drawings need no description of their own: the
system and its numbers determine them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
import numpy as np

from jaxcontact._pytree import PyTree
from jaxcontact.arguments import check_numbers
from jaxcontact.front_door import POSITIVE, checked
from jaxcontact.impact.sampling.outcomes import contact_names
from jaxcontact.mechanics.system import Model, State
from jaxcontact.terms import contact_velocities
from jaxcontact.viz.palette import AFTER, ARROW, BEFORE, MIN_SPEED, outcomes_of
from jaxcontact.viz.planar import draw_planar, draw_planar_contacts, draw_scale, margin_of
from jaxcontact.viz.scene import Frames, Scene, extent, scene_frames, scene_of
from jaxcontact.viz.spatial import draw_spatial, draw_spatial_contacts, look

MOST_NAMED = 26  # contacts in space; more names would hide the mechanism

if TYPE_CHECKING:  # matplotlib is imported when a picture is made
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


@checked(v=check_numbers, width=POSITIVE)
def plot_mechanism(
    model: Model,
    state: State,
    *,
    v: PyTree = None,
    names: Sequence[str] | None = None,
    title: str | None = None,
    width: float = 7.2,
) -> Figure:
    """Plot a mechanism and its contact velocities, one panel before the impact and one per outcome.

    After Figs. 1, 4, 5 and 14 of Halm & Posa. Arrows are velocities of contacts, of the first body relative
    to the second; the arrow above a panel is its scale, the same for all panels after the impact. A spatial
    mechanism is drawn in parallel projection.

    Args:
        model: a mechanism and its numbers.
        state: configuration, and velocity before.
        v: velocities after: (nv,), or several by label.
        names: of the contacts; default A, B, C, ... A contact named "" is not drawn,
            unless in space none has a name.
        title: of the figure.
        width: of the figure, inches.

    Returns:
        A matplotlib figure that belongs to no window; save it by `savefig`.

    Raises:
        ValueError: for velocities of the wrong length, or too few names.
        ImportError: if matplotlib is not installed.
    """
    structure = model.structure
    outcomes = outcomes_of(v, structure.num_velocities)
    scene, frame = scene_of(model), scene_frames(model, state.q)
    labels = _labels(scene, names)
    panels = {"before": np.asarray(state.v, float), **outcomes}
    moving = {label: _world_velocities(model, state, frame, w) for label, w in panels.items()}
    draw = _draw_planar_panels if structure.dim == 2 else _draw_spatial_panels
    figure, panel_axes = draw(scene, frame, labels, moving, width, bool(title))
    if len(panels) > 1:
        for axes, label in zip(panel_axes, panels, strict=True):
            axes.set_title(label, fontsize=8.5, fontweight="bold")
    if title is not None:
        figure.suptitle(title, fontsize=10)
    return figure


_Panels = tuple["Figure", list["Axes"]]


def _draw_planar_panels(
    scene: Scene,
    frame: Frames,
    labels: tuple[str, ...],
    moving: dict[str, np.ndarray],
    width: float,
    titled: bool,
) -> _Panels:
    from matplotlib.figure import Figure

    low, high = _extent(scene, frame)
    span = high - low + 2.0 * margin_of(low, high)
    count = len(moving)
    columns = _columns(count, float(span[0] / span[1]))
    rows = math.ceil(count / columns)
    panel = min(width / columns, 3.6)
    tall = (panel - 0.4) * span[1] / span[0] + 0.55
    figure = Figure(figsize=(panel * columns, tall * rows + (0.35 if titled else 0.1)), layout="constrained")
    before, *after = moving.values()
    scales = [_arrow_scale(low, high, before), *[_arrow_scale(low, high, *after)] * len(after)]
    drawn = []
    for k, (u, scale) in enumerate(zip(moving.values(), scales, strict=True)):
        axes = figure.add_subplot(rows, columns, k + 1)
        _draw_frame(axes, scene, frame, labels, u, scale, AFTER if k else BEFORE)
        if k + columns < count:
            axes.set_xlabel("")
        if k % columns:
            axes.set_ylabel("")
        drawn.append(axes)
    return figure, drawn


def _draw_spatial_panels(
    scene: Scene,
    frame: Frames,
    labels: tuple[str, ...],
    moving: dict[str, np.ndarray],
    width: float,
    titled: bool,
) -> _Panels:
    from matplotlib.figure import Figure

    view, columns = look(), min(len(moving), 3)
    rows = math.ceil(len(moving) / columns)
    side = min(width / columns, 4.2)
    figure = Figure(figsize=(side * columns, 0.85 * side * rows + 0.3), layout="constrained")
    low, high = _extent(scene, frame)
    drawn = []
    for k, u in enumerate(moving.values()):
        axes = figure.add_subplot(rows, columns, k + 1)
        draw_spatial(axes, scene, frame, view, low, high)
        draw_spatial_contacts(
            axes, frame, view, labels, u, _arrow_scale(low, high, u), AFTER if k else BEFORE
        )
        drawn.append(axes)
    return figure, drawn


@checked(v=check_numbers, arrow_scale=POSITIVE)
def draw_mechanism(
    axes: Axes,
    model: Model,
    state: State,
    *,
    v: PyTree = None,
    names: Sequence[str] | None = None,
    color: str = BEFORE,
    arrow_scale: float | None = None,
) -> None:
    """Draw a planar mechanism into axes, with arrows for the contact velocities.

    Args:
        axes: matplotlib axes; limits, labels and aspect are set.
        model: a planar mechanism and its numbers.
        state: its configuration and velocity.
        v: (nv,) velocity to show instead of the state's.
        names: of the contacts; default A, B, C, ... A contact named "" is not drawn,
            unless in space none has a name.
        color: of the arrows.
        arrow_scale: length of arrows, m per m/s; default such that the longest is about a fifth of the
            mechanism.

    Raises:
        ValueError: for a spatial mechanism, a velocity of the wrong length, or too few names.
    """
    if model.structure.dim != 2:
        raise ValueError("system: only planar mechanisms (dim = 2); draw_bodies draws spatial ones")
    scene, frame = scene_of(model), scene_frames(model, state.q)
    shown = {"after": state.v} if v is None else v
    (velocity, *_) = outcomes_of(shown, model.structure.num_velocities).values()
    u = _world_velocities(model, state, frame, velocity)
    scale = _arrow_scale(*_extent(scene, frame), u) if arrow_scale is None else arrow_scale
    _draw_frame(axes, scene, frame, _labels(scene, names), u, scale, color)


def _draw_frame(
    axes: Axes,
    scene: Scene,
    frame: Frames,
    labels: tuple[str, ...],
    velocities: np.ndarray,
    scale: float,
    colour: str,
) -> None:
    low, high = _extent(scene, frame)
    draw_planar(axes, scene, frame, low, high)
    draw_planar_contacts(axes, frame, labels, velocities, scale, colour)
    if scale > 0.0:
        draw_scale(axes, low, high, scale, colour)


def _extent(scene: Scene, frame: Frames) -> tuple[np.ndarray, np.ndarray]:
    """Return minimum and maximum coordinates of bodies and, in the plane, contacts."""
    low, high = extent(scene, frame)
    if scene.dim == 2 and scene.num_contacts:
        low, high = (
            np.minimum(low, frame.contacts.min(axis=0)),
            np.maximum(high, frame.contacts.max(axis=0)),
        )
    return low, high


_contact_velocities = jax.jit(contact_velocities)


def _world_velocities(model: Model, state: State, frame: Frames, v: np.ndarray) -> np.ndarray:
    """Compute the relative velocities (nc, dim) of the contacts, in world axes."""
    if not len(frame.contacts):
        return np.zeros_like(frame.contacts)
    u = np.asarray(_contact_velocities(model, state.q, jnp.asarray(v, state.v.dtype)))
    return np.einsum("cf,cfd->cd", u, frame.axes)


def _arrow_scale(low: np.ndarray, high: np.ndarray, *velocities: np.ndarray) -> float:
    """Return the length of arrows, m per m/s; 0 if nothing moves."""
    fastest = max((float(np.max(np.linalg.norm(u, axis=1), initial=0.0)) for u in velocities), default=0.0)
    return ARROW * float(np.max(high - low)) / fastest if fastest > MIN_SPEED else 0.0


def _columns(count: int, aspect: float) -> int:
    """Choose the number of panels side by side: few rows, and if possible no row with a single panel."""
    max_columns = 4 if aspect < 1.1 else 3 if aspect < 1.6 else 2
    return 2 if max_columns == 3 and count == 4 else min(count, max_columns)


def _labels(scene: Scene, names: Sequence[str] | None) -> tuple[str, ...]:
    """Return a name per contact; empty names in space if there are more contacts than letters."""
    if names is None and scene.dim == 3 and scene.num_contacts > MOST_NAMED:
        return ("",) * scene.num_contacts
    labels = tuple(contact_names(scene.num_contacts) if names is None else names)
    if len(labels) < scene.num_contacts:
        raise ValueError(f"names: expected {scene.num_contacts}, one per contact, got {len(labels)}")
    return labels
