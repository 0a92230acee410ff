"""Rules of primitives that sort."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from jaxcontact.native.control import Largest, Table
from jaxcontact.native.interpreter import Interpreter
from jaxcontact.native.jaxprs import Equation
from jaxcontact.native.kinds import is_float, kind_of
from jaxcontact.native.operations import FROM_TABLE, Operations
from jaxcontact.native.registry import RULES, Numbers, Rule, rule

MOST_SORTED = 256  # entries; a longer list would take thousands of exchanges


@rule("sort")
def _sorted(program: Interpreter, equation: Equation, inputs: list[Numbers]) -> list[Numbers]:
    """Sort by Batcher's network: the pairs compared do not depend on the numbers. It is always stable."""
    ops, axis, num_keys = program.ops, equation.params["dimension"], equation.params["num_keys"]
    columns = [np.moveaxis(array, axis, -1) for array in inputs]
    shape = columns[0].shape
    if shape[-1] > MOST_SORTED:
        raise NotImplementedError(f"function: jc.simd sorts at most {MOST_SORTED} numbers, got {shape[-1]}")
    outputs = [column.reshape(-1, shape[-1]).copy() for column in columns]
    places = [ops.constant(k, program.index_kind) for k in range(shape[-1])]
    for k in range(outputs[0].shape[0]):
        lists = [*(output[k].tolist() for output in outputs), list(places)]
        for i, j in _list_exchanges(shape[-1]):
            swap = _comes_before(ops, [lists[c] for c in (*range(num_keys), -1)], j, i)
            for column in lists:
                low, high = column[i], column[j]
                column[i], column[j] = ops.select(swap, high, low), ops.select(swap, low, high)
        for output, column in zip(outputs, lists, strict=False):
            output[k] = column
    return [np.moveaxis(output.reshape(shape), -1, axis) for output in outputs]


def _comes_before(ops: Operations, keys: list[list[int]], j: int, i: int) -> int:
    """Return the bit whether entry j comes before entry i by the keys; NaN is last."""
    before = ops.constant(False, "b")
    for key in reversed(keys):
        a, b = key[j], key[i]
        less, same = ops.binary("lt", a, b), ops.binary("eq", a, b)
        if is_float(ops.kind[a]):
            nan_a, nan_b = ops.unary("is_nan", a), ops.unary("is_nan", b)
            less = ops.binary("or", less, ops.binary("and", ops.unary("not", nan_a), nan_b))
            same = ops.binary("or", same, ops.binary("and", nan_a, nan_b))
        before = ops.binary("or", less, ops.binary("and", same, before))
    return before


def _list_exchanges(n: int) -> Iterator[tuple[int, int]]:
    """Yield the pairs of places that Batcher's odd-even merge sort compares, in order."""
    p = 1
    while p < n:
        q = p
        while q >= 1:
            for j in range(q % p, n - q, 2 * q):
                for i in range(min(q, n - j - q)):
                    if (i + j) // (2 * p) == (i + j + q) // (2 * p):
                        yield i + j, i + j + q
            q //= 2
        p *= 2


@rule("top_k")
def _largest(program: Interpreter, equation: Equation, inputs: list[Numbers]) -> list[Numbers]:
    """Find the largest entries by the total order of floats: NaN is extreme by its sign, -0 is below 0."""
    ops, count, kind = program.ops, equation.params["k"], kind_of(equation.inputs[0].dtype)
    rows = inputs[0].reshape(-1, inputs[0].shape[-1])
    if is_float(kind):
        rows = program.each(lambda n: _to_total_order(ops, ops.same_bits(n, f"i{kind[1]}")), rows)
    found: list[list[Numbers]] = [[], []]
    for row in rows:
        source = program.table(row)
        tables = Table(count, source.kind), Table(count, program.index_kind)
        ops.now.items.append(Largest(source, *tables))
        for column, table in zip(found, tables, strict=True):
            numbers = [ops.find_or_append(FROM_TABLE, (), table.kind, (table, k)) for k in range(count)]
            column.append(np.array(numbers, np.int64))
    shape = (*inputs[0].shape[:-1], count)
    values, places = (np.array(column, np.int64).reshape(shape) for column in found)
    if is_float(kind):
        values = program.each(lambda n: ops.same_bits(_to_total_order(ops, n), kind), values)
    return [values, program.each(lambda n: ops.convert(n, "i4"), places)]


def _make_comparison_rule(op: str) -> Rule:
    """Make the rule of a comparison by the total order of floats."""

    def apply(program: Interpreter, equation: Equation, inputs: list[Numbers]) -> Numbers:
        ops, kind = program.ops, kind_of(equation.inputs[0].dtype)
        if is_float(kind):
            inputs = [
                program.each(lambda n: _to_total_order(ops, ops.same_bits(n, f"i{kind[1]}")), x)
                for x in inputs
            ]
        return program.each(lambda a, b: ops.binary(op, a, b), *inputs)

    return apply


RULES["lt_to"], RULES["le_to"] = _make_comparison_rule("lt"), _make_comparison_rule("le")


def _to_total_order(ops: Operations, bits: int) -> int:
    """Map the bits of a float to an integer of the same order; map that integer back to the bits."""
    kind = ops.kind[bits]
    sign = ops.binary("shift_right_signed", bits, ops.constant(8 * int(kind[1]) - 1, kind))
    return ops.binary("xor", bits, ops.binary("shift_right", sign, ops.constant(1, kind)))
