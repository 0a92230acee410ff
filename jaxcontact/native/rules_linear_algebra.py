"""Rules of primitives of linear algebra on small matrices."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any  # Any: results of a rule have the shapes of a program

import numpy as np

from jaxcontact.native.interpreter import Interpreter
from jaxcontact.native.jaxprs import Equation
from jaxcontact.native.kinds import BOOL, kind_of
from jaxcontact.native.operations import Operations
from jaxcontact.native.registry import Numbers, rule


def _subtract_products(ops: Operations, start: int, first: list[int], second: list[int]) -> int:
    """Compute start - sum of first[k] second[k]."""
    total = start
    for a, b in zip(first, second, strict=True):
        total = ops.binary("sub", total, ops.binary("mul", a, b))
    return total


def _map_matrices(function: Callable[..., Any], *arrays: Numbers) -> Any:
    """Apply a function of matrices to arrays of matrices; it returns an array, or a tuple of arrays."""
    shape = arrays[0].shape[:-2]
    if not shape:
        return function(*arrays)
    found = [function(*(array[place] for array in arrays)) for place in np.ndindex(shape)]
    if not isinstance(found[0], tuple):
        return np.stack(found).reshape(*shape, *found[0].shape)
    return tuple(np.stack(results).reshape(*shape, *results[0].shape) for results in zip(*found, strict=True))


@rule("cholesky")
def _cholesky(program: Interpreter, equation: Equation, inputs: list[Numbers]) -> Numbers:
    """Compute L of A = L L^T, from the lower triangle of A."""
    ops, kind = program.ops, kind_of(equation.outputs[0].dtype)

    def factor_of(matrix: Numbers) -> Numbers:
        n = matrix.shape[0]
        factor = np.full((n, n), ops.constant(0, kind), np.int64)
        squares: list[int] = []
        for j in range(n):
            done = factor[j, :j].tolist()
            squares.append(_subtract_products(ops, int(matrix[j, j]), done, done))
            pivot = ops.unary("sqrt", squares[j])
            inverse = ops.binary("div", ops.constant(1, kind), pivot)
            factor[j, j] = pivot
            for i in range(j + 1, n):
                left = _subtract_products(ops, int(matrix[i, j]), factor[i, :j].tolist(), done)
                factor[i, j] = ops.binary("mul", left, inverse)
        return _mark_indefinite(ops, factor, squares)

    return _shape_output(_map_matrices(factor_of, *inputs), equation)


def _mark_indefinite(ops: Operations, factor: Numbers, squares: list[int]) -> Numbers:
    """Replace a factor by NaN if a squared pivot is zero or negative; NaN pivots spread by themselves."""
    good = ops.constant(True, BOOL)
    for square in squares:
        bad = ops.binary("le", square, ops.constant(0, ops.kind[square]))
        good = ops.binary("and", good, ops.unary("not", bad))
    rows, columns = np.tril_indices(len(factor))
    for i, j in zip(rows.tolist(), columns.tolist(), strict=True):
        number = int(factor[i, j])
        factor[i, j] = ops.select(good, number, ops.constant(np.nan, ops.kind[number]))
    return factor


def _shape_output(found: Numbers, equation: Equation) -> Numbers:
    """Reshape numbers to the shape of an equation's output, which may be empty."""
    return found.reshape(equation.outputs[0].shape)


@rule("triangular_solve")
def _triangular_solve(program: Interpreter, equation: Equation, inputs: list[Numbers]) -> Numbers:
    ops, p, kind = program.ops, equation.params, kind_of(equation.outputs[0].dtype)

    def solved(matrix: Numbers, rhs: Numbers) -> Numbers:
        lower = p["lower"]
        if not p["left_side"]:
            matrix, rhs, lower = matrix.T, rhs.T, not lower
        if p["transpose_a"]:
            matrix, lower = matrix.T, not lower
        n = matrix.shape[0]
        quotient = functools.partial(ops.binary, "div", ops.constant(1, kind))
        inverse = [None if p["unit_diagonal"] else quotient(int(matrix[i, i])) for i in range(n)]
        solution = np.empty(rhs.shape, np.int64)
        for column in range(rhs.shape[1]):
            for i in range(n) if lower else reversed(range(n)):
                solved_entries = slice(0, i) if lower else slice(i + 1, n)
                done = solution[solved_entries, column].tolist()
                left = _subtract_products(ops, int(rhs[i, column]), matrix[i, solved_entries].tolist(), done)
                scale = inverse[i]
                solution[i, column] = left if scale is None else ops.binary("mul", left, scale)
        return solution if p["left_side"] else solution.T

    return _shape_output(_map_matrices(solved, *inputs), equation)


