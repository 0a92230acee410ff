"""Parameters of a mechanism from measured motions, by gradient, with their covariance: entry `identify`.

Owns the search for the parameters of minimum mean score, and their covariance. The user's score holds the
measurement, the prediction and their comparison. Page: docs/start/which-call.md.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

from jaxcontact._pytree import PyTree, Record
from jaxcontact.arguments import check_number, check_number_leaves, check_rows
from jaxcontact.batching.progress import Progress, Report
from jaxcontact.batching.run_settings import DEFAULT_RUN, Run, check_run
from jaxcontact.front_door import POSITIVE, checked
from jaxcontact.io import fingerprint
from jaxcontact.io.state_file import StateFile, open_state
from jaxcontact.optimize import quasi_newton
from jaxcontact.optimize.bounds import flat_bounds
from jaxcontact.optimize.many_starts import list_starts
from jaxcontact.optimize.mean_score import MeanScore, Score, SearchRound, is_definite, scores_of
from jaxcontact.status import Status

FORMAT = "jaxcontact identification, 1"
NORMAL_95 = 1.959964  # standard deviations on either side of the mean that hold 95 % of a normal distribution


@checked(
    starts=check_number_leaves,
    max_steps=check_rows,
    tol=POSITIVE,
    largest=check_number,
    curvature_step=POSITIVE,
)
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
            with a wrong model; of `identify_motions` 2. Of `pose_score` take a few times 3. None in
            `identify`, without `starts`, looks for a lower score elsewhere: see `IdentifyInfo.lower_at`.
        curvature_step: of `identify`, of the central differences of gradients that give H, in sizes of the
            parameters. If contacts change, a score has kinks, which contribute to H only across many of
            them: use 1e-2.
    """

    starts: PyTree = None
    max_steps: int | None = None
    tol: float | None = None
    largest: float | None = None
    curvature_step: float = 1e-4


SEARCH = SearchSettings()


class ParameterAccuracy(Record):
    """Accuracy of parameters; pytrees are those of the parameters, flat arrays in their order.

    Attributes:
        lower, upper: ends of the 95 % intervals, cut at the bounds; numbers of single motions vary along.
        covariance: (p, p) of the flat parameters (Huber's); NaN if the motions do not determine them.
        num_iters: steps of the search.
        evaluations: calls of the function of the user with its derivatives.
        at_bound: (p,) bool, whether the result lies on a bound; its variance is then 0, and the intervals of
            the others hold with this parameter fixed.
        ends: (n, p) results from each start, params0 first, with their `statuses` (n,).
    """

    lower: PyTree
    upper: PyTree
    covariance: np.ndarray
    num_iters: int
    evaluations: int
    at_bound: np.ndarray
    status: np.uint32
    ends: np.ndarray
    statuses: np.ndarray


class IdentifyInfo(ParameterAccuracy):
    """Accuracy of parameters of minimum mean score, see `ParameterAccuracy`.

    Attributes:
        score: weighted mean of the scores at the result.
        start: the same at the start.
        slope: largest derivative of the mean score by a parameter times the larger of its sizes at start and
            result, beyond the effect of rounding of the parameters; without parameters that a bound holds.
        scores: (n,) of the ends.
        lower_at: parameters outside the intervals, and 5 % away, with a lower score, a start to try; None if
            none was found. With `search.starts` and `search.largest` None, the lowest three of 12 points
            within the bounds, or within a factor of four beyond start and result, are followed downhill for
            at most 12 steps.
        status: 0 if `slope` and the gain predicted for Newton's next step are at most tol |score|; KINK, a
            note, if the result is a minimum at which the derivative jumps, or if a third or three times
            `search.curvature_step` gives another curvature, so that intervals depend on it; MAX_ITERS if it
            ran out of steps, STALLED if it stopped elsewhere; SINGULAR if the covariance is NaN; INACCURATE
            if the score is above `search.largest`, or lower at `lower_at`, which is a wrong minimum;
            NONFINITE if scores or their derivative are not finite at the start, which is then the end.
    """

    score: float
    start: float
    slope: float
    scores: np.ndarray
    lower_at: PyTree


