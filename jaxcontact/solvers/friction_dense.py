"""Friction problems of NumPy arrays in double precision, one or a batch: `solve_dense`.

Decides if `friction_compiled` can solve them; a problem that it cannot is left to the search on the host.
"""

from __future__ import annotations

import functools
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np

DOUBLE = np.dtype(float)
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
        from jaxcontact.solvers import friction_compiled
    except (ImportError, RuntimeError):
        return None
    return friction_compiled


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
    if code is None or n > code.COMPILED_ROWS:
        return None
    friction = _filled(mu, (*q.shape[:-1], n // dim))
    r = np.zeros(q.shape) if start is None else _filled(start, q.shape)
    if friction is None or r is None:
        return None
    u, solve = np.empty(q.shape), code.solve_compiled if q.ndim == 1 else code.solve_batch
    steps, residual = solve(_writable(W), _writable(q), friction, dim, r, u)
    if q.ndim == 1:
        return DenseAnswer(r, u, 0, steps, np.float64(residual), residual <= TOLERANCE)
    return DenseAnswer(r, u, np.zeros_like(steps), steps, residual, bool(np.all(residual <= TOLERANCE)))


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
