"""Machine code as a target of XLA's foreign function interface on a CPU, without Python in between.

The entry function is `register`. The handler is LLVM text. It copies the numbers of a group of worlds into
slots, runs the program on them and writes its results, on XLA's own threads. Offsets are those of the C
structures in `xla/ffi/api/c_api.h`.
"""

from __future__ import annotations

import ctypes
import dataclasses
import hashlib
from typing import Any

import jax

from jaxcontact.native import llvm_worker
from jaxcontact.native.jaxprs import Array
from jaxcontact.native.kinds import BOOL, is_float, kind_of
from jaxcontact.native.lanes import VECTOR_BYTES, Lanes
from jaxcontact.native.machine_code import MachineCode

CHUNKS = 8  # chunks of groups per thread: other threads take over the chunks of a late thread
_ALIGNMENT = 64  # bytes of a cache line
# Offsets in bytes: in a call, in one of its buffers, in the table of functions.
_EXTENSION, _API, _CONTEXT, _ARGUMENTS, _RESULTS, _FUTURE = 8, 16, 24, 72, 112, 168
_DATA, _DIMENSIONS = 24, 40
_ERROR_CREATE, _ERROR_DESTROY, _SCHEDULE, _FUTURE_CREATE, _SET_AVAILABLE = 48, 64, 136, 152, 160
_RESOURCE_EXHAUSTED = 8  # XLA's code of the error "no memory left"
_METADATA = 24  # bytes, in a call that asks for the version; entries: version 0.3, no traits, no state
_METADATA_ENTRIES = {24: "i32 0", 28: "i32 3", 32: "i32 0", 40: "i64 0"}
# Indices of the words in the record that all threads of one call share; pointers to the buffers follow.
_NEXT, _ACTIVE, _TICKETS, _SIZE, _GROUPS, _PER_CHUNK, _API_WORD, _FUTURE_WORD, _WORK = range(9)
_POINTERS = 9  # index of the first word that points to a buffer

_TARGETS: dict[str, Any] = {}  # keeps the objects of each registered target alive


@dataclasses.dataclass(frozen=True)
class Operand:
    """An argument or a result: the array that one world has, and whether all worlds share it."""

    array: Array
    shared: bool = False


def register(
    code: MachineCode, lanes: Lanes, arguments: list[Operand], results: list[Operand], cores: int
) -> str:
    """Register a program as a target of XLA, if it is new; return the target's name, with a digest of it."""
    writer = _Writer(lanes, arguments, results, code.memory_bytes, cores)
    digest = hashlib.sha256("\n".join([code.digest, writer.write_module(0)]).encode()).hexdigest()
    name = f"jaxcontact_simd_{digest[:40]}"
    if name not in _TARGETS:
        engine = llvm_worker.link([llvm_worker.compile_text(writer.write_module(code.address), 1)])
        handler = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)(engine.get_function_address("handler"))
        jax.ffi.register_ffi_target(name, jax.ffi.pycapsule(handler), platform="cpu")
        _TARGETS[name] = engine, handler, code
    return name


