"""The next modes of closed contacts: stick, slide or let go, by complementary forces and accelerations.

Owns the choice of modes at a state, and the detection of states without finite forces. Entry:
`choose_modes`. Page: docs/methods/motion.md.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from jaxcontact.algebra import small_dense
from jaxcontact.batching.bounded_loop import bounded_loop
from jaxcontact.impact.laws.contact_space import ContactSpace
from jaxcontact.mechanics.system import Model, State
from jaxcontact.simulate.augmented.contact_forces import Accelerations, accelerations, shortest_forces
from jaxcontact.simulate.events.stretch import Modes, split_forces
from jaxcontact.simulate.variational.active_set import contact_impulses
from jaxcontact.simulate.variational.jam import SMALLEST_JAM
from jaxcontact.solvers import contact_modes
from jaxcontact.solvers.contact_problem import SEPARATE, SLIDE, STICK


class Ended(NamedTuple):
    """Modes that ended at the state: contacts (nc,) that let go, that began to slip, and the way (nc, nt)."""

    released: jax.Array
    slipped: jax.Array
    way: jax.Array


class ModeChoice(NamedTuple):
    """The next modes of contacts.

    Attributes:
        modes: of the contacts, if finite forces were found.
        found: bool, whether finite forces were found.
        jams: bool, whether an impact without a collision was found in their place.
        push: (nc, 1 + nt) its impulses, N s.
    """

    modes: Modes
    found: jax.Array
    jams: jax.Array
    push: jax.Array


class _Question(NamedTuple):
    """A problem for `contact_impulses`: sliding contacts slide along `way`, those `released` are open."""

    slides: jax.Array
    way: jax.Array
    released: jax.Array
    slipped: jax.Array
    rows: jax.Array  # (nc, 1 + nt) scaled accelerations, of a jam velocities
    guess: jax.Array


def choose_modes(
    model: Model, state: State, controls: jax.Array, dt: jax.Array, closed: jax.Array,
    near: jax.Array, ended: Ended,
) -> ModeChoice:  # fmt: skip
    """Choose the modes of the closed contacts at a state, or the impulses of a jam.

    0 <= f_n and a_n >= 0 are complementary; friction opposes the sliding velocity with maximal dissipation,
    or, if that is zero (below `near` (nc,), m/s), the sliding acceleration. A mode that ended at this state
    is chosen again only if no other mode continues the motion. If no finite forces do (Painleve), the
    impulses of an inelastic impact with friction are looked for.
    """
    rates = accelerations(model, state, closed, controls, dt)
    nc = near.shape[0]
    u = small_dense.apply_matrix(rates.space.jacobian, state.v).reshape(nc, -1)
    rate, scale = rates.rate.reshape(nc, -1), rates.space.scale.reshape(nc, -1)
    if rates.terms.surface is not None:
        u = u + scale * jnp.where(closed[:, None], rates.terms.surface, 0.0)
    speed = jnp.sqrt(jnp.sum(u[:, 1:] ** 2, axis=1))
    slides = closed & (speed > near * scale[:, 1])
    way = u[:, 1:] / jnp.where(speed > 0, speed, 1.0)[:, None]
    hard = jnp.where(slides, speed, 0.0)
    stops = jnp.concatenate([hard[:, None], -(rates.space.mu * hard)[:, None] * way], axis=1)

    def wanted(carry: tuple[ModeChoice, jax.Array]) -> jax.Array:
        choice, k = carry
        return ~choice.found & ((k < 2) | ((k == 2) & jnp.any(slides)))

    def attempt(carry: tuple[ModeChoice, jax.Array]) -> tuple[ModeChoice, jax.Array]:
        _, k = carry
        first, jam = (k == 0) & closed, k == 2
        slipped = ended.slipped & first & ~slides
        question = _Question(
            slides=(slides | slipped) & ~jam,
            way=jnp.where(slipped[:, None], ended.way, way),
            released=ended.released & first,
            slipped=slipped,
            rows=jnp.where(jam, u, rate),
            guess=jnp.where(jam, stops, 0.0),
        )
        lam, found = _find_impulses(rates.space, closed, question)
        change = jnp.max(
            jnp.abs(small_dense.apply_matrix(rates.space.delassus, lam.reshape(-1))), initial=0.0
        )
        happens = jam & found & (change > SMALLEST_JAM * jnp.max(hard, initial=0.0))
        modes, agrees, all_stick = _read_modes(rates, closed, question, lam)
        found = (found | all_stick) & agrees & ~jam
        return ModeChoice(modes, found, happens, scale * jnp.where(happens, lam, 0.0)), k + 1

    no = jnp.array(False)
    nothing = ModeChoice(Modes(jnp.full(nc, SEPARATE, jnp.int32), way), no, no, jnp.zeros_like(u))
    return bounded_loop(wanted, attempt, (nothing, jnp.int32(0)), max_iters=3)[0]


def _find_impulses(
    space: ContactSpace, closed: jax.Array, question: _Question
) -> tuple[jax.Array, jax.Array]:
    """Find the scaled forces (nc, 1 + nt) that answer a question; return also whether they were found."""
    nc, dim = question.rows.shape
    # Friction of sliding is `share` times the normal force: a contact without friction, with other columns.
    slides = question.slides
    share = jnp.where(slides[:, None], -space.mu[:, None] * question.way, 0.0)
    columns = space.delassus.reshape(-1, nc, dim)
    pushed = columns.at[:, :, 0].add(jnp.einsum("rct,ct->rc", columns[:, :, 1:], share))
    mu = jnp.where(slides, 0.0, space.mu)
    lam, found = contact_impulses(
        pushed.reshape(space.delassus.shape), question.rows, mu, closed & ~question.released, question.guess
    )
    return lam.at[:, 1:].add(share * lam[:, :1]), found


def _read_modes(
    rates: Accelerations, closed: jax.Array, question: _Question, lam: jax.Array
) -> tuple[Modes, jax.Array, jax.Array]:
    """Read the modes of contacts from forces.

    Return also whether they agree with the question, and whether all contacts stick by forces in their cones,
    which is a solution, even if the search that gave the forces has not ended.
    """
    space, nc = rates.space, closed.shape[0]
    slides, way = question.slides, question.way
    rate = (rates.rate + small_dense.apply_matrix(space.delassus, lam.reshape(-1))).reshape(nc, -1)
    noise = 100.0 * contact_modes.feasibility_tolerance(rate.dtype) * rates.size
    turned = jnp.sqrt(jnp.sum(rate[:, 1:] ** 2, axis=1))
    held = jnp.abs(rate[:, 0]) <= noise
    rough = space.mu > 0  # without friction a contact neither sticks nor has a direction of sliding
    sticks = ~slides & (turned <= noise) & rough
    begins = jnp.where(rough, 1.0 / jnp.where(turned > 0, turned, 1.0), 0.0)[:, None] * rate[:, 1:]
    heading = jnp.where(slides[:, None], way, jnp.where(sticks[:, None], 0.0, begins))

    def kinds(pushing: jax.Array) -> jax.Array:
        return jnp.where(closed & pushing, jnp.where(sticks, STICK, SLIDE), SEPARATE).astype(jnp.int32)

    # If a load can be shared in many ways, the shortest forces vary less than any others. Of contacts that
    # share friction some may be at the edges of their cones while others hold them: these slide, at no speed.
    def share(carry: tuple[Modes, jax.Array, jax.Array]) -> tuple[Modes, jax.Array, jax.Array]:
        (kind, heading), _, k = carry
        force = shortest_forces(space, rates.rate, kind, heading)
        push, left = split_forces(space, force)
        over = (kind == STICK) & (left < -noise)
        fits = jnp.all((kind == SEPARATE) | ((push >= -noise) & ~over))
        pull = force.reshape(nc, -1)[:, 1:]
        size = jnp.sqrt(jnp.sum(pull**2, axis=1))
        edge = -pull / jnp.where(over, size, 1.0)[:, None]
        ahead = Modes(jnp.where(over, SLIDE, kind), jnp.where(over[:, None], edge, heading))
        return jax.tree.map(lambda a, b: jnp.where(fits, a, b), carry[0], ahead), fits, k + 1

    start = Modes(kinds(held & ~question.released), heading), jnp.array(False), jnp.int32(0)
    shared, fits, _ = bounded_loop(lambda c: ~c[1] & (c[2] <= nc), share, start, max_iters=nc + 1)
    backwards = question.slipped & (lam[:, 0] > 0) & (jnp.sum(rate[:, 1:] * way, axis=1) < -noise)
    approaches = question.released & (rate[:, 0] < -noise)
    modes = jax.tree.map(lambda a, b: jnp.where(fits, a, b), shared, Modes(kinds(lam[:, 0] > 0), heading))
    all_stick = fits & jnp.all((shared.kind == STICK) | ~closed)
    return modes, ~jnp.any(backwards | approaches), all_stick
