"""Friction problems of the user's own mechanics: `solve_friction`, with its checks and laws.

Page: docs/methods/friction.md.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, NamedTuple

import jax
import numpy as np

from jaxcontact._pytree import PyTree
from jaxcontact.algebra import implicit
from jaxcontact.arguments import is_concrete
from jaxcontact.front_door import checked
from jaxcontact.precision import jit
from jaxcontact.solvers.friction_arguments import Matrix, check_law, check_problem, is_sparse
from jaxcontact.solvers.friction_dense import TOLERANCE, DenseAnswer, solve_dense
from jaxcontact.solvers.friction_directions import solve_directions
from jaxcontact.solvers.friction_newton import FrictionInfo, solve_coulomb
from jaxcontact.solvers.friction_search import (
    ASSOCIATED,
    COULOMB,
    COULOMB_NEWTON,
    CoulombNewton,
    success_tolerance,
)
from jaxcontact.status import Status

if TYPE_CHECKING:
    from jaxtyping import Float

USEFUL_RESIDUAL = 1e-3  # residual from which impulses that were not good enough are a better start than none
NO_BITS = np.uint32(0)  # the status of a success
COUNTS = tuple(np.int32(k) for k in range(100))  # to make one takes 0.2 microseconds
LAWS = {"coulomb": COULOMB, "associated": ASSOCIATED}


class FrictionSolution(NamedTuple):
    """Impulses r (n,), N s, and velocities u = W r + q (n,), m/s, contact-major."""

    impulses: jax.Array
    velocities: jax.Array


def solve_friction(
    W: jax.Array | tuple[jax.Array, jax.Array],
    q: jax.Array,
    mu: jax.Array | float,
    *,
    dim: int = 3,
    law: str | int = "coulomb",
    start: jax.Array | None = None,
    settings: CoulombNewton = COULOMB_NEWTON,
) -> tuple[FrictionSolution, FrictionInfo]:
    """Solve for the impulses r of contacts with friction, whose velocities are u = W r + q.

    Rows are contact-major, (n, t1[, t2]) of each contact. The laws, per contact:

    - "coulomb": 0 <= r_n, u_n >= 0, r_n u_n = 0, |r_t| <= mu r_n, and r_t opposes u_t with all of mu r_n
      unless u_t = 0. There may be several solutions, or none.
    - "associated": r in the friction cone, u in its dual cone, r . u = 0. Convex: the velocities are unique,
      but a contact that slides lifts at mu |u_t|.
    - an even number k >= 4: Coulomb's law with a cone of k sides in space, by Lemke's method on (k + 2) nc
      rows. In the plane every number is "coulomb".

    Args:
        W: (n, n) velocities per impulse, symmetric or not, of any rank, kg^-1; or (M, J) with the mass matrix
            M (nv, nv), or its diagonal (nv,), and the rows J (n, nv), for W = J M^-1 J^T.
        q: (n,) velocities without impulses. NumPy arrays q, mu, start may have a first axis of problems that
            use all cores, beside a W of each or one for all; JAX's have `vmap`.
        mu: (nc,) or one number, friction >= 0.
        dim: rows per contact, 2 in the plane, 3 in space.
        law: see above.
        start: (n,) impulses to start from; None if nothing is known.
        settings: limits of the search.

    Returns:
        FrictionSolution(impulses, velocities) and FrictionInfo, whose `residual` is the natural map of the
        law in the user's units.

    Raises:
        TypeError: an array that is not of a floating dtype, or of another dtype than q.
        ValueError: shapes that do not fit, an unknown law; outside of jit also NaN, inf, negative friction, a
            mass matrix that is not regular.

    Status: MAX_ITERS if the residual is above the tolerance, and inside jit NONFINITE and INVALID for bad
        numbers.

    Derivative: of the law in the modes at the solution, by W or (M, J), q and mu, any order, forward and
        reverse; at a change of mode that of rest and of sticking. If contacts are redundant, velocities have
        the derivative of any solution, and impulses the change of minimum norm, in units of the mobility of
        their rows. For a cone of k sides it is that of the mode of Lemke's method.

    >>> W, q = np.eye(3) / 2.0, np.array([-1.0, 3.0, 4.0])
    >>> (r, u), info = solve_friction(W, q, 0.5)
    >>> [round(float(x), 4) for x in r], [round(float(x), 4) for x in u]
    ([2.0, -0.6, -0.8], [0.0, 2.7, 3.6])
    """
    by_code = law == "coulomb" and (settings is COULOMB_NEWTON or settings == COULOMB_NEWTON)
    answer = solve_dense(W, q, mu, dim, start) if by_code else None
    if answer is not None and answer.is_solved:
        r, u, steps, residual = answer
        solved: PyTree = FrictionSolution(r, u)  # type: ignore[arg-type]
        return solved, _report(0 * steps, residual, steps)
    if isinstance(q, np.ndarray) and q.ndim == 2:
        return _solve_one_by_one(W, q, mu, dim, law, start, settings, answer)
    if answer is not None and answer.residual <= USEFUL_RESIDUAL:
        start = answer.r  # type: ignore[assignment]
    return _solve_checked(W, q, mu, dim=dim, law=law, start=start, settings=settings, by_code=answer is None)


@checked()
def _solve_checked(
    W: jax.Array | tuple[jax.Array, jax.Array],
    q: Float[jax.Array, " n"],
    mu: jax.Array | float,
    *,
    dim: int,
    law: str | int,
    start: jax.Array | None,
    settings: CoulombNewton,
    by_code: bool,
) -> tuple[FrictionSolution, FrictionInfo]:
    """Check the arguments of `solve_friction`; solve traced, by sides, or on the host."""
    on_host = not any(isinstance(x, jax.Array) for x in (*_as_tuple(W), q, mu, start))
    check_law(law, dim)
    matrix, q, friction, start = check_problem(W, q, mu, dim, start, on_host)
    nc = friction.shape[0]
    if nc == 0:
        return FrictionSolution(q, q), _report(0, q.dtype.type(0), 0)
    law = "coulomb" if dim == 2 and isinstance(law, int) else law
    if isinstance(law, int) or not is_concrete(matrix, q, friction, start):
        matrix = _as_dense(matrix, isinstance(law, int))
        active = np.ones(nc, bool)
        r, u, info = _solve_traced(matrix, q, friction, start, active, law, settings)
        return FrictionSolution(r, u), info
    by_code = by_code and law == "coulomb" and settings == COULOMB_NEWTON
    solution, info = _solve_on_host(matrix, q, friction, start, dim, law, settings, by_code)
    return (solution, info) if on_host else jax.device_put((solution, info))


def _solve_on_host(
    W: Matrix,
    q: PyTree,
    mu: PyTree,
    start: PyTree,
    dim: int,
    law: str,
    settings: CoulombNewton,
    by_code: bool,
) -> tuple[FrictionSolution, FrictionInfo]:
    """Solve in double precision by machine code or by NumPy, and judge the answer in the precision of q."""
    from jaxcontact.solvers.friction_host import HOST_LAWS, MAX_ITERS, judge, solve_on_host  # loads SciPy
    from jaxcontact.solvers.friction_matrix import delassus_matrix

    dtype = q.dtype
    tolerance = success_tolerance(dtype) if settings.tolerance is None else settings.tolerance
    limit = settings.max_iters or MAX_ITERS
    pair = isinstance(W, tuple)
    try:
        matrix = delassus_matrix(*(_as_double(x) for x in W)) if pair else _as_double(W)
    except (np.linalg.LinAlgError, RuntimeError) as trouble:
        raise ValueError(f"M: expected a positive definite matrix: {trouble}") from trouble
    q, mu, start = (None if x is None else _as_double(x) for x in (q, mu, start))
    quick = solve_dense(matrix, q, mu, dim, start) if by_code else None
    answer: PyTree = quick
    if quick is None or not quick.is_solved:
        answer = solve_on_host(matrix, q, mu, dim, start, HOST_LAWS[law], limit, tolerance)
    r, u, residual = answer.r.astype(dtype, copy=False), answer.u.astype(dtype, copy=False), answer.residual
    if dtype.itemsize < 8:
        residual = judge(matrix, q, mu, dim, HOST_LAWS[law], r.astype(float))
    bits = (not residual <= tolerance) * Status.MAX_ITERS | (not np.isfinite(r).all()) * Status.NONFINITE
    solution: PyTree = FrictionSolution(r, u)
    return solution, _report(bits, dtype.type(residual), answer.steps)


def _solve_one_by_one(
    W: Matrix, q: np.ndarray, mu: PyTree, dim: int, law: str | int, start: PyTree, settings: CoulombNewton,
    answer: DenseAnswer | None,
) -> tuple[FrictionSolution, FrictionInfo]:  # fmt: skip
    """Solve the problems of a batch of NumPy arrays that `answer` leaves, one after the other."""
    n = q.shape[1]
    if not isinstance(W, np.ndarray) or W.shape not in ((*q.shape, n), (n, n)):
        raise ValueError(
            f"W: expected shape {(*q.shape, n)} or {(n, n)} beside q of shape {q.shape}, got {np.shape(W)}"
        )
    if (np.ndim(mu) == 2 and len(mu) != len(q)) or (start is not None and np.shape(start) != q.shape):
        raise ValueError(
            f"mu, start: expected a first axis of {len(q)}, got {np.shape(mu)} and {np.shape(start)}"
        )

    def solve(k: int) -> PyTree:
        if answer is not None and answer.residual[k] <= TOLERANCE:
            solution: PyTree = (answer.r[k], answer.u[k])
            return FrictionSolution(*solution), _report(0, answer.residual[k], answer.steps[k])
        matrix: Matrix = W[k] if W.ndim == 3 else W
        friction = mu[k] if np.ndim(mu) == 2 else mu
        first = None if start is None else start[k]
        return solve_friction(matrix, q[k], friction, dim=dim, law=law, start=first, settings=settings)

    batch: PyTree = jax.tree.map(lambda *rows: np.stack(rows), *map(solve, range(len(q))))
    return batch


def _report(bits: PyTree, residual: PyTree, steps: PyTree) -> FrictionInfo:
    """Make the record without its constructor, which takes as long as a problem of one contact."""
    info = object.__new__(FrictionInfo)
    fields = info.__dict__
    fields["status"] = NO_BITS if type(bits) is int and not bits else np.uint32(bits)
    fields["residual"] = np.float64(residual) if type(residual) is float else residual
    fields["num_iters"] = COUNTS[steps] if type(steps) is int and steps < len(COUNTS) else np.int32(steps)
    return info


def _as_double(x: Matrix) -> Matrix:
    return x.astype(float) if is_sparse(x) else np.asarray(x, float)


def _as_tuple(W: Matrix) -> tuple[Matrix, ...]:
    return tuple(W) if isinstance(W, tuple | list) else (W,)


def _as_dense(W: Matrix, by_sides: bool) -> Matrix:
    """Replace sparse arrays for a method on arrays."""
    arrays = _as_tuple(W)
    if any(is_sparse(x) for x in arrays):
        if not by_sides:
            raise TypeError("W: expected arrays inside jit, got a sparse array of SciPy")
        arrays = tuple(x.toarray() if is_sparse(x) else x for x in arrays)
    return arrays if isinstance(W, tuple) else arrays[0]


@functools.partial(jit, static_argnames=("law", "settings"))
def _solve_traced(
    W: Matrix,
    q: jax.Array,
    mu: jax.Array,
    start: jax.Array | None,
    active: jax.Array,
    law: str | int,
    settings: CoulombNewton,
) -> tuple[jax.Array, jax.Array, FrictionInfo]:
    """Solve a checked problem in JAX; return impulses and velocities (n,), and the info."""
    if isinstance(W, tuple):
        mass, rows = W
        response = rows.T / mass[:, None] if mass.ndim == 1 else implicit.solve_spd(mass, rows.T)
        W = rows @ response
    if isinstance(law, int):
        r, info = solve_directions(W, q, mu, law)
    else:
        r, info = solve_coulomb(W, q, mu, start=start, active=active, settings=settings, law=LAWS[law])
    return r, W @ r + q, info
