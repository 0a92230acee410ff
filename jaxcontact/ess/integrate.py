"""`integrate` and `flow`: trajectories and end points of event-selected systems.

Owns the public calls of the integrator; the run itself is in `plan.py`, its derivative in `replay.py`.
Page: docs/methods/event-selected.md.
"""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from jaxcontact._pytree import Record
from jaxcontact.ess.event_step import CROSS, FlowSetting
from jaxcontact.ess.inputs import Inputs, Options, allowed_error, bad_settings, check, start_mask
from jaxcontact.ess.plan import Plan, make_plan
from jaxcontact.ess.replay import end_state, replay
from jaxcontact.mechanics.event_system import EventSystem
from jaxcontact.precision import jit
from jaxcontact.solvers.ode import DormandPrince
from jaxcontact.status import Status, flag

MAX_STEPS, MAX_EVENTS = 1024, 64  # iterations and crossings of a run by default; they set its memory


class EventTrajectory(Record):
    """A trajectory through events; row 0 is the start, the last rows repeat the end.

    Attributes:
        t: (N + 1,) times of the steps, s; N is `max_steps`.
        x: (N + 1, n) states; at a crossing the state after its jump.
        crossed: (N + 1, m) masks of crossed guards.
        order: (max_events,) guards in the order of their crossing, -1 in unused entries.
        event_rows: (max_events,) row at which each of them was reached, -1 in unused entries.
        num_rows: number of rows used, the start included.
        num_events: number of crossings.
        grazed: the guard of the first GRAZING, -1 if none.
        residual: largest |h| that a step left at its guard before its Newton correction, of order eps^2.
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
    """The info of a run from x0 to x1.

    Attributes:
        crossed: (m,) mask at the end; pass it as `crossed0` of the next piece.
        order: (max_events,) guards in the order of their crossing, -1 in unused entries.
        event_times: (max_events,) s, NaN in unused entries.
        num_steps: number of steps taken, including crossings.
        num_events: number of crossings.
        grazed: the guard of the first GRAZING, -1 if none.
        residual: largest |h| that a step left at its guard before its Newton correction, of order eps^2.
        status: bits of `Status`.
        band_error: (n,) distance of x1 from the end of a run with half the bands; NaN without `tol`.
    """

    crossed: jax.Array
    order: jax.Array
    event_times: jax.Array
    num_steps: jax.Array
    num_events: jax.Array
    grazed: jax.Array
    residual: jax.Array
    status: jax.Array
    band_error: jax.Array


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
    """Compute the trajectory of an event-selected system, through any number of crossings.

    Anderson & Revzen (2024). Outside of the bands |h_k| <= eps_k the steps are Dormand & Prince's; inside,
    there is one step from guard to guard in the order of -h_k / (Dh_k f), straight in the paper and bent by
    the field at its end in this program. The error is that of the smooth steps plus C eps^3 (C eps^2 in the
    paper).

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
        max_steps: bound on iterations of the loop: steps taken, refused, and crossings.
        max_events: bound on crossings.

    Returns:
        EventTrajectory.

    Raises:
        ValueError: shapes that do not fit; for known values t1 < t0, eps <= 0, NaN in x0, a start on a guard
            without `crossed0`, a guard that is not crossed by `crossed0` although h > eps, or a tolerance of
            `ode` < 0.
        TypeError: es is no EventSystem, x0 is not a floating array, or ode is no DormandPrince.

    Status: MAX_ITERS after max_steps, UNTERMINATED after max_events; NONFINITE for NaN, also from the field;
        STALLED if steps become too small, with ZENO if guards are met ever faster; INVALID for bad values as
        above inside jit; GRAZING if liveness fails: inside the band of a guard the rate of h falls below half
        of its value at the start of the step to the guard, or h does not grow after the crossing, or another
        crossing reverses it (`grazed` is the first such guard; if it is crossed later, smooth steps locate
        that crossing); WIDE_BAND if a step misses its guard by more than 0.015 eps before its correction; if
        it would miss by more than a tenth of eps or pass another guard that comes before, or if the flow
        turns back to a guard inside its band, smooth steps locate that crossing; SIMULTANEOUS if two guards
        are met together whose jumps give different states in different order. After a failure the result
        ends at the failed step.

    Derivative: that of the steps taken, by x0, t0, t1, params and control, forward and reverse; at a tie of
        two guards that of the order taken (the lower index first), for both sides see `b_derivative`.
    """
    inputs, crossed0, plan, _ = run(
        es, params, x0, t0, t1, Options(eps, control, crossed0, ode, max_steps, max_events)
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
    tol: Any = None,
) -> tuple[jax.Array, FlowInfo]:
    """Compute the state at t1 of the trajectory that `integrate` computes, without the trajectory.

    This is the map to differentiate: `jax.grad`, `jax.jacfwd`, `jax.vmap`, `jax.jit` all apply. To chain
    pieces, pass `info.crossed` as the next `crossed0`. On a CPU compute a batch by
    `jc.on_all_cores(lambda xs: lax.map(run, xs))`: `vmap` pays for a smooth step and a crossing in every
    iteration of every lane.

    Args:
        es, params, x0, t0, t1, eps, control, crossed0, ode, max_steps, max_events: as `integrate`.
        tol: largest `band_error` that is allowed, in the units of x, one number or (n,). With it the run is
            repeated with half the bands, whose error is an eighth as large. Default: no estimate.

    Returns:
        x1 (n,), FlowInfo.

    Raises:
        ValueError, TypeError: as `integrate`; tol is not a number >= 0 or (n,) of them.

    Status: as `integrate`; INACCURATE if the estimated error of the bands is above `tol`, or the run with
        half of them failed; INVALID for a bad `tol` inside jit.

    Derivative: as `integrate`: exact for the steps taken, so it differs from that of the true flow by
        C eps^3, also the second derivative. At a tie `jax.grad` returns the derivative of one order of
        crossing (the lower index first), which may hold for no perturbation; `b_derivative` is exact there.
        Reverse mode repeats the run in a loop of max_steps iterations, so a small max_steps makes batches of
        gradients faster.
    """
    options = Options(eps, control, crossed0, ode, max_steps, max_events)
    inputs, crossed0, plan, widths = run(es, params, x0, t0, t1, options)
    info = flow_info(plan, max_events)
    if tol is not None:
        allowed = allowed_error(tol, inputs.x0)
        half = run(es, params, x0, t0, t1, options._replace(eps=0.5 * widths))[2]
        info = _compared(info, plan, half, allowed)
    return end_state(es, inputs, crossed0, plan), info


def _compared(info: FlowInfo, plan: Plan, half: Plan, allowed: jax.Array) -> FlowInfo:
    """Compare a run with one with half the bands; return its info with the distance and its status bits."""
    error = jnp.abs(plan.x - half.x)
    failed = (half.status & jnp.uint32(int(Status.FAILURES))) != 0
    bad = flag(jnp.any(~(error <= allowed)) | failed, Status.INACCURATE)
    bad |= flag(jnp.any(~(allowed >= 0)), Status.INVALID)
    return info.replace(band_error=error, status=info.status | bad)


def flow_info(plan: Plan, max_events: int) -> FlowInfo:
    """Make the public info of a plan."""
    order, times, _ = _events(plan, max_events)
    return FlowInfo(
        crossed=plan.crossed,
        order=order,
        event_times=times,
        num_steps=plan.num_steps,
        num_events=plan.num_events,
        grazed=plan.grazed,
        residual=plan.residual,
        status=plan.status,
        band_error=jnp.full_like(plan.x, jnp.nan),
    )


def _events(plan: Plan, max_events: int) -> tuple[jax.Array, jax.Array, jax.Array]:
    """List guards, times and rows (max_events,) of the crossings of a plan; -1, NaN and -1 beyond them."""
    hit = plan.kind == CROSS
    spot = jnp.where(hit, jnp.cumsum(hit) - 1, max_events)
    rows = jnp.arange(1, hit.shape[0] + 1, dtype=jnp.int32)
    columns = ((plan.guard, -1), (plan.end, jnp.nan), (rows, -1))
    order, times, at = (jnp.full(max_events, c, a.dtype).at[spot].set(a, mode="drop") for a, c in columns)
    return order, times, at


@functools.partial(jit, static_argnums=(0, 4))
def _trajectory(
    es: EventSystem, inputs: Inputs, crossed0: jax.Array, plan: Plan, max_events: int
) -> EventTrajectory:
    _, t, x, crossed = replay(es, inputs, crossed0, plan)
    order, _, at = _events(plan, max_events)
    return EventTrajectory(
        t=t,
        x=x,
        crossed=crossed,
        order=order,
        event_rows=at,
        num_rows=plan.num_steps + 1,
        num_events=plan.num_events,
        grazed=plan.grazed,
        residual=plan.residual,
        status=plan.status,
    )


@functools.partial(jit, static_argnums=(0, 5, 6))
def _planned(
    es: EventSystem,
    inputs: Inputs,
    eps: jax.Array,
    ode: DormandPrince,
    crossed0: jax.Array | None,
    max_steps: int,
    max_events: int,
) -> tuple[jax.Array, Plan]:
    """Compute the mask at the start and the plan; they carry no derivative."""
    fixed = lax.stop_gradient(inputs)
    crossed, bad = start_mask(es, fixed.params, fixed.x0, eps, crossed0)
    status0 = flag(bad | ~(fixed.t1 >= fixed.t0), Status.INVALID)
    status0 |= flag(~jnp.all(jnp.isfinite(fixed.x0)), Status.NONFINITE) | bad_settings(eps, ode)
    setting = FlowSetting(*fixed, eps=eps, ode=ode, crossed0=crossed)
    return crossed, make_plan(es, setting, status0, max_steps=max_steps, max_events=max_events)


def run(
    es: EventSystem,
    params: Any,
    x0: jax.Array,
    t0: Any,
    t1: Any,
    options: Options,
) -> tuple[Inputs, jax.Array, Plan, jax.Array]:
    """Check the arguments and run; return inputs, mask at the start, plan and band half widths (m,)."""
    inputs, eps = check(es, params, x0, t0, t1, options)
    ode = DormandPrince() if options.ode is None else options.ode
    ode = lax.stop_gradient(jax.tree.map(lambda a: jnp.asarray(a, inputs.x0.dtype), ode))
    crossed0, plan = _planned(
        es, inputs, lax.stop_gradient(eps), ode, options.crossed0, options.max_steps, options.max_events
    )
    return inputs, crossed0, plan, eps
