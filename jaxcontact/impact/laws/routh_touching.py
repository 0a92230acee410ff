"""Routh's impact within a motion: each lane of a batch pays for its own contacts and steps only.

A motion asks at every step of time, of all candidate contacts, and mostly nothing approaches, or two of many
contacts do. The number of contact modes is exponential in the contacts. So a lane is solved with those of its
contacts that are active, and its loop ends behind its last step.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jaxcontact.batching import lanes_by_case
from jaxcontact.impact.laws.contact_enumeration import of_contacts
from jaxcontact.impact.laws.contact_space import approaching, contact_space, slowest_approach
from jaxcontact.impact.laws.routh_steps import ImpactDraws, Resolved, StepSettings, all_steps, needed_steps
from jaxcontact.terms import ContactTerms


class ImpactQuestion(NamedTuple):
    """All that an impact depends on; terms and v are usable numbers where `status` is 0."""

    terms: ContactTerms
    v: jax.Array
    draws: ImpactDraws
    restitution: jax.Array | None
    clearance: jax.Array | None
    status: jax.Array


@functools.partial(jax.custom_jvp, nondiff_argnums=(0,))
def resolve_touching(settings: StepSettings, question: ImpactQuestion) -> Resolved:
    """What `all_steps` says.

    Derivative: that of `all_steps`, any order, forward and reverse.
    """

    @jax.custom_batching.custom_vmap
    def ask(terms: ContactTerms, rest: Any) -> Resolved:
        return _by_contacts(settings, ImpactQuestion(terms, *rest))

    @ask.def_vmap
    def _(size: int, batched: Any, terms: ContactTerms, rest: Any) -> tuple[Any, Any]:
        alike = not any(jax.tree.leaves(batched[0]))  # one table of contact modes serves all lanes
        solve = _all if alike else _by_contacts
        axes = jax.tree.map(lambda has: 0 if has else None, batched)
        result = jax.vmap(
            lambda terms, rest: solve(settings, ImpactQuestion(terms, *rest)), axes, axis_size=size
        )(terms, rest)
        return result, jax.tree.map(lambda _: True, result)

    return ask(question.terms, tuple(question[1:]))


@resolve_touching.defjvp
def _resolve_touching_jvp(settings: StepSettings, primals: Any, tangents: Any) -> tuple[Any, Any]:
    return jax.jvp(functools.partial(_all, settings), primals, tangents)


def _all(settings: StepSettings, question: ImpactQuestion) -> Resolved:
    return all_steps(*question, settings)[0]


def _sizes(num_contacts: int) -> list[int]:
    """Numbers of contacts that are solved: 2, 4, 8, ... and all."""
    return [2**k for k in range(1, num_contacts.bit_length()) if 2**k < num_contacts] + [num_contacts]


def _by_contacts(settings: StepSettings, question: ImpactQuestion) -> Resolved:
    """The needed steps of the active contacts."""
    terms, v = question.terms, question.v
    sizes = _sizes(terms.phi.shape[0])
    space = contact_space(terms, question.clearance)
    strikes = jnp.any(approaching(space, v, slowest_approach(space, v)))
    fits = jnp.searchsorted(jnp.asarray(sizes), jnp.sum(terms.active), side="left")
    branches = [functools.partial(_untouched, settings)]
    branches += [functools.partial(_nearest, settings, size) for size in sizes]
    return lanes_by_case.switch(jnp.where(strikes, 1 + fits, 0).astype(jnp.int32), branches, question)


def _untouched(settings: StepSettings, question: ImpactQuestion) -> Resolved:
    """Nothing approaches."""
    terms, v, none = question.terms, question.v, jnp.int32(0)
    impulse = jnp.zeros((terms.phi.shape[0], 1 + terms.J_t.shape[1]), v.dtype)
    complete = jnp.array(settings.selection != "lemke")
    return Resolved(v, impulse, question.status, jnp.zeros((), v.dtype), none, complete)


def _nearest(settings: StepSettings, size: int, question: ImpactQuestion) -> Resolved:
    """The impact of `size` contacts, the active ones among them."""
    terms, draws, clearance = question.terms, question.draws, question.clearance
    index = jnp.argsort(~terms.active, stable=True)[:size]
    e = question.restitution
    answer = needed_steps(
        of_contacts(terms, index),
        question.v,
        draws._replace(impulse_max=draws.impulse_max[:, index]),
        e if e is None or jnp.ndim(e) == 0 else e[index],
        None if clearance is None else clearance[index],
        question.status,
        settings,
    )
    nothing = jnp.zeros((terms.phi.shape[0], answer.impulse.shape[1]), answer.impulse.dtype)
    return answer._replace(impulse=nothing.at[index].set(answer.impulse))
