"""Impact laws of all contacts at once with the circular friction cone, by the Coulomb solver of the package.

Entry `settle`, which takes `solve_by_pivoting` for a cone of sides. In the plane both cones are the same.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
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
from jaxcontact.impact.laws.sides_one_sided import sided_impulse
from jaxcontact.solvers.contact_directions import Solution, border_size, has_jump, one_sided_impulse
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
    space: ContactSpace,
    v: jax.Array,
    num_directions: int | None,
    *,
    impulse_min: jax.Array | None = None,
    solver: Lemke | CoulombNewton | None = None,
    size: jax.Array | None = None,
) -> Settled:
    """Solve the law as `settle`, with the circular cone; JUMP tells that there is no derivative.

    Args:
        size: the root of energy with which impulses and velocities are compared; None is |v|_M.

    Derivative: one-sided, forward, first order, by space, v and impulse_min; NaN with JUMP.

    Raises:
        ValueError: a cone of sides in space with `impulse_min`.
    """
    sides = num_directions if space.num_tangents == 2 else None
    if sides is not None and impulse_min is not None:
        raise ValueError(
            f"num_directions: expected None with corner='one_sided' in space, got {num_directions}"
        )
    solved = settle(space, v, num_directions, impulse_min=impulse_min, solver=solver)
    _, impulse, worst, status = lax.stop_gradient(solved)
    size = mass_norm(space.mass, v) if size is None else size
    if sides is not None:
        v_plus, jumps = outcome_one_sided(space, v, impulse, size, friction_directions(2, sides))
        return v_plus, impulse, worst, status | flag(jumps, Status.JUMP)
    problem = _FrictionProblem(
        space.delassus, space.rates(v), space.mu, space.active, lax.stop_gradient(space.scale**2)
    )
    if impulse_min is not None:
        small = border_size(v.dtype, size)
        has_floor = (impulse_min > small) | (space.normal_rates(v) <= small)
        problem = _add_companions(problem, impulse_min)
        problem = problem._replace(active=problem.active & jnp.append(space.active, has_floor))
        impulse = lax.stop_gradient(_divide_load(impulse, impulse_min))
    impulse, jumps = _follow(problem, impulse, size)
    if impulse_min is not None:
        impulse = impulse[: space.scale.shape[0]] + impulse[space.scale.shape[0] :]
    return v + space.response @ impulse, impulse, worst, status | flag(jumps, Status.JUMP)


def outcome_one_sided(
    space: ContactSpace, v: jax.Array, impulse: jax.Array, size: jax.Array, directions: np.ndarray
) -> tuple[jax.Array, jax.Array]:
    """Return v_plus (nv,) of a solution with its one-sided derivative, and whether it jumps.

    Args:
        impulse: (r,) scaled impulse of the solution; it carries no derivative.
        size: the root of energy with which impulses and velocities are compared.
        directions: (k, nt) corners of the friction cone.
    """
    if space.num_tangents == 2:
        impulse, jumps = sided_impulse(space, v, impulse, directions, size)
        return v + space.response @ impulse, jumps
    problem = _FrictionProblem(
        space.delassus, space.rates(v), space.mu, space.active, lax.stop_gradient(space.scale**2)
    )
    impulse, jumps = _follow(problem, lax.stop_gradient(impulse), size)
    return v + space.response @ impulse, jumps


def _follow(problem: _FrictionProblem, impulse: jax.Array, size: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Return a solution (r,) with its one-sided derivative, and whether there is none."""
    solution = Solution(impulse, *lax.stop_gradient((problem.active, size, problem.softness)))
    numbers = problem.W, problem.q, problem.mu
    jumps = has_jump(*numbers, solution)
    return one_sided_impulse(*numbers, jumps, solution), jumps


