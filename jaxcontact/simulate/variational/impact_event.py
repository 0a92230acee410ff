"""One impact within a motion: which law it obeys and what is kept of it."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from jaxcontact.impact.laws.contact_space import collision_tolerance
from jaxcontact.impact.laws.reflections import Normals, normals, reflection, share
from jaxcontact.simulate.variational.active_set import contact_impulses
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
    order: str | tuple[int, ...], law: Law | None, sequence: jax.Array | None = None,
) -> Strike:  # fmt: skip
    """The impact of the active contacts: plastic where that is asked for, else by `law` or by reflections.

    Args:
        sequence: (k,) order on record of an impact that is repeated, nothing with `law`; None for `order`.

    Derivative: with a `sequence` of first order, forward and reverse, as far as `law` has one.
    """
    these = normals(terms, v)
    rate, mu = these.rate[:, None], jnp.zeros_like(these.rate)
    found, fine = contact_impulses(these.gram, rate, mu, these.active, jnp.zeros_like(rate))
    stops = found[:, 0]
    status = flag(~fine, Status.STALLED)
    if law is not None:
        struck = functools.partial(_struck, law)
        v_plus, impulse, said = (_in_turn(struck) if sequence is None else struck)(~plastic, terms, v, key)
        dead = v + these.response @ stops
        none = jnp.full(MAX_REFLECTIONS, -1, jnp.int32)
        return Strike(
            jnp.where(plastic, dead, v_plus),
            jnp.where(plastic, stops / these.size, impulse),
            none,
            status | jnp.where(plastic, 0, said),
        )
    if sequence is None:
        bounces, sequence, left = _reflections(these, order)
    else:
        bounces, left = _repeated(these, sequence), jnp.array(False)
    alpha = share(these, bounces, stops, jnp.where(plastic, 0.0, restitution))
    impulse = alpha * bounces + (1.0 - alpha) * stops
    status = status | flag(left & ~plastic, Status.UNTERMINATED)
    v_plus = v + these.response @ impulse
    return Strike(v_plus, impulse / these.size, jnp.where(plastic, -1, sequence), status)


def _struck(
    law: Law, wanted: jax.Array, terms: ContactTerms, v: jax.Array, key: Any
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """What the law says: v_plus (nv,), normal impulses (nc,), status; v and zeros where it is not asked."""

    def ask() -> tuple[jax.Array, jax.Array, jax.Array]:
        v_plus, info = law(terms, v, key)
        impulse = info.impulse if info.impulse.ndim == 1 else info.impulse[:, 0]
        return v_plus, impulse, jnp.asarray(info.status, jnp.uint32)

    return lax.cond(wanted, ask, lambda: (v, jnp.zeros_like(terms.phi), jnp.uint32(0)))


def _in_turn(function: Callable[..., Any]) -> Callable[..., Any]:
    """`function` whose batches go through it one by one.

    `vmap` turns a `cond` into both of its branches for every world: a law that draws would cost in each trial
    step of each of them what it costs in an impact. One by one only those pay that have one. No derivative.
    """
    call = jax.custom_batching.custom_vmap(function)

    @call.def_vmap
    def _(size: int, batched: Any, *given: Any) -> tuple[Any, Any]:
        def row(x: jax.Array, is_batched: bool, i: jax.Array) -> jax.Array:
            return x[i] if is_batched else x

        out = lax.map(
            lambda i: call(*jax.tree.map(lambda x, b: row(x, b, i), given, tuple(batched))), jnp.arange(size)
        )
        return out, jax.tree.map(lambda _: True, out)

    return call


def _reflections(these: Normals, order: str | tuple[int, ...]) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Impulses (nc,) of elastic single impacts, their sequence, and whether any contact still approaches.

    As `reflections.reflect`, in a loop that ends with the last impact, and has no reverse derivative.
    """
    chosen = order if isinstance(order, str) else jnp.asarray(order, jnp.int32)
    # Resting contacts chatter at the level of round-off; one that a neighbour's blow leaves is faster.
    least = 1e-2 * collision_tolerance(these.rate.dtype) / these.size
    next_one = reflection(these, least, chosen)

    def going(carry: tuple) -> jax.Array:
        *_, more, count = carry
        return more & (count < MAX_REFLECTIONS)

    def reflect(carry: tuple) -> tuple:
        impulse, sequence, place, _, count = carry
        impulse, place, contact = next_one(impulse, place)
        return impulse, sequence.at[count].set(contact), place, contact >= 0, count + 1

    none = jnp.full(MAX_REFLECTIONS, -1, jnp.int32)
    start = (jnp.zeros_like(these.rate), none, jnp.int32(0), jnp.bool_(True), jnp.int32(0))
    impulse, sequence, *_ = lax.while_loop(going, reflect, start)
    left = these.active & (these.rate + these.gram @ impulse < -least)
    return impulse, sequence, jnp.any(left)


def _repeated(these: Normals, sequence: jax.Array) -> jax.Array:
    """Impulses (nc,) of the elastic single impacts of a sequence (k,), -1 behind the last one."""

    def one(impulse: jax.Array, k: jax.Array) -> tuple[jax.Array, None]:
        rate = these.rate[k] + these.gram[k] @ impulse
        return impulse.at[k].add(jnp.where(k >= 0, -2.0 * rate, 0.0)), None

    return lax.scan(one, jnp.zeros_like(these.rate), sequence)[0]
