"""Small factorisations against NumPy and against their defining equations."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from oracles.problems import random_spd

from jaxcontact.algebra import small_dense

inverse_of = jax.jit(small_dense.generalized_inverse)
spd_inverse_of = jax.jit(small_dense.spd_inverse)


def of_rank(rng, n, rank):
    """An (n, n) matrix of that rank, with nonzero singular values in [0.5, 2]."""
    left, _ = np.linalg.qr(rng.normal(size=(n, n)))
    right, _ = np.linalg.qr(rng.normal(size=(n, n)))
    return (left[:, :rank] * rng.uniform(0.5, 2.0, rank)) @ right[:rank]


@pytest.mark.float32
@pytest.mark.parametrize("n", [1, 2, 3, 5, 8])
def test_generalized_inverse_of_any_rank(n, rng, tolerance):
    for rank in range(n + 1):
        for _ in range(4):
            A = of_rank(rng, n, rank)
            G, found = (np.asarray(x) for x in inverse_of(jnp.array(A)))
            assert found == rank
            np.testing.assert_allclose(A @ G @ A, A, atol=tolerance(1e-12, 1e-4))
            b = A @ rng.normal(size=n)
            np.testing.assert_allclose(A @ (G @ b), b, atol=tolerance(1e-12, 1e-4))
            if rank == n:
                np.testing.assert_allclose(G, np.linalg.inv(A), atol=tolerance(1e-11, 1e-3))


@pytest.mark.float32
def test_inverse_of_four_rows_or_that_there_is_none(rng, tolerance):
    ranks = [4] * 40 + [3, 2, 1, 0] * 10
    matrices = np.stack([of_rank(rng, 4, rank) for rank in ranks], axis=-1) * np.exp(rng.normal(size=80))
    inverse, regular = small_dense.inverse_of_four(jnp.asarray(matrices))
    np.testing.assert_array_equal(regular, np.array(ranks) == 4)
    product = np.einsum("ijk,jlk->ilk", matrices, inverse)
    whole = np.asarray(regular)
    np.testing.assert_allclose(
        product[..., whole], np.eye(4)[..., None] * np.ones(40), atol=tolerance(1e-13, 1e-4)
    )
    assert np.all(np.asarray(inverse)[..., ~whole] == 0.0)


def test_generalized_inverse_of_zero_and_of_permuted_diagonals():
    G, rank = inverse_of(jnp.zeros((3, 3)))
    assert int(rank) == 0
    np.testing.assert_array_equal(G, np.zeros((3, 3)))
    # Zero diagonal: nothing works without exchanging rows.
    A = np.array([[0.0, 0.0, 2.0], [4.0, 0.0, 0.0], [0.0, 0.5, 0.0]])
    G, rank = inverse_of(jnp.array(A))
    assert int(rank) == 3
    np.testing.assert_array_equal(G, np.linalg.inv(A))


def test_rank_is_relative_to_the_largest_entry():
    tiny = small_dense.pivot_tolerance(jnp.float64)
    assert tiny == pytest.approx(np.finfo(float).eps ** 0.7)
    for size in (1e-200, 1.0, 1e200):
        assert int(inverse_of(size * jnp.diag(jnp.array([1.0, 2 * tiny])))[1]) == 2
        assert int(inverse_of(size * jnp.diag(jnp.array([1.0, 0.5 * tiny])))[1]) == 1


def test_exactly_singular_matrices_stop_at_their_rank():
    # After the last good pivot nothing but zeros is left to choose from.
    for A in ([[1.0, 0.0], [0.0, 0.0]], [[1.0, 1.0], [1.0, 1.0]], [[0.0, 0.0], [2.0, 1.0]]):
        G, rank = (np.asarray(x) for x in inverse_of(jnp.array(A)))
        assert rank == 1
        np.testing.assert_array_equal(A @ G @ A, A)


@pytest.mark.long
@given(st.integers(0, 2**32 - 1), st.integers(0, 5))
def test_generalized_inverse_of_small_integer_matrices(seed, rank):
    rng = np.random.default_rng(seed)
    A = (rng.integers(-2, 3, (5, rank)) @ rng.integers(-2, 3, (rank, 5))).astype(float)
    G, found = (np.asarray(x) for x in inverse_of(jnp.array(A)))
    assert found == np.linalg.matrix_rank(A)
    np.testing.assert_allclose(A @ G @ A, A, atol=1e-9)


def test_spd_inverse_against_numpy(rng):
    for n in (1, 2, 3, 6, 7, 9):
        for _ in range(5):
            A = random_spd(rng, n)
            inverse, pivot = (np.asarray(x) for x in spd_inverse_of(jnp.array(A)))
            expected = np.linalg.inv(A)
            np.testing.assert_allclose(inverse, expected, atol=1e-11 * np.abs(expected).max())
            np.testing.assert_allclose(inverse, inverse.T, rtol=1e-14, atol=1e-14)
            assert 0 < pivot < 1 + 1e-15


@pytest.mark.float32
def test_spd_inverse_does_not_care_about_units(rng, tolerance):
    A = random_spd(rng, 5, 0.3)
    units = 10.0 ** np.array([-6.0, 6.0, 0.0, 3.0, -3.0])
    inverse, pivot = spd_inverse_of(jnp.array(A))
    scaled, pivot_scaled = spd_inverse_of(jnp.array(A * np.outer(units, units)))
    rtol = tolerance(1e-12, 1e-4)
    np.testing.assert_allclose(scaled * np.outer(units, units), inverse, rtol=rtol, atol=rtol)
    np.testing.assert_allclose(pivot, pivot_scaled, rtol=rtol)


def test_spd_inverse_of_an_ill_conditioned_matrix_is_as_good_as_lapack():
    n = 6
    hilbert = 1.0 / (np.arange(n)[:, None] + np.arange(n)[None, :] + 1.0)
    lapack = np.linalg.inv(hilbert)
    exact = np.round(lapack)  # the inverse of a Hilbert matrix has integer entries
    inverse, pivot = spd_inverse_of(jnp.array(hilbert))
    assert np.abs(np.asarray(inverse) / exact - 1).max() < 2 * np.abs(lapack / exact - 1).max() < 1e-8
    assert 0 < pivot < 1e-3


def test_worst_pivot_tells_definite_from_indefinite():
    for rho in (0.0, 0.6, -0.6, 0.999999):
        # Pivots of [[1, rho], [rho, 1]] are 1 and 1 - rho^2.
        _, pivot = spd_inverse_of(jnp.array([[4.0, 2 * rho], [2 * rho, 1.0]]))
        np.testing.assert_allclose(pivot, 1 - rho**2, rtol=1e-9)
    for bad in (
        [[1.0, 2.0], [2.0, 1.0]],
        [[1.0, 1.0], [1.0, 1.0]],
        [[-1.0, 0.0], [0.0, 1.0]],
        [[1.0, 0.0], [0.0, 0.0]],
        [[0.0, 1.0], [1.0, 0.0]],
    ):
        assert float(spd_inverse_of(jnp.array(bad))[1]) <= 0


def test_worst_pivot_agrees_with_the_eigenvalues(rng):
    verdicts = set()
    for n in (1, 3, 7):
        for _ in range(40):
            A = rng.normal(size=(n, n))
            A = A + A.T + rng.uniform(0, 3 * np.sqrt(n)) * np.eye(n)
            _, pivot = spd_inverse_of(jnp.array(A))
            verdicts.add((float(pivot) > 0, np.linalg.eigvalsh(A)[0] > 0))
    assert verdicts == {(True, True), (False, False)}


def test_a_batch_gives_what_single_calls_give(rng):
    squares = np.stack([of_rank(rng, 4, rank) for rank in (4, 3, 2, 0)])
    G, rank = jax.jit(jax.vmap(small_dense.generalized_inverse))(jnp.array(squares))
    assert rank.tolist() == [4, 3, 2, 0]
    for i, A in enumerate(squares):
        np.testing.assert_allclose(G[i], inverse_of(jnp.array(A))[0], rtol=1e-13, atol=1e-13)
    mass = np.stack([random_spd(rng, 4), -np.eye(4), random_spd(rng, 4)])
    inverse, pivot = jax.jit(jax.vmap(small_dense.spd_inverse))(jnp.array(mass))
    assert (np.asarray(pivot) > 0).tolist() == [True, False, True]
    for i in (0, 2):
        expected = np.linalg.inv(mass[i])
        np.testing.assert_allclose(inverse[i], expected, atol=1e-12 * np.abs(expected).max())


@pytest.mark.float32
def test_results_have_the_dtype_of_the_matrix():
    for dtype in (jnp.float32, jnp.zeros(0).dtype):
        A = jnp.eye(3, dtype=dtype)
        assert {x.dtype for x in small_dense.spd_inverse(A)} == {jnp.dtype(dtype)}
        G, rank = small_dense.generalized_inverse(A)
        assert (G.dtype, rank.dtype) == (jnp.dtype(dtype), jnp.dtype(jnp.int32))


@pytest.mark.long
@pytest.mark.float32
@pytest.mark.parametrize("n", [1, 5, 13, 15, 37, 39])
def test_inverse_factor_of_lanes(n, rng, tolerance):
    """Written out and in a loop, by blocks that do and do not make up the matrix."""
    matrices = np.stack([random_spd(rng, n) for _ in range(3)])
    rhs = rng.normal(size=(3, n))
    factor = small_dense.inverse_factor_lanes(jnp.array(matrices.transpose(1, 2, 0)))
    expected = np.linalg.inv(np.linalg.cholesky(matrices))
    np.testing.assert_allclose(np.asarray(factor).transpose(2, 0, 1), expected, atol=tolerance(1e-12, 1e-4))
    x = np.asarray(small_dense.solve_factored_lanes(factor, jnp.array(rhs.T))).T
    np.testing.assert_allclose(np.einsum("bij,bj->bi", matrices, x), rhs, atol=tolerance(1e-11, 1e-3))
