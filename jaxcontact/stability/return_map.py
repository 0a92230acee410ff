"""Growth of motions near an equilibrium, by iterating the return map of the zero-order dynamics.

Owns the asymptotic growth per event, entry function `chatter_rate`; its zero is the boundary of stability
against inverse chatter (Varkonyi, Fig. 2). Page: docs/methods/stability.md.
"""

from __future__ import annotations

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxcontact.arguments import check_count, check_rows
from jaxcontact.front_door import checked
from jaxcontact.impact.laws.callable_laws import Law, law_as_pytree
from jaxcontact.precision import jit
from jaxcontact.stability.body import Body, LocalTerms, as_terms
from jaxcontact.stability.falsify import check_starts, make_starts
from jaxcontact.stability.modes import contact_modes
from jaxcontact.stability.motion import ACTIVE, DIVERGED, Motion, step, zero_order_dynamics


@checked(num_samples=check_count, num_events=check_rows)
def chatter_rate(
    body: Body, *, num_samples: int = 32, seed: int = 0, num_events: int = 64, law: Law | None = None
) -> float:
    """Estimate the growth of the fastest motion near an equilibrium, d log(size) per impact or mode change.

    The zero-order dynamics maps the state after an event to the state after the next one, and a multiple of a
    state to the same multiple; from each start the map is iterated, first `num_events` times to settle, then
    `num_events` times to measure. Above zero motions grow from an arbitrarily small push; below zero none of
    the starts does. A rate within about 1 / num_events of zero may be the remainder of a transient. The
    starts are those of `falsify`.

    Args:
        body: a PlanarBiped or LocalTerms.
        num_samples: number of starts, at least 1.
        seed: of the random starts, an integer.
        num_events: events of each half, at least 1.
        law: of impacts, as for `falsify`.

    Returns:
        The rate; inf if a motion leaves in one mode for ever, -inf if every motion comes to rest.

    Raises:
        TypeError: a law that is no callable.
        ValueError: bad numbers in the body, no equilibrium; num_samples, seed or num_events out of range.

    Derivative: none.
    """
    check_starts(num_samples, seed, num_events, "num_events")
    terms = as_terms(body)
    table = contact_modes(terms)
    if not bool(table.at_rest[table.words.index("S" * terms.mu.shape[0])]):
        raise ValueError("body: not an equilibrium; no contact forces within Coulomb's law hold it at rest")
    keys = jax.random.key(seed), jax.random.key(seed + 1)
    law = None if law is None else law_as_pytree(law)
    end, grown = _iterated(jax.tree.map(jnp.asarray, terms), *keys, num_samples, num_events, law)
    outcome = np.asarray(end.outcome)
    rates = np.where(outcome == ACTIVE, np.asarray(grown) / num_events, -math.inf)
    return float(np.max(np.where(outcome == DIVERGED, math.inf, rates)))


@functools.partial(jit, static_argnames=("num_samples", "num_events"))
def _iterated(
    terms: LocalTerms,
    key: jax.Array,
    preference: jax.Array,
    num_samples: int,
    num_events: int,
    law: Law,
) -> tuple[Motion, jax.Array]:
    """Iterate the map; return motions after both halves, and the logarithm of growth over the second half."""
    dynamics = zero_order_dynamics(terms, law)
    start = make_starts(dynamics, num_samples, key)
    priority = jax.random.uniform(preference, (num_samples, dynamics.possible.shape[0]), terms.M.dtype)
    lanes = jax.vmap(lambda m, p: step(dynamics, m, p)[0])

    def event(motion: Motion, _: None) -> tuple[Motion, jax.Array]:
        # Every state counts as of size one, so that no motion is decided by its size.
        motion = lanes(motion.replace(log_size=jnp.zeros_like(motion.log_size)), priority)
        return motion, motion.log_size

    middle, _ = lax.scan(event, start, None, length=num_events)
    end, growth = lax.scan(event, middle, None, length=num_events)
    return end, jnp.sum(growth, axis=0)
