"""Friction problems in files: the text of Siconos, and the HDF5 of FCLIB.

Entries: `load_friction_problem`, `save_friction_problem`. Page: docs/methods/friction.md.
"""

from __future__ import annotations

import io
import os
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, BinaryIO, NamedTuple

import numpy as np

from jaxcontact._pytree import PyTree
from jaxcontact.arguments import check_not_empty, check_not_negative, check_number
from jaxcontact.front_door import checked
from jaxcontact.io.atomic_files import replace_file

HDF5_SUFFIXES = (".hdf5", ".h5")
DENSE, BLOCKS, SPARSE = range(3)  # storage types of a matrix in Siconos


class FrictionProblem(NamedTuple):
    """The arguments of `jc.solve_friction`.

    Attributes:
        W: (n, n) velocities per impulse, or (M, J) with W = J M^-1 J^T.
        q: (n,) velocities without impulses.
        mu: (nc,) friction.
        dim: rows per contact, 2 or 3.
    """

    W: PyTree
    q: np.ndarray
    mu: np.ndarray
    dim: int


@checked()
def load_friction_problem(path: str | os.PathLike[str]) -> FrictionProblem:
    """Read a friction problem that Siconos or FCLIB wrote, or `save_friction_problem`.

    Args:
        path: of the file; `.hdf5` and `.h5` are FCLIB's (local or global, without bilateral constraints, by
            `h5py`), all others Siconos' text (dense, by blocks or sparse; FrictionContact or
            GlobalFrictionContact).

    Returns:
        The problem; a global one M v = f + H r, u = H^T v + w has (M, H^T) and q = H^T M^-1 f + w.

    Raises:
        ValueError: the file is not such a problem.
        ModuleNotFoundError: `h5py` is missing.
    """
    if Path(path).suffix.lower() in HDF5_SUFFIXES:
        return _load_fclib(path)
    try:
        return _parse_text(Path(path).read_text().split())
    except (IndexError, ValueError, StopIteration) as trouble:
        raise ValueError(
            f"{path}: expected a friction problem in Siconos' text format: {trouble}"
        ) from trouble


def _check_matrices(name: str, value: object) -> None:
    """Raise TypeError or ValueError unless W is a matrix of finite numbers or a pair (M, J) of them."""
    for matrix in value if isinstance(value, tuple | list) else [value]:
        check_number(name, matrix)


