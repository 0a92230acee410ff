"""Loops that XLA moved out of the loops in which the source has them, and so runs even if those do not run."""

import re

from benchmarks.compiled_text import NAME, CompiledText, body_of, branches_of


def loops_moved_out(text):
    """List the names of such loops in the text of a compiled program."""
    program, moved = CompiledText.read(text), []

    def walk(name, depth):
        for line in program.computations[name]:
            if " while(" in line:
                (source,) = re.findall(r'op_name="([^"]*)"', line)
                if source.count("while/body") > depth:
                    moved.append(source)
                walk(body_of(line), depth + 1)
            elif " conditional(" in line:
                for branch in branches_of(line):
                    walk(branch, depth)
            elif " call(" in line:
                walk(*re.findall(f"to_apply={NAME}", line), depth)

    walk(program.entry, 0)
    return moved
