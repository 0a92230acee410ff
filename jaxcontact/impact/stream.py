"""Samples in chunks of fixed size, in order, computed ahead on all devices.

Owns how a long run is cut up: chunks, worker threads, devices and processes, and the growing mode table of
the selection "visited". A sample depends on its number alone, so none of this shows in the results.
"""

from __future__ import annotations

import collections
import functools
import itertools
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxcontact import cores
from jaxcontact._pytree import Record, static
from jaxcontact.impact import routh, tile_step
from jaxcontact.impact.contact_space import ContactSpace, colliding, contact_space, mass_norm
from jaxcontact.impact.density import Shaped
from jaxcontact.impact.draws import Iid, Sobol
from jaxcontact.impact.known import Known, Memory, sets_of
from jaxcontact.impact.lanes import Begun, LaneResults, first_places, lane_status, run_lanes
from jaxcontact.impact.tile_step import FEW
from jaxcontact.solvers import leaves, modes
from jaxcontact.terms import ContactTerms

PIECE = 2**14  # samples per call of the kernel, at most
MANY_MODES = 512  # in a table; each block is then cut so that all workers have a part of it
PILOT = 2048  # samples that fill the first table of "visited"
_NONE = np.empty(0, np.uint32)
_NO_FACTS = np.empty(0, np.int64)
GROWTH = 1.5  # each block of "visited" ends at this many times the sample number of the one before


class ImpactSamples(Record):
    """Samples of the outcomes of one impact; axis 0 is the sample.

    Attributes:
        v_minus: (nv,) velocity before.
        v_plus: (n, nv) velocities after.
        impulse: (n, nc, 1 + nt) total contact impulse (n, t1, t2), N s.
        status: (n,) uint32 bits of `Status`; 0 is success.
        num_solves: (n,) steps taken.
        energy_ratio: (n,) kinetic energy after / before.
        residual: (n,) worst residual of any step, as in `ImpactInfo`.
        path: (n, max_steps + 1, nv) velocities through the impact, or None; rows after the last step
            repeat v_plus.
        complete: whether all solutions of every step were candidates.
        independent: whether the samples are independent draws of one distribution: made with a `key`, and
            not with "visited", where a sample depends on the modes that earlier ones met.
    """

    v_minus: jax.Array
    v_plus: jax.Array
    impulse: jax.Array
    status: jax.Array
    num_solves: jax.Array
    energy_ratio: jax.Array
    residual: jax.Array
    path: jax.Array | None = None
    complete: bool = static(default=False)
    independent: bool = static(default=False)


class Chunk(NamedTuple):
    """Samples number begin, ..., end - 1, as NumPy arrays, and the facts they taught, ascending.

    With "visited" the facts are the modes that were valid in some step, and the sets of modes that were
    valid in the same step, by their signatures; none with other selections. Behind its pilot, facts come
    only from samples that needed more than what was known.
    """

    begin: int
    end: int
    samples: ImpactSamples
    facts: np.ndarray