@checked(params0=check_number_leaves, data=check_number_leaves)
def identify(
    score: Callable[[PyTree, PyTree], jax.Array],
    params0: PyTree,
    data: PyTree,
    *,
    bounds: PyTree = None,
    groups: np.ndarray | None = None,
    weights: np.ndarray | None = None,
    search: SearchSettings = SEARCH,
    run: Run = DEFAULT_RUN,
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
        search: more starts, of whose ends without a failure, or of all, the one of least score is the result;
            limits of the search (BFGS within bounds; a step to a score that is not finite is shortened).
        run: checkpoint, progress, about. The checkpoint is a file, written after every step: an interrupted
            run, called again alike, resumes and finds the same bits. `progress(step, max_steps,
            Progress)` is called after every step, with the length of the gradient per size of a parameter.

    Returns:
        Parameters and `IdentifyInfo`.

    Raises:
        TypeError: a score that is not a function.
        ValueError: scores of another shape than (m,), not finite at the start by data that are not; bounds of
            another shape, in the wrong order or without a start; starts of another shape; groups or weights
            of the wrong shape, weights below 0 or all 0; no parameters; a checkpoint of another run, with the
            names of what differs, or a damaged one.

    Status: see `IdentifyInfo`.

    Derivative: none; a host-level driver.
    """
    _check_search(score, params0)
    check_run(run, unused=("chunk", "devices", "executor"))
    starts = list_starts(params0, search.starts)
    means = [_make_mean_score(score, start, data, bounds, weights) for start in starts]
    members = _number_groups(groups, means[0].share.size)
    settings = search.max_steps or 200, search.tol or 1e-6, search.curvature_step
    path = None if run.checkpoint is None else Path(run.checkpoint)
    about: dict[str, object] = {}
    if path is not None:
        program = scores_of.trace(score, params0, data)
        numbers = {"starts": starts, "data": data, "bounds": bounds, "weights": weights}
        about = describe_search(program, run, settings, numbers)
    with open_state(path):
        ends = _search_all(means, settings, StateFile(path, about), run.progress)
    results = [_account_for_end(mean, *end, members, search) for mean, end in zip(means, ends, strict=True)]
    scores = np.array([info.score for _, info in results])
    statuses = np.array([info.status for _, info in results], np.uint32)
    good = ~np.asarray(Status.failed(statuses))
    counted = (good | ~good.any()) & np.isfinite(scores)
    best = int(np.argmin(np.where(counted, scores, np.inf)))
    flat = np.stack([np.asarray(ravel_pytree(found)[0]) for found, _ in results])
    return results[best][0], results[best][1].replace(ends=flat, scores=scores, statuses=statuses)


def _make_mean_score(
    score: Score, params0: PyTree, data: PyTree, bounds: PyTree, weights: PyTree
) -> MeanScore:
    """Make the function to be minimised, with its score at the start."""
    flat, unravel = ravel_pytree(jax.tree.map(lambda leaf: jnp.asarray(leaf, float), params0))
    start = np.asarray(flat, float)
    limits = flat_bounds(bounds, params0, start)
    scores = _scores_at_start(score, unravel(flat), data)
    mean = MeanScore(score, unravel, data, _normalise_weights(weights, scores.size), start, limits)
    mean.start_score = float(mean.share @ scores)
    return mean


def describe_search(
    program: jax.stages.Traced, run: Run, settings: tuple[float, ...], numbers: dict[str, PyTree]
) -> dict[str, object]:
    """Collect by name what determines a search for parameters."""
    return {
        "format": FORMAT,
        "about": run.about,
        **fingerprint.versions(),
        "platform": jax.default_backend(),
        "score": fingerprint.of_program(program),
        "search": list(settings),
        **{name: fingerprint.of_numbers(value) for name, value in numbers.items()},
    }


def _search_all(
    means: list[MeanScore], settings: tuple[int, float, float], file: StateFile, progress: Report | None
) -> list[tuple[np.ndarray, int]]:
    """Search from every start in turn; return parameters (p,) and status bits at the ends."""
    stored = file.load() or {}
    ends = list(zip(stored.get("ends", ()), map(int, stored.get("statuses", ())), strict=True))
    for mean, counts in zip(means, stored.get("counts", np.zeros((0, 2), int)).tolist(), strict=False):
        mean.num_iters, mean.evaluations = counts

    def save(number: int, at: SearchRound | None) -> None:
        arrays = {
            "ends": np.array([x for x, _ in ends]), "statuses": np.array([status for _, status in ends]),
            "counts": np.array([(score.num_iters, score.evaluations) for score in means[: number + 1]]),
        }  # fmt: skip
        file.save(arrays | ({} if at is None else _arrays_of_round(at)))

    for number in range(len(ends), len(means)):
        mean = means[number]
        at, stored = _round_from_arrays(stored) if "x" in stored else mean.begin(), {}
        if not at.point.is_finite:
            ends.append((mean.start, int(Status.NONFINITE)))
            save(number, None)
            continue

        def report(at: SearchRound, number: int = number, mean: MeanScore = mean) -> None:
            save(number, at)
            if progress is not None:
                phase = f"start {number + 1} of {len(means)}"
                reached = Progress(at.point.value, mean.slope_at(at.point), phase=phase)
                progress(at.point.num_iters, settings[0], reached)

        ends.append(mean.search(settings, at, report))
        save(number, None)
    return ends


def _arrays_of_round(at: SearchRound) -> dict[str, np.ndarray]:
    """Convert the state of a search to arrays for its file."""
    point = at.point
    numbers = {name: np.asarray(getattr(point, name)) for name in ("x", "value", "gradient", "curvature")}
    return numbers | {"round": np.array([at.number, point.num_iters, point.num_restarts])}


def _round_from_arrays(stored: dict[str, np.ndarray]) -> SearchRound:
    """Invert `_arrays_of_round`."""
    number, num_iters, num_restarts = stored["round"].tolist()
    x, gradient, curvature = (stored[name] for name in ("x", "gradient", "curvature"))
    point = quasi_newton.SearchPoint(x, float(stored["value"]), gradient, curvature, num_iters, num_restarts)
    return SearchRound(number, point)


def _account_for_end(
    mean_score: MeanScore, x: np.ndarray, status: int, members: np.ndarray, search: SearchSettings
) -> tuple[PyTree, IdentifyInfo]:
    """Compute the covariance at the end of a search, and the account of it."""
    (lower, upper), curvature_step = mean_score.bounds, search.curvature_step
    mean, _, rates = mean_score.evaluate(x)
    at_bound = (x <= lower) | (x >= upper)
    hessian, slope = np.full((x.size, x.size), np.nan), np.nan
    if not status & int(Status.NONFINITE):
        hessian, slope, _ = mean_score.local_account(x, curvature_step)
    covariance = _estimate_covariance(hessian, rates, members, ~at_bound)
    spread = NORMAL_95 * np.sqrt(np.diag(covariance))
    if not np.all(np.isfinite(covariance)):
        status |= int(Status.SINGULAR)
    elif mean_score.is_rough(x, hessian, curvature_step):
        status |= int(Status.KINK)
    lower_at = None
    if search.largest is None and search.starts is None and not Status.failed(np.uint32(status)):
        lower_at = mean_score.find_lower(x, mean, spread)
    if lower_at is not None or (search.largest is not None and not mean <= search.largest):
        status |= int(Status.INACCURATE)
    lowest, highest, found = (
        mean_score.unravel(jnp.asarray(z, float))
        for z in (np.maximum(x - spread, lower), np.minimum(x + spread, upper), x)
    )
    info = IdentifyInfo(
        score=mean,
        start=mean_score.start_score,
        lower=lowest,
        upper=highest,
        covariance=covariance,
        slope=slope,
        num_iters=mean_score.num_iters,
        evaluations=mean_score.evaluations,
        at_bound=at_bound,
        status=np.uint32(status),
        ends=x[None],
        scores=np.array([mean]),
        lower_at=None if lower_at is None else mean_score.unravel(jnp.asarray(lower_at, float)),
        statuses=np.array([status], np.uint32),
    )
    return found, info


def _check_search(score: object, params0: PyTree) -> None:
    """Raise TypeError or ValueError if an argument of `identify` is of another type or out of range."""
    if not callable(score):
        raise TypeError(f"score: expected a function (params, data) -> (m,), got {type(score).__name__}")
    flat = ravel_pytree(params0)[0]
    check_number("params0", flat)
    if not flat.size:
        raise ValueError("params0: expected at least one number, got none")


def _scores_at_start(score: Score, params: PyTree, data: PyTree) -> np.ndarray:
    """Compute scores (m,); raise ValueError for another shape, or for data that make them not finite."""
    scores = np.asarray(scores_of(score, params, data)[0])
    has_data = all(np.all(np.isfinite(np.asarray(leaf, float))) for leaf in jax.tree.leaves(data))
    if scores.ndim != 1 or not (has_data or np.all(np.isfinite(scores))):
        raise ValueError(f"score: expected finite numbers (m,) at params0, got {scores.shape}: {scores}")
    return scores


def _estimate_covariance(
    hessian: np.ndarray, rates: np.ndarray, members: np.ndarray, free: np.ndarray
) -> np.ndarray:
    """Return Huber's covariance (p, p) of the free parameters, 0 for others; NaN if H has no inverse."""
    total = np.zeros_like(hessian)
    if not free.any():
        return total
    part = hessian[np.ix_(free, free)]
    sums = np.zeros((members.max() + 1, int(free.sum())))
    np.add.at(sums, members, rates[:, free])
    if is_definite(part):
        root = np.sqrt(np.diag(part))
        pulled = np.linalg.solve(part / root[:, None] / root, (sums / root).T) / root[:, None]
        total[np.ix_(free, free)] = pulled @ pulled.T
    else:
        total[np.ix_(free, free)] = np.nan
    return total


def _normalise_weights(weights: np.ndarray | None, count: int) -> np.ndarray:
    """Divide the weights of scores by their sum; raise ValueError if they do not fit."""
    weights = np.ones(count) if weights is None else np.asarray(weights, float)
    if weights.shape != (count,):
        raise ValueError(f"weights: expected shape ({count},) as the scores, got {weights.shape}")
    if not np.all(np.isfinite(weights) & (weights >= 0)) or not weights.sum() > 0:
        raise ValueError("weights: expected finite numbers >= 0, one of them > 0")
    return weights / weights.sum()


def _number_groups(groups: np.ndarray | None, count: int) -> np.ndarray:
    """Number the groups of scores 0, 1, ...; raise ValueError if they do not fit."""
    groups = np.arange(count) if groups is None else np.asarray(groups)
    if groups.shape != (count,):
        raise ValueError(f"groups: expected shape ({count},) as the scores, got {groups.shape}")
    return np.unique(groups, return_inverse=True)[1].reshape(count)
