"""Dormand & Prince's method of order 5: one step, its error, its dense output, its step-size control.

Owns ordinary differential equations between events. The field is a function f(t, x); the loop over
steps belongs to the caller, who knows the end of each step. Entries: `step`, `error_ratio`, `next_size`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxcontact._pytree import PyTree, Record
from jaxcontact.arguments import check_not_negative, check_positive, check_positive_or_inf
from jaxcontact.front_door import checked

# Hairer, Norsett & Wanner, Solving Ordinary Differential Equations I, table 5.2; rows are stages.
NODES = np.array([0, 1 / 5, 3 / 10, 4 / 5, 8 / 9, 1, 1])
STAGES = np.array(
    [
        [0, 0, 0, 0, 0, 0, 0],
        [1 / 5, 0, 0, 0, 0, 0, 0],
        [3 / 40, 9 / 40, 0, 0, 0, 0, 0],
        [44 / 45, -56 / 15, 32 / 9, 0, 0, 0, 0],
        [19372 / 6561, -25360 / 2187, 64448 / 6561, -212 / 729, 0, 0, 0],
        [9017 / 3168, -355 / 33, 46732 / 5247, 49 / 176, -5103 / 18656, 0, 0],
        [35 / 384, 0, 500 / 1113, 125 / 192, -2187 / 6784, 11 / 84, 0],
    ]
)
ERROR = np.array([71 / 57600, 0, -71 / 16695, 71 / 1920, -17253 / 339200, 22 / 525, -1 / 40])
# The interpolant of order 4 (their II.6): its last coefficient.
DENSE_WEIGHTS = np.array(
    [
        -12715105075 / 11282082432,
        0,
        87487479700 / 32700410799,
        -10690763975 / 1880347072,
        701980252875 / 199316789632,
        -1453857185 / 822651844,
        69997945 / 29380423,
    ]
)
# Bounds of the ratio of one step length to the last, and the fraction taken of the estimated best one.
SHRINK, GROW, SAFETY = 0.2, 5.0, 0.9


@checked(rtol=check_not_negative, atol=check_not_negative, dt=check_positive, longest=check_positive_or_inf)
class DormandPrince(Record):
    """Settings of the conventional integration: adaptive, or with a fixed step.

    Attributes:
        rtol, atol: largest error per step, |error_i| <= atol + rtol |x_i| in the root mean square.
        dt: fixed step, s; None chooses steps by `rtol` and `atol`.
        longest: bound on chosen steps, s; for forcing that a long step would overlook, and for pictures.
    """

    rtol: jax.Array | float = 1e-8
    atol: jax.Array | float = 1e-10
    dt: jax.Array | float | None = None
    longest: jax.Array | float = np.inf


class OdeStep(NamedTuple):
    """One trial step: start x0 (n,), end x1 (n,), length h, stages k (7, n)."""

    x0: jax.Array
    x1: jax.Array
    h: jax.Array
    k: jax.Array


def step(
    f: Callable[[jax.Array, jax.Array], jax.Array],
    t: jax.Array,
    x: jax.Array,
    h: jax.Array,
    k0: jax.Array | None = None,
) -> OdeStep:
    """Make one step of length h from (t, x); a caller that has k0 = f(t, x) may pass it.

    `k[6]` is the field at the end of the step.

    Derivative: exact derivative of the discrete step by t, x, h and the variables on which f depends.
    """
    # One stage per iteration of a loop: the field is compiled once, not six times.
    first_stage = 0 if k0 is None else 1
    a = jnp.asarray(STAGES[first_stage:], x.dtype)
    c = jnp.asarray(NODES[first_stage:], x.dtype)
    start = jnp.zeros((7, x.shape[0]), x.dtype)
    if k0 is not None:
        start = start.at[0].set(k0)

    def stage(k: jax.Array, row: tuple[jax.Array, jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        weights, node, i = row
        y = x + h * jnp.sum(weights[:, None] * k, axis=0)
        return k.at[i].set(f(t + node * h, y)), y

    k, ys = lax.scan(stage, start, (a, c, jnp.arange(first_stage, 7)))
    return OdeStep(x, ys[-1], h, k)


def step_and_look(
    f: Callable[[jax.Array, jax.Array], tuple[jax.Array, PyTree]],
    t: jax.Array,
    x: jax.Array,
    h: jax.Array,
    inner: tuple[float, ...] = (),
) -> tuple[OdeStep, PyTree]:
    """Make one step and evaluate its field at inner points of its interpolant, all in one loop.

    Args:
        f: (t, x) -> (field, any other pytree of values at a point).
        inner: fractions of the step, in (0, 1).

    Returns:
        OdeStep, and the other values of f at its start, at the inner points and at its end, stacked.

    Derivative: exact derivative of the discrete step by t, x, h and the variables on which f depends.
    """
    weights = np.concatenate([STAGES, *(_dense_weights(share)[None] for share in inner)])
    rows = jnp.asarray(weights, x.dtype), jnp.asarray([*NODES, *inner], x.dtype), jnp.arange(len(weights))

    def stage(k: jax.Array, row: tuple[jax.Array, jax.Array, jax.Array]) -> tuple[jax.Array, PyTree]:
        share, node, i = row
        y = x + h * jnp.sum(share[:, None] * k, axis=0)
        slope, look = f(t + node * h, y)
        return k.at[i].set(slope, mode="drop"), (y, look)

    k, (ys, looks) = lax.scan(stage, jnp.zeros((7, x.shape[0]), x.dtype), rows)
    order = np.array([0, *range(7, 7 + len(inner)), 6])
    return OdeStep(x, ys[6], h, k), jax.tree.map(lambda values: values[order], looks)


def _dense_weights(share: float) -> np.ndarray:
    """Compute the weights (7,) of the stages in `interpolate`."""
    rise, first, last = STAGES[6], np.eye(7)[0], np.eye(7)[6]
    bend = first - rise
    weights: np.ndarray = rise + (1.0 - share) * (
        bend + share * (rise - last - bend + (1.0 - share) * DENSE_WEIGHTS)
    )
    return share * weights


def error_ratio(trial: OdeStep, ode: DormandPrince) -> jax.Array:
    """Compute the error of a step over its tolerance; at most 1 is good, NaN if the field was NaN."""
    error = trial.h * jnp.sum(jnp.asarray(ERROR, trial.x0.dtype)[:, None] * trial.k, axis=0)
    allowed = ode.atol + ode.rtol * jnp.maximum(jnp.abs(trial.x0), jnp.abs(trial.x1))
    return jnp.sqrt(jnp.mean((error / allowed) ** 2))


def interpolate(trial: OdeStep, theta: jax.Array) -> jax.Array:
    """Compute the state (n,) at the fraction `theta` in [0, 1] of a step, by the interpolant of order 4."""
    x0, x1, h, k = trial
    rise = x1 - x0
    bend = h * k[0] - rise
    twist = rise - h * k[6] - bend
    last = h * jnp.sum(jnp.asarray(DENSE_WEIGHTS, x0.dtype)[:, None] * k, axis=0)
    back = 1.0 - theta
    return x0 + theta * (rise + back * (bend + theta * (twist + back * last)))


def next_size(size: jax.Array, ratio: jax.Array) -> jax.Array:
    """Choose the length of the next step after one of length `size` with the `error_ratio` `ratio`."""
    safe = jnp.where(ratio > 0, ratio, 1.0)
    factor = jnp.where(ratio > 0, jnp.clip(SAFETY * safe**-0.2, SHRINK, GROW), GROW)
    return size * jnp.where(jnp.isfinite(ratio), factor, SHRINK)
