"""The first event of a stretch: a gap closes, a contact lets go, begins to slip, comes to stick.

Owns the length of a step by its error, the search for the time of an event within it, and the contact of
the event. Entry: `first_event`. Page: docs/methods/motion.md.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from jaxcontact.batching.bounded_loop import bounded_loop
from jaxcontact.mechanics.system import State, System
from jaxcontact.simulate.augmented.contact_forces import FORCE_TOLERANCE
from jaxcontact.simulate.events.stretch import StretchMotion, step_stretch
from jaxcontact.simulate.projection import allowed_depth
from jaxcontact.solvers import ode
from jaxcontact.solvers.contact_problem import SEPARATE, SLIDE
from jaxcontact.solvers.roots import Bracket, cubic_dip, illinois

MAX_TRIALS = 80  # steps tried for one stretch; a search that needs more fails
ROUGH = 1e-4  # fraction of a rate that the round-off of a gap over its time may be; else the mean is rough
SAMPLES = 4  # equal parts of a step; events are looked for at their ends
INNER = tuple(k / SAMPLES for k in range(1, SAMPLES))


class FoundStretch(NamedTuple):
    """A stretch.

    Attributes:
        h: its length, s.
        y: its end, as `start_vector`.
        friction: (nc, nt) directions of the friction forces there.
        along: (nc,) the second of the values of `Look` there.
        event: bool, whether an event ends it.
        participants: (nc, 2) bool, the value that is zero at the end.
        unloads: (nc,) bool, closed contacts whose normal force falls to zero with the event.
        is_resolved: bool, whether a step was small enough.
    """

    h: jax.Array
    y: jax.Array
    friction: jax.Array
    along: jax.Array
    event: jax.Array
    participants: jax.Array
    unloads: jax.Array
    is_resolved: jax.Array


class _Trial(NamedTuple):
    h: jax.Array
    tries: jax.Array
    searching: jax.Array
    done: jax.Array
    suspects: jax.Array  # (nc, 2) bool, events that have happened at `high`
    size: jax.Array  # (nc, 2) of their values
    bracket: Bracket  # of the search for the event
    load: jax.Array  # (nc,) normal forces of closed contacts at the start
    last: jax.Array  # (nc, 2) values at the end of the last trial
    y: jax.Array  # that end
    friction: jax.Array  # (nc, nt) directions at that end
    along: jax.Array  # (nc,)


class EventFilter(NamedTuple):
    """What counts as no event.

    Attributes:
        touching: (nc,) bool, contacts whose gap counts as zero at the start.
        near: (nc,) sliding velocities that count as zero, m/s.
        ignores: bool, whether the step goes to the end of the time step and ignores events.
    """

    touching: jax.Array
    near: jax.Array
    ignores: jax.Array


def first_event(
    system: System, motion: StretchMotion, state: State, y0: jax.Array, remaining: jax.Array,
    solver: ode.DormandPrince, no_events: EventFilter,
) -> FoundStretch:  # fmt: skip
    """Make one step along a stretch, no longer than its error allows, or its part before the first event.

    Args:
        y0: the `start_vector` of the state.
        remaining: longest step, s.

    Derivative: none.
    """
    touching, near, ignores = no_events
    nc = motion.modes.kind.shape[0]
    dtype, eps = state.q.dtype, float(jnp.finfo(state.q.dtype).eps)
    gaps = motion.modes.kind == SEPARATE
    depth, floor = _event_depths(motion.modes.kind, near, state), _noise_sizes(motion.modes.kind, state, eps)
    depth = jnp.where(ignores, jnp.inf, depth)
    shares = jnp.linspace(0.0, 1.0, SAMPLES + 1, dtype=dtype)

    def attempt(c: _Trial) -> _Trial:
        trial, rows = step_stretch(system, motion, state.t, y0, c.h, INNER)
        ratio = jnp.where(ignores, 0.0, ode.error_ratio(trial, solver))
        start, end = (jax.tree.map(lambda x, k=k: x[k], rows) for k in (0, -1))
        low = jnp.where(touching, start.value[:, 0], jnp.minimum(start.value[:, 0], 0.0))
        base = jnp.where(gaps, low, 0.0)
        leaves = gaps & touching & (start.rate > near)
        raw = rows.value.at[:, :, 0].add(-base[None])
        samples = _Samples(raw, rows.rate, shares * c.h, gaps, leaves)
        value = _values_for_roots(samples, depth, floor[:, 0])
        # A mean rate has the round-off of the gap over its time, or, if that is too large, that of rates.
        rough = leaves & _is_rough(samples, floor[:, 0])[-1]
        noise = floor[:, 0] / jnp.where(leaves, jnp.where(rough, jnp.inf, c.h), 1.0)
        noise = floor.at[:, 0].set(noise + jnp.where(rough, eps * jnp.max(jnp.abs(state.v)), 0.0))
        c = c._replace(
            load=start.value[:, 0],
            tries=c.tries + 1,
            y=trial.x1,
            friction=end.friction,
            along=end.value[:, 1],
        )
        return lax.cond(
            c.searching,
            lambda: _narrow_bracket(c, value[-1], noise, ratio, eps),
            lambda: _continue_after_step(c, samples, value, ratio, depth),
        )

    zero, none = jnp.zeros((), dtype), jnp.zeros((nc, 2), dtype)
    first = _Trial(
        h=remaining, tries=jnp.int32(0), searching=jnp.array(False), done=jnp.array(False), suspects=none > 0,
        size=none + 1.0, bracket=Bracket(zero, zero, zero, zero, jnp.array(True)),
        load=none[:, 0], last=none, y=y0, friction=motion.modes.heading, along=none[:, 0],
    )  # fmt: skip
    end = bounded_loop(lambda c: ~c.done & (c.tries < MAX_TRIALS), attempt, first, max_iters=MAX_TRIALS)
    share = jnp.where(end.suspects, end.last / end.size, jnp.inf)
    nearest = jnp.min(share, initial=jnp.inf)
    event = end.searching & (jnp.abs(nearest) <= eps**0.5)  # a gap may only seem to close
    first_one = jnp.arange(2 * nc) == jnp.argmin(share) if nc else jnp.zeros(0, bool)
    converged = (end.done | event) & jnp.isfinite(end.h)  # an event that round-off hides is found well enough
    unloads = event & ~gaps & (end.load > depth[:, 0]) & (jnp.abs(end.last[:, 0]) <= depth[:, 0])
    participants = first_one.reshape(nc, 2) & event
    return FoundStretch(end.h, end.y, end.friction, end.along, event, participants, unloads, converged)


class _Samples(NamedTuple):
    """Values (k, nc, 2), rates of gaps (k, nc), times (k,); masks of gaps, and of gaps that leave from 0."""

    raw: jax.Array
    rates: jax.Array
    times: jax.Array
    gaps: jax.Array
    leaves: jax.Array


def _noise_sizes(kind: jax.Array, state: State, eps: float) -> jax.Array:
    """Compute the sizes (nc, 2) up to which values are round-off."""
    ones = jnp.ones(kind.shape[0], state.q.dtype)
    length = jnp.maximum(1.0, jnp.max(jnp.abs(state.q)))  # m; a mechanism has lengths that q does not show
    gap, speed = 4.0 * eps * length * ones, eps * jnp.max(jnp.abs(state.v)) * ones
    root = jnp.where(kind == SEPARATE, gap, 8.0 * eps)
    return jnp.stack([root, jnp.where(kind == SLIDE, speed, 8.0 * eps)], axis=1)


def _event_depths(kind: jax.Array, near: jax.Array, state: State) -> jax.Array:
    """Compute the depths below zero (nc, 2) beyond which an event has happened."""
    force = jnp.full_like(near, float(jnp.finfo(near.dtype).eps) ** FORCE_TOLERANCE)
    gap = jnp.full_like(near, 2.0) * allowed_depth(state.q)
    return jnp.stack([jnp.where(kind == SEPARATE, gap, force), jnp.where(kind == SLIDE, near, force)], axis=1)


def _is_rough(samples: _Samples, floor: jax.Array) -> jax.Array:
    """Find the times (k, nc) so short that the round-off `floor` (nc,) of gaps spoils a mean rate."""
    return floor[None] >= ROUGH * samples.times[:, None] * jnp.abs(samples.rates[:1])


def _values_for_roots(samples: _Samples, depth: jax.Array, floor: jax.Array) -> jax.Array:
    """Compute values (k, nc, 2) with the roots that are looked for, and no others.

    A value negative at the start through round-off counts as an event only after it has been positive. A gap
    that starts at zero and grows has its next zero where its mean rate has one; over the shortest times the
    mean rate is the mean of two rates.
    """
    raw, times = samples.raw, samples.times
    shift = jnp.where(raw[0] > depth, 0.0, depth)
    value = raw + shift[None]
    later = jnp.where(times > 0, times, 1.0)[:, None]
    mean = jnp.where(
        _is_rough(samples, floor), 0.5 * (samples.rates[:1] + samples.rates), raw[:, :, 0] / later
    )
    return value.at[:, :, 0].set(jnp.where(samples.leaves[None], mean, value[:, :, 0]))


def _continue_after_step(
    c: _Trial, samples: _Samples, value: jax.Array, ratio: jax.Array, depth: jax.Array
) -> _Trial:
    """Continue after a step: retry a shorter one if its error is too large, search an event, or finish."""
    good = ratio <= 1.0
    behind = samples.raw[1:] < -depth[None]
    gap, slope = samples.raw[:, :, 0], samples.rates * (c.h / SAMPLES)
    dip, where = cubic_dip(gap[:-1], gap[1:], slope[:-1], slope[1:])
    dips = (dip < -depth[None, :, 0]) & samples.gaps[None] & ~behind[:, :, 0]
    happened = behind.at[:, :, 0].set(behind[:, :, 0] | dips)
    any_yet = jnp.any(happened, axis=(1, 2))
    at = jnp.argmax(any_yet)
    crossed = good & jnp.any(any_yet)
    suspects = happened[at]
    # Up to the deepest point of a dip, at the end of which the gap is open again.
    share = jnp.min(jnp.where(dips[at], where[at], 1.0), initial=1.0)
    low = samples.times[at]
    high = low + share * (samples.times[at + 1] - low)
    bottom = dip[at] / jnp.where(samples.leaves, high, 1.0)
    after = value[at + 1].at[:, 0].set(jnp.where(dips[at], bottom, value[at + 1, :, 0]))
    size = jnp.maximum(jnp.abs(after), jnp.finfo(after.dtype).tiny)
    value_low, value_high = (
        jnp.min(jnp.where(suspects, row / size, jnp.inf), initial=jnp.inf) for row in (value[at], after)
    )
    high = jnp.where(value_low > 0, high, low)
    begin = low + (high - low) * value_low / (value_low - value_high)
    begin = jnp.where(value_low > 0, begin, low)
    return c._replace(
        h=jnp.where(crossed, begin, jnp.where(good, c.h, _shorten(c.h, ratio))),
        searching=crossed,
        done=good & ~crossed,
        suspects=suspects,
        size=size,
        bracket=Bracket(low, high, value_low, value_high, jnp.array(True)),
    )


def _shorten(h: jax.Array, ratio: jax.Array) -> jax.Array:
    """Choose the length of a step after one whose error was too large, at least half of it.

    Close to rest no step across the rest is accurate; its error does not say how much shorter one must be.
    """
    return jnp.maximum(ode.next_size(h, ratio), 0.5 * h)


def _narrow_bracket(c: _Trial, value: jax.Array, floor: jax.Array, ratio: jax.Array, eps: float) -> _Trial:
    """Narrow the bracket of the search by the Illinois rule; every eighth trial halves it.

    A trial whose error is too large ends the search, and a shorter step follows: a step across the rest of
    sliding contacts may be accurate by chance, and a part of it is not, because friction turns fast there.
    """
    share = jnp.where(c.suspects, value / c.size, jnp.inf)
    lowest = jnp.min(share, initial=jnp.inf)
    noise = jnp.max(jnp.where(share == lowest, floor / c.size, 0.0), initial=0.0)
    trial, bracket = illinois(c.h, lowest, c.bracket, c.tries % 8 == 0)
    good = ratio <= 1.0
    done = (jnp.abs(lowest) <= noise) | (bracket.high - bracket.low <= 4.0 * eps * bracket.high)
    return c._replace(
        h=jnp.where(good, jnp.where(done, c.h, trial), _shorten(c.h, ratio)),
        searching=good,
        done=good & done,
        bracket=bracket,
        last=value,
    )
