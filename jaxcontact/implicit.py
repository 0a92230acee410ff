"""The one rule of differentiation: through the solution of linear equations, never through iterations.

A solver finds out *which* linear equations hold at its solution (which contacts rest, stick, slide);
`solve` states the solution as the root of those equations. Forward, reverse and higher derivatives
follow from d x = A^-1 (d b - d A x), whatever the solver did to get there.
"""

from __future__ import annotations

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
