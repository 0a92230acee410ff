"""The search for the impulses of a scaled friction problem.

One loop does Newton's method and interior points: every iteration factorises one matrix of blocks by contact
times W. Newton's method starts from the impulses it is given and has the length of step that lowers its merit
most. If the merit no longer falls, interior points find the modes. Entry: `search`.
Page: docs/methods/friction.md.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from types import ModuleType
from typing import NamedTuple

import jax
import jax.numpy as jnp

from jaxcontact import tolerances
from jaxcontact._pytree import PyTree
from jaxcontact.algebra import general_factor
from jaxcontact.arguments import check_count, check_positive
from jaxcontact.batching import compacting_loop
from jaxcontact.batching.batch_axes import batch_first
from jaxcontact.batching.bounded_loop import bounded_loop, ends_early
from jaxcontact.front_door import checked
from jaxcontact.precision import jit
from jaxcontact.solvers import friction_convex, friction_interior
from jaxcontact.solvers.friction_interior import Interior, advance, begin, centring
from jaxcontact.solvers.friction_law import (
    Linearised,
    ScaledFriction,
    apply_blocks,
    assemble_law,
    linearise,
    linearise_associated,
    natural_residual,
    split,
)
from jaxcontact.solvers.friction_tolerances import (
    HALF,
    LARGEST_SHIFT,
    SHIFT_FACTOR,
)

NEWTON, INTERIOR = 0, 1
# steps in a row that leave more than HALF of the merit or the complementarity; more after a restart
PATIENCE = 4
LENGTHS = 8  # of steps that a line search tries, each half of the last
GOAL = 256.0  # eps; a residual of round-off, at which the search ends at once
SHORT_STEP = 1e-5  # shorter interior steps lead nowhere; the search starts again farther inside
RESTART_FACTOR = 30.0  # size of the next start inside the cones, relative to the last
MAX_ITERS = 200  # iterations of traced code
TILE = 16  # problems that step together on a CPU: the slowest of many is slow


@checked(max_iters=check_count, tolerance=check_positive)
@jax.tree_util.register_static
@dataclasses.dataclass(frozen=True)
class CoulombNewton:
    """Limits of `solve_coulomb` and `solve_friction`.

    Attributes:
        max_iters: largest number of iterations, at least 1, each with one factorisation; None is 200, and
            outside of jit 1000. Problems of robots take 1 to 3 from the impulses of the last step and 3 to
            10 without; hard ones 20 to 40, heaps some hundreds.
        tolerance: residual of a success; None is eps^0.6, 4e-10 in double precision.
        early_exit: stop when the problem is solved. False does the same in a loop of static length.
    """

    max_iters: int | None = None
    tolerance: float | None = None
    early_exit: bool = True


COULOMB_NEWTON = CoulombNewton()


class FrictionLaw(NamedTuple):
    """A law: its equations, its interior-point steps, and whether it lifts a sliding contact."""

    linearise: Callable[..., Linearised]
    interior: ModuleType
    lifts: bool


COULOMB = FrictionLaw(linearise, friction_interior, False)
ASSOCIATED = FrictionLaw(linearise_associated, friction_convex, True)


class _ScaledSearch(NamedTuple):
    """The state of one search.

    `point` (n,) are Newton's impulses and `inside` the interior ones; `phase` selects the one that the
    next iteration moves. `best` (n,) are the impulses of the smallest `residual`. `last` is the smallest
    measure of this run of either method, and `misses` counts its steps that hardly lowered it. Newton's
    method starts from the interior after the complementarity has fallen to `level`. `shift` is added to the
    diagonal of W, and `restarts` counts the restarts inside the cones.
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


def _first_level(dtype: jax.typing.DTypeLike) -> float:
    """Compute the scaled complementarity at which Newton's method is tried first: 5e-7, in float32 2e-3."""
    return tolerances.rounding(dtype, tolerances.FIRST_LEVEL)


def _lower_level(dtype: jax.typing.DTypeLike) -> float:
    """Compute the fraction of the complementarity for the next try: 7e-4, in float32 4e-2."""
    return tolerances.rounding(dtype, tolerances.LOWER_LEVEL)


def _min_shift(dtype: jax.typing.DTypeLike) -> float:
    """Compute the smallest shift of the scaled diagonal of W: 1e-11, in float32 1e-5.

    With it redundant contacts share loads.
    """
    return tolerances.rounding(dtype, tolerances.SHIFT)


def success_tolerance(dtype: jax.typing.DTypeLike) -> float:
    """Compute the residual of a success: eps^0.6, 4e-10, in float32 7e-5."""
    return tolerances.rounding(dtype, tolerances.RESIDUAL)


