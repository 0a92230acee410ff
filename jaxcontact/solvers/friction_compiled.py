"""Friction problems of dense matrices in machine code (numba): scaling, search and judgement, one or many.

Owns the first attempt of `jc.solve_friction` outside of traced code; `friction_host` solves what it cannot.
Entries: `solve_compiled`, `solve_batch`. Page: docs/methods/friction.md.
"""

from __future__ import annotations

import math
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from numba import njit

from jaxcontact.batching.all_cores import num_cores
from jaxcontact.solvers.friction_sweeps import respond, search_compiled

EPS = float(np.finfo(float).eps)
GOAL = 64.0 * EPS  # merit of scaled equations at which the search ends
SMALLEST_FRICTION = 4.0 * EPS  # smaller friction is none
PARTS_PER_CORE = 4  # of a batch
COMPILED_ROWS = 200  # larger problems are sparse more often than not, and `friction_host` makes use of that


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
def natural_residual(q, mu, dim, mobility, r, u):  # type: ignore[no-untyped-def]
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
    steps, _ = search_compiled(scaled, rate, friction, dim, r, GOAL)
    for i in range(n):
        r[i] *= unit / velocity[i]
    respond(W, q, r, u)
    return steps, natural_residual(q, mu, dim, mobility, r, u)


@njit(cache=True, nogil=True, error_model="numpy")
def solve_each(W, q, mu, dim, r, u, steps, residuals):  # type: ignore[no-untyped-def]
    """Do `solve_compiled` for each problem of a batch, in place."""
    for k in range(q.shape[0]):
        steps[k], residuals[k] = solve_compiled(W[k], q[k], mu[k], dim, r[k], u[k])


def solve_batch(
    W: np.ndarray, q: np.ndarray, mu: np.ndarray, dim: int, r: np.ndarray, u: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Do `solve_compiled` for each problem of a batch, on all cores; return iterations and residuals."""
    steps, residuals = np.empty(len(q), np.int64), np.empty(len(q))
    parts = min(len(q), PARTS_PER_CORE * num_cores())
    bounds = np.linspace(0, len(q), parts + 1).astype(int)
    with ThreadPoolExecutor(num_cores()) as threads:
        list(
            threads.map(
                lambda a, b: solve_each(
                    W[a:b], q[a:b], mu[a:b], dim, r[a:b], u[a:b], steps[a:b], residuals[a:b]
                ),
                bounds[:-1],
                bounds[1:],
            )
        )
    return steps, residuals
