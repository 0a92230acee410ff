"""The places of tables, and of numbers that one piece computes and another reads.

The entry function is `make_storage`. Places are slots of one vector each. A slot is used again when nothing
reads its number any more; a number from outside a loop that is read inside it stays until the loop has ended.
"""

from __future__ import annotations

import dataclasses
import heapq
from collections.abc import Hashable, Iterator
from typing import TypeVar

from jaxcontact.native.control import Assign, Branch, Fill, Largest, Put, Scan, Table, While, WriteRow
from jaxcontact.native.needed import all_items
from jaxcontact.native.operations import CONSTANT, FROM_ROW, FROM_TABLE, INPUT, READ, Block, Operations
from jaxcontact.native.schedule import Call, Entry, Schedule, Step, entries_read

Key = TypeVar("Key")


@dataclasses.dataclass
class Storage:
    """The slot of each number, the first slot of each table, and the number of slots."""

    slots: dict[int, int]
    tables: dict[Table, int]
    size: int


def cell_of(ops: Operations, number: int) -> int:
    """Return the cell that a number after a loop or branch stands for; else the number itself."""
    while ops.op[number] == READ:
        (number,) = ops.args[number]
    return number


def make_storage(ops: Operations, schedule: Schedule) -> Storage:
    """Assign slots to all numbers that cross pieces, and to tables."""
    lives = _Lives(ops, schedule)
    slots, size = _pack_numbers(lives.numbers)
    tables, size = _pack_tables(lives.tables, size)
    return Storage(slots, tables, size)


class _Lives:
    """The first and the last piece in which each number and each table is needed."""

    def __init__(self, ops: Operations, schedule: Schedule) -> None:
        self.ops, self.schedule = ops, schedule
        self.numbers: dict[int, tuple[int, int]] = {}
        self.tables: dict[Table, tuple[int, int]] = {}
        self._piece_of = {
            entry: k
            for k, piece in enumerate(schedule.pieces)
            for entry in piece.entries
            if isinstance(entry, int)
        }
        self._home: dict[Hashable, Block] = {}
        self._find_homes(ops.root)
        for k, piece in enumerate(schedule.pieces):
            for entry in piece.entries:
                self._visit(entry, k)
        self._visit_tests(schedule.steps)

    def _find_homes(self, root: Block) -> None:
        """Find the blocks in which cells and tables of rows live: those that hold the loop, not its body."""
        for item in all_items(root):
            if isinstance(item, Branch | While | Scan) and id(item.body) in self.schedule.around:
                outer = self.schedule.around[id(item.body)][0]
                self._home |= dict.fromkeys((cell for cell, *_ in item.cells), outer)
                if isinstance(item, Scan):
                    self._home |= dict.fromkeys((table for table, _ in item.rows), outer)

    def _visit(self, entry: Entry, k: int) -> None:
        """Keep what an entry of piece k reads and writes."""
        block = self.schedule.pieces[k].block
        for number in entries_read(self.ops, entry):
            self._keep(number, k, block)
        if isinstance(entry, int):
            if self.ops.op[entry] == FROM_TABLE:
                self._keep_table(self.ops.value[entry][0], k, block)
        elif isinstance(entry, Assign):
            for cell, _ in entry.pairs:
                self._keep(cell, k, block)
        elif isinstance(entry, Fill | Put | WriteRow):
            self._keep_table(entry.table, k, block)
        elif isinstance(entry, Largest):
            for table in (entry.source, entry.values, entry.places):
                self._keep_table(table, k, block)

    def _visit_tests(self, steps: list[Call | Step]) -> None:
        """Keep the numbers that decide over branches and loops, which are read between pieces."""
        for step in steps:
            if not isinstance(step, Step):
                continue
            pieces = [call.piece for call in _list_calls([step])]
            if isinstance(step.item, Scan):
                self._extend_life(self.numbers, step.item.counter, min(pieces), max(pieces))
            else:
                test = step.item.where if isinstance(step.item, Branch) else step.item.going
                for k in (min(pieces), max(pieces)):
                    self._keep(test, k, self.schedule.pieces[k].block, always=True)
            self._visit_tests(step.condition)
            self._visit_tests(step.body)

    def _keep(self, number: int, k: int, block: Block, always: bool = False) -> None:
        """Keep a number until piece k, of a block, has read it."""
        number = cell_of(self.ops, number)
        op = self.ops.op[number]
        if op in (CONSTANT, INPUT):
            return
        if op == FROM_ROW:
            counter, table, *_ = self.ops.value[number]
            self._keep(counter, k, block)
            self._keep_table(table, k, block)
            return
        first_piece = self._piece_of.get(number, k)
        if first_piece == k and number in self._piece_of and not always:
            return
        home = self._home.get(number) or self.ops.block[number]
        first, last = self._find_span(k, block, home)
        self._extend_life(self.numbers, number, first_piece if number in self._piece_of else first, last)

    def _keep_table(self, table: Table, k: int, block: Block) -> None:
        home = self._home.setdefault(table, block)
        self._extend_life(self.tables, table, *self._find_span(k, block, home))

    def _find_span(self, k: int, block: Block, home: Block) -> tuple[int, int]:
        """Find first and last piece of the outermost loop that holds piece k but not `home`; else k twice.

        A number or table from outside a loop that is read or written inside it is kept in all its iterations.
        """
        span = k, k
        homes = {id(outer) for outer in self._blocks_outwards(home)}
        for outer in self._blocks_outwards(block):
            if id(outer) in homes:
                break
            loop = self.schedule.around[id(outer)][1]
            if loop is not None:
                first, last = self.schedule.spans[id(loop)]
                span = min(span[0], first), max(span[1], last)
        return span

    def _blocks_outwards(self, block: Block | None) -> Iterator[Block]:
        """Yield a block and those around it, from the inside out."""
        while block is not None:
            yield block
            around = self.schedule.around.get(id(block))
            block = around[0] if around else None

    @staticmethod
    def _extend_life(lives: dict[Key, tuple[int, int]], key: Key, first: int, last: int) -> None:
        """Extend the span of pieces in which a key lives to these, in place."""
        before = lives.get(key, (first, last))
        lives[key] = min(first, before[0]), max(last, before[1])


