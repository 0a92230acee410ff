"""The forces of one step: from algebra to lam, with residuals, status and the derivative of the solution."""

from __future__ import annotations

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxcontact import linalg
from jaxcontact._pytree import Record
from jaxcontact.compliant.problem import Problem, convex_program, count_rows, row_law
from jaxcontact.solvers import cone_program
from jaxcontact.solvers.cone_program import ConeProgram
from jaxcontact.status import Status, flag

CONES = ("associated", "staggered", "pyramid", "coupled")
FORMULATIONS = ("complementary", "min_norm")
TANGENT_STEPS = 4  # of the method of multipliers in a derivative


@dataclasses.dataclass(frozen=True)
class Newton:
    """Limits of the search: most Newton steps of a convex problem, and most linearisations of a potential.

    Attributes:
        max_iters: Newton steps.
        max_linearisations: of an elastic potential; springs are linear and need one.
    """

    max_iters: int = 50
    max_linearisations: int = 40


NEWTON = Newton()


class StepInfo(Record):
    """What a step says beside its result. Forces in N, nk constraints as in `Law`, nr rows as in the terms.

    Attributes:
        status: uint32 bits of `Status`.
        lam: (nr,) constraint forces.
        gap: (nk,) predicted deviation, slack or gap at the end of the step, m.
        slip: (nc, nt) tangential velocity of each contact at the end of the step, m/s.
        signorini: worst violation of 0 <= lam_n, complementary to the normal law, N.
        joint: worst violation of the law of a bilateral row, N.
        cone: worst |lam_t| - mu lam_n where positive, N.
        dissipation: worst violation of the friction law (maximal dissipation), N.
        residual: |M (v+ - v) - h (f + G^T lam)| relative to the momenta in the step.
        iterations: Newton steps.
    """

    status: jax.Array
    lam: jax.Array
    gap: jax.Array
    slip: jax.Array
    signorini: jax.Array
    joint: jax.Array
    cone: jax.Array
    dissipation: jax.Array
    residual: jax.Array
    iterations: jax.Array


def program_of(problem: Problem, at: jax.Array | None, cone: str) -> ConeProgram:
    """The convex program of a step with its potential linearised at the rates `at` (nr,)."""
    return convex_program(problem, row_law(problem, at), pyramid=cone == "pyramid")


def _rates(program: ConeProgram, x: jax.Array, p: jax.Array) -> jax.Array:
    """Rates (nr,) at which the law of a row gives its impulse, G x where it does not push."""
    u = cone_program.apply_rows(program.G, x)
    slope = jnp.where(program.slope > 0, program.slope, 1.0)
    law = (program.offset - (1.0 - program.keep) * p) / slope
    return jnp.where((p != 0) & (program.slope > 0), law, u)


def _search(problem: Problem, start: jax.Array, cone: str, solver: Newton) -> tuple[jax.Array, ...]:
    """(v+, p, rates, iterations, converged); potentials are linearised until they settle."""

    def linearised(at: jax.Array | None, p: jax.Array) -> tuple[jax.Array, ...]:
        program = program_of(problem, at, cone)
        found = cone_program.solve_cone_program(program, p, solver.max_iters)
        return found.x, found.p, _rates(program, found.x, found.p), found.iterations, found.converged

    first = linearised(None, start)
    if problem.law.potential is None:
        return first
    eps = jnp.finfo(start.dtype).eps

    def again(carry: tuple) -> tuple:
        k, (_, p, at, used, _), _ = carry
        found = linearised(at, p)
        near = jnp.max(jnp.abs(found[1] - p)) <= eps**0.8 * jnp.max(jnp.abs(found[1]))
        settled = near & jnp.all((found[1] != 0) == (p != 0))
        return k + 1, (*found[:3], used + found[3], found[4] & settled), settled

    start_carry = (jnp.int32(1), (*first[:4], jnp.asarray(False)), jnp.asarray(False))
    return lax.while_loop(lambda c: (c[0] < solver.max_linearisations) & ~c[2], again, start_carry)[1]


@functools.partial(jax.custom_jvp, nondiff_argnums=(2, 3))
def _converge(problem: Problem, start: jax.Array, cone: str, solver: Newton) -> tuple[jax.Array, ...]:
    """(v+, p, rates, iterations, converged); its derivative is that of the equations of the solution."""
    problem, start = jax.tree.map(lax.stop_gradient, (problem, start))
    return _search(problem, start, cone, solver)


