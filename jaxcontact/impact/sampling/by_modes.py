"""Samples by contact modes: the kernel on one device, first with known modes and then with all modes.

Owns the mode table of an impact, the order of samples in the kernel, and the repetition of samples that the
known modes do not cover; entry `ByModes`.
"""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np

from jaxcontact._pytree import PyTree
from jaxcontact.batching import all_cores, platforms
from jaxcontact.impact.laws.contact_enumeration import mode_table
from jaxcontact.impact.laws.contact_space import ContactSpace, contact_space, friction_directions, mass_norm
from jaxcontact.impact.sampling import mode_selection
from jaxcontact.impact.sampling.density import Shaped
from jaxcontact.impact.sampling.draws import Iid, Sobol
from jaxcontact.impact.sampling.mode_selection import MAX_MET_MODES
from jaxcontact.impact.sampling.sampling_kernel import (
    Begun,
    LaneProblem,
    LaneResults,
    LaneSettings,
    SampleBatch,
    first_places,
    run_lanes,
)
from jaxcontact.impact.sampling.visited_modes import Memory, VisitedModes, sets_of
from jaxcontact.precision import jit
from jaxcontact.solvers import contact_modes, mode_filter, mode_tree
from jaxcontact.terms import ContactTerms

PIECE = 2**14  # largest number of samples per call of the kernel
NO_FACTS = np.empty(0, np.int64)


class ByModes:
    """One impact to sample; see `sample` for the arguments."""

    def __init__(
        self,
        terms: ContactTerms,
        v: jax.Array,
        step: jax.Array,
        max_steps: int,
        *,
        keep_path: bool,
        learns: bool,
        restitution: jax.Array | None,
        num_directions: int = 8,
    ) -> None:
        self.v, self.step, self.max_steps = v, step, max_steps
        self.keep_path, self.learns, self.restitution = keep_path, learns, restitution
        self.num_directions = num_directions
        self.space, self.table = tabulate(terms, num_directions)
        self.holds_all = not np.any(self.table.unresolved)
        if self.space.num_tangents == 2:
            self.table = regular_modes(self.table)
        u, cap, speed = _scales(self.space, v, step)
        limit = contact_modes.feasibility_tolerance(v.dtype) * float(speed)
        self.memory = Memory(self.table, self.space.delassus, u, cap, limit)
        self.pieces: mode_tree.Leaves | mode_filter.Sieve | None = None
        if self.table.regular.shape[0] > MAX_MET_MODES:
            if self.space.num_tangents == 1:
                pieces: PyTree = mode_tree.leaves(self.table, self.space.delassus, self.space.mu)
            else:
                pieces = self.memory.sieve_of_all()
            self.pieces = jax.tree.map(jnp.asarray, pieces)

    def resolve(
        self,
        numbers: np.ndarray,
        draws: Sobol | Iid | Shaped,
        visited: VisitedModes | None,
        device: jax.Device,
    ) -> tuple[LaneResults, np.ndarray]:
        """Resolve the samples `numbers` of `draws`, with known modes first; return results and new facts."""
        if visited is None:
            return self._resolve_lanes(numbers, draws, None, device)
        if visited.first is None or self.restitution is not None:
            results = self._resolve_lanes(numbers, draws, visited, device)[0]
        else:
            # First the first step of all samples, which needs fewer modes; then the samples that continue.
            order = self._order_neighbours(numbers, draws, device)
            nothing = self._nothing_begun(numbers.size)
            first = self._resolve_lanes(numbers[order], draws, visited.first, device, nothing, once=True)[0]
            results = jax.tree.map(np.empty_like, first)
            _store(results, order, first)
            more = np.flatnonzero(results.collides & ~results.missed & (results.num_iters < self.max_steps))
            begun = _state_of(results, more)
            _store(results, more, self._resolve_lanes(numbers[more], draws, visited, device, begun)[0], begun)
        # If the valid modes of a step are no set known to be complete, the sample continues with all modes.
        lost = np.flatnonzero(results.missed)
        facts = NO_FACTS
        if lost.size:
            # Energies in store are not saved: with restitution samples restart from their beginning.
            begun = _state_of(results, lost) if self.restitution is None else self._nothing_begun(lost.size)
            again, facts = self._resolve_lanes(numbers[lost], draws, None, device, begun)
            _store(results, lost, again, begun)
        return results, facts

    def _order_neighbours(
        self, numbers: np.ndarray, draws: Sobol | Iid | Shaped, device: jax.Device
    ) -> np.ndarray:
        """Order samples so that neighbours have similar largest impulses in their first steps."""
        padded = jax.device_put((draws, np.resize(numbers, PIECE)), device)
        places = np.asarray(first_places(*padded, self.space.mu.shape[0]))[: numbers.size]
        return np.argsort(places, kind="stable")

    def _resolve_lanes(
        self,
        numbers: np.ndarray,
        draws: Sobol | Iid | Shaped,
        visited: VisitedModes | None,
        device: jax.Device,
        begun: Begun | None = None,
        once: bool = False,
    ) -> tuple[LaneResults, np.ndarray]:
        """Resolve samples by the kernel, with `visited` modes or with all; return results and new facts."""
        learns = visited is None and self.learns
        names = self.memory.names if learns else None
        table, complete, names, pieces, _ = visited or (self.table, None, names, self.pieces, None)
        if learns and begun is None:
            begun = self._nothing_begun(numbers.size)
        elastic = None if self.restitution is None else self.restitution**2
        complete, names, pieces = jax.device_put((complete, names, pieces), device)
        problem = LaneProblem(self.space, table, draws, self.v, self.step, complete, pieces, names, elastic)
        problem = jax.device_put(problem, device)
        settings = LaneSettings(
            max_steps=self.max_steps,
            tile=tile_size(table.regular.shape[0], device.platform),
            keep_path=self.keep_path,
            keep_sets=learns,
            once=once,
            num_directions=self.num_directions,
        )
        parts, facts = [], [NO_FACTS]
        for begin in range(0, max(1, len(numbers)), PIECE):
            piece = numbers[begin : begin + PIECE]
            rest = PIECE - piece.size
            padded = jax.tree.map(
                lambda array, begin=begin, rest=rest: np.pad(
                    array[..., begin : begin + PIECE], [(0, 0)] * (array.ndim - 1) + [(0, rest)]
                ),
                (numbers, begun),
            )
            indices, begins = jax.device_put(padded, device)
            size = jax.device_put(np.int32(piece.size), device)
            part = run_lanes(problem, SampleBatch(indices, size, begins), settings)
            if part.sets is not None:
                facts += [np.flatnonzero(part.visited), sets_of(np.asarray(part.sets)[:, : piece.size])]
            part = part.replace(visited=part.visited[:0], sets=None)
            parts.append(jax.tree.map(functools.partial(_drop_padding, size=piece.size), part))
        joined = jax.tree.map(lambda *arrays: np.concatenate(arrays, axis=-1), *parts)
        return joined, np.unique(np.concatenate(facts))

    def _nothing_begun(self, n: int) -> Begun:
        rows, dtype = self.space.delassus.shape[0], self.space.delassus.dtype
        arrays: PyTree = (np.zeros((rows, n), dtype), np.zeros(n, np.int32), np.zeros(n, dtype))
        return Begun(impulse=arrays[0], num_iters=arrays[1], residual=arrays[2])


