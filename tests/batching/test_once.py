"""A value that is computed once is the value, and the compiler does not find out."""

import jax
import jax.numpy as jnp
import numpy as np

from jaxcontact.batching.once import computed_once


def test_it_is_the_same_number():
    values = jnp.array([0.0, -0.0, 1.5, -2e300, 3e-308, jnp.inf, -jnp.inf, jnp.nan])
    once = jax.jit(computed_once)(values)
    np.testing.assert_array_equal(once, values)
    np.testing.assert_array_equal(np.signbit(once), np.signbit(values))
    single = jnp.float32([1.5, jnp.inf])
    assert computed_once({"a": single})["a"].dtype == jnp.float32


def test_it_has_all_derivatives():
    def cube(x):
        return computed_once(x) ** 3

    assert jax.grad(cube)(2.0) == 12.0 and jax.hessian(cube)(2.0) == 12.0
    assert jax.jacfwd(jax.grad(cube))(2.0) == 12.0


def test_the_compiled_program_still_divides():
    def used_thrice(x):
        total = computed_once(3.0 * x[0] + x[1])
        return jnp.cos(total), total[::-1] * 2.0, jnp.cumsum(total)

    assert " divide(" in jax.jit(used_thrice).lower(jnp.ones((2, 64))).compile().as_text()
