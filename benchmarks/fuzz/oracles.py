"""Impact laws restated in plain NumPy, free of units; nothing here calls the library.

Rows are scaled by the apparent mass of each direction, so that impulses and velocities have one unit, the
square root of energy, and errors count relative to |v|_M.
"""

from __future__ import annotations

import functools
import itertools
from typing import NamedTuple

import numpy as np

from benchmarks.fuzz.problems import Batch

MODES = 4  # of a contact without a cap: open, sticking, sliding either way; with a cap three more
TOLERANCE = 1e-9  # of |v|_M, by which impulses and velocities of an outcome may leave their cones
CONDITION = 1e11  # of the equations of a mode above which it counts as singular


class Scaled(NamedTuple):
    """D (B, r, r), u (B, r), scale (B, r), mu (B, nc), speed |v|_M (B,) of a batch; rows contact-major."""

    D: np.ndarray
    u: np.ndarray
    scale: np.ndarray
    mu: np.ndarray
    speed: np.ndarray


def mass_norm(M: np.ndarray, v: np.ndarray) -> np.ndarray:
    """|v|_M (B,)."""
    return np.sqrt(np.maximum(np.einsum("...i,...ij,...j->...", v, M, v), 0.0))


def solve(M: np.ndarray, rhs: np.ndarray) -> np.ndarray:
    """M^-1 rhs (B, nv, k), with M scaled to a unit diagonal, for masses of any spread."""
    s = 1.0 / np.sqrt(np.einsum("...ii->...i", M))
    return s[..., None] * np.linalg.solve(M * s[..., None] * s[..., None, :], s[..., None] * rhs)


def scaled(batch: Batch) -> Scaled:
    """The contact space of a batch."""
    size, nc, axes, nv = batch.J.shape
    J = np.where(batch.active[:, :, None, None], batch.J, 0.0).reshape(size, -1, nv)
    D = J @ solve(batch.M, np.swapaxes(J, 1, 2))
    diagonal = np.einsum("bii->bi", D).reshape(size, nc, axes)
    diagonal = np.concatenate(
        [diagonal[..., :1], np.repeat(diagonal[..., 1:].mean(-1, keepdims=True), axes - 1, -1)], axis=-1
    ).reshape(size, -1)
    scale = np.where(diagonal > 0, 1.0 / np.sqrt(np.where(diagonal > 0, diagonal, 1.0)), 1.0)
    by_contact = scale.reshape(size, nc, axes)
    return Scaled(
        D=D * scale[:, :, None] * scale[:, None, :],
        u=np.einsum("bri,bi->br", J, batch.v) * scale,
        scale=scale,
        mu=batch.mu * by_contact[..., 0] / by_contact[..., 1],
        speed=mass_norm(batch.M, batch.v),
    )