@rule("lu")
def _lu(program: Interpreter, equation: Equation, inputs: list[Numbers]) -> list[Numbers]:
    """Compute L and U in one matrix, the row that each pivot was exchanged with, and the order of rows."""
    ops, index_kind = program.ops, kind_of(equation.outputs[1].dtype)

    def factors(matrix: Numbers) -> tuple[Numbers, ...]:
        m, n = matrix.shape
        places = [ops.constant(i, index_kind) for i in range(m)]
        rows = np.concatenate([matrix, np.array(places, np.int64)[:, None]], axis=1)
        pivots = []
        for k in range(min(m, n)):
            pivots.append(_place_of_largest(ops, rows[k:, k].tolist(), places[k:]))
            _exchange(ops, rows, k, [ops.binary("eq", pivots[k], place) for place in places])
            _eliminate(ops, rows[:, :n], k)
        return rows[:, :n], np.array(pivots, np.int64), rows[:, n]

    found = _map_matrices(factors, *inputs)
    return [array.reshape(output.shape) for array, output in zip(found, equation.outputs, strict=True)]


@rule("lu_without_exchanges")
def _lu_without_exchanges(program: Interpreter, equation: Equation, inputs: list[Numbers]) -> Numbers:
    """Compute L and U in one matrix; a pivot of zero counts as one."""
    ops = program.ops

    def factors(matrix: Numbers) -> Numbers:
        rows = matrix.copy()
        for k in range(len(rows)):
            pivot = int(rows[k, k])
            zero, unit = (ops.constant(number, ops.kind[pivot]) for number in (0, 1))
            rows[k, k] = ops.select(ops.binary("eq", pivot, zero), unit, pivot)
            inverse = ops.binary("div", unit, int(rows[k, k]))
            for i in range(k + 1, len(rows)):
                rows[i, k] = ops.binary("mul", int(rows[i, k]), inverse)
                less = [ops.binary("mul", int(rows[i, k]), int(entry)) for entry in rows[k, k + 1 :]]
                pairs = zip(rows[i, k + 1 :].tolist(), less, strict=True)
                rows[i, k + 1 :] = [ops.binary("sub", entry, share) for entry, share in pairs]
        return rows

    return _shape_output(_map_matrices(factors, *inputs), equation)


def _place_of_largest(ops: Operations, numbers: list[int], places: list[int]) -> int:
    """Find the first place of the largest magnitude."""
    largest, at = ops.unary("abs", numbers[0]), places[0]
    for number, place in zip(numbers[1:], places[1:], strict=True):
        size = ops.unary("abs", number)
        larger = ops.binary("gt", size, largest)
        largest, at = ops.select(larger, size, largest), ops.select(larger, place, at)
    return at


def _exchange(ops: Operations, rows: Numbers, k: int, chosen: list[int]) -> None:
    """Exchange row k, in place, with the row below it whose bit is set, if there is one."""
    for column in range(rows.shape[1]):
        top = new_top = int(rows[k, column])
        for i in range(k + 1, len(rows)):
            entry = int(rows[i, column])
            rows[i, column] = ops.select(chosen[i], top, entry)
            new_top = ops.select(chosen[i], entry, new_top)
        rows[k, column] = new_top


def _eliminate(ops: Operations, rows: Numbers, k: int) -> None:
    """Subtract, in place, multiples of a pivot's row from the rows below; a zero pivot leaves its column."""
    pivot = int(rows[k, k])
    is_zero = ops.binary("eq", pivot, ops.constant(0, ops.kind[pivot]))
    for i in range(k + 1, len(rows)):
        entry = int(rows[i, k])
        rows[i, k] = ops.select(is_zero, entry, ops.binary("div", entry, pivot))
        for column in range(k + 1, rows.shape[1]):
            less = ops.binary("mul", int(rows[i, k]), int(rows[k, column]))
            rows[i, column] = ops.binary("sub", int(rows[i, column]), less)


@rule("custom_linear_solve")
def _custom_linear_solve(program: Interpreter, equation: Equation, inputs: list[Numbers]) -> list[Numbers]:
    """Solve `lax.custom_linear_solve` by its own solver."""
    lengths = equation.params["const_lengths"]
    first = lengths.matvec + lengths.vecmat
    constants = inputs[first : first + lengths.solve]
    return program.run(equation.params["jaxprs"].solve, [*constants, *inputs[sum(lengths) :]])
