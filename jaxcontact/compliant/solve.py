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
    """Newton's method in velocity space.

    Attributes:
        max_iters: most steps of one convex problem.
    """

    max_iters: int = 100


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


def program_of(problem: Problem, cone: str) -> ConeProgram:
    """The convex program of a step."""
    return convex_program(problem, row_law(problem), pyramid=cone == "pyramid")


@functools.partial(jax.custom_jvp, nondiff_argnums=(2, 3))
def _converge(problem: Problem, start: jax.Array, cone: str, solver: Newton) -> tuple[jax.Array, ...]:
    """(v+, p, iterations, converged); the derivative is that of the equations of the solution."""
    found = cone_program.solve_cone_program(program_of(problem, cone), start, solver.max_iters)
    return found.x, found.p, found.iterations, found.converged


@_converge.defjvp
def _(cone: str, solver: Newton, primals: tuple, tangents: tuple) -> tuple:
    problem, start = primals
    found = _converge(problem, start, cone, solver)
    x, p = found[:2]

    def residuals(data: Problem) -> tuple[jax.Array, jax.Array]:
        return cone_program.residuals(program_of(data, cone), x, p)[:2]

    program = program_of(problem, cone)
    response = cone_program.residuals(program, x, p)[2]
    factor = linalg.cholesky_lanes(cone_program.hessian(program, response))
    _, (momentum, misfit) = jax.jvp(residuals, (problem,), (tangents[0],))
    dx, dp = cone_program.solve_linearised(program, response, factor, momentum, misfit, TANGENT_STEPS)
    none = [np.zeros(np.shape(each), jax.dtypes.float0) for each in found[2:]]
    return found, (dx, dp, *none)


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
    x, p, iterations, converged = _converge(problem, start, cone, solver)
    return x, _info(problem, x, p, iterations, converged, cone)


def _info(
    problem: Problem,
    x: jax.Array,
    p: jax.Array,
    iterations: jax.Array,
    converged: jax.Array,
    cone: str,
) -> StepInfo:
    terms, h = problem.terms, problem.dt
    nb, nl, nc, axes = count_rows(terms.kind)
    singles = nb + nl
    program = program_of(problem, cone)
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