def capped_one_sided(
    space: ContactSpace, v: jax.Array, impulse: jax.Array, cap: jax.Array, size: jax.Array,
    directions: np.ndarray,
) -> tuple[jax.Array, jax.Array]:  # fmt: skip
    """Return the impulse (r,) of a step with its one-sided derivative, and whether there is none.

    A companion y (nc,) of each contact takes what a cap leaves of the approach, so that both obey
    complementarity: 0 <= lam_n perp u_n + y >= 0, 0 <= y perp cap - lam_n >= 0.

    Args:
        impulse: (r,) scaled impulse of the step; it carries no derivative.
        cap: (nc,) largest scaled normal impulses.
        size: the root of energy with which impulses and velocities are compared.
        directions: (k, nt) corners of the friction cone.
    """
    if space.num_tangents == 2:
        return sided_impulse(space, v, impulse, directions, size, cap)
    impulse, rows, dtype = lax.stop_gradient(impulse), space.scale.shape[0], v.dtype
    normal, none = jnp.arange(rows) % (1 + space.num_tangents) == 0, jnp.zeros((rows, rows), dtype)
    couple = jnp.diag(normal.astype(dtype))
    u, fixed_space = space.rates(v), lax.stop_gradient(space)
    left = lax.stop_gradient(u) + fixed_space.delassus @ impulse
    problem = (
        jnp.block([[space.delassus, couple], [-couple, none]]),
        jnp.concatenate([u, jnp.zeros(rows, dtype).at[:: 1 + space.num_tangents].set(cap)]),
        jnp.concatenate([space.mu, jnp.zeros_like(space.mu)]),
    )
    solution = Solution(
        impulse=jnp.concatenate([impulse, jnp.where(normal & (left < 0), -left, 0.0)]),
        active=jnp.tile(space.active, 2),
        size=lax.stop_gradient(size),
        softness=jnp.tile(fixed_space.scale**2, 2),
    )
    jumps = has_jump(*problem, solution, max_tested=space.mu.shape[0])
    return one_sided_impulse(*problem, jumps, solution)[:rows], jumps


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
    """Solve for impulses (r,) with normal parts of at least `impulse_min`, and friction by all of them."""
    W, q, mu, active, softness = _add_companions(
        _FrictionProblem(space.delassus, u, space.mu, space.active, space.scale**2), impulse_min
    )
    both, info = solve_coulomb(W, q, mu, active=active, settings=settings, softness=softness)
    return both[: u.shape[0]] + both[u.shape[0] :], info


class _FrictionProblem(NamedTuple):
    """The arguments of `solve_coulomb`."""

    W: jax.Array
    q: jax.Array
    mu: jax.Array
    active: jax.Array
    softness: jax.Array


def _add_companions(problem: _FrictionProblem, impulse_min: jax.Array) -> _FrictionProblem:
    """Add a companion to each contact, with the same motion, whose normal impulse is the minimum (nc,)."""
    W, q, *others = problem
    rows = q.shape[0] // impulse_min.shape[0]
    normal = jnp.arange(q.shape[0]) % rows == 0
    tangential = jnp.where(normal[:, None], 0.0, W)
    companion = tangential + jnp.diag(normal.astype(q.dtype))
    floor = jnp.zeros_like(q).at[::rows].set(impulse_min)
    return _FrictionProblem(
        jnp.block([[W, W], [tangential, companion]]),
        jnp.concatenate([q, jnp.where(normal, -floor, q)]),
        *(jnp.tile(x, 2) for x in others),
    )


def _divide_load(impulse: jax.Array, impulse_min: jax.Array) -> jax.Array:
    """Divide impulses (r,) among contacts and companions; return (2 r,), friction in proportion to loads."""
    lam = impulse.reshape(impulse_min.shape[0], -1)
    load = lam[:, 0]
    fraction = jnp.where(load > 0, jnp.minimum(impulse_min / jnp.where(load > 0, load, 1.0), 1.0), 0.0)
    lower = fraction[:, None] * lam
    return jnp.concatenate([lam - lower, lower]).reshape(-1)
