"""`Compliant`: constraints as springs and dampers, one convex problem per step."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
from jax import lax

from jaxcontact._pytree import Record, static
from jaxcontact.compliant.solve import NEWTON, Newton
from jaxcontact.compliant.step import step
from jaxcontact.mechanics.system import Params, State, System
from jaxcontact.simulate.stepper import StepperInfo
from jaxcontact.terms import constraint_terms, contact_gaps, kept_by_body, rows_by_body


class Compliant(Record):
    """Steps of `jc.compliant.step`, each started from the forces of the one before.

    A contact is closed where it pushes at the end of the step; at the start, where its gap is not positive.

    Attributes:
        cone, formulation, solver, max_contacts: as `compliant.step`.
    """

    cone: str = static(default="associated")
    formulation: str = static(default="complementary")
    solver: Newton = static(default=NEWTON)
    max_contacts: int | None = static(default=None)

    def init(self, system: System, params: Params, state: State, key: jax.Array | None = None) -> jax.Array:
        """(nr,) forces to start from: none."""
        terms = rows_by_body if kept_by_body(system) else constraint_terms
        rows = jax.eval_shape(functools.partial(terms, system), params, state).phi
        return jnp.zeros(rows.shape, rows.dtype)

    def closed(self, system: System, params: Params, state: State) -> jax.Array:
        """(nc,) bool, gaps that are not positive."""
        if not system.structure.num_contacts:
            return jnp.zeros(0, bool)
        return contact_gaps(system, params, state.q) <= 0.0

    def step(
        self,
        system: System,
        params: Params,
        state: State,
        tau: jax.Array,
        memory: jax.Array,
        *,
        dt: jax.Array,
    ) -> tuple[State, jax.Array, StepperInfo]:
        """One step; `info.details` is the `StepInfo` of `compliant.step`."""
        then, info = step(
            system, params, state, tau, dt=dt, cone=self.cone, formulation=self.formulation,
            solver=self.solver, warm_start=memory, max_contacts=self.max_contacts,
        )  # fmt: skip
        nc, dim = system.structure.num_contacts, system.structure.dim
        force = info.lam[info.lam.shape[0] - nc * dim :].reshape(nc, dim)
        said = StepperInfo(
            status=info.status,
            residual=info.residual,
            num_iters=info.iterations,
            impulse=dt * force,
            contacts=force[:, 0] > 0.0,
            details=info,
        )
        return then, lax.stop_gradient(info.lam), said
