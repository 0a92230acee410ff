"""A mechanism with sprung contacts as an event-selected system.

Owns the guards that close and open contacts, the forces of closed contacts, and the translation between
`State` and the vector x = (q, v); entry `from_system`. Page: docs/methods/event-selected.md.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
import numpy as np

from jaxcontact._pytree import PyTree
from jaxcontact.algebra import implicit
from jaxcontact.arguments import check_number, check_type
from jaxcontact.front_door import checked
from jaxcontact.mechanics.configuration import position_rate
from jaxcontact.mechanics.event_system import EventSystem
from jaxcontact.mechanics.material import Material
from jaxcontact.mechanics.motion_equations import bias, mass_matrix
from jaxcontact.mechanics.scaled_springs import ScaledSprings
from jaxcontact.mechanics.surfaces import refuse_surfaces
from jaxcontact.mechanics.system import Model, Params, State, System
from jaxcontact.mechanics.tree_constraints import check_no_held_joints
from jaxcontact.terms import contact_gaps, contact_velocities

if TYPE_CHECKING:
    from jaxtyping import Float


@checked()
def from_system(model: Model, *, drag: bool = False) -> Model:
    """Put a mechanism on springs: x = (q, v), guards 0..nc-1 close, nc..2 nc-1 open a contact.

    M vdot + b = J_n^T lam (+ J_t^T lam_t), lam = K d - B u + potential'(d) at a closed contact of depth
    d = -phi and rate u = phidot, zero at an open one: the law max(0, lam) of `Material`, each side smooth. A
    contact closes when lam grows through zero, guard lam / K, and opens when it falls, guard -lam / K;
    either re-arms the other. Without damping that is the time at which the gap closes; with damping it is a
    little earlier, because such a law pushes on approaching bodies. If K is zero the guards are -phi and phi.

        events = jc.ess.from_system(model)
        x1, info = jc.ess.flow(events, events.initial_state(), 0.0, 1.0, settings=jc.ess.Settings(eps=1e-4))

    Args:
        model: mechanism with nc candidate contacts, whose `params.material` has the springs and dampers.
        drag: whether closed contacts also drag with -B_t u_t, B_t its `friction_damping`. There is no
            friction cone: the field of contacts that stick or slide is not smooth at the change.

    Returns:
        The model of an `EventSystem` with 2 nc guards in metres, with the same params. Its control, a
        generalized force (nv,) beside the others, may be None. It starts from the packed state of `model`.

    Raises:
        TypeError: `model` is no Model of a mechanism.
        ValueError: it has no material or no candidate contacts, or has closed loops or dry friction.
    """
    check_type("model", model, Model)
    system = model.system
    check_type("model.system", system, System)
    if model.params.material is None:
        raise ValueError("params.material: expected springs and dampers, a compliant.Material, got None")
    if isinstance(model.params.material.stiffness, ScaledSprings):
        raise ValueError(
            "params.material: expected a stiffness in N/m, got springs per effective mass, as a file has; "
            "jc.compliant.stiff_material(mass) makes a material"
        )
    nc = system.structure.num_contacts
    if nc == 0:
        raise ValueError("model: the structure has no candidate contacts; give it shapes and pairs")
    check_no_held_joints(system, "ess.from_system")
    none, every = np.zeros((nc, nc), bool), np.eye(nc, dtype=bool)
    sprung = _Sprung(system, drag)
    es = EventSystem(_Field(sprung), _Guards(sprung), rearm=np.block([[none, every], [every, none]]))
    start = None if model.initial is None else pack(model.initial_state())
    return Model(system=es, params=model.params, initial=start)


@checked()
def pack(state: State) -> jax.Array:
    """Join a state into the vector x = (q, v); its time is an argument of the integrator."""
    return jnp.concatenate([state.q, state.v], axis=-1)


@checked(x="... nq+nv", t=check_number)
def unpack(model: Model, x: jax.Array, t: float | Float[jax.Array, " ..."]) -> State:
    """Split a vector x = (q, v) into the state of a mechanism at time t; leading batch axes are kept."""
    nq = model.structure.num_positions
    return State(q=x[..., :nq], v=x[..., nq:], t=jnp.asarray(t, x.dtype))


@dataclasses.dataclass(frozen=True)
class _Sprung:
    """A mechanism on springs; hashable, as are the functions made of it."""

    system: System
    drag: bool

    def split(self, x: jax.Array) -> tuple[jax.Array, jax.Array]:
        nq = self.system.structure.num_positions
        return x[:nq], x[nq:]

    def normal(self, material: Material, depth: jax.Array, rate: jax.Array) -> jax.Array:
        """Compute the normal forces (nc,) as if every contact were closed, N."""
        force = material.stiffness * depth - material.damping_at(depth) * rate
        if material.potential is not None:
            potential = material.potential
            force = force + jax.grad(lambda d: jnp.sum(potential(d)))(depth)
        return force

    def forces(self, q: jax.Array, v: jax.Array, closed: jax.Array, params: Params) -> jax.Array:
        """Compute the generalized forces (nv,) of the closed contacts."""
        system, material = self.system, params.material
        refuse_surfaces(params)

        # J_n^T lam from the gaps alone is several times cheaper than contact frames.
        def gaps(y: jax.Array) -> jax.Array:
            return contact_gaps(Model(system=system, params=params), y)

        qdot, to_velocities = jax.vjp(lambda w: position_rate(system, q, w), v)
        _, rate = jax.jvp(gaps, (q,), (qdot,))
        gap, to_positions = jax.vjp(gaps, q)
        normal = jnp.where(closed, self.normal(material, -gap, rate), 0.0)
        (total,) = to_velocities(to_positions(normal)[0])
        if self.drag:
            if material.friction_spring is not None:
                raise ValueError("params.material: event-selected contacts have no friction_spring; use None")
            slip, pull_back = jax.vjp(
                lambda w: contact_velocities(Model(system=system, params=params), q, w)[:, 1:], v
            )
            force = -jnp.reshape(jnp.asarray(material.friction_damping, v.dtype), (-1, 1)) * slip
            total = total + pull_back(jnp.where(closed[:, None], force, 0.0))[0]
        return total


@dataclasses.dataclass(frozen=True)
class _Guards:
    sprung: _Sprung

    def __call__(self, x: jax.Array, params: Params) -> jax.Array:
        """Compute guards: closing lam / K, then opening -lam / K, m; -phi and phi if K is zero."""
        q, v = self.sprung.split(x)
        system, material = self.sprung.system, params.material
        gap, rate = jax.jvp(
            lambda y: contact_gaps(Model(system=system, params=params), y),
            (q,),
            (position_rate(system, q, v),),
        )
        stiff = jnp.broadcast_to(jnp.asarray(material.stiffness, x.dtype), gap.shape)
        force = self.sprung.normal(material, -gap, rate)
        closing = jnp.where(stiff > 0, force / jnp.where(stiff > 0, stiff, 1.0), -gap)
        return jnp.concatenate([closing, -closing])


@dataclasses.dataclass(frozen=True)
class _Field:
    sprung: _Sprung

    def __call__(
        self, t: jax.Array, x: jax.Array, signs: jax.Array, control: PyTree, params: Params
    ) -> jax.Array:
        """Compute position rate and acceleration (nq + nv,); a contact pushes if it closed last."""
        q, v = self.sprung.split(x)
        system = self.sprung.system
        nc = system.structure.num_contacts
        closed = (signs[:nc] > 0) & (signs[nc:] < 0)
        total = self.sprung.forces(q, v, closed, params) - bias(
            Model(system=system, params=params), State(q=q, v=v, t=t)
        )
        if control is not None:
            total = total + control
        acceleration = implicit.solve_spd(
            mass_matrix(Model(system=system, params=params), q), total[:, None]
        )[:, 0]
        return jnp.concatenate([position_rate(system, q, v), acceleration])
