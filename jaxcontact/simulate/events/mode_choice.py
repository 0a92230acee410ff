"""How closed contacts go on: which stick, slide or let go, by the complementarity of forces and accelerations.

Owns the choice of modes at a state, and the states in which no finite forces go on.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from jaxcontact.mechanics.system import Params, State, System
from jaxcontact.simulate.augmented.contact_forces import Accelerations, accelerations, shortest_forces
from jaxcontact.simulate.events.stretch import Modes, pushes
from jaxcontact.simulate.variational.active_set import contact_impulses
from jaxcontact.solvers import contact_modes
from jaxcontact.solvers.contact_problem import SEPARATE, SLIDE, STICK


class Ended(NamedTuple):
    """Modes that ended here: contacts (nc,) that let go, that began to slip, and the way (nc, nt) they do."""

    released: jax.Array
    slipped: jax.Array
    way: jax.Array


class Choice(NamedTuple):
    """Modes of the contacts, whether finite forces were found, and the scaled forces (r,)."""

    modes: Modes
    found: jax.Array
    force: jax.Array


def choose_modes(
    system: System, params: Params, state: State, controls: jax.Array, closed: jax.Array, near: jax.Array,
    ended: Ended,
) -> Choice:  # fmt: skip
    """Modes of the closed contacts at a state.

    0 <= f_n and a_n >= 0 are complementary; friction opposes the sliding velocity, or where there is none
    (below `near` (nc,), m/s) the sliding acceleration, all it can. A mode that ended here is taken up again
    only if nothing else goes on.
    """
    here = accelerations(system, params, state, closed, controls)
    slip = jnp.einsum("ctv,v->ct", here.terms.J_t, state.v)
    speed = jnp.sqrt(jnp.sum(slip**2, axis=1))
    slides = closed & (speed > near)
    way = slip / jnp.where(speed > 0, speed, 1.0)[:, None]

    def wanted(carry: tuple[Choice, jax.Array]) -> jax.Array:
        choice, k = carry
        return ~choice.found & (k < 2)

    def attempt(carry: tuple[Choice, jax.Array]) -> tuple[Choice, jax.Array]:
        _, k = carry
        first = (k == 0) & closed
        slipped = ended.slipped & first & ~slides
        heading = jnp.where(slipped[:, None], ended.way, way)
        return _solved(here, closed, slides | slipped, heading, ended.released & first, slipped), k + 1

    nothing = Choice(Modes(jnp.full_like(near, SEPARATE, jnp.int32), way), jnp.array(False), here.rate)
    return lax.while_loop(wanted, attempt, (nothing, jnp.int32(0)))[0]


def _solved(
    here: Accelerations, closed: jax.Array, slides: jax.Array, way: jax.Array, released: jax.Array,
    slipped: jax.Array,
) -> Choice:  # fmt: skip
    """The modes in which contacts `slides` slide along `way`, and those `released` are open."""
    space, nc = here.space, slides.shape[0]
    rows = here.rate.reshape(nc, -1)
    # Friction of sliding is that share of the normal force: a contact without friction, with other columns.
    share = jnp.where(slides[:, None], -space.mu[:, None] * way, 0.0)
    columns = space.delassus.reshape(-1, nc, rows.shape[1])
    pushed = columns.at[:, :, 0].add(jnp.einsum("rct,ct->rc", columns[:, :, 1:], share))
    mu = jnp.where(slides, 0.0, space.mu)
    lam, fine = contact_impulses(
        pushed.reshape(space.delassus.shape), rows, mu, closed & ~released, jnp.zeros_like(rows)
    )
    lam = lam.at[:, 1:].add(share * lam[:, :1])
    rate = (here.rate + space.delassus @ lam.reshape(-1)).reshape(nc, -1)
    noise = 100.0 * contact_modes.feasibility_tolerance(rate.dtype) * here.size
    turned = jnp.sqrt(jnp.sum(rate[:, 1:] ** 2, axis=1))
    held = jnp.abs(rate[:, 0]) <= noise
    sticks = ~slides & (turned <= noise)
    begins = rate[:, 1:] / jnp.where(turned > 0, turned, 1.0)[:, None]
    heading = jnp.where(slides[:, None], way, jnp.where(sticks[:, None], 0.0, begins))
    backwards = slipped & (lam[:, 0] > 0) & (jnp.sum(rate[:, 1:] * way, axis=1) < -noise)
    approaches = closed & released & (rate[:, 0] < -noise)

    def kinds(pushing: jax.Array) -> jax.Array:
        return jnp.where(closed & pushing, jnp.where(sticks, STICK, SLIDE), SEPARATE).astype(jnp.int32)

    # Of a load that can be shared in many ways the shortest forces are better behaved than any others.
    shared = kinds(held & ~released)
    force = shortest_forces(space, here.rate, shared, heading)
    push, left = pushes(space, force)
    inside = (push >= -noise) & ((left >= -noise) | (shared != STICK))
    fits = jnp.all(inside | (shared == SEPARATE))
    kind = jnp.where(fits, shared, kinds(lam[:, 0] > 0))
    found = fine & ~jnp.any(backwards | approaches)
    return Choice(Modes(kind, heading), found, jnp.where(fits, force, lam.reshape(-1)))
