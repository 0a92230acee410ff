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
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from jaxcontact import cones, linalg
from jaxcontact._pytree import Record, static

SEARCH_STEPS = 12  # of the line search
SEARCH_SHARE = 0.1  # slope left, relative to the slope at its start, that ends a line search
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
        num_equalities, num_limits: number of such rows (static).
        pyramid: bounds |p_t1| and |p_t2| apart instead of |p_t|, where there is no `bound` (static).
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
    num_equalities: int = static(default=0)
    num_limits: int = static(default=0)
    pyramid: bool = static(default=False)


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
    """Impulses p (nr,) and how they yield, dp = -S du: `scalar` (ns,) of single rows, `block` of contacts."""

    p: jax.Array
    scalar: jax.Array
    block: list[list[jax.Array]]


def respond(program: ConeProgram, z: jax.Array) -> Response:
    """Projects z (nr,) on what each row can exert."""
    equalities, singles = program.num_equalities, program.num_equalities + program.num_limits
    slope = program.slope
    pushes = z[equalities:singles] > 0
    p = [z[:equalities], jnp.where(pushes, z[equalities:singles], 0.0)]
    scalar = jnp.concatenate([slope[:equalities], jnp.where(pushes, slope[equalities:singles], 0.0)])
    nc = program.mu.shape[0]
    if nc == 0:
        return Response(jnp.concatenate(p), scalar, [])
    axes = (z.shape[0] - singles) // nc
    normal, *tangent = [z[singles + k :: axes] for k in range(axes)]
    slope_n, slope_t = slope[singles::axes], slope[singles + 1 :: axes]
    mu = jnp.broadcast_to(program.mu, normal.shape)
    if program.bound is None:
        found, block = cones.project_friction(normal, tangent, slope_n, slope_t, mu, program.pyramid)
    else:
        bound = jnp.broadcast_to(program.bound, normal.shape)
        rubbed, inner, _ = cones.clip_friction(tangent, slope_t, bound)
        found = [jnp.maximum(normal, 0.0), *rubbed]
        zero = jnp.zeros_like(normal)
        block = [[jnp.where(normal > 0, slope_n, 0.0)] + [zero] * len(tangent)]
        block += [[zero, *row] for row in inner]
    p.append(jnp.stack(found, axis=1).reshape(-1, *normal.shape[1:]))
    return Response(jnp.concatenate(p), scalar, block)


def apply_rows(G: jax.Array, x: jax.Array) -> jax.Array:
    """G x (nr,), with a sum of fixed order over the velocities."""
    return jnp.sum(G * x[None], axis=1)


def apply_columns(G: jax.Array, p: jax.Array) -> jax.Array:
    """G^T p (nv,)."""
    return jnp.sum(G * p[:, None], axis=0)


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
    weighted = yielding(response, program.G)
    return program.M + jnp.sum(program.G[:, :, None] * weighted[:, None, :], axis=0)


def multiply(M: jax.Array, x: jax.Array) -> jax.Array:
    """M x (nv,)."""
    return jnp.sum(M * x[None], axis=1)


def _dot(a: jax.Array, b: jax.Array) -> jax.Array:
    return jnp.sum(a * b, axis=0)


def line_search(
    program: ConeProgram,
    z: jax.Array,
    du: jax.Array,
    start: jax.Array,
    linear: jax.Array,
    curvature: jax.Array,
    live: jax.Array,
) -> jax.Array:
    """The length in (0, 1] at which the objective stops falling, for a direction with rates du (nr,).

    Its derivative by the length a is linear + a curvature - p(z - a slope du) . du: increasing, and `start`
    at a = 0. Only lanes that are `live` are searched.
    """
    fall = program.slope * du

    def slope_at(a: jax.Array) -> tuple[jax.Array, jax.Array]:
        response = respond(program, z - a[None] * fall)
        bend = _dot(du, yielding(response, du[:, None])[:, 0])
        return linear + a * curvature - _dot(response.p, du), curvature + bend

    def search(carry: tuple) -> tuple:
        k, a, low, high, slope, bend, _ = carry
        low, high = jnp.where(slope < 0, a, low), jnp.where(slope > 0, a, high)
        newton = a - slope / jnp.where(bend > 0, bend, 1.0)
        inside = (newton > low) & (newton < high)
        a = jnp.where(inside, newton, 0.5 * (low + high))
        slope, bend = slope_at(a)
        return k + 1, a, low, high, slope, bend, jnp.abs(slope) > enough

    one = jnp.ones_like(linear)
    enough = SEARCH_SHARE * jnp.abs(start)
    slope, bend = slope_at(one)
    # A slope that is still falling at full length is progress enough.
    first = (jnp.int32(0), one, jnp.zeros_like(one), one, slope, bend, live & (slope > enough))

    def again(carry: tuple) -> jax.Array:
        return (carry[0] < SEARCH_STEPS) & jnp.any(carry[-1])

    def masked(carry: tuple) -> tuple:
        searching = carry[-1]
        found = search(carry)
        kept = [jnp.where(searching, new, old) for new, old in zip(found[1:-1], carry[1:-1], strict=True)]
        return found[0], *kept, searching & found[-1]

    return lax.while_loop(again, masked, first)[1]


