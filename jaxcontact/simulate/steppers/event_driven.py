"""`EventDriven`: motion from event to event, impacts at their time under any impact law."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from jaxcontact._pytree import Record, static
from jaxcontact.arguments import check_count, check_positive, is_concrete
from jaxcontact.impact.laws.callable_laws import AnitescuPotra, law_as_pytree
from jaxcontact.mechanics.system import Params, State, System, check_mechanism
from jaxcontact.mechanics.tree_constraints import check_no_held_joints
from jaxcontact.simulate.events.accumulation import no_chatter
from jaxcontact.simulate.events.event_log import Given, Memory
from jaxcontact.simulate.events.pieces import contacts_at
from jaxcontact.simulate.events.repetition import event_step
from jaxcontact.simulate.projection import least_penetration
from jaxcontact.simulate.stepper import StepperInfo
from jaxcontact.terms import contact_gaps


class EventDriven(Record):
    """doc"""

    impact: Any = AnitescuPotra()
    rtol: Any = 1e-10
    max_events: int = static(default=32)

    def __post_init__(self) -> None:
        check_count("max_events", self.max_events)
        if is_concrete(self.rtol):
            check_positive("rtol", self.rtol)
        object.__setattr__(self, "impact", law_as_pytree(self.impact))

    def init(self, system: System, params: Params, state: State, key: jax.Array | None = None) -> Memory:
        """What the stepper remembers of impacts: none.

        Raises:
            ValueError: a mechanism with `constraints`, closed loops or dry friction; a state that is known to
                be deeper than 1e-6 m.
        """
        check_mechanism(system, params, state)
        if system.constraints is not None:
            raise ValueError("system: EventDriven takes no `constraints`; use Compliant or TimeStepping")
        check_no_held_joints(system, "EventDriven")
        nc = system.structure.num_contacts
        if nc and is_concrete(params, state):
            depth = -float(jnp.min(contact_gaps(system, params, state.q)))
            if depth > least_penetration(state.q):
                raise ValueError(
                    f"state: expected no penetration, got one of {depth:.3g} m; "
                    "jc.project(system, params, state) removes it"
                )
        state = state.replace(t=jnp.asarray(state.t, state.q.dtype))
        return Memory(key=key, chatter=no_chatter(state, nc), number=jnp.int32(0))

    def closed(self, system: System, params: Params, state: State) -> jax.Array:
        """(nc,) bool, contacts that touch and neither approach nor leave."""
        return contacts_at(system, params, state).closed

    def step(
        self,
        system: System,
        params: Params,
        state: State,
        tau: jax.Array,
        memory: Memory,
        *,
        dt: jax.Array,
    ) -> tuple[State, Memory, StepperInfo]:
        """One step; the residual is the largest gap of a closed contact at its end, m."""
        dtype = state.q.dtype
        dt, rtol = jnp.asarray(dt, dtype), jnp.asarray(self.rtol, dtype)
        state = state.replace(t=jnp.asarray(state.t, dtype))
        given = Given(params, state, jnp.asarray(tau, dtype), dt, self.impact, rtol)
        return event_step(system, self.max_events, given, memory)
