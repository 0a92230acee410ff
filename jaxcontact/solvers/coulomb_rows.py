"""Coulomb's law of a `ConeProgram` by interior points, in its impulses: `solve_by_rows`.

With A = G M^-1 G^T the rates are u = A p + u0, and a row of compliance R asks for u + R p = o. Rows of either
sign are eliminated; each limit and dry joint is one more contact of `solve_coulomb`.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from jaxcontact.algebra import implicit, small_dense
from jaxcontact.batching.bounded_loop import bounded_loop
from jaxcontact.solvers.cone_newton import ConeSolution
from jaxcontact.solvers.cone_program import ConeProgram
from jaxcontact.solvers.friction_newton import CoulombNewton, solve_coulomb

GATE_ITERS = 8  # times that the branch of contacts that close within the step is chosen
MOST_CONTACTS = 64  # of a program; of more, those that close most in free motion


def _nearest(program: ConeProgram, free: jax.Array) -> tuple[ConeProgram, jax.Array]:
    """Choose the contacts that close most in free motion; return their program and the places of its rows."""
    assert isinstance(program.columns, jax.Array)
    nc, singles = program.mu.shape[0], program.num_equalities + program.num_limits
    axes = (program.offset.shape[0] - singles) // nc
    heads = slice(singles, singles + nc)
    asked = program.offset[heads] - program.slope[heads] * (free @ program.columns[:, heads])
    if program.touch is not None and program.stop is not None:
        gates = slice(program.num_limits, program.num_limits + nc)
        opens = jnp.isfinite(program.touch[gates])
        closing = jnp.where(opens, program.touch[gates], 0.0) - free @ program.columns[:, heads]
        asked = jnp.where(opens, jnp.minimum(asked, program.stop[gates] * closing), asked)
    _, chosen = jax.lax.top_k(asked, MOST_CONTACTS)
    rows = jnp.concatenate([jnp.arange(singles), *[singles + k * nc + chosen for k in range(axes)]])
    heads_chosen = jnp.concatenate([jnp.arange(program.num_limits), program.num_limits + chosen])
    gate = {} if program.touch is None or program.stop is None else {
        "touch": program.touch[heads_chosen], "stop": program.stop[heads_chosen],
    }  # fmt: skip
    return program.replace(
        columns=program.columns[:, rows], offset=program.offset[rows], slope=program.slope[rows],
        keep=program.keep[rows], mu=jnp.broadcast_to(program.mu, (nc,))[chosen], **gate,
    ), rows  # fmt: skip


def solve_by_rows(program: ConeProgram, num_dry: int, max_iters: int, early_exit: bool) -> ConeSolution:
    """Solve a program with `coulomb=True` and no potential by interior points, from the data alone.

    A limit or contact that closes within the step has one of two lines, that of its stop or of its spring,
    chosen until the choice repeats. Of more than `MOST_CONTACTS` contacts only those are seen. The last
    `num_dry` equality rows are dry joints.

    Derivative: none.
    """
    assert isinstance(program.M, jax.Array) and isinstance(program.columns, jax.Array)
    count = program.offset.shape[0]
    solved = implicit.solve_spd(program.M, jnp.concatenate([program.columns, program.push[:, None]], axis=1))
    response, free = solved[:, :-1], program.v + solved[:, -1]
    rows = jnp.arange(count)
    if program.mu.shape[0] > MOST_CONTACTS:
        program, rows = _nearest(program, free)
        response = response[:, rows]
    assert isinstance(program.columns, jax.Array)
    A, u0 = program.columns.T @ response, program.columns.T @ free
    soft = program.slope > 0
    slope = jnp.where(soft, program.slope, 1.0)
    compliance = jnp.where(soft, (1.0 - program.keep) / slope, 0.0)
    aim = jnp.where(soft, program.offset / slope, 0.0)
    first = program.num_equalities
    heads = slice(first, first + program.num_limits + program.mu.shape[0])
    settings = CoulombNewton(max_iters=max_iters, early_exit=early_exit)

    def solve(stops: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
        R, o = compliance, aim
        if program.touch is not None and program.stop is not None:
            at_stop = (1.0 - program.keep[heads]) / program.stop
            R = R.at[heads].set(jnp.where(stops, at_stop, R[heads]))
            o = o.at[heads].set(jnp.where(stops, program.touch, o[heads]))
        p, info = _solve_contacts(program, num_dry, A + jnp.diag(R), u0 - o, settings)
        return p, info.num_iters, info.status == 0

    opens = jnp.zeros(0, bool) if program.touch is None else jnp.isfinite(program.touch)

    def choose(p: jax.Array) -> jax.Array:
        assert program.touch is not None and program.stop is not None
        u = (A @ p + u0)[heads]
        stop = program.stop * (jnp.where(opens, program.touch, 0.0) - u)
        return opens & (stop < program.offset[heads] - program.slope[heads] * u)

    def again(carry: tuple) -> tuple:
        k, stops, _, used, _, _ = carry
        p, steps, found = solve(stops)
        chosen = stops if program.touch is None else choose(p)
        return k + 1, chosen, p, used + steps, found, jnp.all(chosen == stops)

    begin = (jnp.int32(0), opens, jnp.zeros_like(u0), jnp.int32(0), jnp.asarray(False), jnp.asarray(False))
    _, _, p, used, found, same = bounded_loop(
        lambda c: (c[0] < GATE_ITERS) & ~c[5], again, begin, max_iters=GATE_ITERS, early_exit=early_exit
    )
    every = jnp.zeros(count, p.dtype).at[rows].set(p)
    return ConeSolution(x=free + response @ p, p=every, iterations=used, converged=found & same)


def _solve_contacts(
    program: ConeProgram, num_dry: int, A: jax.Array, q: jax.Array, settings: CoulombNewton
) -> tuple:
    """Compute impulses (nr,) for which A p + q is zero on equality rows and obeys the law on the others."""
    nr, ne, nl, nc = q.shape[0], program.num_equalities, program.num_limits, program.mu.shape[0]
    held = ne - num_dry
    dim = (nr - ne - nl) // nc
    inverse, _ = small_dense.spd_inverse(A[:held, :held])
    through = A[held:, :held] @ inverse
    W, rates = A[held:, held:] - through @ A[:held, held:], q[held:] - through @ q[:held]
    # One contact for each limit, without friction, and for each dry joint, whose normal impulse is its bound.
    rest, first = nr - held, num_dry + nl
    lines = np.full((num_dry + nl + nc, dim), rest)
    lines[:num_dry, 1] = np.arange(num_dry)
    lines[num_dry:first, 0] = num_dry + np.arange(nl)
    lines[first:] = first + np.arange(nc)[:, None] + nc * np.arange(dim)
    order = lines.ravel()
    W = jnp.pad(W, ((0, 1), (0, 1)))[order][:, order]
    rates = jnp.append(rates, 0.0)[order]
    mu = jnp.concatenate([jnp.ones(num_dry), jnp.zeros(nl), jnp.broadcast_to(program.mu, (nc,))])
    if num_dry:
        assert program.dry_bound is not None
        bounds = np.arange(num_dry) * dim
        W, rates = W.at[bounds, bounds].set(1.0), rates.at[bounds].set(-program.dry_bound[held:])
    springs = program.slope[ne : ne + nl + nc] > 0
    active = jnp.concatenate([jnp.ones(num_dry, bool), springs])
    impulse, info = solve_coulomb(W, rates, mu.astype(rates.dtype), dim=dim, active=active, settings=settings)
    pushed = jnp.zeros(rest + 1, impulse.dtype).at[order].set(impulse)[:rest]
    holding = -inverse @ (q[:held] + A[:held, held:] @ pushed)
    return jnp.concatenate([holding, pushed]), info
