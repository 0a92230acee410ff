"""Samples in chunks of fixed size, in order, computed ahead on all devices.

Owns the division of a long run among chunks, worker threads, devices and processes, and the growing table
of modes of the selection "visited"; entry `Stream`. A sample depends on its number alone, so the division
does not show in the results.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import Executor
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxcontact._pytree import Record, static
from jaxcontact.batching import all_cores
from jaxcontact.batching.work_queue import in_order, threads
from jaxcontact.impact.laws import routh
from jaxcontact.impact.laws.contact_space import ContactSpace, colliding
from jaxcontact.impact.laws.routh_law import FittedRouth
from jaxcontact.impact.laws.routh_steps import ImpactDraws
from jaxcontact.impact.sampling.by_modes import NO_FACTS, PIECE, ByModes
from jaxcontact.impact.sampling.density import Shaped
from jaxcontact.impact.sampling.draws import PERIOD, Iid, Sobol
from jaxcontact.impact.sampling.sampling_kernel import lane_status
from jaxcontact.impact.sampling.visited_modes import VisitedModes, fits_capacity
from jaxcontact.terms import ContactTerms

MANY_MODES = 512  # modes of a table above which each block is cut so that all workers have a part
PILOT = 2048  # number of samples that fill the first table of "visited"
HUGE, SHORT_PILOT = 2**15, 512  # above so many modes fewer samples fill it, because each takes long
_NONE = np.empty(0, np.uint32)
LONG = 2**19  # samples of a block from which on a larger table is compiled
LEMKE_MEMORY = 2**30  # bytes at most of the problems that are solved together
LEMKE_LANES = {1: 1024, 2: 64}  # problems at most, in the plane and in space: a call pays for all of them
GROWTH = 1.5  # each block of "visited" ends at this multiple of the last sample number of the block before


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
    """

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


