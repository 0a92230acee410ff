"""What earlier samples of "visited" taught: the modes met, and which sets of valid modes are complete.

Owns the facts, integers that chunks and checkpoints carry, and what the sampling kernel is told of them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import numpy as np

from jaxcontact.impact.lanes import FEW
from jaxcontact.solvers import modes, sieve

SET = 2**32  # facts below are numbers of modes, from here on signatures of complete sets of valid modes

_MET = 512  # the table of which typical x are found is padded to a multiple of this


class Known(NamedTuple):
    """The modes met, the signatures of complete sets of them, and the sieve of many modes."""

    table: modes.ModeTable
    complete: np.ndarray
    pieces: sieve.Sieve | None = None


class Memory:
    """Facts about the modes of one table, as the kernel takes them.

    The rows of the sieve are found once per mode, at typical x that `typical` gives for a table.
    """

    def __init__(self, table: modes.ModeTable, typical: Callable[[modes.ModeTable], jax.Array]) -> None:
        self.table: modes.ModeTable = jax.tree.map(np.asarray, table)
        self.typical = typical
        self.rows = np.full((sieve.TELLING, table.regular.shape[0]), -1)
        self.x: np.ndarray | None = None

    def known(self, facts: np.ndarray) -> Known:
        """What facts tell, padded to sizes of which there are few, for each is compiled once."""
        met, number = facts[facts < SET], self.table.regular.shape[0]
        size = 1 << (max(met.size, number // 16, 1) - 1).bit_length()
        kept = np.resize(met, size)
        table = self.table.take(kept)
        table = table.replace(regular=table.regular & (np.arange(size) < met.size))
        sets = (facts[facts >= SET] - SET).astype(np.uint32)
        room = 1 << max(sets.size, number // 8, 1).bit_length()
        complete = np.pad(sets, (0, room - sets.size), constant_values=2**32 - 1)
        if size <= FEW:
            return Known(table, complete)
        if self.x is None:
            used = -(-met.size // _MET) * _MET
            self.x = np.asarray(self.typical(table.take(np.arange(min(used, size)))))
        fresh = np.unique(kept[self.rows[0, kept] < 0])
        self.rows[:, fresh] = sieve.telling_rows(np.asarray(self.table.margin)[..., fresh], self.x)
        return Known(table, complete, sieve.sieve(table, self.rows[:, kept]))


def sets_of(signatures: np.ndarray) -> np.ndarray:
    """Facts: the sets of valid modes met, from their signatures."""
    found = np.unique(signatures).astype(np.int64)
    return found[found > 0] + SET
