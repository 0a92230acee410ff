"""Motion of the zero-order dynamics event by event, in relative scale: entry functions `step`, `motion_path`.

The dynamics is invariant under q ~ s^2, v ~ s, so after every event the state is scaled back to size one and
the logarithm of its size stored: Zeno sequences and inverse chatter, which shrink or grow geometrically, are
long runs of events of size one. Page: docs/methods/stability.md.
"""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
from jax import lax

from jaxcontact._pytree import PyTree, Record
from jaxcontact.algebra import small_dense
from jaxcontact.arguments import check_count, check_integer, check_rows
from jaxcontact.front_door import checked
from jaxcontact.impact.laws.callable_laws import Law, law_as_pytree
from jaxcontact.precision import jit
from jaxcontact.stability.body import Body, LocalTerms, as_terms
from jaxcontact.stability.modes import LETTERS, contact_modes, impact_impulse, mode_words
from jaxcontact.status import Status
from jaxcontact.terms import ContactTerms
from jaxcontact.tolerances import DEPENDENT, rounding

CLOSED_SPEED = 1e-10  # of the size of the state; a contact that is slower is closed or sticks
GROWTH = math.log(1e6)  # change of log(size), either way, that decides a motion
CLOSED_GAP = 1e-9  # gap relative to the size of the state that counts as closed
ACTIVE, RESTED, DIVERGED, STUCK = range(4)  # outcomes, see `Motion.outcome`


class Motion(Record):
    """A motion in relative scale: at each event the state of size one and the logarithm of its true size.

    Attributes:
        v: (..., nv) velocity.
        gaps: (..., nc).
        closed: (..., nc) bool, contacts that touch without approach or separation.
        sticks: (..., nc) bool, closed contacts without slip.
        log_size: (...,) size of the state, v ~ exp(log_size), gaps ~ exp(2 log_size).
        events: (...,) their number so far.
        outcome: (...,) 0 under way, 1 at rest, 2 diverged, 3 without a consistent mode.
    """

    v: jax.Array
    gaps: jax.Array
    closed: jax.Array
    sticks: jax.Array
    log_size: jax.Array
    events: jax.Array
    outcome: jax.Array


class ZeroOrderDynamics(Record):
    """A body with its modes, ready for stepping."""

    terms: LocalTerms
    possible: jax.Array  # (nm,)
    acceleration: jax.Array  # (nm, nv)
    lift: jax.Array  # (nm, nc) gap''
    slide: jax.Array  # (nm, nc) slip''
    fall: jax.Array  # () largest normal acceleration in free flight; converts gaps to squared speeds
    pairs: jax.Array  # (nc, 2, nv) normal and tangential rows
    push: jax.Array  # (nc, nv, 2) velocity per impulse
    delassus: jax.Array  # (nc, 2, 2)
    tied: jax.Array  # (nc, nc) bool: gaps that depend on each other; one closes with all others
    law: PyTree = None  # of impacts of all contacts that touch; None is `body.IMPACT_LAW`


def zero_order_dynamics(terms: LocalTerms, law: Law | None = None) -> ZeroOrderDynamics:
    """Compute the modes and matrices that do not change during a motion."""
    table = contact_modes(terms)
    lift = table.acceleration @ terms.J_n.T
    pairs = jnp.stack([terms.J_n, terms.J_t], axis=1)
    back, _ = small_dense.spd_inverse(terms.M)
    push = jnp.swapaxes(pairs @ back, 1, 2)
    return ZeroOrderDynamics(
        terms=terms,
        possible=table.consistent,
        acceleration=table.acceleration,
        lift=lift,
        slide=table.acceleration @ terms.J_t.T,
        fall=jnp.max(jnp.abs(lift[0])),
        pairs=pairs,
        push=push,
        delassus=pairs @ push,
        tied=_ties(terms.J_n),
        law=law,
    )


