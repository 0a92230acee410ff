"""Loops that XLA moved out of the loops in which the source has them, and so runs even if those do not run."""

import re


def loops_moved_out(program):
    """List the names of such loops in the text of a compiled program."""
    computations, entry = {}, None
    for text in re.split(r"\n(?=%|ENTRY)", program):
        if head := re.match(r"(ENTRY )?%?([\w.\-]+)", text):
            computations[head[2]] = text.split("\n")[1:]
            entry = head[2] if head[1] else entry
    moved = []

    def walk(name, depth):
        for line in computations[name]:
            if " while(" in line:
                (source,) = re.findall(r'op_name="([^"]*)"', line)
                if source.count("while/body") > depth:
                    moved.append(source)
                walk(*re.findall(r"body=%?([\w.\-]+)", line), depth + 1)
            elif branches := re.search(r"branch_computations=\{([^}]*)\}", line):
                for branch in branches[1].split(","):
                    walk(branch.strip().lstrip("%"), depth)
            elif " call(" in line:
                walk(*re.findall(r"to_apply=%?([\w.\-]+)", line), depth)

    walk(entry, 0)
    return moved
