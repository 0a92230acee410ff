"""Exact Coulomb friction as a fixed point of convex problems."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp

from jaxcontact.algebra import small_dense
from jaxcontact.batching.bounded_loop import bounded_loop
from jaxcontact.solvers import cone_newton, cone_program, row_algebra
from jaxcontact.solvers.cone_program import ConeProgram

SWEEPS = 60
POLISH = 3  # Newton steps on the coupled conditions
TANGENT_STEPS = 4


def coupled(program: ConeProgram) -> ConeProgram:
    """The conditions of Coulomb: the normal law alone, and friction bounded by mu times its force."""
    return program.replace(coulomb=True)


def linearised(
    program: ConeProgram, x: jax.Array, p: jax.Array, momentum: jax.Array, misfit: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """(dx, dp) that cancel (momentum, misfit) in the coupled conditions, linearised; not symmetric."""
    response = cone_program.residuals(program, x, p)[2]
    hessian = cone_program.hessian(program, response)
    assert isinstance(hessian, jax.Array)
    inverse, _ = small_dense.generalized_inverse(hessian)
    invert = functools.partial(jnp.matmul, inverse)
    return cone_program.solve_linearised(program, response, invert, momentum, misfit, TANGENT_STEPS)


def misfit_size(program: ConeProgram, x: jax.Array, p: jax.Array) -> jax.Array:
    """Largest violation of the coupled conditions and of the momentum balance, relative to the impulses."""
    momentum, misfit, _ = cone_program.residuals(program, x, p)
    scale = jnp.max(jnp.abs(row_algebra.multiply(program.M, program.v))) + jnp.max(jnp.abs(program.push))
    precision = jnp.finfo(x.dtype)  # momenta next to the smallest number have few digits
    scale = scale + jnp.max(jnp.abs(p), initial=0.0) + precision.tiny / precision.eps
    return (jnp.max(jnp.abs(momentum)) + jnp.max(jnp.abs(misfit), initial=0.0)) / scale


def solve_staggered(
    program: ConeProgram, start: jax.Array, max_iters: int, early_exit: bool
) -> tuple[jax.Array, ...]:
    """(v+, p, iterations, converged): friction bounds held, a convex problem solved, bounds renewed.

    Each problem is the normal law with friction under given bounds (Tresca friction); its normal impulses
    give the next bounds, until they repeat. A fixed point is a solution of Coulomb's law and vice versa.
    There may be several, and the start decides, or none that attracts; `converged` is then False.
    """
    first = program.num_equalities + program.num_limits
    normals = slice(first, first + program.mu.shape[0])
    eps = jnp.finfo(start.dtype).eps

    def bounds(p: jax.Array) -> jax.Array:
        return program.mu * jnp.maximum(p[normals], 0.0)

    def sweep(carry: tuple) -> tuple:
        k, _, p, used, _ = carry
        bounded = program.replace(bound=bounds(p))
        solution = cone_newton.solve_cone_program(bounded, p, max_iters, early_exit)
        change = jnp.max(jnp.abs(bounds(solution.p) - bounds(p)), initial=0.0)
        settled = change <= eps**0.5 * jnp.max(jnp.abs(solution.p), initial=0.0)
        return k + 1, solution.x, solution.p, used + solution.iterations, settled

    begin = (jnp.int32(0), program.v, start, jnp.int32(0), jnp.asarray(False))
    _, x, p, used, _ = bounded_loop(
        lambda c: (c[0] < SWEEPS) & ~c[4], sweep, begin, max_iters=SWEEPS, early_exit=early_exit
    )
    exact = coupled(program)
    size = misfit_size(exact, x, p)
    for _ in range(POLISH):
        momentum, misfit, _ = cone_program.residuals(exact, x, p)
        dx, dp = linearised(exact, x, p, momentum, misfit)
        better = misfit_size(exact, x + dx, p + dp)
        x, p = jnp.where(better < size, x + dx, x), jnp.where(better < size, p + dp, p)
        size = jnp.where(better < size, better, size)
    return x, p, used, size <= eps**0.6
