"""Periodic gaits of minimum cost at a fixed speed, by the flow of an event-selected system: entry `gait`.

Owns the stride as an optimisation: from free numbers to its cost and to residuals that vanish if it repeats.
`trajectory` has the loop. Page: docs/methods/event-selected.md.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree

from jaxcontact import ess
from jaxcontact._pytree import PyTree
from jaxcontact.arguments import (
    check_choice,
    check_not_negative,
    check_number,
    check_number_leaves,
    check_rows,
    check_whole,
)
from jaxcontact.batching.run_settings import DEFAULT_RUN, Run
from jaxcontact.front_door import POSITIVE, checked
from jaxcontact.io import fingerprint
from jaxcontact.mechanics.event_system import EventSystem
from jaxcontact.mechanics.system import Model
from jaxcontact.optimize.augmented_lagrangian import AugmentedLagrangian
from jaxcontact.optimize.over_outcomes import RISKS, SHARE, risk_of
from jaxcontact.optimize.trajectory import Optimizer, Search, TrajectoryInfo, optimise
from jaxcontact.status import Status

if TYPE_CHECKING:
    from jaxtyping import Float


class Launch(NamedTuple):
    """Start of a stride: numbers of the system, state (n,), duration (s), control."""

    params: PyTree
    x0: jax.Array
    duration: jax.Array
    control: PyTree


@checked(max_steps=check_rows, max_events=check_rows)
@dataclasses.dataclass(frozen=True)
class GaitProblem:
    """A stride as a function of free numbers; hashable, write the functions at module level.

    Attributes:
        es: the system.
        launch: (free, params) -> Launch, the start of a stride for a pytree of free numbers.
        measure: (launch, x1, speed) -> (cost (), residuals (k,)): cost of the stride, and residuals that
            vanish for a periodic stride at the wanted speed, x1 being its end.
        eps: (m,) half widths of the guards' bands.
        crossed0: (m,) guards that count as crossed at the start.
        max_steps: bound on the integrator's steps in a stride.
        max_events: bound on crossings in a stride.
    """

    es: EventSystem
    launch: Callable[[PyTree, PyTree], Launch]
    measure: Callable[[Launch, jax.Array, jax.typing.ArrayLike], tuple[jax.Array, jax.Array]]
    eps: tuple[float, ...]
    crossed0: tuple[bool, ...]
    max_steps: int = 192
    max_events: int = 24

    def settings(self) -> ess.Settings:
        """Make the settings of a run over one period."""
        return ess.Settings(
            eps=jnp.array(self.eps), ode=ess.DormandPrince(rtol=1e-9, atol=1e-11),
            max_steps=self.max_steps, max_events=self.max_events,
        )  # fmt: skip

    def starts_crossed(self) -> jax.Array:
        """Return the mask (m,) of the guards that count as crossed at the start."""
        return jnp.array(self.crossed0)


@checked(
    outcomes=check_rows,
    risk=check_choice(*RISKS),
    share=SHARE,
    seed=check_whole,
    spread=check_not_negative,
)
@dataclasses.dataclass(frozen=True)
class RandomStride:
    """A stride whose impacts draw their impulse orders: a `problem` of `gait` that holds for all outcomes.

    The draws are the same throughout a search. Without a spread the gradient is that of each outcome: it
    misses how the probabilities of outcomes change with the free numbers (docs/methods/planning.md, (5)).

    Attributes:
        stride: (free, params, speed, key) -> (cost (), residuals (k,)) of the outcome that a key draws; the
            mean of the residuals vanishes for a gait.
        outcomes: number of draws.
        risk, share: of their costs, as `risk_of`.
        seed: of the draws.
        spread: s, in the unit of the free numbers, over which jumps of outcomes are seen; four motions an
            outcome. Not of "worst".
    """

    stride: Callable[[PyTree, PyTree, jax.typing.ArrayLike, jax.Array], tuple[jax.Array, jax.Array]]
    outcomes: int
    risk: str = "mean"
    share: float = 0.1
    seed: int = 0
    spread: float = 0.0

    def __post_init__(self) -> None:
        """Raise ValueError for a spread of the worst outcome, which is a single one."""
        if self.spread and self.risk == "worst":
            raise ValueError('spread: expected 0 with risk="worst", which is one outcome')

    def all_outcomes(
        self, params: PyTree, free: PyTree, speed: jax.typing.ArrayLike
    ) -> tuple[jax.Array, jax.Array]:
        """Compute the costs (outcomes,) and residuals (outcomes, k) of all draws."""
        return jax.vmap(lambda key: self.stride(free, params, speed, key))(self._keys())

    def _keys(self) -> jax.Array:
        return jax.random.split(jax.random.key(self.seed), self.outcomes)

    def risk_and_errors(
        self, params: PyTree, free: PyTree, speed: jax.typing.ArrayLike
    ) -> tuple[jax.Array, jax.Array]:
        """Compute the risk () of the costs and the mean (k,) of the residuals.

        Derivative: that of each outcome; with a spread that by `free` has the jumps of outcomes, too,
        d E y = E y' + E [((y(x + s z) - y(x - s z)) / (2 s) - y' z) z] with z normal, y cost and residuals;
        for "cvar" the cost is max(c - t, 0) / share with t fixed.
        """
        costs, residuals = self.all_outcomes(params, free, speed)
        risk, errors = risk_of(costs, self.risk, share=self.share), jnp.mean(residuals, axis=0)
        if not self.spread:
            return risk, errors
        x, unravel = ravel_pytree(free)
        fixed = jax.lax.stop_gradient(x)
        limit = jax.lax.stop_gradient(jnp.quantile(costs, 1.0 - self.share))
        normal = jax.random.normal(jax.random.key(self.seed + 1), (self.outcomes, x.shape[0]), x.dtype)

        def outcome(x: jax.Array, key: jax.Array) -> jax.Array:
            cost, errors = self.stride(unravel(x), params, speed, key)
            cost = jnp.maximum(cost - limit, 0.0) / self.share if self.risk == "cvar" else cost
            return jnp.concatenate([cost[None], errors])

        def jump(z: jax.Array, key: jax.Array) -> jax.Array:
            right, left = (outcome(fixed + step * z, key) for step in (self.spread, -self.spread))
            return (right - left) / (2.0 * self.spread) - jax.jvp(lambda x: outcome(x, key), (fixed,), (z,))[
                1
            ]

        jumps = jax.lax.stop_gradient(jax.vmap(jump)(normal, self._keys()))
        missing = (jumps.T @ normal / self.outcomes) @ (x - fixed)  # zero, with a slope
        return risk + missing[0], errors + missing[1:]


def _launch(problem: GaitProblem, free: PyTree, params: PyTree) -> Launch:
    """Start a stride; raise TypeError for trees that `problem.launch` does not take."""
    try:
        return problem.launch(free, params)
    except (TypeError, LookupError, AttributeError) as error:
        raise TypeError(
            f"free, params: expected trees that problem.launch takes, got {type(free).__name__} and "
            f"{type(params).__name__}: {error}"
        ) from error


@checked(speed=check_number, params=check_number_leaves, free=check_number_leaves)
def gait_outcome(
    problem: GaitProblem | RandomStride, params: PyTree, free: PyTree, speed: float | Float[jax.Array, ""]
) -> tuple[jax.Array, jax.Array]:
    """Compute cost () and residuals (k,) of one stride; the cost is NaN if the motion failed.

    Of a `RandomStride` they are the risk and the mean over its outcomes.

    Derivative: that of `ess.flow`, by free, params and speed; of a `RandomStride` as it says.
    """
    if isinstance(problem, RandomStride):
        return problem.risk_and_errors(params, free, speed)
    launch = _launch(problem, free, params)
    x1, info = ess.flow(
        Model(system=problem.es, params=launch.params), launch.x0, 0.0, launch.duration,
        settings=problem.settings(), control=launch.control, crossed0=problem.starts_crossed(),
    )  # fmt: skip
    cost, residuals = problem.measure(launch, x1, speed)
    failed = (info.status & jnp.uint32(int(Status.FAILURES))) != 0
    return jnp.where(failed, jnp.nan, cost), residuals


@checked(
    speed=check_number, params=check_number_leaves, free=check_number_leaves, direction=check_number_leaves
)
def gait_outcome_rate(
    problem: GaitProblem, params: PyTree, free: PyTree, direction: PyTree, speed: float | Float[jax.Array, ""]
) -> tuple[jax.Array, jax.Array]:
    """Compute the one-sided derivative of `gait_outcome` along a direction of `free`.

    It is exact even if feet land together, and NaN if the motion failed.

    Raises:
        TypeError: a `RandomStride`, whose outcomes jump.

    Derivative: by `direction`, that of the linear piece it lies in, forward only.
    """
    launch, rates = jax.jvp(lambda z: _launch(problem, z, params), (free,), (direction,))
    direction = ess.Direction(x=rates.x0, params=rates.params, control=rates.control)
    dx1, info = ess.b_derivative(
        Model(system=problem.es, params=launch.params), launch.x0, direction, 0.0, launch.duration,
        settings=problem.settings(), control=launch.control, crossed0=problem.starts_crossed(),
    )  # fmt: skip
    f = problem.es.xdot(launch.duration, info.x1, info.crossed, launch.control, launch.params)
    failed = (info.status & jnp.uint32(int(Status.FAILURES))) != 0
    dx1 = jnp.where(failed, jnp.nan, dx1 + f * rates.duration)
    return jax.jvp(lambda a, x: problem.measure(a, x, speed), (launch, info.x1), (rates, dx1))[1]


@checked(speed=check_number, num_steps=check_whole, tol=POSITIVE)
def gait(
    problem: GaitProblem | RandomStride,
    params: PyTree,
    free0: PyTree,
    *,
    speed: float,
    optimizer: Optimizer | None = None,
    num_steps: int = 150,
    tol: float = 1e-8,
    run: Run = DEFAULT_RUN,
) -> tuple[PyTree, TrajectoryInfo]:
    """Find a periodic gait of minimum cost at a fixed speed, from a stride that need not be periodic.

    Args:
        problem: the stride; a `RandomStride` for a gait of least mean, worst or tail cost over outcomes.
        params: its system's numbers.
        free0: free numbers to start from; |free0| is the scale of each, 1 where zero.
        speed: wanted speed, as `problem.measure` takes it, m/s.
        optimizer: as `trajectory`; default Adam with a step falling from 0.02 to zero.
        num_steps, tol, run: as `trajectory`; the default optimizer's step depends on
            `num_steps`, so a run of another length is another run.

    Returns:
        The free numbers, TrajectoryInfo; `residual` is the largest error of period and speed.

    Raises:
        ValueError, TypeError: as `trajectory`; a speed that is not a finite number; an
            optimizer with smoothing, which strides do not have.

    Derivative: none; a host driver. Its steps use the derivative of `ess.flow`, which is exact along
    directions that leave feet landing together, as those of `jaxcontact.optimize.gaits.hexapod` do.
    """
    if isinstance(optimizer, AugmentedLagrangian) and optimizer.smoothing:
        raise ValueError(
            f"optimizer.smoothing: expected none, for a stride has none, got {optimizer.smoothing}"
        )
    about: dict[str, object] = {"speed": float(speed), "params": fingerprint.of_numbers(params)}
    if optimizer is None:
        import optax  # inside the function, because the import takes long

        about["num_steps"] = num_steps
        optimizer = optax.adam(optax.cosine_decay_schedule(0.02, max(num_steps, 1)))
    scale = jax.tree.map(lambda leaf: jnp.where(jnp.abs(leaf) > 0.0, jnp.abs(leaf), 1.0), free0)
    search = Search(optimizer, num_steps, tol, about, scale)
    return optimise(lambda free: gait_outcome(problem, params, free, speed), free0, search, run)