def residuals(
    batch: Batch,
    v_plus: np.ndarray,
    impulse: np.ndarray,
    cap: np.ndarray | None = None,
    fan: np.ndarray | None = None,
) -> dict[str, np.ndarray]:
    """Violations (B,) of the law by v_plus (B, nv) and impulse (B, nc, 1 + nt) in N s, by name.

    Args:
        cap: (B, nc) largest normal impulse, N s.
        fan: (k, 2) unit friction directions, in space; None is the circular cone.
    """
    s = scaled(batch)
    size, nc, axes, _ = batch.J.shape
    lam = impulse / s.scale.reshape(size, nc, axes)
    flat = lam.reshape(size, -1)
    J = np.where(batch.active[:, :, None, None], batch.J, 0.0).reshape(size, -1, v_plus.shape[1])
    out = (np.einsum("bri,bi->br", J, v_plus) * s.scale).reshape(size, nc, axes)
    given = solve(batch.M, np.einsum("bri,br->bi", J, flat * s.scale)[..., None])[..., 0]
    speed = np.where(s.speed > 0, s.speed, 1.0)
    press = speed + np.abs(flat).max(axis=1)
    limit = s.mu * lam[..., 0]
    if fan is None:
        used, slip = (np.linalg.norm(part[..., 1:], axis=-1) for part in (lam, out))
    else:
        reach = np.cos(np.pi / len(fan))
        facets = (fan + np.roll(fan, -1, axis=0)) / (2.0 * reach)
        used = np.max(lam[..., 1:] @ facets.T, axis=-1) / reach
        slip = np.max(out[..., 1:] @ fan.T, axis=-1)  # the polygon's largest dissipation rate, symmetric
    most = np.inf if cap is None else cap / s.scale.reshape(size, nc, axes)[..., 0]
    normal = np.abs(lam[..., 0] - np.clip(lam[..., 0] - out[..., 0], 0.0, most))
    cone = np.maximum(used - limit, 0.0) / (np.abs(limit) + speed[:, None])
    lost = np.abs(np.sum(lam[..., 1:] * out[..., 1:], axis=-1) + limit * slip)
    # Round-off of a contact that sticks, times what friction could do, is no dissipation.
    lost = lost / (speed[:, None] * (press[:, None] + np.abs(limit)))
    worst = {
        "normal": np.max(np.where(batch.active, normal, 0.0), axis=1) / speed,
        "cone": np.max(np.where(batch.active, cone, 0.0), axis=1),
        "dissipation": np.max(np.where(batch.active, lost, 0.0), axis=1),
        "momentum": mass_norm(batch.M, v_plus - batch.v - given) / press,
    }
    return worst | {"energy": energy_gain(batch, v_plus)}


def energy_gain(batch: Batch, v_plus: np.ndarray) -> np.ndarray:
    """Kinetic energy gained (B,), relative to that before."""
    before = mass_norm(batch.M, batch.v)
    after = mass_norm(batch.M, v_plus)
    return np.where(before > 0, (after / np.where(before > 0, before, 1.0)) ** 2 - 1.0, after)


@functools.cache
def _codes(nc: int, kinds: int) -> np.ndarray:
    return np.array(list(itertools.product(range(kinds), repeat=nc)))


def outcomes(
    batch: Batch, cap: np.ndarray | None = None, tolerance: float = TOLERANCE
) -> tuple[np.ndarray, np.ndarray]:
    """Every outcome of a planar law by brute force over contact modes: v_plus (B, K, nv), valid (B, K).

    Modes per contact: open; at rest or, with a cap (N s), at the cap, each sticking or sliding either way.
    Singular modes are left out, so of a continuum of outcomes only corners are there. Impulses and velocities
    may leave their cones by `tolerance` |v|_M: with friction of 1e6, that much allows friction without load.
    """
    s = scaled(batch)
    size, nc, axes, nv = batch.J.shape
    assert axes == 2
    codes = _codes(nc, 4 if cap is None else 7)  # (K, nc)
    normal = np.arange(nc) * 2
    count = len(codes)
    A = np.zeros((size, count, 2 * nc, 2 * nc))
    rhs = np.zeros((size, count, 2 * nc))
    eye = np.eye(2 * nc)
    open_ = codes == 0
    slide = np.where(open_, 0.0, np.array([-1.0, 0.0, 1.0])[codes % 3])
    capped = codes >= 4
    sticks = ~open_ & (slide == 0)
    most = np.zeros((size, nc)) if cap is None else cap / s.scale[:, ::2]
    ray = 1.0 / np.sqrt(1.0 + s.mu**2)
    for i in range(nc):
        n, t = normal[i], normal[i] + 1
        rests = ~open_[:, i] & ~capped[:, i]
        A[:, :, n] = np.where(rests[None, :, None], s.D[:, None, n], eye[n])
        rhs[:, :, n] = np.where(rests, -s.u[:, None, n], np.where(capped[:, i], most[:, None, i], 0.0))
        cone = eye[t] + slide[None, :, i, None] * s.mu[:, None, i, None] * eye[n]
        row = np.where(sticks[None, :, i, None], s.D[:, None, t], cone * ray[:, None, i, None])
        A[:, :, t] = np.where(open_[None, :, i, None], eye[t], row)
        rhs[:, :, t] = np.where(sticks[:, i], -s.u[:, None, t], 0.0)
    used = np.all(batch.active[:, None] | open_[None], axis=2)
    lam, regular = _solved(A, rhs, used)
    out = s.u[:, None] + np.einsum("brs,bks->bkr", s.D, lam)
    lam_n, lam_t = lam[..., ::2], lam[..., 1::2]
    out_n, out_t = out[..., ::2], out[..., 1::2]
    tol = tolerance * (s.speed[:, None, None] + np.abs(lam).max(axis=2, keepdims=True) * 1e-3)
    cone = (s.mu[:, None] * lam_n - np.abs(lam_t)) * ray[:, None]
    good = (lam_n >= -tol) & (cone >= -tol) & (slide * out_t >= -tol)
    good &= np.where(capped, out_n <= tol, out_n >= -tol)
    if cap is not None:
        good &= lam_n <= most[:, None] + tol
    good |= ~batch.active[:, None]
    force = np.einsum("bri,bkr->bki", batch.J.reshape(size, 2 * nc, nv), lam * s.scale[:, None])
    v_plus = batch.v[:, None] + np.swapaxes(solve(batch.M, np.swapaxes(force, 1, 2)), 1, 2)
    return v_plus, regular & np.all(good, axis=2)


