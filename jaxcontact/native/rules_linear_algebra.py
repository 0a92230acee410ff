"""Primitives of linear algebra on one small matrix."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from jaxcontact.native.interpreter import Interpreter, Numbers, rule
from jaxcontact.native.kinds import kind_of
from jaxcontact.native.operations import Operations


def _less_products(ops: Operations, start: int, first: list[int], second: list[int]) -> int:
    """Start - sum of first[k] second[k]."""
    total = start
    for a, b in zip(first, second, strict=True):
        total = ops.binary("sub", total, ops.binary("mul", a, b))
    return total


def _one_matrix(array: Numbers, name: str) -> None:
    if array.ndim != 2:
        raise NotImplementedError(f"function: jc.simd has {name} of one matrix, got shape {array.shape}")


@rule("cholesky")
def _cholesky(program: Interpreter, equation: Any, inputs: list[Numbers]) -> Numbers:
    """L of A = L L^T, from the lower triangle of A."""
    ops, (matrix,) = program.ops, inputs
    _one_matrix(matrix, "a Cholesky factor")
    n, kind = matrix.shape[0], kind_of(equation.outvars[0].aval.dtype)
    factor = np.full((n, n), ops.constant(0, kind), np.int64)
    for j in range(n):
        done = factor[j, :j].tolist()
        pivot = ops.unary("sqrt", _less_products(ops, int(matrix[j, j]), done, done))
        inverse = ops.binary("div", ops.constant(1, kind), pivot)
        factor[j, j] = pivot
        for i in range(j + 1, n):
            left = _less_products(ops, int(matrix[i, j]), factor[i, :j].tolist(), done)
            factor[i, j] = ops.binary("mul", left, inverse)
    return factor


@rule("triangular_solve")
def _triangular_solve(program: Interpreter, equation: Any, inputs: list[Numbers]) -> Numbers:
    ops, p, (matrix, rhs) = program.ops, equation.params, inputs
    _one_matrix(matrix, "a triangular solve")
    lower = p["lower"]
    if not p["left_side"]:
        matrix, rhs, lower = matrix.T, rhs.T, not lower
    if p["transpose_a"]:
        matrix, lower = matrix.T, not lower
    n, kind = matrix.shape[0], kind_of(equation.outvars[0].aval.dtype)
    quotient = functools.partial(ops.binary, "div", ops.constant(1, kind))
    inverse = [None if p["unit_diagonal"] else quotient(int(matrix[i, i])) for i in range(n)]
    solution = np.empty(rhs.shape, np.int64)
    for column in range(rhs.shape[1]):
        for i in range(n) if lower else reversed(range(n)):
            known = slice(0, i) if lower else slice(i + 1, n)
            done = solution[known, column].tolist()
            left = _less_products(ops, int(rhs[i, column]), matrix[i, known].tolist(), done)
            scale = inverse[i]
            solution[i, column] = left if scale is None else ops.binary("mul", left, scale)
    return solution if p["left_side"] else solution.T


@rule("custom_linear_solve")
def _solved(program: Interpreter, equation: Any, inputs: list[Numbers]) -> list[Numbers]:
    """`lax.custom_linear_solve`: its own solver."""
    lengths = equation.params["const_lengths"]
    first = lengths.matvec + lengths.vecmat
    own = inputs[first : first + lengths.solve]
    return program.run_closed(equation.params["jaxprs"].solve, [*own, *inputs[sum(lengths) :]])
