"""A configuration within a motion, its momentum, and the states of its contacts.

Owns the tolerances by which contacts touch, approach, or stay closed, and the loads of closed contacts.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from jaxcontact.algebra import implicit, small_dense
from jaxcontact.batching.bounded_loop import bounded_loop
from jaxcontact.impact.laws.contact_space import collision_tolerance
from jaxcontact.mechanics.motion_equations import bias_at, mass_matrix
from jaxcontact.mechanics.robot import actuator_forces
from jaxcontact.mechanics.surfaces import has_moving_surfaces
from jaxcontact.mechanics.system import Model, State
from jaxcontact.simulate.augmented.contact_forces import free_motion
from jaxcontact.simulate.steppers.dry_joints import dry_rows
from jaxcontact.simulate.variational.active_set import contact_impulses
from jaxcontact.simulate.variational.discrete_mechanics import StepContacts, project_momentum
from jaxcontact.simulate.variational.joint_rows import (
    JointRows,
    LoopRows,
    close_slow_dry,
    dry_force,
    num_dry,
    press_rows,
    without_dry,
)
from jaxcontact.terms import ContactTerms, contact_terms, moving_terms
from jaxcontact.terms.motion import holds_joints, project_terms
from jaxcontact.terms.records import normal_rates, slips


class Node(NamedTuple):
    """A configuration with its momentum, and the contacts and joints there."""

    q: jax.Array
    p: jax.Array
    v: jax.Array
    t: jax.Array
    terms: ContactTerms
    closed: jax.Array  # (nc,) bool: touching, not approaching and not leaving; of dry joints: at rest
    joints: JointRows | None = None


def touching_gap(dtype: jnp.dtype) -> float:
    """Return the gap in m below which a contact touches: 1e-9, 1e-5 in single precision."""
    return 1e-9 if jnp.finfo(dtype).bits >= 64 else 1e-5


def find_touching(terms: ContactTerms) -> jax.Array:
    """Find the contacts (nc,) that touch; these take part in an impact."""
    return terms.phi <= touching_gap(terms.phi.dtype)


def find_approaching(node: Node) -> jax.Array:
    """Find the contacts (nc,) that touch and approach, so that an impact is due."""
    return find_touching(node.terms) & (normal_rates(node.terms, node.v) < -collision_tolerance(node.v.dtype))


def terms_at(model: Model, q: jax.Array, t: jax.Array) -> ContactTerms:
    """Compute `contact_terms`, with the limits and dry joints of `moving_terms`; rows may be empty."""
    return terms_and_joints(model, q, t)[0]


def terms_and_joints(model: Model, q: jax.Array, t: jax.Array) -> tuple[ContactTerms, JointRows | None]:
    """Compute `terms_at`, and the rows of loops and dry joints; None for a mechanism that has neither."""
    state = State(q=q, v=jnp.zeros(model.structure.num_velocities, q.dtype), t=t)
    if holds_joints(model) or has_moving_surfaces(model.params):
        terms, *_, loops = moving_terms(model, state)
        dry, held = dry_rows(model), None
        if loops is not None:
            held = LoopRows(loops.rows, loops.deviation)
            terms = project_terms(terms, loops.rows)
        return terms, None if held is None and dry is None else JointRows(held, dry)
    if model.structure.num_contacts:
        return contact_terms(model, state), None
    nv, dtype = model.structure.num_velocities, q.dtype
    none = jnp.zeros(0, dtype)
    terms = ContactTerms(
        M=mass_matrix(model, q),
        J_n=jnp.zeros((0, nv), dtype),
        J_t=jnp.zeros((0, model.structure.dim - 1, nv), dtype),
        phi=none,
        mu=none,
        active=jnp.zeros(0, bool),
    )
    return terms, None


def count_rows(model: Model, state: State) -> int:
    """Count the contacts, limits and dry joints of `terms_at`, without computing them."""
    terms: ContactTerms = jax.eval_shape(functools.partial(terms_at, model), state.q, state.t)
    return int(terms.phi.shape[0])


def contacts_of(terms: ContactTerms, closed: jax.Array, joints: JointRows | None = None) -> StepContacts:
    """Make the record of contacts of a step that starts at `terms`."""
    rows = jnp.concatenate([terms.J_n[:, None], terms.J_t], axis=1)
    largest_gap = 10.0 * touching_gap(terms.phi.dtype)  # m; a larger gap is no round-off, and is not closed
    # Only round-off moves an open contact, and it has no derivative: its gap, and the time of its next
    # event, depend on the state.
    opened = lax.stop_gradient(jnp.clip(terms.phi, -largest_gap, 0.0))
    off = jnp.where(closed, jnp.clip(terms.phi, -largest_gap, largest_gap), opened)
    return StepContacts(rows, terms.mu, off, closed, joints, terms.surface)


def drag_at(node: Node) -> jax.Array | None:
    """Compute the force (nv,) of the dry joints that slide in a step from `node`; None if there are none."""
    return dry_force(node.joints, node.v, node.closed)


def make_node(
    terms: ContactTerms, q: jax.Array, p: jax.Array, t: jax.Array, joints: JointRows | None = None
) -> Node:
    """Make the node of a configuration q with momentum p."""
    v = implicit.solve_spd(terms.M, p[:, None])[:, 0]
    # Contacts that leave so slowly that they would return within the round-off of a gap stay closed. That
    # does not hold them: closed contacts push but never pull. 4e-6 m/s rises by 8e-13 m under gravity. At
    # 1e-6 m/s a contact comes back faster than it left, because the search takes a gap of 1e-13 m as zero.
    rate, tolerance = normal_rates(terms, v), collision_tolerance(v.dtype)
    closed = find_touching(terms) & (rate >= -tolerance) & (rate <= 400.0 * tolerance)
    return Node(q, p, v, t, terms, close_slow_dry(joints, v, tolerance, closed), joints)


def make_end_node(
    model: Model, node: Node, end: tuple[jax.Array, jax.Array, jax.Array], h: jax.Array, guess: jax.Array,
    is_known: bool = False,
) -> tuple[Node, jax.Array, jax.Array]:  # fmt: skip
    """Make the node at the end (q, p, t) of a step of length h from `node`.

    Args:
        guess: (nc, dim) impulses at the end, and with `is_known` the solution.

    Returns:
        The node, the impulses (nc, dim) at the end, and whether their modes were found.
    """
    q, p, t = end
    terms, joints = terms_and_joints(model, q, t)
    contacts = contacts_of(terms, node.closed & find_touching(terms), joints)
    p, second, is_solved = project_momentum(terms.M, p, contacts, guess, is_known, h)
    return make_node(terms, q, p, t, joints), second, is_solved


def contact_loads(
    model: Model, node: Node, closed: jax.Array, after: jax.Array, guess: jax.Array,
    controls: jax.Array | None, drags: jax.Array | None,
) -> tuple[jax.Array, jax.Array]:  # fmt: skip
    """Compute the loads (nc,) of the closed contacts at a node, m/s^2, negative if they would have to pull.

    With M a + b = J^T f and gaps accelerating by J a + Jdot v = c + D f, the forces f obey the law of
    `contact_impulses`. The load of contact i is the normal part of D_ii f_i - (c + D f)_i, which passes
    through zero as it opens. Friction opposes the sliding velocity after `after` seconds.

    Returns:
        The loads, and the size of the accelerations that they are differences of.

    Derivative: by everything but `guess`, in the modes found.
    """
    nc, dim, nv = guess.shape[0], guess.shape[1], node.v.shape[0]
    rows = contacts_of(node.terms, closed).rows.reshape(nc * dim, nv)
    state = State(q=node.q, v=node.v, t=node.t)
    if node.joints is not None:
        _, drift, _, acceleration = free_motion(model, state, controls, drags)
        response = jnp.concatenate([implicit.solve_spd(node.terms.M, rows.T), acceleration[:, None]], axis=1)
    else:
        _, drift, kinematics, *_ = moving_terms(model, state)
        force = -bias_at(model, state, kinematics)
        if controls is not None:
            force = force + actuator_forces(model, state, controls)
        response = implicit.solve_spd(node.terms.M, jnp.concatenate([rows.T, force[:, None]], axis=1))
    free = drift + small_dense.apply_matrix(rows, response[:, -1]).reshape(nc, dim)
    free = free.at[:, 1:].add(slips(node.terms, node.v) / after)
    delassus, free = press_rows(node.joints, rows @ response[:, :-1], free, 1.0)
    impulse, _ = contact_impulses(delassus, free, node.terms.mu, closed, guess)
    leaves = free[:, 0] + small_dense.apply_matrix(delassus, impulse.reshape(-1)).reshape(nc, dim)[:, 0]
    mobility = jnp.diagonal(delassus).reshape(nc, dim)[:, 0]
    gross = jnp.max(jnp.abs(model.params.gravity)) + jnp.max(jnp.abs(rows) @ jnp.abs(response[:, -1]))
    return jnp.where(closed, mobility * impulse[:, 0] - leaves, 0.0), gross


def loads_at_ends(
    model: Model,
    dt: jax.Array,
    controls: jax.Array | None,
    node: Node,
    arrived: Node,
    guess: jax.Array,
    searching: jax.Array,
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Compute the loads (nc,) of the contacts closed at `node`, at the end of the step and at its start.

    They are relative to the size of accelerations at the start, m/s^2, which is the third value. If no search
    is under way and no contact has to pull at the end, the loads at the start are not computed.
    """
    none = jnp.zeros_like(node.terms.phi)
    start = (jnp.stack([none, none]), jnp.ones((2,), dt.dtype), jnp.int32(0))
    drags = drag_at(node)
    if none.shape[0] == num_dry(node.joints):
        return none, none, start[1][0]
    both = jax.tree.map(lambda *x: jnp.stack(x), arrived, node)
    smallest_load = collision_tolerance(none.dtype) / dt

    def wanted(carry: tuple[jax.Array, jax.Array, jax.Array]) -> jax.Array:
        pushes, _, k = carry
        again = (k == 1) & (searching | jnp.any(pushes[0] < -smallest_load))
        return jnp.any(without_dry(node.joints, node.closed)) & ((k == 0) | again)

    def find(carry: tuple[jax.Array, jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array, jax.Array]:
        pushes, size, k = carry
        point = jax.tree.map(lambda x: x[k], both)
        load, gross = contact_loads(model, point, node.closed, dt, guess, controls, drags)
        return pushes.at[k].set(load), size.at[k].set(gross), k + 1

    pushes, sizes, _ = bounded_loop(wanted, find, start, max_iters=2)
    size = jnp.where(sizes[1] > 0, sizes[1], 1.0)
    return pushes[0] / size, pushes[1] / size, size
