"""The functions of one optimisation in flat controls in their scales, compiled once: entry `MotionProgram`.

Owns derivatives, the update of an optax transformation along the constraints, and Newton's method onto them.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from importlib.metadata import version
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
import numpy as np

from jaxcontact._pytree import PyTree
from jaxcontact.io import fingerprint
from jaxcontact.optimize.descent import one_sided_descent
from jaxcontact.precision import jit

if TYPE_CHECKING:  # callers with an optimizer have imported optax
    import optax

REACH = 0.2  # length of the longest step back to the constraints, in sizes of the controls
NEWTON_STEPS = 20  # largest number of steps onto the constraints at the end
BOUND_ROUNDS = 5  # in which controls at their bounds leave such a step
FORWARD = 64  # largest number of controls with forward derivatives; for more they are taken in reverse

Level = tuple[jax.Array | None, ...]  # of smoothing, as arguments of an outcome after its controls


class MotionProgram:
    """The functions of one optimisation in flat controls measured in their sizes, compiled once.

    With levels of smoothing the outcome takes a level, too: one of `smoothing`, or None for the exact motion,
    which is the last one. `level` is the number of the present one.
    """

    def __init__(
        self,
        outcome: Callable[..., tuple[jax.Array, jax.Array]],
        directional: Callable[[PyTree, PyTree], jax.Array] | None,
        optimizer: optax.GradientTransformation | None,
        unravel: Callable[[jax.Array], PyTree],
        scale: jax.Array,
        bounds: tuple[np.ndarray, np.ndarray],
        smoothing: tuple[float, ...] = (),
    ) -> None:
        self.evaluations = self.corners = self.level = 0
        self.smoothing = smoothing
        self._scale, self._bounds, self.dtype = scale, bounds, scale.dtype
        self._rate: PyTree = None

        def joined(s: jax.Array, scale: jax.Array, level: Level) -> tuple[jax.Array, tuple]:
            cost, r = outcome(unravel(s * scale), *level)
            return jnp.concatenate([cost[None], r]), (cost, r)

        derivative = jax.jacfwd if scale.size <= FORWARD else jax.jacrev
        self._derivative = jit(derivative(joined, has_aux=True))
        if optimizer is not None:
            self._update = jit(functools.partial(_update, optimizer))

        def lagrangian(
            s: jax.Array, multipliers: jax.Array, penalty: jax.Array, scale: jax.Array, level: Level
        ) -> tuple:
            cost, r = outcome(unravel(s * scale), *level)
            return cost + multipliers @ r + 0.5 * jnp.sum(penalty * r**2), (cost, r)

        self._slope = jit(jax.value_and_grad(lagrangian, has_aux=True))
        if directional is not None:

            def rate(s: jax.Array, d: jax.Array, scale: jax.Array) -> jax.Array:
                return directional(unravel(s * scale), unravel(d * scale))

            self._rate = jit(rate)
            self._piece = jit(jax.jacfwd(rate, argnums=1))

    def describe(self, controls0: PyTree, s: jax.Array, state: PyTree) -> dict[str, object]:
        """Collect by name the properties that determine the run; `state` is the optimizer's at the start."""
        motions = [self._derivative.trace(s, self._scale, self._level_of(k)) for k in {0, self.last_level}]
        jacobian, (_, r) = motions[0].out_info
        about = fingerprint.versions() | {
            "platform": jax.default_backend(),
            "controls0": fingerprint.of_numbers(controls0),
            "objective and constraints": [fingerprint.of_program(motion) for motion in motions],
            "directional": self._rate and fingerprint.of_program(self._rate.trace(s, s, self._scale)),
        }
        if state is None:
            return about | {"bounds": fingerprint.of_numbers(self._bounds)}
        gradient, a = (jax.ShapeDtypeStruct(n, jacobian.dtype) for n in (s.shape, (r.size, s.size)))
        update = self._update.trace(s, state, gradient, r, a)
        return about | {
            "optax version": version("optax"),
            "optimizer": [fingerprint.of_program(update), fingerprint.of_numbers(state)],
        }

    @property
    def last_level(self) -> int:
        """Return the number of the level of the exact motion."""
        return len(self.smoothing)

    @property
    def phase(self) -> str:
        """Name the present level of smoothing; empty without smoothing."""
        if not self.smoothing:
            return ""
        return "exact" if self.level == self.last_level else f"smoothing {self.smoothing[self.level]:g}"

    def _level_of(self, number: int) -> Level:
        """Return a level as the argument of an outcome, none without smoothing."""
        if not self.smoothing:
            return ()
        return (None if number == self.last_level else jnp.asarray(self.smoothing[number], self.dtype),)

    def evaluate(self, s: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
        """Compute cost, constraints (k,) and the Jacobian (1 + k, n) of both at s."""
        self.evaluations += 1
        jacobian, (cost, r) = self._derivative(s, self._scale, self._level_of(self.level))
        return cost, r, jacobian

    def evaluate_from_level(self, s: jax.Array, first: int) -> tuple[jax.Array, jax.Array, jax.Array]:
        """Compute the outcome at s at the first level, from `first` on, that has a motion there, if one has.

        That level, or the last one, becomes the present one.
        """
        self.level = first
        reached = self.evaluate(s)
        while self.level < self.last_level and not self.is_finite(*reached):
            self.level += 1
            reached = self.evaluate(s)
        return reached

    def lagrangian(
        self, s: np.ndarray, multipliers: np.ndarray, penalty: np.ndarray
    ) -> tuple[float, np.ndarray, float, np.ndarray]:
        """Compute the augmented Lagrangian, its gradient (n,), the cost and the constraints (k,) at s."""
        self.evaluations += 1
        numbers = (jnp.asarray(x, self._scale.dtype) for x in (s, multipliers, penalty))
        level = self._level_of(self.level)
        (value, (cost, r)), gradient = self._slope(*numbers, self._scale, level)
        return float(value), np.asarray(gradient, float), float(cost), np.asarray(r, float)

    @staticmethod
    def is_finite(cost: jax.Array, r: jax.Array, jacobian: jax.Array) -> bool:
        """Tell whether a motion gave finite numbers and derivatives."""
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

    def propose_step(
        self, s: jax.Array, state: PyTree, gradient: jax.Array, r: jax.Array, a: jax.Array
    ) -> tuple[jax.Array, PyTree]:
        """Compute a step of the optax transformation; return it with the new state."""
        return self._update(s, state, gradient, r, a)

    def take_step(self, s: jax.Array, step: jax.Array) -> tuple[jax.Array, tuple[jax.Array, ...]] | None:
        """Take a step, halved while the motion fails; return the controls and their outcome.

        It is None if the motion fails for the step and eleven halvings of it.
        """
        for _ in range(12):
            new = jnp.clip(s + step, *(jnp.asarray(bound, s.dtype) for bound in self._bounds))
            outcome = self.evaluate(new)
            if self.is_finite(*outcome):
                return new, outcome
            step = 0.5 * step
        return None

    def restore(
        self, s: jax.Array, outcome: tuple[jax.Array, ...], tol: float
    ) -> tuple[jax.Array, tuple[jax.Array, ...]]:
        """Take Newton steps from s onto the constraints, as far as the accuracy of the motion allows."""
        for _ in range(NEWTON_STEPS):
            if largest(outcome[1]) <= 0.1 * tol or not self.is_finite(*outcome):
                break
            stepped = self.take_step(s, self._step_back_within(s, outcome[1], outcome[2][1:]))
            if stepped is None or largest(stepped[1][1]) >= 0.9 * largest(outcome[1]):
                break
            s, outcome = stepped
        return s, outcome

    def slope_along(self, s: jax.Array, jacobian: jax.Array) -> float:
        """Compute the length of the gradient along the constraints, of controls between their bounds."""
        lower, upper = (jnp.asarray(bound, s.dtype) for bound in self._bounds)
        inside = jnp.where((s > lower) & (s < upper), jacobian, 0.0)
        return float(jnp.linalg.norm(inside[0] - _normal_part(inside[0], inside[1:])))

    def _step_back_within(self, s: jax.Array, r: jax.Array, a: jax.Array) -> jax.Array:
        """Compute a step back to r = 0 by controls that it does not push beyond their bounds."""
        lower, upper = (jnp.asarray(bound, s.dtype) for bound in self._bounds)
        free = jnp.ones(s.shape, bool)
        for _ in range(BOUND_ROUNDS):
            step = _step_back(r, jnp.where(free, a, 0.0))
            inside = (s + step >= lower) & (s + step <= upper)
            if bool(jnp.all(inside | ~free)):
                break
            free &= inside
        return step


def _update(
    optimizer: optax.GradientTransformation,
    s: jax.Array,
    state: PyTree,
    gradient: jax.Array,
    r: jax.Array,
    a: jax.Array,
) -> tuple[jax.Array, PyTree]:
    """Compute a step along the constraints r = 0 with Jacobian a (k, n), plus one back to them."""
    updates, state = optimizer.update(gradient - _normal_part(gradient, a), state, s)
    return updates - _normal_part(updates, a) + _step_back(r, a), state


def _normal_part(vector: jax.Array, a: jax.Array) -> jax.Array:
    """Compute the part of a vector (n,) normal to the constraints."""
    if a.shape[0] == 0:
        return jnp.zeros_like(vector)
    return a.T @ jnp.linalg.lstsq(a.T, vector)[0]


def _step_back(r: jax.Array, a: jax.Array) -> jax.Array:
    """Compute the Newton step of minimum length to r = 0, no longer than REACH."""
    if a.shape[0] == 0:
        return jnp.zeros(a.shape[1], a.dtype)
    d = -jnp.linalg.lstsq(a, r)[0]
    length = jnp.sqrt(jnp.sum(d**2))
    return d * jnp.minimum(1.0, REACH / jnp.where(length > 0, length, 1.0))


def largest(r: PyTree) -> float:
    """Return the largest violation, 0 without constraints."""
    return float(np.max(np.abs(np.asarray(r)), initial=0.0))
