"""Newton's method for a friction problem, in machine code (numba): plain, and with a proximal weight.

Owns the steps on Alart and Curnier's equations; entries `iterate_newton` and `proximal`. Page:
docs/methods/friction.md.
"""

from __future__ import annotations

import math

from numba import njit

from jaxcontact import tolerances
from jaxcontact.solvers.compiled import EPS, PLAIN, dot
from jaxcontact.solvers.friction_sweeps import GOAL, DenseFriction, apply_delassus, copy, law_misfit
from jaxcontact.solvers.friction_tolerances import (
    EXTRAPOLATION,
    HALF,
    LARGEST_SHIFT,
    PROXIMAL_LIMIT,
    PROXIMAL_SHARE,
    PROXIMAL_STEPS,
    SHIFT_FACTOR,
    WEIGHT_FALL,
    WEIGHT_RISE,
)

NEWTON_STEPS = 24  # of a try
LENGTHS = 6  # of steps that a try halves
LEAST_SHIFT = EPS**tolerances.SHIFT  # of the diagonal of W
FINISHING_MERIT = 1e-6  # merit from which Newton's method finishes a proximal search, and its square


@njit(**PLAIN)
def _linearise(problem, a, count, r, u, shift, space):  # type: ignore[no-untyped-def]
    """Linearise the equations of a closed contact as H + L (W + shift), in rows a of the matrix and of x."""
    W, dim, matrix, active, s = problem.W, problem.dim, space.matrix, space.active, space.active[a]
    value, x, pull, mu = space.rows[0], space.rows[5], space.rows[6], problem.mu[s // dim]
    bound, size = mu * (r[s] - u[s]), 0.0
    for j in range(1, dim):
        size += (r[s + j] - u[s + j]) ** 2
    size = math.sqrt(size)
    slides = size > bound
    share = bound / size if slides else 1.0
    for b in range(count):
        matrix[a, b] = W[s, active[b]]
    matrix[a, a] += shift
    x[a] = -value[s] - pull[s]
    for j in range(1, dim):
        row, i = a + j, s + j
        x[row] = -value[i] - share * pull[i]
        if not slides:
            for b in range(count):
                matrix[row, b] = W[i, active[b]]
            matrix[row, row] += shift
            continue
        unit = (r[i] - u[i]) / size
        normal, last = mu * unit, s + dim - 1
        f0 = -share * unit * (r[s + 1] - u[s + 1]) / size
        f1 = -share * unit * (r[last] - u[last]) / size if dim == 3 else 0.0
        matrix_row = matrix[row]
        x[row] -= normal * pull[s] + f0 * pull[s + 1] + f1 * pull[last]
        for b in range(count):
            c = active[b]
            matrix_row[b] = share * W[i, c] + normal * W[s, c] + f0 * W[s + 1, c] + f1 * W[last, c]
        matrix_row[a] += normal * (shift - 1.0)
        matrix_row[row] += 1.0 - share + share * shift
        matrix_row[a + 1] += f0 * (shift - 1.0)
        matrix_row[a + dim - 1] += f1 * (shift - 1.0)


@njit(**PLAIN)
def _solve_linear(matrix, x, count, dim):  # type: ignore[no-untyped-def]
    """Solve the first `count` equations for x by elimination of one contact after the other, in place."""
    for k in range(0, count, dim):
        last = k + dim - 1
        for p in range(k, k + dim):
            if matrix[p, p] == 0.0:
                matrix[p, p] = 1.0
            for i in range(p + 1, k + dim):
                factor = matrix[i, p] / matrix[p, p]
                if factor != 0.0:
                    for j in range(p + 1, count):
                        matrix[i, j] -= factor * matrix[p, j]
                    x[i] -= factor * x[p]
        over0, over1, over2 = 1.0 / matrix[k, k], 1.0 / matrix[k + 1, k + 1], 1.0 / matrix[last, last]
        for i in range(k + dim, count):
            f0 = matrix[i, k] * over0
            f1 = (matrix[i, k + 1] - f0 * matrix[k, k + 1]) * over1
            f2 = 0.0
            if dim == 3:
                f2 = (matrix[i, last] - f0 * matrix[k, last] - f1 * matrix[k + 1, last]) * over2
            if f0 != 0.0 or f1 != 0.0 or f2 != 0.0:
                for j in range(k + dim, count):
                    matrix[i, j] -= f0 * matrix[k, j] + f1 * matrix[k + 1, j] + f2 * matrix[last, j]
                x[i] -= f0 * x[k] + f1 * x[k + 1] + f2 * x[last]
    for k in range(count - 1, -1, -1):
        total = x[k]
        for j in range(k + 1, count):
            total -= matrix[k, j] * x[j]
        x[k] = total / matrix[k, k]


@njit(**PLAIN)
def _newton_step(problem, r, u, shift, space):  # type: ignore[no-untyped-def]
    """Compute a step of Newton's method in place; the impulses of open contacts go to zero at once."""
    mu, dim, active, count, pulls = problem.mu, problem.dim, space.active, 0, False
    change, x, pull = space.rows[4], space.rows[5], space.rows[6]
    for k in range(mu.shape[0]):
        rests = r[k * dim] - u[k * dim] > 0.0
        for i in range(k * dim, k * dim + dim):
            pull[i] = 0.0
            change[i] = 0.0 if rests else -r[i]
            pulls = pulls or change[i] != 0.0
            if rests:
                active[count] = i
                count += 1
    if pulls:
        for a in range(count):
            pull[active[a]] = dot(problem.W, active[a], change)
    for a in range(0, count, dim):
        _linearise(problem, a, count, r, u, shift, space)
    _solve_linear(space.matrix, x, count, dim)
    for a in range(count):
        change[active[a]] = x[a]


@njit(**PLAIN)
def iterate_newton(problem, r, u, space, patience, limit, goal):  # type: ignore[no-untyped-def]
    """Do Newton's method from (r, u) in place, until the merit is the goal; return steps and merit."""
    W, q, mu, dim, rows, n = problem.W, problem.q, problem.mu, problem.dim, space.rows, r.shape[0]
    value, trial, rate, after, change = rows[0], rows[1], rows[2], rows[3], rows[4]
    merit = law_misfit(mu, dim, r, u, value)
    smallest, misses, steps, shift = merit, 0, 0, LEAST_SHIFT
    while steps < limit and misses < patience and merit > goal:
        steps += 1
        _newton_step(problem, r, u, shift, space)
        length, best, best_length = 1.0, math.inf, 0.0
        for _ in range(LENGTHS if patience > 1 else 1):
            for i in range(n):
                trial[i] = r[i] + length * change[i]
            apply_delassus(W, q, trial, rate)
            size = law_misfit(mu, dim, trial, rate, after)
            if size < best:
                best, best_length = size, length
            if size <= HALF * merit:
                break
            length *= 0.5
        if not best < math.inf:
            break
        if length == best_length:
            copy(trial, r)
            copy(rate, u)
            copy(after, value)
            merit = size
        else:
            for i in range(n):
                r[i] += best_length * change[i]
            apply_delassus(W, q, r, u)
            merit = law_misfit(mu, dim, r, u, value)
        good = merit <= HALF * smallest
        misses = 0 if good else misses + 1
        shift = min(max(shift / SHIFT_FACTOR if good else shift * SHIFT_FACTOR, LEAST_SHIFT), LARGEST_SHIFT)
        smallest = min(smallest, merit)
    return steps, merit


@njit(**PLAIN)
def proximal(problem, r, u, space):  # type: ignore[no-untyped-def]
    """Do Newton's method for u + weight (r - centre), some steps for each centre; return steps and merit.

    Newton's method without a weight finishes near the end, and once more at the end where it did not.
    """
    W, q, mu, dim, rows = problem.W, problem.q, problem.mu, problem.dim, space.rows
    n, weight, steps, level = r.shape[0], 1.0, 0, FINISHING_MERIT
    move, before, rate, diagonal = rows[7], rows[8], rows[15], rows[16]
    for i in range(n):
        move[i], diagonal[i] = 0.0, W[i, i]
    while True:
        apply_delassus(W, q, r, u)
        merit = law_misfit(mu, dim, r, u, rows[0])
        if steps >= PROXIMAL_LIMIT or not merit < math.inf:
            return steps, merit
        copy(r, before)
        if not merit > level:
            count, after = iterate_newton(problem, r, u, space, 4, NEWTON_STEPS, GOAL)
            steps += count
            if after <= GOAL:
                return steps, after
            level *= FINISHING_MERIT
            copy(before, r)
        aim = PROXIMAL_SHARE * min(weight, 1.0) * merit
        for i in range(n):
            rate[i] = q[i] - weight * (r[i] + EXTRAPOLATION * move[i])
            W[i, i] = diagonal[i] + weight
        apply_delassus(W, rate, r, u)
        count, after = iterate_newton(DenseFriction(W, rate, mu, dim), r, u, space, 4, PROXIMAL_STEPS, aim)
        steps += max(count, 1)
        for i in range(n):
            move[i], W[i, i] = r[i] - before[i], diagonal[i]
        if after > aim:
            weight = min(weight * WEIGHT_RISE, 1.0)
        elif count < PROXIMAL_STEPS:
            weight = max(weight * WEIGHT_FALL, LEAST_SHIFT)