def _ties(rows: jax.Array) -> jax.Array:
    """Mark pairs of contacts whose gaps enter a linear dependence; none if the gaps are independent."""
    unit = rows / jnp.sqrt(jnp.sum(rows**2, axis=1))[:, None]
    inverse, _ = small_dense.generalized_inverse(unit @ unit.T)
    dependences = jnp.eye(rows.shape[0], dtype=rows.dtype) - unit @ unit.T @ inverse
    among = jnp.any(jnp.abs(dependences) > rounding(rows.dtype, DEPENDENT), axis=0)
    return among[:, None] & among[None]


@checked(num_events=check_rows)
def motion_path(
    body: Body, start: Motion, *, num_events: int, seed: int = 0, law: Law | None = None
) -> tuple[Motion, dict[str, jax.Array]]:
    """Compute one motion: the states before each event, and notes about each event.

    Raises:
        TypeError: a law that is no callable.
        ValueError: bad numbers in the body; num_events < 1, a seed that is not an integer.

    Returns:
        Motion with leading axis num_events, and by name: `duration` (), `acceleration` (nv,) and `mode` of
        the motion to the event, or `contact` >= 0 of an impact, with `v` (nv,) after it before rescaling.
    """
    terms = as_terms(body)
    check_count("num_events", num_events)
    check_integer("seed", seed)
    priority = jax.random.uniform(jax.random.key(seed + 1), (4 ** terms.mu.shape[0],)).astype(terms.M.dtype)
    law = None if law is None else law_as_pytree(law)
    _, (path, note) = _record_motion(terms, start, priority, jnp.zeros(num_events), law)
    return path, note


@jit
def _record_motion(
    terms: LocalTerms, start: Motion, priority: jax.Array, count: jax.Array, law: PyTree
) -> tuple[Motion, PyTree]:
    dynamics = zero_order_dynamics(terms, law)

    def advance(motion: Motion, _: object) -> tuple[Motion, PyTree]:
        after, note = step(dynamics, motion, priority)
        return after, (motion, note)

    return lax.scan(advance, start, count)


def step(
    dynamics: ZeroOrderDynamics, motion: Motion, priority: jax.Array
) -> tuple[Motion, dict[str, jax.Array]]:
    """Advance a motion by one impact, or in one mode to its next event; a decided motion does not change."""
    terms = dynamics.terms
    rate = terms.J_n @ motion.v
    hits = (motion.gaps <= 0) & ~motion.closed & (rate < 0)
    struck = jnp.argmax(jnp.where(hits, 1.0 + priority[: hits.shape[0]], 0.0))
    after_hit, impact_note = _strike(dynamics, motion, struck)
    after_move, move_note = _move_in_mode(dynamics, motion, priority)
    hit = jnp.any(hits)
    after, note = _choose(hit, (after_hit, impact_note), (after_move, move_note))
    grown = jnp.where(after.log_size > GROWTH, DIVERGED, jnp.where(after.log_size < -GROWTH, RESTED, ACTIVE))
    outcome = jnp.where(after.outcome == ACTIVE, grown, after.outcome)
    after = _scaled(dynamics, after)
    shrunk = after.log_size - motion.log_size < math.log(10.0 * CLOSED_SPEED)
    outcome = jnp.where(shrunk | (motion.log_size < -GROWTH), RESTED, outcome)  # a smaller state is rounding
    after = after.replace(outcome=outcome.astype(jnp.int32), events=motion.events + 1)
    going = motion.outcome == ACTIVE
    return jax.tree.map(lambda a, b: jnp.where(going, a, b), after, motion), note


def _scaled(dynamics: ZeroOrderDynamics, motion: Motion) -> Motion:
    """Scale a state to size one."""
    size = jnp.sqrt(jnp.maximum(motion.v @ dynamics.terms.M @ motion.v, dynamics.fall * jnp.max(motion.gaps)))
    size = jnp.where(size > 0, size, 1.0)
    return motion.replace(
        v=motion.v / size, gaps=motion.gaps / size**2, log_size=motion.log_size + jnp.log(size)
    )


