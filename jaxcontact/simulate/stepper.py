"""The stepper protocol: what moves a mechanism by one step of time, whatever its method.

A stepper is a frozen pytree: its numbers can be differentiated by, its choices are static.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import jax

from jaxcontact._pytree import Record
from jaxcontact.mechanics.system import Model, State

# policy(model, state, t, memory, key) -> (u, memory)
Policy = Callable[[Model, State, jax.Array, Any, Any], tuple[jax.Array, Any]]


class StepperInfo(Record):
    """What every stepper says of a step; the leading axis of a trajectory's is the step.

    Attributes:
        status: uint32 bits of `Status`.
        residual: violation of the equations of the step, relative; `details` says of which.
        num_iters: int32, iterations of its solver.
        impulse: (nc, dim) impulses of the contacts during the step, (n, t1[, t2]), N s.
        contacts: (nc,) bool, the contacts that are closed at its end, as the stepper decides.
        impacts: `Impacts` of the step, with rows that were not needed; None where the method has none.
        details: what the stepper says beside that, or None.
    """

    status: jax.Array
    residual: jax.Array
    num_iters: jax.Array
    impulse: jax.Array
    contacts: jax.Array
    impacts: Any = None
    details: Any = None


class Stepper(Protocol):
    """A method of motion in time."""

    def init(self, model: Model, state: State, key: jax.Array | None) -> Any:
        """What the stepper remembers from step to step, before the first one."""

    def closed(self, model: Model, state: State) -> jax.Array:
        """(nc,) bool, the contacts that are closed at the start."""

    def step(
        self, model: Model, state: State, tau: jax.Array, memory: Any, *, dt: jax.Array
    ) -> tuple[State, Any, StepperInfo]:
        """The state after dt under the controls tau (nu,), the new memory and the info."""
