"""`integrate` and `flow`: trajectories and end points of event-selected systems.

Owns the public calls of the integrator and the checks of what users hand in; the run itself is in
`plan.py`, its derivative in `replay.py`.
"""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxcontact._pytree import Record
from jaxcontact.ess.plan import CROSS, Plan, Setting, make_plan, start_mask
from jaxcontact.ess.replay import Inputs, end_state, replay
from jaxcontact.event_system import EventSystem
from jaxcontact.solvers.ode import DormandPrince
from jaxcontact.status import Status, flag

MAX_STEPS, MAX_EVENTS = 1024, 64


class EventTrajectory(Record):
    """A trajectory through events; row 0 is the start, the last rows repeat the end.

    Attributes:
        t: (N + 1,) times of the steps, s; N is `max_steps`.
        x: (N + 1, n) states; at a crossing the state after its jump.
        crossed: (N + 1, m) masks of crossed guards.
        order: (max_events,) guards in the order of their crossing, -1 where there was none.
        event_rows: (max_events,) row at which each of them was reached, -1 where there was none.
        num_rows: rows used, the start included.
        num_events: number of crossings.
        grazed: the guard of the first GRAZING, -1 if none.
        residual: largest |h| left at a crossing, of order eps^2.
        status: bits of `Status`.
    """

    t: jax.Array
    x: jax.Array
    crossed: jax.Array
    order: jax.Array
    event_rows: jax.Array
    num_rows: jax.Array
    num_events: jax.Array
    grazed: jax.Array
    residual: jax.Array
    status: jax.Array


class FlowInfo(Record):
    """What happened on the way from x0 to x1.

    Attributes:
        crossed: (m,) mask at the end; hand it on as `crossed0` of the next piece.
        order: (max_events,) guards in the order of their crossing, -1 where there was none.
        event_times: (max_events,) s, NaN where there was none.
        num_steps: steps taken, crossings among them.
        num_events: number of crossings.
        grazed: the guard of the first GRAZING, -1 if none.
        residual: largest |h| left at a crossing, of order eps^2.
        status: bits of `Status`.
    """

    crossed: jax.Array
    order: jax.Array
    event_times: jax.Array
    num_steps: jax.Array
    num_events: jax.Array
    grazed: jax.Array
    residual: jax.Array
    status: jax.Array


def integrate(
    es: EventSystem,
    params: Any,
    x0: jax.Array,
    t0: Any,
    t1: Any,
    *,
    eps: Any,
    control: Any = None,
    crossed0: jax.Array | None = None,
    ode: DormandPrince | None = None,
    max_steps: int = MAX_STEPS,
    max_events: int = MAX_EVENTS,
) -> EventTrajectory:
    """The trajectory of an event-selected system, through any number of crossings (Anderson & Revzen, 2024).

    Outside of the bands |h_k| <= eps_k Dormand & Prince's method; inside, straight steps from guard to
    guard in the order of -h_k / (Dh_k f). The error is that of the smooth steps plus C eps^2.

    Args:
        es: the system (static).
        params: pytree of numbers for field, guards and jump.
        x0: (n,) start.
        t0, t1: interval, s.
        eps: half width of the bands in units of the guards, one number or (m,). The time spent in a band
            should be short against that of the motion.
        control: pytree of numbers for the field.
        crossed0: (m,) bool, guards that count as crossed at the start; needed for a start on a guard.
            Default: h(x0) >= 0.
        ode: tolerances or fixed step of the smooth steps; default `DormandPrince()`.
        max_steps: bound on turns of the loop: steps taken, refused, and crossings.
        max_events: bound on crossings.

    Returns:
        EventTrajectory.

    Raises:
        ValueError: shapes that do not fit; where values can be seen, t1 < t0, eps <= 0, NaN in x0, a
            start on a guard without `crossed0`, or a guard in front by `crossed0` that lies behind.
        TypeError: x0 is not a floating array.

    Status: MAX_ITERS after max_steps, UNTERMINATED after max_events; NONFINITE for NaN, also from the
    field; STALLED where steps become too small, with ZENO if guards are met ever faster; INVALID for
    what raises above, inside jit; GRAZING where liveness fails: inside the band of a guard the rate of h
    falls below half of what it was at the entry, or h does not grow after the crossing, or another
    crossing turns it round (`grazed` says which guard first; if it is crossed later, smooth steps locate
    that); SIMULTANEOUS where two guards are met together whose jumps give different states in different
    order. After a failure the result ends where the trouble is.

    Derivative: that of the steps taken, by x0, t0, t1, params and control, forward and reverse; at a tie of
    two guards that of the order taken (the lower index first), for both sides see `b_derivative`.
    """
    inputs, crossed0, plan, _ = run(
        es, params, x0, t0, t1, eps, control, crossed0, ode, max_steps, max_events
    )
    return _trajectory(es, inputs, crossed0, plan, max_events)


