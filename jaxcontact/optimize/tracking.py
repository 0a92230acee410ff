"""Feedback along a motion: a linear-quadratic regulator that varies with time, as a policy. Entry `track`.

Owns the backward recursion of Riccati along the linearised steps of a motion. Page: docs/methods/planning.md.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from jaxcontact._pytree import PyTree, Record
from jaxcontact.arguments import check_positive, check_rows
from jaxcontact.batching.bounded_loop import bounded_loop
from jaxcontact.front_door import checked
from jaxcontact.mechanics.configuration import difference
from jaxcontact.mechanics.mocap import MocapPoses, MocapRows, apply_mocap, rows_of_poses
from jaxcontact.mechanics.system import Model, State
from jaxcontact.precision import all_digits, jit
from jaxcontact.simulate.linearize import linearize
from jaxcontact.simulate.stepper import Stepper
from jaxcontact.simulate.trajectory import Trajectory
from jaxcontact.status import Info, Status, flag, is_finite

if TYPE_CHECKING:
    from jaxtyping import Float


class Tracking(Record):
    """A policy that keeps to a motion: u = u_k - K_k x, x the state less that of the motion at step k.

    x (2 nv,) is the difference of q along tangents, m and rad, then that of v. Beyond its last step a motion
    that repeats begins anew, one period farther; of another one the last row stays.

    Attributes:
        states: State with T + 1 rows, the motion.
        inputs: (T, nu) its controls.
        gains: (T, nu, 2 nv) K.
        period: (nq,) way of a period, 0 in a motion without one.
        repeats: whether the motion is periodic.
    """

    states: State
    inputs: jax.Array
    gains: jax.Array
    period: jax.Array
    repeats: jax.Array

    def __call__(
        self, model: Model, state: State, t: jax.Array, memory: PyTree, key: jax.Array | None
    ) -> tuple[jax.Array, PyTree]:
        """Return the controls (nu,) at a state and time, and the memory unchanged."""
        steps = self.inputs.shape[0]
        start, dt = self.states.t[0], self.states.t[1] - self.states.t[0]
        number = jnp.round((t - start) / dt).astype(jnp.int32)
        k = jnp.where(self.repeats, number % steps, jnp.clip(number, 0, steps - 1))
        turns = jnp.where(self.repeats, number // steps, 0)
        q = self.states.q[k] + turns * self.period
        x = jnp.concatenate([difference(model.system, q, state.q), state.v - self.states.v[k]])
        return self.inputs[k] - self.gains[k] @ x, memory


class TrackingInfo(Info):
    """How a regulator was found.

    Attributes:
        status: INACCURATE if the recursion of a periodic motion has not settled, NONFINITE for a linearised
            step that is not finite, and the bits of these steps.
        residual: largest change of the cost to go by the last period, relative.
        num_iters: periods of the recursion.
        cost_to_go: (2 nv, 2 nv) P at the start: the cost from x there is x^T P x.
        without, with_feedback: (2 nv,) sizes of the multipliers of the linearised motion over all its steps,
            largest first; one above 1 grows from period to period.
    """

    cost_to_go: jax.Array
    without: jax.Array
    with_feedback: jax.Array


@checked(max_periods=check_rows, tol=check_positive)
@all_digits
def track(
    model: Model,
    trajectory: Trajectory,
    *,
    stepper: Stepper,
    state_cost: Float[jax.Array, " n"] | Float[jax.Array, "n n"],
    control_cost: Float[jax.Array, " nu"] | Float[jax.Array, "nu nu"],
    periodic: bool = False,
    max_periods: int = 200,
    tol: float = 1e-9,
) -> tuple[Tracking, TrackingInfo]:
    """Find the feedback of least cost along a motion: the linear-quadratic regulator of its linearised steps.

    x_{k+1} = A_k x_k + B_k u_k, cost sum of x^T Q x + u^T R u;
    K_k = (R + B^T P_{k+1} B)^-1 B^T P_{k+1} A,  P_k = Q + A^T P_{k+1} (A - B K_k). The regulator knows the
    contacts of the motion alone: A and B are those of its steps, also where another contact would soon close.

    Args:
        model: the mechanism and its numbers.
        trajectory: the motion, with `inputs`, such as that of `rollout`.
        stepper: the method that made it, such as `Compliant()`.
        state_cost: Q, (2 nv,) its diagonal or (2 nv, 2 nv).
        control_cost: R, (nu,) or (nu, nu), positive definite.
        periodic: whether the motion repeats, but for a way; then the recursion goes on until P repeats.
        max_periods: of the recursion.
        tol: relative change of P in a period at which it has settled.

    Returns:
        The policy `Tracking`, and `TrackingInfo`.

    Raises:
        ValueError: a motion without inputs; costs of another shape.

    Status: see `TrackingInfo`.

    Derivative: of the recursion as run, forward.
    """
    inputs = trajectory.inputs
    if inputs is None:
        raise ValueError("trajectory: expected a motion with inputs, got None")
    size = 2 * model.structure.num_velocities
    Q = _as_matrix("state_cost", state_cost, size)
    R = _as_matrix("control_cost", control_cost, inputs.shape[1])
    motion = _Motion(trajectory.states, inputs, trajectory.mocap)
    return _compute_regulator(max_periods if periodic else 0, model, motion, stepper, (Q, R), tol)


class _Motion(NamedTuple):
    """States of a motion (T + 1, ...), controls (T, nu), and poses (T + 1, ...) of mocap bodies or None."""

    states: State
    inputs: jax.Array
    mocap: MocapPoses | None


@functools.partial(jit, static_argnames="max_periods")
def _compute_regulator(
    max_periods: int, model: Model, motion: _Motion, stepper: Stepper,
    costs: tuple[jax.Array, jax.Array], tol: float | jax.Array,
) -> tuple[Tracking, TrackingInfo]:  # fmt: skip
    """Linearise the steps, and go backward over them once, or over periods until P settles."""
    (Q, R), periodic = costs, max_periods > 0
    states, inputs, _ = motion
    A, B, status = _linear_steps(model, motion, stepper)

    def backward(P: jax.Array, step: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        A, B = step
        K = jnp.linalg.solve(R + B.T @ P @ B, B.T @ P @ A)
        P = Q + A.T @ P @ (A - B @ K)
        return 0.5 * (P + P.T), K

    def over_period(P: jax.Array) -> tuple[jax.Array, jax.Array]:
        result: tuple[jax.Array, jax.Array] = lax.scan(backward, P, (A, B), reverse=True)
        return result

    def improved(carry: tuple[jax.Array, jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array, jax.Array]:
        P, _, number = carry
        new, _ = over_period(P)
        return new, jnp.max(jnp.abs(new - P)) / jnp.max(jnp.abs(new)), number + 1

    P, residual, number = Q, jnp.zeros((), Q.dtype), jnp.int32(0)
    if periodic:
        P, residual, number = bounded_loop(
            lambda c: (c[1] > tol) & (c[2] < max_periods),
            improved,
            (P, residual + jnp.inf, number),
            max_iters=max_periods,
        )
    P, K = over_period(P)
    status = status | flag(residual > tol, Status.INACCURATE) | flag(~is_finite(K), Status.NONFINITE)
    way = states.q[-1] - states.q[0] if periodic else jnp.zeros_like(states.q[0])
    policy = Tracking(states=states, inputs=inputs, gains=K, period=way, repeats=jnp.asarray(periodic))
    info = TrackingInfo(
        status=status, residual=residual, num_iters=number, cost_to_go=P,
        without=_multipliers(A), with_feedback=_multipliers(A - B @ K),
    )  # fmt: skip
    return policy, info


def _linear_steps(model: Model, motion: _Motion, stepper: Stepper) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Linearise every step of a motion; return A (T, n, n), B (T, n, nu) and all bits of their status."""
    states, inputs, poses = motion
    dt = states.t[1] - states.t[0]
    rows = None if poses is None else rows_of_poses(poses, dt, model.structure.dim)

    def at_step(state: State, u: jax.Array, row: MocapRows | None) -> tuple[jax.Array, jax.Array, jax.Array]:
        linear, info = linearize(apply_mocap(model, row, state.t), state, u, stepper=stepper, dt=dt)
        return linear.A, linear.B, info.status

    A, B, statuses = jax.vmap(at_step)(jax.tree.map(lambda x: x[:-1], states), inputs, rows)
    return A, B, lax.reduce(statuses, jnp.uint32(0), lax.bitwise_or, (0,))


def _as_matrix(name: str, cost: jax.Array, size: int) -> jax.Array:
    """Return a cost as a matrix (size, size), from its diagonal or as it is."""
    cost = jnp.diag(cost) if jnp.ndim(cost) == 1 else jnp.asarray(cost)
    if cost.shape != (size, size):
        raise ValueError(f"{name}: expected ({size},) or ({size}, {size}), got {cost.shape}")
    return cost


def _multipliers(steps: jax.Array) -> jax.Array:
    """Compute the sizes of the eigenvalues of the product of steps (T, n, n), largest first."""
    product, _ = lax.scan(
        lambda product, step: (step @ product, None), jnp.eye(steps.shape[1], dtype=steps.dtype), steps
    )
    return -jnp.sort(-jnp.abs(jnp.linalg.eigvals(product)))
