"""Reductions of a long run by chunks: a function called in order, or `Reduction`, which workers share."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

from jaxcontact._pytree import PyTree


@dataclasses.dataclass(frozen=True)
class Reduction:
    """A reduction by chunks, whose first part runs where the chunk is computed; drivers take it as `reduce=`.

    Without an executor the same parts are merged in the same order, so the bits are the same.

    Attributes:
        part: chunk -> part, in a worker; a small part keeps messages small.
        merge: (part, part) -> part, on the host, from the first chunk to the last.
    """

    part: Callable[[PyTree], PyTree]
    merge: Callable[[PyTree, PyTree], PyTree]

    def __post_init__(self) -> None:
        """Raise TypeError for parts that are no functions."""
        for name in ("part", "merge"):
            if not callable(getattr(self, name)):
                raise TypeError(f"{name}: expected a function, got {type(getattr(self, name)).__name__}")


def check_reduce(reduce: object) -> None:
    """Raise TypeError if a value is neither None, a function nor a `Reduction`."""
    if reduce is not None and not (callable(reduce) or isinstance(reduce, Reduction)):
        raise TypeError(f"reduce: expected a function or jc.Reduction, got {type(reduce).__name__}")


def make_fold(
    reduce: Callable[[PyTree, PyTree], PyTree] | Reduction, *, has_parts: bool
) -> Callable[[PyTree, PyTree], PyTree]:
    """Return the function (accumulated, chunk) -> accumulated; `has_parts`: a `Reduction` gets parts."""
    if not isinstance(reduce, Reduction):
        return reduce

    def add(accumulated: PyTree, chunk: PyTree) -> PyTree:
        part = chunk if has_parts else reduce.part(chunk)
        return part if accumulated is None else reduce.merge(accumulated, part)

    return add
