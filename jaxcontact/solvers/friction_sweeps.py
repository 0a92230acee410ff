"""Coulomb friction in machine code (numba): scaling, sweeps of Gauss-Seidel, Newton's method, judgement.

Owns the first attempt of `jc.solve_friction` at dense problems outside of traced code; `friction_host` solves
what it cannot. All compiled functions are in this file, for numba keeps code by file. Entries:
`solve_compiled`, `solve_each`. Page: docs/methods/friction.md.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numba import njit

ALLOCATES: Any = {"cache": True, "no_cfunc_wrapper": True, "nogil": True, "error_model": "numpy"}
# Functions that do not allocate need no counts of references, which are a third of the time of one contact.
PLAIN = ALLOCATES | {"_nrt": False, "no_cpython_wrapper": True}
SWEEPS = np.array([8, 8, 48, 0, 96, 192])  # before each try of Newton's method
PATIENCE = np.array([1, 1, 4, 4, 4, 4])  # steps in a row that miss end a try
STICKS = 4  # the first try after sweeps that prefer sticking
STILL = 2  # sweeps in a row without a change of mode, after which Newton's method is tried first
NEWTON_STEPS = 24  # of a try
SLOPE_STEPS = 60  # of the search for the ratio of sliding velocity and friction
ROOT = 1e-6  # of friction; a ratio that is nearer than that is improved once in a sweep
RATIOS = np.array([8.0, 2.0, 0.5, 0.1, 0.0])  # of sliding velocity and friction, over the mobility; 0 sticks
HALF = 0.5  # of the merit; a step of Newton's method that leaves more is a miss
LENGTHS = 6  # of steps that a try halves
EPS = float(np.finfo(float).eps)
GOAL = 1e-12  # merit of scaled equations, and residual, at which the search ends
SMALLEST_FRICTION = 4.0 * EPS  # smaller friction is none
LEAST_SHIFT = EPS**0.7  # of the scaled diagonal of W; redundant contacts share loads
LARGEST_SHIFT = 0.1  # of the scaled diagonal of W
SHIFT_FACTOR = 10.0  # by which the shift falls after a good step and rises after a miss
SLOW = 0.7  # of the change of impulses; where a round of sweeps leaves more, Newton's method is tried
CHECK = 8  # sweeps in a round
NEARLY = 1e-6  # merit from which Newton's method finishes a proximal search, and its square
PROXIMAL_STEPS = 2  # of Newton's method, in a proximal step
PROXIMAL_SHARE = 0.7  # of the merit times the weight; a proximal step ends with less
PROXIMAL_LIMIT = 600  # steps of Newton's method in a proximal search
EXTRAPOLATION = 0.5  # of the last proximal step, for the next centre
WEIGHT_RISE, WEIGHT_FALL = 1.6, 0.6  # of the proximal weight after a step that failed, or succeeded early


class Contacts(NamedTuple):
    """A problem u = W r + q of contacts with friction mu, `dim` rows each."""

    W: np.ndarray
    q: np.ndarray
    mu: np.ndarray
    dim: int


class Space(NamedTuple):
    """Arrays that a search writes to: (n, n), (18, n), (nc, 9), (nc,) and (n,)."""

    matrix: np.ndarray
    rows: np.ndarray
    blocks: np.ndarray
    ratios: np.ndarray
    active: np.ndarray


@njit(**PLAIN)
def _rub(block, c0, c1, rate, mu, x):  # type: ignore[no-untyped-def]
    """Solve (A + x) r_t = -c; return r_n, r_t (two), |r_t| - mu r_n, |r_t|, the slope of mu r_n / |r_t|."""
    a, f = block[1] + x, block[4] + x
    scale = 1.0 / (a * f - block[2] * block[3])
    t0, t1 = -(f * c0 - block[2] * c1) * scale, -(a * c1 - block[3] * c0) * scale
    d0, d1 = -(f * t0 - block[2] * t1) * scale, -(a * t1 - block[3] * t0) * scale
    n = -(rate + block[5] * t0 + block[6] * t1) * block[0]
    size = math.sqrt(t0 * t0 + t1 * t1)
    lengthens = (t0 * d0 + t1 * d1) / (size * size)
    slope = -mu * ((block[5] * d0 + block[6] * d1) * block[0] + n * lengthens) / size
    return n, t0, t1, size - mu * n, size, slope


@njit(**PLAIN)
def _copy(values, target):  # type: ignore[no-untyped-def]
    for i in range(target.shape[0]):
        target[i] = values[i]


@njit(**PLAIN)
def _slide(block, c0, c1, rate, mu, sticks, ratio):  # type: ignore[no-untyped-def]
    """Find the impulse of one contact, which sticks or slides with u_t = -ratio r_t; return also the ratio.

    With the normal row removed, (A + ratio) r_t = -c and r_n = -(rate + coupling . r_t) / w; the ratio is a
    root of |r_t| - mu r_n. Where the law has several answers it is the root near the last ratio, else (-1)
    the largest, with the smallest impulses, or none if it `sticks` rather.
    """
    x, low, high = ratio, -1.0, math.inf  # low: -1 if no ratio with an excess is known
    if ratio < 0.0:
        x = 0.0
        if not sticks and not _has_one_answer(block, mu):
            for k in range(RATIOS.shape[0]):
                x = RATIOS[k] * (block[1] + block[4])
                n, t0, t1, excess, size, slope = _rub(block, c0, c1, rate, mu, x)
                if excess > 0.0:
                    break
                high = x
    n, t0, t1, excess, size, slope = _rub(block, c0, c1, rate, mu, x)
    near = False
    for _ in range(SLOPE_STEPS):
        if near or (x == 0.0 and not excess > 0.0) or abs(excess) <= GOAL * mu * n:
            break
        near = abs(excess) <= ROOT * mu * n
        if excess > 0.0:
            low = max(low, x)
        else:
            high = min(high, x)
        if high < math.inf and not high - low > EPS * high:
            break
        following = x + excess / (size * slope) if slope > 0.0 else math.inf
        if low < 0.0 and following <= 0.0:
            following = 0.0
        elif not low < following < high:
            following = 0.5 * (low + high) if high < math.inf else 4.0 * max(low, 0.0) + 1e-3
        x = following
        n, t0, t1, excess, size, slope = _rub(block, c0, c1, rate, mu, x)
    return max(n, 0.0), t0, t1, x


@njit(**PLAIN)
def _reduce(W, dim, blocks):  # type: ignore[no-untyped-def]
    """Compute 1 / w, A (four), the coupling and the normal column over w (two each) of contacts, in place."""
    for k in range(blocks.shape[0]):
        s, block = k * dim, blocks[k]
        block[0] = 1.0 / W[s, s] if W[s, s] > 0.0 else 0.0
        block[2], block[3], block[6], block[8] = 0.0, 0.0, 0.0, 0.0
        for i in range(dim - 1):
            block[5 + i], block[7 + i] = W[s, s + 1 + i], W[s + 1 + i, s] * block[0]
        for i in range(dim - 1):
            for j in range(dim - 1):
                block[1 + 2 * i + j] = W[s + 1 + i, s + 1 + j] - block[7 + i] * block[5 + j]
        if dim == 2:
            block[4] = block[1]


@njit(**PLAIN)
def _has_one_answer(block, mu):  # type: ignore[no-untyped-def]
    """Tell if one contact has one answer: mu |coupling| / w below the ratio of the eigenvalues of A."""
    trace, det = block[1] + block[4], block[1] * block[4] - block[2] * block[3]
    lift = mu * math.sqrt(block[5] * block[5] + block[6] * block[6]) * block[0]
    return lift < 1.0 and lift * trace * trace < (1.0 + lift) * (1.0 + lift) * det


@njit(fastmath={"reassoc"}, **PLAIN)  # sums in the order of vectors
def _dot(W, i, r):  # type: ignore[no-untyped-def]
    """Compute one entry of W r."""
    total = 0.0
    for j in range(r.shape[0]):
        total += W[i, j] * r[j]
    return total


@njit(**PLAIN)
def _respond(W, q, r, u):  # type: ignore[no-untyped-def]
    """Compute u = W r + q in place."""
    for i in range(q.shape[0]):
        u[i] = _dot(W, i, r) + q[i]


@njit(**PLAIN)
def _sweep(W, q, mu, dim, blocks, sticks, r, ratios):  # type: ignore[no-untyped-def]
    """Solve for each contact in turn, in place; return the largest change and whether modes changed."""
    largest, turns = 0.0, False
    for k in range(mu.shape[0]):
        s, block, slips, rests = k * dim, blocks[k], ratios[k] > 0.0, r[k * dim] > 0.0
        n, t0, t1, last = r[s], r[s + 1], 0.0, s + dim - 1
        if dim == 3:
            t1 = r[last]
        r[s], r[s + 1], r[last] = 0.0, 0.0, 0.0
        rate = _dot(W, s, r) + q[s]
        normal, first, second = 0.0, 0.0, 0.0
        if rate < 0.0 and block[0] > 0.0:
            if mu[k] == 0.0:
                normal = -rate * block[0]
            else:
                c0, c1 = _dot(W, s + 1, r) + q[s + 1] - block[7] * rate, 0.0
                if dim == 3:
                    c1 = _dot(W, last, r) + q[last] - block[8] * rate
                normal, first, second, ratios[k] = _slide(block, c0, c1, rate, mu[k], sticks, ratios[k])
        r[last] = second
        r[s + 1], r[s] = first, normal
        largest = max(largest, abs(normal - n), abs(first - t0), abs(second - t1))
        turns = turns or (normal > 0.0) != rests or (ratios[k] > 0.0) != slips
    return largest, turns


@njit(**PLAIN)
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
            pull[active[a]] = _dot(problem.W, active[a], change)
    for a in range(0, count, dim):
        _linearise(problem, a, count, r, u, shift, space)
    _solve_linear(space.matrix, x, count, dim)
    for a in range(count):
        change[active[a]] = x[a]


@njit(**PLAIN)
def _newton(problem, r, u, space, patience, limit, goal):  # type: ignore[no-untyped-def]
    """Do Newton's method from (r, u) in place, until the merit is the goal; return steps and merit."""
    W, q, mu, dim, rows, n = problem.W, problem.q, problem.mu, problem.dim, space.rows, r.shape[0]
    value, trial, rate, after, change = rows[0], rows[1], rows[2], rows[3], rows[4]
    merit = _misfit(mu, dim, r, u, value)
    smallest, misses, steps, shift = merit, 0, 0, LEAST_SHIFT
    while steps < limit and misses < patience and merit > goal:
        steps += 1
        _newton_step(problem, r, u, shift, space)
        length, best, best_length = 1.0, math.inf, 0.0
        for _ in range(LENGTHS if patience > 1 else 1):
            for i in range(n):
                trial[i] = r[i] + length * change[i]
            _respond(W, q, trial, rate)
            size = _misfit(mu, dim, trial, rate, after)
            if size < best:
                best, best_length = size, length
            if size <= HALF * merit:
                break
            length *= 0.5
        if not best < math.inf:
            break
        if length == best_length:
            _copy(trial, r)
            _copy(rate, u)
            _copy(after, value)
            merit = size
        else:
            for i in range(n):
                r[i] += best_length * change[i]
            _respond(W, q, r, u)
            merit = _misfit(mu, dim, r, u, value)
        good = merit <= HALF * smallest
        misses = 0 if good else misses + 1
        shift = min(max(shift / SHIFT_FACTOR if good else shift * SHIFT_FACTOR, LEAST_SHIFT), LARGEST_SHIFT)
        smallest = min(smallest, merit)
    return steps, merit


