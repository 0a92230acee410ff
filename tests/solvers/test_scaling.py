"""`scales`: scales that undo wide units, alone, in nested batches, and with nothing to scale."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from jaxcontact.solvers.scaling import scales


def test_undoes_wide_units_in_any_batch():
    """2^a_i A_ij 2^b_j with A near 1: the scaled entries are within a small factor of 1."""
    rng = np.random.default_rng(0)
    units = 2.0 ** rng.integers(-40, 40, (2, 7, 10, 2, 5))
    matrices = rng.uniform(0.5, 2.0, (7, 10, 5, 5)) * rng.choice([-1, 1], (7, 10, 5, 5))
    matrices = units[0][:, :, 0, :, None] * matrices * units[1][:, :, 1, None, :]
    matrices[0, 0], matrices[0, 1, 2] = 0.0, 0.0
    run = jax.jit(jax.vmap(jax.vmap(lambda matrix: scales(matrix, 3))))
    r, c = (np.asarray(x) for x in run(jnp.asarray(matrices)))
    for x in (r, c):
        np.testing.assert_allclose(np.log2(x), np.round(np.log2(x)), atol=1e-12)
    scaled = np.abs(r[..., :, None] * matrices * c[..., None, :])
    present = scaled > 0
    # Entries of A span two octaves, the scales of the other side two more, and rounding adds one each.
    assert scaled[present].max() <= 8 and scaled[present].min() >= 1 / 8
    np.testing.assert_allclose(r[0, 0], 1.0, rtol=1e-14)
    one = jax.jit(lambda matrix: scales(matrix, 3))(jnp.asarray(matrices[3, 4]))
    np.testing.assert_array_equal(one[0], r[3, 4])
    np.testing.assert_array_equal(one[1], c[3, 4])


def test_round_off_in_place_of_zeros_leaves_the_scales():
    """Uncoupled pairs of rows, whose zeros a product of factors has left as 1e-14 of the diagonal."""
    rng = np.random.default_rng(1)
    clean = np.kron(np.eye(4), np.array([[2.0, 0.5], [0.5, 1.0]]))
    noise = 1e-14 * rng.uniform(0.5, 1.0, (8, 8)) * rng.choice([-1, 1], (8, 8))
    run = jax.jit(jax.vmap(lambda matrix: scales(matrix, 3)))
    r, c = (np.asarray(x) for x in run(jnp.asarray(np.stack([clean, clean + noise + noise.T]))))
    for x in (r, c):  # rounded logarithms may fall to either side
        ratio = x[1] / x[0]
        assert ratio.max() <= 2.0 and ratio.min() >= 0.5