@checked(W=_check_matrices, q=(check_number, check_not_empty), mu=check_not_negative)
def save_friction_problem(
    path: str | os.PathLike[str], W: PyTree, q: PyTree, mu: PyTree, *, dim: int = 3, title: str = ""
) -> None:
    """Write a friction problem as Siconos and FCLIB read it; the file is complete or not written at all.

    Args:
        path: of the file; its suffix decides on the format, see `load_friction_problem`.
        W: (n, n), or (M, J) with M (nv, nv) or its diagonal (nv,), of which the file has both.
        q: (n,).
        mu: (nc,) or a number.
        dim: rows per contact.
        title: for FCLIB.

    Raises:
        ValueError: shapes that do not fit.
        ModuleNotFoundError: `h5py` is missing for a file of FCLIB.
    """
    q = np.asarray(q, float)
    if dim not in (2, 3) or q.ndim != 1 or q.size % dim:
        raise ValueError(f"q: expected shape (n,) with n a multiple of dim = {dim}, got {q.shape}")
    mu = np.broadcast_to(np.asarray(mu, float), (q.size // dim,))
    matrices = [np.asarray(matrix, float) for matrix in (W if isinstance(W, tuple | list) else [W])]
    if len(matrices) == 2:
        mass, rows = matrices
        matrices = [np.diag(mass) if mass.ndim == 1 else mass, rows.T]
    columns = matrices[-1].shape[1:]
    if columns != (q.size,) or matrices[0].shape != (matrices[-1].shape[0],) * 2:
        shapes = ", ".join(str(matrix.shape) for matrix in matrices)
        raise ValueError(f"W: expected ({q.size}, {q.size}), or M and J to match q; got {shapes}")
    if Path(path).suffix.lower() in HDF5_SUFFIXES:
        _save_fclib(path, matrices, q, mu, dim, title)
        return
    lines = [f"{dim}", f"{mu.size}"]
    for matrix in matrices:
        m, n = matrix.shape
        lines += [str(DENSE), str(m), str(n), f"{m}\t{n}"]
        lines += [_numbers(matrix.T.reshape(m, n)[i]) for i in range(m)]  # by columns, n to a line
    if len(matrices) == 2:
        lines.append(_numbers(np.zeros(matrices[0].shape[0])))
    text = "\n".join([*lines, _numbers(q), _numbers(mu)]) + "\n"
    _write(path, text.encode())


def _write(path: str | os.PathLike[str], contents: bytes) -> None:
    def write(file: BinaryIO) -> None:
        file.write(contents)

    replace_file(path, write)


def _numbers(values: np.ndarray) -> str:
    return " ".join(f"{value:.17e}" for value in values)


def _condense(
    mass: np.ndarray, columns: np.ndarray, force: np.ndarray, bias: np.ndarray
) -> tuple[PyTree, PyTree]:
    """Turn M, H, f, w into (M, J) and q."""
    return (mass, columns.T), columns.T @ np.linalg.solve(mass, force) + bias


def _parse_text(tokens: list[str]) -> FrictionProblem:
    words = iter(tokens)
    dim, nc = int(next(words)), int(next(words))
    if dim not in (2, 3):
        raise ValueError(f"dimension 2 or 3, got {dim}")
    first = _parse_matrix(words)
    rest = list(words)
    n = dim * nc
    if first.shape == (n, n) and len(rest) in (
        n + nc,
        n + nc + 1,
    ):  # some files end with a count of no guesses
        values = np.array(rest[: n + nc], float)
        return FrictionProblem(first, values[:n], values[n:], dim)
    words = iter(rest)
    second = _parse_matrix(words)
    nv = first.shape[0]
    values = np.array(list(words)[: nv + n + nc], float)
    if second.shape != (nv, n) or values.size != nv + n + nc:
        raise ValueError(f"{nc} contacts with matrices {first.shape}, {second.shape}, {values.size} numbers")
    W, q = _condense(first, second, values[:nv], values[nv : nv + n])
    return FrictionProblem(W, q, values[nv + n :], dim)


def _parse_matrix(words: Iterator[str]) -> np.ndarray:
    """Read a NumericsMatrix of any storage type; return it dense (m, n)."""
    kind, m, n = (int(next(words)) for _ in range(3))
    if kind == DENSE:
        m, n = int(next(words)), int(next(words))
        return np.array([float(next(words)) for _ in range(m * n)]).reshape(n, m).T
    if kind == BLOCKS:
        return _parse_blocks(words, m, n)
    if kind == SPARSE:
        return _parse_sparse(words, m, n)
    raise ValueError(f"a matrix of storage type 0, 1 or 2, got {kind}")


def _parse_blocks(words: Iterator[str], m: int, n: int) -> np.ndarray:
    matrix = np.zeros((m, n))
    count = int(next(words))
    if count == 0:
        return matrix
    tall, wide = int(next(words)), int(next(words))
    ends = [[0, *(int(next(words)) for _ in range(size))] for size in (tall, wide)]
    lengths = int(next(words)), int(next(words))
    starts, places = ([int(next(words)) for _ in range(size)] for size in lengths)
    for row in range(len(starts) - 1):
        for block in range(starts[row], starts[row + 1]):
            column = places[block]
            i, j = (slice(end[k], end[k + 1]) for end, k in zip(ends, (row, column), strict=True))
            height, width = i.stop - i.start, j.stop - j.start
            values = np.array([float(next(words)) for _ in range(height * width)])
            matrix[i, j] = values.reshape(width, height).T
    return matrix


def _parse_sparse(words: Iterator[str], m: int, n: int) -> np.ndarray:
    """Read a matrix that CSparse printed, by columns or as triplets."""
    matrix = np.zeros((m, n))
    next(words)  # how it is stored
    before = ""
    for word in words:
        if "-by-" in word:
            break
        before = word
    found = {}
    for name in ("nzmax:", "nnz:"):
        if next(words) != name:
            raise ValueError(f"{name} in the head of a sparse matrix")
        found[name] = int(next(words).rstrip(","))
    if before == "triplet:":
        for _ in range(found["nnz:"]):
            i, j = int(next(words)), int(next(words))
            next(words)
            matrix[i, j] += float(next(words))
        return matrix
    next(words), next(words)  # 1-norm
    for column in range(n):
        head = [next(words) for _ in range(7)]  # col 0 : locations 0 to 2
        for _ in range(int(head[6]) - int(head[4]) + 1):
            i = int(next(words))
            next(words)
            matrix[i, column] = float(next(words))
    return matrix


def _import_hdf5() -> ModuleType:
    try:
        import h5py
    except ModuleNotFoundError as trouble:
        raise ModuleNotFoundError("files of FCLIB need h5py: pip install 'jaxcontact[fclib]'") from trouble
    return h5py


def _load_fclib(path: str | os.PathLike[str]) -> FrictionProblem:
    with _import_hdf5().File(path, "r") as file:
        form = next((name for name in ("fclib_local", "fclib_global") if name in file), None)
        if form is None:
            raise ValueError(f"{path}: expected a group fclib_local or fclib_global")
        group = file[form]
        extra = [name for name in ("G", "R", "V") if name in group]
        if extra:
            raise ValueError(f"{path}: expected no bilateral constraints, got {', '.join(extra)}")
        vectors = {name: np.asarray(values, float) for name, values in group["vectors"].items()}
        dim = int(np.asarray(group["spacedim"]).ravel()[0])
        if form == "fclib_local":
            return FrictionProblem(_read_sparse(group["W"]), vectors["q"], vectors["mu"], dim)
        mass, columns = _read_sparse(group["M"]), _read_sparse(group["H"])
        W, q = _condense(mass, columns, vectors["f"], vectors["w"])
        return FrictionProblem(W, q, vectors["mu"], dim)


Group = Any  # of a file by h5py, which has no types


def _read_sparse(group: Group) -> np.ndarray:
    m, n, kind = (int(np.asarray(group[name]).ravel()[0]) for name in ("m", "n", "nz"))
    p, i, x = (np.asarray(group[name]) for name in ("p", "i", "x"))
    matrix = np.zeros((m, n))
    if kind >= 0:
        np.add.at(matrix, (i[:kind], p[:kind]), x[:kind])
        return matrix
    lines = np.repeat(np.arange(len(p) - 1), np.diff(p))
    np.add.at(matrix, (i, lines) if kind == -1 else (lines, i), x[: len(lines)])
    return matrix


def _save_fclib(
    path: str | os.PathLike[str],
    matrices: list[np.ndarray],
    q: np.ndarray,
    mu: np.ndarray,
    dim: int,
    title: str,
) -> None:
    buffer = io.BytesIO()
    with _import_hdf5().File(buffer, "w") as file:
        group = file.create_group("fclib_local" if len(matrices) == 1 else "fclib_global")
        group["spacedim"] = np.array([dim], np.int32)
        for name, matrix in zip("W" if len(matrices) == 1 else "MH", matrices, strict=True):
            _write_sparse(group.create_group(name), matrix)
        vectors = group.create_group("vectors")
        vectors["mu"] = mu
        if len(matrices) == 1:
            vectors["q"] = q
        else:
            vectors["f"], vectors["w"] = np.zeros(matrices[0].shape[0]), q
        group.create_group("info")["title"] = np.bytes_(title or "friction problem")
    _write(path, buffer.getvalue())


def _write_sparse(group: Group, matrix: np.ndarray) -> None:
    """Write a matrix by columns."""
    columns, rows = np.nonzero(matrix.T)
    starts = np.searchsorted(columns, np.arange(matrix.shape[1] + 1))
    for name, value in (("nzmax", len(rows)), ("m", matrix.shape[0]), ("n", matrix.shape[1]), ("nz", -1)):
        group[name] = np.array([value], np.int32)
    group["p"], group["i"], group["x"] = starts.astype(np.int32), rows.astype(np.int32), matrix[rows, columns]
