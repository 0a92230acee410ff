"""Newton's method for a `ConeProgram` under Coulomb's law: mu times this step's impulse bounds friction.

Entry: `solve_by_modes`, whose docstring has the search. Page: docs/methods/compliant.md.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from jaxcontact.algebra import branch_factor
from jaxcontact.algebra.cones import positive
from jaxcontact.batching import compacting_loop
from jaxcontact.batching.batch_axes import batch_first
from jaxcontact.batching.bounded_loop import bounded_loop, ends_early
from jaxcontact.solvers import cone_program, row_algebra
from jaxcontact.solvers.cone_newton import ConeSolution
from jaxcontact.solvers.cone_program import ConeProgram, Response, apply_slopes, row_heads, split
from jaxcontact.solvers.friction_law import dot, length
from jaxcontact.solvers.row_algebra import apply_columns, apply_rows, diagonal, multiply
from jaxcontact.tolerances import CONVERGED, RESIDUAL, rounding

HALVINGS = 8  # of a step that does not lower the misfit
PROGRESS = 0.2  # of the length of a step; the fraction by which it lowers the misfit at least
MISFIT_FALL = 0.9  # of the misfit; after a step that leaves more, the next one holds the bounds of friction
MISS = 0.5  # of the misfit; a step that leaves more makes the next one softer
STIFFEST, SOFTEST = 1e8, 10.0  # slope x mobility of the program that is linearised
SOFTER, STIFFER = 0.1, 100.0  # changes of that number after a miss and after a good step
RENEWALS = 2  # of the impulses that stiff rows keep, in each step
TRIAL_STEPS, TRIAL_FALL = 3, 0.9  # steps after which a trial ends that left more than this of the misfit
STAGE_STEPS = 12  # of Newton's method in a stage of its search
FRICTIONS = (1.0, 1e3, 1.0, 0.0, 1.0, 3.0, 1.0)  # times mu in the stages; the law has 1
TILE = 16  # worlds that step together on a CPU: the slowest of many is slow


class _CoulombConstants(NamedTuple):
    """The constants of a search.

    `diagonal` of M, `mobility` of rows (nr,), `size` of m v^2 as its root, misfit `enough` for a solution.
    """

    program: ConeProgram
    diagonal: jax.Array
    mobility: jax.Array
    size: jax.Array
    enough: jax.Array


class _Law(NamedTuple):
    """The law near impulses p and rates u: `granted` by the natural map (nr,), and its linear equations.

    At rates u + du the linear law has the impulses `aim` - S du, with S of the `response`.
    """

    granted: jax.Array
    aim: jax.Array
    response: Response


class _CoulombSearch(NamedTuple):
    """The state of a search: velocities x, impulses p and their misfit, and those of the least misfit.

    `level` bounds slope x mobility of the next step, which holds the bounds of friction unless `coupled`.
    `left` counts the steps left in the `stage`. `bar` is the misfit that a trial has to reach, infinite if
    the search is none.
    """

    x: jax.Array
    p: jax.Array
    misfit: jax.Array
    best_x: jax.Array
    best_p: jax.Array
    best_misfit: jax.Array
    level: jax.Array
    coupled: jax.Array
    done: jax.Array
    steps: jax.Array
    stage: jax.Array
    left: jax.Array
    bar: jax.Array


def _soften_at_solution(fixed: _CoulombConstants, level: jax.Array) -> ConeProgram:
    """Soften a program: its solution stays, and slopes are at most `level` times the inverse mobility."""
    program, heads = fixed.program, row_heads(fixed.program)
    stiff = fixed.mobility * program.slope
    share = jnp.where(stiff > level, level / positive(stiff), 1.0)
    if program.potential is not None:  # it has no multiplier
        return program
    if program.stop is not None and program.touch is not None:
        stop = fixed.mobility[heads] * program.stop
        at_stop = jnp.where(stop > level, level / positive(stop), 1.0)
        share = share.at[heads].min(jnp.where(jnp.isfinite(program.touch), at_stop, 1.0))
        program = program.replace(stop=share[heads] * program.stop)
    return program.replace(
        offset=share * program.offset, slope=share * program.slope, keep=1.0 - share * (1.0 - program.keep)
    )


def _toward(p: jax.Array, z: jax.Array, slope: jax.Array, mobility: jax.Array) -> jax.Array:
    """Move impulses p toward what their line asks for, z, by a step of the size of 1 / mobility."""
    stiff = slope * mobility
    return p + jnp.where(stiff > 1.0, 1.0 / positive(stiff), 1.0) * (z - p)


def _choose_lines(
    fixed: _CoulombConstants, p: jax.Array, u: jax.Array, z: jax.Array
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Choose the line of each limit and normal: impulses granted (nu,), at rates u, and their slope."""
    program, heads = fixed.program, row_heads(fixed.program)
    if program.potential is not None:
        law = cone_program.project_impulses(program, z, u)
        first = program.num_equalities
        slope = law.scalar[first:]
        if law.block:
            slope = jnp.concatenate([slope, law.block[0][0]])
        return law.p[heads], law.p[heads], slope
    impulse, mobility = p[heads], fixed.mobility[heads]
    line, slope = z[heads], program.slope[heads]
    asked = _toward(impulse, line, slope, mobility)
    if program.touch is not None and program.stop is not None:
        opens = jnp.isfinite(program.touch)
        stop = program.keep[heads] * impulse + program.stop * (
            jnp.where(opens, program.touch, 0.0) - u[heads]
        )
        at_stop = jnp.where(opens, _toward(impulse, stop, program.stop, mobility), jnp.inf)
        stops = at_stop < asked
        asked = jnp.where(stops, at_stop, asked)
        line, slope = jnp.where(stops, stop, line), jnp.where(stops, program.stop, slope)
    pushes = asked > 0
    return jnp.where(pushes, asked, 0.0), jnp.where(pushes, line, 0.0), jnp.where(pushes, slope, 0.0)


