"""Newton-like steps over the linear pieces of a cost near its kinks: entry `PiecewiseNewton`.

Owns the step: in each piece a quadratic program whose constraints are the borders of the piece, and one
curvature for all of them by damped BFGS. An `optimizer` of `trajectory`. Page:
docs/understand/derivatives.md.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from jaxcontact._pytree import PyTree
from jaxcontact.ess.linear_pieces import LinearPieces
from jaxcontact.front_door import POSITIVE, checked

ACCEPTED, GOOD = 0.1, 0.7  # fractions of the predicted decrease: a step counts; the radius grows
SHRINKAGE = 0.3  # of the radius after a step that does not count
SHORTEST = 1e-13  # radius at which no step descends, in scales of the controls
ROUNDING = 64.0  # eps of cost + |slope| |controls|, by which costs are rounded: a smaller decrease is none
DAMPED = 0.2  # minimum fraction of the curvature along a step that an update leaves
FIRST_CURVATURE = 1e-3  # of the slope; a first step that measures less does not scale the curvature


@checked(radius=POSITIVE)
@dataclasses.dataclass(frozen=True)
class PiecewiseNewton:
    """Descend over the linear pieces of a cost, also along its kinks: an `optimizer` of `trajectory`.

    A step minimises offset_p + g_p d + d B d / 2 within a radius and within piece p, for each p, and takes
    the best. At a kink that costs both ways the minimum is on the border of two pieces, and steps follow the
    kink. B is the curvature of the cost along the kink, by damped BFGS of g_p less the multipliers of the
    borders.

    Attributes:
        pieces: controls -> `ess.LinearPieces` of the cost, as `ess.one_sided_jacobian(...)[0].of_cost` gives
            them, by the k controls in the order of their pytree. A host function, called once per step.
            A wide `ess.Settings.corner_tol` lets it know kinks ahead, such as a tenth of the motion's time.
        radius: longest change of a control in the first step, in its scale.
    """

    pieces: Callable[[PyTree], LinearPieces]
    radius: float = 0.5


class CostPieces(NamedTuple):
    """The pieces of a cost in flat controls in their scales, as arrays of NumPy.

    `slopes` are (p, k), `offsets` (p,), `borders` (p, r, k), `margins` (p, r), `orders` (p, e).
    """

    slopes: np.ndarray
    offsets: np.ndarray
    borders: np.ndarray
    margins: np.ndarray
    orders: np.ndarray


class SearchStep(NamedTuple):
    """A step (k,), the decrease that it promises, and its piece with the multipliers (r,) of its borders."""

    change: np.ndarray
    promised: float
    piece: int
    multipliers: np.ndarray


def scaled_pieces(pieces: LinearPieces, scale: np.ndarray) -> CostPieces:
    """Convert pieces of a cost by controls to those by controls in their scales; raise if they do not fit."""
    slopes = np.asarray(pieces.jacobians, float)
    if slopes.ndim != 3 or slopes.shape[1:] != (1, scale.size):
        expected = f"(p, 1, {scale.size}), of one cost by every control"
        raise ValueError(f"pieces: expected jacobians of shape {expected}, got {slopes.shape}")
    return CostPieces(
        slopes[:, 0] * scale, np.asarray(pieces.offsets, float)[:, 0],
        np.asarray(pieces.conditions, float) * scale, np.asarray(pieces.margins, float),
        np.asarray(pieces.orders),
    )  # fmt: skip


def mark_finite(pieces: CostPieces) -> np.ndarray:
    """Mark the pieces (p,) whose numbers are finite."""
    numbers = (pieces.slopes, pieces.offsets, pieces.borders, pieces.margins)
    rows = [np.isfinite(a).reshape(len(pieces.slopes), -1).all(axis=1) for a in numbers]
    return np.asarray(np.all(rows, axis=0))


def best_step(pieces: CostPieces, curvature: np.ndarray, radius: float) -> SearchStep:
    """Return the step of the piece that promises the largest decrease within the radius."""
    k = len(curvature)
    factor = np.linalg.cholesky(curvature)
    best = SearchStep(np.zeros(k), 0.0, 0, np.zeros(pieces.margins.shape[1]))
    box = np.concatenate([np.eye(k), -np.eye(k)])
    for p in np.flatnonzero(mark_finite(pieces)):
        slope = pieces.slopes[p]
        free = -np.linalg.solve(factor.T, np.linalg.solve(factor, slope))
        rows = np.concatenate([pieces.borders[p], box])
        minima = np.concatenate([-pieces.margins[p], np.full(2 * k, -radius)])
        found = shortest_beyond(np.linalg.solve(factor, rows.T).T, minima - rows @ free)
        if found is None:
            continue
        change = np.clip(free + np.linalg.solve(factor.T, found[0]), -radius, radius)
        promised = -float(pieces.offsets[p] + slope @ change + 0.5 * change @ curvature @ change)
        if promised > best.promised:
            best = SearchStep(change, promised, int(p), found[1][: pieces.margins.shape[1]])
    return best


def shortest_beyond(rows: np.ndarray, minima: np.ndarray) -> tuple[np.ndarray, np.ndarray] | None:
    """Return the shortest y with rows (m, k) @ y >= minima, and its multipliers (m,); None if there is no y.

    Least-distance programming (Lawson & Hanson, Solving Least Squares Problems, 1974, 23.4).
    """
    from scipy.optimize import nnls  # inside the function, because the import takes long

    size = np.linalg.norm(rows, axis=1)
    used = size > 1e-12 * np.max(size)
    if np.any(minima[~used] > 1e-9 * np.max(np.abs(minima))):
        return None
    sizes = np.where(used, size, 1.0)
    unit, bound = np.where(used[:, None], rows / sizes[:, None], 0.0), np.where(used, minima / sizes, 0.0)
    longest = float(np.max(bound))
    if longest <= 0.0:
        return np.zeros(rows.shape[1]), np.zeros(len(rows))
    system = np.concatenate([unit.T, bound[None] / longest])
    weights, distance = nnls(system, np.eye(len(system))[-1], maxiter=100 * len(system) + 100)
    if distance < 1e-7:
        return None
    # The rows that hold with equality give y and the multipliers to the last digit.
    active = np.flatnonzero(weights > 0)
    y = np.linalg.lstsq(unit[active], bound[active], rcond=None)[0]
    multipliers = np.zeros(len(rows))
    multipliers[active] = np.linalg.lstsq(unit[active].T, y, rcond=None)[0] / sizes[active]
    return y, multipliers


def curvature_after(
    curvature: np.ndarray, step: SearchStep, before: CostPieces, after: CostPieces, is_first: bool
) -> np.ndarray:
    """Update the curvature by a step: damped BFGS of the slope along the kink, before and after."""
    slope, p = before.slopes[step.piece], step.piece
    same = np.flatnonzero(np.all(after.orders == before.orders[p], axis=1) & mark_finite(after))
    bound = np.any(step.multipliers > 0)
    if bound and (not same.size or after.borders.shape[1] != before.borders.shape[1]):
        return curvature
    if not np.any(mark_finite(after)):
        return curvature
    offsets = np.where(mark_finite(after), np.abs(after.offsets), np.inf)
    at = int(same[0]) if same.size else int(np.argmin(offsets))
    change = after.slopes[at] - slope
    if bound:
        change -= step.multipliers @ (after.borders[at] - before.borders[p])
    s, seen = step.change, float(step.change @ change)
    if is_first and seen > FIRST_CURVATURE * float(np.linalg.norm(slope)) * float(s @ s):
        curvature = np.eye(s.size) * float(change @ change) / seen
    push = curvature @ s
    expected = float(s @ push)
    if seen < DAMPED * expected:
        share = (1.0 - DAMPED) * expected / (expected - seen)
        change = share * change + (1.0 - share) * push
        seen = float(s @ change)
    return curvature - np.outer(push, push) / expected + np.outer(change, change) / seen
