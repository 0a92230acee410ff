"""The programs that Drumwright prints, for comparison: least forces that satisfy the spring law as a bound.

They part from the law itself. Two parallel springs, one out of reach, share a load of 10 N as (5, 5) where
the law says (10, 0); a mass that slides under mu = 0.25 gets many times its weight, because a larger normal
force makes the violation of stiction cheaper. Simulate with the complementary formulation.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax

from jaxcontact.algebra import small_dense
from jaxcontact.compliant.problem import Problem, columns_of, count_rows, row_material, slope_cap
from jaxcontact.solvers import cone_newton, row_algebra
from jaxcontact.solvers.cone_program import ConeProgram, split


def solve_min_norm(
    problem: Problem, max_iters: int, early_exit: bool, zeta: float | jax.Array | None
) -> tuple[jax.Array, ...]:
    """Solve the QP (83-85), with contacts the QCQP (181-198); return v+, h lam, iterations, converged.

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
    # Bilateral forces follow from the others: lam_b = constant + lift lam.
    solved = small_dense.generalized_inverse(system[:nb, :nb])[0] if nb else system[:0, :0]
    lift = jnp.concatenate([-solved @ system[:nb, nb:], jnp.eye(nr - nb, dtype=G.dtype)])
    constant = jnp.concatenate([solved @ c[:nb], jnp.zeros(nr - nb, G.dtype)])
    reduced, rest = system @ lift, c - system @ constant
    heads, tangents, bound = slice(nb, singles + nc), slice(singles + nc, nr), nl + nc
    size = jnp.sqrt(jnp.sum(reduced[heads] ** 2, axis=1))
    unit = jnp.eye(nr - nb, dtype=G.dtype)
    cone = unit[nl:].at[:nc].multiply(row.mu[:, None])
    rows = jnp.concatenate([reduced[heads] / size[:, None], unit[:bound], cone])
    lower_bounds = jnp.concatenate([rest[heads] / size, jnp.zeros(bound + nc * axes, G.dtype)])
    # The objective is |S lam - s|^2 / 2. Friction as stiff as 1e8 N s/m weighs 1e13 times as much as the rest
    # and would hide it: the search is for y, lam = T y, whose directions weigh the same.
    weight = jnp.full(nr - nb, 1.0, G.dtype).at[:bound].set(1.0 / h if zeta is None else zeta)
    S = jnp.concatenate([reduced[tangents], jnp.diag(jnp.sqrt(weight))])
    T, target = _orthonormalise(S, jnp.concatenate([rest[tangents], jnp.zeros(nr - nb, G.dtype)]))
    columns = (rows @ T).T
    mobility = row_algebra.isotropic(jnp.sum(columns**2, axis=0), 2 * bound, nc)
    slope = slope_cap(G.dtype) / jnp.where(mobility > 0, mobility, 1.0)
    program = ConeProgram(
        M=unit,
        v=target,
        push=jnp.zeros(nr - nb, G.dtype),
        columns=columns,
        offset=slope * lower_bounds,
        slope=slope,
        keep=jnp.ones_like(slope),
        mu=jnp.ones(nc, G.dtype),
        num_limits=2 * bound,
    )
    solution = cone_newton.solve_cone_program(program, jnp.zeros_like(slope), max_iters, early_exit)
    forces = T @ solution.x
    spread = jnp.max(jnp.sum(S**2, axis=0) * jnp.sum(T**2, axis=1), initial=1.0)
    exact = spread <= jnp.finfo(G.dtype).eps ** -1.5  # a quarter of the digits is left
    converged = solution.converged & exact & _obeys(rows, lower_bounds, forces, 2 * bound, nc)
    lam = constant + lift @ forces
    return free + h * (inverse @ (G.T @ lam)), h * lam, solution.iterations, converged


def _orthonormalise(S: jax.Array, s: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Compute T, upper triangular, with (S T)^T S T = 1 for independent columns S (m, n), and t = (S T)^T s.

    By the modified method of Gram and Schmidt, which is stable for combinations of S and s.
    """
    m, n = S.shape
    table = jnp.block([[S, s[:, None]], [jnp.eye(n, dtype=S.dtype), jnp.zeros((n, 1), S.dtype)]])

    def column(table: jax.Array, j: jax.Array) -> tuple[jax.Array, jax.Array]:
        unit_column = table[:, j] / jnp.sqrt(jnp.sum(table[:m, j] ** 2))
        share = jnp.where(jnp.arange(n + 1) > j, unit_column[:m] @ table[:m], 0.0)
        return table.at[:, j].set(unit_column) - jnp.outer(unit_column, share), share[n]

    table, t = lax.scan(column, table, jnp.arange(n))
    return table[m:, :n], t


def _obeys(rows: jax.Array, lower_bounds: jax.Array, forces: jax.Array, singles: int, nc: int) -> jax.Array:
    """Decide whether rows @ forces - lower_bounds keep bounds and cones, to half the digits of the forces.

    The search measures energies; those of stiff friction that feet share hide the rest.
    """
    values = rows @ forces - lower_bounds
    normal, *tangent = split(values, singles, nc) if nc else [values[:0]]
    rubbed = jnp.sqrt(sum((component**2 for component in tangent), jnp.zeros_like(normal)))
    missing = jnp.concatenate([-values[:singles], rubbed - normal])
    scale = jnp.max(jnp.abs(forces), initial=0.0) + jnp.max(jnp.abs(lower_bounds), initial=0.0)
    return jnp.all(missing <= jnp.finfo(forces.dtype).eps ** 0.5 * scale)
