"""Bounds of numbers in a pytree: entry function `flat_bounds`."""

from __future__ import annotations

import jax
import numpy as np

from jaxcontact._pytree import PyTree


def flat_bounds(bounds: PyTree, params0: PyTree, start: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Spread pairs (minimum, maximum) of every leaf over flat numbers (n,); None is no bound.

    Raises:
        ValueError: bounds of another structure, in the wrong order, or without the start.
    """
    if bounds is None:
        return np.full_like(start, -np.inf), np.full_like(start, np.inf)
    expected = "bounds: expected a pair (least, most) for every leaf of params0"

    def ends(leaf: PyTree, pair: PyTree) -> np.ndarray:
        if not isinstance(pair, tuple | list) or len(pair) != 2:
            raise ValueError(f"{expected}, got {pair!r}")
        return np.stack([np.broadcast_to(np.asarray(end, float), np.shape(leaf)).ravel() for end in pair])

    try:
        pairs = jax.tree.map(ends, params0, bounds)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{expected}, got {bounds!r}") from error
    lower, upper = np.concatenate(jax.tree.leaves(pairs), axis=1)
    if not np.all((lower < upper) & (lower <= start) & (start <= upper)):
        raise ValueError(f"{expected} with least <= params0 <= most, got {bounds!r} for {params0!r}")
    return lower, upper
