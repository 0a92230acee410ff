"""Optimisation by an augmented Lagrangian: entry `AugmentedLagrangian`, an `optimizer` of `trajectory`.

Owns the approach to the constraints by Levenberg and Marquardt's steps, then multipliers, penalties and the
quasi-Newton steps between their updates (Nocedal & Wright, Numerical Optimization, 10.3 and 17.4; Lewis &
Overton 2013 for kinks). Page: docs/methods/planning.md.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable
from typing import NamedTuple

import jax
import numpy as np

from jaxcontact._pytree import PyTree
from jaxcontact.arguments import check_positive
from jaxcontact.front_door import POSITIVE, checked
from jaxcontact.optimize import quasi_newton

GROWTH = 10.0  # factor of the penalty after a round that left the constraints far
SHRINKAGE = 0.25  # fraction of the violation that may remain after a round without a larger penalty
LARGEST_PENALTY = 1e8  # as `penalty`; beyond it is ill-conditioned
FIRST_SLOPE = 0.03  # of the first round's end, in the unit of the cost
MAX_HALVINGS = 12  # of a line search; a motion that jumps has no better step beyond
MAX_CROSSINGS = 6  # of a search; of jumps of the motion that stop a line search
CROSSING = 0.1  # longest step across a jump, root of the mean square in scales of the controls
ROUND_ITERS = 30  # steps of one round; multipliers of a rough minimum are better than none
FIRST_RADIUS = 0.5  # longest first step of the approach, in scales of the controls
LAST_RADIUS = 1e-4  # of the first radius; an approach with shorter steps has stalled
BOUND_ROUNDS = 5  # in which controls at their bounds leave a step of the approach
ARMIJO = 1e-3  # minimum fraction of the expected approach that a step must give
NEAR = 1e-6  # of their units; constraints that hold so far need no approach
FAILED = 3  # `ended` of a search from whose last point no step has a motion
LEVEL_STEPS = 80  # of a level of smoothing, at most; the next one continues from there

# s, multipliers, penalty -> value, gradient, cost, residuals
Lagrangian = Callable[[np.ndarray, np.ndarray, np.ndarray], tuple[float, np.ndarray, float, np.ndarray]]
# s -> cost, residuals (k,), Jacobian (1 + k, n) of both
Derivatives = Callable[[np.ndarray], tuple[float, np.ndarray, np.ndarray]]


def _check_bounds(name: str, value: object) -> None:
    """Raise TypeError if a leaf of the bounds is no number."""
    if any(np.asarray(leaf).dtype.kind not in "iuf" for leaf in jax.tree.leaves(value)):
        raise TypeError(f"{name}: expected pairs (minimum, maximum) of numbers, got {value!r}")


def _check_smoothing(name: str, value: tuple[float, ...]) -> None:
    """Raise TypeError or ValueError unless it is a tuple of numbers that decrease, positive and finite."""
    if not isinstance(value, tuple):
        raise TypeError(f"{name}: expected a tuple of numbers, got {value!r}")
    for level in value:
        check_positive(name, level)
    if any(later >= earlier for earlier, later in itertools.pairwise(value)):
        raise ValueError(f"{name}: expected numbers that decrease, got {value}")


@checked(bounds=_check_bounds, slope=POSITIVE, penalty=POSITIVE, smoothing=_check_smoothing)
@dataclasses.dataclass(frozen=True, kw_only=True)
class AugmentedLagrangian:
    """Minimise cost + lambda . r + sum rho r^2 / 2 within bounds, by BFGS; then update lambda and rho.

    First Levenberg and Marquardt's steps of minimum length lead from the start towards the constraints; with
    each update, BFGS gets the constraints' part of the curvature. These take the derivative of every
    constraint. The gradient of the Lagrangian between updates costs one motion in reverse mode.

    Attributes:
        bounds: pytree as the controls, with pairs (minimum, maximum) for leaves; None is none.
        slope: the search ends where the slope of the Lagrangian along free controls, in their scales, is
            at most this fraction of the unit of the cost, and the constraints hold within `tol`. The unit is
            the change of the cost by one `scale` of the controls along its slope, after the approach.
        penalty: first curvature of a penalty along its constraint, in curvatures of the cost.
        smoothing: levels to search at in turn, decreasing, before the search with the exact motion, such as
            (1e-2, 1e-3, 1e-4) J of `compliant.smoothed`. Objective and constraints of `trajectory` are then
            functions (controls, smoothing), with smoothing None for the exact motion.
    """

    bounds: PyTree = None
    slope: float = 1e-4
    penalty: float = 10.0
    smoothing: tuple[float, ...] = ()


class SearchState(NamedTuple):
    """What a search continues from: its point, multipliers (k,), penalties (k,) and the round.

    `units` are (1 + k,) of cost and constraints; `limit` is the slope that ends a round;
    `violation` is the largest at the end of the last one, in `units`; `steps_left` are those of this round;
    `ended` is 1 at a minimum, 2 at a kink or jump, `FAILED` where no step has a motion. `radius` bounds the
    steps of the approach, 0 after it; `reached` are (1 + k, 1 + n) cost and constraints beside their
    Jacobian, where they were last computed;
    `growth` is the factor of the penalties since the first round.
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
    radius: np.ndarray
    reached: np.ndarray
    growth: np.ndarray


