"""Samples in chunks of fixed size, in order, computed ahead on all devices.

Owns the division of a long run among chunks, worker threads, devices and processes, and the growing table
of modes of the selection "visited"; entry `Stream`. A sample depends on its number alone, so the division
does not show in the results.
"""

from __future__ import annotations

import contextlib
import itertools
import threading
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import Executor

import jax
import jax.numpy as jnp
import numpy as np

from jaxcontact._pytree import PyTree
from jaxcontact.batching import all_cores
from jaxcontact.batching.remote_blocks import RemoteQueue, remote_queue
from jaxcontact.batching.run_settings import DEFAULT_RUN, Run
from jaxcontact.batching.work_queue import in_order, threads
from jaxcontact.impact.laws.contact_space import ContactSpace, colliding
from jaxcontact.impact.laws.routh_law import FittedRouth
from jaxcontact.impact.sampling.by_modes import NO_FACTS, PIECE, ByModes
from jaxcontact.impact.sampling.by_steps import CHECKED, BySteps, searches_steps
from jaxcontact.impact.sampling.chunks import (
    Chunk,
    ImpactSamples,
    Knowledge,
    cut_range,
    divide_range,
    join_chunks,
    uses_same_facts,
)
from jaxcontact.impact.sampling.density import Shaped
from jaxcontact.impact.sampling.draws import PERIOD, Iid, Sobol
from jaxcontact.impact.sampling.sampling_kernel import lane_status
from jaxcontact.impact.sampling.visited_modes import VisitedModes, fits_capacity
from jaxcontact.terms import ContactTerms

MANY_MODES = 512  # modes of a table above which each block is cut so that all workers have a part
PILOT = 2048  # number of samples that fill the first table of "visited"
HUGE, SHORT_PILOT = 2**15, 512  # above so many modes fewer samples fill it, because each takes long
_NONE = np.empty(0, np.uint32)
LONG_BLOCK = 2**19  # samples of a block from which on a larger table is compiled
GROWTH = 1.5  # each block of "visited" ends at this multiple of the last sample number of the block before