@njit(**PLAIN)
def _proximal(problem, r, u, space):  # type: ignore[no-untyped-def]
    """Do Newton's method for u + weight (r - centre), some steps for each centre; return steps and merit.

    Newton's method without a weight finishes near the end, and once more at the end where it did not.
    """
    W, q, mu, dim, rows = problem.W, problem.q, problem.mu, problem.dim, space.rows
    n, weight, steps, level = r.shape[0], 1.0, 0, NEARLY
    move, before, rate, diagonal = rows[7], rows[8], rows[15], rows[16]
    for i in range(n):
        move[i], diagonal[i] = 0.0, W[i, i]
    while True:
        _respond(W, q, r, u)
        merit = _misfit(mu, dim, r, u, rows[0])
        if steps >= PROXIMAL_LIMIT or not merit < math.inf:
            return steps, merit
        _copy(r, before)
        if not merit > level:
            count, after = _newton(problem, r, u, space, 4, NEWTON_STEPS, GOAL)
            steps += count
            if after <= GOAL:
                return steps, after
            level *= NEARLY
            _copy(before, r)
        aim = PROXIMAL_SHARE * min(weight, 1.0) * merit
        for i in range(n):
            rate[i] = q[i] - weight * (r[i] + EXTRAPOLATION * move[i])
            W[i, i] = diagonal[i] + weight
        _respond(W, rate, r, u)
        count, after = _newton(Contacts(W, rate, mu, dim), r, u, space, 4, PROXIMAL_STEPS, aim)
        steps += max(count, 1)
        for i in range(n):
            move[i], W[i, i] = r[i] - before[i], diagonal[i]
        if after > aim:
            weight = min(weight * WEIGHT_RISE, 1.0)
        elif count < PROXIMAL_STEPS:
            weight = max(weight * WEIGHT_FALL, LEAST_SHIFT)


