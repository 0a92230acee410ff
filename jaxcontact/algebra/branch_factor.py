"""Factors of matrices of a tree's velocities, from the tips of its branches to its root, without exchanges.

In the code of one world an entry that is known to be zero costs nothing, and in this order the zeros of a
mass matrix stay; XLA's programs have other ways. Entries: `eliminate` and `substitute`, for the code of one
world alone; `factorise` and `solve_factored`, which take a `general_factor` elsewhere. Where contacts slide,
a pivot may be near zero that an exchange would avoid: for searches whose results are judged.
No function has a derivative; `implicit` has the rule.
"""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
from jax import lax
from jax.core import ShapedArray
from jax.extend.core import Primitive
from jax.interpreters import batching, mlir

from jaxcontact.algebra import general_factor
from jaxcontact.batching.world_code import compiles_one_world

Factor = general_factor.Factor


def factorise(matrix: jax.Array) -> Factor:
    """Factor a matrix A (n, n) whose rows are a tree's velocities, the root's first."""

    def in_one_world(matrix: jax.Array) -> Factor:
        table, order = eliminate(matrix), jnp.arange(matrix.shape[0], dtype=jnp.int32)
        return table, order, table, order

    factor: Factor = lax.cond(compiles_one_world(), in_one_world, general_factor.factorise, matrix)
    return factor


def solve_factored(factor: Factor, rhs: jax.Array) -> jax.Array:
    """Solve A x = b (n,) for a factor of `factorise`."""
    x: jax.Array = lax.cond(
        compiles_one_world(),
        lambda factor, b: substitute(factor[0], b),
        general_factor.solve_factored,
        factor,
        rhs,
    )
    return x


def eliminate(matrix: jax.Array) -> jax.Array:
    """Compute the triangles (n, n) of A, its rows and columns in reverse; a zero pivot counts as one."""
    table: jax.Array = _without_exchanges.bind(matrix[::-1, ::-1])
    return table


def substitute(table: jax.Array, rhs: jax.Array, transposed: bool = False) -> jax.Array:
    """Solve A x = b (n,), or A^T x = b, for the triangles of `eliminate`."""
    solve = functools.partial(lax.linalg.triangular_solve, table, left_side=True, transpose_a=transposed)
    lower, upper = functools.partial(solve, lower=True, unit_diagonal=True), solve
    x = rhs[::-1, None]
    return (lower(upper(x)) if transposed else upper(lower(x)))[::-1, 0]


_without_exchanges = Primitive("lu_without_exchanges")
_without_exchanges.def_abstract_eval(lambda a: ShapedArray(a.shape, a.dtype))
batching.defvectorized(_without_exchanges)
# A branch that XLA's programs never take.
mlir.register_lowering(_without_exchanges, mlir.lower_fun(lambda a: a, multiple_results=False))
