"""The choice between the branch of a program for CPUs, in tiles that fit a cache, and that for other devices.

The entry function is `choose`. Tests can run the branch of other devices on a CPU.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

import jax
from jax import lax

from jaxcontact._pytree import PyTree

_as_elsewhere = False


def choose(*arguments: PyTree, cpu: Callable[..., PyTree], other: Callable[..., PyTree]) -> PyTree:
    """Run cpu(*arguments) in a program for a CPU, other(*arguments) for another device; same results."""
    if _as_elsewhere:
        return other(*arguments)
    return lax.platform_dependent(*arguments, cpu=cpu, default=other)


def is_cpu(platform: str) -> bool:
    """Return whether code on the host should take the branch of a CPU."""
    return platform == "cpu" and not _as_elsewhere


@contextlib.contextmanager
def as_elsewhere() -> Iterator[None]:
    """Make every program inside this context, for tests, take the branches of devices other than a CPU.

    All compiled programs are dropped before and after, because each contains its branch.
    """
    global _as_elsewhere
    jax.clear_caches()
    _as_elsewhere = True
    try:
        yield
    finally:
        _as_elsewhere = False
        jax.clear_caches()