class _Writer:
    """Writes the functions `handler` of a call, `worker` of a record, `gather` and `scatter` of a group."""

    def __init__(
        self, lanes: Lanes, arguments: list[Operand], results: list[Operand], memory_bytes: int, cores: int
    ) -> None:
        self.lanes, self.arguments, self.results, self.cores = lanes, arguments, results, cores
        self.in_bytes, self.out_bytes = (
            VECTOR_BYTES * sum(operand.array.size for operand in operands)
            for operands in (arguments, results)
        )
        size = self.in_bytes + self.out_bytes + memory_bytes
        self.work_bytes = -(-size // _ALIGNMENT) * _ALIGNMENT
        words = _POINTERS + len(arguments) + len(results)
        self.record_bytes = -(-8 * words // _ALIGNMENT) * _ALIGNMENT

    def write_module(self, run: int) -> str:
        """Write the LLVM module of the handler; `run` is the address of the program."""
        return "\n".join(
            [
                "declare ptr @malloc(i64)",
                "declare void @free(ptr)",
                "declare i64 @llvm.smin.i64(i64, i64)",
                "declare i64 @llvm.smax.i64(i64, i64)",
                "declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)",
                '@full = private constant [36 x i8] c"jc.simd: no memory for a batch left\\00"',
                self._write_copies("gather", self.arguments, 0),
                self._write_copies("scatter", self.results, len(self.arguments)),
                self._write_worker(run),
                self._write_handler(),
            ]
        )

    def _write_copies(self, name: str, operands: list[Operand], first: int) -> str:
        """Write `gather` or `scatter` (record, slots, group), which copies operands lane by lane."""
        lines = [f"define internal void @{name}(ptr %record, ptr %slots, i64 %group) nounwind {{", "entry:"]
        lines += _write_word_load("size", _SIZE)
        lines += ["  %last = sub i64 %size, 1", f"  %begin = mul i64 %group, {self.lanes.count}"]
        for k in range(self.lanes.count):
            lines.append(f"  %world{k} = add i64 %begin, {k}")
            lines.append(f"  %held{k} = call i64 @llvm.smin.i64(i64 %world{k}, i64 %last)")
        slot, before = 0, "entry"
        for k, operand in enumerate(operands):
            count = operand.array.size
            if not count:
                continue
            lines += _write_pointer_load(f"data{k}", "%record", 8 * (_POINTERS + first + k))
            lines += [f"  br label %loop{k}", f"loop{k}:"]
            lines.append(f"  %j{k} = phi i64 [0, %{before}], [%following{k}, %tail{k}]")
            lines.append(f"  %slot{k} = add i64 %j{k}, {slot}")
            lines.append(f"  %at{k} = mul i64 %slot{k}, {VECTOR_BYTES}")
            lines.append(f"  %place{k} = getelementptr i8, ptr %slots, i64 %at{k}")
            for world in range(self.lanes.count):
                lines += self._write_copy(name == "gather", k, world, operand)
            lines += [f"  br label %tail{k}", f"tail{k}:", f"  %following{k} = add i64 %j{k}, 1"]
            lines.append(f"  %more{k} = icmp slt i64 %following{k}, {count}")
            lines += [f"  br i1 %more{k}, label %loop{k}, label %after{k}", f"after{k}:"]
            slot, before = slot + count, f"after{k}"
        return "\n".join([*lines, "  ret void", "}"])

    def _write_address(self, k: int, world: int, operand: Operand) -> tuple[str, str, list[str]]:
        """Compute pointers to a number of one world in its buffer and in its slot; return names and lines."""
        kind, name = kind_of(operand.array.dtype), f"{k}x{world}"
        element = 1 if kind == BOOL else int(kind[1])
        lines = []
        if operand.shared:
            lines.append(f"  %n{name} = add i64 %j{k}, 0")
        else:
            lines.append(f"  %row{name} = mul i64 %held{world}, {operand.array.size}")
            lines.append(f"  %n{name} = add i64 %row{name}, %j{k}")
        lines.append(f"  %bytes{name} = mul i64 %n{name}, {element}")
        lines.append(f"  %outside{name} = getelementptr i8, ptr %data{k}, i64 %bytes{name}")
        offset = world * self.lanes.step(kind)
        lines.append(f"  %inside{name} = getelementptr i8, ptr %place{k}, i64 {offset}")
        return f"%outside{name}", f"%inside{name}", lines

    def _write_copy(self, gathers: bool, k: int, world: int, operand: Operand) -> list[str]:
        """Write the copy of a number of one world from its buffer to its slot, or (not gathers) back.

        Lanes after the last world compute that world and write it again.
        """
        outside, inside, lines = self._write_address(k, world, operand)
        kind, name = kind_of(operand.array.dtype), f"{k}x{world}"
        small, large = _types_of(kind, self.lanes)
        source, target = (small, large) if gathers else (large, small)
        lines.append(f"  %number{name} = load {source}, ptr {outside if gathers else inside}")
        value = f"%number{name}"
        if kind == BOOL:
            lines.append(f"  %bit{name} = icmp ne {source} {value}, 0")
            lines.append(f"  %copy{name} = {'sext' if gathers else 'zext'} i1 %bit{name} to {target}")
            value = f"%copy{name}"
        elif small != large:
            widen = "zext" if kind[0] == "u" else "sext"
            lines.append(f"  %copy{name} = {widen if gathers else 'trunc'} {source} {value} to {target}")
            value = f"%copy{name}"
        return [*lines, f"  store {target} {value}, ptr {inside if gathers else outside}"]

    def _write_worker(self, run: int) -> str:
        """Write the function of a thread.

        It runs chunks of groups until none is left; the last thread tells XLA and frees the memory.
        """
        lines = ["define internal void @worker(ptr %record) nounwind {", "entry:"]
        lines += [f"  %run = inttoptr i64 {run} to ptr"]
        for name, word in (("next", _NEXT), ("active", _ACTIVE), ("tickets", _TICKETS)):
            lines.append(f"  %{name} = getelementptr i8, ptr %record, i64 {8 * word}")
        lines += _write_word_load("groups", _GROUPS) + _write_word_load("per", _PER_CHUNK)
        lines += _write_pointer_load("api", "%record", 8 * _API_WORD) + _write_pointer_load(
            "future", "%record", 8 * _FUTURE_WORD
        )
        lines += _write_pointer_load("work", "%record", 8 * _WORK)
        lines += [
            "  %ticket = atomicrmw add ptr %tickets, i64 1 seq_cst",
            f"  %before = mul i64 %ticket, {self.work_bytes}",
            "  %in = getelementptr i8, ptr %work, i64 %before",
            f"  %out = getelementptr i8, ptr %in, i64 {self.in_bytes}",
            f"  %memory = getelementptr i8, ptr %out, i64 {self.out_bytes}",
            f"  call void @llvm.memset.p0.i64(ptr %in, i8 0, i64 {self.work_bytes}, i1 false)",
            "  br label %chunk",
            "chunk:",
            "  %k = atomicrmw add ptr %next, i64 1 seq_cst",
            "  %first = mul i64 %k, %per",
            "  %end0 = add i64 %first, %per",
            "  %end = call i64 @llvm.smin.i64(i64 %end0, i64 %groups)",
            "  br label %head",
            "head:",
            "  %group = phi i64 [%first, %chunk], [%following, %body]",
            "  %inside = icmp slt i64 %group, %end",
            "  br i1 %inside, label %body, label %done",
            "body:",
            "  call void @gather(ptr %record, ptr %in, i64 %group)",
            "  call void %run(ptr %in, ptr %out, ptr %memory, i64 1)",
            "  call void @scatter(ptr %record, ptr %out, i64 %group)",
            "  %following = add i64 %group, 1",
            "  br label %head",
            "done:",
            "  %more = icmp slt i64 %end0, %groups",
            "  br i1 %more, label %chunk, label %leave",
            "leave:",
            "  %others = atomicrmw sub ptr %active, i64 1 seq_cst",
            "  %islast = icmp eq i64 %others, 1",
            "  br i1 %islast, label %last, label %return",
            "last:",
            "  call void @free(ptr %record)",
            "  %isasync = icmp ne ptr %future, null",
            "  br i1 %isasync, label %tell, label %return",
            "tell:",
            *_write_call("told", _SET_AVAILABLE, ["ptr %future"]),
            "  br label %return",
            "return:",
            "  ret void",
            "}",
        ]
        return "\n".join(lines)

    def _write_handler(self) -> str:
        """Write the function that XLA calls."""
        lines = [
            "define ptr @handler(ptr %call) nounwind {",
            "entry:",
            *self._write_version(),
            *self._write_record(),
        ]
        lines += [
            "  %isalone = icmp eq i64 %threads, 1",
            "  br i1 %isalone, label %own, label %share",
            "share:",
            *_write_call("created", _FUTURE_CREATE, ["ptr null"]),
            "  %future = load ptr, ptr %createdfield2",
            f"  store ptr %future, ptr %word{_FUTURE_WORD}",
            f"  %futureplace = getelementptr i8, ptr %call, i64 {_FUTURE}",
            "  store ptr %future, ptr %futureplace",
            "  br label %schedule",
            "schedule:",
            "  %thread = phi i64 [1, %share], [%following, %scheduled]",
            *_write_call("refused", _SCHEDULE, ["ptr %context", "ptr @worker", "ptr %record"]),
            "  %isrefused = icmp ne ptr %refused, null",
            "  br i1 %isrefused, label %inline, label %scheduled",
            "inline:",
            *_write_call("destroyed", _ERROR_DESTROY, ["ptr %refused"]),
            "  call void @worker(ptr %record)",
            "  br label %scheduled",
            "scheduled:",
            "  %following = add i64 %thread, 1",
            "  %ismore = icmp slt i64 %following, %threads",
            "  br i1 %ismore, label %schedule, label %own",
            "own:",
            "  call void @worker(ptr %record)",
            "  ret ptr null",
            "}",
        ]
        return "\n".join(lines)

    def _write_version(self) -> list[str]:
        """Write the answer to a call that asks for the version of the interface."""
        lines = _write_pointer_load("extension", "%call", _EXTENSION)
        lines += [
            "  %isquestion = icmp ne ptr %extension, null",
            "  br i1 %isquestion, label %version, label %begin",
            "version:",
            *_write_pointer_load("metadata", "%extension", _METADATA),
        ]
        for offset, entry in _METADATA_ENTRIES.items():
            lines.append(f"  %field{offset} = getelementptr i8, ptr %metadata, i64 {offset}")
            lines.append(f"  store {entry}, ptr %field{offset}")
        return [*lines, "  ret ptr null", "begin:"]

    def _write_record(self) -> list[str]:
        """Allocate and fill the record of a call, followed by the memory of each thread."""
        lines = []
        offsets = {"api": _API, "context": _CONTEXT, "arguments": _ARGUMENTS, "results": _RESULTS}
        for name, offset in offsets.items():
            lines += _write_pointer_load(name, "%call", offset)
        lines += [
            *_write_pointer_load("first", "%results", 0),
            *_write_pointer_load("dimensions", "%first", _DIMENSIONS),
        ]
        lines += [
            "  %size = load i64, ptr %dimensions",
            f"  %rounded = add i64 %size, {self.lanes.count - 1}",
            f"  %groups = sdiv i64 %rounded, {self.lanes.count}",
            f"  %portion = sdiv i64 %groups, {self.cores * CHUNKS}",
            "  %per = call i64 @llvm.smax.i64(i64 %portion, i64 1)",
            f"  %atmost = call i64 @llvm.smin.i64(i64 %groups, i64 {self.cores})",
            "  %threads = call i64 @llvm.smax.i64(i64 %atmost, i64 1)",
            f"  %works = mul i64 %threads, {self.work_bytes}",
            f"  %bytes = add i64 %works, {self.record_bytes + _ALIGNMENT}",
            "  %record = call ptr @malloc(i64 %bytes)",
            "  %isfull = icmp eq ptr %record, null",
            "  br i1 %isfull, label %full, label %fill",
            "full:",
            *_write_call("error", _ERROR_CREATE, ["ptr @full", f"i64 {_RESOURCE_EXHAUSTED}"]),
            "  ret ptr %error",
            "fill:",
            f"  %behind = getelementptr i8, ptr %record, i64 {self.record_bytes + _ALIGNMENT}",
            "  %raw = ptrtoint ptr %behind to i64",
            f"  %even = and i64 %raw, -{_ALIGNMENT}",
            "  %work = inttoptr i64 %even to ptr",
        ]
        words = {_NEXT: "i64 0", _ACTIVE: "i64 %threads", _TICKETS: "i64 0", _SIZE: "i64 %size"}
        words |= {_GROUPS: "i64 %groups", _PER_CHUNK: "i64 %per", _API_WORD: "ptr %api"}
        words |= {_FUTURE_WORD: "ptr null", _WORK: "ptr %work"}
        for word, entry in words.items():
            lines.append(f"  %word{word} = getelementptr i8, ptr %record, i64 {8 * word}")
            lines.append(f"  store {entry}, ptr %word{word}")
        for k in range(len(self.arguments) + len(self.results)):
            is_argument = k < len(self.arguments)
            base, place = ("%arguments", k) if is_argument else ("%results", k - len(self.arguments))
            lines += _write_pointer_load(f"buffer{k}", base, 8 * place)
            lines += _write_pointer_load(f"data{k}", f"%buffer{k}", _DATA)
            lines.append(f"  %pointer{k} = getelementptr i8, ptr %record, i64 {8 * (_POINTERS + k)}")
            lines.append(f"  store ptr %data{k}, ptr %pointer{k}")
        return lines


def _types_of(kind: str, lanes: Lanes) -> tuple[str, str]:
    """Return LLVM's types of a number in a buffer of XLA and in a slot."""
    small = "i8" if kind == BOOL else lanes.scalar(kind) if is_float(kind) else f"i{8 * int(kind[1])}"
    return small, lanes.in_memory(kind)


def _write_pointer_load(name: str, base: str, offset: int) -> list[str]:
    """Write the load of a pointer from `offset` bytes after a base."""
    return [
        f"  %{name}at = getelementptr i8, ptr {base}, i64 {offset}",
        f"  %{name} = load ptr, ptr %{name}at",
    ]


def _write_word_load(name: str, word: int) -> list[str]:
    """Write the load of an integer, the word of the record with this index."""
    return [
        f"  %{name}at = getelementptr i8, ptr %record, i64 {8 * word}",
        f"  %{name} = load i64, ptr %{name}at",
    ]


def _write_call(name: str, offset: int, values: list[str]) -> list[str]:
    """Write a call of one of XLA's functions; its argument is a structure of its size, null, and values."""
    lines = [f"  %{name}args = alloca [{2 + len(values)} x i64]"]
    for k, value in enumerate([f"i64 {8 * (2 + len(values))}", "ptr null", *values]):
        lines.append(f"  %{name}field{k} = getelementptr i8, ptr %{name}args, i64 {8 * k}")
        lines.append(f"  store {value}, ptr %{name}field{k}")
    lines += _write_pointer_load(f"{name}function", "%api", offset)
    return [*lines, f"  %{name} = call ptr %{name}function(ptr %{name}args)"]
