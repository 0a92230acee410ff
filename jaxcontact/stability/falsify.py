"""Falsifiers: many small perturbations of an equilibrium, searched for a motion that grows for ever.

Owns the starts and the verdicts; `motion.py` has the motion. Entry function `falsify`; page:
docs/methods/stability.md.
"""

from __future__ import annotations

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxcontact._pytree import Record, static
from jaxcontact.arguments import check_count, check_integer, check_rows
from jaxcontact.front_door import checked
from jaxcontact.impact.laws.callable_laws import Law, law_as_pytree
from jaxcontact.precision import jit
from jaxcontact.stability.body import IMPACT_LAW, Body, LocalTerms, as_terms
from jaxcontact.stability.modes import LETTERS, contact_modes, mode_words
from jaxcontact.stability.motion import (
    ACTIVE,
    CLOSED_SPEED,
    DIVERGED,
    GROWTH,
    RESTED,
    STUCK,
    Motion,
    ZeroOrderDynamics,
    settle_contacts,
    step,
    zero_order_dynamics,
)

SAME, TREND = 1e-9, 1e-6  # distance of a state that has returned; change of log(size) that counts as growth
MAX_EVENTS = 2**31 - 2  # events of a motion; counted in 32 bits


class Falsification(Record):
    """The result of a search over a number of perturbations.

    Attributes:
        found: whether some motion diverges: it grows by 1e6, returns to the same state at a larger size, or
            leaves in one mode for ever.
        growth: logarithm of the factor by which the motion grew that is decided after the fewest events: from
            a state to its return, or from its start if that takes 1e6; inf if it leaves in one mode for ever,
            -inf if no motion diverges.
        start: that motion's start, of size one; every multiple (s v, s^2 gaps) does the same.
        share: (4,) fractions of motions still under way, at rest, diverged, without a consistent mode.
        law: the impact law of the motions, in words.
    """

    found: bool = static()
    growth: float = static()
    start: Motion
    share: np.ndarray
    law: str = static(default=IMPACT_LAW)


@checked(num_samples=check_rows, max_events=check_rows)
def falsify(
    body: Body, *, num_samples: int = 256, seed: int = 0, max_events: int = 2000, law: Law | None = None
) -> Falsification:
    """Look for a motion that diverges from an arbitrarily small perturbation of the equilibrium.

    Starts are along the accelerations of all contact modes, and random states of size one with gaps open
    or zero. If several modes are consistent, each start has its own preference among them. A motion is
    decided if its size has changed by 1e6 either way, or if it has come back to the same state at another
    size.

    Args:
        body: a PlanarBiped or LocalTerms.
        num_samples: number of starts, at least 1.
        seed: of the random starts, an integer.
        max_events: events after which a motion is left undecided, at least 1.
        law: an impact law for all contacts that touch, such as `jc.impact.AnitescuPotra()`, with its own
            restitution. None is the law that `certify` proves motion under: one contact at a time, `body.e`.

    Returns:
        Falsification; `found` False proves nothing.

    Raises:
        TypeError: a law that is no callable.
        ValueError: bad numbers in the body, no equilibrium; num_samples, seed or max_events out of range.

    Derivative: none.
    """
    check_starts(num_samples, seed, max_events)
    terms = as_terms(body)
    table = contact_modes(terms)
    if not bool(table.at_rest[table.words.index("S" * terms.mu.shape[0])]):
        raise ValueError("body: not an equilibrium; no contact forces within Coulomb's law hold it at rest")
    keys = jax.random.key(seed), jax.random.key(seed + 1)
    law = None if law is None else law_as_pytree(law)
    runs = _run_motions(terms, *keys, jnp.asarray(max_events), num_samples, law)
    start, end, growth = jax.tree.map(np.asarray, runs)
    return summarise(start, end, growth, IMPACT_LAW if law is None else repr(law))


def check_starts(num_samples: object, seed: object, events: object, name: str = "max_events") -> None:
    """Raise ValueError for settings of the falsifier that are not integers, or too small or too large."""
    check_count("num_samples", num_samples)
    check_integer("seed", seed)
    check_integer(name, events, 1, MAX_EVENTS)


def summarise(start: Motion, end: Motion, growth: np.ndarray, law: str) -> Falsification:
    """Combine the motions from all starts of one body into a Falsification."""
    outcome = np.asarray(end.outcome)
    diverged = outcome == DIVERGED
    score = np.where(diverged, -np.asarray(end.events, float), -np.inf)
    best = int(np.argmax(score))
    return Falsification(
        found=bool(diverged.any()),
        growth=float(growth[best]) if diverged.any() else -math.inf,
        start=jax.tree.map(lambda x: x[best], start),
        share=np.array([np.mean(outcome == code) for code in (ACTIVE, RESTED, DIVERGED, STUCK)]),
        law=law,
    )


def run_many(terms: LocalTerms, num_samples: int, seed: int, max_events: int) -> tuple[Motion, Motion]:
    """Run motions of many bodies, the batched leaves of `terms`; return starts and ends (bodies, samples)."""
    keys = jax.random.key(seed), jax.random.key(seed + 1)
    count = jnp.shape(terms.mu)[0]
    runs = [
        _run_motions(
            jax.tree.map(lambda x, i=i: x[i], terms), *keys, jnp.asarray(max_events), num_samples, None
        )[:2]
        for i in range(count)
    ]
    starts, ends = (jax.tree.map(lambda *x: jnp.stack(x), *motions) for motions in zip(*runs, strict=True))
    return starts, ends


