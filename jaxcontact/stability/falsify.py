"""Falsifiers: event by event through the zero-order dynamics, in relative scale, from many perturbations.

Owns the batched motion and its verdicts. The dynamics is invariant under q ~ s^2, v ~ s, so after every
event the state is brought back to size one and the logarithm of its size kept: Zeno sequences and inverse
chatter, which shrink or grow geometrically, become long runs of events of size one.
"""

from __future__ import annotations

import functools
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxcontact import linalg
from jaxcontact._pytree import Record, static
from jaxcontact.stability.body import Body, LocalTerms, as_terms
from jaxcontact.stability.modes import LETTERS, contact_modes, impact_impulse, mode_words

CLOSED = 1e-10  # contact speed relative to the size of the state below which a contact is closed or sticks
GROWTH = math.log(1e6)  # of the size of the state, either way, that decides
FLAT = 1e-9  # gap relative to the size of the state that counts as none
SAME, TREND = 1e-9, 1e-6  # a state has returned within the first, having grown by more than the second
ACTIVE, RESTED, DIVERGED, STUCK = range(4)


class Motion(Record):
    """A motion in relative scale: at each event the state of size one and the logarithm of its true size.

    Attributes:
        v: (..., nv) velocity.
        gaps: (..., nc).
        closed: (..., nc) bool, contacts that touch without approach or separation.
        sticks: (..., nc) bool, closed contacts without slip.
        log_size: (...,) size of the state, v ~ exp(log_size), gaps ~ exp(2 log_size).
        events: (...,) how many so far.
        outcome: (...,) 0 under way, 1 at rest, 2 diverged, 3 without a consistent mode.
    """

    v: jax.Array
    gaps: jax.Array
    closed: jax.Array
    sticks: jax.Array
    log_size: jax.Array
    events: jax.Array
    outcome: jax.Array


class Falsification(Record):
    """What was found from a number of perturbations.

    Attributes:
        found: whether some motion diverges: grows by 1e6, or leaves in one mode for ever.
        growth: logarithm of the size where the fastest diverging motion stopped; -inf if none.
        start: that motion's start, of size one; every multiple (s v, s^2 gaps) does the same.
        share: (4,) of motions still under way, at rest, diverged, without a consistent mode.
    """

    found: bool = static()
    growth: float = static()
    start: Motion
    share: np.ndarray


def falsify(body: Body, *, num_samples: int = 256, seed: int = 0, max_events: int = 2000) -> Falsification:
    """Look for a motion that diverges from an arbitrarily small perturbation of the equilibrium.

    Starts are along the accelerations of all contact modes, and random states of size one with gaps open
    or zero. Where several modes are consistent, each start has its own preference among them. A motion is
    decided when its size has changed by 1e6 either way, or when it has come back to the same state at
    another size.

    Args:
        body: a PlanarBiped or LocalTerms.
        num_samples: number of starts.
        seed: of the random starts.
        max_events: events after which a motion is left undecided.

    Returns:
        Falsification; `found` False proves nothing.

    Raises:
        ValueError: bad numbers in the body, no equilibrium.

    Derivative: none.
    """
    terms = as_terms(body)
    table = contact_modes(terms)
    if not bool(table.at_rest[table.words.index("S" * terms.mu.shape[0])]):
        raise ValueError("body: not an equilibrium; no contact forces within Coulomb's law hold it at rest")
    many = jax.tree.map(lambda x: x[None], terms)
    start, end = run_many(many, num_samples, seed, max_events)
    return summarise(*(jax.tree.map(lambda x: np.asarray(x[0]), each) for each in (start, end)))


def summarise(start: Motion, end: Motion) -> Falsification:
    """The verdict over all starts of one body."""
    outcome = np.asarray(end.outcome)
    diverged = outcome == DIVERGED
    score = np.where(diverged, -np.asarray(end.events, float), -np.inf)
    best = int(np.argmax(score))
    return Falsification(
        found=bool(diverged.any()),
        growth=float(end.log_size[best]) if diverged.any() else -math.inf,
        start=jax.tree.map(lambda x: x[best], start),
        share=np.array([np.mean(outcome == each) for each in (ACTIVE, RESTED, DIVERGED, STUCK)]),
    )


