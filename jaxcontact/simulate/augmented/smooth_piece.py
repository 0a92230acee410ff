"""A smooth piece of a motion: contacts keep their modes while time runs, up to the first event.

Owns the field (q, v, s) over t with dt/ds = 1 / (1 + |lam_n|_1), the conditions that end a mode, and the
search for their time. Entry: `smooth_piece`. Page: docs/papers/halm_posa.md.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from jaxcontact.batching.bounded_loop import bounded_loop
from jaxcontact.impact.laws.contact_space import contact_space
from jaxcontact.mechanics.configuration import position_rate
from jaxcontact.mechanics.system import Model, State
from jaxcontact.simulate.augmented.contact_forces import (
    FORCE_TOLERANCE,
    Accelerations,
    accelerations,
    cone_distances,
    forces_in_modes,
)
from jaxcontact.solvers import ode
from jaxcontact.solvers.contact_modes import REST_PLUS, REST_STICK, SEPARATE
from jaxcontact.solvers.roots import Bracket, illinois
from jaxcontact.terms import contact_terms

MAX_TRIALS = 80  # steps tried for one piece; a search that needs more fails
SAMPLES = 4  # equal parts of a step; events are looked for at their ends


class SmoothMotion(NamedTuple):
    """The quantities that stay constant during a piece.

    Attributes:
        codes: (nc,) modes.
        state: the start.
        s: its start.
        length: its largest value, at which the motion ends.
        base: (nc,) gaps at the start of contacts that touch there, else 0.
        leaving: (nc,) rates of gaps that are zero at the start and grow, m/s; NaN of the others.
        near: (r,) scaled velocities that count as zero.
        longest: longest step, s.
    """

    codes: jax.Array
    state: State
    s: jax.Array
    length: jax.Array
    base: jax.Array
    leaving: jax.Array
    near: jax.Array
    longest: jax.Array


class SmoothPiece(NamedTuple):
    """A piece and its end.

    Attributes:
        state, s: at its end.
        force: (nc, dim) contact forces at its start, N.
        next_step: the step to try next, s.
        event: bool, whether a mode ends; else the step is over.
        ending: (nc,) bool, the contact whose mode ends.
        failed: bool, no step is small enough.
    """

    state: State
    s: jax.Array
    force: jax.Array
    next_step: jax.Array
    event: jax.Array
    ending: jax.Array
    failed: jax.Array


class _PieceTrial(NamedTuple):
    h: jax.Array
    chosen: jax.Array  # step by its error, before an event cut it
    y: jax.Array  # end of the last trial
    tries: jax.Array
    searching: jax.Array
    done: jax.Array
    suspects: jax.Array  # (n,) bool, events that have happened at `high`
    size: jax.Array  # (n,) of their values
    bracket: Bracket  # of the search for the event
    last: jax.Array  # (n,) values at the end of the last trial
    force: jax.Array


def smooth_piece(
    model: Model, smooth: SmoothMotion, step: jax.Array, solver: ode.DormandPrince
) -> SmoothPiece:
    """Make one step of Dormand & Prince in the given modes, or its part before the first event."""
    start = smooth.state
    nq, nv, dtype = start.q.shape[0], start.v.shape[0], start.q.dtype
    nc = smooth.codes.shape[0]
    eps = float(jnp.finfo(dtype).eps)

    def state_of(t: jax.Array, y: jax.Array) -> State:
        return State(q=y[:nq], v=y[nq : nq + nv], t=t)

    def field(t: jax.Array, y: jax.Array) -> jax.Array:
        state = state_of(t, y)
        rates, force = _forces(model, state, smooth.codes)
        normal = jnp.sum((rates.space.scale * force)[0::2])
        qdot = position_rate(model.system, state.q, state.v)
        return jnp.concatenate([qdot, rates.free + rates.space.response @ force, (1.0 + normal)[None]])

    def look(t: jax.Array, y: jax.Array) -> tuple[jax.Array, jax.Array]:
        return _ending_values(model, smooth, state_of(t, y), y[-1])

    y0 = jnp.concatenate([start.q, start.v, smooth.s[None]])
    k0 = field(start.t, y0)
    shares = jnp.linspace(0.0, 1.0, SAMPLES + 1, dtype=dtype)
    depth = _event_depths(smooth, eps)
    returns = jnp.full(3 * nc + 1, jnp.nan, dtype).at[: 3 * nc : 3].set(smooth.leaving)

    def attempt(c: _PieceTrial) -> _PieceTrial:
        trial = ode.step(field, start.t, y0, c.h, k0)
        ys = jax.vmap(lambda share: ode.interpolate(trial, share))(shares)
        ys = ys.at[-1].set(trial.x1)
        raw, forces = lax.map(lambda row: look(*row), (start.t + shares * c.h, ys))
        ratio = ode.error_ratio(trial, solver)
        happened = raw < -depth[None]
        # A value negative at the start through round-off counts as an event only after it has been positive;
        # a gap that starts at zero and grows has its next zero where its mean rate has one.
        value = raw + jnp.where(raw[0] > depth, 0.0, depth)[None]
        times = (shares * c.h)[:, None]
        back = jnp.where(times > 0, raw / jnp.where(times > 0, times, 1.0), returns[None])
        value = jnp.where(jnp.isnan(returns)[None], value, back)
        return lax.cond(
            c.searching,
            lambda: _narrow_bracket(c, trial.x1, value[-1], eps),
            lambda: _continue_after_step(c, trial.x1, value, happened, ratio, shares, forces[0]),
        )

    remaining = smooth.length - smooth.s
    zero, none = jnp.zeros((), dtype), jnp.zeros(3 * nc + 1, dtype)
    first = _PieceTrial(
        h=jnp.minimum(jnp.minimum(step, smooth.longest), remaining), chosen=step, y=y0, tries=jnp.int32(0),
        searching=jnp.array(False), done=jnp.array(False), suspects=none > 0, size=none + 1.0,
        bracket=Bracket(zero, zero, zero, zero, jnp.array(True)), last=none,
        force=jnp.zeros(2 * nc, dtype),
    )  # fmt: skip
    end = bounded_loop(lambda c: ~c.done & (c.tries < MAX_TRIALS), attempt, first, max_iters=MAX_TRIALS)
    worst = jnp.argmin(jnp.where(end.suspects, end.last / end.size, jnp.inf))
    ending = end.searching & (jnp.arange(nc) == worst // 3)
    over = end.searching & (worst == 3 * nc)
    state = _remove_drift(model, state_of(start.t + end.h, end.y), smooth.codes)
    return SmoothPiece(
        state=state,
        s=jnp.where(over | (end.y[-1] >= smooth.length * (1.0 - 8.0 * eps)), smooth.length, end.y[-1]),
        force=end.force.reshape(nc, 2),
        next_step=end.chosen,
        event=end.searching & ~over,
        ending=ending,
        failed=~end.done | ~jnp.all(jnp.isfinite(end.y)),
    )


def _forces(model: Model, state: State, codes: jax.Array) -> tuple[Accelerations, jax.Array]:
    """Compute the accelerations with the contacts that are not separate, and their scaled forces (r,)."""
    rates = accelerations(model, state, codes != SEPARATE)
    return rates, forces_in_modes(rates.space, rates.rate, codes)


def _ending_values(
    model: Model, smooth: SmoothMotion, state: State, s: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Compute the values (3 nc + 1,) that end a piece when they fall below zero, and the forces (r,) in N.

    The values are three of each contact, then the rest of s. An open contact has its gap; a sticking one its
    distances inside the cone; a sliding one its normal force and its velocity along the direction of sliding.
    """
    rates, force = _forces(model, state, smooth.codes)
    cone = cone_distances(rates.space, force) / rates.size
    slip = (rates.space.jacobian @ state.v)[1::2] / smooth.near[1::2]
    codes, ones = smooth.codes, jnp.ones_like(slip)
    speed = jnp.where(codes == REST_PLUS, slip, -slip)
    gap = jnp.stack([rates.terms.phi - smooth.base, ones, ones], axis=1)
    slide = jnp.stack([cone[:, 0], speed, ones], axis=1)
    closed = jnp.where((codes == REST_STICK)[:, None], cone, slide)
    values = jnp.where((codes == SEPARATE)[:, None], gap, closed).reshape(-1)
    return jnp.concatenate([values, (smooth.length - s)[None]]), rates.space.scale * force


