"""The log of a time step: its stretches and impacts in the order of time, with the numbers to repeat them.

Owns the record `EventPieces`, which links the search for a step's events to its repetition, which can be
differentiated.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from jaxcontact._pytree import PyTree
from jaxcontact.mechanics.system import State
from jaxcontact.simulate.events.accumulation import Chatter
from jaxcontact.simulate.events.stretch import Modes

UNUSED, WHOLE, PART, EVENT, IMPACT, JAM, SKIP = range(7)


class EventPieces(NamedTuple):
    """One piece, or with a first axis all of them.

    A stretch goes to the end of the time step (WHOLE), as far as its error allows (PART) or to an event. A
    JAM is an impact without a collision; SKIP leaves out impacts of a chatter, to its end or to the end of
    the step.
    """

    kind: jax.Array
    h: jax.Array  # length of a stretch, s
    modes: Modes  # in it
    value: jax.Array  # (nc, 2) bool, the entry of `stretch.Look.value` that is zero at its end
    participants: jax.Array  # (nc,) bool, contacts that took part in an impact or in a chatter
    dead: jax.Array  # bool, whether an impact of a chatter was made inelastic
    breaks: jax.Array  # bool, whether it is the first that was
    jumps: jax.Array  # bool, whether its end depends on the order of contacts that land together
    turns: jax.Array  # pairs of impacts that were left out, inf for all of them
    push: jax.Array  # (nc, dim) impulses of a jam, N s
    impulse: jax.Array  # (nc, dim) impulses of all but a SKIP, N s
    rests: jax.Array  # (nc,) kinds as in `Modes` of the contacts that are held at rest at its end
    end: State  # the state after it


class Carry(NamedTuple):
    """A state within a step, and the impacts that led to it."""

    state: State
    chatter: Chatter
    number: jax.Array  # of impacts


class EventMemory(NamedTuple):
    """The memory of the stepper.

    Attributes:
        key: of all impacts, for laws that draw.
        chatter: the last impacts.
        number: number of impacts so far.
    """

    key: jax.Array | None
    chatter: Chatter
    number: jax.Array


class StepInputs(NamedTuple):
    """The arguments of a step; it can be differentiated by all of these but `rtol`."""

    params: PyTree
    state: State
    controls: jax.Array
    dt: jax.Array
    law: PyTree | None
    rtol: jax.Array


def no_piece(nc: int, dim: int, state: State) -> EventPieces:
    """Make an unused piece; it ends at the state."""
    none, dtype = jnp.zeros(nc, bool), state.q.dtype
    return EventPieces(
        kind=jnp.int32(UNUSED),
        h=jnp.zeros((), dtype),
        modes=Modes(jnp.zeros(nc, jnp.int32), jnp.zeros((nc, dim - 1), dtype)),
        value=jnp.zeros((nc, 2), bool),
        participants=none,
        dead=jnp.array(False),
        breaks=jnp.array(False),
        jumps=jnp.array(False),
        turns=jnp.zeros((), dtype),
        push=jnp.zeros((nc, dim), dtype),
        impulse=jnp.zeros((nc, dim), dtype),
        rests=jnp.zeros(nc, jnp.int32),
        end=state,
    )
