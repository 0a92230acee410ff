"""Which branch a program takes: that of a CPU, whose tiles stay in its cache, or that of other devices.

A test takes the second on a CPU.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import jax
from jax import lax

_as_elsewhere = False


def choose(*arguments: Any, cpu: Callable[..., Any], other: Callable[..., Any]) -> Any:
    """cpu(*arguments) in a program for a CPU, other(*arguments) in one for another device; same results."""
    if _as_elsewhere:
        return other(*arguments)
    return lax.platform_dependent(*arguments, cpu=cpu, default=other)


def is_cpu(platform: str) -> bool:
    """Whether to do as on a CPU, on the host."""
    return platform == "cpu" and not _as_elsewhere


@contextlib.contextmanager
def as_elsewhere() -> Iterator[None]:
    """For tests: within, every program takes the branches of other devices than a CPU, wherever it runs.

    Forgets all programs before and after, for they have their branch.
    """
    global _as_elsewhere
    jax.clear_caches()
    _as_elsewhere = True
    try:
        yield
    finally:
        _as_elsewhere = False
        jax.clear_caches()
