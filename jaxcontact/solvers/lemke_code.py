"""Lemke's method in machine code (numba): the steps of impacts whose problems share one matrix.

Owns the pivots of `lcp` without JAX, with one scaled W for all steps of all samples, and a search for several
solutions of a step. All compiled functions are in this file, for numba keeps code by file. Entry:
`solve_steps`. Page: docs/methods/impacts-in-space.md.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numba import njit

ALLOCATES: Any = {"cache": True, "no_cfunc_wrapper": True, "nogil": True, "error_model": "numpy"}
PLAIN = ALLOCATES | {"_nrt": False, "no_cpython_wrapper": True}
EPS = float(np.finfo(float).eps)
TIE = EPS**0.7  # of scaled rows; ratios that are nearer tie
NOISE = 16.0 * EPS  # of two numbers whose difference is round-off
TOLERANCE = EPS**0.6  # largest scaled residual of a solution
USER_SHARE = EPS**0.2  # of a residual in the user's units, whose limit is eps^0.4
RUNNING, ENDED, FAILED = 0, 1, 2
FLIPS = 3  # variables at most that change sides before a search begins
SPREAD = 5.0  # covering vectors of a search lie in exp(-SPREAD)..exp(SPREAD)
CHECK_EVERY = 8  # steps, of which one is searched further
ALIKE = EPS**0.5  # of the largest velocity: outcomes that are nearer are one


class StepProblem(NamedTuple):
    """The scaled problem R (W (C z) + w) of every step, for nc contacts with k directions of friction.

    Attributes:
        matrix: R W C (n, n), n = nc (k + 3).
        rows, columns: diagonals of R and C (n,).
        effects: (n,) of z in the user's units on the residual.
        covers, perturbations: (attempts, n) positive; the first covering vector is each step's own.
        delassus: (r, r), r = nc (1 + nt).
        directions: (k, nt).
        slowest: (nc,) slower contacts do not approach; infinite for inactive ones.
        mu: (nc,) friction in scaled impulses.
        facets: (k, nt) facets f . lam_t = mu lam_n of the cone of friction.
        response: M^-1 J^T S (nv, r).
        v: (nv,) velocity before the impact.
    """

    matrix: np.ndarray
    rows: np.ndarray
    columns: np.ndarray
    effects: np.ndarray
    covers: np.ndarray
    perturbations: np.ndarray
    delassus: np.ndarray
    directions: np.ndarray
    slowest: np.ndarray
    mu: np.ndarray
    facets: np.ndarray
    response: np.ndarray
    v: np.ndarray


@njit(**PLAIN)
def _pivot(table, basic, nonbasic, row, column):  # type: ignore[no-untyped-def]
    """Exchange the basic variable of a row with the nonbasic variable of a column, in place."""
    over, new_row = -1.0 / table[row, column], table[row]
    for j in range(table.shape[1]):
        new_row[j] *= over
    new_row[column] = -over
    for i in range(table.shape[0]):
        factor, line = table[i, column], table[i]
        if i == row or factor == 0.0:
            continue
        line[column] = 0.0
        for j in range(table.shape[1]):
            change = factor * new_row[j]
            total = line[j] + change
            line[j] = 0.0 if abs(total) <= NOISE * abs(change) else total
    basic[row], nonbasic[column] = nonbasic[column], basic[row]


@njit(**PLAIN)
def _choose_row(table, basic, column):  # type: ignore[no-untyped-def]
    """Find the row that blocks the entering variable, by ratios and then by the perturbation; -1 if none."""
    n = table.shape[0]
    largest, step, best, chosen = 0.0, math.inf, math.inf, -1
    for i in range(n):
        largest = max(largest, abs(table[i, column]))
    for i in range(n):
        if table[i, column] < -TIE * largest:
            step = min(step, (max(table[i, n + 1], 0.0) + TIE) / -table[i, column])
    for i in range(n):
        rate = -table[i, column]
        if rate > TIE * largest and max(table[i, n + 1], 0.0) <= step * rate:
            if basic[i] == 2 * n:  # the artificial variable leaves whenever it can
                return i
            if chosen < 0 or table[i, n + 2] / rate < best:
                best, chosen = table[i, n + 2] / rate, i
    return chosen


@njit(**PLAIN)
def _pivot_to_the_end(matrix, w, cover, perturbation, table, basic, nonbasic):  # type: ignore[no-untyped-def]
    """Pivot until the artificial variable leaves; return whether it did."""
    n = w.shape[0]
    deepest, best, row = math.inf, math.inf, 0
    for i in range(n):
        for j in range(n):
            table[i, j] = matrix[i, j]
        table[i, n], table[i, n + 1], table[i, n + 2] = cover[i], w[i], perturbation[i]
        basic[i], nonbasic[i] = i, n + i
        deepest = min(deepest, w[i] / cover[i])
    nonbasic[n], nonbasic[n + 1], nonbasic[n + 2] = 2 * n, -1, -1
    for i in range(n):
        if w[i] / cover[i] <= deepest + TIE and perturbation[i] / cover[i] < best:
            best, row = perturbation[i] / cover[i], i
    return _pivot_on(table, basic, nonbasic, row)


@njit(**PLAIN)
def _pivot_on(table, basic, nonbasic, row):  # type: ignore[no-untyped-def]
    """Pivot until the artificial variable leaves, at first in column n; return whether it did."""
    n = table.shape[0]
    column = n
    for _ in range(10 * n + 20):
        leaving = basic[row]
        _pivot(table, basic, nonbasic, row, column)
        if leaving == 2 * n:
            return True
        entering = leaving + n if leaving < n else leaving - n
        column = 0
        while nonbasic[column] != entering:
            column += 1
        row = _choose_row(table, basic, column)
        if row < 0:
            return False
    return False


@njit(fastmath={"reassoc"}, **PLAIN)  # sums in the order of vectors
def _dot(matrix, i, x):  # type: ignore[no-untyped-def]
    total = 0.0
    for j in range(x.shape[0]):
        total += matrix[i, j] * x[j]
    return total


@njit(**PLAIN)
def _read(matrix, w, table, basic, nonbasic, z, error, place):  # type: ignore[no-untyped-def]
    """Read z from the table and improve it twice, in place; return the scaled residual."""
    n = w.shape[0]
    for i in range(z.shape[0]):
        z[i] = 0.0
    for j in range(n + 1):
        if 0 <= nonbasic[j] < n:
            place[nonbasic[j]] = j
    for _ in range(3):
        for i in range(n):
            if n <= basic[i] < 2 * n:
                k = basic[i] - n
                error[k] = _dot(matrix, k, z) + w[k]
        for i in range(n):
            if n <= basic[i] < 2 * n:
                total = 0.0
                for m in range(n):
                    if n <= basic[m] < 2 * n:
                        total += table[i, place[basic[m] - n]] * error[basic[m] - n]
                z[basic[i] - n] -= total
    worst = 0.0
    for i in range(n):
        z[i] = max(z[i], 0.0)
    for i in range(n):
        error[i] = _dot(matrix, i, z) + w[i]  # the slack
        worst = max(worst, abs(min(z[i], error[i])))
    return worst


@njit(**PLAIN)
def _copy(source, target):  # type: ignore[no-untyped-def]
    """Copy a dictionary (n, n), (n,); loops need no memory, slices may."""
    for i in range(source[0].shape[0]):
        target[1][i] = source[1][i]
        for j in range(source[0].shape[1]):
            target[0][i, j] = source[0][i, j]


@njit(**PLAIN)
def _solve_nearby(problem, w, start, end, number, leaves, space):  # type: ignore[no-untyped-def]
    """Solve by pivoting from a dictionary, in place; return the next random number, negative if that failed.

    A dictionary (matrix, flags) has y = matrix y', where y_i is z_i if flags[i] and else the slack; `end`
    gets that of the solution. `number` seeds the covering vector; a search that `leaves` a solution goes from
    there to another one, else some variables change sides at first.
    """
    table, basic, nonbasic, cover, constants, place = (
        space[0],
        space[1],
        space[2],
        space[7],
        space[8],
        space[6],
    )
    n, (after, flips) = w.shape[0], end
    _copy(start, end)
    for _ in range(0 if leaves else 1 + number % FLIPS):
        number = number * 48271 % 2147483647
        i = number % n
        if abs(after[i, i]) > TIE:
            _pivot(after, basic, nonbasic, i, i)
            flips[i] = not flips[i]
    for i in range(n):
        number = number * 48271 % 2147483647
        cover[i] = math.exp(SPREAD * (2.0 * number / 2147483647.0 - 1.0))
        constants[i] = 0.0 if flips[i] else w[i]
        for j in range(n):
            if flips[j]:
                constants[i] -= after[i, j] * w[j]
    lowest = 0.0
    for i in range(n):
        lowest = min(lowest, constants[i])
    moves = lowest < 0.0
    if moves:
        if not _pivot_to_the_end(after, constants, cover, problem.perturbations[0], table, basic, nonbasic):
            return -number
    elif (
        leaves
    ):  # along the path of another covering vector, whose other end is another solution, if not a ray
        moves = True
        for i in range(n):
            table[i, n] = 0.0 if flips[i] else cover[i]
            for j in range(n):
                table[i, j] = after[i, j]
                if flips[j]:
                    table[i, n] -= after[i, j] * cover[j]
            table[i, n + 1], table[i, n + 2] = constants[i], problem.perturbations[0][i]
            basic[i], nonbasic[i] = i, n + i
        nonbasic[n], nonbasic[n + 1], nonbasic[n + 2] = 2 * n, -1, -1
        row = _choose_row(table, basic, n)
        if row < 0 or not _pivot_on(table, basic, nonbasic, row):
            return -number
    if moves:
        for j in range(n + 3):
            if 0 <= nonbasic[j] < 2 * n:
                place[nonbasic[j] % n] = j
        for row in range(n):
            i = basic[row] % n
            for j in range(n):
                after[i, j] = table[row, place[j]]
        for row in range(n):
            if basic[row] >= n:
                flips[basic[row] - n] = not flips[basic[row] - n]
    return number


@njit(**PLAIN)
def _read_dictionary(matrix, w, dictionary, z, error):  # type: ignore[no-untyped-def]
    """Read z from the dictionary of a solution and improve it twice, in place; return the scaled residual."""
    n, worst, (inverse, flags) = w.shape[0], 0.0, dictionary
    z[:] = 0.0
    for _ in range(3):
        for i in range(n):
            error[i] = _dot(matrix, i, z) + w[i] if flags[i] else 0.0
        for i in range(n):
            if flags[i]:
                z[i] -= _dot(inverse, i, error)
    for i in range(n):
        z[i] = max(z[i], 0.0)
    for i in range(n):
        error[i] = _dot(matrix, i, z) + w[i]
        worst = max(worst, abs(min(z[i], error[i])))
    return worst


@njit(**PLAIN)
def _solve(problem, user_w, cover, space):  # type: ignore[no-untyped-def]
    """Solve 0 <= z, W z + w >= 0, z (W z + w) = 0 in the user's units, in place; return whether that came."""
    matrix, rows, covers = problem.matrix, problem.rows, problem.covers
    table, basic, nonbasic, w, z, slack, place = space[:7]
    n, unit, largest, deepest = user_w.shape[0], 0.0, 0.0, 0.0
    for i in range(n):
        w[i] = rows[i] * user_w[i]
        unit, largest, deepest = max(unit, -w[i]), max(largest, abs(w[i])), max(deepest, -user_w[i])
    for i in range(z.shape[0]):
        z[i] = 0.0
    if unit == 0.0:
        return True
    unit = max(unit, EPS * EPS * largest)
    for i in range(n):
        w[i] /= unit
    for attempt in range(covers.shape[0]):
        vector = cover if attempt == 0 else covers[attempt]
        if not _pivot_to_the_end(matrix, w, vector, problem.perturbations[attempt], table, basic, nonbasic):
            continue
        worst = _read(matrix, w, table, basic, nonbasic, z, slack, place)
        for i in range(n):
            misfit = min(problem.effects[i] * z[i] * unit, slack[i] * unit / rows[i]) / deepest
            worst = max(worst, abs(misfit) * USER_SHARE)
        if worst <= TOLERANCE:
            for i in range(n):
                z[i] *= problem.columns[i] * unit
            return True
    return False