def run_many(terms: LocalTerms, num_samples: int, seed: int, max_events: int) -> tuple[Motion, Motion]:
    """Starts and ends (bodies, samples, ...) of motions of many bodies; the leaves of `terms` are batched."""
    keys = jax.random.key(seed), jax.random.key(seed + 1)
    count = jnp.shape(terms.mu)[0]
    runs = [
        _run(jax.tree.map(lambda x, i=i: x[i], terms), *keys, jnp.asarray(max_events), num_samples)
        for i in range(count)
    ]
    starts, ends = (jax.tree.map(lambda *x: jnp.stack(x), *each) for each in zip(*runs, strict=True))
    return starts, ends


@functools.partial(jax.jit, static_argnums=4)
def _run(
    terms: LocalTerms, key: jax.Array, preference: jax.Array, max_events: jax.Array, num_samples: int
) -> tuple[Motion, Motion]:
    law = _law(terms)
    start = _starts(law, num_samples, key)
    priority = jax.random.uniform(preference, (num_samples, law.possible.shape[0]), terms.M.dtype)
    lanes = jax.vmap(lambda m, p: _step(law, m, p)[0])

    def more(carry: tuple[Motion, Motion, jax.Array]) -> jax.Array:
        return jnp.any(carry[0].outcome == ACTIVE) & (carry[2] < max_events)

    def advance(carry: tuple[Motion, Motion, jax.Array]) -> tuple[Motion, Motion, jax.Array]:
        motion, seen, count = carry
        motion = jax.vmap(_returned)(lanes(motion, priority), seen)
        note = (count & (count - 1)) == 0  # events 1, 2, 4, 8, ...: each longer than any cycle before it
        seen = jax.tree.map(lambda new, old: jnp.where(note, new, old), motion, seen)
        return motion, seen, count + 1

    return start, lax.while_loop(more, advance, (start, start, jnp.int32(1)))[0]


def _returned(motion: Motion, seen: Motion) -> Motion:
    """Decided where a state seen before has come back at another size: so it will for ever."""
    far = jnp.maximum(jnp.max(jnp.abs(motion.v - seen.v)), jnp.max(jnp.abs(motion.gaps - seen.gaps)))
    same = jnp.all(motion.closed == seen.closed) & jnp.all(motion.sticks == seen.sticks)
    step = motion.log_size - seen.log_size
    back = same & (far < SAME) & (jnp.abs(step) > TREND) & (motion.outcome == ACTIVE)
    decided = jnp.where(step > 0, DIVERGED, RESTED)
    return motion.replace(outcome=jnp.where(back, decided, motion.outcome).astype(jnp.int32))


class _Law(Record):
    """A body with its modes, ready for stepping."""

    terms: LocalTerms
    possible: jax.Array  # (nm,)
    acceleration: jax.Array  # (nm, nv)
    lift: jax.Array  # (nm, nc) gap''
    slide: jax.Array  # (nm, nc) slip''
    fall: jax.Array  # () a normal acceleration that gives gaps a speed
    pairs: jax.Array  # (nc, 2, nv) normal and tangential rows
    push: jax.Array  # (nc, nv, 2) velocity per impulse
    delassus: jax.Array  # (nc, 2, 2)


def _law(terms: LocalTerms) -> _Law:
    table = contact_modes(terms)
    lift = table.acceleration @ terms.J_n.T
    pairs = jnp.stack([terms.J_n, terms.J_t], axis=1)
    back, _ = linalg.spd_inverse(terms.M)
    push = jnp.swapaxes(pairs @ back, 1, 2)
    return _Law(
        terms=terms,
        possible=table.consistent,
        acceleration=table.acceleration,
        lift=lift,
        slide=table.acceleration @ terms.J_t.T,
        fall=jnp.max(jnp.abs(lift[0])),
        pairs=pairs,
        push=push,
        delassus=pairs @ push,
    )


