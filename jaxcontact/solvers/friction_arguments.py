"""Checks of the arguments of `jc.solve_friction`: `check_law`, `check_problem`."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from jaxcontact._pytree import PyTree

LAWS = ("coulomb", "associated")


Matrix = Any  # an array, a sparse one of SciPy, whose classes have no types, or a pair (mass matrix, rows)


def is_sparse(array: PyTree) -> bool:
    """Tell sparse arrays of SciPy, without loading it."""
    return hasattr(array, "tocsr")


def check_law(law: str | int, dim: int) -> None:
    """Raise ValueError for a law or a dimension that does not exist."""
    if dim not in (2, 3):
        raise ValueError(f"dim: expected 2 or 3, got {dim!r}")
    sides = isinstance(law, int) and not isinstance(law, bool)
    if not (law in LAWS if isinstance(law, str) else sides and law >= 4 and law % 2 == 0):
        raise ValueError(f"law: expected one of {LAWS} or an even number of sides >= 4, got {law!r}")


def check_problem(
    W: Matrix,
    q: PyTree,
    mu: float | jax.Array,
    dim: int,
    start: PyTree,
    on_host: bool,
) -> tuple[PyTree, ...]:
    """Check arguments; return W or (M, J), q, mu (nc,) and start as arrays of one dtype.

    Arrays of NumPy keep their dtype if all stay `on_host`; beside JAX's they get the one that JAX uses.
    """
    q = _as_floating("q", q, on_host)
    if q.ndim != 1 or q.shape[0] % dim:
        raise ValueError(f"q: expected shape (n,) with n a multiple of dim = {dim}, got {q.shape}")
    n, nc = q.shape[0], q.shape[0] // dim
    if isinstance(W, tuple | list):
        if len(W) != 2:
            raise ValueError(f"W: expected an array or a pair (M, J), got {len(W)} entries")
        mass, rows = (_as_floating(name, x, on_host, q.dtype) for name, x in zip("MJ", W, strict=True))
        if rows.ndim != 2 or rows.shape[0] != n:
            raise ValueError(f"J: expected shape ({n}, nv), got {rows.shape}")
        nv = rows.shape[1]
        if mass.shape not in ((nv,), (nv, nv)):
            raise ValueError(f"M: expected shape ({nv}, {nv}) or ({nv},), got {mass.shape}")
        matrix: Matrix = (mass, rows)
        _check_finite("M", mass)
        _check_finite("J", rows)
        _check_positive(mass)
    else:
        matrix = _as_floating("W", W, on_host, q.dtype)
        if matrix.shape != (n, n):
            raise ValueError(f"W: expected shape ({n}, {n}), got {matrix.shape}")
        _check_finite("W", matrix)
    _check_finite("q", q)
    if start is not None:
        start = _as_floating("start", start, on_host, q.dtype)
        if start.shape != (n,):
            raise ValueError(f"start: expected shape ({n},), got {start.shape}")
    return matrix, q, _check_friction(mu, nc, q.dtype), start


def _check_friction(mu: PyTree, nc: int, dtype: jax.typing.DTypeLike) -> jax.Array | np.ndarray:
    """Return the friction of all contacts (nc,)."""
    mu = mu.astype(dtype) if isinstance(mu, jax.Array) else np.asarray(mu, dtype)
    if mu.shape not in ((), (nc,)):
        raise ValueError(f"mu: expected a number or shape ({nc},), got {mu.shape}")
    _check_finite("mu", mu)
    if not isinstance(mu, jax.core.Tracer) and np.any(np.asarray(mu) < 0):
        raise ValueError(f"mu: expected numbers >= 0, got {float(np.min(np.asarray(mu))):g}")
    if mu.shape:
        return mu
    return mu * np.ones(nc, dtype)


def _check_positive(mass: Matrix) -> None:
    """Raise ValueError for a mass matrix whose diagonal is not positive, unless it is traced."""
    if isinstance(mass, jax.core.Tracer):
        return
    diagonal = mass.diagonal() if is_sparse(mass) else np.asarray(mass)
    diagonal = np.diagonal(diagonal) if diagonal.ndim == 2 else diagonal
    if diagonal.size and not diagonal.min() > 0:
        raise ValueError(f"M: expected a positive diagonal, got {float(diagonal.min()):g}")


def _check_finite(name: str, value: PyTree) -> None:
    """Raise ValueError for NaN or inf in an array that is not traced."""
    if isinstance(value, jax.core.Tracer):
        return
    # A sum is finite if all entries are, unless it overflows; then the entries decide.
    entries = value.data if is_sparse(value) else np.asarray(value)
    with np.errstate(all="ignore"):
        if not np.isfinite(entries.sum()) and not np.isfinite(entries).all():
            raise ValueError(f"{name}: expected finite numbers, got NaN or inf")


def _as_floating(
    name: str, value: PyTree, on_host: bool, dtype: jax.typing.DTypeLike | None = None
) -> Matrix:
    """Return an array, dense or sparse, of a floating dtype."""
    if is_sparse(value):
        array = value.tocsr()
    else:
        array = value if isinstance(value, jax.Array) else np.asarray(value)
    floating = array.dtype in (np.float64, np.float32) or jax.numpy.issubdtype(array.dtype, np.floating)
    if floating and not on_host and not isinstance(array, jax.Array):
        array = array.astype(jax.dtypes.canonicalize_dtype(array.dtype), copy=False)
    if not floating:
        raise TypeError(f"{name}: expected a floating dtype, got {array.dtype}")
    if dtype is not None and array.dtype != dtype:
        raise TypeError(f"{name}: expected dtype {dtype} as q has, got {array.dtype}")
    return array