@njit(**PLAIN)
def _write_problem(problem, u, cap, user_w):  # type: ignore[no-untyped-def]
    """Write w (n,) of a step's problem in place."""
    directions, slowest, size = problem.directions, problem.slowest, 0.0
    nc, (k, nt) = slowest.shape[0], directions.shape
    for i in range(u.shape[0]):
        size = max(size, abs(u[i]))
    for c in range(nc):
        user_w[c], user_w[nc + c] = cap[c], u[c * (1 + nt)]
        user_w[nc * (2 + k) + c] = 0.0
        if slowest[c] == math.inf:
            user_w[nc + c] += size
        for d in range(k):
            total = 0.0
            for t in range(nt):
                total += directions[d, t] * u[c * (1 + nt) + 1 + t]
            user_w[nc * 2 + c * k + d] = total


@njit(**PLAIN)
def _write_impulse(problem, z, impulse):  # type: ignore[no-untyped-def]
    """Write the scaled impulse (r,) of a solution z in place."""
    directions, slowest = problem.directions, problem.slowest
    nc, (k, nt) = slowest.shape[0], directions.shape
    impulse[:] = 0.0
    for c in range(nc):
        if slowest[c] == math.inf:
            continue
        impulse[c * (1 + nt)] = z[nc + c]
        for t in range(nt):
            for d in range(k):
                impulse[c * (1 + nt) + 1 + t] += directions[d, t] * z[nc * 2 + c * k + d]


