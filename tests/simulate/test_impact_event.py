"""One impact in a motion: restitution by energy, orders, plastic impacts, laws; contacts that stay closed."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from oracles.problems import random_spd

import jaxcontact as jc
from jaxcontact.impact.laws.callable_laws import law_as_pytree
from jaxcontact.simulate.variational.active_set import contact_impulses
from jaxcontact.simulate.variational.impact_event import stop_contacts, strike


def random_terms(rng, nc, nv):
    return jc.ContactTerms(
        M=jnp.asarray(random_spd(rng, nv)),
        J_n=jnp.asarray(rng.normal(size=(nc, nv))),
        J_t=jnp.asarray(rng.normal(size=(nc, 1, nv))),
        phi=jnp.zeros(nc),
        mu=jnp.zeros(nc),
        active=jnp.ones(nc, bool),
    )


@jax.jit
def reflect(terms, v, restitution, plastic):
    return strike(terms, v, None, plastic, restitution, "most_violated", None)


def test_restitution_is_the_share_of_energy_that_comes_back():
    """Equation (16) with the unilateral plastic outcome, also where (18) fails and alpha is not R."""
    rng = np.random.default_rng(3)
    oblique = solved = 0
    for _ in range(200):
        terms, v = random_terms(rng, 2, 3), jnp.asarray(rng.normal(size=3))
        if np.min(terms.J_n @ v) > -0.1:
            continue

        def energy(x, mass=terms.M):
            return float(x @ mass @ x)

        stop = reflect(terms, v, 0.5, True)
        assert np.min(terms.J_n @ stop.v_plus) > -1e-12 and np.min(stop.impulse) >= 0.0
        np.testing.assert_allclose(stop.impulse * (terms.J_n @ stop.v_plus), 0.0, atol=1e-11)
        elastic = reflect(terms, v, 1.0, False)
        if int(elastic.status):  # normals nearly opposite: more than 64 reflections
            assert int(elastic.status) == jc.Status.UNTERMINATED
            continue
        np.testing.assert_allclose(energy(elastic.v_plus), energy(v), rtol=1e-12)
        solved += 1
        lost = energy(v) - energy(stop.v_plus)
        for r in (0.0, 0.3, 0.7):
            some = reflect(terms, v, r, False)
            np.testing.assert_allclose(1.0 - (energy(v) - energy(some.v_plus)) / lost, r * r, atol=1e-11)
            assert np.min(terms.J_n @ some.v_plus) > -1e-9
        share = (some.impulse - stop.impulse) / (elastic.impulse - stop.impulse)
        oblique += abs(float(share[0]) - 0.7) > 1e-3
    assert oblique > 5 and solved > 100


class Told(NamedTuple):
    status: jax.Array
    impulse: jax.Array


def turn_back(terms, v, key):
    return -v, Told(jnp.uint32(int(jc.Status.STALLED)), jnp.full((2, 2), 3.0))


def test_a_law_takes_the_place_of_reflections_but_not_of_plastic_impacts():
    rng = np.random.default_rng(5)
    terms, v = random_terms(rng, 2, 3), jnp.asarray(rng.normal(size=3))
    own = jax.jit(
        lambda plastic: strike(terms, v, None, plastic, 1.0, "most_violated", law_as_pytree(turn_back))
    )
    hit, dead = own(False), own(True)
    np.testing.assert_array_equal(hit.v_plus, -v)
    np.testing.assert_array_equal(hit.impulse, [3.0, 3.0])
    assert int(hit.status) == jc.Status.STALLED and np.all(np.asarray(hit.order) == -1)
    assert int(dead.status) == 0
    np.testing.assert_allclose(dead.v_plus, reflect(terms, v, 0.0, True).v_plus, atol=1e-14)


def random_problems(rng, dim, count):
    """Of three contacts, half of them with two alike; their friction is up to 2."""
    nc, nv = 3, 3 if dim == 2 else 6
    problems = []
    for _ in range(count):
        jacobian = rng.normal(size=(nc, dim, nv))
        if rng.random() < 0.5:
            jacobian[2] = jacobian[1]
        flat = jacobian.reshape(-1, nv)
        delassus = flat @ np.linalg.solve(random_spd(rng, nv), flat.T)
        velocity = (flat @ rng.normal(size=nv)).reshape(nc, dim)
        mu = np.full(nc, rng.choice([0.0, 0.1, 0.3, 0.7, 1.0, 2.0]))
        closed = np.array([True, rng.random() < 0.8, rng.random() < 0.8])
        problems.append((delassus, velocity, mu, closed))
    return [np.array(each) for each in zip(*problems, strict=True)]


@pytest.mark.long
@pytest.mark.parametrize("dim", [2, 3])
def test_impulses_of_closed_contacts_obey_coulomb(dim):
    """Random problems, redundant ones too, against the law itself: all have a solution, and all are solved."""
    delassus, velocity, mu, closed = random_problems(np.random.default_rng(dim), dim, 400)
    solve = jax.jit(lambda given: jax.lax.map(lambda x: contact_impulses(*x, jnp.zeros_like(x[1])), given))
    lam, fine = map(np.asarray, solve((delassus, velocity, mu, closed)))
    assert np.all(fine)
    u = velocity + np.einsum("kij,kj->ki", delassus, lam.reshape(len(lam), -1)).reshape(velocity.shape)
    size = np.max(np.abs(velocity), axis=(1, 2))[:, None]
    large = 1.0 + np.max(np.abs(lam), axis=(1, 2))[:, None]
    push, slip = np.linalg.norm(lam[:, :, 1:], axis=2), np.linalg.norm(u[:, :, 1:], axis=2)
    power = np.sum(lam[:, :, 1:] * u[:, :, 1:], axis=2) + mu * lam[:, :, 0] * slip
    assert np.all(np.abs(lam[~closed]) < 1e-14)
    assert np.all(lam[:, :, 0] >= -1e-12 * large)
    assert np.all(np.where(closed, u[:, :, 0], 0.0) > -1e-9 * size)
    assert np.all(np.abs(lam[:, :, 0] * u[:, :, 0] * closed) < 1e-9 * size * large)
    assert np.all(push - mu * lam[:, :, 0] <= 1e-9 * large)
    assert np.all(np.abs(power * closed) < 1e-7 * size * large)


@pytest.mark.long
def test_an_open_contact_that_cannot_move_does_not_loosen_the_law_of_others():
    """Its mobility and velocity are round-off, and their ratio is no size of impulses."""
    delassus = jnp.diag(jnp.array([1e-32, 0.2, 1.0, 1.0, 1.0, 1.0])).at[2, 4].set(0.9).at[4, 2].set(0.9)
    velocity = jnp.array([[2e-18, 0.0], [-1.0, 0.0], [-0.1, 0.0]])  # the first push carries both
    closed = jnp.array([False, True, True])
    lam, found = contact_impulses(delassus, velocity, jnp.zeros(3), closed, jnp.zeros((3, 2)))
    assert found
    np.testing.assert_allclose(lam, [[0.0, 0.0], [1.0, 0.0], [0.0, 0.0]], atol=1e-12)


def test_friction_turns_with_the_sliding_velocity():
    """Derivative of the impulse of a contact that slides in space, against differences."""
    delassus = jnp.asarray(random_spd(np.random.default_rng(7), 3)) + 2.0 * jnp.eye(3)
    velocity, along = jnp.array([[-1.0, 2.0, 0.5]]), jnp.array([[0.3, -0.2, 0.7]])

    @jax.jit
    def impulse(velocity):
        closed, none = jnp.array([True]), jnp.zeros((1, 3))
        return contact_impulses(delassus, velocity, jnp.array([0.3]), closed, none)[0]

    lam, slope = jax.jvp(impulse, (velocity,), (along,))
    assert float(jnp.linalg.norm(lam[0, 1:])) == pytest.approx(0.3 * float(lam[0, 0]), rel=1e-12)
    differences = (impulse(velocity + 1e-5 * along) - impulse(velocity - 1e-5 * along)) / 2e-5
    np.testing.assert_allclose(slope, differences, atol=1e-8)


@pytest.mark.slow_cases("3")
@pytest.mark.long
@pytest.mark.parametrize("dim", [2, 3])
def test_an_impact_that_ends_a_chatter_is_that_of_anitescu_and_potra(rng, dim):
    """A motion from event to event has it for `AnitescuPotra()`; known impulses give it again, with its slope."""

    def by_law(terms, v):
        return jc.impact.anitescu_potra(terms, v)[0]

    @jax.jit
    def both(terms, v):
        found, push, is_found = stop_contacts(terms, v)

        def again(v):
            return stop_contacts(terms, v, push)[0]

        values = by_law(terms, v), found, again(v)
        return values, is_found, jax.jacfwd(lambda v: by_law(terms, v))(v), jax.jacfwd(again)(v)

    for _ in range(20):
        terms = random_terms(rng, 2, 6)
        tangents = jnp.asarray(rng.normal(size=(2, dim - 1, 6)))
        terms = terms.replace(J_t=tangents, mu=jnp.asarray(rng.uniform(0.0, 0.3, 2)))
        terms = terms.replace(M=terms.M * 10.0 ** rng.uniform(-3.0, 6.0))
        (law, found, again), is_found, law_slope, slope = both(terms, jnp.asarray(rng.normal(size=6)))
        assert is_found
        np.testing.assert_allclose(found, law, rtol=0, atol=1e-10)
        np.testing.assert_allclose(again, found, rtol=0, atol=1e-12)
        np.testing.assert_allclose(slope, law_slope, rtol=0, atol=1e-9)
