"""The sampling kernel, entry `resolve_lanes`: a tile of lanes that never idle.

Each lane works on one sample; when its impact ends it stores the result and takes the next sample, so a
tile does no work for finished impacts. Arithmetic is elementwise over the lanes, sums are unrolled in a fixed
order, and draws depend on the sample number alone: a sample has the same bits in every tile, chunk and order.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxcontact._pytree import PyTree, Record
from jaxcontact.batching import all_cores
from jaxcontact.batching.bounded_loop import bounded_loop
from jaxcontact.impact.laws import energetic_restitution
from jaxcontact.impact.laws.contact_space import (
    ContactSpace,
    friction_directions,
    mass_norm,
    residual_limit,
    slowest_approach,
)
from jaxcontact.impact.laws.spatial_restitution import give_back_in_lanes
from jaxcontact.impact.sampling import mode_selection
from jaxcontact.impact.sampling.density import Shaped
from jaxcontact.impact.sampling.draws import Iid, Sobol
from jaxcontact.precision import jit
from jaxcontact.solvers import contact_modes, mode_filter, mode_tree
from jaxcontact.status import Status

_BITS = 3  # leading bits of each draw that neighbours in the order of samples have in common


class LaneResults(Record):
    """Results per sample, in the order of the indices; impulses are scaled, r = 2m in the plane, 3m in space.

    Attributes:
        impulse: (r, n) total scaled impulse.
        num_iters: (n,) number of steps.
        residual: (n,) largest violation of the law in any step, relative to |v|_M.
        missed: (n,) bool, some step had no valid mode in the table, or a set of them that is not known to
            be complete. With known sets the sample ends before that step, and num_iters tells where.
        collides: (n,) bool, a contact still approaches, or has energy in store.
        visited: (K,) bool, modes that stood for an outcome in some step of some sample; none without names.
        sets: (N, n) uint32, the signature of the set of outcomes of each step, 0 after the last; or None.
        path: (N + 1, r, n) scaled impulse so far after each step, or None.
        changes: (N, r, n) scaled impulse of the compression of each step, 0 after the last; or None.
    """

    impulse: jax.Array
    num_iters: jax.Array
    residual: jax.Array
    missed: jax.Array
    collides: jax.Array
    visited: jax.Array
    sets: jax.Array | None
    path: jax.Array | None
    changes: jax.Array | None


class Begun(Record):
    """Samples with some of their steps done; fields as in `LaneResults`."""

    impulse: jax.Array
    num_iters: jax.Array
    residual: jax.Array


class _Lanes(Record):
    """The sample of each lane and the state of its impact; the last axis is the lane."""

    slot: jax.Array  # place of the sample among the indices
    num_iters: jax.Array
    u: jax.Array  # contact velocity
    impulse: jax.Array
    residual: jax.Array
    missed: jax.Array
    stored: jax.Array | None  # energy, as in `energetic_restitution`


class LaneProblem(NamedTuple):
    """One impact, and what the lanes use to choose its modes.

    Attributes:
        space: contact space of the impact.
        table: modes to choose from.
        draws: of all samples.
        v: (nv,) velocity before the impact, the same for all; some contact approaches.
        step: (nc,) largest normal impulse of a step, N s.
        complete: (S,) uint32, ascending: signatures of complete sets of outcomes. A step with another set
            counts as missed. None if the table holds all modes.
        pieces: the validity of the modes of the table by stems and leaves, or by a sieve, which is faster;
            or None.
        names: (K,) uint32 of the modes, equal for equal outcomes; needed for `complete` and `keep_sets`.
        elastic: (nc,) squared coefficients of restitution, see `energetic_restitution`; or None.
    """

    space: ContactSpace
    table: contact_modes.ModeMaps
    draws: Sobol | Iid | Shaped
    v: jax.Array
    step: jax.Array
    complete: jax.Array | None = None
    pieces: mode_tree.Leaves | mode_filter.Sieve | None = None
    names: jax.Array | None = None
    elastic: jax.Array | None = None


class SampleBatch(NamedTuple):
    """The first `size` of the samples numbered `indices` (n,), and the steps done before; default none."""

    indices: jax.Array
    size: jax.Array
    begun: Begun | None = None


class LaneSettings(NamedTuple):
    """Static settings of the kernel.

    Attributes:
        max_steps: of a sample.
        tile: number of lanes.
        keep_path, keep_sets, keep_changes: whether `LaneResults` has these fields.
        once: take only one step of each sample.
        num_directions: sides of the friction cone in space.
    """

    max_steps: int
    tile: int
    keep_path: bool = False
    keep_sets: bool = False
    keep_changes: bool = False
    once: bool = False
    num_directions: int = 8


class _ImpactData(NamedTuple):
    """Data common to all samples; fields with names of fields of `LaneProblem` are these fields."""

    space: ContactSpace
    table: contact_modes.ModeMaps
    pieces: contact_modes.ModeMaps | mode_tree.Leaves | mode_filter.Sieve
    draws: Sobol | Iid | Shaped
    names: jax.Array | None
    complete: jax.Array | None
    elastic: jax.Array | None
    speed: jax.Array
    slowest: jax.Array
    cap_scale: jax.Array
    directions: np.ndarray


_SetData = tuple[jax.Array | None, jax.Array | None]  # as the last two of `mode_selection.select`


def resolve_lanes(problem: LaneProblem, samples: SampleBatch, settings: LaneSettings) -> LaneResults:
    """Resolve a batch of samples of one impact."""
    space, indices, size = problem.space, samples.indices, samples.size
    n = indices.shape[0]
    impact = _prepare(problem, settings.num_directions)
    begin = functools.partial(
        _begin_samples, space, space.jacobian @ problem.v, samples.begun, problem.elastic
    )
    nowhere = n + jnp.arange(settings.tile, dtype=jnp.int32)  # out of bounds and distinct: nothing is stored

    def body(carry: tuple[_Lanes, jax.Array, LaneResults]) -> tuple[_Lanes, jax.Array, LaneResults]:
        lanes, following, results = carry
        live = lanes.slot < size
        index = indices[jnp.minimum(lanes.slot, n - 1)]
        stepped, change, collides, set_data = _take_step(impact, lanes, index, live)
        done = live if settings.once else live & (~collides | (stepped.num_iters >= settings.max_steps))
        last = stepped
        if problem.complete is not None:  # a lane that missed a mode ends before that step
            done |= live & stepped.missed
            last = stepped.replace(
                impulse=jnp.where(stepped.missed[None], lanes.impulse, stepped.impulse),
                num_iters=jnp.where(stepped.missed, lanes.num_iters, stepped.num_iters),
                residual=jnp.where(stepped.missed, lanes.residual, stepped.residual),
            )
        results = _keep_step(results, lanes, stepped, change, set_data, jnp.where(live, lanes.slot, nowhere))
        results = _keep_outcome(results, last, collides, jnp.where(done, lanes.slot, nowhere))
        # Finished lanes take the next samples.
        turn = jnp.cumsum(done, dtype=jnp.int32) - 1
        slot = jnp.where(done, following + turn, lanes.slot)
        fresh = done | ~live
        lanes = jax.tree.map(
            lambda new, old: jnp.where(jnp.expand_dims(fresh, range(new.ndim - 1)), new, old),
            begin(slot),
            stepped.replace(slot=slot),
        )
        return lanes, following + jnp.sum(done, dtype=jnp.int32), results

    results = _make_empty_results(problem.table, n, settings, problem.v.dtype)
    start = begin(jnp.arange(settings.tile, dtype=jnp.int32)), jnp.int32(settings.tile), results
    final: LaneResults = bounded_loop(
        lambda carry: jnp.any(carry[0].slot < size), body, start, max_iters=_most_turns(n, settings)
    )[-1]
    return final


def _most_turns(n: int, settings: LaneSettings) -> int:
    """Bound the turns of a tile of lanes that resolve n samples, each lane taking the next one when done."""
    steps = 1 if settings.once else settings.max_steps
    return -(-n * steps // settings.tile) + steps


def _prepare(problem: LaneProblem, num_directions: int) -> _ImpactData:
    """Compute the data common to all samples."""
    space, table = problem.space, problem.table
    return _ImpactData(
        space=space,
        table=table,
        pieces=mode_selection.split_in_blocks(table) if problem.pieces is None else problem.pieces,
        draws=problem.draws,
        names=problem.names,
        complete=problem.complete,
        elastic=problem.elastic,
        speed=mass_norm(space.mass, problem.v),
        slowest=slowest_approach(space, problem.v),
        cap_scale=mode_selection.scale_largest(space, problem.step),
        directions=friction_directions(space.num_tangents, num_directions),
    )


def _begin_samples(
    space: ContactSpace, u_start: jax.Array, begun: Begun | None, elastic: jax.Array | None, slot: jax.Array
) -> _Lanes:
    """Start lanes on the samples at `slot`."""
    rows, tile, dtype = u_start.shape[0], slot.shape[0], u_start.dtype
    impulse = jnp.zeros((rows, tile), dtype)
    num_iters, residual = jnp.zeros(tile, jnp.int32), jnp.zeros(tile, dtype)
    u = jnp.broadcast_to(u_start[:, None], (rows, tile))
    if begun is not None:
        at = jnp.minimum(slot, begun.num_iters.shape[0] - 1)
        impulse, num_iters, residual = begun.impulse[:, at], begun.num_iters[at], begun.residual[at]
        u = u_start[:, None] + contact_modes.apply(space.delassus.T, impulse)
    return _Lanes(
        slot=slot,
        num_iters=num_iters,
        u=u,
        impulse=impulse,
        residual=residual,
        missed=jnp.zeros(tile, bool),
        stored=None if elastic is None else jnp.zeros((space.mu.shape[0], tile), dtype),
    )


def _take_step(
    impact: _ImpactData, lanes: _Lanes, index: jax.Array, live: jax.Array
) -> tuple[_Lanes, jax.Array, jax.Array, _SetData]:
    """Take one step of every lane; return lanes, the impulse of compression, and a mask of colliding lanes.

    Also returns the signature of the set of valid modes, and a mask of those that were met.
    """
    space, elastic, u = impact.space, impact.elastic, lanes.u
    m = space.mu.shape[0]
    # With restitution there are steps in which nothing approaches.
    presses = live if elastic is None else live & mode_selection.approaches(u, impact.slowest)
    drawn = impact.draws.uniform(index, lanes.num_iters * (m + 1), m + 1, u.dtype)
    cap = drawn[:m] * impact.cap_scale[:, None]
    mode, lost, set_data = _choose_mode(impact, jnp.concatenate([u, cap]), drawn[m], presses)
    compression = mode_selection.impulse_of(impact.table, mode, jnp.concatenate([u, cap]))
    if elastic is not None:
        compression = jnp.where(presses[None], compression, 0.0)
    u_next = u + contact_modes.apply(space.delassus.T, compression)
    misfit = mode_selection.misfit(space, u_next, compression, cap, impact.speed, impact.directions)
    change, stored, collides = compression, None, jnp.zeros((), bool)
    if elastic is not None:
        misfit = jnp.where(presses, misfit, 0.0)
        assert lanes.stored is not None
        pressed = energetic_restitution.Compression(
            space, elastic, cap, u, u_next, compression, lanes.stored, impact.speed, impact.slowest
        )
        if space.num_tangents == 1:
            push, stored = energetic_restitution.give_back(pressed)
        else:
            push, stored = give_back_in_lanes(pressed, impact.directions)
        u_next = u_next + contact_modes.apply(space.delassus.T, push)
        change = compression + push
        collides = jnp.any(energetic_restitution.find_loaded(stored, impact.slowest), axis=0)
    stepped = lanes.replace(
        num_iters=lanes.num_iters + 1,
        u=u_next,
        impulse=lanes.impulse + change,
        residual=jnp.maximum(lanes.residual, misfit),
        missed=lanes.missed | lost,
        stored=stored,
    )
    return stepped, compression, collides | mode_selection.approaches(u_next, impact.slowest), set_data


def _choose_mode(
    impact: _ImpactData, x: jax.Array, pick: jax.Array, presses: jax.Array
) -> tuple[jax.Array, jax.Array, _SetData]:
    """Choose a mode for each lane; also tell whether its set of valid modes lacks some, and describe it."""
    table, complete = impact.table, impact.complete
    mode, found, valid_set, met = mode_selection.select(
        table, impact.pieces, x, pick, presses, impact.speed, impact.names
    )
    lost = presses & ~found
    if complete is None:
        mode = lax.cond(
            jnp.any(lost), lambda: jnp.where(lost, mode_selection.least_bad(table, x), mode), lambda: mode
        )
    else:  # a lost sample is repeated
        assert valid_set is not None
        place = jnp.searchsorted(complete, valid_set, method="scan_unrolled")
        is_complete = complete[jnp.minimum(place, complete.shape[0] - 1)] == valid_set
        lost |= presses & ~is_complete
    return mode, lost, (valid_set, met)


def _keep_step(
    results: LaneResults,
    before: _Lanes,
    after: _Lanes,
    change: jax.Array,
    set_data: _SetData,
    where: jax.Array,
) -> LaneResults:
    """Write the data of each step into the results."""
    valid_set, met = set_data
    sets, path, changes = results.sets, results.path, results.changes
    if sets is not None:
        sets = sets.at[before.num_iters, where].set(valid_set, mode="drop", unique_indices=True)
    if path is not None:
        path = path.at[after.num_iters, :, where].set(after.impulse.T, mode="drop", unique_indices=True)
    if changes is not None:
        changes = changes.at[before.num_iters, :, where].set(change.T, mode="drop", unique_indices=True)
    visited = results.visited if met is None else results.visited | met
    return results.replace(visited=visited, sets=sets, path=path, changes=changes)


def _keep_outcome(results: LaneResults, last: _Lanes, collides: jax.Array, where: jax.Array) -> LaneResults:
    """Write the outcomes of samples that end into the results."""

    def store(array: jax.Array, value: jax.Array) -> jax.Array:
        return array.at[..., where].set(value, mode="drop", unique_indices=True)

    return results.replace(
        impulse=store(results.impulse, last.impulse),
        num_iters=store(results.num_iters, last.num_iters),
        residual=store(results.residual, last.residual),
        missed=store(results.missed, last.missed),
        collides=store(results.collides, collides),
    )


run_lanes = jit(resolve_lanes, static_argnames="settings", compiler_options=all_cores.WIDE_VECTORS)


@functools.partial(jit, static_argnames="num_contacts")
def first_places(draws: Sobol | Iid | Shaped, indices: jax.Array, num_contacts: int) -> jax.Array:
    """Mix the leading bits of first draws, (n,) uint32: close numbers for samples with close first draws."""
    drawn = draws.uniform(indices, 0, num_contacts + 1)[:num_contacts]
    digits = jnp.minimum(drawn * 2**_BITS, 2**_BITS - 1).astype(jnp.uint32)
    place = jnp.zeros(indices.shape, jnp.uint32)
    for bit in range(_BITS):
        for i in range(num_contacts):
            place |= (digits[i] >> bit & 1) << (bit * num_contacts + i)
    return place


def _make_empty_results(
    table: contact_modes.ModeMaps, n: int, settings: LaneSettings, dtype: jax.typing.DTypeLike
) -> LaneResults:
    """Make empty results of n samples."""
    max_steps = settings.max_steps
    rows = table.impulse.shape[0]
    return LaneResults(
        impulse=jnp.zeros((rows, n), dtype),
        num_iters=jnp.zeros(n, jnp.int32),
        residual=jnp.zeros(n, dtype),
        missed=jnp.zeros(n, bool),
        collides=jnp.zeros(n, bool),
        visited=jnp.zeros(table.regular.shape, bool),
        sets=jnp.zeros((max_steps, n), jnp.uint32) if settings.keep_sets else None,
        path=jnp.zeros((max_steps + 1, rows, n), dtype) if settings.keep_path else None,
        changes=jnp.zeros((max_steps, rows, n), dtype) if settings.keep_changes else None,
    )


def lane_status(results: LaneResults) -> PyTree:
    """Compute the status bits (n,) uint32 of the samples, in NumPy."""
    residual = np.asarray(results.residual)
    stalled = np.where(residual <= residual_limit(residual.dtype), 0, int(Status.STALLED))
    unterminated = np.where(results.collides, int(Status.UNTERMINATED), 0)
    return (stalled | unterminated).astype(np.uint32)
