"""Scores of predictions: energy score, ranks, containment, bootstrap by toss. Numbers in, numbers out."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np

DRAWS = 2000  # of a bootstrap


def energy_score(samples: Any, truth: Any) -> Any:
    """Energy score (n,) of samples (n, N, d) for the truth (n, d), in Euclidean distance; least is best.

    Mean distance to the samples minus half the mean distance between two samples (Gneiting & Raftery 2007);
    of one sample it is its distance. The second mean leaves out a sample with itself, so that few samples
    are as good as many in the mean.
    """
    return energy_score_of_distances(
        _length(samples - truth[:, None]), _length(samples[:, :, None] - samples[:, None])
    )


def energy_score_of_distances(to_truth: Any, between: Any) -> Any:
    """As `energy_score`, of distances (n, N) and (n, N, N)."""
    count = to_truth.shape[1]
    pairs = jnp.sum(between, axis=(1, 2)) / max(count * (count - 1), 1)
    return jnp.mean(to_truth, axis=1) - 0.5 * pairs


def _length(x: Any) -> Any:
    square = jnp.sum(jnp.asarray(x) ** 2, axis=-1)
    return jnp.where(square > 0, jnp.sqrt(jnp.where(square > 0, square, 1.0)), 0.0)


def interval(values: np.ndarray, toss: np.ndarray, seed: int = 0) -> list[float]:
    """Mean of values (n,) and its 95 % bootstrap interval, tosses drawn whole: [mean, low, high]."""
    toss, values = np.asarray(toss), np.asarray(values, float)
    if not values.size:
        return [float("nan")] * 3
    names, member = np.unique(toss, return_inverse=True)
    total = np.bincount(member, values, names.size)
    count = np.bincount(member, minlength=names.size)
    drawn = np.random.default_rng(seed).integers(names.size, size=(DRAWS, names.size))
    means = total[drawn].sum(axis=1) / count[drawn].sum(axis=1)
    return [float(values.mean()), *map(float, np.percentile(means, [2.5, 97.5]))]


def ranks(samples: np.ndarray, truth: np.ndarray) -> np.ndarray:
    """Rank (n,) in 0..1 of the truth's distance from the samples' mean among those of the samples.

    Uniform where truth and samples are alike; near 1 where the samples spread too little.
    """
    centre = samples.mean(axis=1, keepdims=True)
    own = np.linalg.norm(truth - centre[:, 0], axis=-1)
    others = np.linalg.norm(samples - centre, axis=-1)
    return np.mean(others < own[:, None], axis=1)