class Stream:
    """A source of samples of one impact; see `sample` for the arguments."""

    def __init__(
        self,
        terms: ContactTerms,
        v: jax.Array,
        draws: Sobol | Iid | Shaped,
        step: jax.Array,
        max_steps: int,
        *,
        selection: str,
        keep_path: bool = False,
        num_directions: int = 8,
        devices: Sequence[jax.Device] | None = None,
        restitution: jax.Array | None = None,
    ) -> None:
        self.terms, self.v, self.draws, self.step = terms, v, draws, step
        self.max_steps, self.keep_path = max_steps, keep_path
        self.selection, self.num_directions = selection, num_directions
        self.restitution = restitution
        self.devices = list(jax.local_devices() if devices is None else devices)
        self.num_modes = 0
        self.compiled: set[Any] = set()  # sizes of what is known that the kernel has been compiled for
        self.collides = bool(jnp.any(colliding(terms, v)))
        self.enumerates = self.collides and selection != "lemke"
        self.complete = selection == "all" or not self.collides
        self.independent = (draws.independent and selection != "visited") or not self.collides
        if self.enumerates:
            self.space, self.table = tabulate(terms)
            self.num_modes = self.table.regular.shape[0]
            self.stems = None
            if self.num_modes > FEW:
                self.stems = jax.tree.map(
                    jnp.asarray, leaves.leaves(self.table, self.space.delassus, self.space.mu)
                )
            u, cap = self.space.jacobian @ v, tile_step.largest(self.space, step)
            limit = modes.feasibility_tolerance(v.dtype) * float(mass_norm(self.space.mass, v))
            self.memory = Memory(self.table, self.space.delassus, u, cap, limit)

    def chunks(
        self,
        total: int,
        size: int = PIECE,
        *,
        done: Sequence[tuple[int, np.ndarray]] = (),
        share: tuple[int, int] = (0, 1),
        exchange: Callable[[np.ndarray], np.ndarray] = np.asarray,
    ) -> Generator[Chunk]:
        """Chunks of at most `size` samples, in order.

        Args:
            done: (end, facts) of the chunks computed before, in order, to go on behind them.
            share: (i, n) to compute only the i-th of n equal parts of every block.
            exchange: the facts of this share -> those of all n shares.
        """
        facts = _NO_FACTS
        begin = done[-1][0] if done else 0
        workers = cores.workers(self.devices)
        pool = ThreadPoolExecutor(len(workers))
        try:
            for block_begin, block_end in self._blocks(total):
                # The pilot looks among all modes; later blocks use what was known before the block.
                known = None
                if self.enumerates and self.selection == "visited" and block_begin > 0:
                    known = self.memory.known(facts)
                for end, learnt in done:
                    if block_begin < end <= block_end:
                        facts = np.union1d(facts, learnt)
                cuts = _cuts(*_parts(max(begin, block_begin), block_end, size, share[1])[share[0]], size)
                piece = self._piece(cuts, len(workers))
                parts = self._in_order(pool, workers, [p for cut in cuts for p in _cuts(*cut, piece)], known)
                for cut in cuts:
                    chunk = _joined(list(itertools.islice(parts, len(_cuts(*cut, piece)))))
                    facts = np.union1d(facts, chunk.facts)
                    yield chunk
                facts = exchange(facts)
        finally:
            pool.shutdown(cancel_futures=True)

    def shares(self, total: int, size: int, count: int) -> list[list[tuple[int, int]]]:
        """(begin, end) of the part of each block that each of `count` processes computes."""
        return [_parts(begin, end, size, count) for begin, end in self._blocks(total)]

    def _piece(self, cuts: list[tuple[int, int]], num_workers: int) -> int:
        """Samples per call of the kernel, for one block."""
        if self.num_modes <= MANY_MODES:
            return PIECE
        count = sum(end - begin for begin, end in cuts)
        return min(PIECE, max(1, -(-count // num_workers)))

    def _in_order(
        self,
        pool: ThreadPoolExecutor,
        workers: list[jax.Device],
        pieces: list[tuple[int, int]],
        known: Known | None,
    ) -> Iterator[Chunk]:
        """The pieces, in order, each computed by the next worker, a few ahead."""
        placed = {device: jax.device_put(known, device) for device in dict.fromkeys(workers)}
        sizes = known and tuple(leaf.shape for leaf in jax.tree.leaves(known))
        if pieces and self.enumerates and sizes not in self.compiled:
            # No samples: compiles where that is still to be done, which two threads would both do.
            list(pool.map(lambda device: self._resolved(_NONE, placed[device], device), placed))
            self.compiled.add(sizes)
        jobs: collections.deque[Future[Chunk]] = collections.deque()
        for number, piece in enumerate(pieces):
            device = workers[number % len(workers)]
            jobs.append(pool.submit(self._chunk, *piece, placed[device], device))
            if number == 0 and not self.enumerates:
                jobs[0].result()
            if len(jobs) > 2 * len(workers):
                yield jobs.popleft().result()
        while jobs:
            yield jobs.popleft().result()

    def _blocks(self, total: int) -> list[tuple[int, int]]:
        if self.selection != "visited":
            return [(0, total)]
        ends = [0]
        while ends[-1] < total:
            ends.append(min(total, int(PILOT * GROWTH ** (len(ends) - 1))))
        return list(itertools.pairwise(ends))

    def _chunk(self, begin: int, end: int, known: Known | None, device: jax.Device) -> Chunk:
        numbers = np.arange(begin, end, dtype=np.uint32)
        if not self.enumerates:
            if not self.collides:
                return Chunk(begin, end, self.unmoved(end - begin), _NO_FACTS)
            samples = self._by_pivoting(numbers, device).replace(independent=self.independent)
            return Chunk(begin, end, samples, _NO_FACTS)
        results, facts = self._resolved(numbers, known, device)
        samples = _physical(self.terms, self.space, self.v, results, self.complete)
        return Chunk(begin, end, samples.replace(independent=self.independent), facts)

    def _resolved(
        self, numbers: np.ndarray, known: Known | None, device: jax.Device
    ) -> tuple[LaneResults, np.ndarray]:
        """The samples, with what is known first, and what they taught."""
        if known is None:
            return self._lanes(numbers, None, device)
        if known.first is None or self.restitution is not None:
            results = self._lanes(numbers, known, device)[0]
        else:
            # The first step of all, where fewer modes have to be looked at; then those that go on.
            order = self._neighbours(numbers, device)
            nothing = self._nothing_begun(numbers.size)
            first = self._lanes(numbers[order], known.first, device, nothing, once=True)[0]
            results = jax.tree.map(np.empty_like, first)
            _put(results, order, first)
            more = np.flatnonzero(results.collides & ~results.missed & (results.num_solves < self.max_steps))
            begun = _begun(results, more)
            _put(results, more, self._lanes(numbers[more], known, device, begun)[0], begun)
        # From a step on whose valid modes are not a set known to be complete, samples go on with all.
        lost = np.flatnonzero(results.missed)
        facts = _NO_FACTS
        if lost.size:
            # The energies in store are not kept: with restitution, from their beginning.
            begun = _begun(results, lost) if self.restitution is None else self._nothing_begun(lost.size)
            again, facts = self._lanes(numbers[lost], None, device, begun)
            _put(results, lost, again, begun)
        return results, facts

    def _neighbours(self, numbers: np.ndarray, device: jax.Device) -> np.ndarray:
        """The order of samples in which the largest impulses of the first steps are alike."""
        padded = jax.device_put((self.draws, np.resize(numbers, PIECE)), device)
        places = np.asarray(first_places(*padded, self.terms.phi.shape[0]))[: numbers.size]
        return np.argsort(places, kind="stable")

    def _lanes(
        self,
        numbers: np.ndarray,
        known: Known | None,
        device: jax.Device,
        begun: Begun | None = None,
        once: bool = False,
    ) -> tuple[LaneResults, np.ndarray]:
        learns = known is None and self.selection == "visited"
        table, complete, pieces, _ = known or (self.table, None, self.stems, None)
        if learns and begun is None:
            begun = self._nothing_begun(numbers.size)
        num_modes = table.regular.shape[0]
        size = PIECE
        placed = jax.device_put((self.space, table, self.draws, self.v, self.step), device)
        complete, pieces = jax.device_put((complete, pieces), device)
        elastic = None if self.restitution is None else jax.device_put(self.restitution**2, device)
        parts, facts = [], [_NO_FACTS]
        for begin in range(0, max(1, len(numbers)), size):
            piece = numbers[begin : begin + size]
            rest = size - piece.size
            padded = jax.tree.map(
                lambda array, begin=begin, rest=rest: np.pad(
                    array[..., begin : begin + size], [(0, 0)] * (array.ndim - 1) + [(0, rest)]
                ),
                (numbers, begun),
            )
            indices, begins = jax.device_put(padded, device)
            part = run_lanes(
                *placed,
                indices,
                jax.device_put(np.int32(piece.size), device),
                complete,
                pieces,
                begins,
                max_steps=self.max_steps,
                tile=tile_size(num_modes, device.platform),
                keep_path=self.keep_path,
                keep_sets=learns,
                elastic=elastic,
                once=once,
            )
            if part.sets is not None:
                facts += [np.flatnonzero(part.visited), sets_of(np.asarray(part.sets)[:, : piece.size])]
            part = part.replace(visited=part.visited[:0], sets=None)
            parts.append(jax.tree.map(functools.partial(_first, size=piece.size), part))
        joined = jax.tree.map(lambda *arrays: np.concatenate(arrays, axis=-1), *parts)
        return joined, np.unique(np.concatenate(facts))

    def _nothing_begun(self, n: int) -> Begun:
        rows, dtype = self.space.delassus.shape[0], self.space.delassus.dtype
        arrays: Any = (np.zeros((rows, n), dtype), np.zeros(n, np.int32), np.zeros(n, dtype))
        return Begun(impulse=arrays[0], num_solves=arrays[1], residual=arrays[2])

    def unmoved(self, n: int) -> ImpactSamples:
        """N samples, all of them v: where no contact approaches, and to show shapes and dtypes."""
        nc, nt, nv = self.terms.J_t.shape
        v = np.asarray(self.v)
        arrays: dict[str, Any] = {
            "v_plus": np.broadcast_to(v, (n, nv)),
            "impulse": np.zeros((n, nc, 1 + nt), v.dtype),
            "status": np.zeros(n, np.uint32),
            "num_solves": np.zeros(n, np.int32),
            "energy_ratio": np.ones(n, v.dtype),
            "residual": np.zeros(n, v.dtype),
        }
        if self.keep_path:
            arrays["path"] = np.broadcast_to(v, (n, self.max_steps + 1, nv))
        return ImpactSamples(v_minus=self.v, complete=self.complete, independent=self.independent, **arrays)

    def _by_pivoting(self, numbers: np.ndarray, device: jax.Device) -> ImpactSamples:
        """One Lemke solution per step, a padded batch at a time."""
        nc, size = self.terms.phi.shape[0], 1024
        terms, draws, step, v, e = jax.device_put(
            (self.terms, self.draws, self.step, self.v, self.restitution), device
        )
        parts = []
        for begin in range(0, len(numbers), size):
            piece = numbers[begin : begin + size]
            padded = jax.device_put(np.resize(piece, size), device)
            drawn = draws.uniform(padded, 0, self.max_steps * (nc + 1), v.dtype).T
            drawn = drawn.reshape(size, self.max_steps, nc + 1)
            caps, picks = drawn[..., :nc] * step[None, None], drawn[..., nc]
            start = jnp.broadcast_to(v, (size, v.shape[0]))
            part = routh.resolve_many(
                terms, start, caps, "lemke", self.num_directions, self.keep_path, picks, e
            )
            parts.append(jax.tree.map(lambda leaf, n=piece.size: np.asarray(leaf)[:n], part))
        v_plus, info, path = jax.tree.map(lambda *leaves: np.concatenate(leaves), *parts)
        return ImpactSamples(
            v_minus=self.v,
            v_plus=v_plus,
            impulse=info.impulse,
            status=info.status,
            num_solves=info.num_solves,
            energy_ratio=info.energy_ratio,
            residual=info.residual,
            path=path,
        )


def _cuts(begin: int, end: int, size: int) -> list[tuple[int, int]]:
    return [(start, min(start + size, end)) for start in range(begin, end, size)]


def _parts(begin: int, end: int, size: int, count: int) -> list[tuple[int, int]]:
    """The range cut into `count` parts of nearly as many whole chunks."""
    begin = min(begin, end)
    chunks = -(-(end - begin) // size)
    edges = [begin + size * (chunks * i // count) for i in range(count)] + [end]
    return list(itertools.pairwise(edges))


def _joined(parts: list[Chunk]) -> Chunk:
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


def _put(results: Any, at: np.ndarray, again: Any, begun: Begun | None = None) -> None:
    """Stores later results of some samples; of a path what was not begun."""
    for name in ("impulse", "num_solves", "residual", "missed", "collides"):
        getattr(results, name)[..., at] = getattr(again, name)
    if results.path is not None:
        new: Any = True
        if begun is not None:
            new = np.arange(results.path.shape[0])[:, None, None] > begun.num_solves
        results.path[..., at] = np.where(new, again.path, results.path[..., at])


def _begun(results: Any, lost: np.ndarray) -> Begun:
    chosen = (results.impulse, results.num_solves, results.residual)
    impulse, num_solves, residual = (array[..., lost] for array in chosen)
    return Begun(impulse=impulse, num_solves=num_solves, residual=residual)


def _first(leaf: jax.Array, size: int) -> np.ndarray:
    return np.array(np.asarray(leaf)[..., :size])


@functools.partial(jax.jit, compiler_options=cores.WIDE)
def tabulate(terms: ContactTerms) -> tuple[ContactSpace, modes.ModeTable]:
    """Scaled contact matrices, and all contact modes of a step."""
    space = contact_space(terms)
    return space, modes.mode_table(space.delassus, space.mu, space.active, capped=True)


def tile_size(num_modes: int, platform: str) -> int:
    """Lanes of the kernel: enough to vectorise, few enough that a (modes, lanes) array stays in cache."""
    if platform != "cpu":
        return int(np.clip(2**24 // num_modes, 2**10, 2**14))
    return 256 if num_modes <= 64 else 128 if num_modes <= FEW else 64 if num_modes <= 4096 else 32


def _physical(
    terms: ContactTerms, space: ContactSpace, v: jax.Array, results: Any, complete: bool
) -> ImpactSamples:
    """Physical units, samples first. In NumPy, elementwise: the same bits for any number of samples."""
    response, scale, start = (np.asarray(a) for a in (space.response, space.scale, v))
    nc = terms.phi.shape[0]

    def velocities(impulse: Any) -> Any:
        total = np.broadcast_to(start, (*impulse.shape[1:], start.size)).copy()
        for row in range(impulse.shape[0]):
            total += impulse[row][..., None] * response[:, row]
        return total

    v_plus = velocities(results.impulse)
    mass = np.asarray(terms.M)
    energy = np.zeros(v_plus.shape[0], v_plus.dtype)
    for i in range(start.size):
        for j in range(start.size):
            energy += mass[i, j] * v_plus[:, i] * v_plus[:, j]
    path: Any = None
    if results.path is not None:
        through = velocities(np.moveaxis(results.path, 1, 0))  # (N + 1, n, nv)
        rows = np.minimum(np.arange(through.shape[0])[:, None], results.num_solves[None, :])
        path = np.moveaxis(through[rows, np.arange(rows.shape[1])[None, :]], 0, 1)
    return ImpactSamples(
        v_minus=v,
        v_plus=v_plus,
        impulse=(results.impulse * scale[:, None]).T.reshape(-1, nc, 2),
        status=lane_status(results),
        num_solves=results.num_solves,
        energy_ratio=energy / (start @ mass @ start),
        residual=results.residual,
        path=path,
        complete=complete,
    )
