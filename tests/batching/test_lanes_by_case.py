"""A switch of which each lane runs only its own branch ends as `lax.switch` does, lane by lane."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from jaxcontact.batching import lanes_by_case, platforms

BRANCHES = [
    lambda x: (x, jnp.int32(0)),
    lambda x: (jnp.sin(x), jnp.int32(1)),
    lambda x: lax.while_loop(
        lambda c: jnp.sum(c[0]) < 1e3, lambda c: (2.0 * c[0] + 1.0, c[1] + 1), (x, jnp.int32(0))
    ),
]


def _by_case(case, x):
    return lanes_by_case.switch(case, BRANCHES, x)


@pytest.mark.slow_cases("True")
@pytest.mark.long
@pytest.mark.parametrize("elsewhere", [False, True])
def test_lanes_take_their_own_branch(elsewhere):
    rng = np.random.default_rng(3)
    case, x = jnp.asarray(rng.integers(-1, 4, (3, 50)), jnp.int32), jnp.asarray(rng.random((3, 50, 2)))
    want = jax.vmap(jax.vmap(lambda c, x: lax.switch(c, BRANCHES, x)))(case, x)
    if elsewhere:
        with platforms.as_elsewhere():
            got = jax.jit(jax.vmap(jax.vmap(_by_case)))(case, x)
    else:
        got = jax.jit(jax.vmap(jax.vmap(_by_case)))(case, x)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-14), got, want)
    alone = _by_case(case[1, 7], x[1, 7])
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b[1, 7], rtol=1e-14), alone, want)


def test_a_poisoned_lane_stays_alone():
    x = jnp.ones((40, 2))
    good = jax.vmap(_by_case)(jnp.ones(40, jnp.int32), x)
    bad = jax.vmap(_by_case)(jnp.ones(40, jnp.int32), x.at[5].set(jnp.nan))
    others = np.arange(40) != 5
    np.testing.assert_array_equal(good[0][others], bad[0][others])
    assert np.all(np.isnan(bad[0][5]))
