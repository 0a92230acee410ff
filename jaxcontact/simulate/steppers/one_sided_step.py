"""One-sided derivatives of the steps of `TimeStepping`: gaps at zero, depth that is removed, parts that move.

Owns the borders of a step beside those of its law. Entries: `gap_or_zero`, `is_grazed`, `are_held`,
`one_sided_removal`. Page: docs/understand/derivatives.md.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax

from jaxcontact.algebra import implicit
from jaxcontact.impact.laws.contact_space import contact_space, mass_norm
from jaxcontact.mechanics.configuration import retract
from jaxcontact.mechanics.motion_equations import mass_matrix
from jaxcontact.mechanics.system import Model
from jaxcontact.simulate.projection import allowed_depth, constraint_values, held_rows
from jaxcontact.solvers.contact_directions import (
    BORDER_DIGITS,
    Solution,
    border_size,
    negative_part,
    one_sided_impulse,
)
from jaxcontact.terms import ContactTerms
from jaxcontact.terms.closed_loops import project_rows
from jaxcontact.tolerances import rounding

ZERO_GAP = 4.0  # times the depth that is round-off; gaps and depths below it are zero


def zero_gap(q: jax.Array) -> jax.Array:
    """Compute the gap in m up to which a contact is neither open nor deep."""
    return ZERO_GAP * allowed_depth(lax.stop_gradient(q))


def gap_or_zero(phi: jax.Array, q: jax.Array) -> jax.Array:
    """Compute max(phi, 0) of gaps (nu,); at zero its derivative is the one-sided one, forward."""
    return phi - negative_part(phi, jnp.abs(phi) <= zero_gap(q))


def is_grazed(
    terms: ContactTerms, clearance: jax.Array, before: jax.Array, v: jax.Array, impulse: jax.Array
) -> jax.Array:
    """Find the contacts (nu,) that neither press nor leave after an impact from `before` to v (nv,)."""
    terms, clearance, before, v, impulse = lax.stop_gradient((terms, clearance, before, v, impulse))
    space = contact_space(terms, clearance)
    small = border_size(v.dtype, mass_norm(terms.M, before))
    load = impulse[:, 0] / space.scale[:: 1 + space.num_tangents]
    return space.active & (load <= small) & (space.normal_rates(v) <= small)


def are_held(rows: jax.Array, phi: jax.Array, q: jax.Array) -> jax.Array:
    """Find the contacts (nu,) at a gap of zero that loops keep from moving: they move as soon as loops turn.

    Args:
        rows: (nu, nv) normals, projected on the motions of loops.
        phi: (nu,) gaps.
        q: (nq,), for the size of round-off.
    """
    return ~jnp.any(rows != 0, axis=1) & (phi <= zero_gap(q))


def one_sided_removal(model: Model, q: jax.Array, pushes: jax.Array) -> jax.Array:
    """Return q (nq,), without depth; its forward derivative has no depth either.

    Contacts that have pushed q out, `pushes` (nu,), hold their gaps at zero, and those with a gap of zero are
    pushed out by directions that close them: the frictionless contact problem of the change. Loops stay
    closed.
    """

    def gaps_at(step: jax.Array) -> jax.Array:
        return constraint_values(model, retract(model.system, q, step))[1]

    still = jnp.zeros(model.structure.num_velocities, q.dtype)
    gaps = gaps_at(still)
    nu, dtype, limit = gaps.shape[0], q.dtype, zero_gap(q)
    if not nu:
        return q
    rows = lax.stop_gradient(jax.jacfwd(gaps_at)(still))
    mass, held = lax.stop_gradient((mass_matrix(model, q), held_rows(model, q)))
    pushed = rows if held is None else project_rows(mass, held, rows)
    response = implicit.solve_spd(mass, pushed.T)
    normal = 2 * jnp.arange(nu)
    delassus = jnp.zeros((2 * nu, 2 * nu), dtype).at[normal[:, None], normal[None]].set(rows @ response)
    impulse = jnp.zeros(2 * nu, dtype).at[normal].set(pushes.astype(dtype))
    rates = jnp.zeros(2 * nu, dtype).at[normal].set(gaps) - delassus @ impulse
    size = limit / rounding(dtype, BORDER_DIGITS)
    near = pushes | (lax.stop_gradient(jnp.abs(gaps)) <= limit)
    solution = Solution(impulse, near, size, jnp.ones(2 * nu, dtype))
    solved = one_sided_impulse(delassus, rates, jnp.zeros(nu, dtype), jnp.array(False), solution)
    return retract(model.system, q, response @ (solved - lax.stop_gradient(solved))[::2])
