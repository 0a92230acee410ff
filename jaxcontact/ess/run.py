"""The checked run of a system, and what it crossed and when; entries `run`, `flow_info`."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
from jax import lax

from jaxcontact._pytree import PyTree
from jaxcontact.ess.event_step import CROSS, FlowSetting
from jaxcontact.ess.inputs import RunInputs, bad_settings, check, start_mask
from jaxcontact.ess.plan import Plan, make_plan
from jaxcontact.ess.settings import Settings
from jaxcontact.mechanics.event_system import EventSystem
from jaxcontact.mechanics.system import Model
from jaxcontact.precision import jit
from jaxcontact.solvers.ode import DormandPrince
from jaxcontact.status import Info, Status, flag


class FlowInfo(Info):
    """The info of a run from x0 to x1.

    Attributes:
        crossed: (m,) mask at the end; pass it as `crossed0` of the next piece.
        order: (max_events,) guards in the order of their crossing, -1 in unused entries.
        event_times: (max_events,) s, NaN in unused entries.
        num_iters: number of steps taken, including crossings.
        num_events: number of crossings.
        grazed: the guard of the first GRAZING, -1 if none.
        residual: largest |h| that a step left at its guard before its Newton correction, of order eps^2.
        status: bits of `Status`.
        band_error: (n,) distance of x1 from the end of a run with half the bands; NaN without `tol`.
    """

    crossed: jax.Array
    order: jax.Array
    event_times: jax.Array
    num_events: jax.Array
    grazed: jax.Array
    band_error: jax.Array


def flow_info(plan: Plan, max_events: int) -> FlowInfo:
    """Make the public info of a plan."""
    order, times, _ = list_events(plan, max_events)
    return FlowInfo(
        crossed=plan.crossed,
        order=order,
        event_times=times,
        num_iters=plan.num_steps,
        num_events=plan.num_events,
        grazed=plan.grazed,
        residual=plan.residual,
        status=plan.status,
        band_error=jnp.full_like(plan.x, jnp.nan),
    )


def list_events(plan: Plan, max_events: int) -> tuple[jax.Array, jax.Array, jax.Array]:
    """List guards, times and rows (max_events,) of the crossings of a plan; -1, NaN and -1 beyond them."""
    hit = plan.kind == CROSS
    spot = jnp.where(hit, jnp.cumsum(hit) - 1, max_events)
    rows = jnp.arange(1, hit.shape[0] + 1, dtype=jnp.int32)
    columns = ((plan.guard, -1), (plan.end, jnp.nan), (rows, -1))
    order, times, at = (jnp.full(max_events, c, a.dtype).at[spot].set(a, mode="drop") for a, c in columns)
    return order, times, at


@functools.partial(jit, static_argnames=("es", "max_steps", "max_events"))
def _planned(
    es: EventSystem,
    inputs: RunInputs,
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
    model: Model,
    x0: jax.Array,
    t0: jax.typing.ArrayLike,
    t1: jax.typing.ArrayLike,
    settings: Settings,
    control: PyTree,
    crossed0: jax.Array | None,
) -> tuple[RunInputs, jax.Array, Plan, jax.Array]:
    """Check the arguments and run; return inputs, mask at the start, plan and band half widths (m,)."""
    inputs, eps = check(model, x0, t0, t1, settings, control, crossed0)
    ode = DormandPrince() if settings.ode is None else settings.ode
    ode = lax.stop_gradient(jax.tree.map(lambda a: jnp.asarray(a, inputs.x0.dtype), ode))
    crossed0, plan = _planned(
        model.system, inputs, lax.stop_gradient(eps), ode, crossed0, settings.max_steps, settings.max_events
    )
    return inputs, crossed0, plan, eps
