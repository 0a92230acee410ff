"""Knowledge from earlier samples of "visited": the modes met, and the complete sets of outcomes.

Owns the facts, integers that chunks and checkpoints carry, and their form for the sampling kernel; entry
`Memory`. Redundant contacts have thousands of modes with one outcome. One valid mode among them is enough,
and outcomes tell sets apart.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import numpy as np

from jaxcontact.impact.sampling.mode_selection import MAX_MET_MODES
from jaxcontact.solvers import contact_modes, mode_filter

SET = 2**32  # facts below it are numbers of modes, the others are signatures of complete sets of outcomes

_TOGETHER = 2**12  # modes whose telling forms are found together; limits memory
_AT_LEAST = 1024  # minimum capacity for modes of a large table
_TYPICAL = 96  # samples whose steps determine the telling forms


class VisitedModes(NamedTuple):
    """The modes met, the signatures of complete sets of outcomes, the names of the modes, the sieve of many.

    `first` has the same for first steps: all samples start at one velocity, at which most modes are invalid
    for all largest impulses.
    """

    table: contact_modes.ModeMaps
    complete: np.ndarray
    names: np.ndarray
    pieces: mode_filter.Sieve | None = None
    first: VisitedModes | None = None


class Memory:
    """Facts about the modes of one table, in the form that the kernel uses.

    The rows of the sieve are found once per mode, at typical x.

    Args:
        u: (2m,) scaled contact velocity before the impact.
        cap: (m,) scaled largest impulses.
        limit: violation of an inequality below which it counts as met.
    """

    def __init__(
        self, table: contact_modes.ModeMaps, delassus: jax.Array, u: jax.Array, cap: jax.Array, limit: float
    ) -> None:
        self.table: contact_modes.ModeMaps = jax.tree.map(np.asarray, table)
        self.delassus, self.u, self.cap = (np.asarray(array) for array in (delassus, u, cap))
        self.limit = limit
        self.names = outcome_names(self.table, self.delassus)
        self.rows = np.full((mode_filter.TELLING, table.regular.shape[0]), -1)
        self.x: np.ndarray | None = None

    def choose_capacity(self, facts: np.ndarray) -> tuple[int, int]:
        """Choose numbers of modes and sets to reserve: many more than now, in few different sizes."""
        count, number = int(np.count_nonzero(facts < SET)), self.table.regular.shape[0]
        sets = max(3 * (facts.size - count) // 2, number // 8, 1)
        return _next_power_of_two(max(2 * count, min(number // 16, _AT_LEAST))), 1 << sets.bit_length()

    def tabulate(self, facts: np.ndarray, capacity: tuple[int, int]) -> VisitedModes:
        """Convert facts to input of the kernel, padded to `capacity`; each capacity needs a compilation."""
        met, number = facts[facts < SET], self.table.regular.shape[0]
        size, max_sets = capacity
        table, names = _padded(self.table, met, size), np.resize(self.names[met], size)
        sets = (facts[facts >= SET] - SET).astype(np.uint32)
        complete = np.pad(sets, (0, max_sets - sets.size), constant_values=2**32 - 1)
        if size <= MAX_MET_MODES:
            return VisitedModes(table, complete, names)
        if self.x is None:
            self.x = self._typical(table.take(np.arange(met.size)))
        self._find_rows(met)
        possible = self._possible_first(np.asarray(table.margin)[..., : met.size])
        size_first = _next_power_of_two(max(possible.size, min(number // 20, _AT_LEAST), mode_filter.BLOCK))
        first = _padded(table, possible, size_first)
        return VisitedModes(
            table,
            complete,
            names,
            mode_filter.sieve(table, self.rows[:, np.resize(met, size)]),
            VisitedModes(
                first,
                complete,
                np.resize(names[possible], size_first),
                mode_filter.sieve(first, self.rows[:, np.resize(met[possible], size_first)]),
            ),
        )

    def sieve_of_all(self) -> mode_filter.Sieve:
        """Build the sieve of the whole table."""
        if self.x is None:
            self.x = self._typical(self.table)
        number = self.table.regular.shape[0]
        self._find_rows(np.arange(number))
        return mode_filter.sieve(self.table, self.rows)

    def _find_rows(self, modes: np.ndarray) -> None:
        """Find the telling forms of modes that lack them, some at a time."""
        assert self.x is not None
        margin = np.asarray(self.table.margin)
        fresh = modes[self.rows[0, modes] < 0]
        for begin in range(0, fresh.size, _TOGETHER):
            some = fresh[begin : begin + _TOGETHER]
            self.rows[:, some] = mode_filter.telling_rows(margin[..., some], self.x)

    def _possible_first(self, margin: np.ndarray) -> np.ndarray:
        """Find the modes that bounds over all largest impulses do not rule out in a first step."""
        split = self.u.size
        at_u = margin[:, :split] * self.u[:, None]
        up_to = margin[:, split:] * self.cap[:, None]
        highest = at_u.sum(axis=1) + np.maximum(up_to, 0.0).sum(axis=1)
        rounding = 64 * np.finfo(margin.dtype).eps * (np.abs(at_u).sum(axis=1) + np.abs(up_to).sum(axis=1))
        return np.flatnonzero(np.all(highest >= -self.limit - rounding, axis=0))

    def _typical(self, table: contact_modes.ModeMaps) -> np.ndarray:
        """Draw typical x (r + m, n) of first, second and third steps, roughly as samples meet them."""
        rng = np.random.default_rng(0)
        margin = np.asarray(table.margin)
        u = np.broadcast_to(self.u[:, None], (self.u.size, _TYPICAL))
        met = []
        for _ in range(3):  # as if all impacts had three steps
            x = np.concatenate([u, rng.uniform(size=(self.cap.size, _TYPICAL)) * self.cap[:, None]])
            x = x.astype(self.delassus.dtype)
            starts = range(0, table.regular.shape[0], _TOGETHER)
            worst = [_worst_form(margin[..., begin : begin + _TOGETHER], x) for begin in starts]
            mode = np.argmax(np.concatenate(worst), axis=0)
            u = u + self.delassus @ np.einsum("rln,ln->rn", table.impulse[:, :, mode], x)
            met.append(x)
        return np.concatenate(met, axis=1)


def _worst_form(margin: np.ndarray, x: np.ndarray) -> np.ndarray:
    """Compute the lowest form (K, n) of each mode, of margin (F, L, K) at x (L, n)."""
    worst: np.ndarray = (margin.astype(np.float32).transpose(0, 2, 1) @ mode_filter.in_single(x)).min(axis=0)
    return worst


def fits_capacity(facts: np.ndarray, capacity: tuple[int, int]) -> bool:
    """Tell whether the facts fit into the capacity."""
    count = np.count_nonzero(facts < SET)
    return bool(count <= capacity[0] and facts.size - count < capacity[1])


def _padded(table: contact_modes.ModeMaps, index: np.ndarray, size: int) -> contact_modes.ModeMaps:
    """Select the modes of an index, padded to `size` with modes that are not regular."""
    selected = table.take(np.resize(index, size))
    return selected.replace(regular=selected.regular & (np.arange(size) < index.size))


def _next_power_of_two(size: int) -> int:
    """Return the next power of two."""
    return 1 << (max(size, 1) - 1).bit_length()


def outcome_names(table: contact_modes.ModeMaps, delassus: np.ndarray) -> np.ndarray:
    """Give the modes well mixed numbers (K,) uint32, equal for modes with the same outcome at every x.

    Equal outcomes have equal scores, for all velocities before that are possible for the bodies.
    """
    dtype = delassus.dtype
    score = np.array(table.score.T)
    rows = delassus.shape[0]
    values, vectors = np.linalg.eigh(delassus)
    seen = vectors[:, values > 100.0 * contact_modes.feasibility_tolerance(dtype)]
    score[:, :rows] = score[:, :rows] @ seen @ seen.T
    size = np.abs(score).max(axis=1, keepdims=True)
    order = np.argsort(score @ np.cos(np.arange(score.shape[1]) * 1.1 + 0.2).astype(dtype), kind="stable")
    apart = np.abs(np.diff(score[order], axis=0)) > 100.0 * contact_modes.feasibility_tolerance(dtype) * (
        1.0 + size[order[1:]]
    )
    name: np.ndarray = np.empty(order.size, np.uint32)
    name[order] = np.concatenate([[0], np.cumsum(apart.any(axis=1))])
    name += 1
    for factor in (0x7FEB352D, 0x846CA68B):  # a bijection that mixes the bits well
        name = (name ^ (name >> 16)) * np.uint32(factor)
    mixed: np.ndarray = name ^ (name >> 16)
    return mixed


def sets_of(signatures: np.ndarray) -> np.ndarray:
    """Convert the signatures of the sets of outcomes met to facts."""
    distinct = np.unique(signatures).astype(np.int64)
    return distinct[distinct > 0] + SET
