"""Random contact problems in plain NumPy: mechanisms, their impact LCPs, and what a right answer satisfies.

Shared by the tests of several modules. Everything takes a seeded `numpy.random.Generator`; the LCP
assembly and the residuals accept any leading batch dimensions.
"""

from __future__ import annotations

import itertools
from typing import NamedTuple

import numpy as np

FRICTIONS = (0.0, 0.1, 0.3, 0.7, 1.0, 5.0, 1e3, 1e5)
MECHANISMS = ("random", "sparse", "duplicated", "body", "bodies")
VELOCITIES = ("random", "random", "approaching", "some_zero", "some_tiny", "zero")


class Contacts(NamedTuple):
    """M (..., nv, nv), J_n and J_t (..., m, nv), v (..., nv), mu (..., m)."""

    M: np.ndarray
    J_n: np.ndarray
    J_t: np.ndarray
    v: np.ndarray
    mu: np.ndarray


def random_spd(rng: np.random.Generator, n: int, spread: float = 1.0) -> np.ndarray:
    """An SPD matrix with random axes, eigenvalues log-uniform over `spread` decades either way."""
    axes, _ = np.linalg.qr(rng.normal(size=(n, n)))
    matrix = (axes * 10.0 ** rng.uniform(-spread, spread, n)) @ axes.T
    return 0.5 * (matrix + matrix.T)


def _planar_points(rng: np.random.Generator, m: int) -> tuple[np.ndarray, np.ndarray]:
    """Jacobians (m, 3) of contact points of one planar body: corners of a box or points anywhere."""
    if rng.random() < 0.5:  # a flat face on flat ground: any third contact is redundant
        points = np.stack([rng.choice([-1.0, -0.5, 0.0, 0.5, 1.0], m), np.full(m, -0.5)], axis=1)
        angle = np.zeros(m)
    else:
        points = rng.uniform(-1, 1, (m, 2))
        angle = rng.uniform(-np.pi, np.pi, m) * (rng.random() < 0.5)
    normal = np.stack([-np.sin(angle), np.cos(angle)], axis=1)
    tangent = np.stack([np.cos(angle), np.sin(angle)], axis=1)

    def rows(d: np.ndarray) -> np.ndarray:
        moment = points[:, 0] * d[:, 1] - points[:, 1] * d[:, 0]
        return np.column_stack([d, moment])

    return rows(normal), rows(tangent)


