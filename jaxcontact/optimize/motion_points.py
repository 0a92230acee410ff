"""Residuals of motions at a point of a search, and what follows from them: `MotionPoint`.

The numbers of a motion enter its own residuals alone, so that normal equations lose them motion by motion.
Page: docs/start/which-call.md.
"""

from __future__ import annotations

import dataclasses

import numpy as np


@dataclasses.dataclass
class MotionPoint:
    """Parameters (p,), numbers per motion (m, k), residuals (m, r), derivatives (m, r, p) and (m, r, k)."""

    x: np.ndarray
    per_motion: np.ndarray
    values: np.ndarray
    by_params: np.ndarray
    by_motion: np.ndarray

    @property
    def cost(self) -> float:
        """Compute half the sum of squares; infinite if a number is not finite."""
        numbers = (self.values, self.by_params, self.by_motion)
        return 0.5 * float(np.sum(self.values**2)) if all(np.all(np.isfinite(n)) for n in numbers) else np.inf


def covariance_of(point: MotionPoint, free: np.ndarray) -> np.ndarray:
    """Return Huber's covariance (p, p) of the free parameters, 0 for the others; NaN if there is none."""
    if not np.isfinite(point.cost):
        return np.full((point.x.size, point.x.size), np.nan)
    schur, _, mixed, per_motion = eliminate_motions(point, 0.0)
    gains = np.linalg.solve(per_motion, np.swapaxes(mixed, 1, 2))
    rates = point.by_params - np.einsum("mrk,mkp->mrp", point.by_motion, gains)
    pulls = np.einsum("mrp,mr->mp", rates, point.values)[:, free]
    total, part = np.zeros_like(schur), schur[np.ix_(free, free)]
    root = np.sqrt(np.maximum(np.diag(part), np.finfo(float).tiny))
    if free.any() and np.linalg.cond(part / np.outer(root, root)) < 1e10:
        inverse = np.linalg.inv(part)
        total[np.ix_(free, free)] = inverse @ (pulls.T @ pulls) @ inverse
    elif free.any():
        total[np.ix_(free, free)] = np.nan
    return total


def mark_used(point: MotionPoint) -> np.ndarray:
    """Mark the residuals (m, r) that are not zero or depend on the numbers of their motion."""
    return np.asarray(np.any(point.by_motion != 0.0, axis=-1) | (point.values != 0.0))


def gradient_of(point: MotionPoint) -> tuple[np.ndarray, np.ndarray]:
    """Compute the gradient of the cost by parameters (p,) and by the numbers of each motion (m, k)."""
    by_params = np.einsum("mrp,mr->p", point.by_params, point.values)
    return by_params, np.einsum("mrk,mr->mk", point.by_motion, point.values)


def eliminate_motions(
    point: MotionPoint, damping: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Eliminate numbers of motions; return matrix (p, p), gradient (p,), blocks (m, p, k) and (m, k, k)."""
    shared = np.einsum("mrp,mrq->pq", point.by_params, point.by_params)
    mixed = np.einsum("mrp,mrk->mpk", point.by_params, point.by_motion)
    per_motion = np.einsum("mrk,mrl->mkl", point.by_motion, point.by_motion)
    shared += np.diag(damping * np.diag(shared))
    scale = np.einsum("mkk->mk", per_motion)
    largest = scale.max(axis=1, keepdims=True)  # of a motion, 0 where its numbers have no effect
    floor = np.where(largest > 0.0, 1e-12 * largest, 1.0)
    per_motion += np.eye(per_motion.shape[1]) * (damping * scale + floor)[:, None, :]
    by_params, by_motion = gradient_of(point)
    gains = np.linalg.solve(
        per_motion, np.concatenate([np.swapaxes(mixed, 1, 2), by_motion[..., None]], axis=2)
    )
    return (
        shared - np.einsum("mpk,mkq->pq", mixed, gains[..., :-1]),
        by_params - np.einsum("mpk,mk->p", mixed, gains[..., -1]),
        mixed,
        per_motion,
    )
