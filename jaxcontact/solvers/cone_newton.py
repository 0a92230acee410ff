"""Newton's method for a `ConeProgram`: softened if it does not settle, then polished.

Entry: `solve_cone_program`, whose docstring has the phases of the search.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from jaxcontact._pytree import Record
from jaxcontact.batching import compacting_loop
from jaxcontact.batching.batch_axes import batch_first
from jaxcontact.batching.bounded_loop import bounded_loop, ends_early
from jaxcontact.precision import jit
from jaxcontact.solvers.cone_modes import FullStep, foresee, next_modes
from jaxcontact.solvers.cone_program import (
    ConeProgram,
    Response,
    apply_slopes,
    gated,
    hessian,
    project_impulses,
    residuals,
    solve_linearised,
)
from jaxcontact.solvers.line_search import SearchDirection, line_search
from jaxcontact.solvers.row_algebra import (
    Factor,
    apply_columns,
    apply_rows,
    diagonal,
    factorise,
    multiply,
    row_mobility,
    solve_factored,
)
from jaxcontact.tolerances import END_OF_PATH, EXACT_ENERGY, NO_ENERGY, SAME_IMPULSE, SOFT_DECREMENT, rounding

MODE_STEPS = 4  # steps that choose modes, before the steps that search along a line
PATIENCE = 4  # Newton steps before a program is softened; twice as many once it is
FIRST_LEVEL, RAISE, LOWER = 10.0, 30.0, 100.0  # slope x mobility: of the softened program, and its changes
REST_FRACTION = 0.5  # of the last change; renewed impulses that change by less come to rest
PROGRESS = 0.1  # of the last decrement; a step that leaves more counts against PATIENCE
END_MISFIT = 1e-16  # of the energy; misfit at which the search may end: 1e-8 of the velocities
POLISH_STEPS = 2  # of the method of multipliers in each pass of `_polish`
POLISH_PASSES = 2  # of `_polish`, each from new residuals
TILE = 16  # worlds that step together on a CPU: the slowest of many is slow


class ConeSolution(Record):
    """The result of `solve_cone_program`.

    Attributes:
        x: (nv,) the minimiser.
        p: (nr,) impulses.
        iterations: int32, Newton steps.
        converged: bool, before `max_iters` was reached.
    """

    x: jax.Array
    p: jax.Array
    iterations: jax.Array
    converged: jax.Array


def _soften(program: ConeProgram, ease: jax.Array, level: jax.Array) -> ConeProgram:
    """Soften a program: slopes are at most `level` times the inverse mobility of their row."""
    share = jnp.minimum(1.0, level * ease)
    if program.stop is not None:
        ne = program.num_equalities
        program = program.replace(stop=share[ne : ne + program.stop.shape[0]] * program.stop)
    return program.replace(
        offset=share * program.offset, slope=share * program.slope, keep=1.0 - share * (1.0 - program.keep)
    )


class _NewtonSearch(NamedTuple):
    """The state of Newton's method.

    `base` (nr,) is the point at which the next step linearises the law while steps choose modes. `level`
    bounds slope x mobility (inf: not softened), `tried` counts steps at this level that made little progress
    from the last `decrement`, `fresh` tells that the impulses p that rows keep were just renewed, and `quiet`
    that this moved almost nothing. `renewal` is the change of p at its last renewal at this level; 0 if the
    level rises whether p rests or not.
    """

    x: jax.Array
    p: jax.Array
    base: jax.Array
    level: jax.Array
    decrement: jax.Array
    tried: jax.Array
    fresh: jax.Array
    quiet: jax.Array
    renewal: jax.Array
    done: jax.Array
    steps: jax.Array
    factor: Factor


class _NewtonConstants(NamedTuple):
    """The constants of Newton's method.

    `ease` is 1 / (slope x mobility) of each row and `stiffest` the largest inverse of it, `weight` the
    measure of impulses that rows keep, `size` the energy in the data, `diagonal` that of M, `start`
    the impulses to start from.
    """

    program: ConeProgram
    diagonal: jax.Array
    ease: jax.Array
    stiffest: jax.Array
    weight: jax.Array
    mobility: jax.Array
    size: jax.Array
    start: jax.Array


def _compute_constants(program: ConeProgram, start: jax.Array) -> _NewtonConstants:
    masses = diagonal(program.M)
    singles = program.num_equalities + program.num_limits
    mobility = row_mobility(masses, program.columns, singles, program.mu.shape[0])
    stiff = mobility * program.slope
    return _NewtonConstants(
        program=program,
        diagonal=masses,
        ease=jnp.where(stiff > 0, 1.0 / jnp.where(stiff > 0, stiff, 1.0), jnp.inf),
        stiffest=jnp.max(stiff, axis=0, initial=0.0),
        weight=jnp.sqrt(mobility) * (program.keep > 0),
        mobility=mobility,
        size=program.v @ multiply(program.M, program.v) + program.push @ (program.push / masses),
        start=start,
    )


def _take_newton_step(
    fixed: _NewtonConstants, now: _NewtonSearch, *, early_exit: bool = True
) -> _NewtonSearch:
    """Take one step of Newton's method."""
    program, stiffest = fixed.program, fixed.stiffest
    eps = jnp.finfo(program.v.dtype).eps
    full = now.level >= stiffest
    choosing = (now.steps < MODE_STEPS) & (program.potential is None)
    staged = _soften(program, fixed.ease, now.level)
    x, p, done = now.x, now.p, now.done
    u = apply_rows(program.columns, x)
    z = staged.keep * p + staged.offset - staged.slope * u
    momentum = multiply(program.M, x - program.v) - program.push
    size = fixed.size + x @ multiply(program.M, x)
    base = jnp.where(choosing & ~gated(program), now.base, z)
    law = project_impulses(staged, base, u)
    tangent = _tangent(staged, law, z - base)
    gradient = momentum - apply_columns(program.columns, tangent.p)
    factor = factorise(hessian(staged, tangent))
    dx = -solve_factored(factor, gradient)
    decrement = -(gradient @ dx)
    exact = full | (now.renewal > 0)
    settled = ~choosing & (decrement <= jnp.where(exact, eps, eps**SOFT_DECREMENT) * size)
    du = apply_rows(program.columns, dx)
    moved = multiply(program.M, dx)
    full_step = _take_full_step(fixed, now, tangent, factor, momentum, dx)
    unsolved = max(END_MISFIT, float(eps) ** EXACT_ENERGY) * size
    solved = full & (full_step.imbalance <= eps * size) & (full_step.misfit <= unsolved)
    direction = SearchDirection(du, -decrement, momentum @ dx, dx @ moved)
    searches = ~(settled | done | choosing | solved)
    a, pushed = line_search(staged, z, u, direction, searches, early_exit)
    change = jnp.max(fixed.weight * jnp.abs(pushed - p), axis=0, initial=0.0)
    same = change <= eps**SAME_IMPULSE * jnp.sqrt(size)
    quiet = jnp.where(now.fresh, decrement <= eps**END_OF_PATH * size, now.quiet)
    broken = ~jnp.isfinite(decrement)  # one bad world must not delay the others
    # A lane that does not settle is softened; a lane that settles gets stiffer up to its own program.
    slow = ~choosing & (decrement > PROGRESS * now.decrement)
    tried = jnp.where(settled, 0, now.tried + slow)
    lost = tried >= jnp.where(jnp.isinf(now.level), PATIENCE, 2 * PATIENCE)
    softer = jnp.where(jnp.isinf(now.level), FIRST_LEVEL, jnp.minimum(now.level, stiffest) / LOWER)
    # A lane softened before renews its impulses until they rest; at rest they are the same at every level.
    stays = settled & ~full & ~same & (change < REST_FRACTION * now.renewal)
    rises = settled & ~full & ~stays
    level = jnp.where(lost, softer, jnp.where(rises, now.level * RAISE, now.level))
    again = jnp.isfinite(now.level) & lost | (now.renewal > 0)
    renewal = jnp.where(stays, change, jnp.where(lost | rises, jnp.where(again, jnp.inf, 0.0), now.renewal))
    # If the mode steps did not solve the program, their impulses are discarded.
    renewed = jnp.where(now.steps == MODE_STEPS - 1, fixed.start, full_step.law)
    then = _NewtonSearch(
        x=jnp.where(solved | choosing, full_step.x, x + a * dx),
        p=jnp.where(solved, full_step.p, jnp.where(choosing, renewed, jnp.where(settled, pushed, p))),
        base=next_modes(program, now.base, law.p, full_step),
        level=level,
        decrement=jnp.where(lost | settled | choosing, jnp.inf, decrement),
        tried=jnp.where(lost, 0, tried),
        fresh=settled & full,
        quiet=quiet & ~lost,
        renewal=renewal,
        done=broken | solved | (full & settled & (same | quiet)),
        steps=now.steps + 1,
        factor=factor,
    )
    return jax.tree.map(lambda new, old: jnp.where(done, old, new), then, now)


