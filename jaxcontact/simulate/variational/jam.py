"""Impacts without a collision: sliding contacts that jam while none approaches.

Owns their detection (`find_jammed`) and their outcome (`jam_impact`). In a step of no length sliding
contacts have the impulse zero, which solves their laws. If another impulse solves them as well, finite forces
may not exist (Painleve's paradox), and a step of any length may find that impulse.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from jaxcontact.algebra import implicit, small_dense
from jaxcontact.impact.laws.contact_space import collision_tolerance
from jaxcontact.simulate.variational.active_set import contact_impulses
from jaxcontact.simulate.variational.contact_state import Node, contacts_of, make_node
from jaxcontact.terms.records import slips

SMALLEST_JAM = 1e-3  # smallest change of velocity that counts as a jam, relative to the sliding velocity


def find_jammed(node: Node, arrived: Node, impulse: jax.Array) -> jax.Array:
    """Find contacts (nc,) that slide at the start of a step, and stick or slide back, loaded, at its end."""
    before, after = slips(node.terms, node.v), slips(arrived.terms, arrived.v)
    slides = jnp.sum(before**2, axis=1) > collision_tolerance(node.v.dtype) ** 2
    left = jnp.sum(before * after, axis=1) <= 1e-6 * jnp.sum(before**2, axis=1)
    return node.closed & slides & left & (impulse[:, 0] > 0)


def jam_impact(
    node: Node, closed: jax.Array, guess: jax.Array, is_known: bool = False
) -> tuple[Node, jax.Array, jax.Array]:
    """Compute the impact of contacts that jam; return the node after it, its impulses, and if it exists.

    Inelastic, with friction: 0 <= lam_n, u_n >= 0 complementary, lam_t opposing u_t with maximal dissipation,
    at the velocities after it.

    Args:
        closed: (nc,) bool, contacts that take part.
        guess: (nc, dim) impulses of a step that found it.
        is_known: whether the guess is its solution, as in a replay.

    Derivative: by the node, in the modes found.
    """
    nc, dim = guess.shape
    rows = contacts_of(node.terms, closed).rows.reshape(nc * dim, -1)
    response = implicit.solve_spd(node.terms.M, rows.T)
    delassus = rows @ response
    u = small_dense.apply_matrix(rows, node.v).reshape(nc, dim)
    if node.terms.surface is not None:
        u = u + node.terms.surface
    push, found = contact_impulses(delassus, u, node.terms.mu, closed, guess, is_known)
    push = jnp.where(closed[:, None], push, 0.0)
    change = jnp.abs(small_dense.apply_matrix(delassus, push.reshape(-1))).reshape(nc, dim)
    slip = jnp.max(jnp.where(closed[:, None], jnp.abs(u[:, 1:]), 0.0), initial=0.0)
    happens = found & (jnp.max(change, initial=0.0) > SMALLEST_JAM * slip) & (slip > 0)
    p = node.p + small_dense.apply_matrix(rows.T, push.reshape(-1))
    return make_node(node.terms, node.q, p, node.t, node.joints), push, happens
