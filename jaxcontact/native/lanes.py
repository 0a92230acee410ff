"""The layout of worlds side by side in memory and in the types of LLVM."""

from __future__ import annotations

import dataclasses

from jaxcontact.native.kinds import BOOL, is_float, numpy_type

VECTOR_BYTES = 32  # bytes of one vector of all lanes


def _bytes(kind: str) -> int:
    return 1 if kind == BOOL else int(kind[1])


@dataclasses.dataclass(frozen=True)
class Lanes:
    """Lanes of `width` bytes each.

    Integers and bits are as wide as a lane, so that a comparison of any numbers can select others.
    """

    width: int

    @property
    def count(self) -> int:
        """The number of worlds side by side."""
        return VECTOR_BYTES // self.width

    @property
    def word(self) -> str:
        """LLVM's integer as wide as a lane."""
        return f"i{8 * self.width}"

    @property
    def index_kind(self) -> str:
        """The kind of addresses."""
        return f"i{self.width}"

    def scalar(self, kind: str) -> str:
        """Return LLVM's type of one number."""
        if kind == BOOL:
            return "i1"
        return {"f8": "double", "f4": "float"}.get(kind, self.word)

    def in_memory(self, kind: str) -> str:
        """Return LLVM's type of one number in memory."""
        return self.word if kind == BOOL else self.scalar(kind)

    def step(self, kind: str) -> int:
        """Return the bytes from the number of one world to that of the next."""
        return _bytes(kind) if is_float(kind) else self.width

    def vector(self, kind: str, memory: bool = False) -> str:
        """Return LLVM's type of the numbers of all lanes."""
        return f"<{self.count} x {self.in_memory(kind) if memory else self.scalar(kind)}>"

    def splat(self, scalar: str, value: object) -> str:
        """Write a vector with the same number in all lanes."""
        return "<" + ", ".join([f"{scalar} {value}"] * self.count) + ">"

    def narrow(self, kind: str) -> str | None:
        """Return LLVM's type of an integer narrower than a lane; None for other kinds."""
        if kind == BOOL or is_float(kind) or _bytes(kind) == self.width:
            return None
        return f"i{8 * _bytes(kind)}"

    def numpy(self, kind: str) -> type:
        """Return NumPy's type of a number in memory."""
        return numpy_type(kind) if is_float(kind) else numpy_type(self.index_kind)