def _tangent(program: ConeProgram, law: Response, beyond: jax.Array) -> Response:
    """Compute the impulses by the tangent of a law that is known at one point, `beyond` (nr,) from there."""
    inverse = jnp.where(program.slope > 0, 1.0 / jnp.where(program.slope > 0, program.slope, 1.0), 0.0)
    return law._replace(p=law.p + apply_slopes(law, inverse * beyond))


def _take_full_step(
    fixed: _NewtonConstants,
    now: _NewtonSearch,
    tangent: Response,
    factor: Factor,
    momentum: jax.Array,
    dx: jax.Array,
) -> FullStep:
    """Take the second step of the method of multipliers for the linear law; dx is the first."""
    program, slope = fixed.program, tangent.slope
    share = jnp.where(slope > 0, program.keep / jnp.where(slope > 0, slope, 1.0), 0.0)
    renewed = tangent.p - apply_slopes(tangent, apply_rows(program.columns, dx))
    correction = apply_slopes(tangent, share * (renewed - now.p))
    more = solve_factored(factor, apply_columns(program.columns, correction))
    x, p = now.x + dx + more, renewed + correction - apply_slopes(tangent, apply_rows(program.columns, more))
    u = apply_rows(program.columns, x)
    z = program.keep * p + program.offset - program.slope * u
    law = project_impulses(program, z, u).p
    misfit = jnp.max(fixed.mobility * (p - law) ** 2, axis=0, initial=0.0)
    left = momentum + multiply(program.M, dx + more) - apply_columns(program.columns, p)
    return FullStep(x, p, u, z, law, misfit, left @ (left / fixed.diagonal))


