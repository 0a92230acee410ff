"""A tangent that is not linear: where it passes, and that no derivative of it is a silent zero."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from jaxcontact.algebra.forward_only import forward_only

AT_KINK = jnp.zeros(3)
DIRECTION = jnp.array([2.0, -3.0, 0.0])
RATES = np.array([2.0, 0.0, 0.0])  # of max(x, 0) at zero


@jax.custom_jvp
def ramp(x):
    return jnp.maximum(x, 0.0)


@ramp.defjvp
def _ramp_jvp(primals, tangents):
    (x,), (change,) = primals, tangents
    rate = jnp.where(x == 0, jnp.maximum(change, 0.0), jnp.where(x > 0, change, 0.0))
    return ramp(x), forward_only(rate, x, reverse="no reverse", second="no second")


def in_scan(x):
    """Add a ramp of a shifted point in each iteration; the rates add up to three times those of one."""
    return lax.scan(lambda total, k: (total + ramp(x + 0.0 * k), None), 0.0 * x, jnp.arange(3.0))[0] / 3.0


def in_cond(x):
    return lax.cond(jnp.sum(x) >= 0, ramp, lambda x: -x, x)


def in_loop(x):
    return lax.while_loop(lambda c: c[0] < 2, lambda c: (c[0] + 1, ramp(c[1])), (0, x))[1]


FUNCTIONS = {
    "alone": ramp,
    "jit": jax.jit(ramp),
    "scan": in_scan,
    "cond": in_cond,
    "while": in_loop,
    "map": lambda x: lax.map(ramp, x),
    "checkpoint": jax.checkpoint(ramp),
    "vmap over lanes": jax.vmap(ramp),
}


def rate_of(function, x, direction):
    return jax.jvp(function, (x,), (direction,))[1]


@pytest.mark.float32
@pytest.mark.parametrize("name", FUNCTIONS)
def test_the_rate_of_the_direction_passes(name):
    function = FUNCTIONS[name]
    np.testing.assert_array_equal(rate_of(function, AT_KINK, DIRECTION), RATES)
    np.testing.assert_array_equal(jax.jit(rate_of, static_argnums=0)(function, AT_KINK, DIRECTION), RATES)
    both = jnp.stack([DIRECTION, -DIRECTION])
    batch = jax.vmap(lambda d: rate_of(function, AT_KINK, d))(both)  # the point has no lanes
    np.testing.assert_array_equal(batch, [RATES, [0.0, 3.0, 0.0]])
    points = jnp.stack([AT_KINK, AT_KINK + 1.0])
    batch = jax.vmap(rate_of, in_axes=(None, 0, None))(function, points, DIRECTION)
    np.testing.assert_array_equal(batch, [RATES, DIRECTION])
    # Columns are the rates along the axes; their sum is no rate of another direction.
    columns = jax.jacfwd(function)(AT_KINK)
    np.testing.assert_array_equal(columns, np.eye(3))
    assert not np.array_equal(columns @ DIRECTION, RATES)
    text = jax.export.export(jax.jit(lambda x: rate_of(function, x, DIRECTION)), platforms=["cuda"])(AT_KINK)
    assert "custom_call" not in text.mlir_module()


@pytest.mark.parametrize("name", FUNCTIONS)
def test_reverse_mode_and_second_derivatives_are_refused(name):
    function, d = FUNCTIONS[name], DIRECTION
    for wrapped in (lambda f: f, jax.jit):
        if name != "while":  # which has no reverse mode in any case
            with pytest.raises(NotImplementedError, match="no reverse"):
                wrapped(jax.grad(lambda x: jnp.sum(function(x))))(AT_KINK)
            with pytest.raises(NotImplementedError, match="no reverse"):
                wrapped(lambda x: jax.vjp(function, x)[1](d))(AT_KINK)
        for second in (
            lambda x: rate_of(lambda x: rate_of(function, x, x), x, d),
            lambda x: rate_of(lambda x: rate_of(function, x, d), x, d),  # the inner direction is constant
            jax.jacfwd(jax.jacfwd(function)),
        ):
            with pytest.raises(NotImplementedError, match="no second"):
                wrapped(second)(AT_KINK)
