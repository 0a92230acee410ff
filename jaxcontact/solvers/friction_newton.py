"""Coulomb friction by Newton's method from the last impulses, and by interior points where that fails.

Entry: `solve_coulomb`. One loop does both: every iteration factorises one matrix of blocks by contact times
W. Page: docs/friction.md.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from jaxcontact._pytree import Record
from jaxcontact.algebra import general_factor
from jaxcontact.arguments import check_count
from jaxcontact.batching import compacting_loop
from jaxcontact.batching.batch_axes import batch_first
from jaxcontact.batching.bounded_loop import bounded_loop
from jaxcontact.precision import jit
from jaxcontact.solvers import friction_interior as interior
from jaxcontact.solvers.friction_derivative import attach_derivative
from jaxcontact.solvers.friction_interior import Interior
from jaxcontact.solvers.friction_law import (
    ScaledFriction,
    apply_blocks,
    assemble,
    by_axis,
    by_contact,
    linearise,
    natural_residual,
    scale_friction,
    split,
)
from jaxcontact.status import Status, flag

NEWTON, INTERIOR = 0, 1
PATIENCE = (
    4  # steps in a row that leave more than HALF of the merit or the complementarity; more after a restart
)
HALF = 0.5
LENGTHS = 8  # of steps that a line search tries, each half of the last
GOAL = 256.0  # eps; a residual of round-off, where the search ends at once
SHORT_STEP = 1e-5  # shorter interior steps lead nowhere; the search starts again farther inside
LARGEST_SHIFT = 0.1  # of the scaled diagonal of W
SHIFT_FACTOR = 10.0
FARTHER = 30.0  # size of the next start inside the cones, relative to the last
TILE = 16  # problems that step together on a CPU: the slowest of many is slow


@dataclasses.dataclass(frozen=True)
class CoulombNewton:
    """Limits of `solve_coulomb`.

    Attributes:
        max_iters: most iterations, at least 1, each with one factorisation. Problems of robots take 1 to 3
            from the impulses of the last step and 3 to 10 without; hard ones 20 to 40.
        tolerance: residual of a success; None is eps^0.6, 4e-10 in double precision.
        early_exit: stop when the problem is solved. False does the same in a loop of static length.
    """

    max_iters: int = 200
    tolerance: float | None = None
    early_exit: bool = True

    def __post_init__(self) -> None:
        check_count("max_iters", self.max_iters)


COULOMB_NEWTON = CoulombNewton()


class FrictionInfo(Record):
    """What a friction solver says beside its impulses.

    Attributes:
        status: uint32 bits of `Status`; 0 is success.
        residual: the natural map of De Saxce's form in the user's units: the largest change, as a velocity,
            of the impulses when the law is asked again at their velocities, over the largest |q|. With the
            largest own mobility w of a contact it is w |r - P(r - (u + mu |u_t| n) / w)|.
        num_iters: int32, factorisations.
    """

    status: jax.Array
    residual: jax.Array
    num_iters: jax.Array


class _Search(NamedTuple):
    """The state of one search.

    `point` (n,) are Newton's impulses and `inside` the interior ones; `phase` tells which of them the next
    iteration moves. `best` (n,) are the impulses of the smallest `residual`. `last` is the smallest measure
    of this run of either method, and `misses` counts its steps that hardly lowered it. Newton's method
    starts from the interior when the complementarity falls below `level`. `shift` is
    added to the diagonal of W, and `restarts` counts the starts inside the cones.
    """

    point: jax.Array
    inside: Interior
    best: jax.Array
    residual: jax.Array
    last: jax.Array
    misses: jax.Array
    phase: jax.Array
    level: jax.Array
    shift: jax.Array
    restarts: jax.Array
    done: jax.Array
    steps: jax.Array


def _first_level(dtype: Any) -> float:
    """Complementarity, in scaled units, at which Newton's method is tried first: 5e-7, in float32 2e-3."""
    return float(jnp.finfo(dtype).eps) ** 0.4


def _lower_level(dtype: Any) -> float:
    """Share of the complementarity after which it is tried again: 7e-4, in float32 4e-2."""
    return float(jnp.finfo(dtype).eps) ** 0.2


