"""The programs that Drumwright prints, for comparison: least forces that satisfy the spring law as a bound.

They part from the law itself. Two parallel springs, one out of reach, share a load of 10 N as (5, 5) where
the law says (10, 0); a mass that slides under mu = 0.25 gets many times its weight, because a larger normal
force makes the violation of stiction cheaper. Simulate with the complementary formulation.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from jaxcontact.algebra import small_dense
from jaxcontact.compliant.problem import Problem, columns_of, count_rows, row_material, slope_cap
from jaxcontact.solvers import cone_newton, row_algebra
from jaxcontact.solvers.cone_program import ConeProgram


def solve_min_norm(
    problem: Problem, max_iters: int, early_exit: bool, zeta: Any = None
) -> tuple[jax.Array, ...]:
    """(v+, h lam, iterations, converged) of the QP (83-85), with contacts the QCQP (181-198).

    minimise zeta |lam_u,n|^2 / 2 + |lam_t|^2 / 2 + |beta|^2 / 2, beta = (I + D A) lam - c on tangents,
    under lam_u,n >= 0, ((I + D A) lam - c) >= 0 on limits and normals, mu lam_n >= |lam_t|, and
    bilateral rows as equalities. In the plane that is the QP (99-108). zeta None is the paper's 1/h. No
    derivative.
    """
    problem, zeta = lax.stop_gradient((problem, zeta))
    terms, h = problem.terms, problem.dt
    nb, nl, nc, axes = count_rows(terms.kind)
    nr, singles, G = len(terms.kind), nb + nl, columns_of(terms).T
    row = row_material(problem)
    inverse, _ = small_dense.spd_inverse(problem.M)
    free = problem.v + h * (inverse @ problem.f)
    c = row.base - row.rate * (G @ free)
    system = jnp.eye(nr, dtype=G.dtype) + (h * row.rate)[:, None] * (G @ inverse @ G.T)
    # Bilateral forces follow from the others: lam_b = known + follow lam.
    solved = small_dense.generalized_inverse(system[:nb, :nb])[0] if nb else system[:0, :0]
    lift = jnp.concatenate([-solved @ system[:nb, nb:], jnp.eye(nr - nb, dtype=G.dtype)])
    known = jnp.concatenate([solved @ c[:nb], jnp.zeros(nr - nb, G.dtype)])
    reduced, rest = system @ lift, c - system @ known
    size = jnp.sqrt(jnp.sum(reduced**2, axis=1))
    heads = slice(nb, singles + nc)
    tangent = jnp.arange(nr) >= singles + nc
    beta = jnp.where(tangent[:, None], reduced, 0.0)
    weight = jnp.where(tangent[nb:], 1.0, 1.0 / h if zeta is None else zeta)
    hessian = jnp.diag(weight) + beta.T @ beta
    unit = jnp.eye(nr - nb, dtype=G.dtype)
    bound = nl + nc
    cone = unit[nl:].at[:nc].multiply(row.mu[:, None])
    columns = jnp.concatenate([reduced[heads] / size[heads, None], unit[:bound], cone]).T
    least = jnp.concatenate([rest[heads] / size[heads], jnp.zeros(bound + nc * axes, G.dtype)])
    # Far smaller in some directions than the diagonal tells: beta weighs 1e13 where friction is stiff.
    softness, _ = small_dense.spd_inverse(hessian)
    mobility = row_algebra.isotropic(jnp.sum((softness @ columns) * columns, axis=0), 2 * bound, nc)
    slope = slope_cap(G.dtype) / jnp.where(mobility > 0, mobility, 1.0)
    program = ConeProgram(
        M=hessian,
        v=jnp.zeros(nr - nb, G.dtype),
        push=beta.T @ rest,
        columns=columns,
        offset=slope * least,
        slope=slope,
        keep=jnp.ones_like(slope),
        mu=jnp.ones(nc, G.dtype),
        num_limits=2 * bound,
    )
    solution = cone_newton.solve_cone_program(program, jnp.zeros_like(slope), max_iters, early_exit)
    lam = known + lift @ solution.x
    return free + h * (inverse @ (G.T @ lam)), h * lam, solution.iterations, solution.converged