@njit(**PLAIN)
def _sweep_often(problem, attempt, r, u, space):  # type: ignore[no-untyped-def]
    """Do the sweeps of an attempt in place, as long as they change impulses less and less."""
    W, q, mu, dim = problem
    still, before = 0, math.inf
    for count in range(SWEEPS[attempt]):
        change, turns = _sweep(W, q, mu, dim, space.blocks, attempt >= STICKS, r, space.ratios)
        still = 0 if turns else still + 1
        if attempt == 0:
            _respond(W, q, r, u)
            if still >= STILL or _misfit(mu, dim, r, u, space.rows[0]) <= GOAL:
                return
        if change <= 0.25 * GOAL:
            break
        if count % CHECK == CHECK - 1:
            if change > SLOW * before:
                break
            before = change
    _respond(W, q, r, u)


@njit(**PLAIN)
def _search(problem, best, best_rate, space):  # type: ignore[no-untyped-def]
    """Improve scaled impulses (n,) and their velocities in place; return the steps of Newton's method.

    Newton's method is tried as soon as sweeps change no mode, after more sweeps, from the start, and after
    sweeps that prefer sticking. Sweeps prefer small impulses before.
    """
    start, swept, r, u = space.rows[7], space.rows[8], space.rows[9], space.rows[10]
    _copy(best, start)
    _reduce(problem.W, problem.dim, space.blocks)
    for i in range(best.shape[0]):
        best_rate[i] = math.nan
    smallest, steps, count = math.inf, 0, 0
    for attempt in range(SWEEPS.shape[0] + 1):
        if attempt == 0 or attempt == STICKS - 1 or attempt == STICKS:
            _copy(start, swept)
            for k in range(space.ratios.shape[0]):
                space.ratios[k] = -1.0
        elif attempt > STICKS:  # the second and the third continue sweeps, this one Newton's method
            _copy(r, swept)
        if attempt < SWEEPS.shape[0]:
            _sweep_often(problem, attempt, swept, u, space)
            _copy(swept, r)
            count, merit = _newton(problem, r, u, space, PATIENCE[attempt], NEWTON_STEPS, GOAL)
        else:
            _copy(best, r)
            count, merit = _proximal(problem, r, u, space)
        steps += count
        if merit < smallest:
            smallest = merit
            _copy(r, best)
            _copy(u, best_rate)
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
    _respond(W, q, r, u)  # q, unless W has numbers that are not finite
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
        _respond(W, q, r, u)
        residual = _natural_residual(q, mu, dim, mobility, r, u)
        if residual <= GOAL:
            return 0, residual
    unit = _power_of_two(highest) if highest > 0.0 else 1.0
    for i in range(n):  # by powers of two: no round-off
        rate[i] = q[i] * inverse[i] / unit
        r[i] *= velocity[i] / unit
    for k in range(nc):
        friction[k] = mu[k] * (velocity[k * dim + 1] * inverse[k * dim]) if mu[k] > SMALLEST_FRICTION else 0.0
    steps = _search(Contacts(scaled, rate, friction, dim), r, u, space)
    for i in range(n):
        r[i] *= unit * inverse[i]
        u[i] *= unit * velocity[i]
    return steps, _natural_residual(q, mu, dim, mobility, r, u)


