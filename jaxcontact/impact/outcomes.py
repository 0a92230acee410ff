"""What kind of outcome a sample is: which contacts stick, slide or lift afterwards."""

from __future__ import annotations

import numpy as np

from jaxcontact.impact.stream import ImpactSamples
from jaxcontact.status import Status
from jaxcontact.terms import ContactTerms

LABELS = ("sticks", "slides", "lifts", "approaches")


def contact_names(num_contacts: int) -> list[str]:
    """A, B, C, ... in the order of the contacts; c26, c27, ... beyond Z."""
    return [chr(ord("A") + i) if i < 26 else f"c{i}" for i in range(num_contacts)]


def outcome_labels(samples: ImpactSamples, terms: ContactTerms) -> np.ndarray:
    """Index into `LABELS` of every sample and contact: (n, nc).

    A velocity below 1e-6 of the largest pre-impact contact velocity counts as zero.
    """
    normal = np.asarray(samples.v_plus) @ np.asarray(terms.J_n).T
    sliding = np.einsum("ctv,nv->nct", np.asarray(terms.J_t), np.asarray(samples.v_plus))
    slip = np.linalg.norm(sliding, axis=-1)
    before = np.asarray(samples.v_minus)
    speeds = np.concatenate([np.asarray(terms.J_n) @ before, (np.asarray(terms.J_t) @ before).ravel()])
    # Single precision leaves more noise on a velocity that should be zero.
    fraction = max(1e-6, 100.0 * float(np.finfo(normal.dtype).eps))
    small = fraction * max(float(np.max(np.abs(speeds))), 1e-300)
    return np.select([normal > small, normal < -small, slip > small], [2, 3, 1], 0)


def outcome_shares(samples: ImpactSamples, terms: ContactTerms) -> list[tuple[str, float]]:
    """Kinds of outcomes found and their shares of the terminated samples, most frequent first.

    Example: [("A lifts, B sticks", 0.49), ("A sticks, B lifts", 0.49), ("A sticks, B sticks", 0.02)].
    """
    kept = (np.asarray(samples.status) & np.uint32(int(Status.FAILURES))) == 0
    labels = outcome_labels(samples, terms)[kept][:, np.asarray(terms.active)]
    names = np.array(contact_names(terms.phi.shape[0]))[np.asarray(terms.active)]
    if labels.shape[0] == 0:
        return []
    kinds, counts = np.unique(labels, axis=0, return_counts=True)
    order = np.argsort(-counts, kind="stable")
    return [
        (
            ", ".join(f"{name} {LABELS[k]}" for name, k in zip(names, kinds[i], strict=True)),
            float(counts[i] / labels.shape[0]),
        )
        for i in order
    ]
