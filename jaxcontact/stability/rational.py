"""Linear algebra in rational numbers, for proofs: entry `exact`, which converts floats without rounding.

Owns `Rational`, an array of integers over one positive denominator, and elimination and definiteness on
arrays of Python integers. Rows that are defined up to a positive factor are stored as coprime integers: that
needs fewer and smaller greatest common divisors than one fraction per entry. Page: docs/methods/stability.md.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from jaxcontact._pytree import PyTree

Ints = np.ndarray  # of dtype object, entries Python integers of any size


@dataclasses.dataclass(frozen=True)
class Rational:
    """The array num / den, num of Python integers of any size, den > 0."""

    num: PyTree  # of dtype object, or one integer
    den: int = 1

    @property
    def T(self) -> Rational:
        """The transpose."""
        return Rational(self.num.T, self.den)

    def __len__(self) -> int:
        return len(self.num)

    def __getitem__(self, index: PyTree) -> Rational:
        return Rational(self.num[index], self.den)

    def __matmul__(self, other: Rational) -> Rational:
        return Rational(self.num @ other.num, self.den * other.den)

    def __mul__(self, other: Rational) -> Rational:
        return Rational(self.num * other.num, self.den * other.den)

    def __add__(self, other: Rational) -> Rational:
        if self.den == other.den:
            return Rational(self.num + other.num, self.den)
        common = math.gcd(self.den, other.den)
        mine, its = other.den // common, self.den // common
        return Rational(self.num * mine + other.num * its, self.den * mine)

    def __neg__(self) -> Rational:
        return Rational(-self.num, self.den)

    def __sub__(self, other: Rational) -> Rational:
        return self + -other

    def equals(self, other: Rational) -> bool:
        """Return whether shapes and all entries agree."""
        same = self.num.shape == other.num.shape
        return same and bool(np.all(self.num * other.den == other.num * self.den))

    def simplified(self) -> Rational:
        """Reduce the array to its smallest denominator."""
        factor = math.gcd(self.den, *self.num.ravel().tolist())
        return Rational(self.num // factor, self.den // factor)

    def floats(self) -> np.ndarray:
        """Convert to floats, each entry rounded once."""
        return np.reshape([x / self.den for x in self.num.ravel().tolist()], self.num.shape).astype(float)

    def fractions(self) -> PyTree:
        """Convert to nested tuples of Fractions."""
        if self.num.ndim == 1:
            return tuple(Fraction(x, self.den) for x in self.num.tolist())
        return tuple(row.fractions() for row in self)  # type: ignore[attr-defined]


def exact(array: PyTree) -> Rational:
    """Convert floats or Fractions of any shape to their exact values."""
    shape = np.shape(array)
    entries = np.asarray(array, object).ravel().tolist()
    pairs = [(x if isinstance(x, Fraction) else float(x)).as_integer_ratio() for x in entries]
    den = math.lcm(*(d for _, d in pairs))
    return Rational(whole([n * (den // d) for n, d in pairs]).reshape(shape), den)


def whole(entries: PyTree) -> Ints:
    """Make an array of Python integers."""
    return np.array(entries, dtype=object)


def zeros(*shape: int) -> Ints:
    """Make an array of integers 0."""
    return np.zeros(shape, dtype=object)


def identity(size: int) -> Ints:
    """Make the unit matrix of integers."""
    return np.eye(size, dtype=int).astype(object)


def stack(rows: Sequence[Ints], size: int) -> Ints:
    """Stack rows (or matrices) of `size` columns; no rows give (0, size)."""
    parts = [row if row.ndim > 1 else row[None] for row in rows]
    return np.concatenate(parts) if parts else zeros(0, size)


def primitive(rows: Ints) -> Ints:
    """Divide each row by the greatest common divisor of its entries; the direction stays."""
    factors = [math.gcd(*row) or 1 for row in rows.tolist()]
    return rows // whole(factors)[:, None] if any(factor > 1 for factor in factors) else rows


def directions(rows: Ints) -> np.ndarray:
    """Convert rows to floats, each divided by the power of two above its largest entry."""
    floats = np.zeros(rows.shape)
    for i, (row, size) in enumerate(zip(rows.tolist(), sizes(rows), strict=True)):
        floats[i] = [x / (1 << size) for x in row]
    return floats


def sizes(rows: Ints) -> list[int]:
    """Count the bits of the largest entry of each row."""
    return [max(map(int.bit_length, row), default=0) for row in rows.tolist()]


def joined(parts: Sequence[Rational], axis: int = 0) -> Rational:
    """Concatenate arrays over their common denominator."""
    den = math.lcm(*(part.den for part in parts))
    return Rational(np.concatenate([part.num * (den // part.den) for part in parts], axis=axis), den)


def reduce_rows(rows: Ints) -> tuple[Ints, list[int]]:
    """Compute the reduced echelon form of integer rows without zero rows, and the pivot columns.

    Rows are up to positive factors. Pivots are positive, all other entries in their columns are zero.
    """
    size = rows.shape[1]
    left = [row for row in rows.tolist() if any(row)]
    done: list[list[int]] = []
    pivots: list[int] = []
    for column in range(size):
        row = next((row for row in left if row[column]), None)
        if row is None:
            continue
        left = [_cleared(other, row, column) for other in left if other is not row]
        left = [other for other in left if any(other)]
        done = [_cleared(other, row, column) for other in done]
        done.append([-x for x in row] if row[column] < 0 else row)
        pivots.append(column)
    return whole(done).reshape(len(done), size), pivots


def _cleared(row: list[int], by: list[int], column: int) -> list[int]:
    """Eliminate the column: add a multiple of `by` to a positive multiple of the row; return it coprime."""
    x, y = row[column], by[column]
    if not x:
        return row
    x, y = (x, y) if y > 0 else (-x, -y)
    combination = [a * y - b * x for a, b in zip(row, by, strict=True)]
    factor = math.gcd(*combination)
    return [a // factor for a in combination] if factor > 1 else combination


def rank(rows: Ints) -> int:
    """Compute the rank of integer rows."""
    return len(reduce_rows(rows)[1])


def null_space(rows: Ints) -> Ints:
    """Compute coprime integer rows that span {x: rows x = 0}, each positive at one free coordinate only."""
    size = rows.shape[1]
    reduced, pivots = reduce_rows(rows)
    reduced_rows = list(zip(reduced.tolist(), pivots, strict=True))
    basis = []
    for free in (i for i in range(size) if i not in pivots):
        scale = math.lcm(*(row[at] // math.gcd(row[at], row[free]) for row, at in reduced_rows))
        vector = [0] * size
        vector[free] = scale
        for row, at in reduced_rows:
            vector[at] = -row[free] * scale // row[at]
        basis.append(vector)
    return whole(basis).reshape(len(basis), size)


def solve(matrix: Ints, rhs: Ints) -> Rational | None:
    """Solve square or tall equations of full rank; return None if there is no or more than one solution."""
    size = matrix.shape[1]
    reduced, pivots = reduce_rows(np.concatenate([matrix, rhs[:, None]], axis=1))
    if pivots != list(range(size)):
        return None
    den = math.lcm(*(reduced[i, i] for i in range(size)))
    return Rational(whole([reduced[i, size] * (den // reduced[i, i]) for i in range(size)]), den)


def inverse(matrix: Rational) -> Rational:
    """Invert a regular matrix; raise ZeroDivisionError for a singular one."""
    size = len(matrix)
    unit = identity(size) * matrix.den
    reduced, pivots = reduce_rows(np.concatenate([matrix.num, unit], axis=1))
    if pivots != list(range(size)):
        raise ZeroDivisionError("singular matrix")
    den = math.lcm(*(reduced[i, i] for i in range(size)))
    scale = whole([den // reduced[i, i] for i in range(size)])
    return Rational(reduced[:, size:] * scale[:, None], den)


def is_positive_definite(matrix: Ints) -> bool:
    """Return whether a symmetric matrix is positive definite, by its leading minors (Bareiss)."""
    rows, last = matrix.copy(), 1
    for k in range(len(rows)):
        pivot = rows[k, k]
        if pivot <= 0:
            return False
        below = rows[k + 1 :, k + 1 :]
        rows[k + 1 :, k + 1 :] = (below * pivot - np.outer(rows[k + 1 :, k], rows[k, k + 1 :])) // last
        last = pivot
    return True


def is_positive_semidefinite(matrix: Ints) -> bool:
    """Return whether a symmetric matrix is positive semidefinite; a zero pivot needs a zero row."""
    rows = matrix.copy()
    for k in range(len(rows)):
        pivot = rows[k, k]
        if pivot < 0 or (pivot == 0 and any(rows[k, k:])):
            return False
        if pivot:
            rest = rows[k + 1 :, k + 1 :] * pivot - np.outer(rows[k + 1 :, k], rows[k, k + 1 :])
            factor = math.gcd(*rest.ravel().tolist()) or 1
            rows[k + 1 :, k + 1 :] = rest // factor
    return True
