"""Pictures of a mechanism: its bodies, joints, ground and contacts, and how fast the contacts move.

Drawings need no description of their own: all comes from the system and its numbers.
"""

from __future__ import annotations

import math
import string
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from jaxcontact.mechanics.system import Params, State, System
from jaxcontact.viz.palette import AFTER, BEFORE, outcomes_of
from jaxcontact.viz.planar import draw_scene
from jaxcontact.viz.scene import Scene, arrow_scale_of, contact_velocities, extent, margin_of, scene_of
from jaxcontact.viz.spatial import plot_spatial

if TYPE_CHECKING:  # matplotlib is imported when a picture is asked for
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


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
    scene = scene_of(system, params, state)
    outcomes = outcomes_of(v, system.structure.num_velocities)
    labels = _labels(scene, names)
    before = contact_velocities(scene, np.asarray(state.v, float))
    after = {label: contact_velocities(scene, w) for label, w in outcomes.items()}
    low, high = extent(scene)
    span = high - low + 2.0 * margin_of(scene)
    count = 1 + len(after)
    columns = _columns(count, float(span[0] / span[1]))
    rows = math.ceil(count / columns)
    panel = min(width / columns, 3.6)
    tall = (panel - 0.4) * span[1] / span[0] + 0.55
    figure = Figure(figsize=(panel * columns, tall * rows + (0.35 if title else 0.1)), layout="constrained")
    scale = arrow_scale_of(scene, *after.values())
    for k, (label, u) in enumerate([("before", before), *after.items()]):
        axes = figure.add_subplot(rows, columns, k + 1)
        if k == 0:
            draw_scene(axes, scene, labels, u, arrow_scale_of(scene, u), BEFORE)
        else:
            draw_scene(axes, scene, labels, u, scale, AFTER)
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
    scene = scene_of(system, params, state)
    velocity = (
        np.asarray(state.v, float)
        if v is None
        else next(iter(outcomes_of(v, system.structure.num_velocities).values()))
    )
    u = contact_velocities(scene, velocity)
    scale = arrow_scale_of(scene, u) if arrow_scale is None else arrow_scale
    draw_scene(axes, scene, _labels(scene, names), u, scale, color)


def _columns(count: int, aspect: float) -> int:
    """Panels side by side: few rows, no row with one panel left over where that can be helped."""
    most = 4 if aspect < 1.1 else 3 if aspect < 1.6 else 2
    return 2 if most == 3 and count == 4 else min(count, most)


def _labels(scene: Scene, names: Sequence[str] | None) -> tuple[str, ...]:
    labels = tuple(string.ascii_uppercase if names is None else names)
    if len(labels) < len(scene.contacts):
        raise ValueError(f"names: expected {len(scene.contacts)}, one per contact, got {len(labels)}")
    return labels
