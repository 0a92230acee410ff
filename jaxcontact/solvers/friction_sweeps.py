"""Coulomb friction in machine code (numba): scaling, sweeps of Gauss-Seidel, Newton's method, judgement.

Owns the first attempt of `jc.solve_friction` at dense problems outside of traced code; `friction_host` solves
what it cannot. All compiled functions are in this file, for numba keeps code by file. Entries:
`solve_compiled`, `solve_each`. Page: docs/methods/friction.md.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit

SWEEPS = 48  # before each try of Newton's method; each further try has twice as many
TRIES = 4  # of Newton's method
NEWTON_STEPS = 24  # of a try
SLOPE_STEPS = 60  # of the search for the ratio of sliding velocity and friction
RATIOS = np.array(
    [8.0, 2.0, 0.5, 0.1, 0.0]
)  # of sliding velocity and friction, in units of the mobility; 0 sticks
HALF = 0.5  # of the merit; a step of Newton's method that leaves more is a miss
MISSES = 4  # steps in a row that miss end a try
LENGTHS = 6  # of steps that a try halves
EPS = float(np.finfo(float).eps)
GOAL = 64.0 * EPS  # merit of scaled equations at which the search ends
SMALLEST_FRICTION = 4.0 * EPS  # smaller friction is none
LEAST_SHIFT = EPS**0.7  # of the scaled diagonal of W; redundant contacts share loads
LARGEST_SHIFT = 0.1  # of the scaled diagonal of W
SHIFT_FACTOR = 10.0  # by which the shift falls after a good step and rises after a miss
SLOW = 0.7  # of the merit that sweeps leave; where a round leaves more, Newton's method is tried
CHECK = 8  # sweeps in a round


@njit(cache=True, nogil=True, error_model="numpy")
def _rub(A, c, coupling, w, rate, mu, x):  # type: ignore[no-untyped-def]
    """Solve (A + x) r_t = -c; return r_n, r_t (two), the excess |r_t| - mu r_n and its derivative by x."""
    if c.shape[0] == 1:
        t0, t1 = -c[0] / (A[0, 0] + x), 0.0
        d0, d1 = -t0 / (A[0, 0] + x), 0.0
        n = -(rate + coupling[0] * t0) / w
        slope = -coupling[0] * d0 / w
    else:
        a, b, e, f = A[0, 0] + x, A[0, 1], A[1, 0], A[1, 1] + x
        det = a * f - b * e
        t0, t1 = -(f * c[0] - b * c[1]) / det, -(a * c[1] - e * c[0]) / det
        d0, d1 = -(f * t0 - b * t1) / det, -(a * t1 - e * t0) / det
        n = -(rate + coupling[0] * t0 + coupling[1] * t1) / w
        slope = -(coupling[0] * d0 + coupling[1] * d1) / w
    length = math.sqrt(t0 * t0 + t1 * t1)
    lengthens = (t0 * d0 + t1 * d1) / length if length > 0.0 else 0.0
    return n, t0, t1, length - mu * n, lengthens - mu * slope


@njit(cache=True, nogil=True, error_model="numpy")
def _slide(A, c, coupling, w, rate, mu, sticks, ratio, r):  # type: ignore[no-untyped-def]
    """Find the friction of one contact, which sticks or slides with u_t = -ratio r_t; return the ratio.

    With the normal row removed, (A + ratio) r_t = -c and r_n = -(rate + coupling . r_t) / w; the ratio is a
    root of |r_t| - mu r_n. Where the law has several answers it is the root near the last ratio, else the
    largest, with the smallest impulses, or none if it `sticks` rather.
    """
    x, high, n, t0, t1 = ratio, math.inf, 0.0, 0.0, 0.0
    low = 0.0 if ratio > 0.0 else -1.0  # -1 if no ratio with an excess is known
    if not ratio > 0.0:
        size = A[0, 0] + A[c.shape[0] - 1, c.shape[0] - 1]
        for k in range(RATIOS.shape[0]):
            x = RATIOS[RATIOS.shape[0] - 1 if sticks else k] * size
            n, t0, t1, excess, slope = _rub(A, c, coupling, w, rate, mu, x)
            if excess > 0.0:
                low = x
                break
            if sticks:
                break
            high = x
    if low >= 0.0:
        for _ in range(SLOPE_STEPS):
            n, t0, t1, excess, slope = _rub(A, c, coupling, w, rate, mu, x)
            if excess > 0.0:
                low = max(low, x)
            else:
                high = min(high, x)
            if abs(excess) <= 4.0 * EPS * (mu * abs(n) + abs(t0) + abs(t1)) or not high - low > EPS * high:
                break
            following = x - excess / slope if slope < 0.0 else math.inf
            if not low < following < high:
                following = 0.5 * (low + high) if high < math.inf else 4.0 * low + 1e-3
            x = following
    r[0], r[1] = max(n, 0.0), t0
    if c.shape[0] == 2:
        r[2] = t1
    return x


@njit(cache=True, nogil=True, error_model="numpy")
def _sweep(W, columns, q, mu, dim, sticks, r, u, ratios):  # type: ignore[no-untyped-def]
    """Solve for each contact in turn, in place, with u = W r + q; return whether an impulse changed."""
    moves = False
    n, nt = q.shape[0], dim - 1
    A, c, coupling = np.empty((nt, nt)), np.empty(nt), np.empty(nt)
    after = np.empty(dim)
    for k in range(mu.shape[0]):
        s = k * dim
        w = W[s, s]
        rate = u[s]
        for j in range(dim):
            rate -= W[s, s + j] * r[s + j]
        for j in range(dim):
            after[j] = 0.0
        if rate < 0.0 and w > 0.0:
            if mu[k] == 0.0:
                after[0] = -rate / w
            else:
                for i in range(nt):
                    slip = u[s + 1 + i]
                    for j in range(dim):
                        slip -= W[s + 1 + i, s + j] * r[s + j]
                    c[i] = slip - W[s + 1 + i, s] * rate / w
                    coupling[i] = W[s, s + 1 + i]
                    for j in range(nt):
                        A[i, j] = W[s + 1 + i, s + 1 + j] - W[s + 1 + i, s] * W[s, s + 1 + j] / w
                ratios[k] = _slide(A, c, coupling, w, rate, mu[k], sticks, ratios[k], after)
        for j in range(dim):
            change = after[j] - r[s + j]
            if change != 0.0:
                moves = moves or abs(change) > EPS * abs(after[j])
                r[s + j] = after[j]
                for i in range(n):
                    u[i] += columns[s + j, i] * change
    return moves


@njit(cache=True, nogil=True, error_model="numpy")
def _misfit(mu, dim, r, u, value):  # type: ignore[no-untyped-def]
    """Compute Alart and Curnier's equations (n,) in place; return their norm."""
    total = 0.0
    for k in range(mu.shape[0]):
        s = k * dim
        bound = mu[k] * max(r[s] - u[s], 0.0)
        size = 0.0
        for j in range(1, dim):
            size += (r[s + j] - u[s + j]) ** 2
        size = math.sqrt(size)
        share = 1.0 if size <= bound else bound / size
        value[s] = min(r[s], u[s])
        total += value[s] ** 2
        for j in range(1, dim):
            value[s + j] = r[s + j] - share * (r[s + j] - u[s + j])
            total += value[s + j] ** 2
    return math.sqrt(total)


