"""The outcomes of an impact as robots: one panel per kind of outcome, with its share of the samples.

The entry function is `plot_outcomes`. The grey silhouette is the robot at the impact; the robot in colour is
where it goes if it moves on for a moment as after the impact. Arrows are velocities of contacts.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import jax.numpy as jnp
import numpy as np

from jaxcontact._pytree import PyTree
from jaxcontact.front_door import POSITIVE, checked
from jaxcontact.impact import inputs
from jaxcontact.impact.sampling.chunks import ImpactSamples
from jaxcontact.impact.sampling.outcomes import LABELS, outcome_labels
from jaxcontact.mechanics.configuration import retract
from jaxcontact.mechanics.system import Model, State
from jaxcontact.status import Status
from jaxcontact.terms import ContactTerms
from jaxcontact.terms.contact_list import Contacts, contacts
from jaxcontact.viz.palette import MIN_SPEED, OUTCOMES, OUTLINE, Style, arrow
from jaxcontact.viz.planar import draw_planar, draw_planar_bodies
from jaxcontact.viz.scene import Frames, Scene, extent, scene_frames, scene_of
from jaxcontact.viz.spatial import draw_spatial, draw_spatial_bodies, look

if TYPE_CHECKING:
    from jaxtyping import Float
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST_KINDS = 5  # panels of outcomes; rarer kinds are counted below the panels
RARE_SHARE = 0.05  # share of the samples; a rarer kind has no panel if three others have one
SILHOUETTE = "#b8b8b8"  # the robot at the impact
SHOWN_SHARE = 0.8  # share of the samples; if the panels have less, sticking and sliding count as one kind
REACH = 0.05  # of the size of the robot, which its fastest part moves, before the impact or after
ARROW_LENGTH = 0.15  # of the size of the robot, length of the longest arrow
MIN_ARROW = 0.15  # of the longest arrow; shorter ones, which the mark of their contact covers, are not drawn
MARGIN = 0.06  # of the size of the robot, around all that is drawn
MIN_WIDTH = 6.0  # inches, for the title beside the legend
PAD = 0.07  # inches, between title and panels
LETTERS = 15  # per inch of a note below the panels
PEER_STILL = 1e-2  # of the fastest contact before the impact; slower ones of a peer with springs are still
PROBE = 1e-6  # s, in which the speeds of bodies are measured
MARKS = {"sticks": OUTCOMES[0], "slides": OUTCOMES[1], "lifts": "white", "approaches": OUTCOMES[3]}
TILTS = len(LABELS)  # the kind of a body of which some contacts lift
STAYS = TILTS + 1  # the kind of a body that sticks or slides
VERBS = tuple((verb, verb[:-1]) for verb in (*LABELS, "tilts", "stays"))  # of one group, of several
TITLE_LETTERS = 11.0  # per inch of a title
LEGEND = 0.75  # inches, of an entry of the legend beside the title
SIDES = {"F": "front", "R": "rear", "H": "hind"}  # of a leg, in names such as FL_calf or LF_FOOT
HANDS = {"L": "left", "R": "right"}


def _check_terms(name: str, value: object) -> None:
    """Raise TypeError for what are no contact terms; they may be of some of the contacts."""
    if not isinstance(value, ContactTerms):
        raise TypeError(f"{name}: expected ContactTerms, got {type(value).__name__}")


@checked(terms=_check_terms, width=POSITIVE)
def plot_outcomes(
    model: Model,
    state: State,
    samples: ImpactSamples,
    terms: Any,  # ContactTerms of some of the contacts of the model
    *,
    names: Sequence[str] | None = None,
    mujoco: Float[np.ndarray, " nv"] | None = None,
    title: str | None = None,
    width: float = 9.0,
) -> Figure:
    """Plot the kinds of outcomes of an impact, the most frequent first, each as the robot a moment later.

    A kind says of every group of contacts with one name if it sticks, slides or lifts; a group of which some
    lift tilts. If there are many kinds, sticking and sliding count as one, staying. A panel shows the sample
    nearest to the mean of its kind, with the velocity of the fastest contact of each group. The first panel
    has the names of the groups.

    Args:
        model: a mechanism and its numbers.
        state: its configuration at the impact.
        samples: outcomes, from `sample`.
        terms: contact terms of the samples, of all contacts of the model or of those that touch, nc.
        names: of the contacts (nc,); contacts of one name, such as those of a foot, count as one, and those
            of an empty name do not count. Default the bodies that touch; FL_calf and so on as "front left".
        mujoco: (nv,) MuJoCo's velocity after the impact, in a panel of its own; None for none.
        title: of the figure.
        width: of the figure, inches.

    Returns:
        A matplotlib figure that belongs to no window; save it by `savefig`.

    Raises:
        ValueError: no sample succeeded, another number of names, or terms of other contacts.
        ImportError: if matplotlib is not installed.
    """
    inputs.check(terms, state.v)
    listed = contacts(model, state)
    rows = _contact_rows(listed, terms)
    names = _plain_names(body_names(listed, rows)) if names is None else list(names)
    if len(names) != len(rows):
        raise ValueError(f"names: expected one per contact, {len(rows)}, got {len(names)}")
    if not any(np.asarray(terms.active)[[bool(name) for name in names]]):
        raise ValueError("names: expected one of a contact that touches, got none")
    kinds, labels, rest = _pick_kinds(samples, terms, names)
    shown, peer_still = [labels[member] for _, _, member in kinds], 0.0
    if mujoco is not None:
        kinds = [*kinds, ("MuJoCo\none outcome", np.asarray(mujoco, float), None)]
        does, peer_still = _labels_of_peer(kinds[-1][1], samples, terms)
        shown.append(does)
    scene, frame = scene_of(model), scene_frames(model, state.q, contacts=False)
    size = float(np.max(np.subtract(*extent(scene, frame)[::-1])))
    moment = _choose_moment(model, state, [v for _, v, member in kinds if member is not None], size)
    moved = [scene_frames(model, _advance_pose(model, state, v, moment), contacts=False) for _, v, _ in kinds]
    velocities = [_velocities(model, state, v)[rows] for _, v, _ in kinds]
    fastest = max(float(np.linalg.norm(moving, axis=1).max()) for moving in velocities)
    metres = ARROW_LENGTH * size / fastest if fastest > MIN_SPEED else 0.0  # per m/s
    points = np.asarray(listed.point)[rows]
    tips = np.concatenate([points + metres * moving for moving in velocities])
    box = _frame_corners(scene, [frame, *moved], tips, MARGIN * size)
    lines = max(words.count("\n") + 1 for words, _, _ in kinds)
    figure, places = _make_panels(box, len(kinds), lines, width)
    for (words, _, _), does, after, moving, axes in zip(kinds, shown, moved, velocities, places, strict=True):
        _draw_landing(axes, scene, frame, after, box)
        axes.set_title(words, fontsize=8.5, fontweight="bold")
        _draw_arrow(axes, scene, points, moving * metres, names, MIN_ARROW * ARROW_LENGTH * size)
        _mark_contacts(axes, scene, points, does)
    if len(set(names) - {""}) > 1:
        _write_names(places[0], scene, points, names)
    is_merged = any(" stay" in words for words, _, _ in kinds)
    notes = _notes(moment, fastest if metres else 0.0, is_merged, rest, peer_still)
    figure.supxlabel(textwrap.fill(notes, int(LETTERS * figure.get_figwidth())), fontsize=8)
    used = [LABELS[k] for k in np.unique(np.concatenate(shown))]
    _add_legend(figure, used)
    if title is not None:
        letters = int(TITLE_LETTERS * (figure.get_figwidth() - LEGEND * (len(used) + 0.5)))
        wrapped = "\n".join(textwrap.fill(line, letters) for line in title.split("\n"))
        figure.suptitle(wrapped, fontsize=11, x=0.01, ha="left")
    return figure


def _notes(moment: float, fastest: float, is_merged: bool, rest: float, peer_still: float) -> str:
    """Say in sentences what the panels show; the fastest contact in m/s, 0 for no arrows; 0 for no peer."""
    notes = [f"Grey shows the pose at the impact, colour the pose {moment:g} s later."]
    if fastest:
        notes.append(f"Arrows are velocities of contacts, the longest {fastest:.2g} m/s.")
    if is_merged:
        notes.append("A contact that stays either sticks or slides.")
    if rest:
        notes.append(f"The other {100 * rest:.2g}\u00a0% of impulse orders end in other ways.")
    if peer_still:
        notes.append(f"In MuJoCo, whose contacts are springs, less than {peer_still:.2g} m/s counts as rest.")
    return " ".join(notes)


def _plain_names(names: list[str]) -> list[str]:
    """Say which legs names such as FL_calf mean, if all names are of such legs: "front left"."""
    legs = []
    for name in names:
        code = name.partition("_")[0].upper()
        side, hand = (code[:1], code[1:]) if code[1:] in HANDS else (code[1:], code[:1])
        if side not in SIDES or hand not in HANDS:
            return names
        legs.append(f"{SIDES[side]} {HANDS[hand]}")
    return legs if len(set(legs)) == len(set(names)) else names


def _labels_of_peer(v: np.ndarray, samples: ImpactSamples, terms: ContactTerms) -> tuple[np.ndarray, float]:
    """Classify (nc,) the contacts of another simulator, which are springs; return the speed of rest, m/s."""
    normal, tangents = np.asarray(terms.J_n), np.asarray(terms.J_t)
    before = np.asarray(samples.v_minus)
    small = PEER_STILL * float(max(np.abs(normal @ before).max(), np.abs(tangents @ before).max()))
    slip = np.linalg.norm(tangents @ v, axis=1)
    return np.select([normal @ v > small, normal @ v < -small, slip > small], [2, 3, 1], 0), small


def body_names(listed: Contacts, rows: np.ndarray) -> list[str]:
    """List the first moving body of each of these contacts."""
    bodies = [second if first is None else first for first, second in listed.bodies]
    return [str(bodies[listed.pair[k]]) for k in rows]


def _contact_rows(listed: Contacts, terms: ContactTerms) -> np.ndarray:
    """Return the numbers of the contacts of the terms among those of the model."""
    count, touching = terms.phi.shape[0], np.flatnonzero(np.asarray(listed.touching))
    if count == len(listed.pair):
        return np.arange(count)
    if count != len(touching):
        expected = f"all {len(listed.pair)} contacts of the model, or the {len(touching)} that touch"
        raise ValueError(f"terms: expected those of {expected}, got {count}")
    return touching


def _velocities(model: Model, state: State, v: np.ndarray) -> np.ndarray:
    """Compute the velocities of all contacts of moving bodies in the world, m/s."""
    moving = contacts(model, state.replace(v=jnp.asarray(v, state.v.dtype)))
    turned = np.array([-1.0 if first is None else 1.0 for first, _ in moving.bodies])
    return np.asarray(moving.velocity) * turned[list(moving.pair), None]


def _pick_kinds(
    samples: ImpactSamples, terms: ContactTerms, names: Sequence[str]
) -> tuple[list[tuple[str, np.ndarray, PyTree]], np.ndarray, float]:
    """Return words, velocity and number of a sample per kind; all labels; the share of the other kinds."""
    succeeded = (np.asarray(samples.status) & np.uint32(int(Status.FAILURES))) == 0
    if not succeeded.any():
        raise ValueError("samples: expected some that succeeded, got none")
    labels, v_plus = outcome_labels(samples, terms)[succeeded], np.asarray(samples.v_plus)[succeeded]
    active = np.asarray(terms.active)
    groups = list(dict.fromkeys(name for name, on in zip(names, active, strict=True) if on and name))
    member = np.array([groups.index(name) if name in groups else -1 for name in names])
    states = np.stack(
        [_classify_group(labels[:, (member == k) & active]) for k in range(len(groups))], axis=1
    )
    kinds, inverse, counts = np.unique(states, axis=0, return_inverse=True, return_counts=True)
    if np.sort(counts)[::-1][:MOST_KINDS].sum() < SHOWN_SHARE * len(states):
        states[states < LABELS.index("lifts")] = STAYS
        kinds, inverse, counts = np.unique(states, axis=0, return_inverse=True, return_counts=True)
    shown: list[tuple[str, np.ndarray, PyTree]] = []
    share = 0.0
    for kind in np.argsort(-counts, kind="stable")[:MOST_KINDS]:
        if len(shown) >= 3 and counts[kind] < RARE_SHARE * len(labels):
            break
        of_kind = np.flatnonzero(inverse.reshape(-1) == kind)
        offset = v_plus[of_kind] - v_plus[of_kind].mean(axis=0)
        nearest = of_kind[np.argmin(np.einsum("ki,ij,kj->k", offset, np.asarray(terms.M), offset))]
        words = _describe_kind(groups, kinds[kind], counts[kind] / len(labels))
        shown.append((words, v_plus[nearest], int(nearest)))
        share += counts[kind] / len(labels)
    return shown, labels, 1.0 - share if share < 1.0 - 1e-12 else 0.0


def _classify_group(labels: np.ndarray) -> np.ndarray:
    """Classify a group of contacts (n, k): the label of all, TILTS if some lift, else that of the loosest."""
    lifts = labels == LABELS.index("lifts")
    return np.where(lifts.any(axis=1) & ~lifts.all(axis=1), TILTS, labels.max(axis=1))


def _describe_kind(groups: Sequence[str], kind: np.ndarray, share: float) -> str:
    """Say what the groups do, those that do the same together: "A, B stick", "C lifts"."""
    parts = []
    for label in dict.fromkeys(kind):
        of_label = [name for name, other in zip(groups, kind, strict=True) if other == label]
        verb = VERBS[label][len(of_label) > 1]
        everyone = "both" if len(groups) == 2 else "all"
        names = everyone if len(of_label) == len(groups) > 1 else ", ".join(of_label)
        parts.append(f"{names} {verb}")
    percent = round(100 * share, 0 if share >= 0.1 else 1)
    return "\n".join([f"{percent:g} % of impulse orders", *parts])


def _advance_pose(model: Model, state: State, v: np.ndarray, seconds: float) -> PyTree:
    return retract(model.system, state.q, jnp.asarray(v * seconds, state.q.dtype))


def _choose_moment(model: Model, state: State, outcomes: Sequence[np.ndarray], size: float) -> float:
    """Choose the time in which the fastest body moves by REACH of the size of the mechanism, s.

    If all outcomes are slow it is the time in which it would have moved by the size, before the impact.
    """
    centres = scene_frames(model, state.q, contacts=False).centres
    speeds = []
    for v in (np.asarray(state.v), *outcomes):
        after = scene_frames(model, _advance_pose(model, state, v, PROBE), contacts=False).centres
        speeds.append(float(np.linalg.norm(after - centres, axis=1).max()) / PROBE)
    slowest = max(max(speeds[1:]) / REACH, speeds[0])
    return float(f"{size / slowest:.1g}") if slowest > 0.0 else 0.0


def _make_panels(
    box: tuple[np.ndarray, np.ndarray], count: int, lines: int, width: float
) -> tuple[Figure, list[Axes]]:
    """Make a figure with `count` panels of the shape of the box, with lines of words above each."""
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    across, tall = np.subtract(*box[::-1])
    columns = min(count, (2 if count == 4 else 3) if across > 0.6 * tall else 6)
    rows = math.ceil(count / columns)
    side = min(width / columns, 3.6)
    height = min(side * tall / across, 1.2 * side if rows > 1 else 4.0) + 0.14 * lines + 0.1
    layout = ConstrainedLayoutEngine(h_pad=PAD)
    figure = Figure(figsize=(max(side * columns, MIN_WIDTH), height * rows + 0.5), layout=layout)
    return figure, [figure.add_subplot(rows, columns, k + 1) for k in range(count)]


def _frame_corners(
    scene: Scene, frames: Sequence[Frames], tips: np.ndarray, margin: float
) -> tuple[np.ndarray, np.ndarray]:
    """Return lower left and upper right of the picture of frames and tips, m; the ground is seen below."""
    boxes = [extent(scene, frame) for frame in frames]
    low, high = np.min([low for low, _ in boxes], axis=0), np.max([high for _, high in boxes], axis=0)
    if scene.dim == 3:
        corners = look().flat(np.stack(np.meshgrid(*zip(low, high, strict=True)), axis=-1).reshape(-1, 3))
        low, high, tips = corners.min(axis=0), corners.max(axis=0), look().flat(tips)
    low, high = np.minimum(low, tips.min(axis=0)), np.maximum(high, tips.max(axis=0))
    return low - margin * np.array([1.0, 2.0]), high + margin


def _draw_landing(
    axes: Axes, scene: Scene, before: Frames, after: Frames, box: tuple[np.ndarray, np.ndarray]
) -> None:
    """Draw the robot after the impact over its silhouette at the impact, without axes."""
    if scene.dim == 2:
        draw_planar(axes, scene, after, *box)
        draw_planar_bodies(axes, scene, before, colour=SILHOUETTE, alpha=0.7)
    else:
        draw_spatial(axes, scene, after, look(), *extent(scene, before))
        draw_spatial_bodies(axes, scene, before, look(), colour=SILHOUETTE, alpha=0.7)
    axes.set_axis_off()
    axes.set(xlim=(box[0][0], box[1][0]), ylim=(box[0][1], box[1][1]))


def _draw_arrow(
    axes: Axes, scene: Scene, points: np.ndarray, along: np.ndarray, names: Sequence[str], shortest: float
) -> None:
    """Draw an arrow at the fastest contact of each name, unless it is short."""
    lengths = np.linalg.norm(along, axis=1)
    for name in dict.fromkeys(filter(None, names)):
        k = max((k for k, other in enumerate(names) if other == name), key=lambda k: lengths[k])
        place, ahead = (x if scene.dim == 2 else look().flat(x) for x in (points[k], along[k]))
        if np.linalg.norm(ahead) > shortest:
            arrow(axes, place, ahead, OUTLINE)


def _mark_contacts(axes: Axes, scene: Scene, points: np.ndarray, labels: np.ndarray) -> None:
    """Draw the contacts in the colours of what they do."""
    flat = points if scene.dim == 2 else look().flat(points)
    for place, label in zip(flat, labels, strict=True):
        fill = MARKS[LABELS[label]]
        axes.plot(*place, "o", markersize=4.5, color=fill, markeredgecolor="black", mew=0.6, zorder=8)


def _write_names(axes: Axes, scene: Scene, points: np.ndarray, names: Sequence[str]) -> None:
    """Write the name of each group below its first contact."""
    from matplotlib.patheffects import withStroke

    flat = points if scene.dim == 2 else look().flat(points)
    style: Style = {"fontsize": 6.5, "ha": "center", "va": "top", "zorder": 10}
    style["path_effects"] = [withStroke(linewidth=2.0, foreground="white")]
    for name in dict.fromkeys(filter(None, names)):
        axes.annotate(name, flat[names.index(name)], xytext=(0, -5), textcoords="offset points", **style)


def _add_legend(figure: Figure, used: Sequence[str]) -> None:
    """Add a legend of the marks of contacts that some panel has."""
    from matplotlib.lines import Line2D

    style: Style = {"marker": "o", "linestyle": "", "markeredgecolor": "black", "markersize": 5}
    handles = [Line2D([], [], color=MARKS[label], label=label, **style) for label in used]
    figure.legend(handles=handles, loc="outside upper right", ncols=len(used), fontsize=8, frameon=False)
