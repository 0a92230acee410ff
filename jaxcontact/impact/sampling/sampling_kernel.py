"""The sampling kernel: a tile of lanes that never idle.

Each lane works on one sample; when its impact ends it stores the result and takes the next sample, so a
tile does no work for finished impacts. Arithmetic is elementwise over the lanes, sums are unrolled in a
fixed order, and draws depend on the sample number alone: a sample has the same bits in every tile,
chunk and order.
"""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxcontact._pytree import Record
from jaxcontact.batching import all_cores
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

_BITS = 3  # of each draw, that neighbours share


class LaneResults(Record):
    """Results per sample, in the order of the indices given; impulses are scaled.

    Attributes:
        impulse: (2m, n) total scaled impulse.
        num_solves: (n,) steps taken.
        residual: (n,) worst violation of the law in any step, relative to |v|_M.
        missed: (n,) bool, some step had no valid mode in the table, or a set of them that is not known to
            be complete. With known sets the sample ends before that step, and the other results say where.
        collides: (n,) bool, a contact still approaches, or has energy in store.
        visited: (K,) bool, modes that stood for an outcome in some step of some sample; none without names.
        sets: (N, n) uint32, the signature of the set of outcomes of each step, 0 after the last; or None.
        path: (N + 1, 2m, n) scaled impulse so far after each step, or None.
        changes: (N, 2m, n) scaled impulse of the compression of each step, 0 after the last; or None.
    """

    impulse: jax.Array
    num_solves: jax.Array
    residual: jax.Array
    missed: jax.Array
    collides: jax.Array
    visited: jax.Array
    sets: jax.Array | None
    path: jax.Array | None
    changes: jax.Array | None


class Begun(Record):
    """Samples of which some steps are done; as in `LaneResults`."""

    impulse: jax.Array
    num_solves: jax.Array
    residual: jax.Array


