"""Comparison of measured velocities with a sampled set of outcomes; entry `contains`."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxcontact._pytree import Record
from jaxcontact.arguments import check_number, check_type
from jaxcontact.impact.analysis.outcome_families import families, match
from jaxcontact.impact.inputs import check_terms
from jaxcontact.impact.sampling.chunks import ImpactSamples
from jaxcontact.terms import ContactTerms

FLOOR = 1e-9  # smallest tolerance, relative to the speed before the impact
ROUNDING = 16.0  # smallest tolerance in units of the samples' rounding, if that is larger than `FLOOR`


class Containment(Record):
    """Membership of measured velocities in a sampled set; arrays are (k,), or scalars for one velocity.

    Attributes:
        inside: whether `distance` is at most `tolerance`.
        distance: to the nearest sample: |dv|_M in kg^(1/2) m/s with terms, else Euclidean.
        nearest: index of the nearest sample along axis 0 of `samples.v_plus`.
        tolerance: the tolerance that `distance` was compared with, in the same unit.
        unknown: whether too few samples lie around the nearest one to show the extent of the set there; then
            `inside` is False and `tolerance` is the smallest possible one.
    """

    inside: jax.Array
    distance: jax.Array
    nearest: jax.Array
    tolerance: jax.Array
    unknown: jax.Array


def contains(
    samples: ImpactSamples,
    v_measured: Any,
    *,
    terms: ContactTerms | None = None,
    tolerance: float | None = None,
) -> Containment:
    """Tell whether measured post-impact velocities lie in the sampled set; return their distances from it.

    The distance is that to the nearest sample without a failure: |dv|_M = sqrt(dv^T M dv) if `terms` is
    given. Without `terms` the distance is Euclidean in the generalized velocities, which mixes m/s with rad/s
    and depends on the choice of coordinates.

    The default tolerance is the local spacing of the samples of one family. A family is the set of samples
    after which every contact behaves alike: it separates, sticks, or slides to the same side. Without `terms`
    all samples are one family. The spacing is the distance from the sample nearest to the measured velocity
    to the 8th neighbour of that sample, but no less than 1e-9 of the speed before the impact. A velocity is
    inside if it is inside for any family.

    Unless the velocity equals a sample, the result is `unknown` if the samples do not show the extent of the
    set: the nearest sample has fewer than 8 neighbours in its family, or a gap comes before the 8th,
    or the family has 16 samples or fewer at different places. More samples make a sharper test. Extreme
    outcomes, such as those of single impacts one at a time, may still lie beyond the last sample.

    Args:
        samples: of the impact.
        v_measured: (nv,) or (k, nv) velocities.
        terms: the contact terms that were sampled, for their mass matrix and the families.
        tolerance: largest distance that counts as inside; it replaces the default tolerance.

    Returns:
        Containment.

    Raises:
        TypeError: arguments that are not ImpactSamples, ContactTerms or numbers.
        ValueError: wrong shapes, NaN or inf, a negative tolerance, no sample with status 0.

    Derivative: none; a host-level function.
    """
    v_plus, good, measured = _checked(samples, v_measured)
    if tolerance is not None:
        check_number("tolerance", tolerance, 0.0)
    root = mass_root(terms, v_plus.shape[1])

    # |dv|_M = |R dv| with M = R^T R; relative to the velocity before the impact, so that no digits are lost.
    start = np.asarray(samples.v_minus, float)
    measured_points = (np.atleast_2d(measured) - start) @ root.T
    points = (v_plus[good] - start) @ root.T
    groups = families(terms if tolerance is None else None, start, v_plus[good])
    rounding = ROUNDING * float(jnp.finfo(samples.v_plus.dtype).eps)
    smallest_tolerance = max(FLOOR, rounding) * float(np.linalg.norm(root @ start))
    matches = [
        match(good[members], points[members], measured_points, smallest_tolerance) for members in groups
    ]
    # Each array is (families, k).
    distance, nearest, width, thin = (np.stack(column) for column in zip(*matches, strict=True))
    closest = np.argmin(distance, axis=0)
    if tolerance is None:
        limit = width
    else:
        limit, thin = np.full_like(distance, float(tolerance)), np.zeros_like(thin)
    inside = distance <= limit
    is_inside = np.any(inside, axis=0)
    deciding = np.where(is_inside, np.argmin(np.where(inside, distance, np.inf), axis=0), closest)
    shape = measured.shape[:-1]
    dtype = samples.v_plus.dtype

    def in_family(values: np.ndarray, family: np.ndarray, kind: Any) -> jax.Array:
        return jnp.asarray(np.take_along_axis(values, family[None], axis=0)[0].reshape(shape), kind)

    return Containment(
        inside=jnp.asarray(is_inside.reshape(shape)),
        distance=in_family(distance, closest, dtype),
        nearest=in_family(nearest, closest, jnp.int32),
        tolerance=in_family(limit, deciding, dtype),
        unknown=in_family(thin & ~is_inside[None], closest, bool),
    )


def _checked(samples: ImpactSamples, v_measured: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Check; return outcomes (n, nv), indices of samples without failure, and velocities (nv,) or (k, nv)."""
    check_type("samples", samples, ImpactSamples, "; draw them with sample(terms, v, ...)")
    v_plus = np.asarray(samples.v_plus)
    if v_plus.ndim != 2:
        raise ValueError(f"samples.v_plus: expected shape (n, nv), got {v_plus.shape}")
    nv = v_plus.shape[1]
    check_number("v_measured", v_measured)
    measured = np.asarray(v_measured, float)
    if measured.ndim not in (1, 2) or measured.shape[-1] != nv:
        raise ValueError(f"v_measured: expected shape ({nv},) or (k, {nv}), got {measured.shape}")
    good = np.flatnonzero(np.asarray(samples.status) == 0)
    if not good.size:
        raise ValueError(f"samples: expected at least one with status 0, all {v_plus.shape[0]} failed")
    return v_plus, good, measured


def mass_root(terms: ContactTerms | None, nv: int) -> np.ndarray:
    """Compute R (nv, nv) with M = R^T R; the identity without terms."""
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
