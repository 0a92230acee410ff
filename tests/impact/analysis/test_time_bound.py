"""The time that a path of the continuous model takes at least, against random paths."""

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxcontact as jc

BLOCK = jc.models.rocking_block()
G, TURN = 9.81, 0.3  # m/s^2, rad: configurations up to this angle


def configurations(count=31):
    every = []
    for angle in np.linspace(-TURN, TURN, count):
        state = BLOCK.initial_state().replace(q=jnp.array([0.0, 1.0, angle]))
        every.append(jc.contact_terms(BLOCK, state).touching([0, 1]))
    return every


@functools.partial(jax.jit, static_argnums=1)
def paths(states, batch, rates):
    def one(case):
        state, rate = case
        path, info = jc.simulate.time_augmented(BLOCK, state, length=12.0, rates=rate, max_pieces=96)
        return path.s, path.t, path.q, path.v, info.status

    return jax.lax.map(one, (states, rates), batch_size=batch)


def held(count, seed=0):
    """Every part of random paths takes the time that the bound says, at the energy of its path."""
    rng = np.random.default_rng(seed)
    q = np.stack([np.zeros(count), 1.3 + 0.2 * rng.random(count), rng.uniform(-0.2, 0.2, count)], axis=1)
    v = rng.normal(size=(count, 3)) * [1.0, 0.5, 0.5]
    states = jc.State(q=jnp.asarray(q), v=jnp.asarray(v), t=jnp.zeros(count))
    rates = jnp.asarray(rng.uniform(size=(count, 2)) ** 4 + 1e-3)
    s, t, places, speeds, _ = map(np.asarray, paths(states, 16, rates))
    terms, mass = configurations(), np.asarray(BLOCK.params.mass)[0]
    M = np.asarray(terms[0].M)
    unit = jc.impact.time_bound(terms, speed=1.0, forces=np.array([0.0, -mass * G, 0.0]))
    used, still = 0, 0.0
    for i in range(count):
        if np.abs(places[i, :, 2]).max() > TURN:
            continue
        used += 1
        energy = 0.5 * np.einsum("ki,ij,kj->k", speeds[i], M, speeds[i]) + mass * G * (places[i, :, 1] - 0.9)
        bound = unit.replace(still=math.sqrt(2 * energy[0]) * unit.still)
        length, time = s[i][None] - s[i][:, None], t[i][None] - t[i][:, None]
        assert np.all((time >= bound.least_time(length) - 1e-9)[length >= 0])
        still = max(still, float(np.max(np.where(time < 1e-12, length, 0.0))) / bound.still)
    assert used > count / 4 and 0.05 < still < 1.0  # time does stand still


def test_rest_is_as_slow_as_the_bound():
    """On both corners dt/ds = 1 / (1 + m g)."""
    bound = jc.impact.time_bound(configurations(), speed=1.0, forces=jnp.array([0.0, -9.81, 0.0]))
    assert bound.rate == pytest.approx(1 / (1 + 9.81), rel=1e-9)
    one = jc.impact.impulse_bound(configurations(3)[1], jnp.array([0.0, -1.0, 0.0]))
    assert bound.still <= 1.5 * one.per_speed and bound.least_time(bound.still) == 0.0
    assert jc.impact.time_bound(configurations(3), speed=0.0, forces=jnp.zeros(3)).least_time(2.0) == 2.0


def test_contacts_that_jam_have_no_bound():
    """Two walls that face each other push without end."""
    terms = configurations(3)[1]
    facing = terms.replace(J_n=jnp.array([[1.0, 0, 0], [-1.0, 0, 0]]), J_t=jnp.zeros((2, 1, 3)))
    bound = jc.impact.time_bound(facing, speed=1.0, forces=jnp.zeros(3))
    assert math.isinf(bound.still) and bound.rate == 0.0 and "pointed" in bound.reason
    assert bound.least_time(1e9) == 0.0
    with pytest.raises(ValueError, match="forces: expected finite numbers of shape"):
        jc.impact.time_bound(terms, speed=1.0, forces=jnp.zeros(2))
    with pytest.raises(ValueError, match="speed"):
        jc.impact.time_bound(terms, speed=-1.0, forces=jnp.zeros(3))
    with pytest.raises(ValueError, match="terms: expected at least one configuration"):
        jc.impact.time_bound([], speed=1.0, forces=jnp.zeros(3))


@pytest.mark.slow
def test_random_paths_take_the_time_of_the_bound():
    held(10_000)
