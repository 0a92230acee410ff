"""Impact laws as linear complementarity problems, for the pivoting solver.

Entries `solve_by_pivoting`, one solution, in the plane or with a polyhedral friction cone in space, and
`search_by_pivoting`, several. With
z = (beta, lam_n, lam_D, gamma) this is Halm & Posa's eq (75), in scaled contact space; without beta it
is the law of Anitescu & Potra, eqs (31)-(33).
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from jaxcontact.impact.laws.contact_space import ContactSpace
from jaxcontact.solvers.lcp import Lemke, solve_lcp
from jaxcontact.solvers.lcp_search import search_solutions


def corner_rows(num_contacts: int, directions: np.ndarray) -> np.ndarray:
    """Make the matrix (nc (1 + k), r) of the rows (n; corners) of all contacts from their rows (n, t).

    Args:
        directions: (k, nt) corners of the friction cone.
    """
    k, nt = directions.shape
    corners = np.zeros((num_contacts * (1 + k), num_contacts * (1 + nt)))
    for contact in range(num_contacts):
        first = contact * (1 + nt)
        block = slice(num_contacts + contact * k, num_contacts + (contact + 1) * k)
        corners[contact, first] = 1.0
        corners[block, first + 1 : first + 1 + nt] = directions
    return corners


def impact_lcp(
    space: ContactSpace,
    u: jax.Array,
    directions: np.ndarray,
    impulse_max: jax.Array | None,
    impulse_min: jax.Array | None = None,
) -> tuple[jax.Array, jax.Array]:
    """Build (W, w) of the impact problem; n = nc (k + 2), or nc (k + 3) with a cap on the impulse.

    Args:
        u: (r,) scaled contact velocity before.
        directions: (k, nt) friction directions.
        impulse_max: (nc,) scaled cap, or None for the law without a cap.
        impulse_min: (nc,) scaled normal impulse of each contact that u already contains, without its
            friction; None is none. The normal impulse of the solution is in addition to it.
    """
    nc, k, dtype = space.mu.shape[0], directions.shape[0], u.dtype
    fan = jnp.asarray(corner_rows(nc, directions), dtype)
    # An inactive contact has zero rows; a unit diagonal and w >= 0 keep its impulse at zero.
    idle = jnp.where(space.active, 0.0, 1.0).astype(dtype)
    couple = fan @ space.delassus @ fan.T
    couple = couple + jnp.diag(jnp.concatenate([idle, jnp.zeros(nc * k, dtype)]))
    ones = jnp.asarray(np.kron(np.eye(nc), np.ones((k, 1))), dtype)  # E
    zeros = jnp.zeros((nc, nc), dtype)
    law = jnp.block(
        [
            [couple, jnp.concatenate([zeros, ones])],
            [jnp.concatenate([jnp.diag(space.mu), -ones.T], axis=1), zeros],
        ]
    )
    friction = jnp.zeros(nc, dtype) if impulse_min is None else space.mu * impulse_min
    w = jnp.concatenate([fan @ u, friction]) + jnp.max(jnp.abs(u)) * jnp.concatenate(
        [idle, jnp.zeros(nc * (k + 1), dtype)]
    )
    if impulse_max is None:
        return law, w
    cap = jnp.concatenate([jnp.eye(nc, dtype=dtype), jnp.zeros((nc, nc * (k + 1)), dtype)], axis=1)
    return jnp.block([[zeros, -cap], [cap.T, law]]), jnp.concatenate([impulse_max, w])


_SPREAD = 5.0  # random covering vectors lie in exp(-5)..exp(5); a narrower range finds fewer solutions


def random_cover(size: int, pick: jax.Array) -> jax.Array:
    """Draw a covering vector (size,) of an impact problem with a cap from `pick`; ones if that is 0.

    If the problem has several solutions, the vector determines which one Lemke's method finds.
    """
    bits = jax.lax.bitcast_convert_type(pick.astype(jnp.float32), jnp.uint32)
    key = jax.random.fold_in(jax.random.key(0, impl="threefry2x32"), bits)
    spread = jax.random.uniform(key, (size,), jnp.float32, -_SPREAD, _SPREAD)
    return jnp.where(pick > 0, jnp.exp(spread), 1.0).astype(pick.dtype)


def solve_by_pivoting(
    space: ContactSpace,
    v: jax.Array,
    directions: np.ndarray,
    impulse_max: jax.Array | None = None,
    solver: Lemke | None = None,
    cover: jax.Array | None = None,
    impulse_min: jax.Array | None = None,
) -> tuple[jax.Array, jax.Array]:
    """Find a scaled impulse (r,) that solves the impact problem, and return it with the solver status.

    Args:
        impulse_min: (nc,) minimum scaled normal impulse of every contact; None is 0.
        cover: (n,) covering vector of Lemke's method, n as in `impact_lcp`; default ones.
    """
    nc = space.mu.shape[0]
    rates = space.rates(v)
    if impulse_min is not None:
        rates = rates + space.delassus[:, :: 1 + space.num_tangents] @ impulse_min
    matrix, w = impact_lcp(space, rates, directions, impulse_max, impulse_min)
    z, info = solve_lcp(matrix, w, cover=cover, solver=Lemke() if solver is None else solver)
    impulse = _read_impulse(space, z if impulse_max is None else z[nc:], directions)
    if impulse_min is not None:
        impulse = impulse.at[:: 1 + space.num_tangents].add(jnp.where(space.active, impulse_min, 0.0))
    return impulse, info.status


def search_by_pivoting(
    space: ContactSpace, v: jax.Array, directions: np.ndarray, impulse_max: jax.Array | None
) -> tuple[jax.Array, jax.Array]:
    """Search for scaled impulses (n, r) that solve the impact problem, and tell which do; no derivative."""
    matrix, w = impact_lcp(space, space.rates(v), directions, impulse_max)
    z, solved = search_solutions(matrix, w)
    z = z if impulse_max is None else z[:, space.mu.shape[0] :]
    return jax.vmap(lambda solution: _read_impulse(space, solution, directions))(z), solved


def _read_impulse(space: ContactSpace, z: jax.Array, directions: np.ndarray) -> jax.Array:
    """Read the scaled impulse (r,) of a solution z = (lam_n, lam_D, gamma)."""
    nc, k = space.mu.shape[0], directions.shape[0]
    tangential = z[nc : nc * (1 + k)].reshape(nc, k) @ jnp.asarray(directions, z.dtype)
    impulse = jnp.concatenate([z[:nc, None], tangential], axis=1)
    return jnp.where(space.active[:, None], impulse, 0.0).reshape(-1)
