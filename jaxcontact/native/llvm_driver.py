"""LLVM's text of the function that runs the pieces of a program: groups of worlds, loops and branches.

The entry function is `DriverWriter.write_function`.
"""

from __future__ import annotations

import platform

from jaxcontact.native.control import Branch, Scan
from jaxcontact.native.kinds import BOOL
from jaxcontact.native.lanes import VECTOR_BYTES, Lanes
from jaxcontact.native.llvm_text import piece_name
from jaxcontact.native.operations import CONSTANT, FROM_ROW, INPUT, Operations
from jaxcontact.native.schedule import Call, Schedule, Step
from jaxcontact.native.storage import Storage, cell_of

_FLUSHED = 0x8040  # bits of an x86's control word: numbers next to zero become zero, as in XLA's programs


class DriverWriter:
    """A writer of the function `run` (arguments, results, memory, number of groups)."""

    def __init__(self, ops: Operations, storage: Storage, lanes: Lanes) -> None:
        self.ops, self.storage, self.lanes = ops, storage, lanes
        self.lines: list[str] = []
        self._names = 0

    def write_function(self, schedule: Schedule, num_inputs: int, num_results: int) -> str:
        """Write the text of `run`."""
        self.lines = [f"declare void @{piece_name(k)}(ptr, ptr, ptr)" for k in range(len(schedule.pieces))]
        self.lines += ["define void @run(ptr %in0, ptr %out0, ptr %memory, i64 %groups) nounwind {", "entry:"]
        self._flush_small_numbers(True)
        self.lines += ["  br label %head", "head:", "  %group = phi i64 [0, %entry], [%next, %tail]"]
        self.lines += [
            "  %more = icmp slt i64 %group, %groups",
            "  br i1 %more, label %one, label %end",
            "one:",
        ]
        for name, size in (("in", num_inputs), ("out", num_results)):
            self.lines.append(f"  %{name}place = mul i64 %group, {size * VECTOR_BYTES}")
            self.lines.append(f"  %{name} = getelementptr i8, ptr %{name}0, i64 %{name}place")
        self._write_steps(schedule.steps)
        self.lines += ["  br label %tail", "tail:", "  %next = add i64 %group, 1", "  br label %head", "end:"]
        self._flush_small_numbers(False)
        return "\n".join([*self.lines, "  ret void", "}"])

    def _flush_small_numbers(self, begin: bool) -> None:
        """Write that an x86 takes numbers next to zero for zero, from here on or (not begin) no longer."""
        if platform.machine().lower() not in ("x86_64", "amd64"):
            return
        if not begin:
            self.lines.append("  call void @llvm.x86.sse.ldmxcsr(ptr %before)")
            return
        for name in ("stmxcsr", "ldmxcsr"):
            self.lines.insert(0, f"declare void @llvm.x86.sse.{name}(ptr)")
        self.lines += [
            "  %before = alloca i32",
            "  %during = alloca i32",
            "  call void @llvm.x86.sse.stmxcsr(ptr %before)",
            "  %word = load i32, ptr %before",
            f"  %flushed = or i32 %word, {_FLUSHED}",
            "  store i32 %flushed, ptr %during",
            "  call void @llvm.x86.sse.ldmxcsr(ptr %during)",
        ]

    def _new_name(self) -> str:
        """Return a name that no line has."""
        self._names += 1
        return f"x{self._names}"

    def _emit(self, text: str) -> str:
        """Write a line that gives a number; return its name."""
        name = f"%{self._new_name()}"
        self.lines.append(f"  {name} = {text}")
        return name

    def _write_steps(self, steps: list[Call | Step]) -> None:
        """Write calls of pieces, branches and loops in their order."""
        for step in steps:
            if isinstance(step, Call):
                self.lines.append(f"  call void @{piece_name(step.piece)}(ptr %memory, ptr %in, ptr %out)")
            elif isinstance(step.item, Branch):
                run, end = self._new_name(), self._new_name()
                self._jump_if(self._write_test_of_any(step.item.where), run, end)
                self._write_steps(step.body)
                self.lines += [f"  br label %{end}", f"{end}:"]
            elif isinstance(step.item, Scan):
                self._write_scan(step.item, step.body)
            else:
                head, run, end = self._new_name(), self._new_name(), self._new_name()
                self.lines += [f"  br label %{head}", f"{head}:"]
                self._write_steps(step.condition)
                self._jump_if(self._write_test_of_any(step.item.going), run, end)
                self._write_steps(step.body)
                self.lines += [f"  br label %{head}", f"{end}:"]

    def _jump_if(self, bit: str, run: str, end: str) -> None:
        """Write a jump to the label `run` if a bit is set, else to `end`; what follows is at `run`."""
        self.lines += [f"  br i1 {bit}, label %{run}, label %{end}", f"{run}:"]

    def _write_test_of_any(self, number: int) -> str:
        """Write the test whether a bit is set in any world; return its name or a constant."""
        number = cell_of(self.ops, number)
        if self.ops.op[number] == CONSTANT:
            return "true" if self.ops.value[number] else "false"
        words, bits = self.lanes.vector(BOOL, memory=True), self.lanes.vector(BOOL)
        place = self._write_place(number)
        loaded = self._emit(f"load {words}, ptr {place}, align {VECTOR_BYTES}")
        value = self._emit(f"trunc {words} {loaded} to {bits}")
        return self._emit(f"call i1 @llvm.vector.reduce.or.v{self.lanes.count}i1({bits} {value})")

    def _write_place(self, number: int) -> str:
        """Write a pointer to a number in memory, among the arguments or in a row; return its name."""
        lanes, op = self.lanes, self.ops.op[number]
        if op == INPUT:
            return self._emit(f"getelementptr i8, ptr %in, i64 {self.ops.value[number] * VECTOR_BYTES}")
        if op != FROM_ROW:
            return self._write_slot(number)
        counter, table, column, width = self.ops.value[number]
        turn = self._emit(f"load {lanes.word}, ptr {self._write_slot(counter)}")
        if lanes.word != "i64":
            turn = self._emit(f"sext {lanes.word} {turn} to i64")
        row = self._emit(f"mul i64 {turn}, {width * VECTOR_BYTES}")
        first = (self.storage.tables[table] + column) * VECTOR_BYTES
        place = self._emit(f"add i64 {row}, {first}")
        return self._emit(f"getelementptr i8, ptr %memory, i64 {place}")

    def _write_slot(self, number: int) -> str:
        """Write a pointer to the slot of a number in memory; return its name."""
        return self._emit(f"getelementptr i8, ptr %memory, i64 {self.storage.slots[number] * VECTOR_BYTES}")

    def _write_scan(self, item: Scan, body: list[Call | Step]) -> None:
        """Write a loop with a counter; the counter lies in memory for the numbers and rows that need it."""
        lanes = self.lanes
        before, head, run, tail, end = (self._new_name() for _ in range(5))
        turn, following = f"%{self._new_name()}", f"%{self._new_name()}"
        start, change = (item.length - 1, -1) if item.reverse else (0, 1)
        relation = "sge" if item.reverse else "slt"
        self.lines += [f"  br label %{before}", f"{before}:", f"  br label %{head}", f"{head}:"]
        self.lines.append(f"  {turn} = phi {lanes.word} [{start}, %{before}], [{following}, %{tail}]")
        limit = 0 if item.reverse else item.length
        self._jump_if(self._emit(f"icmp {relation} {lanes.word} {turn}, {limit}"), run, end)
        words = f"<{lanes.count} x {lanes.word}>"
        first_lane = self._emit(f"insertelement {words} undef, {lanes.word} {turn}, i32 0")
        places = f"<{lanes.count} x i32> zeroinitializer"
        same = self._emit(f"shufflevector {words} {first_lane}, {words} undef, {places}")
        self.lines.append(
            f"  store {words} {same}, ptr {self._write_slot(item.counter)}, align {VECTOR_BYTES}"
        )
        self._write_steps(body)
        self.lines += [
            f"  br label %{tail}",
            f"{tail}:",
            f"  {following} = add {lanes.word} {turn}, {change}",
        ]
        self.lines += [f"  br label %{head}", f"{end}:"]


