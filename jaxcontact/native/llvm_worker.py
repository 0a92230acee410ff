"""A process of its own that reads LLVM text on the standard input and writes machine code to the output.

`llvmlite` compiles one module at a time in a process, so that the use of other cores needs other processes.
This file is run by its path and imports nothing of the package: it starts in a tenth of a second.
"""

from __future__ import annotations

import sys
from typing import Any  # Any: llvmlite has no types


def target_machine(level: int) -> Any:
    """Return LLVM's description of the CPU of this machine, which compiles at a level of optimisation."""
    import llvmlite.binding as llvm

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    return llvm.Target.from_default_triple().create_target_machine(
        cpu=llvm.get_host_cpu_name(),
        features=llvm.get_host_cpu_features().flatten(),
        opt=level,
    )


def compile_text(text: str, level: int) -> bytes:
    """Compile LLVM text at a level of optimisation; return the object file."""
    import llvmlite.binding as llvm

    machine = target_machine(level)
    module = llvm.parse_assembly(text)
    code: bytes = machine.emit_object(module)
    return code


def link(objects: list[bytes]) -> Any:
    """Link object files; return an engine that holds their code."""
    import llvmlite.binding as llvm

    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), target_machine(0))
    for code in objects:
        engine.add_object_file(llvm.ObjectFileRef.from_data(code))
    engine.finalize_object()
    return engine


if __name__ == "__main__":
    sys.stdout.buffer.write(compile_text(sys.stdin.buffer.read().decode(), int(sys.argv[1])))
