"""Directions of descent for one-sided derivatives, which are piecewise linear: entry `one_sided_descent`.

Owns the search for a direction from values of the one-sided derivative, at a corner and elsewhere. Page:
docs/understand/derivatives.md.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from jaxcontact.arguments import check_not_empty, check_number
from jaxcontact.front_door import checked

if TYPE_CHECKING:
    from jaxtyping import Float

MAX_PIECES = 8  # gradients stored at one corner; then the search tries their reverses and the axes
CANCELLED = 1e-9  # of the largest gradient component; a smaller component of the hull vector is rounding
ENOUGH = 0.5  # minimum fraction of the predicted descent that a direction must give


@checked(gradient=(check_not_empty, check_number))
def one_sided_descent(
    rate: Callable[[np.ndarray], float],
    piece: Callable[[np.ndarray], np.ndarray],
    gradient: Float[np.ndarray, " n"],
) -> tuple[np.ndarray, int]:
    """Find a direction d along which a one-sided derivative is negative; return zero if none was found.

    The search tries the reversed shortest vector of the convex hull of the gradients found so far; if the
    derivative falls short of the prediction, the gradient of the piece along that vector joins them (a bundle
    method on one point). If the pieces are not convex, the reversed gradients and the axes are tried as well.
    With one smooth piece d = -gradient after a single evaluation. Derivatives that are not finite are left
    out.

    Args:
        rate: d (n,) -> one-sided derivative along d, positively homogeneous.
        piece: d (n,) -> gradient (n,) of the linear piece that d lies in.
        gradient: (n,) of any piece, e.g. the one from automatic differentiation.

    Returns:
        d (n,) with rate(d) about -|d|^2, and the number of evaluations. d = 0 means that no direction tried
        descends: a stationary point, as far as these directions tell.
    """
    pieces = [np.asarray(gradient, float)]
    size = pieces[0].size
    tried: list[tuple[float, np.ndarray]] = []
    calls = 0
    floor = 1e-9 * max(1.0, float(np.linalg.norm(pieces[0])))
    while len(pieces) <= MAX_PIECES:
        d = -shortest_in_hull(np.stack(pieces))
        length = float(np.linalg.norm(d))
        if length <= floor:
            break
        value = float(rate(d))
        calls += 1
        if value <= -ENOUGH * length**2:
            return d, calls
        if np.isfinite(value):
            tried.append((value / length, d / length))
        new = np.asarray(piece(d), float)
        calls += 1
        if not np.all(np.isfinite(new)):
            break
        pieces.append(new)
        if min(float(np.max(np.abs(pieces[-1] - p))) for p in pieces[:-1]) <= floor:
            break
    axes = np.eye(size)
    for d in [*(-p for p in pieces), *axes, *-axes]:
        length = float(np.linalg.norm(d))
        if length > floor:
            value = float(rate(d))
            calls += 1
            if np.isfinite(value):
                tried.append((value / length, d / length))
    slope, d = min(tried, key=lambda pair: pair[0], default=(0.0, np.zeros(size)))
    return (-slope * d if slope < -floor else np.zeros(size)), calls


def shortest_in_hull(points: np.ndarray) -> np.ndarray:
    """Return the shortest vector of the convex hull of points (k, n)."""
    from scipy.optimize import nnls  # inside the function, because the import takes long

    scale = max(float(np.max(np.abs(points))), 1e-300)
    heavy = 1e4  # weight of sum(w) = 1; the sum is normalised afterwards
    a = np.concatenate([points.T / scale, np.full((1, points.shape[0]), heavy)])
    w, _ = nnls(a, np.concatenate([np.zeros(points.shape[1]), [heavy]]))
    nearest = (w / np.sum(w)) @ points
    # The remainder of components that cancel is rounding; methods that scale each component would amplify it.
    return np.where(np.abs(nearest) <= CANCELLED * np.max(np.abs(points), axis=0), 0.0, nearest)
