"""Every solution of a step by brute force over the contact modes, an oracle beside the library's searches.

A contact lifts, or is held or at its cap while it sticks, slides against a corner of its friction polygon or
against an edge. Contacts are eliminated one by one; the last one is checked first.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

TOLERANCE = 1e-8  # of inequalities, relative to the largest speed or impulse
SINGULAR = 1e-10  # determinant of a contact's equations, relative to its rows, below which a mode is left out
MOST = 4096  # solutions that are listed


def mode_rows(mu: float, cap: float, fan: np.ndarray) -> tuple[np.ndarray, ...]:
    """List the modes of a contact as equations of (u, lam): on_u (modes, 3, 3), on_lam, right (modes, 3)."""
    none, unit = np.zeros((3, 3)), np.eye(3)
    on_u, on_lam, right = [none], [unit], [np.zeros(3)]
    sides = len(fan)
    for is_capped in (False, True):
        for kind in range(2 * sides + 1):
            u, lam, value = none.copy(), none.copy(), np.zeros(3)
            if is_capped:
                lam[0, 0], value[0] = 1.0, cap
            else:
                u[0, 0] = 1.0
            if kind == 2 * sides:  # sticks
                u[1:, 1:] = np.eye(2)
            elif kind < sides:  # friction at a corner
                lam[1:, 1:], lam[1:, 0] = np.eye(2), -mu * fan[kind]
            else:  # friction on the edge between two corners, slip across it
                first, second = fan[kind - sides], fan[(kind - sides + 1) % sides]
                along = second - first
                across = np.array([along[1], -along[0]])
                u[1, 1:], lam[2, 1:], lam[2, 0] = along, across, -mu * (across @ first)
            on_u.append(u)
            on_lam.append(lam)
            right.append(value)
    return np.array(on_u), np.array(on_lam), np.array(right)


def compile_search(jit: Callable[..., Any]) -> Callable[..., Any]:
    """Make the search, as machine code by `numba.njit` or, for small problems, by the identity."""

    @jit
    def is_allowed(mode: int, u: Any, lam: Any, mu: float, cap: float, fan: Any, unit: Any) -> bool:
        speed, impulse = TOLERANCE * unit[0], TOLERANCE * unit[1]
        sides = len(fan)
        if mode == 0:
            return bool(u[0] >= -speed)
        is_capped, kind = divmod(mode - 1, 2 * sides + 1)
        if is_capped == 1:
            if u[0] > speed:
                return False
        elif lam[0] < -impulse or lam[0] > cap + impulse:
            return False
        if kind == 2 * sides:
            for d in range(sides):
                middle = fan[d] + fan[(d + 1) % sides]
                if middle[0] * lam[1] + middle[1] * lam[2] > mu * lam[0] * (middle @ fan[d]) + impulse:
                    return False
            return True
        corner = kind if kind < sides else kind - sides
        slip = fan[corner, 0] * u[1] + fan[corner, 1] * u[2]
        for d in range(sides):
            if slip > fan[d, 0] * u[1] + fan[d, 1] * u[2] + speed:
                return False
        if kind >= sides:
            along = fan[(corner + 1) % sides] - fan[corner]
            part = (along[0] * (lam[1] - mu * lam[0] * fan[corner, 0])) + (
                along[1] * (lam[2] - mu * lam[0] * fan[corner, 1])
            )
            return bool(-impulse <= part <= mu * lam[0] * (along @ along) + impulse)
        return True

    @jit
    def solve3(m: Any, rows: Any, width: int, out: Any) -> bool:
        """Solve m x = rows (3, width) by the adjugate; False if m is singular."""
        c00 = m[1, 1] * m[2, 2] - m[1, 2] * m[2, 1]
        c01 = m[1, 2] * m[2, 0] - m[1, 0] * m[2, 2]
        c02 = m[1, 0] * m[2, 1] - m[1, 1] * m[2, 0]
        det = m[0, 0] * c00 + m[0, 1] * c01 + m[0, 2] * c02
        square = 1.0
        for r in range(3):
            square *= m[r, 0] ** 2 + m[r, 1] ** 2 + m[r, 2] ** 2
        if det * det <= SINGULAR * SINGULAR * square:
            return False
        c10 = m[0, 2] * m[2, 1] - m[0, 1] * m[2, 2]
        c11 = m[0, 0] * m[2, 2] - m[0, 2] * m[2, 0]
        c12 = m[0, 1] * m[2, 0] - m[0, 0] * m[2, 1]
        c20 = m[0, 1] * m[1, 2] - m[0, 2] * m[1, 1]
        c21 = m[0, 2] * m[1, 0] - m[0, 0] * m[1, 2]
        c22 = m[0, 0] * m[1, 1] - m[0, 1] * m[1, 0]
        for k in range(width):
            x, y, z = rows[0, k], rows[1, k], rows[2, k]
            out[0, k] = (c00 * x + c10 * y + c20 * z) / det
            out[1, k] = (c01 * x + c11 * y + c21 * z) / det
            out[2, k] = (c02 * x + c12 * y + c22 * z) / det
        return True

    @jit
    def search(delassus: Any, rates: Any, on_u: Any, on_lam: Any, right: Any, mu: Any, cap: Any, fan: Any,
               unit: Any) -> tuple[int, int, Any]:  # fmt: skip
        count, modes = len(mu), on_u.shape[1]
        size = 3 * count
        # systems[i]: u = A lam + c of contacts i, i + 1, ... after those before are eliminated; c is last
        systems = np.zeros((count + 1, size, size + 1))
        systems[0, :, :size], systems[0, :, size] = delassus, rates
        laws = np.zeros((count, 3, size + 1))  # lam_i = laws @ (lam of later contacts, 1)
        mode = np.full(count, -1)
        lam, found = np.zeros(size), np.zeros((MOST, size))
        m, rows, u = np.zeros((3, 3)), np.zeros((3, size + 1)), np.zeros(3)
        number, singular, i = 0, 0, 0
        while i >= 0:
            mode[i] += 1
            if mode[i] == modes:
                mode[i] = -1
                i -= 1
                continue
            k = mode[i]
            rest = size - 3 * (i + 1)
            a = systems[i]
            for r in range(3):
                for c in range(rest + 4):
                    value = 0.0
                    for t in range(3):
                        value += on_u[i, k, r, t] * a[t, c]
                    if c < 3:
                        m[r, c] = value + on_lam[i, k, r, c]
                    else:
                        rows[r, c - 3] = -value
                rows[r, rest] += right[i, k, r]
            if not solve3(m, rows, rest + 1, laws[i]):
                singular += 1
                continue
            if i < count - 1:
                b = systems[i + 1]
                for r in range(rest):
                    for c in range(rest + 1):
                        value = a[3 + r, 3 + c]
                        for t in range(3):
                            value += a[3 + r, t] * laws[i, t, c]
                        b[r, c] = value
                i += 1
                continue
            fits = True
            for j in range(count - 1, -1, -1):
                later = size - 3 * (j + 1)
                for t in range(3):
                    value = laws[j, t, later]
                    for c in range(later):
                        value += laws[j, t, c] * lam[3 * (j + 1) + c]
                    lam[3 * j + t] = value
                for t in range(3):
                    value = systems[j, t, 3 + later]
                    for c in range(3 + later):
                        value += systems[j, t, c] * lam[3 * j + c]
                    u[t] = value
                if not is_allowed(mode[j], u, lam[3 * j : 3 * j + 3], mu[j], cap[j], fan, unit):
                    fits = False
                    break
            if fits and number < MOST:
                found[number] = lam
                number += 1
        return number, singular, found[:number]

    return search


def all_solutions(
    J: np.ndarray, M: np.ndarray, v: np.ndarray, mu: np.ndarray, caps: np.ndarray, fan: np.ndarray,
    search: Callable[..., Any],
) -> tuple[np.ndarray, int]:  # fmt: skip
    """List distinct velocities (k, nv) after a step, contact rows J (nc, 3, nv); and the modes left out."""
    rows = J.reshape(-1, len(v))
    response = np.linalg.solve(M, rows.T)
    scale = 1.0 / np.sqrt(
        np.maximum(np.einsum("ij,ji->i", rows, response).reshape(-1, 3).max(axis=1), 1e-300)
    )
    rows = rows * np.repeat(scale, 3)[:, None]  # a contact's rows have the size 1 in the kinetic metric
    response = np.linalg.solve(M, rows.T)
    equations = [mode_rows(*pair, fan) for pair in zip(mu, caps / scale, strict=True)]
    on_u, on_lam, right = (np.array(each) for each in zip(*equations, strict=True))
    speed = math.sqrt(v @ M @ v)
    _, singular, impulses = search(
        rows @ response, rows @ v, on_u, on_lam, right, mu, caps / scale, fan, np.array([speed, speed])
    )
    ends = v + impulses @ response.T
    size = np.abs(ends).max(initial=0.0) + np.abs(v).max()
    kept: list[np.ndarray] = []
    for end in ends:
        if not kept or np.min(np.abs(np.array(kept) - end).max(axis=1)) > 1e-6 * size:
            kept.append(end)
    return np.array(kept).reshape(-1, len(v)), singular
