"""The text of a program that XLA has compiled, by its computations: `CompiledText`."""

from __future__ import annotations

import dataclasses
import re

NAME = r"%([\w.\-]+)"


@dataclasses.dataclass(frozen=True)
class CompiledText:
    """The lines of each computation of a program, by its name, and the name of the first one."""

    entry: str
    computations: dict[str, list[str]]

    @classmethod
    def read(cls, text: str) -> CompiledText:
        """Split a program into its computations."""
        found, entry = {}, ""
        for block in re.split(r"\n(?=(?:ENTRY )?%[\w.\-]+ \()", text):
            if head := re.match(rf"(ENTRY )?{NAME} \(", block):
                found[head[2]] = block.splitlines()[1:]
                entry = head[2] if head[1] else entry
        return cls(entry, found)

    def loops(self, name: str) -> list[str]:
        """List the bodies of the loops in a computation, the outermost ones."""
        return [body_of(line) for line in self.computations[name] if " while(" in line]


def body_of(line: str) -> str:
    """Return the name of the body of a loop."""
    (body,) = re.findall(rf"body={NAME}", line)
    return str(body)


def branches_of(line: str) -> list[str]:
    """Return the names of the branches of a conditional."""
    return re.findall(NAME, re.sub(r".*?(branch_computations|true_computation)", "", line))