def _begin_newton(program: ConeProgram, start: jax.Array) -> tuple[_NewtonConstants, _NewtonSearch]:
    """Prepare the constants, and the state before the first step from the impulses `start` (nr,)."""
    none, zero = jnp.asarray(False), jnp.int32(0)
    unlimited = jnp.full((), jnp.inf, program.v.dtype)
    now = _NewtonSearch(
        x=program.v,
        p=start,
        base=foresee(program, start),
        level=unlimited,
        decrement=unlimited,
        tried=zero,
        fresh=none,
        quiet=none,
        renewal=jnp.zeros((), program.v.dtype),
        done=none,
        steps=zero,
        factor=_no_factor(program),
    )
    return _compute_constants(program, start), now


def _no_factor(program: ConeProgram) -> Factor:
    """Make zeros in the form of the factor of the Hessian."""

    def factor() -> Factor:
        return factorise(hessian(program, project_impulses(program, program.offset, program.offset)))

    return jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), jax.eval_shape(factor))


def _solution(now: _NewtonSearch) -> ConeSolution:
    converged = now.done & jnp.all(jnp.isfinite(now.x), axis=0)
    return ConeSolution(x=now.x, p=now.p, iterations=now.steps, converged=converged)


def _minimise(
    program: ConeProgram, start: jax.Array, max_iters: int, early_exit: bool = True
) -> ConeSolution:
    """Minimise one program by Newton's method."""
    fixed, now = _begin_newton(program, start)
    now = bounded_loop(
        lambda now: ~now.done & (now.steps < max_iters),
        functools.partial(_take_newton_step, fixed, early_exit=early_exit),
        now,
        max_iters=max_iters,
        early_exit=early_exit,
    )
    return _solution(_polish(fixed, now))


