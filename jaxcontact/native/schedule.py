"""The order in which a program runs: pieces of straight code, and steps that call them.

The entry function is `make_schedule`. A piece becomes one function, small enough for the compiler. Within
straight code a number is computed just before the first that needs it, so that few numbers wait.
"""

from __future__ import annotations

import dataclasses
from typing import Any  # Any: payloads of blocks differ by kind

from jaxcontact.native.control import Assign, Branch, Fill, Item, Largest, Put, Return, Scan, While, WriteRow
from jaxcontact.native.needed import Needed, read_by
from jaxcontact.native.operations import CELL, COUNTER, FROM_ROW, FROM_TABLE, INPUT, READ, Block, Operations

PIECE = 500  # operations of a piece; the time to compile a longer one grows with the square of its length
CELLS = 256  # cells written at once; limits the size of one entry
WORLD_BY_WORLD = 8  # operations counted for an entry that is done for each world by itself
WITHOUT_CODE = (CELL, READ, INPUT, FROM_ROW, COUNTER)


Entry = int | Item | Assign | WriteRow | Return  # of a piece: a number to compute, or an item of control


@dataclasses.dataclass
class Piece:
    """Straight code: numbers to compute, and items of control, in their order."""

    entries: list[Entry]
    block: Block


@dataclasses.dataclass
class Call:
    """A call of a piece."""

    piece: int


@dataclasses.dataclass
class Step:
    """A branch or loop: its item, the steps before its test, and the steps of its body."""

    item: Branch | While | Scan
    condition: list[Call | Step]
    body: list[Call | Step]


@dataclasses.dataclass
class Schedule:
    """The pieces and steps of a program.

    Attributes:
        pieces: in the order of their text.
        steps: `Call` and `Step`.
        spans: first and last piece of each loop.
        around: of each block inside another, that other, and its loop, None for a branch.
    """

    pieces: list[Piece]
    steps: list[Call | Step]
    spans: dict[int, tuple[int, int]]
    around: dict[int, tuple[Block, Any]]


def entries_read(ops: Operations, entry: Entry) -> list[int]:
    """Return the numbers that an entry of a piece reads."""
    if isinstance(entry, int):
        return list(ops.args[entry])
    if isinstance(entry, Assign):
        return [n for _, n in entry.pairs] + ([] if entry.where is None else [entry.where])
    if isinstance(entry, WriteRow):
        return [*entry.numbers, entry.counter]
    return [entry.number] if isinstance(entry, Return) else read_by(entry)


def make_schedule(ops: Operations, needed: Needed, results: list[int]) -> Schedule:
    """Make the schedule of a program that returns `results`."""
    schedule = Schedule([], [], {}, {})
    maker = _Maker(ops, needed, schedule)
    schedule.steps = maker.make_steps(ops.root)
    maker.append_pieces(schedule.steps, [Return(k, n) for k, n in enumerate(results)], ops.root)
    return schedule


