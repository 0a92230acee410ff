"""Energy of a motion: contacts that stick hold their place, and what makes energy from nothing says so."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxcontact as jc
from jaxcontact.impact.laws.callable_laws import law_as_pytree
from jaxcontact.simulate.variational import energy
from jaxcontact.simulate.variational.contact_state import contacts_of, make_node, terms_at
from jaxcontact.simulate.variational.discrete_mechanics import MidpointStep
from jaxcontact.simulate.variational.impact_event import strike

G = 9.81
CORNER = np.array([0.5, -1.0])  # lower right one of the block
NUM_STEPS = 240  # of every motion here: one program


@functools.cache
def block():
    with jax.ensure_compile_time_eval():  # a jitted function may be the first to ask
        return jc.models.rocking_block()


def rotated(angle, point):
    c, s = np.cos(angle), np.sin(angle)
    return np.stack([c * point[0] - s * point[1], s * point[0] + c * point[1]], axis=-1)


def moved(q, dt):
    model = block()
    state = model.initial_state().replace(q=jnp.asarray(q, float), v=jnp.zeros(3))
    return jc.simulate.variational(
        model, state, jc.simulate.Variational(restitution=0.3, max_impacts=8), dt=dt, duration=NUM_STEPS * dt
    )


def energies(states):
    mass, inertia = block().params.mass[0], block().params.inertia[0]
    v, height = np.asarray(states.v, np.float64), np.asarray(states.q, np.float64)[:, 1]
    return 0.5 * mass * np.sum(v[:, :2] ** 2, 1) + 0.5 * inertia * v[:, 2] ** 2 + mass * G * height


@pytest.mark.slow
def test_a_block_rocks_on_a_corner_that_stays_where_it_is():
    """For 0.6 s; its motion and its energy are of second order, its corner is held."""
    tilt = -0.42
    start = np.array([*-rotated(tilt, CORNER), tilt])
    ends, rises = [], []
    for dt, last in ((0.01, 60), (0.005, 120), (0.0025, 240)):
        found = moved(start, dt)
        q = np.asarray(found.states.q)[: last + 1]
        assert not np.any(np.asarray(found.status)[:last]) and np.all(np.asarray(found.contacts)[:last, 1])
        assert np.max(np.abs(q[:, :2] + rotated(q[:, 2], CORNER))) < 1e-12
        ends.append(q[-1])
        rises.append(np.max(np.abs(energies(found.states)[: last + 1] / energies(found.states)[0] - 1.0)))
    apart = [np.max(np.abs(ends[i] - ends[i + 1])) for i in range(2)]
    assert 3.8 < apart[0] / apart[1] < 4.2
    assert 3.8 < rises[0] / rises[1] < 4.2 and 3.8 < rises[1] / rises[2] < 4.2 and rises[2] < 1e-6


@pytest.mark.slow
@pytest.mark.float32
def test_a_block_that_chatters_makes_no_energy(tolerance):
    """Dropped on a corner: gaps that round-off leaves are closed without momentum, however short the step."""
    found = moved([0.0, 1.3, 0.2], 5e-3)
    energy = energies(found.states)
    assert np.max(np.diff(energy)) < tolerance(1e-5, 2e-3)
    lowest = np.asarray(found.states.q)[:, 1:2] + rotated(np.asarray(found.states.q)[:, 2], CORNER)[:, 1:]
    assert np.min(lowest) > -tolerance(1e-9, 2e-4)
    assert not np.any(np.asarray(found.status) & jc.Status.FAILURES)


@jax.jit
def a_move(lam, gain):
    """Whether a move of 1e-4 s from rest on the left corner gains energy: impulse lam (N s), momentum x gain."""
    model, h = block(), 1e-4
    tilt = 0.2
    q = jnp.array([*-rotated(tilt, CORNER * np.array([-1.0, 1.0])), tilt])
    here = functools.partial(terms_at, model)
    terms = here(q, jnp.zeros(()))
    node = make_node(terms, q, jnp.zeros(3), jnp.zeros(()))
    impulse = jnp.zeros((2, 2)).at[0, 0].set(lam)
    push = contacts_of(terms, node.closed).rows[0, 0] * lam
    force = jnp.array([0.0, -G * h, 0.0])
    w = jnp.linalg.solve(terms.M, push + 0.5 * force)
    end, p = q + h * w, (push + force) * gain
    step = MidpointStep(w, impulse, end, p, jnp.array(True), jnp.zeros(()), jnp.zeros_like(terms.phi), None)
    after = make_node(here(end, jnp.array(h)), end, p, jnp.array(h))
    gains = energy.move_gains(model, node, step, after, jnp.zeros((2, 2)), jnp.array(h))
    return node.closed, gains


def test_a_move_that_makes_energy_says_so():
    for lam, gain, gains in (
        (0.0, 1.0, False),
        (1.0, 1.0, True),  # thrown off the floor by a push that nothing asked for
        (0.0, -300.0, True),  # falling, and flung up
    ):
        closed, found = a_move(lam, gain)
        assert closed.tolist() == [True, False] and bool(found) == gains


def test_an_impact_that_makes_energy_says_so():
    model = block()
    q = jnp.array([0.0, 1.0, 0.0])
    terms = terms_at(model, q, jnp.zeros(()))
    before, after = (
        make_node(terms, q, terms.M @ v, 0.0)
        for v in (model.initial_state().v, -1.01 * model.initial_state().v)
    )
    assert bool(energy.impact_gains(before, after)) and not bool(energy.impact_gains(after, before))
    assert not bool(energy.impact_gains(before, before))


@pytest.mark.slow
def test_a_batch_asks_a_law_only_where_there_is_an_impact():
    """Each of four worlds in its turn; one of them has an impact that is not plastic."""
    asked = []

    def count(speed):
        asked.append(float(speed))
        return speed

    def law(terms, v, key):
        shape = jax.ShapeDtypeStruct((), v.dtype)
        speed = jax.pure_callback(count, shape, v[1], vmap_method="sequential")
        v_plus, info = jc.impact.anitescu_potra(terms, v)
        return v_plus + 0.0 * speed, info

    model = block()
    terms = terms_at(model, model.initial_state().q, jnp.zeros(()))
    speeds = jnp.array([-1.0, -2.0, -3.0, -4.0])

    def one(speed, plastic):
        v = jnp.zeros(3).at[1].set(speed)
        return strike(terms, v, None, plastic, jnp.array(0.0), "most_violated", law_as_pytree(law)).v_plus

    quiet = jnp.array([True, True, False, True])
    v_plus = jax.jit(jax.vmap(one))(speeds, quiet)
    np.testing.assert_allclose(v_plus, 0.0, atol=1e-12)
    assert asked == [-3.0]
    twice = jax.jit(jax.vmap(jax.vmap(one)))(speeds.reshape(2, 2), quiet.reshape(2, 2))
    np.testing.assert_allclose(twice, 0.0, atol=1e-12)
    assert asked == [-3.0, -3.0]
