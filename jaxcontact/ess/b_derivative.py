"""The B-derivative of the flow: directional, one-sided, exact where guards are crossed together.

Owns the propagation of one direction along a plan; entry `b_derivative`. Away from corners it is the
derivative of the flow; `simultaneous_crossing.py` has the corners. Page: docs/methods/event-selected.md.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxcontact._pytree import PyTree, Record
from jaxcontact.algebra.forward_only import forward_only
from jaxcontact.arguments import check_not_empty, check_number, check_number_leaves
from jaxcontact.ess import guard_crossing
from jaxcontact.ess.event_step import CROSS, UNUSED
from jaxcontact.ess.inputs import RunInputs
from jaxcontact.ess.plan import Plan
from jaxcontact.ess.replay import one_step, rows
from jaxcontact.ess.run import flow_info, run
from jaxcontact.ess.settings import Settings
from jaxcontact.ess.simultaneous_crossing import CornerPoint, ForcedOrder, InputDisplacement, across_corner
from jaxcontact.front_door import checked
from jaxcontact.mechanics.event_system import EventSystem
from jaxcontact.mechanics.system import Model
from jaxcontact.precision import all_digits, jit
from jaxcontact.status import Info, Status, flag

if TYPE_CHECKING:
    from jaxtyping import Bool, Float


class BDerivativeInfo(Info):
    """The crossings and corners that a direction meets.

    Attributes:
        x1: (n,) end of the trajectory itself.
        crossed: (m,) mask at the end.
        order: (max_events,) guards in the order in which the displaced trajectory crosses them, -1 beyond.
        num_events: number of crossings.
        num_corners: number of times at which several guards are crossed together.
        largest_corner: largest number of guards crossed together.
        grazed: the guard of the first GRAZING, -1 if none.
        num_iters: number of steps taken, including crossings.
        residual: as `FlowInfo.residual`.
        status: bits of `Status`.
    """

    x1: jax.Array
    crossed: jax.Array
    order: jax.Array
    num_events: jax.Array
    num_corners: jax.Array
    largest_corner: jax.Array
    grazed: jax.Array


class _Propagation(NamedTuple):
    t: jax.Array
    x: jax.Array
    crossed: jax.Array
    dx: jax.Array
    until: jax.Array  # crossings up to this time belong to the last corner
    event: jax.Array
    order: jax.Array
    first: jax.Array  # (max_events,) event with which the corner of each event begins
    leads: jax.Array  # (max_events, m) s, by which the guard of each event comes before those ahead
    corners: jax.Array
    largest: jax.Array
    grazed: jax.Array


class PlannedRun(NamedTuple):
    """A run along which directions are propagated.

    Attributes:
        inputs: of the run.
        crossed0: (m,) mask at the start.
        plan: its steps.
        eps: (m,) half widths of the bands.
        corner_tol: s, within which crossings are one corner; None derives it from eps.
    """

    inputs: RunInputs
    crossed0: jax.Array
    plan: Plan
    eps: jax.Array
    corner_tol: jax.Array | None


def propagate_direction(
    es: EventSystem,
    max_events: int,
    planned: PlannedRun,
    direction: InputDisplacement,
    dx0: jax.Array,
    forced: ForcedOrder | None = None,
) -> _Propagation:
    """Propagate a direction along the rows of a plan, at fixed times; `forced` orders all its crossings."""
    inputs, crossed0, plan, eps, corner_tol = planned
    info, m = flow_info(plan, max_events), crossed0.shape[0]

    def field(t: jax.Array, x: jax.Array, mask: jax.Array, d: InputDisplacement) -> jax.Array:
        return es.xdot(t, x, mask, d.control, d.params)

    fixed = InputDisplacement(inputs.params, inputs.control)

    def step(c: _Propagation, row: PyTree) -> _Propagation:
        def move(t: jax.Array, x: jax.Array, d: InputDisplacement) -> tuple[jax.Array, jax.Array]:
            return one_step(es, d.params, d.control, t, x, c.crossed, row)[:2]

        (t, x), (dt, dx) = jax.jvp(move, (c.t, c.x, fixed), (jnp.zeros_like(c.t), c.dx, direction))
        f = field(t, x, c.crossed, fixed)
        return c._replace(t=t, x=x, dx=dx - dt * f)

    def cross(c: _Propagation, row: PyTree) -> _Propagation:
        k = row[1]
        f, df = jax.jvp(lambda x, d: field(c.t, x, c.crossed, d), (c.x, fixed), (c.dx, direction))
        done = guard_crossing.cross_guard(es, inputs.params, inputs.control, c.t, c.x, f, c.crossed, k)
        _, rate = es.guard_rates(c.x, f, inputs.params)
        width = corner_tol if corner_tol is not None else guard_crossing.TIE * eps[k] / rate[k]
        new = done.t > c.until
        until = jnp.where(new, done.t + width, c.until)

        def through(c: _Propagation) -> _Propagation:
            index = jnp.arange(max_events)
            together = (index >= c.event) & (info.event_times <= until) & (info.order >= 0)
            members = jnp.any(together[:, None] & (info.order[:, None] == jnp.arange(m)[None, :]), axis=0)
            moved = c.dx + (done.t - c.t) * df
            ahead = None if forced is None else forced.from_event(c.event, m)
            point = CornerPoint(done.t, done.before, c.crossed)
            corner = across_corner(es, inputs, direction, point, members, moved, ahead)
            size = jnp.sum(members, dtype=jnp.int32)
            spots = jnp.where(corner.order >= 0, c.event + jnp.arange(m), max_events)
            return c._replace(
                dx=corner.dx,
                order=c.order.at[spots].set(corner.order, mode="drop"),
                first=c.first.at[spots].set(c.event, mode="drop"),
                leads=c.leads.at[spots].set(corner.leads, mode="drop"),
                corners=c.corners + (size > 1),
                largest=jnp.maximum(c.largest, size),
                grazed=jnp.where(c.grazed < 0, corner.stuck, c.grazed),
            )

        c = lax.cond(new, through, lambda c: c, c)
        return c._replace(t=done.t, x=done.x, crossed=done.crossed, until=until, event=c.event + 1)

    def body(c: _Propagation, row: PyTree) -> tuple[_Propagation, None]:
        branch = jnp.where(row[0] == UNUSED, 0, jnp.where(row[0] == CROSS, 1, 2))
        return lax.switch(branch, (lambda c, _: c, cross, step), c, row), None

    unused = jnp.full(max_events, -1, jnp.int32)
    start = _Propagation(
        t=inputs.t0,
        x=inputs.x0,
        crossed=crossed0,
        dx=dx0,
        until=jnp.asarray(-jnp.inf, dx0.dtype),
        event=jnp.int32(0),
        order=unused,
        first=unused,
        leads=jnp.zeros((max_events, m), dx0.dtype),
        corners=jnp.int32(0),
        largest=jnp.int32(0),
        grazed=jnp.int32(-1),
    )
    return lax.scan(body, start, rows(plan))[0]


class Direction(Record):
    """A displacement of everything that a flow depends on, each part a pytree like what it displaces.

    Attributes:
        x: (n,) of the start.
        params: of the model's numbers; None is zero.
        control: of the control; None is zero.
    """

    x: jax.Array
    params: PyTree = None
    control: PyTree = None


@checked(x0=check_not_empty, control=check_number_leaves)
def b_derivative(
    model: Model,
    x0: Float[jax.Array, " n"],
    direction: jax.Array | Direction,
    t0: float | Float[jax.Array, ""],
    t1: float | Float[jax.Array, ""],
    *,
    settings: Settings,
    control: PyTree = None,
    crossed0: Bool[jax.Array, " m"] | None = None,
) -> tuple[jax.Array, BDerivativeInfo]:
    """Compute the one-sided derivative of the flow, lim (flow(x0 + r dx) - flow(x0)) / r for r -> 0+.

    Exact at corners, at which several guards are crossed together and the order of crossing depends on the
    direction: there the map dx -> dx1 is continuous, positively homogeneous and piecewise linear, but not
    linear, so B(dx) + B(-dx) need not vanish (Burden et al. 2016; Council, Revzen & Burden 2022). Its cost is
    that of one crossing per guard, for any number of orders. `vmap` over directions runs the trajectory once.
    `jax.jvp` of `flow` with `corner="one_sided"` is the same number.

    Args:
        model, x0, t0, t1, settings, control, crossed0: as `flow`.
        direction: (n,) of the start, or a `Direction` of start, params and control.

    Returns:
        dx1 (n,), BDerivativeInfo.

    Raises:
        ValueError: as `flow`; parts of the direction do not have the shapes of x0, params or control;
            settings.corner_tol is negative or not finite, which inside jit sets INVALID.

    Status: as `flow`. With SIMULTANEOUS (jumps that do not commute at a corner) there is no B-derivative; the
        result is the derivative of one order. GRAZING also if the displaced trajectory never reaches a guard
        of a corner.

    Derivative: none; the result is one. Between corners it differs from the derivative of `flow` by C eps^2.
    """
    inputs, crossed0, plan, widths = run(model, x0, t0, t1, settings, control, crossed0)
    if not isinstance(direction, Direction):
        direction = Direction(x=direction)
    if jnp.shape(direction.x) != inputs.x0.shape:
        raise ValueError(f"direction: expected shape {inputs.x0.shape} as x0, got {jnp.shape(direction.x)}")
    numbers = numbers_of(inputs, direction)
    planned = PlannedRun(inputs, crossed0, plan, widths, corner_width(settings, inputs.x0))
    dx = jnp.asarray(direction.x, inputs.x0.dtype)
    return _b_derivative(model.system, settings.max_events, planned, numbers, dx)


def corner_width(settings: Settings, x0: jax.Array) -> jax.Array | None:
    """Return `corner_tol` in the dtype of the state, or None; raise an error if it is no time."""
    if settings.corner_tol is None:
        return None
    check_number("corner_tol", settings.corner_tol, 0.0)
    if jnp.ndim(settings.corner_tol) != 0:
        raise ValueError(f"corner_tol: expected one number, got shape {jnp.shape(settings.corner_tol)}")
    return jnp.asarray(settings.corner_tol, x0.dtype)


REVERSE = (
    "ess.flow: reverse mode needs a linear map, and with corner='one_sided' the derivative at a corner is "
    "none; use jax.jvp, ess.b_derivative or ess.one_sided_jacobian, or corner='smooth' for the order taken"
)
SECOND = (
    "ess.flow: with corner='one_sided' there is no second derivative; use corner='smooth', whose first and "
    "second derivatives are those of the order taken"
)


@functools.partial(jax.custom_jvp, nondiff_argnums=(0, 1))
def one_sided_end(es: EventSystem, max_events: int, planned: PlannedRun) -> jax.Array:
    """Return the end of a run from the plan; its forward derivative is the B-derivative."""
    return planned.plan.x


@one_sided_end.defjvp
@all_digits
def _one_sided_jvp(
    es: EventSystem, max_events: int, primals: tuple[PlannedRun], tangents: tuple[PlannedRun]
) -> tuple[jax.Array, jax.Array]:
    planned, rates = primals[0], tangents[0].inputs
    inputs, plan = planned.inputs, planned.plan
    # A later start at x0 is a start at t0 from a point behind it.
    dx = rates.x0 - rates.t0 * es.xdot(inputs.t0, inputs.x0, planned.crossed0, inputs.control, inputs.params)
    numbers = InputDisplacement(rates.params, rates.control)
    dx, info = _b_derivative(es, max_events, planned, numbers, dx)
    dx = dx + rates.t1 * es.xdot(plan.t, plan.x, plan.crossed, inputs.control, inputs.params)
    none = (info.status & jnp.uint32(int(Status.SIMULTANEOUS | Status.INVALID))) != 0
    none = none | ((info.grazed >= 0) & (plan.grazed < 0))
    dx = forward_only(jnp.where(none, jnp.nan, dx), plan.x, reverse=REVERSE, second=SECOND)
    return one_sided_end(es, max_events, *primals), dx


@functools.partial(jit, static_argnames=("es", "max_events"))
def _b_derivative(
    es: EventSystem, max_events: int, planned: PlannedRun, direction: InputDisplacement, dx: jax.Array
) -> tuple[jax.Array, BDerivativeInfo]:
    end = propagate_direction(es, max_events, planned, direction, dx)
    plan, corner_tol = planned.plan, planned.corner_tol
    finite = jnp.all(jnp.isfinite(end.dx))
    status = plan.status | flag(end.grazed >= 0, Status.GRAZING) | flag(~finite, Status.NONFINITE)
    if corner_tol is not None:
        status |= flag(~((corner_tol >= 0) & jnp.isfinite(corner_tol)), Status.INVALID)
    return end.dx, BDerivativeInfo(
        x1=plan.x,
        crossed=plan.crossed,
        order=end.order,
        num_events=plan.num_events,
        num_corners=end.corners,
        largest_corner=end.largest,
        grazed=jnp.where(plan.grazed >= 0, plan.grazed, end.grazed),
        num_iters=plan.num_steps,
        residual=plan.residual,
        status=status,
    )


def numbers_of(inputs: RunInputs, direction: Direction) -> InputDisplacement:
    """Return the parts of a direction along params and control, zeros for None; raise if they do not fit."""
    return InputDisplacement(
        _tangent("direction.params", inputs.params, direction.params),
        _tangent("direction.control", inputs.control, direction.control),
    )


def _tangent(name: str, value: object, change: PyTree) -> PyTree:
    """Make a direction with the shapes of `value` from `change`, or zeros; integers have none (float0)."""

    def like(leaf: PyTree, d: PyTree) -> PyTree:
        if not jnp.issubdtype(jnp.result_type(leaf), jnp.floating):
            return np.zeros(jnp.shape(leaf), jax.dtypes.float0)
        if d is None:
            return jnp.zeros(jnp.shape(leaf), jnp.result_type(leaf))
        if jnp.shape(d) != jnp.shape(leaf):
            raise ValueError(f"{name}: expected shapes as displaced, {jnp.shape(leaf)}, got {jnp.shape(d)}")
        return jnp.asarray(d, jnp.result_type(leaf))

    if change is None:
        return jax.tree.map(lambda leaf: like(leaf, None), value)
    expected, got = str(jax.tree.structure(value)), str(jax.tree.structure(change))
    if expected != got:
        raise ValueError(f"{name}: expected a pytree {expected}, got {got}")
    return jax.tree.map(like, value, change)
