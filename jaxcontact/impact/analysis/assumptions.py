"""A statistical test of Assumption 6 of Halm & Posa, one outcome of every step; entry `unique_steps`."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
import numpy as np

from jaxcontact._pytree import Record, static
from jaxcontact.arguments import check_count
from jaxcontact.front_door import PROBABILITY, checked
from jaxcontact.impact import inputs
from jaxcontact.impact.laws.contact_enumeration import enumerable
from jaxcontact.impact.laws.contact_space import ContactSpace, mass_norm
from jaxcontact.impact.laws.every_outcome import outcomes
from jaxcontact.impact.laws.routh import resolve_unchecked
from jaxcontact.impact.laws.routh_law import Routh, RouthStep, fitted_law
from jaxcontact.impact.laws.routh_steps import ImpactDraws, StepSettings
from jaxcontact.impact.sampling.binomial_bounds import binomial_lower, binomial_upper
from jaxcontact.impact.sampling.by_modes import tabulate
from jaxcontact.impact.sampling.draws import Iid
from jaxcontact.impact.sampling.driver import sample
from jaxcontact.precision import jit
from jaxcontact.solvers import contact_modes
from jaxcontact.terms import ContactTerms

if TYPE_CHECKING:
    from jaxtyping import Float

BATCH = 32  # steps that are searched together
DISTINCT_DIFFERENCE = 1e-7  # of |v|_M, above which outcomes count as two; as `outcomes`
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
        complete: whether every contact mode of each step was examined; False if its outcomes were searched.
    """

    num_steps: int = static()
    num_several: int = static()
    share: float = static()
    share_low: float = static()
    share_high: float = static()
    max_outcomes: int = static()
    example: StepExample | None
    confidence: float = static()
    complete: bool = static(default=True)


@checked(num_samples=check_count, confidence=PROBABILITY)
def unique_steps(
    terms: ContactTerms,
    v: Float[jax.Array, " nv"],
    law: Routh,
    *,
    num_samples: int = 4096,
    seed: int = 0,
    confidence: float = 0.99,
    num_covers: int = 8,
) -> UniqueSteps:
    """Test Assumption 6 of Halm & Posa: every solution of a step leads to the same velocity.

    The test draws independent impacts, selects one step of each at random, and counts the outcomes of that
    step over all contact modes (`outcomes`). One example disproves the assumption. Without an example,
    `share_high` bounds the fraction of steps with several outcomes; it says nothing about velocities that the
    impact does not reach. If a step has a continuum of solutions, the test counts its corners.

    Steps of more contacts than can be enumerated are searched: Lemke's method solves each from `num_covers`
    random covering vectors. The bounds are then of steps with several outcomes that this search finds: they
    tell what selection="lemke", one such solve a step, misses at least.

    Args:
        terms: contact terms, of which the active contacts count.
        v: (nv,) velocity before the impact; a contact approaches.
        law: as `sample`; its steps are drawn without its density, and without its selection unless that is
            "lemke", by which steps are searched for any number of contacts.
        num_samples: number of impacts, and so of tested steps.
        seed: of the draws.
        confidence: of the bounds on the fraction, in (0, 1).
        num_covers: number of solves of each step that is searched.

    Returns:
        UniqueSteps.

    Raises:
        ValueError, TypeError: as `sample`; no contact approaches; a confidence outside of (0, 1).

    Derivative: none; a host-level driver.
    """
    if not 0 < confidence < 1:
        raise ValueError(f"confidence: expected a number in (0, 1), got {confidence}")
    inputs.check_count("seed + 1", seed + 1)
    inputs.check_count("num_covers", num_covers)
    fitted = fitted_law(terms, v, law)
    if fitted.turn_polygon:
        raise ValueError("law.turn_polygon: expected False, because a turned step has other modes; got True")
    active = np.flatnonzero(np.asarray(terms.active))
    law = law.replace(impulse_step=fitted.impulse_step, max_steps=fitted.max_steps, density=None)
    if 0 < active.size < terms.phi.shape[0]:
        e = fitted.restitution
        terms = terms.take(active)
        law = law.replace(
            impulse_step=fitted.impulse_step[active], restitution=None if e is None else e[active]
        )
    nc, nt, _ = terms.J_t.shape
    searches = fitted.selection == "lemke" or not enumerable(nc, nt, law.num_directions)
    law = law.replace(selection="lemke" if searches else "all")
    velocities, caps = _draw_steps(terms, v, law, num_samples, seed)
    if searches:
        count = _count_by_search(terms, velocities, caps, law.num_directions, num_covers)
    else:
        count = _count_by_modes(terms, velocities, caps, law.num_directions)
    several = int(np.sum(count > 1))
    return UniqueSteps(
        num_steps=len(count),
        num_several=several,
        share=several / len(count),
        share_low=float(binomial_lower(several, len(count), confidence)),
        share_high=float(binomial_upper(several, len(count), confidence)),
        max_outcomes=int(np.max(count)),
        example=_make_example(terms, velocities, caps, int(np.argmax(count)), law.num_directions)
        if several and not searches
        else None,
        confidence=float(confidence),
        complete=not searches,
    )