@njit(**ALLOCATES)
def _space(n, nc):  # type: ignore[no-untyped-def]
    """Make arrays that the search writes to."""
    return Space(np.empty((n, n)), np.empty((18, n)), np.empty((nc, 9)), np.empty(nc), np.empty(n, np.int64))


@njit(**ALLOCATES)
def solve_compiled(W, q, mu, dim, r, u):  # type: ignore[no-untyped-def]
    """Improve impulses r (n,) and compute velocities u = W r + q, in place; return steps and residual."""
    residual, n = _judge_rest(W, q, mu, dim, r, u), q.shape[0]
    if not residual > GOAL:
        return 0, residual
    return _solve(Contacts(W, q, mu, dim), r, u, np.empty((n, n)), False, _space(n, mu.shape[0]))


@njit(**ALLOCATES)
def solve_each(W, q, mu, dim, r, u, steps, residuals):  # type: ignore[no-untyped-def]
    """Do `solve_compiled` for each problem of a batch, in place; W is one of each, or one for all."""
    n, last = q.shape[1], W.shape[0] - 1
    scaled, is_scaled, space = np.empty((n, n)), False, _space(n, mu.shape[1])
    for k in range(q.shape[0]):
        matrix = W[min(k, last)]
        steps[k], residuals[k] = 0, _judge_rest(matrix, q[k], mu[k], dim, r[k], u[k])
        if residuals[k] > GOAL:
            problem = Contacts(matrix, q[k], mu[k], dim)
            steps[k], residuals[k] = _solve(problem, r[k], u[k], scaled, is_scaled, space)
            is_scaled = last == 0