def _minimise(program: ConeProgram, start: jax.Array, max_iters: int) -> ConeSolution:
    """Newton's method from program.v and the impulses `start` (nr,); batch axes last."""
    dtype = program.M.dtype
    eps = jnp.finfo(dtype).eps
    lanes = jnp.broadcast_shapes(
        *[a.shape[1:] for a in (program.v, program.push, program.offset, program.slope, program.mu, start)],
        *[a.shape[2:] for a in (program.M, program.G)],
    )
    v = jnp.broadcast_to(program.v, (program.v.shape[0], *lanes))
    p = jnp.broadcast_to(start, (start.shape[0], *lanes))
    diagonal = jnp.stack([program.M[k, k] for k in range(v.shape[0])])
    energy = _dot(program.v, multiply(program.M, program.v)) + _dot(program.push, program.push / diagonal)
    weight = jnp.where(program.keep > 0, lax.rsqrt(jnp.where(program.slope > 0, program.slope, 1.0)), 0.0)
    weight = weight * eps**-0.1875  # sqrt of the mobility of a row whose slope is capped

    def newton(carry: tuple) -> tuple:
        k, x, p, done, _, used = carry
        z = program.keep * p + program.offset - program.slope * apply_rows(program.G, x)
        response = respond(program, z)
        momentum = multiply(program.M, x - program.v) - program.push
        gradient = momentum - apply_columns(program.G, response.p)
        factor = linalg.cholesky_lanes(hessian(program, response))
        dx = -linalg.cholesky_solve_lanes(factor, gradient)
        size = energy + _dot(x, multiply(program.M, x))
        decrement = -_dot(gradient, dx)
        settled = decrement <= eps * size
        du = apply_rows(program.G, dx)
        linear, curvature = _dot(momentum, dx), _dot(dx, multiply(program.M, dx))
        a = line_search(program, z, du, -decrement, linear, curvature, ~(settled | done))
        pushed = respond(program, z - a[None] * (program.slope * du)).p
        change = jnp.max(weight * jnp.abs(pushed - p), axis=0, initial=0.0)
        following = jnp.where((settled | done)[None], pushed, p)
        broken = ~jnp.isfinite(decrement)  # one bad world must not keep the others waiting
        now = broken | (settled & (change <= eps**0.375 * jnp.sqrt(size)))
        return (
            k + 1,
            jnp.where(done[None], x, x + a[None] * dx),
            jnp.where(done[None], p, following),
            done | now,
            factor,
            jnp.where(done, used, k + 1),
        )

    nv = v.shape[0]
    none = jnp.zeros(lanes, bool)
    carry = (jnp.int32(0), v, p, none, jnp.zeros((nv, nv, *lanes), dtype), jnp.zeros(lanes, jnp.int32))
    carry = lax.while_loop(lambda c: (c[0] < max_iters) & ~jnp.all(c[3]), newton, carry)
    _, x, p, done, factor, used = carry
    x, p = _polish(program, x, p, factor)
    return ConeSolution(x=x, p=p, iterations=used, converged=done & jnp.all(jnp.isfinite(x), axis=0))


def residuals(program: ConeProgram, x: jax.Array, p: jax.Array) -> tuple[jax.Array, jax.Array, Response]:
    """M (x - v) - push - G^T p (nv,) and p - P(z) (nr,), both zero at the solution, and the response P(z)."""
    z = program.keep * p + program.offset - program.slope * apply_rows(program.G, x)
    response = respond(program, z)
    momentum = multiply(program.M, x - program.v) - program.push - apply_columns(program.G, p)
    return momentum, p - response.p, response


