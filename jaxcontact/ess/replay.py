"""The repetition of a plan as a function with derivatives, forward and reverse, first and second.

Owns the derivative of a run: smooth steps end at fixed times, a step that met a band ends on its level
set by the implicit rule, a step to a guard is an explicit formula. Step sizes, the number of steps and
the order of crossings carry no derivative. Entries: `replay`, `end_state`.
"""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
from jax import lax

from jaxcontact._pytree import PyTree
from jaxcontact.ess import guard_crossing
from jaxcontact.ess.event_step import CROSS, ENTER, SMOOTH, UNUSED
from jaxcontact.ess.inputs import RunInputs
from jaxcontact.ess.plan import Plan
from jaxcontact.mechanics.event_system import EventSystem
from jaxcontact.precision import all_digits, jit
from jaxcontact.solvers import ode


def one_step(
    es: EventSystem,
    params: PyTree,
    control: PyTree,
    t: jax.Array,
    x: jax.Array,
    crossed: jax.Array,
    row: tuple[jax.Array, ...],
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Repeat one step (kind, guard, level, end, trial_end) of a plan from (t, x, crossed).

    Derivative: of the discrete step, by t, x, params and control.
    """
    kind, guard, level, end, trial_end = row
    target = guard_crossing.LevelSet(guard, level)

    def unused(t: jax.Array, x: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
        return t, x, crossed

    def across(t: jax.Array, x: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
        f = es.xdot(t, x, crossed, control, params)
        done = guard_crossing.cross_guard(es, params, control, t, x, f, crossed, guard)
        return done.t, done.x, done.crossed

    def smooth(t: jax.Array, x: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
        f = functools.partial(_field, es, params, control, crossed)
        trial = ode.step(f, t, x, trial_end - t, f(t, x))
        t_e, x_e = lax.cond(
            kind == ENTER,
            lambda trial: guard_crossing.enter(es, params, control, trial, t, end, crossed, target),
            lambda trial: (end, trial.x1),
            trial,
        )
        return t_e, x_e, crossed

    branch = jnp.where(kind == UNUSED, 0, jnp.where(kind == CROSS, 1, 2))
    return lax.switch(branch, (unused, across, smooth), t, x)


def _field(
    es: EventSystem, params: PyTree, control: PyTree, crossed: jax.Array, t: jax.Array, x: jax.Array
) -> jax.Array:
    return es.xdot(t, x, crossed, control, params)


def rows(plan: Plan) -> tuple[jax.Array, ...]:
    """Return the steps of a plan as the rows of a scan."""
    return plan.kind, plan.guard, plan.level, plan.end, plan.trial_end


@functools.partial(jax.checkpoint, static_argnums=0)
def _repeat(es: EventSystem, inputs: RunInputs, carry: PyTree, row: PyTree) -> PyTree:
    t, x, crossed = carry
    return one_step(es, inputs.params, inputs.control, t, x, crossed, row)


@functools.partial(jit, static_argnames="es")
def replay(
    es: EventSystem, inputs: RunInputs, crossed0: jax.Array, plan: Plan
) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array]:
    """Repeat a run; return its end x1 (n,), and t (N + 1,), x (N + 1, n), crossed (N + 1, m) of all rows."""

    def body(carry: PyTree, row: PyTree) -> tuple[PyTree, PyTree]:
        new = _repeat(es, inputs, carry, row)
        return new, new

    start = (inputs.t0, inputs.x0, crossed0)
    # The last step ends at the number t1; this makes it depend on t1 without changing its value.
    last = (plan.kind == SMOOTH) & (plan.end == lax.stop_gradient(inputs.t1))
    shift = jnp.where(last, inputs.t1 - lax.stop_gradient(inputs.t1), 0.0)
    kind, guard, level, end, trial_end = rows(plan)
    (_, x, _), (ts, xs, masks) = lax.scan(body, start, (kind, guard, level, end + shift, trial_end + shift))
    return (
        x,
        jnp.concatenate([inputs.t0[None], ts]),
        jnp.concatenate([inputs.x0[None], xs]),
        jnp.concatenate([crossed0[None], masks]),
    )


@functools.partial(jax.custom_jvp, nondiff_argnums=(0,))
def end_state(es: EventSystem, inputs: RunInputs, crossed0: jax.Array, plan: Plan) -> jax.Array:
    """Return the end of a run from the plan, with the derivative of its replay."""
    return plan.x


@end_state.defjvp
@all_digits
def _end_state_jvp(es: EventSystem, primals: PyTree, tangents: PyTree) -> tuple[jax.Array, jax.Array]:
    inputs, crossed0, plan = primals
    _, tangent = jax.jvp(lambda i: replay(es, i, crossed0, plan)[0], (inputs,), (tangents[0],))
    return end_state(es, inputs, crossed0, plan), tangent
