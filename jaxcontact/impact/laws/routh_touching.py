"""Routh's impact within a motion: each lane of a batch pays for its own contacts and steps only.

Entry `resolve_touching`. A motion asks for impacts at every time step, for all candidate contacts, and mostly
no contact approaches, or only two do. The number of contact modes is exponential in the number of contacts.
So a lane is solved with its active contacts only, and its loop ends after its last step.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp

from jaxcontact._pytree import PyTree
from jaxcontact.batching import lanes_by_case
from jaxcontact.impact.laws.contact_space import approaching, contact_space, slowest_approach
from jaxcontact.impact.laws.routh_steps import (
    Density,
    ImpactDraws,
    Resolved,
    StepSettings,
    all_steps,
    draw_step,
    needed_steps,
)
from jaxcontact.precision import all_digits
from jaxcontact.terms import ContactTerms


class OrderKey(NamedTuple):
    """Data of the key that all draws come from, and the largest normal impulses `impulse_step` (nc,), N s."""

    data: jax.Array
    impulse_step: jax.Array


class TouchingSettings(NamedTuple):
    """The choices of an impact in time: settings of its steps, their largest number, and their draws."""

    steps: StepSettings
    max_steps: int
    key_kind: str
    density: Density | None = None

    def draw(self, order: OrderKey, number: jax.Array) -> ImpactDraws:
        """Draw the random numbers of step `number`."""
        key = jax.random.wrap_key_data(order.data, impl=self.key_kind)
        return draw_step(key, number, order.impulse_step, self.density)


class ImpactQuestion(NamedTuple):
    """All inputs of an impact; terms and v are usable numbers if `status` is 0."""

    terms: ContactTerms
    v: jax.Array
    draws: PyTree  # ImpactDraws, in time an OrderKey
    restitution: jax.Array | None
    clearance: jax.Array | None
    status: jax.Array


@functools.partial(jax.custom_jvp, nondiff_argnums=(0,))
def resolve_touching(settings: TouchingSettings, question: ImpactQuestion) -> Resolved:
    """Resolve the impact as `all_steps`, at the cost of the active contacts and needed steps of each lane.

    Derivative: that of `all_steps`, any order, forward and reverse.
    """

    @jax.custom_batching.custom_vmap
    @all_digits
    def ask(terms: ContactTerms, rest: PyTree) -> Resolved:
        return _by_contacts(settings, ImpactQuestion(terms, *rest))

    @ask.def_vmap
    @all_digits
    def _(size: int, batched: PyTree, terms: ContactTerms, rest: PyTree) -> tuple[PyTree, PyTree]:
        alike = not any(jax.tree.leaves(batched[0]))  # one table of contact modes serves all lanes
        solve = _all if alike else _by_contacts
        axes = jax.tree.map(lambda has: 0 if has else None, batched)
        result = jax.vmap(
            lambda terms, rest: solve(settings, ImpactQuestion(terms, *rest)), axes, axis_size=size
        )(terms, rest)
        return result, jax.tree.map(lambda _: True, result)

    return ask(question.terms, tuple(question[1:]))


@resolve_touching.defjvp
@all_digits
def _resolve_touching_jvp(
    settings: TouchingSettings, primals: PyTree, tangents: PyTree
) -> tuple[PyTree, PyTree]:
    return jax.jvp(functools.partial(_all, settings), primals, tangents)


def _all(settings: TouchingSettings, question: ImpactQuestion) -> Resolved:
    draws = jax.vmap(lambda k: settings.draw(question.draws, k))(jnp.arange(settings.max_steps))
    return all_steps(*question._replace(draws=draws), settings.steps)[0]


def _sizes(num_contacts: int) -> list[int]:
    """List the numbers of contacts for which an impact is compiled: 2, 4, 8, ... and all."""
    return [2**k for k in range(1, num_contacts.bit_length()) if 2**k < num_contacts] + [num_contacts]


def _by_contacts(settings: TouchingSettings, question: ImpactQuestion) -> Resolved:
    """Resolve the impact with the needed steps of the active contacts."""
    terms, v = question.terms, question.v
    sizes = _sizes(terms.phi.shape[0])
    space = contact_space(terms, question.clearance)
    strikes = jnp.any(approaching(space, v, slowest_approach(space, v)))
    fits = jnp.searchsorted(jnp.asarray(sizes), jnp.sum(terms.active), side="left")
    branches = [functools.partial(_untouched, settings)]
    branches += [functools.partial(_resolve_touching, settings, size) for size in sizes]
    case = jnp.where(strikes, 1 + fits, 0).astype(jnp.int32)
    return lanes_by_case.switch(case, branches, question, tile=64 if space.num_tangents == 1 else 16)


def _untouched(settings: TouchingSettings, question: ImpactQuestion) -> Resolved:
    """Return the unchanged velocity, for an impact without an approaching contact."""
    terms, v, none = question.terms, question.v, jnp.int32(0)
    impulse = jnp.zeros((terms.phi.shape[0], 1 + terms.J_t.shape[1]), v.dtype)
    complete = jnp.array(settings.steps.selection != "lemke")
    return Resolved(v, impulse, question.status, jnp.zeros((), v.dtype), none, complete)


def _resolve_touching(settings: TouchingSettings, size: int, question: ImpactQuestion) -> Resolved:
    """Resolve the impact of `size` contacts, which include the active ones."""
    terms, clearance = question.terms, question.clearance
    index = jnp.argsort(~terms.active, stable=True)[:size]
    e = question.restitution

    def draw(number: jax.Array) -> ImpactDraws:
        draws = settings.draw(question.draws, number)
        return draws._replace(impulse_max=draws.impulse_max[index])

    answer = needed_steps(
        terms.take(index),
        question.v,
        draw,
        settings.max_steps,
        e if e is None or jnp.ndim(e) == 0 else e[index],
        None if clearance is None else clearance[index],
        question.status,
        settings.steps,
    )
    nothing = jnp.zeros((terms.phi.shape[0], answer.impulse.shape[1]), answer.impulse.dtype)
    return answer._replace(impulse=nothing.at[index].set(answer.impulse))
