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
from jaxcontact.impact import rebound
from jaxcontact.impact.contact_space import ContactSpace, collision_tolerance, mass_norm
from jaxcontact.impact.density import Shaped
from jaxcontact.impact.draws import Iid, Sobol
from jaxcontact.solvers import leaves, modes, sieve
from jaxcontact.status import Status

FEW = 128  # modes that a tile is expected to meet at most
BLOCK = 128  # modes looked at together
SIEVED = 256  # modes that a sieve is expected to leave at most
_TYPICAL = 96  # samples whose steps tell which forms are telling


class LaneResults(Record):
    """Results per sample, in the order of the indices given; impulses are scaled.

    Attributes:
        impulse: (2m, n) total scaled impulse.
        num_solves: (n,) steps taken.
        residual: (n,) worst violation of the law in any step, relative to |v|_M.
        missed: (n,) bool, some step had no valid mode in the table, or a set of them that is not known to
            be complete. With known sets the sample ends before that step, and the other results say where.
        collides: (n,) bool, a contact still approaches, or has energy in store.
        visited: (K,) bool, modes valid in some step of some sample.
        sets: (N, n) uint32, the signature of the set of valid modes of each step, 0 after the last; or None.
        path: (N + 1, 2m, n) scaled impulse so far after each step, or None.
    """

    impulse: jax.Array
    num_solves: jax.Array
    residual: jax.Array
    missed: jax.Array
    collides: jax.Array
    visited: jax.Array
    sets: jax.Array | None
    path: jax.Array | None


class Begun(Record):
    """Samples of which some steps are done; as in `LaneResults`."""

    impulse: jax.Array
    num_solves: jax.Array
    residual: jax.Array