def _begin_search(law: FrictionLaw, problem: ScaledFriction, start: jax.Array) -> _ScaledSearch:
    """Start with Newton's method from scaled impulses (n,)."""
    dtype = start.dtype
    size = natural_residual(problem, start, problem.W @ start + problem.q, law.lifts)
    return _ScaledSearch(
        point=start,
        inside=begin(problem),
        best=start,
        residual=size,
        last=jnp.asarray(jnp.inf, dtype),
        misses=jnp.int32(0),
        phase=jnp.int32(NEWTON),
        level=jnp.asarray(_first_level(dtype), dtype),
        shift=jnp.asarray(_min_shift(dtype), dtype),
        restarts=jnp.int32(0),
        done=size <= GOAL * jnp.finfo(dtype).eps,
        steps=jnp.int32(0),
    )


def _iterate(
    law: FrictionLaw, problem: ScaledFriction, now: _ScaledSearch, *, tolerance: float, max_iters: int
) -> _ScaledSearch:
    """Do one iteration of either method, and choose the next."""
    newton = now.phase == NEWTON
    point, inside, step, merit = _take_search_step(law, problem, now, newton)
    eps = float(jnp.finfo(point.dtype).eps)
    candidate = jnp.where(newton, point, inside.impulse)
    rate = problem.W @ candidate + problem.q
    size = natural_residual(problem, candidate, rate, law.lifts)
    better = size < now.residual
    best, residual = jnp.where(better, candidate, now.best), jnp.where(better, size, now.residual)
    # Newton's method continues while the merit falls, interior points until modes show or steps are small.
    left = law.interior.complementarity(problem, inside)
    measure = jnp.where(newton, merit, left)
    misses = jnp.where(measure <= HALF * now.last, 0, now.misses + 1)
    bare = jnp.max(jnp.abs(rate - inside.velocity))
    shows = ~newton & (left <= now.level) & (bare <= jnp.sqrt(now.level))
    broken = ~jnp.isfinite(measure) | (~newton & ((step < SHORT_STEP) | (left < eps * eps)))
    lost = broken | (misses >= PATIENCE * (1 + now.restarts))
    restarts = ~newton & lost
    again = begin(problem, RESTART_FACTOR ** (1.0 + now.restarts))
    interior = jax.tree.map(lambda new, old: jnp.where(restarts, new, old), again, inside)
    lower = jnp.minimum(left, now.level) * _lower_level(point.dtype)
    turns = shows | lost
    shift = jnp.where(measure <= HALF * now.last, now.shift / SHIFT_FACTOR, now.shift * SHIFT_FACTOR)
    min_shift = _min_shift(point.dtype)
    then = _ScaledSearch(
        point=jnp.where(newton, point, jnp.where(jnp.isfinite(inside.impulse), inside.impulse, 0.0)),
        inside=interior,
        best=best,
        residual=residual,
        last=jnp.where(turns, jnp.inf, jnp.minimum(measure, now.last)),
        misses=jnp.where(turns, 0, misses),
        phase=jnp.where(turns, jnp.where(newton, INTERIOR, NEWTON), now.phase).astype(jnp.int32),
        level=jnp.where(restarts, _first_level(point.dtype), jnp.where(shows, lower, now.level)),
        shift=jnp.where(turns | ~newton, min_shift, jnp.clip(shift, min_shift, LARGEST_SHIFT)),
        restarts=now.restarts + restarts,
        done=(residual <= GOAL * eps) | (newton & lost & (residual <= tolerance)),
        steps=now.steps + 1,
    )
    ended = now.done | (now.steps >= max_iters)
    return jax.tree.map(lambda new, old: jnp.where(ended, old, new), then, now)


def _merit(law: FrictionLaw, problem: ScaledFriction, impulse: jax.Array, rate: jax.Array) -> jax.Array:
    """Compute the length of the misfit of the equations of the law."""
    misfit = jnp.concatenate(law.linearise(problem, impulse, rate, 0.0).value)
    return jnp.sqrt(jnp.sum(misfit**2))


