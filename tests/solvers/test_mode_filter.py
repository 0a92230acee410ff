"""A sieve finds the valid modes of the table, whatever rows it looks at first."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxcontact as jc
from jaxcontact.impact.sampling.by_modes import tabulate
from jaxcontact.solvers import contact_modes, mode_filter

LIMIT = 0.5  # so wide that modes of the disks are valid at random x now and then


@pytest.mark.slow
@pytest.mark.float32
def test_scores_are_those_of_the_valid_modes():
    model = jc.models.disk_stack()
    table = tabulate(jc.contact_terms(model, model.initial_state()))[1].take(np.arange(0, 16807, 60)[:256])
    rng = np.random.default_rng(3)
    x = rng.normal(size=(15, 64)).astype(table.margin.dtype)
    x[10:] = np.abs(x[10:])
    evaluate = jax.jit(contact_modes.evaluate)
    possible = jax.jit(jax.vmap(mode_filter.possible, (None, None, 0, None)))
    worst = np.asarray(evaluate(table, jnp.asarray(x)))
    score = np.einsum("lk,ln->kn", np.asarray(table.score), x)
    telling = mode_filter.telling_rows(np.asarray(table.margin), x)
    chosen = rng.integers(15, size=telling.shape)
    cone = np.asarray(evaluate(table, jnp.asarray(1e30 * x))) / 1e30
    left = []
    for rows in (telling, chosen):
        these = mode_filter.sieve(table, rows)
        maybe = np.asarray(possible(these, x, np.eye(64, dtype=bool), LIMIT)).T
        assert np.all(maybe[worst < 0.99 * LIMIT])
        far = np.asarray(possible(these, 1e30 * x, np.eye(64, dtype=bool), LIMIT)).T
        assert np.all(far[cone < 0.99e-30 * LIMIT])
        left.append(maybe.sum())
        index = np.flatnonzero(maybe.any(axis=1))
        padded = jnp.asarray(np.pad(index, (0, 256 - index.size), constant_values=256), jnp.int32)
        got = np.asarray(jax.jit(mode_filter.scores)(these.rows, padded, jnp.int32(index.size), x, LIMIT))
        assert np.all(np.isinf(got[index.size :]))
        clear = np.abs(worst[index] - LIMIT) > 1e-3
        valid = np.isfinite(got[: index.size])
        np.testing.assert_array_equal(valid[clear], (worst[index] <= LIMIT)[clear])
        np.testing.assert_allclose(got[: index.size][valid], score[index][valid], rtol=1e-3, atol=1e-4)
        assert valid.sum() > 20
    assert left[0] < 0.5 * left[1]


def test_places_are_those_of_nonzero():
    rng = np.random.default_rng(5)
    places = jax.jit(mode_filter.places, static_argnums=1)
    for share in (0.0, 0.03, 0.5, 1.0):
        these = rng.uniform(size=256) < share
        for size in (16, 256):
            want = jnp.nonzero(these, size=size, fill_value=256)[0]
            np.testing.assert_array_equal(places(jnp.asarray(these), size), want)
