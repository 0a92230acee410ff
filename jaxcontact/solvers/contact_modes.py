"""Planar contact problems by enumeration of contact modes: every solution, no pivoting.

Each assignment of modes to the contacts makes the contact laws linear equations. Tables have the mode as last
axis and x has its batch axes last: the same code serves one problem and a tile of thousands, with the same
order of summation. Entries: `mode_table`, `evaluate`. Page: docs/methods/set-valued.md.
"""

from __future__ import annotations

import functools
import itertools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxcontact._pytree import Record
from jaxcontact.algebra import small_dense
from jaxcontact.tolerances import MODE_VIOLATION, rounding

SEPARATE, REST_STICK, REST_PLUS, REST_MINUS, CAP_STICK, CAP_PLUS, CAP_MINUS = range(7)
MAX_ENUMERATED = 5  # contacts; 7^5 = 16807 modes
_TILE = 64  # modes tabulated together
_FEW = 32  # of them where worlds may differ: a tile of a world then takes half a megabyte


class ModeMaps(Record):
    """The linear maps and feasibility forms of K contact modes; m contacts, L numbers in x.

    A contact separates; or it is at rest or capped in the normal direction and sticks, slides + or slides -.
    In a mode the impulse is a fixed linear map of x = (u, impulse_max), valid if a few fixed linear forms of
    x are >= 0. Evaluating the table of all modes finds *all* solutions of a step at once. Singular modes are
    left out: the vertices of their solution sets belong to regular modes.

    Attributes:
        codes: (m, K) mode of each contact.
        impulse: (2m, L, K) with lam = impulse x, contact-major rows (n_0, t_0, n_1, ...); 3m rows in space.
        margin: (3m, L, K) forms that are >= 0 if the mode is valid; more in space.
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
        """Select the listed modes of the table."""
        return jax.tree.map(lambda leaf: leaf[..., index], self)


def feasibility_tolerance(dtype: jnp.dtype) -> float:
    """Compute the violation, relative to |v|_M, below which an inequality counts as met: eps^0.65."""
    return rounding(dtype, MODE_VIOLATION)


@functools.cache
def mode_codes(num_contacts: int, capped: bool) -> np.ndarray:
    """List all assignments (m, K) of modes to contacts: K = 7^m with a cap on the impulse, else 4^m."""
    codes = range(7 if capped else 4)
    return np.array(list(itertools.product(codes, repeat=num_contacts)), np.int32).T


class ModeInverses(Record):
    """The linear equations of K contact modes, inverted, without right-hand sides.

    Attributes:
        delassus, mu, active: of the problem.
        codes: (m, K) mode of each contact.
        matrix: (2m, 2m, K) of the impulse.
        inverse: (2m, 2m, K), unusable if `determined` (K,) is False.
    """

    delassus: jax.Array
    mu: jax.Array
    active: jax.Array
    codes: jax.Array
    matrix: jax.Array
    inverse: jax.Array
    determined: jax.Array

    @property
    def used(self) -> jax.Array:
        """(K,) bool: the modes in which inactive contacts separate."""
        return jnp.all(self.active[:, None] | (self.codes == SEPARATE), axis=0)

    @property
    def unresolved(self) -> jax.Array:
        """(K,) bool: the singular ones of them."""
        return self.used & ~self.determined


def mode_table(delassus: jax.Array, mu: jax.Array, active: jax.Array, *, capped: bool) -> ModeMaps:
    """Tabulate all contact modes of a planar problem.

    The problem: lam with u' = u + D lam and, per contact, 0 <= lam_n, u'_n >= 0, complementary (rest or
    separate); if `capped`, lam_n <= impulse_max, and u'_n < 0 is allowed if lam_n = impulse_max;
    lam_t in -mu lam_n Sign(u'_t). Halm & Posa, eqs (72)-(75).

    Args:
        delassus: D (2m, 2m), contact-major, best scaled to unit diagonal.
        mu: (m,) friction in the same scaling.
        active: (m,) bool; inactive contacts get no impulse.
        capped: whether x = (u, impulse_max), L = 3m, or x = u, L = 2m.
    """
    rows = 2 * mu.shape[0]
    codes = jnp.asarray(mode_codes(mu.shape[0], capped))
    matrix = _build_matrices(delassus, mu, codes)
    inverse, rank = _compute_inverses(matrix)
    equations = ModeInverses(
        delassus=delassus, mu=mu, active=active, codes=codes, matrix=matrix, inverse=inverse,
        determined=rank == rows,
    )  # fmt: skip
    x = jnp.eye(3 * mu.shape[0] if capped else rows, dtype=delassus.dtype)
    u, cap = x[:rows], x[rows:] if capped else None
    continuum = free_outcomes(delassus, matrix, _build_sources(equations, u, cap), inverse, rank) > 0
    return _compute_maps(equations, u, cap).replace(unresolved=equations.used & continuum)


def mode_inverses(delassus: jax.Array, mu: jax.Array, active: jax.Array) -> ModeInverses:
    """Compute the inverted equations of all contact modes with a cap, for `modes_at`; see `mode_table`."""
    m = mu.shape[0]
    codes = jnp.asarray(mode_codes(m, True))
    matrix = _build_matrices(delassus, mu, codes)
    if m == 2:
        inverse, determined = small_dense.inverse_of_four(matrix)
    else:
        inverse, rank = _compute_inverses(matrix)
        determined = rank == 2 * m
    return ModeInverses(
        delassus=delassus, mu=mu, active=active, codes=codes, matrix=matrix,
        inverse=inverse, determined=determined,
    )  # fmt: skip


def modes_at(equations: ModeInverses, u: jax.Array, cap: jax.Array) -> ModeMaps:
    """Tabulate the modes at one u (2m,) and cap (m,), as a table of x = (1,): cheaper for few x.

    Every singular mode counts as unresolved.
    """
    return _compute_maps(equations, u[:, None], cap[:, None])


class PlanarProblem(NamedTuple):
    """D (2m, 2m), friction (m,), active (m,), contact velocity (2m,) and cap (m,) of one step."""

    delassus: jax.Array
    mu: jax.Array
    active: jax.Array
    u: jax.Array
    cap: jax.Array


def _tabulate_at(problem: PlanarProblem, codes: jax.Array) -> ModeMaps:
    """Tabulate modes (m, K) at the u and cap of a problem, as a table of x = (1,)."""
    delassus, mu, active, u, cap = problem
    matrix = _build_matrices(delassus, mu, codes)
    inverse, rank = small_dense.generalized_inverse(matrix)
    equations = ModeInverses(
        delassus=delassus, mu=mu, active=active, codes=codes, matrix=matrix, inverse=inverse,
        determined=rank == matrix.shape[0],
    )  # fmt: skip
    identity = jnp.eye(3 * mu.shape[0], dtype=u.dtype)
    sources = _build_sources(equations, identity[: u.size], identity[u.size :])
    continuum = free_outcomes(delassus, matrix, sources, inverse, rank) > 0
    return _compute_maps(equations, u[:, None], cap[:, None]).replace(unresolved=equations.used & continuum)


def evaluate_in_tiles(problem: PlanarProblem) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Evaluate all modes with a cap at one u and cap, a tile of modes at a time and without a table.

    Returns:
        violation and score (K,) as `evaluate` and `ModeMaps.score` of `mode_table`, and its `unresolved`.
    """
    codes = mode_codes(problem.mu.shape[0], True)
    m, number = codes.shape
    tiles = np.pad(codes, [(0, 0), (0, -number % _FEW)]).reshape(m, -1, _FEW)

    def visit(codes: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
        table = _tabulate_at(problem, codes)
        return evaluate(table, jnp.ones(1, problem.u.dtype)), table.score[0], table.unresolved

    parts = lax.map(visit, jnp.asarray(np.moveaxis(tiles, 1, 0)))
    violation, score, unresolved = (part.reshape(-1)[:number] for part in parts)
    return violation, score, unresolved


def impulse_of_mode(problem: PlanarProblem, mode: jax.Array) -> jax.Array:
    """Compute the impulse (2m,) of the mode with this number, as in the table of `mode_table`."""
    codes = jnp.asarray(mode_codes(problem.mu.shape[0], True))[:, mode][:, None]
    return _tabulate_at(problem, codes).impulse[:, 0, 0]


def _build_matrices(delassus: jax.Array, mu: jax.Array, codes: jax.Array) -> jax.Array:
    """Build the matrices (2m, 2m, K) of the equations of modes (m, K)."""
    m = mu.shape[0]
    by_row = codes[:, None]  # (m, 1, K)
    identity = jnp.eye(2 * m, dtype=delassus.dtype)[:, :, None]
    unit_n, unit_t = identity[0::2], identity[1::2]  # (m, 2m, 1)
    d_n, d_t = delassus[0::2, :, None], delassus[1::2, :, None]
    mu_row = mu[:, None, None]
    normal = jnp.where(_rests(by_row), d_n, unit_n)
    slides = (unit_t + _slide_sign(by_row, mu.dtype) * mu_row * unit_n) * _ray_factor(mu_row)
    tangential = jnp.where(by_row == SEPARATE, unit_t, jnp.where(_sticks(by_row), d_t, slides))
    return jnp.stack([normal, tangential], axis=1).reshape(2 * m, 2 * m, -1)


def _build_sources(equations: ModeInverses, u: jax.Array, cap: jax.Array | None) -> jax.Array:
    """Build the right-hand sides (2m, L, K) of the equations for u (2m, L) and cap (m, L)."""
    by_row = equations.codes[:, None]
    u_n, u_t = u[0::2, :, None], u[1::2, :, None]
    caps = jnp.zeros_like(u_n) if cap is None else cap[:, :, None]
    normal = jnp.where(_rests(by_row), -u_n, jnp.where(by_row >= CAP_STICK, caps, 0.0))
    tangential = jnp.where(_sticks(by_row), -u_t, 0.0)
    return jnp.stack([normal, tangential], axis=1).reshape(*u.shape, -1)


def _sticks(codes: jax.Array) -> jax.Array:
    return (codes == REST_STICK) | (codes == CAP_STICK)


def _rests(codes: jax.Array) -> jax.Array:
    return (codes >= REST_STICK) & (codes <= REST_MINUS)


def _slide_sign(codes: jax.Array, dtype: jnp.dtype) -> jax.Array:
    """Choose the sign of the sliding velocity."""
    return jnp.where((codes == REST_PLUS) | (codes == CAP_PLUS), 1.0, -1.0).astype(dtype)


def _ray_factor(mu: jax.Array) -> jax.Array:
    """Compute the factor that scales friction rows to length one, for any mu."""
    return lax.rsqrt(1.0 + mu**2)


def _compute_maps(equations: ModeInverses, u: jax.Array, cap: jax.Array | None) -> ModeMaps:
    """Compute the maps of all modes for u (2m, L) and cap (m, L); cap is None for modes without one."""
    codes, inverse, delassus = equations.codes, equations.inverse, equations.delassus
    dtype = delassus.dtype
    m, length, by_row = codes.shape[0], u.shape[1], codes[:, None]
    sticks, rests, caps, slide = (
        _sticks(by_row),
        _rests(by_row),
        by_row >= CAP_STICK,
        _slide_sign(by_row, dtype),
    )
    separate, mu_row = by_row == SEPARATE, equations.mu[:, None, None]
    ray = _ray_factor(mu_row)

    product = small_dense.product_lanes
    sources = _build_sources(equations, u, cap)
    impulse = product(inverse, sources)
    impulse = impulse + product(inverse, sources - product(equations.matrix, impulse))
    misfit = jnp.max(jnp.abs(product(equations.matrix, impulse) - sources), axis=(0, 1))
    size = jnp.max(jnp.abs(u)) + jnp.max(jnp.abs(impulse), axis=(0, 1))
    good = equations.determined & (misfit <= feasibility_tolerance(dtype) * size)

    outgoing = product(delassus[:, :, None], impulse) + u[:, :, None]
    lam_n, lam_t = impulse[0::2], impulse[1::2]  # (m, L, K)
    out_n, out_t = outgoing[0::2], outgoing[1::2]
    inside_plus = (mu_row * lam_n - lam_t) * ray
    inside_minus = (mu_row * lam_n + lam_t) * ray
    # Along a ray of the cone the impulse is lam_n (1, -+mu): weigh its sign by its length.
    along = lam_n / ray
    zero = jnp.zeros_like(lam_n)
    below_cap = zero if cap is None else cap[:, :, None] - lam_n
    normal = jnp.where(separate, out_n, jnp.where(caps, -out_n, below_cap))
    first = jnp.where(sticks, inside_plus, jnp.where(separate, zero, slide * out_t))
    second = jnp.where(sticks, inside_minus, jnp.where(rests, along, zero))
    forms = jnp.stack([normal, first, second], axis=1) * equations.active[:, None, None, None]

    generic = jnp.cos(jnp.arange(2 * m) * 1.7 + 0.3).astype(dtype)  # no special direction
    return ModeMaps(
        codes=codes,
        impulse=impulse,
        margin=forms.reshape(3 * m, length, -1),
        score=jnp.sum(generic[:, None, None] * outgoing, axis=0),
        regular=good & equations.used,
        unresolved=equations.unresolved,
    )


def possible_velocities(delassus: jax.Array) -> jax.Array:
    """Compute a projector (r, r) on the contact velocities that bodies can have, the range of D."""
    return delassus @ small_dense.generalized_inverse(delassus)[0]


def free_outcomes(
    delassus: jax.Array, equations: jax.Array, sources: jax.Array, inverse: jax.Array, rank: jax.Array
) -> jax.Array:
    """Count the dimensions (K,) int32 of the outcomes of each mode; 2 means two or more.

    The count is 0 if the equations (r, r, K) have no solution for most x, or if impulses that they leave free
    do not all change the outgoing velocity: each outcome is then that of a mode with one contact or one
    friction direction less. Sources are (r, L, K), inverses (r, r, K).
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

    is_injective = lax.cond(jnp.any(several), injective, lambda: jnp.zeros_like(several))
    return jnp.where(several, jnp.where(is_injective, 2, 0), (changes & (rank == rows - 1)).astype(jnp.int32))


def _compute_inverses(equations: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Compute the `generalized_inverse` of (n, n, K), in tiles that stay in cache."""
    n, number = equations.shape[1:]
    if number <= _TILE:
        return small_dense.generalized_inverse(equations)
    tiles = jnp.pad(equations, [(0, 0), (0, 0), (0, -number % _TILE)]).reshape(n, n, -1, _TILE)
    inverse, rank = lax.map(small_dense.generalized_inverse, jnp.moveaxis(tiles, 2, 0))
    return jnp.moveaxis(inverse, 0, 2).reshape(n, n, -1)[:, :, :number], rank.reshape(-1)[:number]


def apply(forms: jax.Array, x: jax.Array) -> jax.Array:
    """Sum forms[j, :] x[j, ...] in the order of j: (L, K), (L, *batch) -> (K, *batch)."""
    batch = (1,) * (x.ndim - 1)
    total = jnp.zeros((), x.dtype)
    for j in range(forms.shape[0]):
        total = total + forms[j].reshape((-1, *batch)) * x[j][None]
    return total


def evaluate(table: ModeMaps, x: jax.Array, skip: jax.Array | None = None) -> jax.Array:
    """Compute the worst violation (K, *batch) of each mode at x (L, *batch): 0 if valid, inf if not regular.

    Args:
        skip: (3m, *batch) bool, forms that are not evaluated; default none.
    """
    worst = jnp.zeros((), x.dtype)
    for row in range(table.margin.shape[0]):
        value = apply(table.margin[row], x)
        if skip is not None:
            value = jnp.where(skip[row][None], 0.0, value)
        worst = jnp.minimum(worst, value)
    regular = table.regular.reshape((-1,) + (1,) * (x.ndim - 1))
    return jnp.where(regular, -worst, jnp.inf)
