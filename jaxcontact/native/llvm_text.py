"""LLVM's text of the pieces of a program: straight code, one vector of lanes for each number.

The entry function is `PieceWriter.write_piece`.
"""

from __future__ import annotations

import struct
from typing import Any  # Any: constants of each kind

from jaxcontact.native.control import Assign, Fill, Largest, Put, Return, WriteRow
from jaxcontact.native.kinds import BOOL
from jaxcontact.native.lanes import VECTOR_BYTES, Lanes
from jaxcontact.native.llvm_operations import write_operation
from jaxcontact.native.operations import CONSTANT, FROM_ROW, FROM_TABLE, INPUT, Operations
from jaxcontact.native.schedule import Entry, Piece
from jaxcontact.native.storage import Storage, cell_of


def piece_name(k: int) -> str:
    """Return the name of the function of piece k."""
    return f"piece{k}"


class PieceWriter:
    """A writer of the function of a piece: (memory, arguments, results)."""

    def __init__(self, ops: Operations, storage: Storage, lanes: Lanes) -> None:
        self.ops, self.storage, self.lanes = ops, storage, lanes
        self.lines: list[str] = []
        self._names = 0
        self._values: dict[int, str] = {}
        self._pointers: dict[int, list[str]] = {}
        self._written: set[object] = set()

    def write_piece(self, k: int, piece: Piece) -> str:
        """Write the text of piece k."""
        arguments = "ptr noalias %memory, ptr noalias %in, ptr noalias %out"
        head = f"define void @{piece_name(k)}({arguments}) noinline nounwind {{"
        self.lines, self._names, self._values, self._pointers = [head], 0, {}, {}
        self._written = {written for entry in piece.entries for written in _list_written(entry)}
        for entry in piece.entries:
            self._write_entry(entry)
        return "\n".join([*self.lines, "  ret void", "}", ""])

    def emit(self, text: str) -> str:
        """Append a line that gives a value a new name; return the name."""
        self._names += 1
        name = f"%v{self._names}"
        self.lines.append(f"  {name} = {text}")
        return name

    def use(self, number: int) -> str:
        """Return the value of a number; load it if another piece computed it."""
        number = cell_of(self.ops, number)
        if self.ops.op[number] == CONSTANT:
            return write_constant(self.ops.value[number], self.ops.kind[number], self.lanes)
        if number not in self._values:
            self._values[number] = self._write_load_of(number)
        return self._values[number]

    def write_place(self, base: str, slot: int) -> str:
        """Write a pointer to a slot; return its name."""
        return self.emit(f"getelementptr i8, ptr %{base}, i64 {slot * VECTOR_BYTES}")

    def _write_load_of(self, number: int) -> str:
        """Write the load of a number that another piece computed; return the name of its value."""
        kind, op = self.ops.kind[number], self.ops.op[number]
        if op == INPUT:
            return self._write_load(self.write_place("in", self.ops.value[number]), kind, None)
        if op == FROM_ROW:
            counter, table, column, width = self.ops.value[number]
            return self._write_load(
                self._write_row_place(counter, self.storage.tables[table] + column, width), kind, table
            )
        return self._write_load(self.write_place("memory", self.storage.slots[number]), kind, number)

    def _write_load(self, pointer: str, kind: str, owner: object) -> str:
        """Write the load of all lanes at a pointer; `owner` is the number or table that is there."""
        memory = self.lanes.vector(kind, memory=True)
        align = self.lanes.count * self.lanes.step(kind)
        value = self.emit(f"load {memory}, ptr {pointer}, align {align}{self._mark_unchanged(owner)}")
        return self.as_bits(value) if kind == BOOL else value

    def _mark_unchanged(self, owner: object) -> str:
        """Return the mark of a load that no store of this piece changes; LLVM need not compare them."""
        return "" if owner in self._written else ", !invariant.load !0"

    def as_bits(self, words: str) -> str:
        """Convert words of ones or zeros to bits."""
        return self.emit(f"trunc {self.lanes.vector(BOOL, memory=True)} {words} to {self.lanes.vector(BOOL)}")

    def _as_words(self, value: str, kind: str) -> str:
        """Convert a value to its form in memory."""
        if kind != BOOL:
            return value
        return self.emit(f"sext {self.lanes.vector(BOOL)} {value} to {self.lanes.vector(BOOL, memory=True)}")

    def _write_store(self, pointer: str, value: str, kind: str) -> None:
        """Write the store of a value of all lanes at a pointer."""
        words, memory = self._as_words(value, kind), self.lanes.vector(kind, memory=True)
        align = self.lanes.count * self.lanes.step(kind)
        self.lines.append(f"  store {memory} {words}, ptr {pointer}, align {align}")

    def _write_row_place(self, counter: int, slot: int, width: int) -> str:
        """Write a pointer to a slot of the row of a table at a counter; return its name."""
        at = self.write_place("memory", self.storage.slots[counter])
        turn = self.emit(f"load {self.lanes.word}, ptr {at}")
        if self.lanes.word != "i64":
            turn = self.emit(f"sext {self.lanes.word} {turn} to i64")
        row = self.emit(f"mul i64 {turn}, {width * VECTOR_BYTES}")
        place = self.emit(f"add i64 {row}, {slot * VECTOR_BYTES}")
        return self.emit(f"getelementptr i8, ptr %memory, i64 {place}")

    def _write_entry(self, entry: Entry) -> None:
        """Write an entry of a piece: the operation of a number, or an item of control."""
        if isinstance(entry, int):
            read = self.ops.op[entry] == FROM_TABLE
            value = self._write_table_read(entry) if read else write_operation(self, entry)
            self._values[entry] = value
            if entry in self.storage.slots:
                self._write_store(
                    self.write_place("memory", self.storage.slots[entry]), value, self.ops.kind[entry]
                )
        elif isinstance(entry, Fill):
            for k, number in enumerate(entry.numbers):
                slot = self.storage.tables[entry.table] + entry.begin + k
                self._write_store(self.write_place("memory", slot), self.use(number), entry.table.kind)
        elif isinstance(entry, Put):
            self._write_put(entry)
        elif isinstance(entry, Largest):
            self._write_largest_call(entry)
        elif isinstance(entry, Assign):
            self._write_assign(entry)
        elif isinstance(entry, WriteRow):
            for k, number in enumerate(entry.numbers):
                pointer = self._write_row_place(
                    entry.counter, self.storage.tables[entry.table] + k, len(entry.numbers)
                )
                self._write_store(pointer, self.use(number), entry.table.kind)
        elif isinstance(entry, Return):
            self._write_store(
                self.write_place("out", entry.place), self.use(entry.number), self.ops.kind[entry.number]
            )

    def _write_assign(self, entry: Assign) -> None:
        """Write numbers into cells; read all of them first."""
        values = [self.use(number) for _, number in entry.pairs]
        for k, (cell, _) in enumerate(entry.pairs if entry.where is not None else []):
            kind = self.ops.kind[cell]
            old = self._write_load(self.write_place("memory", self.storage.slots[cell]), kind, cell)
            vector = self.lanes.vector(kind)
            bit = f"{self.lanes.vector(BOOL)} {self.use(entry.where or 0)}"
            values[k] = self.emit(f"select {bit}, {vector} {values[k]}, {vector} {old}")
        for (cell, _), value in zip(entry.pairs, values, strict=True):
            self._write_store(
                self.write_place("memory", self.storage.slots[cell]), value, self.ops.kind[cell]
            )

    def _write_table_read(self, number: int) -> str:
        """Read a number from a table; return the name of its value.

        If the place depends on the world, each world reads by itself: this is quicker than a gather, and
        quicker to compile.
        """
        table, offset = self.ops.value[number]
        slot, lanes, kind = self.storage.tables[table] + offset, self.lanes, table.kind
        if not self.ops.args[number]:
            return self._write_load(self.write_place("memory", slot), kind, table)
        scalar, vector = lanes.in_memory(kind), lanes.vector(kind, memory=True)
        total = "undef"
        for k, start in enumerate(self._write_starts(self.ops.args[number][0])):
            place = slot * VECTOR_BYTES + k * lanes.step(kind)
            pointer = self.emit(f"getelementptr i8, ptr {start}, i64 {place}")
            entry = self.emit(f"load {scalar}, ptr {pointer}{self._mark_unchanged(table)}")
            total = self.emit(f"insertelement {vector} {total}, {scalar} {entry}, i32 {k}")
        return self.as_bits(total) if kind == BOOL else total

    def _write_starts(self, address: int) -> list[str]:
        """Write a pointer for each world, `address` slots after the memory's begin; return their names."""
        if address not in self._pointers:
            lanes, starts = self.lanes, []
            words, value = f"<{lanes.count} x {lanes.word}>", self.use(address)
            for k in range(lanes.count):
                at = self.emit(f"extractelement {words} {value}, i32 {k}")
                if lanes.word != "i64":
                    at = self.emit(f"sext {lanes.word} {at} to i64")
                bytes_before = self.emit(f"shl i64 {at}, {VECTOR_BYTES.bit_length() - 1}")
                starts.append(self.emit(f"getelementptr i8, ptr %memory, i64 {bytes_before}"))
            self._pointers[address] = starts
        return self._pointers[address]

    def _write_put(self, entry: Put) -> None:
        """Write a number into a table world by world, because two worlds may write to different places."""
        lanes, kind = self.lanes, entry.table.kind
        scalar = lanes.in_memory(kind)
        where = self.use(entry.where)
        new = self._as_words(self.use(entry.number), kind)
        first = (self.storage.tables[entry.table] + entry.offset) * VECTOR_BYTES
        for k, start in enumerate(self._write_starts(entry.address)):
            pointer = self.emit(f"getelementptr i8, ptr {start}, i64 {first + k * lanes.step(kind)}")
            updated = self.emit(f"extractelement {lanes.vector(kind, memory=True)} {new}, i32 {k}")
            old = self.emit(f"load {scalar}, ptr {pointer}")
            if entry.combine != "set":
                updated = self._write_combination(entry.combine, kind, updated, old)
            bit = self.emit(f"extractelement {lanes.vector(BOOL)} {where}, i32 {k}")
            stored = self.emit(f"select i1 {bit}, {scalar} {updated}, {scalar} {old}")
            self.lines.append(f"  store {scalar} {stored}, ptr {pointer}")

    def _write_combination(self, op: str, kind: str, new: str, old: str) -> str:
        """Write the combination of a new number of one world with the number in a table; return its name."""
        scalar, real = self.lanes.in_memory(kind), kind[0] == "f"
        if kind == BOOL:  # words are all ones or all zeros
            return self.emit(f"{'or' if op == 'max' else 'and'} {scalar} {old}, {new}")
        if op in ("add", "sub", "mul"):
            return self.emit(f"{'f' if real else ''}{op} {scalar} {old}, {new}")
        relation = {"max": "gt", "min": "lt"}[op]
        sign = "o" if real else "u" if kind[0] == "u" else "s"
        better = self.emit(f"{'f' if real else 'i'}cmp {sign}{relation} {scalar} {new}, {old}")
        if real:
            nan = self.emit(f"fcmp uno {scalar} {new}, {new}")
            better = self.emit(f"or i1 {better}, {nan}")
        return self.emit(f"select i1 {better}, {scalar} {new}, {scalar} {old}")

    def _write_largest_call(self, entry: Largest) -> None:
        """Write the call of the function of `write_largest`."""
        tables = (entry.source, entry.values, entry.places)
        pointers = [self.write_place("memory", self.storage.tables[table]) for table in tables]
        sizes = f"i64 {entry.source.size}, i64 {entry.values.size}"
        arguments = ", ".join(f"ptr {pointer}" for pointer in pointers)
        self.lines.append(f"  call void @largest_{entry.source.kind}({arguments}, {sizes})")


def _list_written(entry: Entry) -> list[Any]:
    """Return the tables and cells that an entry writes."""
    if isinstance(entry, Fill | Put | WriteRow):
        return [entry.table]
    if isinstance(entry, Largest):
        return [entry.values, entry.places]
    return [cell for cell, _ in entry.pairs] if isinstance(entry, Assign) else []


def write_constant(value: Any, kind: str, lanes: Lanes) -> str:
    """Write a constant in all lanes."""
    if kind == BOOL:
        text = "true" if value else "false"
    elif kind[0] == "f":  # floats of both sizes are written as the bits of a double
        text = f"0x{struct.unpack('<Q', struct.pack('<d', float(value)))[0]:016X}"
    else:
        text = str(int(value))
    if text in ("0", "false", "0x0000000000000000"):
        return "zeroinitializer"
    return lanes.splat(lanes.scalar(kind), text)
