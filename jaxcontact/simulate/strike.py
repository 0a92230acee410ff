"""One impact within a motion: which law it obeys and what is kept of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from jaxcontact import implicit
from jaxcontact.impact.contact_space import collision_tolerance
from jaxcontact.simulate.closed import contact_impulses
from jaxcontact.status import Status, flag
from jaxcontact.terms import ContactTerms

# law(terms, v, key) -> (v_plus, info); info has `status` and `impulse`
Law = Callable[[ContactTerms, jax.Array, Any], tuple[jax.Array, Any]]
MAX_REFLECTIONS = 64


class Strike(NamedTuple):
    """An impact: v_plus (nv,), normal impulses (nc,), order (k,) of single impacts, status."""

    v_plus: jax.Array
    impulse: jax.Array
    order: jax.Array
    status: jax.Array


def strike(
    terms: ContactTerms, v: jax.Array, key: Any, plastic: jax.Array, restitution: jax.Array,
    order: str | tuple[int, ...], law: Law | None,
) -> Strike:  # fmt: skip
    """The impact of the active contacts: plastic where that is asked for, else by `law` or by reflections."""
    response = implicit.solve_spd(terms.M, jnp.where(terms.active[:, None], terms.J_n, 0.0).T)
    delassus = terms.J_n @ response
    u = terms.J_n @ v
    mu = jnp.zeros_like(u)
    found, fine = contact_impulses(delassus, u[:, None], mu, terms.active, jnp.zeros_like(u)[:, None])
    stops = found[:, 0]
    status = flag(~fine, Status.STALLED)
    if law is not None:
        v_plus, info = law(terms, v, key)
        impulse = info.impulse if info.impulse.ndim == 1 else info.impulse[:, 0]
        dead = v + response @ stops
        none = jnp.full(MAX_REFLECTIONS, -1, jnp.int32)
        return Strike(
            jnp.where(plastic, dead, v_plus),
            jnp.where(plastic, stops, impulse),
            none,
            status | jnp.where(plastic, 0, info.status),
        )
    bounces, sequence, left = _reflections(delassus, u, terms.active, order)
    alpha = _share(delassus, u, bounces, stops, jnp.where(plastic, 0.0, restitution))
    impulse = alpha * bounces + (1.0 - alpha) * stops
    status = status | flag(left & ~plastic, Status.UNTERMINATED)
    return Strike(v + response @ impulse, impulse, jnp.where(plastic, -1, sequence), status)


def _reflections(
    delassus: jax.Array, u: jax.Array, active: jax.Array, order: str | tuple[int, ...]
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Impulses (nc,) of elastic single impacts, their sequence, and whether any contact still approaches."""
    diagonal = jnp.diagonal(delassus)
    size = jnp.sqrt(jnp.where(diagonal > 0, diagonal, 1.0))
    tolerance = collision_tolerance(u.dtype)
    # Resting contacts chatter at the level of round-off; one that a neighbour's blow leaves is faster.
    cycle = jnp.asarray(order if isinstance(order, tuple) else (0,), jnp.int32)
    length = cycle.shape[0]

    def rate(impulse: jax.Array) -> jax.Array:
        return u + delassus @ impulse

    def approaching(impulse: jax.Array) -> jax.Array:
        return active & (rate(impulse) < -1e-2 * tolerance)

    def going(carry: tuple[jax.Array, ...]) -> jax.Array:
        impulse, *_, count = carry
        return jnp.any(approaching(impulse)) & (count < MAX_REFLECTIONS)

    def reflect(carry: tuple) -> tuple:
        impulse, sequence, place, count = carry
        near = approaching(impulse)
        unit = rate(impulse) / size
        if order == "most_violated":
            k = jnp.argmin(jnp.where(near, unit, jnp.inf)).astype(jnp.int32)
        elif order == "least_violated":
            k = jnp.argmax(jnp.where(near, unit, -jnp.inf)).astype(jnp.int32)
        else:
            ahead = jnp.where(near[cycle], (jnp.arange(length, dtype=jnp.int32) - place) % length, length)
            where = (place + jnp.min(ahead)) % length
            k, place = cycle[where], (where + 1) % length
        impulse = impulse.at[k].add(-2.0 * rate(impulse)[k] / size[k] ** 2)
        return impulse, sequence.at[count].set(k), place, count + 1

    none = jnp.full(MAX_REFLECTIONS, -1, jnp.int32)
    start = (jnp.zeros_like(u), none, jnp.int32(0), jnp.int32(0))
    impulse, sequence, *_ = lax.while_loop(going, reflect, start)
    return impulse, sequence, jnp.any(approaching(impulse))


def _share(
    delassus: jax.Array, u: jax.Array, bounces: jax.Array, stops: jax.Array, restitution: jax.Array
) -> jax.Array:
    """The share alpha of the elastic outcome that loses (1 - R^2) of what the plastic one loses.

    alpha = R where |p_p|^2 = <p_p, p_e> (18); else the root of (1 - s) alpha^2 + s alpha = R^2 with
    s = 2 (<p_p, p_e> - |p_p|^2) / (|p_minus|^2 - |p_p|^2).
    """

    def product(a: jax.Array, b: jax.Array) -> jax.Array:
        return a @ delassus @ b

    # With p = p_minus + J^T x: |p_minus|^2 - |p_p|^2 = -2 u.x - x D x, and so on.
    lost = -2.0 * (u @ stops) - product(stops, stops)
    apart = u @ (bounces - stops) + product(stops, bounces - stops)
    safe = jnp.where(lost > 0, lost, 1.0)
    s = jnp.where(lost > 0, 2.0 * apart / safe, 0.0)
    root = jnp.sqrt(jnp.maximum(s * s + 4.0 * (1.0 - s) * restitution**2, 1e-30))
    return jnp.where(restitution > 0, 2.0 * restitution**2 / (s + root), 0.0)
