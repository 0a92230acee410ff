"""Dry friction of joints for impact laws: one more contact for each dry row, whose normal force is the bound.

A coordinate of its own comes down so fast that only the impulse dt times the bound stops it, with friction 1
along the joint. So every law knows dry friction that sticks or slides. Entry: `with_dry_joints`.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from jaxcontact.algebra import implicit
from jaxcontact.mechanics.system import Model
from jaxcontact.terms import ContactTerms


class DryRows(NamedTuple):
    """Sliding Jacobian (nd, nv) of dry joints and tendons, and their largest friction (nd,), N or N m."""

    rows: jax.Array
    bound: jax.Array


def dry_rows(model: Model) -> DryRows | None:
    """Return the dry rows of a mechanism; None if it has none."""
    mechanics, tree = model.system.mechanics, model.structure.tree
    if mechanics is None or tree is None or not tree.rubs:
        return None
    return DryRows(*mechanics.dry_friction(model.structure, model.params))


def with_dry_joints(
    terms: ContactTerms, v: jax.Array, clearance: jax.Array, dry: DryRows, dt: jax.Array
) -> tuple[ContactTerms, jax.Array, jax.Array]:
    """Append the contacts of dry rows, with their coordinates, to terms, velocity and clearance (nu, dim)."""
    count, nt = dry.bound.shape[0], terms.J_t.shape[1]
    mobility = jnp.sum(dry.rows.T * implicit.solve_spd(terms.M, dry.rows.T), axis=0)
    mass = jax.lax.stop_gradient(1.0 / jnp.where(mobility > 0.0, mobility, 1.0))
    beside = jnp.zeros((terms.M.shape[0], count), terms.M.dtype)
    M = jnp.block([[terms.M, beside], [beside.T, jnp.diag(mass)]])
    normals = jnp.concatenate([jnp.zeros_like(dry.rows), jnp.eye(count, dtype=M.dtype)], axis=1)
    tangents = jnp.zeros((count, nt, M.shape[0]), M.dtype).at[:, 0, : dry.rows.shape[1]].set(dry.rows)
    wider = terms.replace(
        M=M,
        J_n=jnp.concatenate([jnp.pad(terms.J_n, ((0, 0), (0, count))), normals]),
        J_t=jnp.concatenate([jnp.pad(terms.J_t, ((0, 0), (0, 0), (0, count))), tangents]),
        phi=jnp.append(terms.phi, jnp.zeros(count, M.dtype)),
        mu=jnp.append(terms.mu, jnp.ones(count, M.dtype)),
        active=jnp.append(terms.active, dry.bound > 0.0),
    )
    return wider, jnp.append(v, -dt * dry.bound / mass), jnp.pad(clearance, ((0, count), (0, 0)))