def settle_contacts(
    dynamics: ZeroOrderDynamics, motion: Motion, v: jax.Array, gaps: jax.Array, closed: jax.Array
) -> Motion:
    """Close contacts that touch without normal speed, and open closed ones that separate or approach."""
    rate, slip = dynamics.terms.J_n @ v, dynamics.terms.J_t @ v
    scale = jnp.sqrt(jnp.sum(dynamics.terms.J_n**2, axis=1))
    touching = (gaps <= CLOSED_GAP) | closed
    others = ~dynamics.tied | touching[None] | jnp.eye(touching.shape[0], dtype=bool)
    # Three feet in a line: rounding in a gap must not exceed the size of a state that shrinks.
    touching = touching | (jnp.all(others, axis=1) & jnp.diagonal(dynamics.tied))
    slow = jnp.abs(rate) <= CLOSED_SPEED * scale
    closed = touching & slow
    return motion.replace(
        v=v,
        gaps=jnp.where(touching, 0.0, gaps),
        closed=closed,
        sticks=closed & (jnp.abs(slip) <= CLOSED_SPEED * scale),
    )


def _strike(
    dynamics: ZeroOrderDynamics, motion: Motion, contact: jax.Array
) -> tuple[Motion, dict[str, jax.Array]]:
    if dynamics.law is not None:
        v, good = _hit_by_law(dynamics, motion)
        return _struck(dynamics, motion, jnp.where(good, v, motion.v), good, contact)
    e, mu = dynamics.terms.e[contact], dynamics.terms.mu[contact]
    impulse = impact_impulse(dynamics.delassus[contact], dynamics.pairs[contact] @ motion.v, mu, e)
    good = jnp.all(jnp.isfinite(impulse))
    v = motion.v + dynamics.push[contact] @ jnp.where(good, impulse, 0.0)
    return _struck(dynamics, motion, v, good, contact)


def _hit_by_law(dynamics: ZeroOrderDynamics, motion: Motion) -> tuple[jax.Array, jax.Array]:
    """Resolve an impact of all contacts that touch by the law; return the velocity and if it is good."""
    terms, touches = dynamics.terms, motion.gaps <= 0
    contacts = ContactTerms(
        M=terms.M,
        J_n=terms.J_n,
        J_t=terms.J_t[:, None],
        phi=jnp.where(touches, 0.0, 1.0).astype(terms.M.dtype),
        mu=terms.mu,
        active=touches,
    )
    v, info = dynamics.law(contacts, motion.v)
    return v, ~Status.failed(info.status) & jnp.all(jnp.isfinite(v))


def _struck(
    dynamics: ZeroOrderDynamics, motion: Motion, v: jax.Array, good: jax.Array, contact: jax.Array
) -> tuple[Motion, dict[str, jax.Array]]:
    """Return the motion at velocity v after an impulse at a contact, and its note; STUCK without one."""
    after = settle_contacts(dynamics, motion, v, motion.gaps, motion.closed)
    after = after.replace(outcome=jnp.where(good, motion.outcome, STUCK).astype(jnp.int32))
    note = {
        "duration": jnp.zeros((), v.dtype),
        "acceleration": jnp.zeros_like(v),
        "mode": jnp.int32(-1),
        "contact": contact.astype(jnp.int32),
        "v": v,
    }
    return after, note


