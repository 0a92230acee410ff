"""Coulomb friction in machine code (numba): scaling, the order of attempts, judgement.

Owns the first attempt of `jc.solve_friction` at dense problems outside of traced code; `friction_host` solves
what it cannot. Entries: `solve_compiled`, `solve_each`. Page: docs/methods/friction.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numba import njit

from jaxcontact.solvers.compiled import ALLOCATES, EPS, KEPT, PLAIN, digest_sources
from jaxcontact.solvers.friction_steps import NEWTON_STEPS, iterate_newton, proximal
from jaxcontact.solvers.friction_sweeps import (
    GOAL,
    STICKS,
    SWEEPS,
    DenseFriction,
    Space,
    apply_delassus,
    copy,
    reduce_contacts,
    sweep_often,
)
from jaxcontact.solvers.friction_tolerances import SMALLEST_FRICTION

PATIENCE = np.array([1, 1, 4, 4, 4, 4])  # steps in a row that miss end a try


@njit(**PLAIN)
def _search(problem, best, best_rate, space):  # type: ignore[no-untyped-def]
    """Improve scaled impulses (n,) and their velocities in place; return the steps of Newton's method.

    Newton's method is tried as soon as sweeps change no mode, after more sweeps, from the start, and after
    sweeps that prefer sticking. Sweeps prefer small impulses before.
    """
    start, swept, r, u = space.rows[7], space.rows[8], space.rows[9], space.rows[10]
    copy(best, start)
    reduce_contacts(problem.W, problem.dim, space.blocks)
    for i in range(best.shape[0]):
        best_rate[i] = math.nan
    smallest, steps, count = math.inf, 0, 0
    for attempt in range(SWEEPS.shape[0] + 1):
        if attempt == 0 or attempt == STICKS - 1 or attempt == STICKS:
            copy(start, swept)
            for k in range(space.ratios.shape[0]):
                space.ratios[k] = -1.0
        elif attempt > STICKS:  # the second and the third continue sweeps, this one Newton's method
            copy(r, swept)
        if attempt < SWEEPS.shape[0]:
            sweep_often(problem, attempt, swept, u, space)
            copy(swept, r)
            count, merit = iterate_newton(problem, r, u, space, PATIENCE[attempt], NEWTON_STEPS, GOAL)
        else:
            copy(best, r)
            count, merit = proximal(problem, r, u, space)
        steps += count
        if merit < smallest:
            smallest = merit
            copy(r, best)
            copy(u, best_rate)
        if smallest <= GOAL:
            break
    return steps


@njit(**PLAIN)
def _power_of_two(x):  # type: ignore[no-untyped-def]
    mantissa, exponent = math.frexp(x)
    return math.ldexp(1.0, exponent - 1 if mantissa < 0.75 else exponent)


@njit(**PLAIN)
def _units(W, mu, dim, velocity, mobility):  # type: ignore[no-untyped-def]
    """Compute the units of velocities (n,) and the own mobility of each contact (nc,), in place."""
    largest = 0.0
    for k in range(mu.shape[0]):
        mobility[k] = 0.0
        for j in range(k * dim, k * dim + dim):
            mobility[k] = max(mobility[k], abs(W[j, j]))
        largest = max(largest, mobility[k])
    for k in range(mu.shape[0]):
        s = k * dim
        if not mobility[k] > 0.0:
            mobility[k] = largest if largest > 0.0 else 1.0
        normal, tangential = abs(W[s, s]), 0.0
        for j in range(s + 1, s + dim):
            tangential = max(tangential, abs(W[j, j]))
        velocity[s] = _power_of_two(math.sqrt(normal if normal > 0.0 else mobility[k]))
        for j in range(s + 1, s + dim):
            velocity[j] = _power_of_two(math.sqrt(tangential if tangential > 0.0 else mobility[k]))


@njit(**PLAIN)
def _natural_residual(q, mu, dim, mobility, r, u):  # type: ignore[no-untyped-def]
    """Compute the natural map of De Saxce's form in the user's units; see `friction_law.natural_residual`.

    It is not smaller than the round-off of velocities: huge impulses can hide a q that they do not balance.
    """
    worst = size = 0.0
    for k in range(mu.shape[0]):
        s = k * dim
        slip = tangential = 0.0
        for j in range(s + 1, s + dim):
            slip += u[j] ** 2
            tangential += (mobility[k] * r[j] - u[j]) ** 2
        tangential = math.sqrt(tangential)
        asked = mobility[k] * r[s] - u[s] - mu[k] * math.sqrt(slip)
        normal, share = asked, 1.0
        if not tangential <= mu[k] * asked or asked < 0.0:
            normal = max(asked + mu[k] * tangential, 0.0) / (1.0 + mu[k] ** 2)
            share = mu[k] * normal / tangential if tangential > 0.0 else 0.0
        off = max(abs(normal - mobility[k] * r[s]), EPS * mobility[k] * r[s])
        for j in range(s + 1, s + dim):
            off = max(off, abs(share * (mobility[k] * r[j] - u[j]) - mobility[k] * r[j]))
        if not off <= math.inf:
            return math.inf
        worst = max(worst, off)
    for i in range(q.shape[0]):
        size = max(size, abs(q[i]))
    return worst / (size if size > 0.0 else 1.0)


@njit(**PLAIN)
def _judge_rest(W, q, mu, dim, r, u):  # type: ignore[no-untyped-def]
    """Compute the residual of no impulses, and u, in place; inf if one is needed, NaN if mu is bad."""
    largest, rests = 0.0, True
    for i in range(q.shape[0]):
        largest, rests = max(largest, abs(q[i])), rests and r[i] == 0.0
    for k in range(mu.shape[0]):
        if not 0.0 <= mu[k] < math.inf:
            return math.nan
        rests = rests and q[k * dim] >= -GOAL * largest
    if not rests:
        return math.inf
    apply_delassus(W, q, r, u)  # q, unless W has numbers that are not finite
    return _natural_residual(q, mu, dim, mu, r, u)  # no impulses have no size, whatever the mobilities are


@njit(**PLAIN)
def _solve(problem, r, u, scaled, is_scaled, space):  # type: ignore[no-untyped-def]
    """Improve impulses r (n,) and compute velocities u = W r + q, in place; return iterations and residual.

    Rows are scaled by powers of two, for mobilities near one; `scaled` and `space` keep that.
    """
    W, q, mu, dim = problem
    n, nc, rows = q.shape[0], mu.shape[0], space.rows
    velocity, rate, friction, mobility = rows[11], rows[12], rows[13, :nc], rows[14, :nc]
    inverse = rows[17]
    if not is_scaled:
        _units(W, mu, dim, velocity, mobility)
        for i in range(n):
            inverse[i] = 1.0 / velocity[i]
        for i in range(n):
            for j in range(n):
                scaled[i, j] = W[i, j] * (inverse[i] * inverse[j])
    highest, starts = 0.0, False
    for i in range(n):
        highest, starts = max(highest, abs(q[i]) * inverse[i]), starts or r[i] != 0.0
    if starts:  # the start may be the answer
        apply_delassus(W, q, r, u)
        residual = _natural_residual(q, mu, dim, mobility, r, u)
        if residual <= GOAL:
            return 0, residual
    unit = _power_of_two(highest) if highest > 0.0 else 1.0
    for i in range(n):  # by powers of two: no round-off
        rate[i] = q[i] * inverse[i] / unit
        r[i] *= velocity[i] / unit
    for k in range(nc):
        friction[k] = (
            mu[k] * (velocity[k * dim + 1] * inverse[k * dim]) if mu[k] > SMALLEST_FRICTION * EPS else 0.0
        )
    steps = _search(DenseFriction(scaled, rate, friction, dim), r, u, space)
    for i in range(n):
        r[i] *= unit * inverse[i]
        u[i] *= unit * velocity[i]
    return steps, _natural_residual(q, mu, dim, mobility, r, u)


@njit(**ALLOCATES)
def _space(n, nc):  # type: ignore[no-untyped-def]
    """Make arrays that the search writes to."""
    return Space(np.empty((n, n)), np.empty((18, n)), np.empty((nc, 9)), np.empty(nc), np.empty(n, np.int64))


def _compile_entries(sources: int) -> tuple[Callable[..., object], Callable[..., object]]:
    """Compile the entries for the digest of their sources, or read them from the disk."""

    @njit(**KEPT)
    def solve_compiled(W, q, mu, dim, r, u):  # type: ignore[no-untyped-def]
        """Improve impulses r (n,) and compute velocities u = W r + q, in place; return steps and residual."""
        _ = sources
        residual, n = _judge_rest(W, q, mu, dim, r, u), q.shape[0]
        if not residual > GOAL:
            return 0, residual
        return _solve(DenseFriction(W, q, mu, dim), r, u, np.empty((n, n)), False, _space(n, mu.shape[0]))

    @njit(**KEPT)
    def solve_each(W, q, mu, dim, r, u, steps, residuals):  # type: ignore[no-untyped-def]
        """Do `solve_compiled` for each problem of a batch, in place; W is one of each, or one for all."""
        _ = sources
        n, last = q.shape[1], W.shape[0] - 1
        scaled, is_scaled, space = np.empty((n, n)), False, _space(n, mu.shape[1])
        for k in range(q.shape[0]):
            matrix = W[min(k, last)]
            steps[k], residuals[k] = 0, _judge_rest(matrix, q[k], mu[k], dim, r[k], u[k])
            if residuals[k] > GOAL:
                problem = DenseFriction(matrix, q[k], mu[k], dim)
                steps[k], residuals[k] = _solve(problem, r[k], u[k], scaled, is_scaled, space)
                is_scaled = last == 0

    return solve_compiled, solve_each


solve_compiled, solve_each = _compile_entries(
    digest_sources("friction_code", "friction_steps", "friction_sweeps", "friction_tolerances")
)