@functools.partial(jit, static_argnames="num_samples")
def _run_motions(
    terms: LocalTerms,
    key: jax.Array,
    preference: jax.Array,
    max_events: jax.Array,
    num_samples: int,
    law: Law,
) -> tuple[Motion, Motion, jax.Array]:
    """Run motions of one body; return their starts, their ends, and the growth of those that grow."""
    dynamics = zero_order_dynamics(terms, law)
    start = make_starts(dynamics, num_samples, key)
    priority = jax.random.uniform(preference, (num_samples, dynamics.possible.shape[0]), terms.M.dtype)
    lanes = jax.vmap(lambda m, p: step(dynamics, m, p)[0])

    def more(carry: tuple[Motion, Motion, jax.Array, jax.Array]) -> jax.Array:
        return jnp.any(carry[0].outcome == ACTIVE) & (carry[3] <= max_events)

    def advance(carry: tuple[Motion, Motion, jax.Array, jax.Array]) -> tuple:
        motion, seen, growth, count = carry
        motion, returned = jax.vmap(_decide_returned)(lanes(motion, priority), seen)
        growth = jnp.where(returned, motion.log_size - seen.log_size, growth)
        note = (count & (count - 1)) == 0  # events 1, 2, 4, 8, ...: each longer than any cycle before it
        seen = jax.tree.map(lambda new, old: jnp.where(note, new, old), motion, seen)
        return motion, seen, growth, count + 1

    unknown = jnp.full(num_samples, jnp.nan, terms.M.dtype)
    end, _, growth, _ = lax.while_loop(more, advance, (start, start, unknown, jnp.int32(1)))
    otherwise = jnp.where(end.log_size > GROWTH, end.log_size, jnp.inf)
    return start, end, jnp.where(jnp.isnan(growth), otherwise, growth)


def _decide_returned(motion: Motion, seen: Motion) -> tuple[Motion, jax.Array]:
    """Decide a motion whose state `seen` came back at another size, as it then does for ever; say whether."""
    far = jnp.maximum(jnp.max(jnp.abs(motion.v - seen.v)), jnp.max(jnp.abs(motion.gaps - seen.gaps)))
    same = jnp.all(motion.closed == seen.closed) & jnp.all(motion.sticks == seen.sticks)
    growth = motion.log_size - seen.log_size
    back = same & (far < SAME) & (jnp.abs(growth) > TREND) & (motion.outcome == ACTIVE)
    decided = jnp.where(growth > 0, DIVERGED, RESTED)
    return motion.replace(outcome=jnp.where(back, decided, motion.outcome).astype(jnp.int32)), back


def make_starts(dynamics: ZeroOrderDynamics, number: int, key: jax.Array) -> Motion:
    """Make starts along the acceleration of each mode, then random ones, all of about size one."""
    terms = dynamics.terms
    nc, nv = terms.J_n.shape
    words = np.array([[LETTERS.index(c) for c in word] for word in mode_words(nc)])
    keys = jax.random.split(key, 4)
    dtype = terms.M.dtype
    v = jax.random.normal(keys[0], (number, nv), dtype)
    q = jax.random.normal(keys[1], (number, nv), dtype) @ terms.J_n.T
    speed = jnp.where(
        dynamics.lift[0] < 0, -dynamics.lift[0], 1.0
    )  # lifting against free flight opens every gap
    height = jnp.max(-q / speed[None], axis=1) + jnp.where(
        jax.random.bernoulli(keys[2], 0.5, (number,)), jax.random.exponential(keys[3], (number,), dtype), 0.0
    )
    gaps = jnp.maximum(q + height[:, None] * speed[None], 0.0)
    gaps = jnp.where(jnp.abs(gaps) < CLOSED_SPEED, 0.0, gaps) * (jnp.arange(number) % 4 > 0)[:, None]
    few = min(len(words), number)
    v = v.at[:few].set(dynamics.acceleration[:few])
    opened = jnp.asarray(words[:few] == 0)
    away = jnp.where(opened, 0.5 * dynamics.lift[:few], 0.0)
    gaps = gaps.at[:few].set(jnp.where(jnp.all(away >= 0, axis=1)[:, None], away, 0.0))
    closed = jnp.zeros((number, nc), bool).at[:few].set(~opened & dynamics.possible[:few, None])
    still = jnp.sum(jnp.abs(v), axis=1) <= CLOSED_SPEED * dynamics.fall
    v = jnp.where(still[:, None], jnp.ones_like(v), v)
    closed = closed & ~still[:, None]
    size = jnp.sqrt(jnp.sum((v @ terms.M) * v, axis=1) + dynamics.fall * jnp.max(gaps, axis=1))
    v, gaps = v / size[:, None], gaps / size[:, None] ** 2
    start = Motion(
        v=v,
        gaps=gaps,
        closed=closed,
        sticks=jnp.zeros_like(closed),
        log_size=jnp.zeros(number, dtype),
        events=jnp.zeros(number, jnp.int32),
        outcome=jnp.zeros(number, jnp.int32),
    )
    return jax.vmap(lambda motion: settle_contacts(dynamics, motion, motion.v, motion.gaps, motion.closed))(
        start
    )
