"""The one rule of differentiation: through the solution of linear equations, never through iterations.

A solver finds out *which* linear equations hold at its solution (which contacts rest, stick, slide);
`solve` states the solution as the root of those equations. Forward, reverse and higher derivatives
follow from d x = A^-1 (d b - d A x), whatever the solver did to get there. Where the equations at the
solution are not linear, `attach` says the same of their residual.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
from jax import lax

from jaxcontact import linalg


def _solve(matrix: jax.Array, rhs: jax.Array, inverse: jax.Array) -> jax.Array:
    inverse = lax.stop_gradient(inverse)
    return lax.custom_linear_solve(
        lambda x: matrix @ x,
        rhs,
        lambda _, b: inverse @ b,
        transpose_solve=lambda _, b: inverse.T @ b,
    )


def solve_spd(matrix: jax.Array, rhs: jax.Array) -> jax.Array:
    """Solution X (n, k) of A X = B for a symmetric positive definite A.

    Derivative: dX = A^-1 (dB - dA X), any order, forward and reverse.
    """
    inverse, _ = linalg.spd_inverse(lax.stop_gradient(matrix))
    return _solve(matrix, rhs, inverse)


def refine(
    matrix: jax.Array, rhs: jax.Array, guess: jax.Array, inverse: jax.Array | None = None
) -> jax.Array:
    """The solution x (n,) of A x = b nearest to a solver's answer `guess`, for A of any rank.

    x = x0 + G (b - A x0) with G a generalized inverse, so a rank-deficient but consistent system
    keeps the solver's choice among its solutions, and gains its last digits. A solver that has G
    already hands it over as `inverse`.

    Derivative: dx = G (db - dA x); `guess` and `inverse` carry none.
    """
    guess = lax.stop_gradient(guess)
    if inverse is None:
        inverse, _ = linalg.generalized_inverse(lax.stop_gradient(matrix))
    return guess + _solve(matrix, rhs - matrix @ guess, inverse)


ORDER = 2  # highest derivative that `attach` carries


def attach(residual: Callable[[Any], Any], correct: Callable[[Any], Any], root: Any) -> Any:
    """The root x of residual(x) = 0 that a solver found, bit by bit, with first and second derivatives.

    One step x - J^-1 residual(x) at a fixed J moves the root x0 to within O(d^2) of where a change d of the
    data moves it, the next to within O(d^3). Their derivatives are those of the root to that order, so
    nothing needs a rule of its own, and any transformation may pass through them.

    Args:
        residual: of a pytree like `root`; it closes over the data to differentiate by.
        correct: J^-1 applied to a residual, J its Jacobian at the root, as a constant.
        root: the solver's answer; it carries no derivative.

    Derivative: dx = -J^-1 d residual, first and second order, forward and reverse; third and higher
        derivatives come out wrong.
    """
    x = lax.stop_gradient(root)
    for _ in range(ORDER):
        change = correct(residual(x))
        x = jax.tree.map(lambda at, step: at - (step - lax.stop_gradient(step)), x, change)
    return x