@njit(cache=True, nogil=True, error_model="numpy")
def _respond(W, q, r, u):  # type: ignore[no-untyped-def]
    """Compute u = W r + q in place."""
    for i in range(q.shape[0]):
        total = q[i]
        for j in range(q.shape[0]):
            total += W[i, j] * r[j]
        u[i] = total


@njit(cache=True, nogil=True, error_model="numpy")
def _linearise(W, mu, dim, r, u, shift, matrix):  # type: ignore[no-untyped-def]
    """Linearise the equations as H + L (W + shift), in place; a row without L keeps its place."""
    n = r.shape[0]
    for k in range(mu.shape[0]):
        s = k * dim
        rests = 1.0 if r[s] - u[s] > 0.0 else 0.0
        bound = mu[k] * max(r[s] - u[s], 0.0)
        size = 0.0
        for j in range(1, dim):
            size += (r[s + j] - u[s + j]) ** 2
        size = math.sqrt(size)
        slides = size > bound
        share = bound / size if slides else 1.0
        for i in range(n):
            matrix[s, i] = rests * W[s, i]
        matrix[s, s] += (1.0 - rests) + rests * shift
        for j in range(1, dim):
            unit = (r[s + j] - u[s + j]) / size if slides else 0.0
            normal = mu[k] * rests * unit
            for i in range(n):
                matrix[s + j, i] = normal * W[s, i] + share * W[s + j, i]
            matrix[s + j, s] += normal * (shift - 1.0)
            matrix[s + j, s + j] += 1.0 - share + share * shift
            if slides:
                for m in range(1, dim):
                    bent = share * unit * (r[s + m] - u[s + m]) / size
                    for i in range(n):
                        matrix[s + j, i] -= bent * W[s + m, i]
                    matrix[s + j, s + m] += bent * (1.0 - shift)


