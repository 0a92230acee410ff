"""Cyclic reduction against the whole matrix."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxcontact.algebra.block_tridiagonal import BlockTridiagonal, factorise_chain, solve_chain


def chain(rng, size, blocks):
    """A positive definite chain of blocks, and the same as one matrix."""
    half = np.zeros((blocks * size, blocks * size))
    for k in range(blocks):
        rows, columns = slice(k * size, (k + 1) * size), slice(max(k - 1, 0) * size, (k + 1) * size)
        half[rows, columns] = rng.normal(size=half[rows, columns].shape)
    whole = half @ half.T + 0.1 * np.eye(blocks * size)
    four = whole.reshape(blocks, size, blocks, size)
    index = np.arange(blocks)
    below = four[index[1:], :, index[:-1]]
    return BlockTridiagonal(
        jnp.moveaxis(jnp.asarray(four[index, :, index]), 0, 2), jnp.moveaxis(jnp.asarray(below), 0, 2)
    ), whole


@pytest.mark.long
@pytest.mark.parametrize("blocks", [1, 2, 5, 8])
@pytest.mark.float32
def test_a_chain_is_solved_as_the_whole_matrix(rng, blocks, tolerance):
    """Also with a last block that is not full, and the transposed solve, which is the same."""
    matrix, whole = chain(rng, 3, blocks)
    b = rng.normal(size=3 * blocks)
    x, pull = jax.vjp(lambda b: solve_chain(factorise_chain(matrix), b), jnp.asarray(b))
    expected = np.linalg.solve(whole, b)
    close = {"atol": tolerance(1e-11, 2e-2) * np.max(np.abs(expected))}
    np.testing.assert_allclose(x, expected, **close)
    np.testing.assert_allclose(pull(jnp.asarray(b, x.dtype))[0], expected, **close)


@pytest.mark.long
def test_a_batch_goes_last(rng):
    matrices, wholes = zip(*[chain(rng, 2, 4) for _ in range(3)], strict=True)
    b = rng.normal(size=(3, 8))
    many = jax.tree.map(lambda *a: jnp.stack(a, axis=-1), *matrices)
    x = solve_chain(factorise_chain(many), jnp.asarray(b.T))
    np.testing.assert_allclose(x.T, np.linalg.solve(np.array(wholes), b[..., None])[..., 0], atol=1e-10)
