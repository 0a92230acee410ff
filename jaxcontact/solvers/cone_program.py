"""Convex programs of springs and friction cones, solved in velocity space.

Minimises 1/2 |x - v|_M^2 - push . x + sum_i psi_i(G_i x) over x (nv,), where every psi is the potential of a
spring that pulls (equality rows), only pushes (limit rows), or pushes and rubs within a friction cone
(contacts). However many rows there are, a step of Newton's method solves one nv x nv system.

Stiff springs are the method of multipliers: the impulse of row i is the projection of

    z_i = keep_i p_i + offset_i - slope_i G_i x,     p_i the last impulse, 0 <= keep_i < 1,

so the slope stays moderate, however stiff the spring (keep = 0: the spring itself; keep = 1: rigid).
Arrays carry the batch on the last axis where there is one.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxcontact import cones, linalg
from jaxcontact._pytree import Record, static
from jaxcontact.solvers import retiring

UNROLLED = 48  # longest sum that is written out term by term: several times faster in lanes
ARRAYS = ("M", "v", "push", "G", "offset", "slope", "keep", "mu", "bound", "potential", "depth", "dt")
PATIENCE = 4  # Newton steps before a program is softened; twice as many once it is
FIRST_LEVEL, RAISE, LOWER = 10.0, 30.0, 100.0  # slope x mobility: of the softened program, and its changes
SEARCH_STEPS = 12  # of the line search
SEARCH_SHARE = 0.1  # slope left, relative to the slope at its start, that ends a line search
SHIFT_STEPS = 4  # of Newton's method for the normal impulse of a sliding contact with a potential
POLISH_STEPS = 2


class ConeProgram(Record):
    """The data of one program; see the module for the letters.

    Attributes:
        M: (nv, nv), symmetric positive definite.
        v: (nv,) where the quadratic is centred and the search starts.
        push: (nv,) linear term.
        G: (nr, nv) rows: equalities, limits, then the rows n, t1[, t2] of each contact.
        offset: (nr,) impulse at x = 0 and p = 0.
        slope: (nr,) >= 0, loss of impulse per velocity.
        keep: (nr,) share of the last impulse, in [0, 1].
        mu: (nc,) friction of the contacts.
        bound: (nc,) given bounds on the friction impulses, which then no longer depend on the normal
            impulse; None for a cone.
        potential: convex energy of the depth of every limit and contact (nu,), beside their springs; a
            callable pytree or None. It adds the impulse dt potential'(depth - dt u).
        depth: (nu,) depth at u = 0, and dt, the time step; for the potential only.
        num_equalities, num_limits: number of such rows (static).
        pyramid: bounds |p_t1| and |p_t2| apart instead of |p_t|, where there is no `bound` (static).
        coulomb: friction is bounded by mu p_n but does not push back on the normal (static). Then it is no
            minimisation; only `residuals` and `solve_linearised` take it.
    """

    M: jax.Array
    v: jax.Array
    push: jax.Array
    G: jax.Array
    offset: jax.Array
    slope: jax.Array
    keep: jax.Array
    mu: jax.Array
    bound: jax.Array | None = None
    potential: Any = None
    depth: jax.Array | None = None
    dt: jax.Array | None = None
    num_equalities: int = static(default=0)
    num_limits: int = static(default=0)
    pyramid: bool = static(default=False)
    coulomb: bool = static(default=False)


class ConeSolution(Record):
    """What `solve_cone_program` found.

    Attributes:
        x: (nv,) the minimiser.
        p: (nr,) impulses.
        iterations: int32, Newton steps.
        converged: bool, before `max_iters` was reached.
    """

    x: jax.Array
    p: jax.Array
    iterations: jax.Array
    converged: jax.Array


class Response(NamedTuple):
    """Impulses p (nr,) and how they yield, dp = -S du: `scalar` (ns,) of single rows, `block` of contacts.

    `slope` (nr,) is that of the rows with their potential.
    """

    p: jax.Array
    slope: jax.Array
    scalar: jax.Array
    block: list[list[jax.Array]]


def _elastic(program: ConeProgram, u: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Impulse (nu,) of the potential at rates u (nu,), and its loss per rate."""

    def impulse(potential: Any, depth: jax.Array, h: jax.Array) -> tuple[jax.Array, jax.Array]:
        def force(d: jax.Array) -> jax.Array:
            return jax.grad(lambda x: jnp.sum(potential(x)))(d)

        pushed, stiffness = jax.jvp(force, (depth,), (jnp.ones_like(depth),))
        return h * pushed, h * h * stiffness

    assert program.dt is not None and program.depth is not None
    depth = program.depth - program.dt[None] * u if u.ndim > 1 else program.depth - program.dt * u
    if u.ndim == 1:
        return impulse(program.potential, depth, program.dt)
    whole = (program.potential, depth, program.dt)
    whole = jax.tree.map(lambda a: jnp.broadcast_to(a, (*a.shape[:-1], u.shape[-1])), whole)
    return jax.vmap(impulse, in_axes=-1, out_axes=-1)(*whole)


