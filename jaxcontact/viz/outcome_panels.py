"""The outcomes of an impact as robots: one panel per kind of outcome, with its share of the samples.

The entry function is `plot_outcomes`. The grey silhouette is the robot at the impact; the robot in colour is
where it goes if it moves on for a moment as after the impact.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import jax.numpy as jnp
import numpy as np

from jaxcontact.arguments import check_numbers
from jaxcontact.front_door import POSITIVE, checked
from jaxcontact.impact import inputs
from jaxcontact.impact.sampling.chunks import ImpactSamples
from jaxcontact.impact.sampling.outcomes import LABELS, contact_names, outcome_labels
from jaxcontact.mechanics.configuration import retract
from jaxcontact.mechanics.system import Model, State
from jaxcontact.status import Status
from jaxcontact.terms import ContactTerms
from jaxcontact.viz.palette import OUTCOMES
from jaxcontact.viz.planar import draw_planar, draw_planar_bodies
from jaxcontact.viz.scene import Frames, Scene, extent, frames_of, scene_of
from jaxcontact.viz.spatial import draw_spatial, draw_spatial_bodies, limits, look

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MOST_KINDS = 5  # panels of outcomes; rarer kinds are counted in the title
SILHOUETTE = "#b8b8b8"  # the robot at the impact
REACH = 0.15  # of the size of the robot, which its fastest part moves, before the impact or after
PROBE = 1e-6  # s, in which the speeds of bodies are measured
MARKS = {"sticks": OUTCOMES[0], "slides": OUTCOMES[1], "lifts": "white", "approaches": OUTCOMES[3]}
TILTS = len(LABELS)  # the kind of a body of which some contacts lift


def _check_terms(name: str, value: Any) -> None:
    """Raise TypeError for what are no contact terms; they may be of some of the contacts."""
    if not isinstance(value, ContactTerms):
        raise TypeError(f"{name}: expected ContactTerms, got {type(value).__name__}")


@checked(terms=_check_terms, points=check_numbers, mujoco="nv", width=POSITIVE)
def plot_outcomes(
    model: Model,
    state: State,
    samples: ImpactSamples,
    terms: Any,  # ContactTerms of some of the contacts of the model
    *,
    points: Any = None,
    names: Sequence[str] | None = None,
    mujoco: Any = None,
    title: str | None = None,
    width: float = 9.0,
) -> Figure:
    """Plot the kinds of outcomes of an impact, the most frequent first, each as the robot a moment later.

    A kind says of every contact, or of every group of contacts with one name, if it sticks, slides or lifts;
    a group of which some lift tilts. A panel shows the sample nearest to the mean of its kind.

    Args:
        model: a mechanism and its numbers.
        state: its configuration at the impact.
        samples: outcomes, from `sample`.
        terms: contact terms of the samples, nc contacts.
        points: (nc, dim) places of the contacts, m; None draws none.
        names: of the contacts (nc,); contacts of one name, such as those of a foot, count as one. Default
            A, B, C, ...
        mujoco: (nv,) MuJoCo's velocity after the impact, in a panel of its own; None for none.
        title: of the figure.
        width: of the figure, inches.

    Returns:
        A matplotlib figure that belongs to no window; save it by `savefig`.

    Raises:
        ValueError: no sample succeeded, or another number of names.
        ImportError: if matplotlib is not installed.
    """
    inputs.check(terms, state.v)
    names = contact_names(terms.phi.shape[0]) if names is None else list(names)
    if len(names) != terms.phi.shape[0]:
        raise ValueError(f"names: expected one per contact, {terms.phi.shape[0]}, got {len(names)}")
    shape = (len(names), model.structure.dim)
    if points is not None and np.shape(points) != shape:
        raise ValueError(f"points: expected shape {shape}, got {np.shape(points)}")
    kinds, labels, rest = _kinds(samples, terms, names)
    if mujoco is not None:
        kinds = [*kinds, ("MuJoCo", np.asarray(mujoco, float), None)]
    scene, frame = scene_of(model), frames_of(model, state.q, contacts=False)
    moment = _moment(model, state, [v for _, v, member in kinds if member is not None], extent(scene, frame))
    moved = [frames_of(model, _moved(model, state, v, moment), contacts=False) for _, v, _ in kinds]
    figure, places = _panels(scene, [frame, *moved], len(kinds), width)
    for k, ((words, _, member), after, axes) in enumerate(zip(kinds, moved, places, strict=True)):
        _draw(axes, scene, frame, after, [frame, *moved])
        colour = "black" if member is None else OUTCOMES[k]
        axes.set_title(words, fontsize=8.5, fontweight="bold", color=colour)
        if points is not None and member is not None:
            _mark(axes, scene, np.asarray(points), labels[member])
    note = f"grey: at the impact; in colour: {moment:g} s later, as it moves after the impact"
    figure.supxlabel(note + (f"; {100 * rest:.2g} % are of other kinds" if rest else ""), fontsize=8)
    if points is not None:
        _explain(figure)
    if title is not None:
        figure.suptitle(title, fontsize=11)
    return figure


def _kinds(
    samples: ImpactSamples, terms: ContactTerms, names: Sequence[str]
) -> tuple[list[tuple[str, np.ndarray, Any]], np.ndarray, float]:
    """Return words, velocity and number of a sample per kind; all labels; the share of the other kinds."""
    succeeded = (np.asarray(samples.status) & np.uint32(int(Status.FAILURES))) == 0
    if not succeeded.any():
        raise ValueError("samples: expected some that succeeded, got none")
    labels, v_plus = outcome_labels(samples, terms)[succeeded], np.asarray(samples.v_plus)[succeeded]
    active = np.asarray(terms.active)
    groups = list(dict.fromkeys(name for name, touches in zip(names, active, strict=True) if touches))
    member = np.array([groups.index(name) if name in groups else -1 for name in names])
    states = np.stack([_state(labels[:, (member == k) & active]) for k in range(len(groups))], axis=1)
    kinds, inverse, counts = np.unique(states, axis=0, return_inverse=True, return_counts=True)
    shown = []
    for kind in np.argsort(-counts, kind="stable")[:MOST_KINDS]:
        of_kind = np.flatnonzero(inverse.reshape(-1) == kind)
        offset = v_plus[of_kind] - v_plus[of_kind].mean(axis=0)
        nearest = of_kind[np.argmin(np.einsum("ki,ij,kj->k", offset, np.asarray(terms.M), offset))]
        words = _words(groups, kinds[kind], counts[kind] / len(labels))
        shown.append((words, v_plus[nearest], int(nearest)))
    share = sum(np.sort(counts)[::-1][:MOST_KINDS]) / len(labels)
    return shown, labels, 1.0 - share if share < 1.0 - 1e-12 else 0.0


def _state(labels: np.ndarray) -> np.ndarray:
    """Classify a group of contacts (n, k): the label of all, TILTS if some lift, else that of the loosest."""
    lifts = labels == LABELS.index("lifts")
    return np.where(lifts.any(axis=1) & ~lifts.all(axis=1), TILTS, labels.max(axis=1))


def _words(groups: Sequence[str], kind: np.ndarray, share: float) -> str:
    """Say what the groups do, those that do the same together: "42 %: A, B stick; C lifts"."""
    does = ((*LABELS, "tilts"), ("stick", "slide", "lift", "approach", "tilt"))
    parts = []
    for label in dict.fromkeys(kind):
        of_label = [name for name, other in zip(groups, kind, strict=True) if other == label]
        verb = does[len(of_label) > 1][label]
        everyone = len(of_label) == len(groups) > 2
        parts.append(f"all {verb}" if everyone else f"{', '.join(of_label)} {verb}")
    lines = [f"{100 * share:.3g} %", *parts]
    return "\n".join(lines)


def _moved(model: Model, state: State, v: np.ndarray, seconds: float) -> Any:
    return retract(model.system, state.q, jnp.asarray(v * seconds, state.q.dtype))


def _moment(
    model: Model, state: State, outcomes: Sequence[np.ndarray], box: tuple[np.ndarray, np.ndarray]
) -> float:
    """Choose the time in which the fastest body moves by REACH of the size of the mechanism, s.

    If all outcomes are slow it is the time in which it would have moved by the size, before the impact.
    """
    centres = frames_of(model, state.q, contacts=False).centres
    speeds = []
    for v in (np.asarray(state.v), *outcomes):
        after = frames_of(model, _moved(model, state, v, PROBE), contacts=False).centres
        speeds.append(float(np.linalg.norm(after - centres, axis=1).max()) / PROBE)
    size = float(np.max(box[1] - box[0]))
    slowest = max(max(speeds[1:]) / REACH, speeds[0])
    return float(f"{size / slowest:.1g}") if slowest > 0.0 else 0.0


def _panels(scene: Scene, frames: Sequence[Frames], count: int, width: float) -> tuple[Figure, list[Any]]:
    """Make a figure with `count` panels of the shape of the mechanism."""
    from matplotlib.figure import Figure

    box = _box(scene, frames)
    low, high = box if scene.dim == 2 else limits(look(), *box)
    columns = min(count, 3)
    rows = math.ceil(count / columns)
    side = min(width / columns, 3.6)
    height = side * float(np.clip((high - low)[1] / (high - low)[0], 0.4, 2.0))
    figure = Figure(figsize=(side * columns, (height + 0.7) * rows + 0.7), layout="constrained")
    return figure, [figure.add_subplot(rows, columns, k + 1) for k in range(count)]


def _box(scene: Scene, frames: Sequence[Frames]) -> tuple[np.ndarray, np.ndarray]:
    boxes = [extent(scene, frame) for frame in frames]
    return np.min([low for low, _ in boxes], axis=0), np.max([high for _, high in boxes], axis=0)


def _draw(axes: Any, scene: Scene, before: Frames, after: Frames, frames: Sequence[Frames]) -> None:
    box = _box(scene, frames)
    if scene.dim == 2:
        draw_planar(axes, scene, after, *box)
        draw_planar_bodies(axes, scene, before, colour=SILHOUETTE, alpha=0.7)
    else:
        draw_spatial(axes, scene, after, look(), *box)
        draw_spatial_bodies(axes, scene, before, look(), colour=SILHOUETTE, alpha=0.7)


def _mark(axes: Any, scene: Scene, points: np.ndarray, labels: np.ndarray) -> None:
    """Draw the contacts in the colours of what they do."""
    flat = points if scene.dim == 2 else look().flat(points)
    for place, label in zip(flat, labels, strict=True):
        fill = MARKS[LABELS[label]]
        axes.plot(*place, "o", markersize=4.5, color=fill, markeredgecolor="black", mew=0.6, zorder=8)


def _explain(figure: Any) -> None:
    """Add a legend of the marks of contacts."""
    from matplotlib.lines import Line2D

    style: dict[str, Any] = {"marker": "o", "linestyle": "", "markeredgecolor": "black", "markersize": 5}
    handles = [Line2D([], [], color=fill, label=label, **style) for label, fill in MARKS.items()][:3]
    figure.legend(handles=handles, loc="outside upper right", ncols=3, fontsize=8, frameon=False)