@njit(**PLAIN)
def _search(problem, user_w, pick, space, start, found, tries, attempts):  # type: ignore[no-untyped-def]
    """Search for several outcomes of a step, the first near that of the step before.

    Return the number of those that the first `tries` attempts find, and that of all `attempts`.

    From a solution the path of another covering vector leads to a second one or to a ray. It finds those of
    the other index, where Lemke's method never ends.

    `start` is the dictionary of the step before, and becomes that of the outcome picked, whose impulse is the
    first of `found`: impulses and effects (attempts, r), matrices (attempts, n, n) and flags (attempts, n).
    """
    matrix, rows, effects = problem.matrix, problem.rows, problem.effects
    w, z, slack, (impulses, effect, matrices, flags) = space[3], space[4], space[5], found
    n, count, unit, largest, deepest = user_w.shape[0], 0, 0.0, 0.0, 0.0
    for i in range(n):
        w[i] = rows[i] * user_w[i]
        unit, largest, deepest = max(unit, -w[i]), max(largest, abs(w[i])), max(deepest, -user_w[i])
    unit = max(unit, EPS * EPS * largest)
    if unit == 0.0:
        return 0, 0
    for i in range(n):
        w[i] /= unit
    number, own_count = 1 + int(pick * 2147483645.0), 0
    for attempt in range(attempts):
        end, leaves = (matrices[count], flags[count]), count > 0 and attempt % 2 == 1
        begin = (matrices[count - 1], flags[count - 1]) if leaves else start
        number = _solve_nearby(problem, w, begin, end, number * 48271 % 2147483647, leaves, space)
        if number < 0:
            number = -number
            continue
        worst = _read_dictionary(matrix, w, end, z, slack)
        for i in range(n):
            misfit = min(effects[i] * z[i] * unit, slack[i] * unit / rows[i]) / max(deepest, EPS * largest)
            worst = max(worst, abs(misfit) * USER_SHARE)
        if not worst <= TOLERANCE:
            continue
        for i in range(n):
            z[i] *= problem.columns[i] * unit
        _write_impulse(problem, z, impulses[count])
        size, is_new = 0.0, True
        for i in range(effect.shape[1]):
            effect[count, i] = _dot(problem.delassus, i, impulses[count])
            size = max(size, abs(effect[count, i]))
        for j in range(count):
            apart = 0.0
            for i in range(effect.shape[1]):
                apart = max(apart, abs(effect[count, i] - effect[j, i]))
            is_new = is_new and apart > ALIKE * size
        count += is_new
        own_count += is_new and attempt < tries
    if own_count > 0:
        chosen = min(int(pick * own_count), own_count - 1)
        _copy((matrices[chosen], flags[chosen]), start)
        for i in range(impulses.shape[1]):
            impulses[0, i] = impulses[chosen, i]
    return own_count, count