def _linearise(program: ConeProgram, z: jax.Array, u: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Z and slope (nr,) with the potential replaced by its tangent at the rates where it acts.

    That is at u_n on a limit or a sticking contact; the impulse of a sliding one answers to
    u_n - mu (|z_t| - mu p_n) / slope_t, which is solved for p_n.
    """
    ne, singles, nc = program.num_equalities, program.num_equalities + program.num_limits, program.mu.shape[0]
    axes = (z.shape[0] - singles) // nc if nc else 1
    heads = np.concatenate([np.arange(ne, singles), singles + axes * np.arange(nc)])
    slope = jnp.broadcast_to(program.slope, z.shape)
    rate, linear, stiff = u[heads], z[heads], slope[heads]
    at = rate
    if nc and program.bound is None and not program.coulomb:
        tangent = [z[singles + k :: axes] for k in range(1, axes)]
        sizes, _ = cones.directions(tangent, program.pyramid)
        slope_t = slope[singles + 1 :: axes]
        mu = jnp.where(slope_t > 0, jnp.broadcast_to(program.mu, slope_t.shape), 0.0)
        give = mu / jnp.where(slope_t > 0, slope_t, 1.0)
        p = jnp.zeros_like(slope_t)
        for _ in range(SHIFT_STEPS):
            shift = sum(give * jnp.maximum(size - mu * p, 0.0) for size in sizes)
            grip = sum(give * mu * (size > mu * p) for size in sizes)
            at = rate.at[program.num_limits :].add(-shift)
            pushed, stiffness = _elastic(program, at)
            total = (linear - stiff * (at - rate) + pushed)[program.num_limits :]
            bend = (stiff + stiffness)[program.num_limits :]
            p = jnp.maximum(p - (p - total) / (1.0 + grip * bend), 0.0)
    pushed, stiffness = _elastic(program, at)
    z = z.at[heads].add(pushed + stiffness * (at - rate))
    return z, slope.at[heads].add(stiffness)


def respond(program: ConeProgram, z: jax.Array, u: jax.Array) -> Response:
    """Projects z (nr,), taken at the rates u (nr,), on what each row can exert."""
    equalities, singles = program.num_equalities, program.num_equalities + program.num_limits
    slope = program.slope
    if program.potential is not None:
        z, slope = _linearise(program, z, u)
    pushes = z[equalities:singles] > 0
    p = [z[:equalities], jnp.where(pushes, z[equalities:singles], 0.0)]
    scalar = jnp.concatenate([slope[:equalities], jnp.where(pushes, slope[equalities:singles], 0.0)])
    nc = program.mu.shape[0]
    if nc == 0:
        return Response(jnp.concatenate(p), slope, scalar, [])
    axes = (z.shape[0] - singles) // nc
    normal, *tangent = [z[singles + k :: axes] for k in range(axes)]
    slope_n, slope_t = slope[singles::axes], slope[singles + 1 :: axes]
    mu = jnp.broadcast_to(program.mu, normal.shape)
    if program.bound is None and not program.coulomb:
        found, block = cones.project_friction(normal, tangent, slope_n, slope_t, mu, program.pyramid)
    else:
        pushed, stiff = jnp.maximum(normal, 0.0), jnp.where(normal > 0, slope_n, 0.0)
        bound = mu * pushed if program.bound is None else jnp.broadcast_to(program.bound, normal.shape)
        rubbed, inner, along = cones.clip_friction(tangent, slope_t, bound)
        found = [pushed, *rubbed]
        zero = jnp.zeros_like(normal)
        coupling = [mu * a * stiff if program.coulomb else zero for a in along]
        block = [[stiff] + [zero] * len(tangent)] + [
            [c, *row] for c, row in zip(coupling, inner, strict=True)
        ]
    p.append(jnp.stack(found, axis=1).reshape(-1, *normal.shape[1:]))
    return Response(jnp.concatenate(p), slope, scalar, block)


def apply_rows(G: jax.Array, x: jax.Array) -> jax.Array:
    """G x (nr,)."""
    if G.shape[1] > UNROLLED:
        return G @ x if G.ndim == 2 else jnp.sum(G * x[None], axis=1)
    return sum((G[:, k] * x[k][None] for k in range(1, G.shape[1])), G[:, 0] * x[0][None])


def apply_columns(G: jax.Array, p: jax.Array) -> jax.Array:
    """G^T p (nv,)."""
    if G.shape[0] > UNROLLED or G.shape[0] == 0:
        return p @ G if G.ndim == 2 else jnp.sum(G * p[:, None], axis=0)
    return sum((G[i] * p[i][None] for i in range(1, G.shape[0])), G[0] * p[0][None])


def yielding(response: Response, rows: jax.Array) -> jax.Array:
    """S applied to rows (nr, k)."""
    singles = response.scalar.shape[0]
    parts = [response.scalar[:, None] * rows[:singles]]
    if response.block:
        axes = len(response.block)
        taken = [rows[singles + k :: axes] for k in range(axes)]
        mixed = [sum(s[:, None] * r for s, r in zip(line, taken, strict=True)) for line in response.block]
        parts.append(jnp.stack(mixed, axis=1).reshape(-1, *rows.shape[1:]))
    return jnp.concatenate(parts)


def hessian(program: ConeProgram, response: Response) -> jax.Array:
    """M + G^T S G (nv, nv)."""
    G = program.G
    # Evaluated once: without the barrier the compiler repeats it inside every use.
    weighted = lax.optimization_barrier(yielding(response, G))
    if G.shape[0] > UNROLLED:
        return program.M + (G.T @ weighted if G.ndim == 2 else jnp.einsum("rib,rjb->ijb", G, weighted))
    return sum((G[i][:, None] * weighted[i][None, :] for i in range(G.shape[0])), program.M)


def multiply(M: jax.Array, x: jax.Array) -> jax.Array:
    """M x (nv,)."""
    return apply_rows(M, x)


def _dot(a: jax.Array, b: jax.Array) -> jax.Array:
    return apply_columns(a[:, None], b)[0]


def line_search(
    program: ConeProgram,
    z: jax.Array,
    u: jax.Array,
    du: jax.Array,
    start: jax.Array,
    linear: jax.Array,
    curvature: jax.Array,
    live: jax.Array,
) -> tuple[jax.Array, jax.Array]:
    """The length in (0, 1] at which the objective stops falling, for a direction with rates du (nr,).

    Its derivative by the length a is linear + a curvature - p(z - a slope du) . du: increasing, and `start`
    at a = 0. Only lanes that are `live` are searched. Returns the impulses (nr,) there, too.
    """
    fall = program.slope * du

    def respond_at(a: jax.Array) -> tuple[jax.Array, Response]:
        response = respond(program, z - a[None] * fall, u + a[None] * du)
        return linear + a * curvature - _dot(response.p, du), response

    def search(carry: tuple) -> tuple:
        k, a, low, high, slope, bend, _, _ = carry
        low, high = jnp.where(slope < 0, a, low), jnp.where(slope > 0, a, high)
        newton = a - slope / jnp.where(bend > 0, bend, 1.0)
        inside = (newton > low) & (newton < high)
        a = jnp.where(inside, newton, 0.5 * (low + high))
        slope, response = respond_at(a)
        bend = curvature + _dot(du, yielding(response, du[:, None])[:, 0])
        return k + 1, a, low, high, slope, bend, response.p, jnp.abs(slope) > enough

    one = jnp.ones_like(linear)
    enough = SEARCH_SHARE * jnp.abs(start)
    slope, response = respond_at(one)
    # A slope that is still falling at full length is progress enough; else the secant is the first guess.
    searching = live & (slope > enough)
    first = (jnp.int32(0), one, jnp.zeros_like(one), one, slope, slope - start, response.p, searching)

    def again(carry: tuple) -> jax.Array:
        return (carry[0] < SEARCH_STEPS) & jnp.any(carry[-1])

    def masked(carry: tuple) -> tuple:
        searching = carry[-1]
        found = search(carry)
        kept = [jnp.where(searching, new, old) for new, old in zip(found[1:-1], carry[1:-1], strict=True)]
        return found[0], *kept, searching & found[-1]

    found = lax.while_loop(again, masked, first)
    return found[1], found[-2]


def row_mobility(diagonal: jax.Array, G: jax.Array, singles: int, axes: int) -> jax.Array:
    """Diagonal (nr,) of G M^-1 G^T for a diagonal mass matrix, else of its order.

    The tangents of a contact share the largest of theirs, so that friction stays isotropic.
    """
    own = jnp.sum(G**2 / diagonal[None], axis=1)
    if axes < 3:
        return own
    contacts = own[singles:].reshape(-1, axes, *own.shape[1:])
    tangent = jnp.max(contacts[:, 1:], axis=1, keepdims=True)
    shared = jnp.concatenate([contacts[:, :1], *[tangent] * (axes - 1)], axis=1)
    return jnp.concatenate([own[:singles], shared.reshape(-1, *own.shape[1:])])


def _soften(program: ConeProgram, mobility: jax.Array, level: jax.Array) -> ConeProgram:
    """The same program with slopes of at most `level` times the inverse mobility of their row."""
    stiff = mobility * program.slope
    share = jnp.where(stiff > level[None], level[None] / jnp.where(stiff > 0, stiff, 1.0), 1.0)
    share = jnp.where(jnp.isfinite(level)[None], share, 1.0)
    return program.replace(
        offset=share * program.offset, slope=share * program.slope, keep=1.0 - share * (1.0 - program.keep)
    )


def _factor(matrix: jax.Array) -> jax.Array:
    """Cholesky factor; a large single one by LAPACK, which would be a hazard in a batch."""
    if matrix.ndim == 2 and matrix.shape[0] > linalg.UNROLLED:
        return lax.linalg.cholesky(matrix, symmetrize_input=False)
    return linalg.cholesky_lanes(matrix)


def _solve(factor: jax.Array, rhs: jax.Array) -> jax.Array:
    """Solution of L L^T x = b for a factor of `_factor`."""
    if factor.ndim == 2 and factor.shape[0] > linalg.UNROLLED:
        half = lax.linalg.triangular_solve(factor, rhs[:, None], left_side=True, lower=True)
        return lax.linalg.triangular_solve(factor, half, left_side=True, lower=True, transpose_a=True)[:, 0]
    return linalg.cholesky_solve_lanes(factor, rhs)


class _Search(NamedTuple):
    """The state of Newton's method; lanes last.

    `level` bounds slope x mobility (inf: not softened), `tried` counts steps at this level, `fresh` tells
    that the impulses p that rows keep were just renewed.
    """

    x: jax.Array
    p: jax.Array
    level: jax.Array
    tried: jax.Array
    fresh: jax.Array
    done: jax.Array
    steps: jax.Array
    factor: jax.Array


class _Fixed(NamedTuple):
    """What Newton's method reads: the program, the mobility of its rows, and the energy in its data."""

    program: ConeProgram
    mobility: jax.Array
    size: jax.Array


def _newton(fixed: _Fixed, now: _Search) -> _Search:
    """One step of Newton's method."""
    program, mobility = fixed.program, fixed.mobility
    eps = jnp.finfo(program.M.dtype).eps
    stiffest = jnp.max(mobility * program.slope, axis=0, initial=0.0)
    full = now.level >= stiffest
    staged = _soften(program, mobility, now.level)
    x, p, done = now.x, now.p, now.done
    u = apply_rows(program.G, x)
    z = staged.keep * p + staged.offset - staged.slope * u
    response = respond(staged, z, u)
    momentum = multiply(program.M, x - program.v) - program.push
    gradient = momentum - apply_columns(program.G, response.p)
    factor = _factor(hessian(staged, response))
    dx = -_solve(factor, gradient)
    size = fixed.size + _dot(x, multiply(program.M, x))
    decrement = -_dot(gradient, dx)
    settled = decrement <= jnp.where(full, eps, eps**0.3) * size
    du = apply_rows(program.G, dx)
    linear, curvature = _dot(momentum, dx), _dot(dx, multiply(program.M, dx))
    a, pushed = line_search(staged, z, u, du, -decrement, linear, curvature, ~(settled | done))
    weight = jnp.sqrt(mobility) * (program.keep > 0)
    change = jnp.max(weight * jnp.abs(pushed - p), axis=0, initial=0.0)
    still = (change <= eps**0.375 * jnp.sqrt(size)) | (now.fresh & (decrement <= eps**0.75 * size))
    broken = ~jnp.isfinite(decrement)  # one bad world must not keep the others waiting
    finished = broken | (full & still & (settled | now.fresh))
    # A lane that does not settle is softened; one that does gets stiffer until it is its own program.
    tried = jnp.where(settled, 0, now.tried + 1)
    lost = tried >= jnp.where(jnp.isinf(now.level), PATIENCE, 2 * PATIENCE)
    softer = jnp.where(jnp.isinf(now.level), FIRST_LEVEL, jnp.minimum(now.level, stiffest) / LOWER)
    level = jnp.where(lost, softer, jnp.where(settled & ~full, now.level * RAISE, now.level))
    then = _Search(
        x=x + a[None] * dx,
        p=jnp.where((settled | finished)[None], pushed, p),
        level=level,
        tried=jnp.where(lost, 0, tried),
        fresh=settled & full,
        done=finished,
        steps=now.steps + 1,
        factor=factor,
    )
    return jax.tree.map(lambda new, old: jnp.where(done, old, new), then, now)


def _minimise(program: ConeProgram, start: jax.Array, max_iters: int) -> ConeSolution:
    """Newton's method from program.v and the impulses `start` (nr,); batch axes last."""
    dtype, nv = program.M.dtype, program.v.shape[0]
    lanes = jnp.broadcast_shapes(
        *[a.shape[1:] for a in (program.v, program.push, program.offset, program.slope, program.mu, start)],
        *[a.shape[2:] for a in (program.M, program.G)],
    )
    singles = program.num_equalities + program.num_limits
    axes = (start.shape[0] - singles) // program.mu.shape[0] if program.mu.shape[0] else 2
    diagonal = jnp.stack([program.M[k, k] for k in range(nv)])
    energy = _dot(program.v, multiply(program.M, program.v)) + _dot(program.push, program.push / diagonal)
    fixed = _Fixed(program, row_mobility(diagonal, program.G, singles, axes), energy)
    none, zero = jnp.zeros(lanes, bool), jnp.zeros(lanes, jnp.int32)
    now = _Search(
        x=jnp.broadcast_to(program.v, (nv, *lanes)),
        p=jnp.broadcast_to(start, (start.shape[0], *lanes)),
        level=jnp.full(lanes, jnp.inf, dtype),
        tried=zero,
        fresh=none,
        done=none,
        steps=zero,
        factor=jnp.zeros((nv, nv, *lanes), dtype),
    )

    def running(state: _Search) -> jax.Array:
        return ~state.done & (state.steps < max_iters)

    if lanes:
        now = retiring.while_lanes(running, _newton, _polish, fixed, now)
    else:
        now = lax.while_loop(running, functools.partial(_newton, fixed), now)
        now = _polish(fixed, now)
    converged = now.done & jnp.all(jnp.isfinite(now.x), axis=0)
    return ConeSolution(x=now.x, p=now.p, iterations=now.steps, converged=converged)


def residuals(program: ConeProgram, x: jax.Array, p: jax.Array) -> tuple[jax.Array, jax.Array, Response]:
    """M (x - v) - push - G^T p (nv,) and p - P(z) (nr,), both zero at the solution, and the response P(z)."""
    u = apply_rows(program.G, x)
    response = respond(program, program.keep * p + program.offset - program.slope * u, u)
    momentum = multiply(program.M, x - program.v) - program.push - apply_columns(program.G, p)
    return momentum, p - response.p, response


def solve_linearised(
    program: ConeProgram,
    response: Response,
    invert: Callable[[jax.Array], jax.Array],
    momentum: jax.Array,
    misfit: jax.Array,
    steps: int,
) -> tuple[jax.Array, jax.Array]:
    """(dx, dp) that make the linearised `residuals` cancel (momentum, misfit).

    M dx - G^T dp = -momentum and dp = J keep dp - S G dx - misfit with J = S / slope, by `steps`
    steps of the method of multipliers; `invert` applies the inverse of `hessian`. The
    increments are small, so no digits are lost to stiff springs.
    """
    slope = response.slope
    share = jnp.where(slope > 0, program.keep / jnp.where(slope > 0, slope, 1.0), 0.0)
    dp = jnp.zeros_like(misfit)
    for _ in range(steps):
        kept = yielding(response, (share * dp)[:, None])[:, 0] - misfit
        dx = invert(apply_columns(program.G, kept) - momentum)
        dp = kept - yielding(response, apply_rows(program.G, dx)[:, None])[:, 0]
    return dx, dp


def _polish(fixed: _Fixed, now: _Search) -> _Search:
    """The last digits of x and p where the search is done, with the factor it ended with."""
    momentum, misfit, response = residuals(fixed.program, now.x, now.p)
    invert = functools.partial(_solve, now.factor)
    dx, dp = solve_linearised(fixed.program, response, invert, momentum, misfit, POLISH_STEPS)
    return now._replace(
        x=jnp.where(now.done[None], now.x + dx, now.x), p=jnp.where(now.done[None], now.p + dp, now.p)
    )


def _inner_lanes(arrays: list[jax.Array], batched: list[bool], ranks: list[int]) -> int | None:
    """Size of the last axis that holds an earlier batch; None where there is none."""
    sizes = [a.shape[-1] for a, b, r in zip(arrays, batched, ranks, strict=True) if a.ndim - b > r]
    return max(sizes, default=None)


def _as_lanes(
    arrays: list[jax.Array], batched: list[bool], ranks: list[int], inner: int | None, size: int
) -> list[jax.Array]:
    """Moves a new batch axis, the first where `batched`, to the last place, merged with earlier lanes."""

    def move(a: jax.Array, b: bool, rank: int) -> jax.Array:
        if inner is None:
            return jnp.moveaxis(a, 0, -1) if b else jnp.broadcast_to(a[..., None], (*a.shape, size))
        a = a if b else a[None]
        a = jnp.moveaxis(a if a.ndim - 1 > rank else a[..., None], 0, -1)
        if a.shape[-2:] != (1, 1):
            a = jnp.broadcast_to(a, (*a.shape[:-2], inner, size))
        return a.reshape(*a.shape[:-2], -1)

    return [move(*each) for each in zip(arrays, batched, ranks, strict=True)]


def _from_lanes(a: jax.Array, inner: int | None, size: int) -> jax.Array:
    return jnp.moveaxis(a if inner is None else a.reshape(*a.shape[:-1], inner, size), -1, 0)


@functools.partial(jax.jit, static_argnames="max_iters")
def solve_cone_program(program: ConeProgram, start: jax.Array, max_iters: int = 100) -> ConeSolution:
    """The minimiser of a `ConeProgram`, by Newton's method with line search.

    Batches made by `vmap` run as lanes on the last axis, until the slowest has converged. A result whose
    `converged` is False is the last iterate, or not finite where the data are not.

    Args:
        program: the data.
        start: (nr,) impulses to start from; zeros if nothing is known.
        max_iters: most Newton steps.

    Derivative: none here; the callers differentiate the equations of the solution.
    """
    fields = {name: getattr(program, name) for name in ARRAYS}
    fields = jax.tree.map(lax.stop_gradient, fields)
    leaves, structure = jax.tree.flatten((fields, lax.stop_gradient(start)))
    ranks = [leaf.ndim for leaf in leaves]

    @jax.custom_batching.custom_vmap
    def lanes(*arrays: jax.Array) -> ConeSolution:
        found, first = jax.tree.unflatten(structure, arrays)
        return _minimise(program.replace(**found), first, max_iters)

    @lanes.def_vmap
    def _(size: int, batched: list[bool], *arrays: jax.Array) -> tuple:
        inner = _inner_lanes(list(arrays), batched, ranks)
        out = lanes(*_as_lanes(list(arrays), batched, ranks, inner, size))
        out = jax.tree.map(lambda a: _from_lanes(a, inner, size), out)
        return out, jax.tree.map(lambda _: True, out)

    return lanes(*leaves)
