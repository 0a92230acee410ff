"""Records of samples, and ranges of their numbers cut into chunks; entry `ImpactSamples`."""

from __future__ import annotations

import itertools
from typing import ClassVar, NamedTuple

import jax
import numpy as np

from jaxcontact._pytree import PyTree, Record, static
from jaxcontact.impact.sampling.binomial_bounds import bound_misses


class ImpactSamples(Record):
    """Samples of the outcomes of one impact; axis 0 is the sample.

    Attributes:
        v_minus: (nv,) velocity before.
        v_plus: (n, nv) velocities after.
        impulse: (n, nc, 1 + nt) total contact impulse (n, t1, t2), N s.
        status: (n,) uint32 bits of `Status`; 0 is success.
        num_iters: (n,) number of steps.
        energy_ratio: (n,) kinetic energy after / before.
        residual: (n,) worst residual of any step, as in `ImpactInfo`.
        path: (n, max_steps + 1, nv) velocities through the impact, or None; rows after the last step
            repeat v_plus.
        complete: whether all solutions of every step were candidates, of a continuum of them its corners:
            with "all", except for modes of redundant contacts with more free impulses than are tabulated.
            False: outcomes may be missing and frequencies biased, with "lemke" whole families may be missing.
        independent: whether the samples are independent draws of one distribution: drawn with a `key`, and
            not with "visited", where a sample depends on the modes that earlier ones met.
        searched_again: (n,) number of steps that are searched 32 times more, where steps are searched: one in
            eight of the first 64 samples. None is zero.
        missed: (n,) number of those of which that finds an outcome that the own four searches missed.
    """

    SHAPES: ClassVar[dict[str, str]] = {
        "v_minus": "n",
        "v_plus": "N n",
    }
    ARGUMENT_HINT: ClassVar[str] = "; draw them with sample"

    v_minus: jax.Array
    v_plus: jax.Array
    impulse: jax.Array
    status: jax.Array
    num_iters: jax.Array
    energy_ratio: jax.Array
    residual: jax.Array
    path: jax.Array | None = None
    complete: bool = static(default=False)
    independent: bool = static(default=False)
    searched_again: jax.Array | None = None
    missed: jax.Array | None = None

    @property
    def miss_bound(self) -> float | None:
        """Bound the share of steps that miss an outcome, with 95 %; None where none is searched again.

        Clopper and Pearson's, as if steps were independent.
        """
        if self.searched_again is None or self.missed is None:
            return None
        return bound_misses(int(np.sum(self.missed)), int(np.sum(self.searched_again)))


class Knowledge(NamedTuple):
    """What "visited" knows before a block: facts of the run's first table, those of its own, its capacity.

    A fact is a contact mode that stood for an outcome, or a set of outcomes of a step; see `Chunk`.
    """

    first: np.ndarray
    used: np.ndarray
    capacity: tuple[int, int]


class Chunk(NamedTuple):
    """Samples number begin, ..., end - 1, as NumPy arrays, and the facts they taught, ascending.

    In place of the samples there may be the part of a `Reduction`.

    With "visited" the facts are the modes that stood for an outcome in some step, and the sets of outcomes
    of the steps, by their signatures; none with other selections. After the pilot, facts come
    only from samples that needed more than the known modes and sets.
    """

    begin: int
    end: int
    samples: PyTree
    facts: np.ndarray


def cut_range(begin: int, end: int, size: int) -> list[tuple[int, int]]:
    """Cut a range into pieces of `size`, the last one shorter."""
    return [(start, min(start + size, end)) for start in range(begin, end, size)]


def divide_range(begin: int, end: int, size: int, count: int) -> list[tuple[int, int]]:
    """Divide a range into `count` parts with nearly equal numbers of whole chunks."""
    begin = min(begin, end)
    chunks = -(-(end - begin) // size)
    edges = [begin + size * (chunks * i // count) for i in range(count)] + [end]
    return list(itertools.pairwise(edges))


def join_chunks(parts: list[Chunk]) -> Chunk:
    """Join neighbouring chunks."""
    if len(parts) == 1:
        return parts[0]
    bare = [part.samples.replace(v_minus=None) for part in parts]
    samples = jax.tree.map(lambda *leaves: np.concatenate(leaves), *bare)
    return Chunk(
        parts[0].begin,
        parts[-1].end,
        samples.replace(v_minus=parts[0].samples.v_minus),
        np.unique(np.concatenate([part.facts for part in parts])),
    )


def uses_same_facts(before: Knowledge | None, now: Knowledge | None) -> bool:
    """Tell whether two blocks use the same table."""
    if before is None or now is None:
        return before is now
    return before.capacity == now.capacity and np.array_equal(before.used, now.used)
