"""Motions of a robot in pieces that must join, found together with their controls: entry `Joining`.

Owns the pieces' derivatives in the lanes of a CPU, and variables, constraints and cost of the search. Page:
docs/methods/planning.md.
"""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxcontact._pytree import PyTree, Record
from jaxcontact.batching.simd import simd
from jaxcontact.compliant.step import step
from jaxcontact.mechanics.scaled_springs import ScaledSprings
from jaxcontact.mechanics.system import Model
from jaxcontact.optimize import sequential_quadratic

SIZES = (0.3, 3.0)  # m or rad, and m/s or rad/s; units of errors and changes of a state


class Pieces(Record):
    """A motion in N pieces, each with constant controls and of the same duration.

    Attributes:
        q: (N + 1, nv) positions at the ends of the pieces.
        v: (N + 1, nv) velocities there.
        controls: (N, nu).
        duration: s, of all pieces together.
    """

    q: jax.Array | np.ndarray
    v: jax.Array | np.ndarray
    controls: jax.Array | np.ndarray
    duration: jax.Array | np.ndarray


class Joining:
    """Cost and constraints of pieces as functions of flat, scaled variables.

    `pushes` (N, limits and contacts) are the shares of stiffness and damping that act during each piece, by
    which a plan decides when which foot stands; ones are the law itself.
    """

    def __init__(
        self, model: Model, start: Pieces, num_steps: int, cost: Callable[[Pieces], jax.Array],
        ends: Callable[[Pieces], jax.Array],
    ) -> None:  # fmt: skip
        self._count, self._nv = start.controls.shape[0], start.v.shape[1]
        self._num_steps = num_steps
        self.evaluations = 0
        nv, count = self._nv, self._count
        self.pushes = np.ones((count, np.shape(model.params.material.stiffness.mobility)[0]))
        self._units = np.repeat(SIZES, nv)
        self._scale = np.concatenate([
            np.tile(self._units, count + 1), np.tile(control_sizes(model), count),
            [SIZES[0] * float(start.duration)],
        ])  # fmt: skip
        state = model.initial_state()

        def piece(z: jax.Array, pushes: jax.Array) -> tuple[jax.Array, jax.Array]:
            first, pushed = state.replace(q=z[:nv], v=z[nv : 2 * nv]), with_pushes(model, pushes)

            def advance(at: PyTree, _: None) -> tuple[PyTree, None]:
                return step(pushed, at, z[2 * nv : -1], dt=z[-1])[0], None

            last, _ = lax.scan(advance, first, length=num_steps)
            end = jnp.concatenate([last.q, last.v])
            return end, end

        self._pieces = simd(jax.jacfwd(piece, has_aux=True), nan=False)

        def of_ends(s: jax.Array) -> jax.Array:
            return ends(self.pieces(s))

        def of_cost(s: jax.Array) -> jax.Array:
            return cost(self.pieces(s))

        self._outer = jax.jit(
            lambda s: (
                *jax.value_and_grad(of_cost)(s), jax.hessian(of_cost)(s), of_ends(s), jax.jacfwd(of_ends)(s)
            )
        )  # fmt: skip

    def pieces(self, s: PyTree) -> Pieces:
        """Read a motion from flat variables."""
        z, nv = s * self._scale, self._nv
        num_states = (self._count + 1) * 2 * nv
        states = z[:num_states].reshape(-1, 2 * nv)
        controls = z[num_states:-1].reshape(self._count, -1)
        return Pieces(q=states[:, :nv], v=states[:, nv:], controls=controls, duration=z[-1])

    def flat(self, pieces: Pieces) -> np.ndarray:
        """Write a motion as flat variables."""
        states = np.concatenate([pieces.q, pieces.v], axis=1).ravel()
        return np.concatenate([states, np.ravel(pieces.controls), [float(pieces.duration)]]) / self._scale

    def bounds(self, lower: Pieces, upper: Pieces) -> tuple[np.ndarray, np.ndarray]:
        """Write two motions as bounds of the flat variables."""
        return self.flat(lower), self.flat(upper)

    def evaluate(self, s: np.ndarray) -> sequential_quadratic.ProgramPoint:
        """Compute cost, constraints and their derivatives; a curvature of the cost without its descents."""
        self.evaluations += 1
        count = self._count
        motion = self.pieces(s)
        dt = motion.duration / (count * self._num_steps)
        states = np.concatenate([motion.q, motion.v], axis=1)
        starts = np.concatenate([states[:-1], motion.controls, np.full((count, 1), dt)], axis=1)
        slopes, reached = self._pieces(starts, self.pushes)
        cost, gradient, bend, ends, end_slopes = (np.asarray(x) for x in self._outer(s))
        joints = (reached - states[1:]) / self._units
        sizes, axes = np.linalg.eigh(bend)
        return sequential_quadratic.ProgramPoint(
            s, float(cost), gradient, (axes * np.maximum(sizes, 0.0)) @ axes.T,
            np.concatenate([joints.ravel(), ends]),
            np.concatenate([self._joint_slopes(np.asarray(slopes)), end_slopes]),
        )  # fmt: skip

    def _joint_slopes(self, slopes: np.ndarray) -> np.ndarray:
        """Place the derivatives (N, 2 nv, 2 nv + nu + 1) of pieces into those of all joints."""
        count, width = self._count, 2 * self._nv
        num_controls, first = slopes.shape[2] - width - 1, (count + 1) * width
        jacobian = np.zeros((count * width, self._scale.size))
        for i in range(count):
            rows = slice(i * width, (i + 1) * width)
            jacobian[rows, i * width : (i + 1) * width] = slopes[i, :, :width]
            jacobian[rows, (i + 1) * width : (i + 2) * width] = -np.eye(width)
            place = first + i * num_controls
            jacobian[rows, place : place + num_controls] = slopes[i, :, width:-1]
            jacobian[rows, -1] = slopes[i, :, -1] / (count * self._num_steps)
        return jacobian * self._scale / np.tile(self._units, count)[:, None]


def control_sizes(model: Model) -> np.ndarray:
    """Return half the range (nu,) of every control, 1 where it has none."""
    limits = np.asarray(model.params.tree.control_range)
    half = 0.5 * (limits[:, 1] - limits[:, 0])
    return np.where(np.isfinite(half), half, 1.0)


def with_pushes(model: Model, pushes: jax.Array) -> Model:
    """Scale the forces of limits and contacts by shares (limits and contacts,); zero is no force."""
    law = model.params.material
    assert isinstance(law.stiffness, ScaledSprings)
    springs = law.stiffness.replace(mobility=law.stiffness.mobility * pushes)
    return model.replace(params=model.params.replace(material=law.replace(stiffness=springs)))