def solve_linearised(
    program: ConeProgram,
    response: Response,
    factor: jax.Array,
    momentum: jax.Array,
    misfit: jax.Array,
    steps: int,
) -> tuple[jax.Array, jax.Array]:
    """(dx, dp) that make the linearised `residuals` cancel (momentum, misfit).

    M dx - G^T dp = -momentum and dp = J (keep dp - slope G dx) - misfit with J = S / slope, by `steps`
    steps of the method of multipliers. The increments are small, so no digits are lost to stiff springs.
    """
    slope = program.slope
    share = jnp.where(slope > 0, program.keep / jnp.where(slope > 0, slope, 1.0), 0.0)
    dp = jnp.zeros_like(misfit)
    for _ in range(steps):
        kept = yielding(response, (share * dp)[:, None])[:, 0] - misfit
        dx = linalg.cholesky_solve_lanes(factor, apply_columns(program.G, kept) - momentum)
        dp = kept - yielding(response, apply_rows(program.G, dx)[:, None])[:, 0]
    return dx, dp


def _polish(
    program: ConeProgram, x: jax.Array, p: jax.Array, factor: jax.Array
) -> tuple[jax.Array, jax.Array]:
    momentum, misfit, response = residuals(program, x, p)
    dx, dp = solve_linearised(program, response, factor, momentum, misfit, POLISH_STEPS)
    return x + dx, p + dp


def _inner_lanes(arrays: Any, batched: Any, ranks: Any) -> int | None:
    """Size of the last axis that holds an earlier batch; None where there is none."""
    sizes = jax.tree.map(lambda a, b, r: a.shape[-1] if a.ndim - b > r else 0, arrays, batched, ranks)
    return max(jax.tree.leaves(sizes)) or None


def _as_lanes(arrays: Any, batched: Any, ranks: Any) -> Any:
    """Moves a new batch axis, the first where `batched`, to the last place, merged with earlier lanes."""
    inner = _inner_lanes(arrays, batched, ranks)

    def move(a: jax.Array, b: bool, rank: int) -> jax.Array:
        if inner is None:
            return jnp.moveaxis(a, 0, -1) if b else a[..., None]
        a = a if b else a[None]
        a = jnp.moveaxis(a if a.ndim - 1 > rank else a[..., None], 0, -1)
        if a.shape[-2:] != (1, 1):
            size = max(x.shape[0] for x, y in zip(jax.tree.leaves(arrays), jax.tree.leaves(batched)) if y)
            a = jnp.broadcast_to(a, (*a.shape[:-2], inner, size))
        return a.reshape(*a.shape[:-2], -1)

    return jax.tree.map(move, arrays, batched, ranks)


def _from_lanes(a: jax.Array, inner: int | None, size: int) -> jax.Array:
    return jnp.moveaxis(a if inner is None else a.reshape(*a.shape[:-1], inner, size), -1, 0)


RANKS = {"M": 2, "G": 2}  # of the arrays of one program; all others are vectors


@functools.partial(jax.jit, static_argnames="max_iters")
def solve_cone_program(program: ConeProgram, start: jax.Array, max_iters: int = 50) -> ConeSolution:
    """The minimiser of a `ConeProgram`, by Newton's method with line search.

    Batches made by `vmap` run as lanes on the last axis, until the slowest has converged. A result whose
    `converged` is False is the last iterate, or not finite where the data are not.

    Args:
        program: the data.
        start: (nr,) impulses to start from; zeros if nothing is known.
        max_iters: most Newton steps.

    Derivative: none here; the callers differentiate the equations of the solution.
    """
    fields = {name: value for name, value in vars(program).items() if isinstance(value, jax.Array)}
    fields = {name: lax.stop_gradient(value) for name, value in fields.items()}
    ranks = {name: RANKS.get(name, 1) for name in fields}

    @jax.custom_batching.custom_vmap
    def lanes(arrays: dict[str, jax.Array], start: jax.Array) -> ConeSolution:
        return _minimise(program.replace(**arrays), start, max_iters)

    @lanes.def_vmap
    def _(size: int, batched: Any, arrays: dict[str, jax.Array], start: jax.Array) -> tuple:
        out = lanes(*_as_lanes((arrays, start), batched, (ranks, 1)))
        inner = _inner_lanes((arrays, start), batched, (ranks, 1))
        out = jax.tree.map(lambda a: _from_lanes(a, inner, size), out)
        return out, jax.tree.map(lambda _: True, out)

    return lanes(fields, lax.stop_gradient(start))
