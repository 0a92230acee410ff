"""The smallest entries of a vector, as numpy sorts them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxcontact.algebra.selection import smallest


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_smallest_entries_of_a_batch(dtype):
    """Also where a lane holds infinities, and numbers that differ in size by 1e30."""
    rng = np.random.default_rng(0)
    values = (rng.normal(size=(50, 40)) * 10.0 ** rng.uniform(-15, 15, (50, 40))).astype(dtype)
    values[3, ::5] = np.inf
    found = jax.jit(jax.vmap(lambda x: smallest(x, 7)))(values)
    np.testing.assert_array_equal(found, np.argsort(values, axis=1, kind="stable")[:, :7])


def test_entries_that_agree_to_seven_digits_count_as_equal():
    """The first of them are taken."""
    values = jnp.array([1.0, 0.5 + 1e-12, 0.5, 0.5 - 1e-12, 2.0])
    np.testing.assert_array_equal(smallest(values, 2), [1, 2])


def test_a_number_that_is_none_is_selected():
    """So that it reaches the result; the other lanes do not feel it."""
    values = jnp.array([[3.0, 1.0, jnp.nan, 2.0], [3.0, 1.0, 4.0, 2.0]])
    found = np.asarray(jax.vmap(lambda x: smallest(x, 2))(values))
    assert 2 in found[0]
    np.testing.assert_array_equal(found[1], [1, 3])
