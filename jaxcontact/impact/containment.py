"""Is a measured velocity among the outcomes of an impact? Owns the comparison of data with a sampled set."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxcontact._pytree import Record
from jaxcontact.arguments import check_number, check_type
from jaxcontact.impact.inputs import check_terms
from jaxcontact.impact.stream import ImpactSamples
from jaxcontact.terms import ContactTerms

if TYPE_CHECKING:  # SciPy is imported when it is used: that takes long
    from scipy.spatial import cKDTree

PROBES = 4096  # samples whose distance to the others gives the spacing
QUANTILE = 0.999
NEIGHBOURS = 16  # how many other samples tell the spacing near one of them
FLOOR = 1e-9  # smallest tolerance, relative to the speed before


class Containment(Record):
    """Which measured velocities lie in a sampled set; arrays are (k,), or scalars for one velocity.

    Attributes:
        inside: whether `distance` is at most `tolerance`.
        distance: to the nearest sample: |dv|_M in kg^(1/2) m/s with terms, else Euclidean.
        nearest: index of that sample, an axis-0 index of `samples.v_plus`.
        tolerance: what each was compared with, in the unit of `distance`.
    """

    inside: jax.Array
    distance: jax.Array
    nearest: jax.Array
    tolerance: jax.Array


def contains(
    samples: ImpactSamples,
    v_measured: Any,
    *,
    terms: ContactTerms | None = None,
    tolerance: float | None = None,
) -> Containment:
    """Whether measured post-impact velocities lie in the sampled set, and how far off they are.

    The distance to the nearest sample that did not fail, in |dv|_M = sqrt(dv^T M dv) if `terms` is given.
    Without it the distance is Euclidean in the generalized velocities, which mixes m/s with rad/s and
    depends on the choice of coordinates.

    The default tolerance is the samples' own spacing, the largest of: the 0.999 quantile, over up to 4096
    samples, of the distance to the nearest other one; the distance from the sample nearest to the
    measured velocity to its 16th neighbour, since samples are rare at the rim of a set; 1e-9 of the
    speed before the impact. More samples make a sharper test; extreme outcomes, such as those of single
    impacts one at a time, may still lie beyond the last sample.

    Args:
        samples: of the impact.
        v_measured: (nv,) or (k, nv) velocities.
        terms: the contact terms that were sampled, for their mass matrix.
        tolerance: largest distance that counts as inside.

    Returns:
        Containment.

    Raises:
        TypeError: something else than ImpactSamples, ContactTerms or numbers.
        ValueError: wrong shapes, NaN or inf, a negative tolerance, no sample with status 0.

    Derivative: none; a host-level function.
    """
    check_type("samples", samples, ImpactSamples, "; draw them with sample(terms, v, ...)")
    v_plus = np.asarray(samples.v_plus)
    if v_plus.ndim != 2:
        raise ValueError(f"samples.v_plus: expected shape (n, nv), got {v_plus.shape}")
    nv = v_plus.shape[1]
    check_number("v_measured", v_measured)
    measured = np.asarray(v_measured, float)
    if measured.ndim not in (1, 2) or measured.shape[-1] != nv:
        raise ValueError(f"v_measured: expected shape ({nv},) or (k, {nv}), got {measured.shape}")
    if tolerance is not None:
        check_number("tolerance", tolerance, 0.0)
    good = np.flatnonzero(np.asarray(samples.status) == 0)
    if not good.size:
        raise ValueError(f"samples: expected at least one with status 0, all {v_plus.shape[0]} failed")
    root = mass_root(terms, nv)

    from scipy.spatial import cKDTree

    # |dv|_M = |R dv| with M = R^T R; relative to the velocity before, so that no digits are lost.
    start = np.asarray(samples.v_minus, float)
    # A mean split and a compact tree stay fast where many samples are equal.
    points = (v_plus[good] - start) @ root.T
    tree = cKDTree(points, balanced_tree=False, compact_nodes=True)
    distance, nearest = tree.query((np.atleast_2d(measured) - start) @ root.T)
    if tolerance is None:
        least = max(_spacing(tree, points), FLOOR * float(np.linalg.norm(root @ start)))
        limit = np.maximum(least, _spacing_near(tree, points[nearest]))
    else:
        limit = np.full(distance.shape, float(tolerance))
    shape = measured.shape[:-1]
    dtype = samples.v_plus.dtype
    return Containment(
        inside=jnp.asarray((distance <= limit).reshape(shape)),
        distance=jnp.asarray(distance.reshape(shape), dtype),
        nearest=jnp.asarray(good[nearest].reshape(shape), jnp.int32),
        tolerance=jnp.asarray(limit.reshape(shape), dtype),
    )


def mass_root(terms: ContactTerms | None, nv: int) -> np.ndarray:
    """R (nv, nv) with M = R^T R; the identity without terms."""
    if terms is None:
        return np.eye(nv)
    from scipy.linalg import cholesky

    check_terms(terms)
    mass = np.asarray(terms.M, float)
    if mass.shape != (nv, nv):
        raise ValueError(f"terms.M: expected shape ({nv}, {nv}) as in samples, got {mass.shape}")
    try:
        return np.asarray(cholesky(mass, lower=False))
    except (np.linalg.LinAlgError, ValueError) as error:
        raise ValueError(f"terms.M: expected a positive definite mass matrix: {error}") from error


def _spacing(tree: cKDTree, points: np.ndarray) -> float:
    """A high quantile of the distance from a sample to the nearest other one."""
    if len(points) < 2:
        return 0.0
    probes = points[:: max(1, len(points) // PROBES)][:PROBES]
    distance, _ = tree.query(probes, k=2)
    return float(np.quantile(distance[:, 1], QUANTILE))


def _spacing_near(tree: cKDTree, places: np.ndarray) -> np.ndarray:
    """Distance from each of some samples (k, nv) to a near neighbour of it."""
    if tree.n < 2:
        return np.zeros(len(places))
    distance, _ = tree.query(places, k=[min(NEIGHBOURS + 1, tree.n)])
    return np.asarray(distance)[:, 0]