class Chunk(NamedTuple):
    """Samples number begin, ..., end - 1, as NumPy arrays, and the facts they taught, ascending.

    With "visited" the facts are the modes that stood for an outcome in some step, and the sets of outcomes
    of the steps, by their signatures; none with other selections. After the pilot, facts come
    only from samples that needed more than the known modes and sets.
    """

    begin: int
    end: int
    samples: ImpactSamples
    facts: np.ndarray


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
        devices: Sequence[jax.Device] | None = None,
        places: tuple[np.ndarray, int] | None = None,
    ) -> None:
        self.terms, self.v, self.draws, self.law = terms, v, draws, law
        self.keep_path, self.places = keep_path, places
        self.devices = list(jax.local_devices() if devices is None else devices)
        self.compiled: set[Any] = set()  # sizes of `VisitedModes` for which the kernel has been compiled
        self.collides = bool(jnp.any(colliding(terms, v, v)))
        self.enumerates = self.collides and law.selection != "lemke" and not law.turn_polygon
        self.learns = law.selection == "visited"
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
        facts, used, capacity = NO_FACTS, NO_FACTS, (0, 0)
        begin = done[-1][0] if done else 0
        workers = all_cores.workers(self.devices)
        with threads(len(workers)) as pool:
            for number, (block_begin, block_end) in enumerate(self._blocks(total)):
                # The pilot searches all modes; later blocks use the facts known before the block. Only the
                # block after the pilot and long blocks enlarge the capacity, which needs a new compilation.
                visited = None
                if self.enumerates and self.learns and block_begin > 0:
                    long = self.pilot * GROWTH**number - block_begin >= LONG
                    if not fits_capacity(facts, capacity) and (long or number == 1):
                        capacity = self.by_modes.memory.choose_capacity(facts)
                    used = facts if fits_capacity(facts, capacity) else used
                    visited = self.by_modes.memory.tabulate(used, capacity)
                for end, learnt in done:
                    if block_begin < end <= block_end:
                        facts = np.union1d(facts, learnt)
                cuts = _cuts(*_parts(max(begin, block_begin), block_end, size, share[1])[share[0]], size)
                piece = self._piece(cuts, len(workers))
                parts = self._in_order(
                    pool, workers, [p for cut in cuts for p in _cuts(*cut, piece)], visited
                )
                for cut in cuts:
                    chunk = _joined(list(itertools.islice(parts, len(_cuts(*cut, piece)))))
                    facts = np.union1d(facts, chunk.facts)
                    yield chunk
                facts = exchange(facts)

    def shares(self, total: int, size: int, count: int) -> list[list[tuple[int, int]]]:
        """List (begin, end) of the part of each block that each of `count` processes computes."""
        return [_parts(begin, end, size, count) for begin, end in self._blocks(total)]

    def _piece(self, cuts: list[tuple[int, int]], num_workers: int) -> int:
        """Choose the number of samples per call of the kernel, for one block."""
        if not self.enumerates or self.by_modes.table.regular.shape[0] <= MANY_MODES:
            return PIECE
        count = sum(end - begin for begin, end in cuts)
        return min(PIECE, max(1, -(-count // num_workers)))

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
        yield from in_order(pool, self._chunk, blocks, ahead=2 * len(workers), compiles=not self.enumerates)

    def _blocks(self, total: int) -> list[tuple[int, int]]:
        if not self.learns:
            return [(0, total)]
        ends = [0]
        while ends[-1] < total:
            ends.append(min(total, int(self.pilot * GROWTH ** (len(ends) - 1))))
        return list(itertools.pairwise(ends))

    def _chunk(self, begin: int, end: int, visited: VisitedModes | None, device: jax.Device) -> Chunk:
        epoch = begin // PERIOD
        edge = (epoch + 1) * PERIOD
        if edge < end:
            return _joined([self._chunk(a, b, visited, device) for a, b in ((begin, edge), (edge, end))])
        draws = self.draws.epoch(epoch)
        numbers = np.arange(begin - epoch * PERIOD, end - epoch * PERIOD).astype(np.uint32)
        if not self.enumerates:
            if not self.collides:
                return Chunk(begin, end, self.unmoved(end - begin), NO_FACTS)
            samples = self._placed(self._by_steps(numbers, draws, device))
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
        arrays: dict[str, Any] = {
            "v_plus": np.broadcast_to(v, (n, nv)),
            "impulse": np.zeros((n, nc, 1 + nt), v.dtype),
            "status": np.zeros(n, np.uint32),
            "num_iters": np.zeros(n, np.int32),
            "energy_ratio": np.ones(n, v.dtype),
            "residual": np.zeros(n, v.dtype),
        }
        if self.keep_path:
            arrays["path"] = np.broadcast_to(v, (n, self.law.max_steps + 1, nv))
        return ImpactSamples(v_minus=self.v, complete=self.complete, independent=self.independent, **arrays)

    def _by_steps(
        self, numbers: np.ndarray, draws: Sobol | Iid | Shaped, device: jax.Device
    ) -> ImpactSamples:
        """Resolve samples step by step, by Lemke's method or own modes of each step, in padded batches."""
        law, nc = self.law, self.terms.phi.shape[0]
        size = 32
        if law.selection == "lemke":
            rows = nc * (law.num_directions + 3)  # of the problem of a step; pivoting stores it three times
            bytes_of_lane = 3 * rows * (rows + 3) * self.v.dtype.itemsize
            size = int(np.clip(LEMKE_MEMORY // bytes_of_lane, 1, LEMKE_LANES[self.terms.J_t.shape[1]]))
        terms, draws, step, v, e = jax.device_put(
            (self.terms, draws, law.impulse_step, self.v, law.restitution), device
        )
        parts = []
        for begin in range(0, len(numbers), size):
            piece = numbers[begin : begin + size]
            padded = jax.device_put(np.resize(piece, size), device)
            drawn = draws.uniform(padded, 0, law.max_steps * (nc + 1), v.dtype).T
            drawn = drawn.reshape(size, law.max_steps, nc + 1)
            orders = ImpactDraws(drawn[..., :nc] * step[None, None], drawn[..., nc])
            start = jnp.broadcast_to(v, (size, v.shape[0]))
            part = routh.resolve_many(terms, start, orders, law.steps, self.keep_path, e)
            parts.append(jax.tree.map(lambda leaf, n=piece.size: np.asarray(leaf)[:n], part))
        v_plus, info, path = jax.tree.map(lambda *leaves: np.concatenate(leaves), *parts)
        return ImpactSamples(
            v_minus=self.v,
            v_plus=v_plus,
            impulse=info.impulse,
            status=info.status,
            num_iters=info.num_iters,
            energy_ratio=info.energy_ratio,
            residual=info.residual,
            path=path,
        )


def _cuts(begin: int, end: int, size: int) -> list[tuple[int, int]]:
    return [(start, min(start + size, end)) for start in range(begin, end, size)]


def _parts(begin: int, end: int, size: int, count: int) -> list[tuple[int, int]]:
    """Divide a range into `count` parts with nearly equal numbers of whole chunks."""
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


def _physical(
    terms: ContactTerms, space: ContactSpace, v: jax.Array, results: Any, complete: bool
) -> ImpactSamples:
    """Convert results to physical units, samples first, elementwise in NumPy: same bits for any number."""
    response, scale, start = (np.asarray(a) for a in (space.response, space.scale, v))
    nc, nt = terms.J_t.shape[:2]

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
    )