@jax.jit
def _motion_path(
    terms: LocalTerms, start: Motion, priority: jax.Array, count: jax.Array
) -> tuple[Motion, Any]:
    law = _law(terms)

    def step(motion: Motion, _: Any) -> tuple[Motion, Any]:
        after, note = _step(law, motion, priority)
        return after, (motion, note)

    return lax.scan(step, start, count)


def motion_path(
    body: Body, start: Motion, *, num_events: int, seed: int = 0
) -> tuple[Motion, dict[str, jax.Array]]:
    """The states before each event of one motion, and what happened in it.

    Returns:
        Motion with leading axis num_events, and by name: `duration` (), `acceleration` (nv,) and `mode` of
        the motion to the event, or `contact` >= 0 of an impact, with `v` (nv,) behind it before rescaling.
    """
    terms = as_terms(body)
    priority = jax.random.uniform(jax.random.key(seed + 1), (4 ** terms.mu.shape[0],)).astype(terms.M.dtype)
    _, (path, note) = _motion_path(terms, start, priority, jnp.zeros(num_events))
    return path, note


def _starts(law: _Law, number: int, key: jax.Array) -> Motion:
    """Along each mode's acceleration, then random; brought to size one by the first step."""
    terms = law.terms
    nc, nv = terms.J_n.shape
    words = np.array([[LETTERS.index(c) for c in word] for word in mode_words(nc)])
    keys = jax.random.split(key, 4)
    dtype = terms.M.dtype
    v = jax.random.normal(keys[0], (number, nv), dtype)
    q = jax.random.normal(keys[1], (number, nv), dtype) @ terms.J_n.T
    speed = jnp.where(law.lift[0] < 0, -law.lift[0], 1.0)  # lifting against free flight opens every gap
    height = jnp.max(-q / speed[None], axis=1) + jnp.where(
        jax.random.bernoulli(keys[2], 0.5, (number,)), jax.random.exponential(keys[3], (number,), dtype), 0.0
    )
    gaps = jnp.maximum(q + height[:, None] * speed[None], 0.0)
    gaps = jnp.where(jnp.abs(gaps) < CLOSED, 0.0, gaps) * (jnp.arange(number) % 4 > 0)[:, None]
    few = min(len(words), number)
    v = v.at[:few].set(law.acceleration[:few])
    opened = jnp.asarray(words[:few] == 0)
    away = jnp.where(opened, 0.5 * law.lift[:few], 0.0)
    gaps = gaps.at[:few].set(jnp.where(jnp.all(away >= 0, axis=1)[:, None], away, 0.0))
    closed = jnp.zeros((number, nc), bool).at[:few].set(~opened & law.possible[:few, None])
    still = jnp.sum(jnp.abs(v), axis=1) <= CLOSED * law.fall
    v = jnp.where(still[:, None], jnp.ones_like(v), v)
    closed = closed & ~still[:, None]
    size = jnp.sqrt(jnp.sum((v @ terms.M) * v, axis=1) + law.fall * jnp.max(gaps, axis=1))
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
    return jax.vmap(lambda one: _settle(law, one, one.v, one.gaps, one.closed))(start)


