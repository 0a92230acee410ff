"""The derivative of a search by its replay: as JAX's own, in loops, batches and of second order."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from jaxcontact.algebra.replay_rule import differentiate_at_once, differentiate_by_replay

A, X = jnp.array(0.7), jnp.array([0.1, 0.2, 0.3])


def step(a, x, number):
    return {"x": jnp.sin(a * x) + x**2, "number": number + 1, "sum": jnp.sum(a * x)}


def summed(function):
    def roll(a, x):
        def one(x, number):
            out = function(a, x, number)
            return out["x"], (out["sum"], out["number"])

        x, (sums, _) = lax.scan(one, x, jnp.arange(5))
        return jnp.sum(x) + jnp.sum(sums)

    return roll


@pytest.mark.long
@pytest.mark.parametrize(
    "derived",
    [
        jax.value_and_grad,
        lambda f: jax.jacfwd(f, argnums=(0, 1)),
        lambda f: jax.hessian(f, argnums=1),
        lambda f: jax.vmap(jax.grad(f, argnums=(0, 1)), in_axes=(0, None)),
        lambda f: jax.jacrev(jax.vmap(f, in_axes=(0, None)), argnums=(0, 1)),
    ],
    ids=["reverse", "forward", "second", "batch of reverse", "reverse of batch"],
)
def test_derivatives_are_those_of_the_function(derived):
    a = jnp.stack([A, 2 * A])
    at = a if "vmap" in derived.__code__.co_names else A
    expected = derived(summed(step))(at, X)
    measured = jax.jit(derived(summed(differentiate_at_once(step))))(at, X)
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-12), measured, expected)


def test_values_come_from_the_search_and_derivatives_from_the_replay():
    def search(x):
        root = x
        for _ in range(30):
            root = 0.5 * (root + x / root)
        return root, root

    root = differentiate_by_replay(
        lambda x: search(lax.stop_gradient(x)), lambda x, log: log + (x - log**2) / (2 * log)
    )
    value, slope = jax.value_and_grad(root)(jnp.array(2.0))
    np.testing.assert_allclose([value, slope], [2**0.5, 0.5 / 2**0.5], rtol=1e-14)


def test_a_loop_carries_one_operation():
    program = str(jax.make_jaxpr(jax.grad(summed(differentiate_at_once(step))))(A, X))
    assert program.count("pull_back[") == 1 and "cos" not in program
