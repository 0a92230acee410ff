"""Friction problems of the user's own mechanics: `solve_friction`, with its checks and laws.

Page: docs/methods/friction.md.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxcontact.algebra import implicit
from jaxcontact.arguments import is_concrete
from jaxcontact.precision import jit
from jaxcontact.solvers.friction_directions import solve_directions
from jaxcontact.solvers.friction_newton import FrictionInfo, solve_coulomb
from jaxcontact.solvers.friction_search import ASSOCIATED, COULOMB, COULOMB_NEWTON, CoulombNewton

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
        q: (n,) velocities without impulses.
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
        ValueError: shapes that do not fit, an unknown law; outside of jit also NaN, inf, negative friction.

    Status: MAX_ITERS if the residual is above the tolerance, and inside jit NONFINITE and INVALID for bad
        numbers.

    Numbers: Outside of jit sizes are padded, so that a few more contacts do not compile again.

    Derivative: of the law in the modes at the solution, by W or (M, J), q and mu, any order, forward and
        reverse; at a change of mode that of rest and of sticking. If contacts are redundant, velocities have
        the derivative of any solution, and impulses the change of minimum norm, in units of the mobility of
        their rows. For a cone of k sides it is that of the mode of Lemke's method.

    >>> W, q = jnp.eye(3) / 2.0, jnp.array([-1.0, 3.0, 4.0])
    >>> (r, u), info = solve_friction(W, q, 0.5)
    >>> [round(float(x), 4) for x in r], [round(float(x), 4) for x in u]
    ([2.0, -0.6, -0.8], [0.0, 2.7, 3.6])
    """
    matrix, q, friction, start = _check(W, q, mu, dim, law, start)
    nc = friction.shape[0]
    if nc == 0:
        zero = jnp.zeros((), q.dtype)
        q = jnp.asarray(q)
        return FrictionSolution(q, q), FrictionInfo(
            status=jnp.uint32(0), residual=zero, num_iters=jnp.int32(0)
        )
    law = "coulomb" if dim == 2 and isinstance(law, int) else law
    if is_concrete(matrix, q, friction, start) and not isinstance(law, int):
        matrix, q, friction, start = _pad(matrix, q, friction, start, dim)
    active = np.arange(friction.shape[0]) < nc
    r, u, info = _solve(matrix, q, friction, start, active, dim, law, settings)
    return FrictionSolution(r[: nc * dim], u[: nc * dim]), info


@functools.partial(jit, static_argnames=("dim", "law", "settings"))
def _solve(
    W: Any,
    q: jax.Array,
    mu: jax.Array,
    start: jax.Array | None,
    active: jax.Array,
    dim: int,
    law: str | int,
    settings: CoulombNewton,
) -> tuple[jax.Array, jax.Array, FrictionInfo]:
    if isinstance(W, tuple):
        mass, rows = W
        response = rows.T / mass[:, None] if mass.ndim == 1 else implicit.solve_spd(mass, rows.T)
        W = rows @ response
    if isinstance(law, int):
        r, info = solve_directions(W, q, mu, law)
    else:
        r, info = solve_coulomb(
            W, q, mu, dim=dim, start=start, active=active, settings=settings, law=LAWS[law]
        )
    return r, W @ r + q, info


