"""The search for a step with Coulomb friction: `solve_coulomb_step`. Page: docs/methods/compliant.md."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from jaxcontact.batching import compacting_loop
from jaxcontact.batching.batch_axes import batch_first
from jaxcontact.batching.bounded_loop import bounded_loop, ends_early
from jaxcontact.batching.world_code import mark_seldom
from jaxcontact.solvers import cone_newton
from jaxcontact.solvers.cone_interior import STEPS, approach_by_interior_points
from jaxcontact.solvers.cone_newton import ConeSolution
from jaxcontact.solvers.cone_program import ConeProgram
from jaxcontact.solvers.coulomb_program import FRICTIONS, STAGE_STEPS, TILE, solve_by_modes
from jaxcontact.tolerances import rounding

FIRST_STEPS = 8  # of Newton's method from the velocities before the step
ROLLING_FIRST_STEPS = 3  # the same where contacts resist turning: in eight lanes, one mostly does not settle
SWEEPS = 10  # convex problems whose solutions start Newton's method
EDGE = 0.42  # power of eps, 3e-7: misfit that one row on an edge has where interior points end
EDGES = 1e-4  # the largest that all rows may have
LOST = 0.45  # power of eps, 9e-8: some roundings of the stiffest row, eps^0.5, where they do not end
INTERIOR_STEPS = 200  # most iterations of interior points on the central path


def cap_of(dtype: jax.typing.DTypeLike) -> float:
    """Compute the largest slope times mobility of a row that Newton's method takes: eps^-0.5."""
    return float(jnp.finfo(dtype).eps) ** -0.5


class _Programs(NamedTuple):
    """The same step twice: `exact` is Coulomb's law; `convex`, less stiff, takes bounds of friction."""

    exact: ConeProgram
    convex: ConeProgram


def couple_friction(program: ConeProgram) -> ConeProgram:
    """Bound the friction of a program by mu times its own normal impulses: Coulomb's law."""
    return program.replace(coulomb=True)


def _sweep(programs: _Programs, start: ConeSolution, max_iters: int, early_exit: bool) -> ConeSolution:
    """Solve convex problems, each with the bounds of friction of the last, until Newton's method settles."""
    convex = programs.convex
    first = convex.num_equalities + convex.num_limits
    normals = slice(first, first + convex.mu.shape[0])

    def again(carry: tuple) -> tuple:
        k, last, guess = carry
        bounded = convex.replace(bound=convex.mu * jnp.maximum(guess[normals], 0.0))
        solution = cone_newton.solve_cone_program(bounded, guess, max_iters, early_exit)
        found = _settle(programs, solution, max_iters, early_exit)
        return k + 1, found.replace(iterations=last.iterations + found.iterations), solution.p

    begin = (jnp.int32(0), start, jnp.zeros_like(start.p))
    _, found, _ = bounded_loop(
        lambda c: (c[0] < SWEEPS) & ~c[1].converged, again, begin, max_iters=SWEEPS, early_exit=early_exit
    )
    return found


def _settle(
    programs: _Programs,
    start: ConeSolution,
    max_iters: int,
    early_exit: bool,
    tolerance: jax.Array | None = None,
    steps: int = STAGE_STEPS,
    is_trial: bool = False,
) -> ConeSolution:
    """Continue from an approximate solution by Newton's method on Coulomb's law."""
    exact = programs.exact
    found = solve_by_modes(exact, start.x, start.p, min(steps, max_iters), early_exit, tolerance, is_trial)
    return found.replace(iterations=start.iterations + found.iterations)


def _settle_from_interior(
    programs: _Programs, start: ConeSolution, max_iters: int, early_exit: bool
) -> ConeSolution:
    """Find the modes by interior points, and continue by Newton's method with all frictions."""
    exact = programs.exact
    near = approach_by_interior_points(exact, exact.v, min(STEPS, max_iters), early_exit)
    near = near.replace(iterations=start.iterations + near.iterations)
    edge, lost = rounding(near.x.dtype, EDGE), rounding(near.x.dtype, LOST)
    edges = max(edge, min(edge * exact.offset.shape[0] ** 0.5, EDGES))
    tolerance = jnp.where(near.converged, edges, lost)
    return _settle(programs, near, max_iters, early_exit, tolerance, len(FRICTIONS) * STAGE_STEPS)


def _repair(
    search: Callable[[_Programs, ConeSolution], ConeSolution],
    programs: _Programs,
    start: ConeSolution,
    early_exit: bool,
) -> ConeSolution:
    """Search for the step if `start` is no solution of it, and finite."""

    def running(carry: tuple) -> jax.Array:
        tries, solution = carry
        return (tries < 1) & ~solution.converged & jnp.all(jnp.isfinite(solution.x), axis=-1)

    def once(programs: _Programs, carry: tuple) -> tuple:
        # Without it XLA searches ahead of the loop, always: the programs stay the same in it.
        programs, carry = lax.optimization_barrier((programs, carry))
        tries, solution = carry
        ends = ~running(carry)
        found = (mark_seldom(tries) + 1, search(programs, solution))
        return jax.tree.map(lambda new, old: jnp.where(ends, old, new), found, carry)

    def one(programs: _Programs, carry: tuple) -> tuple:
        return bounded_loop(
            running, lambda carry: once(programs, carry), carry, max_iters=1, early_exit=early_exit
        )

    def many(programs: _Programs, carry: tuple) -> tuple:
        return compacting_loop.while_lanes(
            running, jax.vmap(once), lambda _, carry: carry, programs, carry, wide=TILE
        )

    carry = (jnp.int32(0), start)
    _, found = batch_first(one, many if ends_early(early_exit) else jax.vmap(one), programs, carry)
    solution: ConeSolution = found
    return solution


def solve_coulomb_step(
    exact: ConeProgram, convex: ConeProgram, max_iters: int, early_exit: bool
) -> tuple[jax.Array, ...]:
    """Find (v+, p, iterations, converged) of the law with friction bounded by mu times this step's impulse.

    Newton's method starts from the velocities before the step, where contacts that slide go on sliding, and
    without impulses; no impulse of an earlier step enters. If it does not settle, or its first steps make no
    progress, interior points find the modes, and where they get lost Newton's method starts from rest with
    other friction. `exact` and `convex` are one step with two caps on its slopes.

    Derivative: none.
    """
    programs = _Programs(couple_friction(exact), convex)
    begin = ConeSolution(
        x=exact.v, p=jnp.zeros_like(exact.offset), iterations=jnp.int32(0), converged=jnp.asarray(False)
    )
    search, steps, is_trial = _settle_from_interior, FIRST_STEPS, True
    contact_rows = exact.offset.shape[0] - exact.num_equalities - exact.num_limits
    if contact_rows > 3 * exact.mu.shape[0]:
        steps = ROLLING_FIRST_STEPS
    if exact.potential is not None:  # interior points do not know it
        search, steps, is_trial = _sweep, len(FRICTIONS) * STAGE_STEPS, False
    found = _settle(programs, begin, max_iters, early_exit, steps=steps, is_trial=is_trial)

    def search_again(programs: _Programs, start: ConeSolution) -> ConeSolution:
        return search(programs, start, max_iters, early_exit)

    found = _repair(search_again, programs, found, early_exit)
    return found.x, found.p, found.iterations, found.converged
