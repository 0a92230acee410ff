"""Products of a matrix with many numbers and a vector, as loops over the rows of a table.

Written out, a loop's product takes its instructions from a distant cache in every iteration, ten times as
long as the arithmetic. Entry: `product_in_loop`.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator

import numpy as np

from jaxcontact.native.control import Scan, Table
from jaxcontact.native.interpreter import Interpreter
from jaxcontact.native.operations import CELL, COUNTER, FROM_ROW, FROM_TABLE, READ, Block, Operations
from jaxcontact.native.registry import Numbers

MANY = 1000  # numbers of a matrix; fewer are written out
AT_ONCE = 4  # rows of the matrix that an iteration takes

Sum = Callable[[list[tuple[int, int]]], int]  # of the products of pairs of numbers


def product_in_loop(program: Interpreter, matrix: Numbers, vector: list[int], total: Sum) -> Numbers | None:
    """Multiply a matrix (m, n) from outside of a loop and a vector (n,), in a loop; None if that is no gain.

    Rows with many known zeros are written out.
    """
    if matrix.size < MANY:
        return None
    ops, wide = program.ops, matrix.shape[0] < matrix.shape[1]
    rows = matrix.T if wide else matrix
    is_full = np.mean(program.each(lambda n: not ops.is_known(n), rows).astype(bool), axis=1) > 0.5
    count = int(is_full.sum()) // AT_ONCE * AT_ONCE
    looped = np.flatnonzero(is_full)[:count]
    if count * rows.shape[1] < MANY or not _is_of_outer_loop(ops, rows[looped]):
        return None
    table, others = _find_table(program, rows[looped]), np.setdiff1d(np.arange(len(rows)), looped)
    if wide:
        added = _sum_weighted_rows(program, table, [vector[k] for k in looped], rows.shape[1])
        parts = matrix[:, others].tolist(), [vector[k] for k in others]
        rest = [total(list(zip(line, parts[1], strict=True))) for line in parts[0]]
        return np.array([ops.binary("add", a, b) for a, b in zip(added, rest, strict=True)], np.int64)
    found = np.empty(len(rows), np.int64)
    found[looped] = _multiply_rows(program, table, vector, total)
    found[others] = [total(list(zip(row, vector, strict=True))) for row in rows[others].tolist()]
    return found


def _blocks_outwards(block: Block | None) -> Iterator[Block]:
    """Yield a block and those around it, from the inside out."""
    while block is not None:
        yield block
        block = block.parent


def _is_of_outer_loop(ops: Operations, numbers: Numbers) -> bool:
    """Decide whether numbers are from outside of a loop that runs now."""
    homes = {id(ops.block[n]) for n in numbers.ravel() if not ops.is_known(n)}
    inside = itertools.takewhile(lambda block: id(block) not in homes, _blocks_outwards(ops.now))
    return any(block.is_of_loop for block in inside)


def _find_table(program: Interpreter, rows: Numbers) -> Table:
    """Return a table of numbers, filled where they are computed."""
    ops, key = program.ops, rows.tobytes()
    homes = {id(ops.block[n]) for n in rows.ravel() if not ops.is_known(n)}
    home = next(block for block in _blocks_outwards(ops.now) if id(block) in homes)
    if key not in program.tables:
        now, ops.now = ops.now, home
        program.tables[key] = program.table(rows)
        ops.now = now
    return program.tables[key]


def _build_loop(
    program: Interpreter, length: int, first: list[int], turn: Callable[[int, list[int]], tuple]
) -> tuple[list[int], Table | None]:
    """Build a loop of `turn`: (counter, cells) -> (next cells, row); return its last cells and its rows."""
    ops = program.ops
    counter = ops.new(COUNTER, (), program.index_kind, None, True)
    outer, ops.now = ops.now, Block(ops.now, is_of_loop=True)
    cells = [ops.new(CELL, (), ops.kind[n]) for n in first]
    then, row = turn(counter, cells)
    body, ops.now = ops.now, outer
    rows = [(Table(length * len(row), ops.kind[row[0]]), row)] if row else []
    ops.now.items.append(Scan(counter, length, False, body, list(zip(cells, first, then, strict=True)), rows))
    return [ops.new(READ, (cell,), ops.kind[cell]) for cell in cells], rows[0][0] if rows else None


def _read_row(program: Interpreter, counter: int, table: Table, width: int) -> list[int]:
    """Read a row of a table."""
    new = program.ops.new
    return [new(FROM_ROW, (), table.kind, (counter, table, k, width)) for k in range(width)]


def _multiply_rows(program: Interpreter, table: Table, vector: list[int], total: Sum) -> list[int]:
    """Multiply every row of a table and a vector."""
    width, n = AT_ONCE * len(vector), len(vector)

    def turn(counter: int, cells: list[int]) -> tuple[list[int], list[int]]:
        numbers = _read_row(program, counter, table, width)
        lines = [numbers[k : k + n] for k in range(0, width, n)]
        return [], [total(list(zip(line, vector, strict=True))) for line in lines]

    _, found = _build_loop(program, table.size // width, [], turn)
    assert found is not None
    return [program.ops.new(FROM_TABLE, (), found.kind, (found, k)) for k in range(found.size)]


def _sum_weighted_rows(program: Interpreter, table: Table, weights: list[int], n: int) -> list[int]:
    """Sum the rows (n,) of a table, each times its weight."""
    ops = program.ops
    factors = program.table(np.array(weights, np.int64))

    def turn(counter: int, cells: list[int]) -> tuple[list[int], list[int]]:
        numbers = np.array(_read_row(program, counter, table, AT_ONCE * n)).reshape(AT_ONCE, n)
        weight = _read_row(program, counter, factors, AT_ONCE)
        columns = (
            [ops.binary("mul", w, x) for w, x in zip(weight, column, strict=True)]
            for column in numbers.T.tolist()
        )
        sums = [functools.reduce(functools.partial(ops.binary, "add"), column) for column in columns]
        return [ops.binary("add", cell, s) for cell, s in zip(cells, sums, strict=True)], []

    zero = ops.constant(0, table.kind)
    return _build_loop(program, table.size // (AT_ONCE * n), [zero] * n, turn)[0]