def _event_depths(smooth: SmoothMotion, eps: float) -> jax.Array:
    """Compute the depths below zero (3 nc + 1,) beyond which an event has happened."""
    force = jnp.full_like(smooth.base, eps**FORCE_TOLERANCE)
    ones = jnp.ones_like(force)
    gap = jnp.stack([512.0 * eps * ones, ones, ones], axis=1)
    slide = jnp.stack([force, ones, ones], axis=1)
    stick = jnp.stack([force] * 3, axis=1)
    codes = smooth.codes[:, None]
    depths = jnp.where(codes == SEPARATE, gap, jnp.where(codes == REST_STICK, stick, slide))
    return jnp.concatenate([depths.reshape(-1), jnp.zeros(1, force.dtype)])


def _continue_after_step(
    c: _PieceTrial, y: jax.Array, value: jax.Array, happened: jax.Array, ratio: jax.Array, shares: jax.Array,
    force: jax.Array,
) -> _PieceTrial:  # fmt: skip
    """Continue after a step: retry a shorter one if its error is too large, search an event, or finish."""
    good = ratio <= 1.0
    any_yet = jnp.any(happened, axis=1)
    at = jnp.argmax(any_yet)
    crossed = good & jnp.any(any_yet)
    before = jnp.maximum(at - 1, 0)
    suspects = happened[at]
    size = jnp.maximum(jnp.abs(value[at]), jnp.finfo(y.dtype).tiny)
    low, high = shares[before] * c.h, shares[at] * c.h
    value_low, value_high = (
        jnp.min(jnp.where(suspects, row / size, jnp.inf)) for row in (value[before], value[at])
    )
    following = ode.next_size(c.h, ratio)
    begin = low + (high - low) * value_low / (value_low - value_high)
    begin = jnp.where((value_low > 0) & (at > 0), begin, low)
    return c._replace(
        h=jnp.where(crossed, begin, jnp.where(good, c.h, following)),
        chosen=jnp.where(good & crossed, c.h, following),
        y=y,
        tries=c.tries + 1,
        searching=crossed,
        done=good & ~crossed,
        suspects=suspects,
        size=size,
        bracket=Bracket(
            low, jnp.where((value_low > 0) & (at > 0), high, low), value_low, value_high, ~crossed
        ),
        force=force,
    )


