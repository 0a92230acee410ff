"""Coupling of contacts through the inertia, and velocities that no outcome changes.

Entries: `coupling` tells whether the order of contacts matters, `invariant_subspace` what can be tracked
through an impact. Page: docs/methods/order-and-inertia.md.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxcontact._pytree import PyTree, Record, static
from jaxcontact.algebra import implicit, small_dense
from jaxcontact.arguments import check_number, check_positive
from jaxcontact.front_door import POSITIVE, checked
from jaxcontact.impact import inputs
from jaxcontact.impact.analysis.containment import mass_root
from jaxcontact.impact.sampling.chunks import ImpactSamples
from jaxcontact.status import Status
from jaxcontact.terms import ContactTerms


class Coupling(Record):
    """Products of pairs of contacts in the metric M^-1, without unit; zero on the diagonal.

    Attributes:
        normals: (nc, nc) cosine <u_i, u_j>_g of the unit normals, in -1..1. Negative: an impulse at j makes i
            approach; positive: it makes i separate.
        contacts: (nc, nc) sum of the squared cosines of the principal angles between the spaces of impulses
            of two contacts, normal and tangents, in 0..1 + nt; of normals alone where mu = 0.
    """

    normals: jax.Array
    contacts: jax.Array


@checked()
def coupling(terms: ContactTerms) -> Coupling:
    """Compute how contacts act on one another through the inertia; zero if their order is irrelevant.

    With G = J M^-1 J^T and its blocks G_ij of the rows of contacts i and j, `normals` is
    G_ij / sqrt(G_ii G_jj) of the normal rows, `contacts` is tr(G_ii^-1 G_ij G_jj^-1 G_ji). If `normals` is
    zero, frictionless outcomes of all orders agree, for every velocity and restitution; otherwise there are
    a velocity and a restitution for which they differ. If `contacts` is zero, they agree with friction.
    (Pace & Burden 2017: limbs decoupled through M^-1 give outcomes that are smooth in the initial state.)

    Args:
        terms: contact terms; contacts that are not active count as decoupled.

    Returns:
        Coupling.

    Raises:
        TypeError, ValueError: as `anitescu_potra`, of the terms.

    Status: none; NaN for bad numbers inside `jit`.

    Derivative: exact, forward and reverse; that of `contacts` at zero is zero.
    """
    inputs.check_terms(terms)
    inputs.check(terms, jnp.zeros(terms.M.shape[0], terms.M.dtype))
    nc, nt, nv = terms.J_t.shape
    rubs = terms.active & (terms.mu > 0)
    rows = jnp.concatenate(
        [
            jnp.where(terms.active[:, None, None], terms.J_n[:, None], 0.0),
            jnp.where(rubs[:, None, None], terms.J_t, 0.0),
        ],
        axis=1,
    ).reshape(-1, nv)
    gram = rows @ implicit.solve_spd(terms.M, rows.T)
    square = jnp.diagonal(gram)
    size = jnp.sqrt(jnp.where(square > 0, square, 1.0))
    blocks = (gram / size[:, None] / size[None]).reshape(nc, 1 + nt, nc, 1 + nt)
    diagonal = jnp.stack([blocks[i, :, i] for i in range(nc)], axis=-1)
    inverse = small_dense.generalized_inverse(diagonal)[0]
    scaled = jnp.einsum("abi,ibjc->iajc", inverse, blocks)
    apart = ~jnp.eye(nc, dtype=bool)
    return Coupling(
        normals=jnp.where(apart, blocks[:, 0, :, 0], 0.0),
        contacts=jnp.where(apart, jnp.einsum("iajc,jcia->ij", scaled, scaled), 0.0),
    )


class InvariantSubspace(Record):
    """Directions of velocity, in the order of their spread; W D = I, and w_k M^-1 w_k = 1.

    Of samples without terms M is the identity: components have the units of v, mixed where v mixes units.

    Attributes:
        covectors: W (nv, nv), rows w_k; the number w_k v is a component of a velocity v, J^(1/2).
        directions: D (nv, nv), columns M^-1 w_k.
        spread: (nv,) largest difference of w_k v between two outcomes, J^(1/2); without samples the largest
            change of w_k v by a unit impulse along one row of a contact.
        dimension: number of components in which no outcome differs.
    """

    covectors: np.ndarray
    directions: np.ndarray
    spread: np.ndarray
    dimension: int = static()

    @property
    def projector(self) -> np.ndarray:
        """P (nv, nv): P v is the part of a velocity, or of an error of tracking, that no outcome changes."""
        return self.directions[:, : self.dimension] @ self.covectors[: self.dimension]


def _check_outcomes(name: str, value: object) -> None:
    """Raise TypeError unless a value is a record of samples, which has been checked, or velocities."""
    if not isinstance(value, ImpactSamples):
        check_number(name, value)


@checked(samples=_check_outcomes, tolerance=POSITIVE)
def invariant_subspace(
    terms: ContactTerms | ImpactSamples | Any,  # or an array of samples
    samples: ImpactSamples | Any = None,  # or an array (n, nv)
    *,
    friction: bool = True,
    tolerance: float = 1e-6,
) -> InvariantSubspace:
    """Find the directions of velocity in which no outcome of an impact differs.

    Without samples: the complement, orthogonal in M, of the range of M^-1 J^T, J all rows of the active
    contacts; no impulse changes these components. With `friction=False` J has the normals alone (Yang & Posa,
    *Impact-invariant control*, 2021). With samples: the directions in which they do not differ from one
    another, also where all of them differ from the velocity before. They contain the former, and more where
    contacts end at the same speed in every outcome. With samples alone, `invariant_subspace(samples)`, the
    invariant covectors are the same, but their complement is orthogonal in the plain metric of v, not in M.

    The directions follow in the order of their spread, so that the first ones are those that outcomes change
    the least, also if `dimension` is 0.

    Args:
        terms: contact terms of the impact, or samples, of any law or engine, without terms.
        samples: `ImpactSamples`, those with a failure are left out; or velocities (n, nv) of outcomes.
        friction: whether impulses along tangents count, of contacts with mu > 0; without samples only.
        tolerance: largest difference that counts as none, relative to the largest |v|_M of the outcomes;
            without samples relative to the largest change by a unit impulse.

    Returns:
        InvariantSubspace.

    Raises:
        TypeError, ValueError: as `anitescu_potra`, of the terms; velocities of another shape or not finite;
            no sample without a failure; `friction=False` with samples; samples twice; tolerance not > 0.

    Derivative: none; runs on the host.
    """
    check_positive("tolerance", tolerance)
    if isinstance(terms, ImpactSamples | np.ndarray | jax.Array):
        if samples is not None:
            raise TypeError("terms: expected ContactTerms beside samples, got samples")
        samples = terms
        root = np.eye((np.asarray(getattr(samples, "v_plus", samples)).shape or (0,))[-1])
    else:
        inputs.check_terms(terms)
        inputs.check(terms, jnp.zeros(terms.M.shape[0], terms.M.dtype))
        root = mass_root(terms, terms.M.shape[0])
    if samples is None and isinstance(terms, ContactTerms):
        changes = np.linalg.solve(root.T, _impulse_rows(terms, friction).T).T
        scale = np.max(np.linalg.norm(changes, axis=1), initial=0.0)
    else:
        if not friction:
            raise ValueError("friction: expected True with samples, whose law has decided on it, got False")
        outcomes = _read_outcomes(samples, len(root)) @ root.T
        changes = outcomes - outcomes.mean(axis=0)
        scale = np.max(np.linalg.norm(outcomes, axis=1))
    reduced = np.linalg.qr(changes, mode="r") if len(changes) else np.zeros((1, len(root)))
    basis = np.linalg.svd(reduced)[2][::-1]
    components = changes @ basis.T
    spread = np.abs(components).max(axis=0, initial=0.0) if samples is None else np.ptp(components, axis=0)
    order = np.argsort(spread, kind="stable")
    basis, spread = basis[order], spread[order]
    return InvariantSubspace(
        covectors=basis @ root,
        directions=np.linalg.solve(root, basis.T),
        spread=spread,
        dimension=int(np.sum(spread <= tolerance * scale)),
    )


def _impulse_rows(terms: ContactTerms, friction: bool) -> np.ndarray:
    """List the rows (r, nv) along which active contacts have impulses."""
    active = np.asarray(terms.active)
    rubs = active & (np.asarray(terms.mu) > 0) & friction
    normals, tangents = np.asarray(terms.J_n, float), np.asarray(terms.J_t, float)
    return np.concatenate([normals[active], tangents[rubs].reshape(-1, normals.shape[1])])


def _read_outcomes(samples: PyTree, nv: int) -> np.ndarray:
    """Read the velocities (n, nv) of outcomes without a failure."""
    velocities = np.asarray(getattr(samples, "v_plus", samples), float)
    if velocities.ndim != 2 or velocities.shape[1] != nv:
        raise ValueError(f"samples: expected velocities (n, {nv}), got shape {velocities.shape}")
    if isinstance(samples, ImpactSamples):
        velocities = velocities[~np.asarray(Status.failed(samples.status))]
    if not len(velocities):
        raise ValueError("samples: expected at least one outcome without a failure, got none")
    if not np.all(np.isfinite(velocities)):
        raise ValueError("samples: expected finite velocities, got NaN or inf")
    return velocities