def _step(law: _Law, motion: Motion, priority: jax.Array) -> tuple[Motion, dict[str, jax.Array]]:
    """One impact, or one piece of motion in a mode to its next event; nothing once decided."""
    terms = law.terms
    rate = terms.J_n @ motion.v
    hits = (motion.gaps <= 0) & ~motion.closed & (rate < 0)
    struck = jnp.argmax(jnp.where(hits, 1.0 + priority[: hits.shape[0]], 0.0))
    after_hit, impact_note = _hit(law, motion, struck)
    after_move, move_note = _move(law, motion, priority)
    hit = jnp.any(hits)
    after, note = _choose(hit, (after_hit, impact_note), (after_move, move_note))
    grown = jnp.where(after.log_size > GROWTH, DIVERGED, jnp.where(after.log_size < -GROWTH, RESTED, ACTIVE))
    outcome = jnp.where(after.outcome == ACTIVE, grown, after.outcome)
    after = _scaled(law, after)
    shrunk = after.log_size - motion.log_size < math.log(10.0 * CLOSED)
    outcome = jnp.where(shrunk | (motion.log_size < -GROWTH), RESTED, outcome)  # the rest is rounding
    after = after.replace(outcome=outcome.astype(jnp.int32), events=motion.events + 1)
    going = motion.outcome == ACTIVE
    return jax.tree.map(lambda a, b: jnp.where(going, a, b), after, motion), note


def _scaled(law: _Law, motion: Motion) -> Motion:
    """The same state at size one."""
    size = jnp.sqrt(jnp.maximum(motion.v @ law.terms.M @ motion.v, law.fall * jnp.max(motion.gaps)))
    size = jnp.where(size > 0, size, 1.0)
    return motion.replace(
        v=motion.v / size, gaps=motion.gaps / size**2, log_size=motion.log_size + jnp.log(size)
    )


def _settle(law: _Law, motion: Motion, v: jax.Array, gaps: jax.Array, closed: jax.Array) -> Motion:
    """Contacts that touch without speed are closed, closed ones that separate or approach are not."""
    rate, slip = law.terms.J_n @ v, law.terms.J_t @ v
    scale = jnp.sqrt(jnp.sum(law.terms.J_n**2, axis=1))
    touching = (gaps <= FLAT) | closed
    slow = jnp.abs(rate) <= CLOSED * scale
    closed = touching & slow
    return motion.replace(
        v=v,
        gaps=jnp.where(touching, 0.0, gaps),
        closed=closed,
        sticks=closed & (jnp.abs(slip) <= CLOSED * scale),
    )


def _hit(law: _Law, motion: Motion, contact: jax.Array) -> tuple[Motion, dict[str, jax.Array]]:
    e, mu = law.terms.e[contact], law.terms.mu[contact]
    impulse = impact_impulse(law.delassus[contact], law.pairs[contact] @ motion.v, mu, e)
    good = jnp.all(jnp.isfinite(impulse))
    v = motion.v + law.push[contact] @ jnp.where(good, impulse, 0.0)
    after = _settle(law, motion, v, motion.gaps, motion.closed)
    after = after.replace(outcome=jnp.where(good, motion.outcome, STUCK).astype(jnp.int32))
    note = {
        "duration": jnp.zeros((), v.dtype),
        "acceleration": jnp.zeros_like(v),
        "mode": jnp.int32(-1),
        "contact": contact.astype(jnp.int32),
        "v": v,
    }
    return after, note


