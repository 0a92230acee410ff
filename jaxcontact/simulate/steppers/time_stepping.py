"""`TimeStepping`: steps of fixed length under any impact law, without a search for events.

Owns the choice of the contacts that a step gives to each law, and the use of the answers.
Page: docs/methods/motion.md.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from jaxcontact._pytree import Record
from jaxcontact.algebra import implicit
from jaxcontact.arguments import is_concrete
from jaxcontact.impact.laws.callable_laws import AnitescuPotra, law_as_pytree, pressing_law
from jaxcontact.impact.laws.contact_space import collision_tolerance, mass_norm
from jaxcontact.mechanics.configuration import retract
from jaxcontact.mechanics.free_step import FreeStep, free_step, take_free_step
from jaxcontact.mechanics.motion_equations import kinematics_of, mass_matrix_at
from jaxcontact.mechanics.system import Model, State, check_mechanism
from jaxcontact.mechanics.tree_constraints import check_no_held_joints
from jaxcontact.precision import all_digits
from jaxcontact.simulate.projection import constraint_values, least_penetration, nearest_configuration
from jaxcontact.simulate.stepper import StepperInfo
from jaxcontact.status import Status, flag
from jaxcontact.terms import ContactTerms, contact_gaps, touch_tolerance, unilateral_terms


class SteppingMemory(NamedTuple):
    """The memory of the stepper.

    Attributes:
        key: of all steps, for laws that draw.
        number: number of steps so far.
    """

    key: jax.Array | None
    number: jax.Array


class _Answer(NamedTuple):
    """The answer of laws to a velocity: v (nv,), impulse (nu, 1 + nt), status, residual, number of solves."""

    v: jax.Array
    impulse: jax.Array
    status: jax.Array
    residual: jax.Array
    num_solves: jax.Array


class TimeStepping(Record):
    """Steps of fixed length under an impact law; Stewart & Trinkle (1996), Anitescu & Potra (1997).

    v^ is the velocity of the free step, which is that of `jc.compliant`, of second order; the law makes v+ of
    v^ with J_n v+ >= -gap / dt, so that a contact may close within the step but not gain a depth; if one
    pushes, q+ is q retracted by dt v+, and the depth that its curvature leaves, of the order of dt^2, is
    removed in q alone as by `jc.project`. First order in dt with contacts. Kinetic plus potential energy of a
    mechanism with constant M in constant gravity rises only by the work of that projection.

    A law is inelastic with friction, and gets every step, or else only strikes: contacts that close within
    the step and approach faster than the forces of one step make them. They and the ones that touch (gap <=
    1e-6 m) go to the law with the velocity at the start; contacts that press then go to `Routh` without its
    restitution, for other laws to `AnitescuPotra`, with the friction `params.mu`. `AnitescuPotra`,
    `Sequential` and `Routh` without restitution are laws of the first kind. Limits are contacts without
    friction, after the others.

    A contact is closed if it pushes in the step; at the start, if its gap is at most 1e-6 m. With a key,
    step k gives its law the key folded with k.

    Attributes:
        impact: a law, such as `jc.impact.AnitescuPotra()`, or a module-level function.

    Raises:
        TypeError: a law that is no callable.

    Status: the bits of the laws and of `jc.project`; UNTIMED, a note, for a strike; PENETRATION for a step
        that starts deeper than 1e-6 m; MAX_ITERS if the free step does not settle; NONFINITE for an end that
        is not finite.

    Derivative: of the contact modes of each step, by state, params, controls and the numbers of the law,
        forward and reverse. A strike comes at the start of the step in which its gap closes, up to dt early,
        for every state, so its time has no derivative: of two equal balls in an elastic collision the end
        of the second has the derivative (0, 1, 0.69, 0.31) by both positions and velocities in place of
        (1, 0, 1, 0), however short the steps. `EventDriven` and `Variational` have it.
    """

    impact: Any = AnitescuPotra()

    def __post_init__(self) -> None:
        object.__setattr__(self, "impact", law_as_pytree(self.impact))

    @all_digits
    def init(self, model: Model, state: State, key: jax.Array | None = None) -> SteppingMemory:
        """Check the mechanism and the state, and make the first memory: the key and no steps.

        Raises:
            ValueError: a mechanism with closed loops, joints held by `constraints` or dry friction; a state
                that is known to be deeper than 1e-6 m.
        """
        check_mechanism(model, state)
        check_no_held_joints(model.system, "TimeStepping")
        held, kept = constraint_values(model, state.q)
        if held.shape[0]:
            raise ValueError("system: TimeStepping takes no joints held by `constraints`; use Compliant")
        if is_concrete(kept) and (depth := -float(jnp.min(kept, initial=0.0))) > least_penetration(state.q):
            raise ValueError(
                f"state: expected no penetration, got one of {depth:.3g} m; "
                "jc.project(model, state) removes it"
            )
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
        update, free, touched, deep = self._velocity(model, state, tau, key, jnp.asarray(dt, state.q.dtype))
        v, rate = take_free_step(model.system, free, update.v, touched)
        q, removed = nearest_configuration(model, retract(model.system, state.q, dt * rate))
        then = State(q=q, v=v, t=state.t + dt)
        finite = jnp.all(jnp.isfinite(q)) & jnp.all(jnp.isfinite(v))
        own = flag(deep, Status.PENETRATION) | flag(~finite, Status.NONFINITE)
        own = own | flag(~free.settled, Status.MAX_ITERS)
        impulse = update.impulse[: model.structure.num_contacts]
        info = StepperInfo(
            status=update.status | removed.status | own,
            residual=update.residual,
            num_iters=update.num_solves + removed.num_iters,
            impulse=impulse,
            contacts=impulse[:, 0] > 0.0,
            details=removed,
        )
        return then, memory._replace(number=memory.number + 1), info

    def _velocity(
        self, model: Model, state: State, tau: jax.Array, key: Any, dt: jax.Array
    ) -> tuple[_Answer, FreeStep, jax.Array, jax.Array]:
        """Compute the velocity at the end of the step, and whether a contact starts too deep.

        Returns:
            The answer of the laws, the free step, a mask (nv,) of the velocities that pushing contacts move,
            and whether a contact starts too deep.
        """
        if not constraint_values(model, state.q)[1].shape[0]:
            kinematics = kinematics_of(model, state.q)
            M = mass_matrix_at(model, state.q, kinematics)
            free = free_step(model, state, tau, dt, M, kinematics)
            none = jnp.zeros((0, model.structure.dim), free.v.dtype)
            return _no_answer(free.v, none), free, jnp.zeros(free.v.shape, bool), jnp.array(False)
        terms, kinematics = unilateral_terms(model, state), kinematics_of(model, state.q)
        deep = jnp.any(terms.phi < -least_penetration(state.q))
        terms = terms.replace(phi=jnp.maximum(terms.phi, 0.0))
        presses = pressing_law(self.impact)
        struck = _no_answer(state.v, jnp.zeros((terms.phi.shape[0], model.structure.dim), dt.dtype))
        if presses is not self.impact:
            ahead = _start_of_constraints(free_step(model, state, tau, dt, terms.M, kinematics))
            struck = _struck(self.impact, terms, state.v, ahead, key, dt)
        free = free_step(model, state.replace(v=struck.v), tau, dt, terms.M, kinematics)
        ahead = _start_of_constraints(free)
        terms = terms.replace(M=free.M)
        terms = terms.replace(active=_within_reach(terms, ahead, dt))
        v, info = presses(terms, ahead, key, clearance=terms.phi / dt)
        impulse = struck.impulse + info.impulse
        touched = jnp.any((impulse[:, :1] > 0) & (terms.J_n != 0), axis=0)
        return _Answer(
            v,
            impulse,
            struck.status | info.status,
            jnp.maximum(struck.residual, info.residual),
            struck.num_solves + info.num_solves,
        ), free, touched, deep  # fmt: skip


def _no_answer(v: jax.Array, impulse: jax.Array) -> _Answer:
    return _Answer(v, impulse, jnp.uint32(0), jnp.zeros((), v.dtype), jnp.int32(0))


def _start_of_constraints(free: FreeStep) -> jax.Array:
    """Compute the velocity (nv,) that impulses of contacts and limits start from."""
    return free.v + implicit.solve_spd(free.M, free.push[:, None])[:, 0]


def _within_reach(terms: ContactTerms, v: jax.Array, dt: jax.Array) -> jax.Array:
    """Find the contacts (nu,) that can close within the step.

    No law adds energy, so |J v+| <= |J|_g |v|_M.
    """
    terms, v, dt = lax.stop_gradient((terms, v, dt))
    size = jnp.sqrt(jnp.sum(terms.J_n.T * implicit.solve_spd(terms.M, terms.J_n.T), axis=0))
    return terms.phi <= jnp.maximum(dt * size * mass_norm(terms.M, v), touch_tolerance(terms.J_n))


def _struck(
    law: Any, terms: ContactTerms, v: jax.Array, ahead: jax.Array, key: Any, dt: jax.Array
) -> _Answer:
    """Apply the law to contacts that strike; return its answer, v if none does.

    A contact that approaches more slowly than its forces make it in one step presses: it would bounce for
    less than a step.
    """
    rate = terms.J_n @ v
    closes = terms.phi + dt * (terms.J_n @ ahead) < 0
    slowest = jnp.abs(terms.J_n @ ahead - rate) + collision_tolerance(v.dtype)
    strikes = jnp.any(closes & (rate < -slowest))
    # In a batch every lane calls the law: a lane without active contacts costs the smallest time.
    terms = terms.replace(active=strikes & (closes | (terms.phi <= touch_tolerance(terms.J_n))))
    none = _no_answer(v, jnp.zeros((terms.phi.shape[0], 1 + terms.J_t.shape[1]), v.dtype))

    def ask() -> _Answer:
        v_plus, info = law(terms, v, key)
        impulse = info.impulse if info.impulse.ndim == 2 else none.impulse.at[:, 0].set(info.impulse)
        residual = jnp.asarray(getattr(info, "residual", 0.0), v.dtype)
        solves = jnp.asarray(getattr(info, "num_solves", 1), jnp.int32)
        status = jnp.asarray(info.status, jnp.uint32) | flag(True, Status.UNTIMED)
        return _Answer(v_plus, impulse, status, residual, solves)

    return lax.cond(strikes, ask, lambda: none)
