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


def shapes():
    return {"a": jnp.arange(6.0).reshape(2, 3), "b": jnp.array(7.0), "none": jnp.zeros((0, 2))}


def divisions(function, *arrays):
    return jax.jit(function).lower(*arrays).as_text().count("stablehlo.divide")


def test_small_arrays_are_divided_by_one_kernel():
    arrays = shapes()
    jax.tree.map(np.testing.assert_array_equal, jax.jit(computed_once)(arrays), arrays)
    assert divisions(computed_once, arrays) == 1
    large = {"a": jnp.ones(2000), "b": jnp.ones(2000)}
    assert divisions(computed_once, large) == 2
    mixed = {"a": jnp.ones(2), "b": jnp.ones(2, jnp.float16)}
    assert jax.tree.map(lambda x: x.dtype, jax.jit(computed_once)(mixed)) == {
        "a": jnp.ones(1).dtype,
        "b": np.float16,
    }


def test_large_batches_are_left_to_the_compiler_if_asked():
    def once(x):
        return computed_once((x, 2.0 * x), in_batches=False)

    for lanes, count in ((2, 1), (4096, 0)):
        batch = jnp.ones((lanes, 3))
        assert divisions(jax.vmap(once), batch) == count
        jax.tree.map(np.testing.assert_array_equal, jax.vmap(once)(batch), (batch, 2.0 * batch))
    assert divisions(once, jnp.ones(4096)) == 2


def test_arrays_without_a_change_have_no_derivative():
    def half(x):
        moved, still = computed_once((x, jnp.ones(3)))
        return jnp.sum(moved * still)

    np.testing.assert_array_equal(jax.grad(half)(jnp.ones(3)), jnp.ones(3))
    np.testing.assert_array_equal(jax.vmap(jax.grad(half))(jnp.ones((2, 3))), jnp.ones((2, 3)))
