"""Contact forces from observed motion."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any  # Any: `reach` may be an array or a float of any dtype

import jax
import jax.numpy as jnp

from jaxcontact.arguments import check_array, check_number, check_positive
from jaxcontact.compliant.problem import (
    by_axis,
    by_contact,
    columns_of,
    convex_program,
    count_rows,
    row_material,
)
from jaxcontact.compliant.step import assemble_all
from jaxcontact.front_door import NOT_NEGATIVE, POSITIVE, checked
from jaxcontact.mechanics.system import Model, State, check_mechanism
from jaxcontact.precision import jit
from jaxcontact.solvers import cone_newton, row_algebra

if TYPE_CHECKING:
    from jaxtyping import Float

TIE_BREAK = 1e6  # slope x mobility of a row at least: compliance must not bear on what motion tells
REACH = 1e-3  # m; limits and contacts that stay farther apart carry nothing


@checked(states="T+1", dt=POSITIVE, reach=NOT_NEGATIVE)
def estimate_forces(
    model: Model, states: State, tau: Float[jax.Array, "T nv"], *, dt: float | jax.Array, reach: Any = REACH
) -> tuple[jax.Array, jax.Array]:
    """Estimate the constraint forces that explain a motion best, without any measurement of deformations.

    Between two states lam minimises |G^T lam - (M (v+ - v) / h - f)|^2 in the metric M^-1 under lam >= 0 on
    limits and normals and |lam_t| <= mu lam_n, with the compliance D^-1 of the law as a tie-break: redundant
    contacts share a load as their stiffnesses do. Deformations are taken as zero, as Drumwright proposes
    (section 7): they are too small to be measured where the law is stiff.

    Args:
        model: the mechanism and its numbers.
        states: T + 1 of them, time first.
        tau: (T, nv) generalized forces applied between them.
        dt: time between two states, s, > 0.
        reach: limits and contacts carry force only where their gap is smaller at the later state, m.

    Returns:
        lam (T, nr) in N, and the generalized forces (T, nv) left unexplained; NaN where dt is not positive
            or a number is not finite, for there is no status.

    Raises:
        TypeError, ValueError: arguments in another order; numbers of states and forces do not fit; outside of
            jit, dt that is not positive and finite, reach that is not finite.

    Derivative: none.
    """
    check_mechanism(model, states)
    check_array("tau", tau)
    check_positive("dt", dt)
    check_number("reach", reach)
    if tau.shape[0] + 1 != states.v.shape[0]:
        raise ValueError(
            f"states: expected one more than the {tau.shape[0]} rows of tau, got {states.v.shape[0]}"
        )
    return _estimate_forces(model, states, tau, dt, reach)


@jit
def _estimate_forces(
    model: Model, states: State, tau: jax.Array, dt: jax.typing.ArrayLike, reach: jax.typing.ArrayLike
) -> tuple[jax.Array, jax.Array]:
    model, states, tau = jax.lax.stop_gradient((model, states, tau))
    dt = jnp.where(jnp.asarray(dt) > 0, dt, jnp.nan)

    def between(before: State, after: State, force: jax.Array) -> tuple[jax.Array, jax.Array]:
        problem, free = assemble_all(model, before, force, dt)
        kind = problem.terms.kind
        nb, nl, nc, axes = count_rows(kind)
        near = by_axis(assemble_all(model, after, force, dt)[0].terms.phi <= reach, kind)
        near = near[nb : nb + nl + nc]
        used = jnp.concatenate([jnp.ones(nb, bool), near, jnp.tile(near[nl:], axes - 1)])
        row, columns = row_material(problem), columns_of(problem.terms)
        mobility = row_algebra.row_mobility(jnp.diagonal(problem.M), columns, nb + nl, nc)
        rigid = TIE_BREAK / jnp.where(mobility > 0, problem.dt * mobility, 1.0)
        stiff = jnp.where(used, jnp.maximum(row.rate, rigid), 0.0)
        needed = problem.M @ (after.v - free.v) - problem.dt * problem.f
        program = convex_program(problem, row.replace(rate=stiff, base=jnp.zeros_like(row.base)), gate="none")
        program = program.replace(v=jnp.zeros_like(before.v), push=-needed, potential=None)
        solution = cone_newton.solve_cone_program(program, jnp.zeros_like(row.base))
        left = needed - row_algebra.apply_columns(columns, solution.p)
        return by_contact(solution.p, kind) / problem.dt, left / problem.dt

    before, after = (
        jax.tree.map(lambda a, cut=cut: a[cut], states) for cut in (slice(None, -1), slice(1, None))
    )
    return jax.vmap(between)(before, after, tau)
