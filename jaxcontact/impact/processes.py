"""Several processes of `jax.distributed` at work on one run: what they tell each other.

Owns the two exchanges that a run needs: which modes were met, and, where the samples are wanted in memory,
the samples themselves. The kernel has no collectives: a sample is computed by one device.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from jax.experimental import multihost_utils

SLAB = 2**16  # samples of each process per exchange


def share() -> tuple[int, int]:
    """(i, n): this is process i of n."""
    return jax.process_index(), jax.process_count()


def union(mask: np.ndarray) -> np.ndarray:
    """The entries of a mask (K,) that are true in any process."""
    if jax.process_count() == 1 or mask.size == 0:
        return mask
    return np.any(multihost_utils.process_allgather(mask), axis=0)


def fill(arrays: Sequence[np.ndarray], rows: Sequence[Sequence[tuple[int, int]]]) -> None:
    """Complete arrays, in place, of which each process knows some rows.

    Args:
        arrays: each (total, ...), the same shapes in all processes.
        rows: (begin, end) of the rows that each process knows, one list per block of rows.
    """
    if jax.process_count() == 1:
        return
    own = jax.process_index()
    for array in arrays:
        for block in rows:
            for offset in range(0, max(end - begin for begin, end in block), SLAB):
                slabs = [(begin + offset, min(begin + offset + SLAB, end)) for begin, end in block]
                sent = np.zeros((SLAB, *array.shape[1:]), array.dtype)
                mine = array[slice(*slabs[own])]
                sent[: len(mine)] = mine
                received: Any = multihost_utils.process_allgather(sent)
                for (begin, end), part in zip(slabs, received, strict=True):
                    array[begin:end] = part[: max(0, end - begin)]