def resolve_lanes(
    space: ContactSpace,
    table: contact_modes.ModeMaps,
    draws: Sobol | Iid | Shaped,
    v: jax.Array,
    step: jax.Array,
    indices: jax.Array,
    count: jax.Array,
    complete: jax.Array | None = None,
    pieces: mode_tree.Leaves | mode_filter.Sieve | None = None,
    begun: Begun | None = None,
    names: jax.Array | None = None,
    *,
    max_steps: int,
    tile: int,
    keep_path: bool,
    keep_sets: bool = False,
    keep_changes: bool = False,
    elastic: jax.Array | None = None,
    once: bool = False,
    num_directions: int = 8,
) -> LaneResults:
    """Resolve the first `count` of the samples numbered `indices` (n,).

    Args:
        v: (nv,) velocity before the impact, the same for all; some contact approaches.
        step: (nc,) largest normal impulse of a step, N s.
        complete: (S,) uint32, ascending: signatures of sets of outcomes that lack none. A step with another
            set counts as missed. None where the table holds all modes.
        pieces: the validity of the modes of the table by stems and leaves, or by a sieve, which is faster;
            or None.
        begun: what was done of each sample before; default nothing.
        names: (K,) uint32 of the modes, equal for equal outcomes; needed for `complete` and `keep_sets`.
        elastic: (nc,) squared coefficients of restitution, see `energetic_restitution`; or None.
        once: take one step of each sample only.
        num_directions: sides of the friction cone in space.
    """
    dtype = v.dtype
    n = indices.shape[0]
    m = space.mu.shape[0]
    u_start = space.jacobian @ v
    speed = mass_norm(space.mass, v)
    slowest = slowest_approach(space, v)
    directions = friction_directions(space.num_tangents, num_directions)
    cap_scale = mode_selection.largest(space, step)
    looked_at = mode_selection.in_blocks(table) if pieces is None else pieces
    nowhere = n + jnp.arange(tile, dtype=jnp.int32)  # out of bounds and distinct: nothing is stored

    def store(array: jax.Array, slot: jax.Array, value: jax.Array) -> jax.Array:
        return array.at[..., slot].set(value, mode="drop", unique_indices=True)

    def entering(slot: jax.Array) -> tuple[Any, Any, Any, Any]:
        """Steps, contact velocity, impulse and residual with which a lane takes up a sample."""
        if begun is None:
            return 0, u_start[:, None], 0.0, 0.0
        at = jnp.minimum(slot, n - 1)
        impulse = begun.impulse[:, at]
        u = u_start[:, None] + contact_modes.apply(space.delassus.T, impulse)
        return begun.num_solves[at], u, impulse, begun.residual[at]

    def body(carry: tuple) -> tuple:
        slot, steps, u, impulse, worst, missed, stored, following, out = carry
        live = slot < count
        # With restitution there are steps in which nothing approaches.
        presses = live if elastic is None else live & mode_selection.approaches(u, slowest)
        index = indices[jnp.minimum(slot, n - 1)]
        drawn = draws.uniform(index, steps * (m + 1), m + 1, dtype)
        cap = drawn[:m] * cap_scale[:, None]
        x = jnp.concatenate([u, cap])
        mode, found, valid_set, met = mode_selection.select(
            table, looked_at, x, drawn[m], presses, speed, names
        )
        lost = presses & ~found
        if complete is None:  # else the sample is repeated
            mode = lax.cond(
                jnp.any(lost), lambda: jnp.where(lost, mode_selection.least_bad(table, x), mode), lambda: mode
            )
        before = impulse, steps, worst
        change = mode_selection.impulse_of(table, mode, x)
        if elastic is not None:
            change = jnp.where(presses[None], change, 0.0)
        if out.changes is not None:
            at = jnp.where(live, slot, nowhere)
            kept = out.changes.at[steps, :, at].set(change.T, mode="drop", unique_indices=True)
            out = out.replace(changes=kept)
        u_next = u + contact_modes.apply(space.delassus.T, change)
        misfit = mode_selection.misfit(space, u_next, change, cap, speed, directions)
        worst = jnp.maximum(worst, misfit if elastic is None else jnp.where(presses, misfit, 0.0))
        if elastic is not None:
            passage = (space, elastic, cap, u, u_next, change, stored, speed, slowest)
            if space.num_tangents == 1:
                push, stored = energetic_restitution.give_back(*passage)
            else:
                push, stored = give_back_in_lanes(*passage, directions)
            u_next = u_next + contact_modes.apply(space.delassus.T, push)
            change = change + push
        impulse = impulse + change
        missed = missed | lost
        if complete is not None:
            assert valid_set is not None
            place = jnp.searchsorted(complete, valid_set, method="scan_unrolled")
            unknown = complete[jnp.minimum(place, complete.shape[0] - 1)] != valid_set
            missed = missed | (unknown if elastic is None else unknown & presses)
        if out.sets is not None:
            at = jnp.where(live, slot, nowhere)
            out = out.replace(sets=out.sets.at[steps, at].set(valid_set, mode="drop", unique_indices=True))
        steps = steps + 1
        collides = mode_selection.approaches(u_next, slowest)
        if elastic is not None:
            collides |= jnp.any(energetic_restitution.loaded(stored, slowest), axis=0)
        done = live if once else live & (~collides | (steps >= max_steps))
        after = impulse, steps, worst
        if complete is not None:
            done = done | (live & missed)
            after = jax.tree.map(lambda old, new: jnp.where(missed, old, new), before, after)

        out = out.replace(
            visited=out.visited if met is None else out.visited | met,
            path=None
            if out.path is None
            else out.path.at[steps, :, jnp.where(live, slot, nowhere)].set(
                impulse.T, mode="drop", unique_indices=True
            ),
        )
        where = jnp.where(done, slot, nowhere)
        out = out.replace(
            impulse=store(out.impulse, where, after[0]),
            num_solves=store(out.num_solves, where, after[1]),
            residual=store(out.residual, where, after[2]),
            missed=store(out.missed, where, missed),
            collides=store(out.collides, where, collides),
        )
        # Finished lanes take the next samples.
        turn = jnp.cumsum(done, dtype=jnp.int32) - 1
        slot = jnp.where(done, following + turn, slot)
        fresh = done | ~live
        following = following + jnp.sum(done, dtype=jnp.int32)
        first = entering(slot)
        return (
            slot,
            jnp.where(fresh, first[0], steps),
            jnp.where(fresh[None], first[1], u_next),
            jnp.where(fresh[None], first[2], impulse),
            jnp.where(fresh, first[3], worst),
            missed & ~fresh,
            None if elastic is None else jnp.where(fresh[None], 0.0, stored),
            following,
            out,
        )

    out = _nothing_yet(table, n, max_steps, keep_path, keep_sets, keep_changes, dtype)
    slots = jnp.arange(tile, dtype=jnp.int32)
    first = entering(slots)
    start = (
        slots,
        jnp.broadcast_to(jnp.asarray(first[0], jnp.int32), tile),
        jnp.broadcast_to(first[1], (u_start.size, tile)),
        jnp.broadcast_to(jnp.asarray(first[2], dtype), (u_start.size, tile)),
        jnp.broadcast_to(jnp.asarray(first[3], dtype), tile),
        jnp.zeros(tile, bool),
        None if elastic is None else jnp.zeros((m, tile), dtype),
        jnp.int32(tile),
        out,
    )
    final: LaneResults = lax.while_loop(lambda carry: jnp.any(carry[0] < count), body, start)[-1]
    return final


