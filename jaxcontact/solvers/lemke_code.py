"""Lemke's method in machine code (numba): the steps of impacts whose problems share one matrix.

Owns the steps of all samples with one scaled W, and a search for several solutions of a step; `lemke_pivots`
has the pivots. Entries: `solve_steps`, `solve_ends`. Page: docs/methods/impacts-in-space.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numba import njit

from jaxcontact import tolerances
from jaxcontact.solvers.compiled import ALLOCATES, EPS, KEPT, PLAIN, digest_sources, dot
from jaxcontact.solvers.lemke_pivots import (
    copy,
    pivot_to_the_end,
    read_dictionary,
    read_solution,
    solve_nearby,
)
from jaxcontact.tolerances import HALF_DIGITS, RESIDUAL

TOLERANCE = EPS**RESIDUAL  # largest scaled residual of a solution
USER_SHARE = EPS**tolerances.USER_SHARE  # of a residual in the user's units, whose limit is eps^0.4
RUNNING, ENDED, FAILED = 0, 1, 2
CHECK_EVERY = 4  # steps, of which one is searched further
SAME_VELOCITY = EPS**HALF_DIGITS  # of the largest velocity: outcomes that are nearer are one


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
        if not pivot_to_the_end(matrix, w, vector, problem.perturbations[attempt], space):
            continue
        worst = read_solution(matrix, w, table, basic, nonbasic, z, slack, place)
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
        number = solve_nearby(problem, w, begin, end, number * 48271 % 2147483647, leaves, space)
        if number < 0:
            number = -number
            continue
        worst = read_dictionary(matrix, w, end, z, slack)
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
            effect[count, i] = dot(problem.delassus, i, impulses[count])
            size = max(size, abs(effect[count, i]))
        for j in range(count):
            apart = 0.0
            for i in range(effect.shape[1]):
                apart = max(apart, abs(effect[count, i] - effect[j, i]))
            is_new = is_new and apart > SAME_VELOCITY * size
        count += is_new
        own_count += is_new and attempt < tries
    if own_count > 0:
        chosen = min(int(pick * own_count), own_count - 1)
        copy((matrices[chosen], flags[chosen]), start)
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
        v_plus[i] = v[i] + dot(response, i, impulse)


@njit(**ALLOCATES)
def _take_steps(problem, square, draws, tries, samples, paths):  # type: ignore[no-untyped-def]
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
    space = np.empty((n, n + 3)), *integers[:2], *floats[:3], integers[2], *floats[3:], np.empty(n + 3)
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
                rate[i] += dot(problem.delassus, i, impulse)
            residuals[sample] = max(residuals[sample], _misfit(problem, rate, impulse, cap, speed))
            squares[sample] += _work(impulse, before, rate)
            counts[sample] += 1
            total += impulse
            if paths.shape[0] > 0:
                _move(problem.response, problem.v, total, paths[sample, counts[sample]])


@njit(**ALLOCATES)
def _compute_ends(problem, mass, totals, v_plus, squares):  # type: ignore[no-untyped-def]
    """Compute the velocities after the impact, and their |v|_M^2, in place."""
    for sample in range(v_plus.shape[0]):
        _move(problem.response, problem.v, totals[sample], v_plus[sample])
        squares[sample] = 0.0
        for i in range(problem.v.shape[0]):
            squares[sample] += v_plus[sample, i] * dot(mass, i, v_plus[sample])


def _compile_entries(sources: int) -> tuple[Callable[..., object], Callable[..., object]]:
    """Compile the entries for the digest of their sources, or read them from the disk."""

    @njit(**KEPT)
    def solve_steps(problem, square, draws, tries, samples, paths):  # type: ignore[no-untyped-def]
        _ = sources
        _take_steps(problem, square, draws, tries, samples, paths)

    @njit(**KEPT)
    def solve_ends(problem, mass, totals, v_plus, squares):  # type: ignore[no-untyped-def]
        _ = sources
        _compute_ends(problem, mass, totals, v_plus, squares)

    return solve_steps, solve_ends


solve_steps, solve_ends = _compile_entries(digest_sources("lemke_code", "lemke_pivots"))