class AugmentedSearch:
    """The steps of `AugmentedLagrangian` on flat controls in their scales."""

    def __init__(
        self, settings: AugmentedLagrangian, functions: tuple[Derivatives, Lagrangian],
        bounds: tuple[np.ndarray, np.ndarray], tol: float, rounding: float,
    ) -> None:  # fmt: skip
        self._settings, self._bounds, self._tol, self._rounding = settings, bounds, tol, rounding
        self._derivatives, self._lagrangian = functions

    def begin(self, s: np.ndarray, reached: np.ndarray) -> SearchState:
        """Make the state of a search at its start, from `reached` there."""
        zero, count, size = np.asarray(0.0), len(reached) - 1, s.size
        state = SearchState(
            gradient=reached[0, 1:], curvature=np.eye(size), value=reached[0, 0],
            multipliers=np.zeros(count), penalty=np.zeros(count), units=_units(reached), limit=zero,
            violation=np.asarray(np.inf), steps_left=zero, crossings=zero, ended=zero,
            radius=np.asarray(FIRST_RADIUS), reached=reached, growth=np.asarray(1.0),
        )  # fmt: skip
        return state if self._is_far(state) else self._first_round(s, state, None)

    @staticmethod
    def _is_far(state: SearchState) -> bool:
        return bool(np.any(np.abs(state.reached[1:, 0]) > NEAR * state.units[1:]))

    def _approach(self, s: np.ndarray, state: SearchState) -> tuple[np.ndarray, SearchState]:
        """Make one step of minimum length towards the constraints, no longer than the radius."""
        old = state.reached[1:] / state.units[1:, None]
        step = _step_towards(old[:, 0], old[:, 1:], float(state.radius), s, self._bounds)
        new = np.clip(s + step, *self._bounds)
        cost, residuals, jacobian = self._derivatives(new)
        reached = join_reached(cost, residuals, jacobian)
        before, length = float(np.linalg.norm(old[:, 0])), float(np.linalg.norm(new - s))
        gain = before - float(np.linalg.norm(reached[1:, 0] / state.units[1:]))
        expected = before - float(np.linalg.norm(old[:, 0] + old[:, 1:] @ (new - s)))
        if np.all(np.isfinite(reached)) and gain > ARMIJO * expected > 0:
            if gain > 0.5 * expected:
                state = state._replace(radius=2.0 * state.radius)
            last, s, state = (s, state.reached), new, state._replace(reached=reached)
        else:
            last, state = None, state._replace(radius=np.asarray(0.3 * length))
        if not self._is_far(state) or state.radius < LAST_RADIUS * FIRST_RADIUS or not expected > 0:
            state = self._first_round(s, state, last)
        return s, state

    def _first_round(
        self, s: np.ndarray, state: SearchState, last: tuple[np.ndarray, np.ndarray] | None
    ) -> SearchState:
        """Choose units, multipliers, penalty and curvature at s; `last` is an earlier point."""
        units, slopes = _units(state.reached), state.reached[:, 1:]
        multipliers = -np.linalg.lstsq(slopes[1:].T, slopes[0], rcond=None)[0]
        bend = float(np.linalg.norm(slopes[0]))
        if last is not None:
            moved = s - last[0]
            seen = float(moved @ (slopes[0] - last[1][0, 1:])) / float(moved @ moved)
            bend = seen if seen > 0 else bend
        bend = bend if bend > 0 else 1.0
        steepness = max(float(np.linalg.norm(slopes[0])), np.sqrt(self._rounding) * abs(state.reached[0, 0]))
        units[0] = steepness if steepness > 0 else 1.0
        state = state._replace(
            curvature=np.eye(s.size) * bend,
            units=units,
            limit=np.asarray(max(FIRST_SLOPE, self._settings.slope) * units[0]),
            radius=np.asarray(0.0),
        )
        steep = np.linalg.norm(slopes[1:], axis=1)
        steep = np.where(steep > 0, steep, units[1:])
        return self._start_round(s, state, multipliers, self._settings.penalty * bend / steep**2)

    def _start_round(
        self, s: np.ndarray, state: SearchState, multipliers: np.ndarray, penalty: np.ndarray
    ) -> SearchState:
        """Start a round with other multipliers and penalties, whose change bends the curvature."""
        value, gradient, *_ = self._lagrangian(s, multipliers, penalty)
        slopes = state.reached[1:, 1:]
        return state._replace(
            gradient=gradient,
            curvature=state.curvature + (slopes.T * (penalty - state.penalty)) @ slopes,
            value=np.asarray(value),
            multipliers=multipliers,
            penalty=penalty,
            steps_left=np.asarray(float(ROUND_ITERS)),
        )

    def _point(self, s: np.ndarray, multipliers: np.ndarray, penalty: np.ndarray) -> quasi_newton.SearchPoint:
        """Make the point of a search that starts at s without a curvature."""
        value, gradient, *_ = self._lagrangian(s, multipliers, penalty)
        size = max(float(np.linalg.norm(gradient)), np.finfo(float).tiny)
        return quasi_newton.SearchPoint(s, value, gradient, np.eye(s.size) * size)

    def slope_of(self, s: np.ndarray, gradient: np.ndarray) -> float:
        """Compute the length of a gradient at s, of controls that no bound stops."""
        free = quasi_newton.free_components(s, gradient, *self._bounds)
        return float(np.linalg.norm(np.where(free, gradient, 0.0)))

    def _slope(self, point: quasi_newton.SearchPoint) -> float:
        return self.slope_of(point.x, point.gradient)

    def advance(self, s: np.ndarray, state: SearchState) -> tuple[np.ndarray, SearchState]:
        """Make one step of the approach or of a round; update multipliers and penalty if it ended a round."""
        if state.radius > 0:
            return self._approach(s, state)
        motions: list[bool] = []

        def evaluate(x: np.ndarray) -> tuple[float, np.ndarray]:
            value, gradient, *_ = self._lagrangian(x, state.multipliers, state.penalty)
            motions.append(bool(np.isfinite(value) and np.all(np.isfinite(gradient))))
            return value, gradient

        start = quasi_newton.SearchPoint(s, float(state.value), state.gradient, state.curvature, 1)
        point = quasi_newton.minimise(
            evaluate, start, self._bounds, is_minimum=lambda p: self._slope(p) <= float(state.limit),
            max_iters=1, rounding=self._rounding, max_halvings=MAX_HALVINGS,
        )  # fmt: skip
        state = state._replace(
            gradient=point.gradient,
            curvature=point.curvature,
            value=np.asarray(point.value),
            steps_left=state.steps_left - 1.0,
        )
        is_low = self._slope(point) <= float(state.limit)
        if point.num_iters == start.num_iters and not is_low:
            has_motion = bool(np.all(np.isfinite(point.gradient))) and (any(motions) or not motions)
            return self._cross(point, state, has_motion)
        if state.steps_left <= 0 or is_low:
            state = self._next_round(point, state)
        return point.x, state

    def _cross(
        self, point: quasi_newton.SearchPoint, state: SearchState, has_motion: bool
    ) -> tuple[np.ndarray, SearchState]:
        """Step down the slope across a jump or kink at which no line search descends, wherever it leads.

        `has_motion` tells whether a step of the line search had one.
        """
        free = quasi_newton.free_components(point.x, point.gradient, *self._bounds)
        step = -np.where(free, point.gradient, 0.0)
        step *= CROSSING * np.sqrt(step.size) / max(float(np.linalg.norm(step)), np.finfo(float).tiny)
        if self._settings.smoothing:  # a kink ends a level; beyond it the search would lose its plan
            return point.x, state._replace(ended=np.asarray(2.0 if has_motion else float(FAILED)))
        state = state._replace(crossings=state.crossings + 1.0)
        for _ in range(MAX_HALVINGS):
            beyond = self._point(np.clip(point.x + step, *self._bounds), state.multipliers, state.penalty)
            if np.isfinite(beyond.value) and np.all(np.isfinite(beyond.gradient)):
                break
            step = 0.5 * step
        else:
            return point.x, state._replace(ended=np.asarray(2.0 if has_motion else float(FAILED)))
        if state.crossings > MAX_CROSSINGS:
            return point.x, state._replace(ended=np.asarray(2.0))
        return beyond.x, state._replace(
            gradient=beyond.gradient, curvature=beyond.curvature, value=np.asarray(beyond.value)
        )

    def _next_round(self, point: quasi_newton.SearchPoint, state: SearchState) -> SearchState:
        """Update multipliers, and the penalty where the constraints are far; tell the end of the search."""
        reached = join_reached(*self._derivatives(point.x))
        if not np.all(np.isfinite(reached)):
            return state._replace(ended=np.asarray(float(FAILED)))
        residuals = reached[1:, 0]
        violation = np.max(np.abs(residuals) / state.units[1:], initial=0.0)
        last = self._settings.slope * state.units[0]
        is_done = self._slope(point) <= last and np.max(np.abs(residuals), initial=0.0) <= self._tol
        if is_done:
            return state._replace(ended=np.asarray(1.0))
        penalty = state.penalty
        may_grow = state.growth * GROWTH * self._settings.penalty <= LARGEST_PENALTY
        if violation > SHRINKAGE * state.violation and may_grow:
            penalty, state = GROWTH * penalty, state._replace(growth=GROWTH * state.growth)
        state = state._replace(
            limit=np.maximum(0.1 * state.limit, last), violation=np.asarray(violation), reached=reached
        )
        return self._start_round(point.x, state, state.multipliers + state.penalty * residuals, penalty)


