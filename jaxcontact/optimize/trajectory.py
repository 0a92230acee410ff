"""Optimisation of controls through a motion: optax along the constraints, Newton's method onto them.

Owns the loop: derivatives, steps, recovery from failed motions, a checkpoint to resume from, the report of
the result. The motion is in the user's functions. Entry function `trajectory`; page of long runs and
checkpoints: docs/understand/long-runs.md.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.flatten_util import ravel_pytree

from jaxcontact._pytree import Record
from jaxcontact.arguments import check_float_leaves, check_number, check_type, check_whole
from jaxcontact.batching.run_settings import DEFAULT_RUN, Run, check_run
from jaxcontact.front_door import POSITIVE, checked
from jaxcontact.io import fingerprint
from jaxcontact.io.run_store import open_state
from jaxcontact.optimize import resume
from jaxcontact.optimize.descent import one_sided_descent
from jaxcontact.precision import jit
from jaxcontact.status import Status

if TYPE_CHECKING:  # callers with an optimizer have imported optax
    import optax

# progress(done, total, cost, largest residual)
Progress = Callable[[int, int, float, float], None]
REACH = 0.2  # length of the longest step back to the constraints, in sizes of the controls
NEWTON_STEPS = 20  # largest number of steps onto the constraints at the end
FORWARD = 64  # largest number of controls with forward derivatives; for more they are taken in reverse


class Search(NamedTuple):
    """Settings of a search as arguments of `trajectory`; `about` has the items that determine it."""

    optimizer: optax.GradientTransformation
    num_steps: int
    tol: float
    about: Mapping[str, Any]
    directional: Callable[[Any, Any], jax.Array] | None = None


class TrajectoryInfo(Record):
    """History and result of an optimisation.

    Attributes:
        cost: of the result.
        residual: largest constraint violation of the result, 0 without constraints.
        slope: length of the gradient along the constraints at the result, per relative change of controls.
        costs: (steps + 1,) at the start and after each step.
        residuals: (steps + 1,) largest violation at the same times.
        path: (steps + 1, n) controls at the same times, flat in the order of their pytree.
        evaluations: motions computed, with their derivatives.
        corners: steps at which the gradient did not descend as predicted, so another direction was searched.
        status: 0; UNTERMINATED if the constraints are not met within `tol`.
        best_step: number of the step whose controls were returned, 0 for the start.
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


@checked(num_steps=check_whole, tol=POSITIVE)
def trajectory(
    objective: Callable[[Any], jax.Array],
    controls0: Any,
    *,
    optimizer: optax.GradientTransformation,
    constraints: Callable[[Any], jax.Array] | None = None,
    directional: Callable[[Any, Any], jax.Array] | None = None,
    num_steps: int = 100,
    tol: float = 1e-9,
    key: str | None = None,
    run: Run = DEFAULT_RUN,
) -> tuple[Any, TrajectoryInfo]:
    """Find controls of minimum cost, objective(controls) -> min subject to constraints(controls) = 0.

    Every step moves along the tangent space of the constraints by the update of `optimizer` for the gradient,
    and back towards the constraints by a Newton step of minimum length. The result is the best point visited:
    the one of minimum cost + sum |lambda| max |constraints|, lambda the multipliers at the last point. From
    that point Newton's method continues until the constraints hold within `tol`; if they hold only from the
    last point, or the cost is lower from it, the last point gives the result. Controls are measured in units
    of |controls0| (1 if zero). A host driver; the functions are compiled.

    Args:
        objective: controls -> cost (), NaN if the motion failed; calls motions such as `ess.flow`.
        controls0: pytree of floats to start from, no integers; constraints need not hold.
        optimizer: an optax transformation, e.g. optax.adam(1e-2).
        constraints: controls -> (k,), to be zero; k less than the number of controls.
        directional: (controls, direction) -> one-sided derivative of the objective, such as
            `ess.b_derivative` gives; if it is not linear, a direction of descent replaces the gradient. As it
            costs a motion, it is called at the start, after a step that needed it, and after a step that
            raised the cost although the gradient predicted descent. Not together with constraints: penalise
            them in the objective.
        num_steps: steps of the optimizer.
        tol: bound on every constraint at the end.
        key: a name for data that the programs do not contain, such as data that a host callback reads.
        run: checkpoint, progress. The checkpoint is a file, written after every tenth step and the last; an
            existing file is continued. It stores versions, `controls0`, the programs of objective,
            constraints, `directional` and optimizer with all numbers that they close over, and `key`: these
            determine the run. A call with more `num_steps` resumes; one with fewer returns the same result
            as without the file. `progress(done, num_steps, cost, residual)` is called after every step.

    Returns:
        controls, TrajectoryInfo.

    Raises:
        ValueError: no motion at the start (cost or derivatives not finite), both `constraints` and
            `directional`; a `checkpoint` of another run, with the names of what differs, or a damaged one.
        TypeError: a `key` that is not a string; a leaf of `controls0` that is not of floats.
        FloatingPointError: steps lead to failed motions however short they are.
    """
    if constraints is not None and directional is not None:
        raise ValueError("directional: has no meaning with constraints; penalise them in the objective")
    search = Search(optimizer, num_steps, tol, {"key": key}, directional)
    if constraints is None:
        return optimise(lambda z: (objective(z), jnp.zeros(0)), controls0, search, run)
    return optimise(lambda z: (objective(z), constraints(z)), controls0, search, run)