def _least_shift(dtype: Any) -> float:
    """Added to the scaled diagonal of W, so that redundant contacts share loads: 1e-11, in float32 1e-5."""
    return float(jnp.finfo(dtype).eps) ** 0.7


def success_tolerance(dtype: Any) -> float:
    """Residual of a success: eps^0.6, 4e-10, in float32 7e-5."""
    return float(jnp.finfo(dtype).eps) ** 0.6


def _begin(problem: ScaledFriction, start: jax.Array) -> _Search:
    """Start with Newton's method from scaled impulses (n,)."""
    dtype = start.dtype
    size = natural_residual(problem, start, problem.W @ start + problem.q)
    return _Search(
        point=start,
        inside=interior.begin(problem),
        best=start,
        residual=size,
        last=jnp.asarray(jnp.inf, dtype),
        misses=jnp.int32(0),
        phase=jnp.int32(NEWTON),
        level=jnp.asarray(_first_level(dtype), dtype),
        shift=jnp.asarray(_least_shift(dtype), dtype),
        restarts=jnp.int32(0),
        done=size <= GOAL * jnp.finfo(dtype).eps,
        steps=jnp.int32(0),
    )


def _iterate(problem: ScaledFriction, now: _Search, *, tolerance: float, max_iters: int) -> _Search:
    """Do one iteration of either method, and choose the next."""
    newton = now.phase == NEWTON
    point, inside, step, merit = _step(problem, now, newton)
    eps = float(jnp.finfo(point.dtype).eps)
    candidate = jnp.where(newton, point, inside.impulse)
    rate = problem.W @ candidate + problem.q
    size = natural_residual(problem, candidate, rate)
    better = size < now.residual
    best, residual = jnp.where(better, candidate, now.best), jnp.where(better, size, now.residual)
    # Newton's method: as long as the merit falls. Interior points: until the modes show, or little moves.
    left = interior.complementarity(problem, inside)
    measure = jnp.where(newton, merit, left)
    misses = jnp.where(measure <= HALF * now.last, 0, now.misses + 1)
    bare = jnp.max(jnp.abs(rate - inside.velocity))
    shows = ~newton & (left <= now.level) & (bare <= jnp.sqrt(now.level))
    broken = ~jnp.isfinite(measure) | (~newton & ((step < SHORT_STEP) | (left < eps * eps)))
    lost = broken | (misses >= PATIENCE * (1 + now.restarts))
    restarts = ~newton & lost
    again = interior.begin(problem, FARTHER ** (1.0 + now.restarts))
    kept = jax.tree.map(lambda new, old: jnp.where(restarts, new, old), again, inside)
    lower = jnp.minimum(left, now.level) * _lower_level(point.dtype)
    turns = shows | lost
    shift = jnp.where(measure <= HALF * now.last, now.shift / SHIFT_FACTOR, now.shift * SHIFT_FACTOR)
    least = _least_shift(point.dtype)
    then = _Search(
        point=jnp.where(newton, point, jnp.where(jnp.isfinite(inside.impulse), inside.impulse, 0.0)),
        inside=kept,
        best=best,
        residual=residual,
        last=jnp.where(turns, jnp.inf, jnp.minimum(measure, now.last)),
        misses=jnp.where(turns, 0, misses),
        phase=jnp.where(turns, jnp.where(newton, INTERIOR, NEWTON), now.phase).astype(jnp.int32),
        level=jnp.where(restarts, _first_level(point.dtype), jnp.where(shows, lower, now.level)),
        shift=jnp.where(turns | ~newton, least, jnp.clip(shift, least, LARGEST_SHIFT)),
        restarts=now.restarts + restarts,
        done=(residual <= GOAL * eps) | (newton & lost & (residual <= tolerance)),
        steps=now.steps + 1,
    )
    ended = now.done | (now.steps >= max_iters)
    return jax.tree.map(lambda new, old: jnp.where(ended, old, new), then, now)


