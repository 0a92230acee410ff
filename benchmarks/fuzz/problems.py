"""Random contact terms in NumPy, many at a time: mechanisms, friction, velocities, units, poison.

One static shape per law, so that one program serves all; idle contacts are inactive.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

import jaxcontact as jc

FRICTIONS = (0.0, 0.1, 0.3, 0.7, 1.0, 5.0, 1e2, 1e3, 1e4, 1e5)
POISONS = ("nan", "inf", "mass", "friction", "penetration")


class Batch(NamedTuple):
    """Terms of B problems in double precision: M (B, nv, nv), J (B, nc, 1 + nt, nv), n first, and so on."""

    M: np.ndarray
    J: np.ndarray
    v: np.ndarray
    mu: np.ndarray
    phi: np.ndarray
    active: np.ndarray

    def rounded(self, dtype: Any) -> Batch:
        """The same numbers as `dtype` holds them."""
        return Batch(*(np.asarray(np.asarray(a, dtype), float) for a in self[:5]), self.active)

    def terms(self, dtype: Any) -> tuple[jc.ContactTerms, jnp.ndarray]:
        """For the library."""
        M, J, v, mu, phi = (jnp.asarray(a, dtype) for a in self[:5])
        active = jnp.asarray(self.active)
        return jc.ContactTerms(M=M, J_n=J[:, :, 0], J_t=J[:, :, 1:], phi=phi, mu=mu, active=active), v


def _masses(rng: np.random.Generator, nv: int) -> np.ndarray:
    """A mass matrix: full with random axes, or diagonal with masses spread over up to six decades."""
    if rng.random() < 0.5:
        axes, _ = np.linalg.qr(rng.normal(size=(nv, nv)))
        M = (axes * 10.0 ** rng.uniform(-1, 1, nv)) @ axes.T
        return 0.5 * (M + M.T)
    return np.diag(10.0 ** (rng.uniform(-1, 1, nv) * rng.choice([1, 3])))


def _rows(rng: np.random.Generator, nc: int, axes: int, nv: int) -> np.ndarray:
    """Jacobians (nc, axes, nv): full, sparse, repeated, or points of one body on flat ground."""
    J = rng.normal(size=(nc, axes, nv))
    kind = rng.choice(["full", "sparse", "repeated", "flat"])
    if kind == "sparse":
        J *= rng.random(J.shape) < 0.6
    elif kind == "repeated":
        J = J[rng.integers(0, max(1, nc - 1), nc)]
    elif kind == "flat" and axes == 2:
        x, y = rng.choice([-1.0, -0.5, 0.0, 0.5, 1.0], nc), -rng.uniform(0.1, 1.0)
        J = np.zeros(J.shape)
        J[:, 0, 1], J[:, 0, 2], J[:, 1, 0], J[:, 1, 2] = 1.0, x, 1.0, -y
    return J


def random_batch(
    rng: np.random.Generator, size: int, nc: int, axes: int, nv: int, units: np.ndarray | None
) -> Batch:
    """Problems of 1 to nc contacts with `axes` = 1 + nt rows each, in `some_units`; None for those of SI."""
    M, J = np.zeros((size, nv, nv)), np.zeros((size, nc, axes, nv))
    v, mu, active = np.zeros((size, nv)), np.zeros((size, nc)), np.zeros((size, nc), bool)
    for k in range(size):
        M[k], J[k] = _masses(rng, nv), _rows(rng, nc, axes, nv)
        mu[k] = rng.choice(FRICTIONS) if rng.random() < 0.5 else rng.choice(FRICTIONS, nc)
        active[k] = np.arange(nc) < rng.integers(1, nc + 1)
        v[k] = _velocity(rng, J[k], active[k])
    batch = Batch(M, J, v, mu, np.where(active, 0.0, 0.5), active)
    if units is None:
        return batch
    spread = 10.0 ** (rng.uniform(-3, 3, (size, nv)) * (rng.random((size, 1)) < 0.3))
    return in_units(batch, 10.0 ** (rng.uniform(-6, 6, (3, size)) * units), spread)


def some_units(rng: np.random.Generator, dtype: Any) -> np.ndarray:
    """Which units (3, 1) of mass, length, time change: one in single precision, lest energies overflow."""
    if dtype is np.float64 and rng.random() < 0.5:
        return np.ones((3, 1))
    return np.eye(3)[:, rng.integers(3)][:, None]


def _velocity(rng: np.random.Generator, J: np.ndarray, active: np.ndarray) -> np.ndarray:
    v = rng.normal(size=J.shape[-1])
    kind = rng.choice(["random", "approaching", "some rest"])
    normal = J[active][:, 0]
    if kind == "approaching":
        v = np.linalg.lstsq(normal, -rng.random(len(normal)), rcond=None)[0]
    elif kind == "some rest":
        rest = normal[rng.random(len(normal)) < 0.5]
        v = v - np.linalg.pinv(rest) @ (rest @ v) if rest.size else v
    return v


def in_units(batch: Batch, factors: np.ndarray, coordinates: np.ndarray) -> Batch:
    """The same problems in other units: factors (3, B) of mass, length and time, (B, nv) of coordinates.

    A coordinate that is counted in `coordinates` metres has that much smaller a velocity.
    """
    mass, length, time = factors
    c = coordinates
    return batch._replace(
        M=batch.M * c[:, :, None] * c[:, None, :] * mass[:, None, None],
        J=batch.J * c[:, None, None, :],
        v=batch.v / c * (length / time)[:, None],
        phi=batch.phi * length[:, None],
    )


def poisoned(rng: np.random.Generator, batch: Batch, share: float = 0.1) -> tuple[Batch, np.ndarray]:
    """The batch with some lanes spoilt, and which."""
    spoilt = rng.random(len(batch.v)) < share
    M, J, v, mu, phi = (a.copy() for a in batch[:5])
    for k in np.flatnonzero(spoilt):
        kind = rng.choice(POISONS)
        if kind in ("nan", "inf"):
            bad = np.nan if kind == "nan" else np.inf
            where = [M[k], J[k], v[k], mu[k]][rng.integers(4)]
            where.flat[rng.integers(where.size)] = bad
        elif kind == "mass":
            M[k] = -M[k] if rng.random() < 0.5 else M[k] + np.triu(M[k].max() * np.ones_like(M[k]), 1)
        elif kind == "friction":
            mu[k, rng.integers(mu.shape[1])] = -0.5
        else:
            phi[k, 0] = -1.0
    return Batch(M, J, v, mu, phi, batch.active), spoilt