def optimise(
    outcome: Callable[[Any], tuple[jax.Array, jax.Array]], controls0: Any, search: Search, run: Run
) -> tuple[Any, TrajectoryInfo]:
    """Optimise as `trajectory` a cost and constraints from one motion."""
    check_run(run, unused=("chunk", "devices", "about", "executor"))
    path = None if run.checkpoint is None else Path(run.checkpoint)
    with open_state(path):
        return _optimise(outcome, controls0, search, path, run.progress)


def _optimise(
    outcome: Callable[[Any], tuple[jax.Array, jax.Array]],
    controls0: Any,
    search: Search,
    checkpoint: Path | None,
    progress: Progress | None,
) -> tuple[Any, TrajectoryInfo]:
    """Optimise with a checkpoint that this process alone has open."""
    optimizer, num_steps, tol, about, directional = search
    if isinstance(num_steps, bool) or not isinstance(num_steps, int) or num_steps < 0:
        raise ValueError(f"num_steps: expected an integer >= 0, got {num_steps!r}")
    check_number("tol", tol, 0.0)
    if about["key"] is not None:
        check_type("key", about["key"], str)
    check_float_leaves("controls0", controls0)
    flat, unravel = ravel_pytree(controls0)
    if not flat.size:
        raise ValueError("controls0: expected at least one number, got none")
    flat = lax.convert_element_type(flat, flat.dtype)  # a weak type would be lost in a step: compiled twice
    scale = jnp.where(flat == 0, 1.0, jnp.abs(flat))
    run = _Run(outcome, directional, optimizer, unravel, scale)
    s = flat / scale
    steps = resume.Steps(
        state=optimizer.init(s), costs=[], residuals=[], visited=[np.asarray(s)], doubtful=True
    )
    if checkpoint is not None:
        about = {"format": resume.FORMAT, **about, **run.about(controls0, s, steps.state)}
        stored = resume.load(checkpoint, about, steps.state)
        steps = steps if stored is None else stored.until(num_steps)
        s = jnp.asarray(steps.visited[-1])
    cost, r, jacobian = run.evaluate(s)
    if not run.good(cost, r, jacobian):
        raise ValueError(
            "controls0: the motion from there fails; cost, constraints or derivatives are not finite"
        )
    costs, residuals = steps.costs, steps.residuals
    if not costs:
        costs.append(float(cost))
        residuals.append(_largest(r))
    for i in range(len(costs) - 1, num_steps):
        gradient = jacobian[0]
        if directional is not None and steps.doubtful:  # the gradient may not descend
            gradient, steps.doubtful = run.descent(s, gradient)
        step, steps.state = run.step(s, steps.state, gradient, r, jacobian[1:])
        old, (s, (cost, r, jacobian)) = s, run.moved(s, step)
        costs.append(float(cost))
        steps.doubtful |= costs[-1] > costs[-2] and float(jnp.sum(gradient * (s - old))) < 0
        residuals.append(_largest(r))
        steps.visited.append(np.asarray(s))
        if checkpoint is not None and (i % 10 == 9 or i == num_steps - 1):
            resume.save(checkpoint, about, steps)
        if progress is not None:
            progress(i + 1, num_steps, costs[-1], residuals[-1])
    best, last = _best_step(costs, residuals, jacobian), len(costs) - 1
    s, (cost, r, jacobian) = run.restore(s, (cost, r, jacobian), tol)
    if best < last:
        visited = jnp.asarray(steps.visited[best])
        point, reached = run.restore(visited, run.evaluate(visited), tol)
        if _rank(reached, tol) < _rank((cost, r), tol):
            s, (cost, r, jacobian) = point, reached
        else:
            best = last
    along = jacobian[0] - _normal(jacobian[0], jacobian[1:])
    info = TrajectoryInfo(
        cost=float(cost),
        residual=_largest(r),
        slope=float(jnp.linalg.norm(along)),
        costs=np.array(costs),
        residuals=np.array(residuals),
        path=np.array(steps.visited) * np.asarray(scale),
        evaluations=run.evaluations,
        corners=run.corners,
        status=np.uint32(0 if _largest(r) <= tol else int(Status.UNTERMINATED)),
        best_step=best,
    )
    return unravel(s * scale), info


