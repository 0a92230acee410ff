"""The derivative of the impulses of a friction problem, by the linear equations of the modes at its solution.

Redundant contacts make the equations singular. The velocities have the derivative of any solution; impulses
have the change of minimum norm, in units of the mobility of their rows. Entry: `attach_derivative`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxcontact.algebra import general_factor, implicit
from jaxcontact.solvers.friction_law import Linearised, ScaledFriction, assemble

PASSES = 3  # of the projections on the range and on the null space


def _margin(dtype: jax.typing.DTypeLike) -> float:
    """Compute the scaled distance to a change of mode up to which contacts rest and stick: eps^0.55.

    It is 2e-9, in float32 2e-4.
    """
    return float(jnp.finfo(dtype).eps) ** 0.55


def attach_derivative(
    problem: ScaledFriction, impulse: jax.Array, linearise: Callable[..., Linearised]
) -> jax.Array:
    """Give scaled impulses (n,) of a solver their derivatives by the problem.

    Derivative: of the equations of the law; at a change of mode that of rest and of sticking.
    """

    def residual(problem: ScaledFriction, root: jax.Array) -> jax.Array:
        rate = problem.W @ root + problem.q
        return jnp.concatenate(linearise(problem, root, rate, _margin(root.dtype)).value)

    def correct(problem: ScaledFriction, root: jax.Array, rhs: jax.Array) -> jax.Array:
        rate = problem.W @ root + problem.q
        law = linearise(problem, root, rate, _margin(root.dtype))
        return _solver(assemble(law.by_impulse, law.by_velocity, problem.W))(rhs)

    attached: jax.Array = implicit.attach(residual, correct, problem, impulse)
    return attached


def _solver(matrix: jax.Array) -> Callable[[jax.Array], jax.Array]:
    """Build a solver of A x = b, for a singular A by least squares of minimum norm; JAX sees a linear map."""
    n, dtype = matrix.shape[0], matrix.dtype
    eps = float(jnp.finfo(dtype).eps)
    unit = jnp.eye(n, dtype=dtype)
    shifted = matrix + eps**0.7 * unit
    factor = general_factor.factorise(lax.stop_gradient(shifted))

    def by_factor(b: jax.Array) -> jax.Array:
        return lax.custom_linear_solve(
            lambda x: shifted @ x,
            b,
            lambda _, rhs: general_factor.solve_factored(factor, rhs),
            transpose_solve=lambda _, rhs: general_factor.solve_factored(factor, rhs, transposed=True),
        )

    def solve(b: jax.Array) -> jax.Array:
        x = by_factor(b)
        for _ in range(2):
            x = x + by_factor(b - matrix @ x)
        return x

    # Probes of all directions: singular equations answer one of them with the inverse of the shift.
    probes = jnp.asarray(
        np.random.default_rng(0).uniform(0.5, 1.5, (2, n)) * np.array([[1.0], [-1.0]]), dtype
    )
    probes = probes * jnp.where(jnp.arange(n) % 2 == 0, 1.0, jnp.asarray([[1.0], [-1.0]], dtype))
    growth = jnp.max(jnp.abs(jax.vmap(functools.partial(general_factor.solve_factored, factor))(probes)))
    singular = ~(growth < eps**-0.5)
    damping = eps**0.8
    by_squares = implicit.spd_solver(matrix.T @ matrix + damping * unit)

    def solve_singular(b: jax.Array) -> jax.Array:
        x = by_squares(matrix.T @ b)
        for _ in range(PASSES):
            x = x + by_squares(matrix.T @ (b - matrix @ x))
        x = solve(matrix @ x)
        free = x
        for _ in range(PASSES):
            free = damping * by_squares(free)
        return x - free

    return lambda b: jnp.where(singular, solve_singular(b), solve(b))