def _move_in_mode(
    dynamics: ZeroOrderDynamics, motion: Motion, priority: jax.Array
) -> tuple[Motion, dict[str, jax.Array]]:
    terms = dynamics.terms
    nc = terms.mu.shape[0]
    codes = jnp.asarray([[LETTERS.index(c) for c in word] for word in mode_words(nc)])
    slip = terms.J_t @ motion.v
    closed, still = motion.closed[None], motion.sticks[None]
    plus, minus = (slip > 0)[None] & ~still, (slip < 0)[None] & ~still
    fits = jnp.where(
        codes == 0,
        ~closed | (dynamics.lift > CLOSED_SPEED),
        closed
        & jnp.where(
            codes == 1,
            still,
            jnp.where(
                codes == 2,
                plus | (still & (dynamics.slide > CLOSED_SPEED)),
                minus | (still & (dynamics.slide < -CLOSED_SPEED)),
            ),
        ),
    )
    fits = jnp.all(fits, axis=1) & dynamics.possible
    mode = jnp.argmax(jnp.where(fits, 1.0 + priority, 0.0))
    a, lift = dynamics.acceleration[mode], dynamics.lift[mode]
    word = codes[mode]
    rate = terms.J_n @ motion.v
    lands, stops = _next_events(dynamics, motion, word, mode)
    duration = jnp.minimum(jnp.min(lands), jnp.min(stops))
    endless = ~jnp.isfinite(duration)
    t = jnp.where(endless, 0.0, duration)
    v = motion.v + a * t
    gaps = motion.gaps + rate * t + 0.5 * lift * t**2
    gaps = jnp.where(lands <= t, 0.0, jnp.where(word == 0, jnp.maximum(gaps, 0.0), 0.0))
    after = settle_contacts(dynamics, motion, v, gaps, motion.closed & (word > 0))
    stopped = (stops <= t) | (word == 1)
    after = after.replace(sticks=after.closed & (after.sticks | stopped))
    any_fit = jnp.any(fits)
    resting = jnp.all(word == 1)
    moving = jnp.sum(jnp.abs(a)) > CLOSED_SPEED * dynamics.fall
    outcome = jnp.where(endless, jnp.where(moving, DIVERGED, STUCK), ACTIVE)
    outcome = jnp.where(resting, RESTED, outcome)
    jammed, jammed_note = _stop_sliding(dynamics, motion)
    after = after.replace(outcome=jnp.where(any_fit, outcome, STUCK).astype(jnp.int32))
    note = {
        "duration": t,
        "acceleration": a,
        "mode": mode.astype(jnp.int32),
        "contact": jnp.int32(-1),
        "v": v,
    }
    return _choose(any_fit, (after, note), (jammed, jammed_note))


def _next_events(
    dynamics: ZeroOrderDynamics, motion: Motion, word: jax.Array, mode: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Compute times (nc,) until each free contact lands and each slip stops; infinite if it does not."""
    lift, slide = dynamics.lift[mode], dynamics.slide[mode]
    slip = dynamics.terms.J_t @ motion.v
    rate = dynamics.terms.J_n @ motion.v
    root = jnp.sqrt(jnp.maximum(rate**2 - 2.0 * lift * motion.gaps, 0.0))
    falls = lift < -CLOSED_SPEED
    # The later root of gap + rate t + lift t^2 / 2 for lift < 0, in the form that does not cancel.
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
    lands = jnp.where(falls, down, jnp.where(lift > CLOSED_SPEED, up, straight))
    lands = jnp.where((word == 0) & ((motion.gaps > 0) | (rate > 0)), lands, jnp.inf)
    slowing = (word >= 2) & (slip * slide < 0) & ~motion.sticks
    stops = jnp.where(slowing, -slip / jnp.where(slowing, slide, 1.0), jnp.inf)
    return lands, stops


def _choose(condition: jax.Array, first: PyTree, second: PyTree) -> PyTree:
    return jax.tree.map(lambda a, b: jnp.where(condition, a, b), first, second)


def _stop_sliding(dynamics: ZeroOrderDynamics, motion: Motion) -> tuple[Motion, dict[str, jax.Array]]:
    """Stop a sliding contact by an impulse without approach, for states without a consistent mode."""
    g, slip, mu = dynamics.delassus, dynamics.terms.J_t @ motion.v, dynamics.terms.mu
    det = g[:, 0, 0] * g[:, 1, 1] - g[:, 0, 1] ** 2
    normal, tangential = g[:, 0, 1] * slip / det, -g[:, 0, 0] * slip / det
    good = motion.closed & ~motion.sticks & (normal > 0) & (jnp.abs(tangential) <= mu * normal)
    i = jnp.argmax(good)
    impulse = jnp.stack([normal[i], tangential[i]])
    v = motion.v + jnp.where(jnp.any(good), dynamics.push[i] @ impulse, 0.0)
    return _struck(dynamics, motion, v, jnp.any(good), i)