@njit(cache=True, nogil=True, error_model="numpy")
def _solve_linear(matrix, x, count):  # type: ignore[no-untyped-def]
    """Solve the first `count` equations for x by elimination with row pivots, in place."""
    for k in range(count):
        best = k
        for i in range(k + 1, count):
            if abs(matrix[i, k]) > abs(matrix[best, k]):
                best = i
        if best != k:
            for j in range(k, count):
                matrix[k, j], matrix[best, j] = matrix[best, j], matrix[k, j]
            x[k], x[best] = x[best], x[k]
        pivot = matrix[k, k] if matrix[k, k] != 0.0 else 1.0
        matrix[k, k] = pivot
        for i in range(k + 1, count):
            factor = matrix[i, k] / pivot
            if factor != 0.0:
                for j in range(k + 1, count):
                    matrix[i, j] -= factor * matrix[k, j]
                x[i] -= factor * x[k]
    for k in range(count - 1, -1, -1):
        total = x[k]
        for j in range(k + 1, count):
            total -= matrix[k, j] * x[j]
        x[k] = total / matrix[k, k]


@njit(cache=True, nogil=True, error_model="numpy")
def _newton_step(W, mu, dim, r, u, value, shift, matrix, active, change):  # type: ignore[no-untyped-def]
    """Compute a step of Newton's method in place; the impulses of open contacts go to zero at once."""
    count = 0
    _linearise(W, mu, dim, r, u, shift, matrix)
    for k in range(mu.shape[0]):
        rests = r[k * dim] - u[k * dim] > 0.0
        for i in range(k * dim, k * dim + dim):
            change[i] = -value[i]
            if rests:
                active[count] = i
                count += 1
    x = np.empty(count)
    for a in range(count):
        i = active[a]
        x[a] = -value[i]
        for k in range(mu.shape[0]):
            if not r[k * dim] - u[k * dim] > 0.0:
                for j in range(k * dim, k * dim + dim):
                    x[a] -= matrix[i, j] * change[j]
    for a in range(count):  # rows and columns only move up and left
        for b in range(count):
            matrix[a, b] = matrix[active[a], active[b]]
    _solve_linear(matrix, x, count)
    for a in range(count):
        change[active[a]] = x[a]


@njit(cache=True, nogil=True, error_model="numpy")
def _newton(W, q, mu, dim, r, u):  # type: ignore[no-untyped-def]
    """Do Newton's method from (r, u) in place; return the number of steps and the merit."""
    n = r.shape[0]
    value, trial, rate, after = np.empty(n), np.empty(n), np.empty(n), np.empty(n)
    matrix, active, change, moved = np.empty((n, n)), np.empty(n, np.int64), np.empty(n), np.empty(n)
    none = np.zeros(n)
    merit = _misfit(mu, dim, r, u, value)
    smallest, misses, steps, shift = merit, 0, 0, LEAST_SHIFT
    while steps < NEWTON_STEPS and misses < MISSES and merit > GOAL:
        steps += 1
        _newton_step(W, mu, dim, r, u, value, shift, matrix, active, change)
        _respond(W, none, change, moved)
        length, best, best_length = 1.0, math.inf, 0.0
        for _ in range(LENGTHS):
            for i in range(n):
                trial[i], rate[i] = r[i] + length * change[i], u[i] + length * moved[i]
            size = _misfit(mu, dim, trial, rate, after)
            if size < best:
                best, best_length = size, length
            if size <= HALF * merit:
                break
            length *= 0.5
        if not best < math.inf:
            break
        for i in range(n):
            r[i] += best_length * change[i]
        _respond(W, q, r, u)
        merit = _misfit(mu, dim, r, u, value)
        good = merit <= HALF * smallest
        misses = 0 if good else misses + 1
        shift = min(max(shift / SHIFT_FACTOR if good else shift * SHIFT_FACTOR, LEAST_SHIFT), LARGEST_SHIFT)
        smallest = min(smallest, merit)
    return steps, merit