def _list_calls(steps: list[Call | Step]) -> Iterator[Call]:
    for step in steps:
        if isinstance(step, Call):
            yield step
        else:
            yield from _list_calls([*step.condition, *step.body])


def _pack_numbers(lives: dict[int, tuple[int, int]]) -> tuple[dict[int, int], int]:
    """Assign slots to numbers: each the lowest that is free from its first piece on."""
    slots: dict[int, int] = {}
    free: list[int] = []
    occupied: list[tuple[int, int]] = []
    size = 0
    for number, (first, last) in sorted(lives.items(), key=lambda item: item[1][0]):
        while occupied and occupied[0][0] < first:
            heapq.heappush(free, heapq.heappop(occupied)[1])
        if free:
            slots[number] = heapq.heappop(free)
        else:
            slots[number], size = size, size + 1
        heapq.heappush(occupied, (last, slots[number]))
    return slots, size


def _pack_tables(lives: dict[Table, tuple[int, int]], start: int) -> tuple[dict[Table, int], int]:
    """Assign first slots to tables after `start`: the largest first, each where it first fits."""
    tables: dict[Table, int] = {}
    end = start
    for table, (first, last) in sorted(lives.items(), key=lambda item: -item[0].size):
        place = start
        beside = sorted(
            (tables[other], tables[other] + other.size)
            for other in tables
            if lives[other][0] <= last and lives[other][1] >= first
        )
        for begin, stop in beside:
            if place + table.size <= begin:
                break
            place = max(place, stop)
        tables[table] = place
        end = max(end, place + table.size)
    return tables, end
