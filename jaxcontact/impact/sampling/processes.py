"""Exchanges between several processes of `jax.distributed` that work on one run.

Owns the two exchanges that a run needs: the facts about modes (`union`), and, if the samples are requested in
memory, the samples themselves (`fill`). The kernel has no collectives: one device computes a sample.
"""

from __future__ import annotations

from collections.abc import Sequence

import jax
import numpy as np
from jax.experimental import multihost_utils

from jaxcontact._pytree import PyTree

SLAB = 2**16  # samples of each process per exchange; bounds the memory of the exchange


def share() -> tuple[int, int]:
    """Return (i, n): this is process i of n."""
    return jax.process_index(), jax.process_count()


def union(facts: np.ndarray) -> np.ndarray:
    """Unite the ascending numbers (k,) of all processes; k may differ between processes."""
    if jax.process_count() == 1:
        return facts
    max_size = int(np.max(multihost_utils.process_allgather(np.array(facts.size))))
    # Without 64-bit types only halves can be exchanged; a negative number is padding.
    halves = np.full((2, max_size), -1, np.int32)
    halves[:, : facts.size] = facts >> 31, facts & (2**31 - 1)
    high, low = np.moveaxis(np.asarray(multihost_utils.process_allgather(halves), np.int64), 1, 0)
    return np.unique(high[low >= 0] << 31 | low[low >= 0])


def fill(arrays: Sequence[np.ndarray], rows: Sequence[Sequence[tuple[int, int]]]) -> None:
    """Complete arrays in place, of which each process has some rows.

    Args:
        arrays: each (total, ...), the same shapes in all processes.
        rows: (begin, end) of the rows of each process, one list per block of rows.
    """
    if jax.process_count() == 1:
        return
    process = jax.process_index()
    for array in arrays:
        for block in rows:
            for offset in range(0, max(end - begin for begin, end in block), SLAB):
                slabs = [(begin + offset, min(begin + offset + SLAB, end)) for begin, end in block]
                sent = np.zeros((SLAB, *array.shape[1:]), array.dtype)
                mine = array[slice(*slabs[process])]
                sent[: len(mine)] = mine
                received: PyTree = multihost_utils.process_allgather(sent)
                for (begin, end), part in zip(slabs, received, strict=True):
                    array[begin:end] = part[: max(0, end - begin)]
