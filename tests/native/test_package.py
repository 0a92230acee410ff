"""Every traceable public function, in the lanes of `jc.simd`, against JAX's batch of it."""

import jax
import numpy as np
import pytest
from helpers.traceable import CASES

import jaxcontact as jc

WORLDS = 5
LONG = {"propagate_all", "simulate.variational"}  # a million operations, whose compiling takes minutes


def spread(leaf):
    """A batch of numbers that differ by up to one part in a hundred; counts and keys do not."""
    leaf = np.asarray(leaf)
    if not np.issubdtype(leaf.dtype, np.floating):
        return np.stack([leaf] * WORLDS)
    factors = 1.0 + 0.01 * np.random.default_rng(5).uniform(size=WORLDS)
    return leaf * factors.reshape(-1, *(1,) * leaf.ndim)


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(CASES.keys() - LONG))
def test_every_traceable_function(name):
    function, arguments = CASES[name]
    batch = jax.tree.map(spread, arguments)
    expected = jax.jit(jax.vmap(function))(*batch)
    found = jc.simd(function)(*batch)
    paths = [jax.tree_util.keystr(path) for path, _ in jax.tree_util.tree_leaves_with_path(found)]
    for path, a, b in zip(paths, jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        assert a.dtype == b.dtype and a.shape == b.shape
        size = max(1.0, np.max(np.abs(b), initial=0.0))
        if path.endswith((".residual", ".dissipation")):  # what the tolerance of a solver leaves of them
            np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-7, err_msg=path)
        elif a.dtype.kind == "f":
            np.testing.assert_allclose(a, b, rtol=1e-8, atol=1e-9 * size, err_msg=path)
        elif path.endswith(
            ("iterations", "num_iters")
        ):  # rounding chooses modes of the first steps, and the last
            assert np.max(np.abs(a - b)) <= 3, path
        elif not path.endswith(".contacts"):  # whether a gap is above zero, which rounding tells of a corner
            np.testing.assert_array_equal(a, b, err_msg=path)
