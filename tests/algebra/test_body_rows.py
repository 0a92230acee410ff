"""Rows kept by body against the same rows as one matrix."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxcontact.algebra import body_rows
from jaxcontact.algebra.body_rows import BodyRows, Diagonal

CHAIN = ((0, 1, 2, 3, 4), (-1, 0, 1, 2, 3))
# Two contacts of one pair, both orders, a body alone, the world first, neighbours but one.
WILD = ((0, 1, 3, 0, 5, -1, 2), (-1, 3, 1, 2, 4, 4, 4))


def as_matrix(G):
    """Write G of a single problem as one matrix (nr, nv)."""
    rows = jnp.zeros((G.values.shape[0], len(G.first), G.count, G.values.shape[2]), G.values.dtype)
    for side, bodies in enumerate((G.first, G.second)):
        on_body = np.flatnonzero(np.array(bodies) >= 0)
        block = jnp.swapaxes(G.values[:, side], 1, 2)
        rows = rows.at[:, on_body, np.array(bodies)[on_body]].add(block[:, on_body])
    return rows.reshape(-1, G.count * G.values.shape[2])


@pytest.mark.long
@pytest.mark.parametrize(("first", "second"), [CHAIN, WILD])
@pytest.mark.parametrize("axes", [2, 3])
def test_products_and_the_hessian_are_those_of_the_whole_matrix(rng, first, second, axes):
    count, width = 7, 3 * axes - 3
    values = rng.normal(size=(axes, 2, width, len(first)))
    for side, bodies in enumerate((first, second)):
        values[:, side, :, np.array(bodies) < 0] = 0.0
    G = BodyRows(values=jnp.asarray(values), first=first, second=second, count=count)

    @jax.jit
    def everything(G, x, p, M, yields):
        found = body_rows.hessian(Diagonal(values=M), G, [list(each) for each in yields])
        products = body_rows.apply_rows(G, x), body_rows.apply_columns(G, p), body_rows.squares(G, x)
        return as_matrix(G), *products, found

    x, p = rng.normal(size=count * width), rng.normal(size=axes * len(first))
    yields = rng.normal(size=(axes, axes, len(first)))
    M = rng.uniform(size=count * width)
    S = np.zeros((axes * len(first),) * 2)
    for c in range(len(first)):
        S[c :: len(first), c :: len(first)] = yields[:, :, c]
    whole, rates, forces, squares, found = everything(G, *map(jnp.asarray, (x, p, M, yields)))
    whole = np.asarray(whole)
    np.testing.assert_allclose(rates, whole @ x, atol=1e-13)
    np.testing.assert_allclose(forces, whole.T @ p, atol=1e-13)
    np.testing.assert_allclose(squares, whole**2 @ x, atol=1e-12)
    size, blocks = found.diagonal.shape[1:]
    H = np.eye(size * blocks)
    for k in range(blocks):
        here, after = slice(k * size, (k + 1) * size), slice((k + 1) * size, (k + 2) * size)
        H[here, here] = found.diagonal[:, :, k]
        if k + 1 < blocks:
            H[after, here] = found.below[:, :, k]
    expected = np.diag(M) + whole.T @ S @ whole
    n = count * width
    np.testing.assert_allclose(np.tril(H[:n, :n]), np.tril(expected), atol=1e-12)
    np.testing.assert_array_equal(H[n:, n:], np.eye(size * blocks - n))


def test_entries_of_a_static_index():
    """Runs become slices, many runs a gather; -1 is nothing."""
    x = jnp.arange(1.0, 9.0)[None]
    for index in ([-1, 0, 1, 2, -1, -1, 7], [7, 0, 6, 1, -1, 5, 2, 4, 3], list(range(8)), [-1]):
        expected = [0.0 if i < 0 else i + 1.0 for i in index]
        np.testing.assert_array_equal(body_rows.take(x, index, 1)[0], expected)


def test_what_suits():
    assert body_rows.suits(range(30), range(-1, 29), 30, 6)
    assert not body_rows.suits(range(10), range(-1, 9), 10, 6)  # too few to matter
    assert not body_rows.suits([0, 9], [-1, 0], 30, 6)  # not neighbours
    assert not body_rows.suits([0, 3], [-1, 3], 30, 6)  # one body's own