def _draw_steps(
    terms: ContactTerms, v: jax.Array, law: Routh, num_samples: int, seed: int
) -> tuple[np.ndarray, np.ndarray]:
    """Draw impacts, and of each one step at random: its velocities (n, nv) and largest impulses (n, nc)."""
    draw_key, choice_key = jax.random.split(jax.random.key(seed))
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
    return velocities, np.asarray(drawn).T * np.asarray(law.impulse_step)


def _count_by_modes(
    terms: ContactTerms, velocities: np.ndarray, caps: np.ndarray, num_directions: int
) -> np.ndarray:
    """Count the outcomes (n,) of steps over all contact modes."""
    space, table = tabulate(terms, num_directions)
    size = int(np.clip(CELLS // table.regular.shape[0], 1, 1024))
    counts = []
    for begin in range(0, len(velocities), size):
        rows = np.resize(np.arange(begin, min(begin + size, len(velocities))), size)
        num_outcomes = _count_outcomes(space, table, jnp.asarray(velocities[rows]), jnp.asarray(caps[rows]))
        counts.append(np.asarray(num_outcomes)[: len(velocities) - begin])
    return np.concatenate(counts)


def _count_by_search(
    terms: ContactTerms, velocities: np.ndarray, caps: np.ndarray, num_directions: int, num_covers: int
) -> np.ndarray:
    """Count the distinct outcomes (n,) of steps that Lemke's method finds from random covering vectors."""
    picks = np.random.default_rng(0).uniform(size=(len(velocities), num_covers))
    picks[:, 0] = 0.0  # the covering vector of ones
    counts = []
    for begin in range(0, len(velocities), BATCH):
        rows = np.resize(np.arange(begin, min(begin + BATCH, len(velocities))), BATCH)
        v_next, good = _solve_from_covers(
            terms, *(jnp.asarray(a[rows]) for a in (velocities, caps, picks)), num_directions
        )
        speeds = np.sqrt(np.einsum("ni,ij,nj->n", velocities[rows], np.asarray(terms.M), velocities[rows]))
        counts.append(
            [
                _count_distinct(np.asarray(terms.M), *answer)
                for answer in zip(
                    np.asarray(v_next), np.asarray(good), DISTINCT_DIFFERENCE * speeds, strict=True
                )
            ][: len(velocities) - begin]
        )
    return np.concatenate(counts).astype(np.int32)


@functools.partial(jit, static_argnames="num_directions")
def _solve_from_covers(
    terms: ContactTerms, v: jax.Array, caps: jax.Array, picks: jax.Array, num_directions: int
) -> tuple[jax.Array, jax.Array]:
    """Solve steps from covering vectors; return velocities (n, covers, nv) and whether each is a solution."""
    settings = StepSettings("lemke", num_directions, until_separated=False)

    def solve(v: jax.Array, cap: jax.Array, pick: jax.Array) -> tuple[jax.Array, jax.Array]:
        v_next, info = resolve_unchecked(terms, v, ImpactDraws(cap[None], pick[None]), settings)
        return v_next, info.status == 0

    return jax.vmap(jax.vmap(solve, (None, None, 0)))(v, caps, picks)


def _count_distinct(mass: np.ndarray, velocities: np.ndarray, good: np.ndarray, tolerance: float) -> int:
    """Count the velocities (k, nv) that differ by more than `tolerance` in |dv|_M, of the good ones."""
    distinct: list[np.ndarray] = []
    for velocity in velocities[good]:
        apart = [velocity - other for other in distinct]
        if all(d @ mass @ d > tolerance**2 for d in apart):
            distinct.append(velocity)
    return max(1, len(distinct))


def _make_example(
    terms: ContactTerms, velocities: np.ndarray, caps: np.ndarray, row: int, num_directions: int
) -> StepExample:
    v, cap = jnp.asarray(velocities[row]), jnp.asarray(caps[row])
    (every, valid), _ = outcomes(terms, v, RouthStep(impulse_max=cap, num_directions=num_directions))
    return StepExample(v=v, impulse_max=cap, outcomes=every[: int(jnp.sum(valid))])


@jit
def _count_outcomes(
    space: ContactSpace, table: contact_modes.ModeMaps, v: jax.Array, caps: jax.Array
) -> jax.Array:
    """Count the outcomes (n,) of a block of steps from v (n, nv) with caps (n, nc), by the maps of modes."""
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
