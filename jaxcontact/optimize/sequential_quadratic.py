"""Minimise a cost under many equality constraints and bounds, on the host: entry `minimise`.

Steps solve quadratic programs within a trust region, by an interior-point method whose constraints give way
where they cannot hold; a step counts if an exact penalty function falls (Byrd & Omojokun; Nocedal & Wright,
Numerical Optimization, 18.5). The caller gives a curvature of the cost; constraints add none, so that the
end is as near as `LAST_RADIUS`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from jaxcontact._pytree import PyTree
from jaxcontact.batching.blas_threads import one_blas_thread

FIRST_RADIUS = 0.3  # largest change of a scaled variable in the first step
LARGEST_RADIUS = 1.0  # as `FIRST_RADIUS`
LAST_RADIUS = 1e-3  # a search with shorter steps has come to a kink
LEAP = 0.1  # radius of a step across a kink
MAX_LEAPS = 10  # of a search
LONGEST_RETURN = 1e3  # of a variable, in lengths of the constraints, in a step onto them
GIVE = 1e-9  # softness of constraints of a step, in units of the cost
ACCEPTED = 1e-4  # minimum fraction of the predicted decrease of the penalty function
GOOD = 0.7  # fraction of the predicted decrease from which the radius grows
ROUNDING = 1e-13  # of the largest number of a matrix, added to its diagonal
DAMPING = 1e-4  # curvature added to every scaled variable
INTERIOR_ITERS = 40  # of the interior-point method of a step
INTERIOR_TOL = 1e-8  # of its complementarity
AT_BOUND = 1e-6  # of a scaled variable; the interior-point method stops so far from a bound
TOWARDS = 0.995  # fraction of the way to a bound that one of its steps may go


class ProgramPoint(NamedTuple):
    """Cost, its gradient (n,) and curvature (n, n), constraints (k,) and their Jacobian (k, n) at s (n,)."""

    s: np.ndarray
    cost: float
    gradient: np.ndarray
    curvature: np.ndarray
    residuals: np.ndarray
    jacobian: np.ndarray

    @property
    def is_finite(self) -> bool:
        """Tell whether the motion and its derivatives are finite."""
        numbers = (self.cost, self.gradient, self.curvature, self.residuals, self.jacobian)
        return all(bool(np.all(np.isfinite(a))) for a in numbers)

    @property
    def violation(self) -> float:
        """Return the length of the constraints."""
        return float(np.linalg.norm(self.residuals))


class ProgramState(NamedTuple):
    """What a search continues from: its point and the best one so far (n,), its radius and counts.

    `weight` is that of the constraints; `must_leap` says that the next step crosses a kink.
    """

    s: np.ndarray
    best: np.ndarray
    radius: float
    weight: float
    num_steps: int
    num_leaps: int
    must_leap: bool

    @property
    def num_recomputed(self) -> int:
        """Count the points that a search which continues from here has computed before."""
        return 0 if self.num_steps == 0 else 1 + (not np.array_equal(self.s, self.best))


class SearchEnd(NamedTuple):
    """The end of a search: its point, the number of steps, and the largest change in the next step."""

    point: ProgramPoint
    num_iters: int
    change: float


Evaluate = Callable[[np.ndarray], ProgramPoint]


def begin(s: np.ndarray, bounds: tuple[np.ndarray, np.ndarray]) -> ProgramState:
    """Make the state of a search that starts from s, moved within the bounds."""
    s = np.clip(s, *bounds)
    return ProgramState(s, s, FIRST_RADIUS, 0.0, 0, 0, False)


@one_blas_thread()
def minimise(
    evaluate: Evaluate, state: ProgramState, bounds: tuple[np.ndarray, np.ndarray], *, max_iters: int,
    change: float, tol: float, progress: Callable[[ProgramState, ProgramPoint], None] | None = None,
) -> SearchEnd:  # fmt: skip
    """Minimise until a step changes variables by at most `change` and constraints hold within `tol`.

    Variables are scaled: changes of one are alike. `evaluate` returns NaN for a motion that failed; a search
    that starts from one ends there.
    `progress` is called after every step.
    """
    lower, upper = bounds
    _, _, radius, weight, steps, leaps, must_leap = state
    point = best = evaluate(state.s)
    if not np.array_equal(state.s, state.best):
        best = evaluate(state.best)
    while steps < max_iters and point.is_finite:
        low, high = np.maximum(lower - point.s, -radius), np.minimum(upper - point.s, radius)
        step = solve_program(point, low, high)
        longest = float(np.max(np.abs(step), initial=0.0))
        left = longest if longest < 0.9 * radius else np.inf
        if left <= change and point.violation <= tol:
            return SearchEnd(point, steps, left)
        steps += 1
        fall = -float(point.gradient @ step + 0.5 * step @ point.curvature @ step)
        gain = point.violation - float(np.linalg.norm(point.residuals + point.jacobian @ step))
        if gain > 0:
            weight = max(weight, -2.0 * fall / gain)
        predicted = fall + weight * gain
        new = evaluate(np.clip(point.s + step, lower, upper))
        ratio = _ratio(point, new, weight, predicted)
        if ratio <= ACCEPTED and np.all(np.isfinite(new.residuals)):
            # The same step with the constraints' own bend taken into account (second-order correction).
            bent = point._replace(residuals=new.residuals - point.jacobian @ step)
            corrected = evaluate(np.clip(point.s + solve_program(bent, low, high), lower, upper))
            if _ratio(point, corrected, weight, predicted) > ratio:
                new, ratio = corrected, _ratio(point, corrected, weight, predicted)
        if ratio > GOOD and longest > 0.5 * radius:
            radius = min(2.0 * radius, LARGEST_RADIUS)
        elif ratio < 0.25 and not must_leap:
            radius = 0.3 * longest
        if ratio > ACCEPTED or (must_leap and new.is_finite):
            point = new
        must_leap = False
        if _rank(point, tol) < _rank(best, tol):
            best = point
        if radius < LAST_RADIUS:
            if leaps == MAX_LEAPS:
                break
            leaps, radius, weight, must_leap = leaps + 1, LEAP, 0.0, True
        if progress is not None:
            progress(ProgramState(point.s, best.s, radius, weight, steps, leaps, must_leap), point)
    return SearchEnd(best, steps, np.inf)


def slope_along(point: ProgramPoint, bounds: tuple[np.ndarray, np.ndarray]) -> float:
    """Return the length of the cost's gradient along the constraints, of variables between their bounds."""
    free = (point.s > bounds[0] + AT_BOUND) & (point.s < bounds[1] - AT_BOUND)
    gradient, slopes = point.gradient[free], point.jacobian[:, free]
    if not np.all(np.isfinite(slopes)):
        return float("nan")
    return float(np.linalg.norm(gradient - slopes.T @ np.linalg.lstsq(slopes.T, gradient, rcond=None)[0]))


