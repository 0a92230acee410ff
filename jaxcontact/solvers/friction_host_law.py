"""The friction laws on NumPy arrays, contact-major: equations of the modes, and interior-point steps.

Entries: `COULOMB`, `ASSOCIATED`. `friction_law`, `friction_interior` and `friction_convex` have the same for
traced code. Page: docs/methods/friction.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

INTERIOR_FRACTION = 0.99  # of the longest step that stays inside the cones
CENTRING_POWER = 3  # Mehrotra's exponent of the fraction of complementarity that the predictor leaves
UNITS = {dim: np.eye(dim) for dim in (1, 2, 3)}
SAFE_DENOMINATOR = float(np.finfo(float).tiny)  # a safe denominator in place of zero


class ConePoint(NamedTuple):
    """Impulses and velocities (nc, dim) inside the cones, and dual speeds (nc,) > |u_t|; or their changes."""

    r: np.ndarray
    u: np.ndarray
    speed: np.ndarray


class HostLaw(NamedTuple):
    """A law: the misfit of its equations, their blocks, and its interior-point steps."""

    misfit: Callable[..., np.ndarray]
    linearise: Callable[..., tuple[np.ndarray, np.ndarray]]
    blocks: Callable[..., tuple[np.ndarray, np.ndarray]]
    right_hand_sides: Callable[..., tuple[np.ndarray, np.ndarray]]
    direct: Callable[..., ConePoint]
    measure: Callable[..., float]
    longest_step: Callable[..., float]
    lifts: bool


def length(t: np.ndarray) -> np.ndarray:
    """Compute the lengths of vectors along the last axis."""
    return np.abs(t[..., 0]) if t.shape[-1] == 1 else np.sqrt(np.einsum("...i,...i->...", t, t))


def _at_least_tiny(x: np.ndarray) -> np.ndarray:
    return np.maximum(x, SAFE_DENOMINATOR)


def coulomb_misfit(mu: np.ndarray, r: np.ndarray, u: np.ndarray) -> np.ndarray:
    """Compute Alart and Curnier's equations (..., nc, dim), zero at a solution."""
    z = r - u
    bound = mu * np.maximum(z[..., 0], 0.0)
    share = bound / np.maximum(length(z[..., 1:]), _at_least_tiny(bound))
    value = r - share[..., None] * z
    value[..., 0] = np.minimum(r[..., 0], u[..., 0])
    return value


