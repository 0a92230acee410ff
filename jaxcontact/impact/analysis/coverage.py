"""Confidence bounds on how well a sampled set covers the outcomes, for any distribution of independent draws.

Entry `coverage` owns the split-sample test: one half of the samples is the set, and the other half tests it.
"""

from __future__ import annotations

from collections.abc import Sequence

import jax
import numpy as np

from jaxcontact._pytree import PyTree, Record, static
from jaxcontact.arguments import check_not_negative, check_type
from jaxcontact.front_door import checked
from jaxcontact.impact.analysis.containment import mass_root
from jaxcontact.impact.analysis.symmetry import check_symmetry
from jaxcontact.impact.sampling.binomial_bounds import binomial_upper
from jaxcontact.impact.sampling.chunks import ImpactSamples
from jaxcontact.mechanics.system import Symmetry
from jaxcontact.terms import ContactTerms

SIZES = 10  # number of sets: 1, 1/2, 1/4, ... of the first half
MIN_SAMPLES = 8  # minimum number of samples in a set
REACH, PER_DECADE = 1e-6, 10  # default distances: from 1e-6 to 1 of the speed before, ten per decade


class Coverage(Record):
    """Bounds on the fraction of outcomes far from a sampled set; s sets of growing size, k distances.

    Attributes:
        r: (k,) distances, kg^(1/2) m/s; without terms a mixture of m/s and rad/s.
        num_set: (s,) samples in each set; the last is the whole first half.
        share_far: (s, k) fraction of the test samples farther than r from the set.
        share_bound: (s, k) upper confidence bound on the true fraction, for each r alone (Clopper-Pearson).
        uniform_bound: (s, k) upper confidence bound for all r at once (Dvoretzky-Kiefer-Wolfowitz, Massart's
            constant).
        shares: (p,) fractions of outcomes.
        radius: (s, p) distance beyond which at most that fraction of outcomes lies, in the unit of r; inf
            if the test samples are too few for a bound.
        num_test: number of samples in the second half.
        num_failed: number of samples excluded because of a status bit.
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


@checked(r=check_not_negative)
def coverage(
    samples: ImpactSamples,
    *,
    terms: ContactTerms | None = None,
    confidence: float = 0.99,
    r: PyTree = None,
    shares: Sequence[float] = (0.1, 0.01, 0.001),
    symmetry: Symmetry | None = None,
) -> Coverage:
    """Bound the fraction of outcomes that lie farther than r from the sampled set, with confidence.

    The samples are split. The first half is the set. Each sample of the second half is a trial that succeeds
    if its nearest neighbour in the set is within r. Given the set, trials are independent, so the number of
    failures is binomial for any distribution. The bounds need no smoothness and no uniqueness of steps
    (Assumption 6 of Halm & Posa). They are about outcomes without a status bit as the sampler draws them,
    with its measure and its selection; rare outcomes may be far. They hold also for the set of all
    samples, because every outcome is no farther from that set.

    A bound of `share_bound` or `radius` holds only for an r, fraction and set chosen before looking at
    the samples. `uniform_bound` holds for all r of one set at once, also for an r read off the curve.

    Args:
        samples: independent samples, from `sample(..., key=...)`.
        terms: the contact terms that were sampled, for |dv|_M = sqrt(dv^T M dv); without them the
            distance is Euclidean in the generalized velocities, which mixes m/s with rad/s.
        confidence: in (0, 1), of each bound.
        r: (k,) distances; default from 1e-6 to 1 of the speed before the impact, ten per decade.
        shares: fractions for `radius`, each in (0, 1).
        symmetry: of the model; the mirror images of the first half then belong to the set.

    Returns:
        Coverage.

    Raises:
        ValueError: samples that are not independent; fewer than 16 samples without failure; a confidence or
            fraction outside (0, 1); distances that are negative or not finite; terms that `contains` refuses.

    Derivative: none; a host-level function.
    """
    check_type("samples", samples, ImpactSamples, "; draw them with sample(terms, v, ..., key=key)")
    if not samples.independent:
        raise ValueError(
            "samples: expected independent draws, got Sobol points, mirrored samples or a selection that "
            "depends on earlier samples; use sample(..., key=jax.random.key(0)) with selection "
            '"all" or "lemke"'
        )
    chosen = _check_shares(confidence, shares)
    succeeded = np.asarray(samples.status) == 0
    half = int(np.sum(succeeded)) // 2
    if half < MIN_SAMPLES:
        raise ValueError(
            f"samples: expected at least {2 * MIN_SAMPLES} with status 0, got {int(np.sum(succeeded))}"
        )
    points, images, speed = _as_points(samples, succeeded, half, terms, symmetry)
    distances = _distances(r, speed)
    test = points[half:]
    sizes = np.unique([max(MIN_SAMPLES, half >> k) for k in range(SIZES)])
    nearest_distances = np.sort(_nested_distances(images, test, sizes), axis=1)
    num_far = len(test) - np.stack(
        [np.searchsorted(row, distances, side="right") for row in nearest_distances]
    )
    band = np.sqrt(np.log(1.0 / (1.0 - confidence)) / (2.0 * len(test)))
    return Coverage(
        r=distances,
        num_set=sizes,
        share_far=num_far / len(test),
        share_bound=binomial_upper(num_far, len(test), confidence),
        uniform_bound=np.minimum(num_far / len(test) + band, 1.0)
        if confidence >= 0.5
        else np.ones(num_far.shape),
        shares=chosen,
        radius=_radius(nearest_distances, chosen, confidence),
        num_test=len(test),
        num_failed=int(np.sum(~succeeded)),
        confidence=float(confidence),
    )


def _check_shares(confidence: float, shares: Sequence[float]) -> np.ndarray:
    """Return the fractions (p,); raise ValueError if one of them or the confidence is not in (0, 1)."""
    chosen = np.asarray(shares, float)
    if not (0 < confidence < 1) or chosen.ndim != 1 or not np.all((chosen > 0) & (chosen < 1)):
        raise ValueError(f"confidence, shares: expected numbers in (0, 1), got {confidence}, {shares}")
    return chosen


def _distances(r: jax.typing.ArrayLike, speed: float) -> np.ndarray:
    """Return the distances r (k,), by default from `REACH` to 1 of the speed."""
    count = round(-np.log10(REACH) * PER_DECADE) + 1
    distances = speed * np.geomspace(REACH, 1.0, count) if r is None else np.asarray(r, float)
    if distances.ndim != 1 or not np.all(np.isfinite(distances) & (distances >= 0)):
        raise ValueError(f"r: expected finite distances (k,) >= 0, got {r}")
    return distances


def _as_points(
    samples: ImpactSamples,
    succeeded: np.ndarray,
    half: int,
    terms: ContactTerms | None,
    symmetry: Symmetry | None,
) -> tuple[np.ndarray, list[np.ndarray], float]:
    """Convert outcomes without failure to points with Euclidean distance |dv|_M.

    Also returns the images of the first half, and the speed before the impact. The images are the first half
    itself and, with a symmetry, its mirror image.
    """
    v_plus, start = np.asarray(samples.v_plus, float)[succeeded], np.asarray(samples.v_minus, float)
    root = mass_root(terms, start.size)
    images = [np.eye(start.size)]
    if symmetry is not None:
        if terms is None:
            raise ValueError("symmetry: needs terms, to verify it")
        check_symmetry(terms, samples.v_minus, symmetry)
        images.append(np.asarray(symmetry.velocity, float))
    mirrored = [((v_plus[:half] @ image.T) - start) @ root.T for image in images]
    return (v_plus - start) @ root.T, mirrored, float(np.linalg.norm(root @ start)) or 1.0


def _nested_distances(images: list[np.ndarray], test: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """Compute the distance (s, n) of each test point to the first sizes[j] points of every image."""
    from scipy.spatial import cKDTree

    nearest_distance = np.full(len(test), np.inf)
    rows, begin = [], 0
    for end in sizes:
        for image in images:
            # A tree with mean splits and compact nodes stays fast if many samples are equal.
            tree = cKDTree(image[begin:end], balanced_tree=False, compact_nodes=True)
            nearest_distance = np.minimum(nearest_distance, tree.query(test)[0])
        rows.append(nearest_distance)
        begin = end
    return np.stack(rows)


def _radius(ordered: np.ndarray, shares: np.ndarray, confidence: float) -> np.ndarray:
    """Compute upper confidence bounds (s, p) on the 1 - share quantiles, by order statistics."""
    from scipy.special import betainc

    # The i-th smallest of n is below the quantile only if i samples are, which has a probability of at most
    # P(Bin(n, 1 - share) >= i).
    n = ordered.shape[1]
    i = np.arange(n)
    index = [
        np.searchsorted(betainc(n - i, i + 1.0, share), confidence) for share in shares
    ]  # the first i with P(Bin(n, 1 - share) <= i) >= confidence, from 0
    padded = np.concatenate([ordered, np.full((len(ordered), 1), np.inf)], axis=1)
    return padded[:, index]
