"""Rules of primitives that combine the entries of an axis: sums and similar reductions, matrix products."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any  # Any: parameters of JAX's operations

import numpy as np

from jaxcontact._pytree import PyTree
from jaxcontact.native.interpreter import Interpreter
from jaxcontact.native.jaxprs import Equation
from jaxcontact.native.kinds import greatest, kind_of, least
from jaxcontact.native.looped_products import product_in_loop
from jaxcontact.native.operations import Operations
from jaxcontact.native.registry import RULES, Numbers, Rule, rule
from jaxcontact.native.rules_elementwise import is_before

CHAIN = 4  # products summed in sequence; in a longer chain each would wait for the one before


def _combine_in_pairs(combine: Callable[[int, int], int], numbers: list[int]) -> int:
    """Combine all numbers in pairs of neighbours, then in pairs of those."""
    while len(numbers) > 1:
        rest = numbers[len(numbers) - len(numbers) % 2 :]
        numbers = [combine(a, b) for a, b in zip(numbers[::2], numbers[1::2], strict=False)] + rest
    return numbers[0]


def _make_reduction_rule(op: str, start: Callable[[str], Any]) -> Rule:
    """Make the rule of a reduction; `start` gives the result without entries, of a kind."""

    def apply(program: Interpreter, equation: Equation, inputs: list[Numbers]) -> Numbers:
        axes, (array,) = equation.params["axes"], inputs
        output = equation.outputs[0]
        kind = kind_of(output.dtype)
        unsummed = [d for d in range(array.ndim) if d not in axes]
        length = math.prod(array.shape[d] for d in axes)  # -1 is ambiguous in an array without numbers
        rows = array.transpose(*unsummed, *axes).reshape(math.prod(output.shape), length).tolist()
        combine = functools.partial(program.ops.binary, op)
        nothing = program.ops.constant(start(kind), kind)
        totals = [_combine_in_pairs(combine, row) if row else nothing for row in rows]
        return np.array(totals, np.int64).reshape(output.shape)

    return apply


RULES["reduce_sum"] = _make_reduction_rule("add", lambda kind: 0)
RULES["reduce_prod"] = _make_reduction_rule("mul", lambda kind: 1)
RULES["reduce_max"] = _make_reduction_rule("max", least)
RULES["reduce_min"] = _make_reduction_rule("min", greatest)
RULES["reduce_and"] = _make_reduction_rule("and", lambda kind: greatest(kind) if kind[0] in "bu" else -1)
RULES["reduce_or"] = _make_reduction_rule("or", lambda kind: 0)
RULES["reduce_xor"] = _make_reduction_rule("xor", lambda kind: 0)


def _make_place_rule(relation: str) -> Rule:
    """Make the rule of the first place of the largest or smallest number; NaN counts as that number."""

    def apply(program: Interpreter, equation: Equation, inputs: list[Numbers]) -> Numbers:
        ops, (axis,) = program.ops, equation.params["axes"]
        kind = kind_of(equation.params["index_dtype"])
        rows = np.moveaxis(inputs[0], axis, -1)
        places = []
        for first, *others in rows.reshape(-1, rows.shape[-1]).tolist():
            best, place = first, ops.constant(0, kind)
            for k, number in enumerate(others, 1):
                better = is_before(ops, relation, number, best)
                best = ops.select(better, number, best)
                place = ops.select(better, ops.constant(k, kind), place)
            places.append(place)
        return np.array(places, np.int64).reshape(rows.shape[:-1])

    return apply


RULES["argmax"], RULES["argmin"] = _make_place_rule("gt"), _make_place_rule("lt")


def _make_cumulative_rule(op: str) -> Rule:
    """Make the rule of a cumulative operation along an axis."""

    def apply(program: Interpreter, equation: Equation, inputs: list[Numbers]) -> Numbers:
        axis, backwards = equation.params["axis"], equation.params["reverse"]
        rows = np.moveaxis(inputs[0], axis, 0)[:: -1 if backwards else 1]
        totals = list(rows[:1])
        for row in rows[1:]:
            totals.append(program.each(functools.partial(program.ops.binary, op), totals[-1], row))
        stacked = np.stack(totals) if totals else rows
        return np.moveaxis(stacked[:: -1 if backwards else 1], 0, axis)

    return apply


for _name, _op in (("cumsum", "add"), ("cumprod", "mul"), ("cummax", "max"), ("cummin", "min")):
    RULES[_name] = _make_cumulative_rule(_op)


@rule("dot_general")
def _product(program: Interpreter, equation: Equation, inputs: list[Numbers]) -> Numbers:
    """Multiply matrices, without the products that are known to be zero."""
    (first_sum, second_sum), (first_batch, second_batch) = equation.params["dimension_numbers"]
    output = equation.outputs[0]
    kind = kind_of(output.dtype)
    first = _as_matrices(program, inputs[0], first_batch, first_sum, kind)
    second = _as_matrices(program, inputs[1], second_batch, second_sum, kind)
    ops = program.ops
    total = functools.partial(_sum_of_products, ops, ops.constant(0, kind))
    if len(first) == 1 and min(first.shape[1], second.shape[1]) == 1:
        matrix, vector = (second[0], first[0, 0]) if first.shape[1] == 1 else (first[0], second[0, 0])
        found = product_in_loop(program, matrix, vector.tolist(), total)
        if found is not None:
            return found.reshape(output.shape)
    totals = [
        total(list(zip(row, column, strict=True)))
        for rows, columns in zip(first.tolist(), second.tolist(), strict=True)
        for row in rows
        for column in columns
    ]
    return np.array(totals, np.int64).reshape(output.shape)


def _sum_of_products(ops: Operations, zero: int, pairs: list[tuple[int, int]]) -> int:
    """Sum the products of pairs, without those that are known to be zero, in chains."""
    pairs = [(a, b) for a, b in pairs if (a != zero or ops.nan) and not _vanishes(ops, a, b)]
    parts = [_sum_chain(ops, pairs[k : k + CHAIN]) for k in range(0, len(pairs), CHAIN)]
    return _combine_in_pairs(functools.partial(ops.binary, "add"), parts) if parts else zero


def _vanishes(ops: Operations, a: int, b: int) -> bool:
    return ops.vanishes(a, b) or ops.vanishes(b, a)


def _sum_chain(ops: Operations, pairs: list[tuple[int, int]]) -> int:
    """Sum the products of pairs in sequence."""
    total, *others = (ops.binary("mul", a, b) for a, b in pairs)
    for product in others:
        total = ops.binary("add", total, product)
    return total


def _as_matrices(program: Interpreter, array: Numbers, batch: PyTree, summed: Any, kind: str) -> Numbers:
    """Arrange an array as (batch, kept, summed), in the kind of the product."""
    unsummed = [d for d in range(array.ndim) if d not in batch and d not in summed]
    sizes = [math.prod(array.shape[d] for d in axes) for axes in (batch, unsummed, summed)]
    matrices = array.transpose(*batch, *unsummed, *summed).reshape(sizes)
    return program.each(lambda n: program.ops.convert(n, kind), matrices)
