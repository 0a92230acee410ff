"""The run forward: the choice of steps and of guards to cross, in a bounded loop; entry `make_plan`.

Owns the choice in every iteration, the order of crossings, hysteresis; `event_step.py` carries it out. The
outcome is a `Plan`, a list of steps at fixed times that `replay.py` repeats as a differentiable function.
Nothing in this module is differentiated. Page: docs/methods/event-selected.md.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax

from jaxcontact._pytree import Record
from jaxcontact.batching.bounded_loop import bounded_loop
from jaxcontact.ess import guard_crossing
from jaxcontact.ess.event_step import FlowSetting, RunState, begin, graze, smooth, try_crossing
from jaxcontact.mechanics.event_system import EventSystem
from jaxcontact.status import Status, flag


class Plan(Record):
    """The steps of a run: step i leads to row i + 1, row 0 is the start; unused rows repeat the end.

    Attributes:
        x: (n,) at the end.
        t: time at the end, s; t1 unless the run failed.
        crossed: (m,) mask at the end.
        kind: (N,) of each step: 0 unused, 1 smooth, 2 smooth up to a band or guard, 3 across a guard.
        guard: (N,) of kinds 2 and 3, else -1.
        level: (N,) value of h at the end of a step of kind 2.
        end: (N,) time at the end of each step, s, before the correction of kind 2.
        trial_end: (N,) end time of the trial step from which a step of kinds 1 and 2 was taken, s.
        num_steps: number of rows used.
        num_events: number of crossings.
        grazed: the guard of the first GRAZING, -1 if none.
        residual: largest |h| that a step left at its guard before its Newton correction.
        status: bits of `Status`.
    """

    x: jax.Array
    t: jax.Array
    crossed: jax.Array
    kind: jax.Array
    guard: jax.Array
    level: jax.Array
    end: jax.Array
    trial_end: jax.Array
    num_steps: jax.Array
    num_events: jax.Array
    grazed: jax.Array
    residual: jax.Array
    status: jax.Array


ROWS = 8  # elements that `first_least` compares at once


def first_least(values: jax.Array) -> jax.Array:
    """Find the index () of the minimum of numbers (m,), none of them NaN; the first of equals.

    XLA on a CPU computes `argmin` one element after the other, which for hundreds of guards is a third of a
    crossing's cost; this function compares `ROWS` of them at once.
    """
    m = values.shape[0]
    if m <= 4 * ROWS:
        return jnp.argmin(values).astype(jnp.int32)
    table = jnp.concatenate([values, jnp.full(-m % ROWS, jnp.inf, values.dtype)]).reshape(-1, ROWS)
    low, spot = table[:, 0], jnp.zeros(table.shape[0], jnp.int32)
    for i in range(1, ROWS):
        less = table[:, i] < low
        low, spot = jnp.where(less, table[:, i], low), jnp.where(less, i, spot)
    k = jnp.argmin(low).astype(jnp.int32)
    return ROWS * k + spot[k]


def _cross_or_step(es: EventSystem, s: FlowSetting, c: RunState, max_events: int) -> RunState:
    """Cross the guard that comes first if a band has been entered, else take a smooth step."""
    h, rate = es.guard_rates(c.x, c.f, s.params)
    index = jnp.arange(h.shape[0], dtype=jnp.int32)
    ready = c.ready | (~c.crossed & (h < -(1.0 + guard_crossing.TIE) * s.eps))
    # Re-armed on its guard and already coming back, reversed by another's jump: crossed again.
    waits = ~c.crossed & ~ready & (rate > 0)
    again = waits & (c.last >= 0) & (jnp.abs(h) <= guard_crossing.TIE * s.eps)
    forced = again | (index == c.entered)
    candidate = ~c.crossed & (ready | forced)
    inside = candidate & ((h >= -s.eps) | forced)
    receding = inside & (rate <= 0)
    lost = waits & (h > s.eps)
    if es.jump is None:  # condition 4 fails: another crossing reversed this guard, or its own did
        lost |= receding | ((index == c.last) & (rate <= 0))
    c = graze(c, jnp.min(jnp.where(lost, index, h.shape[0])), h.shape[0])
    wait = jnp.where(candidate & (rate > 0), -h / jnp.where(rate > 0, rate, 1.0), jnp.inf)
    k = first_least(wait)
    near = jnp.any(inside & ~receding) & (c.t + wait[k] <= s.t1)
    # A guard inside its band but not crossed now is left to the smooth steps: met at h = 0, not at -eps.
    c = c._replace(
        ready=ready & ~jnp.where(near, receding, inside),
        entered=jnp.int32(-1),
        last=jnp.int32(-1),
        turns=c.turns + 1,
        row=jnp.zeros_like(c.row),
    )
    return lax.cond(
        near & (c.events < max_events),
        lambda c: try_crossing(es, s, c, h, rate, wait, inside, k),
        lambda c: lax.cond(
            near,
            lambda c: c._replace(status=c.status | flag(True, Status.UNTERMINATED)),
            lambda c: smooth(es, s, c, h, rate),
            c,
        ),
        c,
    )


def make_plan(
    es: EventSystem, s: FlowSetting, status0: jax.Array, *, max_steps: int, max_events: int
) -> Plan:
    """Run from (t0, x0) to t1; every iteration is a smooth step, taken or refused, or a crossing."""
    first = begin(es, s, status0)

    def unfinished(c: RunState) -> jax.Array:
        failed = (c.status & jnp.uint32(int(Status.FAILURES))) != 0
        return (c.t < s.t1) & ~failed & (c.turns < max_steps)

    # The log stays outside of the branches, because XLA would copy it inside.
    def logged(carry: tuple[RunState, jax.Array]) -> tuple[RunState, jax.Array]:
        c, log = carry
        after = _cross_or_step(es, s, c, max_events)
        return after, log.at[c.rows].set(after.row)

    log = jnp.zeros((max_steps, 5), s.x0.dtype)
    last, log = bounded_loop(lambda carry: unfinished(carry[0]), logged, (first, log), max_iters=max_steps)
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
        trial_end=log[:, 4],
        num_steps=last.rows,
        num_events=last.events,
        grazed=last.grazed,
        residual=last.residual,
        status=status,
    )
