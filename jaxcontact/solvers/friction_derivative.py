"""The derivative of the impulses of a friction problem, by the linear equations of the modes at its solution.

Redundant contacts make the equations singular. Impulses then change as those of soft contacts, in the limit
of none. Entry: `attach_derivative`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxcontact.algebra import general_factor, implicit
from jaxcontact.solvers.friction_law import Linearised, ScaledFriction, assemble_law
from jaxcontact.tolerances import HALF_DIGITS, MODE_MARGIN, SHIFT, SQUARED_SHIFT, rounding

PASSES = 3  # of the projection on the range, and of solutions with softness or shift


def mode_margin(dtype: jax.typing.DTypeLike) -> float:
    """Compute the scaled distance to a change of mode up to which contacts rest and stick: eps^0.55.

    It is 2e-9, in float32 2e-4.
    """
    return rounding(dtype, MODE_MARGIN)


def attach_derivative(
    problem: ScaledFriction, impulse: jax.Array, linearise: Callable[..., Linearised]
) -> jax.Array:
    """Give scaled impulses (n,) of a solver their derivatives by the problem.

    Derivative: of the equations of the law; at a change of mode that of rest and of sticking.
    """

    def residual(problem: ScaledFriction, root: jax.Array) -> jax.Array:
        rate = problem.W @ root + problem.q
        return jnp.concatenate(linearise(problem, root, rate, mode_margin(root.dtype)).value)

    def correct(problem: ScaledFriction, root: jax.Array, rhs: jax.Array) -> jax.Array:
        rate = problem.W @ root + problem.q
        law = linearise(problem, root, rate, mode_margin(root.dtype))
        rigid, soft = (
            assemble_law(law.by_impulse, law.by_velocity, W)
            for W in (problem.W, problem.W + jnp.diag(problem.softness))
        )
        return _solver(rigid, soft)(rhs)

    attached: jax.Array = implicit.attach(residual, correct, problem, impulse)
    return attached


def _inverse(matrix: jax.Array) -> tuple[Callable[[jax.Array], jax.Array], Callable]:
    """Factor a regular matrix; return b -> A^-1 b as a linear map for JAX, and without."""
    factor = general_factor.factorise(lax.stop_gradient(matrix))
    bare = functools.partial(general_factor.solve_factored, factor)

    def solve(b: jax.Array) -> jax.Array:
        return lax.custom_linear_solve(
            lambda x: matrix @ x,
            b,
            lambda _, rhs: bare(rhs),
            transpose_solve=lambda _, rhs: bare(rhs, transposed=True),
        )

    return solve, bare


def _solver(matrix: jax.Array, soft: jax.Array) -> Callable[[jax.Array], jax.Array]:
    """Build a solver of A x = b, for a singular A by the regular A of soft rows; JAX sees a linear map."""
    n, dtype = matrix.shape[0], matrix.dtype
    eps = float(jnp.finfo(dtype).eps)
    unit = jnp.eye(n, dtype=dtype)
    by_shift, probe = _inverse(matrix + eps**SHIFT * unit)

    def refine(solve: Callable[[jax.Array], jax.Array], b: jax.Array) -> jax.Array:
        x = solve(b)
        for _ in range(PASSES - 1):
            x = x + solve(b - matrix @ x)
        return x

    # Probes of all directions: singular equations answer one of them with the inverse of the shift.
    probes = jnp.asarray(
        np.random.default_rng(0).uniform(0.5, 1.5, (2, n)) * np.array([[1.0], [-1.0]]), dtype
    )
    probes = probes * jnp.where(jnp.arange(n) % 2 == 0, 1.0, jnp.asarray([[1.0], [-1.0]], dtype))
    growth = jnp.max(jnp.abs(jax.vmap(probe)(probes)))
    singular = ~(growth < eps**-HALF_DIGITS)
    by_squares = implicit.spd_solver(matrix.T @ matrix + eps**SQUARED_SHIFT * unit)
    by_softness, _ = _inverse(soft)

    def solve_singular(b: jax.Array) -> jax.Array:
        x = by_squares(matrix.T @ b)
        for _ in range(PASSES):
            x = x + by_squares(matrix.T @ (b - matrix @ x))
        return refine(by_softness, matrix @ x)

    return lambda b: jnp.where(singular, solve_singular(b), refine(by_shift, b))
