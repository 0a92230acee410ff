"""Steps of an optimisation: `TangentWalk` by optax, `AugmentedWalk` by quasi-Newton, `PieceWalk` over kinks.

All append cost and violation of every step to the `resume.Steps` of a run, whose state they continue from.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxcontact._pytree import PyTree
from jaxcontact.optimize import piecewise_newton, resume
from jaxcontact.optimize.augmented_lagrangian import (
    FAILED,
    LEVEL_STEPS,
    AugmentedLagrangian,
    AugmentedSearch,
    SearchState,
    join_reached,
)
from jaxcontact.optimize.motion_program import MotionProgram, largest
from jaxcontact.status import Status

Reached = tuple[jax.Array, ...]  # cost, constraints, their Jacobian


class TangentWalk:
    """Steps of an optax transformation along the constraints, and back to them."""

    def __init__(self, program: MotionProgram, transformation: PyTree, has_rate: bool, s: jax.Array) -> None:
        self._program, self._has_rate = program, has_rate
        self.first_state = transformation.init(s)

    def advance(self, s: jax.Array, steps: resume.Steps, reached: Reached) -> tuple[jax.Array, Reached]:
        """Make one step, halved while the motion fails."""
        _, r, jacobian = reached
        gradient = jacobian[0]
        if self._has_rate and steps.doubtful:  # the gradient may not descend
            gradient, steps.doubtful = self._program.descent(s, gradient)
        step, steps.state = self._program.propose_step(s, steps.state, gradient, r, jacobian[1:])
        old, stepped = s, self._program.take_step(s, step)
        s, reached = (s, reached) if stepped is None else stepped
        steps.has_failed = stepped is None
        steps.costs.append(float(reached[0]))
        steps.residuals.append(largest(reached[1]))
        steps.doubtful |= steps.costs[-1] > steps.costs[-2] and float(jnp.sum(gradient * (s - old))) < 0
        return s, reached

    def slope(self, s: jax.Array, steps: resume.Steps, reached: Reached) -> float:
        """Compute the length of the gradient along the constraints."""
        return self._program.slope_along(s, reached[2])

    @staticmethod
    def has_ended(steps: resume.Steps) -> bool:
        """Tell whether no step from the last point has a motion."""
        return steps.has_failed

    @staticmethod
    def end_status(steps: resume.Steps, slope: float) -> tuple[int, int]:
        """Count steps across kinks; return with them the status of an end with this slope."""
        return 0, int(Status.NONFINITE) if steps.has_failed else 0


class LevelState(NamedTuple):
    """What an augmented Lagrangian continues from: its search at the present level of smoothing.

    `began` (levels,) has the step at which each level began, -1 before that; a level that was skipped began
    with the next one. `crossings` are those of kinks at earlier levels.
    """

    search: SearchState
    began: np.ndarray
    crossings: np.ndarray

    def level_at(self, step: int) -> int:
        """Return the number of the level at a step."""
        return int(np.sum((self.began >= 0) & (self.began <= step))) - 1


class AugmentedWalk:
    """Quasi-Newton steps of an augmented Lagrangian, at every level of smoothing in turn."""

    def __init__(
        self, program: MotionProgram, settings: AugmentedLagrangian, bounds: tuple[np.ndarray, np.ndarray],
        tol: float, start: tuple[jax.Array, Reached],
    ) -> None:  # fmt: skip
        s, reached = start
        self._settings, self._program, self._seen = settings, program, {}  # type: ignore[var-annotated]
        functions, eps = (self._derivatives, self._evaluate), float(jnp.finfo(s.dtype).eps)
        self._search = AugmentedSearch(settings, functions, bounds, tol, eps)
        began = np.full(program.last_level + 1, -1)
        began[: program.level + 1] = 0
        self.first_state = LevelState(self._begin(s, reached), began, np.asarray(0.0))

    def _begin(self, s: jax.Array, reached: Reached) -> SearchState:
        cost, r, jacobian = reached
        first = join_reached(float(cost), np.asarray(r, float), np.asarray(jacobian, float))
        return self._search.begin(np.asarray(s, float), first)

    def _derivatives(self, s: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
        cost, r, jacobian = self._program.evaluate(jnp.asarray(s, self._program.dtype))
        self._seen[s.tobytes()] = float(cost), largest(r)
        return float(cost), np.asarray(r, float), np.asarray(jacobian, float)

    def _evaluate(
        self, s: np.ndarray, multipliers: np.ndarray, penalty: np.ndarray
    ) -> tuple[float, np.ndarray, float, np.ndarray]:
        value, gradient, cost, r = self._program.lagrangian(s, multipliers, penalty)
        self._seen[s.tobytes()] = cost, largest(r)
        return value, gradient, cost, r

    def advance(self, s: jax.Array, steps: resume.Steps, reached: Reached) -> tuple[jax.Array, Reached]:
        """Make one step of the augmented Lagrangian's search, or begin the next level of smoothing."""
        self._seen.clear()
        state, num_steps = steps.state, len(steps.costs) - 1
        self._program.level = level = state.level_at(num_steps)
        has_ended = state.search.ended > 0 or num_steps - state.began[level] >= LEVEL_STEPS
        if level < self._program.last_level and has_ended:
            return s, self._next_level(s, steps, reached)
        new, search = self._search.advance(np.asarray(s, float), state.search)
        steps.state = state._replace(search=search)
        if new.tobytes() not in self._seen:
            self._evaluate(new, search.multipliers, search.penalty)
        cost, violation = self._seen[new.tobytes()]
        steps.costs.append(cost)
        steps.residuals.append(violation)
        return jnp.asarray(new, s.dtype), reached

    def _next_level(self, s: jax.Array, steps: resume.Steps, reached: Reached) -> Reached:
        """Begin the next level of smoothing with a motion where the last one ended: a step of its own."""
        level, (cost, violation) = self._program.level, (steps.costs[-1], steps.residuals[-1])
        new = self._program.evaluate_from_level(s, level + 1)
        if self._program.is_finite(*new):
            began, crossings = steps.state.began.copy(), steps.state.crossings + steps.state.search.crossings
            began[level + 1 : self._program.level + 1] = len(steps.costs)
            steps.state = LevelState(self._begin(s, new), began, crossings)
            reached, cost, violation = new, float(new[0]), largest(new[1])
        else:
            steps.has_failed = True
        steps.costs.append(cost)
        steps.residuals.append(violation)
        return reached

    def slope(self, s: jax.Array, steps: resume.Steps, reached: Reached) -> float:
        """Compute the length of the gradient along the constraints; in a round, of the Lagrangian's."""
        search = steps.state.search
        if search.radius > 0:
            return self._program.slope_along(s, jnp.asarray(search.reached[:, 1:], s.dtype))
        return self._search.slope_of(np.asarray(s, float), search.gradient)

    def _has_last_level(self, steps: resume.Steps) -> bool:
        return bool(steps.state.level_at(len(steps.costs) - 1) == self._program.last_level)

    def has_ended(self, steps: resume.Steps) -> bool:
        """Tell whether the search is at its end."""
        return steps.has_failed or (float(steps.state.search.ended) > 0 and self._has_last_level(steps))

    def end_status(self, steps: resume.Steps, slope: float) -> tuple[int, int]:
        """Count steps across kinks; return with them the status of an end with this slope."""
        search = steps.state.search
        crossings = int(steps.state.crossings + search.crossings)
        if steps.has_failed or (int(search.ended) == FAILED and not steps.is_cut):
            return crossings, int(Status.NONFINITE)
        if not self._has_last_level(steps):
            return crossings, int(Status.MAX_ITERS)
        is_minimum = int(search.ended) == 1 and not steps.is_cut
        if is_minimum or slope <= self._settings.slope * float(search.units[0]):
            return crossings, 0
        at_kink = (search.crossings > 0 or search.ended == 2) and not steps.is_cut
        return crossings, int(Status.KINK if at_kink else Status.MAX_ITERS)