@functools.partial(jax.jit, static_argnames=("max_steps", "tile", "keep_path", "keep_sets"))
def run_lanes(
    space: ContactSpace,
    table: modes.ModeTable,
    draws: Sobol | Iid | Shaped,
    v: jax.Array,
    step: jax.Array,
    indices: jax.Array,
    count: jax.Array,
    complete: jax.Array | None = None,
    pieces: leaves.Leaves | sieve.Sieve | None = None,
    begun: Begun | None = None,
    *,
    max_steps: int,
    tile: int,
    keep_path: bool,
    keep_sets: bool = False,
    elastic: jax.Array | None = None,
) -> LaneResults:
    """Resolve the first `count` of the samples numbered `indices` (n,).

    Args:
        v: (nv,) velocity before the impact, the same for all; some contact approaches.
        step: (nc,) largest normal impulse of a step, N s.
        complete: (S,) uint32, ascending: signatures of sets of valid modes that lack no mode. A step
            with another set counts as missed. None where the table holds all modes.
        pieces: the validity of the modes of the table by stems and leaves, or by a sieve, which is faster;
            or None.
        begun: what was done of each sample before; default nothing.
        elastic: (nc,) squared coefficients of restitution, see `rebound.py`; or None.
    """
    dtype = v.dtype
    n = indices.shape[0]
    m = space.mu.shape[0]
    normal, tangent = slice(0, 2 * m, 2), slice(1, 2 * m, 2)
    u_start = space.jacobian @ v
    speed = mass_norm(space.mass, v)
    cap_scale = jnp.where(space.active, step / space.scale[normal], 0.0)
    # Approach speeds are compared in m/s.
    slowest = -collision_tolerance(dtype) * space.scale[normal]
    cone_unit = space.scale[tangent]
    looked_at = _in_blocks(table) if pieces is None else pieces
    nowhere = n + jnp.arange(tile, dtype=jnp.int32)  # out of bounds and distinct: nothing is stored

    def approaches(u: jax.Array) -> jax.Array:
        return jnp.any(u[normal] < slowest[:, None], axis=0)

    def store(array: jax.Array, slot: jax.Array, value: jax.Array) -> jax.Array:
        return array.at[..., slot].set(value, mode="drop", unique_indices=True)

    def entering(slot: jax.Array) -> tuple[Any, Any, Any, Any]:
        """Steps, contact velocity, impulse and residual with which a lane takes up a sample."""
        if begun is None:
            return 0, u_start[:, None], 0.0, 0.0
        at = jnp.minimum(slot, n - 1)
        impulse = begun.impulse[:, at]
        u = u_start[:, None] + modes.apply(space.delassus.T, impulse)
        return begun.num_solves[at], u, impulse, begun.residual[at]

    def body(carry: tuple) -> tuple:
        slot, steps, u, impulse, worst, missed, stored, following, out = carry
        live = slot < count
        # With restitution there are steps in which nothing approaches.
        presses = live if elastic is None else live & approaches(u)
        index = indices[jnp.minimum(slot, n - 1)]
        drawn = draws.uniform(index, steps * (m + 1), m + 1, dtype)
        cap = drawn[:m] * cap_scale[:, None]
        x = jnp.concatenate([u, cap])
        mode, valid_set, met = _select(table, looked_at, x, drawn[m], presses, speed)
        lost = presses & (valid_set == 0)
        if complete is None:  # else the sample is repeated
            mode = lax.cond(jnp.any(lost), lambda: jnp.where(lost, _least_bad(table, x), mode), lambda: mode)
        before = impulse, steps, worst
        change = _impulse(table, mode, x)
        if elastic is not None:
            change = jnp.where(presses[None], change, 0.0)
        u_next = u + modes.apply(space.delassus.T, change)
        misfit = _misfit(space, u_next, change, cap, speed, cone_unit)
        worst = jnp.maximum(worst, misfit if elastic is None else jnp.where(presses, misfit, 0.0))
        if elastic is not None:
            push, stored = rebound.give_back(space, elastic, cap, u, u_next, change, stored, speed)
            u_next = u_next + modes.apply(space.delassus.T, push)
            change = change + push
        impulse = impulse + change
        missed = missed | lost
        if complete is not None:
            place = jnp.searchsorted(complete, valid_set, method="scan_unrolled")
            unknown = complete[jnp.minimum(place, complete.shape[0] - 1)] != valid_set
            missed = missed | (unknown if elastic is None else unknown & presses)
        if out.sets is not None:
            at = jnp.where(live, slot, nowhere)
            out = out.replace(sets=out.sets.at[steps, at].set(valid_set, mode="drop", unique_indices=True))
        steps = steps + 1
        collides = approaches(u_next)
        if elastic is not None:
            collides |= jnp.any(rebound.loaded(space, stored), axis=0)
        done = live & (~collides | (steps >= max_steps))
        after = impulse, steps, worst
        if complete is not None:
            done = done | (live & missed)
            after = jax.tree.map(lambda old, new: jnp.where(missed, old, new), before, after)

        out = out.replace(
            visited=out.visited | met,
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

    out = _nothing_yet(table, n, max_steps, keep_path, keep_sets, dtype)
    slots = jnp.arange(tile, dtype=jnp.int32)
    first = entering(slots)
    start = (
        slots,
        jnp.broadcast_to(jnp.asarray(first[0], jnp.int32), tile),
        jnp.broadcast_to(first[1], (2 * m, tile)),
        jnp.broadcast_to(jnp.asarray(first[2], dtype), (2 * m, tile)),
        jnp.broadcast_to(jnp.asarray(first[3], dtype), tile),
        jnp.zeros(tile, bool),
        None if elastic is None else jnp.zeros((m, tile), dtype),
        jnp.int32(tile),
        out,
    )
    final: LaneResults = lax.while_loop(lambda carry: jnp.any(carry[0] < count), body, start)[-1]
    return final


@jax.jit
def typical(
    space: ContactSpace, table: modes.ModeTable, draws: Sobol | Iid | Shaped, v: jax.Array, step: jax.Array
) -> jax.Array:
    """Typical x (3m, n), of first, second and third steps, roughly as they are met."""
    m = space.mu.shape[0]
    index = jnp.arange(_TYPICAL, dtype=jnp.uint32)
    size = jnp.where(space.active, step / space.scale[0::2], 0.0)[:, None]
    u = jnp.broadcast_to((space.jacobian @ v)[:, None], (2 * m, _TYPICAL))
    met = []
    for k in range(3):  # with first draws, for there may be no third step
        x = jnp.concatenate([u, draws.uniform(index + k * _TYPICAL, 0, m + 1, v.dtype)[:m] * size])
        change = _impulse(table, _least_bad(table, x), x)
        u = u + modes.apply(space.delassus.T, change)
        met.append(x)
    return jnp.concatenate(met, axis=1)


def _nothing_yet(
    table: modes.ModeTable, n: int, max_steps: int, keep_path: bool, keep_sets: bool, dtype: Any
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
    )


def _select(
    table: modes.ModeTable,
    pieces: modes.ModeTable | leaves.Leaves | sieve.Sieve,
    x: jax.Array,
    pick: jax.Array,
    live: jax.Array,
    speed: jax.Array,
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Chosen mode (tile,), signature of the set of valid ones (tile,); the modes met in any lane (K,)."""
    limit = modes.feasibility_tolerance(x.dtype) * speed
    speeds = jnp.full(x.shape[1:], speed)
    number = table.regular.shape[0]
    names = signatures(table)

    def choose(valid: jax.Array, score: jax.Array, names: jax.Array) -> tuple[jax.Array, jax.Array]:
        mode, _ = modes.choose(valid, score, pick, speeds)
        return mode, jnp.sum(jnp.where(valid, names[:, None], 0), axis=0, dtype=jnp.uint32)

    # What stands in a branch or in a loop is computed once; else the compiler repeats it in every use.
    if number <= FEW:
        score = lax.cond(
            jnp.any(live),
            lambda: jnp.where(modes.evaluate(table, x) <= limit, modes.apply(table.score, x), jnp.inf),
            lambda: jnp.full((number, *x.shape[1:]), jnp.inf, x.dtype),
        )
        valid = jnp.isfinite(score) & live[None]
        met = sieve.any_lane(valid)
        mode, valid_set = choose(valid, score, names)
    elif isinstance(pieces, sieve.Sieve):
        met = sieve.possible(pieces, x, live, limit)
        left = jnp.sum(met, dtype=jnp.int32)

        def look(size: int) -> tuple[jax.Array, jax.Array]:
            index = jnp.nonzero(met, size=size, fill_value=number)[0].astype(jnp.int32)
            score = sieve.scores(pieces, index, left, x, limit)
            valid = jnp.isfinite(score) & live[None]
            place, valid_set = choose(valid, score, names.at[index].get(mode="clip"))
            return index.at[place].get(mode="clip"), valid_set

        mode, valid_set = lax.cond(left <= SIEVED, lambda: look(SIEVED), lambda: look(number))
    else:
        if isinstance(pieces, leaves.Leaves):
            valid = leaves.valid(pieces, x, limit)
        else:
            valid = lax.map(lambda block: modes.evaluate(block, x) <= limit, pieces)
        valid = valid.reshape(-1, x.shape[1])[:number] & live[None]
        met = sieve.any_lane(valid)
        # Of hundreds of modes a tile meets few: look on among those only, unless there are many.
        index = jnp.nonzero(met, size=FEW, fill_value=number)[0].astype(jnp.int32)

        def among_few() -> tuple[jax.Array, jax.Array]:
            score = modes.apply(table.score.at[:, index].get(mode="clip"), x)
            few = valid.at[index].get(mode="fill", fill_value=False)
            place, valid_set = choose(few, score, names.at[index].get(mode="clip"))
            return index.at[place].get(mode="clip"), valid_set

        few_enough = jnp.sum(met, dtype=jnp.int32) <= FEW
        mode, valid_set = lax.cond(
            few_enough, among_few, lambda: choose(valid, modes.apply(table.score, x), names)
        )
    return jnp.minimum(mode, number - 1), valid_set, met


def _least_bad(table: modes.ModeTable, x: jax.Array) -> jax.Array:
    """(tile,) the mode that is violated least."""
    violation = modes.evaluate(table, x)
    iota = jnp.arange(violation.shape[0], dtype=jnp.int32)[:, None]
    return jnp.min(
        jnp.where(violation == jnp.min(violation, axis=0, keepdims=True), iota, iota.size - 1), axis=0
    )


def signatures(table: modes.ModeTable) -> jax.Array:
    """(K,) uint32 numbers of the modes whose sums tell sets of modes apart, but for one pair in 2^32."""
    number = jnp.ones((), jnp.uint32)
    for code in table.codes:
        number = number * 7 + code.astype(jnp.uint32)
    for factor in (0x7FEB352D, 0x846CA68B):  # a bijection that mixes the bits well
        number = (number ^ (number >> 16)) * jnp.uint32(factor)
    return number ^ (number >> 16)


def _in_blocks(table: modes.ModeTable) -> modes.ModeTable:
    """The table cut into blocks of BLOCK modes, along a new first axis; the last one is padded."""
    number = table.regular.shape[0]
    size = min(BLOCK, number)
    padded = jax.tree.map(
        lambda leaf: jnp.pad(leaf, [(0, 0)] * (leaf.ndim - 1) + [(0, -number % size)]), table
    )
    return jax.tree.map(lambda leaf: jnp.moveaxis(leaf.reshape(*leaf.shape[:-1], -1, size), -2, 0), padded)


def _impulse(table: modes.ModeTable, mode: jax.Array, x: jax.Array) -> jax.Array:
    """impulse[:, :, mode] x of each lane: (2m, tile)."""
    maps = table.impulse[:, :, mode]  # (2m, L, tile)
    total = jnp.zeros((), x.dtype)
    for j in range(x.shape[0]):
        total = total + maps[:, j] * x[j][None]
    return total


def _misfit(
    space: ContactSpace,
    u: jax.Array,
    impulse: jax.Array,
    cap: jax.Array,
    speed: jax.Array,
    cone_unit: jax.Array,
) -> jax.Array:
    """The residual of `ImpactInfo` for planar contacts, per lane: (tile,)."""
    u_n, u_t, lam_n, lam_t = u[0::2], u[1::2], impulse[0::2], impulse[1::2]
    limit = space.mu[:, None] * lam_n
    complementarity = jnp.abs(lam_n - jnp.clip(lam_n - u_n, 0.0, cap)) / speed
    excess = jnp.maximum(jnp.abs(lam_t) - limit, 0.0) * cone_unit[:, None]
    cone = excess / (jnp.maximum(limit, 0.0) * cone_unit[:, None] + 1.0)
    dissipation = jnp.abs(lam_t * u_t + limit * jnp.abs(u_t)) / speed**2
    worst = jnp.maximum(jnp.maximum(complementarity, cone), dissipation)
    return jnp.max(jnp.where(space.active[:, None], worst, 0.0), axis=0)


def lane_status(results: LaneResults) -> Any:
    """Status bits (n,) uint32 of the samples, in NumPy."""
    residual = np.asarray(results.residual)
    limit = 1e-6 if residual.dtype == np.float64 else 1e-3
    stalled = np.where(residual <= limit, 0, int(Status.STALLED))
    unterminated = np.where(results.collides, int(Status.UNTERMINATED), 0)
    return (stalled | unterminated).astype(np.uint32)
