"""Parameters of a mechanism from measured motions, by gradient, with their covariance: entry `identify`.

Owns the search for the parameters of minimum mean score, and their covariance. The user's score holds the
measurement, the prediction and their comparison. Page: docs/start/which-call.md.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

from jaxcontact._pytree import PyTree, Record
from jaxcontact.arguments import check_number, check_number_leaves, check_rows
from jaxcontact.front_door import POSITIVE, checked
from jaxcontact.optimize import quasi_newton
from jaxcontact.optimize.bounds import flat_bounds
from jaxcontact.optimize.many_starts import list_starts
from jaxcontact.precision import jit
from jaxcontact.status import Status

NORMAL_95 = 1.959964  # standard deviations on either side of the mean that hold 95 % of a normal distribution
MAX_ROUNDS = 4  # of the search; a later round starts with the curvature at the end of the round before
SHRUNK = 1e-9  # of the start; for a smaller result, steps of differences scale with the start
ROUGHNESS = 0.5  # relative change of a curvature with the step of differences; a smooth score has < 0.1
MIN_EIGENVALUE = 1e-10  # of the second derivative with unit diagonal; smaller ones are noise
Score = Callable[[PyTree, PyTree], jax.Array]  # (params, data) -> (m,), of each measured motion


@checked(max_steps=check_rows, tol=POSITIVE, largest=check_number)
@dataclasses.dataclass(frozen=True, kw_only=True)
class SearchSettings:
    """Settings of a search for parameters; None is the default of `identify`, or of `identify_motions`.

    Attributes:
        starts: pytree as the first start with a further first axis, more starts. The result is the best end.
        max_steps: of the search from each start, 200 or 50.
        tol: at which the search ends, 1e-6 or 1e-3. Of `identify` the largest slope at a minimum, as a
            fraction of the mean score per size of a parameter; of `identify_motions` the largest gain of half
            the sum of squares that a further step predicts, in units of the misfit.
        largest: score or misfit beyond which the status of an end is INACCURATE, as at a wrong minimum or
            with a wrong model; no limit, or 2. Of `pose_score` take a few times 3.
    """

    starts: PyTree = None
    max_steps: int | None = None
    tol: float | None = None
    largest: float | None = None


SEARCH = SearchSettings()


class IdentifyInfo(Record):
    """Accuracy of parameters; pytrees are those of the parameters, flat arrays in their order.

    Attributes:
        score: weighted mean of the scores at the result.
        start: the same at the start.
        lower, upper: ends of the 95 % intervals, cut at the bounds.
        covariance: (p, p) of the flat parameters; NaN if the scores do not determine them.
        slope: largest derivative of the mean score by a parameter times the larger of its sizes at start and
            result, beyond the effect of rounding of the parameters; without parameters that a bound holds.
        num_iters: steps of the search.
        evaluations: calls of the score with its derivatives.
        at_bound: (p,) bool, whether the result lies on a bound; its variance is then 0, and the intervals of
            the others hold with this parameter fixed.
        status: 0 if `slope` and the gain predicted for Newton's next step are at most tol |score|; KINK, a
            note, if the result is a minimum at which the derivative jumps, or if a third or three times
            `curvature_step` gives another curvature, so that intervals depend on it; MAX_ITERS if the search
            ran out of steps, STALLED if it stopped elsewhere; SINGULAR if the covariance is NaN; INACCURATE
            if the score is above `search.largest`.
        ends: (n, p) results from each start, params0 first, with their `scores` and `statuses` (n,).
    """

    score: float
    start: float
    lower: PyTree
    upper: PyTree
    covariance: np.ndarray
    slope: float
    num_iters: int
    evaluations: int
    at_bound: np.ndarray
    status: np.uint32
    ends: np.ndarray
    scores: np.ndarray
    statuses: np.ndarray


@checked(
    curvature_step=POSITIVE,
    params0=check_number_leaves,
    data=check_number_leaves,
)
def identify(
    score: Callable[[PyTree, PyTree], jax.Array],
    params0: PyTree,
    data: PyTree,
    *,
    bounds: PyTree = None,
    groups: np.ndarray | None = None,
    weights: np.ndarray | None = None,
    curvature_step: float = 1e-4,
    search: SearchSettings = SEARCH,
) -> tuple[PyTree, IdentifyInfo]:
    """Find the parameters of minimum mean score, and their covariance, from measured motions.

    The mean score is sum_i w_i score(params, data)_i / sum_i w_i. The mean of a proper score, such as minus a
    log likelihood or the energy score, is minimal at the truth. The covariance is that of an M-estimator
    (Huber 1967), H^-1 (sum_g s_g s_g^T) H^-1, with s_g the derivative of the scores of one group and H the
    second derivative of all: right for any score, and for motions of one group that are alike. A host driver;
    the score is compiled.

    Args:
        score: (params, data) -> (m,), of each measured motion, differentiable by params and traceable. A
            module-level function compiles once, a fresh closure each time.
        params0: pytree of floats to start from, such as {"friction": 0.2, "side": 0.1}.
        data: pytree of arrays, passed to `score`.
        bounds: pytree as params0 with pairs (minimum, maximum) for leaves, or None.
        groups: (m,) integers; scores of one group depend on one another. None: every score is a group.
        weights: (m,) >= 0, of the scores; 0 leaves a score out without compiling again. None: ones.
        curvature_step: of the central differences of gradients that give H, in sizes of the parameters. If
            contacts change, a score has kinks, which contribute to H only across many of them: use 1e-2.
        search: more starts, of whose ends without a failure, or of all, the one of least score is the result;
            limits of the search (BFGS within bounds; a step to a score that is not finite is shortened).

    Returns:
        Parameters and `IdentifyInfo`.

    Raises:
        TypeError: a score that is not a function.
        ValueError: scores of another shape than (m,); they or their derivative not finite at the start;
            bounds of another shape, in the wrong order or without a start; starts of another shape; groups or
            weights of the wrong shape, weights below 0 or all 0; no parameters.

    Status: see `IdentifyInfo`.

    Derivative: none; a host-level driver.
    """
    _check_search(score, params0)
    limits = search.max_steps or 200, search.tol or 1e-6, curvature_step
    ends = []
    for begin in list_starts(params0, search.starts):
        found, info = _identify_from(score, begin, data, bounds, groups, weights, limits)
        if search.largest is not None and not info.score <= search.largest:
            info = info.replace(status=np.uint32(info.status | int(Status.INACCURATE)))
        ends.append((found, info))
    scores = np.array([info.score for _, info in ends])
    statuses = np.array([info.status for _, info in ends], np.uint32)
    good = ~np.asarray(Status.failed(statuses))
    best = int(np.argmin(np.where(good | ~good.any(), scores, np.inf)))
    flat = np.stack([np.asarray(ravel_pytree(found)[0]) for found, _ in ends])
    return ends[best][0], ends[best][1].replace(ends=flat, scores=scores, statuses=statuses)


def _identify_from(
    score: Score, params0: PyTree, data: PyTree, bounds: PyTree,
    groups: np.ndarray | None, weights: np.ndarray | None, limits: tuple[int, float, float],
) -> tuple[PyTree, IdentifyInfo]:  # fmt: skip
    """Search from one start."""
    max_steps, tol, curvature_step = limits
    flat, unravel = ravel_pytree(jax.tree.map(lambda leaf: jnp.asarray(leaf, float), params0))
    start = np.asarray(flat, float)
    lower, upper = flat_bounds(bounds, params0, start)
    scores = _scores_at_start(score, unravel(flat), data)
    share = _shares(weights, scores.size)
    members = _members(groups, scores.size)
    run = _Run(score, unravel, data, share, start, (lower, upper))
    if not np.all(np.isfinite(run.evaluate(start)[1])):
        raise ValueError(f"score: expected a finite derivative at params0, got {run.evaluate(start)[1]}")
    x, status = run.search(max_steps, tol, curvature_step)
    mean, _, rates = run.evaluate(x)
    hessian, slope, _ = run.local_account(x, curvature_step)
    at_bound = (x <= lower) | (x >= upper)
    covariance = _sandwich(hessian, rates, members, ~at_bound)
    spread = NORMAL_95 * np.sqrt(np.diag(covariance))
    if not np.all(np.isfinite(covariance)):
        status |= int(Status.SINGULAR)
    elif run.is_rough(x, hessian, curvature_step):
        status |= int(Status.KINK)
    info = IdentifyInfo(
        score=mean,
        start=float(share @ scores),
        lower=unravel(jnp.asarray(np.maximum(x - spread, lower), flat.dtype)),
        upper=unravel(jnp.asarray(np.minimum(x + spread, upper), flat.dtype)),
        covariance=covariance,
        slope=slope,
        num_iters=run.num_iters,
        evaluations=run.evaluations,
        at_bound=at_bound,
        status=np.uint32(status),
        ends=x[None],
        scores=np.array([mean]),
        statuses=np.array([status], np.uint32),
    )
    return unravel(jnp.asarray(x, flat.dtype)), info


def _check_search(score: object, params0: PyTree) -> None:
    """Raise TypeError or ValueError if an argument of `identify` is of another type or out of range."""
    if not callable(score):
        raise TypeError(f"score: expected a function (params, data) -> (m,), got {type(score).__name__}")
    flat = ravel_pytree(params0)[0]
    check_number("params0", flat)
    if not flat.size:
        raise ValueError("params0: expected at least one number, got none")


def _scores_at_start(score: Score, params: PyTree, data: PyTree) -> np.ndarray:
    """Compute scores (m,); raise ValueError if they have another shape or are not finite."""
    scores = np.asarray(_scores(score, params, data)[0])
    if scores.ndim != 1 or not np.all(np.isfinite(scores)):
        raise ValueError(f"score: expected finite numbers (m,) at params0, got {scores.shape}: {scores}")
    return scores


@functools.partial(jit, static_argnums=0)
def _scores(score: Score, params: PyTree, data: PyTree) -> tuple[jax.Array, PyTree]:
    """Compute scores (m,) and their derivatives by each leaf of the parameters, forward."""

    def twice(params: PyTree) -> tuple[jax.Array, jax.Array]:
        found = score(params, data)
        return found, found

    rates, found = jax.jacfwd(twice, has_aux=True)(params)
    return found, rates


class _Run:
    """Mean score and its gradient as functions of flat parameters, on the host, and the search."""

    def __init__(
        self, score: Score, unravel: Callable[[jax.Array], PyTree], data: PyTree, share: np.ndarray,
        start: np.ndarray, bounds: tuple[np.ndarray, np.ndarray],
    ) -> None:  # fmt: skip
        self._score, self._unravel, self._data, self._share = score, unravel, data, share
        self._start, self._bounds = start, bounds
        width = bounds[1] - bounds[0]
        self._size = np.where(start != 0.0, np.abs(start), np.where(np.isfinite(width), width, 1.0))
        self._rounding = float(jnp.finfo(jnp.result_type(float)).eps)
        self.evaluations = self.num_iters = 0

    def evaluate(self, x: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
        """Return mean, gradient (p,) and the weighted derivatives (m, p) of the scores."""
        self.evaluations += 1
        scores, rates = _scores(
            self._score, self._unravel(jnp.asarray(x, jnp.result_type(float))), self._data
        )
        leaves = [np.asarray(leaf, float).reshape(len(self._share), -1) for leaf in jax.tree.leaves(rates)]
        counted = self._share > 0
        mean = self._share[counted] @ np.asarray(scores, float)[counted]
        rates = np.where(counted[:, None], np.concatenate(leaves, axis=1) * self._share[:, None], 0.0)
        return float(mean), rates.sum(axis=0), rates

    def search(self, max_steps: int, tol: float, curvature_step: float) -> tuple[np.ndarray, int]:
        """Minimise in rounds, each with the curvature from the end of the last; return x and status bits."""
        size, bounds = self._size, (self._bounds[0] / self._size, self._bounds[1] / self._size)

        def cost(z: np.ndarray) -> tuple[float, np.ndarray]:
            mean, gradient, _ = self.evaluate(z * size)
            return mean, gradient * size

        def is_flat(point: quasi_newton.SearchPoint) -> bool:
            free = quasi_newton.free_components(point.x, point.gradient, *bounds)
            slopes = np.maximum(1.0, np.abs(point.x)) * np.where(free, np.abs(point.gradient), 0.0)
            rounded = 4 * self._rounding * np.abs(point.curvature) @ np.abs(point.x)
            beyond = np.where(free & (slopes > rounded), point.gradient, 0.0)
            gain = float(beyond @ np.linalg.solve(point.curvature, beyond))
            limit = 0.1 * tol * abs(point.value)
            return bool(np.all(slopes <= np.maximum(limit, rounded))) and gain <= limit

        value, gradient = cost(self._start / size)
        unit = np.eye(size.size) * max(float(np.linalg.norm(gradient)), np.finfo(float).tiny)
        point = quasi_newton.SearchPoint(self._start / size, value, gradient, unit)
        for _ in range(MAX_ROUNDS):
            point = quasi_newton.minimise(
                cost, point, bounds, is_minimum=is_flat, max_iters=max_steps - point.num_iters,
                rounding=4 * self._rounding,
            )  # fmt: skip
            self.num_iters = point.num_iters
            x = np.clip(point.x * size, *self._bounds)
            hessian, slope, gain = self.local_account(x, curvature_step)
            if slope <= tol * abs(point.value) and gain <= tol * abs(point.value):
                return x, 0
            if point.num_iters >= max_steps:
                break
            scaled = hessian * size[:, None] * size
            if _is_definite(scaled):
                point.curvature = scaled
        left = quasi_newton.shortest_nearby(cost, point, bounds)
        if left is not None and left <= tol * abs(point.value):
            return x, int(Status.KINK)
        return x, int(Status.MAX_ITERS if point.num_iters >= max_steps else Status.STALLED)

    def local_account(self, x: np.ndarray, curvature_step: float) -> tuple[np.ndarray, float, float]:
        """Return the second derivative (p, p), the slope, and the gain predicted for a Newton step.

        Rows of parameters that a bound holds are those of the identity.
        """
        lower, upper = self._bounds
        _, gradient, _ = self.evaluate(x)
        free = quasi_newton.free_components(x, gradient, lower, upper)
        for shrunk in (SHRUNK, np.inf):
            near = np.where(np.abs(x) > shrunk * self._size, np.abs(x), self._size)
            hessian = self._hessian(x, free, curvature_step * near)
            if _is_definite(hessian):
                break
        slopes = np.abs(np.where(free, gradient, 0.0))
        rounded = 4 * self._rounding * np.nan_to_num(np.abs(hessian), posinf=0.0) @ np.abs(x)
        slope = float(np.max(np.maximum(slopes - rounded, 0.0) * np.maximum(np.abs(x), self._size)))
        beyond = np.where(slopes > rounded, slopes, 0.0) * np.sign(gradient)
        gain = float(beyond @ np.linalg.solve(hessian, beyond)) if _is_definite(hessian) else 0.0
        return hessian, slope, gain

    def is_rough(self, x: np.ndarray, hessian: np.ndarray, curvature_step: float) -> bool:
        """Return whether a third or three times the step gives another curvature, as between kinks."""
        others = [np.diag(self.local_account(x, factor * curvature_step)[0]) for factor in (1 / 3, 3.0)]
        return not np.allclose(others, np.diag(hessian), rtol=ROUGHNESS, atol=0.0)

    def _hessian(self, x: np.ndarray, free: np.ndarray, steps: np.ndarray) -> np.ndarray:
        """Return central differences of gradients, with rows of the identity for parameters not free."""
        hessian = np.eye(x.size)
        for i in np.flatnonzero(free):
            ends = np.tile(x, (2, 1))
            ends[:, i] = np.clip(x[i] + np.array([-1, 1]) * steps[i], self._bounds[0][i], self._bounds[1][i])
            low, high = (self.evaluate(end)[1] for end in ends)
            hessian[i] = (high - low) / (ends[1, i] - ends[0, i])
        return np.where(np.outer(free, free), 0.5 * (hessian + hessian.T), np.eye(x.size))


def _is_definite(matrix: np.ndarray) -> bool:
    """Return whether a symmetric matrix is finite and positive definite beyond rounding, rows scaled."""
    diagonal = np.diag(matrix)
    if not (np.all(np.isfinite(matrix)) and np.all(diagonal > 0)):
        return False
    root = np.sqrt(diagonal)
    return bool(np.linalg.eigvalsh(matrix / root[:, None] / root)[0] > MIN_EIGENVALUE)


def _sandwich(hessian: np.ndarray, rates: np.ndarray, members: np.ndarray, free: np.ndarray) -> np.ndarray:
    """Return Huber's covariance (p, p) of the free parameters, 0 for others; NaN if H has no inverse."""
    total = np.zeros_like(hessian)
    if not free.any():
        return total
    part = hessian[np.ix_(free, free)]
    sums = np.zeros((members.max() + 1, int(free.sum())))
    np.add.at(sums, members, rates[:, free])
    if _is_definite(part):
        root = np.sqrt(np.diag(part))
        pulled = np.linalg.solve(part / root[:, None] / root, (sums / root).T) / root[:, None]
        total[np.ix_(free, free)] = pulled @ pulled.T
    else:
        total[np.ix_(free, free)] = np.nan
    return total


def _shares(weights: np.ndarray | None, count: int) -> np.ndarray:
    weights = np.ones(count) if weights is None else np.asarray(weights, float)
    if weights.shape != (count,):
        raise ValueError(f"weights: expected shape ({count},) as the scores, got {weights.shape}")
    if not np.all(np.isfinite(weights) & (weights >= 0)) or not weights.sum() > 0:
        raise ValueError("weights: expected finite numbers >= 0, one of them > 0")
    return weights / weights.sum()


def _members(groups: np.ndarray | None, count: int) -> np.ndarray:
    groups = np.arange(count) if groups is None else np.asarray(groups)
    if groups.shape != (count,):
        raise ValueError(f"groups: expected shape ({count},) as the scores, got {groups.shape}")
    return np.unique(groups, return_inverse=True)[1].reshape(count)
