"""Friction problems of NumPy arrays in double precision, one or a batch: `solve_dense`.

Decides if `friction_code` can solve them, and splits a batch over the cores; a problem that it cannot solve
is left to the search on the host.
"""

from __future__ import annotations

import _thread
from collections import deque
from collections.abc import Callable
from time import perf_counter
from types import ModuleType
from typing import NamedTuple

import numpy as np

from jaxcontact import tolerances
from jaxcontact._pytree import PyTree
from jaxcontact.batching.all_cores import num_cores
from jaxcontact.solvers.friction_arguments import Matrix
from jaxcontact.solvers.machine_code import load_machine_code

DOUBLE = np.dtype(float)
PARTS_PER_CORE = 8  # of a batch
THREAD_SECONDS = 2e-4  # of the parts after the first; threads gain less on a shorter batch than they cost
COMPILED_ROWS = 200  # larger problems are sparse more often than not, and `friction_host` makes use of that
TOLERANCE = tolerances.rounding(float, tolerances.RESIDUAL)


class DenseAnswer(NamedTuple):
    """Impulses and velocities as q; iterations and residual, numbers or one of each problem."""

    r: np.ndarray
    u: np.ndarray
    steps: PyTree
    residual: PyTree

    @property
    def is_solved(self) -> bool:
        """Tell if all problems are solved."""
        return bool(np.all(self.residual <= TOLERANCE) if self.r.ndim > 1 else self.residual <= TOLERANCE)


def solve_dense(W: Matrix, q: PyTree, mu: PyTree, dim: int, start: PyTree) -> DenseAnswer | None:
    """Solve Coulomb's law in machine code; None if arguments are of another kind, or out of range.

    A residual that is not small says that a problem was not solved, or has numbers that are not finite.
    """
    if type(W) is not np.ndarray or type(q) is not np.ndarray or W.dtype != DOUBLE or q.dtype != DOUBLE:
        return None
    shape = q.shape
    n = shape[-1] if shape else 0
    if not 0 < n <= COMPILED_ROWS or dim not in (2, 3) or n % dim or len(shape) > 2:
        return None
    if W.shape not in ((*shape, n), (n, n)):
        return None
    code = load_machine_code("friction_code")
    contacts = (*shape[:-1], n // dim)
    fits = type(mu) is np.ndarray and mu.dtype == DOUBLE and mu.shape == contacts and mu.flags.carray
    friction = mu if fits else _filled(mu, contacts)
    r = np.zeros(shape) if start is None else _filled(start, shape)
    if code is None or friction is None or r is None or not len(q):
        return None
    # Machine code is compiled for arrays in C order that may be written to, and for these alone.
    W, q = W if W.flags.carray else W.copy(order="C"), q if q.flags.carray else q.copy(order="C")
    u = np.empty(shape)
    if len(shape) == 1:
        return DenseAnswer(r, u, *code.solve_compiled(W, q, friction, dim, r, u))
    matrices = W if W.ndim == 3 else W[None]
    return DenseAnswer(r, u, *_solve_on_all_cores(code, matrices, q, friction, dim, r, u))


def _solve_on_all_cores(
    code: ModuleType, W: np.ndarray, q: np.ndarray, mu: np.ndarray, dim: int, r: np.ndarray, u: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Solve the problems of a batch in place, with a W each or one for all; return iterations and residuals.

    Threads are started if the time of the first part says that they gain more than they cost.
    """
    steps, residuals = np.empty(len(q), np.int64), np.empty(len(q))
    cores = num_cores()
    size = max(-(-len(q) // (PARTS_PER_CORE * cores)), 1)
    parts = deque(slice(a, a + size) for a in range(0, len(q), size))

    def solve_parts(count: int) -> None:
        for _ in range(count):
            try:
                part = parts.popleft()
            except IndexError:  # the other threads took the last one
                return
            matrices = W[part] if len(W) > 1 else W
            code.solve_each(matrices, q[part], mu[part], dim, r[part], u[part], steps[part], residuals[part])

    began = perf_counter()
    solve_parts(1)
    gains = (perf_counter() - began) * len(parts) > THREAD_SECONDS
    ends = [_start_thread(solve_parts, len(parts)) for _ in range(cores - 1) if gains]
    solve_parts(len(parts))
    for end in ends:
        end.acquire()
    return steps, residuals


def _start_thread(function: Callable[[int], None], count: int) -> _thread.LockType:
    """Start a thread; return a lock that its end frees. `Thread.start` waits for the first step."""
    end = _thread.allocate_lock()
    end.acquire()

    def run() -> None:
        try:
            function(count)
        finally:
            end.release()

    _thread.start_new_thread(run, ())
    return end


def _filled(value: PyTree, shape: tuple[int, ...]) -> np.ndarray | None:
    """Copy numbers to an array of a shape; None if they do not fit."""
    if type(value) in (int, float):
        return np.full(shape, float(value))
    array = np.empty(shape)
    try:
        array[...] = value
    except (TypeError, ValueError):
        return None
    return array if np.shape(value)[-1:] in ((), shape[-1:]) else None