run_lanes = jit(
    resolve_lanes,
    static_argnames=("max_steps", "tile", "keep_path", "keep_sets", "keep_changes", "once", "num_directions"),
    compiler_options=all_cores.WIDE,
)


@functools.partial(jit, static_argnames="num_contacts")
def first_places(draws: Sobol | Iid | Shaped, indices: jax.Array, num_contacts: int) -> jax.Array:
    """(n,) uint32, close for samples whose first draws are: their leading bits, in turn."""
    drawn = draws.uniform(indices, 0, num_contacts + 1)[:num_contacts]
    digits = jnp.minimum(drawn * 2**_BITS, 2**_BITS - 1).astype(jnp.uint32)
    place = jnp.zeros(indices.shape, jnp.uint32)
    for bit in range(_BITS):
        for i in range(num_contacts):
            place |= (digits[i] >> bit & 1) << (bit * num_contacts + i)
    return place


def _nothing_yet(
    table: contact_modes.ModeMaps,
    n: int,
    max_steps: int,
    keep_path: bool,
    keep_sets: bool,
    keep_changes: bool,
    dtype: Any,
) -> LaneResults:
    """Results of n samples, before any is known."""
    rows = table.impulse.shape[0]
    return LaneResults(
        impulse=jnp.zeros((rows, n), dtype),
        num_solves=jnp.zeros(n, jnp.int32),
        residual=jnp.zeros(n, dtype),
        missed=jnp.zeros(n, bool),
        collides=jnp.zeros(n, bool),
        visited=jnp.zeros(table.regular.shape, bool),
        sets=jnp.zeros((max_steps, n), jnp.uint32) if keep_sets else None,
        path=jnp.zeros((max_steps + 1, rows, n), dtype) if keep_path else None,
        changes=jnp.zeros((max_steps, rows, n), dtype) if keep_changes else None,
    )


def lane_status(results: LaneResults) -> Any:
    """Status bits (n,) uint32 of the samples, in NumPy."""
    residual = np.asarray(results.residual)
    stalled = np.where(residual <= residual_limit(residual.dtype), 0, int(Status.STALLED))
    unterminated = np.where(results.collides, int(Status.UNTERMINATED), 0)
    return (stalled | unterminated).astype(np.uint32)
