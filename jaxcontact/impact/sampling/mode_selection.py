"""One step of a tile of lanes: the valid contact modes, the mode that a draw picks, and its impulse.

Owns the choice among many modes, entry `select`: a tile examines closely only those that some lane may meet.
All operations are elementwise over the lanes, with sums in a fixed order: a lane has the same bits in every
tile.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxcontact.impact.laws.contact_space import ContactSpace
from jaxcontact.solvers import contact_modes, mode_choice, mode_filter, mode_tree

MAX_MET_MODES = 128  # largest number of modes that a tile is expected to meet; more modes take a slower path
BLOCK = 128  # number of modes evaluated together
SIEVED = 512  # largest number of modes that a sieve is expected to leave; more take a slower path
_HANDFUL = 32  # number of modes that a sieve mostly leaves at most


_Choice = tuple[jax.Array, jax.Array, tuple[jax.Array, jax.Array] | None]
_Chooser = Callable[..., _Choice]  # of valid (K, tile), scores, and the modes' numbers if they are not all


def select(
    table: contact_modes.ModeMaps,
    pieces: contact_modes.ModeMaps | mode_tree.Leaves | mode_filter.Sieve,
    x: jax.Array,
    pick: jax.Array,
    live: jax.Array,
    speed: jax.Array,
    names: jax.Array | None,
) -> tuple[jax.Array, jax.Array, jax.Array | None, jax.Array | None]:
    """Pick a mode (tile,) by each draw; also return whether any is valid (tile,), and data of valid ones.

    These data are the signature of the set of outcomes (tile,) and the modes (K,) bool that stand for some
    outcome of some lane; both None without `names` (K,) of the modes' outcomes.
    """
    limit = contact_modes.feasibility_tolerance(x.dtype) * speed
    speeds = jnp.full(x.shape[1:], speed)
    number = table.regular.shape[0]

    def choose(valid: jax.Array, score: jax.Array, index: jax.Array | None = None) -> _Choice:
        place, count = mode_choice.choose(valid, score, pick, speeds)
        mode = place if index is None else index.at[place].get(mode="fill", fill_value=number)
        set_data = None if names is None else _describe_sets(valid, score, names, speeds, index)
        return mode, count > 0, set_data

    if number <= MAX_MET_MODES:
        mode, found, set_data = _choose_among_all(table, x, live, limit, choose)
    elif isinstance(pieces, mode_filter.Sieve):
        mode, found, set_data = _choose_by_sieve(pieces, x, live, limit, number, choose)
    else:
        mode, found, set_data = _choose_by_validity(table, pieces, x, live, limit, choose)
    valid_set, met = (None, None) if set_data is None else set_data
    return jnp.minimum(mode, number - 1), found, valid_set, met


def _choose_among_all(
    table: contact_modes.ModeMaps, x: jax.Array, live: jax.Array, limit: jax.Array, choose: _Chooser
) -> _Choice:
    """Choose a mode of a small table."""
    # Values of a branch or a loop are computed once; otherwise the compiler repeats them in every use.
    score = lax.cond(
        jnp.any(live),
        lambda: jnp.where(
            contact_modes.evaluate(table, x) <= limit, contact_modes.apply(table.score, x), jnp.inf
        ),
        lambda: jnp.full((table.regular.shape[0], *x.shape[1:]), jnp.inf, x.dtype),
    )
    return choose(jnp.isfinite(score) & live[None], score)


def _choose_by_sieve(
    sieve: mode_filter.Sieve, x: jax.Array, live: jax.Array, limit: jax.Array, number: int, choose: _Chooser
) -> _Choice:
    """Choose among the modes of `number` that pass a sieve."""
    maybe = mode_filter.possible(sieve, x, live, limit)
    left = jnp.sum(maybe, dtype=jnp.int32)

    def score_passed(size: int) -> tuple[jax.Array, jax.Array]:
        index = mode_filter.places(maybe, size)
        return index, mode_filter.scores(sieve.rows, index, left, x, limit)

    def choose_among(index: jax.Array, score: jax.Array) -> _Choice:
        return choose(jnp.isfinite(score) & live[None], score, index)

    def choose_first(size: int) -> _Choice:
        return choose_among(*score_passed(size))

    def sift() -> _Choice:
        """Choose among the remaining modes that are valid in some lane."""
        index, score = score_passed(SIEVED)
        met = mode_filter.any_lane(jnp.isfinite(score) & live[None])
        at = mode_filter.places(met, MAX_MET_MODES)
        valid_index = index.at[at].get(mode="fill", fill_value=number)
        score = score.at[at].get(mode="fill", fill_value=jnp.inf)
        few = jnp.sum(met, dtype=jnp.int32) <= MAX_MET_MODES
        return lax.cond(few, lambda: choose_among(valid_index, score), lambda: choose_first(number))

    def choose_among_many() -> _Choice:
        if number <= 2 * SIEVED:
            return lax.cond(
                left <= MAX_MET_MODES, lambda: choose_first(MAX_MET_MODES), lambda: choose_first(number)
            )
        return lax.cond(left <= SIEVED, sift, lambda: choose_first(number))

    return lax.cond(left <= _HANDFUL, lambda: choose_first(_HANDFUL), choose_among_many)


def _choose_by_validity(
    table: contact_modes.ModeMaps,
    pieces: contact_modes.ModeMaps | mode_tree.Leaves,
    x: jax.Array,
    live: jax.Array,
    limit: jax.Array,
    choose: _Chooser,
) -> _Choice:
    """Choose a mode of a large table by the validity of all; scores are computed of valid ones only."""
    number = table.regular.shape[0]
    if isinstance(pieces, mode_tree.Leaves):
        valid = mode_tree.valid(pieces, x, limit)
    else:
        valid = lax.map(lambda block: contact_modes.evaluate(block, x) <= limit, pieces)
    valid = valid.reshape(-1, x.shape[1])[:number] & live[None]
    met = mode_filter.any_lane(valid)
    # Of hundreds of modes a tile meets few: choose among those only, unless there are many.
    index = jnp.nonzero(met, size=MAX_MET_MODES, fill_value=number)[0].astype(jnp.int32)

    def choose_among_few() -> _Choice:
        score = contact_modes.apply(table.score.at[:, index].get(mode="clip"), x)
        return choose(valid.at[index].get(mode="fill", fill_value=False), score, index)

    few_enough = jnp.sum(met, dtype=jnp.int32) <= MAX_MET_MODES
    return lax.cond(few_enough, choose_among_few, lambda: choose(valid, contact_modes.apply(table.score, x)))


def _describe_sets(
    valid: jax.Array, score: jax.Array, names: jax.Array, speeds: jax.Array, index: jax.Array | None
) -> tuple[jax.Array, jax.Array]:
    """Compute the signature (tile,) of each set of outcomes, and a mask (K,) of modes that stand for them.

    A mode stands for an outcome if it is the first of the valid modes with this outcome. The sums of the
    outcomes' names distinguish sets, except for one pair in 2^32.
    """
    number = names.shape[0]
    numbers = jnp.arange(number, dtype=jnp.int32) if index is None else index

    def add_outcome(
        first: jax.Array, there: jax.Array, set_data: tuple[jax.Array, jax.Array]
    ) -> tuple[jax.Array, jax.Array]:
        mode = jnp.where(there, numbers.at[first].get(mode="clip"), number)
        added = set_data[0] + names.at[mode].get(mode="fill", fill_value=0)
        return added, set_data[1].at[mode].set(True, mode="drop")

    nothing = jnp.zeros(speeds.shape, jnp.uint32), jnp.zeros(number, bool)
    return mode_choice.fold_over_outcomes(valid, score, speeds, add_outcome, nothing)


def scale_largest(space: ContactSpace, step: jax.Array) -> jax.Array:
    """Scale the largest normal impulses (m,) of a step, in N s; zero for inactive contacts."""
    return jnp.where(space.active, step / space.scale[:: 1 + space.num_tangents], 0.0)


def approaches(u: jax.Array, slowest: jax.Array) -> jax.Array:
    """Tell for each lane (tile,) whether a contact approaches faster than `slowest` (m,) at u, all scaled."""
    return jnp.any(u[:: u.shape[0] // slowest.shape[0]] < -slowest[:, None], axis=0)


def least_bad(table: contact_modes.ModeMaps, x: jax.Array) -> jax.Array:
    """Find the mode (tile,) that is violated least."""
    violation = contact_modes.evaluate(table, x)
    iota = jnp.arange(violation.shape[0], dtype=jnp.int32)[:, None]
    return jnp.min(
        jnp.where(violation == jnp.min(violation, axis=0, keepdims=True), iota, iota.size - 1), axis=0
    )


def split_in_blocks(table: contact_modes.ModeMaps) -> contact_modes.ModeMaps:
    """Divide the table into blocks of BLOCK modes, along a new first axis; the last one is padded."""
    number = table.regular.shape[0]
    size = min(BLOCK, number)
    padded = jax.tree.map(
        lambda leaf: jnp.pad(leaf, [(0, 0)] * (leaf.ndim - 1) + [(0, -number % size)]), table
    )
    return jax.tree.map(lambda leaf: jnp.moveaxis(leaf.reshape(*leaf.shape[:-1], -1, size), -2, 0), padded)


def impulse_of(table: contact_modes.ModeMaps, mode: jax.Array, x: jax.Array) -> jax.Array:
    """Compute impulse[:, :, mode] x of each lane: (2m, tile), in space (3m, tile)."""
    maps = table.impulse[:, :, mode]  # (2m, L, tile)
    total = jnp.zeros((), x.dtype)
    for j in range(x.shape[0]):
        total = total + maps[:, j] * x[j][None]
    return total


def misfit(
    space: ContactSpace,
    u: jax.Array,
    impulse: jax.Array,
    cap: jax.Array,
    speed: jax.Array,
    directions: np.ndarray,
) -> jax.Array:
    """Compute the residual of `ImpactInfo` of each lane, (tile,)."""
    if space.num_tangents == 2:
        return _misfit_in_space(space, u, impulse, cap, speed, directions)
    u_n, u_t, lam_n, lam_t = u[0::2], u[1::2], impulse[0::2], impulse[1::2]
    limit = space.mu[:, None] * lam_n
    complementarity = jnp.abs(lam_n - jnp.clip(lam_n - u_n, 0.0, cap)) / speed
    unit = jnp.maximum(limit, 0.0) + speed
    cone = jnp.maximum(jnp.abs(lam_t) - limit, 0.0) / unit
    dissipation = jnp.abs(lam_t * u_t + limit * jnp.abs(u_t)) / speed / unit
    worst = jnp.maximum(jnp.maximum(complementarity, cone), dissipation)
    return jnp.max(jnp.where(space.active[:, None], worst, 0.0), axis=0)


def _misfit_in_space(
    space: ContactSpace,
    u: jax.Array,
    impulse: jax.Array,
    cap: jax.Array,
    speed: jax.Array,
    directions: np.ndarray,
) -> jax.Array:
    """Compute `contact_space.residual` of lanes, with explicit sums: the same bits in every tile."""
    u_n, lam_n = u[0::3], impulse[0::3]
    u_t, lam_t = (u[1::3], u[2::3]), (impulse[1::3], impulse[2::3])
    limit = space.mu[:, None] * lam_n
    complementarity = jnp.abs(lam_n - jnp.clip(lam_n - u_n, 0.0, cap)) / speed
    unit = jnp.maximum(limit, 0.0) + speed
    facets = directions + np.roll(directions, -1, axis=0)
    facets = facets / np.sum(facets[0] * directions[0])  # facet . corner is 1
    used = functools.reduce(jnp.maximum, [float(x) * lam_t[0] + float(y) * lam_t[1] for x, y in facets])
    best = functools.reduce(jnp.maximum, [-float(x) * u_t[0] - float(y) * u_t[1] for x, y in directions])
    cone = jnp.maximum(used - limit, 0.0) / unit
    dissipation = jnp.abs(lam_t[0] * u_t[0] + lam_t[1] * u_t[1] + limit * best) / speed / unit
    worst = jnp.maximum(jnp.maximum(complementarity, cone), dissipation)
    return jnp.max(jnp.where(space.active[:, None], worst, 0.0), axis=0)
