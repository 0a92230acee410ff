"""Steps of a batch, in tiles that leave their slow lanes behind, are the steps alone."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxcontact as jc


@pytest.mark.slow
def test_a_batch_of_odd_size_agrees_with_single_steps(rng):
    """300 boxes: more than two tiles, rest, slides, falls and blows between them."""
    model = jc.models.box_on_incline(0.25)
    v = rng.normal(size=(300, 6)) * rng.choice([0.0, 0.1, 3.0], (300, 1))
    step = jax.jit(lambda v: jc.compliant.step(
        model, model.initial_state().replace(v=v), jnp.zeros(6), dt=0.01
    ))  # fmt: skip
    many, info = jax.jit(jax.vmap(step))(jnp.asarray(v))
    assert not np.any(info.status)
    assert np.max(info.num_iters) > np.min(info.num_iters) + 3
    for i in range(0, 300, 23):
        alone, single = step(jnp.asarray(v[i]))
        np.testing.assert_allclose(many.v[i], alone.v, atol=1e-12)
        assert int(info.num_iters[i]) == int(single.num_iters)