def _law_at(fixed: _CoulombConstants, x: jax.Array, p: jax.Array, coupled: jax.Array | float = 1.0) -> _Law:
    """Linearise the law of every row in the mode that the natural map has at (x, p).

    The bounds of friction follow the normal impulses if `coupled` is 1, and are held if it is 0.
    """
    program = fixed.program
    ne, nl, nc = program.num_equalities, program.num_limits, program.mu.shape[0]
    u = apply_rows(program.columns, x)
    z = program.keep * p + program.offset - program.slope * u
    held, aim, give = z[:ne], z[:ne], program.slope[:ne]
    asked = _toward(p[:ne], held, give, fixed.mobility[:ne])
    if program.dry_bound is not None:
        slides = jnp.abs(asked) > program.dry_bound
        asked = jnp.clip(asked, -program.dry_bound, program.dry_bound)
        aim, give = jnp.where(slides, asked, aim), jnp.where(slides, 0.0, give)
    granted, lines, slopes = _choose_lines(fixed, p, u, z)
    scalar = jnp.concatenate([give, slopes[:nl]])
    if not nc:
        response = Response(p, program.slope, scalar, [], program.keep)
        return _Law(jnp.concatenate([asked, granted]), jnp.concatenate([aim, lines]), response)
    (_, *p_t), (_, *z_t), (_, slope_t, *_), (_, mobility, *_) = (
        split(rows, ne + nl, nc) for rows in (p, z, program.slope, fixed.mobility)
    )
    asked_t = [_toward(a, b, slope_t, mobility) for a, b in zip(p_t, z_t, strict=True)]
    bound, size = program.mu * granted[nl:], length(asked_t)
    slides = size > bound
    unit = [part / positive(size) for part in asked_t]
    share = jnp.where(slides, bound / positive(size), 1.0)
    # Across its direction a sliding impulse follows p = share (p - rho (u + R p - o)), rho = 1 / mobility.
    stiff = jnp.maximum(slope_t * mobility, 1.0)
    (_, keep_t, *_) = split(program.keep, ne + nl, nc)
    rest = jnp.maximum(1.0 - share * (1.0 - (1.0 - keep_t) / stiff), share / stiff)
    turning = jnp.where(slides, share * slope_t / stiff / positive(rest), slope_t)
    returning = share * (1.0 - 1.0 / stiff) / positive(rest)
    across = [b - dot(p_t, unit) * a for b, a in zip(p_t, unit, strict=True)]
    zero = jnp.zeros_like(bound)
    block = [[slopes[nl:]] + [zero] * len(p_t)]
    rubbed, aims = [], []
    for j, a in enumerate(unit):
        rubbed.append(share * asked_t[j])
        sliding = (coupled * program.mu * lines[nl:] + (1 - coupled) * bound) * a - returning * across[j]
        aims.append(jnp.where(slides, sliding, z_t[j]))
        line = [turning * ((j == k) - jnp.where(slides, a * b, 0.0)) for k, b in enumerate(unit)]
        block.append([jnp.where(slides, coupled * program.mu * a * slopes[nl:], 0.0), *line])
    slope = program.slope.at[row_heads(program)].set(
        jnp.where(slopes > 0, slopes, program.slope[row_heads(program)])
    )
    response = Response(p, slope, scalar, block, program.keep)
    return _Law(jnp.concatenate([asked, granted, *rubbed]), jnp.concatenate([aim, lines, *aims]), response)


