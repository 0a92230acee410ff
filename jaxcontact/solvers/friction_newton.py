"""Coulomb friction and the associated law by Newton's method and interior points, for traced code.

Entry: `solve_coulomb`; `friction_problem` has the public call with its checks. See docs/methods/friction.md.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from jaxcontact.algebra import cholesky
from jaxcontact.batching.bounded_loop import bounded_loop
from jaxcontact.solvers.friction_derivative import attach_derivative, mode_margin
from jaxcontact.solvers.friction_law import ScaledFriction, by_axis, by_contact, scale_friction
from jaxcontact.solvers.friction_search import (
    COULOMB,
    COULOMB_NEWTON,
    CoulombNewton,
    FrictionLaw,
    search,
    success_tolerance,
)
from jaxcontact.status import Info, Status, flag
from jaxcontact.tolerances import REDUNDANT, SHIFT, rounding

SHARING_PASSES = 5  # of redundant contacts, the last without softness
SHARED = 1e-10, 2e-6  # residuals in double and single precision up to which shared loads are taken


class FrictionInfo(Info):
    """The information of a friction solver beside its impulses.

    Attributes:
        status: uint32 bits of `Status`; 0 is success.
        residual: the natural map of De Saxce's form in the user's units: the largest change, as a velocity,
            of the impulses if the law is evaluated at their velocities, over the largest |q|. With the
            largest own mobility w of a contact it is w |r - P(r - (u + mu |u_t| n) / w)|.
        num_iters: int32, factorisations.
    """


def solve_coulomb(
    W: jax.Array,
    q: jax.Array,
    mu: jax.Array,
    *,
    start: jax.Array | None = None,
    active: jax.Array | None = None,
    settings: CoulombNewton = COULOMB_NEWTON,
    law: FrictionLaw = COULOMB,
    softness: jax.Array | None = None,
) -> tuple[jax.Array, FrictionInfo]:
    """Solve Coulomb's law for the impulses r of contacts with velocities u = W r + q.

    Of every contact 0 <= r_n, u_n >= 0, r_n u_n = 0 and |r_t| <= mu r_n, where r_t opposes u_t with all of
    mu r_n unless u_t = 0. Rows are contact-major, (n, t1[, t2]) of each contact. For traced code: shapes are
    assumed to fit. Newton's method starts from `start`; if that does not settle within a few steps, or
    without a start, interior points continue.

    Args:
        W: (n, n), need not be symmetric nor regular; a regularised problem has its softness on the diagonal.
        q: (n,) velocities without impulses.
        mu: (nc,) friction >= 0; n / nc rows per contact are 2 or 3.
        start: (n,) impulses to start from; None or zeros if nothing is known.
        active: (nc,) bool, contacts that may push; None for all. The others have no impulse, and their rows
            of W and q are not read.
        settings: limits of the search.
        law: `COULOMB`, or `ASSOCIATED` with r in the cone, u in its dual cone, and r . u = 0: sliding at
            |u_t| lifts a contact at mu |u_t|.
        softness: (n,) ratios of the softness of rows: redundant contacts share loads as contacts that are
            so soft do, in the limit of none. None leaves the shares to the search.

    Returns:
        r (n,) and FrictionInfo.

    Status: MAX_ITERS if the residual is above the tolerance, NONFINITE for NaN or inf in the data of
        active contacts (r is 0) or the result, INVALID for negative friction.

    Derivative: of the law in the modes at the solution, by W, q and mu, any order, forward and reverse; see
        `friction_derivative`.
    """
    nc = mu.shape[0]
    dim = q.shape[0] // nc
    active = jnp.ones(nc, bool) if active is None else active
    rows = jnp.repeat(active, dim)
    both = rows[:, None] & rows[None, :]
    W, q = jnp.where(both, W, 0.0), jnp.where(rows, q, 0.0)
    mu = jnp.where(active, mu, 0.0).astype(q.dtype)
    finite = jnp.all(jnp.isfinite(W)) & jnp.all(jnp.isfinite(q)) & jnp.all(jnp.isfinite(mu))
    invalid = jnp.any(mu < 0)
    readable = finite & ~invalid
    W, q, mu = (jnp.where(readable, x, 0.0) for x in (W, q, mu))
    problem = scale_friction(
        by_axis(by_axis(W, dim).T, dim).T, by_axis(q, dim), mu, active,
        None if softness is None else by_axis(softness, dim),
    )  # fmt: skip
    guess = jnp.zeros_like(q) if start is None else by_axis(lax.stop_gradient(start), dim) / problem.impulse
    guess = jnp.where(jnp.all(jnp.isfinite(guess)) & jnp.tile(active, dim), guess, 0.0)
    fixed = lax.stop_gradient(problem)
    if softness is None:
        found = search(fixed, guess, settings, law)
        best, unsolved, steps, pushes = found.best, found.residual, found.steps, active
    else:
        best, unsolved, steps, pushes = _share(fixed, settings, law)
    impulse = attach_derivative(problem._replace(active=pushes), best, law.linearise) * problem.impulse
    tolerance = success_tolerance(q.dtype) if settings.tolerance is None else settings.tolerance
    solved = unsolved <= tolerance
    status = flag(~finite | ~jnp.all(jnp.isfinite(impulse)), Status.NONFINITE)
    status = status | flag(invalid, Status.INVALID) | flag(readable & ~solved, Status.MAX_ITERS)
    residual = jnp.where(readable, unsolved, jnp.inf)
    return by_contact(impulse, dim), FrictionInfo(status=status, residual=residual, num_iters=steps)


def _share(
    problem: ScaledFriction, settings: CoulombNewton, law: FrictionLaw
) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array]:
    """Search; if loaded rows are redundant, again with softness that yields less in each pass.

    u = W r + s (r - r_last) + q with the softness s has no redundant rows, and its solutions approach that of
    s = 0, which the last pass looks for, in no iteration if it is solved to rounding. A contact without load
    in the first soft pass, where neighbours yield, is open in the next ones: its rate in the end is zero.

    Returns:
        impulses (n,), residual, iterations, and contacts (nc,) that are closed if all are soft.
    """
    nc, margin = problem.mu.shape[0], mode_margin(problem.q.dtype)
    limit = SHARED[jnp.finfo(problem.q.dtype).bits < 64]

    def search_softly(at: _Sharing) -> _Sharing:
        k, (r, _, pushes), apart = at.k, at.loads, at.apart
        is_soft = (k >= 0) & (k < SHARING_PASSES - 1)
        soft = jnp.where(is_soft, problem.softness, 0.0)
        in_pass = jnp.where(is_soft, pushes, problem.active)
        rows = jnp.tile(in_pass, r.shape[0] // nc)
        softened = problem._replace(
            W=jnp.where(rows[:, None] & rows[None, :], problem.W, 0.0) + jnp.diag(soft),
            q=jnp.where(rows, problem.q - soft * r, 0.0),
            active=in_pass,
        )
        found = search(softened, r, settings, law)
        approach = (found.best - softened.W @ found.best - softened.q)[:nc]
        pushes = jnp.where(k == 0, pushes & (approach >= -margin), pushes)
        loaded = found.best[:nc] > margin
        again = (k < 0) & lax.cond(k < 0, lambda: _has_redundant_rows(problem.W, loaded), lambda: False)
        following = jnp.where(again | (k >= 0), k + 1, SHARING_PASSES)
        loads = _Loads(found.best, found.residual, pushes)
        apart = jax.tree.map(lambda a, b: jnp.where(k < 0, a, b), loads, apart)
        # Loads that are not shared stay, unless shared ones solve the problem as well.
        ends = following == SHARING_PASSES
        stays = ends & (k >= 0) & (found.residual > jnp.maximum(limit, apart.residual))
        loads = jax.tree.map(lambda a, b: jnp.where(stays, a, b), apart, loads)
        loads = loads._replace(impulse=jnp.where(again, 0.0, loads.impulse))
        return _Sharing(following, loads, apart, at.steps + found.steps)

    none = _Loads(jnp.zeros_like(problem.q), jnp.full((), jnp.inf, problem.q.dtype), problem.active)
    start = _Sharing(jnp.int32(-1), none, none, jnp.int32(0))
    end = bounded_loop(lambda at: at.k < SHARING_PASSES, search_softly, start, max_iters=1 + SHARING_PASSES)
    impulse, unsolved, pushes = end.loads
    return impulse, unsolved, end.steps, pushes | (impulse[:nc] > margin)


class _Loads(NamedTuple):
    """Impulses (n,), their residual, contacts that may push (nc,)."""

    impulse: jax.Array
    residual: jax.Array
    pushes: jax.Array


class _Sharing(NamedTuple):
    """The next pass, the first is -1; loads so far, and those of the first pass; iterations."""

    k: jax.Array
    loads: _Loads
    apart: _Loads
    steps: jax.Array


def _has_redundant_rows(W: jax.Array, loaded: jax.Array) -> jax.Array:
    """Tell whether impulses of the loaded contacts (nc,) exist that move almost nothing."""
    n, dtype = W.shape[0], W.dtype
    is_row = jnp.tile(loaded, n // loaded.shape[0]) & (jnp.diagonal(W) > 0)
    rows = jnp.where(is_row[:, None] & is_row[None, :], W, 0.0) + jnp.diag(jnp.where(is_row, 0.0, 1.0))
    inverse_factor = cholesky.factorise(rows + rounding(dtype, SHIFT) * jnp.eye(n, dtype=dtype))
    return ~(jnp.max(jnp.abs(inverse_factor)) < rounding(dtype, -REDUNDANT))
