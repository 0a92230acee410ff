"""The numbers of a mechanism from measured motions, by gradient, with how well they are known.

Owns the search for the parameters of least mean score, and the covariance of what it finds. What is measured,
how it is predicted and how the two are compared is in the user's score.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

from jaxcontact._pytree import Record
from jaxcontact.arguments import check_count, check_number, check_positive
from jaxcontact.precision import jit
from jaxcontact.status import Status

NORMAL_95 = 1.959964  # standard deviations on either side that hold 95 %


class IdentifyInfo(Record):
    """How well parameters are known; pytrees are those of the parameters, flat arrays in their order.

    Attributes:
        score: weighted mean of the scores at the result.
        start: the same at the start.
        lower, upper: ends of the 95 % intervals, cut at the bounds.
        covariance: (p, p) of the flat parameters; NaN where the scores do not tell.
        slope: largest derivative of the mean score by a parameter, in its size, away from its bounds.
        num_iters: steps of the search.
        evaluations: calls of the score with its derivatives.
        at_bound: (p,) bool, whether the result lies on a bound; its interval is then one of the others held.
        status: 0; MAX_ITERS where the search ran out of steps, STALLED where it stopped short of a minimum.
    """

    score: float
    start: float
    lower: Any
    upper: Any
    covariance: np.ndarray
    slope: float
    num_iters: int
    evaluations: int
    at_bound: np.ndarray
    status: np.uint32


def identify(
    score: Callable[[Any, Any], jax.Array],
    params0: Any,
    data: Any,
    *,
    bounds: Any = None,
    groups: np.ndarray | None = None,
    weights: np.ndarray | None = None,
    max_steps: int = 100,
    tol: float = 1e-6,
    curvature_step: float = 1e-4,
) -> tuple[Any, IdentifyInfo]:
    """Parameters of least mean score, sum_i w_i score(params, data)_i / sum_i w_i, and their covariance.

    A proper score, such as minus a log likelihood or the energy score, is least in the mean at the truth. The
    covariance is that of an M-estimator (Huber 1967), H^-1 (sum_g s_g s_g^T) H^-1, with s_g the derivative of
    the scores of one group and H the second derivative of all: right for any score, and for motions of one
    group that are alike. A host driver; the score is compiled.

    Args:
        score: (params, data) -> (m,), of each measured motion, differentiable by params and traceable. A
            module-level function compiles once, a fresh closure each time.
        params0: pytree of floats to start from, such as {"friction": 0.2, "side": 0.1}.
        data: pytree of arrays, handed to `score`.
        bounds: pytree as params0 with pairs (least, most) for leaves, or None.
        groups: (m,) integers; scores of one group depend on one another. None: each is its own.
        weights: (m,) >= 0, of the scores; 0 leaves one out without compiling again. None: ones.
        max_steps: of the search (L-BFGS-B).
        tol: largest slope of the mean score, as a share of it per size of a parameter, at a minimum.
        curvature_step: of the central differences of gradients that give H, in sizes of the parameters. Where
            contacts change, a score has kinks, whose share of H is seen only across many of them: 1e-2.

    Returns:
        Parameters and `IdentifyInfo`.

    Raises:
        TypeError: a score that is no function.
        ValueError: scores of another shape than (m,); they or their derivative not finite at the start;
            bounds of another shape, in the wrong order or without the start; groups or weights of the wrong
            shape, weights below 0 or all 0; no parameters.

    Status: see `IdentifyInfo`.

    Derivative: none; a host-level driver.
    """
    if not callable(score):
        raise TypeError(f"score: expected a function (params, data) -> (m,), got {type(score).__name__}")
    check_count("max_steps", max_steps)
    check_positive("tol", tol)
    check_positive("curvature_step", curvature_step)
    check_number("params0", ravel_pytree(params0)[0])
    flat, unravel = ravel_pytree(jax.tree.map(lambda leaf: jnp.asarray(leaf, float), params0))
    start = np.asarray(flat, float)
    if not start.size:
        raise ValueError("params0: expected at least one number, got none")
    least, most = _bounds(bounds, params0, start)
    scores = np.asarray(_scores(score, unravel(flat), data)[0])
    if scores.ndim != 1 or not np.all(np.isfinite(scores)):
        raise ValueError(f"score: expected finite numbers (m,) at params0, got {scores.shape}: {scores}")
    share = _shares(weights, scores.size)
    members = _members(groups, scores.size)
    size = np.where(start == 0.0, 1.0, np.abs(start))
    run = _Run(score, unravel, data, share, size)
    first, gradient, _ = run.evaluate(start)
    if not np.all(np.isfinite(gradient)):
        raise ValueError(f"score: expected a finite derivative at params0, got {gradient}")
    result = run.search(start, abs(first) or 1.0, least, most, max_steps, tol)
    at_bound = (result.x <= least) | (result.x >= most)
    mean, gradient, rates = run.evaluate(result.x)
    slope = float(np.max(np.abs(np.where(at_bound, 0.0, gradient * size)), initial=0.0))
    covariance = run.covariance(result.x, rates, members, ~at_bound, least, most, curvature_step)
    spread = NORMAL_95 * np.sqrt(np.diag(covariance))
    done = slope <= tol * max(abs(mean), np.finfo(float).tiny) or bool(result.success)
    status = 0 if done else int(Status.MAX_ITERS if result.status == 1 else Status.STALLED)
    info = IdentifyInfo(
        score=mean,
        start=float(share @ scores),
        lower=unravel(jnp.asarray(np.maximum(result.x - spread, least), flat.dtype)),
        upper=unravel(jnp.asarray(np.minimum(result.x + spread, most), flat.dtype)),
        covariance=covariance,
        slope=slope,
        num_iters=int(result.nit),
        evaluations=run.evaluations,
        at_bound=at_bound,
        status=np.uint32(status),
    )
    return unravel(jnp.asarray(result.x, flat.dtype)), info


@functools.partial(jit, static_argnums=0)
def _scores(score: Callable[[Any, Any], jax.Array], params: Any, data: Any) -> tuple[jax.Array, Any]:
    """Scores (m,) and their derivatives by each leaf of the parameters, forward."""

    def twice(params: Any) -> tuple[jax.Array, jax.Array]:
        found = score(params, data)
        return found, found

    rates, found = jax.jacfwd(twice, has_aux=True)(params)
    return found, rates


class _Run:
    """Mean score and its gradient as functions of flat parameters, on the host."""

    def __init__(
        self, score: Any, unravel: Callable[[jax.Array], Any], data: Any, share: np.ndarray, size: np.ndarray
    ) -> None:
        self._score, self._unravel, self._data = score, unravel, data
        self._share, self._size = share, size
        self.evaluations = 0

    def evaluate(self, x: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
        """Mean, gradient (p,) and the weighted derivatives (m, p) of the scores."""
        self.evaluations += 1
        scores, rates = _scores(
            self._score, self._unravel(jnp.asarray(x, jnp.result_type(float))), self._data
        )
        leaves = [np.asarray(leaf, float).reshape(len(self._share), -1) for leaf in jax.tree.leaves(rates)]
        counted = self._share > 0
        mean = self._share[counted] @ np.asarray(scores, float)[counted]
        rates = np.where(counted[:, None], np.concatenate(leaves, axis=1) * self._share[:, None], 0.0)
        return float(mean), rates.sum(axis=0), rates

    def search(
        self, start: np.ndarray, unit: float, least: np.ndarray, most: np.ndarray, max_steps: int, tol: float
    ) -> Any:
        from scipy.optimize import Bounds, minimize

        def cost(z: np.ndarray) -> tuple[float, np.ndarray]:
            mean, gradient, _ = self.evaluate(z * self._size)
            if not (np.isfinite(mean) and np.all(np.isfinite(gradient))):
                return 1e300, np.zeros_like(z)  # the line search comes back
            return mean / unit, gradient * self._size / unit

        minimum = minimize(
            cost, start / self._size, jac=True, method="L-BFGS-B",
            bounds=Bounds(least / self._size, most / self._size),
            options={"maxiter": max_steps, "gtol": tol, "ftol": 1e-14},
        )  # fmt: skip
        minimum.x = np.clip(minimum.x * self._size, least, most)
        return minimum

    def covariance(
        self, x: np.ndarray, rates: np.ndarray, members: np.ndarray, free: np.ndarray,
        least: np.ndarray, most: np.ndarray, step: float,
    ) -> np.ndarray:  # fmt: skip
        """Huber's covariance (p, p) of the free parameters, 0 for others; NaN where H has no inverse."""
        total = np.zeros((x.size, x.size))
        if not free.any():
            return total
        hessian = np.zeros((x.size, x.size))
        for i in np.flatnonzero(free):
            ends = np.tile(x, (2, 1))
            ends[:, i] = np.clip(x[i] + np.array([-step, step]) * self._size[i], least[i], most[i])
            low, high = (self.evaluate(end)[1] for end in ends)
            hessian[i] = (high - low) / (ends[1, i] - ends[0, i])
        hessian = 0.5 * (hessian + hessian.T)[np.ix_(free, free)]
        sums = np.zeros((members.max() + 1, int(free.sum())))
        np.add.at(sums, members, rates[:, free])
        scale = self._size[free]
        scaled = hessian * scale[:, None] * scale
        finite = np.all(np.isfinite(scaled))
        known = finite and np.linalg.eigvalsh(scaled)[0] > 1e-10 * np.abs(scaled).max()
        inverse = scale[:, None] * np.linalg.inv(scaled) * scale if known else np.full_like(hessian, np.nan)
        total[np.ix_(free, free)] = inverse @ (sums.T @ sums) @ inverse
        return total


def _bounds(bounds: Any, params0: Any, start: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    if bounds is None:
        return np.full_like(start, -np.inf), np.full_like(start, np.inf)
    expected = "bounds: expected a pair (least, most) for every leaf of params0"

    def ends(leaf: Any, pair: Any) -> np.ndarray:
        if not isinstance(pair, tuple | list) or len(pair) != 2:
            raise ValueError(f"{expected}, got {pair!r}")
        return np.stack([np.broadcast_to(np.asarray(end, float), np.shape(leaf)).ravel() for end in pair])

    least, most = np.concatenate(jax.tree.leaves(jax.tree.map(ends, params0, bounds)), axis=1)
    if not np.all((least < most) & (least <= start) & (start <= most)):
        raise ValueError(f"{expected} with least <= params0 <= most, got {bounds!r} for {params0!r}")
    return least, most


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