def _minimise_many(program: ConeProgram, start: jax.Array, max_iters: int) -> ConeSolution:
    """Minimise programs along the first axis by Newton's method."""
    fixed, now = jax.vmap(_begin_newton)(program, start)
    now = compacting_loop.while_lanes(
        lambda now: ~now.done & (now.steps < max_iters),
        jax.vmap(_take_newton_step),
        jax.vmap(_polish),
        fixed,
        now,
        wide=TILE,
    )
    return jax.vmap(_solution)(now)


def _polish(fixed: _NewtonConstants, now: _NewtonSearch) -> _NewtonSearch:
    """Compute the last digits of x and p if the search is done, with its last factor.

    If impulses have entered another mode since, that factor would unbalance the momenta; then x and p stay.
    """
    program = fixed.program
    invert = functools.partial(solve_factored, now.factor)
    size = fixed.size + now.x @ multiply(program.M, now.x)

    def once(_: jax.Array, now: _NewtonSearch) -> _NewtonSearch:
        momentum, misfit, response = residuals(program, now.x, now.p)
        dx, dp = solve_linearised(program, response, invert, momentum, misfit, POLISH_STEPS)
        left = momentum + multiply(program.M, dx) - apply_columns(program.columns, dp)
        before, after = (vector @ (vector / fixed.diagonal) for vector in (momentum, left))
        removed = jnp.max(fixed.mobility * misfit**2, axis=0, initial=0.0)
        allowed = jnp.minimum(removed, rounding(dx.dtype, NO_ENERGY) * size)
        better = now.done & (after <= jnp.maximum(before, allowed))
        return now._replace(x=jnp.where(better, now.x + dx, now.x), p=jnp.where(better, now.p + dp, now.p))

    return lax.fori_loop(0, POLISH_PASSES, once, now)


@functools.partial(jit, static_argnames=("max_iters", "early_exit"))
def solve_cone_program(
    program: ConeProgram, start: jax.Array, max_iters: int = 100, early_exit: bool = True
) -> ConeSolution:
    """Minimise a `ConeProgram` by Newton's method with line search.

    The search starts with the law linearised in the modes of the impulses `start`. The first steps have full
    length, renew the impulses, and choose modes for the next step: a contact whose slip reverses comes to
    rest, however stiff its friction. Most programs are solved by then. A later step is also tried at full
    length; if that does not solve the program, a line search finds its length, and impulses are renewed
    after the search has settled. A program whose steps do not settle is solved with smaller slopes first,
    which then rise to its own. If that fails as well, as with stiff friction about to slip, the softer
    program is solved to the last digit until the impulses that it renews rest: a fixed point of the renewal
    solves the program at every slope.

    Batches made by `vmap` run in tiles, each until its slowest have converged. A result whose `converged` is
    False is the last iterate, or not finite if the data are not.

    Args:
        program: the data.
        start: (nr,) impulses to start from; zeros if nothing is known. They also give the modes of the rows.
        max_iters: largest number of Newton steps.
        early_exit: stop when all have converged. False does the same steps in loops of static length.

    Derivative: none; the callers differentiate the equations of the solution.
    """
    program, start = lax.stop_gradient((program, start))
    minimise = functools.partial(_minimise, max_iters=max_iters, early_exit=early_exit)
    in_tiles = functools.partial(_minimise_many, max_iters=max_iters)
    minimise_many = in_tiles if ends_early(early_exit) else jax.vmap(minimise)
    solution: ConeSolution = batch_first(minimise, minimise_many, program, start)
    return solution