def random_contacts(
    rng: np.random.Generator,
    m: int,
    *,
    mu: float | None = None,
    mechanism: str | None = None,
    velocity: str | None = None,
) -> Contacts:
    """A random mechanism with m planar contacts; what is None is drawn (mu once for all contacts)."""
    mechanism = mechanism or str(rng.choice(MECHANISMS))
    velocity = velocity or str(rng.choice(VELOCITIES))
    mu = float(rng.choice(FRICTIONS)) if mu is None else mu
    if mechanism in ("body", "bodies"):
        bodies = 1 if mechanism == "body" else int(rng.integers(2, 4))
        nv = 3 * bodies
        mass = 10.0 ** rng.uniform(-0.5, 0.5, bodies)
        M = np.diag(np.stack([mass, mass, mass * 0.3 * 10.0 ** rng.uniform(-1, 0, bodies)], 1).ravel())
        J_n, J_t = np.zeros((m, nv)), np.zeros((m, nv))
        first = rng.integers(0, bodies, m)
        rows_n, rows_t = _planar_points(rng, m)
        other_n, other_t = _planar_points(rng, m)
        for i in range(m):
            a = slice(3 * first[i], 3 * first[i] + 3)
            J_n[i, a], J_t[i, a] = rows_n[i], rows_t[i]
            if bodies > 1 and rng.random() < 0.5:  # contact between two bodies
                b = 3 * int((first[i] + 1) % bodies)
                J_n[i, b : b + 3], J_t[i, b : b + 3] = -other_n[i], -other_t[i]
    else:
        nv = int(rng.integers(2, 10))
        M = random_spd(rng, nv)
        J_n, J_t = rng.normal(size=(m, nv)), rng.normal(size=(m, nv))
        if mechanism == "sparse":
            J_n *= rng.random((m, nv)) < 0.5
            J_t *= rng.random((m, nv)) < 0.5
        if mechanism == "duplicated" and m > 1:
            copies = rng.integers(0, max(1, m // 2), m)
            J_n, J_t = J_n[copies], J_t[copies]

    v = rng.normal(size=nv) * 10.0 ** rng.uniform(-1, 1)
    if velocity == "zero":
        v = np.zeros(nv)
    elif velocity == "approaching":
        u = np.linalg.lstsq(J_n, -rng.random(m), rcond=None)[0]
        v = np.asarray(u)
    elif velocity == "some_zero":  # exact zeros in J_n v: those rows and v have disjoint support
        rest = rng.random(m) < 0.5
        keep = rng.random(nv) < 0.5
        if mechanism in ("body", "bodies"):
            v = np.where(np.arange(nv) % 3 == rng.integers(0, 2), v, 0.0)
        else:
            v = v * keep
            J_n = np.where(rest[:, None] & keep[None, :], 0.0, J_n)
    elif velocity == "some_tiny":  # zeros up to rounding, as one impact leaves them for the next
        rest = J_n[rng.random(m) < 0.5]
        v = v - np.linalg.pinv(rest) @ (rest @ v) if rest.size else v
    return Contacts(M, J_n, J_t, v, np.full(m, mu))


def stack(problems: list[Contacts]) -> Contacts:
    """Contacts of equal m as one batch; M is padded with an identity, J and v with zeros, to one nv."""
    nv = max(p.v.shape[-1] for p in problems)

    def pad(p: Contacts) -> Contacts:
        k = nv - p.v.shape[-1]
        M = np.eye(nv)
        M[: nv - k, : nv - k] = p.M
        wide = ((0, 0), (0, k))
        return Contacts(M, np.pad(p.J_n, wide), np.pad(p.J_t, wide), np.pad(p.v, (0, k)), p.mu)

    return Contacts(*(np.stack(field) for field in zip(*map(pad, problems), strict=True)))


def anitescu_potra_lcp(c: Contacts) -> tuple[np.ndarray, np.ndarray]:
    """W (..., 4m, 4m), w (..., 4m) for z = [lam_n (m), lam_D (2m: +t, -t per contact), gamma (m)]."""
    m = c.J_n.shape[-2]
    pairs = np.kron(np.eye(m), np.array([[1.0], [-1.0]]))  # (2m, m): J_D = pairs J_t
    E = np.abs(pairs)
    J_D = pairs @ c.J_t
    J = np.concatenate([c.J_n, J_D], axis=-2)
    delassus = J @ np.linalg.solve(c.M, np.swapaxes(J, -1, -2))
    # Bit-equal rows for +t and -t and for duplicated contacts, whatever the summation order was.
    delassus = 0.5 * (delassus + np.swapaxes(delassus, -1, -2))
    W = np.zeros((*c.v.shape[:-1], 4 * m, 4 * m))
    W[..., : 3 * m, : 3 * m] = delassus
    W[..., m : 3 * m, 3 * m :] = E
    W[..., 3 * m :, :m] = c.mu[..., :, None] * np.eye(m)
    W[..., 3 * m :, m : 3 * m] = -E.T
    w = np.concatenate([np.einsum("...ij,...j->...i", J, c.v), np.zeros_like(c.mu)], axis=-1)
    return W, w


def impact_step_lcp(c: Contacts, lam_max: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Halm & Posa (75): W (..., 5m, 5m), w for z = [beta, lam_n, lam_D, gamma]; lam_max (..., m)."""
    m = c.J_n.shape[-2]
    inner, inner_w = anitescu_potra_lcp(c)
    W = np.zeros((*c.v.shape[:-1], 5 * m, 5 * m))
    W[..., m:, m:] = inner
    W[..., :m, m : 2 * m] = -np.eye(m)
    W[..., m : 2 * m, :m] = np.eye(m)
    return W, np.concatenate([np.broadcast_to(lam_max, c.mu.shape), inner_w], axis=-1)


def impulses(z: np.ndarray, m: int) -> tuple[np.ndarray, np.ndarray]:
    """Normal and tangential impulses (..., m) of a solution of either LCP."""
    z = z[..., z.shape[-1] - 4 * m :]
    lam_D = z[..., m : 3 * m]
    return z[..., :m], lam_D[..., 0::2] - lam_D[..., 1::2]


def impact_residual(c: Contacts, z: np.ndarray, lam_max: np.ndarray | float = np.inf) -> np.ndarray:
    """Worst violation (...,) of non-penetration, complementarity, Coulomb's cone and maximal dissipation.

    Contact velocities count relative to |v|, tangential impulses relative to mu lam_n + 1, normal
    impulses relative to the mean mass times |v|. `lam_max` caps the normal impulses: below the cap a
    contact may not approach, at the cap it may.
    """
    m = c.J_n.shape[-2]
    lam_n, lam_t = impulses(np.asarray(z, dtype=float), m)
    force = np.einsum("...ij,...i->...j", c.J_n, lam_n) + np.einsum("...ij,...i->...j", c.J_t, lam_t)
    v_plus = c.v + np.linalg.solve(c.M, force[..., None])[..., 0]
    speed = np.linalg.norm(c.v, axis=-1, keepdims=True) + 1e-300
    mass = np.trace(c.M, axis1=-2, axis2=-1)[..., None] / c.v.shape[-1]
    u_n = np.einsum("...ij,...j->...i", c.J_n, v_plus) / speed
    u_t = np.einsum("...ij,...j->...i", c.J_t, v_plus) / speed
    p = lam_n / (mass * speed)
    room = np.maximum((np.asarray(lam_max) - lam_n) / (mass * speed), -1e300)
    limit = c.mu * lam_n
    slip = np.abs(lam_t + limit * np.sign(u_t)) / (np.abs(limit) + 1)
    parts = [
        -p,
        -room,
        np.minimum(np.maximum(-u_n, 0), np.abs(room)),
        np.minimum(np.maximum(u_n, 0), np.abs(p)),
        (np.abs(lam_t) - limit) / (np.abs(limit) + 1),
        np.minimum(np.abs(u_t), slip),
    ]
    worst = np.max(np.stack(parts), axis=(0, -1))
    return np.where(np.isfinite(worst), worst, np.inf)


def lcp_residual(W: np.ndarray, w: np.ndarray, z: np.ndarray) -> np.ndarray:
    """max |min(z, W z + w)| over the rows, (...,)."""
    return np.max(np.abs(np.minimum(z, np.einsum("...ij,...j->...i", W, z) + w)), axis=-1)


def brute_force_lcp(W: np.ndarray, w: np.ndarray, tol: float = 1e-9) -> list[np.ndarray]:
    """All basic solutions of an LCP, by enumerating its 2^n index sets; n <= 10."""
    n = w.shape[0]
    if n > 10:
        raise ValueError(f"brute_force_lcp: n = {n} is too large, expected n <= 10")
    found: list[np.ndarray] = []
    for size in range(n + 1):
        chosen = list(itertools.combinations(range(n), size))
        sets = np.array(chosen, dtype=int).reshape(len(chosen), size)
        blocks = W[sets[:, :, None], sets[:, None, :]]
        regular = np.ones(len(sets), bool)
        if size:
            s = np.linalg.svd(blocks, compute_uv=False)
            regular = s[:, -1] > 1e-12 * s[:, 0]
        sets, blocks = sets[regular], blocks[regular]
        z = np.zeros((len(sets), n))
        if size and len(sets):
            z[np.arange(len(sets))[:, None], sets] = np.linalg.solve(blocks, -w[sets][..., None])[..., 0]
        good = (z >= -tol).all(1) & (z @ W.T + w >= -tol).all(1)
        for candidate in z[good]:
            if not any(np.abs(candidate - other).max() < 10 * tol for other in found):
                found.append(candidate)
    return found
