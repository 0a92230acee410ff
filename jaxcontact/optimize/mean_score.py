"""The mean score of measured motions as a function of flat parameters, and its search: entry `MeanScore`.

Owns the evaluations on the host, the rounds of BFGS, and the second derivative. Page:
docs/start/which-call.md.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxcontact._pytree import PyTree
from jaxcontact.optimize import quasi_newton
from jaxcontact.precision import jit
from jaxcontact.status import Status

MAX_ROUNDS = 4  # of the search; a later round starts with the curvature at the end of the round before
SHRUNK = 1e-9  # of the start; for a smaller result, steps of differences scale with the start
ROUGHNESS = 0.5  # relative change of a curvature with the step of differences; a smooth score has < 0.1
PROBES = 12  # points that look for a lower score beside the end of a search
PROBE_RANGE = 4.0  # factor beyond start and end, of a parameter without bounds, within which probes lie
DESCENTS = 3  # of the lowest probes
PROBE_NEAR = 0.05  # of sizes of parameters, at which it has come to the end itself
PROBE_STEPS = 12  # of such a descent, at most
MIN_EIGENVALUE = 1e-10  # of the second derivative with unit diagonal; smaller ones are noise
Score = Callable[[PyTree, PyTree], jax.Array]  # (params, data) -> (m,), of each measured motion


class SearchRound(NamedTuple):
    """Where a search stands: the number of its round, and its point in sizes of the parameters."""

    number: int
    point: quasi_newton.SearchPoint


@functools.partial(jit, static_argnames="score")
def scores_of(score: Score, params: PyTree, data: PyTree) -> tuple[jax.Array, PyTree]:
    """Compute scores (m,) and their derivatives by each leaf of the parameters, forward."""

    def twice(params: PyTree) -> tuple[jax.Array, jax.Array]:
        found = score(params, data)
        return found, found

    rates, found = jax.jacfwd(twice, has_aux=True)(params)
    return found, rates


class MeanScore:
    """Mean score and its gradient as functions of flat parameters, on the host, and the search."""

    def __init__(
        self, score: Score, unravel: Callable[[jax.Array], PyTree], data: PyTree, share: np.ndarray,
        start: np.ndarray, bounds: tuple[np.ndarray, np.ndarray],
    ) -> None:  # fmt: skip
        self._score, self.unravel, self._data, self.share = score, unravel, data, share
        self.start, self.bounds = start, bounds
        width = bounds[1] - bounds[0]
        self._size = np.where(start != 0.0, np.abs(start), np.where(np.isfinite(width), width, 1.0))
        self._rounding = float(jnp.finfo(jnp.result_type(float)).eps)
        self.evaluations = self.num_iters = 0
        self.start_score = np.nan

    def evaluate(self, x: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
        """Return mean, gradient (p,) and the weighted derivatives (m, p) of the scores."""
        self.evaluations += 1
        scores, rates = scores_of(
            self._score, self.unravel(jnp.asarray(x, jnp.result_type(float))), self._data
        )
        leaves = [np.asarray(leaf, float).reshape(len(self.share), -1) for leaf in jax.tree.leaves(rates)]
        counted = self.share > 0
        mean = self.share[counted] @ np.asarray(scores, float)[counted]
        rates = np.where(counted[:, None], np.concatenate(leaves, axis=1) * self.share[:, None], 0.0)
        return float(mean), rates.sum(axis=0), rates

    def begin(self) -> SearchRound:
        """Make the state of a search at the start."""
        value, gradient = self._cost(self.start / self._size)
        unit = np.eye(self._size.size) * max(float(np.linalg.norm(gradient)), np.finfo(float).tiny)
        return SearchRound(0, quasi_newton.SearchPoint(self.start / self._size, value, gradient, unit))

    def _cost(self, z: np.ndarray) -> tuple[float, np.ndarray]:
        mean, gradient, _ = self.evaluate(z * self._size)
        return mean, gradient * self._size

    def search(
        self, limits: tuple[int, float, float], at: SearchRound, report: Callable[[SearchRound], None]
    ) -> tuple[np.ndarray, int]:
        """Minimise in rounds, each with the curvature from the end of the last; return x and status bits.

        `report` is called after every step; a search from its argument goes on as this one.
        """
        (max_steps, tol, curvature_step), point = limits, at.point
        size, bounds = self._size, (self.bounds[0] / self._size, self.bounds[1] / self._size)

        def is_flat(point: quasi_newton.SearchPoint) -> bool:
            free = quasi_newton.free_components(point.x, point.gradient, *bounds)
            slopes = np.maximum(1.0, np.abs(point.x)) * np.where(free, np.abs(point.gradient), 0.0)
            rounded = 4 * self._rounding * np.abs(point.curvature) @ np.abs(point.x)
            beyond = np.where(free & (slopes > rounded), point.gradient, 0.0)
            gain = float(beyond @ np.linalg.solve(point.curvature, beyond))
            limit = 0.1 * tol * abs(point.value)
            return bool(np.all(slopes <= np.maximum(limit, rounded))) and gain <= limit

        for number in range(at.number, MAX_ROUNDS):

            def in_round(point: quasi_newton.SearchPoint, number: int = number) -> None:
                report(SearchRound(number, point))

            point = quasi_newton.minimise(
                self._cost, point, bounds, is_minimum=is_flat, max_iters=max_steps - point.num_iters,
                rounding=4 * self._rounding, report=in_round,
            )  # fmt: skip
            self.num_iters, point.num_restarts = point.num_iters, 0
            x = np.clip(point.x * size, *self.bounds)
            hessian, slope, gain = self.local_account(x, curvature_step)
            if slope <= tol * abs(point.value) and gain <= tol * abs(point.value):
                return x, 0
            if point.num_iters >= max_steps:
                break
            scaled = hessian * size[:, None] * size
            if is_definite(scaled):
                point.curvature = scaled
        left = quasi_newton.shortest_nearby(self._cost, point, bounds)
        if left is not None and left <= tol * abs(point.value):
            return x, int(Status.KINK)
        return x, int(Status.MAX_ITERS if point.num_iters >= max_steps else Status.STALLED)

    def slope_at(self, point: quasi_newton.SearchPoint) -> float:
        """Compute the length of the gradient per size of a parameter, of those that no bound stops."""
        bounds = self.bounds[0] / self._size, self.bounds[1] / self._size
        free = quasi_newton.free_components(point.x, point.gradient, *bounds)
        return float(np.linalg.norm(np.where(free, point.gradient, 0.0)))

    def local_account(self, x: np.ndarray, curvature_step: float) -> tuple[np.ndarray, float, float]:
        """Return the second derivative (p, p), the slope, and the gain predicted for a Newton step.

        Rows of parameters that a bound holds are those of the identity.
        """
        lower, upper = self.bounds
        _, gradient, _ = self.evaluate(x)
        free = quasi_newton.free_components(x, gradient, lower, upper)
        for shrunk in (SHRUNK, np.inf):
            near = np.where(np.abs(x) > shrunk * self._size, np.abs(x), self._size)
            hessian = self._hessian(x, free, curvature_step * near)
            if is_definite(hessian):
                break
        slopes = np.abs(np.where(free, gradient, 0.0))
        rounded = 4 * self._rounding * np.nan_to_num(np.abs(hessian), posinf=0.0) @ np.abs(x)
        slope = float(np.max(np.maximum(slopes - rounded, 0.0) * np.maximum(np.abs(x), self._size)))
        beyond = np.where(slopes > rounded, slopes, 0.0) * np.sign(gradient)
        gain = float(beyond @ np.linalg.solve(hessian, beyond)) if is_definite(hessian) else 0.0
        return hessian, slope, gain

    def is_rough(self, x: np.ndarray, hessian: np.ndarray, curvature_step: float) -> bool:
        """Return whether a third or three times the step gives another curvature, as between kinks."""
        others = [np.diag(self.local_account(x, factor * curvature_step)[0]) for factor in (1 / 3, 3.0)]
        return not np.allclose(others, np.diag(hessian), rtol=ROUGHNESS, atol=0.0)

    def find_lower(self, x: np.ndarray, value: float, spread: np.ndarray) -> np.ndarray | None:
        """Look for parameters with a lower score, farther from the end x than `spread`; return None without.

        What is within 5 % of the sizes of parameters counts as the end itself, which data without noise put
        some eps beside the minimum. The lowest few of points spread over the bounds, or over factors of x,
        are followed downhill.
        """
        points = self._spread_probes(x)
        near = np.maximum(spread, PROBE_NEAR * np.maximum(np.abs(x), self._size))
        probes = [self._cost(z / self._size) for z in points]

        def has_arrived(point: quasi_newton.SearchPoint) -> bool:
            return bool(np.all(np.abs(point.x * self._size - x) <= near)) or point.value < value

        lower = value - 4 * self._rounding * abs(value)
        finite = [k for k, (cost, slope) in enumerate(probes) if np.all(np.isfinite([cost, *slope]))]
        for k in sorted(finite, key=lambda k: probes[k][0])[:DESCENTS]:
            cost, gradient = probes[k]
            unit = np.eye(x.size) * max(float(np.linalg.norm(gradient)), np.finfo(float).tiny)
            point = quasi_newton.minimise(
                self._cost, quasi_newton.SearchPoint(points[k] / self._size, cost, gradient, unit),
                (self.bounds[0] / self._size, self.bounds[1] / self._size),
                is_minimum=has_arrived, max_iters=PROBE_STEPS, rounding=4 * self._rounding,
            )  # fmt: skip
            found = np.clip(point.x * self._size, *self.bounds)
            if point.value < lower and np.any(np.abs(found - x) > near):
                return found
        return None

    def _spread_probes(self, x: np.ndarray) -> np.ndarray:
        """Spread points (k, p): of every parameter one in each of k equal parts of its range."""
        draws = np.random.default_rng(0)
        parts = [(draws.permutation(PROBES) + draws.uniform(size=PROBES)) / PROBES for _ in x]
        shares = np.stack(parts, axis=1)
        lower, upper = self.bounds
        sizes = np.sort(np.abs([np.where(x != 0.0, x, self._size), self._size]), axis=0)
        shortest, longest = sizes[0] / PROBE_RANGE, sizes[1] * PROBE_RANGE
        by_factor = (
            np.where(self.start != 0.0, np.sign(self.start), np.sign(x))
            * shortest ** (1.0 - shares)
            * longest**shares
        )
        free = np.where(x == 0.0, self._size * (2.0 * shares - 1.0), by_factor)
        between = np.isfinite(upper - lower)
        inside = np.where(between, lower, 0.0) + shares * np.where(between, upper - lower, 0.0)
        return np.where(between, inside, np.clip(free, lower, upper))

    def _hessian(self, x: np.ndarray, free: np.ndarray, steps: np.ndarray) -> np.ndarray:
        """Return central differences of gradients, with rows of the identity for parameters not free."""
        hessian = np.eye(x.size)
        for i in np.flatnonzero(free):
            ends = np.tile(x, (2, 1))
            ends[:, i] = np.clip(x[i] + np.array([-1, 1]) * steps[i], self.bounds[0][i], self.bounds[1][i])
            low, high = (self.evaluate(end)[1] for end in ends)
            hessian[i] = (high - low) / (ends[1, i] - ends[0, i])
        return np.where(np.outer(free, free), 0.5 * (hessian + hessian.T), np.eye(x.size))


def is_definite(matrix: np.ndarray) -> bool:
    """Return whether a symmetric matrix is finite and positive definite beyond rounding, rows scaled."""
    diagonal = np.diag(matrix)
    if not (np.all(np.isfinite(matrix)) and np.all(diagonal > 0)):
        return False
    root = np.sqrt(diagonal)
    return bool(np.linalg.eigvalsh(matrix / root[:, None] / root)[0] > MIN_EIGENVALUE)
