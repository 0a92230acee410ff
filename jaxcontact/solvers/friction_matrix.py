"""The matrix W of a friction problem on the host, dense or sparse by contacts, and factors of H + L W.

Entries: `DenseResponse` and `SparseResponse`, each with `apply` and `factorise`; `delassus_matrix` and
`thin` make W.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy import sparse
from scipy.linalg import lapack
from scipy.sparse import csgraph
from scipy.sparse.linalg import splu

from jaxcontact.solvers.friction_arguments import Matrix

Solve = Callable[[np.ndarray], np.ndarray]
PIVOT_THRESHOLD = 0.01  # a diagonal entry this fraction of its column is a pivot; a larger one costs fill
SHIFTS_OF_SINGULAR = (1e-9, 1e-6, 1e-3)  # of the scaled diagonal, where a pivot is zero
DENSE_ROWS = 135  # up to here LAPACK is faster, and starts no threads, which wait where others work
DENSE_PAIR = 20000  # entries of J; a larger one is treated as sparse
BODY_ROWS = 60  # of a block of M that is inverted by itself
SPARSE_SHARE = 0.25  # of the blocks of a contact with a contact; above it a dense factor is faster


def sparse_if_thin(W: np.ndarray, dim: int) -> Matrix:
    """Return W as a sparse array if few contacts share a body."""
    line, column = np.nonzero(W)
    blocks = np.unique(line // dim * W.shape[0] + column // dim)
    if len(blocks) > SPARSE_SHARE * (W.shape[0] // dim) ** 2:
        return W
    return sparse.csr_array((W[line, column], (line, column)), shape=W.shape)


def delassus_matrix(mass: Matrix, rows: Matrix) -> Matrix:
    """Compute W = J M^-1 J^T, sparse if M consists of the blocks of small bodies and J is sparse."""
    if not sparse.issparse(rows) and not sparse.issparse(mass) and rows.size < DENSE_PAIR:
        response = rows.T / mass[:, None] if mass.ndim == 1 else np.linalg.solve(mass, rows.T)
        return rows @ response
    rows, inverse = sparse.csr_array(rows), _invert(mass)
    if inverse is not None:
        return sparse.csr_array(rows @ inverse @ rows.T)
    factor = splu(sparse.csc_array(mass), permc_spec="MMD_AT_PLUS_A", options={"SymmetricMode": True})
    return rows @ factor.solve(rows.T.toarray())


def _invert(mass: Matrix) -> Matrix:
    """Invert a mass matrix by its blocks; None if a block is larger than BODY_ROWS."""
    if mass.ndim == 1:
        return sparse.diags_array(1.0 / mass)
    mass = sparse.csr_array(mass)
    _, label = csgraph.connected_components(mass, directed=False)
    size = np.bincount(label)
    if size.max() > BODY_ROWS:
        return None
    order, start = np.argsort(label, kind="stable"), np.cumsum(size) - size
    lines, columns, values = [], [], []
    for width in np.unique(size):
        member = order[start[size == width][:, None] + np.arange(width)]  # (blocks, width)
        place, block = np.empty(len(label), np.int64), np.full(len(label), -1)
        place[member] = np.arange(width)
        block[member] = np.arange(len(member))[:, None]
        entry = mass.tocoo()
        inside = block[entry.row] >= 0
        i, j, x = entry.row[inside], entry.col[inside], entry.data[inside]
        dense = np.zeros((len(member), width, width))
        dense[block[i], place[i], place[j]] = x
        shape = dense.shape
        lines.append(np.broadcast_to(member[:, :, None], shape).ravel())
        columns.append(np.broadcast_to(member[:, None, :], shape).ravel())
        values.append(np.linalg.inv(dense).ravel())
    joined = [np.concatenate(x) for x in (lines, columns, values)]
    return sparse.csr_array((joined[2], (joined[0], joined[1])), shape=mass.shape)


class DenseResponse:
    """W (nc, dim, nc, dim) as one array."""

    def __init__(self, W: np.ndarray, dim: int) -> None:
        self.dim, self.nc = dim, W.shape[0] // dim
        self.matrix = np.ascontiguousarray(W)
        self._lines = self.matrix.reshape(self.nc, dim, -1)
        self._index = np.arange(self.nc)

    def apply(self, r: np.ndarray) -> np.ndarray:
        """Compute W r (nc, dim)."""
        return (self.matrix @ r.ravel()).reshape(r.shape)

    def factorise(self, by_impulse: np.ndarray, by_velocity: np.ndarray, shift: float) -> Solve:
        """Factor H + L (W + shift), with blocks H, L (nc, dim, dim) of the contacts."""
        n = self.nc * self.dim
        matrix = np.matmul(by_velocity, self._lines).reshape(self.nc, self.dim, self.nc, self.dim)
        matrix[self._index, :, self._index, :] += by_impulse + shift * by_velocity
        # LAPACK reads columns: it factors the transpose in place.
        factor, order, _ = lapack.dgetrf(matrix.reshape(n, n).T, overwrite_a=True)
        pivots = factor.diagonal()
        if not pivots.all():
            factor[np.arange(n), np.arange(n)] = np.where(pivots == 0, 1.0, pivots)

        def solve(rhs: np.ndarray) -> np.ndarray:
            return lapack.dgetrs(factor, order, rhs.ravel(), trans=1)[0].reshape(rhs.shape)

        return solve


class SparseResponse:
    """W as blocks of contacts that share a body, ordered once for little fill."""

    def __init__(self, W: sparse.csr_array, dim: int) -> None:
        self.dim, self.nc = dim, W.shape[0] // dim
        blocks = sparse.bsr_array(W, blocksize=(dim, dim))
        diagonal = sparse.bsr_array(
            (np.zeros((self.nc, dim, dim)), np.arange(self.nc), np.arange(self.nc + 1)), shape=W.shape
        )
        line, column, data = _entries(blocks)
        more = _entries(diagonal)
        coded = np.concatenate([line * self.nc + column, more[0] * self.nc + more[1]])
        code, where = np.unique(coded, return_inverse=True)
        self._blocks = np.zeros((len(code), dim, dim))
        self._blocks[where[: len(data)]] = data
        self._line, self._column = code // self.nc, code % self.nc
        self._diagonal = np.searchsorted(code, np.arange(self.nc) * (self.nc + 1))
        starts = np.searchsorted(self._line, np.arange(self.nc + 1))
        self._matrix = sparse.csr_array(sparse.bsr_array((self._blocks, self._column, starts), shape=W.shape))
        self._order_blocks(starts)

    def _order_blocks(self, starts: np.ndarray) -> None:
        """Order contacts for little fill, and find where the entries of the blocks go in columns."""
        count = np.ones(len(self._column))
        pattern = sparse.csc_array((count, self._column, starts), shape=(self.nc, self.nc))
        pattern = sparse.csc_array(pattern + pattern.T + self.nc**2 * sparse.eye_array(self.nc))
        symmetric = {"SymmetricMode": True}
        place = splu(pattern, permc_spec="MMD_AT_PLUS_A", diag_pivot_thresh=0.0, options=symmetric).perm_c
        self._rows = (place[:, None] * self.dim + np.arange(self.dim)).ravel()
        number = np.arange(1.0, self._blocks.size + 1.0).reshape(self._blocks.shape)
        i = place[self._line][:, None, None] * self.dim + np.arange(self.dim)[None, :, None]
        j = place[self._column][:, None, None] * self.dim + np.arange(self.dim)[None, None, :]
        i, j = np.broadcast_to(i, number.shape).ravel(), np.broadcast_to(j, number.shape).ravel()
        n = self.nc * self.dim
        columns = sparse.csc_array((number.ravel(), (i, j)), shape=(n, n))
        columns.sort_indices()
        self._take = columns.data.astype(np.int64) - 1
        self._pattern = columns.indices, columns.indptr

    def apply(self, r: np.ndarray) -> np.ndarray:
        """Compute W r (nc, dim)."""
        return (self._matrix @ r.ravel()).reshape(r.shape)

    def factorise(self, by_impulse: np.ndarray, by_velocity: np.ndarray, shift: float) -> Solve:
        """Factor H + L (W + shift), with blocks H, L (nc, dim, dim) of the contacts."""
        n = self.nc * self.dim
        product = np.matmul(by_velocity[self._line], self._blocks)
        factor = None
        for lift in (shift, *SHIFTS_OF_SINGULAR):
            blocks = product.copy()
            blocks[self._diagonal] += by_impulse + lift * by_velocity
            entries = (blocks.ravel()[self._take], *self._pattern)
            matrix = sparse.csc_array(entries, shape=(n, n), copy=True)
            matrix.eliminate_zeros()  # contacts that are open have many
            try:
                factor = splu(
                    matrix,
                    permc_spec="NATURAL",
                    diag_pivot_thresh=PIVOT_THRESHOLD,
                    options={"SymmetricMode": True, "Equil": False},
                )
                break
            except RuntimeError:  # a pivot of zero
                continue

        def solve(rhs: np.ndarray) -> np.ndarray:
            if factor is None:
                return np.full(rhs.shape, np.nan)
            ordered = np.empty(n)
            ordered[self._rows] = rhs.ravel()
            return factor.solve(ordered)[self._rows].reshape(rhs.shape)

        return solve


def _entries(matrix: sparse.bsr_array) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """List the lines, columns and values of blocks."""
    matrix.sum_duplicates()
    line = np.repeat(np.arange(len(matrix.indptr) - 1), np.diff(matrix.indptr))
    return line, matrix.indices.astype(np.int64), matrix.data
