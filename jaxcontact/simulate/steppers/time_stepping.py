"""`TimeStepping`: steps of fixed length under any impact law, without a search for events.

Owns the choice of the contacts that a step gives to each law, and the use of the answers.
Page: docs/methods/motion.md.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from jaxcontact._pytree import Record, static
from jaxcontact.arguments import check_corner, check_rows
from jaxcontact.front_door import checked
from jaxcontact.impact.laws.callable_laws import AnitescuPotra, Law, Sequential, law_as_pytree, pressing_law
from jaxcontact.mechanics.configuration import retract
from jaxcontact.mechanics.free_step import free_step
from jaxcontact.mechanics.mocap import carry_mocap
from jaxcontact.mechanics.motion_equations import kinematics_of, mass_matrix, mass_matrix_at
from jaxcontact.mechanics.system import Model, State, check_mechanism
from jaxcontact.precision import all_digits
from jaxcontact.simulate.projection import (
    check_no_penetration,
    constraint_values,
    held_rows,
    least_penetration,
    nearest_and_pushes,
)
from jaxcontact.simulate.stepper import StepperInfo
from jaxcontact.simulate.steppers.dry_joints import dry_rows
from jaxcontact.simulate.steppers.one_sided_step import gap_or_zero, one_sided_removal
from jaxcontact.simulate.steppers.strikes import (
    Answer,
    Laws,
    no_answer,
    step_at_once,
    step_with_strikes,
)
from jaxcontact.solvers.contact_directions import without_rate
from jaxcontact.status import Status, flag
from jaxcontact.terms import contact_gaps, touch_tolerance
from jaxcontact.terms.closed_loops import project_velocity
from jaxcontact.terms.motion import carried_terms


class SteppingMemory(NamedTuple):
    """The memory of the stepper.

    Attributes:
        key: of all steps, for laws that draw.
        number: number of steps so far.
    """

    key: jax.Array | None
    number: jax.Array


@checked(max_strikes=check_rows, corner=check_corner)
class TimeStepping(Record):
    """Steps of fixed length under an impact law; Stewart & Trinkle (1996), Anitescu & Potra (1997).

    v^ is the velocity of the free step, which is that of `jc.compliant`, of second order; the law makes v+ of
    v^ with J_n v+ >= -gap / dt, so that a contact may close within the step but not gain a depth; J v+ is
    that midway, with half of the change of J. If one pushes, q+ is q retracted by dt v+; the depth that is
    left is removed in q alone as by `jc.project`. Free bodies keep their angular
    momentum, turned by dt v+. First order in dt with contacts. Kinetic plus potential energy of bodies in
    constant gravity may rise by the order of dt^2 in a step whose contacts turn them.

    A law is inelastic with friction, and gets every step, or else only strikes: contacts that close within
    the step and approach faster than the forces of one step make them. The step goes to the first time at
    which one closes; it and those that touch (gap <= 1e-6 m) go to the law; then the rest of the step
    follows, with at most `max_strikes` such times. Contacts that press go to `Routh` without its
    restitution, for other laws to `AnitescuPotra`, with the friction `params.mu`. `AnitescuPotra`,
    `Sequential` and `Routh` without restitution are laws of the first kind. Limits are contacts without
    friction, after the others; dry friction of joints goes to the law of contacts that press. Friction has
    the circular cone, by `AnitescuPotra(num_directions=k)` one of k sides. Loops and joints held by
    `constraints` are rigid: closed at the end of each step, in q and v, of first order in dt.

    Surfaces that run and mocap bodies that move add their velocity to J v+, and gaps end at the pose that a
    mocap body has at the end of the step. A law of strikes gets v with a velocity added that gives all struck
    contacts these rates; INVALID if there is none, as between two walls that close on a body.

    A contact is closed if it pushes in the step; at the start, if its gap is at most 1e-6 m. With a key,
    step k gives its law the key folded with k.

    Attributes:
        impact: a law, such as `jc.impact.AnitescuPotra()`, or a module-level function.
        max_strikes: largest number of strikes of a step at times of their own; a further one comes at the
            time of the last.
        corner: the derivative where a contact is between two modes, or a gap is zero. "smooth": that of the
            modes taken. "one_sided": `jax.jvp` is that of the modes into which the direction leads, for
            `AnitescuPotra` and `Sequential`.

    Raises:
        TypeError: a law that is no callable.
        ValueError: max_strikes < 1; `corner="one_sided"` with another law.
        NotImplementedError: `corner="one_sided"` in reverse mode, or for a second derivative.

    Status: the bits of the laws and of `jc.project`; UNTIMED, a note, for a strike after `max_strikes`
        others in one step, up to a step early; PENETRATION for a step
        that starts deeper than 1e-6 m; MAX_ITERS if the free step does not settle; NONFINITE for an end that
        is not finite.

    Derivative: of the contact modes of each step, by state, params, controls and the numbers of the law,
        forward and reverse, also by the times of strikes. A strike that is UNTIMED has the derivative of the
        time of the last one. With `corner="one_sided"` that of the direction, forward only; where a part of
        the mechanism only grazes, its step jumps by the order of dt^2 as it is pushed: JUMP and NaN; also
        for a contact at a gap of zero that loops keep from moving, as at a dead centre.
    """

    impact: Law = AnitescuPotra()
    max_strikes: int = static(default=3)
    corner: str = static(default="smooth")

    def __post_init__(self) -> None:
        law = law_as_pytree(self.impact, "impact")
        if self.corner == "one_sided":
            if not isinstance(law, AnitescuPotra | Sequential):
                expected = "AnitescuPotra or Sequential with corner='one_sided'"
                raise ValueError(f"impact: expected {expected}, got {type(law).__name__}")
            law = law.replace(corner="one_sided")
        elif getattr(law, "corner", "smooth") == "one_sided":
            raise ValueError("corner: expected 'one_sided' as that of the law, got 'smooth'")
        object.__setattr__(self, "impact", law)

    @all_digits
    def init(self, model: Model, state: State, key: jax.Array | None = None) -> SteppingMemory:
        """Check the mechanism and the state, and make the first memory: the key and no steps.

        Raises:
            ValueError: a state that is known to be deeper than 1e-6 m.
        """
        check_mechanism(model, state)
        check_no_penetration(model, state)
        return SteppingMemory(key=key, number=jnp.int32(0))

    @all_digits
    def closed(self, model: Model, state: State) -> jax.Array:
        """Find the contacts with gaps of at most 1e-6 m; return (nc,) bool."""
        if not model.structure.num_contacts:
            return jnp.zeros(0, bool)
        return contact_gaps(model, state.q) <= touch_tolerance(state.q)

    @all_digits
    def step(
        self,
        model: Model,
        state: State,
        tau: jax.Array,
        memory: SteppingMemory,
        *,
        dt: jax.Array,
    ) -> tuple[State, SteppingMemory, StepperInfo]:
        """Make one step; `info.details` is the `ProjectionInfo` of the depth that was removed."""
        key = None if memory.key is None else jax.random.fold_in(memory.key, memory.number)
        moved, update = self._move(model, state, tau, key, jnp.asarray(dt, state.q.dtype))
        model = carry_mocap(model, dt)
        q, removed, pushes = nearest_and_pushes(model, moved.q)
        if self.corner == "one_sided":
            q = one_sided_removal(model, q, pushes)
            jumps = (update.status & jnp.uint32(int(Status.JUMP))) != 0
            q, moved = without_rate(q, jumps), moved.replace(v=without_rate(moved.v, jumps))
        then = State(q=q, v=moved.v, t=state.t + dt)
        if (held := held_rows(model, q)) is not None:
            then = then.replace(v=project_velocity(mass_matrix(model, q), held, then.v))
        finite = jnp.all(jnp.isfinite(q)) & jnp.all(jnp.isfinite(then.v))
        step_status = flag(~finite, Status.NONFINITE)
        impulse = update.impulse[: model.structure.num_contacts]
        info = StepperInfo(
            status=update.status | removed.status | step_status,
            residual=update.residual,
            num_iters=update.num_iters + removed.num_iters,
            impulse=impulse,
            contacts=impulse[:, 0] > 0.0,
            details=removed,
        )
        return then, memory._replace(number=memory.number + 1), info

    def _move(
        self, model: Model, state: State, tau: jax.Array, key: jax.Array | None, dt: jax.Array
    ) -> tuple[State, Answer]:
        """Move a state by dt, without the removal of depth; return it and the account of the laws."""
        tree = model.structure.tree
        if model.params.mocap_velocity is not None and tree is not None and tree.closes:
            raise ValueError(
                "mocap: expected None for closed loops or welds, which `TimeStepping` holds as if the mocap "
                "body rested; take `Compliant`"
            )
        deviations, gaps = constraint_values(model, state.q)
        if not deviations.shape[0] and not gaps.shape[0] and dry_rows(model) is None:
            kinematics = kinematics_of(model, state.q)
            free = free_step(model, state, tau, dt, mass_matrix_at(model, state.q, kinematics), kinematics)
            q = retract(model.system, state.q, dt * free.rate)
            none = no_answer(free.v, jnp.zeros((0, model.structure.dim), free.v.dtype))
            status = flag(~free.settled, Status.MAX_ITERS)
            return State(q=q, v=free.v, t=state.t + dt), none._replace(status=status)
        terms, drift, beside = carried_terms(model, state)
        deep = flag(jnp.any(terms.phi < -least_penetration(state.q)), Status.PENETRATION)
        is_one_sided = self.corner == "one_sided"
        gaps = gap_or_zero(terms.phi, state.q) if is_one_sided else jnp.where(terms.phi < 0, 0.0, terms.phi)
        terms = terms.replace(phi=gaps)
        laws = Laws(self.impact, pressing_law(self.impact), key, is_one_sided)
        if laws.press is laws.strike:
            then, answer = step_at_once(laws, model, state, (terms, drift, beside), tau, dt)
        else:
            then, answer = step_with_strikes(
                laws, model, state, (terms, drift, beside), tau, dt, self.max_strikes
            )
        return then, answer._replace(status=answer.status | deep)
