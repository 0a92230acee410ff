"""Tolerances of round-off: powers of eps, the relative rounding of a dtype, each with unit and reason.

A tolerance is eps^POWER times the size that the comment names, so it scales with the scene and the dtype;
`rounding` computes it. The numbers in the comments are those of double precision.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

# Results of algebra
SQUARE = 2.0  # of the largest square, 5e-32: a vector whose square is smaller is round-off, without direction
PIVOT = 0.7  # of the largest entry, 1e-11: a smaller pivot is that of a singular matrix; ratios nearer tie
SHIFT = 0.7  # of a diagonal near one, 1e-11: added to it, redundant rows can be factored and share loads
SQUARED_SHIFT = 0.8  # of the diagonal of A^T A, 3e-13, whose condition is the square of that of A
HALF_DIGITS = 0.5  # relative, 1.5e-8: what is left of a root, of a difference of squares, of a linearisation
DEPENDENT = 0.4  # of unit rows, 5e-7: larger entries tell that rows depend on one another
REDUNDANT = 0.25  # of one, 1e-4: entries of an inverse factor beyond one over it tell of redundant rows
# Contact: relative to |v|_M, to the size of accelerations, or in scaled problems to one
ZERO_FORCE = 0.575  # 1e-9: smaller velocities, impulses and forces are zero; above what solvers leave
MODE_VIOLATION = 0.65  # 7e-11: an inequality of a contact mode that is violated by less is met
NO_APPROACH = 0.7  # 1e-11: contacts that approach at less do not approach
MODE_MARGIN = 0.55  # 2e-9: a contact nearer to a change of mode rests and sticks
SAME_IMPULSE = 0.375  # 1e-6: impulses that differ by less, relative, are one; nearer to its bound one slides
SAME_RATE = 0.6  # 4e-10: rates of approach closer than this have no order
NO_MOTION = 2.0**16  # of eps^2; a mobility below this fraction of another one is the square of round-off
FOLD = 0.6  # 4e-10: a determinant of unit columns above minus this is no fold
GAP = 0.4  # m, 5e-7: a gap off zero by less may be that of a contact that is closed
SOFTNESS = 0.3  # of a mobility, 2e-5: softest row of redundant contacts, so that round-off moves no load
# Residuals at the end of a search
RESIDUAL = 0.6  # of one, 4e-10: largest residual of a success in a scaled problem
USER_RESIDUAL = 0.4  # of the most negative velocity, 5e-7: the same in the user's units, where rows cancel
CONVERGED = 0.8  # of the speeds, 3e-13: misfit of which a step of Newton's method would leave nothing
END_OF_PATH = 0.75  # of the target or the size, 2e-12: misfit at the end of a search, with digits to spare
MEAN_PRODUCT = 0.85  # of the energy, 5e-14: mean product of impulses and rates at the end
FIRST_LEVEL = 0.4  # of one, 5e-7: complementarity at which Newton's method is tried first
USER_SHARE = 0.2  # of a residual in the user's units, 7e-4: by it RESIDUAL is the limit of both
LOWER_LEVEL = 0.2  # of one, 7e-4: fraction of the complementarity for the next try
SOFT_DECREMENT = 0.3  # of the energy, 2e-5: decrement that ends a search in a softened program
# Energies
NO_ENERGY = 1.25  # of the energy, 3e-20: a change of less moves nothing
EXACT_ENERGY = 1.125  # of the energy, 3e-18: misfit after a full step that ends the search
ZERO_NUMBER = 0.9  # relative, 8e-15: hundred times that is zero in the modes of an equilibrium


def rounding(dtype: jax.typing.DTypeLike, power: float) -> float:
    """Compute the power of the eps of a floating dtype."""
    return float(jnp.finfo(dtype).eps) ** power
