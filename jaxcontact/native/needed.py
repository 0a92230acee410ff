"""The operations and tables that the results of a program need. The entry function is `find_needed`."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from jaxcontact.native.control import Branch, Fill, Item, Largest, Put, Scan, Table, While
from jaxcontact.native.operations import CELL, FROM_ROW, FROM_TABLE, Block, Operations


@dataclasses.dataclass
class Needed:
    """Numbers and tables that are needed."""

    numbers: set[int]
    tables: set[Table]


def inner_blocks(item: Item) -> tuple[Block, ...]:
    """Return the blocks of an item, in the order in which they run."""
    if isinstance(item, While):
        return item.condition, item.body
    return (item.body,) if isinstance(item, Branch | Scan) else ()


def all_items(block: Block) -> Iterator[Item]:
    """Yield the items of control of a block and of those inside it."""
    for item in block.items:
        if not isinstance(item, int):
            yield item
            for inner in inner_blocks(item):
                yield from all_items(inner)


def read_by(item: Item) -> list[int]:
    """Return the numbers that an item of control reads besides those of its blocks."""
    if isinstance(item, Fill):
        return item.numbers
    if isinstance(item, Put):
        return [item.address, item.number, item.where]
    if isinstance(item, Branch):
        return [item.where]
    return [item.going] if isinstance(item, While) else []


def find_needed(ops: Operations, results: list[int]) -> Needed:
    """Find the numbers and tables that results need; a loop is needed if one of its cells or rows is."""
    of_cell: dict[int, list[int]] = {}
    of_table: dict[Table, list[int]] = {}
    sources: dict[Table, list[Table]] = {}
    for item in all_items(ops.root):
        if isinstance(item, Branch | While | Scan):
            for cell, *numbers in item.cells:
                of_cell.setdefault(cell, []).extend([*numbers, *read_by(item)])
        if isinstance(item, Scan):
            of_table |= {table: numbers for table, numbers in item.rows}
        elif isinstance(item, Fill | Put):
            of_table.setdefault(item.table, []).extend(read_by(item))
        elif isinstance(item, Largest):
            sources[item.values] = sources[item.places] = [item.source, item.values, item.places]
    needed, waiting = Needed(set(), set()), list(results)

    def need_table(table: Table) -> None:
        if table not in needed.tables:
            needed.tables.add(table)
            waiting.extend(of_table.get(table, []))
            for source in sources.get(table, []):
                need_table(source)

    while waiting:
        number = waiting.pop()
        if number in needed.numbers:
            continue
        needed.numbers.add(number)
        waiting.extend(ops.args[number])
        if ops.op[number] == CELL:
            waiting.extend(of_cell[number])
        elif ops.op[number] == FROM_TABLE:
            need_table(ops.value[number][0])
        elif ops.op[number] == FROM_ROW:
            need_table(ops.value[number][1])
    return needed