@njit(**PLAIN)
def _misfit(problem, u, impulse, cap, speed):  # type: ignore[no-untyped-def]
    """Measure the violation of the law, as `contact_space.residual`, by an impulse that leads to u."""
    directions, slowest, mu, facets = problem.directions, problem.slowest, problem.mu, problem.facets
    (k, nt), worst = directions.shape, 0.0
    for c in range(slowest.shape[0]):
        s, used, best, power = c * (1 + nt), 0.0, 0.0, 0.0
        if slowest[c] == math.inf:
            continue
        for d in range(k):
            along, across = 0.0, 0.0
            for t in range(nt):
                along -= directions[d, t] * u[s + 1 + t]
                across += facets[d, t] * impulse[s + 1 + t]
            best, used = max(best, along), max(used, across)
        for t in range(nt):
            power += impulse[s + 1 + t] * u[s + 1 + t]
        limit = mu[c] * impulse[s]
        normal = abs(impulse[s] - min(max(impulse[s] - u[s], 0.0), cap[c])) / speed
        unit = max(limit, 0.0) + speed
        worst = max(worst, normal, (used - limit) / unit, abs(power + limit * best) / (speed * unit))
    return worst if worst < math.inf else math.inf


@njit(**PLAIN)
def _approaches(slowest, u):  # type: ignore[no-untyped-def]
    rows, approaches = u.shape[0] // slowest.shape[0], False
    for c in range(slowest.shape[0]):
        approaches = approaches or u[c * rows] < -slowest[c]
    return approaches


