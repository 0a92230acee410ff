"""Rational linear algebra against Fractions, floats and brute force."""

import itertools
from fractions import Fraction

import numpy as np
import pytest

from jaxcontact.stability.generators import cone_generators
from jaxcontact.stability.rational import (
    Rational,
    exact,
    inverse,
    is_positive_definite,
    is_positive_semidefinite,
    null_space,
    rank,
    reduce_rows,
    solve,
    whole,
)


def test_arrays_compute_as_fractions_do(rng):
    a, b = rng.normal(size=(3, 4)), rng.normal(size=(3, 4)) * 1e-20
    one, two = exact(a), exact(b)
    assert np.array_equal(one.floats(), a) and np.array_equal(two.floats(), b)
    for found, x in (((one - two), lambda p, q: p - q), ((one * two), lambda p, q: p * q)):
        for row, p, q in zip(found.simplified().fractions(), a.tolist(), b.tolist(), strict=True):
            assert row == tuple(x(Fraction(s), Fraction(t)) for s, t in zip(p, q, strict=True))
    product = (one @ two.T).fractions()
    assert product[1][2] == sum(Fraction(s) * Fraction(t) for s, t in zip(a[1].tolist(), b[2].tolist()))
    assert (one + two).equals(two + one) and not one.equals(two)
    assert exact([Fraction(1, 3), 0.5]).fractions() == (Fraction(1, 3), Fraction(1, 2))
    with pytest.raises((ValueError, OverflowError)):
        exact([np.nan])


def test_elimination(rng):
    for _ in range(20):
        rows = whole(rng.integers(-3, 4, size=(4, 5)).tolist())
        reduced, pivots = reduce_rows(rows)
        assert len(pivots) == np.linalg.matrix_rank(rows.astype(float)) == rank(rows)
        for k, at in enumerate(pivots):
            assert reduced[k, at] > 0 and np.count_nonzero(reduced[:, at]) == 1
        null = null_space(rows)
        assert len(null) == 5 - len(pivots) and not np.any(rows @ null.T)
        assert rank(null) == len(null)
    matrix = exact(rng.normal(size=(4, 4)))
    unit = matrix @ inverse(matrix)
    assert unit.equals(Rational(np.eye(4, dtype=int).astype(object)))
    x = solve(matrix.num, matrix.num @ whole([1, -2, 3, 4]))
    assert x.fractions() == (1, -2, 3, 4)
    assert solve(whole([[1, 1], [2, 2]]), whole([1, 2])) is None
    assert solve(whole([[1], [2]]), whole([1, 1])) is None
    with pytest.raises(ZeroDivisionError):
        inverse(exact(np.ones((2, 2))))


@pytest.mark.parametrize(("size", "facets"), [(2, 4), (3, 5), (4, 6), (5, 6)])
def test_generators_of_a_cone_are_all_of_it(rng, size, facets):
    """Against every choice of facets in fractions; with small numbers many choices are degenerate."""
    for _ in range(15):
        rows = whole(rng.integers(-2, 3, size=(facets, size)).tolist())
        equal = whole(rng.integers(-1, 2, size=(1, size)).tolist())[: rng.integers(0, 2)]
        rays, lines = cone_generators(equal, rows)
        again = cone_generators(np.concatenate([equal * 0, 2 * equal, equal]), np.concatenate([rows, rows]))
        assert {*map(tuple, rays)} == {*map(tuple, again[0])} and len(again[1]) == len(lines)
        for generators in (rays, lines):
            assert not np.any(equal @ generators.T)
        assert np.all(rows @ rays.T >= 0) and not np.any(rows @ lines.T)
        assert len(lines) == size - rank(np.concatenate([equal, rows]))
        wanted = 0
        if not len(lines):
            seen = set()
            for chosen in itertools.combinations(rows, size - 1 - rank(equal)):
                null = null_space(np.concatenate([equal, *(row[None] for row in chosen)]))
                if len(null) == 1:
                    seen |= {tuple(s * null[0]) for s in (1, -1) if np.all(rows @ (s * null[0]) >= 0)}
            wanted = len(seen)
            assert len(rays) == wanted


def test_definiteness(rng):
    for size in (1, 2, 4):
        root = whole(rng.integers(-4, 5, size=(size, size + 1)).tolist())
        matrix = root @ root.T
        assert is_positive_semidefinite(matrix)
        assert is_positive_definite(matrix) == (rank(matrix) == size)
        assert not is_positive_definite(matrix * 0) and is_positive_semidefinite(matrix * 0)
        flat = matrix.copy()
        flat[0] = flat[:, 0] = 0
        assert is_positive_semidefinite(flat) and not is_positive_definite(flat)
        flat[0, -1] = flat[-1, 0] = 1 if size > 1 else -1
        assert not is_positive_semidefinite(flat)
        least = int(np.floor(np.linalg.eigvalsh(matrix.astype(float))[0])) + 1
        assert not is_positive_semidefinite(matrix - least * np.eye(size, dtype=int).astype(object))
