"""The parts of a program that are not operations: tables in memory, branches, loops."""

from __future__ import annotations

import dataclasses

from jaxcontact.native.operations import Block


@dataclasses.dataclass(eq=False)
class Table:
    """Numbers side by side in memory, for places known only to the running program.

    Attributes:
        size: number of entries.
        kind: their kind.
        uniform: whether all worlds have the same numbers in it.
    """

    size: int
    kind: str
    uniform: bool = False


@dataclasses.dataclass(eq=False)
class Fill:
    """A write of numbers into a table, the first of them at `begin`."""

    table: Table
    numbers: list[int]
    begin: int


@dataclasses.dataclass(eq=False)
class Put:
    """A write of a number into a table at `address` + `offset`, in worlds whose bit `where` is set.

    `combine` is "set", or the operation with the old number of the table.
    """

    table: Table
    address: int
    offset: int
    number: int
    where: int
    combine: str = "set"


@dataclasses.dataclass(eq=False)
class Largest:
    """A write of the largest numbers of a table, in falling order, and of their places."""

    source: Table
    values: Table
    places: Table


@dataclasses.dataclass(eq=False)
class Branch:
    """A body that runs if the bit `where` is set in any world; `cells` are (cell, number) pairs."""

    where: int
    body: Block
    cells: list[tuple[int, int]]


@dataclasses.dataclass(eq=False)
class While:
    """A loop that ends when `going` is set in no world. `cells` are (cell, first, next).

    `together` tells that all worlds end in the same iteration.
    """

    condition: Block
    going: int
    body: Block
    cells: list[tuple[int, int, int]]
    together: bool


@dataclasses.dataclass(eq=False)
class Scan:
    """A loop of `length` iterations that writes `rows`, (table, numbers) each, at its counter."""

    counter: int
    length: int
    reverse: bool
    body: Block
    cells: list[tuple[int, int, int]]
    rows: list[tuple[Table, list[int]]]


@dataclasses.dataclass(eq=False)
class Assign:
    """A write of numbers into cells, where the bit `where` is set; all are read before any is written."""

    pairs: list[tuple[int, int]]
    where: int | None


@dataclasses.dataclass(eq=False)
class WriteRow:
    """A write of numbers as the row of a table at a counter."""

    table: Table
    numbers: list[int]
    counter: int


@dataclasses.dataclass(eq=False)
class Return:
    """A write of a number to its place among the results."""

    place: int
    number: int


Item = Fill | Put | Largest | Branch | While | Scan  # of a block
