"""Reflections in the order of a direction: which contact strikes next where rates tie or are zero.

Owns `one_sided_reflections`, `order_matters`, and the derivatives of stops and mixtures: `one_sided_stop`,
`one_sided_mix`. Page: docs/understand/derivatives.md.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxcontact.algebra.forward_only import forward_only
from jaxcontact.batching.bounded_loop import bounded_loop
from jaxcontact.impact.laws.reflections import Normals, reflect_together, share, tied, tolerance
from jaxcontact.precision import all_digits
from jaxcontact.solvers.contact_directions import (
    REVERSE,
    SECOND,
    Solution,
    one_sided_impulse,
)

SAME_BORDERS = 4.0  # borders; velocities of two orders that differ less are the same
PROBES = 8  # directions per contact, to see whether an order matters


class StrikeRule(NamedTuple):
    """The rule by which a contact strikes next, and what has been found without a direction.

    Attributes:
        sign: 1 for "most_violated", -1 for "least_violated", 0 for a cycle.
        cycle: (m,) contacts.
        active: (nc,) bool.
        border: rate within which a contact neither approaches nor separates.
        jumps: bool, whether there is no derivative.
        impulse: (nc,) of the impact.
    """

    sign: jax.Array
    cycle: jax.Array
    active: jax.Array
    border: jax.Array
    jumps: jax.Array
    impulse: jax.Array


class _Sequence(NamedTuple):
    """Rates and impulses (nc,) after some impacts, each with its change, and the next place in the cycle."""

    rate: jax.Array
    rate_change: jax.Array
    impulse: jax.Array
    change: jax.Array
    place: jax.Array
    number: jax.Array


def _approaching(rule: StrikeRule, at: _Sequence) -> tuple[jax.Array, jax.Array]:
    """Find the contacts (nc,) that approach in the direction; return also their rates, zero at the border."""
    at_border = jnp.abs(at.rate) <= rule.border
    size = jnp.max(jnp.abs(at.rate_change), initial=0.0)
    faint = tolerance(at.rate.dtype) * size
    approaches = jnp.where(at_border, at.rate_change < -faint, at.rate < 0)
    return rule.active & approaches, jnp.where(at_border, 0.0, at.rate)


def _next_contacts(rule: StrikeRule, at: _Sequence) -> tuple[jax.Array, jax.Array]:
    """Choose the contacts (nc,) that strike next in the direction, and the place in the cycle after them."""
    approaches, rate = _approaching(rule, at)
    best = jnp.argmin(jnp.where(approaches, rule.sign * rate, jnp.inf))
    level = approaches & tied(rate, best, rule.active)
    first = jnp.argmin(jnp.where(level, rule.sign * at.rate_change, jnp.inf))
    size = jnp.max(jnp.abs(at.rate_change), initial=0.0)
    together = level & (jnp.abs(at.rate_change - at.rate_change[first]) <= tolerance(rate.dtype) * size)
    length = rule.cycle.shape[0]
    ahead = (jnp.arange(length, dtype=jnp.int32) - at.place) % length
    place = (at.place + jnp.min(jnp.where(approaches[rule.cycle], ahead, length))) % length
    in_turn = jnp.arange(rate.shape[0]) == rule.cycle[place]
    return jnp.where(rule.sign == 0, in_turn, together), (place + 1) % length


def _goes_on(rule: StrikeRule, at: _Sequence) -> jax.Array:
    """Decide whether a contact that the rule or the cycle may choose approaches in the direction."""
    may_strike = jnp.zeros(rule.active.shape, bool).at[rule.cycle].set(True) | (rule.sign != 0)
    return jnp.any(may_strike & _approaching(rule, at)[0])


def _reflect_in_order(length: int, rule: StrikeRule, grams: tuple[jax.Array, jax.Array], rate: jax.Array,
    rate_change: jax.Array) -> _Sequence:  # fmt: skip
    """Reflect at most `length` times, in the order of the direction; `grams` is the matrix and its change."""
    gram, gram_change = grams
    none = jnp.zeros_like(rate)
    start = _Sequence(rate, rate_change, none, none, jnp.int32(0), jnp.int32(0))

    def strike(at: _Sequence) -> _Sequence:
        together, place = _next_contacts(rule, at)
        step, step_change = jax.jvp(
            lambda gram, rate: reflect_together(gram, rate, together),
            (gram, at.rate),
            (gram_change, at.rate_change),
        )
        return _Sequence(
            at.rate + gram @ step,
            at.rate_change + gram @ step_change + gram_change @ step,
            at.impulse + step,
            at.change + step_change,
            place,
            at.number + 1,
        )

    return bounded_loop(lambda at: _goes_on(rule, at) & (at.number < length), strike, start, max_iters=length)


@functools.partial(jax.custom_jvp, nondiff_argnums=(0,))
def one_sided_reflections(length: int, gram: jax.Array, rate: jax.Array, rule: StrikeRule) -> jax.Array:
    """Return the impulses (nc,) of a sequence of at most `length` reflections.

    Derivative: forward, first order: of the sequence in the order of the direction; NaN if it jumps, ends
        at another impulse, or does not end.
    """
    return rule.impulse


@one_sided_reflections.defjvp
@all_digits
def _reflections_jvp(length: int, primals: tuple, tangents: tuple) -> tuple[jax.Array, jax.Array]:
    gram, rate, rule = primals
    end = _reflect_in_order(length, rule, (gram, tangents[0]), rate, tangents[1])
    exists = ~rule.jumps & ~_goes_on(rule, end) & _is_same(gram, end.impulse, rule)
    change = jnp.where(exists, end.change, jnp.nan)
    return one_sided_reflections(length, *primals), forward_only(change, rate, reverse=REVERSE, second=SECOND)


def _is_same(gram: jax.Array, impulse: jax.Array, rule: StrikeRule) -> jax.Array:
    """Decide whether impulses (nc,) end at the velocity of the impact."""
    difference = impulse - rule.impulse
    return difference @ gram @ difference <= (SAME_BORDERS * rule.border) ** 2


def order_matters(length: int, gram: jax.Array, rate: jax.Array, rule: StrikeRule) -> jax.Array:
    """Decide whether contacts that tie for a rule end elsewhere in some of many directions.

    These are random motions of the bodies. Derivative: none.
    """
    gram, rate, rule = lax.stop_gradient((gram, rate, rule))
    nc = rate.shape[0]
    pushes = np.random.default_rng(0).normal(size=(PROBES * nc, nc))

    def differs(push: jax.Array) -> jax.Array:
        end = _reflect_in_order(length, rule, (gram, jnp.zeros_like(gram)), rate, gram @ push)
        return ~_is_same(gram, end.impulse, rule)

    return (rule.sign != 0) & jnp.any(lax.map(differs, jnp.asarray(pushes, rate.dtype)))


def one_sided_stop(unit_normals: Normals, speed: jax.Array, stops: jax.Array) -> jax.Array:
    """Return the impulses x (nc,) of the unilateral plastic impact, with their one-sided derivative.

    It is the contact problem without friction, whose tangents do not move.
    """
    nc, dtype = stops.shape[0], stops.dtype
    normal = 2 * jnp.arange(nc)
    delassus = jnp.zeros((2 * nc, 2 * nc), dtype).at[normal[:, None], normal[None]].set(unit_normals.gram)
    rates = jnp.zeros(2 * nc, dtype).at[normal].set(unit_normals.rate)
    fixed = lax.stop_gradient((stops, unit_normals.active, speed))
    solution = Solution(
        jnp.zeros(2 * nc, dtype).at[normal].set(fixed[0]), *fixed[1:], jnp.ones(2 * nc, dtype)
    )
    return one_sided_impulse(delassus, rates, jnp.zeros(nc, dtype), jnp.array(False), solution)[::2]


class Mixture(NamedTuple):
    """Numbers of a mixture of two outcomes: of the normals, and impulses (nc,) of bounces and stops."""

    gram: jax.Array
    rate: jax.Array
    bounces: jax.Array
    stops: jax.Array
    restitution: jax.Array


def mix(parts: Mixture) -> jax.Array:
    """Compute the impulses (nc,) of an outcome between the elastic and the plastic one."""
    alpha = share(*parts)
    return jnp.where(alpha > 0, alpha * parts.bounces, 0.0) + (1.0 - alpha) * parts.stops


@jax.custom_jvp
def one_sided_mix(parts: Mixture, starts: jax.Array) -> jax.Array:
    """Mix as `mix`; if the impact `starts` with the direction, alpha is that of the direction alone.

    Derivative: forward, first order.
    """
    return mix(parts)


@one_sided_mix.defjvp
@all_digits
def _mix_jvp(primals: tuple, tangents: tuple) -> tuple[jax.Array, jax.Array]:
    (parts, starts), changes = primals, tangents[0]
    later = jax.jvp(mix, (parts,), (changes,))[1]
    at_start = mix(changes._replace(gram=parts.gram, restitution=parts.restitution))
    change = forward_only(jnp.where(starts, at_start, later), parts.rate, reverse=REVERSE, second=SECOND)
    return one_sided_mix(*primals), change