def _ratio(point: ProgramPoint, new: ProgramPoint, weight: float, predicted: float) -> float:
    """Return the decrease of cost + weight |constraints| over the predicted one, -1 for a failed motion."""
    decrease = point.cost - new.cost + weight * (point.violation - new.violation)
    return float(decrease / predicted) if predicted > 0 and new.is_finite else -1.0


def _rank(point: ProgramPoint, tol: float) -> tuple[float, float]:
    """Return a key that orders points: the violation beyond `tol`, then the cost."""
    return (point.violation if point.violation > tol else 0.0), point.cost


@one_blas_thread()
def restore(
    evaluate: Evaluate, point: ProgramPoint, bounds: tuple[np.ndarray, np.ndarray], tol: float
) -> ProgramPoint:
    """Take shortest steps onto the constraints until they hold within `tol` or come no nearer."""
    lower, upper = bounds
    while point.is_finite and np.max(np.abs(point.residuals), initial=0.0) > tol:
        unit = point.violation  # of the program, so that it is solved to a fraction of what is left
        flat = point._replace(
            gradient=0 * point.s, curvature=np.eye(point.s.size), residuals=point.residuals / unit
        )
        longest = np.full_like(point.s, min(FIRST_RADIUS / unit, LONGEST_RETURN))
        low, high = (
            np.maximum((lower - point.s) / unit, -longest),
            np.minimum((upper - point.s) / unit, longest),
        )
        new = evaluate(np.clip(point.s + unit * solve_program(flat, low, high), lower, upper))
        if not (new.is_finite and new.violation < 0.9 * point.violation):
            break
        point = new
    return point