def _solved(A: np.ndarray, rhs: np.ndarray, used: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Solutions of stacked equations, and which of those `used` are regular."""
    n = A.shape[-1]
    rows = np.abs(A).max(axis=-1, keepdims=True)
    rows[rows == 0] = 1.0
    A, rhs = A / rows, rhs / rows[..., 0]
    solid = used & (np.abs(np.linalg.det(A)) > 1e-30)
    A = np.where(solid[..., None, None], A, np.eye(n))
    inverse = np.linalg.inv(A)
    condition = np.abs(A).sum(-1).max(-1) * np.abs(inverse).sum(-1).max(-1)
    x = np.einsum("...ij,...j->...i", inverse, rhs)
    x = x + np.einsum("...ij,...j->...i", inverse, rhs - np.einsum("...ij,...j->...i", A, x))
    return x, solid & (condition < CONDITION)


def nearest(batch: Batch, v_plus: np.ndarray, found: np.ndarray, valid: np.ndarray) -> np.ndarray:
    """Distance (B,) of v_plus to the nearest valid outcome, relative to |v|_M; inf where there is none."""
    apart = mass_norm(batch.M[:, None], v_plus[:, None] - found)
    speed = mass_norm(batch.M, batch.v)
    return np.min(np.where(valid, apart, np.inf), axis=1) / np.where(speed > 0, speed, 1.0)


def same_outcomes(
    batch: Batch, one: tuple[np.ndarray, np.ndarray], other: tuple[np.ndarray, np.ndarray], limit: float
) -> np.ndarray:
    """Whether (B,) each outcome of either is within `limit` |v|_M of one of the other."""
    same = np.any(one[1], axis=1) & np.any(other[1], axis=1)
    for k in np.flatnonzero(same):
        a, b = one[0][k][one[1][k]], other[0][k][other[1][k]]
        gap = mass_norm(batch.M[k][None, None], a[:, None] - b[None])
        most = limit * mass_norm(batch.M[k], batch.v[k])
        same[k] = max(gap.min(0).max(), gap.min(1).max()) <= most
    return same


def redundant(batch: Batch) -> np.ndarray:
    """Whether (B,) the rows of the active contacts are dependent, so that outcomes may be a continuum."""
    D = scaled(batch).D
    idle = np.repeat(~batch.active, 2, axis=1)
    values = np.linalg.eigvalsh(D + np.eye(D.shape[1]) * idle[:, None])
    return values[:, 0] < 1e-6
