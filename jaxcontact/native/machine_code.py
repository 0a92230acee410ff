"""The way from the operations of a program to a function of the CPU. The entry is `MachineCode`."""

from __future__ import annotations

import ctypes
import warnings
from collections.abc import Callable

from jaxcontact.native import llvm_worker, object_files
from jaxcontact.native.control import Largest
from jaxcontact.native.lanes import VECTOR_BYTES, Lanes
from jaxcontact.native.llvm_driver import DriverWriter, write_largest
from jaxcontact.native.llvm_operations import write_declarations
from jaxcontact.native.llvm_text import PieceWriter
from jaxcontact.native.needed import all_items, find_needed
from jaxcontact.native.operations import Block, Operations
from jaxcontact.native.schedule import make_schedule
from jaxcontact.native.storage import make_storage

MANY = 750_000  # operations; compiling more may take minutes, so that a warning is given
LARGE = 500_000  # operations outside of loops in loops; LLVM compiles more at level 0, three times as quickly
# Level 2 takes longer for no quicker code, because `operations` has simplified it. Code of level 0 takes 1.3
# times as long.

Run = Callable[[int, int, int, int], None]


class MachineCode:
    """A compiled program.

    Attributes:
        run: (arguments, results, memory, groups of worlds): three addresses and a number.
        address: of `run`.
        digest: of its text, this CPU and the version of the compiler.
        memory_bytes: of the memory that a thread needs.
        num_operations: number of operations of one world.
    """

    def __init__(
        self, ops: Operations, results: list[int], num_inputs: int, lanes: Lanes, workers: int
    ) -> None:
        needed = find_needed(ops, results)
        if len(needed.numbers) > MANY:
            warnings.warn(
                f"function: jc.simd compiles {len(needed.numbers)} operations of one world, which may take "
                "minutes; jc.on_all_cores(jax.vmap(function)) is there for such programs",
                stacklevel=6,
            )
        schedule = make_schedule(ops, needed, results)
        storage = make_storage(ops, schedule)
        self.num_operations = len(needed.numbers)
        self.memory_bytes = max(1, storage.size) * VECTOR_BYTES
        writer = PieceWriter(ops, storage, lanes)
        straight = sum(len(piece.entries) for piece in schedule.pieces if not _is_repeated(piece.block))
        texts: tuple[list[str], list[str]] = [], []  # by level
        for k, piece in enumerate(schedule.pieces):
            texts[_level_of(piece.block, straight)].append(writer.write_piece(k, piece))
        kinds = sorted({item.source.kind for item in all_items(ops.root) if isinstance(item, Largest)})
        driver = [DriverWriter(ops, storage, lanes).write_function(schedule, num_inputs, len(results))]
        driver += [write_largest(kind, lanes) for kind in kinds]
        calls = [f"declare void @largest_{kind}(ptr, ptr, ptr, i64, i64)" for kind in kinds]
        head = write_declarations(lanes)
        modules = [("\n".join([head, *driver]), 1)]
        for level in (1, 0):
            modules += [
                ("\n".join([head, *calls, *share]), level) for share in _share_out(texts[level], workers)
            ]
        self.digest = object_files.object_name("\n".join(f"{level}\n{text}" for text, level in modules), 1)
        self._engine = llvm_worker.link(object_files.read_or_compile(modules, workers))
        signature = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 3, ctypes.c_int64)
        self.address: int = self._engine.get_function_address("run")
        self.run: Run = signature(self.address)


def _is_repeated(block: Block) -> bool:
    """Tell whether a block runs in a loop inside of a loop, as a search does in each step of a motion."""
    loops = 0
    around: Block | None = block
    while around is not None:
        loops += around.is_of_loop
        around = around.parent
    return loops > 1


def _level_of(block: Block, straight: int) -> int:
    """Choose LLVM's level for a block: 0 where compiling would take more time than it saves, else 1.

    `straight` counts the operations of the program outside of loops in loops.
    """
    if block.runs_seldom:
        return int(block.is_of_loop)
    return int(_is_repeated(block) or straight <= LARGE)


def check_llvmlite() -> None:
    """Raise ImportError, with the remedy, if llvmlite is missing."""
    try:
        import llvmlite  # noqa: F401
    except ImportError as error:
        raise ImportError("jc.simd needs llvmlite: pip install 'jaxcontact[simd]'") from error


def _share_out(pieces: list[str], workers: int) -> list[list[str]]:
    """Divide pieces into lists of about equal length, one per worker; short pieces into one list, if any."""
    total = sum(map(len, pieces))
    count = min(1, len(pieces)) if total < object_files.APART else workers
    shares: list[list[str]] = [[] for _ in range(count)]
    sizes = [0] * count
    for piece in sorted(pieces, key=len, reverse=True):
        shortest = sizes.index(min(sizes))
        shares[shortest].append(piece)
        sizes[shortest] += len(piece)
    return shares
