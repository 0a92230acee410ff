"""Kinds of outcomes: the contacts that stick, slide or lift after the impact of a sample."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from jaxcontact.impact.sampling.chunks import ImpactSamples
from jaxcontact.status import Status
from jaxcontact.terms import ContactTerms

LABELS = ("sticks", "slides", "lifts", "approaches")


def contact_names(num_contacts: int) -> list[str]:
    """List names of the contacts: A, B, C, ... in their order; c26, c27, ... beyond Z."""
    return [chr(ord("A") + i) if i < 26 else f"c{i}" for i in range(num_contacts)]


def contact_velocities(samples: ImpactSamples, terms: ContactTerms) -> tuple[np.ndarray, np.ndarray]:
    """Compute normal (n, nc) and tangential (n, nc, nt) contact velocities after the impact, m/s."""
    # Not `@`: its threads would wait for the cores that the sampler keeps busy.
    v_plus = np.asarray(samples.v_plus)
    return (
        np.einsum("cv,nv->nc", np.asarray(terms.J_n), v_plus),
        np.einsum("ctv,nv->nct", np.asarray(terms.J_t), v_plus),
    )


def outcome_labels(samples: ImpactSamples, terms: ContactTerms) -> np.ndarray:
    """Classify every sample and contact by an index into `LABELS`, (n, nc).

    A velocity below 1e-6 of the largest pre-impact contact velocity counts as zero.
    """
    normal, sliding = contact_velocities(samples, terms)
    slip = np.linalg.norm(sliding, axis=-1) if sliding.shape[-1] > 1 else np.abs(sliding[..., 0])
    before = np.asarray(samples.v_minus)
    speeds = np.concatenate([np.asarray(terms.J_n) @ before, (np.asarray(terms.J_t) @ before).ravel()])
    # Single precision leaves more noise on a velocity that should be zero.
    fraction = max(1e-6, 100.0 * float(np.finfo(normal.dtype).eps))
    small = fraction * max(float(np.max(np.abs(speeds))), 1e-300)
    return np.select([normal > small, normal < -small, slip > small], [2, 3, 1], 0)


def outcome_counts(samples: ImpactSamples, terms: ContactTerms) -> dict[tuple[int, ...], int]:
    """Count the successful samples of each kind, an index into `LABELS` per active contact."""
    succeeded = (np.asarray(samples.status) & np.uint32(int(Status.FAILURES))) == 0
    labels = outcome_labels(samples, terms)[succeeded][:, np.asarray(terms.active)]
    # A number per kind: sorting rows is ten times slower.
    place = len(LABELS) ** np.arange(labels.shape[1], dtype=np.int64 if labels.shape[1] < 32 else object)
    codes, counts = np.unique(labels @ place, return_counts=True)
    kinds = codes[:, None] // place % len(LABELS)
    return {tuple(map(int, kind)): int(n) for kind, n in zip(kinds, counts, strict=True)}


def outcome_shares(samples: ImpactSamples, terms: ContactTerms) -> list[tuple[str, float]]:
    """List the kinds of outcomes and their fractions of the successful samples, most frequent first.

    Example: [("A lifts, B sticks", 0.49), ("A sticks, B lifts", 0.49), ("A sticks, B sticks", 0.02)].
    """
    return named_shares(outcome_counts(samples, terms), terms)


def named_shares(
    counts: Mapping[tuple[int, ...], int], terms: ContactTerms, names: Sequence[str] | None = None
) -> list[tuple[str, float]]:
    """List `outcome_shares` from the counts of `outcome_counts`; `names` has those of the nc contacts."""
    nc = terms.phi.shape[0]
    names = np.array(contact_names(nc) if names is None else names[:nc])[np.asarray(terms.active)]
    total = sum(counts.values())
    return [
        (", ".join(f"{name} {LABELS[k]}" for name, k in zip(names, kind, strict=True)), count / total)
        for kind, count in sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    ]
