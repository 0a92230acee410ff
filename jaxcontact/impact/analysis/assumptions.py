"""A statistical test of Assumption 6 of Halm & Posa, one outcome of every step; entry `unique_steps`."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from jaxcontact._pytree import Record, static
from jaxcontact.arguments import check_count
from jaxcontact.front_door import PROBABILITY, checked
from jaxcontact.impact import inputs
from jaxcontact.impact.analysis.coverage import binomial_lower, binomial_upper
from jaxcontact.impact.laws.contact_space import ContactSpace, mass_norm
from jaxcontact.impact.laws.every_outcome import outcomes
from jaxcontact.impact.laws.routh_law import Routh, RouthStep, fitted_law
from jaxcontact.impact.sampling.by_modes import tabulate
from jaxcontact.impact.sampling.draws import Iid
from jaxcontact.impact.sampling.driver import sample
from jaxcontact.precision import jit
from jaxcontact.solvers import contact_modes
from jaxcontact.terms import ContactTerms

CELLS = 2**21  # largest number of modes times steps that are evaluated together; bounds the memory


class StepExample(Record):
    """A step with several outcomes: v (nv,), impulse_max (nc,) in N s, and outcomes (k, nv)."""

    v: jax.Array
    impulse_max: jax.Array
    outcomes: jax.Array


class UniqueSteps(Record):
    """Number and fraction of the steps that have several outcomes with distinct velocities.

    Attributes:
        num_steps: number of independent steps that were tested.
        num_several: number of steps with several outcomes.
        share: num_several / num_steps.
        share_low, share_high: one-sided confidence bounds on the true fraction (Clopper-Pearson), each at
            `confidence`.
        max_outcomes: largest number of outcomes of a step.
        example: a step with `max_outcomes` outcomes; None if all steps have one.
        confidence: of each bound.
    """

    num_steps: int = static()
    num_several: int = static()
    share: float = static()
    share_low: float = static()
    share_high: float = static()
    max_outcomes: int = static()
    example: StepExample | None
    confidence: float = static()


@checked(v="nv", num_samples=check_count, confidence=PROBABILITY)
def unique_steps(
    terms: ContactTerms,
    v: jax.Array,
    law: Routh,
    *,
    num_samples: int = 4096,
    seed: int = 0,
    confidence: float = 0.99,
) -> UniqueSteps:
    """Test Assumption 6 of Halm & Posa: every solution of a step leads to the same velocity.

    The test draws independent impacts, selects one step of each at random, and counts the outcomes of that
    step over all contact modes (`outcomes`). One example disproves the assumption. Without an example,
    `share_high` bounds the fraction of steps with several outcomes; it says nothing about velocities that the
    impact does not reach. If a step has a continuum of solutions, the test counts its corners.

    Args:
        terms: contact terms, with no more contacts than `outcomes` allows.
        v: (nv,) velocity before the impact; a contact approaches.
        law: as `sample`; its steps are drawn without its density and selection.
        num_samples: number of impacts, and so of tested steps.
        seed: of the draws.
        confidence: of the bounds on the fraction, in (0, 1).

    Returns:
        UniqueSteps.

    Raises:
        ValueError, TypeError: as `sample`; no contact approaches; a confidence outside of (0, 1).

    Derivative: none; a host-level driver.
    """
    if not 0 < confidence < 1:
        raise ValueError(f"confidence: expected a number in (0, 1), got {confidence}")
    inputs.check_count("seed + 1", seed + 1)
    draw_key, choice_key = jax.random.split(jax.random.key(seed))
    fitted = fitted_law(terms, v, law)
    if fitted.turn_polygon:
        raise ValueError("law.turn_polygon: expected False, because a turned step has other modes; got True")
    law = law.replace(selection="all", density=None)
    samples = sample(terms, v, law, num_samples=num_samples, seed=draw_key, keep_path=True)
    num_steps = np.asarray(samples.num_iters)
    if not np.any(num_steps):
        raise ValueError("v: expected a contact that approaches, got none")
    number = np.asarray(jax.random.uniform(choice_key, num_steps.shape))
    steps = np.minimum((number * num_steps).astype(np.int32), num_steps - 1)
    assert samples.path is not None
    velocities = np.asarray(samples.path)[np.arange(len(steps)), steps]
    nc = terms.phi.shape[0]
    index = jnp.arange(len(steps), dtype=jnp.uint32)
    drawn = Iid(key=draw_key).uniform(index, jnp.asarray(steps * (nc + 1)), nc, velocities.dtype)
    caps = np.asarray(drawn).T * np.asarray(fitted.impulse_step)

    space, table = tabulate(terms, law.num_directions)
    counts = []
    size = int(np.clip(CELLS // table.regular.shape[0], 1, 1024))
    for begin in range(0, len(steps), size):
        rows = np.resize(np.arange(begin, min(begin + size, len(steps))), size)
        num_outcomes = _count_outcomes(space, table, jnp.asarray(velocities[rows]), jnp.asarray(caps[rows]))
        counts.append(np.asarray(num_outcomes)[: len(steps) - begin])
    count = np.concatenate(counts)
    several = int(np.sum(count > 1))
    return UniqueSteps(
        num_steps=len(count),
        num_several=several,
        share=several / len(count),
        share_low=float(binomial_lower(several, len(count), confidence)),
        share_high=float(binomial_upper(several, len(count), confidence)),
        max_outcomes=int(np.max(count)),
        example=_example(terms, velocities, caps, int(np.argmax(count)), law.num_directions)
        if several
        else None,
        confidence=float(confidence),
    )


def _example(
    terms: ContactTerms, velocities: np.ndarray, caps: np.ndarray, row: int, num_directions: int
) -> StepExample:
    v, cap = jnp.asarray(velocities[row]), jnp.asarray(caps[row])
    (every, valid), _ = outcomes(terms, v, RouthStep(impulse_max=cap, num_directions=num_directions))
    return StepExample(v=v, impulse_max=cap, outcomes=every[: int(jnp.sum(valid))])


@jit
def _count_outcomes(
    space: ContactSpace, table: contact_modes.ModeMaps, v: jax.Array, caps: jax.Array
) -> jax.Array:
    """Count the outcomes (n,) of each step, from v (n, nv) and impulse_max (n, nc)."""
    u = contact_modes.apply(space.jacobian.T, v.T)
    cap = jnp.where(space.active[:, None], caps.T / space.scale[:: 1 + space.num_tangents, None], 0.0)
    x = jnp.concatenate([u, cap])
    speed = jax.vmap(lambda velocity: mass_norm(space.mass, velocity))(v)
    tolerance = contact_modes.feasibility_tolerance(v.dtype) * speed
    valid = contact_modes.evaluate(table, x) <= tolerance[None]
    score = jnp.sort(jnp.where(valid, contact_modes.apply(table.score, x), jnp.inf), axis=0)
    # As in the sampler, outcomes with scores that differ by less than this tolerance count as one.
    distinct = jnp.isfinite(score[1:]) & (score[1:] - score[:-1] > 100.0 * tolerance[None])
    return 1 + jnp.sum(distinct, axis=0, dtype=jnp.int32)
