"""Samples of an impact with steps of several sizes: which shares and ranges depend on the step.

Entry `refine`; docs/methods/set-valued.md says what a limit of small steps means.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
import numpy as np

from jaxcontact._pytree import PyTree, Record, static
from jaxcontact.arguments import check_count, check_number
from jaxcontact.batching.run_settings import DEFAULT_RUN, Run
from jaxcontact.front_door import checked
from jaxcontact.impact import inputs
from jaxcontact.impact.laws.routh_law import Routh, fitted_law
from jaxcontact.impact.sampling.driver import sample
from jaxcontact.impact.sampling.outcomes import named_shares, outcome_counts
from jaxcontact.status import Status
from jaxcontact.terms import ContactTerms

if TYPE_CHECKING:
    from jaxtyping import Float

FACTORS = (4.0, 2.0, 1.0, 0.5, 0.25)  # steps that are sampled, as multiples of that of the law
SHARE_CHANGE = 0.02  # change of a share between two steps that counts as none, beside chance
RANGE_CHANGE = 0.05  # change of a range's ends that counts as none, as fraction of the widest range
MORE_STEPS = 1.05  # ratio of the numbers of steps of two sizes below which steps are too large to matter
ERRORS = 3.0  # standard errors of the difference of two shares that count as chance


class Refinement(Record):
    """Shares and ranges of the outcomes for k sizes of the impulse step, from the largest to the smallest.

    Attributes:
        impulse_step: (k, nc) largest normal impulses, N s.
        kinds: names of the kinds of outcomes, "A lifts, B sticks", the most frequent first.
        shares: (k, kinds) of the samples with status 0.
        low, high: (k, nv) ends of the range of each velocity, m/s or rad/s.
        num_steps: (k,) mean numbers of steps of an impact.
        failed: (k,) numbers of samples that failed or did not end; they are left out.
        shares_settled, range_settled: bool, whether the last two sizes agree: shares within 0.02 and three
            standard errors, ends of ranges within 0.05 of the widest range of a velocity. False if the steps
            are so large that the last size takes no more of them than the one before.
    """

    impulse_step: jax.Array
    kinds: tuple[str, ...] = static()
    shares: jax.Array
    low: jax.Array
    high: jax.Array
    num_steps: jax.Array
    failed: jax.Array
    shares_settled: bool = static()
    range_settled: bool = static()


@checked(num_samples=check_count)
def refine(
    terms: ContactTerms,
    v: Float[jax.Array, " nv"],
    law: Routh,
    *,
    num_samples: int,
    factors: Sequence[float] = FACTORS,
    seed: int = 0,
    run: Run = DEFAULT_RUN,
) -> Refinement:
    """Sample an impact with smaller and smaller impulse steps, and say whether range and shares settle.

    The largest number of steps grows as the step shrinks. Independent small steps average out to equal rates:
    if both settle, then mostly on the single outcome of those (`routh_path`), and not because other orders
    were impossible.

    Args:
        terms: contact terms, nc contacts.
        v: (nv,) velocity before the impact.
        law: the law to draw from; its step, or `Routh`'s own, is multiplied by the factors.
        num_samples: of each size.
        factors: of the step, falling, at least two.
        seed, run: as `sample`; no checkpoint.

    Returns:
        Refinement.

    Raises:
        ValueError, TypeError: as `sample`; factors that do not fall or are not positive; a checkpoint.

    Status: `failed` counts the samples with bits of failure.

    Derivative: none; a host-level driver.
    """
    check_number("factors", factors, 0.0)
    sizes = np.asarray(factors, float)
    if sizes.ndim != 1 or sizes.size < 2 or np.any(np.diff(sizes) >= 0) or sizes[-1] <= 0:
        raise ValueError(f"factors: expected two or more positive numbers that fall, got {factors!r}")
    if run.checkpoint is not None:
        raise ValueError("run.checkpoint: expected None, for several runs are compared")
    inputs.check_count("num_samples", num_samples)
    fitted = fitted_law(terms, v, law)
    steps = np.asarray(fitted.impulse_step) * sizes[:, None]
    rows = []
    for step, size in zip(steps, sizes, strict=True):
        max_steps = max(fitted.max_steps, int(np.ceil(fitted.max_steps / size)))
        sized = law.replace(impulse_step=step, max_steps=max_steps)
        rows.append(_summary(terms, sample(terms, v, sized, num_samples=num_samples, seed=seed, run=run)))
    total: Counter[tuple[int, ...]] = Counter()
    for row in rows:
        total.update(row["counts"])
    order = sorted(total, key=lambda kind: (-total[kind], kind))
    counts = np.array([[row["counts"].get(kind, 0) for kind in order] for row in rows], float)
    shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1.0)
    low, high = (np.stack([row[end] for row in rows]) for end in ("low", "high"))
    num_steps = [row["steps"] for row in rows]
    matters = num_steps[-1] == 0 or num_steps[-1] > MORE_STEPS * num_steps[-2]
    return Refinement(
        impulse_step=jnp.asarray(steps, v.dtype),
        kinds=tuple(named_shares({kind: 1}, terms)[0][0] for kind in order),
        shares=jnp.asarray(shares, v.dtype),
        low=jnp.asarray(low, v.dtype),
        high=jnp.asarray(high, v.dtype),
        num_steps=jnp.asarray(num_steps, v.dtype),
        failed=jnp.asarray([row["failed"] for row in rows]),
        shares_settled=matters and _shares_agree(shares[-2:], counts[-2:].sum(axis=1)),
        range_settled=matters and _ranges_agree(low, high),
    )


def _summary(terms: ContactTerms, samples: PyTree) -> dict[str, PyTree]:
    """Collect counts of kinds, ends of ranges and mean number of steps of the samples that ended."""
    good = (np.asarray(samples.status) & np.uint32(int(Status.FAILURES))) == 0
    v_plus = np.asarray(samples.v_plus)[good]
    if not len(v_plus):
        raise ValueError(
            "law: no sample ended with status 0; give it more max_steps or a larger impulse_step"
        )
    return {
        "counts": outcome_counts(samples, terms),
        "low": v_plus.min(axis=0),
        "high": v_plus.max(axis=0),
        "steps": float(np.mean(np.asarray(samples.num_iters)[good])),
        "failed": int(np.sum(~good)),
    }


def _shares_agree(shares: np.ndarray, numbers: np.ndarray) -> bool:
    """Tell whether two rows of shares agree but for chance and `SHARE_CHANGE`."""
    pooled = numbers @ shares / numbers.sum()
    error = np.sqrt(pooled * (1.0 - pooled) * np.sum(1.0 / numbers))
    return bool(np.all(np.abs(shares[1] - shares[0]) <= SHARE_CHANGE + ERRORS * error))


def _ranges_agree(low: np.ndarray, high: np.ndarray) -> bool:
    """Tell whether the last two ranges agree within `RANGE_CHANGE` of the widest, or by rounding."""
    widest = np.max(high - low, axis=0)
    rounding = 1e3 * np.finfo(low.dtype).eps * np.maximum(np.abs(low), np.abs(high)).max()
    change = np.maximum(np.abs(low[-1] - low[-2]), np.abs(high[-1] - high[-2]))
    return bool(np.all(change <= RANGE_CHANGE * widest + rounding))
