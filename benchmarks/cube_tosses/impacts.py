"""Impacts found in tracked motion: when, where, with which corners, velocities before and after.

A flight is a run of rows whose second differences are those of free fall. An impact lies between two flights
that follow one another closely; its time is the one at which their poses agree best. Corners in touch are
those within `TOUCHING` of the lowest. What is left out is counted by reason.
"""

from __future__ import annotations

import itertools
from collections import Counter
from typing import NamedTuple

import numpy as np

from benchmarks.cube_tosses import smoother
from benchmarks.cube_tosses.geometry import Geometry, corner_gaps, corner_heights, corner_speeds
from benchmarks.cube_tosses.tosses import DT, INERTIA, MASS, SIDE, Tosses

BEND, TWIST = 3.5e-4, 8e-3  # m, rad: largest second differences in flight, about six standard deviations
SHORTEST, LONGEST = 4, 10  # rows of flight that are fitted on each side
GAP = 4  # rows between two flights at most
MISMATCH = 4e-3  # m: poses of the two flights may differ so much at the impact, a corner's way
NEAR = 8e-3  # m: the lowest corner is at most so far from the board
TOUCHING = 3e-3  # m: corners so much above the lowest one touch, too
MOST = 2  # corners; a cube that lands on a face is too rare here to be judged
CHANGE = 0.15  # of the speed before: a smaller change of velocity is no impact
MISFIT = 3.0  # times its expectation: a worse fit of a flight is none
REASONS = (
    "the motion before is no flight",
    "no flight after: it rolls, slides or rests",
    "too long between the flights",
    "a flight does not fit",
    "the poses do not meet",
    "nothing near the board",
    "the velocity does not change",
    "no touching corner approaches",
    "more than two corners",
)
MASS_DIAGONAL = np.array([MASS] * 3 + [INERTIA] * 3)


class Impacts(NamedTuple):
    """Impacts; axis 0 counts them. Velocities are (linear in the world, angular in body axes) at the impact.

    toss (n,) place of the toss in the file; row (n,) last row before; ends (n,) first row after; time (n,) s
    from `row`; q (n, 7); before, after (n, 6) and their covariances (n, 6, 6); rows (n,) fitted after;
    mismatch (n,) m between the two flights; misfit (n,) of the worse one, 1 where noise explains it.
    """

    toss: np.ndarray
    row: np.ndarray
    ends: np.ndarray
    time: np.ndarray
    q: np.ndarray
    before: np.ndarray
    after: np.ndarray
    covariance_before: np.ndarray
    covariance_after: np.ndarray
    rows: np.ndarray
    mismatch: np.ndarray
    misfit: np.ndarray

    def take(self, index: np.ndarray) -> Impacts:
        """Some of them."""
        return Impacts(*(leaf[index] for leaf in self))


def flights(tosses: Tosses) -> list[tuple[np.ndarray, np.ndarray]]:
    """Of each toss the first and last rows (m,) of its flights of at least three rows."""
    bend, twist = smoother.second_differences(tosses.q)
    free = (np.linalg.norm(bend, axis=1) < BEND) & (np.linalg.norm(twist, axis=1) < TWIST)
    found = []
    for begin, end in itertools.pairwise(tosses.start):
        edge = np.diff(np.concatenate([[0], free[begin : end - 2].astype(int), [0]]))
        found.append((np.flatnonzero(edge == 1), np.flatnonzero(edge == -1) + 1))
    return found


def pose_noise(tosses: Tosses) -> np.ndarray:
    """Standard deviations (6,) of a pose (m, rad) from second differences where all corners are high."""
    bend, twist = smoother.second_differences(tosses.q)
    high = corner_heights(tosses.q).min(axis=1)[1:-1] > 0.02
    high[np.concatenate([tosses.start[1:-1] - 1, tosses.start[1:-1] - 2])] = False  # across two tosses
    both = np.concatenate([bend[high], twist[high]], axis=1)
    white = 1.4826 * np.median(np.abs(both), axis=0) / np.sqrt(6.0)
    # The tracker's filter colours the noise: long flights deviate more than white noise of that size would.
    long = [
        (i, a, b)
        for i, ends in enumerate(flights(tosses))
        for a, b in zip(*ends, strict=True)
        if b - a + 1 >= LONGEST and corner_heights(tosses.rows(i)[a : b + 1]).min() > 0.02
    ]
    if not long:
        raise ValueError(f"tosses: expected flights of {LONGEST} rows high above the board, found none")
    toss, first, last = np.array(long).T
    fitted = smoother.fit(*_windows(tosses, toss, first, last, first), white)
    return white * np.sqrt(np.median(fitted.misfit / fitted.freedom))