@njit(**PLAIN)
def _work(impulse, before, after):  # type: ignore[no-untyped-def]
    """Compute twice the energy that an impulse gives."""
    total = 0.0
    for i in range(impulse.shape[0]):
        total += impulse[i] * (before[i] + after[i])
    return total


@njit(**PLAIN)
def _move(response, v, impulse, v_plus):  # type: ignore[no-untyped-def]
    """Compute v + M^-1 J^T S impulse in place."""
    for i in range(v.shape[0]):
        v_plus[i] = v[i] + _dot(response, i, impulse)


@njit(**ALLOCATES)
def solve_steps(problem, square, draws, tries, samples, paths):  # type: ignore[no-untyped-def]
    """Take steps of the samples that are RUNNING until they have ENDED, FAILED or used their caps, in place.

    Args:
        problem: StepProblem.
        square: |v|_M^2 before the impact.
        draws: caps (samples, steps, nc), the scaled largest impulses; covering vectors (samples, steps, n);
            picks (samples, steps) in [0, 1), each seeds the search of its step and picks among its outcomes.
        tries: number of searches for an outcome of a step, 0 takes the one by the covering vector; number of
            further ones, in one step of CHECK_EVERY, whose outcomes are counted and not picked; number of
            samples, the first ones, with further ones.
        samples: of each sample its scaled velocities of the contacts (r,), the total of its impulses (r,),
            its squared speed |v|_M^2, residual, state, number of steps, of those searched further, and of
            those of which that finds an outcome more.
        paths: (samples, 1 + all steps, nv) velocities after every step, or none.
    """
    u, totals, squares, residuals, states, counts, checked, missed = samples
    caps, covers, picks = draws
    tries, attempts, num_checked = tries[0], max(tries[0] + tries[1], 1), tries[2]
    n, r = problem.rows.shape[0], u.shape[1]
    integers = np.empty(n, np.int64), np.empty(n + 3, np.int64), np.empty(n, np.int64)
    floats = np.empty(n), np.empty(n), np.empty(n), np.empty(n), np.empty(n)
    space = np.empty((n, n + 3)), integers[0], integers[1], *floats[:3], integers[2], *floats[3:]
    user_w, before = np.empty(n), np.empty(r)
    start = np.empty((n, n)), np.empty(n, np.bool_)
    found = (
        np.empty((attempts, r)),
        np.empty((attempts, r)),
        np.empty((attempts, n, n)),
        np.empty((attempts, n), np.bool_),
    )
    impulse = found[0][0]
    for sample in range(u.shape[0]):
        rate, total = u[sample], totals[sample]
        start[0][:], start[1][:] = problem.matrix, False
        for step in range(caps.shape[1] + 1):
            if states[sample] == RUNNING and not _approaches(problem.slowest, rate):
                states[sample] = ENDED
            if states[sample] != RUNNING or step == caps.shape[1]:
                break
            cap, speed = caps[sample, step], math.sqrt(max(squares[sample], EPS * square))
            before[:], count = rate, 0
            _write_problem(problem, rate, cap, user_w)
            if tries > 0:
                pick = picks[sample, step]
                further = attempts > tries and sample < num_checked
                further = further and int(pick * 2147483645.0) % CHECK_EVERY == 0
                last = attempts if further else tries
                count, every = _search(problem, user_w, pick, space, start, found, tries, last)
                checked[sample] += further
                missed[sample] += every > count
            if count == 0:
                start[0][:], start[1][:] = problem.matrix, False
                if not _solve(problem, user_w, covers[sample, step], space):
                    states[sample] = FAILED
                    break
                _write_impulse(problem, space[4], impulse)
            for i in range(r):
                rate[i] += _dot(problem.delassus, i, impulse)
            residuals[sample] = max(residuals[sample], _misfit(problem, rate, impulse, cap, speed))
            squares[sample] += _work(impulse, before, rate)
            counts[sample] += 1
            total += impulse
            if paths.shape[0] > 0:
                _move(problem.response, problem.v, total, paths[sample, counts[sample]])


@njit(**ALLOCATES)
def solve_ends(problem, mass, totals, v_plus, squares):  # type: ignore[no-untyped-def]
    """Compute the velocities after the impact, and their |v|_M^2, in place."""
    for sample in range(v_plus.shape[0]):
        _move(problem.response, problem.v, totals[sample], v_plus[sample])
        squares[sample] = 0.0
        for i in range(problem.v.shape[0]):
            squares[sample] += v_plus[sample, i] * _dot(mass, i, v_plus[sample])
