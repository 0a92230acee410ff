"""A batch in shares, one for each core, is the batch."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxcontact.batching import all_cores


@pytest.mark.float32
def test_shares_of_a_batch_make_the_batch(monkeypatch):
    monkeypatch.setattr(all_cores, "workers", lambda devices: list(devices) * 3)
    calls = []

    def function(x, other):
        calls.append(x.shape)
        return {"sum": x.sum(axis=1) + other["shift"], "x": 2 * x}

    run = all_cores.on_all_cores(function)
    for size in (1, 2, 3, 4, 7, 7):
        x, other = jnp.arange(2.0 * size).reshape(size, 2), {"shift": np.arange(size)}
        jax.tree.map(np.testing.assert_array_equal, run(x, other), function(x, other))
    # Traced once for shares of 1, 2 and 3 worlds, however often called, beside the calls of the test.
    assert len(calls) == 3 + 6


def test_a_batch_needs_one_first_axis():
    run = all_cores.on_all_cores(lambda *x: x[0])
    for batch in ((), (jnp.ones(()),), (jnp.ones(0),), (jnp.ones(2), jnp.ones(3))):
        with pytest.raises(ValueError, match="batch: expected"):
            run(*batch)
