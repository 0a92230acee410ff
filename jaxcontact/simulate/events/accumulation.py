"""An accumulation of impacts (Zeno): the memory of the last ones, and the limit that they approach.

Times, positions and velocities of a chatter approach their limit as a geometric series. Two impacts of a
period may differ, as those of the two corners of a block, so every other one is compared: with the ratio R of
the intervals, x_k = x + a R^k + b R^2k, which the last five impacts determine. Entry: `predict_chatter`.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp

from jaxcontact.mechanics.configuration import difference, retract
from jaxcontact.mechanics.system import State, System
from jaxcontact.precision import jit

SKIPPED = 4  # pairs of impacts; if fewer can be left out before the end of the step, none are
DENSE = 1e-2  # fraction of a step; five impacts within it are dense
LENGTH = 5  # impacts remembered: two intervals of two impacts, each also shifted by an impact


class Chatter(NamedTuple):
    """The last impacts, the newest first, and how many of the rows are in use.

    Attributes:
        q, v, t: states after them.
        participants: (LENGTH, nc) bool, contacts that took part.
        used: int32, number of rows in use.
    """

    q: jax.Array
    v: jax.Array
    t: jax.Array
    participants: jax.Array
    used: jax.Array


def no_chatter(state: State, nc: int) -> Chatter:
    """Make an empty memory of impacts."""
    q, v, t = (jnp.broadcast_to(x, (LENGTH, *jnp.shape(x))) for x in (state.q, state.v, state.t))
    return Chatter(q, v, t, jnp.zeros((LENGTH, nc), bool), jnp.int32(0))


def remember_impact(chatter: Chatter, state: State, participants: jax.Array) -> Chatter:
    """Record one impact in the memory and drop the oldest one."""

    def pushed(rows: jax.Array, row: jax.Array) -> jax.Array:
        return jnp.concatenate([jnp.asarray(row, rows.dtype)[None], rows[:-1]])

    return Chatter(
        pushed(chatter.q, state.q), pushed(chatter.v, state.v), pushed(chatter.t, state.t),
        pushed(chatter.participants, participants), jnp.minimum(chatter.used + 1, LENGTH),
    )  # fmt: skip


def series_ratio(t: jax.Array) -> jax.Array:
    """Compute R of the intervals between every other impact; 1/2 if they do not shrink: no limit exists."""
    last, before = t[0] - t[2], t[2] - t[4]
    shrinks = (last > 0) & (last < before)
    return jnp.where(shrinks, last, 0.5) / jnp.where(shrinks, before, 1.0)


def series_limit(rows: jax.Array, ratio: jax.Array, turns: jax.Array) -> jax.Array:
    """Evaluate x + a R^turns + b R^2turns of rows x_k (5, ...), the first row zero; inf is the limit."""
    left = jnp.where(jnp.isinf(turns), 0.0, ratio ** jnp.where(jnp.isinf(turns), 1.0, turns))
    newer = (rows[0] - ratio * rows[2]) / (1.0 - ratio)
    older = (rows[2] - ratio * rows[4]) / (1.0 - ratio)
    end = (newer - ratio**2 * older) / (1.0 - ratio**2)
    first = ((rows[0] - end) - ratio**2 * (rows[2] - end)) / (1.0 - ratio)
    return end + left * (first + left * (rows[0] - end - first))


@functools.partial(jit, static_argnames="system")
def extrapolate_chatter(system: System, chatter: Chatter, turns: jax.Array) -> State:
    """Extrapolate the state to after 2 `turns` further impacts; inf is the end of the chatter.

    Derivative: by the states of the impacts that are remembered.
    """
    ratio = series_ratio(chatter.t)
    turned = jax.vmap(lambda q: difference(system, chatter.q[0], q))(chatter.q)
    return State(
        q=retract(system, chatter.q[0], series_limit(turned, ratio, turns)),
        v=chatter.v[0] + series_limit(chatter.v - chatter.v[:1], ratio, turns),
        t=chatter.t[0] + series_limit(chatter.t - chatter.t[:1], ratio, turns),
    )


class Outlook(NamedTuple):
    """The prediction of a chatter from the last impacts.

    Attributes:
        is_series: bool, whether the next impacts are known to round-off, and enough of them can be left out.
        turns: pairs of impacts left before the end of the step; inf if the chatter ends in the step.
        dense: bool, whether impacts are dense without a known series.
    """

    is_series: jax.Array
    turns: jax.Array
    dense: jax.Array


def predict_chatter(system: System, chatter: Chatter, t_end: jax.Array, dt: jax.Array) -> Outlook:
    """Predict from the last impacts whether they are a geometric series, and how far it goes in the step.

    Derivative: none.
    """
    t, eps = chatter.t, float(jnp.finfo(chatter.t.dtype).eps)
    intervals = t[:-1] - t[1:]
    newer, older = intervals[:2], intervals[2:]
    ratios = newer / jnp.where(older > 0, older, 1.0)
    limit = extrapolate_chatter(system, chatter, jnp.asarray(jnp.inf, t.dtype))
    left = limit.t - t[0]
    # The error in the time that is left from the difference of the two ratios.
    doubt = left * jnp.abs(ratios[0] - ratios[1]) / (1.0 - jnp.max(ratios))
    is_precise = doubt <= eps**0.6 * dt + 64.0 * eps * jnp.abs(t[0])
    alike = jnp.all(chatter.participants[0] == chatter.participants[2]) & jnp.all(
        chatter.participants[2] == chatter.participants[4]
    )
    shrinks = jnp.all(intervals > 0) & jnp.all(ratios < 1.0 - 1e-3)
    full = chatter.used >= LENGTH
    series = full & alike & shrinks & is_precise & (left > 0) & jnp.all(jnp.isfinite(limit.q))
    over = limit.t - t_end
    share = jnp.where(over > 0, over, 1.0) / jnp.where(left > 0, left, 1.0)
    turns = jnp.floor(jnp.log(share) / jnp.log(series_ratio(t)))
    turns = jnp.where(over > 0, turns, jnp.inf)
    dense = full & (t[0] - t[-1] < DENSE * dt) & ~series
    return Outlook(series & (turns >= SKIPPED), turns, dense)
