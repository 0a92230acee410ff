"""Throughput of the LCP solver on random impacts, beside NumPy and drake's Moby solver.

Moby and NumPy use one core; "core us" is the CPU time of all threads per LCP, which compares core with core.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import jaxcontact as jc
from benchmarks.numpy_lemke import lemke
from benchmarks.runner import Case

BATCH = 1024


def _problems(num_contacts: int) -> tuple[np.ndarray, np.ndarray]:
    """Random impact LCPs (Anitescu & Potra) of 4 num_contacts unknowns; mu from 0.1 to 1."""
    rng = np.random.default_rng(num_contacts)
    m = num_contacts
    matrices, sources = [], []
    for _ in range(BATCH):
        nv = 3 * max(1, m // 2)
        root = rng.normal(size=(nv, nv))
        mass = root @ root.T + np.eye(nv)
        normal, tangent = rng.normal(size=(2, m, nv))
        fan = np.stack([tangent, -tangent], axis=1).reshape(2 * m, nv)
        jacobian = np.vstack([normal, fan])
        ones = np.kron(np.eye(m), np.ones((2, 1)))
        zero = np.zeros((m, m))
        law = np.block(
            [
                [jacobian @ np.linalg.solve(mass, jacobian.T), np.vstack([zero, ones])],
                [np.diag(rng.uniform(0.1, 1.0, m)), -ones.T, zero],
            ]
        )
        matrices.append(law)
        sources.append(np.concatenate([jacobian @ rng.normal(size=nv), np.zeros(m)]))
    return np.stack(matrices), np.stack(sources)


def _worst(W: np.ndarray, w: np.ndarray, z: np.ndarray) -> dict[str, Any]:
    residual = np.max(np.abs(np.minimum(z, np.einsum("bij,bj->bi", W, z) + w)), axis=1)
    good = residual < 1e-6
    return {"solved %": 100 * float(np.mean(good)), "worst residual": float(np.max(residual[good]))}


def _ours(num_contacts: int) -> Callable[[], dict[str, Any]]:
    W, w = _problems(num_contacts)
    batch = jnp.asarray(W), jnp.asarray(w)
    solve = jax.jit(jax.vmap(jc.solve_lcp))

    def run() -> dict[str, Any]:
        begin = time.process_time()
        z, info = jax.block_until_ready(solve(*batch))
        spent = time.process_time() - begin
        return _worst(W, w, np.asarray(z)) | {
            "status 0 %": 100 * float(np.mean(np.asarray(info.status) == 0)),
            "core us": spent / BATCH * 1e6,
        }

    return run


def _numpy(num_contacts: int) -> Callable[[], dict[str, Any]]:
    W, w = _problems(num_contacts)

    def run() -> dict[str, Any]:
        z = [lemke(a, b) for a, b in zip(W, w, strict=True)]
        return _worst(W, w, np.stack([np.full(w.shape[1], np.inf) if x is None else x for x in z]))

    return run


def _moby(num_contacts: int) -> Callable[[], dict[str, Any]]:
    from pydrake.solvers import MathematicalProgram, MobyLcpSolver

    W, w = _problems(num_contacts)
    solver = MobyLcpSolver()
    programs = []
    for matrix, source in zip(W, w, strict=True):
        program = MathematicalProgram()
        unknowns = program.NewContinuousVariables(source.size)
        program.AddLinearComplementarityConstraint(matrix, source, unknowns)
        programs.append((program, unknowns))

    def run() -> dict[str, Any]:
        z = [solver.Solve(program).GetSolution(unknowns) for program, unknowns in programs]
        return _worst(W, w, np.stack(z))

    return run


PEERS = {"jaxcontact batch 1024": _ours, "drake Moby one by one": _moby, "NumPy one by one": _numpy}
CASES = [
    Case(name=f"lcp n={4 * m} {peer}", items=BATCH, setup=functools.partial(setup, m), repeats=5)
    for m in (3, 6, 12)
    for peer, setup in PEERS.items()
]
