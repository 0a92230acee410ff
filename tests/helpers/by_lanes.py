"""A function by `jc.simd` against JAX's batch of it."""

import jax
import jax.numpy as jnp
import numpy as np

import jaxcontact as jc


def close(function, *batch, rtol=1e-13, atol=1e-14):
    """Asserts that `jc.simd` of the function has the results of `jax.vmap`, and their dtypes and shapes."""
    batch = [np.asarray(jnp.asarray(each)) for each in batch]
    single = jnp.zeros(0).dtype == np.float32
    expected = jax.jit(jax.vmap(function))(*batch)
    found = jc.simd(function)(*batch)
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        assert a.dtype == b.dtype and a.shape == b.shape
        if a.dtype.kind == "f":
            near = atol
            if single:  # a difference of large numbers has their rounding
                near = max(atol, 2e-6 * np.max(np.abs(b), where=np.isfinite(b), initial=1.0))
            np.testing.assert_allclose(a, b, rtol=max(rtol, 2e-6) if single else rtol, atol=near)
        else:
            np.testing.assert_array_equal(a, b)
