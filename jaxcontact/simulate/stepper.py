"""The stepper protocol: objects that move a mechanism by one step of time, by any method.

A stepper is a frozen pytree: one can differentiate by its numbers; its choices are static.
Page: docs/extend/own-stepper.md.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import jax

from jaxcontact._pytree import PyTree
from jaxcontact.mechanics.system import Model, State
from jaxcontact.status import Info

# policy(model, state, t, memory, key) -> (u, memory)
Policy = Callable[[Model, State, jax.Array, PyTree, jax.Array | None], tuple[jax.Array, PyTree]]


class StepperInfo(Info):
    """The info of a step, the same for every stepper; in a trajectory the leading axis is the step.

    Attributes:
        status: uint32 bits of `Status`.
        residual: relative violation of the equations of the step, which each stepper defines.
        num_iters: int32, iterations of its solver.
        impulse: (nc, dim) impulses of the contacts during the step, (n, t1[, t2]), N s.
        contacts: (nc,) bool, the contacts that are closed at its end, as the stepper decides.
        impacts: `Impacts` of the step, with unused rows; None if the method has none.
        details: further info of this stepper, or None.
    """

    impulse: jax.Array
    contacts: jax.Array
    impacts: PyTree = None
    details: PyTree = None


def of_contacts(info: StepperInfo, count: int) -> StepperInfo:
    """Return the info of the first `count` contacts, without the limits and dry joints that follow."""
    return info.replace(impulse=info.impulse[..., :count, :], contacts=info.contacts[..., :count])


class Stepper(Protocol):
    """A method of motion in time."""

    def init(self, model: Model, state: State, key: jax.Array | None) -> PyTree:
        """Make the memory that the stepper carries from step to step, as it is before the first one."""

    def closed(self, model: Model, state: State) -> jax.Array:
        """Find the contacts that are closed at the start; return (nc,) bool."""

    def step(
        self, model: Model, state: State, tau: jax.Array, memory: PyTree, *, dt: jax.Array
    ) -> tuple[State, PyTree, StepperInfo]:
        """Move the state by dt under the controls tau (nu,); return it, the new memory and the info."""
