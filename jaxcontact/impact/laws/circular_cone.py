"""Impact laws of all contacts at once with the circular friction cone, by the Coulomb solver of the package.

Entry `settle`, which takes `solve_by_pivoting` for a cone of sides. In the plane both cones are the same.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax

from jaxcontact.impact.laws.contact_space import (
    ContactSpace,
    friction_directions,
    mass_norm,
    residual,
    residual_limit,
    residual_status,
)
from jaxcontact.impact.laws.outcome_of_modes import outcome
from jaxcontact.impact.laws.pivoting import solve_by_pivoting
from jaxcontact.solvers.contact_directions import Solution, has_jump, one_sided_impulse
from jaxcontact.solvers.friction_newton import FrictionInfo, solve_coulomb
from jaxcontact.solvers.friction_search import COULOMB_NEWTON, CoulombNewton
from jaxcontact.solvers.lcp import Lemke
from jaxcontact.status import Status, flag

FEW_CONTACTS = 8  # in the plane, up to which pivoting is as quick; in float32 it stands friction of 1e5
Settled = tuple[jax.Array, jax.Array, jax.Array, jax.Array]  # v_plus, scaled impulse, residual, status


def settle(
    space: ContactSpace,
    v: jax.Array,
    num_directions: int | None,
    *,
    impulse_min: jax.Array | None = None,
    solver: Lemke | CoulombNewton | None = None,
) -> Settled:
    """Solve the law of Anitescu and Potra with the circular cone, or with one of `num_directions` sides.

    A few contacts in the plane, where both are the same, are solved by pivoting.

    Args:
        v: (nv,) velocity before.
        impulse_min: (nc,) minimum scaled normal impulse of every contact; None is 0.
        solver: settings of the search for impulses, `CoulombNewton` of the circular cone, else `Lemke`.

    Returns:
        v_plus (nv,), scaled impulse (r,), the residual of `ImpactInfo`, and status bits.

    Derivative: of the contact modes at the solution, by space, v and impulse_min.
    """
    nc, nt = space.mu.shape[0], space.num_tangents
    if num_directions is None and nt == 1 and nc <= FEW_CONTACTS and not isinstance(solver, CoulombNewton):
        num_directions = 4
    if num_directions is None:
        if isinstance(solver, Lemke):
            raise ValueError("solver: expected CoulombNewton for the circular cone, got Lemke")
        return circular_outcome(space, v, impulse_min, COULOMB_NEWTON if solver is None else solver)
    if isinstance(solver, CoulombNewton):
        raise ValueError("solver: expected a Lemke solver for a cone of sides, got CoulombNewton")
    directions = friction_directions(nt, num_directions)
    fixed = lax.stop_gradient((space, v, impulse_min))
    guess, status = solve_by_pivoting(fixed[0], fixed[1], directions, solver=solver, impulse_min=fixed[2])
    v_plus, impulse, worst = outcome(space, v, guess, directions, impulse_min=impulse_min)
    return v_plus, impulse, worst, status | residual_status(worst)


def settle_one_sided(
    space: ContactSpace, v: jax.Array, num_directions: int | None, solver: Lemke | CoulombNewton | None = None
) -> Settled:
    """Solve the law as `settle`, with the circular cone; JUMP tells that there is no derivative.

    Derivative: one-sided, forward, first order, by space and v; NaN with JUMP.

    Raises:
        ValueError: a cone of sides in space.
    """
    if space.num_tangents == 2 and num_directions is not None:
        raise ValueError(
            f"num_directions: expected None with corner='one_sided' in space, got {num_directions}"
        )
    _, impulse, worst, status = lax.stop_gradient(settle(space, v, num_directions, solver=solver))
    softness = lax.stop_gradient(space.scale**2)
    solution = Solution(impulse, space.active, mass_norm(space.mass, v), softness)
    problem = space.delassus, space.rates(v), space.mu
    jumps = has_jump(*problem, solution)
    impulse = one_sided_impulse(*problem, jumps, solution)
    return v + space.response @ impulse, impulse, worst, status | flag(jumps, Status.JUMP)


def circular_outcome(
    space: ContactSpace, v: jax.Array, impulse_min: jax.Array | None, settings: CoulombNewton
) -> Settled:
    """Solve the law of `settle` with the circular cone; redundant contacts share as equally soft ones do."""
    u, active = space.rates(v), space.active
    if impulse_min is None:
        impulse, info = solve_coulomb(
            space.delassus, u, space.mu, active=active, settings=settings, softness=space.scale**2
        )
    else:
        impulse, info = _solve_above(space, u, impulse_min, settings)
    if space.num_tangents == 1:  # linear equations of the modes give the last digits
        v_plus, impulse, worst = outcome(
            space, v, impulse, friction_directions(1, 4), impulse_min=impulse_min
        )
    else:
        v_plus = v + space.response @ impulse
        worst = residual(space, v, impulse, None, impulse_min=impulse_min)
    solved = worst <= residual_limit(v.dtype)
    return v_plus, impulse, worst, jnp.where(solved, jnp.uint32(0), info.status | residual_status(worst))


def _solve_above(
    space: ContactSpace, u: jax.Array, impulse_min: jax.Array, settings: CoulombNewton
) -> tuple[jax.Array, FrictionInfo]:
    """Solve for impulses (r,) with normal parts of at least `impulse_min`, and friction by all of them.

    Each contact has a companion with the same motion, whose own row sets its normal impulse to the minimum.
    """
    nc, rows = space.mu.shape[0], 1 + space.num_tangents
    normal = jnp.arange(nc * rows) % rows == 0
    tangential = jnp.where(normal[:, None], 0.0, space.delassus)
    companion = tangential + jnp.diag(normal.astype(u.dtype))
    W = jnp.block([[space.delassus, space.delassus], [tangential, companion]])
    floor = jnp.zeros_like(u).at[::rows].set(impulse_min)
    q = jnp.concatenate([u, jnp.where(normal, -floor, u)])
    mu, active = jnp.tile(space.mu, 2), jnp.tile(space.active, 2)
    softness = jnp.tile(space.scale**2, 2)
    both, info = solve_coulomb(W, q, mu, active=active, settings=settings, softness=softness)
    return both[: nc * rows] + both[nc * rows :], info
