"""Convex programs of springs and friction cones in velocity space: their data and equations.

Entry: `ConeProgram`, whose docstring has the problem; `solve_cone_program` solves it.
Page: docs/methods/compliant.md.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from jaxcontact._pytree import PyTree, Record, static
from jaxcontact.algebra import body_rows, branch_factor, cones, tree_rows
from jaxcontact.algebra.block_tridiagonal import BlockTridiagonal
from jaxcontact.algebra.body_rows import BodyRows, Diagonal
from jaxcontact.algebra.tree_rows import TreeRows
from jaxcontact.batching.once import computed_once
from jaxcontact.batching.world_code import compiles_one_world
from jaxcontact.solvers.row_algebra import Mass, Rows, apply_columns, apply_rows, multiply

MAX_GROUPS = 4  # of contacts, that a Hessian takes or leaves
SHIFT_STEPS = 4  # of Newton's method for the normal impulse of a sliding contact with a potential


class ConeProgram(Record):
    """The data of one program.

    It minimises 1/2 |x - v|_M^2 - push . x + sum_i psi_i(G_i x) over x (nv,). Every psi is the potential of
    a spring that pulls up to a bound, if any (equality rows), only pushes (limit rows), or pushes and rubs
    within a friction cone (contacts). However many rows there are, a step of Newton's method solves one
    nv x nv system. Stiff springs use the method of multipliers: the impulse of row i is the projection of

        z_i = keep_i p_i + offset_i - slope_i G_i x,     p_i the last impulse,

    so the slope stays moderate, however stiff the spring (keep = 0: the spring itself; keep = 1: rigid).

    Attributes:
        M: (nv, nv), symmetric positive definite; or `Diagonal`, with `BodyRows`.
        v: (nv,) centre of the quadratic, and start of the search.
        push: (nv,) linear term.
        columns: G^T (nv, nr), long vectors if there are many rows: equalities, limits, then the normals
            of all contacts, all t1[, all t2]; or `BodyRows`, of contacts alone.
        offset: (nr,) impulse at x = 0 and p = 0.
        slope: (nr,) >= 0, loss of impulse per velocity.
        keep: (nr,) fraction of the last impulse, in [0, 1].
        mu: (nc,) friction of the contacts.
        bound: (nc,) given bounds on the friction impulses, which then no longer depend on the normal
            impulse; None for a cone.
        potential: convex energy of the depth of every limit and contact (nu,), beside their springs; a
            callable pytree or None. It adds the impulse dt potential'(depth - dt u).
        touch: (nu,) rate at which the gap of each limit and contact closes within the step; its spring has no
            impulse above, and less of it at this rate. inf if the gap is closed; None for all closed.
        stop: (nu,) loss of impulse per velocity at that rate, at least `slope`.
        dry_bound: (ne,) largest impulse of each equality row, inf for no bound; None if no row has one.
        depth: (nu,) depth at u = 0, and dt, the time step; for the potential only.
        tree_rows: the rows of contacts again, by the tree of their bodies; None if there is no tree.
        num_equalities, num_limits: number of such rows (static).
        limits_apart: True if every limit moves one velocity alone (static).
        pyramid: bounds |p_t1| and |p_t2| separately instead of |p_t|, if there is no `bound` (static).
        coulomb: friction is bounded by mu p_n but does not push back on the normal (static). Then it is no
            minimisation; only `residuals` and `solve_linearised` take it.
    """

    M: Mass
    v: jax.Array
    push: jax.Array
    columns: Rows
    offset: jax.Array
    slope: jax.Array
    keep: jax.Array
    mu: jax.Array
    bound: jax.Array | None = None
    touch: jax.Array | None = None
    stop: jax.Array | None = None
    dry_bound: jax.Array | None = None
    potential: PyTree = None
    depth: jax.Array | None = None
    dt: jax.Array | None = None
    tree_rows: TreeRows | None = None
    num_equalities: int = static(default=0)
    num_limits: int = static(default=0)
    limits_apart: bool = static(default=False)
    pyramid: bool = static(default=False)
    coulomb: bool = static(default=False)


class Response(NamedTuple):
    """Impulses p (nr,) and their change dp = -S du: S has `scalar` (ns,) of single rows, `block` of contacts.

    `slope` (nr,) is that of the rows with their potential, `keep` (nr,) the fraction of p that rows repeat.
    """

    p: jax.Array
    slope: jax.Array
    scalar: jax.Array
    block: list[list[jax.Array]]
    keep: jax.Array


def _elastic(program: ConeProgram, u: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Compute the impulse (nu,) of the potential at rates u (nu,), and its loss per rate."""

    def force(depth: jax.Array) -> jax.Array:
        return jax.grad(lambda d: jnp.sum(program.potential(d)))(depth)

    assert program.dt is not None and program.depth is not None
    depth = program.depth - program.dt * u
    pushed, stiffness = jax.jvp(force, (depth,), (jnp.ones_like(depth),))
    return program.dt * pushed, program.dt * program.dt * stiffness


