"""Linear algebra in rational numbers: what a proof is made of.

Owns elimination, the generators of a polyhedral cone and semidefiniteness, on lists of `Fraction`. A float is
a rational number, so nothing is rounded on the way in.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np

Row = list[Fraction]
Matrix = list[Row]
ZERO, ONE = Fraction(0), Fraction(1)


def exact(array: Any) -> Any:
    """Nested lists of the exact values of a float array."""
    values = np.asarray(array, float)
    if values.ndim == 0:
        return Fraction(float(values))
    return [exact(row) for row in values]


def floats(rows: Any) -> np.ndarray:
    """Rows of rationals as a float array."""
    return np.array([[float(x) for x in row] for row in rows])


def dot(a: Sequence[Fraction], b: Sequence[Fraction]) -> Fraction:
    """Inner product, skipping zeros."""
    return sum((x * y for x, y in zip(a, b, strict=True) if x and y), ZERO)


def times(matrix: Sequence[Sequence[Fraction]], vector: Sequence[Fraction]) -> Row:
    """Matrix times vector."""
    return [dot(row, vector) for row in matrix]


def combine(weights: Sequence[Fraction], rows: Sequence[Sequence[Fraction]], size: int) -> Row:
    """Sum of weights times rows, a vector of `size`."""
    total = [ZERO] * size
    for weight, row in zip(weights, rows, strict=True):
        if weight:
            total = [t + weight * x if x else t for t, x in zip(total, row, strict=True)]
    return total


def transpose(matrix: Matrix) -> Matrix:
    """Rows to columns."""
    return [list(column) for column in zip(*matrix, strict=True)]


def reduce_rows(rows: Sequence[Sequence[Fraction]]) -> tuple[Matrix, list[int]]:
    """The reduced row echelon form without its zero rows, and the pivot columns."""
    left = [list(row) for row in rows if any(row)]
    done: Matrix = []
    pivots: list[int] = []
    while left:
        row = min(left, key=lambda r: next(i for i, x in enumerate(r) if x))
        left.remove(row)
        at = next(i for i, x in enumerate(row) if x)
        inverse = ONE / row[at]
        row = [x * inverse if x else ZERO for x in row]
        for group in (left, done):
            for i, other in enumerate(group):
                if factor := other[at]:
                    group[i] = [o - factor * r if r else o for o, r in zip(other, row, strict=True)]
        left = [other for other in left if any(other)]
        done.append(row)
        pivots.append(at)
    order = sorted(range(len(pivots)), key=lambda i: pivots[i])
    return [done[i] for i in order], [pivots[i] for i in order]


def null_space(rows: Sequence[Sequence[Fraction]], size: int) -> Matrix:
    """A basis of {x: rows x = 0}; entry 1 at each free coordinate."""
    reduced, pivots = reduce_rows(rows)
    basis = []
    for free in (i for i in range(size) if i not in pivots):
        vector = [ZERO] * size
        vector[free] = ONE
        for row, at in zip(reduced, pivots, strict=True):
            vector[at] = -row[free]
        basis.append(vector)
    return basis


def solve(matrix: Matrix, rhs: Row) -> Row | None:
    """The solution of square or tall full-rank equations, None where there is none or more than one."""
    size = len(matrix[0])
    reduced, pivots = reduce_rows([[*row, b] for row, b in zip(matrix, rhs, strict=True)])
    if pivots != list(range(size)):
        return None
    return [row[size] for row in reduced]


def inverse(matrix: Matrix) -> Matrix:
    """The inverse of a regular matrix."""
    size = len(matrix)
    extended = [[*row, *(ONE if i == k else ZERO for k in range(size))] for i, row in enumerate(matrix)]
    reduced, pivots = reduce_rows(extended)
    if pivots != list(range(size)):
        raise ZeroDivisionError("singular matrix")
    return [row[size:] for row in reduced]


def tidy(vector: Row) -> Row:
    """A positive multiple of size about one."""
    size = max(abs(x) for x in vector)
    return [x / size for x in vector]


def cone_generators(equal: Matrix, at_least: Matrix, size: int) -> tuple[Matrix, Matrix]:
    """Rays and lines that generate {x: equal x = 0, at_least x >= 0}, exactly all of it."""
    basis = null_space(equal, size)
    facets = [[dot(row, b) for b in basis] for row in at_least]
    facets = [list(row) for row in {tuple(tidy(row)): None for row in facets if any(row)}]
    lines = null_space(facets, len(basis)) if basis else []
    pointed = null_space(lines, len(basis)) if lines else None  # a complement of the lines
    if pointed is None:
        pointed = [[ONE if i == k else ZERO for k in range(len(basis))] for i in range(len(basis))]
    inner = [[dot(row, p) for p in pointed] for row in facets]
    rays: dict[tuple[Fraction, ...], None] = {}
    for chosen in itertools.combinations(inner, len(pointed) - 1) if pointed else ():
        null = null_space(chosen, len(pointed))
        if len(null) != 1:
            continue
        for sign in (ONE, -ONE):
            ray = [sign * x for x in null[0]]
            if all(dot(row, ray) >= 0 for row in inner):
                rays[tuple(tidy(combine(ray, pointed, len(basis))))] = None
    return [combine(ray, basis, size) for ray in rays], [combine(line, basis, size) for line in lines]


def is_positive_definite(matrix: Matrix) -> bool:
    """Whether a symmetric matrix is positive definite, by its pivots."""
    rows = [list(row) for row in matrix]
    for k in range(len(rows)):
        if rows[k][k] <= 0:
            return False
        for i in range(k + 1, len(rows)):
            if factor := rows[i][k] / rows[k][k]:
                rows[i] = [a - factor * b for a, b in zip(rows[i], rows[k], strict=True)]
    return True


def is_positive_semidefinite(matrix: Matrix) -> bool:
    """Whether a symmetric matrix is positive semidefinite; a zero pivot needs a zero row."""
    rows = [list(row) for row in matrix]
    for k in range(len(rows)):
        pivot = rows[k][k]
        if pivot < 0 or (pivot == 0 and any(rows[k][k:])):
            return False
        if pivot == 0:
            continue
        for i in range(k + 1, len(rows)):
            if factor := rows[i][k] / pivot:
                rows[i] = [a - factor * b for a, b in zip(rows[i], rows[k], strict=True)]
    return True
