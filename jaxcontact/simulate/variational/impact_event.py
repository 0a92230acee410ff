"""One impact within a motion: the choice of its law, and its record `Strike`; entry `strike`."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from jaxcontact._pytree import PyTree
from jaxcontact.algebra import implicit
from jaxcontact.impact.laws.callable_laws import Law
from jaxcontact.impact.laws.contact_space import collision_tolerance
from jaxcontact.impact.laws.reflections import normals, reflect_while_any, repeat_reflections, share
from jaxcontact.precision import all_digits
from jaxcontact.simulate.variational.active_set import contact_impulses
from jaxcontact.simulate.variational.contact_state import contacts_of
from jaxcontact.status import Status, flag
from jaxcontact.terms import ContactTerms

MAX_REFLECTIONS = 64  # single impacts of one impact; if contacts still approach then, bit UNTERMINATED


class Strike(NamedTuple):
    """An impact: v_plus (nv,), normal impulses (nc,), order (k,) of single impacts, status."""

    v_plus: jax.Array
    impulse: jax.Array
    order: jax.Array
    status: jax.Array


def strike(
    terms: ContactTerms, v: jax.Array, key: jax.Array | None, plastic: jax.Array, restitution: jax.Array,
    order: str | tuple[int, ...], law: Law | None, sequence: jax.Array | None = None,
) -> Strike:  # fmt: skip
    """Compute the impact of the active contacts: plastic if `plastic`, else by `law` or by reflections.

    With a law the plastic impact has friction: without it a chatter that is cut short would lose tangential
    impulse, an error of first order in the step.

    Args:
        law: a law as a pytree, see `law_as_pytree`; None for reflections.
        sequence: (k,) order on record of an impact that is repeated, nothing with `law`; None for `order`.

    Derivative: with a `sequence` of first order, forward and reverse, as far as `law` has one.
    """
    if law is not None:
        ask = one_by_one(apply_law) if sequence is None else apply_law
        v_plus, impulse, said = ask(law, ~plastic, terms, v, key)
        dead, stops, found = stop_contacts(terms, v)
        stops = stops[:, 0]
        none = jnp.full(MAX_REFLECTIONS, -1, jnp.int32)
        return Strike(
            jnp.where(plastic, dead, v_plus),
            jnp.where(plastic, stops, impulse[:, 0]),
            none,
            jnp.where(plastic, flag(~found, Status.STALLED), said),
        )
    rows = normals(terms, v)
    rate, mu = rows.rate[:, None], jnp.zeros_like(rows.rate)
    stopping, found = contact_impulses(rows.gram, rate, mu, rows.active, jnp.zeros_like(rate))
    stops = stopping[:, 0]
    status = flag(~found, Status.STALLED)
    if sequence is None:
        # Resting contacts chatter at the level of round-off; a neighbour's impact leaves a higher speed.
        slowest = 1e-2 * collision_tolerance(v.dtype) / rows.size
        chosen = order if isinstance(order, str) else jnp.asarray(order, jnp.int32)
        bounces, sequence, left = reflect_while_any(rows, slowest, chosen, MAX_REFLECTIONS)
    else:
        bounces = repeat_reflections(rows, sequence, ties=isinstance(order, str))
        left = jnp.array(False)
    alpha = share(rows.gram, rows.rate, bounces, stops, jnp.where(plastic, 0.0, restitution))
    impulse = alpha * bounces + (1.0 - alpha) * stops
    status = status | flag(left & ~plastic, Status.UNTERMINATED)
    v_plus = v + rows.response @ impulse
    return Strike(v_plus, impulse / rows.size, jnp.where(plastic, -1, sequence), status)


def stop_contacts(
    terms: ContactTerms, v: jax.Array, solution: jax.Array | None = None
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Stop the active contacts by an inelastic impact with friction; return v_plus, impulses, if it exists.

    Args:
        solution: its impulses (nc, dim), for a repetition.
    """
    nc, nt, nv = terms.J_t.shape
    rows = contacts_of(terms, terms.active).rows.reshape(nc * (nt + 1), nv)
    response = implicit.solve_spd(terms.M, rows.T)
    u = (rows @ v).reshape(nc, nt + 1)
    guess = jnp.zeros_like(u) if solution is None else solution
    push, found = contact_impulses(rows @ response, u, terms.mu, terms.active, guess, solution is not None)
    push = jnp.where(terms.active[:, None], push, 0.0)
    return v + response @ push.reshape(-1), push, found


def apply_law(
    law: Law, wanted: jax.Array, terms: ContactTerms, v: jax.Array, key: jax.Array | None
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Apply the law if `wanted`; return v_plus (nv,), impulses (nc, dim), status, else v and zeros."""
    none = jnp.zeros((terms.phi.shape[0], 1 + terms.J_t.shape[1]), v.dtype)

    def ask() -> tuple[jax.Array, jax.Array, jax.Array]:
        v_plus, info = law(terms, v, key)
        impulse = info.impulse if info.impulse.ndim == 2 else none.at[:, 0].set(info.impulse)
        return v_plus, impulse, jnp.asarray(info.status, jnp.uint32)

    return lax.cond(wanted, ask, lambda: (v, none, jnp.uint32(0)))


def one_by_one(function: Callable[..., PyTree]) -> Callable[..., PyTree]:
    """Wrap `function` so that the rows of a batch go through it one by one.

    `vmap` turns a `cond` into both of its branches for every world: a law that draws would then cost as much
    in each trial step of each world as in an impact. One by one, only worlds with an impact pay.

    Derivative: none.
    """
    call = jax.custom_batching.custom_vmap(all_digits(function))

    @call.def_vmap
    def _(size: int, batched: PyTree, *arguments: PyTree) -> tuple[PyTree, PyTree]:
        def row(x: jax.Array, is_batched: bool, i: jax.Array) -> jax.Array:
            return x[i] if is_batched else x

        out = lax.map(
            lambda i: call(*jax.tree.map(lambda x, b: row(x, b, i), arguments, tuple(batched))),
            jnp.arange(size),
        )
        return out, jax.tree.map(lambda _: True, out)

    return call
