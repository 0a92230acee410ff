"""One iteration of the run: a smooth step up to a guard at most, or the crossing of a guard.

Owns the run's state between iterations, step sizes, and the changes by a refused step or crossing; entries
`begin`, `smooth`, `try_crossing`. `plan.py` chooses between the two, and the guard.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from jaxcontact._pytree import PyTree
from jaxcontact.ess import guard_crossing
from jaxcontact.mechanics.event_system import EventSystem
from jaxcontact.solvers import ode
from jaxcontact.status import Status, flag
from jaxcontact.tolerances import HALF_DIGITS, rounding

# Kinds of steps in a plan.
UNUSED, SMOOTH, ENTER, CROSS = 0, 1, 2, 3
FIRST_STEP = 1e-2  # fraction of the interval that an adaptive run tries first
MIN_STEP_ROUNDINGS = 8  # machine epsilons of the time; a run whose steps get shorter fails
HIDDEN = 0.125  # a step that may have overlooked a dip is shortened to this fraction


class RunState(NamedTuple):
    """The state of a run between two iterations."""

    t: jax.Array
    x: jax.Array
    f: jax.Array
    crossed: jax.Array
    ready: jax.Array  # armed guards seen below their band
    entered: jax.Array  # guard met by the last step, -1 if none: it is crossed next
    last: jax.Array  # guard crossed by the last step, -1 if none
    size: jax.Array  # next trial step, s
    turns: jax.Array
    events: jax.Array
    rows: jax.Array
    row: (
        jax.Array
    )  # (5,) kind, guard, level, end, trial_end of this iteration's step; kind 0 if none was taken
    grazed: jax.Array
    residual: jax.Array
    status: jax.Array


class FlowSetting(NamedTuple):
    """The arguments of a run: those of `Inputs`, then band widths, method and the mask at its start."""

    params: PyTree
    control: PyTree
    x0: jax.Array
    t0: jax.Array
    t1: jax.Array
    eps: jax.Array
    ode: ode.DormandPrince
    crossed0: jax.Array


def begin(es: EventSystem, s: FlowSetting, status0: jax.Array) -> RunState:
    """Make the state of a run before its first iteration."""
    dtype = s.x0.dtype
    f = es.xdot(s.t0, s.x0, s.crossed0, s.control, s.params)
    h, rate = es.guard_rates(s.x0, f, s.params)
    finite = jnp.all(jnp.isfinite(s.x0)) & jnp.all(jnp.isfinite(f)) & jnp.all(jnp.isfinite(h))
    size = (
        jnp.minimum((s.t1 - s.t0) * FIRST_STEP, s.ode.longest)
        if s.ode.dt is None
        else jnp.asarray(s.ode.dt, dtype)
    )
    return RunState(
        t=s.t0,
        x=s.x0,
        f=f,
        crossed=s.crossed0,
        ready=~s.crossed0 & ((h < -s.eps) | (rate > 0)),
        entered=jnp.int32(-1),
        last=jnp.int32(-1),
        size=size,
        turns=jnp.int32(0),
        events=jnp.int32(0),
        rows=jnp.int32(0),
        row=jnp.zeros(5, dtype),
        grazed=jnp.int32(-1),
        residual=jnp.zeros((), dtype),
        status=status0 | flag(~finite, Status.NONFINITE),
    )


def graze(c: RunState, guard: jax.Array, none: int) -> RunState:
    """Note that a guard grazed; the index `none` means that none did."""
    return c._replace(
        grazed=jnp.where((guard < none) & (c.grazed < 0), guard, c.grazed),
        status=c.status | flag(guard < none, Status.GRAZING),
    )


def _record(
    c: RunState,
    kind: jax.typing.ArrayLike,
    guard: jax.Array,
    level: jax.Array,
    end: jax.Array,
    trial_end: jax.Array,
) -> RunState:
    dtype = c.x.dtype
    row = jnp.stack([jnp.asarray(a, dtype) for a in (kind, guard, level, end, trial_end)])
    return c._replace(row=row, rows=c.rows + 1)


def try_crossing(
    es: EventSystem,
    s: FlowSetting,
    c: RunState,
    h: jax.Array,
    rate: jax.Array,
    wait: jax.Array,
    inside: jax.Array,
    k: jax.Array,
) -> RunState:
    """Cross guard k, unless it turns away before it is reached or the field is not constant in its band.

    A refused crossing is left to the smooth steps, which locate the guard.
    """
    done = guard_crossing.cross_guard(es, s.params, s.control, c.t, c.x, c.f, c.crossed, k)
    f = es.xdot(done.t, done.x, done.crossed, s.control, s.params)
    live = done.rate[k] >= guard_crossing.LIVE * rate[k]
    m = h.shape[0]
    hit = jnp.arange(m) == k
    # Another guard that the step to k passes should have been crossed before it.
    overtaken = jnp.any(~c.crossed & ~hit & (h < 0) & (done.beside > guard_crossing.TIE * s.eps))
    wide = live & ((jnp.abs(done.left[k]) > guard_crossing.STRAIGHT * s.eps[k]) | overtaken)
    refused = graze(c, jnp.where(live, m, k), m)._replace(ready=c.ready & ~(inside | hit))
    refused = refused._replace(status=refused.status | flag(wide, Status.WIDE_BAND))

    crossing = _record(c, CROSS, k, jnp.zeros((), c.x.dtype), done.t, done.t)
    if es.jump is not None:
        order_matters = _jumps_differ(es, s, done.before, ~hit & tied(wait, rate, k, s.eps), k)
        crossing = crossing._replace(status=crossing.status | flag(order_matters, Status.SIMULTANEOUS))
    rearmed = jnp.asarray(es.rearm_matrix(m))[k]
    crossing = crossing._replace(
        t=done.t,
        x=done.x,
        f=f,
        crossed=done.crossed,
        ready=c.ready & ~hit & ~rearmed,
        events=c.events + 1,
        last=k,
        residual=jnp.maximum(c.residual, jnp.abs(done.left[k])),
        status=crossing.status
        | flag(~jnp.all(jnp.isfinite(f)), Status.NONFINITE)
        | flag(jnp.abs(done.left[k]) > guard_crossing.NOTED_MISS * s.eps[k], Status.WIDE_BAND),
    )
    # A crossing that the correction moves beyond the end is left to the smooth steps.
    return jax.tree.map(lambda a, b: jnp.where(live & ~wide & (done.t <= s.t1), a, b), crossing, refused)


def tied(wait: jax.Array, rate: jax.Array, k: jax.Array, eps: jax.Array) -> jax.Array:
    """Find guards (m,) so soon after guard k that errors of order eps^3 could reverse their order."""
    across = eps / jnp.where(rate > 0, rate, 1.0)
    return (rate > 0) & (wait - wait[k] <= guard_crossing.TIE * across)


def _jumps_differ(
    es: EventSystem, s: FlowSetting, x: jax.Array, others: jax.Array, k: jax.Array
) -> jax.Array:
    """Decide whether the jumps of guard k and one of `others` at x give other states in the other order."""
    m = others.shape[0]

    def difference(i: jax.Array) -> tuple[jax.Array, jax.Array]:
        first_k = es.after(es.after(x, k, s.params), i, s.params)
        first_i = es.after(es.after(x, i, s.params), k, s.params)
        return jnp.max(jnp.abs(first_k - first_i)), jnp.max(jnp.abs(first_k)) + jnp.max(jnp.abs(first_i))

    gap, size = jax.vmap(difference)(jnp.arange(m, dtype=jnp.int32))
    return jnp.any(others & (gap > rounding(x.dtype, HALF_DIGITS) * size))


def smooth(es: EventSystem, s: FlowSetting, c: RunState, h: jax.Array, rate: jax.Array) -> RunState:
    """Make one trial step of the conventional method; cut it at the first guard, or refuse it."""
    rest = s.t1 - c.t
    last = c.size >= rest * (1.0 - 1e-9)
    size = jnp.where(last, rest, c.size)
    # A plan keeps times, not lengths: the replay's step must be the same to the last bit.
    trial_end = jnp.where(last, s.t1, c.t + size)
    size = trial_end - c.t
    trial = ode.step(lambda t, x: es.xdot(t, x, c.crossed, s.control, s.params), c.t, c.x, size, c.f)
    ratio = ode.error_ratio(trial, s.ode)
    finite = jnp.all(jnp.isfinite(trial.k))
    inner = jnp.asarray(guard_crossing.SAMPLES[1:-1], c.x.dtype)
    states = jax.vmap(lambda theta: ode.interpolate(trial, theta))(inner)
    states = jnp.concatenate([states, trial.x1[None]])
    values = jnp.concatenate([h[None], jax.vmap(lambda x: es.guards(x, s.params))(states)])
    entry, ready = guard_crossing.find_entry(values, rate, ~c.crossed, c.ready, s.eps)

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
    tiny = MIN_STEP_ROUNDINGS * jnp.finfo(c.x.dtype).eps * jnp.maximum(jnp.abs(c.t), jnp.abs(s.t1))
    failed = ~good & (shorter <= tiny)
    why = jnp.where(
        finite,
        jnp.where(entry.hidden, flag(True, Status.ZENO | Status.STALLED), flag(True, Status.STALLED)),
        flag(True, Status.NONFINITE),
    )
    refused = c._replace(size=shorter, status=c.status | jnp.where(failed, why, jnp.uint32(0)))

    def through(c: RunState) -> RunState:
        c = _record(c, SMOOTH, jnp.int32(-1), jnp.zeros((), c.x.dtype), trial_end, trial_end)
        return c._replace(t=trial_end, x=trial.x1, f=trial.k[6], ready=ready, size=grown)

    def stop(c: RunState) -> RunState:
        end = c.t + entry.theta * size
        target = guard_crossing.LevelSet(entry.guard, entry.level)
        t, x = guard_crossing.enter(es, s.params, s.control, trial, c.t, end, c.crossed, target)
        f = es.xdot(t, x, c.crossed, s.control, s.params)
        c = _record(c, ENTER, entry.guard, entry.level, end, trial_end)
        # The guard is met before its band has been left: the flow turned back inside it, or a jump did.
        turned = flag((entry.level == 0) & (es.jump is None), Status.WIDE_BAND)
        return c._replace(t=t, x=x, f=f, entered=entry.guard, size=grown, status=c.status | turned)

    return lax.cond(
        good, lambda c: lax.cond(jnp.isfinite(entry.theta), stop, through, c), lambda c: refused, c
    )