def write_largest(kind: str, lanes: Lanes) -> str:
    """Write the function that fills two tables with the largest numbers of a third, and their places.

    The tables hold the largest numbers so far. Each number is compared with them from the top and takes the
    place of the first smaller one; that one and all below it move down by one. A number that is larger than
    the last in no world is skipped. Numbers are integers.
    """
    vector, bits, word = lanes.vector(kind), lanes.vector(BOOL), lanes.word
    words = f"<{lanes.count} x {word}>"
    align = lanes.count * lanes.step(kind)
    greater = f"icmp {'u' if kind[0] == 'u' else 's'}gt"
    count = "i64" if word == "i64" else "i32"
    narrow = "" if count == "i64" else "  %k32 = trunc i64 %k to i32\n"
    k_word = "%k" if count == "i64" else "%k32"
    return f"""
define void @largest_{kind}(ptr %source, ptr %values, ptr %places, i64 %size, i64 %count) noinline nounwind {{
entry:
  br label %numbers
numbers:
  %k = phi i64 [0, %entry], [%k1, %placed]
  %more = icmp slt i64 %k, %size
  br i1 %more, label %number, label %end
number:
  %at = mul i64 %k, {VECTOR_BYTES}
  %from = getelementptr i8, ptr %source, i64 %at
  %own = load {vector}, ptr %from, align {align}
{narrow}  %one = insertelement {words} undef, {word} {k_word}, i32 0
  %ownplace = shufflevector {words} %one, {words} undef, <{lanes.count} x i32> zeroinitializer
  %full = icmp sge i64 %k, %count
  br i1 %full, label %test, label %down
test:
  %lastslot = sub i64 %count, 1
  %lastat = mul i64 %lastslot, {VECTOR_BYTES}
  %lastfrom = getelementptr i8, ptr %values, i64 %lastat
  %last = load {vector}, ptr %lastfrom, align {align}
  %isabove = {greater} {vector} %own, %last
  %any = call i1 @llvm.vector.reduce.or.v{lanes.count}i1({bits} %isabove)
  br i1 %any, label %down, label %placed
down:
  %end0 = select i1 %full, i64 %count, i64 %k
  br label %slots
slots:
  %s = phi i64 [0, %down], [%s1, %slot]
  %value = phi {vector} [%own, %down], [%lower, %slot]
  %place = phi {words} [%ownplace, %down], [%lowerplace, %slot]
  %moved = phi {bits} [zeroinitializer, %down], [%better, %slot]
  %inside = icmp slt i64 %s, %end0
  br i1 %inside, label %slot, label %bottom
slot:
  %sat = mul i64 %s, {VECTOR_BYTES}
  %svalue = getelementptr i8, ptr %values, i64 %sat
  %splace = getelementptr i8, ptr %places, i64 %sat
  %old = load {vector}, ptr %svalue, align {align}
  %oldplace = load {words}, ptr %splace, align {VECTOR_BYTES}
  %above = {greater} {vector} %value, %old
  %better = or {bits} %above, %moved
  %upper = select {bits} %better, {vector} %value, {vector} %old
  %lower = select {bits} %better, {vector} %old, {vector} %value
  %upperplace = select {bits} %better, {words} %place, {words} %oldplace
  %lowerplace = select {bits} %better, {words} %oldplace, {words} %place
  store {vector} %upper, ptr %svalue, align {align}
  store {words} %upperplace, ptr %splace, align {VECTOR_BYTES}
  %s1 = add i64 %s, 1
  br label %slots
bottom:
  br i1 %full, label %placed, label %append
append:
  %kvalue = getelementptr i8, ptr %values, i64 %at
  %kplace = getelementptr i8, ptr %places, i64 %at
  store {vector} %value, ptr %kvalue, align {align}
  store {words} %place, ptr %kplace, align {VECTOR_BYTES}
  br label %placed
placed:
  %k1 = add i64 %k, 1
  br label %numbers
end:
  ret void
}}"""
