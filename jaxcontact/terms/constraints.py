"""Mass matrix, contacts, joints and limits of a mechanism at a state, as matrices.

Entry functions: `contact_terms` for impact laws, `constraint_terms` for compliant steps.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxcontact import geometry
from jaxcontact._pytree import PyTree, Record
from jaxcontact.algebra.body_rows import BodyRows
from jaxcontact.algebra.selection import smallest
from jaxcontact.algebra.tree_rows import TreeRows
from jaxcontact.arguments import check_count
from jaxcontact.batching.once import computed_once
from jaxcontact.front_door import checked
from jaxcontact.geometry.cores import extents
from jaxcontact.geometry.frames import owners
from jaxcontact.geometry.pair_kinds import searched_shapes
from jaxcontact.mechanics import tree_constraints
from jaxcontact.mechanics.closed_forms import FrameMotion
from jaxcontact.mechanics.motion_equations import body_frames, kinematics_of, mass_matrix_at
from jaxcontact.mechanics.surfaces import refuse_surfaces
from jaxcontact.mechanics.system import Model, State, check_mechanism
from jaxcontact.precision import jit
from jaxcontact.shape_rules import check_record
from jaxcontact.terms import contacts, free_bodies
from jaxcontact.terms.closed_loops import project_rows
from jaxcontact.terms.contacts import Places
from jaxcontact.terms.joints import joint_rows
from jaxcontact.terms.mocap import rates_beside
from jaxcontact.terms.moved_frames import add_mocap_motion
from jaxcontact.terms.records import (
    BILATERAL,
    LIMIT,
    NORMAL,
    TANGENT,
    ConstraintTerms,
    ContactTerms,
    touch_tolerance,
)
from jaxcontact.terms.surfaces import surface_drift


class Nearest(Record):
    """The contacts that a step sees: the candidates with the smallest gaps.

    Attributes:
        index: (k,) numbers of the selected contacts in the list of candidates, nearest first.
        phi: (nc,) gaps of all candidates, m.
        overflow: bool, True if a candidate that is not selected touches.
        near: (k,) bool, False for a selected contact of a pair that cannot meet in the step.
        unseen: m, least bound of the distances of such pairs; None if there can be none.
        tree_rows: the rows of the selected contacts as wrenches; None for a mechanism that is no tree.
    """

    index: jax.Array
    phi: jax.Array
    overflow: jax.Array
    near: jax.Array
    unseen: jax.Array | None
    tree_rows: TreeRows | None = None


@checked()
def contact_terms(model: Model, state: State, *, limits: bool = False) -> ContactTerms:
    """Compute the mass matrix, gaps and contact Jacobians of a mechanism at a state.

    J_n = (dphi/dq) N(q); J_t v is the tangential velocity of the material point of a in contact
    relative to that of b. A contact is active if phi is at most 1e-6 m, or the rounding of the largest
    coordinate of a contact point if that is larger. This tolerance does not depend on the size of the bodies,
    so lengths must be in metres. Impact laws, which take the terms, use no other length.

    Closed loops and couplings of a tree (equality) are rigid: with their rows G the rows of contacts are J P,
    P the projection on G v = 0 in the kinetic metric. Impulses then do not change G v, J P v is J v if
    G v = 0, and every impact law has the effective mass of the closed mechanism.

    With `limits` the limits of joints and tendons take part in impacts: they follow the contacts as contacts
    without friction, active within the same tolerance (m or rad), so that a leg that is straight strikes as
    one body. Dry friction is a bounded force: its impulse is zero.

    Args:
        model: the mechanism and its numbers.
        state: configuration and velocity; only q matters here.
        limits: whether limits are among the contacts (static).

    Returns:
        ContactTerms with nc candidate contacts in the order of `model.structure.pairs`, then the limits in
        the order of `constraint_terms`.

    Raises:
        TypeError: arguments that are not a Model and a State, in this order.
        ValueError: q or v has the wrong length, params do not fit the structure, surfaces run.

    Derivative: exact by q and params, any order; `active` is piecewise constant.
    """
    check_mechanism(model, state)
    # The start of a model is static: without it models that differ in it share one program.
    return _contact_terms(model.replace(initial=None), state, bool(limits))


@functools.partial(jit, static_argnames="limits")
def _contact_terms(model: Model, state: State, limits: bool) -> ContactTerms:
    if model.structure.num_contacts == 0:
        raise ValueError("system: the structure has no candidate contacts; give it shapes and pairs")
    check_sizes(model, state)
    refuse_surfaces(model.params)
    kinematics = kinematics_of(model, state.q)
    places, _ = contacts.place(model, *body_frames(model, state.q))
    rows = contacts.rows_of(model, state.q, contacts.bodies_of(model.system), places, kinematics)
    M = mass_matrix_at(model, state.q, kinematics)
    phi, mu = places.phi, contacts.friction(model, places.phi.dtype)
    active = phi <= touch_tolerance(places.point)
    tree = model.structure.tree
    if limits or (tree is not None and tree.loops):
        (held, slack, _), kinds, _ = joint_rows(model, state, kinematics)
        kind = np.array(kinds, int)
        if limits and np.any(kind == LIMIT):
            bounds = held[kind == LIMIT]
            still = jnp.zeros((bounds.shape[0], rows.shape[1] - 1, rows.shape[2]), rows.dtype)
            rows = jnp.concatenate([rows, jnp.concatenate([bounds[:, None], still], axis=1)])
            at_limit = slack[kind == LIMIT] <= touch_tolerance(bounds, state.q)
            phi, active = jnp.concatenate([phi, slack[kind == LIMIT]]), jnp.concatenate([active, at_limit])
            mu = jnp.concatenate([mu, jnp.zeros(bounds.shape[0], mu.dtype)])
        if np.any(kind == BILATERAL):
            held = held[kind == BILATERAL]
            rows = project_rows(M, held, rows.reshape(-1, rows.shape[2])).reshape(rows.shape)
    return ContactTerms(M=M, J_n=rows[:, 0], J_t=rows[:, 1:], phi=phi, mu=mu, active=active)


@checked()
def constraint_terms(model: Model, state: State) -> ConstraintTerms:
    """Compute the joints, limits and contacts of a mechanism at a state, as rows of one matrix.

    With phi the deviation of a joint, the slack of a limit or the gap of a contact, G = (dphi/dq) N(q) and
    phidot = G v, phiddot = G vdot + Gdot v (Drumwright, eqs 29-31). Tangent rows have phi = 0 and the sliding
    velocity of the material points in contact. The rows hold all candidate contacts, at any gap.

    Args:
        model: the mechanism and its numbers.
        state: configuration and velocity.

    Returns:
        ConstraintTerms with the rows of joints, then of limits, then of each contact as (n, t1[, t2]) in the
        order of `model.structure.pairs`.

    Raises:
        TypeError: arguments that are not a Model and a State, in this order.
        ValueError: q or v has the wrong length, params do not fit the structure, `constraints` returns
            something else than two vectors.

    Derivative: exact by q, v and params, any order.
    """
    check_mechanism(model, state)
    check_sizes(model, state)
    return constraint_terms_at(model, state, kinematics_of(model, state.q))[0]


@checked(max_contacts=check_count)
def nearest_terms(model: Model, state: State, max_contacts: int) -> tuple[ConstraintTerms, Nearest]:
    """Compute `constraint_terms` with only the `max_contacts` contacts of smallest gap; return both records.

    The selected contacts keep the order of the candidates.

    Derivative: that of `constraint_terms`, with the selection held fixed.
    """
    check_sizes(model, state)
    kinematics = kinematics_of(model, state.q)
    terms, nearest = constraint_terms_at(model, state, kinematics, max_contacts)
    assert nearest is not None
    return terms, nearest


@functools.partial(jit, static_argnames="max_contacts")
def constraint_terms_at(
    model: Model,
    state: State,
    kinematics: PyTree,
    max_contacts: int | None = None,
    coming: Coming | None = None,
) -> tuple[ConstraintTerms, Nearest | None]:
    """Compute `constraint_terms` from the kinematics at q; with `max_contacts`, compute `nearest_terms`.

    Of a step that is `coming` only contacts that may close in it have rows; the others keep a gap.
    """
    structure, dtype = model.structure, state.q.dtype
    (G, phi, gdot_v), kind, dry = joint_rows(model, state, kinematics)
    nearest, mu, found_by, num_joint_rows = None, jnp.zeros(0, dtype), None, phi.shape[0]
    index: jax.Array | None = None
    if structure.num_contacts:
        moving_contacts, found = contacts_in_motion(model, state, kinematics, max_contacts, coming)
        mu = contacts.friction(model, dtype)
        if max_contacts is not None:
            nearest, moving_contacts = _select_nearest(moving_contacts, found, max_contacts)
            mu = mu[nearest.index]
        bodies, places = moving_contacts.bodies, moving_contacts.places
        rows = contacts.rows_of(model, state.q, bodies, places, kinematics)
        lever = model.params.spin_friction
        if lever is not None:
            spins = contacts.spin_rows(model, state.q, bodies, places, kinematics, rows)
            lever = lever if nearest is None else lever[nearest.index]
            rows = jnp.concatenate([rows, lever[:, :, None] * spins[:, : lever.shape[1]]], axis=1)
        if nearest is not None:
            tree_rows = contacts.tree_rows_of(model, bodies, places, kinematics, lever)
            nearest = nearest.replace(tree_rows=tree_rows)
        found_by = bodies, places, moving_contacts.motion
        index = None if nearest is None else nearest.index
        columns = _contact_columns(model, rows.shape[1], moving_contacts, index)
        G = jnp.concatenate([G, rows.reshape(-1, structure.num_velocities)])
        phi = jnp.concatenate([phi, columns["phi"]])
        gdot_v = jnp.concatenate([gdot_v, columns["gdot_v"]])
        kind += columns["kind"]
    # A mechanism may have other constraints than those of its tree.
    uses_tree_rows = structure.tree is not None and model.system.constraints is tree_constraints.constraints
    apart = uses_tree_rows and structure.tree.limits_apart
    before, surface = rates_beside(model, state.q, num_joint_rows, found_by, index)
    terms = ConstraintTerms(
        G=G, phi=phi, gdot_v=gdot_v, mu=mu, kind=kind, dry=dry, surface=surface, surface_before=before,
        apart=apart,
    )  # fmt: skip
    return terms, nearest


class Coming(NamedTuple):
    """A step that is to be made: its length, s, and the velocity (nv,) at its end without contacts."""

    dt: jax.Array
    velocity: jax.Array


class _Moving(NamedTuple):
    """Contacts with their rates: bodies, places and rates of the places, and the motion of all bodies."""

    bodies: tuple[PyTree, PyTree]
    places: Places
    place_rates: Places
    motion: FrameMotion
    motion_rate: FrameMotion


def contacts_in_motion(
    model: Model,
    state: State,
    kinematics: PyTree,
    max_contacts: int | None = None,
    coming: Coming | None = None,
) -> tuple[_Moving, geometry.Candidates]:
    """Find the candidate contacts with their rates, and return also all data of the candidates.

    The geometry is evaluated once. Two polytopes that meet mostly make two contacts or more, so half of
    `max_contacts` pairs are enough; of capsules `place` takes twice as many. Of a step that is `coming`, only
    pairs that may meet in it get their contacts.
    """
    motions = add_mocap_motion(model, contacts.motion_and_rate(model, state.q, state.v, kinematics))
    motion, motion_rate = computed_once(motions, in_batches=False)
    near_pairs = None
    if max_contacts is not None:
        reach = None if coming is None else _bound_approach(model, state, coming)
        near_pairs = geometry.NearPairs((max_contacts + 1) // 2, reach)
    place = functools.partial(contacts.place, model, near_pairs=near_pairs)
    places, place_rates, found = jax.jvp(place, motion[:2], motion_rate[:2], has_aux=True)
    places, place_rates = computed_once((places, place_rates), in_batches=False)
    return _Moving(contacts.bodies_of(model.system), places, place_rates, motion, motion_rate), found


def _bound_approach(model: Model, state: State, coming: Coming) -> jax.Array | None:
    """Bound by how much the distance of two bodies falls in a step, m; None if forces act across open gaps.

    Both move as fast as the fastest point does at its start or, without contacts, at its end, or twice so.
    """
    material = model.params.material
    if material is not None and (material.smoothing is not None or material.potential is not None):
        return None
    speeds = jax.vmap(lambda v: bound_speed(model, state.q, v))(jnp.stack([state.v, coming.velocity]))
    margin = 0.0 if model.params.margin is None else jnp.max(model.params.margin)
    return None if speeds is None else 4.0 * coming.dt * jnp.max(speeds) + margin


def bound_speed(model: Model, q: jax.Array, v: jax.Array) -> jax.Array | None:
    """Bound the speeds of points of shapes without a closed form, m/s; None if no such shape moves.

    Derivative: none.
    """
    q, v = lax.stop_gradient((q, v))
    structure = model.structure
    shapes = searched_shapes(structure.dim, structure.shape_table, structure.pairs)
    owner = np.array(owners(shapes, structure.bodies), int)
    if not np.any(owner != geometry.WORLD):
        return None
    lengths = extents(shapes, model.params.constants, q.dtype)
    motion = contacts.body_motion(model, q, v)
    moved, _ = add_mocap_motion(model, (motion, motion))
    turning = jnp.sqrt(jnp.sum(moved.turning**2, axis=(1, 2)))
    speeds = jnp.sqrt(jnp.sum(moved.velocity**2, axis=1))[owner] + lengths * turning[owner]
    return lax.stop_gradient(jnp.max(jnp.where(owner == geometry.WORLD, 0.0, speeds)))


def _select_nearest(
    moving_contacts: _Moving, found: geometry.Candidates, count: int
) -> tuple[Nearest, _Moving]:
    """Select the candidates with the smallest gaps, nearest first."""
    phi = moving_contacts.places.phi
    count = min(count, phi.shape[0])
    chosen = smallest(phi, count)
    index = chosen if found.place is None else found.place[chosen]
    first, second = (jnp.asarray(np.array(leaf, np.int32))[index] for leaf in moving_contacts.bodies)
    places, place_rates = jax.tree.map(
        lambda leaf: leaf[chosen], (moving_contacts.places, moving_contacts.place_rates)
    )
    touching = jnp.sum(phi <= touch_tolerance(moving_contacts.places.point))
    overflow = found.left_out | (touching > count)
    near = found.near[chosen]
    nearest = Nearest(index=index, phi=found.gaps, overflow=overflow, near=near, unseen=found.unseen)
    return nearest, moving_contacts._replace(bodies=(first, second), places=places, place_rates=place_rates)


def drift_of(model: Model, moving_contacts: _Moving, index: jax.Array | None = None) -> jax.Array:
    """Compute the rates (nc, dim) of contact velocities at constant v, with surfaces that run."""
    drift: jax.Array = computed_once(contacts.slip_rate(*moving_contacts))
    if model.params.surface_velocity is None:
        return drift
    bodies, places, place_rates, frames, rates = moving_contacts
    running = surface_drift(model, bodies, (places, place_rates), (frames, rates), index)
    return drift + running[:, : drift.shape[1]]


def _contact_columns(
    model: Model, axes: int, moving_contacts: _Moving, index: jax.Array | None = None
) -> dict[str, PyTree]:
    """Compute the columns phi, gdot_v and kind of the rows of contacts, `axes` each, without G and mu."""
    gap, drift = moving_contacts.places.phi, drift_of(model, moving_contacts, index)
    spins = axes - drift.shape[1]  # rows of spins have none: their slip is known to first order in the step
    return {
        "phi": jnp.zeros((*gap.shape, axes), gap.dtype).at[:, 0].set(gap).ravel(),
        "gdot_v": (jnp.pad(drift, ((0, 0), (0, spins))) if spins else drift).ravel(),
        "kind": (NORMAL, *(TANGENT,) * (axes - 1)) * gap.shape[0],
    }


@checked()
@jit
def rows_by_body(model: Model, state: State) -> ConstraintTerms:
    """Compute `constraint_terms` of free bodies that meet in contacts only, with G as `BodyRows`.

    Derivative: exact by q, v and params, any order.
    """
    check_sizes(model, state)
    structure = model.structure
    moving_contacts, _ = contacts_in_motion(model, state, kinematics_of(model, state.q))
    bodies, places = moving_contacts.bodies, moving_contacts.places
    frames = moving_contacts.motion.position, moving_contacts.motion.rotation
    blocks = jnp.stack(free_bodies.row_blocks(structure.dim, bodies, places, *frames), axis=1)
    return ConstraintTerms(
        G=BodyRows(values=blocks, first=bodies[0], second=bodies[1], count=len(structure.bodies)),
        mu=contacts.friction(model, places.phi.dtype),
        **_contact_columns(model, structure.dim, moving_contacts),
    )


def check_sizes(model: Model, state: State) -> None:
    """Raise ValueError if numbers or a state do not fit the structure."""
    sizes = model._argument_sizes("model")
    check_record("state", state, "", sizes)
    structure = model.structure
    geometry.check_constants(structure.dim, structure.shapes, model.params.constants)