class _Run:
    """The functions of one optimisation in flat controls measured in their sizes, compiled once."""

    def __init__(
        self,
        outcome: Callable[[Any], tuple[jax.Array, jax.Array]],
        directional: Callable[[Any, Any], jax.Array] | None,
        optimizer: optax.GradientTransformation,
        unravel: Callable[[jax.Array], Any],
        scale: jax.Array,
    ) -> None:
        self.evaluations = self.corners = 0
        self._scale = scale
        self._rate: Any = None

        def joined(s: jax.Array, scale: jax.Array) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
            cost, r = outcome(unravel(s * scale))
            return jnp.concatenate([cost[None], r]), (cost, r)

        derivative = jax.jacfwd if scale.size <= FORWARD else jax.jacrev
        self._derivative = jit(derivative(joined, has_aux=True))
        self._update = jit(functools.partial(_update, optimizer))
        if directional is not None:

            def rate(s: jax.Array, d: jax.Array, scale: jax.Array) -> jax.Array:
                return directional(unravel(s * scale), unravel(d * scale))

            self._rate = jit(rate)
            self._piece = jit(jax.jacfwd(rate, argnums=1))

    def about(self, controls0: Any, s: jax.Array, state: Any) -> dict[str, Any]:
        """Collect by name the properties that determine the run; `state` is the optimizer's at the start."""
        motion = self._derivative.trace(s, self._scale)
        jacobian, (_, r) = motion.out_info
        gradient, a = (jax.ShapeDtypeStruct(n, jacobian.dtype) for n in (s.shape, (r.size, s.size)))
        update = self._update.trace(s, state, gradient, r, a)
        return fingerprint.versions() | {
            "optax version": version("optax"),
            "platform": jax.default_backend(),
            "controls0": fingerprint.of_numbers(controls0),
            "objective and constraints": fingerprint.of_program(motion),
            "optimizer": [fingerprint.of_program(update), fingerprint.of_numbers(state)],
            "directional": self._rate and fingerprint.of_program(self._rate.trace(s, s, self._scale)),
        }

    def evaluate(self, s: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
        self.evaluations += 1
        jacobian, (cost, r) = self._derivative(s, self._scale)
        return cost, r, jacobian

    @staticmethod
    def good(cost: jax.Array, r: jax.Array, jacobian: jax.Array) -> bool:
        return all(bool(np.all(np.isfinite(np.asarray(a)))) for a in (cost, r, jacobian))

    def descent(self, s: jax.Array, gradient: jax.Array) -> tuple[jax.Array, bool]:
        """Find minus a direction of descent at s; return it and whether it took more than one evaluation."""
        d, calls = one_sided_descent(
            lambda d: float(self._rate(s, jnp.asarray(d), self._scale)),
            lambda d: np.asarray(self._piece(s, jnp.asarray(d), self._scale)),
            np.asarray(gradient),
        )
        self.evaluations += calls
        self.corners += calls > 1
        return -jnp.asarray(d), calls > 1

    def step(
        self, s: jax.Array, state: Any, gradient: jax.Array, r: jax.Array, a: jax.Array
    ) -> tuple[jax.Array, Any]:
        return self._update(s, state, gradient, r, a)

    def moved(self, s: jax.Array, step: jax.Array) -> tuple[jax.Array, tuple[jax.Array, ...]]:
        """Take a step, halved while the motion fails; return the controls and their outcome.

        Raises:
            FloatingPointError: the motion fails for the step and eleven halvings of it.
        """
        for _ in range(12):
            new = s + step
            outcome = self.evaluate(new)
            if self.good(*outcome):
                return new, outcome
            step = 0.5 * step
        raise FloatingPointError("objective: every step along the search direction leads to a failed motion")

    def restore(
        self, s: jax.Array, outcome: tuple[jax.Array, ...], tol: float
    ) -> tuple[jax.Array, tuple[jax.Array, ...]]:
        """Take Newton steps from s onto the constraints, as far as the accuracy of the motion allows."""
        for _ in range(NEWTON_STEPS):
            if _largest(outcome[1]) <= 0.1 * tol:
                break
            new, reached = self.moved(s, _back(outcome[1], outcome[2][1:]))
            if _largest(reached[1]) >= 0.9 * _largest(outcome[1]):
                break
            s, outcome = new, reached
        return s, outcome


def _best_step(costs: list[float], residuals: list[float], jacobian: jax.Array) -> int:
    """Return the number of the step with the smallest exact penalty function; the last one of a tie."""
    multipliers = np.linalg.lstsq(np.asarray(jacobian[1:]).T, np.asarray(jacobian[0]), rcond=None)[0]
    merit = np.asarray(costs) + np.sum(np.abs(multipliers)) * np.asarray(residuals)
    return len(merit) - 1 - int(np.argmin(merit[::-1]))


def _rank(outcome: tuple[jax.Array, ...], tol: float) -> tuple[float, float]:
    """Return a key that orders results: the violation of constraints beyond `tol`, then the cost."""
    violation = _largest(outcome[1])
    return (violation if violation > tol else 0.0), float(outcome[0])


def _update(
    optimizer: optax.GradientTransformation,
    s: jax.Array,
    state: Any,
    gradient: jax.Array,
    r: jax.Array,
    a: jax.Array,
) -> tuple[jax.Array, Any]:
    """Compute a step along the constraints r = 0 with Jacobian a (k, n), plus one back to them."""
    updates, state = optimizer.update(gradient - _normal(gradient, a), state, s)
    return updates - _normal(updates, a) + _back(r, a), state


def _normal(vector: jax.Array, a: jax.Array) -> jax.Array:
    """Compute the part of a vector (n,) normal to the constraints."""
    if a.shape[0] == 0:
        return jnp.zeros_like(vector)
    return a.T @ jnp.linalg.lstsq(a.T, vector)[0]


def _back(r: jax.Array, a: jax.Array) -> jax.Array:
    """Compute the Newton step of minimum length to r = 0, no longer than REACH."""
    if a.shape[0] == 0:
        return jnp.zeros(a.shape[1], a.dtype)
    d = -jnp.linalg.lstsq(a, r)[0]
    length = jnp.sqrt(jnp.sum(d**2))
    return d * jnp.minimum(1.0, REACH / jnp.where(length > 0, length, 1.0))


def _largest(r: jax.Array) -> float:
    return float(np.max(np.abs(np.asarray(r)), initial=0.0))
