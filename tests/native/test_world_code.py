"""What a function learns about its program."""

import jax
import jax.numpy as jnp
import numpy as np

import jaxcontact as jc
from jaxcontact.batching.world_code import takes_one_at_a_time


def test_only_a_batch_by_xla_takes_many_worlds_at_once():
    def question(x):
        return jnp.where(takes_one_at_a_time(x), 1.0, 0.0) + 0.0 * x

    x = jnp.arange(3.0)
    assert question(x[0]) == 1.0
    assert jax.jit(question)(x[0]) == 1.0
    np.testing.assert_array_equal(jax.jit(jax.vmap(question))(x), 0.0)
    np.testing.assert_array_equal(jax.vmap(jax.jit(question))(x), 0.0)
    np.testing.assert_array_equal(jc.simd(question)(np.asarray(x)), 1.0)
    np.testing.assert_array_equal(jax.lax.map(question, x), 1.0)
    slope = jax.grad(lambda y: jnp.where(takes_one_at_a_time(jax.lax.stop_gradient(y)), 2.0, 3.0) * y)
    assert slope(1.0) == 2.0
    np.testing.assert_array_equal(jax.vmap(slope)(x), 3.0)


def test_on_another_device_it_does_not():
    lowered = jax.jit(takes_one_at_a_time).trace(1.0).lower(lowering_platforms=("cuda",)).as_text()
    assert "dense<false>" in lowered
