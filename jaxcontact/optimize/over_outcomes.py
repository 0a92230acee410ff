"""Costs over the outcomes of a motion: `risk_of` of many costs, `over_outcomes` of a cost that draws.

Where an outcome jumps as controls move, the mean of the gradients is not the gradient of the mean; a spread
of the controls mends that. Page: docs/methods/planning.md.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree

from jaxcontact._pytree import PyTree
from jaxcontact.arguments import (
    check_choice,
    check_fraction,
    check_not_negative,
    check_positive,
    check_rows,
)
from jaxcontact.front_door import checked

if TYPE_CHECKING:
    from jaxtyping import Float

RISKS = ("mean", "worst", "cvar")
SHARE = (check_positive, check_fraction)


@checked(risk=check_choice(*RISKS), share=SHARE)
def risk_of(costs: Float[jax.Array, " k"], risk: str = "mean", *, share: float = 0.1) -> jax.Array:
    """Compute one number of costs (k,): their mean, the worst of them, or the mean of the worst `share`.

    "cvar" is the conditional value at risk of Rockafellar and Uryasev, the least of t + mean(max(c - t, 0)) /
    share over t; with a share of one, the mean. A cost that is NaN makes the result NaN.

    Args:
        costs: (k,) equally probable.
        risk: "mean", "worst" or "cvar".
        share: of the costs that "cvar" takes the mean of; part of a cost counts in part.

    Returns:
        A scalar, in the unit of the costs.

    Raises:
        ValueError: another word; a share that is not above zero and at most one.

    Derivative: exact; where costs tie, that of the ones that come first.
    """
    if risk == "mean":
        return jnp.mean(costs)
    if risk == "worst":
        # By its place: the derivative of jnp.max compares numbers that a program computes twice.
        return costs[jnp.argmax(costs)]
    worst_first = -jnp.sort(-costs)
    weights = jnp.clip(share * costs.shape[0] - jnp.arange(costs.shape[0]), 0.0, 1.0)
    return worst_first @ weights / jnp.sum(weights)


@checked(
    outcomes=check_rows,
    risk=check_choice(*RISKS),
    share=(check_positive, check_fraction),
    spread=check_not_negative,
)
def over_outcomes(
    cost: Callable[[PyTree, jax.Array], jax.Array],
    key: jax.Array,
    *,
    outcomes: int,
    risk: str = "mean",
    share: float = 0.1,
    spread: float = 0.0,
) -> Callable[[PyTree], jax.Array]:
    """Make a function of controls: the risk of a cost over impulse orders, for any optimiser.

    The draws are fixed, so that the function is one function. Without a spread its derivative is that of each
    outcome; it misses how the probabilities of outcomes change with the controls. With a spread s > 0 the
    function is F(x) = risk of c(x + s z), z normal, and its gradient that of F with all jumps, by pairs of
    draws: the mean over i of (c(x + s z_i, k_i) - c(x - s z_i, k_i)) z_i / (2 s), for "cvar" with
    max(c - t, 0) / share in place of c, t fixed. It takes two motions an outcome and no reverse mode.

    Args:
        cost: (controls, key) -> scalar, a motion that draws its impulse orders by the key.
        key: of all draws.
        outcomes: how many are drawn.
        risk, share: as `risk_of`.
        spread: s, in the unit of the controls; scale controls of several units.

    Returns:
        A function of controls, such as `trajectory` takes.

    Raises:
        ValueError: numbers out of range; a spread with "worst", whose gradient it does not give.

    Derivative: as above, first order, forward and reverse.
    """
    if spread and risk == "worst":
        raise ValueError('spread: expected 0 with risk="worst", whose gradient pairs of draws do not give')
    keys = jax.random.split(key, outcomes)

    def exact(controls: PyTree) -> jax.Array:
        return risk_of(jax.vmap(lambda key: cost(controls, key))(keys), risk, share=share)

    def blurred(controls: PyTree) -> jax.Array:
        x, unravel = ravel_pytree(controls)
        fixed = jax.lax.stop_gradient(x)
        directions = jax.random.normal(jax.random.fold_in(key, outcomes), (outcomes, x.shape[0]), x.dtype)

        def both(direction: jax.Array, key: jax.Array) -> jax.Array:
            return jnp.stack([cost(unravel(fixed + s * direction), key) for s in (spread, -spread)])

        costs = jax.vmap(both)(directions, keys)
        value = risk_of(costs.ravel(), risk, share=share)
        if risk == "cvar":
            limit = jnp.quantile(costs, 1.0 - share)
            costs = jnp.maximum(costs - limit, 0.0) / share
        gradient = (costs[:, 0] - costs[:, 1]) @ directions / (2.0 * spread * outcomes)
        return value + (x - fixed) @ gradient

    return blurred if spread else exact
