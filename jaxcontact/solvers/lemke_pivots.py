"""Pivots of Lemke's method in machine code (numba): from a covering vector, or from a solution nearby.

Owns tables and dictionaries, and reads solutions from them; entries `pivot_to_the_end` and `solve_nearby`.
Page: docs/methods/impacts-in-space.md.
"""

from __future__ import annotations

import math

from numba import njit

from jaxcontact.solvers.compiled import EPS, PLAIN, dot
from jaxcontact.tolerances import PIVOT

TIE = EPS**PIVOT  # of scaled rows; ratios that are nearer tie
NOISE = 16.0 * EPS  # of two numbers whose difference is round-off
FLIPS = 3  # variables at most that change sides before a search begins
SPREAD = 5.0  # covering vectors of a search lie in exp(-SPREAD)..exp(SPREAD)


@njit(**PLAIN)
def _pivot(table, basic, nonbasic, row, column, new_row):  # type: ignore[no-untyped-def]
    """Exchange the basic variable of a row with the nonbasic variable of a column, in place.

    `new_row` is memory of at least a row, apart from the table, which vectors of a CPU need.
    """
    over, width = -1.0 / table[row, column], table.shape[1]
    for j in range(width):
        new_row[j] = table[row, j] * over
    new_row[column] = -over
    for i in range(table.shape[0]):
        factor, line = table[i, column], table[i]
        if i == row or factor == 0.0:
            continue
        line[column] = 0.0
        for j in range(width):
            change = factor * new_row[j]
            total = line[j] + change
            line[j] = 0.0 if abs(total) <= NOISE * abs(change) else total
    for j in range(width):
        table[row, j] = new_row[j]
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
def pivot_to_the_end(matrix, w, cover, perturbation, space):  # type: ignore[no-untyped-def]
    """Write the table of W z + w with a covering vector and pivot to a solution; return whether it came."""
    n, table, basic, nonbasic = w.shape[0], space[0], space[1], space[2]
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
    return _pivot_on(space, row)


@njit(**PLAIN)
def _pivot_on(space, row):  # type: ignore[no-untyped-def]
    """Pivot, on `row` and column n first, until the artificial variable leaves; return whether it did."""
    table, basic, nonbasic, new_row = space[0], space[1], space[2], space[9]
    n = table.shape[0]
    column = n
    for _ in range(10 * n + 20):
        leaving = basic[row]
        _pivot(table, basic, nonbasic, row, column, new_row)
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


@njit(**PLAIN)
def read_solution(matrix, w, table, basic, nonbasic, z, error, place):  # type: ignore[no-untyped-def]
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
                error[k] = dot(matrix, k, z) + w[k]
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
        error[i] = dot(matrix, i, z) + w[i]  # the slack
        worst = max(worst, abs(min(z[i], error[i])))
    return worst


@njit(**PLAIN)
def copy(source, target):  # type: ignore[no-untyped-def]
    """Copy a dictionary (n, n), (n,); loops need no memory, slices may."""
    for i in range(source[0].shape[0]):
        target[1][i] = source[1][i]
        for j in range(source[0].shape[1]):
            target[0][i, j] = source[0][i, j]


@njit(**PLAIN)
def solve_nearby(problem, w, start, end, number, leaves, space):  # type: ignore[no-untyped-def]
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
    copy(start, end)
    for _ in range(0 if leaves else 1 + number % FLIPS):
        number = number * 48271 % 2147483647
        i = number % n
        if abs(after[i, i]) > TIE:
            _pivot(after, basic, nonbasic, i, i, space[9])
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
        if not pivot_to_the_end(after, constants, cover, problem.perturbations[0], space):
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
        if row < 0 or not _pivot_on(space, row):
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
def read_dictionary(matrix, w, dictionary, z, error):  # type: ignore[no-untyped-def]
    """Read z from the dictionary of a solution and improve it twice, in place; return the scaled residual."""
    n, worst, (inverse, flags) = w.shape[0], 0.0, dictionary
    z[:] = 0.0
    for _ in range(3):
        for i in range(n):
            error[i] = dot(matrix, i, z) + w[i] if flags[i] else 0.0
        for i in range(n):
            if flags[i]:
                z[i] -= dot(inverse, i, error)
    for i in range(n):
        z[i] = max(z[i], 0.0)
    for i in range(n):
        error[i] = dot(matrix, i, z) + w[i]
        worst = max(worst, abs(min(z[i], error[i])))
    return worst
