"""How good is a sampled set? What independent draws prove about it, whatever their distribution is.

Owns the split-sample statement: one half of the samples is the set, the other half tests it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from jaxcontact._pytree import Record, static
from jaxcontact.arguments import check_type
from jaxcontact.impact.analysis.containment import mass_root
from jaxcontact.impact.analysis.symmetry import check_symmetry
from jaxcontact.impact.sampling.stream import ImpactSamples
from jaxcontact.mechanics.system import Symmetry
from jaxcontact.terms import ContactTerms

SIZES = 10  # sets of 1, 1/2, 1/4, ... of the first half
LEAST = 8  # samples in the smallest of them
REACH, PER_DECADE = 1e-6, 10  # default distances: from 1e-6 to 1 of the speed before


class Coverage(Record):
    """Bounds on the share of outcomes far from a sampled set; s sets of growing size, k distances.

    Attributes:
        r: (k,) distances, kg^(1/2) m/s (m/s and rad/s mixed, if made without terms).
        num_set: (s,) samples in each set; the last is the whole first half.
        share_far: (s, k) share of the test samples farther than r from the set.
        share_bound: (s, k) upper confidence bound on the true share, for each r alone (Clopper-Pearson).
        uniform_bound: (s, k) the same for all r at once (Dvoretzky-Kiefer-Wolfowitz, Massart's constant).
        shares: (p,) shares of outcomes.
        radius: (s, p) distance beyond which at most that share of outcomes lies, in the unit of r; inf
            where there are too few test samples to say so.
        num_test: samples in the second half.
        num_failed: samples left out for a status bit.
        confidence: of each bound.
    """

    r: np.ndarray
    num_set: np.ndarray
    share_far: np.ndarray
    share_bound: np.ndarray
    uniform_bound: np.ndarray
    shares: np.ndarray
    radius: np.ndarray
    num_test: int = static()
    num_failed: int = static()
    confidence: float = static()


def coverage(
    samples: ImpactSamples,
    *,
    terms: ContactTerms | None = None,
    confidence: float = 0.99,
    r: Any = None,
    shares: Sequence[float] = (0.1, 0.01, 0.001),
    symmetry: Symmetry | None = None,
) -> Coverage:
    """With what confidence do at most so many outcomes lie farther than r from the sampled set?

    The samples are split: the first half is the set, and each sample of the second half is a trial that
    succeeds if its nearest neighbour in the set is within r. Given the set, trials are independent, so the
    number of failures is binomial whatever the distribution is. No smoothness, no uniqueness of steps
    (Assumption 6 of Halm & Posa) is needed. The statement is about outcomes as the sampler draws them,
    its measure and its selection, among those without a status bit; rare outcomes may be far. It holds for
    the set of all samples too, to which every outcome is at least as near.

    A bound of `share_bound` or `radius` holds for its r, share and set alone, chosen before looking at the
    samples; `uniform_bound` holds for all r of one set, also for an r read off the curve.

    Args:
        samples: independent ones, of `sample(..., key=...)`.
        terms: the contact terms that were sampled, for |dv|_M = sqrt(dv^T M dv); without them the
            distance is Euclidean in the generalized velocities, which mixes m/s with rad/s.
        confidence: in (0, 1), of each bound.
        r: (k,) distances; default from 1e-6 to 1 of the speed before the impact, ten per decade.
        shares: for `radius`, each in (0, 1).
        symmetry: of the model; the mirror images of the first half then belong to the set.

    Returns:
        Coverage.

    Raises:
        ValueError: samples that are not independent; fewer than 16 without failure; a confidence or share
            outside of (0, 1); distances that are negative or not finite; as `contains` for terms.

    Derivative: none; a host-level function.
    """
    check_type("samples", samples, ImpactSamples, "; draw them with sample(terms, v, ..., key=key)")
    if not samples.independent:
        raise ValueError(
            "samples: expected independent draws, got Sobol points, mirrored samples or a selection that "
            "depends on earlier samples; use sample(..., key=jax.random.key(0)) with selection "
            '"all" or "lemke"'
        )
    chosen = _levels(confidence, shares)
    good = np.asarray(samples.status) == 0
    half = int(np.sum(good)) // 2
    if half < LEAST:
        raise ValueError(f"samples: expected at least {2 * LEAST} with status 0, got {int(np.sum(good))}")
    points, images, speed = _placed(samples, good, half, terms, symmetry)
    distances = _distances(r, speed)
    test = points[half:]
    sizes = np.unique([max(LEAST, half >> k) for k in range(SIZES)])
    near = np.sort(_nested_distances(images, test, sizes), axis=1)
    far = len(test) - np.stack([np.searchsorted(row, distances, side="right") for row in near])
    band = np.sqrt(np.log(1.0 / (1.0 - confidence)) / (2.0 * len(test)))
    return Coverage(
        r=distances,
        num_set=sizes,
        share_far=far / len(test),
        share_bound=binomial_upper(far, len(test), confidence),
        uniform_bound=np.minimum(far / len(test) + band, 1.0) if confidence >= 0.5 else np.ones(far.shape),
        shares=chosen,
        radius=_radius(near, chosen, confidence),
        num_test=len(test),
        num_failed=int(np.sum(~good)),
        confidence=float(confidence),
    )


def _levels(confidence: float, shares: Sequence[float]) -> np.ndarray:
    """The shares (p,), or ValueError where one of them or the confidence is not in (0, 1)."""
    chosen = np.asarray(shares, float)
    if not (0 < confidence < 1) or chosen.ndim != 1 or not np.all((chosen > 0) & (chosen < 1)):
        raise ValueError(f"confidence, shares: expected numbers in (0, 1), got {confidence}, {shares}")
    return chosen


def _distances(r: Any, speed: float) -> np.ndarray:
    """The distances r (k,), by default decades below the speed."""
    count = round(-np.log10(REACH) * PER_DECADE) + 1
    distances = speed * np.geomspace(REACH, 1.0, count) if r is None else np.asarray(r, float)
    if distances.ndim != 1 or not np.all(np.isfinite(distances) & (distances >= 0)):
        raise ValueError(f"r: expected finite distances (k,) >= 0, got {r}")
    return distances


def _placed(
    samples: ImpactSamples,
    good: np.ndarray,
    half: int,
    terms: ContactTerms | None,
    symmetry: Symmetry | None,
) -> tuple[np.ndarray, list[np.ndarray], float]:
    """Good outcomes as points of Euclidean distance |dv|_M, their first half and its images, the speed."""
    v_plus, start = np.asarray(samples.v_plus, float)[good], np.asarray(samples.v_minus, float)
    root = mass_root(terms, start.size)
    images = [np.eye(start.size)]
    if symmetry is not None:
        if terms is None:
            raise ValueError("symmetry: needs terms, to verify it")
        check_symmetry(terms, samples.v_minus, symmetry)
        images.append(np.asarray(symmetry.velocity, float))
    mirrored = [((v_plus[:half] @ image.T) - start) @ root.T for image in images]
    return (v_plus - start) @ root.T, mirrored, float(np.linalg.norm(root @ start)) or 1.0


def binomial_upper(failures: Any, trials: int, confidence: float) -> np.ndarray:
    """Clopper and Pearson's upper confidence bound on a probability, from `failures` of `trials`."""
    from scipy.special import betaincinv  # here, as its import takes long

    k = np.asarray(failures)
    bound = betaincinv(k + 1.0, np.maximum(trials - k, 1), confidence)
    return np.where(k >= trials, 1.0, bound)


def binomial_lower(failures: Any, trials: int, confidence: float) -> np.ndarray:
    """Clopper and Pearson's lower confidence bound on a probability."""
    return 1.0 - binomial_upper(trials - np.asarray(failures), trials, confidence)


def _nested_distances(images: list[np.ndarray], test: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """Distance of each test point to the first sizes[j] points of every image: (s, n)."""
    from scipy.spatial import cKDTree

    near = np.full(len(test), np.inf)
    rows, begin = [], 0
    for end in sizes:
        for image in images:
            # A mean split and a compact tree stay fast where many samples are equal.
            tree = cKDTree(image[begin:end], balanced_tree=False, compact_nodes=True)
            near = np.minimum(near, tree.query(test)[0])
        rows.append(near)
        begin = end
    return np.stack(rows)


def _radius(ordered: np.ndarray, shares: np.ndarray, confidence: float) -> np.ndarray:
    """Upper confidence bounds on the 1 - share quantiles, by order statistics: (s, p)."""
    from scipy.special import betainc

    # The i-th smallest of n is below the quantile only if i of them are: at most P(Bin(n, 1 - share) >= i).
    n = ordered.shape[1]
    i = np.arange(n)
    place = [
        np.searchsorted(betainc(n - i, i + 1.0, share), confidence) for share in shares
    ]  # the first i with P(Bin(n, 1 - share) <= i) >= confidence, from 0
    padded = np.concatenate([ordered, np.full((len(ordered), 1), np.inf)], axis=1)
    return padded[:, place]
