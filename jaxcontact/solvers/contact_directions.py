"""One-sided derivatives of a contact problem, where a contact is between two modes.

Owns the tangent problem at a solution: contacts within a mode obey linear equations, those at its border
complementarity. Entries: `one_sided_impulse`, `has_jump`. Page: docs/understand/derivatives.md.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxcontact.algebra import small_dense
from jaxcontact.algebra.cones import positive
from jaxcontact.algebra.forward_only import forward_only
from jaxcontact.precision import all_digits
from jaxcontact.solvers.friction_newton import solve_coulomb
from jaxcontact.status import Status
from jaxcontact.tolerances import FOLD, HALF_DIGITS, rounding

BORDER_DIGITS = (
    HALF_DIGITS  # power of eps; impulses and velocities below it, relative to |v|_M, are at a border
)
NOISE = 256.0  # of eps, relative to its terms; a sum below it is round-off
TESTED = 5, 3  # contacts at borders whose combinations of modes are tested, in the plane and in space
HEADINGS = 8  # directions of sliding that are tested, in space
PROBES = 256  # random motions, to see which combinations bodies can reach
REACHED = 1e-3  # of a random motion; slower is round-off

REVERSE = (
    "corner='one_sided': reverse mode needs a linear map, and the derivative of an impact at the border of a "
    "mode is none; use jax.jvp, or corner='smooth' for the derivative of the mode taken"
)
SECOND = (
    "corner='one_sided': an impact has no second derivative; use corner='smooth', whose first and second "
    "derivatives are those of the mode taken"
)


class Solution(NamedTuple):
    """A solved contact problem u = rates + delassus lam with Coulomb friction; rows are contact-major.

    Attributes:
        impulse: (r,) lam.
        active: (nc,) bool, contacts that take part.
        size: the root of energy that counts as large; impulses and velocities are compared with it.
        softness: (r,) ratios of the softness of rows, by which redundant contacts share loads.
    """

    impulse: jax.Array
    active: jax.Array
    size: jax.Array
    softness: jax.Array


def border_size(dtype: jnp.dtype, size: jax.Array) -> jax.Array:
    """Compute the impulse or velocity, as a root of energy, up to which a contact is at a border."""
    return rounding(dtype, BORDER_DIGITS) * size


@jax.custom_jvp
def negative_part(x: jax.Array, is_zero: jax.Array) -> jax.Array:
    """Compute min(x, 0); where x `is_zero` the derivative is the one-sided one, forward, first order."""
    return jnp.where(x < 0, x, 0.0)


@negative_part.defjvp
def _negative_part_jvp(primals: tuple[jax.Array, jax.Array], tangents: tuple) -> tuple[jax.Array, jax.Array]:
    (x, is_zero), change = primals, tangents[0]
    lower = jnp.where(is_zero, jnp.minimum(change, 0.0), jnp.where(x < 0, change, 0.0))
    return negative_part(x, is_zero), forward_only(lower, x, reverse=REVERSE, second=SECOND)


@jax.custom_jvp
def without_rate(value: jax.Array, jumps: jax.Array) -> jax.Array:
    """Return the value, whose forward derivative is NaN if it `jumps`."""
    return value


@without_rate.defjvp
def _without_rate_jvp(primals: tuple[jax.Array, jax.Array], tangents: tuple) -> tuple[jax.Array, jax.Array]:
    change = forward_only(
        jnp.where(primals[1], jnp.nan, tangents[0]), primals[0], reverse=REVERSE, second=SECOND
    )
    return without_rate(*primals), change


class _TangentProblem(NamedTuple):
    """What the rates y (nc, dim) of the impulses obey, by unknowns x and velocities v (nc, dim) of a contact.

    y = span x + grip c and v = view w + keep x, with the rates w of the velocities and c of mu at fixed lam.
    Rows with `is_open` have v = 0; the first row of a contact `is_border` has 0 <= x, v >= 0, x v = 0, and
    all rows of one that `is_free` are a contact with friction.
    """

    span: jax.Array  # (nc, dim, dim)
    grip: jax.Array  # (nc, dim)
    view: jax.Array  # (nc, dim, dim)
    keep: jax.Array  # (nc, dim)
    is_border: jax.Array  # (nc,)
    is_free: jax.Array  # (nc,)


def _tangent_problem(
    delassus: jax.Array, rates: jax.Array, mu: jax.Array, solution: Solution
) -> _TangentProblem:
    """Find the mode of every contact at a solution, and what its rates obey there."""
    nc = mu.shape[0]
    lam = solution.impulse.reshape(nc, -1)
    u = (rates + delassus @ solution.impulse).reshape(nc, -1)
    dim, dtype = lam.shape[1], lam.dtype
    small = border_size(dtype, solution.size)
    load, friction, slip = lam[:, 0], lam[:, 1:], u[:, 1:]
    limit, used, speed = mu * load, _length(friction), _length(slip)
    rests = solution.active & (load > small)
    touches = solution.active & ~rests & (u[:, 0] <= small)
    slides = (rests | touches) & (speed > small)
    holds = rests & ~slides & (limit > (1.0 + mu) * small)
    slips = holds & (used >= limit - (1.0 + mu) * small)  # at the border between sticking and sliding
    free = touches & ~slides

    along = jnp.where(slides[:, None], slip / positive(speed)[:, None], friction / positive(used)[:, None])
    along = jnp.where((slides | slips)[:, None], along, jnp.eye(1, dim - 1, dtype=dtype))
    frame = along[:, None, :]
    if dim == 3:
        frame = jnp.stack([along, jnp.stack([-along[:, 1], along[:, 0]], axis=1)], axis=1)
    local = jnp.zeros((nc, dim, dim), dtype).at[:, 0, 0].set(1.0).at[:, 1:, 1:].set(frame)
    # Friction along is mu times the normal impulse against sliding; at the border a slack takes from it.
    pull = jnp.where(slides, -1.0, jnp.where(slips, 1.0, 0.0)).astype(dtype)
    side = jnp.where(slips, -1.0, 1.0).astype(dtype)
    mix = jnp.broadcast_to(jnp.eye(dim, dtype=dtype), (nc, dim, dim))
    mix = mix.at[:, 1, 0].set(pull * mu).at[:, 1, 1].set(side)
    turns = jnp.where(slides, limit / positive(speed), 1.0)  # impulse across per velocity across
    weight = jnp.ones((nc, dim), dtype).at[:, 1].set(side)
    moves = jnp.broadcast_to((rests | touches)[:, None], (nc, dim))
    moves = moves.at[:, 1].set(holds | free)  # of a contact that slides this row is its grip
    keep = jnp.zeros((nc, dim), dtype)
    if dim == 3:
        weight = weight.at[:, 2].set(turns)
        moves = moves.at[:, 2].set(holds | free | rests & slides)
        keep = keep.at[:, 2].set(jnp.where(slides, 1.0, 0.0))
    keep = jnp.where(moves, keep, 1.0)
    view = jnp.where(moves, weight, 0.0)[:, :, None] * local
    span = jnp.einsum("cji,cjk->cik", local, mix)
    grip = jnp.einsum("cji,cj->ci", local, jnp.zeros((nc, dim), dtype).at[:, 1].set(pull))
    # The slack comes first in its contact.
    swap = np.arange(dim)
    swap[:2] = 1, 0
    span = jnp.where(slips[:, None, None], span[:, :, swap], span)
    view = jnp.where(slips[:, None, None], view[:, swap], view)
    keep = jnp.where(slips[:, None], keep[:, swap], keep)
    return _TangentProblem(span, grip, view, keep, slips | (touches & slides), free)


def _length(rows: jax.Array) -> jax.Array:
    return jnp.sqrt(jnp.sum(rows**2, axis=1))


class _Reduced(NamedTuple):
    """The tangent problem of borders, v = matrix x + offset in their rows, without all other rows."""

    matrix: jax.Array  # (r, r)
    full: jax.Array  # (r, r)
    inverse: jax.Array  # (r, r)
    is_kept: jax.Array  # (r,) bool, rows of borders


def _reduce(delassus: jax.Array, problem: _TangentProblem) -> _Reduced:
    """Eliminate the rows within a mode."""
    nc, dim = problem.grip.shape
    blocks = delassus.reshape(nc, dim, nc, dim)
    full = jnp.einsum("cij,cjdk,dkl->cidl", problem.view, blocks, problem.span).reshape(nc * dim, -1)
    full = full + jnp.diag(problem.keep.reshape(-1))
    at_border = (
        jnp.broadcast_to(problem.is_free[:, None], (nc, dim))
        .at[:, 0]
        .set(problem.is_free | problem.is_border)
    )
    at_border = at_border.reshape(-1)
    inner = ~at_border[:, None] & ~at_border[None]
    inverse, _ = small_dense.generalized_inverse(
        jnp.where(inner, full, jnp.diag(at_border.astype(full.dtype)))
    )
    inverse = jnp.where(inner, inverse, 0.0)
    outer = at_border[:, None] & at_border[None]
    change = full @ inverse @ full
    size = jnp.abs(full) + jnp.abs(full) @ jnp.abs(inverse) @ jnp.abs(full)
    matrix = jnp.where(outer, without_noise(full - change, size), 0.0)
    return _Reduced(matrix, full, inverse, at_border)


def without_noise(x: jax.Array, size: jax.Array) -> jax.Array:
    """Set to zero what is round-off of terms of that size."""
    return jnp.where(jnp.abs(x) <= NOISE * float(jnp.finfo(x.dtype).eps) * size, 0.0, x)


def has_jump(
    delassus: jax.Array, rates: jax.Array, mu: jax.Array, solution: Solution, max_tested: int | None = None
) -> jax.Array:
    """Decide whether the solution jumps or branches in some direction; return a bool. No derivative.

    At most `max_tested` contacts at borders are tested, None: all of them up to a limit.

    The rates of impulses are a piecewise linear map of those of velocities, a piece for each combination of
    modes. It is one to one if the determinants of pieces have one sign; else some directions have no rates,
    or several. Pieces that no motion of the bodies reaches, as with parallel rows, do not count.
    """
    fixed = lax.stop_gradient((delassus, rates, mu))
    problem = _tangent_problem(*fixed, solution)
    return lax.cond(
        jnp.any(problem.is_border | problem.is_free),
        lambda: _is_folded(fixed[0], fixed[2], problem, mu.shape[0] if max_tested is None else max_tested),
        lambda: jnp.array(False),
    )


class _Modes(NamedTuple):
    """The modes of a contact: it opens, its first row is closed, it sticks, it slides in one of the headings.

    Unknowns are (span + mu slope) x. Rows of the velocities are those of `frame`, zero with `is_zero`,
    positive with `is_positive`.
    """

    span: jax.Array  # (k, dim, dim)
    slope: jax.Array  # (k, dim, dim)
    frame: jax.Array  # (k, dim, dim)
    is_zero: jax.Array  # (k, dim)
    is_positive: jax.Array  # (k, dim)


def _list_modes_of(dim: int, dtype: jnp.dtype) -> _Modes:
    headings = np.array([[1.0], [-1.0]])
    if dim == 3:
        angle = 2.0 * np.pi * np.arange(HEADINGS) / HEADINGS
        headings = np.stack([np.cos(angle), np.sin(angle)], axis=1)
    k = 3 + len(headings)
    span, slope, frame = np.zeros((k, dim, dim)), np.zeros((k, dim, dim)), np.tile(np.eye(dim), (k, 1, 1))
    is_zero, is_positive = np.zeros((k, dim), bool), np.zeros((k, dim), bool)
    span[1:, 0, 0], span[2] = 1.0, np.eye(dim)
    slope[3:, 1:, 0], frame[3:, 1, 1:] = headings, -headings  # friction along, sliding against
    if dim == 3:
        frame[3:, 2, 1], frame[3:, 2, 2] = headings[:, 1], -headings[:, 0]
    is_zero[1:, 0], is_zero[2:, 1:], is_zero[3:, 1] = True, True, False
    is_positive[0, 0], is_positive[3:, 1] = True, True
    return _Modes(
        jnp.asarray(span, dtype),
        jnp.asarray(slope, dtype),
        jnp.asarray(frame, dtype),
        jnp.asarray(is_zero),
        jnp.asarray(is_positive),
    )


def _is_folded(delassus: jax.Array, mu: jax.Array, problem: _TangentProblem, max_tested: int) -> jax.Array:
    """Decide whether modes that bodies can reach have a piece of negative determinant; see `has_jump`."""
    (nc, dim), dtype = problem.grip.shape, delassus.dtype
    small = _reduce(delassus, problem)
    blocks = delassus.reshape(nc, dim, -1)
    reach = jnp.einsum("cij,cjr->cir", problem.view, blocks).reshape(delassus.shape)
    reach = jnp.where(small.is_kept[:, None], reach - small.full @ (small.inverse @ reach), 0.0)
    count = min(max_tested, TESTED[dim - 2])
    (chosen,) = jnp.nonzero(problem.is_border | problem.is_free, size=count, fill_value=nc)
    rows = (chosen[:, None] * dim + jnp.arange(dim)[None]).reshape(-1)
    matrix = small.matrix.at[rows[:, None], rows[None]].get(mode="fill", fill_value=0.0)
    reach = reach.at[rows].get(mode="fill", fill_value=0.0)
    is_free = problem.is_free.at[chosen].get(mode="fill", fill_value=False)
    friction = mu.at[chosen].get(mode="fill", fill_value=0.0)
    sizes, basis = jnp.linalg.eigh(reach @ reach.T)
    low = rounding(dtype, FOLD)
    basis = jnp.where(sizes > low * jnp.max(sizes), basis, 0.0)  # of the velocities that bodies can have
    modes = _list_modes_of(dim, dtype)
    size = modes.span.shape[0]
    unit = jnp.eye(count * dim, dtype=dtype)
    probes = jnp.asarray(np.random.default_rng(0).normal(size=(count * dim, PROBES)), dtype)

    def is_fold(mode: jax.Array) -> jax.Array:
        span, frame, is_zero, is_positive = (
            x[mode] for x in (modes.span, modes.frame, modes.is_zero.reshape(size, -1, 1), modes.is_positive)
        )
        span = span + friction[:, None, None] * modes.slope[mode]
        which = jnp.any(span != 0, axis=1).reshape(-1)
        columns = jnp.einsum("rcj,cjk->rck", matrix.reshape(-1, count, dim), span).reshape(matrix.shape)
        piece = jnp.where(which[None], columns, unit)
        piece = piece / positive(jnp.sqrt(jnp.sum(piece**2, axis=0)))[None]
        moves = jnp.einsum("cij,cjr->cir", frame, basis.reshape(count, dim, -1))
        zero = jnp.where(is_zero, moves, 0.0).reshape(unit.shape)
        held = zero.T @ jnp.linalg.solve(zero @ zero.T + low**2 * unit, zero @ probes)
        speeds = (moves.reshape(unit.shape) @ (probes - held)).reshape(count, dim, PROBES)
        asked = is_positive & (chosen < nc)[:, None]  # the rest of `chosen` are no contacts and do not move
        reached = jnp.any(jnp.all((speeds > REACHED) | ~asked[..., None], axis=(0, 1)))
        allowed = jnp.where(is_free, mode != 1, mode <= 1)
        return jnp.all(allowed) & reached & (jnp.linalg.det(piece) < -low)

    combinations = np.stack(np.meshgrid(*[np.arange(size)] * count, indexing="ij"), axis=-1)
    return jnp.any(jax.vmap(is_fold)(jnp.asarray(combinations.reshape(-1, count))))


@functools.partial(jax.custom_jvp, nondiff_argnums=())
def one_sided_impulse(
    delassus: jax.Array, rates: jax.Array, mu: jax.Array, jumps: jax.Array, solution: Solution
) -> jax.Array:
    """Return the impulses (r,) of a solution; their forward derivative is the one-sided one.

    Args:
        delassus: (r, r) velocity per impulse.
        rates: (r,) velocities without impulses.
        mu: (nc,) friction.
        jumps: bool, whether there is no derivative; the rates are then NaN.
        solution: which carries no derivative.

    Derivative: forward, first order: lim (lam(z + h dz) - lam(z)) / h for h -> 0+, not linear in dz.
    """
    return solution.impulse


@one_sided_impulse.defjvp
@all_digits
def _one_sided_jvp(
    primals: tuple[jax.Array, jax.Array, jax.Array, jax.Array, Solution], tangents: tuple
) -> tuple[jax.Array, jax.Array]:
    delassus, rates, mu, jumps, solution = primals
    changes = tangents[:3]
    offset = changes[1] + changes[0] @ solution.impulse
    change, solved = impulse_rates((delassus, rates, mu), solution, offset, changes[2])
    change = jnp.where(solved & ~jumps, change, jnp.nan)
    return one_sided_impulse(*primals), forward_only(change, rates, reverse=REVERSE, second=SECOND)


def impulse_rates(
    problem: tuple[jax.Array, jax.Array, jax.Array], solution: Solution, offset: jax.Array, by_mu: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Solve the tangent problem for the rates (r,) of impulses; return also whether they are a solution.

    Args:
        problem: delassus, rates and mu.
        offset: (r,) rates of the velocities at fixed impulses.
        by_mu: (nc,) rates of friction.
    """
    delassus, _, mu = problem
    tangent = _tangent_problem(*problem, solution)
    nc, dim = tangent.grip.shape
    small = _reduce(delassus, tangent)
    load = solution.impulse.reshape(nc, dim)[:, 0]
    fixed = ((by_mu * load)[:, None] * tangent.grip).reshape(-1)
    view = jax.vmap(jnp.matmul)
    rates = view(tangent.view, (offset + delassus @ fixed).reshape(nc, dim)).reshape(-1)
    inner = small.inverse @ rates
    size = jnp.abs(rates) + jnp.abs(small.full) @ (jnp.abs(small.inverse) @ jnp.abs(rates))
    asked = jnp.where(small.is_kept, without_noise(rates - small.full @ inner, size), 0.0)
    at_border = tangent.is_border | tangent.is_free
    friction = jnp.where(tangent.is_free, mu, 0.0)
    x, info = solve_coulomb(small.matrix, asked, friction, active=at_border, softness=solution.softness)
    x = jnp.where(small.is_kept, x, 0.0)
    x = x - small.inverse @ (rates + small.full @ x)
    # Contacts that share loads may ask for what no motion has: one of them opens, and which, no load tells.
    left, magnitude = rates + small.full @ x, jnp.abs(rates) + jnp.abs(small.full) @ jnp.abs(x)
    consistent = jnp.all(small.is_kept | (jnp.abs(left) <= border_size(magnitude.dtype, jnp.max(magnitude))))
    # Friction that begins with mu, at a contact that has none and does not slide, has no direction.
    begins = (mu == 0) & (by_mu != 0) & (load > 0) & jnp.all(tangent.grip == 0, axis=1) & solution.active
    change = view(tangent.span, x.reshape(nc, dim)).reshape(-1) + fixed
    solved = (info.status & jnp.uint32(int(Status.FAILURES))) == 0
    return change, solved & consistent & ~jnp.any(begins)
