"""Families of samples that end in the same contact mode, and the spacing of the members of a family."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from jaxcontact.terms import ContactTerms
from jaxcontact.tolerances import HALF_DIGITS, rounding

NEIGHBOURS = 8  # number of neighbours that determine the spacing near a member
FEW_MEMBERS = 16  # a family of at most so many members, not all at one place, does not show its width
PROBES = 4096  # number of members whose distance to their nearest neighbour gives the usual spacing
QUANTILE = 0.99  # the usual spacing is this quantile of those distances
GAP = 10.0  # a neighbour is beyond a gap if it is farther by this factor than the one before, and than usual
SEPARATING, STICKING, FORWARD, BACKWARD = range(4)  # behaviour of a contact after the impact


class Match(NamedTuple):
    """The member of a family that is nearest to each of k places.

    Attributes:
        distance: (k,) from the place to the nearest member.
        nearest: (k,) number of the nearest member among all samples.
        width: (k,) distance from the nearest member to its last neighbour; a place within it counts as
            inside. It is the smallest width if the nearest member has fewer than `NEIGHBOURS` neighbours
            before a gap, or the family at most `FEW_MEMBERS` members.
    """

    distance: np.ndarray
    nearest: np.ndarray
    width: np.ndarray


def match(numbers: np.ndarray, points: np.ndarray, places: np.ndarray, smallest_width: float) -> Match:
    """Find the members of a family that are nearest to `places`.

    Args:
        numbers: (n,) numbers of the members among all samples.
        points: (n, nv) the members.
        places: (k, nv) points whose nearest members are sought.
        smallest_width: distance below which two points count as one.
    """
    # A tree with mean splits and compact nodes stays fast if many samples are equal.
    from scipy.spatial import cKDTree  # imported late because its import is slow

    tree = cKDTree(points, balanced_tree=False, compact_nodes=True)
    distance, member = tree.query(places)
    # cKDTree reports a missing neighbour with the distance inf.
    neighbour_distances = tree.query(points[member], k=NEIGHBOURS + 1)[0]
    probes = points[:: max(1, len(points) // PROBES)][:PROBES]
    spacing = tree.query(probes, k=[2])[0][:, 0]
    usual_spacing = max(
        smallest_width, float(np.quantile(spacing, QUANTILE, method="lower")) if len(points) > 1 else 0.0
    )
    thin = np.any(
        neighbour_distances[:, 1:] > GAP * np.maximum(neighbour_distances[:, :-1], usual_spacing), axis=1
    )
    thin |= (len(points) <= FEW_MEMBERS) & (neighbour_distances[:, -1] > smallest_width)
    return Match(
        distance,
        numbers[member],
        np.where(thin, smallest_width, np.maximum(smallest_width, neighbour_distances[:, -1])),
    )


def families(terms: ContactTerms | None, v_minus: np.ndarray, v_plus: np.ndarray) -> list[np.ndarray]:
    """List the numbers of the samples of each family; without terms all samples are one family."""
    if terms is None:
        return [np.arange(len(v_plus))]
    modes = end_modes(terms, v_minus, v_plus)
    _, family = np.unique(modes, axis=0, return_inverse=True)
    return [np.flatnonzero(family == k) for k in range(np.max(family) + 1)]


def end_modes(terms: ContactTerms, v_minus: np.ndarray, v_plus: np.ndarray) -> np.ndarray:
    """Find the mode (n, nc) of each contact after an impact: separating, sticking, or sliding either way.

    A closed contact without friction counts as sticking. A contact that slides in space counts as sliding
    forwards, because all directions belong to one family. Inactive contacts separate. A rate counts as zero
    below the square root of the rounding, relative to |v_minus|_M.
    """
    M, J_n, J_t = (np.asarray(a, float) for a in (terms.M, terms.J_n, terms.J_t))
    small = rounding(v_plus.dtype, HALF_DIGITS) * np.sqrt(v_minus @ M @ v_minus)
    rows = np.concatenate([J_n[:, None], J_t], axis=1)  # (nc, 1 + nt, nv)
    sizes = np.sqrt(np.einsum("crv,crv->cr", rows, np.linalg.solve(M, rows.swapaxes(1, 2)).swapaxes(1, 2)))
    rates = np.einsum("crv,nv->ncr", rows, v_plus)
    zero = np.abs(rates) <= small * sizes
    slips = np.any(~zero[..., 1:], axis=-1) & (np.asarray(terms.mu) > 0)
    back = (rates[..., 1] < 0) & (J_t.shape[1] == 1)
    closed = zero[..., 0] & np.asarray(terms.active)
    return np.where(closed, np.where(slips, np.where(back, BACKWARD, FORWARD), STICKING), SEPARATING)
