"""Comparison of measured velocities with a sampled set of outcomes; entry `contains`.

A velocity is inside by a sample or an impulse order that comes near; it is outside by a proof. Neither is
`unknown`.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from jaxcontact._pytree import PyTree, Record
from jaxcontact.arguments import check_number, check_type
from jaxcontact.front_door import NOT_NEGATIVE, checked
from jaxcontact.impact.analysis.necessary import excluding, exclusion
from jaxcontact.impact.analysis.order_search import nearest_by_orders
from jaxcontact.impact.analysis.outcome_families import families, match
from jaxcontact.impact.inputs import check_terms
from jaxcontact.impact.laws.routh_law import Routh
from jaxcontact.impact.sampling.chunks import ImpactSamples
from jaxcontact.terms import ContactTerms

REACHED = 1e-3  # distance of an order's outcome, relative to the speed before, that counts as reaching
FLOOR = 1e-9  # smallest tolerance, relative to the speed before the impact
ROUNDING = 16.0  # smallest tolerance in units of the samples' rounding, if that is larger than `FLOOR`


class Containment(Record):
    """Membership of measured velocities in a sampled set; arrays are (k,), or scalars for one velocity.

    Attributes:
        inside: whether `distance` is at most `tolerance`.
        distance: to the nearest sample: |dv|_M in kg^(1/2) m/s with terms, else Euclidean.
        nearest: index of the nearest sample along axis 0 of `samples.v_plus`.
        tolerance: the tolerance that `distance` was compared with, in the same unit.
        unknown: neither inside, nor proven to be no outcome; False for all with a `tolerance` of the call.
    """

    inside: jax.Array
    distance: jax.Array
    nearest: jax.Array
    tolerance: jax.Array
    unknown: jax.Array


@checked(v_measured=check_number, tolerance=NOT_NEGATIVE)
def contains(
    samples: ImpactSamples,
    v_measured: PyTree,
    *,
    terms: ContactTerms | None = None,
    law: Routh | None = None,
    tolerance: float | None = None,
) -> Containment:
    """Tell whether measured post-impact velocities are outcomes; return their distances from the samples.

    The distance is that to the nearest sample without a failure: |dv|_M = sqrt(dv^T M dv) if `terms` is
    given. Without `terms` the distance is Euclidean in the generalized velocities, which mixes m/s with rad/s
    and depends on the choice of coordinates.

    The default tolerance is the local spacing of the samples of one family. A family is the set of samples
    after which every contact behaves alike: it separates, sticks, or slides to the same side. Without `terms`
    all samples are one family. The spacing is the distance from the sample nearest to the measured velocity
    to the 8th neighbour of that sample, but no less than 1e-9 of the speed before the impact. A velocity is
    inside if it is inside for any family.

    No sampled set shows its own ends: with small steps samples crowd, and one order in a million may reach
    farther. So a velocity away from the samples is denied only if it breaks a condition that all outcomes
    meet: no added energy, momentum within the friction cones, no contact that approaches. Else it is
    `unknown`. With `law` impulse orders are then searched that lead to it, contacts that push alone one after
    the other among them (seconds for each velocity); it is inside if one comes within 1e-3 of the speed
    before, and `distance` is then that of this order.

    Args:
        samples: of the impact.
        v_measured: (nv,) or (k, nv) velocities.
        terms: the contact terms that were sampled, for their mass matrix and the families.
        law: the law of the samples, to search for orders; needs `terms`.
        tolerance: largest distance that counts as inside; it replaces the default tolerance and all proofs.

    Returns:
        Containment.

    Raises:
        TypeError: arguments that are not ImpactSamples, ContactTerms or numbers.
        ValueError: wrong shapes, NaN or inf, a negative tolerance, no sample with status 0, a law without
            terms.

    Derivative: none; a host-level function.
    """
    v_plus, good, measured = _check_measured(samples, v_measured)
    if law is not None and terms is None:
        raise ValueError("law: expected the terms of the samples with it, got terms=None")
    root = mass_root(terms, v_plus.shape[1])
    start, velocities = np.asarray(samples.v_minus, float), np.atleast_2d(measured)
    rounding = ROUNDING * float(jnp.finfo(samples.v_plus.dtype).eps)
    groups = families(terms if tolerance is None else None, start, v_plus[good])
    # |dv|_M = |R dv| with M = R^T R; relative to the velocity before the impact, so that no digits are lost.
    away, points = (velocities - start) @ root.T, (v_plus[good] - start) @ root.T
    floor = max(FLOOR, rounding) * float(np.linalg.norm(root @ start))
    matches = [match(good[members], points[members], away, floor) for members in groups]
    # Each array is (families, k).
    distance, nearest, width = (np.stack(column) for column in zip(*matches, strict=True))
    closest = np.argmin(distance, axis=0)
    limit = width if tolerance is None else np.full_like(distance, float(tolerance))
    inside = distance <= limit
    is_inside, gap = np.any(inside, axis=0), np.min(distance, axis=0)
    deciding = np.where(is_inside, np.argmin(np.where(inside, distance, np.inf), axis=0), closest)
    shape, dtype = measured.shape[:-1], samples.v_plus.dtype

    def in_family(values: np.ndarray, family: np.ndarray, kind: PyTree) -> jax.Array:
        return jnp.asarray(np.take_along_axis(values, family[None], axis=0)[0].reshape(shape), kind)

    unknown = ~is_inside if tolerance is None else np.zeros_like(is_inside)
    if tolerance is None and terms is not None:
        unknown[unknown] = exclusion(terms, start, velocities[unknown]) <= excluding(terms)
        if law is not None and np.any(unknown):
            reached = nearest_by_orders(terms, samples.v_minus, law, velocities[unknown])
            gap[unknown] = np.minimum(gap[unknown], reached)
            is_inside[unknown] = reached <= REACHED * float(np.linalg.norm(root @ start))
            unknown &= ~is_inside
    return Containment(
        inside=jnp.asarray(is_inside.reshape(shape)), distance=jnp.asarray(gap.reshape(shape), dtype),
        nearest=in_family(nearest, closest, jnp.int32), tolerance=in_family(limit, deciding, dtype),
        unknown=jnp.asarray(unknown.reshape(shape)),
    )  # fmt: skip


def _check_measured(
    samples: ImpactSamples, v_measured: jax.typing.ArrayLike
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
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
