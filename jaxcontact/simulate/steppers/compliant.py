"""`Compliant`: constraints as springs and dampers, one convex problem per step."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from jaxcontact._pytree import Record, static
from jaxcontact.compliant.settings import DEFAULT, Settings, StepMemory
from jaxcontact.compliant.step import first_memory, step
from jaxcontact.front_door import checked
from jaxcontact.mechanics.system import Model, State
from jaxcontact.simulate.stepper import StepperInfo
from jaxcontact.terms import contact_gaps


@checked()
class Compliant(Record):
    """Steps of `jc.compliant.step`, each started from the forces of the one before.

    A contact is closed if it pushes at the end of the step; at the start, if its gap is not positive.

    Attributes:
        settings: as of `compliant.step`.
    """

    settings: Settings = static(default=DEFAULT)

    def init(self, model: Model, state: State, key: jax.Array | None = None) -> StepMemory:
        """Make the first memory: zero forces, and zero stretch if the material has friction springs."""
        return first_memory(model, state)

    def closed(self, model: Model, state: State) -> jax.Array:
        """Find the contacts whose gap is not positive; return (nc,) bool."""
        if not model.structure.num_contacts:
            return jnp.zeros(0, bool)
        return contact_gaps(model, state.q) <= 0.0

    def step(
        self,
        model: Model,
        state: State,
        tau: jax.Array,
        memory: StepMemory,
        *,
        dt: jax.Array,
    ) -> tuple[State, StepMemory, StepperInfo]:
        """Make one step; `info.details` is the `StepInfo` of `compliant.step`."""
        then, info = step(model, state, tau, dt=dt, settings=self.settings, memory=memory)
        nc, dim = model.structure.num_contacts, model.structure.dim
        axes = dim if model.params.spin_friction is None else dim + model.params.spin_friction.shape[1]
        force = info.lam[info.lam.shape[0] - nc * axes :].reshape(nc, axes)[:, :dim]
        said = StepperInfo(
            status=info.status,
            residual=info.residual,
            num_iters=info.num_iters,
            impulse=dt * force,
            contacts=force[:, 0] > 0.0,
            details=info,
        )
        return then, info.memory, said