def _measure_misfit(fixed: _CoulombConstants, x: jax.Array, p: jax.Array, law: _Law) -> jax.Array:
    """Compute the length of all misfits as speeds: of the impulses from the law, and of the momenta."""
    program = fixed.program
    left = multiply(program.M, x - program.v) - program.push - apply_columns(program.columns, p)
    return jnp.sqrt(jnp.sum(fixed.mobility * (p - law.granted) ** 2) + left @ (left / fixed.diagonal))


def _take_coulomb_step(
    fixed: _CoulombConstants, now: _CoulombSearch, *, early_exit: bool = True
) -> _CoulombSearch:
    """Take one step of Newton's method, at the first length that lowers the misfit."""
    friction = jnp.asarray(FRICTIONS, now.misfit.dtype)[now.stage]
    fixed = fixed._replace(program=fixed.program.replace(mu=friction * fixed.program.mu))
    program = _soften_at_solution(fixed, now.level)
    law = _law_at(fixed._replace(program=program), now.x, now.p, now.coupled)
    response = law.response
    invert = functools.partial(branch_factor.solve_factored, cone_program.factor(program, response))
    momentum = multiply(program.M, now.x - program.v) - program.push
    dx = invert(apply_columns(program.columns, law.aim) - momentum)
    p = law.aim - apply_slopes(response, apply_rows(program.columns, dx))
    share = jnp.where(response.slope > 0, program.keep / positive(response.slope), 0.0)
    change = p - now.p
    for _ in range(RENEWALS - 1):
        renewed = apply_slopes(response, share * change)
        more = invert(apply_columns(program.columns, renewed))
        change = renewed - apply_slopes(response, apply_rows(program.columns, more))
        dx, p = dx + more, p + change
    dp = p - now.p

    def misfit_at(length: jax.Array) -> jax.Array:
        x, p = now.x + length * dx, now.p + length * dp
        misfit = _measure_misfit(fixed, x, p, _law_at(fixed, x, p))
        return jnp.where(jnp.isfinite(misfit), misfit, jnp.inf)

    def falls(carry: tuple) -> jax.Array:
        k, length, misfit, _, _ = carry
        return (k < HALVINGS) & (misfit > (1.0 - PROGRESS * length) * now.misfit) & ~now.done

    def halve(carry: tuple) -> tuple:
        k, length, _, best, smallest = carry
        length = 0.5 * length
        misfit = misfit_at(length)
        better = misfit < smallest
        return k + 1, length, misfit, jnp.where(better, length, best), jnp.minimum(misfit, smallest)

    full_length = jnp.ones_like(now.misfit)
    full = misfit_at(full_length)
    search = bounded_loop(
        falls,
        halve,
        (jnp.int32(0), full_length, full, full_length, full),
        max_iters=HALVINGS,
        early_exit=early_exit,
    )
    length, misfit = search[3], search[4]
    x, p = now.x + length * dx, now.p + length * dp
    better = (misfit < now.best_misfit) & (friction == 1.0)
    eps = float(jnp.finfo(x.dtype).eps)
    rests = (now.misfit <= eps**RESIDUAL * fixed.size) & (misfit > MISS * now.misfit)
    then = _CoulombSearch(
        x=x,
        p=p,
        misfit=misfit,
        best_x=jnp.where(better, x, now.best_x),
        best_p=jnp.where(better, p, now.best_p),
        best_misfit=jnp.where(better, misfit, now.best_misfit),
        level=jnp.clip(
            now.level * jnp.where(misfit <= MISS * now.misfit, STIFFER, SOFTER), SOFTEST, STIFFEST
        ),
        coupled=jnp.where((misfit <= MISFIT_FALL * now.misfit) | (now.coupled == 0), 1.0, 0.0),
        done=(misfit <= eps**CONVERGED * fixed.size) | rests | ~jnp.isfinite(misfit),
        steps=now.steps + 1,
        stage=now.stage,
        left=now.left - 1,
        bar=now.bar,
    )
    then = then._replace(done=then.done | ((then.steps == TRIAL_STEPS) & (then.best_misfit > now.bar)))
    # After the steps of a stage, a solution needs no other friction.
    then = then._replace(done=then.done | ((then.left <= 0) & (then.best_misfit <= fixed.enough)))
    then = _next_stage(then, friction)
    return jax.tree.map(lambda new, old: jnp.where(now.done, old, new), then, now)


def _next_stage(now: _CoulombSearch, friction: jax.Array) -> _CoulombSearch:
    """Change the friction after the last step of a stage, or at a solution for a friction not of the law.

    Another friction starts from rest, where contacts stick; the law's own from the last point.
    """
    other = (friction != 1.0) & jnp.isfinite(now.misfit)
    ends = jnp.where(now.done, other, now.left <= 0) & (now.stage < len(FRICTIONS) - 1)
    rests = ends & (friction == 1.0)
    return now._replace(
        x=jnp.where(rests, 0.0, now.x),
        p=jnp.where(rests, 0.0, now.p),
        misfit=jnp.where(ends, jnp.inf, now.misfit),  # the first step is taken in full
        level=jnp.where(ends, STIFFEST, now.level),
        coupled=jnp.where(ends, 1.0, now.coupled),
        done=now.done & ~ends,
        stage=now.stage + ends,
        left=jnp.where(ends, STAGE_STEPS, now.left),
    )


