"""The run forward: which steps are taken and which guards are crossed, in a bounded loop.

Owns the decisions of the integrator: step sizes, entries into bands, the order of crossings, hysteresis,
liveness, status. The outcome is a `Plan`, a list of steps at fixed times that `replay.py` repeats as a
differentiable function. Nothing here is differentiated.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from jaxcontact._pytree import Record
from jaxcontact.ess import band
from jaxcontact.event_system import EventSystem
from jaxcontact.solvers import ode
from jaxcontact.status import Status, flag

# Kinds of steps in a plan.
UNUSED, SMOOTH, ENTER, CROSS = 0, 1, 2, 3
FIRST_STEP = 1e-2  # share of the interval that an adaptive run tries first
SMALLEST = 8  # steps below so many roundings of the time are too small
HIDDEN = 0.125  # a step that may have overlooked a dip is shortened to this share


class Plan(Record):
    """What a run did: row i + 1 is reached by step i, row 0 is the start; unused rows repeat the end.

    Attributes:
        x: (n,) at the end.
        t: time at the end, s; t1 unless the status says otherwise.
        crossed: (m,) mask at the end.
        kind: (N,) of each step: 0 unused, 1 smooth, 2 smooth up to a band or guard, 3 across a guard.
        guard: (N,) of kinds 2 and 3, else -1.
        level: (N,) of h where a step of kind 2 ends.
        end: (N,) time at the end of each step, s, before the correction of kind 2.
        whole: (N,) time to which the trial step behind a step of kinds 1 and 2 reached, s.
        num_steps: rows used.
        num_events: crossings.
        grazed: the guard of the first GRAZING, -1 if none.
        residual: largest |h| that a crossing left behind, in units of its guard.
        status: bits of `Status`.
    """

    x: jax.Array
    t: jax.Array
    crossed: jax.Array
    kind: jax.Array
    guard: jax.Array
    level: jax.Array
    end: jax.Array
    whole: jax.Array
    num_steps: jax.Array
    num_events: jax.Array
    grazed: jax.Array
    residual: jax.Array
    status: jax.Array


class _State(NamedTuple):
    t: jax.Array
    x: jax.Array
    f: jax.Array
    crossed: jax.Array
    ready: jax.Array  # armed guards seen below their band
    entered: jax.Array  # guard met by the last step, -1 if none: it is crossed next
    fresh: jax.Array  # whether the last step was a crossing
    size: jax.Array  # next trial step, s
    turns: jax.Array
    events: jax.Array
    rows: jax.Array
    row: jax.Array  # (5,) kind, guard, level, end, whole of this turn's step; kind 0 if none was taken
    grazed: jax.Array
    residual: jax.Array
    status: jax.Array


class Setting(NamedTuple):
    """The arguments of a run that its steps share."""

    params: Any
    control: Any
    t1: jax.Array
    eps: jax.Array
    ode: ode.DormandPrince


def start_mask(
    es: EventSystem, params: Any, x0: jax.Array, eps: jax.Array, crossed0: jax.Array | None
) -> tuple[jax.Array, jax.Array]:
    """The mask (m,) at the start, and whether it is ambiguous or contradicts the guards.

    Without `crossed0` a guard is crossed where h >= 0; within a hundredth of eps of zero that would be
    noise. With it, a guard that is not crossed must not lie behind its band.
    """
    h = es.guards(x0, params)
    if crossed0 is None:
        return h >= 0, jnp.any(jnp.abs(h) <= band.TIE * eps)
    return crossed0, jnp.any(~crossed0 & (h > eps))


def make_plan(
    es: EventSystem,
    s: Setting,
    x0: jax.Array,
    t0: jax.Array,
    crossed0: jax.Array,
    status0: jax.Array,
    *,
    max_steps: int,
    max_events: int,
) -> Plan:
    """Run from (t0, x0) to t1; every turn of the loop is a smooth step, taken or refused, or a crossing."""
    first = _first(es, s, x0, t0, crossed0, status0)

    def unfinished(c: _State) -> jax.Array:
        failed = (c.status & jnp.uint32(int(Status.FAILURES))) != 0
        return (c.t < s.t1) & ~failed & (c.turns < max_steps)

    def turn(c: _State) -> _State:
        h, rate = es.guard_rates(c.x, c.f, s.params)
        c = c._replace(ready=c.ready | (~c.crossed & (h < -(1.0 + band.TIE) * s.eps)))
        # Re-armed on its guard and already coming back, turned round by another's jump: crossed again.
        waits = ~c.crossed & ~c.ready & (rate > 0)
        c = _graze(c, waits & (h > s.eps))
        again = waits & c.fresh & (jnp.abs(h) <= band.TIE * s.eps)
        forced = again | (jnp.arange(h.shape[0]) == c.entered)
        candidate = ~c.crossed & (c.ready | forced)
        inside = candidate & ((h >= -s.eps) | forced)
        receding = inside & (rate <= 0)
        if es.jump is None:  # another guard's crossing turned this one round: condition 4 fails
            c = _graze(c, receding)
        wait = jnp.where(candidate & (rate > 0), -h / jnp.where(rate > 0, rate, 1.0), jnp.inf)
        k = jnp.argmin(wait).astype(jnp.int32)
        near = jnp.any(inside & ~receding) & (c.t + wait[k] <= s.t1)
        # What is inside but not crossed now is left to the smooth steps: met at h = 0, not at -eps.
        c = c._replace(
            ready=c.ready & ~jnp.where(near, receding, inside),
            entered=jnp.int32(-1),
            fresh=jnp.asarray(False),
            turns=c.turns + 1,
            row=jnp.zeros_like(c.row),
        )
        return lax.cond(
            near & (c.events < max_events),
            lambda c: _cross(es, s, c, h, rate, wait, inside, k),
            lambda c: lax.cond(
                near,
                lambda c: c._replace(status=c.status | flag(True, Status.UNTERMINATED)),
                lambda c: _smooth(es, s, c, h, rate),
                c,
            ),
            c,
        )

    # The log stays outside of the branches, where XLA would copy it.
    def logged(carry: tuple[_State, jax.Array]) -> tuple[_State, jax.Array]:
        c, log = carry
        after = turn(c)
        return after, log.at[c.rows].set(after.row)

    log = jnp.zeros((max_steps, 5), x0.dtype)
    last, log = lax.while_loop(lambda carry: unfinished(carry[0]), logged, (first, log))
    used = jnp.arange(max_steps) < last.rows
    stuck = (last.t < s.t1) & ((last.status & jnp.uint32(int(Status.FAILURES))) == 0)
    finite = jnp.all(jnp.isfinite(last.x)) & jnp.all(jnp.isfinite(last.f))
    status = last.status | flag(stuck, Status.MAX_ITERS) | flag(~finite, Status.NONFINITE)
    return Plan(
        x=last.x,
        t=last.t,
        crossed=last.crossed,
        kind=log[:, 0].astype(jnp.int8),
        guard=jnp.where(used, log[:, 1], -1.0).astype(jnp.int32),
        level=log[:, 2],
        end=log[:, 3],
        whole=log[:, 4],
        num_steps=last.rows,
        num_events=last.events,
        grazed=last.grazed,
        residual=last.residual,
        status=status,
    )


def _first(
    es: EventSystem,
    s: Setting,
    x0: jax.Array,
    t0: jax.Array,
    crossed0: jax.Array,
    status0: jax.Array,
) -> _State:
    dtype = x0.dtype
    f = es.xdot(t0, x0, crossed0, s.control, s.params)
    h, rate = es.guard_rates(x0, f, s.params)
    finite = jnp.all(jnp.isfinite(x0)) & jnp.all(jnp.isfinite(f)) & jnp.all(jnp.isfinite(h))
    size = (
        jnp.minimum((s.t1 - t0) * FIRST_STEP, s.ode.longest)
        if s.ode.dt is None
        else jnp.asarray(s.ode.dt, dtype)
    )
    return _State(
        t=t0,
        x=x0,
        f=f,
        crossed=crossed0,
        ready=~crossed0 & ((h < -s.eps) | (rate > 0)),
        entered=jnp.int32(-1),
        fresh=jnp.asarray(False),
        size=size,
        turns=jnp.int32(0),
        events=jnp.int32(0),
        rows=jnp.int32(0),
        row=jnp.zeros(5, dtype),
        grazed=jnp.int32(-1),
        residual=jnp.zeros((), dtype),
        status=status0 | flag(~finite, Status.NONFINITE),
    )


def _graze(c: _State, which: jax.Array) -> _State:
    any_ = jnp.any(which)
    grazed = jnp.where(any_ & (c.grazed < 0), jnp.argmax(which).astype(jnp.int32), c.grazed)
    return c._replace(grazed=grazed, status=c.status | flag(any_, Status.GRAZING))


def _record(
    c: _State, kind: Any, guard: jax.Array, level: jax.Array, end: jax.Array, whole: jax.Array
) -> _State:
    dtype = c.x.dtype
    row = jnp.stack([jnp.asarray(a, dtype) for a in (kind, guard, level, end, whole)])
    return c._replace(row=row, rows=c.rows + 1)


def _cross(
    es: EventSystem,
    s: Setting,
    c: _State,
    h: jax.Array,
    rate: jax.Array,
    wait: jax.Array,
    inside: jax.Array,
    k: jax.Array,
) -> _State:
    """Cross guard k by a straight step, unless it turns away before it is reached."""
    done = band.cross(es, s.params, c.t, c.x, c.f, c.crossed, k)
    f_old, f_new = jax.vmap(lambda x, mask: es.xdot(done.t, x, mask, s.control, s.params))(
        jnp.stack([done.before, done.x]), jnp.stack([c.crossed, done.crossed])
    )
    left, rate_old = es.guard_rates(done.before, f_old, s.params)
    live = rate_old[k] >= band.LIVE * rate[k]
    hit = jnp.arange(h.shape[0]) == k
    refused = _graze(c, hit)._replace(ready=c.ready & ~(inside | hit))

    taken = _record(c, CROSS, k, jnp.zeros((), c.x.dtype), done.t, done.t)
    if es.jump is None:  # the field on the far side must lead on
        _, rate_new = es.guard_rates(done.x, f_new, s.params)
        taken = _graze(taken, hit & (rate_new <= 0))
    else:
        order_matters = _jumps_differ(es, s, done.before, ~hit & tied(wait, rate, k, s.eps), k)
        taken = taken._replace(status=taken.status | flag(order_matters, Status.SIMULTANEOUS))
    rearmed = jnp.asarray(es.rearm_matrix(h.shape[0]))[k]
    taken = taken._replace(
        t=done.t,
        x=done.x,
        f=f_new,
        crossed=done.crossed,
        ready=c.ready & ~hit & ~rearmed,
        events=c.events + 1,
        fresh=jnp.asarray(True),
        residual=jnp.maximum(c.residual, jnp.abs(left[k])),
        status=taken.status | flag(~jnp.all(jnp.isfinite(f_new)), Status.NONFINITE),
    )
    return jax.tree.map(lambda a, b: jnp.where(live, a, b), taken, refused)


def tied(wait: jax.Array, rate: jax.Array, k: jax.Array, eps: jax.Array) -> jax.Array:
    """Guards (m,) that come so soon after guard k that errors of order eps^2 could turn their order round."""
    across = eps / jnp.where(rate > 0, rate, 1.0)
    return (rate > 0) & (wait - wait[k] <= band.TIE * across)


def _jumps_differ(es: EventSystem, s: Setting, x: jax.Array, others: jax.Array, k: jax.Array) -> jax.Array:
    """Whether the jumps of guard k and one of `others` at x give different states in different order."""
    m = others.shape[0]

    def difference(i: jax.Array) -> tuple[jax.Array, jax.Array]:
        one = es.after(es.after(x, k, s.params), i, s.params)
        two = es.after(es.after(x, i, s.params), k, s.params)
        return jnp.max(jnp.abs(one - two)), jnp.max(jnp.abs(one)) + jnp.max(jnp.abs(two))

    gap, size = jax.vmap(difference)(jnp.arange(m, dtype=jnp.int32))
    return jnp.any(others & (gap > jnp.finfo(x.dtype).eps ** 0.5 * size))


def _smooth(es: EventSystem, s: Setting, c: _State, h: jax.Array, rate: jax.Array) -> _State:
    """One trial step of the conventional method, cut where it meets a guard, or refused."""
    rest = s.t1 - c.t
    last = c.size >= rest * (1.0 - 1e-9)
    size = jnp.where(last, rest, c.size)
    # Times, not lengths, are what a plan keeps: the replay's step must be the same to the last bit.
    whole = jnp.where(last, s.t1, c.t + size)
    size = whole - c.t
    trial = ode.step(lambda t, x: es.xdot(t, x, c.crossed, s.control, s.params), c.t, c.x, size, c.f)
    ratio = ode.error_ratio(trial, s.ode)
    finite = jnp.all(jnp.isfinite(trial.k))
    inner = jnp.asarray(band.SAMPLES[1:-1], c.x.dtype)
    states = jax.vmap(lambda theta: ode.interpolate(trial, theta))(inner)
    states = jnp.concatenate([states, trial.x1[None]])
    values = jnp.concatenate([h[None], jax.vmap(lambda x: es.guards(x, s.params))(states)])
    entry, ready = band.find_entry(values, rate, ~c.crossed, c.ready, s.eps)

    good = finite & ~entry.hidden
    if s.ode.dt is None:
        good &= ratio <= 1.0
        longer = jnp.minimum(ode.next_size(size, ratio), s.ode.longest)
        # The last step is cut to size; it must not make later steps of the same run longer than it was.
        grown = jnp.where(last, jnp.maximum(longer, c.size), longer)
    else:
        grown = jnp.asarray(s.ode.dt, c.x.dtype)
    shorter = size * HIDDEN if s.ode.dt is not None else ode.next_size(size, ratio)
    shorter = jnp.where(entry.hidden | ~finite, size * HIDDEN, jnp.minimum(shorter, size))
    tiny = SMALLEST * jnp.finfo(c.x.dtype).eps * jnp.maximum(jnp.abs(c.t), jnp.abs(s.t1))
    failed = ~good & (shorter <= tiny)
    why = jnp.where(
        finite,
        jnp.where(entry.hidden, flag(True, Status.ZENO | Status.STALLED), flag(True, Status.STALLED)),
        flag(True, Status.NONFINITE),
    )
    refused = c._replace(size=shorter, status=c.status | jnp.where(failed, why, jnp.uint32(0)))

    def through(c: _State) -> _State:
        c = _record(c, SMOOTH, jnp.int32(-1), jnp.zeros((), c.x.dtype), whole, whole)
        return c._replace(t=whole, x=trial.x1, f=trial.k[6], ready=ready, size=grown)

    def stop(c: _State) -> _State:
        end = c.t + entry.theta * size
        t, x = band.enter(es, s.params, s.control, trial, c.t, end, c.crossed, entry.guard, entry.level)
        f = es.xdot(t, x, c.crossed, s.control, s.params)
        c = _record(c, ENTER, entry.guard, entry.level, end, whole)
        return c._replace(t=t, x=x, f=f, entered=entry.guard, size=grown)

    return lax.cond(
        good, lambda c: lax.cond(jnp.isfinite(entry.theta), stop, through, c), lambda c: refused, c
    )