def padded_count(nc: int) -> int:
    """Choose a number of contacts >= nc: up to four, then in steps of a quarter of a power of two."""
    if nc <= 4:
        return nc
    step = 2 ** ((nc - 1).bit_length() - 3)
    return -(-nc // step) * step


def _pad(W: Any, q: Any, mu: Any, start: Any, dim: int) -> tuple[Any, ...]:
    """Pad a problem with contacts without motion, so that a few sizes serve all."""
    more = padded_count(mu.shape[0]) - mu.shape[0]
    rows = (0, more * dim)

    def pad(array: Any, widths: Any) -> Any:
        return np.pad(array, widths) if isinstance(array, np.ndarray) else jnp.pad(array, widths)

    if more == 0:
        return W, q, mu, start
    padded = (W[0], pad(W[1], (rows, (0, 0)))) if isinstance(W, tuple) else pad(W, (rows, rows))
    return padded, pad(q, (rows,)), pad(mu, ((0, more),)), None if start is None else pad(start, (rows,))


def _check(W: Any, q: Any, mu: Any, dim: int, law: str | int, start: Any) -> tuple[Any, ...]:
    """Check arguments and return them as arrays of one dtype."""
    if dim not in (2, 3):
        raise ValueError(f"dim: expected 2 or 3, got {dim!r}")
    sides = isinstance(law, int) and not isinstance(law, bool)
    if not (law in LAWS if isinstance(law, str) else sides and law >= 4 and law % 2 == 0):
        raise ValueError(f"law: expected one of {tuple(LAWS)} or an even number of sides >= 4, got {law!r}")
    q = _as_floating("q", q)
    if q.ndim != 1 or q.shape[0] % dim:
        raise ValueError(f"q: expected shape (n,) with n a multiple of dim = {dim}, got {q.shape}")
    n, nc = q.shape[0], q.shape[0] // dim
    if isinstance(W, tuple | list):
        if len(W) != 2:
            raise ValueError(f"W: expected an array or a pair (M, J), got {len(W)} entries")
        mass, rows = _as_floating("M", W[0], q.dtype), _as_floating("J", W[1], q.dtype)
        if rows.ndim != 2 or rows.shape[0] != n:
            raise ValueError(f"J: expected shape ({n}, nv), got {rows.shape}")
        if mass.shape not in ((rows.shape[1],), (rows.shape[1],) * 2):
            nv = rows.shape[1]
            raise ValueError(f"M: expected shape ({nv}, {nv}) or ({nv},), got {mass.shape}")
        matrix: Any = (mass, rows)
    else:
        matrix = _as_floating("W", W, q.dtype)
        if matrix.shape != (n, n):
            raise ValueError(f"W: expected shape ({n}, {n}), got {matrix.shape}")
    mu = jnp.asarray(mu, q.dtype) if isinstance(mu, jax.Array) else np.asarray(mu, q.dtype)
    if mu.shape not in ((), (nc,)):
        raise ValueError(f"mu: expected a number or shape ({nc},), got {mu.shape}")
    mu = jnp.broadcast_to(mu, (nc,)) if isinstance(mu, jax.Array) else np.broadcast_to(mu, (nc,))
    if start is not None:
        start = _as_floating("start", start, q.dtype)
        if start.shape != (n,):
            raise ValueError(f"start: expected shape ({n},), got {start.shape}")
    _check_numbers(matrix, q, mu)
    return matrix, q, mu, start


def _check_numbers(W: Any, q: jax.Array, mu: jax.Array) -> None:
    """Raise ValueError for bad numbers that are not traced."""
    pairs = zip(("M", "J"), W, strict=True) if isinstance(W, tuple) else [("W", W)]
    for name, value in (*pairs, ("q", q), ("mu", mu)):
        if is_concrete(value) and not np.all(np.isfinite(value)):
            raise ValueError(f"{name}: expected finite numbers, got NaN or inf")
    if is_concrete(mu) and np.any(np.asarray(mu) < 0):
        raise ValueError(f"mu: expected numbers >= 0, got {float(np.min(np.asarray(mu))):g}")


def _as_floating(name: str, value: Any, dtype: Any = None) -> jax.Array:
    array: Any = value
    if not isinstance(value, jax.Array):  # stays on the host before it is padded
        array = np.asarray(value)
        if jnp.issubdtype(array.dtype, jnp.floating):
            array = array.astype(jax.dtypes.canonicalize_dtype(array.dtype), copy=False)
    if not jnp.issubdtype(array.dtype, jnp.floating):
        raise TypeError(f"{name}: expected a floating dtype, got {array.dtype}")
    if dtype is not None and array.dtype != dtype:
        raise TypeError(f"{name}: expected dtype {dtype} as q has, got {array.dtype}")
    return array
