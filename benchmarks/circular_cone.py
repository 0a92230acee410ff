"""Steps of an impact with the circular friction cone, in NumPy: what polygons are judged by.

Block Gauss-Seidel over the contacts finds one solution of a step, from no impulse on.
"""

from __future__ import annotations

import numpy as np

import jaxcontact as jc

SWEEPS, SMALL = 20_000, 1e-10  # of a step; change of impulse at which it has converged, relative
SLOW = 1e-8  # of the fastest approach before: what no longer counts as approach


def outcomes(terms: jc.ContactTerms, v: np.ndarray, caps: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Velocities (n, nv) after impacts with caps (n, N, nc), and (n,) whether all steps converged."""
    rows, response, delassus = _matrices(terms)
    mu = np.asarray(terms.mu)
    lanes, nc = len(caps), len(mu)
    u = np.tile((rows @ v).reshape(1, nc, 3), (lanes, 1, 1))
    slowest = SLOW * np.max(-u[0, :, 0])
    total, good = np.zeros_like(u), np.ones(lanes, bool)
    for cap in np.moveaxis(caps, 1, 0):
        live = np.flatnonzero((u[:, :, 0] < -slowest).any(axis=1))
        if not live.size:
            break
        impulse, converged = _step(delassus, mu, u[live], cap[live])
        u[live] += np.einsum("aibj,nbj->nai", delassus, impulse)
        total[live] += impulse
        good[live] &= converged
    good &= ~(u[:, :, 0] < -slowest).any(axis=1)
    return v + total.reshape(lanes, -1) @ response.T, good


def _matrices(terms: jc.ContactTerms) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Contact rows (3 nc, nv), M^-1 J^T, and J M^-1 J^T by contacts (nc, 3, nc, 3)."""
    J = np.concatenate([np.asarray(terms.J_n)[:, None], np.asarray(terms.J_t)], axis=1)
    rows = J.reshape(-1, J.shape[-1])
    response = np.linalg.solve(np.asarray(terms.M), rows.T)
    return rows, response, (rows @ response).reshape(len(J), 3, len(J), 3)


def _step(
    delassus: np.ndarray, mu: np.ndarray, u: np.ndarray, cap: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Impulses (n, nc, 3) of one step from u (n, nc, 3), and which have converged (n,)."""
    impulse, left = np.zeros_like(u), np.arange(len(u))
    size = np.abs(cap).max(axis=1)
    for _ in range(SWEEPS):
        now = impulse[left]
        after = u[left] + np.einsum("aibj,nbj->nai", delassus, now)
        old = now.copy()
        for c in range(len(mu)):
            own = delassus[c, :, c]
            before = now[:, c].copy()
            now[:, c, 0] = np.clip(before[:, 0] - after[:, c, 0] / own[0, 0], 0.0, cap[left, c])
            stiff = np.linalg.eigvalsh(own[1:, 1:])[-1]
            coupled = after[:, c, 1:] + (now[:, c, :1] - before[:, :1]) * own[1:, 0]
            pull = before[:, 1:] - coupled / stiff
            length = np.linalg.norm(pull, axis=1)
            most = mu[c] * now[:, c, 0]
            now[:, c, 1:] = pull * np.minimum(1.0, most / np.maximum(length, 1e-300))[:, None]
            after += np.einsum("aij,nj->nai", delassus[:, :, c], now[:, c] - before)
        impulse[left] = now
        moved = np.abs(now - old).max(axis=(1, 2)) > SMALL * size[left]
        left = left[moved]
        if not left.size:
            break
    return impulse, ~np.isin(np.arange(len(u)), left)