def linearise_coulomb(mu: np.ndarray, r: np.ndarray, u: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Linearise Alart and Curnier's equations by impulses and by velocities, a block per contact."""
    z, dim = r - u, r.shape[1]
    rests, bound, size = z[:, 0] > 0, mu * np.maximum(z[:, 0], 0.0), length(z[:, 1:])
    safe = np.maximum(size, SAFE_DENOMINATOR)
    share = bound / np.maximum(safe, bound)  # 1 for a contact that sticks
    slides = share < 1
    unit = z[:, 1:] / safe[:, None]
    by_velocity = np.zeros((len(mu), dim, dim))
    by_velocity[:, 0, 0] = rests
    by_velocity[:, 1:, 0] = (mu * (slides & rests))[:, None] * unit
    bent = (share * slides)[:, None] * unit
    by_velocity[:, 1:, 1:] = share[:, None, None] * UNITS[dim - 1] - bent[:, :, None] * unit[:, None, :]
    return UNITS[dim] - by_velocity, by_velocity


def associated_misfit(mu: np.ndarray, r: np.ndarray, u: np.ndarray) -> np.ndarray:
    """Compute r - P(r - u) with the projection P on the friction cone."""
    return r - project_on_cones(mu, r - u)


def project_on_cones(mu: np.ndarray, z: np.ndarray) -> np.ndarray:
    """Project (..., nc, dim) on the friction cones."""
    size = length(z[..., 1:])
    inside = (size <= mu * z[..., 0]) & (z[..., 0] >= 0)
    normal = np.where(inside, z[..., 0], np.maximum(z[..., 0] + mu * size, 0.0) / (1.0 + mu * mu))
    share = np.where(inside, 1.0, mu * normal / _at_least_tiny(size))
    projected = share[..., None] * z
    projected[..., 0] = normal
    return projected


def linearise_associated(mu: np.ndarray, r: np.ndarray, u: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Linearise r = P(r - u) by impulses and by velocities, a block per contact."""
    z, dim = r - u, r.shape[1]
    size = length(z[:, 1:])
    inside = (size <= mu * z[:, 0]) & (z[:, 0] >= 0)
    edge = ~inside & (mu * size >= -z[:, 0])
    ray = np.concatenate(
        [np.ones((len(mu), 1)), mu[:, None] * z[:, 1:] / _at_least_tiny(size)[:, None]], axis=1
    )
    weight = np.where(edge, 1.0 / (1.0 + mu * mu), 0.0)
    by_velocity = weight[:, None, None] * ray[:, :, None] * ray[:, None, :]
    turning = mu * weight * (z[:, 0] + mu * size) / _at_least_tiny(size)
    unit = z[:, 1:] / _at_least_tiny(size)[:, None]
    by_velocity[:, 1:, 1:] += turning[:, None, None] * (np.eye(dim - 1) - unit[:, :, None] * unit[:, None, :])
    by_velocity += inside[:, None, None] * np.eye(dim)
    return np.eye(dim) - by_velocity, by_velocity


def scale_lines(by_impulse: np.ndarray, by_velocity: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Scale the lines of all blocks to unit size; return them and the factors (nc, dim)."""
    weights = 1.0 / _at_least_tiny(
        np.maximum(np.abs(by_impulse).max(axis=2), np.abs(by_velocity).max(axis=2))
    )
    return by_impulse * weights[:, :, None], by_velocity * weights[:, :, None], weights


def coulomb_blocks(mu: np.ndarray, now: ConePoint) -> tuple[np.ndarray, np.ndarray]:
    """Linearise r_n u_n = k and (mu r_n, r_t) o (psi, u_t) = (k, 0), a block per contact."""
    r, u, psi = now
    rubs, dim = mu > 0, r.shape[1]
    bound = np.where(rubs, mu * r[:, 0], 1.0)
    ratio = r[:, 1:] / bound[:, None]
    by_impulse, by_velocity = np.zeros((2, *r.shape, dim))
    by_impulse[:, 0, 0], by_velocity[:, 0, 0] = u[:, 0], r[:, 0]
    a, b = -ratio[:, :, None] * r[:, None, 1:], -ratio[:, :, None] * u[:, None, 1:]
    for j in range(dim - 1):
        a[:, j, j] += bound
        b[:, j, j] += psi
    by_impulse[:, 1:, 0] = mu[:, None] * (u[:, 1:] - psi[:, None] * ratio)
    by_impulse[:, 1:, 1:], by_velocity[:, 1:, 1:] = b, a
    if not rubs.all():
        by_impulse[~rubs, 1:, 1:], by_velocity[~rubs, 1:, 1:] = np.eye(dim - 1), 0.0
    return by_impulse, by_velocity


def coulomb_right_hand_sides(
    mu: np.ndarray, now: ConePoint, target: float, before: ConePoint | None
) -> tuple[np.ndarray, np.ndarray]:
    """Compute right-hand sides (nc, dim) and e (nc,) of the cones for products of `target`."""
    r, u, psi = now
    rubs = mu > 0
    bound = np.where(rubs, mu * r[:, 0], 1.0)
    rhs = -(psi[:, None] * r + bound[:, None] * u)
    rhs[:, 0] = target - r[:, 0] * u[:, 0]
    cone = target - psi * bound - np.einsum("ij,ij->i", r[:, 1:], u[:, 1:])
    if before is not None:
        dr, du, dpsi = before
        db = mu * dr[:, 0]
        rhs[:, 0] -= dr[:, 0] * du[:, 0]
        cone = cone - db * dpsi - np.einsum("ij,ij->i", dr[:, 1:], du[:, 1:])
        rhs[:, 1:] -= dpsi[:, None] * dr[:, 1:] + db[:, None] * du[:, 1:]
    rhs[:, 1:] = np.where(rubs[:, None], rhs[:, 1:] - r[:, 1:] * (cone / bound)[:, None], 0.0)
    return rhs, cone


def coulomb_direct(
    mu: np.ndarray, now: ConePoint, dr: np.ndarray, du: np.ndarray, cone: np.ndarray
) -> ConePoint:
    """Complete a change of impulses and velocities by that of the dual speeds."""
    r, u, psi = now
    rubs = mu > 0
    bound = np.where(rubs, mu * r[:, 0], 1.0)
    turned = np.einsum("ij,ij->i", r[:, 1:], du[:, 1:]) + np.einsum("ij,ij->i", u[:, 1:], dr[:, 1:])
    return ConePoint(dr, du, np.where(rubs, (cone - psi * mu * dr[:, 0] - turned) / bound, 0.0))


def coulomb_measure(mu: np.ndarray, now: ConePoint) -> float:
    """Compute the mean product of impulses and velocities, which tends to zero."""
    r, u, psi = now
    rubs = mu > 0
    turned = np.einsum("ij,ij->i", r[:, 1:], u[:, 1:])
    products = float(r[:, 0] @ u[:, 0]) + float(np.sum(np.where(rubs, mu * r[:, 0] * psi + turned, 0.0)))
    return products / (len(mu) + int(rubs.sum()))


def _to_zero(x: np.ndarray, dx: np.ndarray) -> float:
    falls = np.min(dx / x)
    return -1.0 / float(falls) if falls < 0 else math.inf


def _to_boundary(s: np.ndarray, t: np.ndarray, ds: np.ndarray, dt: np.ndarray) -> float:
    """Compute the smallest a > 0 at which any |t + a dt| = s + a ds."""
    square = ds * ds - np.einsum("ij,ij->i", dt, dt)
    half = s * ds - np.einsum("ij,ij->i", t, dt)
    distance = s * s - np.einsum("ij,ij->i", t, t)
    inner = half * half - square * distance
    root = np.sqrt(np.maximum(inner, 0.0)) - half
    reaches = (inner >= 0) & (root > 0)
    step = float(np.min(distance[reaches] / root[reaches], initial=math.inf))
    return min(step, _to_zero(s, ds))


def coulomb_longest_step(mu: np.ndarray, now: ConePoint, move: ConePoint) -> float:
    """Compute the length in (0, 1] of a step that stays strictly inside the cones."""
    limit = min(_to_zero(now.r[:, 0], move.r[:, 0]), _to_zero(now.u[:, 0], move.u[:, 0]))
    rubs = mu > 0
    r, u, psi, dr, du, dpsi, mu = (x[rubs] for x in (*now, *move, mu))
    limit = min(limit, _to_boundary(mu * r[:, 0], r[:, 1:], mu * dr[:, 0], dr[:, 1:]))
    limit = min(limit, _to_boundary(psi, u[:, 1:], dpsi, du[:, 1:]))
    return min(1.0, INTERIOR_FRACTION * limit)


def associated_blocks(mu: np.ndarray, now: ConePoint) -> tuple[np.ndarray, np.ndarray]:
    """Linearise (mu r_n, r_t) o (u_n / mu, u_t) = (k, 0), a block per contact."""
    r, u, _ = now
    rubs, dim = mu > 0, r.shape[1]
    safe = np.where(rubs, mu, 1.0)
    by_impulse, by_velocity = np.zeros((2, *r.shape, dim))
    by_impulse[:, 0], by_velocity[:, 0] = u, r
    by_impulse[:, 1:, 0], by_velocity[:, 1:, 0] = safe[:, None] * u[:, 1:], r[:, 1:] / safe[:, None]
    for j in range(1, dim):
        by_impulse[:, j, j], by_velocity[:, j, j] = u[:, 0] / safe, safe * r[:, 0]
    if not rubs.all():
        by_impulse[~rubs, 0, 1:], by_velocity[~rubs, 0, 1:] = 0.0, 0.0
        by_impulse[~rubs, 1:], by_velocity[~rubs, 1:] = np.eye(dim)[1:], 0.0
    return by_impulse, by_velocity


def associated_right_hand_sides(
    mu: np.ndarray, now: ConePoint, target: float, before: ConePoint | None
) -> tuple[np.ndarray, np.ndarray]:
    """Compute right-hand sides (nc, dim) and e (nc,) of the cones for products of `target`."""
    r, u, _ = now
    rubs = (mu > 0)[:, None]
    safe = np.where(rubs, mu[:, None], 1.0)
    cone = target - np.einsum("ij,ij->i", r, u)
    rhs = -(u[:, :1] / safe * r + safe * r[:, :1] * u)
    if before is not None:
        dr, du, _ = before
        cone = cone - np.einsum("ij,ij->i", dr, du)
        rhs = rhs - (safe * dr[:, :1] * du + du[:, :1] / safe * dr)
    rhs = np.where(rubs, rhs, 0.0)
    rhs[:, 0] = cone
    return rhs, cone


def associated_direct(
    mu: np.ndarray, now: ConePoint, dr: np.ndarray, du: np.ndarray, cone: np.ndarray
) -> ConePoint:
    """Complete a change of impulses and velocities; the law has no dual speeds."""
    del mu, cone
    return ConePoint(dr, du, np.zeros_like(now.speed))


def associated_measure(mu: np.ndarray, now: ConePoint) -> float:
    """Compute the mean product of impulses and velocities, which tends to zero."""
    rubs = (mu > 0)[:, None]
    products = now.r * now.u
    return float(products[:, 0].sum() + np.sum(products[:, 1:] * rubs)) / len(mu)


def associated_longest_step(mu: np.ndarray, now: ConePoint, move: ConePoint) -> float:
    """Compute the length in (0, 1] of a step that stays strictly inside the cones."""
    rubs = (mu > 0)[:, None]
    safe = np.where(mu > 0, mu, 1.0)
    (r, u, _), (dr, du, _) = now, move
    t = [np.where(rubs, x[:, 1:], 0.0) for x in (r, u, dr, du)]
    limit = min(
        _to_boundary(safe * r[:, 0], t[0], safe * dr[:, 0], t[2]),
        _to_boundary(u[:, 0] / safe, t[1], du[:, 0] / safe, t[3]),
    )
    return min(1.0, INTERIOR_FRACTION * limit)


COULOMB = HostLaw(
    coulomb_misfit,
    linearise_coulomb,
    coulomb_blocks,
    coulomb_right_hand_sides,
    coulomb_direct,
    coulomb_measure,
    coulomb_longest_step,
    False,
)
ASSOCIATED = HostLaw(
    associated_misfit,
    linearise_associated,
    associated_blocks,
    associated_right_hand_sides,
    associated_direct,
    associated_measure,
    associated_longest_step,
    True,
)
