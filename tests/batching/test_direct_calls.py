"""A program called from Python has options of its own; a traced one has none and gives the same."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxcontact.batching import direct_calls


@pytest.fixture
def program():
    direct_calls.quick_options.cache_clear()
    yield direct_calls.jit_quickly(lambda x, power: jnp.sin(x) ** power, static_argnames="power")
    direct_calls.quick_options.cache_clear()


def test_it_is_called_and_traced(program):
    x = jnp.linspace(0.1, 1.0, 5)
    expected = np.sin(np.asarray(x)) ** 2
    slope = 2.0 * np.sin(np.asarray(x)) * np.cos(np.asarray(x))
    np.testing.assert_allclose(program(x, power=2), expected, rtol=1e-6)
    np.testing.assert_allclose(jax.jit(lambda x: program(x, power=2))(x), expected, rtol=1e-6)
    np.testing.assert_allclose(jax.vmap(lambda x: program(x, power=2))(x), expected, rtol=1e-6)
    np.testing.assert_allclose(jax.grad(lambda x: program(x, power=2).sum())(x), slope, rtol=1e-6)
    np.testing.assert_allclose(jax.jvp(lambda x: program(x, power=2), (x,), (x,))[1], slope * x, rtol=1e-6)
    scanned, _ = jax.lax.scan(lambda c, _: (program(c, power=1), None), x, None, length=2)
    np.testing.assert_allclose(scanned, np.sin(np.sin(np.asarray(x))), rtol=1e-6)


def test_an_argument_that_is_no_tracer_may_be_inside_a_program(program):
    """The options are no part of another program, whatever the arguments are."""
    found = jax.jit(lambda y: y + program(np.float64(0.5), power=2))(1.0)
    assert found == pytest.approx(1.0 + np.sin(0.5) ** 2)


def test_a_version_without_the_options_does_without(program, monkeypatch):
    monkeypatch.setattr(direct_calls, "QUICK", {"xla_cpu_no_such_option": True})
    assert direct_calls.quick_options() == {}
    assert program(0.5, power=2) == pytest.approx(np.sin(0.5) ** 2)