@_converge.defjvp
def _(cone: str, solver: Newton, primals: tuple, tangents: tuple) -> tuple:
    problem, start = primals
    found = _converge(problem, start, cone, solver)
    x, p, at = found[:3]

    def residuals(data: Problem) -> tuple[jax.Array, jax.Array]:
        return cone_program.residuals(program_of(data, at, cone), x, p)[:2]

    program = program_of(problem, at, cone)
    response = cone_program.residuals(program, x, p)[2]
    factor = linalg.cholesky_lanes(cone_program.hessian(program, response))
    _, (momentum, misfit) = jax.jvp(residuals, (problem,), (tangents[0],))
    dx, dp = cone_program.solve_linearised(program, response, factor, momentum, misfit, TANGENT_STEPS)
    none = np.zeros(np.shape(found[3]), jax.dtypes.float0), np.zeros(np.shape(found[4]), jax.dtypes.float0)
    return found, (dx, dp, jnp.zeros_like(at), *none)


def check_names(cone: str, formulation: str) -> None:
    """Raise ValueError for unknown names and for combinations that make no sense."""
    if cone not in CONES:
        raise ValueError(f"cone: expected one of {CONES}, got {cone!r}")
    if formulation not in FORMULATIONS:
        raise ValueError(f"formulation: expected one of {FORMULATIONS}, got {formulation!r}")
    if (cone == "coupled") != (formulation == "min_norm"):
        raise ValueError(
            "cone and formulation: 'coupled' is the cone of 'min_norm' and of nothing else, "
            f"got cone={cone!r} with formulation={formulation!r}"
        )


def solve_velocity(
    problem: Problem, warm_start: jax.Array | None, cone: str, formulation: str, solver: Newton
) -> tuple[jax.Array, StepInfo]:
    """v+ (nv,) and StepInfo of a step; see `solve`."""
    check_names(cone, formulation)
    h = problem.dt
    start = jnp.zeros_like(problem.terms.phi) if warm_start is None else h * warm_start
    x, p, at, iterations, converged = _converge(problem, start, cone, solver)
    return x, _info(problem, x, p, at, iterations, converged, cone)


def _info(
    problem: Problem,
    x: jax.Array,
    p: jax.Array,
    at: jax.Array,
    iterations: jax.Array,
    converged: jax.Array,
    cone: str,
) -> StepInfo:
    terms, h = problem.terms, problem.dt
    nb, nl, nc, axes = count_rows(terms.kind)
    singles = nb + nl
    program = program_of(problem, at, cone)
    momentum, misfit, _ = cone_program.residuals(program, x, p)
    u = cone_program.apply_rows(terms.G, x)
    future = terms.phi + h * (u + h * terms.gdot_v)
    contact = misfit[singles:].reshape(nc, axes)
    normal = jnp.concatenate([misfit[nb:singles], contact[:, 0]])
    pushed = p[singles:].reshape(nc, axes)
    excess = jnp.sqrt(jnp.sum(pushed[:, 1:] ** 2, axis=1)) - program.mu * pushed[:, 0]

    def worst(values: jax.Array) -> jax.Array:
        return lax.stop_gradient(jnp.max(jnp.abs(values), initial=0.0) / h)

    moved = jnp.max(jnp.abs(cone_program.multiply(problem.M, x))) + jnp.max(
        jnp.abs(cone_program.multiply(problem.M, problem.v))
    )
    scale = moved + jnp.max(jnp.abs(program.push)) + jnp.finfo(x.dtype).tiny
    finite = jnp.all(jnp.isfinite(x)) & jnp.all(jnp.isfinite(p))
    status = flag(~finite, Status.NONFINITE) | flag(finite & ~converged, Status.MAX_ITERS)
    return StepInfo(
        status=status,
        lam=p / h,
        gap=jnp.concatenate([future[:singles], future[singles::axes]]),
        slip=u[singles:].reshape(nc, axes)[:, 1:],
        signorini=worst(normal),
        joint=worst(misfit[:nb]),
        cone=worst(jnp.maximum(excess, 0.0)),
        dissipation=worst(contact[:, 1:]),
        residual=lax.stop_gradient(jnp.max(jnp.abs(momentum)) / scale),
        iterations=iterations,
    )


@functools.partial(jax.jit, static_argnames=("cone", "formulation", "solver"))
def solve(
    problem: Problem,
    warm_start: jax.Array | None = None,
    *,
    cone: str = "associated",
    formulation: str = "complementary",
    solver: Newton = NEWTON,
) -> tuple[jax.Array, StepInfo]:
    """Constraint forces of one step: 0 <= lam complementary to (I + D A) lam - c >= 0, and friction."""
    _, info = solve_velocity(problem, warm_start, cone, formulation, solver)
    return info.lam, info