def _merit(problem: ScaledFriction, impulse: jax.Array, rate: jax.Array) -> jax.Array:
    """Compute the length of the misfit of Alart and Curnier's equations."""
    misfit = jnp.concatenate(linearise(problem, impulse, rate, 0.0).value)
    return jnp.sqrt(jnp.sum(misfit**2))


def _shorten(
    problem: ScaledFriction, point: jax.Array, rate: jax.Array, change: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Go along Newton's direction: all the way if that halves the merit, else to the smallest one."""
    moved = problem.W @ change

    def merit_at(length: jax.Array) -> jax.Array:
        return _merit(problem, point + length * change, rate + length * moved)

    lengths = 0.5 ** jnp.arange(LENGTHS, dtype=point.dtype)
    merits = jax.vmap(merit_at)(lengths)
    whole = merits[0] <= HALF * _merit(problem, point, rate)
    chosen = jnp.where(whole, 0, jnp.argmin(jnp.where(jnp.isfinite(merits), merits, jnp.inf)))
    return point + lengths[chosen] * change, merits[chosen]


def _step(
    problem: ScaledFriction, now: _Search, newton: jax.Array
) -> tuple[jax.Array, Interior, jax.Array, jax.Array]:
    """Move Newton's point or the interior one.

    Returns both, the length of an interior step, and Newton's merit.
    """
    inside, nc = now.inside, problem.mu.shape[0]
    rate = problem.W @ now.point + problem.q
    law = linearise(problem, now.point, rate, 0.0)
    own, through, weights = interior.blocks(problem, inside)

    def choose(ours: Any, theirs: Any) -> Any:
        return jax.tree.map(lambda x, y: jnp.where(newton, x, y), ours, theirs)

    own, through = choose((law.by_impulse, law.by_velocity), (own, through))
    shift = now.shift
    matrix = assemble(own, through, problem.W + shift * jnp.eye(problem.q.shape[0], dtype=problem.W.dtype))
    solve = functools.partial(general_factor.solve_factored, general_factor.factorise(matrix))
    misfit = problem.W @ inside.impulse + problem.q - inside.velocity
    aim = functools.partial(interior.aim, problem, inside, (own, through, weights), misfit)
    rhs, cone = aim(0.0, None)
    rhs = jnp.where(newton, -jnp.concatenate(law.value), rhs)
    change = solve(rhs)
    ahead = interior.direct(problem, inside, change, misfit, cone)
    predicted = interior.advance(inside, ahead, interior.longest_step(problem, inside, ahead))
    before = interior.complementarity(problem, inside)
    share = interior.centring(before, interior.complementarity(problem, predicted))
    corrected, cone = aim(share * before, ahead)
    # Newton's second solve takes away what the shift of the diagonal did.
    through_shift = jnp.concatenate(apply_blocks(through, split(shift * change, nc)))
    left = rhs - matrix @ change + through_shift
    change = solve(jnp.where(newton, left, corrected)) + jnp.where(newton, change, 0.0)
    move = interior.direct(problem, inside, change, misfit, cone)
    step = interior.longest_step(problem, inside, move)
    advanced = interior.advance(inside, move, step)
    inside = jax.tree.map(lambda new, old: jnp.where(newton, old, new), advanced, inside)
    point, merit = _shorten(problem, now.point, rate, change)
    return jnp.where(newton, point, now.point), inside, step, merit


def _search(
    problem: ScaledFriction, start: jax.Array, tolerance: float, max_iters: int, early_exit: bool
) -> _Search:
    found: _Search = bounded_loop(
        lambda now: ~now.done & (now.steps < max_iters),
        functools.partial(_iterate, problem, tolerance=tolerance, max_iters=max_iters),
        _begin(problem, start),
        most=max_iters,
        early_exit=early_exit,
    )
    return found


def _search_many(problem: ScaledFriction, start: jax.Array, tolerance: float, max_iters: int) -> _Search:
    found: _Search = compacting_loop.while_lanes(
        lambda now: ~now.done & (now.steps < max_iters),
        jax.vmap(functools.partial(_iterate, tolerance=tolerance, max_iters=max_iters)),
        lambda _, now: now,
        problem,
        jax.vmap(_begin)(problem, start),
        wide=TILE,
    )
    return found


def solve_coulomb(
    W: jax.Array,
    q: jax.Array,
    mu: jax.Array,
    *,
    dim: int = 3,
    start: jax.Array | None = None,
    active: jax.Array | None = None,
    settings: CoulombNewton = COULOMB_NEWTON,
) -> tuple[jax.Array, FrictionInfo]:
    """Solve Coulomb's law for the impulses r of contacts with velocities u = W r + q.

    Of every contact 0 <= r_n, u_n >= 0, r_n u_n = 0 and |r_t| <= mu r_n, where r_t opposes u_t with all of
    mu r_n unless u_t = 0. Rows are contact-major, (n, t1[, t2]) of each contact. For traced code: shapes are
    assumed to fit. Newton's method starts from `start`; where that does not settle within a few steps, and
    without a start, interior points do.

    Args:
        W: (n, n), need not be symmetric nor regular; a regularised problem has its softness on the diagonal.
        q: (n,) velocities without impulses.
        mu: (nc,) friction >= 0.
        dim: rows per contact, 2 or 3.
        start: (n,) impulses to start from; None or zeros where nothing is known.
        active: (nc,) bool, contacts that may push; None for all. The others have no impulse, and their rows
            of W and q are not read.
        settings: limits of the search.

    Returns:
        r (n,) and FrictionInfo.

    Status: MAX_ITERS where the residual is above the tolerance, NONFINITE for NaN or inf in the data of
        active contacts (r is 0) or the result, INVALID for negative friction.

    Derivative: of the law in the modes at the solution, by W, q and mu, any order, forward and reverse; see
        `friction_derivative`.
    """
    nc = q.shape[0] // dim
    active = jnp.ones(nc, bool) if active is None else active
    rows = jnp.repeat(active, dim)
    both = rows[:, None] & rows[None, :]
    W, q = jnp.where(both, W, 0.0), jnp.where(rows, q, 0.0)
    mu = jnp.where(active, jnp.broadcast_to(mu, (nc,)), 0.0).astype(q.dtype)
    finite = jnp.all(jnp.isfinite(W)) & jnp.all(jnp.isfinite(q)) & jnp.all(jnp.isfinite(mu))
    invalid = jnp.any(mu < 0)
    readable = finite & ~invalid
    W, q, mu = (jnp.where(readable, x, 0.0) for x in (W, q, mu))
    problem = scale_friction(by_axis(by_axis(W, dim).T, dim).T, by_axis(q, dim), mu, active)
    guess = jnp.zeros_like(q) if start is None else by_axis(lax.stop_gradient(start), dim) / problem.impulse
    guess = jnp.where(jnp.all(jnp.isfinite(guess)) & jnp.tile(active, dim), guess, 0.0)
    found = search(lax.stop_gradient(problem), guess, settings)
    impulse = attach_derivative(problem, found.best) * problem.impulse
    tolerance = success_tolerance(q.dtype) if settings.tolerance is None else settings.tolerance
    solved = found.residual <= tolerance
    status = flag(~finite | ~jnp.all(jnp.isfinite(impulse)), Status.NONFINITE)
    status = status | flag(invalid, Status.INVALID) | flag(readable & ~solved, Status.MAX_ITERS)
    residual = jnp.where(readable, found.residual, jnp.inf)
    return by_contact(impulse, dim), FrictionInfo(status=status, residual=residual, num_iters=found.steps)


@functools.partial(jit, static_argnames="settings")
def search(problem: ScaledFriction, start: jax.Array, settings: CoulombNewton) -> _Search:
    """Search for scaled impulses (n,) of a scaled problem. Derivative: none."""
    tolerance = success_tolerance(start.dtype) if settings.tolerance is None else settings.tolerance
    limits = {"tolerance": tolerance, "max_iters": settings.max_iters}
    one = functools.partial(_search, **limits, early_exit=settings.early_exit)
    many = functools.partial(_search_many, **limits) if settings.early_exit else jax.vmap(one)
    found: _Search = batch_first(one, many, problem, start)
    return found
