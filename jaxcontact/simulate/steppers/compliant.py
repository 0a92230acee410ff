"""`Compliant`: constraints as springs and dampers, one convex problem per step."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from jaxcontact._pytree import Record, static
from jaxcontact.compliant.solve import NEWTON, Newton
from jaxcontact.compliant.step import start_of_springs, step
from jaxcontact.mechanics.system import Model, State
from jaxcontact.simulate.stepper import StepperInfo
from jaxcontact.terms import constraint_terms, contact_gaps, kept_by_body, rows_by_body


class Compliant(Record):
    """Steps of `jc.compliant.step`, each started from the forces of the one before.

    A contact is closed if it pushes at the end of the step; at the start, if its gap is not positive.

    Attributes:
        cone, formulation, solver, max_contacts: as `compliant.step`.
    """

    cone: str = static(default="associated")
    formulation: str = static(default="complementary")
    solver: Newton = static(default=NEWTON)
    max_contacts: int | None = static(default=None)

    def init(self, model: Model, state: State, key: jax.Array | None = None) -> Any:
        """Make the first memory: zero forces (nr,); with friction springs (forces, stretch (nc, nt))."""
        terms = rows_by_body if kept_by_body(model.system) else constraint_terms
        rows = jax.eval_shape(terms, model, state).phi
        forces, stretch = jnp.zeros(rows.shape, rows.dtype), start_of_springs(model, state)
        return forces if stretch is None else (forces, stretch)

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
        memory: Any,
        *,
        dt: jax.Array,
    ) -> tuple[State, Any, StepperInfo]:
        """Make one step; `info.details` is the `StepInfo` of `compliant.step`."""
        forces, stretch = memory if isinstance(memory, tuple) else (memory, None)
        then, info = step(
            model, state, tau, dt=dt, cone=self.cone, formulation=self.formulation,
            solver=self.solver, warm_start=forces, max_contacts=self.max_contacts, stretch=stretch,
        )  # fmt: skip
        nc, dim = model.structure.num_contacts, model.structure.dim
        force = info.lam[info.lam.shape[0] - nc * dim :].reshape(nc, dim)
        said = StepperInfo(
            status=info.status,
            residual=info.residual,
            num_iters=info.iterations,
            impulse=dt * force,
            contacts=force[:, 0] > 0.0,
            details=info,
        )
        forces = lax.stop_gradient(info.lam)
        return then, forces if info.stretch is None else (forces, info.stretch), said
