"""How many single elastic impacts a simultaneous impact can take, in any order: entry `reflection_bound`.

Seghete & Murphey prove it for two contacts (Theorem 1). Page: docs/methods/propagative.md.
"""

from __future__ import annotations

import itertools
import math

import jax.numpy as jnp
import numpy as np

from jaxcontact.front_door import checked
from jaxcontact.impact import inputs
from jaxcontact.terms import ContactTerms

MAX_CONTACTS = 8  # the recursion visits every subset of them
DEPENDENT = 1e-12  # smallest eigenvalue of the Gram matrix of unit normals that counts as none
ROUND_OFF = 1e-9  # of pi over the angle of a wedge; a whole number within it is that number


@checked()
def reflection_bound(terms: ContactTerms) -> float:
    """Bound the number of single elastic impacts of the active contacts, whichever approaching one is next.

    Two contacts whose planes enclose the angle w take at most ceil(pi / w). For k unit normals n_i that are
    independent, in the kinetic metric: with r the unit vector that has the same c = 1 / sqrt(1^T G^-1 1) on
    all of them, every impact moves p along r by c |dp|, so that all of them together move it by no more than
    2 / c. While it moves by less than s / 2, s = sigma / sqrt(k) with sigma^2 the least eigenvalue of G, a
    contact with |n_i . p| >= s takes no part, and such a contact there is. Hence

        N(all) <= (8 / (c s) + 1) max N(all but one).

    The idea is Sinai's for billiards in a cone. Loose: random chains of three contacts stay below a fifth.

    Args:
        terms: contact terms; friction plays no role.

    Returns:
        The number; inf for dependent normals.

    Raises:
        ValueError, TypeError: as `propagate`; no active contact, or more than eight.

    Derivative: none; runs on the host.
    """
    inputs.check(terms, jnp.zeros(terms.M.shape[0], terms.M.dtype))
    normals = np.asarray(terms.J_n, float)[np.asarray(terms.active)]
    if not 1 <= len(normals) <= MAX_CONTACTS:
        raise ValueError(f"terms.active: expected 1 to {MAX_CONTACTS} active contacts, got {len(normals)}")
    gram = normals @ np.linalg.solve(np.asarray(terms.M, float), normals.T)
    size = np.sqrt(np.diag(gram))
    if not np.all(size > 0):
        return math.inf
    return bound_of(gram / np.outer(size, size))


def bound_of(gram: np.ndarray) -> float:
    """Compute the bound from the Gram matrix (k, k) of unit normals."""
    if np.linalg.eigvalsh(gram)[0] <= DEPENDENT:
        return math.inf
    k = len(gram)
    counts: dict[tuple[int, ...], float] = {(i,): 1.0 for i in range(k)}
    for i, j in itertools.combinations(range(k), 2):
        turns = math.pi / math.acos(max(-1.0, min(1.0, -float(gram[i, j]))))
        counts[i, j] = float(math.ceil(turns * (1.0 - ROUND_OFF)))
    for count in range(3, k + 1):
        for chosen in itertools.combinations(range(k), count):
            block = gram[np.ix_(chosen, chosen)]
            c = 1.0 / math.sqrt(float(np.sum(np.linalg.inv(block))))
            s = math.sqrt(float(np.linalg.eigvalsh(block)[0]) / count)
            fewer = max(counts[chosen[:i] + chosen[i + 1 :]] for i in range(count))
            counts[chosen] = math.floor((8.0 / (c * s) + 1.0) * fewer)
    return float(counts[tuple(range(k))])
