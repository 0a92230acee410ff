"""Optimisation of controls through a motion: an augmented Lagrangian, or optax along the constraints.

Owns the loop: steps, recovery from failed motions, a checkpoint to resume from, the report of the result. The
motion is in the user's functions. Entry function `trajectory`; pages: docs/methods/planning.md,
docs/understand/long-runs.md.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Union

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.flatten_util import ravel_pytree

from jaxcontact._pytree import PyTree, Record
from jaxcontact.arguments import check_float_leaves, check_positive, check_whole
from jaxcontact.batching.progress import Progress, Report
from jaxcontact.batching.run_settings import DEFAULT_RUN, Run, check_run
from jaxcontact.front_door import POSITIVE, checked
from jaxcontact.io import fingerprint
from jaxcontact.io.state_file import open_state
from jaxcontact.optimize import resume
from jaxcontact.optimize.augmented_lagrangian import AugmentedLagrangian
from jaxcontact.optimize.bounds import flat_bounds
from jaxcontact.optimize.motion_program import MotionProgram, largest
from jaxcontact.optimize.piecewise_newton import PiecewiseNewton
from jaxcontact.optimize.walks import AugmentedWalk, PieceWalk, Reached, TangentWalk
from jaxcontact.status import Status

if TYPE_CHECKING:  # callers with an optimizer have imported optax
    import optax


@checked()
@dataclasses.dataclass(frozen=True)
class OneSided:
    """Descend by the one-sided derivative where the gradient does not: an `optimizer` of `trajectory`.

    Attributes:
        optimizer: an optax transformation, for the direction of descent instead of the gradient.
        rate: (controls, direction) -> one-sided derivative of the objective, such as `ess.b_derivative`
            gives. As it costs a motion, it is called at the start, after a step that needed it, and after a
            step that raised the cost although the gradient predicted descent. Not together with constraints:
            penalise them in the objective.
    """

    optimizer: optax.GradientTransformation
    rate: Callable[[PyTree, PyTree], jax.Array]


class Search(NamedTuple):
    """Settings of a search as arguments of `trajectory`; `about` has the items that determine it."""

    optimizer: PyTree
    num_steps: int
    tol: float
    about: Mapping[str, object]
    scale: PyTree = None


class TrajectoryInfo(Record):
    """History and result of an optimisation.

    Attributes:
        cost: of the result, by the exact motion, or at its level of smoothing if the exact motion fails.
        residual: largest constraint violation of the result at the same level, 0 without constraints.
        slope: length of the gradient along the constraints at the result, per `scale` of the controls; of
            controls that no bound stops.
        costs: (steps + 1,) at the start and after each step.
        residuals: (steps + 1,) largest violation at the same times.
        path: (steps + 1, n) controls at the same times, flat in the order of their pytree.
        evaluations: motions computed, with their derivatives.
        corners: steps at which the gradient did not descend as predicted: another direction was searched, or
            an augmented Lagrangian stepped across a kink or jump.
        status: 0; UNTERMINATED if the constraints are not met within `tol`; NONFINITE if the motion fails
            from the start, after every step that was tried from the last point however short, or, with
            smoothing, at the exact level from there. Of an augmented Lagrangian and
            of `PiecewiseNewton` also MAX_ITERS if the steps ended before a minimum, and KINK, a note, if the
            search ended at a kink or jump, where no step along its direction descends; a minimum at a kink
            that `PiecewiseNewton` knows has 0.
        best_step: number of the step whose controls were returned, 0 for the start.
        smoothing: (steps + 1,) level that costs and violations are of, 0 for the exact motion.
    """

    cost: float
    residual: float
    slope: float
    costs: np.ndarray
    residuals: np.ndarray
    path: np.ndarray
    evaluations: int
    corners: int
    status: np.uint32
    best_step: int
    smoothing: np.ndarray


Optimizer = Union[AugmentedLagrangian, PiecewiseNewton, OneSided, "optax.GradientTransformation"]
DEFAULT_OPTIMIZER = AugmentedLagrangian()


@checked(num_steps=check_whole, tol=POSITIVE)
def trajectory(
    objective: Callable[..., jax.Array],
    controls0: PyTree,
    *,
    optimizer: Optimizer = DEFAULT_OPTIMIZER,
    constraints: Callable[..., jax.Array] | None = None,
    scale: PyTree = None,
    num_steps: int = 100,
    tol: float = 1e-9,
    run: Run = DEFAULT_RUN,
) -> tuple[PyTree, TrajectoryInfo]:
    """Find controls of minimum cost, objective(controls) -> min subject to constraints(controls) = 0.

    By an `AugmentedLagrangian`, the default, or by an optax transformation: then every step moves along the
    tangent space of the constraints by the update for the gradient, and back towards the constraints by a
    Newton step of minimum length. The result is the best point visited: the one of minimum cost + sum
    |lambda| max |constraints|, lambda the multipliers at the last point. From that point Newton's method
    continues until the constraints hold within `tol`; if they hold only from the last point, or the cost is
    lower from it, the last point gives the result. A host driver; the functions are compiled.

    With `AugmentedLagrangian(smoothing=...)` the search goes through levels of smoothing in turn, each from
    the end of the one before and of 80 steps at most, to the exact motion, of which the result is. To begin a
    level is one of the `num_steps`. A level whose motion fails from there is skipped.

    A motion that fails (a cost, constraints or derivatives that are not finite) shortens the step; where no
    step has a motion, the search ends, and the best point so far is the result.

    Args:
        objective: controls -> cost (), NaN if the motion failed; calls motions such as `simulate.rollout`.
            With smoothing (controls, smoothing) -> cost, and so `constraints`.
        controls0: pytree of floats to start from, no integers; constraints need not hold.
        optimizer: `AugmentedLagrangian`, in reverse mode; an optax transformation, e.g. optax.adam(1e-2); or,
            at kinks, `PiecewiseNewton` or `OneSided`.
        constraints: controls -> (k,), to be zero; k less than the number of controls.
        scale: size of a control, a number or a pytree as controls0, such as the range of an actuator; None is
            half the range of `optimizer.bounds` where that is finite, else one number for each leaf: 1, or
            the root mean square of the leaf if that is larger. So zeros and small noise have the same scale;
            where controls are much smaller than 1, give it.
        num_steps: steps of the optimizer at most.
        tol: bound on every constraint at the end.
        run: checkpoint, progress, about. The checkpoint is a file, written after every tenth step and the
            last; an existing file is continued. It stores versions, `controls0`, the programs of objective,
            constraints, `OneSided.rate` and optimizer with all numbers that they close over, and `run.about`,
            a name for what the programs do not contain, such as data that a host callback reads or
            `PiecewiseNewton.pieces`: these determine the run. A call with more `num_steps` resumes; one with
            fewer returns the same result as without the file. `progress(done, num_steps,
            Progress)` is called after every step, with a slope as that of `TrajectoryInfo`.

    Returns:
        controls, TrajectoryInfo.

    Raises:
        ValueError: both `constraints` and `OneSided` or `PiecewiseNewton`; bounds without the start; a scale
            that is not > 0; a `checkpoint` of another run, with the names of what differs, or a damaged one.
        TypeError: a leaf of `controls0` that is not of floats; with smoothing a function of controls alone.
    """
    if constraints is not None and isinstance(optimizer, OneSided | PiecewiseNewton):
        name = type(optimizer).__name__
        raise ValueError(f"optimizer: {name} takes no constraints; penalise them in the objective")
    search = Search(optimizer, num_steps, tol, {}, scale)
    if _smoothing_of(optimizer):
        for name, function in (("objective", objective), ("constraints", constraints)):
            _check_takes_smoothing(name, function)
    if constraints is None:
        return optimise(lambda z, *level: (objective(z, *level), jnp.zeros(0)), controls0, search, run)
    return optimise(lambda z, *level: (objective(z, *level), constraints(z, *level)), controls0, search, run)


def _smoothing_of(optimizer: Optimizer) -> tuple[float, ...]:
    """Return the levels of smoothing of an optimizer, none but of an augmented Lagrangian."""
    return optimizer.smoothing if isinstance(optimizer, AugmentedLagrangian) else ()


def _check_takes_smoothing(name: str, function: Callable[..., jax.Array] | None) -> None:
    """Raise TypeError for a function that cannot be called with controls and a level of smoothing."""
    if function is None:
        return
    try:
        inspect.signature(function).bind(None, None)
    except ValueError:  # a callable without a signature
        return
    except TypeError:
        raise TypeError(
            f"{name}: expected a function (controls, smoothing), as optimizer.smoothing is given, got "
            f"{name}{inspect.signature(function)}"
        ) from None


def optimise(
    outcome: Callable[..., tuple[jax.Array, jax.Array]], controls0: PyTree, search: Search, run: Run
) -> tuple[PyTree, TrajectoryInfo]:
    """Optimise as `trajectory` a cost and constraints from one motion."""
    check_run(run, unused=("chunk", "devices", "executor"))
    check_float_leaves("controls0", controls0)
    path = None if run.checkpoint is None else Path(run.checkpoint)
    search = search._replace(about={"about": run.about, **search.about})
    with open_state(path):
        return _optimise(outcome, controls0, search, path, run.progress)


def _optimise(
    outcome: Callable[..., tuple[jax.Array, jax.Array]],
    controls0: PyTree,
    search: Search,
    checkpoint: Path | None,
    report: Report | None,
) -> tuple[PyTree, TrajectoryInfo]:
    """Optimise with a checkpoint that this process alone has open."""
    num_steps, about, optimizer = search.num_steps, dict(search.about), search.optimizer
    flat, unravel = ravel_pytree(controls0)
    if not flat.size:
        raise ValueError("controls0: expected at least one number, got none")
    flat = lax.convert_element_type(flat, flat.dtype)  # a weak type would be lost in a step: compiled twice
    bounds = _bounds_of(optimizer, controls0)
    scale = _choose_scale(search.scale, controls0, flat, bounds)
    bounds = (bounds[0] / np.asarray(scale, float), bounds[1] / np.asarray(scale, float))
    rate, transformation = None, optimizer
    if isinstance(optimizer, OneSided):
        rate, transformation = optimizer.rate, optimizer.optimizer
    has_own_steps = isinstance(optimizer, AugmentedLagrangian | PiecewiseNewton)
    program = MotionProgram(
        outcome, rate, None if has_own_steps else transformation, unravel, scale, bounds,
        _smoothing_of(optimizer),
    )  # fmt: skip
    s = flat / scale
    reached: Reached = program.evaluate_from_level(s, 0)
    if not program.is_finite(*reached):
        return unravel(flat), _report_failed_start(program, flat, reached)
    walk: TangentWalk | AugmentedWalk | PieceWalk
    if isinstance(optimizer, AugmentedLagrangian):
        walk = AugmentedWalk(program, optimizer, bounds, search.tol, (s, reached))
        about = about | {"optimizer": repr(dataclasses.replace(optimizer, bounds=None)), "tol": search.tol}
    elif isinstance(optimizer, PiecewiseNewton):
        walk = PieceWalk(program, optimizer, unravel, scale, (s, reached))
        about = about | {"optimizer": f"PiecewiseNewton, radius {optimizer.radius}"}
    else:
        walk = TangentWalk(program, transformation, rate is not None, s)
    steps = resume.Steps(
        state=walk.first_state, costs=[], residuals=[], visited=[np.asarray(s)], doubtful=True
    )
    if checkpoint is not None:
        first = None if has_own_steps else steps.state
        about |= {"format": resume.FORMAT, "scale": fingerprint.of_numbers(scale)}
        about = {**about, **program.describe(controls0, s, first)}
        stored = resume.load(checkpoint, about, steps.state)
        if stored is not None:
            steps = stored.until(num_steps)
            s = jnp.asarray(steps.visited[-1], s.dtype)
            reached = program.evaluate(s)
    if not steps.costs:
        steps.costs.append(float(reached[0]))
        steps.residuals.append(largest(reached[1]))
    for i in range(len(steps.costs) - 1, num_steps):
        if walk.has_ended(steps):
            break
        s, reached = walk.advance(s, steps, reached)
        steps.visited.append(np.asarray(s))
        if checkpoint is not None and (i % 10 == 9 or i == num_steps - 1 or walk.has_ended(steps)):
            resume.save(checkpoint, about, steps)
        if report is not None:
            at = Progress(steps.costs[-1], walk.slope(s, steps, reached), phase=program.phase)
            report(i + 1, num_steps, at._replace(residual=steps.residuals[-1]) if reached[1].size else at)
    s, info = _report(program, steps, (s, reached), search.tol, walk)
    return unravel(s * scale), info.replace(path=np.array(steps.visited) * np.asarray(scale))


def _report(
    program: MotionProgram, steps: resume.Steps, end: tuple[jax.Array, tuple[jax.Array, ...]], tol: float,
    walk: TangentWalk | AugmentedWalk | PieceWalk,
) -> tuple[jax.Array, TrajectoryInfo]:  # fmt: skip
    """Choose the best point, move it onto the constraints, and report the search in scaled controls."""
    s, (cost, r, jacobian) = end
    last, levels = len(steps.costs) - 1, np.zeros(len(steps.costs), int)
    if isinstance(walk, AugmentedWalk):
        levels = np.array([steps.state.level_at(step) for step in range(last + 1)])
        program.level = program.last_level
        cost, r, jacobian = program.evaluate(s)
    has_failed = not program.is_finite(cost, r, jacobian)
    if has_failed and levels[last] < program.level:
        program.level = int(levels[last])
        cost, r, jacobian = program.evaluate(s)
    first = min(int(np.sum(levels < program.level)), last)
    best = first + _best_step(steps.costs[first:], steps.residuals[first:], jacobian)
    s, (cost, r, jacobian) = program.restore(s, (cost, r, jacobian), tol)
    if best < last:
        visited = jnp.asarray(steps.visited[best], s.dtype)
        point, reached = program.restore(visited, program.evaluate(visited), tol)
        if _rank(reached, tol) < _rank((cost, r), tol):
            s, (cost, r, jacobian) = point, reached
        else:
            best = last
    slope = program.slope_along(s, jacobian)
    crossings, status = walk.end_status(steps, slope)
    status |= 0 if largest(r) <= tol else int(Status.UNTERMINATED)
    status |= int(Status.NONFINITE) if has_failed else 0
    return s, TrajectoryInfo(
        cost=float(cost),
        residual=largest(r),
        slope=slope,
        costs=np.array(steps.costs),
        residuals=np.array(steps.residuals),
        path=np.array(steps.visited),
        evaluations=program.evaluations,
        corners=program.corners + crossings,
        status=np.uint32(status),
        best_step=best,
        smoothing=np.array([*program.smoothing, 0.0])[levels],
    )


def _report_failed_start(program: MotionProgram, flat: jax.Array, reached: Reached) -> TrajectoryInfo:
    """Report a search that has no motion to start from, at any level of smoothing."""
    cost, violation = float(reached[0]), largest(reached[1])
    return TrajectoryInfo(
        cost=cost, residual=violation, slope=np.nan, costs=np.array([cost]), residuals=np.array([violation]),
        path=np.asarray(flat)[None], evaluations=program.evaluations, corners=0,
        status=np.uint32(int(Status.NONFINITE)), best_step=0, smoothing=np.zeros(1),
    )  # fmt: skip


def _bounds_of(optimizer: PyTree, controls0: PyTree) -> tuple[np.ndarray, np.ndarray]:
    """Spread the bounds of an augmented Lagrangian over flat controls (n,); infinite without."""
    bounds = optimizer.bounds if isinstance(optimizer, AugmentedLagrangian) else None
    return flat_bounds(bounds, controls0, np.asarray(ravel_pytree(controls0)[0], float))


def _choose_scale(
    scale: jax.typing.ArrayLike, controls0: PyTree, flat: jax.Array, bounds: tuple[np.ndarray, np.ndarray]
) -> jax.Array:
    """Choose the sizes (n,) of flat controls."""
    if scale is not None:
        for leaf in jax.tree.leaves(scale):
            check_positive("scale", leaf)
        if len(jax.tree.leaves(scale)) == 1 and np.ndim(jax.tree.leaves(scale)[0]) == 0:
            return jnp.full(flat.shape, jax.tree.leaves(scale)[0], flat.dtype)
        spread = jax.tree.map(lambda leaf, size: jnp.broadcast_to(size, jnp.shape(leaf)), controls0, scale)
        return ravel_pytree(spread)[0].astype(flat.dtype)
    half = 0.5 * (bounds[1] - bounds[0])
    size = np.where(np.isfinite(half), half, 0.0)
    alike = ravel_pytree(jax.tree.map(_one_size, controls0))[0].astype(flat.dtype)
    return jnp.where(size > 0, jnp.asarray(size, flat.dtype), alike)


def _one_size(leaf: jax.typing.ArrayLike) -> np.ndarray:
    """Return the size of a leaf's entries, the same for all: 1, or their root mean square if larger."""
    numbers = np.asarray(leaf, float)
    mean_square = np.mean(numbers**2) if numbers.size else 0.0
    return np.full(numbers.shape, np.sqrt(np.maximum(1.0, mean_square)))


def _best_step(costs: list[float], residuals: list[float], jacobian: jax.Array) -> int:
    """Return the number of the step with the smallest exact penalty function; the last one of a tie."""
    if not np.all(np.isfinite(np.asarray(jacobian))):
        jacobian = jnp.zeros_like(jacobian)
    multipliers = np.linalg.lstsq(np.asarray(jacobian[1:]).T, np.asarray(jacobian[0]), rcond=None)[0]
    merit = np.asarray(costs) + np.sum(np.abs(multipliers)) * np.asarray(residuals)
    return len(merit) - 1 - int(np.argmin(merit[::-1]))


def _rank(outcome: tuple[jax.Array, ...], tol: float) -> tuple[float, float]:
    """Return a key that orders results: the violation of constraints beyond `tol`, then the cost."""
    violation, cost = largest(outcome[1]), float(outcome[0])
    if not np.isfinite(cost + violation):
        return np.inf, np.inf
    return (violation if violation > tol else 0.0), cost
