"""The tracked tosses of a real cube: reading a file, checking its layout, folds by toss.

A file has `state` (rows, 13): quaternion w x y z (body to world), centre (m), angular velocity in body axes,
velocity; `length` (n,), the rows of each toss; `toss` (n,), its number. Only poses are used here: the
velocities of the file are differences across impacts.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np

SHIPPED = Path(__file__).parents[1] / "data" / "cube_tosses.npz"
DT = 0.0068  # s between rows
SIDE, MASS, INERTIA = 0.1048, 0.37, 8.1e-4  # m, kg, kg m^2, as published with the data
GRAVITY = 9.81  # m/s^2


class Tosses(NamedTuple):
    """Poses q (rows, 7) = centre and quaternion, the first row of each toss and of the next, its number."""

    q: np.ndarray
    start: np.ndarray
    number: np.ndarray

    def rows(self, toss: int) -> np.ndarray:
        """Poses (T, 7) of one toss, by its place in the file."""
        return self.q[self.start[toss] : self.start[toss + 1]]

    def __len__(self) -> int:
        return self.number.size


def load(path: Path | str = SHIPPED, limit: int | None = None) -> Tosses:
    """Read a file of this layout, or its first `limit` tosses.

    Raises:
        ValueError: arrays that are missing, of other shapes, not finite, or that contradict one another.
    """
    with np.load(path, allow_pickle=False) as file:
        missing = {"state", "length", "toss"} - set(file.files)
        if missing:
            raise ValueError(f"{path}: expected arrays state, length and toss, lacks {sorted(missing)}")
        state, length, number = file["state"].astype(float), file["length"], file["toss"]
    if state.ndim != 2 or state.shape[1] != 13 or not np.all(np.isfinite(state)):
        raise ValueError(f"{path}: state: expected finite numbers (rows, 13), got shape {state.shape}")
    if length.ndim != 1 or number.shape != length.shape or np.any(length < 1) or length.sum() != len(state):
        raise ValueError(f"{path}: length: expected rows per toss with sum {len(state)}, got {length.sum()}")
    norm = np.linalg.norm(state[:, :4], axis=1, keepdims=True)
    if np.any(np.abs(norm - 1.0) > 1e-3):
        raise ValueError(f"{path}: state: expected unit quaternions in the first four columns")
    count = len(length) if limit is None else min(limit, len(length))
    start = np.concatenate([[0], np.cumsum(length)])[: count + 1]
    q = np.concatenate([state[:, 4:7], state[:, :4] / norm], axis=1)[: start[-1]]
    return Tosses(q, start, number[:count])


def folds(count: int, parts: int, seed: int = 0) -> np.ndarray:
    """The part (count,) of each toss in a random split into equal parts."""
    order = np.random.default_rng(seed).permutation(count)
    part = np.empty(count, int)
    part[order] = np.arange(count) % parts
    return part
