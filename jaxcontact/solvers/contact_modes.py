"""Planar contact problems by enumeration of contact modes: every solution, no pivoting.

For fixed matrices each assignment of modes to the contacts (separate; at rest or capped in the normal
direction, times stick, slide + or slide -) turns the contact laws into linear equations, so the impulse
is a fixed linear map of x = (u, impulse_max), valid where a few fixed linear forms of x are >= 0. A
`ModeMaps` holds these maps for all modes; evaluating it finds *all* solutions of a step at once.
Singular modes are left out: the vertices of their solution sets belong to regular modes.

Arrays keep the mode as last axis of tables and batch axes last in x, so that the same code serves one
problem and a tile of thousands, with the same order of summation.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxcontact._pytree import Record
from jaxcontact.algebra import small_dense

SEPARATE, REST_STICK, REST_PLUS, REST_MINUS, CAP_STICK, CAP_PLUS, CAP_MINUS = range(7)
MAX_ENUMERATED = 5  # contacts; 7^5 = 16807 modes
_TILE = 64  # modes tabulated together
_Carried = TypeVar("_Carried")


class ModeMaps(Record):
    """The linear maps and feasibility forms of K contact modes; m contacts, L numbers in x.

    Attributes:
        codes: (m, K) mode of each contact.
        impulse: (2m, L, K) with lam = impulse x, contact-major rows (n_0, t_0, n_1, ...); 3m rows in space.
        margin: (3m, L, K) forms that are >= 0 where the mode is valid; more in space.
        score: (L, K) a generic form of the outgoing contact velocity, equal for equal outcomes.
        regular: (K,) False for modes without a unique impulse, and for modes of inactive contacts.
        unresolved: (K,) True for modes of active contacts with a continuum of outcomes, whose ends the table
            may lack; see `free_outcomes`. Nowhere True: every solution of a step is in the table.
    """

    codes: jax.Array
    impulse: jax.Array
    margin: jax.Array
    score: jax.Array
    regular: jax.Array
    unresolved: jax.Array

    def take(self, index: np.ndarray) -> ModeMaps:
        """The table of the listed modes only."""
        return jax.tree.map(lambda leaf: leaf[..., index], self)


def feasibility_tolerance(dtype: jnp.dtype) -> float:
    """Violation, relative to |v|_M, below which an inequality counts as met: eps^0.65."""
    return float(jnp.finfo(dtype).eps) ** 0.65


@functools.cache
def mode_codes(num_contacts: int, capped: bool) -> np.ndarray:
    """All assignments (m, K) of modes to contacts: K = 7^m with a cap on the impulse, else 4^m."""
    codes = range(7 if capped else 4)
    return np.array(list(itertools.product(codes, repeat=num_contacts)), np.int32).T


def mode_table(
    delassus: jax.Array, mu: jax.Array, active: jax.Array, *, capped: bool, resolved: bool = True
) -> ModeMaps:
    """Tabulate all contact modes of a planar problem.

    The problem: lam with u' = u + D lam and, per contact, 0 <= lam_n, u'_n >= 0, complementary (rest or
    separate); if `capped`, lam_n <= impulse_max, and u'_n < 0 is allowed where lam_n = impulse_max;
    lam_t in -mu lam_n Sign(u'_t). Halm & Posa, eqs (72)-(75).

    Args:
        delassus: D (2m, 2m), contact-major, best scaled to unit diagonal.
        mu: (m,) friction in the same scaling.
        active: (m,) bool; inactive contacts get no impulse.
        capped: whether x = (u, impulse_max), L = 3m, or x = u, L = 2m.
        resolved: whether to look for continua of outcomes; without, every singular mode counts as one.
    """
    dtype = delassus.dtype
    m = mu.shape[0]
    length = 3 * m if capped else 2 * m
    codes = jnp.asarray(mode_codes(m, capped))
    by_row = codes[:, None]  # (m, 1, K)
    sticks = (by_row == REST_STICK) | (by_row == CAP_STICK)
    rests = (by_row >= REST_STICK) & (by_row <= REST_MINUS)
    caps = by_row >= CAP_STICK
    plus = (by_row == REST_PLUS) | (by_row == CAP_PLUS)
    slide = jnp.where(plus, 1.0, -1.0).astype(dtype)  # sign of the sliding velocity
    separate = by_row == SEPARATE

    identity = jnp.eye(2 * m, dtype=dtype)[:, :, None]
    unit_n, unit_t = identity[0::2], identity[1::2]  # (m, 2m, 1)
    d_n, d_t = delassus[0::2, :, None], delassus[1::2, :, None]
    x_identity = jnp.eye(length, dtype=dtype)[:, :, None]
    u_n, u_t = x_identity[0 : 2 * m : 2], x_identity[1 : 2 * m : 2]  # (m, L, 1)
    cap_row = x_identity[2 * m :] if capped else jnp.zeros((m, length, 1), dtype)
    mu_row = mu[:, None, None]
    ray = lax.rsqrt(1.0 + mu_row**2)  # friction rows of length one, for any mu

    equation_n = jnp.where(rests, d_n, unit_n)
    source_n = jnp.where(rests, -u_n, jnp.where(caps, cap_row, 0.0))
    equation_t = jnp.where(separate, unit_t, jnp.where(sticks, d_t, (unit_t + slide * mu_row * unit_n) * ray))
    source_t = jnp.where(sticks, -u_t, 0.0)
    equations = jnp.stack([equation_n, equation_t], axis=1).reshape(2 * m, 2 * m, -1)
    sources = jnp.stack([source_n, source_t], axis=1).reshape(2 * m, length, -1)

    product = small_dense.product_lanes
    inverse, rank = _inverses(equations)
    impulse = product(inverse, sources)
    impulse = impulse + product(inverse, sources - product(equations, impulse))
    misfit = jnp.max(jnp.abs(product(equations, impulse) - sources), axis=(0, 1))
    size = 1.0 + jnp.max(jnp.abs(impulse), axis=(0, 1))
    regular = (rank == 2 * m) & (misfit <= feasibility_tolerance(dtype) * size)
    used = jnp.all(active[:, None] | (codes == SEPARATE), axis=0)
    continuum = rank < 2 * m
    if resolved:
        continuum = free_outcomes(delassus, equations, sources, inverse, rank) > 0
    unresolved = used & continuum
    regular &= used

    outgoing = product(delassus[:, :, None], impulse) + x_identity[: 2 * m]
    lam_n, lam_t = impulse[0::2], impulse[1::2]  # (m, L, K)
    out_n, out_t = outgoing[0::2], outgoing[1::2]
    inside_plus = (mu_row * lam_n - lam_t) * ray
    inside_minus = (mu_row * lam_n + lam_t) * ray
    # Along a ray of the cone the impulse is lam_n (1, -+mu): weigh its sign by its length.
    along = lam_n / ray
    zero = jnp.zeros_like(lam_n)
    normal = jnp.where(separate, out_n, jnp.where(caps, -out_n, cap_row - lam_n if capped else zero))
    first = jnp.where(sticks, inside_plus, jnp.where(separate, zero, slide * out_t))
    second = jnp.where(sticks, inside_minus, jnp.where(rests, along, zero))
    forms = jnp.stack([normal, first, second], axis=1) * active[:, None, None, None]

    generic = jnp.cos(jnp.arange(2 * m) * 1.7 + 0.3).astype(dtype)  # no special direction
    return ModeMaps(
        codes=codes,
        impulse=impulse,
        margin=forms.reshape(3 * m, length, -1),
        score=jnp.sum(generic[:, None, None] * outgoing, axis=0),
        regular=regular,
        unresolved=unresolved,
    )


def possible_velocities(delassus: jax.Array) -> jax.Array:
    """(r, r) a projector on the contact velocities that bodies can have, the range of D."""
    return delassus @ small_dense.generalized_inverse(delassus)[0]


def free_outcomes(
    delassus: jax.Array, equations: jax.Array, sources: jax.Array, inverse: jax.Array, rank: jax.Array
) -> jax.Array:
    """(K,) int32, how many dimensions of outcomes a mode has; 2 stands for more, too.

    The answer is 0 where the equations (r, r, K) have no solution for most x, and where impulses that they
    leave free do not all change the outgoing velocity: each outcome is then that of a mode with one contact
    or one friction direction less. Sources are (r, L, K), inverses (r, r, K).
    """
    rows, dtype = equations.shape[0], equations.dtype
    product = small_dense.product_lanes
    small = 100.0 * feasibility_tolerance(dtype)
    moved = product(sources[:, :rows], possible_velocities(delassus)[:, :, None])
    misfit = product(equations, product(inverse, moved)) - moved
    identity = jnp.eye(rows, dtype=dtype)[:, :, None]
    change = product(delassus[:, :, None], identity - product(inverse, equations))
    change = jnp.where(jnp.abs(change) > small, change, 0.0)
    changes = jnp.any(change != 0, axis=(0, 1)) & (jnp.max(jnp.abs(misfit), axis=(0, 1)) <= small)
    several = changes & (rank < rows - 1)

    def injective() -> jax.Array:
        return small_dense.generalized_inverse(change)[1] == rows - rank

    whole = lax.cond(jnp.any(several), injective, lambda: jnp.zeros_like(several))
    return jnp.where(several, jnp.where(whole, 2, 0), (changes & (rank == rows - 1)).astype(jnp.int32))


def _inverses(equations: jax.Array) -> tuple[jax.Array, jax.Array]:
    """`generalized_inverse` of (n, n, K), in tiles that stay in cache."""
    n, number = equations.shape[1:]
    if number <= _TILE:
        return small_dense.generalized_inverse(equations)
    tiles = jnp.pad(equations, [(0, 0), (0, 0), (0, -number % _TILE)]).reshape(n, n, -1, _TILE)
    inverse, rank = lax.map(small_dense.generalized_inverse, jnp.moveaxis(tiles, 2, 0))
    return jnp.moveaxis(inverse, 0, 2).reshape(n, n, -1)[:, :, :number], rank.reshape(-1)[:number]


def apply(forms: jax.Array, x: jax.Array) -> jax.Array:
    """sum_j forms[j, :] x[j, ...]: (L, K), (L, *batch) -> (K, *batch), summed in the order of j."""
    batch = (1,) * (x.ndim - 1)
    total = jnp.zeros((), x.dtype)
    for j in range(forms.shape[0]):
        total = total + forms[j].reshape((-1, *batch)) * x[j][None]
    return total


def evaluate(table: ModeMaps, x: jax.Array, skip: jax.Array | None = None) -> jax.Array:
    """Worst violation (K, *batch) of each mode at x (L, *batch): 0 where valid, inf if not regular.

    Args:
        skip: (3m, *batch) bool, forms not to be looked at; default none.
    """
    worst = jnp.zeros((), x.dtype)
    for row in range(table.margin.shape[0]):
        value = apply(table.margin[row], x)
        if skip is not None:
            value = jnp.where(skip[row][None], 0.0, value)
        worst = jnp.minimum(worst, value)
    regular = table.regular.reshape((-1,) + (1,) * (x.ndim - 1))
    return jnp.where(regular, -worst, jnp.inf)


def choose(
    valid: jax.Array, score: jax.Array, pick: jax.Array, scale: jax.Array, early_exit: bool = True
) -> tuple[jax.Array, jax.Array]:
    """Pick uniformly among the distinct valid outcomes, in the order of their score.

    Args:
        valid: (K, *batch) bool.
        score: (K, *batch); outcomes whose scores differ by less than 1e-8 scale are one.
        pick: (*batch) in [0, 1).
        scale: (*batch) size of the velocities, |v|_M.
        early_exit: sweep over the modes until all outcomes are found. False sorts them, in one pass of static
            length.

    Returns:
        mode (*batch) int32, the first mode of the chosen outcome (K if none is valid), and count (*batch)
        int32 of distinct outcomes.
    """
    number = valid.shape[0]
    merge = 100.0 * feasibility_tolerance(score.dtype) * scale
    keyed = jnp.where(valid, score, jnp.inf)
    chosen, count = (_by_sweeps if early_exit else _by_sorting)(keyed, merge, pick)
    iota = jnp.arange(number, dtype=jnp.int32).reshape((-1,) + (1,) * merge.ndim)
    member = (keyed >= chosen[None]) & (keyed <= (chosen + merge)[None]) & valid
    return jnp.min(jnp.where(member, iota, number), axis=0), count


def over_outcomes(
    valid: jax.Array,
    score: jax.Array,
    scale: jax.Array,
    visit: Callable[[jax.Array, jax.Array, _Carried], _Carried],
    start: _Carried,
) -> _Carried:
    """Carry `start` over the distinct valid outcomes of all lanes, in the order of their scores.

    Args:
        valid, score, scale: as in `choose`.
        visit: of the first mode of the outcome (*batch), whether there is one more (*batch), and what is
            carried.
    """
    number = valid.shape[0]
    merge = 100.0 * feasibility_tolerance(score.dtype) * scale
    keyed = jnp.where(valid, score, jnp.inf)
    iota = jnp.arange(number, dtype=jnp.int32).reshape((-1,) + (1,) * merge.ndim)

    def lowest(above: jax.Array) -> jax.Array:
        return jnp.min(jnp.where(keyed > above[None], keyed, jnp.inf), axis=0)

    def body(carry: tuple[jax.Array, _Carried]) -> tuple[jax.Array, _Carried]:
        low, carried = carry
        member = (keyed >= low[None]) & (keyed <= (low + merge)[None])
        first = jnp.min(jnp.where(member, iota, number), axis=0)
        return lowest(low + merge), visit(first, jnp.isfinite(low), carried)

    first = lowest(jnp.full_like(merge, -jnp.inf))
    return lax.while_loop(lambda carry: jnp.any(jnp.isfinite(carry[0])), body, (first, start))[1]


def _rank(pick: jax.Array, count: jax.Array) -> jax.Array:
    return jnp.clip((pick * count).astype(jnp.int32), 0, jnp.maximum(count - 1, 0))


def _by_sorting(keyed: jax.Array, merge: jax.Array, pick: jax.Array) -> tuple[jax.Array, jax.Array]:
    """As `_by_sweeps`, in one pass over the scores in their order."""

    def visit(low: jax.Array, score: jax.Array) -> tuple[jax.Array, jax.Array]:
        begins = (score > low + merge) & jnp.isfinite(score)
        return jnp.where(begins, score, low), begins

    scores = jnp.sort(keyed, axis=0)
    _, begins = lax.scan(visit, jnp.full_like(merge, -jnp.inf), scores)
    place = jnp.cumsum(begins, axis=0, dtype=jnp.int32) - 1
    count = place[-1] + 1
    chosen = begins & (place == _rank(pick, count)[None])
    return jnp.min(jnp.where(chosen, scores, jnp.inf), axis=0), count


def _by_sweeps(keyed: jax.Array, merge: jax.Array, pick: jax.Array) -> tuple[jax.Array, jax.Array]:
    """The lowest score of the outcome picked, inf if there is none, and the number of distinct outcomes."""

    def next_outcome(after: jax.Array) -> jax.Array:
        # The barrier keeps the compiler from repeating one sweep inside the next.
        return lax.optimization_barrier(jnp.min(jnp.where(keyed > after[None], keyed, jnp.inf), axis=0))

    lowest = [next_outcome(jnp.full_like(merge, -jnp.inf))]
    for _ in range(_SWEEPS):
        lowest.append(next_outcome(lowest[-1] + merge))
    present = [jnp.isfinite(low).astype(jnp.int32) for low in lowest[:-1]]
    count = functools.reduce(jnp.add, present)

    def count_on() -> jax.Array:
        def sweep(carry: Any) -> Any:
            low, more = carry
            return next_outcome(low + merge), more + jnp.isfinite(low).astype(jnp.int32)

        return lax.while_loop(lambda c: jnp.any(jnp.isfinite(c[0])), sweep, (lowest[-1], count))[1]

    many = jnp.any(jnp.isfinite(lowest[-1]))
    count = lax.cond(many, count_on, lambda: count)
    rank = _rank(pick, count)
    chosen = lowest[-1]
    for place in range(_SWEEPS):
        chosen = jnp.where(rank == place, lowest[place], chosen)

    def advance(carry: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        low, left = carry
        return jnp.where(left > 0, next_outcome(low + merge), low), left - 1

    chosen = lax.cond(
        many,
        lambda: lax.while_loop(lambda c: jnp.any(c[1] > 0), advance, (chosen, rank - _SWEEPS))[0],
        lambda: chosen,
    )
    return chosen, count


_SWEEPS = 4  # distinct outcomes found without a loop


def distinct(valid: jax.Array, score: jax.Array, scale: jax.Array, most: int) -> tuple[jax.Array, jax.Array]:
    """One mode (most,) of every distinct valid outcome, in the order of their score, and how many there are.

    Of one x: valid and score (K,), scale () as in `choose`. Behind the last outcome modes repeat.
    """
    keyed = jnp.where(valid, score, jnp.inf)
    merge = 100.0 * feasibility_tolerance(score.dtype) * scale

    def body(carry: tuple[jax.Array, jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array, jax.Array]:
        modes, count, above = carry
        mode = jnp.argmin(jnp.where(keyed > above, keyed, jnp.inf)).astype(jnp.int32)
        return modes.at[count].set(mode, mode="drop"), count + 1, keyed[mode] + merge

    start = (jnp.zeros(most, jnp.int32), jnp.int32(0), jnp.array(-jnp.inf, score.dtype))
    modes, count, _ = lax.while_loop(lambda c: jnp.any((keyed > c[2]) & jnp.isfinite(keyed)), body, start)
    return modes, count