def _begin_coulomb(
    program: ConeProgram, x: jax.Array, p: jax.Array, tolerance: jax.Array, is_trial: bool
) -> tuple[_CoulombConstants, _CoulombSearch]:
    """Prepare the search from velocities x and impulses p, to a misfit of `tolerance` of the speeds."""
    masses = diagonal(program.M)
    singles = program.num_equalities + program.num_limits
    mobility = row_algebra.row_mobility(masses, program.columns, singles, program.mu.shape[0])
    size = program.v @ multiply(program.M, program.v) + program.push @ (program.push / masses)
    size = jnp.sqrt(size) + jnp.finfo(x.dtype).tiny
    fixed = _CoulombConstants(program, masses, mobility, size, tolerance * size)
    misfit = _measure_misfit(fixed, x, p, _law_at(fixed, x, p))
    stiffest = jnp.full((), STIFFEST, x.dtype)
    begin = (stiffest, jnp.ones_like(misfit), jnp.asarray(False), jnp.int32(0), jnp.int32(0))
    bar = TRIAL_FALL * misfit if is_trial else jnp.full_like(misfit, jnp.inf)
    return fixed, _CoulombSearch(x, p, misfit, x, p, misfit, *begin, jnp.int32(STAGE_STEPS), bar)


def _solution(fixed: _CoulombConstants, now: _CoulombSearch) -> ConeSolution:
    """Return the point of least misfit, without the impulses that rounding leaves on open rows."""
    converged = (now.best_misfit <= fixed.enough) & jnp.all(jnp.isfinite(now.best_x))
    granted = _law_at(fixed, now.best_x, now.best_p).granted
    round_off = rounding(now.x.dtype, CONVERGED) * fixed.size
    left = (granted == 0) & (jnp.sqrt(fixed.mobility) * jnp.abs(now.best_p) <= round_off)
    p = jnp.where(left, 0.0, now.best_p)
    return ConeSolution(x=now.best_x, p=p, iterations=now.steps, converged=converged)


def solve_by_modes(
    program: ConeProgram,
    x: jax.Array,
    p: jax.Array,
    max_iters: int,
    early_exit: bool = True,
    tolerance: jax.Array | None = None,
    is_trial: bool = False,
) -> ConeSolution:
    """Solve a program with `coulomb=True` by Newton's method from velocities x (nv,) and impulses p (nr,).

    Its equations are p = P(p - (u + R p - o) / w), with the compliance R of each row, its mobility w, and the
    projection P on what it can exert: Alart and Curnier's. So a row is open, at the stop of its gate or on
    its spring, a contact sticks or slides in a direction. A step is halved until the misfit falls; after one
    that hardly lowers it, the next step is softer and holds the bounds of friction. After `STAGE_STEPS` steps
    it starts again from rest, with a thousand times the friction, so that contacts stick, and then with its
    own; then so without friction and with three times the friction. The least misfit is returned, and
    `converged` tells whether it is below the tolerance, a part of the speeds, 4e-10 if not given. A trial
    ends early where three steps hardly lower the misfit.

    Derivative: none.
    """
    program, x, p = lax.stop_gradient((program, x, p))
    tolerance = jnp.asarray(rounding(x.dtype, RESIDUAL) if tolerance is None else tolerance, x.dtype)
    begin = functools.partial(_begin_coulomb, is_trial=is_trial)

    def running(now: _CoulombSearch) -> jax.Array:
        return ~now.done & (now.steps < max_iters)

    def one(program: ConeProgram, x: jax.Array, p: jax.Array, tolerance: jax.Array) -> ConeSolution:
        fixed, now = begin(program, x, p, tolerance)
        step: Callable = functools.partial(_take_coulomb_step, fixed, early_exit=early_exit)
        now = bounded_loop(running, step, now, max_iters=max_iters, early_exit=early_exit)
        return _solution(fixed, now)

    def many(program: ConeProgram, x: jax.Array, p: jax.Array, tolerance: jax.Array) -> ConeSolution:
        fixed, now = jax.vmap(begin)(program, x, p, tolerance)
        now = compacting_loop.while_lanes(
            running, jax.vmap(_take_coulomb_step), lambda _, now: now, fixed, now, wide=TILE
        )
        return jax.vmap(_solution)(fixed, now)

    solution: ConeSolution = batch_first(
        one, many if ends_early(early_exit) else jax.vmap(one), program, x, p, tolerance
    )
    return solution
