"""`EventDriven`: motion from event to event, impacts at their time under any impact law."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax

from jaxcontact._pytree import Record, static
from jaxcontact.arguments import check_corner, check_positive, check_rows
from jaxcontact.front_door import checked
from jaxcontact.impact.laws.callable_laws import AnitescuPotra, Law, law_as_pytree
from jaxcontact.mechanics.surfaces import check_paths, has_moving_surfaces
from jaxcontact.mechanics.system import Model, State, check_mechanism
from jaxcontact.precision import all_digits
from jaxcontact.simulate.events.accumulation import no_chatter
from jaxcontact.simulate.events.event_log import EventMemory, StepInputs
from jaxcontact.simulate.events.pieces import contacts_at
from jaxcontact.simulate.events.repetition import event_step
from jaxcontact.simulate.projection import check_no_penetration
from jaxcontact.simulate.stepper import StepperInfo, of_contacts
from jaxcontact.simulate.variational.contact_state import count_rows


@checked(rtol=check_positive, max_events=check_rows, corner=check_corner)
class EventDriven(Record):
    """Motion of order five from event to event, with impacts at their time under any law.

    M vdot + b = tau + J^T f with contacts that separate, stick (no sliding acceleration) or slide (f_t =
    -mu f_n along the sliding velocity), by steps of Dormand & Prince that end at dt, at the length that their
    error allows, or at the first event: a gap closes, also one that opens again within the step; a normal
    force falls to zero; friction reaches the edge of its cone; a sliding velocity reaches zero. Its time is a
    root, to rounding. At the event the complementarity of 0 <= f_n and J_n vdot + Jdot_n v >= 0 determines
    the modes of closed contacts, and the law the outcome for approaching ones; it gets all contacts nearer
    than 1e-9 m. If no finite forces exist (Painleve's paradox), the record gets an impact without a
    collision: inelastic, with friction, for every law.

    As soon as the last five impacts are a geometric series to rounding, x_k = x + a R^k + b R^2k with R the
    ratio of the intervals between every other impact, an accumulation of impacts (Zeno) that ends within the
    step ends at its limit; if it ends later, the impacts of this step are left out if there are eight or
    more. Its record is an impact that is `plastic`, with velocities before and after the ones that are left
    out. Impacts that are no such series, and come five in a hundredth of dt or ever faster until 0.4 of
    `max_events` are used up, are made inelastic, as by `AnitescuPotra`, and so are those of the same contacts
    in the next hundredth of dt; their own series then ends the chatter.

    Limits of joints are contacts without friction, after the others. Dry joints stick and slide like contacts
    whose normal force is the bound of their friction, and take part in no impact. Closed loops and joints
    held by `constraints` are rigid.

    Mocap bodies move on a smooth path through their poses, of fourth order in dt. Contacts have the velocity
    of running surfaces and of that path, and its acceleration; an impact has velocities relative to them.

    Controls are constant during a step. With a key, impact k of a motion gives its law the key folded with k.
    A contact is closed if it touches and neither approaches nor leaves.

    Attributes:
        impact: a law, or a module-level function. The default is `jc.impact.AnitescuPotra()`, inelastic and
            all contacts at once; `jc.stability` proves motion under `jc.impact.Sequential()` if e is zero.
        rtol: error allowed per step of q and v, relative, with 1e-2 of it absolute.
        max_events: largest number of pieces of one step, stretches and impacts together.
        corner: the derivative where contacts land at one instant. "smooth": that of their impact together.
            "one_sided": `jax.jvp` is that of the motion in the direction, which lands with one contact after
            the other; it is not linear in the direction, so reverse mode and second derivatives are refused.

    Raises:
        TypeError: a law that is no callable.
        ValueError: `max_events` is no integer >= 1, `rtol` is not positive.

    Status: MAX_ITERS if a step has more pieces, and ends early, or if none of them takes time: then the last
        one goes to the end of the step and ignores events; STALLED if no forces continue the motion, or no
        step is small enough; ZENO as above; SIMULTANEOUS for an impact with more than one contact closed;
        ENERGY if an impact gains any; PENETRATION for a step that starts deeper than 1e-6 m; NONFINITE and
        INVALID for bad numbers, with a state that stays; the bits of the law. With `corner="one_sided"` also
        JUMP, a note, if contacts that land together end elsewhere one after the other: tangents are then NaN.

    Derivative: first order, forward and reverse, by state, params, controls, dt and the numbers of the law,
        including that of the times of events and of the end of a chatter. The list of events and the modes of
        contacts between them are piecewise constant.
    """

    impact: Law = AnitescuPotra()
    rtol: float | jax.Array = 1e-10
    max_events: int = static(default=64)
    corner: str = static(default="smooth")

    def __post_init__(self) -> None:
        object.__setattr__(self, "impact", law_as_pytree(self.impact, "impact"))

    @all_digits
    def init(self, model: Model, state: State, key: jax.Array | None = None) -> EventMemory:
        """Check the mechanism and the state, and make the first memory, without impacts.

        Raises:
            ValueError: a state that is known to be deeper than 1e-6 m, mocap bodies that it cannot move.
        """
        check_mechanism(model, state)
        self._check(model)
        check_no_penetration(model, state)
        state = state.replace(t=jnp.asarray(state.t, state.q.dtype))
        chatter = no_chatter(state, count_rows(model, state))
        return EventMemory(key=key, chatter=chatter, number=jnp.int32(0))

    @all_digits
    def closed(self, model: Model, state: State) -> jax.Array:
        """Find the contacts that touch and neither approach nor leave; return (nc,) bool."""
        return contacts_at(*lax.stop_gradient((model, state))).closed[: model.structure.num_contacts]

    @all_digits
    def step(
        self,
        model: Model,
        state: State,
        tau: jax.Array,
        memory: EventMemory,
        *,
        dt: jax.Array,
    ) -> tuple[State, EventMemory, StepperInfo]:
        """Make one step; the residual is the largest gap of a closed contact at its end, m."""
        self._check(model)
        dtype = state.q.dtype
        dt, rtol = jnp.asarray(dt, dtype), jnp.asarray(self.rtol, dtype)
        state = state.replace(t=jnp.asarray(state.t, dtype))
        inputs = StepInputs(model.params, state, jnp.asarray(tau, dtype), dt, self.impact, rtol)
        then, memory, info = event_step(model.system, self.max_events, inputs, memory, self.corner)
        return then, memory, of_contacts(info, model.structure.num_contacts)

    def _check(self, model: Model) -> None:
        """Raise ValueError for surfaces that move otherwise than this stepper knows."""
        check_paths(model)
        if self.corner == "one_sided" and has_moving_surfaces(model.params):
            raise ValueError("corner: expected 'smooth' where mocap bodies or surfaces move, got 'one_sided'")
