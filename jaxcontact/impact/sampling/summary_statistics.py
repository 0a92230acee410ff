"""Summary of a run in numbers that add up, from samples in any number of parts, in bounded memory."""

from __future__ import annotations

import dataclasses
from collections import Counter

import numpy as np

from jaxcontact.impact.sampling.chunks import ImpactSamples
from jaxcontact.impact.sampling.outcomes import contact_velocities, outcome_counts
from jaxcontact.status import Status
from jaxcontact.terms import ContactTerms


@dataclasses.dataclass(frozen=True, kw_only=True)
class Tally:
    """Counts and extremes over samples; `tally` makes one of a part, `a + b` joins consecutive parts.

    Attributes:
        number: of samples.
        terminated: number of samples that ended; the ranges are of these.
        kinds: counts per kind of outcome of the samples without a failure, as `outcome_counts`.
        low, high: (nc, 1 + nt) contact velocities (n, t1, t2), m/s.
        energy: (lowest, highest) kinetic energy after / before.
        steps: total number of steps.
        worst_residual: largest residual of any step.
        status: all status bits that occur.
        failed: number of samples that failed for another reason than too few steps.
        first_failed: (sample, step) of the first of them, or None.
        searched_again, missed: numbers of steps, as in `ImpactSamples`.
    """

    number: int
    terminated: int
    kinds: Counter[tuple[int, ...]]
    low: np.ndarray
    high: np.ndarray
    energy: tuple[float, float]
    steps: int
    worst_residual: float
    status: int
    failed: int
    first_failed: tuple[int, int] | None
    searched_again: int = 0
    missed: int = 0

    def __add__(self, other: Tally) -> Tally:
        first = self.first_failed
        if first is None and other.first_failed is not None:
            first = (self.number + other.first_failed[0], other.first_failed[1])
        return Tally(
            number=self.number + other.number,
            terminated=self.terminated + other.terminated,
            kinds=self.kinds + other.kinds,
            low=np.minimum(self.low, other.low),
            high=np.maximum(self.high, other.high),
            energy=(min(self.energy[0], other.energy[0]), max(self.energy[1], other.energy[1])),
            steps=self.steps + other.steps,
            worst_residual=float(np.maximum(self.worst_residual, other.worst_residual)),
            status=self.status | other.status,
            failed=self.failed + other.failed,
            first_failed=first,
            searched_again=self.searched_again + other.searched_again,
            missed=self.missed + other.missed,
        )


def tally(samples: ImpactSamples, terms: ContactTerms) -> Tally:
    """Count the outcomes and extremes of some samples, at least one."""
    status = np.asarray(samples.status)
    failed = np.flatnonzero(status & np.uint32(int(Status.FAILURES & ~Status.UNTERMINATED)))
    ended = status & np.uint32(int(Status.UNTERMINATED)) == 0
    normal, sliding = contact_velocities(samples, terms)
    velocity = np.concatenate([normal[:, :, None], sliding], axis=2)[ended]
    steps = np.asarray(samples.num_iters)
    energy = np.asarray(samples.energy_ratio)[ended]
    return Tally(
        number=status.size,
        terminated=int(np.count_nonzero(ended)),
        kinds=Counter(outcome_counts(samples, terms)),
        low=velocity.min(axis=0, initial=np.inf),
        high=velocity.max(axis=0, initial=-np.inf),
        energy=(float(energy.min(initial=np.inf)), float(energy.max(initial=-np.inf))),
        steps=int(np.sum(steps, dtype=np.int64)),
        worst_residual=float(np.max(np.asarray(samples.residual))),
        status=int(np.bitwise_or.reduce(status)),
        failed=failed.size,
        first_failed=(int(failed[0]), int(np.asarray(samples.num_iters)[failed[0]])) if failed.size else None,
        searched_again=int(np.sum(samples.searched_again)) if samples.searched_again is not None else 0,
        missed=int(np.sum(samples.missed)) if samples.missed is not None else 0,
    )
