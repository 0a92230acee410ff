"""A batch in shares, one for each core, is the batch."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxcontact.batching import all_cores


@pytest.mark.long
@pytest.mark.float32
def test_shares_of_a_batch_make_the_batch(monkeypatch):
    monkeypatch.setattr(all_cores, "workers", lambda devices: list(devices) * 3)
    calls = []

    def function(x, other):
        calls.append(x.shape)
        return {"sum": x.sum(axis=1) + other["shift"], "x": 2 * x}

    run = all_cores.on_all_cores(function)
    for size in (1, 2, 3, 4, 7, 33, 33):
        x, other = jnp.arange(2.0 * size).reshape(size, 2), {"shift": np.arange(size)}
        jax.tree.map(np.testing.assert_array_equal, run(x, other), function(x, other))
    # Traced once for shares of 1, 2, 3, 4 and 5 worlds, however often called, beside the calls of the test.
    assert len(calls) == 5 + 7


def test_the_bits_are_those_of_any_number_of_cores_up_to_eight(monkeypatch):
    x = jnp.asarray(np.random.default_rng(0).standard_normal((37, 50)))
    found = []
    for cores in (1, 2, 3, 8):
        monkeypatch.setattr(all_cores, "workers", lambda devices, cores=cores: list(devices) * cores)
        found.append(np.asarray(all_cores.on_all_cores(lambda x: jnp.sum(jnp.sin(x) * x, axis=1))(x)))
        np.testing.assert_array_equal(found[-1], found[0])


def test_a_batch_needs_one_first_axis():
    run = all_cores.on_all_cores(lambda *x: x[0])
    for batch in ((), (jnp.ones(()),), (jnp.ones(0),), (jnp.ones(2), jnp.ones(3))):
        with pytest.raises(ValueError, match="batch: expected"):
            run(*batch)