def _linearise(
    program: ConeProgram, z: jax.Array, u: jax.Array, slope: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Linearise the potential: return z and slope (nr,) with its tangent at the rates at which it acts.

    The rate is u_n for a limit or a sticking contact; the impulse of a sliding contact depends on
    u_n - mu (|z_t| - mu p_n) / slope_t, which is solved for p_n.
    """
    ne, singles, nc = program.num_equalities, program.num_equalities + program.num_limits, program.mu.shape[0]
    heads = slice(ne, singles + nc)
    slope = jnp.broadcast_to(slope, z.shape)
    rate, linear, stiff = u[heads], z[heads], slope[heads]
    at = rate
    if nc and program.bound is None and not program.coulomb:
        _, *tangent = split(z, singles, nc)
        sizes, _ = cones.directions(tangent, program.pyramid)
        slope_t = slope[singles + nc : singles + 2 * nc]
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


def gated(program: ConeProgram) -> jax.Array:
    """Mark the rows (nr,) whose gap is open at the start of the step."""
    if program.touch is None:
        return jnp.zeros(program.offset.shape, bool)
    heads = row_heads(program)
    return jnp.zeros(program.offset.shape, bool).at[heads].set(jnp.isfinite(program.touch))


def row_heads(program: ConeProgram) -> slice:
    """Return the slice of the rows of limits and normals."""
    ne = program.num_equalities
    return slice(ne, ne + program.num_limits + program.mu.shape[0])


def _gate(
    program: ConeProgram, z: jax.Array, u: jax.Array, p: jax.Array | None, solved: bool
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Compute z, slope and keep (nr,) of rows that push only if their gap closes within the step.

    The impulse is the smaller of the law's impulse and stop (touch - u), or p + stop (touch - u) where the
    impulses p (nr,) are known: a step that ends with a gap of zero has any impulse up to that of the law.
    """
    keep = jnp.broadcast_to(program.keep, z.shape)
    slope = jnp.broadcast_to(program.slope, z.shape)
    assert program.touch is not None and program.stop is not None
    heads = row_heads(program)
    opens = jnp.isfinite(program.touch)
    line = program.stop * (jnp.where(opens, program.touch, 0.0) - u[heads])
    excess = line - program.offset[heads] + slope[heads] * u[heads]
    held = opens & (excess < 0) & (z[heads] > 0)
    stopped, steep = z[heads] + excess, program.stop
    if p is not None:
        stopped = stopped + (1.0 - keep[heads]) * p[heads]
        if solved:
            stopped = jnp.where(p[heads] > 0, stopped - lax.stop_gradient(line), stopped)
        keep = keep.at[heads].set(jnp.where(held, 1.0, keep[heads]))
    if program.potential is not None:  # a gate must not remove its impulse
        steep = jnp.where(stopped > 0, steep, 0.0)
        stopped = jnp.maximum(stopped, 0.0)
    z = z.at[heads].set(jnp.where(held, stopped, z[heads]))
    return z, slope.at[heads].set(jnp.where(held, steep, slope[heads])), keep


def project_impulses(
    program: ConeProgram,
    z: jax.Array,
    u: jax.Array,
    impulses: jax.Array | None = None,
    solved: bool = False,
) -> Response:
    """Project z (nr,), taken at the rates u (nr,), on the impulses that each row can exert.

    With `impulses` (nr,) a contact may end at a gap of exactly zero; without, its gate gives way a little.
    `solved` takes the gap of such a contact for zero: what the search left of it is no impulse for friction.
    """
    equalities, singles = program.num_equalities, program.num_equalities + program.num_limits
    slope, keep = program.slope, program.keep
    if program.touch is not None:
        z, slope, keep = _gate(program, z, u, impulses, solved)
    if program.potential is not None:
        z, slope = _linearise(program, z, u, slope)
    held, give, pushes = z[:equalities], slope[:equalities], z[equalities:singles] > 0
    if program.dry_bound is not None:
        give = jnp.where(jnp.abs(held) < program.dry_bound, give, 0.0)
        held = jnp.clip(held, -program.dry_bound, program.dry_bound)
    p = [held, jnp.where(pushes, z[equalities:singles], 0.0)]
    scalar = jnp.concatenate([give, jnp.where(pushes, slope[equalities:singles], 0.0)])
    nc = program.mu.shape[0]
    if nc == 0:
        return Response(jnp.concatenate(p), slope, scalar, [], keep)
    normal, *tangent = split(z, singles, nc)
    slope_n, slope_t, *_ = split(slope, singles, nc)
    mu = jnp.broadcast_to(program.mu, normal.shape)
    if program.bound is None and not program.coulomb:
        contact_forces, block = cones.project_friction(normal, tangent, slope_n, slope_t, mu, program.pyramid)
    else:
        pushed, stiff = jnp.maximum(normal, 0.0), jnp.where(normal > 0, slope_n, 0.0)
        bound = mu * pushed if program.bound is None else jnp.broadcast_to(program.bound, normal.shape)
        rubbed, inner, along = cones.clip_friction(tangent, slope_t, bound)
        contact_forces = [pushed, *rubbed]
        zero = jnp.zeros_like(normal)
        coupling = [mu * a * stiff if program.coulomb else zero for a in along]
        block = [[stiff] + [zero] * len(tangent)] + [
            [c, *row] for c, row in zip(coupling, inner, strict=True)
        ]
    return Response(jnp.concatenate([*p, *contact_forces]), slope, scalar, block, keep)


def split(rows: jax.Array, singles: int, nc: int) -> list[jax.Array]:
    """Split off the rows (nc, ...) of the contacts: normals, first tangents[, second tangents]."""
    return [rows[at : at + nc] for at in range(singles, rows.shape[0], nc)]


def apply_slopes(response: Response, row: jax.Array) -> jax.Array:
    """Multiply S of a response by a vector (nr,)."""
    singles = response.scalar.shape[0]
    parts = [response.scalar * row[:singles]]
    if response.block:
        entries = split(row, singles, response.block[0][0].shape[0])
        parts += [
            sum((s * r for s, r in zip(line[1:], entries[1:], strict=True)), line[0] * entries[0])
            for line in response.block
        ]
    return jnp.concatenate(parts)


def along(response: Response, row: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Compute the sums p . r and r . S r of a vector r (nr,) by parts, without a long vector."""
    singles = response.scalar.shape[0]
    single = row[:singles]
    pushed = jnp.sum(response.p[:singles] * single)
    bend = jnp.sum(response.scalar * single**2)
    if not response.block:
        return pushed, bend
    nc = response.block[0][0].shape[0]
    rates, forces = split(row, singles, nc), split(response.p, singles, nc)
    pushed = pushed + jnp.sum(sum(p * r for p, r in zip(forces, rates, strict=True)))
    pairs = zip(response.block, rates, strict=True)
    lines = [r * sum(s * t for s, t in zip(line, rates, strict=True)) for line, r in pairs]
    return pushed, bend + jnp.sum(sum(lines))


def hessian(program: ConeProgram, response: Response) -> jax.Array | BlockTridiagonal:
    """Compute the Hessian M + G^T S G (nv, nv)."""
    columns, M = program.columns, program.M
    if isinstance(columns, BodyRows):
        assert isinstance(M, Diagonal)
        return body_rows.hessian(M, columns, response.block)
    M, columns, response = _without_limits(program, response)
    total: jax.Array = lax.cond(compiles_one_world(), _add_in_groups, _add_rows, M, columns, response)
    return total


def _without_limits(program: ConeProgram, response: Response) -> tuple[jax.Array, jax.Array, Response]:
    """Return M, G^T and S; limits that move one velocity alone go from the rows to the diagonal of M."""
    columns, M = program.columns, program.M
    assert isinstance(columns, jax.Array) and isinstance(M, jax.Array)
    if program.limits_apart and program.num_limits:
        first, end = program.num_equalities, program.num_equalities + program.num_limits
        M = M + jnp.diag(columns[:, first:end] ** 2 @ response.scalar[first:])
        columns = jnp.concatenate([columns[:, :first], columns[:, end:]], axis=1)
        response = response._replace(scalar=response.scalar[:first])
    return M, columns, response


def _add_rows(M: jax.Array, columns: jax.Array, response: Response) -> jax.Array:
    """Compute M + G^T S G of all rows at once."""
    weighted = computed_once(jax.vmap(apply_slopes, (None, 0))(response, columns))
    return M + columns @ weighted.T


def _add_in_groups(M: jax.Array, columns: jax.Array, response: Response) -> jax.Array:
    """Compute M + G^T S G, without groups of contacts that are all open."""
    total = _add_singles(M, columns, response)
    if not response.block:
        return total
    size = max(tree_rows.GROUP, -(-response.block[0][0].shape[0] // MAX_GROUPS))
    return _add_contacts(total, columns, response.block, size)


def _add_singles(M: jax.Array, columns: jax.Array, response: Response) -> jax.Array:
    """Compute M + G^T S G of the rows before those of contacts."""
    singles = response.scalar.shape[0]
    return M + (columns[:, :singles] * response.scalar[None]) @ columns[:, :singles].T


def _add_contacts(total: jax.Array, columns: jax.Array, block: tree_rows.Block, size: int) -> jax.Array:
    """Compute total + G^T S G of contacts, `size` of them at a time."""

    def add(total: jax.Array, axes: list[jax.Array], S: list[list[jax.Array]]) -> jax.Array:
        for axis, line in zip(axes, S, strict=True):
            pairs = zip(line, axes, strict=True)
            total = total + axis.T @ sum((s[:, None] * g for s, g in pairs), jnp.zeros_like(axis))
        return total

    nc, axes = block[0][0].shape[0], len(block)
    rows = split(columns.T, columns.shape[1] - axes * nc, nc)
    return tree_rows.sum_over_contacts(add, total, rows, block, size)


def factor(program: ConeProgram, response: Response) -> branch_factor.Factor:
    """Factor the Hessian of a program with `coulomb=True`, which is not symmetric."""
    rows = program.tree_rows
    if rows is None or not response.block:
        matrix = hessian(program, response)
        assert isinstance(matrix, jax.Array)
        return branch_factor.factorise(matrix)

    def in_one_world(M: jax.Array, columns: jax.Array, response: Response) -> branch_factor.Factor:
        along_tree = tree_rows.add_contacts(_add_singles(M, columns, response), rows, response.block)
        if rows.pair is None:
            return branch_factor.factorise(along_tree)
        across = [[jnp.where(rows.pair, s, 0.0) for s in line] for line in response.block]

        def factor_with_pairs(matrix: jax.Array) -> branch_factor.Factor:
            return branch_factor.factorise(_add_contacts(matrix, columns, across, tree_rows.GROUP))

        meets = jnp.any(tree_rows.pushes(across))
        return lax.cond(meets, factor_with_pairs, branch_factor.factorise, along_tree)

    def otherwise(M: jax.Array, columns: jax.Array, response: Response) -> branch_factor.Factor:
        return branch_factor.factorise(_add_rows(M, columns, response))

    M, columns, response = _without_limits(program, response)
    return lax.cond(compiles_one_world(), in_one_world, otherwise, M, columns, response)


def residuals(
    program: ConeProgram, x: jax.Array, p: jax.Array, solved: bool = False
) -> tuple[jax.Array, jax.Array, Response]:
    """Compute M (x - v) - push - G^T p (nv,), p - P(z) (nr,) and the response P(z); see `project_impulses`.

    The first two are zero at the solution.
    """
    u = apply_rows(program.columns, x)
    law = program.keep * p + program.offset - program.slope * u
    response = project_impulses(program, law, u, p if program.coulomb else None, solved)
    momentum = multiply(program.M, x - program.v) - program.push - apply_columns(program.columns, p)
    return momentum, p - response.p, response


def solve_linearised(
    program: ConeProgram,
    response: Response,
    invert: Callable[[jax.Array], jax.Array],
    momentum: jax.Array,
    misfit: jax.Array,
    steps: int,
) -> tuple[jax.Array, jax.Array]:
    """Solve for (dx, dp) that make the linearised `residuals` cancel (momentum, misfit).

    M dx - G^T dp = -momentum and dp = J keep dp - S G dx - misfit with J = S / slope, by `steps`
    steps of the method of multipliers; `invert` applies the inverse of `hessian`. The
    increments are small, so no digits are lost to stiff springs.
    """
    slope = response.slope
    share = jnp.where(slope > 0, response.keep / jnp.where(slope > 0, slope, 1.0), 0.0)

    def solve(impulse: jax.Array) -> tuple[jax.Array, jax.Array]:
        dx = invert(apply_columns(program.columns, impulse) - momentum)
        return dx, impulse - apply_slopes(response, apply_rows(program.columns, dx))

    dx, dp = solve(-misfit)
    for _ in range(steps - 1):
        dx, dp = solve(apply_slopes(response, share * dp) - misfit)
    return dx, dp
