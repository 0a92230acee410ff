"""Parameters that motions share, and the numbers of each motion, such as its start: entry `identify_motions`.

Levenberg and Marquardt's method on residuals. The numbers of a motion enter its own residuals alone, so each
step eliminates them motion by motion. Page: docs/start/which-call.md.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

from jaxcontact._pytree import PyTree
from jaxcontact.arguments import check_float_leaves, check_number_leaves
from jaxcontact.batching.progress import Progress, Report
from jaxcontact.batching.run_settings import DEFAULT_RUN, Run, check_run
from jaxcontact.front_door import checked
from jaxcontact.io.state_file import StateFile, open_state
from jaxcontact.optimize.bounds import flat_bounds
from jaxcontact.optimize.identify import (
    NORMAL_95,
    SEARCH,
    ParameterAccuracy,
    SearchSettings,
    describe_search,
)
from jaxcontact.optimize.many_starts import count_rows, list_starts
from jaxcontact.optimize.motion_points import (
    MotionPoint,
    covariance_of,
    eliminate_motions,
    gradient_of,
    mark_used,
)
from jaxcontact.precision import jit
from jaxcontact.status import Status

FIRST_DAMPING = 1e-2  # of the method, as a share of the squares of the derivatives
ENOUGH = 1e-3  # minimum fraction of the predicted descent
RISE = 5e-3  # maximum fraction of the least cost by which a step may lead above it
PATIENCE, PROGRESS = 8, 1e-3  # the search ends after so many steps that gain less than a fraction of the cost
KINK_STEP = 1e-3  # of a Newton step; a slope that changes sign within it does so at a kink

Residuals = Callable[[PyTree, PyTree, PyTree], jax.Array]


class MotionsInfo(ParameterAccuracy):
    """Accuracy of parameters that motions share, see `ParameterAccuracy`; the covariance is by motion.

    Attributes:
        misfit: sum of squares over the number of residuals that are not zero less that of the unknowns: 1 on
            average if the model is right and residuals are in units of their noise.
        motion_misfits: (m,) the same of each motion alone, with its own numbers: one far above the others is
            at a wrong minimum, as from a bad guess, or not of the model.
        misfits: (n,) of the ends.
        status: 0 if a further step is predicted to gain at most `tol`; INACCURATE if the misfit is above
            `search.largest`, as at a wrong minimum or with a wrong model; KINK, a note, if no step descends
            because the slope changes sign, or the residuals jump, within a thousandth of one; STALLED if
            none descends without that; MAX_ITERS; SINGULAR if the covariance is NaN; NONFINITE if residuals
            or their derivatives are not finite at the start, which is then the end.
    """

    misfit: float
    motion_misfits: np.ndarray
    misfits: np.ndarray


@checked(params0=check_number_leaves, per_motion0=check_number_leaves, data=check_number_leaves)
def identify_motions(
    residuals: Residuals,
    params0: PyTree,
    per_motion0: PyTree,
    data: PyTree,
    *,
    bounds: PyTree = None,
    search: SearchSettings = SEARCH,
    run: Run = DEFAULT_RUN,
) -> tuple[PyTree, PyTree, MotionsInfo]:
    """Find parameters that all motions share and the numbers of each, of least sum of squared residuals.

    For m motions, a model with contacts, and start states that are measured with noise: `per_motion0` holds
    guesses of the starts. A host driver; the residuals are compiled.

    Args:
        residuals: (params, per_motion, data) -> (m, r), of each motion in units of their noise, such as those
            of `pose_residuals`; row i depends on row i of `per_motion0` alone. A residual times weight 0 is
            left out.
        params0: pytree of floats to start from.
        per_motion0: pytree of floats (m, ...), the numbers of each motion.
        data: pytree of arrays, passed to `residuals`.
        bounds: pytree as params0 with pairs (minimum, maximum) for leaves, or None.
        search: more starts, of whose ends the best is the result; limits of the search.
        run: checkpoint, progress, about, as of `identify`; `progress(step, max_steps, Progress)`.

    Returns:
        params, per_motion, `MotionsInfo`.

    Raises:
        TypeError: residuals that are no function.
        ValueError: residuals of another shape than (m, r), or not finite at the start by data that are not;
            bounds of another shape, in the wrong order or without the starts; starts of another structure; a
            checkpoint of another run, with the names of what differs, or a damaged one.

    Status: see `MotionsInfo`.

    Derivative: none; a host-level driver.
    """
    if not callable(residuals):
        expected = "a function (params, per_motion, data) -> (m, r)"
        raise TypeError(f"residuals: expected {expected}, got {type(residuals).__name__}")
    check_run(run, unused=("chunk", "devices", "executor"))
    settings = search.max_steps or 50, search.tol or 1e-3
    check_float_leaves("params0", params0)
    check_float_leaves("per_motion0", per_motion0)
    params0, per_motion0 = (
        jax.tree.map(lambda leaf: jnp.asarray(leaf, float), tree) for tree in (params0, per_motion0)
    )
    many = list_starts(params0, search.starts)
    flat = [np.asarray(ravel_pytree(start)[0], float) for start in many]
    every = [flat_bounds(bounds, start, x) for start, x in zip(many, flat, strict=True)]
    problem = _Problem(residuals, params0, per_motion0, data, every[0])
    path, about = None if run.checkpoint is None else Path(run.checkpoint), {}
    if path is not None:
        numbers = {"starts": many, "per_motion0": per_motion0, "data": data, "bounds": bounds}
        about = describe_search(problem.program(), run, settings, numbers)
    with open_state(path):
        found = _search_all(problem, flat, settings, StateFile(path, about), run.progress)
    statuses = np.array([status for _, _, status in found], np.uint32)
    misfits = np.array([problem.misfit(point) for point, _, _ in found])
    best = int(np.argmin(misfits))
    point, num_iters, _ = found[best]
    minima, maxima = every[0]
    at_bound = (point.x <= minima) | (point.x >= maxima)
    covariance = covariance_of(point, ~at_bound)
    statuses[misfits > (2.0 if search.largest is None else search.largest)] |= int(Status.INACCURATE)
    if not np.all(np.isfinite(covariance)):
        statuses[best] |= int(Status.SINGULAR)
    spread = NORMAL_95 * np.sqrt(np.diag(covariance))
    lower, upper, x = (
        problem.params(jnp.asarray(z, float))
        for z in (np.maximum(point.x - spread, minima), np.minimum(point.x + spread, maxima), point.x)
    )
    return x, problem.per_motion(jnp.asarray(point.per_motion, float)), MotionsInfo(
        misfit=float(misfits[best]), motion_misfits=problem.motion_misfits(point), lower=lower, upper=upper,
        covariance=covariance, num_iters=num_iters,
        evaluations=problem.evaluations, at_bound=at_bound, ends=np.stack([end.x for end, _, _ in found]),
        misfits=misfits, statuses=statuses, status=statuses[best],
    )  # fmt: skip


@functools.partial(jit, static_argnames="residuals")
def _with_derivatives(
    residuals: Residuals, params: PyTree, per_motion: PyTree, data: PyTree, along: PyTree
) -> PyTree:
    """Compute residuals (m, r) and their derivatives (n, m, r) along n directions (params, per_motion)."""

    def rates_along(direction: PyTree) -> tuple[jax.Array, jax.Array]:
        return jax.jvp(lambda p, o: residuals(p, o, data), (params, per_motion), direction)

    values, rates = jax.vmap(rates_along)(along)
    return values[0], rates


class _Walk(NamedTuple):
    """Where a search stands: its point, the best one, the costs after every step, and the damping."""

    point: MotionPoint
    best: MotionPoint
    costs: list[float]
    damping: float


def _search_all(
    problem: _Problem, starts: list[np.ndarray], settings: tuple[int, float], file: StateFile,
    progress: Report | None,
) -> list[tuple[MotionPoint, int, int]]:  # fmt: skip
    """Search from every start in turn; return points, numbers of steps and status bits at the ends."""
    stored = file.load() or {}
    names = ("ends", "ends_of_motions", "counts")
    rows = zip(*(stored.get(name, ()) for name in names), strict=True)
    ends = [(problem.evaluate(x, per_motion), *counts.tolist()) for x, per_motion, counts in rows]

    def save(walk: _Walk | None) -> None:
        arrays = {
            "ends": np.array([point.x for point, _, _ in ends]),
            "ends_of_motions": np.array([point.per_motion for point, _, _ in ends]),
            "counts": np.array([counts for _, *counts in ends], int),
            "evaluations": np.array(problem.evaluations),
        }
        if walk is not None:
            arrays |= {"x": np.array([walk.point.x, walk.best.x]), "costs": np.array(walk.costs)}
            arrays["per_motion"] = np.array([walk.point.per_motion, walk.best.per_motion])
            arrays["damping"] = np.array(walk.damping)
        file.save(arrays)

    def report(walk: _Walk) -> None:
        save(walk)
        if progress is not None:
            phase = f"start {len(ends) + 1} of {len(starts)}"
            at = Progress(problem.misfit(walk.point), problem.slope(walk.point), phase=phase)
            progress(len(walk.costs) - 1, settings[0], at)

    for x in starts[len(ends) :]:
        if "x" in stored:
            point, best = (
                problem.evaluate(*pair) for pair in zip(stored["x"], stored["per_motion"], strict=True)
            )
            if np.array_equal(point.x, best.x) and np.array_equal(point.per_motion, best.per_motion):
                best = point
            walk = _Walk(point, best, stored["costs"].tolist(), float(stored["damping"]))
        else:
            point = problem.evaluate(x, problem.per_motion0)
            walk = _Walk(point, point, [point.cost], FIRST_DAMPING)
        problem.evaluations, stored = int(stored.get("evaluations", problem.evaluations)), {}
        ends.append(problem.search(walk, settings, report))
        save(None)
    problem.evaluations = int(stored.get("evaluations", problem.evaluations))
    return ends


class _Problem:
    """The residuals as functions of flat numbers, on the host, and the search."""

    def __init__(
        self, residuals: Residuals, params0: PyTree, per_motion0: PyTree, data: PyTree, bounds: PyTree
    ) -> None:
        self._residuals, self._data, self._bounds = residuals, data, bounds
        flat, self.params = ravel_pytree(params0)
        count = count_rows("per_motion0", per_motion0)
        first_row, unravel = ravel_pytree(jax.tree.map(lambda leaf: leaf[0], per_motion0))
        self.per_motion = jax.vmap(unravel)
        self.per_motion0 = np.asarray(jax.vmap(lambda row: ravel_pytree(row)[0])(per_motion0), float)
        self.evaluations, self._num_shared = 0, flat.size
        unit = jnp.eye(flat.size + first_row.size)
        rows = jnp.broadcast_to(unit[:, None, flat.size :], (len(unit), count, first_row.size))
        self._along = jax.vmap(self.params)(unit[:, : flat.size]), jax.vmap(self.per_motion)(rows)
        try:
            jax.eval_shape(residuals, params0, per_motion0, data)
        except (TypeError, ValueError, IndexError) as error:
            shapes = jax.tree.map(jnp.shape, per_motion0)
            raise ValueError(
                f"per_motion0: expected shapes that residuals take, got {shapes}: {error}"
            ) from error
        values = self.evaluate(np.asarray(flat, float), self.per_motion0)
        leaves = [np.asarray(leaf) for leaf in jax.tree.leaves(data)]
        has_data = all(np.all(np.isfinite(leaf)) for leaf in leaves if leaf.dtype.kind in "iufb")
        is_finite = np.all(np.isfinite(values.values))
        if values.values.ndim != 2 or len(values.values) != count or not (has_data or is_finite):
            raise ValueError(
                f"residuals: expected finite numbers ({count}, r) at params0 and per_motion0, got "
                f"{values.values.shape}: {values.values}"
            )

    def evaluate(self, x: np.ndarray, per_motion: np.ndarray) -> MotionPoint:
        """Compute the residuals and their derivatives."""
        self.evaluations += 1
        inputs = self.params(jnp.asarray(x, float)), self.per_motion(jnp.asarray(per_motion, float))
        values, rates = _with_derivatives(self._residuals, *inputs, self._data, self._along)
        rates = np.moveaxis(np.asarray(rates, float), 0, -1)
        return MotionPoint(
            x,
            per_motion,
            np.asarray(values, float),
            rates[..., : self._num_shared],
            rates[..., self._num_shared :],
        )

    def misfit(self, point: MotionPoint) -> float:
        """Compute the misfit of all motions, see `MotionsInfo`."""
        unknowns = point.x.size + point.per_motion.size
        return 2.0 * point.cost / max(int(mark_used(point).sum()) - unknowns, 1)

    def motion_misfits(self, point: MotionPoint) -> np.ndarray:
        """Compute the misfit (m,) of each motion."""
        excess = mark_used(point).sum(axis=1) - point.per_motion.shape[1]
        return np.asarray(np.sum(point.values**2, axis=1) / np.maximum(excess, 1))

    def program(self) -> jax.stages.Traced:
        """Trace the residuals with their derivatives."""
        inputs = self.params(jnp.zeros(self._num_shared)), self.per_motion(jnp.asarray(self.per_motion0))
        traced: jax.stages.Traced = _with_derivatives.trace(self._residuals, *inputs, self._data, self._along)
        return traced

    def search(
        self, walk: _Walk, settings: tuple[int, float], report: Callable[[_Walk], None]
    ) -> tuple[MotionPoint, int, int]:
        """Return the best point of the search, its number of steps and its status bits.

        A step may rise a little above the best point (after Grippo, Lampariello & Lucidi 1986), so that it
        leaves small jumps of the residuals behind. `report` is called after every step; a search from its
        argument goes on as this one.
        """
        (point, best, costs, damping), (max_steps, tol) = walk, settings
        if not np.isfinite(point.cost):
            return point, 0, int(Status.NONFINITE)
        while True:
            number = len(costs) - 1
            if min(costs[:-PATIENCE], default=np.inf) - best.cost < PROGRESS * best.cost:
                return best, number, self._end_status(best)
            if number == max_steps:
                return best, number, int(Status.MAX_ITERS)
            enough, growth = tol * self.misfit(point), 2.0
            if self._step(point, 0.0)[1] <= enough:
                return best, number, 0 if best is point else self._end_status(best)
            while True:
                step, predicted = self._step(point, damping)
                new = self._point_after(point, step)
                if max(point.cost, (1.0 + RISE) * best.cost) - new.cost > ENOUGH * predicted:
                    break
                damping, growth = damping * growth, 2.0 * growth
                if predicted <= enough:
                    return best, number, self._end_status(best)
            point, damping = new, max(damping / 5.0, 1e-12)
            costs = [*costs, point.cost]
            best = point if point.cost < best.cost else best
            report(_Walk(point, best, costs, damping))

    def _point_after(self, point: MotionPoint, step: tuple[np.ndarray, np.ndarray]) -> MotionPoint:
        return self.evaluate(np.clip(point.x + step[0], *self._bounds), point.per_motion + step[1])

    def _end_status(self, point: MotionPoint) -> int:
        """Return KINK if a small part of a step that should descend rises, or its end does; else STALLED."""
        step = self._step(point, 0.0)[0]
        near = self._point_after(point, (KINK_STEP * step[0], KINK_STEP * step[1]))
        by_params, by_motion = gradient_of(near)
        rises = by_params @ step[0] + np.sum(by_motion * step[1]) > 0.0 or near.cost > point.cost
        return int(Status.KINK if rises and np.isfinite(near.cost) else Status.STALLED)

    def _step(self, point: MotionPoint, damping: float) -> tuple[tuple[np.ndarray, np.ndarray], float]:
        """Return a step of the parameters and of the numbers per motion, and its predicted descent."""
        by_params, by_motion = gradient_of(point)
        lower, upper = self._bounds
        free = ~(((point.x <= lower) & (by_params > 0)) | ((point.x >= upper) & (by_params < 0)))
        schur, reduced, mixed, per_motion = eliminate_motions(point, damping)
        shared = np.zeros_like(point.x)
        if free.any():
            shared[free] = -np.linalg.lstsq(schur[np.ix_(free, free)], reduced[free], rcond=None)[0]
        shared = np.clip(point.x + shared, lower, upper) - point.x
        motion_step = -np.linalg.solve(
            per_motion, (by_motion + np.einsum("mpk,p->mk", mixed, shared))[..., None]
        )[..., 0]
        change = np.einsum("mrp,p->mr", point.by_params, shared) + np.einsum(
            "mrk,mk->mr", point.by_motion, motion_step
        )
        return (shared, motion_step), -float(np.sum(change * point.values) + 0.5 * np.sum(change**2))

    def slope(self, point: MotionPoint) -> float:
        """Compute the length of the gradient of half the sum of squares per size of a parameter."""
        return float(np.linalg.norm(gradient_of(point)[0] * np.where(point.x != 0.0, point.x, 1.0)))