def _move(law: _Law, motion: Motion, priority: jax.Array) -> tuple[Motion, dict[str, jax.Array]]:
    terms = law.terms
    nc = terms.mu.shape[0]
    codes = jnp.asarray([[LETTERS.index(c) for c in word] for word in mode_words(nc)])
    slip = terms.J_t @ motion.v
    closed, still = motion.closed[None], motion.sticks[None]
    plus, minus = (slip > 0)[None] & ~still, (slip < 0)[None] & ~still
    fits = jnp.where(
        codes == 0,
        ~closed | (law.lift > CLOSED),
        closed
        & jnp.where(
            codes == 1,
            still,
            jnp.where(
                codes == 2, plus | (still & (law.slide > CLOSED)), minus | (still & (law.slide < -CLOSED))
            ),
        ),
    )
    fits = jnp.all(fits, axis=1) & law.possible
    mode = jnp.argmax(jnp.where(fits, 1.0 + priority, 0.0))
    a, lift, slide = law.acceleration[mode], law.lift[mode], law.slide[mode]
    word = codes[mode]
    rate = terms.J_n @ motion.v
    root = jnp.sqrt(jnp.maximum(rate**2 - 2.0 * lift * motion.gaps, 0.0))
    falls = lift < -CLOSED
    # The later root of gap + rate t + lift t^2 / 2 where it falls, in the form that does not cancel.
    down = jnp.where(
        rate > 0,
        -(rate + root) / jnp.where(falls, lift, 1.0),
        2.0 * motion.gaps / jnp.where(root - rate > 0, root - rate, 1.0),
    )
    straight = jnp.where(rate < 0, motion.gaps / jnp.where(rate < 0, -rate, 1.0), jnp.inf)
    real = rate**2 >= 2.0 * lift * motion.gaps
    up = jnp.where(
        (rate < 0) & real, 2.0 * motion.gaps / jnp.where(root - rate > 0, root - rate, 1.0), jnp.inf
    )
    lands = jnp.where(falls, down, jnp.where(lift > CLOSED, up, straight))
    lands = jnp.where((word == 0) & ((motion.gaps > 0) | (rate > 0)), lands, jnp.inf)
    slowing = (word >= 2) & (slip * slide < 0) & ~motion.sticks
    stops = jnp.where(slowing, -slip / jnp.where(slowing, slide, 1.0), jnp.inf)
    duration = jnp.minimum(jnp.min(lands), jnp.min(stops))
    endless = ~jnp.isfinite(duration)
    t = jnp.where(endless, 0.0, duration)
    v = motion.v + a * t
    gaps = motion.gaps + rate * t + 0.5 * lift * t**2
    gaps = jnp.where(lands <= t, 0.0, jnp.where(word == 0, jnp.maximum(gaps, 0.0), 0.0))
    after = _settle(law, motion, v, gaps, motion.closed & (word > 0))
    stopped = (stops <= t) | (word == 1)
    after = after.replace(sticks=after.closed & (after.sticks | stopped))
    any_fit = jnp.any(fits)
    resting = jnp.all(word == 1)
    moving = jnp.sum(jnp.abs(a)) > CLOSED * law.fall
    outcome = jnp.where(endless, jnp.where(moving, DIVERGED, STUCK), ACTIVE)
    outcome = jnp.where(resting, RESTED, outcome)
    jammed, jammed_note = _jam(law, motion)
    after = after.replace(outcome=jnp.where(any_fit, outcome, STUCK).astype(jnp.int32))
    note = {
        "duration": t,
        "acceleration": a,
        "mode": mode.astype(jnp.int32),
        "contact": jnp.int32(-1),
        "v": v,
    }
    return _choose(any_fit, (after, note), (jammed, jammed_note))


def _choose(condition: jax.Array, first: Any, second: Any) -> Any:
    return jax.tree.map(lambda a, b: jnp.where(condition, a, b), first, second)


def _jam(law: _Law, motion: Motion) -> tuple[Motion, dict[str, jax.Array]]:
    """Without a consistent mode a sliding contact is caught by an impulse without approach."""
    g, slip, mu = law.delassus, law.terms.J_t @ motion.v, law.terms.mu
    det = g[:, 0, 0] * g[:, 1, 1] - g[:, 0, 1] ** 2
    normal, tangential = g[:, 0, 1] * slip / det, -g[:, 0, 0] * slip / det
    good = motion.closed & ~motion.sticks & (normal > 0) & (jnp.abs(tangential) <= mu * normal)
    i = jnp.argmax(good)
    impulse = jnp.stack([normal[i], tangential[i]])
    v = motion.v + jnp.where(jnp.any(good), law.push[i] @ impulse, 0.0)
    after = _settle(law, motion, v, motion.gaps, motion.closed)
    after = after.replace(outcome=jnp.where(jnp.any(good), motion.outcome, STUCK).astype(jnp.int32))
    note = {
        "duration": jnp.zeros((), v.dtype),
        "acceleration": jnp.zeros_like(v),
        "mode": jnp.int32(-1),
        "contact": i.astype(jnp.int32),
        "v": v,
    }
    return after, note
