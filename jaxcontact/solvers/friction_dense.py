"""Friction problems of NumPy arrays in double precision, one or a batch: `solve_dense`.

Decides if `friction_sweeps` can solve them, and splits a batch over the cores; a problem that it cannot solve
is left to the search on the host.
"""

from __future__ import annotations

import functools
from concurrent.futures import ThreadPoolExecutor
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np

from jaxcontact.batching.all_cores import num_cores

DOUBLE = np.dtype(float)
PARTS_PER_CORE = 4  # of a batch
COMPILED_ROWS = 200  # larger problems are sparse more often than not, and `friction_host` makes use of that
TOLERANCE = float(np.finfo(float).eps) ** 0.6  # residual of a success, as `friction_search.success_tolerance`


class DenseAnswer(NamedTuple):
    """Impulses and velocities as q; status, iterations and residual, numbers or one of each problem."""

    r: np.ndarray
    u: np.ndarray
    status: Any
    steps: Any
    residual: Any
    is_solved: bool


@functools.lru_cache(maxsize=1)
def _machine_code() -> ModuleType | None:
    """Load the compiled functions; None without numba, or where it has no folder for what it compiles."""
    try:
        from jaxcontact.solvers import friction_sweeps
    except (ImportError, RuntimeError):
        return None
    return friction_sweeps


def solve_dense(W: Any, q: Any, mu: Any, dim: int, start: Any) -> DenseAnswer | None:
    """Solve Coulomb's law in machine code; None if arguments are of another kind, or out of range.

    A residual that is not small says that a problem was not solved, or has numbers that are not finite.
    """
    if type(W) is not np.ndarray or type(q) is not np.ndarray or W.dtype != DOUBLE or q.dtype != DOUBLE:
        return None
    n = q.shape[-1] if q.ndim else 0
    if dim not in (2, 3) or n % dim or W.shape != (*q.shape, n) or q.ndim > 2 or not q.size:
        return None
    code = _machine_code()
    if code is None or n > COMPILED_ROWS:
        return None
    friction = _filled(mu, (*q.shape[:-1], n // dim))
    r = np.zeros(q.shape) if start is None else _filled(start, q.shape)
    if friction is None or r is None:
        return None
    u, W, q = np.empty(q.shape), _writable(W), _writable(q)
    if q.ndim == 1:
        steps, residual = code.solve_compiled(W, q, friction, dim, r, u)
        return DenseAnswer(r, u, 0, steps, np.float64(residual), residual <= TOLERANCE)
    steps, residual = _solve_on_all_cores(code, W, q, friction, dim, r, u)
    return DenseAnswer(r, u, np.zeros_like(steps), steps, residual, bool(np.all(residual <= TOLERANCE)))


def _solve_on_all_cores(
    code: ModuleType, W: np.ndarray, q: np.ndarray, mu: np.ndarray, dim: int, r: np.ndarray, u: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Solve the problems of a batch in place; return iterations and residuals."""
    steps, residuals = np.empty(len(q), np.int64), np.empty(len(q))
    bounds = np.linspace(0, len(q), min(len(q), PARTS_PER_CORE * num_cores()) + 1).astype(int)

    def solve(a: int, b: int) -> None:
        code.solve_each(W[a:b], q[a:b], mu[a:b], dim, r[a:b], u[a:b], steps[a:b], residuals[a:b])

    with ThreadPoolExecutor(num_cores()) as threads:
        list(threads.map(solve, bounds[:-1], bounds[1:]))
    return steps, residuals


def _filled(value: Any, shape: tuple[int, ...]) -> np.ndarray | None:
    """Copy numbers to an array of a shape; None if they do not fit."""
    if type(value) in (int, float):
        return np.full(shape, float(value))
    array = np.empty(shape)
    try:
        array[...] = value
    except (TypeError, ValueError):
        return None
    return array if np.shape(value)[-1:] in ((), shape[-1:]) else None


def _writable(array: np.ndarray) -> np.ndarray:
    """Return an array in C order that may be written to: machine code is compiled for these alone."""
    array = np.ascontiguousarray(array)
    return array if array.flags.writeable else array.copy()
