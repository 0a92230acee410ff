"""Minimise a function of few numbers within bounds, on the host: BFGS with a line search that brackets.

Entry `minimise`; `shortest_nearby` tells a minimum at a kink from a point at which the search stopped.
Lewis & Overton, Nonsmooth optimization via quasi-Newton methods (2013); Hager & Zhang (2005) for rounding.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable

import numpy as np

from jaxcontact.optimize.descent import shortest_in_hull

ARMIJO = 1e-4  # minimum fraction of the descent predicted by the slope that a step must give
WOLFE = 0.9  # maximum fraction of the slope that may remain after a step
MAX_HALVINGS = 60  # of a bracket; 2^-60 of a step is below rounding
MAX_RESTARTS = 2  # of the curvature after a line search without a step
KINK_RADII = (1e-6, 1e-7)  # in sizes of the variables; at a kink gradients differ as much within the smaller
KINK_JUMP = 0.5  # minimum fraction of the difference over the larger radius that remains over the smaller

Evaluate = Callable[[np.ndarray], tuple[float, np.ndarray]]  # x -> value, gradient


@dataclasses.dataclass
class SearchPoint:
    """A point of the search; `curvature` is the estimate B of the second derivative.

    `num_restarts` counts the times that B was replaced after a line search without a step.
    """

    x: np.ndarray
    value: float
    gradient: np.ndarray
    curvature: np.ndarray
    num_iters: int = 0
    num_restarts: int = 0

    @property
    def is_finite(self) -> bool:
        """Tell whether value and gradient are finite."""
        return bool(np.isfinite(self.value) and np.all(np.isfinite(self.gradient)))


def free_components(x: np.ndarray, gradient: np.ndarray, lower: np.ndarray, upper: np.ndarray) -> np.ndarray:
    """Return a mask (n,) of the components that no bound stops from moving along minus the gradient."""
    return ~(((x <= lower) & (gradient > 0)) | ((x >= upper) & (gradient < 0)))


def minimise(
    evaluate: Evaluate,
    start: SearchPoint,
    bounds: tuple[np.ndarray, np.ndarray],
    *,
    is_minimum: Callable[[SearchPoint], bool],
    max_iters: int,
    rounding: float,
    max_halvings: int = MAX_HALVINGS,
    report: Callable[[SearchPoint], None] | None = None,
) -> SearchPoint:
    """Minimise a function from `start` until `is_minimum`, `max_iters`, or no step descends.

    A step to a value or gradient that is not finite is shortened; a line search has at most `max_halvings`
    doublings and halvings. `rounding` is the relative error of values:
    within it the slope alone decides whether a step descends. `report` is called after every step; a search
    from its point goes on as this one.
    """
    point, lower, upper = start, *bounds
    while point.num_iters < start.num_iters + max_iters and not is_minimum(point):
        free = free_components(point.x, point.gradient, lower, upper)
        direction = _direction(point, free)
        longest = _longest_step(point.x, direction, lower, upper)
        new = _line_search(evaluate, point, direction, longest, bounds, (rounding, max_halvings))
        if new is None:
            if point.num_restarts == MAX_RESTARTS:
                break
            curvature = np.eye(point.x.size) * max(float(np.linalg.norm(point.gradient[free])), 1e-300)
            point = dataclasses.replace(point, curvature=curvature, num_restarts=point.num_restarts + 1)
            continue
        new.curvature = _updated_curvature(point, new)
        new.num_iters, new.num_restarts = point.num_iters + 1, point.num_restarts
        point = new
        if report is not None:
            report(point)
    return point


def _direction(point: SearchPoint, free: np.ndarray) -> np.ndarray:
    """Return the quasi-Newton direction of the free components, zero for the others.

    At a kink the curvature across it grows until B is singular to rounding; then all components are zero.
    """
    direction = np.zeros_like(point.x)
    if free.any():
        with contextlib.suppress(np.linalg.LinAlgError):
            direction[free] = -np.linalg.solve(point.curvature[np.ix_(free, free)], point.gradient[free])
    return direction


def _longest_step(x: np.ndarray, direction: np.ndarray, lower: np.ndarray, upper: np.ndarray) -> float:
    """Return the length of the step along a direction that reaches a bound first."""
    ends = np.where(direction > 0, upper, lower)
    moving = direction != 0
    return float(np.min((ends[moving] - x[moving]) / direction[moving], initial=np.inf))


def _line_search(
    evaluate: Evaluate, point: SearchPoint, direction: np.ndarray, longest: float,
    bounds: tuple[np.ndarray, np.ndarray], limits: tuple[float, int],
) -> SearchPoint | None:  # fmt: skip
    """Find a step with the weak Wolfe conditions by doubling and halving; return None if no step descends."""
    slope, (rounding, max_halvings) = float(point.gradient @ direction), limits
    if not slope < 0:
        return None
    below, above, best, step = 0.0, np.inf, None, min(1.0, longest)
    for _ in range(max_halvings):
        x = np.clip(point.x + step * direction, *bounds)
        if np.array_equal(x, point.x):
            break
        value, gradient = evaluate(x)
        end_slope = float(gradient @ direction)
        descends = value <= point.value + ARMIJO * step * slope
        within_rounding = value <= point.value + rounding * abs(point.value)
        descends |= within_rounding and end_slope <= (2 * ARMIJO - 1) * slope
        if not (np.isfinite(value) and np.all(np.isfinite(gradient)) and descends):
            above = step
        else:
            best = SearchPoint(x, value, gradient, point.curvature)
            if end_slope >= WOLFE * slope or step >= longest:
                break
            below = step
        step = 0.5 * (below + above) if np.isfinite(above) else min(2.0 * step, longest)
    return best


def _updated_curvature(old: SearchPoint, new: SearchPoint) -> np.ndarray:
    """Return the BFGS update of B; the first update also scales B by the measured curvature."""
    s, y, b = new.x - old.x, new.gradient - old.gradient, old.curvature
    seen = float(s @ y)
    if not seen > 1e-14 * float(np.linalg.norm(s) * np.linalg.norm(y)):
        return b
    if old.num_iters == 0 and np.array_equal(b, b[0, 0] * np.eye(s.size)):
        b = np.eye(s.size) * float(y @ y) / seen
    push = b @ s
    return b - np.outer(push, push) / float(s @ push) + np.outer(y, y) / seen


def shortest_nearby(
    evaluate: Evaluate, point: SearchPoint, bounds: tuple[np.ndarray, np.ndarray]
) -> float | None:
    """Return the length of the shortest vector of the hull of gradients near a kink; None without a kink.

    The length is by the largest component. Zero means that the point is stationary in Clarke's sense.
    """
    gradients = []
    for radius in KINK_RADII:
        signs = np.random.default_rng(0).choice([-1.0, 1.0], size=(2 * point.x.size, point.x.size))
        directions = np.concatenate([np.eye(point.x.size), -np.eye(point.x.size), signs])
        found = [evaluate(np.clip(point.x + radius * d, *bounds))[1] for d in directions]
        around = np.stack([g for g in [point.gradient, *found] if np.all(np.isfinite(g))])
        gradients.append(np.where(free_components(point.x, around, *bounds), around, 0.0))
    wide, narrow = (float(np.max(np.ptp(g, axis=0))) for g in gradients)
    if not narrow > KINK_JUMP * wide or wide == 0.0:
        return None
    return max(float(np.max(np.abs(shortest_in_hull(g)))) for g in gradients)
