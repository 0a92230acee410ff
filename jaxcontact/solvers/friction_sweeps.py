"""Coulomb friction in machine code (numba): sweeps of nonsmooth Gauss-Seidel, then Newton's method.

Owns the search of `friction_compiled`, on scaled rows, contact-major; it judges itself by Alart and Curnier's
equations. Entry: `search_compiled`. Page: docs/methods/friction.md.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit

SWEEPS = 48  # before each try of Newton's method; each further try has twice as many
TRIES = 4  # of Newton's method
NEWTON_STEPS = 24  # of a try
SLOPE_STEPS = 60  # of the search for the ratio of sliding velocity and friction
HALF = 0.5  # of the merit; a step of Newton's method that leaves more is a miss
MISSES = 4  # steps in a row that miss end a try
LENGTHS = 6  # of steps that a try halves
EPS = float(np.finfo(float).eps)
LEAST_SHIFT = EPS**0.7  # of the scaled diagonal of W; redundant contacts share loads
LARGEST_SHIFT = 0.1  # of the scaled diagonal of W
SHIFT_FACTOR = 10.0  # by which the shift falls after a good step and rises after a miss
SLOW = 0.7  # of the merit that sweeps leave; where a round leaves more, Newton's method is tried
CHECK = 8  # sweeps in a round


@njit(cache=True, nogil=True, error_model="numpy")
def _slide(A, c, coupling, w, rate, mu, ratio, r):  # type: ignore[no-untyped-def]
    """Find the friction of one contact, which sticks or slides with u_t = -ratio r_t; return the ratio.

    With the normal row removed, (A + ratio) r_t = -c and r_n = -(rate + coupling . r_t) / w; the ratio is a
    root of |r_t| - mu r_n, by Newton's method within a bracket.
    """
    nt, low, high, first = c.shape[0], 0.0, math.inf, True
    x = 0.0
    for _ in range(SLOPE_STEPS):
        if nt == 1:
            t0, t1 = -c[0] / (A[0, 0] + x), 0.0
            d0, d1 = -t0 / (A[0, 0] + x), 0.0
            slope_n = -coupling[0] * d0 / w
            n = -(rate + coupling[0] * t0) / w
        else:
            a, b, e, f = A[0, 0] + x, A[0, 1], A[1, 0], A[1, 1] + x
            det = a * f - b * e
            t0, t1 = -(f * c[0] - b * c[1]) / det, -(a * c[1] - e * c[0]) / det
            d0, d1 = -(f * t0 - b * t1) / det, -(a * t1 - e * t0) / det
            slope_n = -(coupling[0] * d0 + coupling[1] * d1) / w
            n = -(rate + coupling[0] * t0 + coupling[1] * t1) / w
        length = math.sqrt(t0 * t0 + t1 * t1)
        excess = length - mu * n
        if first:
            first = False
            if excess <= 0.0:
                break  # it sticks
            if ratio > 0.0:
                x = ratio
                continue
        elif excess > 0.0:
            low = max(low, x)
        else:
            high = min(high, x)
        if abs(excess) <= 4.0 * EPS * (length + mu * abs(n)) or not high - low > EPS * high:
            break
        slope = (t0 * d0 + t1 * d1) / length - mu * slope_n if length > 0.0 else 0.0
        following = x - excess / slope if slope < 0.0 else math.inf
        if not low < following < high:
            following = 0.5 * (low + high) if high < math.inf else 4.0 * low + 1e-3
        x = following
    r[0] = max(n, 0.0)
    r[1] = t0
    if nt == 2:
        r[2] = t1
    return x


@njit(cache=True, nogil=True, error_model="numpy")
def _sweep(W, columns, q, mu, dim, r, u, ratios):  # type: ignore[no-untyped-def]
    """Solve for each contact in turn, in place; u is kept as W r + q."""
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
                ratios[k] = _slide(A, c, coupling, w, rate, mu[k], ratios[k], after)
        for j in range(dim):
            change = after[j] - r[s + j]
            if change != 0.0:
                r[s + j] = after[j]
                for i in range(n):
                    u[i] += columns[s + j, i] * change


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
def respond(W, q, r, u):  # type: ignore[no-untyped-def]
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
def _newton(W, q, mu, dim, r, u, goal):  # type: ignore[no-untyped-def]
    """Do Newton's method from (r, u) in place; return the number of steps and the merit."""
    n = r.shape[0]
    value, trial, rate, after = np.empty(n), np.empty(n), np.empty(n), np.empty(n)
    matrix, active, change, moved = np.empty((n, n)), np.empty(n, np.int64), np.empty(n), np.empty(n)
    none = np.zeros(n)
    merit = _misfit(mu, dim, r, u, value)
    smallest, misses, steps, shift = merit, 0, 0, LEAST_SHIFT
    while steps < NEWTON_STEPS and misses < MISSES and merit > goal:
        steps += 1
        _newton_step(W, mu, dim, r, u, value, shift, matrix, active, change)
        respond(W, none, change, moved)
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
        respond(W, q, r, u)
        merit = _misfit(mu, dim, r, u, value)
        good = merit <= HALF * smallest
        misses = 0 if good else misses + 1
        shift = min(max(shift / SHIFT_FACTOR if good else shift * SHIFT_FACTOR, LEAST_SHIFT), LARGEST_SHIFT)
        smallest = min(smallest, merit)
    return steps, merit


@njit(cache=True, nogil=True, error_model="numpy")
def search_compiled(W, q, mu, dim, r, goal):  # type: ignore[no-untyped-def]
    """Improve scaled impulses r (n,) in place; return the number of steps of Newton's method, and the merit.

    Rounds of sweeps continue as long as they reduce the merit well; Newton's method is tried from the
    impulses that a round leaves, and once from those of the start. Its result is used if its merit is
    smaller.
    """
    n = q.shape[0]
    columns, u, found, rate = np.empty((n, n)), np.empty(n), np.empty(n), np.empty(n)
    start, first = r.copy(), np.empty(n)
    ratios, value = np.zeros(mu.shape[0]), np.empty(n)
    for i in range(n):
        for j in range(n):
            columns[j, i] = W[i, j]
    respond(W, q, r, u)
    respond(W, q, r, first)
    merit, steps, sweeps, limit = _misfit(mu, dim, r, u, value), 0, 0, SWEEPS
    for attempt in range(TRIES):
        while attempt != 1 and sweeps < limit and merit > goal:
            for _ in range(CHECK):
                _sweep(W, columns, q, mu, dim, r, u, ratios)
            sweeps += CHECK
            respond(W, q, r, u)
            before, merit = merit, _misfit(mu, dim, r, u, value)
            if merit > SLOW * before:
                break
        if merit <= goal:
            break
        for i in range(n):
            found[i], rate[i] = (start[i], first[i]) if attempt == 1 else (r[i], u[i])
        count, after = _newton(W, q, mu, dim, found, rate, goal)
        steps += count
        if after < merit:
            merit = after
            for i in range(n):
                r[i], u[i] = found[i], rate[i]
        if merit <= goal:
            break
        limit = 2 * max(limit, sweeps)
    return steps, merit
