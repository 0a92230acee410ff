"""One contact at a time, in machine code (numba): the law of one contact, and sweeps of Gauss-Seidel.

Owns the records of a problem and its space, and how far impulses are from Coulomb's law; entries
`sweep_often` and `law_misfit`. Page: docs/methods/friction.md.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numba import njit

from jaxcontact.solvers.compiled import EPS, PLAIN, dot

SWEEPS = np.array([8, 8, 48, 0, 96, 192])  # before each try of Newton's method
STICKS = 4  # the first try after sweeps that prefer sticking
STILL_SWEEPS = 2  # sweeps in a row without a change of mode, after which Newton's method is tried first
SLOPE_STEPS = 60  # of the search for the ratio of sliding velocity and friction
ROOT = 1e-6  # of friction; a ratio that is nearer than that is improved once in a sweep
RATIOS = np.array([8.0, 2.0, 0.5, 0.1, 0.0])  # of sliding velocity and friction, over the mobility; 0 sticks
GOAL = 1e-12  # merit of scaled equations, and residual, at which the search ends
SLOW_FRACTION = 0.7  # of the change of impulses; after sweeps that leave more, Newton's method is tried
CHECK = 8  # sweeps in a round


class DenseFriction(NamedTuple):
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
def copy(values, target):  # type: ignore[no-untyped-def]
    """Copy numbers; a loop needs no memory, a slice may."""
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
def reduce_contacts(W, dim, blocks):  # type: ignore[no-untyped-def]
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


@njit(**PLAIN)
def apply_delassus(W, q, r, u):  # type: ignore[no-untyped-def]
    """Compute u = W r + q in place."""
    for i in range(q.shape[0]):
        u[i] = dot(W, i, r) + q[i]


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
        rate = dot(W, s, r) + q[s]
        normal, first, second = 0.0, 0.0, 0.0
        if rate < 0.0 and block[0] > 0.0:
            if mu[k] == 0.0:
                normal = -rate * block[0]
            else:
                c0, c1 = dot(W, s + 1, r) + q[s + 1] - block[7] * rate, 0.0
                if dim == 3:
                    c1 = dot(W, last, r) + q[last] - block[8] * rate
                normal, first, second, ratios[k] = _slide(block, c0, c1, rate, mu[k], sticks, ratios[k])
        r[last] = second
        r[s + 1], r[s] = first, normal
        largest = max(largest, abs(normal - n), abs(first - t0), abs(second - t1))
        turns = turns or (normal > 0.0) != rests or (ratios[k] > 0.0) != slips
    return largest, turns


@njit(**PLAIN)
def law_misfit(mu, dim, r, u, value):  # type: ignore[no-untyped-def]
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
def sweep_often(problem, attempt, r, u, space):  # type: ignore[no-untyped-def]
    """Do the sweeps of an attempt in place, as long as they change impulses less and less."""
    W, q, mu, dim = problem
    still, before = 0, math.inf
    for count in range(SWEEPS[attempt]):
        change, turns = _sweep(W, q, mu, dim, space.blocks, attempt >= STICKS, r, space.ratios)
        still = 0 if turns else still + 1
        if attempt == 0:
            apply_delassus(W, q, r, u)
            if still >= STILL_SWEEPS or law_misfit(mu, dim, r, u, space.rows[0]) <= GOAL:
                return
        if change <= 0.25 * GOAL:
            break
        if count % CHECK == CHECK - 1:
            if change > SLOW_FRACTION * before:
                break
            before = change
    apply_delassus(W, q, r, u)