class Stream:
    """A source of samples of one impact by a fitted law; see `sample` for the arguments."""

    def __init__(
        self,
        terms: ContactTerms,
        v: jax.Array,
        draws: Sobol | Iid | Shaped,
        law: FittedRouth,
        *,
        keep_path: bool = False,
        places: tuple[np.ndarray, int] | None = None,
        run: Run = DEFAULT_RUN,
        part: Callable[[ImpactSamples], PyTree] | None = None,
    ) -> None:
        self.terms, self.v, self.draws, self.law = terms, v, draws, law
        self.keep_path, self.places, self.run, self.part = keep_path, places, run, part
        self.devices = list(jax.local_devices() if run.devices is None else run.devices)
        self.compiled: set[tuple[int, ...] | None] = (
            set()
        )  # sizes of `VisitedModes` for which the kernel has been compiled
        self.collides = bool(jnp.any(colliding(terms, v, v)))
        by_steps = law.selection == "lemke" or law.turn_polygon or searches_steps(terms, v, law, self.devices)
        self.enumerates = self.collides and not by_steps
        self.learns = law.selection == "visited" and not by_steps
        self.independent = (draws.independent and not self.learns) or not self.collides
        if self.enumerates:
            self.by_modes = ByModes(
                terms,
                v,
                law.impulse_step,
                law.max_steps,
                keep_path=keep_path,
                learns=self.learns,
                restitution=law.restitution,
                num_directions=law.num_directions,
            )
        elif self.collides:
            self.by_steps = BySteps(terms, v, law, self.devices, keep_path=keep_path)
        huge = self.enumerates and self.by_modes.table.regular.shape[0] > HUGE
        self.pilot = SHORT_PILOT if huge else PILOT
        known_all = law.selection == "all" and self.enumerates and self.by_modes.holds_all
        self.complete = not self.collides or known_all

    def chunks(
        self,
        total: int,
        size: int = PIECE,
        *,
        done: Sequence[tuple[int, np.ndarray]] = (),
        share: tuple[int, int] = (0, 1),
        exchange: Callable[[np.ndarray], np.ndarray] = np.asarray,
    ) -> Generator[Chunk]:
        """Yield chunks of at most `size` samples, in order.

        Args:
            done: (end, facts) of the chunks computed before, in order; the run continues after them.
            share: (i, n) to compute only the i-th of n equal parts of every block.
            exchange: maps the facts of this part to those of all n parts.
        """
        facts, used, first, capacity = NO_FACTS, NO_FACTS, NO_FACTS, (0, 0)
        begin = done[-1][0] if done else 0
        with self._queue() as queue:
            for number, (block_begin, block_end) in enumerate(self._split_blocks(total)):
                # The pilot searches all modes; later blocks use the facts known before the block. Only the
                # block after the pilot and long blocks enlarge the capacity, which needs a new compilation.
                knowledge = None
                if self.enumerates and self.learns and block_begin > 0:
                    long = self.pilot * GROWTH**number - block_begin >= LONG_BLOCK
                    if not fits_capacity(facts, capacity) and (long or number == 1):
                        capacity = self.by_modes.memory.choose_capacity(facts)
                    used = facts if fits_capacity(facts, capacity) else used
                    first = first if first.size else used
                    knowledge = Knowledge(first, used, capacity)
                for end, learnt in done:
                    if block_begin < end <= block_end:
                        facts = np.union1d(facts, learnt)
                cuts = cut_range(
                    *divide_range(max(begin, block_begin), block_end, size, share[1])[share[0]], size
                )
                with contextlib.closing(self._computed(queue, cuts, knowledge)) as chunks:
                    for chunk in chunks:
                        facts = np.union1d(facts, chunk.facts)
                        yield chunk
                facts = exchange(facts)

    def shares(self, total: int, size: int, count: int) -> list[list[tuple[int, int]]]:
        """List (begin, end) of the part of each block that each of `count` processes computes."""
        return [divide_range(begin, end, size, count) for begin, end in self._split_blocks(total)]

    def _piece(self, cuts: list[tuple[int, int]], num_workers: int) -> int:
        """Choose the number of samples per call of the kernel, for one block."""
        if not self.enumerates or self.by_modes.table.regular.shape[0] <= MANY_MODES:
            return PIECE
        count = sum(end - begin for begin, end in cuts)
        return min(PIECE, max(1, -(-count // num_workers)))

    @contextlib.contextmanager
    def _queue(self) -> Iterator[Executor | RemoteQueue]:
        """Provide what computes chunks: threads of this process, or the workers of the run's executor."""
        if self.run.executor is None:
            with threads(len(all_cores.workers(self.devices))) as pool:
                yield pool
            return
        law, places = self.law, self.places
        arguments = self.terms, self.v, self.draws, law, self.keep_path, places, self.part
        check = 0, self.pilot, None
        yield remote_queue(self.run, make_chunk_source, *arguments, check=check)

    def _computed(
        self, queue: Executor | RemoteQueue, cuts: list[tuple[int, int]], knowledge: Knowledge | None
    ) -> Generator[Chunk]:
        """Yield the chunks of the cuts, in order."""
        if isinstance(queue, RemoteQueue):
            for chunk in queue.results(((*cut, knowledge) for cut in cuts), len(cuts)):
                if self.part is None:
                    chunk = chunk._replace(samples=chunk.samples.replace(v_minus=self.v))
                yield chunk
            return
        workers = all_cores.workers(self.devices)
        piece = self._piece(cuts, len(workers))
        pieces = [p for cut in cuts for p in cut_range(*cut, piece)]
        parts = self._in_order(queue, workers, pieces, self.tabulate(knowledge))
        for cut in cuts:
            chunk = join_chunks(list(itertools.islice(parts, len(cut_range(*cut, piece)))))
            yield chunk if self.part is None else chunk._replace(samples=self.part(chunk.samples))

    def tabulate(self, knowledge: Knowledge | None) -> VisitedModes | None:
        """Make the tables of "visited" from its facts, after those of the first facts of the run."""
        if knowledge is None:
            return None
        memory = self.by_modes.memory
        if memory.x is None and knowledge.first is not knowledge.used:
            memory.tabulate(knowledge.first, memory.choose_capacity(knowledge.first))
        return memory.tabulate(knowledge.used, knowledge.capacity)

    def _in_order(
        self,
        pool: Executor,
        workers: list[jax.Device],
        pieces: list[tuple[int, int]],
        visited: VisitedModes | None,
    ) -> Iterator[Chunk]:
        """Yield the chunks of the pieces, in order, each computed by the next worker, a few ahead."""
        placed = {device: jax.device_put(visited, device) for device in dict.fromkeys(workers)}
        sizes = visited and tuple(leaf.shape for leaf in jax.tree.leaves(visited))
        if pieces and self.enumerates and sizes not in self.compiled:
            # A call without samples compiles the kernel once; otherwise two threads would both compile it.
            resolve = self.by_modes.resolve
            list(pool.map(lambda device: resolve(_NONE, self.draws, placed[device], device), placed))
            self.compiled.add(sizes)
        blocks = ((*piece, placed[device], device) for piece, device in zip(pieces, itertools.cycle(workers)))
        yield from in_order(pool, self.compute, blocks, ahead=2 * len(workers), compiles=not self.enumerates)

    def _split_blocks(self, total: int) -> list[tuple[int, int]]:
        if not self.learns:
            return [(0, total)]
        ends = [0]
        while ends[-1] < total:
            ends.append(min(total, int(self.pilot * GROWTH ** (len(ends) - 1))))
        return list(itertools.pairwise(ends))

    def compute(self, begin: int, end: int, visited: VisitedModes | None, device: jax.Device) -> Chunk:
        """Compute samples begin, ..., end - 1 on a device."""
        epoch = begin // PERIOD
        edge = (epoch + 1) * PERIOD
        if edge < end:
            return join_chunks([self.compute(a, b, visited, device) for a, b in ((begin, edge), (edge, end))])
        draws = self.draws.epoch(epoch)
        numbers = np.arange(begin - epoch * PERIOD, end - epoch * PERIOD).astype(np.uint32)
        if not self.enumerates:
            if not self.collides:
                return Chunk(begin, end, self.unmoved(end - begin), NO_FACTS)
            checked = max(CHECKED - begin, 0)
            samples = self._placed(self.by_steps.resolve(numbers, draws, device, checked))
            return Chunk(begin, end, samples.replace(independent=self.independent), NO_FACTS)
        results, facts = self.by_modes.resolve(numbers, draws, visited, device)
        samples = _physical(self.terms, self.by_modes.space, self.v, results, self.complete)
        samples = self._placed(samples)
        return Chunk(begin, end, samples.replace(independent=self.independent), facts)

    def _placed(self, samples: ImpactSamples) -> ImpactSamples:
        """Expand the impulses of samples to all candidates, zero for those that take no part."""
        if self.places is None:
            return samples
        index, count = self.places
        impulse = np.asarray(samples.impulse)
        every = np.zeros((impulse.shape[0], count, impulse.shape[2]), impulse.dtype)
        every[:, index] = impulse
        return samples.replace(impulse=every)

    def unmoved(self, n: int) -> ImpactSamples:
        """Make n samples equal to v, for impacts without approaching contacts and as template of shapes."""
        nc, nt, nv = self.terms.J_t.shape
        nc = nc if self.places is None else self.places[1]
        v = np.asarray(self.v)
        arrays: dict[str, PyTree] = {
            "v_plus": np.broadcast_to(v, (n, nv)),
            "impulse": np.zeros((n, nc, 1 + nt), v.dtype),
            "status": np.zeros(n, np.uint32),
            "num_iters": np.zeros(n, np.int32),
            "energy_ratio": np.ones(n, v.dtype),
            "residual": np.zeros(n, v.dtype),
            "searched_again": np.zeros(n, np.int32),
            "missed": np.zeros(n, np.int32),
        }
        if self.keep_path:
            arrays["path"] = np.broadcast_to(v, (n, self.law.max_steps + 1, nv))
        knowledge = {"complete": self.complete, "independent": self.independent}
        return ImpactSamples(v_minus=self.v, **knowledge, **arrays)  # type: ignore[arg-type]


class _ChunkSource:
    """Stream in a worker, which computes chunks by their place and the facts that they use."""

    def __init__(self, stream: Stream) -> None:
        self.stream, self.lock = stream, threading.Lock()
        self.devices = itertools.cycle(stream.devices)
        self.knowledge: Knowledge | None = None
        self.visited: VisitedModes | None = None

    def __call__(self, begin: int, end: int, knowledge: Knowledge | None) -> Chunk:
        stream = self.stream
        with self.lock:
            device = next(self.devices)
            if not uses_same_facts(self.knowledge, knowledge):
                self.knowledge, self.visited = knowledge, stream.tabulate(knowledge)
            visited = jax.device_put(self.visited, device)
        chunk = join_chunks(
            [stream.compute(*piece, visited, device) for piece in cut_range(begin, end, PIECE)]
        )
        samples = chunk.samples if stream.part is None else stream.part(chunk.samples)
        return chunk._replace(samples=samples if stream.part is not None else samples.replace(v_minus=None))


def make_chunk_source(
    terms: ContactTerms,
    v: jax.Array,
    draws: Sobol | Iid | Shaped,
    law: FittedRouth,
    keep_path: bool,
    places: tuple[np.ndarray, int] | None,
    part: Callable[[ImpactSamples], PyTree] | None,
) -> Callable[[int, int, Knowledge | None], Chunk]:
    """Make the function of a worker that computes the chunk begin, ..., end - 1 with some knowledge."""
    return _ChunkSource(Stream(terms, v, draws, law, keep_path=keep_path, places=places, part=part))


def _physical(
    terms: ContactTerms, space: ContactSpace, v: jax.Array, results: PyTree, complete: bool
) -> ImpactSamples:
    """Convert results to physical units, samples first, elementwise in NumPy: same bits for any number."""
    response, scale, start = (np.asarray(a) for a in (space.response, space.scale, v))
    nc, nt = terms.J_t.shape[:2]

    def velocities(impulse: PyTree) -> PyTree:
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
    none_searched: PyTree = np.zeros(v_plus.shape[0], np.int32)
    path: PyTree = None
    if results.path is not None:
        through = velocities(np.moveaxis(results.path, 1, 0))  # (N + 1, n, nv)
        rows = np.minimum(np.arange(through.shape[0])[:, None], results.num_iters[None, :])
        path = np.moveaxis(through[rows, np.arange(rows.shape[1])[None, :]], 0, 1)
    return ImpactSamples(
        v_minus=v,
        v_plus=v_plus,
        impulse=(results.impulse * scale[:, None]).T.reshape(-1, nc, 1 + nt),
        status=lane_status(results),
        num_iters=results.num_iters,
        energy_ratio=energy / (start @ mass @ start),
        residual=results.residual,
        path=path,
        complete=complete,
        searched_again=none_searched,
        missed=none_searched,
    )