def _shorten(
    law: FrictionLaw, problem: ScaledFriction, point: jax.Array, rate: jax.Array, change: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Step along Newton's direction: by its full length if that halves the merit, else to the minimum."""
    moved = problem.W @ change

    def merit_at(length: jax.Array) -> jax.Array:
        return _merit(law, problem, point + length * change, rate + length * moved)

    lengths = 0.5 ** jnp.arange(LENGTHS, dtype=point.dtype)
    merits = jax.vmap(merit_at)(lengths)
    is_enough = merits[0] <= HALF * _merit(law, problem, point, rate)
    chosen = jnp.where(is_enough, 0, jnp.argmin(jnp.where(jnp.isfinite(merits), merits, jnp.inf)))
    return point + lengths[chosen] * change, merits[chosen]


def _take_search_step(
    law: FrictionLaw, problem: ScaledFriction, now: _ScaledSearch, newton: jax.Array
) -> tuple[jax.Array, Interior, jax.Array, jax.Array]:
    """Move Newton's point or the interior point.

    Returns both, the length of an interior step, and Newton's merit.
    """
    inside, nc, interior = now.inside, problem.mu.shape[0], law.interior
    rate = problem.W @ now.point + problem.q
    equations = law.linearise(problem, now.point, rate, 0.0)
    by_impulse, by_velocity, weights = interior.linearise_law(problem, inside)

    def choose(ours: PyTree, theirs: PyTree) -> PyTree:
        return jax.tree.map(lambda x, y: jnp.where(newton, x, y), ours, theirs)

    by_impulse, by_velocity = choose((equations.by_impulse, equations.by_velocity), (by_impulse, by_velocity))
    matrix = assemble_law(
        by_impulse, by_velocity, problem.W + now.shift * jnp.eye(problem.q.shape[0], dtype=problem.W.dtype)
    )
    solve = functools.partial(general_factor.solve_factored, general_factor.factorise(matrix))
    misfit = problem.W @ inside.impulse + problem.q - inside.velocity
    aim = functools.partial(
        interior.right_hand_sides, problem, inside, (by_impulse, by_velocity, weights), misfit
    )
    rhs, cone = aim(0.0, None)
    rhs = jnp.where(newton, -jnp.concatenate(equations.value), rhs)
    change = solve(rhs)
    ahead = interior.direct(problem, inside, change, misfit, cone)
    predicted = advance(inside, ahead, interior.longest_step(problem, inside, ahead))
    before = interior.complementarity(problem, inside)
    share = centring(before, interior.complementarity(problem, predicted))
    corrected, cone = aim(share * before, ahead)
    # Newton's second solve removes the effect of the shift of the diagonal.
    through_shift = jnp.concatenate(apply_blocks(by_velocity, split(now.shift * change, nc)))
    left = rhs - matrix @ change + through_shift
    change = solve(jnp.where(newton, left, corrected)) + jnp.where(newton, change, 0.0)
    move = interior.direct(problem, inside, change, misfit, cone)
    step = interior.longest_step(problem, inside, move)
    advanced = advance(inside, move, step)
    inside = jax.tree.map(lambda new, old: jnp.where(newton, old, new), advanced, inside)
    point, merit = _shorten(law, problem, now.point, rate, change)
    return jnp.where(newton, point, now.point), inside, step, merit


def _search_scaled(
    problem: ScaledFriction,
    start: jax.Array,
    *,
    law: FrictionLaw,
    tolerance: float,
    max_iters: int,
    early_exit: bool,
) -> _ScaledSearch:
    found: _ScaledSearch = bounded_loop(
        lambda now: ~now.done & (now.steps < max_iters),
        functools.partial(_iterate, law, problem, tolerance=tolerance, max_iters=max_iters),
        _begin_search(law, problem, start),
        max_iters=max_iters,
        early_exit=early_exit,
    )
    return found


def _search_many(
    problem: ScaledFriction, start: jax.Array, *, law: FrictionLaw, tolerance: float, max_iters: int
) -> _ScaledSearch:
    found: _ScaledSearch = compacting_loop.while_lanes(
        lambda now: ~now.done & (now.steps < max_iters),
        jax.vmap(functools.partial(_iterate, law, tolerance=tolerance, max_iters=max_iters)),
        lambda _, now: now,
        problem,
        jax.vmap(functools.partial(_begin_search, law))(problem, start),
        wide=TILE,
    )
    return found


@functools.partial(jit, static_argnames=("settings", "law"))
def search(
    problem: ScaledFriction, start: jax.Array, settings: CoulombNewton, law: FrictionLaw
) -> _ScaledSearch:
    """Search for the scaled impulses (n,) of a scaled problem; return the last state.

    Derivative: none.
    """
    tolerance = success_tolerance(start.dtype) if settings.tolerance is None else settings.tolerance
    limit = settings.max_iters or MAX_ITERS
    in_tiles = functools.partial(_search_many, law=law, tolerance=tolerance, max_iters=limit)
    search_lane = functools.partial(
        _search_scaled, law=law, tolerance=tolerance, max_iters=limit, early_exit=settings.early_exit
    )
    search_lanes = in_tiles if ends_early(settings.early_exit) else jax.vmap(search_lane)
    found: _ScaledSearch = batch_first(search_lane, search_lanes, problem, start)
    return found
