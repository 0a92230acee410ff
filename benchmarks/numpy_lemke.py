"""A plain NumPy Lemke's method, one problem at a time: what a script would use. A peer, not a product."""

from __future__ import annotations

import numpy as np


def lemke(W: np.ndarray, w: np.ndarray, max_pivots: int = 1000) -> np.ndarray | None:
    """A solution z of 0 <= z perp W z + w >= 0, or None; ties are broken lexicographically."""
    n = w.size
    if np.all(w >= 0):
        return np.zeros(n)
    # I s = W z + 1 z0 + w: columns s, z, z0, right-hand side
    table = np.hstack([np.eye(n), -W, -np.ones((n, 1)), w[:, None]])
    basis = np.arange(n)
    row, entering = int(np.argmin(w)), 2 * n
    for _ in range(max_pivots):
        leaving = basis[row]
        table[row] /= table[row, entering]
        others = np.arange(n) != row
        table[others] -= table[others, entering][:, None] * table[row]
        basis[row] = entering
        if leaving == 2 * n:
            z = np.zeros(2 * n + 1)
            z[basis] = table[:, -1]
            return z[n : 2 * n]
        entering = (leaving + n) % (2 * n)
        column = table[:, entering]
        rows = np.flatnonzero(column > 1e-10)
        if rows.size == 0:
            return None
        for key in (-1, *range(n)):
            ratio = table[rows, key] / column[rows]
            rows = rows[ratio <= ratio.min() + 1e-12]
            if rows.size == 1:
                break
        artificial = rows[basis[rows] == 2 * n]
        row = int(artificial[0] if artificial.size else rows[0])
    return None
