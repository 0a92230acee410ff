"""A loop that leaves finished lanes behind ends as `lax.while_loop` does, lane by lane."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from jaxcontact.batching import compacting_loop


def _running(state):
    return (state["number"] > 1) & (state["steps"] < 90)


def _body(state):
    """The number of steps of Collatz's sequence, which varies wildly; a finished lane stays."""
    n, on = state["number"], _running(state)
    after = jnp.where(n % 2 == 0, n // 2, 3 * n + 1)
    return {
        "number": jnp.where(on, after, n),
        "steps": state["steps"] + on,
        "trace": state["trace"] + jnp.where(on, jnp.sin(1.0 * after), 0.0),
    }


def _start(number):
    return {"number": number, "steps": jnp.int32(0), "trace": jnp.zeros(3)}


@pytest.mark.long
@pytest.mark.parametrize("count", [1, 64, 65, 300])
def test_lanes_end_as_alone(count):
    numbers = jnp.asarray(np.random.default_rng(count).integers(1, 2000, count), jnp.int32)
    got = jax.jit(jax.vmap(lambda n: compacting_loop.while_loop(_running, _body, _start(n))))(numbers)
    want = jax.jit(lambda n: lax.map(lambda n: lax.while_loop(_running, _body, _start(n)), n))(numbers)
    jax.tree.map(np.testing.assert_array_equal, got, want)
    assert count == 1 or np.ptp(np.asarray(got["steps"])) > 20


def test_batches_of_batches():
    numbers = jnp.arange(1, 201, dtype=jnp.int32).reshape(5, 40)
    solve = jax.vmap(lambda n: compacting_loop.while_loop(_running, _body, _start(n))["steps"])
    np.testing.assert_array_equal(
        jax.jit(jax.vmap(solve))(numbers), solve(numbers.reshape(-1)).reshape(5, 40)
    )


@pytest.mark.long
@pytest.mark.parametrize("count", [1, 8, 9, 300])
@pytest.mark.parametrize("platform", ["cpu", "other"])
def test_lanes_of_a_batch_end_as_alone(count, platform, monkeypatch):
    """Each lane has its own fixed number, too, and is finished once."""
    if platform == "other":
        monkeypatch.setattr(compacting_loop.platforms, "choose", lambda x, cpu, other: other(x))
    numbers = jnp.asarray(np.random.default_rng(count).integers(1, 2000, count), jnp.int32)
    fixed = jnp.arange(count, dtype=jnp.int32)

    def finish(fixed, state):
        return {**state, "steps": state["steps"] + fixed * state["number"]}

    got = jax.jit(
        lambda fixed, start: compacting_loop.while_lanes(
            _running, lambda _, state: jax.vmap(_body)(state), finish, fixed, start, wide=8
        )
    )(fixed, jax.vmap(_start)(numbers))
    want = jax.jit(lambda n: lax.map(lambda n: lax.while_loop(_running, _body, _start(n)), n))(numbers)
    want["steps"] = want["steps"] + fixed * want["number"]
    jax.tree.map(np.testing.assert_array_equal, got, want)
