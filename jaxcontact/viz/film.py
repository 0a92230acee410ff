"""A motion as a sequence of pictures: the times shown, the places of all bodies, the contact impulses.

Owns the choice of pictures from the steps of a trajectory, and the groups of worlds that end alike. The entry
function is `film_of`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import NamedTuple

import jax
import numpy as np

from jaxcontact.mechanics.mocap import MocapPoses, still_poses
from jaxcontact.mechanics.system import Model, System
from jaxcontact.simulate import Trajectory
from jaxcontact.viz.palette import OUTCOMES
from jaxcontact.viz.scene import Frames, Scene, extent, scene_frames, scene_of

SAME_END = 0.05  # of the size of the mechanism; worlds whose ends are nearer have one outcome
FULL_PERCENTILE = 95  # percentile of the impulses; its arrow has full length, larger ones at most twice that


class Group(NamedTuple):
    """Worlds that end alike."""

    label: str
    colour: str
    worlds: np.ndarray


class Ghosts(NamedTuple):
    """Other worlds of the same motion."""

    frames: Frames  # (worlds, pictures, ...), without contacts
    groups: tuple[Group, ...]
    num_failed: int  # worlds left out because they hold numbers that are not finite
    is_named: bool  # by the user; else the groups are found

    @property
    def has_shares(self) -> bool:
        """Tell whether the groups say something: they have names, or are several, most of many worlds."""
        return self.is_named or 1 < len(self.groups) < sum(len(group.worlds) for group in self.groups) / 2


class Film(NamedTuple):
    """The content of an animation; axis 0 of the arrays is the picture."""

    scene: Scene
    t: np.ndarray  # s
    frames: Frames
    touching: np.ndarray  # (n, nc) bool
    impulse: np.ndarray  # (n, nc, dim) on the first body since the last picture, in the world, N s
    full: float  # N s of an arrow of full length, 0 without impulses
    ghosts: Ghosts | None
    low: np.ndarray  # of all that moves, at any time
    high: np.ndarray
    size: float  # of the mechanism, m


def film_of(
    trajectory: Trajectory, model: Model, ghosts: Trajectory | Mapping[str, Trajectory] | None, rate: float
) -> Film:
    """Make the film of a motion, with `rate` pictures per second of the motion.

    Raises:
        TypeError: if an argument is no trajectory.
        ValueError: for states of another mechanism, of no world, or not finite.
    """
    q, t = _check_states("trajectory", trajectory, model.system)
    if q.ndim == 3:
        if ghosts is None:
            ghosts = trajectory
        trajectory, q, t = jax.tree.map(lambda leaf: leaf[0], trajectory), q[0], t[0]
    poses = _mocap_poses(trajectory, model, q)
    if not np.all(np.isfinite(q)):
        bad = int(np.flatnonzero(~np.all(np.isfinite(q), axis=-1))[0])
        raise ValueError(f"trajectory: expected finite states, row {bad} is not")
    last = len(q) - 1
    count = min(last, max(1, math.ceil(float(t[-1] - t[0]) * rate - 1e-9)))
    rows = np.unique(np.round(np.linspace(0, last, count + 1)).astype(int))
    scene = scene_of(model)
    frames = scene_frames(model, q[rows], mocap=_map(poses, lambda x: x[rows]))
    along = _sum_impulses(trajectory, t, rows, scene)
    impulse = np.einsum("tcf,tcfd->tcd", along, frames.axes)
    strong = np.linalg.norm(impulse, axis=-1)
    shown = strong[strong > 0.0]
    closed = getattr(trajectory, "contacts", None)
    touching = strong > 0.0 if closed is None else np.asarray(closed)[rows] | (strong > 0.0)
    low, high = extent(scene, frames)
    first = extent(scene, frames.at(0))
    size = float(np.max(first[1] - first[0]))
    others = None if ghosts is None else _select_ghosts(ghosts, model, t[rows], size)
    if others is not None and others.groups:
        wide = extent(scene, others.frames)
        low, high = np.minimum(low, wide[0]), np.maximum(high, wide[1])
    full = float(np.percentile(shown, FULL_PERCENTILE)) if shown.size else 0.0
    return Film(scene, t[rows], frames, touching, impulse, full, others, low, high, size)


def _check_states(name: str, trajectory: object, system: System) -> tuple[np.ndarray, np.ndarray]:
    """Check a trajectory; return positions (T + 1, nq) or (worlds, T + 1, nq) and their times."""
    if not isinstance(trajectory, Trajectory):
        raise TypeError(f"{name}: expected a jc.simulate.Trajectory, got {type(trajectory).__name__}")
    q, t = np.asarray(trajectory.states.q), np.asarray(trajectory.states.t)
    nq = system.structure.num_positions
    if q.ndim not in (2, 3) or q.shape[-1] != nq or t.shape != q.shape[:-1] or not q.size:
        raise ValueError(
            f"{name}: expected states with q (T + 1, {nq}) or (worlds, T + 1, {nq}), and their t, "
            f"got {q.shape} and {t.shape}"
        )
    return q, t


def _sum_impulses(trajectory: Trajectory, t: np.ndarray, rows: np.ndarray, scene: Scene) -> np.ndarray:
    """Sum impulses (pictures, nc, dim) since the last picture, along n, t1[, t2], of steps and impacts."""
    total = np.zeros((len(rows), scene.num_contacts, scene.dim))
    picture = np.searchsorted(rows, np.arange(1, len(t)))  # for each step, the picture that it leads to
    if trajectory.impulse is not None:
        np.add.at(total, picture, np.nan_to_num(np.asarray(trajectory.impulse, float)))
    if trajectory.impacts is not None:
        times = np.asarray(trajectory.impacts.t)
        happened = np.isfinite(times)
        picture = np.minimum(np.searchsorted(t[rows], times[happened]), len(rows) - 1)
        np.add.at(total[:, :, 0], picture, np.asarray(trajectory.impacts.impulse, float)[happened])
    return total


def _select_ghosts(
    ghosts: Trajectory | Mapping[str, Trajectory], model: Model, t: np.ndarray, size: float
) -> Ghosts:
    """Select the finite worlds at the times of the pictures, in groups by name or that end alike."""
    motions = ghosts if isinstance(ghosts, Mapping) else {"": ghosts}
    if not 1 <= len(motions) <= len(OUTCOMES):
        raise ValueError(f"ghosts: expected 1 to {len(OUTCOMES)} names, got {len(motions)}")
    shown = []
    for name, motion in motions.items():
        every, times = _check_states(f"ghosts[{name!r}]" if name else "ghosts", motion, model.system)
        shown.append(_select_times((every, _mocap_poses(motion, model, every)), times, t))
    (q, poses), finite = jax.tree.map(lambda *parts: np.concatenate(parts), *shown)
    frames = scene_frames(model, q[finite], contacts=False, mocap=_map(poses, lambda x: x[finite]))
    is_named = isinstance(ghosts, Mapping)
    if is_named:
        number = np.repeat(np.arange(len(shown)), [len(good) for _, good in shown])[finite]
        groups = _group_by_name(tuple(motions), number)
    else:
        groups = (
            _group_by_end(frames.centres[:, -1].reshape(len(q[finite]), -1), size) if finite.any() else ()
        )
    return Ghosts(frames, groups, int(np.sum(~finite)), is_named)


def _mocap_poses(trajectory: Trajectory, model: Model, q: np.ndarray) -> MocapPoses | None:
    """Return the poses of the mocap bodies of a motion with q (..., nq); None for a model without any."""
    poses = trajectory.mocap
    if poses is None:
        shape = q.shape[:-1]
        return _map(still_poses(model), lambda x: np.broadcast_to(x, (*shape, *x.shape)))
    return _map(poses, np.asarray)


def _map(poses: MocapPoses | None, function: Callable[[np.ndarray], np.ndarray]) -> MocapPoses | None:
    """Apply a function to the arrays of poses."""
    mapped: MocapPoses | None = jax.tree.map(function, poses)
    return mapped


def _select_times(
    path: tuple[np.ndarray, MocapPoses | None], times: np.ndarray, t: np.ndarray
) -> tuple[tuple[np.ndarray, MocapPoses | None], np.ndarray]:
    """Select q and poses (worlds, pictures, ...) at the times of the pictures; return also finite worlds."""
    if times.ndim == 1:
        path, times = jax.tree.map(lambda x: x[None], path), times[None]
    at = np.stack(
        [
            np.clip(np.searchsorted(world_times, t - 1e-9 * (t[-1] - t[0])), 0, len(world_times) - 1)
            for world_times in times
        ]
    )
    worlds = np.arange(len(at))[:, None]
    selected: tuple[np.ndarray, MocapPoses | None] = jax.tree.map(lambda x: np.asarray(x)[worlds, at], path)
    return selected, np.all(np.isfinite(path[0]), axis=(1, 2))


def _group_by_name(names: tuple[str, ...], number: np.ndarray) -> tuple[Group, ...]:
    """Group worlds by the number of their name; labels have counts if a name has several worlds."""
    members = [np.flatnonzero(number == k) for k in range(len(names))]
    has_counts = len(number) > len(names)
    return tuple(
        Group(f"{name}: {len(worlds)} of {len(number)}" if has_counts else name, colour, worlds)
        for name, worlds, colour in zip(names, members, OUTCOMES, strict=False)
        if len(worlds)
    )


def _group_by_end(ends: np.ndarray, size: float) -> tuple[Group, ...]:
    """Group rows (worlds, n) by nearest centre; each new centre is the row farthest from all centres."""
    centres = [0]
    distance = np.linalg.norm(ends - ends[0], axis=1)
    while len(centres) < len(OUTCOMES) and distance.max() > SAME_END * size:
        centres.append(int(np.argmax(distance)))
        distance = np.minimum(distance, np.linalg.norm(ends - ends[centres[-1]], axis=1))
    nearest = np.argmin(np.linalg.norm(ends[:, None] - ends[centres][None], axis=2), axis=1)
    members = sorted((np.flatnonzero(nearest == k) for k in range(len(centres))), key=len, reverse=True)
    return tuple(
        Group(f"outcome {k + 1}: {len(worlds)} of {len(ends)}", OUTCOMES[k], worlds)
        for k, worlds in enumerate(members)
    )