class _Maker:
    """Makes the steps of blocks and collects their pieces in a schedule."""

    def __init__(self, ops: Operations, needed: Needed, schedule: Schedule) -> None:
        self.ops, self.needed, self.schedule = ops, needed, schedule

    def append_pieces(self, steps: list[Call | Step], entries: list[Entry], block: Block) -> None:
        """Append entries as pieces, and the calls of these to the steps."""
        begin, size = 0, 0
        for k, entry in enumerate(entries):
            size += self._count_operations(entry)
            if size >= PIECE or k + 1 == len(entries):
                steps.append(Call(len(self.schedule.pieces)))
                self.schedule.pieces.append(Piece(entries[begin : k + 1], block))
                begin, size = k + 1, 0

    def _count_operations(self, entry: Entry) -> int:
        """Estimate the number of CPU operations of an entry."""
        if isinstance(entry, Put):
            return WORLD_BY_WORLD
        if isinstance(entry, int):
            return WORLD_BY_WORLD if self.ops.op[entry] == FROM_TABLE and self.ops.args[entry] else 1
        return len(entries_read(self.ops, entry))

    def make_steps(self, block: Block) -> list[Call | Step]:
        """Make the steps of a block."""
        steps: list[Call | Step] = []
        straight: list[Entry] = []
        for item in block.items:
            if isinstance(item, int):
                if item in self.needed.numbers and self.ops.op[item] not in WITHOUT_CODE:
                    straight.append(item)
            elif isinstance(item, Fill | Put | Largest):
                written = item.values if isinstance(item, Largest) else item.table
                if written in self.needed.tables:
                    straight.append(item)
            else:
                self.append_pieces(steps, self._order(straight), block)
                straight = []
                self._add_branch_or_loop(steps, item, block)
        self.append_pieces(steps, self._order(straight), block)
        return steps

    def _add_branch_or_loop(
        self, steps: list[Call | Step], item: Branch | While | Scan, block: Block
    ) -> None:
        """Append the step of a branch or loop, if one of its cells or rows is needed."""
        cells: list[Any] = [cell for cell in item.cells if cell[0] in self.needed.numbers]
        rows = [row for row in item.rows if row[0] in self.needed.tables] if isinstance(item, Scan) else []
        if not cells and not rows:
            return
        self.schedule.around[id(item.body)] = block, None if isinstance(item, Branch) else item
        if isinstance(item, Branch):
            body = self.make_steps(item.body)
            self._add_assignments(body, cells, item.where, item.body)
            steps.append(Step(item, [], body))
            return
        self._add_assignments(steps, [(cell, first) for cell, first, _ in cells], None, block)
        begin = len(self.schedule.pieces)
        condition, where = [], None
        if isinstance(item, While):
            self.schedule.around[id(item.condition)] = block, item
            condition = self.make_steps(item.condition)
            where = None if item.together else item.going
        body = self.make_steps(item.body)
        if isinstance(item, Scan):
            self.append_pieces(
                body, [WriteRow(table, numbers, item.counter) for table, numbers in rows], item.body
            )
        self._add_assignments(
            body, [(cell, self._resolve_choices(where, then)) for cell, _, then in cells], where, item.body
        )
        self.schedule.spans[id(item)] = begin, len(self.schedule.pieces) - 1
        steps.append(Step(item, condition, body))

    def _add_assignments(self, steps: list[Call | Step], pairs: Any, where: int | None, block: Block) -> None:
        """Write cells; first, all at once, those whose new number is that of another cell."""
        assigned = {cell for cell, _ in pairs}
        moved = [pair for pair in pairs if pair[1] in assigned]
        others = [pair for pair in pairs if pair[1] not in assigned]
        groups = [moved] + [others[k : k + CELLS] for k in range(0, len(others), CELLS)]
        for group in groups:
            if group:
                self.append_pieces(steps, [Assign(group, where)], block)

    def _resolve_choices(self, where: int | None, number: int) -> int:
        """Follow the choices of a number where a bit is set, whose parts decide them; return their end."""
        true, false = _find_facts(self.ops, where)
        while self.ops.op[number] == "select":
            bit, yes, no = self.ops.args[number]
            if bit in true:
                number = yes
            elif bit in false:
                number = no
            else:
                break
        return number

    def _order(self, straight: list[Entry]) -> list[Entry]:
        """Order straight code so that each number comes just before the first that needs it."""
        inside = {entry for entry in straight if isinstance(entry, int)}
        used = {n for entry in straight for n in entries_read(self.ops, entry)}
        ordered: list[Entry] = []
        done: set[int] = set()
        for entry in straight:
            if not isinstance(entry, int):
                for number in entries_read(self.ops, entry):
                    self._place_after_arguments(number, inside, done, ordered)
                ordered.append(entry)
            elif entry not in used or self.ops.op[entry] == FROM_TABLE:
                self._place_after_arguments(entry, inside, done, ordered)
        for entry in straight:
            if isinstance(entry, int):
                self._place_after_arguments(entry, inside, done, ordered)
        return ordered

    def _place_after_arguments(
        self, number: int, inside: set[int], done: set[int], ordered: list[Entry]
    ) -> None:
        """Append a number after those it needs."""
        if number in done or number not in inside:
            return
        stack = [(number, iter(self.ops.args[number]))]
        done.add(number)
        while stack:
            top, arguments = stack[-1]
            for argument in arguments:
                if argument in inside and argument not in done:
                    done.add(argument)
                    stack.append((argument, iter(self.ops.args[argument])))
                    break
            else:
                stack.pop()
                ordered.append(top)


def _find_facts(ops: Operations, where: int | None) -> tuple[set[int], set[int]]:
    """Find the bits that are set, and the bits that are not, where a bit is set."""
    true: set[int] = set()
    false: set[int] = set()
    waiting = [] if where is None else [where]
    while waiting:
        bit = waiting.pop()
        true.add(bit)
        if ops.op[bit] == "and":
            waiting.extend(ops.args[bit])
        elif ops.op[bit] == "not":
            false.add(ops.args[bit][0])
    return true, false
