"""The one rule of differentiation: through the solution of linear equations, never through iterations.

A solver finds out *which* linear equations hold at its solution (which contacts rest, stick, slide);
`solve` states the solution as the root of those equations. Forward, reverse and higher derivatives
follow from d x = A^-1 (d b - d A x), whatever the solver did to get there. Where the equations at the
solution are not linear, `attach` says the same of their residual.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.extend.core import Primitive
from jax.flatten_util import ravel_pytree
from jax.interpreters import ad, batching, mlir

from jaxcontact.algebra import small_dense


def _solve(matrix: jax.Array, rhs: jax.Array, inverse: jax.Array) -> jax.Array:
    inverse = lax.stop_gradient(inverse)
    return lax.custom_linear_solve(
        lambda x: matrix @ x,
        rhs,
        lambda _, b: inverse @ b,
        transpose_solve=lambda _, b: inverse.T @ b,
    )


def solve_spd(matrix: jax.Array, rhs: jax.Array, inverse: jax.Array | None = None) -> jax.Array:
    """Solution X (n, k) of A X = B for a symmetric positive definite A; `inverse` is A^-1 where it is known.

    Derivative: dX = A^-1 (dB - dA X), any order, forward and reverse; `inverse` carries none.
    """
    if inverse is None:
        inverse, _ = small_dense.spd_inverse(lax.stop_gradient(matrix))
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
        inverse, _ = small_dense.generalized_inverse(lax.stop_gradient(matrix))
    return guess + _solve(matrix, rhs - matrix @ guess, inverse)


_root = Primitive("root")
_root.multiple_results = True


def attach(
    residual: Callable[[Any, Any], Any], correct: Callable[[Any, Any, Any], Any], data: Any, root: Any
) -> Any:
    """The root x of residual(data, x) = 0 that a solver found, bit by bit, with its derivatives.

    A primitive of its own: `jax.custom_jvp` is forgotten where JAX splits a derivative for the reverse mode,
    and the derivative of that derivative is then the solver's. The reverse mode keeps `data` and the root.

    Args:
        residual: (data, x) -> a pytree like x. It and `correct` close over no traced array.
        correct: (data, x, r) -> J^-1 r, linear in r, with J the Jacobian of the residual by x.
        data: pytree to differentiate by.
        root: the solver's answer; it carries no derivative.

    Derivative: dx = -J^-1 d residual, any order, forward and reverse, as exact as `correct`.
    """
    values, tree = jax.tree.flatten(root)
    leaves, structure = jax.tree.flatten(data)
    as_data = functools.partial(jax.tree.unflatten, structure)
    as_root = functools.partial(jax.tree.unflatten, tree)

    def equations(given: list[Any], x: list[Any]) -> list[Any]:
        return jax.tree.leaves(residual(as_data(given), as_root(x)))

    def solution(given: list[Any], x: list[Any], rhs: list[Any]) -> list[Any]:
        return jax.tree.leaves(correct(as_data(given), as_root(x), as_root(rhs)))

    return as_root(_root.bind(*values, *leaves, count=len(values), residual=equations, correct=solution))


def _same(*arrays: Any, count: int, **_: Any) -> list[Any]:
    return list(arrays[:count])


def _moved(
    primals: Sequence[Any], tangents: Sequence[Any], *, count: int, residual: Callable, correct: Callable
) -> tuple[list[Any], list[Any]]:
    x = _root.bind(*primals, count=count, residual=residual, correct=correct)
    data, changes = list(primals[count:]), tangents[count:]
    on = [i for i, change in enumerate(changes) if not isinstance(change, ad.Zero) and jnp.size(data[i])]
    if not on:
        return x, [jnp.zeros_like(each) for each in x]

    @functools.partial(jax.checkpoint, prevent_cse=False)
    def by_data(x: list[Any], data: list[Any], changes: list[Any]) -> list[Any]:
        def equations(some: list[Any]) -> list[Any]:
            given = list(data)
            for i, each in zip(on, some, strict=True):
                given[i] = each
            return residual(given, x)

        flat, unravel = ravel_pytree(x)

        def ravel(each: list[Any]) -> jax.Array:
            return ravel_pytree(each)[0]

        def rate(y: jax.Array) -> jax.Array:
            return ravel(jax.jvp(lambda at: residual(data, at), (x,), (unravel(y),))[1])

        def invert(b: jax.Array) -> jax.Array:
            return ravel(correct(*fixed, unravel(b)))

        fixed = lax.stop_gradient((data, x))
        rhs = ravel(jax.jvp(equations, ([data[i] for i in on],), (changes,))[1])
        # One vector, linear in the changes even where it is zero: JAX transposes no other linear solve.
        rhs = rhs + jnp.where(False, changes[0].ravel()[0], 0.0)
        moved = lax.custom_linear_solve(
            rate,
            rhs,
            lambda _, b: invert(b),
            transpose_solve=lambda _, b: jax.linear_transpose(invert, flat)(b)[0],
        )
        return unravel(-moved)

    return x, by_data(x, data, [changes[i] for i in on])


def _batched(
    arrays: Sequence[Any], axes: Sequence[Any], *, count: int, residual: Callable, correct: Callable
) -> tuple[list[Any], list[int]]:
    sizes = {a.shape[d] for a, d in zip(arrays, axes, strict=True) if d is not None}
    (size,) = sizes
    x = [
        jnp.broadcast_to(a, (size, *a.shape)) if d is None else jnp.moveaxis(a, d, 0)
        for a, d in zip(arrays[:count], axes[:count], strict=True)
    ]
    given = list(axes[count:])
    out = _root.bind(
        *x,
        *arrays[count:],
        count=count,
        residual=jax.vmap(residual, in_axes=(given, 0)),
        correct=jax.vmap(correct, in_axes=(given, 0, 0)),
    )
    return out, [0] * count


_root.def_impl(_same)
_root.def_abstract_eval(_same)
ad.primitive_jvps[_root] = _moved
batching.primitive_batchers[_root] = _batched
mlir.register_lowering(_root, mlir.lower_fun(_same, multiple_results=True))
