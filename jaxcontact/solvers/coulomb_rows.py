"""Coulomb's law of a `ConeProgram` relaxed by interior points, in its impulses: `relax_by_rows`.

With A = G M^-1 G^T the rates are u = A p + u0, and a row of compliance R asks for u + R p = o. Rows of either
sign are eliminated; each limit and dry joint is one more contact of `solve_coulomb`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from jaxcontact.algebra import implicit
from jaxcontact.batching.bounded_loop import bounded_loop
from jaxcontact.solvers.central_path import follow_central_path
from jaxcontact.solvers.cone_newton import ConeSolution
from jaxcontact.solvers.cone_program import ConeProgram

GATE_ITERS = 8  # times that the branch of contacts that close within the step is chosen
MOST_CONTACTS = 64  # of a program; of more, those that close most in free motion


def _choose_closing(program: ConeProgram, free: jax.Array) -> tuple[ConeProgram, jax.Array]:
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


# W (n, n), q (n,), mu (nc,), rows per contact, active (nc,) -> impulses (n,), solved, steps
ContactSolver = Callable[
    [jax.Array, jax.Array, jax.Array, int, jax.Array], tuple[jax.Array, jax.Array, jax.Array]
]


def relax_by_rows(
    program: ConeProgram, num_dry: int, smoothing: jax.Array, max_iters: int, early_exit: bool
) -> ConeSolution:
    """Find the point of the central path at `smoothing`, J, of a `coulomb=True` program without a potential.

    A limit or contact that closes within the step has one of two lines, that of its stop or of its spring,
    chosen until the choice repeats. Of more than `MOST_CONTACTS` contacts only those are seen. The last
    `num_dry` equality rows are dry joints.

    Derivative: of the relaxed equations on the lines chosen, by program and smoothing.
    """

    def solve_contacts(
        W: jax.Array, q: jax.Array, mu: jax.Array, dim: int, active: jax.Array, k: jax.Array
    ) -> tuple[jax.Array, jax.Array, jax.Array]:
        return follow_central_path(W, q, mu, k, dim=dim, active=active, limits=(max_iters, early_exit))

    fixed, at = jax.lax.stop_gradient((program, smoothing))
    found, stops, same = _ImpulseProgram(
        fixed, num_dry, functools.partial(solve_contacts, k=at)
    ).choose_lines(early_exit)
    solved = _ImpulseProgram(program, num_dry, functools.partial(solve_contacts, k=smoothing)).solve(stops)
    return solved.replace(iterations=found.iterations, converged=found.converged & same)


class _ImpulseProgram:
    """A program in its impulses: rates u = A p + u0, and the line of every row."""

    def __init__(self, program: ConeProgram, num_dry: int, solve_contacts: ContactSolver) -> None:
        assert isinstance(program.M, jax.Array) and isinstance(program.columns, jax.Array)
        self.count, self.num_dry, self.solve_contacts = program.offset.shape[0], num_dry, solve_contacts
        vectors = jnp.concatenate([program.columns, program.push[:, None]], axis=1)
        solved = implicit.solve_spd(program.M, vectors)
        response, self.free = solved[:, :-1], program.v + solved[:, -1]
        self.rows = jnp.arange(self.count)
        if program.mu.shape[0] > MOST_CONTACTS:
            program, self.rows = _choose_closing(program, self.free)
            response = response[:, self.rows]
        assert isinstance(program.columns, jax.Array)
        self.program, self.response = program, response
        self.A, self.u0 = program.columns.T @ response, program.columns.T @ self.free
        first = program.num_equalities
        self.heads = slice(first, first + program.num_limits + program.mu.shape[0])
        soft = program.slope > 0
        slope = jnp.where(soft, program.slope, 1.0)
        # A row asks for u + compliance p = aim; a limit or contact that closes for the larger u of two lines.
        self.lines = (
            jnp.where(soft, (1.0 - program.keep) / slope, 0.0),
            jnp.where(soft, program.offset / slope, 0.0),
        )
        if program.touch is not None and program.stop is not None:
            opens = jnp.isfinite(program.touch)
            self.stop_lines = (
                (1.0 - program.keep[self.heads]) / program.stop,
                jnp.where(opens, program.touch, 0.0),
            )

    def solve(self, stops: jax.Array) -> ConeSolution:
        """Solve the program with the limits and contacts `stops` (nu,) on the lines of their stops."""
        program, heads = self.program, self.heads
        compliance, aim = self.lines
        if program.touch is not None:
            at_stop, touch = self.stop_lines
            compliance = compliance.at[heads].set(jnp.where(stops, at_stop, compliance[heads]))
            aim = aim.at[heads].set(jnp.where(stops, touch, aim[heads]))
        matrix, rates = self.A + jnp.diag(compliance), self.u0 - aim
        p, solved, steps = _solve_contacts(program, self.num_dry, matrix, rates, self.solve_contacts)
        every = jnp.zeros(self.count, p.dtype).at[self.rows].set(p)
        return ConeSolution(x=self.free + self.response @ p, p=every, iterations=steps, converged=solved)

    def choose_lines(self, early_exit: bool) -> tuple[ConeSolution, jax.Array, jax.Array]:
        """Return the solution, the lines (nu,) chosen, and whether the choice repeats."""
        program, heads = self.program, self.heads
        opens = jnp.zeros(0, bool) if program.touch is None else jnp.isfinite(program.touch)

        def choose(found: ConeSolution) -> jax.Array:
            p, (compliance, aim), (at_stop, touch) = found.p[self.rows][heads], self.lines, self.stop_lines
            return opens & (touch - at_stop * p < aim[heads] - compliance[heads] * p)

        def again(carry: tuple) -> tuple:
            k, stops, _, last, _ = carry
            found = self.solve(stops)
            chosen = stops if program.touch is None else choose(found)
            found = found.replace(iterations=last.iterations + found.iterations)
            return k + 1, chosen, stops, found, jnp.all(chosen == stops)

        none, zero = jnp.asarray(False), jnp.int32(0)
        start = ConeSolution(
            x=jnp.zeros_like(self.free),
            p=jnp.zeros_like(self.u0, shape=self.count),
            iterations=zero,
            converged=none,
        )
        _, _, stops, found, same = bounded_loop(
            lambda c: (c[0] < GATE_ITERS) & ~c[4],
            again,
            (zero, opens, opens, start, none),
            max_iters=GATE_ITERS,
            early_exit=early_exit,
        )
        return found, stops, same


def _solve_contacts(
    program: ConeProgram, num_dry: int, A: jax.Array, q: jax.Array, solve: ContactSolver
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Compute impulses (nr,) for which A p + q is zero on equality rows and obeys the law on the others."""
    nr, ne, nl, nc = q.shape[0], program.num_equalities, program.num_limits, program.mu.shape[0]
    held = ne - num_dry
    dim = (nr - ne - nl) // nc
    inverse = implicit.solve_spd(A[:held, :held], jnp.eye(held, dtype=A.dtype)) if held else A[:0, :0]
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
    impulse, solved, steps = solve(W, rates, mu.astype(rates.dtype), dim, active)
    pushed = jnp.zeros(rest + 1, impulse.dtype).at[order].set(impulse)[:rest]
    holding = -inverse @ (q[:held] + A[:held, held:] @ pushed)
    return jnp.concatenate([holding, pushed]), solved, steps