class PieceState(NamedTuple):
    """What a walk over pieces continues from; `ended` is as that of `augmented_lagrangian.SearchState`."""

    curvature: np.ndarray
    radius: np.ndarray
    is_first: np.ndarray
    ended: np.ndarray


class PieceWalk:
    """Steps over the linear pieces of a cost, each to a lower cost."""

    def __init__(
        self, program: MotionProgram, settings: piecewise_newton.PiecewiseNewton,
        unravel: Callable[[jax.Array], PyTree], scale: jax.Array, start: tuple[jax.Array, Reached],
    ) -> None:  # fmt: skip
        s, (_, _, jacobian) = start
        self._program, self._settings, self._unravel = program, settings, unravel
        self._scale = np.asarray(scale, float)
        self._known: tuple[bytes, piecewise_newton.CostPieces] | None = None  # the last point and its pieces
        slope = float(jnp.linalg.norm(jacobian[0]))
        self.first_state = PieceState(
            np.eye(s.size) * max(slope, np.finfo(float).tiny), np.asarray(float(settings.radius)),
            np.asarray(True), np.asarray(0.0),
        )  # fmt: skip

    def _pieces(self, s: jax.Array) -> piecewise_newton.CostPieces:
        """Compute the pieces at s, or return those known from the last step."""
        key = np.asarray(s).tobytes()
        if self._known is None or self._known[0] != key:
            controls = self._unravel(s * jnp.asarray(self._scale, s.dtype))
            pieces = piecewise_newton.scaled_pieces(self._settings.pieces(controls), self._scale)
            self._program.evaluations += 1 + len(pieces.slopes)
            self._known = key, pieces
        return self._known[1]

    def advance(self, s: jax.Array, steps: resume.Steps, reached: Reached) -> tuple[jax.Array, Reached]:
        """Make one step, within smaller and smaller radii until the cost falls."""
        state: PieceState = steps.state
        pieces, cost, radius = self._pieces(s), float(reached[0]), float(state.radius)
        size = abs(cost) + float(jnp.linalg.norm(reached[2][0]) * jnp.linalg.norm(s))
        rounding = piecewise_newton.ROUNDING * float(jnp.finfo(s.dtype).eps) * size
        ratio, motions = -1.0, [bool(np.any(piecewise_newton.mark_finite(pieces)))]
        while radius > piecewise_newton.SHORTEST:
            step = piecewise_newton.best_step(pieces, state.curvature, radius)
            if step.promised <= rounding:
                break
            new = s + jnp.asarray(step.change, s.dtype)
            outcome = self._program.evaluate(new)
            motions.append(self._program.is_finite(*outcome))
            ratio = (cost - float(outcome[0])) / step.promised if motions[-1] else -1.0
            longest = float(np.max(np.abs(step.change)))
            if ratio >= piecewise_newton.ACCEPTED:
                break
            radius = piecewise_newton.SHRINKAGE * longest
        if ratio >= piecewise_newton.ACCEPTED:
            if ratio > piecewise_newton.GOOD and longest > 0.9 * radius:
                radius *= 2.0
            curvature = piecewise_newton.curvature_after(
                state.curvature, step, pieces, self._pieces(new), bool(state.is_first)
            )
            state = PieceState(curvature, np.asarray(radius), np.asarray(False), state.ended)
            s, reached = new, outcome
        else:
            ended = 1 if radius > piecewise_newton.SHORTEST else 2
            has_motion = motions[0] and (len(motions) == 1 or any(motions[1:]))
            state = state._replace(ended=np.asarray(float(ended if has_motion else FAILED)))
        steps.state = state
        steps.costs.append(float(reached[0]))
        steps.residuals.append(0.0)
        return s, reached

    def slope(self, s: jax.Array, steps: resume.Steps, reached: Reached) -> float:
        """Compute the length of the gradient."""
        return self._program.slope_along(s, reached[2])

    @staticmethod
    def has_ended(steps: resume.Steps) -> bool:
        """Tell whether the search is at its end."""
        return float(steps.state.ended) > 0

    @staticmethod
    def end_status(steps: resume.Steps, slope: float) -> tuple[int, int]:
        """Return no crossings, and the status of the end."""
        ended = 0 if steps.is_cut else int(steps.state.ended)
        return 0, (Status.MAX_ITERS, 0, Status.KINK, Status.NONFINITE)[ended]
