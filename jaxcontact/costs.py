"""Costs that are known before the work: numbers of steps, and memory against that of this machine.

Entry functions: `count_steps`, `check_memory` and `announce_memory`.
"""

from __future__ import annotations

import os
import warnings

import jax

from jaxcontact._pytree import PyTree

LARGE_OUTPUT = 4e9  # bytes of results above which a call warns first about its memory
LARGEST_COUNT = 2**31 - 1  # steps and samples, which programs count in 32 bits


class MemoryWarning(UserWarning):
    """Warning that a call is about to use more than 4 GB of memory."""


def count_steps(duration: float, dt: float | jax.Array, *, num_bytes: int = 0) -> int:
    """Return the number of steps of `dt` in a duration, at least 1.

    Args:
        duration: s, > 0.
        dt: s, > 0.
        num_bytes: kept of each step.

    Raises:
        ValueError: more steps than programs count, or than fit in the memory of this machine.
    """
    ratio = float(duration) / float(dt) if float(dt) > 0 else float("inf")
    if not ratio <= LARGEST_COUNT:
        raise ValueError(
            f"dt: expected at most {LARGEST_COUNT} steps in a duration of {float(duration):g} s, got "
            f"{float(dt):g} s, which are {ratio:.3g}"
        )
    steps = max(1, round(ratio))
    check_memory("dt", steps, num_bytes, f"steps in a duration of {float(duration):g} s")
    return steps


def check_memory(name: str, count: int, num_bytes: int, what: str) -> None:
    """Raise ValueError if `count` results of `num_bytes` do not fit in the memory of this machine."""
    total = machine_memory()
    if total is not None and count * num_bytes > total:
        raise ValueError(
            f"{name}: expected at most {total // num_bytes} {what}, which fit in the {total / 1e9:.0f} GB "
            f"of this machine, got {count} of {num_bytes} bytes"
        )


def announce_memory(call: str, count: int, num_bytes: int, advice: str) -> None:
    """Warn of samples that need more than LARGE_OUTPUT bytes; `advice` says what keeps less."""
    if num_bytes * count > LARGE_OUTPUT:
        warnings.warn(
            f"{call}: {count} samples of {num_bytes} bytes need {num_bytes * count / 1e9:.1f} GB of memory; "
            f"use {advice} to keep less",
            MemoryWarning,
            stacklevel=4,
        )


def bytes_of(tree: PyTree) -> int:
    """Return the bytes of the arrays in a tree, traced ones and shapes included."""
    return sum(
        int(leaf.size) * leaf.dtype.itemsize for leaf in jax.tree.leaves(tree) if hasattr(leaf, "dtype")
    )


def machine_memory() -> int | None:
    """Return the bytes of the memory of this machine; None if the system does not tell."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return None
