"""Checks of `solve_lcp`: random problems of several kinds, in any unit, all bases by hand."""

from __future__ import annotations

import itertools

import jax.numpy as jnp
import numpy as np

import jaxcontact as jc
from benchmarks.fuzz.rounds import DTYPES, compiled
from benchmarks.fuzz.tally import Tally

SIZE, N = 128, 6
RESIDUAL = {np.float32: 1e-3, np.float64: 1e-8}
SETS = np.array(list(itertools.product([False, True], repeat=N)))


def _matrix(rng: np.random.Generator) -> np.ndarray:
    """Positive definite, not symmetric, semidefinite with repeated rows, or with a corner of zeros."""
    kind = rng.choice(["definite", "skew", "repeated", "bordered"])
    half = rng.normal(size=(N, N))
    W = half @ half.T / N + 0.05 * np.eye(N)
    if kind == "skew":
        W = W + 0.5 * (half - half.T)
    elif kind == "repeated":
        rows = rng.integers(0, N // 2, N)
        W = W[rows][:, rows]
    elif kind == "bordered":  # as in friction: [[A, B], [-B^T, 0]]
        W[4:, 4:] = 0.0
        W[:4, 4:] = np.abs(half[:4, 4:])
        W[4:, :4] = -W[:4, 4:].T
    return W


def _by_hand(W: np.ndarray, w: np.ndarray) -> bool:
    """Whether any of the 2^N bases solves the problem."""
    A = np.where(SETS[:, None, :], -W[None], np.eye(N)[None])
    solid = np.abs(np.linalg.det(A)) > 1e-12
    x = np.linalg.solve(A[solid], np.broadcast_to(w, (int(solid.sum()), N))[..., None])[..., 0]
    return bool(np.any(np.all(x >= -1e-10, axis=1)))


def lcp(seed: int) -> Tally:
    """Complementarity of every answer in NumPy; where no basis solves a problem, no answer claims to."""
    rng = np.random.default_rng(seed)
    dtype = DTYPES[int(rng.integers(2))]
    bits = "f32" if dtype is np.float32 else "f64"
    tally = Tally()
    W = np.stack([_matrix(rng) for _ in range(SIZE)])
    z = np.where(rng.random((SIZE, N)) < 0.5, rng.random((SIZE, N)), 0.0)
    y = np.where((z == 0) & (rng.random((SIZE, N)) < 0.8), rng.random((SIZE, N)), 0.0)
    solvable = rng.random((SIZE, 1)) < 0.8
    w = np.where(solvable, y - np.einsum("bij,bj->bi", W, z), rng.normal(size=(SIZE, N)))
    spread = 3.0 if rng.random() < 0.5 else 0.0
    rows, columns = 10.0 ** rng.uniform(-spread, spread, (2, SIZE, N))
    unit = 10.0 ** rng.uniform(-6, 6, (SIZE, 1))
    given = rows[..., None] * W * columns[:, None], rows * w * unit
    given = tuple(np.asarray(np.asarray(a, dtype), float) for a in given)
    found, info = compiled(jc.solve_lcp)(*(jnp.asarray(a, dtype) for a in given))
    good = tally.count(info.status)
    spoilt = rng.random(SIZE) < 0.1
    bad = given[0], np.where(spoilt[:, None], rng.choice([np.nan, np.inf]), given[1])
    other, told = compiled(jc.solve_lcp)(*(jnp.asarray(a, dtype) for a in bad))
    tally.poisoned(spoilt, told.status, other, found)
    # Back in the units in which the problem was drawn, but with the numbers as they were rounded.
    W, w = given[0] / rows[..., None] / columns[:, None], given[1] / rows / unit
    z = np.asarray(found, float) / unit * columns
    y = np.einsum("bij,bj->bi", W, z) + w
    size = np.max(np.abs(w), axis=1) + np.max(np.abs(z), axis=1)
    off = np.max(np.abs(np.minimum(z, y)), axis=1) / (size + 1e-300)
    tally.judge(f"complementarity {bits}", off, RESIDUAL[dtype], good)
    if dtype is np.float64:
        for k in np.flatnonzero(good)[:16]:
            tally.judge("no basis solves it", float(not _by_hand(W[k], w[k])), 0.5, note=f"problem {k}")
    return tally
