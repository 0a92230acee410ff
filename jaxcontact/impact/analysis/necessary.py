"""Conditions that every outcome meets: energy, the cone of momenta, no approach; entry `exclusion`."""

from __future__ import annotations

import numpy as np

from jaxcontact.impact.laws.contact_space import collision_tolerance
from jaxcontact.terms import ContactTerms

EXCLUDING = 100.0  # times the approach that ends an impact: violations from which on a condition excludes
CORNERS = 16  # sides of a polygon circumscribed about the circle of friction: it excludes no outcome


def friction_fan(num_tangents: int) -> np.ndarray:
    """List the corners (k, nt) of a cone with mu = 1: -1 and 1, in space a polygon about the circle."""
    if num_tangents == 1:
        return np.array([[1.0], [-1.0]])
    angle = np.arange(CORNERS) * (2.0 * np.pi / CORNERS)
    return np.stack([np.cos(angle), np.sin(angle)], axis=1) / np.cos(np.pi / CORNERS)


def cone_generators(terms: ContactTerms) -> np.ndarray:
    """List forces (n, nv) at active contacts, unit normal parts, whose cone holds every contact impulse."""
    active = np.asarray(terms.active)
    J_n, J_t, mu = (np.asarray(getattr(terms, n), float)[active] for n in ("J_n", "J_t", "mu"))
    fan = friction_fan(J_t.shape[1])
    return (J_n[:, None] + np.einsum("i,kt,itv->ikv", mu, fan, J_t)).reshape(-1, J_n.shape[1])


def excluding(terms: ContactTerms) -> float:
    """Return the violation, relative to the speed before, from which on a condition excludes a velocity."""
    return EXCLUDING * collision_tolerance(terms.M.dtype)


def exclusion(terms: ContactTerms, v_minus: np.ndarray, velocities: np.ndarray) -> np.ndarray:
    """Measure how far velocities (k, nv) are from meeting the necessary conditions, relative to |v_minus|_M.

    An impact keeps its momentum outside of contacts, so M (v - v_minus) is a sum of forces of the friction
    cones; its energy does not rise; at its end no contact approaches. The measure is the largest violation,
    of the cone and of the energy as distances in the kinetic metric. Above zero, by more than rounding, a
    velocity is no outcome of any order, step, friction solution or restitution. Of an approach the measure
    is what exceeds the `excluding` part of the fastest one before, for laws end impacts with a slow approach.
    """
    from scipy.linalg import cholesky, solve_triangular  # imported late because its import is slow
    from scipy.optimize import nnls

    R = cholesky(np.asarray(terms.M, float), lower=False)
    start = R @ v_minus
    speed = float(np.linalg.norm(start))
    unit = speed if speed > 0 else 1.0
    points = velocities @ R.T
    energy = np.linalg.norm(points, axis=1) - speed
    active = np.asarray(terms.active)
    J_n = np.asarray(terms.J_n, float)[active]
    sizes = np.linalg.norm(solve_triangular(R, J_n.T, lower=False, trans="T"), axis=0)
    J_n, sizes = J_n[sizes > 0], sizes[sizes > 0]
    slowest = excluding(terms) * np.max(-J_n @ v_minus, initial=0.0)
    approach = np.max((-velocities @ J_n.T - slowest) / sizes, axis=1, initial=0.0)
    pushes = solve_triangular(R, cone_generators(terms).T, lower=False, trans="T")
    lengths = np.linalg.norm(pushes, axis=0)
    pushes = pushes[:, lengths > 0] / lengths[lengths > 0]
    if pushes.shape[1]:
        outside = np.array([nnls(pushes, (point - start) / unit)[1] for point in points]) * unit
    else:
        outside = np.linalg.norm(points - start, axis=1)
    return np.asarray(np.maximum(np.maximum(energy, approach), outside) / unit)