def _store(results: PyTree, at: np.ndarray, again: PyTree, begun: Begun | None = None) -> None:
    """Store later results of some samples; of a path only the rows after the steps done before."""
    for name in ("impulse", "num_iters", "residual", "missed", "collides"):
        getattr(results, name)[..., at] = getattr(again, name)
    if results.path is not None:
        new: PyTree = True
        if begun is not None:
            new = np.arange(results.path.shape[0])[:, None, None] > begun.num_iters
        results.path[..., at] = np.where(new, again.path, results.path[..., at])


def _state_of(results: PyTree, lost: np.ndarray) -> Begun:
    """Return the state from which the samples `lost` continue after the steps done before."""
    chosen = (results.impulse, results.num_iters, results.residual)
    impulse, num_iters, residual = (array[..., lost] for array in chosen)
    return Begun(impulse=impulse, num_iters=num_iters, residual=residual)


def _drop_padding(leaf: jax.Array, size: int) -> np.ndarray:
    """Return the first `size` samples of an array."""
    return np.array(np.asarray(leaf)[..., :size])


@functools.partial(jit, static_argnames="num_directions", compiler_options=all_cores.WIDE_VECTORS)
def tabulate(terms: ContactTerms, num_directions: int = 8) -> tuple[ContactSpace, contact_modes.ModeMaps]:
    """Compute the scaled contact matrices, and tabulate all contact modes of a step."""
    space = contact_space(terms)
    directions = friction_directions(space.num_tangents, num_directions)
    return space, mode_table(space, directions, capped=True)


@jit
def _scales(space: ContactSpace, v: jax.Array, step: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Compute scaled rates (r,) of the contacts, their largest impulses (m,) in a step, and |v|_M."""
    return space.jacobian @ v, mode_selection.scale_largest(space, step), mass_norm(space.mass, v)


def regular_modes(table: contact_modes.ModeMaps) -> contact_modes.ModeMaps:
    """Select the regular modes of a large table, padded with others to a multiple of 128."""
    if table.regular.shape[0] <= MAX_MET_MODES:
        return table
    regular_index = np.flatnonzero(np.asarray(table.regular))
    selected = jax.tree.map(np.asarray, table).take(
        np.pad(regular_index, (0, -regular_index.size % mode_filter.BLOCK))
    )
    regular = selected.regular & (np.arange(selected.regular.shape[0]) < regular_index.size)
    return jax.device_put(selected.replace(regular=regular))


def tile_size(num_modes: int, platform: str) -> int:
    """Choose the lanes of the kernel: enough to vectorise, few enough that (modes, lanes) fits in cache."""
    if not platforms.is_cpu(platform):
        return int(np.clip(2**24 // num_modes, 2**10, 2**14))
    return 256 if num_modes <= 64 else 128 if num_modes <= MAX_MET_MODES else 64 if num_modes <= 4096 else 32