def _windows(tosses: Tosses, toss: np.ndarray, first: np.ndarray, last: np.ndarray, at: np.ndarray) -> tuple:
    """Poses (n, K, 7), times from the rows `at`, and which count, of rows first..last nearest to `at`."""
    steps = np.arange(LONGEST)
    ahead = (at <= first)[:, None]
    row = np.where(ahead, first[:, None] + steps, last[:, None] - steps[::-1])
    used = (row >= first[:, None]) & (row <= last[:, None])
    place = tosses.start[toss][:, None] + np.clip(row, first[:, None], last[:, None])
    return tosses.q[place], (row - at[:, None]) * DT, used


def _meet(before: smoother.Flight, after: smoother.Flight, length: np.ndarray) -> np.ndarray:
    """Times (n,) in 0..length at which poses agree best: nearly linear in time, so Newton's method."""
    time = 0.5 * length
    for _ in range(4):
        near, later = (_apart(before, after, t, length) for t in (time, time + 1e-5))
        rate = (later - near) / 1e-5
        time = np.clip(time - np.sum(near * rate, axis=1) / np.sum(rate**2, axis=1), 0.0, length)
    return time


def _apart(
    before: smoother.Flight, after: smoother.Flight, time: np.ndarray, length: np.ndarray
) -> np.ndarray:
    """Differences (n, 6) of the poses at a time, m: of centres, and of turns at a lever of half the side."""
    a, b = smoother.moved(before, time), smoother.moved(after, time - length)
    turn = smoother.turn_between(a.quaternion, b.quaternion)
    return np.concatenate([b.position - a.position, 0.5 * SIDE * turn], axis=1)


def candidates(tosses: Tosses, noise: np.ndarray) -> tuple[Impacts, Counter]:
    """Pairs of flights that follow one another closely, and how many ends of flights have no partner.

    Args:
        tosses: a file.
        noise: (6,) of `pose_noise`.
    """
    left: Counter = Counter(dict.fromkeys(REASONS, 0))
    rows = []
    for i, (first, last) in enumerate(flights(tosses)):
        for k in range(len(first)):
            if last[k] >= len(tosses.rows(i)) - 1:
                continue  # the toss is cut off in flight
            if last[k] - first[k] + 1 < SHORTEST:
                left[REASONS[0]] += 1
            elif k + 1 == len(first) or last[k + 1] - first[k + 1] + 1 < SHORTEST:
                left[REASONS[1]] += 1
            elif first[k + 1] - last[k] > GAP:
                left[REASONS[2]] += 1
            else:
                rows.append((i, first[k], last[k], first[k + 1], last[k + 1]))
    if not rows:
        raise ValueError("tosses: expected flights that meet in an impact, found none")
    toss, begin, row, ends, final = np.array(rows).T
    before = smoother.fit(*_windows(tosses, toss, begin, row, row), noise)
    after = smoother.fit(*_windows(tosses, toss, ends, final, ends), noise)
    length = (ends - row) * DT
    time = _meet(before, after, length)
    mismatch = np.linalg.norm(_apart(before, after, time, length), axis=1)
    misfit = np.maximum(before.misfit / before.freedom, after.misfit / after.freedom)
    before, after = smoother.moved(before, time), smoother.moved(after, time - length)
    # The impact may be anywhere between two rows: gravity acts before or after it.
    unsure = np.zeros((6, 6))
    unsure[2, 2] = (smoother.FALL[2] * DT / np.sqrt(12.0)) ** 2
    found = Impacts(
        toss, row, ends, time, np.concatenate([before.position, before.quaternion], axis=1),
        before.v, after.v, before.covariance[:, 6:, 6:], after.covariance[:, 6:, 6:] + unsure,
        np.minimum(final - ends + 1, LONGEST), mismatch, misfit,
    )  # fmt: skip
    return found, left


def clean(found: Impacts, left: Counter, geometry: Geometry) -> tuple[Impacts, Counter]:
    """Those that pass every check, and the count of the others, each under its first reason."""
    left = Counter(left)
    change = speed(found.after - found.before) / speed(found.before)
    touches = touching(found.q, geometry)
    approach = np.where(touches, corner_speeds(found.q, found.before, geometry), np.inf).min(axis=1)
    faults = (
        found.misfit > MISFIT,
        found.mismatch > MISMATCH,
        np.abs(corner_gaps(found.q, geometry).min(axis=1)) > NEAR,
        change < CHANGE,
        approach >= 0.0,
        touches.sum(axis=1) > MOST,
    )
    bad = np.zeros(len(change), bool)
    for reason, fault in zip(REASONS[3:], faults, strict=True):
        left[reason] += int(np.sum(fault & ~bad))
        bad |= fault
    return found.take(~bad), left


def touching(q: np.ndarray, geometry: Geometry, within: float = TOUCHING) -> np.ndarray:
    """(n, 8) bool, the corners that touch in the poses (n, 7)."""
    gap = corner_gaps(q, geometry)
    return gap <= gap.min(axis=1, keepdims=True) + within


def speed(v: np.ndarray) -> np.ndarray:
    """|v|_M (...) of velocities (..., 6), kg^(1/2) m/s, with the published mass and inertia."""
    return np.sqrt(np.sum(MASS_DIAGONAL * v**2, axis=-1))