def _narrow_bracket(c: _PieceTrial, y: jax.Array, value: jax.Array, eps: float) -> _PieceTrial:
    """Narrow the bracket of the search by the Illinois rule; every eighth trial halves it."""
    lowest = jnp.min(jnp.where(c.suspects, value / c.size, jnp.inf))
    trial, bracket = illinois(c.h, lowest, c.bracket, c.tries % 8 == 7)
    done = (jnp.abs(lowest) <= 8.0 * eps) | (bracket.high - bracket.low <= 4.0 * eps * bracket.high)
    return c._replace(
        h=jnp.where(done, c.h, trial),
        y=y,
        tries=c.tries + 1,
        done=done,
        bracket=bracket,
        last=value,
    )


def _remove_drift(model: Model, state: State, codes: jax.Array) -> State:
    """Remove from the state the drift of the gaps and velocities of contacts at rest."""
    terms = contact_terms(model, state)
    closed = codes != SEPARATE
    space = contact_space(terms.replace(active=closed))
    frictionless = space.replace(mu=jnp.zeros_like(space.mu))
    v = state.v + space.response @ forces_in_modes(frictionless, space.jacobian @ state.v, codes)
    gap = jnp.where(closed, terms.phi, 0.0)
    gap = space.scale * jnp.stack([gap, jnp.zeros_like(gap)], axis=1).reshape(-1)
    normals = jnp.where(closed, REST_PLUS, SEPARATE)
    delta = space.response @ forces_in_modes(frictionless, gap, normals)
    return State(q=state.q + position_rate(model.system, state.q, delta), v=v, t=state.t)
