"""Test whether the friction cone is pointed, and a direction in which every impulse pushes: `pointed_cone`.

If the cone is pointed, a simultaneous impact ends after a finite number of partial impulses. Contacts that
can jam against each other make the cone not pointed.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from jaxcontact.arguments import check_rows
from jaxcontact.front_door import checked
from jaxcontact.terms import ContactTerms

# Margins below this count as zero, because the linear program is solved to 1e-10.
_RESOLUTION = 1e-9


def _check_terms(name: str, value: object) -> None:
    """Raise TypeError for an object without the matrices of contacts."""
    missing = [field for field in ("M", "J_n", "J_t", "mu", "active") if not hasattr(value, field)]
    if missing:
        raise TypeError(
            f"{name}: expected ContactTerms, got {type(value).__name__} without {', '.join(missing)}"
        )


@checked(terms=_check_terms, num_directions=check_rows)
def pointed_cone(
    terms: Any,  # any record of matrices
    *,
    num_directions: int = 16,
) -> tuple[np.ndarray, float]:
    """Find a direction r in which every admissible impulse of the active contacts pushes.

    Equation (77) of Halm & Posa (Set-valued rigid body dynamics for simultaneous, inelastic, frictional
    impacts, Lemma 6): r . M^-1 J^T lam >= |lam_n|_1 for all admissible lam. It holds exactly if
    r . M^-1 f_j >= 1 for each generator f = J_n,i^T + mu_i J_t,i^T d_k, with d_k the extreme friction
    directions; such r exists exactly if the cone of the f_j is pointed with every f_j nonzero
    (their Assumption 2). A linear program finds it: with M = L L^T, g_j = L^-1 f_j and
    e_j = g_j / |g_j|, maximise margin over y in the box |y|_inf <= 1 subject to y . e_j >= margin;
    then r = L y / min_j y . g_j.

    Planar contacts have d = -1, +1. For spatial contacts a regular polygon circumscribed about the disc
    replaces the disc, so r holds for the true cone. A cone that is pointed, but would not be with mu larger
    by the factor 1/cos(pi / num_directions), may be reported as not pointed.

    Args:
        terms: a `ContactTerms` record or any object with M (nv, nv), J_n (nc, nv), J_t (nc, nt, nv),
            nt = 1 or 2, mu (nc,) and active (nc,); read as float64 NumPy arrays, so not traced.
        num_directions: number of corners of the polygon if nt = 2, 3 or more.

    Returns:
        r: (nv,), a covector to generalized velocities: r . M^-1 J^T lam has the unit of lam (N s). NaN if
            the cone is not pointed.
        margin: largest t so that some y in the unit box has y . e_j >= t for all unit generators
            e_j, in the kinetic-energy metric. It has no unit and does not depend on the choice of units. It
            lies between s and sqrt(nv) s, where s is the sine of the angle between the boundary of the best
            halfspace and the nearest generator. The box belongs to the coordinates of L, so the margin
            depends on the order of the coordinates, but s and the sign of the margin do not. 0.0 if not
            pointed; a margin below 1e-9 counts as 0.

    Raises:
        ValueError: no active contact; wrong shapes; negative or not finite input; M not symmetric
            positive definite; num_directions below 3.
        TypeError: num_directions not an integer.
        RuntimeError: the linear program was not solved.

    Derivative: none; runs on the host.
    """
    M, J_n, J_t, mu = _active_terms(terms)
    directions = _friction_directions(J_t.shape[1], num_directions)
    friction = np.einsum("i,kt,itv->ikv", mu, directions, J_t)
    generators = (J_n[:, None, :] + friction).reshape(-1, M.shape[0])
    # In kinetic-energy coordinates lengths and angles between translations and rotations have a meaning.
    try:
        L = np.linalg.cholesky(M)
    except np.linalg.LinAlgError as error:
        raise ValueError("terms.M: expected a positive definite matrix") from error
    g = np.linalg.solve(L, generators.T).T
    size = np.linalg.norm(g, axis=1)
    normal_size = np.linalg.norm(np.linalg.solve(L, J_n.T), axis=0)
    scale = np.repeat(normal_size, len(directions))
    scale = scale + np.linalg.norm(np.linalg.solve(L, friction.reshape(g.shape).T), axis=0)
    not_pointed = np.full(M.shape[0], np.nan), 0.0
    if np.any(size <= _RESOLUTION * scale):
        return not_pointed  # an impulse moves nothing, so no r can satisfy (77)
    y = _deepest(g / size[:, None])
    margin = float(np.min(g @ y / size))
    if not margin > _RESOLUTION:
        return not_pointed
    return L @ y / np.min(g @ y), margin


def _deepest(units: np.ndarray) -> np.ndarray:
    """Find the y in the unit box that maximises min_j y . units_j."""
    from scipy.optimize import linprog  # imported late because its import is slower than that of the package

    count, nv = units.shape
    result = linprog(
        c=np.append(np.zeros(nv), -1.0),
        A_ub=np.hstack([-units, np.ones((count, 1))]),
        b_ub=np.zeros(count),
        bounds=[(-1.0, 1.0)] * nv + [(0.0, None)],
        method="highs",
        options={"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10},
    )
    if result.status != 0:
        raise RuntimeError(f"pointed_cone: the linear program was not solved: {result.message}")
    return result.x[:nv]


def _friction_directions(nt: int, count: int) -> np.ndarray:
    """List extreme friction directions (k, nt); for nt = 2 the corners of a polygon around the unit disc."""
    if isinstance(count, bool) or not isinstance(count, int | np.integer):
        raise TypeError(f"num_directions: expected an integer, got {count!r}")
    if count < 3:
        raise ValueError(f"num_directions: expected at least 3, got {count}")
    if nt == 1:
        return np.array([[-1.0], [1.0]])
    angle = 2.0 * np.pi * np.arange(count) / count
    return np.stack([np.cos(angle), np.sin(angle)], axis=1) / np.cos(np.pi / count)


def _active_terms(terms: ContactTerms) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Check the terms; return M and the rows of the active contacts."""
    M, J_n, J_t, mu = (np.asarray(getattr(terms, n), np.float64) for n in ("M", "J_n", "J_t", "mu"))
    active = np.asarray(terms.active, bool)
    if M.ndim != 2 or M.shape[0] != M.shape[1]:
        raise ValueError(f"terms.M: expected a square matrix, got shape {M.shape}")
    if J_n.ndim != 2 or J_n.shape[1] != M.shape[0]:
        raise ValueError(f"terms.J_n: expected shape (nc, {M.shape[0]}), got {J_n.shape}")
    nc = J_n.shape[0]
    if J_t.ndim != 3 or J_t.shape[1] not in (1, 2) or J_t.shape[::2] != J_n.shape:
        raise ValueError(f"terms.J_t: expected shape ({nc}, 1 or 2, {M.shape[0]}), got {J_t.shape}")
    for name, value in (("mu", mu), ("active", active)):
        if value.shape != (nc,):
            raise ValueError(f"terms.{name}: expected shape ({nc},), got {value.shape}")
    if not active.any():
        raise ValueError("terms.active: expected at least one active contact, got none")
    J_n, J_t, mu = J_n[active], J_t[active], mu[active]
    for name, value in (("M", M), ("J_n", J_n), ("J_t", J_t), ("mu", mu)):
        if not np.all(np.isfinite(value)):
            raise ValueError(f"terms.{name}: expected finite numbers, got {value}")
    if np.any(mu < 0):
        raise ValueError(f"terms.mu: expected at least 0, got {mu}")
    scale = np.sqrt(np.abs(np.diag(M)))
    if np.any(np.abs(M - M.T) > 1e-6 * np.outer(scale, scale)):
        raise ValueError("terms.M: expected a symmetric matrix")
    return M, J_n, J_t, mu
