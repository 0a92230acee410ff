"""Confidence bounds on a probability, from a number of failures of independent trials."""

from __future__ import annotations

import numpy as np

MISS_CONFIDENCE = 0.95  # of the bound of the share of steps that miss an outcome


def binomial_upper(failures: np.ndarray | int, trials: int, confidence: float) -> np.ndarray:
    """Compute Clopper and Pearson's upper confidence bound on a probability, from `failures` of `trials`."""
    from scipy.special import betaincinv  # imported late because its import is slow

    k = np.asarray(failures)
    bound = betaincinv(k + 1.0, np.maximum(trials - k, 1), confidence)
    return np.where(k >= trials, 1.0, bound)


def bound_misses(missed: int, searched: int) -> float | None:
    """Bound the share of steps that miss an outcome, from counts of those searched again; None if none is."""
    return float(binomial_upper(missed, searched, MISS_CONFIDENCE)) if searched else None


def binomial_lower(failures: np.ndarray | int, trials: int, confidence: float) -> np.ndarray:
    """Compute Clopper and Pearson's lower confidence bound on a probability."""
    return 1.0 - binomial_upper(trials - np.asarray(failures), trials, confidence)