def flow(
    es: EventSystem,
    params: Any,
    x0: jax.Array,
    t0: Any,
    t1: Any,
    *,
    eps: Any,
    control: Any = None,
    crossed0: jax.Array | None = None,
    ode: DormandPrince | None = None,
    max_steps: int = MAX_STEPS,
    max_events: int = MAX_EVENTS,
) -> tuple[jax.Array, FlowInfo]:
    """The state at t1 of the trajectory that `integrate` computes, without the trajectory.

    The map to differentiate: `jax.grad`, `jax.jacfwd`, `jax.vmap`, `jax.jit` all apply. To chain pieces, hand
    `info.crossed` on as the next `crossed0`.

    Args:
        es, params, x0, t0, t1, eps, control, crossed0, ode, max_steps, max_events: as `integrate`.

    Returns:
        x1 (n,), FlowInfo.

    Raises:
        ValueError, TypeError: as `integrate`.

    Status: as `integrate`.

    Derivative: as `integrate`: exact for the steps taken, so it differs from that of the true flow by
    C eps^2; second derivatives too. At a tie `jax.grad` returns the derivative of one order of crossing
    (the lower index first), which no perturbation may see; `b_derivative` is exact there. Reverse mode
    repeats the run in a loop of max_steps turns, so batches of gradients like a small max_steps.
    """
    inputs, crossed0, plan, _ = run(
        es, params, x0, t0, t1, eps, control, crossed0, ode, max_steps, max_events
    )
    return end_state(es, inputs, crossed0, plan), flow_info(plan, max_events)


def flow_info(plan: Plan, max_events: int) -> FlowInfo:
    """The public account of a plan."""
    where = jnp.nonzero(plan.kind == CROSS, size=max_events, fill_value=plan.kind.shape[0])[0]
    happened = where < plan.kind.shape[0]
    at = jnp.where(happened, where, 0)
    return FlowInfo(
        crossed=plan.crossed,
        order=jnp.where(happened, plan.guard[at], -1),
        event_times=jnp.where(happened, plan.end[at], jnp.nan),
        num_steps=plan.num_steps,
        num_events=plan.num_events,
        grazed=plan.grazed,
        residual=plan.residual,
        status=plan.status,
    )


@functools.partial(jax.jit, static_argnums=(0, 4))
def _trajectory(
    es: EventSystem, inputs: Inputs, crossed0: jax.Array, plan: Plan, max_events: int
) -> EventTrajectory:
    _, t, x, crossed = replay(es, inputs, crossed0, plan)
    where = jnp.nonzero(plan.kind == CROSS, size=max_events, fill_value=-2)[0]
    return EventTrajectory(
        t=t,
        x=x,
        crossed=crossed,
        order=jnp.where(where >= 0, plan.guard[jnp.maximum(where, 0)], -1),
        event_rows=jnp.where(where >= 0, where + 1, -1).astype(jnp.int32),
        num_rows=plan.num_steps + 1,
        num_events=plan.num_events,
        grazed=plan.grazed,
        residual=plan.residual,
        status=plan.status,
    )


@functools.partial(jax.jit, static_argnums=(0, 6, 7))
def _planned(
    es: EventSystem,
    inputs: Inputs,
    eps: jax.Array,
    ode: DormandPrince,
    crossed0: jax.Array | None,
    status0: jax.Array,
    max_steps: int,
    max_events: int,
) -> tuple[jax.Array, Plan]:
    """The mask at the start and the plan; carries no derivative."""
    fixed = lax.stop_gradient(inputs)
    crossed, bad = start_mask(es, fixed.params, fixed.x0, eps, crossed0)
    status0 |= flag(bad | ~(fixed.t1 >= fixed.t0) | jnp.any(~(eps > 0)), Status.INVALID)
    status0 |= flag(~jnp.all(jnp.isfinite(fixed.x0)), Status.NONFINITE)
    setting = Setting(fixed.params, fixed.control, fixed.t1, eps, ode)
    plan = make_plan(
        es, setting, fixed.x0, fixed.t0, crossed, status0, max_steps=max_steps, max_events=max_events
    )
    return crossed, plan


def run(
    es: EventSystem,
    params: Any,
    x0: jax.Array,
    t0: Any,
    t1: Any,
    eps: Any,
    control: Any,
    crossed0: jax.Array | None,
    ode: DormandPrince | None,
    max_steps: int,
    max_events: int,
) -> tuple[Inputs, jax.Array, Plan, jax.Array]:
    """Inputs, mask at the start, plan and widths (m,) of the bands; raises for what is wrong."""
    inputs, eps = check(es, params, x0, t0, t1, eps, control, crossed0, max_steps, max_events)
    settings = DormandPrince() if ode is None else ode
    settings = lax.stop_gradient(jax.tree.map(lambda a: jnp.asarray(a, inputs.x0.dtype), settings))
    crossed0, plan = _planned(
        es, inputs, lax.stop_gradient(eps), settings, crossed0, jnp.uint32(0), max_steps, max_events
    )
    return inputs, crossed0, plan, eps