@njit(cache=True, nogil=True, error_model="numpy")
def _search(W, q, mu, dim, best):  # type: ignore[no-untyped-def]
    """Improve scaled impulses (n,) in place; return the number of steps of Newton's method.

    Newton's method is tried after sweeps that prefer small impulses, from the start, and after sweeps that
    prefer sticking. Sweeps continue as long as they reduce the merit well.
    """
    n = q.shape[0]
    columns, r, u, value = np.empty((n, n)), np.empty(n), np.empty(n), np.empty(n)
    start = best.copy()
    for i in range(n):
        for j in range(n):
            columns[j, i] = W[i, j]
    smallest, steps = math.inf, 0
    for attempt in range(TRIES):
        if attempt < 3:  # the last try continues the sweeps of the one before
            for i in range(n):
                r[i] = start[i]
            ratios = np.zeros(mu.shape[0])
        _respond(W, q, r, u)
        merit, sweeps = _misfit(mu, dim, r, u, value), 0
        while attempt != 1 and sweeps < SWEEPS * (1 + attempt) and merit > GOAL:
            moves = True
            for _ in range(CHECK):
                moves = moves and _sweep(W, columns, q, mu, dim, attempt > 1, r, u, ratios)
            sweeps += CHECK
            _respond(W, q, r, u)
            before, merit = merit, _misfit(mu, dim, r, u, value)
            if merit > SLOW * before:
                break
        if merit > GOAL:
            count, merit = _newton(W, q, mu, dim, r, u)
            steps += count
        if merit < smallest:
            smallest = merit
            for i in range(n):
                best[i] = r[i]
        if smallest <= GOAL:
            break
    return steps


@njit(cache=True, nogil=True, error_model="numpy")
def _power_of_two(x):  # type: ignore[no-untyped-def]
    mantissa, exponent = math.frexp(x)
    return math.ldexp(1.0, exponent - 1 if mantissa < 0.75 else exponent)


@njit(cache=True, nogil=True, error_model="numpy")
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


@njit(cache=True, nogil=True, error_model="numpy")
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
        if not tangential <= mu[k] * asked:
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


@njit(cache=True, nogil=True, error_model="numpy")
def solve_compiled(W, q, mu, dim, r, u):  # type: ignore[no-untyped-def]
    """Improve impulses r (n,) and compute velocities u = W r + q, in place; return iterations and residual.

    Rows are scaled by powers of two, so that every contact has a mobility near one.
    """
    n, nc = q.shape[0], mu.shape[0]
    for k in range(nc):
        if not 0.0 <= mu[k] < math.inf:
            return 0, math.inf
    velocity, mobility, friction = np.empty(n), np.empty(nc), np.empty(nc)
    _units(W, mu, dim, velocity, mobility)
    highest = 0.0
    for i in range(n):
        highest = max(highest, abs(q[i]) / velocity[i])
    unit = _power_of_two(highest) if highest > 0.0 else 1.0
    scaled, rate = np.empty((n, n)), np.empty(n)
    for i in range(n):
        rate[i] = q[i] / (velocity[i] * unit)
        r[i] *= velocity[i] / unit
        for j in range(n):
            scaled[i, j] = W[i, j] / (velocity[i] * velocity[j])
    for k in range(nc):
        friction[k] = (
            mu[k] * (velocity[k * dim + 1] / velocity[k * dim]) if mu[k] > SMALLEST_FRICTION else 0.0
        )
    steps = _search(scaled, rate, friction, dim, r)
    for i in range(n):
        r[i] *= unit / velocity[i]
    _respond(W, q, r, u)
    return steps, _natural_residual(q, mu, dim, mobility, r, u)


@njit(cache=True, nogil=True, error_model="numpy")
def solve_each(W, q, mu, dim, r, u, steps, residuals):  # type: ignore[no-untyped-def]
    """Do `solve_compiled` for each problem of a batch, in place."""
    for k in range(q.shape[0]):
        steps[k], residuals[k] = solve_compiled(W[k], q[k], mu[k], dim, r[k], u[k])
