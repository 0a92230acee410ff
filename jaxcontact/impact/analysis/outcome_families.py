"""Samples of one impact by the contact mode in which they end, and how far apart members of a family lie."""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from jaxcontact.terms import ContactTerms

NEIGHBOURS = 8  # how many other members tell the spacing near one of them
FEW = 16  # a family of no more members, not all at one place, says nothing of its width
PROBES = 4096  # members whose distance to the nearest other one gives the usual spacing
QUANTILE = 0.99
GAP = 10.0  # a neighbour farther by this factor than the one before, and than usual, is of another part
SEPARATING, STICKING, FORWARD, BACKWARD = range(4)  # what a contact does after the impact


class Match(NamedTuple):
    """The member of a family nearest to each of some points (k,).

    Attributes:
        distance: to it.
        nearest: its number among all samples.
        width: distance up to which a point beside it counts as a member, that of its last neighbour.
        thin: whether there are fewer than `NEIGHBOURS` others before a gap, or `FEW` members in all; then
            `width` is the least one.
    """

    distance: np.ndarray
    nearest: np.ndarray
    width: np.ndarray
    thin: np.ndarray


def match(numbers: np.ndarray, points: np.ndarray, places: np.ndarray, least: float) -> Match:
    """The members of a family nearest to some places (k, nv).

    Args:
        numbers: (n,) of the members among all samples.
        points: (n, nv) of the members.
        places: (k, nv).
        least: smallest width, below which two points are one.
    """
    # A mean split and a compact tree stay fast where many samples are equal.
    from scipy.spatial import cKDTree  # here, as its import takes long

    tree = cKDTree(points, balanced_tree=False, compact_nodes=True)
    distance, at = tree.query(places)
    # Neighbours that there are not are at a distance of inf.
    others = tree.query(points[at], k=NEIGHBOURS + 1)[0]
    probes = points[:: max(1, len(points) // PROBES)][:PROBES]
    spacing = tree.query(probes, k=[2])[0][:, 0]
    usual = max(least, float(np.quantile(spacing, QUANTILE, method="lower")) if len(points) > 1 else 0.0)
    thin = np.any(others[:, 1:] > GAP * np.maximum(others[:, :-1], usual), axis=1)
    thin |= (len(points) <= FEW) & (others[:, -1] > least)
    return Match(distance, numbers[at], np.where(thin, least, np.maximum(least, others[:, -1])), thin)


def families(terms: ContactTerms | None, v_minus: np.ndarray, v_plus: np.ndarray) -> list[np.ndarray]:
    """Numbers of the samples of each family; all are one family without terms."""
    if terms is None:
        return [np.arange(len(v_plus))]
    modes = end_modes(terms, v_minus, v_plus)
    _, family = np.unique(modes, axis=0, return_inverse=True)
    return [np.flatnonzero(family == k) for k in range(np.max(family) + 1)]


def end_modes(terms: ContactTerms, v_minus: np.ndarray, v_plus: np.ndarray) -> np.ndarray:
    """What each contact does after an impact, (n, nc): separating, sticking, sliding forwards or backwards.

    Without friction a contact that stays closed counts as sticking; one that slides in space slides forwards,
    for all directions are of one family. Inactive contacts separate. Rates count as zero below the square
    root of the rounding, relative to |v_minus|_M.
    """
    M, J_n, J_t = (np.asarray(a, float) for a in (terms.M, terms.J_n, terms.J_t))
    small = float(jnp.finfo(v_plus.dtype).eps) ** 0.5 * np.sqrt(v_minus @ M @ v_minus)
    rows = np.concatenate([J_n[:, None], J_t], axis=1)  # (nc, 1 + nt, nv)
    sizes = np.sqrt(np.einsum("crv,crv->cr", rows, np.linalg.solve(M, rows.swapaxes(1, 2)).swapaxes(1, 2)))
    rates = np.einsum("crv,nv->ncr", rows, v_plus)
    zero = np.abs(rates) <= small * sizes
    slips = np.any(~zero[..., 1:], axis=-1) & (np.asarray(terms.mu) > 0)
    back = (rates[..., 1] < 0) & (J_t.shape[1] == 1)
    closed = zero[..., 0] & np.asarray(terms.active)
    return np.where(closed, np.where(slips, np.where(back, BACKWARD, FORWARD), STICKING), SEPARATING)
