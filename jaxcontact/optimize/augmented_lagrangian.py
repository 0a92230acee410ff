"""Optimisation by an augmented Lagrangian: entry `AugmentedLagrangian`, an `optimizer` of `trajectory`.

Owns multipliers, penalties and the quasi-Newton steps between their updates (Nocedal & Wright, Numerical
Optimization, 17.4; Lewis & Overton 2013 for kinks). Page: docs/methods/planning.md.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from jaxcontact.front_door import POSITIVE, checked
from jaxcontact.optimize import quasi_newton

GROWTH = 10.0  # factor of the penalty after a round that left the constraints far
SHRINKAGE = 0.25  # fraction of the violation that may remain after a round without a larger penalty
LARGEST_PENALTY = 1e8  # in the unit of `penalty`; beyond it is ill-conditioned
FIRST_SLOPE = 0.03  # of the first round's end, in the unit of the cost
MAX_HALVINGS = 12  # of a line search; a motion that jumps has no better step beyond
MAX_CROSSINGS = 6  # of a search; of jumps of the motion that stop a line search
CROSSING = 0.1  # longest step across a jump, root of the mean square in scales of the controls
ROUND_ITERS = 30  # steps of one round; multipliers of a rough minimum are better than none

# s, multipliers, penalty -> value, gradient, cost, residuals
Lagrangian = Callable[[np.ndarray, np.ndarray, np.ndarray], tuple[float, np.ndarray, float, np.ndarray]]


@checked(slope=POSITIVE, penalty=POSITIVE)
@dataclasses.dataclass(frozen=True, kw_only=True)
class AugmentedLagrangian:
    """Minimise cost + lambda . r + sum rho r^2 / 2 within bounds, by BFGS; then update lambda and rho.

    The gradient of the Lagrangian costs one motion in reverse mode, whatever the number of constraints.

    Attributes:
        bounds: pytree as the controls, with pairs (minimum, maximum) for leaves; None is none.
        slope: the search ends where the slope of the Lagrangian along free controls, in their scales, is
            at most this fraction of the unit of the cost, and the constraints hold within `tol`.
        penalty: first rho, in the unit of the cost over that of a constraint squared; the unit of either is
            the larger of its size and of its change by one `scale` of the controls, at the start.
    """

    bounds: Any = None
    slope: float = 1e-4
    penalty: float = 1.0


class SearchState(NamedTuple):
    """What a search continues from: its point, multipliers (k,), penalties (k,) and the round.

    `units` are (1 + k,) of cost and constraints; `limit` is the slope that ends a round;
    `violation` is the largest at the end of the last one, in `units`; `steps_left` are those of this round;
    `ended` is 1 at a minimum, 2 at a kink or jump.
    """

    gradient: np.ndarray
    curvature: np.ndarray
    value: np.ndarray
    multipliers: np.ndarray
    penalty: np.ndarray
    units: np.ndarray
    limit: np.ndarray
    violation: np.ndarray
    steps_left: np.ndarray
    crossings: np.ndarray
    ended: np.ndarray


class AugmentedSearch:
    """The steps of `AugmentedLagrangian` on flat controls in their scales."""

    def __init__(
        self, settings: AugmentedLagrangian, lagrangian: Lagrangian, bounds: tuple[np.ndarray, np.ndarray],
        tol: float,
    ) -> None:  # fmt: skip
        self._settings, self._lagrangian, self._bounds, self._tol = settings, lagrangian, bounds, tol

    def begin(self, s: np.ndarray, cost: float, residuals: np.ndarray, jacobian: np.ndarray) -> SearchState:
        """Choose units and penalty from cost, constraints (k,) and their derivatives (1 + k, n)."""
        values = np.concatenate([[cost], residuals])
        slopes = np.maximum(np.abs(values), np.linalg.norm(jacobian, axis=1))
        slopes = np.where(slopes > 0, slopes, 1.0)
        penalty = self._settings.penalty * slopes[0] / slopes[1:] ** 2
        multipliers = np.zeros(len(slopes) - 1)
        point = self._point(s, multipliers, penalty)
        return SearchState(
            gradient=point.gradient,
            curvature=point.curvature,
            value=np.asarray(point.value),
            multipliers=multipliers,
            penalty=penalty,
            units=slopes,
            limit=np.asarray(max(FIRST_SLOPE, self._settings.slope) * slopes[0]),
            violation=np.asarray(np.inf),
            steps_left=np.asarray(float(ROUND_ITERS)),
            crossings=np.asarray(0.0),
            ended=np.asarray(0.0),
        )

    def _point(self, s: np.ndarray, multipliers: np.ndarray, penalty: np.ndarray) -> quasi_newton.Point:
        value, gradient, *_ = self._lagrangian(s, multipliers, penalty)
        size = max(float(np.linalg.norm(gradient)), np.finfo(float).tiny)
        return quasi_newton.Point(s, value, gradient, np.eye(s.size) * size)

    def _slope(self, point: quasi_newton.Point) -> float:
        free = quasi_newton.free_components(point.x, point.gradient, *self._bounds)
        return float(np.linalg.norm(np.where(free, point.gradient, 0.0)))

    def advance(self, s: np.ndarray, state: SearchState) -> tuple[np.ndarray, SearchState]:
        """Make one quasi-Newton step, and update multipliers and penalty if it ended a round."""
        evaluate = lambda x: self._lagrangian(x, state.multipliers, state.penalty)[:2]  # noqa: E731
        start = quasi_newton.Point(s, float(state.value), state.gradient, state.curvature, 1)
        point = quasi_newton.minimise(
            evaluate, start, self._bounds, is_minimum=lambda p: self._slope(p) <= float(state.limit),
            max_iters=1, rounding=float(np.finfo(float).eps), max_halvings=MAX_HALVINGS,
        )  # fmt: skip
        state = state._replace(
            gradient=point.gradient,
            curvature=point.curvature,
            value=np.asarray(point.value),
            steps_left=state.steps_left - 1.0,
        )
        is_low = self._slope(point) <= float(state.limit)
        if point.num_iters == start.num_iters and not is_low:
            return self._cross(point, state)
        if state.steps_left <= 0 or is_low:
            state = self._next_round(point, state)
        return point.x, state

    def _cross(self, point: quasi_newton.Point, state: SearchState) -> tuple[np.ndarray, SearchState]:
        """Step down the slope across a jump or kink at which no line search descends, wherever it leads."""
        free = quasi_newton.free_components(point.x, point.gradient, *self._bounds)
        step = -np.where(free, point.gradient, 0.0)
        step *= CROSSING * np.sqrt(step.size) / max(float(np.linalg.norm(step)), np.finfo(float).tiny)
        state = state._replace(crossings=state.crossings + 1.0)
        for _ in range(MAX_HALVINGS):
            beyond = self._point(np.clip(point.x + step, *self._bounds), state.multipliers, state.penalty)
            if np.isfinite(beyond.value) and np.all(np.isfinite(beyond.gradient)):
                break
            step = 0.5 * step
        else:
            return point.x, state._replace(ended=np.asarray(2.0))
        if state.crossings > MAX_CROSSINGS:
            return point.x, state._replace(ended=np.asarray(2.0))
        return beyond.x, state._replace(
            gradient=beyond.gradient, curvature=beyond.curvature, value=np.asarray(beyond.value)
        )

    def _next_round(self, point: quasi_newton.Point, state: SearchState) -> SearchState:
        """Update multipliers, and the penalty where the constraints are far; tell the end of the search."""
        *_, residuals = self._lagrangian(point.x, state.multipliers, state.penalty)
        violation = np.max(np.abs(residuals) / state.units[1:], initial=0.0)
        last = self._settings.slope * state.units[0]
        is_done = self._slope(point) <= last and np.max(np.abs(residuals), initial=0.0) <= self._tol
        if is_done:
            return state._replace(ended=np.asarray(1.0))
        multipliers = state.multipliers + state.penalty * residuals
        penalty = state.penalty
        largest = LARGEST_PENALTY * state.units[0] / state.units[1:] ** 2
        if violation > SHRINKAGE * state.violation:
            penalty = np.minimum(GROWTH * penalty, largest)
        value, gradient, *_ = self._lagrangian(point.x, multipliers, penalty)
        return state._replace(
            gradient=gradient,
            value=np.asarray(value),
            multipliers=multipliers,
            penalty=penalty,
            limit=np.maximum(0.1 * state.limit, last),
            violation=np.asarray(violation),
            steps_left=np.asarray(float(ROUND_ITERS)),
        )