def solve_program(point: ProgramPoint, low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """Return the d (n,) of least g d + d H d / 2 + |J d + r|^2 / (2 GIVE) for low <= d <= high."""
    free = high > low
    jacobian = point.jacobian[:, free]
    gradient, low, high = point.gradient[free], low[free], high[free]
    curvature = point.curvature[np.ix_(free, free)] + DAMPING * np.eye(gradient.size)
    n, k = gradient.size, point.residuals.size
    d, y = np.clip(0.0, low + 0.1 * (high - low), high - 0.1 * (high - low)), np.zeros(k)
    size = max(1e-3, float(np.max(np.abs(gradient), initial=0.0)))
    below, above = np.full(n, size), np.full(n, size)  # multipliers of the bounds
    to_low, to_high = d - low, high - d
    for _ in range(INTERIOR_ITERS):
        dual = gradient + curvature @ d + jacobian.T @ y - below + above
        primal = point.residuals + jacobian @ d - GIVE * y
        gap = float(below @ to_low + above @ to_high) / (2 * n)
        errors = max(np.max(np.abs(dual)), np.max(np.abs(primal), initial=0.0))
        if gap < INTERIOR_TOL and errors < INTERIOR_TOL:
            break
        try:
            factors = _factor(curvature + np.diag(below / to_low + above / to_high), jacobian)
        except np.linalg.LinAlgError:  # as near to the bounds as rounding allows
            break
        ways, forces = (to_low, to_high), (below, above)
        dd, _, db, da = _solve_step(
            factors, (dual, primal), ways, forces, (-below * to_low, -above * to_high)
        )
        length = _longest_step((to_low, to_high, below, above), (dd, -dd, db, da), 1.0)
        ahead = float((below + length * db) @ (to_low + length * dd))
        ahead += float((above + length * da) @ (to_high - length * dd))
        centre = gap * min(1.0, (ahead / (2 * n * gap)) ** 3)
        aims = centre - below * to_low - db * dd, centre - above * to_high + da * dd
        dd, dy, db, da = _solve_step(factors, (dual, primal), ways, forces, aims)
        length = _longest_step((to_low, to_high, below, above), (dd, -dd, db, da), TOWARDS)
        d, y = d + length * dd, y + length * dy
        below, above = below + length * db, above + length * da
        to_low, to_high = to_low + length * dd, to_high - length * dd
    step = np.zeros(free.size)
    step[free] = np.clip(d, low, high)
    return step


def _longest_step(values: tuple[np.ndarray, ...], moves: tuple[np.ndarray, ...], share: float) -> float:
    """Return the longest step, at most 1, that takes no value farther than this share of its way to zero."""
    longest = 1.0
    for value, move in zip(values, moves, strict=True):
        down = move < 0
        longest = min(longest, share * float(np.min(-value[down] / move[down], initial=np.inf)))
    return longest


def _solve_step(
    factors: _Factors, errors: tuple[np.ndarray, np.ndarray], ways: tuple[np.ndarray, np.ndarray],
    forces: tuple[np.ndarray, np.ndarray], aims: tuple[np.ndarray, np.ndarray],
) -> tuple[np.ndarray, ...]:  # fmt: skip
    """Solve for changes of d, y and the multipliers of both bounds; `aims` are those of their products."""
    dd, dy = _solve(factors, -errors[0] + aims[0] / ways[0] - aims[1] / ways[1], -errors[1])
    return dd, dy, (aims[0] - forces[0] * dd) / ways[0], (aims[1] + forces[1] * dd) / ways[1]


class _Factors(NamedTuple):
    """Cholesky factors of H and of J H^-1 J^T + GIVE, beside J and H^-1 J^T."""

    outer: PyTree
    inner: PyTree
    jacobian: np.ndarray
    lifted: np.ndarray


def _factor(curvature: np.ndarray, jacobian: np.ndarray) -> _Factors:
    """Factor the equations of `_solve`."""
    from scipy.linalg import cho_factor, cho_solve  # inside the function, because the import takes long

    outer = cho_factor(curvature, check_finite=False)
    lifted = cho_solve(outer, jacobian.T, check_finite=False)
    schur = jacobian @ lifted
    give = GIVE + ROUNDING * float(np.max(np.diag(schur), initial=0.0))
    inner = cho_factor(schur + give * np.eye(len(jacobian)), check_finite=False)
    return _Factors(outer, inner, jacobian, lifted)


def _solve(factors: _Factors, top: np.ndarray, bottom: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Solve H d + J^T y = top, J d - GIVE y = bottom."""
    from scipy.linalg import cho_solve  # inside the function, because the import takes long

    y = cho_solve(factors.inner, factors.lifted.T @ top - bottom, check_finite=False)
    return cho_solve(factors.outer, top - factors.jacobian.T @ y, check_finite=False), y
