"""Products in loops against JAX's own."""

import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import jaxcontact as jc
from jaxcontact.native import looped_products
from tests.helpers.by_lanes import close

WORLDS = 11


def powers(rows, columns, zeros, x, entries):
    """Multiply a matrix with some rows of zeros and its transpose in turn until a world has had enough."""
    matrix = jnp.sin(entries).reshape(rows, columns).at[jnp.array(zeros, int)].set(0.0)

    def turn(carry):
        k, y, total = carry
        u = matrix @ y
        y = u @ matrix
        return k + 1.0, y / jnp.sqrt(jnp.sum(y**2)), total + jnp.sum(u)

    return lax.while_loop(lambda c: c[0] < 3.0 + x[0], turn, (0.0, x, 0.0))


@pytest.mark.float32
@pytest.mark.parametrize(
    "rows, columns, zeros",
    [(12, 5, ()), (13, 5, ()), (5, 12, ()), (7, 7, ()), (15, 4, (0, 3, 14)), (4, 15, (2,)), (3, 2, ())],
)
def test_a_matrix_and_its_transpose(rows, columns, zeros, monkeypatch):
    monkeypatch.setattr(looped_products, "MANY", 1)
    rng = np.random.default_rng(rows)
    x, entries = rng.normal(size=(WORLDS, columns)), rng.normal(size=(WORLDS, rows * columns))
    x[0], entries[1, 0] = 4.0, np.nan  # one world runs longer, and one is poisoned
    close(lambda x, m: powers(rows, columns, zeros, x, m), x, entries, rtol=1e-12, atol=1e-13)


@pytest.mark.long
def test_no_more_operations_than_a_row_takes(program_sizes, monkeypatch):
    """A matrix of many numbers from outside of a loop is multiplied row by row."""
    rng = np.random.default_rng(0)
    x, entries = rng.normal(size=(WORLDS, 25)), rng.normal(size=(WORLDS, 1500))
    run = jc.simd(lambda x, m: powers(60, 25, (), x, m), nan=False)
    looped = run(x, entries)
    monkeypatch.setattr(looped_products, "MANY", 10**6)
    written_out = jc.simd(lambda x, m: powers(60, 25, (), x, m), nan=False)(x, entries)
    for a, b in zip(looped, written_out, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12)
    assert program_sizes[0] < program_sizes[1] - 5000  # each product of 1500 numbers is 2900 operations


def test_a_matrix_of_the_loop_itself_is_written_out(monkeypatch):
    monkeypatch.setattr(looped_products, "MANY", 1)

    def function(x):
        def turn(carry):
            k, matrix, y = carry
            return k + 1, jnp.sin(matrix), matrix @ y

        return lax.fori_loop(0, 3 + (x[0] > 0).astype(int), lambda _, c: turn(c), (0, jnp.outer(x, x), x))[2]

    close(function, np.random.default_rng(1).normal(size=(WORLDS, 6)))


def test_a_product_in_a_branch_and_in_a_loop_in_a_loop(monkeypatch):
    monkeypatch.setattr(looped_products, "MANY", 1)

    def function(x):
        matrix = jnp.cos(jnp.outer(x, x))

        def outer(carry):
            k, y = carry
            scaled = matrix * y[0]

            def inner(carry):
                j, z = carry
                z = lax.cond(z[1] > 0, lambda z: scaled @ z, lambda z: matrix @ z, z)
                return j + 1, z / (1.0 + jnp.max(jnp.abs(z)))

            return k + 1.0, lax.while_loop(lambda c: c[0] < 4, inner, (0, y))[1] + x

        return lax.while_loop(lambda c: c[0] < 2.0 + x[1], outer, (0.0, x))

    close(function, np.random.default_rng(2).normal(size=(WORLDS, 8)), rtol=1e-12)
