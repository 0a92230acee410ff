"""Rules of branches and loops.

A loop carries cells. A cell that no iteration changes is its first number: this is assumed of all cells, the
body is run, and cells that changed lose the assumption, until it holds. Therefore zeros of a carried matrix
stay known zeros, and a counter stays the same for all worlds.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
from collections.abc import Callable
from typing import Any  # Any: payloads of loops and branches differ

import numpy as np

from jaxcontact.native.control import Branch, Scan, Table, While
from jaxcontact.native.interpreter import Interpreter
from jaxcontact.native.jaxprs import Array, Equation, Function
from jaxcontact.native.kinds import kind_of
from jaxcontact.native.operations import BOOL, CELL, COUNTER, FROM_ROW, FROM_TABLE, READ, Block
from jaxcontact.native.registry import Numbers, rule

UNROLLED = 100_000  # operations; a loop of known length with no more is written out
# The same for a loop of many turns: the instructions of what is written out come from distant caches.
MANY_TURNS, UNROLLED_TURNS = 8, 20_000
CHOSEN = 300  # operations; branches with no more together are all computed, and one is selected
LOOP = 1000  # operations; the minimum count of a loop, so that other worlds do not run it
_MOVES = ("broadcast_in_dim", "reshape", "slice", "concatenate", "squeeze", "transpose")


def _estimate_operations(function: Function) -> int:
    """Estimate the number of operations of a function."""
    total = 0
    for equation in function.equations:
        if equation.functions:
            total += sum(map(_estimate_operations, equation.functions)) * equation.params.get("length", 1)
            total += LOOP if equation.name == "while" else 0
        elif equation.name == "dot_general":
            (summed, _), _ = equation.params["dimension_numbers"]
            terms = math.prod(equation.inputs[0].shape[d] for d in summed)
            total += equation.outputs[0].size * terms
        elif equation.name not in _MOVES:
            total += sum(output.size for output in equation.outputs)
    return total


def _flatten(arrays: list[Numbers]) -> list[int]:
    """Join the numbers of arrays in one list."""
    return [int(number) for array in arrays for number in array.ravel()]


def _as_arrays(numbers: list[int], like: list[Any]) -> list[Numbers]:
    """Reshape a list of numbers to arrays of the shapes of `like`."""
    ends = np.cumsum([math.prod(array.shape) for array in like]).tolist()
    starts = [0, *ends][: len(ends)]
    return [
        np.array(numbers[a:b], np.int64).reshape(array.shape)
        for a, b, array in zip(starts, ends, like, strict=True)
    ]


def _run_in_block(program: Interpreter, body: Callable[[], Any], going: int | None) -> tuple[Block, Any]:
    """Run `body` in a new block for the worlds whose bit `going` is set; return the block and the result."""
    ops, outer, others = program.ops, program.ops.now, program.going
    block = ops.now = Block(outer)
    program.going = going
    result = body()
    ops.now, program.going = outer, others
    return block, result


@rule("cond")
def _branches(program: Interpreter, equation: Equation, inputs: list[Numbers]) -> list[Numbers]:
    """Run the branch that is known, select among small ones, or let worlds run large ones apart."""
    ops, (which, *arguments) = program.ops, inputs
    branches, place = equation.params["branches"], int(which)
    last = len(branches) - 1
    if ops.is_known(place):
        index = min(max(int(ops.value[place]), 0), last)
        return program.run(branches[index], arguments)
    if ops.kind[place] == BOOL:
        hits = [ops.unary("not", place), place]
    else:
        zero, end = (ops.constant(k, ops.kind[place]) for k in (0, last))
        place = ops.binary("min", ops.binary("max", place, zero), end)
        hits = [ops.binary("eq", place, ops.constant(k, ops.kind[place])) for k in range(len(branches))]
    if sum(map(_estimate_operations, branches)) <= CHOSEN:
        outputs = [_flatten(program.run(branch, arguments)) for branch in branches]
        chosen = outputs[-1]
        for hit, numbers in zip(hits[:-1], outputs[:-1], strict=True):
            chosen = [ops.select(hit, a, b) for a, b in zip(numbers, chosen, strict=True)]
        return _as_arrays(chosen, equation.outputs)
    return _run_apart(program, equation, hits, arguments)


def _run_apart(
    program: Interpreter, equation: Equation, hits: list[int], arguments: list[Numbers]
) -> list[Numbers]:
    """Compute the outputs of branches; a group of worlds runs each branch that one of its worlds takes."""
    ops, arrays = program.ops, equation.outputs
    kinds = [kind_of(array.dtype) for array in arrays for _ in range(array.size)]
    bodies = []
    for hit, branch in zip(hits, equation.params["branches"], strict=True):
        where = hit if program.going is None else ops.binary("and", hit, program.going)

        def body(branch: Any = branch) -> list[int]:
            return _flatten(program.run(branch, arguments))

        bodies.append((where, *_run_in_block(program, body, where)))
    results = list(zip(*(numbers for _, _, numbers in bodies), strict=True))
    # What is the same in all branches, as zeros of a matrix that they leave, needs no cell.
    cells = {k: ops.new(CELL, (), kinds[k]) for k, numbers in enumerate(results) if len(set(numbers)) > 1}
    for where, block, numbers in bodies:
        ops.now.items.append(Branch(where, block, [(cell, numbers[k]) for k, cell in cells.items()]))
    read = {k: ops.new(READ, (cell,), kinds[k]) for k, cell in cells.items()}
    return _as_arrays([read.get(k, numbers[0]) for k, numbers in enumerate(results)], arrays)


@dataclasses.dataclass
class _Body:
    """The body of a loop on numbers: its block, its carry, and further results."""

    block: Block
    cells: list[int]
    first: list[int]
    then: list[int]
    beside: Any

    @property
    def moving(self) -> list[tuple[int, int, int]]:
        """List the cells that change: (cell, first, next)."""
        triples = zip(self.cells, self.first, self.then, strict=True)
        return [(cell, first, then) for cell, first, then in triples if cell != first]


def _first_guess(
    program: Interpreter, function: Function, num_fixed: int, carry: list[Numbers]
) -> tuple[list[bool], list[bool]]:
    """Guess which numbers of a carry stay as they are, and which are the same for all worlds.

    Floats that the function changes mostly do change, and differ if they are many, so that nothing has to be
    found out about them. Known entries of an array may stay: zeros of a matrix. `num_fixed` arguments come
    before the carry.
    """
    ends = slice(num_fixed, num_fixed + len(carry))
    stays: list[bool] = []
    same: list[bool] = []
    for argument, result, array, numbers in zip(
        function.arguments[ends], function.results, function.inputs[ends], carry, strict=False
    ):
        may_stay = argument == result or not np.issubdtype(array.dtype, np.floating)
        is_one = numbers.size == 1
        knows = [program.ops.is_known(number) for number in _flatten([numbers])]
        stays += [may_stay or (is_known and not is_one) for is_known in knows]
        same += [may_stay or is_known or is_one for is_known in knows]
    return stays, same


def _settle_body(
    program: Interpreter,
    function: Function,
    num_fixed: int,
    carry: list[Numbers],
    body: Callable[[list[Numbers]], tuple[list[Numbers], Any, bool]],
) -> _Body:
    """Run the body of a loop until it is settled which cells change and which are the same for all worlds.

    `body` runs `function` and returns the next carry, further results, and whether all worlds end in the same
    iteration: if not, none of its cells is the same for all. An outer loop runs its body several times, each
    time with less assumed: so an inner loop assumes no more than what held of it the time before. The
    outermost one, whose body costs most, begins with `_first_guess`, which mostly holds at once.
    """
    ops, first = program.ops, _flatten(carry)

    def turn(stays: list[bool], uniform: list[bool]) -> tuple[list[int], list[int], Any, bool]:
        ops.now.is_of_loop = True
        cells = [
            n if stay else ops.new(CELL, (), ops.kind[n], None, same)
            for n, stay, same in zip(first, stays, uniform, strict=True)
        ]
        results, beside, together = body(_as_arrays(cells, carry))
        return cells, _flatten(results), beside, together

    outer = program.earlier, program.settled
    name = next((function, k) for k in itertools.count() if (function, k) not in program.settled)
    is_outermost = ops.now.parent is None
    free = [True] * len(first)
    guess = _first_guess(program, function, num_fixed, carry) if is_outermost else (free, free)
    stays, bound, inner = program.earlier.get(name, (*guess, {}))
    uniform = [u and ops.uniform[n] for u, n in zip(bound, first, strict=True)]
    while True:
        program.earlier, program.settled = inner, {}
        assumed = functools.partial(turn, stays, uniform)
        block, (cells, then, beside, together) = _run_in_block(program, assumed, program.going)
        stay = [s and a == b for s, a, b in zip(stays, first, then, strict=True)]
        same = [together and u and ops.uniform[n] for u, n in zip(uniform, then, strict=True)]
        inner = program.settled
        if stay == stays and same == uniform:
            program.earlier, program.settled = outer
            program.settled[name] = stays, uniform, inner
            return _Body(block, cells, first, then, beside)
        stays, uniform = stay, same


def _read_carry(program: Interpreter, body: _Body, carry: list[Numbers]) -> list[Numbers]:
    """Return the numbers that a loop carries when it has ended."""
    ops = program.ops
    pairs = zip(body.cells, body.first, strict=True)
    numbers = [cell if cell == n else ops.new(READ, (cell,), ops.kind[cell]) for cell, n in pairs]
    return _as_arrays(numbers, carry)


def _select_entries(program: Interpreter, bits: Numbers, new: Numbers, old: Numbers) -> Numbers:
    """Select new numbers where bits are set; the bits have the first axes of the numbers."""
    return program.each(
        program.ops.select, bits.reshape((*bits.shape, *(1,) * (new.ndim - bits.ndim))), new, old
    )


@rule("while")
def _while(program: Interpreter, equation: Equation, inputs: list[Numbers]) -> list[Numbers]:
    """Build a loop of unknown length; worlds that have ended wait for the others of their vector."""
    ops, p = program.ops, equation.params
    first, last = p["cond_nconsts"], p["cond_nconsts"] + p["body_nconsts"]
    of_condition, of_body, carry = inputs[:first], inputs[first:last], inputs[last:]

    def turn(cells: list[Numbers]) -> tuple[list[Numbers], Any, bool]:
        def test() -> tuple[int, Numbers]:
            turning = program.run(p["cond_jaxpr"], [*of_condition, *cells])[0]
            going = ops.constant(False, BOOL)
            for bit in turning.ravel().tolist():
                going = ops.binary("or", going, bit)
            if program.going is None or ops.uniform[going]:
                return going, turning
            return ops.binary("and", going, program.going), turning

        condition, (going, turning) = _run_in_block(program, test, program.going)
        outer, program.going = program.going, going
        results = program.run(p["body_jaxpr"], [*of_body, *cells])
        if turning.ndim:  # a batch within a world: some of its members continue, others have ended
            results = [_select_entries(program, turning, *pair) for pair in zip(results, cells, strict=True)]
        program.going = outer
        return results, (condition, going), ops.uniform[going]

    body = _settle_body(program, p["body_jaxpr"], len(of_body), carry, turn)
    condition, going = body.beside
    ops.now.items.append(While(condition, going, body.block, body.moving, ops.uniform[going]))
    return _read_carry(program, body, carry)


@rule("scan")
def _scan(program: Interpreter, equation: Equation, inputs: list[Numbers]) -> list[Numbers]:
    """Write out a short loop of known length, build a long one."""
    p = equation.params
    first, last = p["num_consts"], p["num_consts"] + p["num_carry"]
    fixed, carry, rows = inputs[:first], inputs[first:last], inputs[last:]
    shapes = equation.outputs[p["num_carry"] :]
    limit = UNROLLED if p["length"] < MANY_TURNS else min(UNROLLED, UNROLLED_TURNS)
    if p["length"] <= 1 or p["length"] * _estimate_operations(p["jaxpr"]) <= limit:
        return _write_out(program, p, fixed, carry, rows, shapes)
    return _build_loop(program, p, fixed, carry, rows, shapes)


def _write_out(
    program: Interpreter,
    p: Any,
    fixed: list[Numbers],
    carry: list[Numbers],
    rows: list[Numbers],
    shapes: list[Array],
) -> list[Numbers]:
    """Write out a loop of known length, so that an entry picked by its counter is known."""
    length = p["length"]
    found: list[list[Numbers]] = [[] for _ in shapes]
    for t in reversed(range(length)) if p["reverse"] else range(length):
        outputs = program.run(p["jaxpr"], [*fixed, *carry, *(row[t] for row in rows)])
        carry = outputs[: p["num_carry"]]
        for column, output in zip(found, outputs[p["num_carry"] :], strict=True):
            column.append(output)
    ordered = [column[::-1] if p["reverse"] else column for column in found]
    empty = [np.empty(array.shape, np.int64) for array in shapes]
    stacked = [np.stack(column) if column else none for column, none in zip(ordered, empty, strict=True)]
    return [*carry, *stacked]


def _build_loop(
    program: Interpreter,
    p: Any,
    fixed: list[Numbers],
    carry: list[Numbers],
    rows: list[Numbers],
    shapes: list[Array],
) -> list[Numbers]:
    """Build a loop of known length; the rows that it reads and writes are tables."""
    ops, length = program.ops, p["length"]
    counter = ops.new(COUNTER, (), program.index_kind, None, True)
    flat = [row.reshape(length, -1) for row in rows]
    places = [_places_of_rows(program, row) for row in flat]

    def read(row: Numbers, places: dict[int, _Place], shape: tuple[int, ...]) -> Numbers:
        numbers = row[0].tolist()
        for k, (table, first, step) in places.items():
            numbers[k] = ops.new(FROM_ROW, (), table.kind, (counter, table, first, step))
        return np.array(numbers, np.int64).reshape(shape)

    def turn(cells: list[Numbers]) -> tuple[list[Numbers], Any, bool]:
        columns = zip(flat, places, rows, strict=True)
        row_numbers = [read(numbers, found, row.shape[1:]) for numbers, found, row in columns]
        outputs = program.run(p["jaxpr"], [*fixed, *cells, *row_numbers])
        return outputs[: p["num_carry"]], outputs[p["num_carry"] :], True

    body = _settle_body(program, p["jaxpr"], len(fixed), carry, turn)
    written = [
        (Table(length * output.size, kind_of(array.dtype)), _flatten([output]))
        for output, array in zip(body.beside, shapes, strict=True)
    ]
    ops.now.items.append(Scan(counter, length, p["reverse"], body.block, body.moving, written))
    stacked = []
    for (table, _), array in zip(written, shapes, strict=True):
        numbers = [ops.new(FROM_TABLE, (), table.kind, (table, k)) for k in range(table.size)]
        stacked.append(np.array(numbers, np.int64).reshape(array.shape))
    return [*_read_carry(program, body, carry), *stacked]


_Place = tuple[Table, int, int]  # a table, the place of a number in it, and the step from row to row


def _places_of_rows(program: Interpreter, rows: Numbers) -> dict[int, _Place]:
    """Find where a loop reads each column (length, columns) that differs between iterations.

    Columns that an earlier loop wrote stay in its tables; others are copied into one table.
    """
    differ = np.flatnonzero((rows != rows[:1]).any(0)).tolist()
    found = {k: _place_in_table(program, rows[:, k].tolist()) for k in differ}
    copied = [k for k, place in found.items() if place is None]
    if copied:
        table = program.table(rows[:, copied])
        found |= {k: (table, at, len(copied)) for at, k in enumerate(copied)}
    return {k: place for k, place in found.items() if place is not None}


def _place_in_table(program: Interpreter, numbers: list[int]) -> _Place | None:
    """Return the place of numbers that were read from one table at equal steps; None for others."""
    ops = program.ops
    if any(ops.op[number] != FROM_TABLE or ops.args[number] for number in numbers):
        return None
    table, first = ops.value[numbers[0]]
    step = ops.value[numbers[1]][1] - first
    equal = all(ops.value[number] == (table, first + t * step) for t, number in enumerate(numbers))
    return (table, first, step) if equal else None