def join_reached(cost: float, residuals: np.ndarray, jacobian: np.ndarray) -> np.ndarray:
    """Join cost and constraints (k,) with their Jacobian to (1 + k, 1 + n)."""
    values = np.concatenate([np.atleast_1d(np.asarray(cost, float)), np.asarray(residuals, float)])
    return np.concatenate([values[:, None], np.asarray(jacobian, float)], axis=1)


def _units(reached: np.ndarray) -> np.ndarray:
    """Return the larger of size and slope, of cost and of every constraint; 1 where both are zero."""
    units = np.maximum(np.abs(reached[:, 0]), np.linalg.norm(reached[:, 1:], axis=1))
    return np.where(units > 0, units, 1.0)


def _step_towards(
    residuals: np.ndarray, slopes: np.ndarray, radius: float, s: np.ndarray,
    bounds: tuple[np.ndarray, np.ndarray],
) -> np.ndarray:  # fmt: skip
    """Return the step (n,) that lessens residuals (k,) most within a radius, by controls free to make it."""
    free = np.ones(s.size, bool)
    for _ in range(BOUND_ROUNDS):
        left, sizes, right = np.linalg.svd(slopes * free, full_matrices=False)
        if sizes[0] == 0.0:
            return np.zeros_like(s)
        pulled = -(left.T @ residuals)
        damping = 1e-6 * float(sizes[0])
        while np.linalg.norm(sizes * pulled / (sizes**2 + damping**2)) > radius:
            damping *= 1.5
        step = right.T @ (sizes * pulled / (sizes**2 + damping**2))
        is_stopped = ((s <= bounds[0]) & (step < 0)) | ((s >= bounds[1]) & (step > 0))
        if not np.any(is_stopped & free):
            break
        free &= ~is_stopped
    return step
