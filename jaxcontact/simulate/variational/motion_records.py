"""Records of a motion by discrete mechanics: its numbers, choices, memory between steps, and pieces."""

from __future__ import annotations

from typing import NamedTuple

import jax

from jaxcontact.impact.laws.callable_laws import Law
from jaxcontact.mechanics.system import Params, State
from jaxcontact.simulate.trajectory import Trajectory
from jaxcontact.simulate.variational.event_log import MotionPieces


class MotionNumbers(NamedTuple):
    """The start and the numbers of a motion; it can be differentiated by all of these but `zeno`."""

    params: Params
    state: State
    dt: jax.Array
    restitution: jax.Array
    zeno: jax.Array
    law: Law | None  # an impact law as a pytree, or None for reflections
    controls: jax.Array | None  # (T, nu)


class MotionMemory(NamedTuple):
    """The memory of a motion of its impacts.

    Attributes:
        key: of all impacts, for laws that draw.
        last: (nc,) time of the last impact of each contact, s.
        number: number of impacts so far.
    """

    key: jax.Array | None
    last: jax.Array
    number: jax.Array


class MotionChoice(NamedTuple):
    """The static choices of a motion, fixed when it is compiled; see `variational`."""

    order: str | tuple[int, ...]
    num_steps: int
    max_impacts: int


class ImpactSetting(NamedTuple):
    """The settings of the impacts of a motion."""

    restitution: jax.Array
    zeno: jax.Array
    key: jax.Array | None
    first: jax.Array  # number of the first one
    order: str | tuple[int, ...]
    law: Law | None


class RecordedMotion(NamedTuple):
    """A motion and the pieces that repeat it.

    Attributes:
        trajectory: the motion.
        memory: of its impacts, after it.
        pieces: its pieces, with a first axis of `max_pieces`.
        num_pieces: number of pieces, including those beyond `max_pieces`.
        ends: (T,) index of the last piece of each time step.
    """

    trajectory: Trajectory
    memory: MotionMemory
    pieces: MotionPieces
    num_pieces: jax.Array
    ends: jax.Array
