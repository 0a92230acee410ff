"""`integrate` and `flow`: trajectories and end points of event-selected systems.

Owns the public calls of the integrator; the run itself is in `plan.py`, its derivative in `replay.py`.
Page: docs/methods/event-selected.md.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp

from jaxcontact._pytree import PyTree, Record
from jaxcontact.arguments import check_not_empty, check_number_leaves
from jaxcontact.ess.b_derivative import PlannedRun, corner_width, one_sided_end
from jaxcontact.ess.inputs import RunInputs, allowed_error
from jaxcontact.ess.plan import Plan
from jaxcontact.ess.replay import end_state, replay
from jaxcontact.ess.run import FlowInfo, flow_info, list_events, run
from jaxcontact.ess.settings import Settings
from jaxcontact.front_door import checked
from jaxcontact.mechanics.event_system import EventSystem
from jaxcontact.mechanics.system import Model
from jaxcontact.precision import jit
from jaxcontact.status import Status, flag

if TYPE_CHECKING:
    from jaxtyping import Bool, Float


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


@checked(x0=check_not_empty, control=check_number_leaves)
def integrate(
    model: Model,
    x0: Float[jax.Array, " n"],
    t0: float | Float[jax.Array, ""],
    t1: float | Float[jax.Array, ""],
    *,
    settings: Settings,
    control: PyTree = None,
    crossed0: Bool[jax.Array, " m"] | None = None,
) -> EventTrajectory:
    """Compute the trajectory of an event-selected system, through any number of crossings.

    Anderson & Revzen (2024). Outside of the bands |h_k| <= eps_k the steps are Dormand & Prince's; inside,
    there is one step from guard to guard in the order of -h_k / (Dh_k f), straight in the paper and bent by
    the field at its end in this program. The error is that of the smooth steps plus C eps^3 (C eps^2 in the
    paper).

    Args:
        model: the system (static) and its numbers, for field, guards and jump.
        x0: (n,) start.
        t0, t1: interval, s.
        settings: bands, tolerances and limits.
        control: pytree of numbers for the field.
        crossed0: (m,) bool, guards that count as crossed at the start; needed for a start on a guard.
            Default: h(x0) >= 0.

    Returns:
        EventTrajectory.

    Raises:
        ValueError: shapes that do not fit; for known values t1 < t0, eps <= 0, NaN in x0, a start on a guard
            without `crossed0`, a guard that is not crossed by `crossed0` although h > eps, or a tolerance of
            `ode` < 0.
        TypeError: the model has no EventSystem, x0 is not a floating array, or ode is no DormandPrince.

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
    inputs, crossed0, plan, _ = run(model, x0, t0, t1, settings, control, crossed0)
    return _trajectory(model.system, inputs, crossed0, plan, settings.max_events)


@checked(x0=check_not_empty, control=check_number_leaves)
def flow(
    model: Model,
    x0: Float[jax.Array, " n"],
    t0: float | Float[jax.Array, ""],
    t1: float | Float[jax.Array, ""],
    *,
    settings: Settings,
    control: PyTree = None,
    crossed0: Bool[jax.Array, " m"] | None = None,
) -> tuple[jax.Array, FlowInfo]:
    """Compute the state at t1 of the trajectory that `integrate` computes, without the trajectory.

    This is the map to differentiate: `jax.grad`, `jax.jacfwd`, `jax.vmap`, `jax.jit` all apply. To chain
    pieces, pass `info.crossed` as the next `crossed0`. On a CPU compute a batch by
    `jc.on_all_cores(lambda xs: lax.map(run, xs))`: `vmap` pays for a smooth step and a crossing in every
    iteration of every lane.

    Args:
        model, x0, t0, t1, settings, control, crossed0: as `integrate`.

    Returns:
        x1 (n,), FlowInfo.

    Raises:
        ValueError, TypeError: as `integrate`; tol is not a number >= 0 or (n,) of them.

    Status: as `integrate`; INACCURATE if the estimated error of the bands is above `tol`, or the run with
        half of them failed; INVALID for a bad `tol` inside jit.

    Derivative: as `integrate`: exact for the steps taken, so it differs from that of the true flow by
        C eps^3, also the second derivative. At a tie it is that of one order of crossing (the lower index
        first), which may hold for no perturbation. With `corner="one_sided"` the forward mode is the
        B-derivative by x0, t0, t1, params and control, as `b_derivative` computes it, NaN where that has none
        (SIMULTANEOUS, or a direction that never reaches a guard of the corner); `jax.jacfwd` then returns
        the rates along the axes, whose sum is no rate along other directions at a tie, and `jax.grad` raises
        NotImplementedError. Reverse mode repeats the run in a loop of max_steps iterations, so a small
        max_steps makes batches of gradients faster.
    """
    inputs, mask, plan, widths = run(model, x0, t0, t1, settings, control, crossed0)
    info = flow_info(plan, settings.max_events)
    if settings.tol is not None:
        allowed = allowed_error(settings.tol, inputs.x0)
        half = run(model, x0, t0, t1, settings.replace(eps=0.5 * widths), control, crossed0)[2]
        info = _compared(info, plan, half, allowed)
    if settings.corner == "one_sided":
        planned = PlannedRun(inputs, mask, plan, widths, corner_width(settings, inputs.x0))
        return one_sided_end(model.system, settings.max_events, planned), info
    return end_state(model.system, inputs, mask, plan), info


def _compared(info: FlowInfo, plan: Plan, half: Plan, allowed: jax.Array) -> FlowInfo:
    """Compare a run with one with half the bands; return its info with the distance and its status bits."""
    error = jnp.abs(plan.x - half.x)
    failed = (half.status & jnp.uint32(int(Status.FAILURES))) != 0
    bad = flag(jnp.any(~(error <= allowed)) | failed, Status.INACCURATE)
    bad |= flag(jnp.any(~(allowed >= 0)), Status.INVALID)
    return info.replace(band_error=error, status=info.status | bad)


@functools.partial(jit, static_argnames=("es", "max_events"))
def _trajectory(
    es: EventSystem, inputs: RunInputs, crossed0: jax.Array, plan: Plan, max_events: int
) -> EventTrajectory:
    _, t, x, crossed = replay(es, inputs, crossed0, plan)
    order, _, at = list_events(plan, max_events)
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
