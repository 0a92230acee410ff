"""The derivative rule of the package: through the equations at a solution, never through iterations.

A solver finds the linear equations that hold at its solution (contacts rest, stick or slide). `solve_spd` and
`refine` state the solution as the root of those equations. Forward, reverse and higher derivatives follow
from d x = A^-1 (d b - d A x), whatever the iterations of the solver were. For nonlinear equations, `attach`
does the same with their residual. The page is docs/understand/derivatives.md.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
from jax import lax
from jax.extend.core import Primitive
from jax.flatten_util import ravel_pytree
from jax.interpreters import ad, batching, mlir

from jaxcontact._pytree import PyTree
from jaxcontact.algebra import branch_factor, cholesky, small_dense
from jaxcontact.batching.batch_axes import batch_last
from jaxcontact.batching.world_code import compiles_one_world
from jaxcontact.native import registry
from jaxcontact.precision import all_digits

if TYPE_CHECKING:
    from jaxcontact.native.interpreter import Interpreter
    from jaxcontact.native.jaxprs import Equation


# Called op by op, JAX would compile a linear solve again at each call.
@functools.partial(jax.jit, inline=True)
def _solve(matrix: jax.Array, rhs: jax.Array, inverse: jax.Array) -> jax.Array:
    inverse = lax.stop_gradient(inverse)
    return lax.custom_linear_solve(
        lambda x: matrix @ x,
        rhs,
        lambda _, b: inverse @ b,
        transpose_solve=lambda _, b: inverse.T @ b,
    )


def solve_spd(matrix: jax.Array, rhs: jax.Array, inverse: jax.Array | None = None) -> jax.Array:
    """Solve A X = B for X (n, k), A symmetric positive definite; a caller that has A^-1 may pass it.

    Derivative: dX = A^-1 (dB - dA X), any order, forward and reverse; `inverse` carries none.
    """
    if inverse is None:
        inverse, _ = small_dense.spd_inverse(lax.stop_gradient(matrix))
    return _solve(matrix, rhs, inverse)


def spd_solver(matrix: jax.Array) -> Callable[[jax.Array], jax.Array]:
    """Make the function b (n,) -> x (n,) with A x = b, A symmetric positive definite, linear also to JAX.

    Derivative: dx = A^-1 (db - dA x), any order, forward and reverse.
    """
    factor = cholesky.factorise(lax.stop_gradient(matrix))

    def solve(rhs: jax.Array) -> jax.Array:
        return lax.custom_linear_solve(
            lambda x: matrix @ x, rhs, lambda _, b: cholesky.solve_factored(factor, b), symmetric=True
        )

    return solve


def positive_solver(matrix: jax.Array) -> Callable[[jax.Array], jax.Array]:
    """Invert A whose symmetric part is positive definite: the function b (n,) -> x (n,) with A x = b.

    Derivative: dx = A^-1 (db - dA x), any order, forward and reverse.
    """
    fixed = lax.stop_gradient(matrix)

    def invert(matrix: jax.Array) -> jax.Array:
        inverse: jax.Array = batch_last(small_dense.positive_inverse_lanes, matrix)
        return inverse

    def refined(inverse: jax.Array, matrix: jax.Array, b: jax.Array) -> jax.Array:
        x = inverse @ b
        return x + inverse @ (b - matrix @ x)

    table = lax.cond(compiles_one_world(), branch_factor.eliminate, invert, fixed)

    def solve_either(b: jax.Array, transposed: bool) -> jax.Array:
        def by_inverse(table: jax.Array, b: jax.Array) -> jax.Array:
            return refined(table.T, fixed.T, b) if transposed else refined(table, fixed, b)

        def by_triangles(table: jax.Array, b: jax.Array) -> jax.Array:
            return branch_factor.substitute(table, b, transposed)

        x: jax.Array = lax.cond(compiles_one_world(), by_triangles, by_inverse, table, b)
        return x

    def solve(rhs: jax.Array) -> jax.Array:
        return lax.custom_linear_solve(
            lambda x: matrix @ x,
            rhs,
            lambda _, b: solve_either(b, False),
            transpose_solve=lambda _, b: solve_either(b, True),
        )

    return solve


def positive_inverse(matrix: jax.Array) -> jax.Array:
    """Invert A (n, n) whose symmetric part is positive definite.

    Derivative: that of A^-1, any order, forward and reverse.
    """
    inverse = batch_last(small_dense.positive_inverse_lanes, lax.stop_gradient(matrix))
    return _solve(matrix, jnp.eye(matrix.shape[0], dtype=matrix.dtype), inverse)


def refine(
    matrix: jax.Array, rhs: jax.Array, guess: jax.Array, inverse: jax.Array | None = None
) -> jax.Array:
    """Solve A x = b for the x (n,) nearest to a solver's answer `guess`, for A of any rank.

    x = x0 + G (b - A x0) with G a generalized inverse. So a rank-deficient but consistent system
    keeps the solver's choice among its solutions, and x gains its last digits. A solver that already has G
    passes it as `inverse`.

    Derivative: dx = G (db - dA x); `guess` and `inverse` carry none.
    """
    guess = lax.stop_gradient(guess)
    if inverse is None:
        inverse, _ = small_dense.generalized_inverse(lax.stop_gradient(matrix))
    return guess + _solve(matrix, rhs - matrix @ guess, inverse)


_root = Primitive("root")
_root.multiple_results = True


def attach(
    residual: Callable[[PyTree, PyTree], PyTree],
    correct: Callable[[PyTree, PyTree, PyTree], PyTree],
    data: PyTree,
    root: PyTree,
) -> PyTree:
    """Attach derivatives to the `root` x of residual(data, x) = 0; its value stays as the solver computed it.

    No bit of the value changes. The root is a JAX primitive. `jax.custom_jvp` would not do: JAX drops the
    rule when it splits a derivative for the reverse mode, and second derivatives would go through the solver.
    The reverse mode stores `data` and the root.

    Args:
        residual: (data, x) -> a pytree like x. Neither `residual` nor `correct` may close over traced arrays.
        correct: (data, x, r) -> J^-1 r, linear in r, with J the Jacobian of the residual by x.
        data: pytree to differentiate by.
        root: the solver's answer; it carries no derivative.

    Derivative: dx = -J^-1 d residual, any order, forward and reverse, as exact as `correct`.
    """
    values, tree = jax.tree.flatten(root)
    leaves, structure = jax.tree.flatten(data)
    as_data = functools.partial(jax.tree.unflatten, structure)
    as_root = functools.partial(jax.tree.unflatten, tree)

    def equations(data_leaves: list[PyTree], x: list[PyTree]) -> list[PyTree]:
        return jax.tree.leaves(residual(as_data(data_leaves), as_root(x)))

    def solution(data_leaves: list[PyTree], x: list[PyTree], rhs: list[PyTree]) -> list[PyTree]:
        return jax.tree.leaves(correct(as_data(data_leaves), as_root(x), as_root(rhs)))

    rules = {"residual": all_digits(equations), "correct": all_digits(solution)}
    return as_root(_root.bind(*values, *leaves, count=len(values), **rules))


def _root_unchanged(*arrays: PyTree, count: int, **_: object) -> list[PyTree]:
    return list(arrays[:count])


def _differentiate_root(
    primals: Sequence[PyTree],
    tangents: Sequence[PyTree],
    *,
    count: int,
    residual: Callable,
    correct: Callable,
) -> tuple[list[PyTree], list[PyTree]]:
    x = _root.bind(*primals, count=count, residual=residual, correct=correct)
    data, changes = list(primals[count:]), tangents[count:]
    changing = [
        i for i, change in enumerate(changes) if not isinstance(change, ad.Zero) and jnp.size(data[i])
    ]
    if not changing:
        return x, [jnp.zeros_like(leaf) for leaf in x]

    @functools.partial(jax.checkpoint, prevent_cse=False)
    def by_data(x: list[PyTree], data: list[PyTree], changes: list[PyTree]) -> list[PyTree]:
        def equations(changed_leaves: list[PyTree]) -> list[PyTree]:
            data_leaves = list(data)
            for i, leaf in zip(changing, changed_leaves, strict=True):
                data_leaves[i] = leaf
            return residual(data_leaves, x)

        flat, unravel = ravel_pytree(x)

        def ravel(leaf: list[PyTree]) -> jax.Array:
            return ravel_pytree(leaf)[0]

        # Linearised first, so that the solve reads only data that J depends on: JAX cannot differentiate a
        # solve whose transpose reads changing data while J and the right-hand side do not change.
        _, by_root = jax.linearize(lambda root: residual(data, root), x)

        def rate(y: jax.Array) -> jax.Array:
            return ravel(by_root(unravel(y)))

        fixed = lax.stop_gradient((data, x))
        # Linearised, so that factors of J are computed once, outside the solve and its transpose.
        _, invert = jax.linearize(lambda b: ravel(correct(*fixed, unravel(b))), jnp.zeros_like(flat))
        rhs = ravel(jax.jvp(equations, ([data[i] for i in changing],), (changes,))[1])
        # JAX can transpose a linear solve only if its right-hand side depends linearly on the changes, so a
        # right-hand side that is constantly zero also gets a dependence.
        rhs = rhs + jnp.where(False, changes[0].ravel()[0], 0.0)
        moved = lax.custom_linear_solve(
            rate,
            rhs,
            lambda _, b: invert(b),
            transpose_solve=lambda _, b: jax.linear_transpose(invert, flat)(b)[0],
        )
        return unravel(-moved)

    return x, by_data(x, data, [changes[i] for i in changing])


def _batch_root(
    arrays: Sequence[PyTree], axes: Sequence[int | None], *, count: int, residual: Callable, correct: Callable
) -> tuple[list[PyTree], list[int]]:
    sizes = {a.shape[d] for a, d in zip(arrays, axes, strict=True) if d is not None}
    (size,) = sizes
    x = [
        jnp.broadcast_to(a, (size, *a.shape)) if d is None else jnp.moveaxis(a, d, 0)
        for a, d in zip(arrays[:count], axes[:count], strict=True)
    ]
    data_axes = list(axes[count:])
    root = _root.bind(
        *x,
        *arrays[count:],
        count=count,
        residual=jax.vmap(residual, in_axes=(data_axes, 0)),
        correct=jax.vmap(correct, in_axes=(data_axes, 0, 0)),
    )
    return root, [0] * count


@registry.rule(_root.name)
def _root_in_lanes(
    program: Interpreter, equation: Equation, inputs: list[registry.Numbers]
) -> list[registry.Numbers]:
    """Return the root: machine code of one world has no derivatives."""
    return inputs[: equation.params["count"]]


_root.def_impl(_root_unchanged)
_root.def_abstract_eval(_root_unchanged)
ad.primitive_jvps[_root] = _differentiate_root
batching.primitive_batchers[_root] = _batch_root
mlir.register_lowering(_root, mlir.lower_fun(_root_unchanged, multiple_results=True))