def check(
    es: EventSystem,
    params: Any,
    x0: jax.Array,
    t0: Any,
    t1: Any,
    eps: Any,
    control: Any,
    crossed0: jax.Array | None,
    max_steps: int,
    max_events: int,
) -> tuple[Inputs, jax.Array]:
    """Inputs and eps (m,) in one dtype, or a named error for what can be seen now."""
    if not isinstance(es, EventSystem):
        raise TypeError(f"es: expected an EventSystem, got {type(es).__name__}; see `from_system`")
    if not hasattr(x0, "dtype") or not jnp.issubdtype(x0.dtype, jnp.floating):
        raise TypeError(f"x0: expected a floating array, got {getattr(x0, 'dtype', type(x0).__name__)}")
    if jnp.ndim(x0) != 1:
        raise ValueError(f"x0: expected shape (n,), got {jnp.shape(x0)}; use vmap for batches")
    for name, count in (("max_steps", max_steps), ("max_events", max_events)):
        if isinstance(count, bool) or not isinstance(count, int | np.integer) or count < 1:
            raise ValueError(f"{name}: expected an integer >= 1, got {count!r}")
    dtype = x0.dtype
    for name, value in (("t0", t0), ("t1", t1)):
        if jnp.ndim(value) != 0:
            raise ValueError(f"{name}: expected one number, got shape {jnp.shape(value)}")
    inputs = Inputs(params, control, jnp.asarray(x0), jnp.asarray(t0, dtype), jnp.asarray(t1, dtype))
    m = _check_functions(es, inputs)
    if jnp.ndim(eps) > 1 or (jnp.ndim(eps) == 1 and jnp.shape(eps) != (m,)):
        raise ValueError(f"eps: expected one number or shape ({m},), got {jnp.shape(eps)}")
    widths = jnp.broadcast_to(jnp.asarray(eps, dtype), (m,))
    if crossed0 is not None and (jnp.shape(crossed0) != (m,) or jnp.asarray(crossed0).dtype != jnp.bool_):
        raise ValueError(f"crossed0: expected ({m},) booleans, got {crossed0!r}")
    if not any(isinstance(a, jax.core.Tracer) for a in jax.tree.leaves((inputs, widths, crossed0))):
        _check_values(es, inputs, widths, crossed0)
    return inputs, widths


def _check_functions(es: EventSystem, inputs: Inputs) -> int:
    """The number of guards; raises where field, guards, jump or rearm do not fit x0."""
    params, control, x0, t0, _ = inputs
    h = jax.eval_shape(es.guards, x0, params)
    if h.ndim != 1 or h.shape[0] == 0:
        raise ValueError(f"guards: expected values of shape (m,), m >= 1, got {h.shape}")
    m = h.shape[0]
    if es.rearm is not None and len(es.rearm) != m:
        raise ValueError(f"rearm: expected shape ({m}, {m}) for {m} guards, got {np.shape(es.rearm)}")
    calls: list[tuple[str, Any]] = [("field", lambda: es.xdot(t0, x0, jnp.zeros(m, bool), control, params))]
    if es.jump is not None:
        calls.append(("jump", lambda: es.after(x0, jnp.int32(0), params)))
    for name, call in calls:
        found = jax.eval_shape(call)
        if found.shape != x0.shape or found.dtype != x0.dtype:
            raise ValueError(
                f"{name}: expected {x0.dtype} of shape {x0.shape} as x0, got {found.dtype} of {found.shape}"
            )
    return m


def _check_values(es: EventSystem, inputs: Inputs, eps: jax.Array, crossed0: jax.Array | None) -> None:
    if not np.all(np.isfinite(np.asarray(inputs.x0))):
        raise ValueError("x0: expected finite numbers, got NaN or inf")
    t0, t1 = float(inputs.t0), float(inputs.t1)
    if not t1 >= t0:
        raise ValueError(f"t1: expected t1 >= t0, got t0 = {t0:g}, t1 = {t1:g}")
    if not np.all(np.asarray(eps) > 0):
        raise ValueError(f"eps: expected numbers > 0, got {np.asarray(eps)}")
    _, bad = start_mask(es, inputs.params, inputs.x0, eps, crossed0)
    if bool(bad):
        h = np.asarray(es.guards(inputs.x0, inputs.params))
        if crossed0 is None:
            raise ValueError(
                f"x0: guard {int(np.argmin(np.abs(h) / np.asarray(eps)))} is zero there, so it could count "
                "as crossed or not; say which by crossed0"
            )
        worst = int(np.argmax(np.where(np.asarray(crossed0), -np.inf, h)))
        raise ValueError(f"crossed0: guard {worst} is not crossed, but h = {h[worst]:g} lies behind its band")
