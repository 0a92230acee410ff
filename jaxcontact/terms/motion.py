"""What may push in a motion: contacts, limits of joints, dry friction of joints, as contacts of one record.

A limit is a contact without friction. A dry joint is a contact whose normal row is zero and whose first
tangent is the joint: its normal force is the bound of its friction, with the friction coefficient 1. So
methods that know contacts that stick and slide know joints that do. Entries: `unilateral_terms`,
`moving_terms`.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxcontact._pytree import PyTree
from jaxcontact.front_door import checked
from jaxcontact.mechanics.mocap import at_time
from jaxcontact.mechanics.motion_equations import kinematics_of, mass_matrix_at
from jaxcontact.mechanics.surfaces import refuse_surfaces
from jaxcontact.mechanics.system import Model, State
from jaxcontact.precision import jit
from jaxcontact.terms import contacts
from jaxcontact.terms.closed_loops import project_rows
from jaxcontact.terms.constraints import (
    check_sizes,
    constraint_terms_at,
    contacts_in_motion,
    drift_of,
)
from jaxcontact.terms.joints import count_constraints
from jaxcontact.terms.mocap import rates_beside
from jaxcontact.terms.records import (
    BILATERAL,
    DRY,
    LIMIT,
    NORMAL,
    ConstraintTerms,
    ContactTerms,
    touch_tolerance,
)


class Loops(NamedTuple):
    """Closed loops and held joints: rows G (nb, nv), deviations (nb,), (dG/dt) v (nb,)."""

    rows: jax.Array
    deviation: jax.Array
    drift: jax.Array


class MovingTerms(NamedTuple):
    """The contacts, limits and dry joints of a motion at a state; n = nc + nl + nd.

    Attributes:
        terms: their rows, those of contacts and limits without regard to loops.
        drift: (n, dim) rates of contact velocities at constant v.
        kinematics: of the mechanism at q.
        bound: (nd,) largest friction of the dry joints, N or N m.
        loops: `Loops`, or None.
    """

    terms: ContactTerms
    drift: jax.Array
    kinematics: PyTree
    bound: jax.Array
    loops: Loops | None


def holds_joints(model: Model) -> bool:
    """Decide whether a mechanism has limits, loops or dry friction of joints."""
    tree = model.structure.tree
    return model.system.constraints is not None or (tree is not None and bool(tree.loops or tree.rubs))


def has_loops(model: Model, q: jax.Array) -> bool:
    """Decide whether a mechanism has closed loops, couplings or joints held by `constraints`."""
    tree = model.structure.tree
    return (tree is not None and bool(tree.closes)) or count_constraints(model, q)[0] > 0


@checked()
@jit
def moving_terms(model: Model, state: State) -> MovingTerms:
    """Compute contacts, limits and dry joints with (dJ/dt) v, from kinematics and a geometry evaluated once.

    Mocap bodies with a path are where it has them at the time of the state.

    Derivative: exact by q, v, t and params, any order; `active` is piecewise constant.
    """
    model = at_time(model, state.t)
    check_sizes(model, state)
    kinematics = kinematics_of(model, state.q)
    M = mass_matrix_at(model, state.q, kinematics)
    if holds_joints(model):
        rows = constraint_terms_at(model, state, kinematics)[0]
        held = np.array(rows.kind, int) == BILATERAL
        loops = Loops(rows.G[held], rows.phi[held], rows.gdot_v[held]) if np.any(held) else None
        bound = jnp.zeros(0, rows.phi.dtype) if rows.dry is None else rows.dry
        terms, drift = _as_contacts(model, state, M, rows)
        surface = None if rows.surface is None else _by_contact(model, rows, rows.surface)
        return MovingTerms(terms.replace(surface=surface), drift, kinematics, bound, loops)
    found, _ = contacts_in_motion(model, state, kinematics)
    J = contacts.rows_of(model, state.q, found.bodies, found.places, kinematics)
    phi = found.places.phi
    _, surface = rates_beside(model, state.q, 0, (found.bodies, found.places, found.motion))
    if surface is not None:
        surface = surface.reshape(phi.shape[0], -1)[:, : model.structure.dim]
    terms = ContactTerms(
        M=M,
        J_n=J[:, 0],
        J_t=J[:, 1:],
        phi=phi,
        mu=contacts.friction(model, phi.dtype),
        active=phi <= touch_tolerance(found.places.point),
        surface=surface,
    )
    return MovingTerms(terms, drift_of(model, found), kinematics, jnp.zeros(0, phi.dtype), None)


@checked()
def unilateral_terms(model: Model, state: State) -> tuple[ContactTerms, jax.Array]:
    """Compute `contact_terms`, followed by the limits of a mechanism as contacts without friction.

    Dry friction of joints is not among them. Loops and joints held by `constraints` are rigid.

    Returns:
        Terms of n = nc + nl contacts and limits, and the rates (n, dim) of their velocities at constant v.

    Raises:
        ValueError: as `contact_terms`.

    Derivative: as `contact_terms`.
    """
    refuse_surfaces(model.params)
    return carried_terms(model, state)[:2]


@jit
def carried_terms(model: Model, state: State) -> tuple[ContactTerms, jax.Array, jax.Array | None]:
    """Compute `unilateral_terms` and the velocities (n, dim) that surfaces and mocap bodies add to J v."""
    moving = moving_terms(model, state)
    terms, drift = moving.terms, moving.drift
    if moving.bound.shape[0]:
        count = terms.phi.shape[0] - moving.bound.shape[0]
        terms, drift = terms.take(np.arange(count)), drift[:count]
    beside, terms = terms.surface, terms.replace(surface=None)
    return (terms if moving.loops is None else project_terms(terms, moving.loops.rows)), drift, beside


def project_terms(terms: ContactTerms, G: jax.Array) -> ContactTerms:
    """Return the terms with rows J P, whose impulses do not change G v; see `closed_loops`."""
    rows = jnp.concatenate([terms.J_n[:, None], terms.J_t], axis=1)
    rows = project_rows(terms.M, G, rows.reshape(-1, rows.shape[2])).reshape(rows.shape)
    return terms.replace(J_n=rows[:, 0], J_t=rows[:, 1:])


def _as_contacts(
    model: Model, state: State, M: jax.Array, rows: ConstraintTerms
) -> tuple[ContactTerms, jax.Array]:
    """Return contacts, limits and dry joints as contacts, and the rates (n, dim) of their velocities."""
    kind, dim, dtype = np.array(rows.kind, int), model.structure.dim, rows.phi.dtype
    first, limits, dry = (np.flatnonzero(kind == k) for k in (NORMAL, LIMIT, DRY))
    nc, nl, nd = first.size, limits.size, dry.size
    place = first[:, None] + np.arange(dim)[None]
    J = jnp.zeros((nc + nl + nd, dim, M.shape[0]), dtype)
    J = J.at[:nc].set(rows.G[place]).at[nc : nc + nl, 0].set(rows.G[limits])
    J = J.at[nc + nl :, 1].set(rows.G[dry])
    # A dry joint touches as long as it rubs.
    apart = jnp.zeros(0, dtype) if rows.dry is None else jnp.where(rows.dry > 0.0, 0.0, 1.0)
    phi = jnp.concatenate([rows.phi[first], rows.phi[limits], apart])
    terms = ContactTerms(
        M=M,
        J_n=J[:, 0],
        J_t=J[:, 1:],
        phi=phi,
        mu=jnp.concatenate([rows.mu, jnp.zeros(nl, dtype), jnp.ones(nd, dtype)]),
        active=phi <= touch_tolerance(rows.G, state.q),
    )
    return terms, _by_contact(model, rows, rows.gdot_v)


def _by_contact(model: Model, rows: ConstraintTerms, rates: jax.Array) -> jax.Array:
    """Arrange rates (nr,) of rows by contacts, limits and dry joints, whose own are zero, (n, dim)."""
    kind, dim = np.array(rows.kind, int), model.structure.dim
    first, limits, dry = (np.flatnonzero(kind == k) for k in (NORMAL, LIMIT, DRY))
    of_contacts = rates[first[:, None] + np.arange(dim)[None]]
    alone = jnp.zeros((limits.size + dry.size, dim), rates.dtype).at[: limits.size, 0].set(rates[limits])
    return jnp.concatenate([of_contacts, alone])
