"""From the operations of a program to a function of the CPU."""

from __future__ import annotations

import ctypes
import hashlib
import os
import subprocess
import sys
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import jax

from jaxcontact.native import llvm_worker
from jaxcontact.native.control import Largest
from jaxcontact.native.lanes import VECTOR_BYTES, Lanes
from jaxcontact.native.llvm_driver import DriverWriter, largest
from jaxcontact.native.llvm_operations import declarations
from jaxcontact.native.llvm_text import PieceWriter
from jaxcontact.native.needed import all_items, find_needed
from jaxcontact.native.operations import Operations
from jaxcontact.native.schedule import make_schedule
from jaxcontact.native.storage import make_storage

APART = 200_000  # characters of text from which on compiling it takes longer than starting a process
MANY = 750_000  # operations: a warning says that compiling so many takes long

CACHE = "jax_compilation_cache_dir"  # JAX's setting: a folder, or None

Run = Callable[[int, int, int, int], None]


class MachineCode:
    """A compiled program.

    Attributes:
        run: (arguments, results, memory, groups of worlds), three addresses and a number.
        memory_bytes: of the memory that a thread needs.
        num_operations: how many operations it has.
    """

    def __init__(
        self, ops: Operations, results: list[int], num_inputs: int, lanes: Lanes, workers: int
    ) -> None:
        needed = find_needed(ops, results)
        if len(needed.numbers) > MANY:
            warnings.warn(
                f"function: jc.simd compiles {len(needed.numbers)} operations of one world, which may take "
                "minutes; jc.on_all_cores(jax.vmap(function)) is there for such programs",
                stacklevel=4,
            )
        schedule = make_schedule(ops, needed, results)
        storage = make_storage(ops, schedule)
        self.num_operations = len(needed.numbers)
        self.memory_bytes = max(1, storage.size) * VECTOR_BYTES
        writer = PieceWriter(ops, storage, lanes)
        pieces = [writer.function(k, piece) for k, piece in enumerate(schedule.pieces)]
        kinds = sorted({item.source.kind for item in all_items(ops.root) if isinstance(item, Largest)})
        driver = [DriverWriter(ops, storage, lanes).function(schedule, num_inputs, len(results))]
        driver += [largest(kind, lanes) for kind in kinds]
        calls = [f"declare void @largest_{kind}(ptr, ptr, ptr, i64, i64)" for kind in kinds]
        head = declarations(lanes)
        modules = ["\n".join([head, *driver])]
        modules += ["\n".join([head, *calls, *share]) for share in _shares(pieces, workers)]
        self._engine = _linked(_compiled(modules, workers))
        signature = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 3, ctypes.c_int64)
        self.run: Run = signature(self._engine.get_function_address("run"))


def check_llvmlite() -> None:
    """Raise ImportError, with what to do, where LLVM is missing."""
    try:
        import llvmlite  # noqa: F401
    except ImportError as error:
        raise ImportError("jc.simd needs llvmlite: pip install 'jaxcontact[simd]'") from error


def _shares(pieces: list[str], workers: int) -> list[list[str]]:
    """Pieces in lists of about equal length, one per worker; one list of all where they are short."""
    total = sum(map(len, pieces))
    count = 1 if total < APART else workers
    shares: list[list[str]] = [[] for _ in range(count)]
    sizes = [0] * count
    for piece in sorted(pieces, key=len, reverse=True):
        least = sizes.index(min(sizes))
        shares[least].append(piece)
        sizes[least] += len(piece)
    return shares


def _compiled(modules: list[str], workers: int) -> list[bytes]:
    """Object files of modules, the long ones in processes of their own."""
    with ThreadPoolExecutor(workers) as pool:
        return list(pool.map(_object_file, modules))


def _object_file(text: str) -> bytes:
    """The object file of a module, from JAX's folder of compiled programs where there is one."""
    folder = getattr(jax.config, CACHE, None)
    if folder is None:
        return _fresh(text)
    import llvmlite
    from llvmlite import binding

    machine = (
        f"{llvmlite.__version__} {binding.get_host_cpu_name()} {binding.get_host_cpu_features().flatten()}"
    )
    name = hashlib.sha256(f"{machine}\n{text}".encode()).hexdigest()
    path = Path(folder) / f"jaxcontact-native-{name}.o"
    try:
        return path.read_bytes()
    except OSError:
        pass
    code = _fresh(text)
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(f".{os.getpid()}")
    part.write_bytes(code)
    part.replace(path)
    return code


def _fresh(text: str) -> bytes:
    if len(text) < APART:
        return llvm_worker.machine_code(text)
    worker = [sys.executable, "-I", llvm_worker.__file__]
    done = subprocess.run(worker, input=text.encode(), capture_output=True, check=False)
    if done.returncode:  # a frozen program, say, has no interpreter of its own
        return llvm_worker.machine_code(text)
    return done.stdout


def _linked(objects: list[bytes]) -> Any:
    """An engine that holds the code of object files."""
    import llvmlite.binding as llvm

    machine = llvm_worker.target_machine()
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), machine)
    for code in objects:
        engine.add_object_file(llvm.ObjectFileRef.from_data(code))
    engine.finalize_object()
    return engine
