"""Painleve's paradox: the sliding rod in closed form, in the plane and in space."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import sliding_rod as rod

import jaxcontact as jc
from jaxcontact.impact import Paradox, paradox
from jaxcontact.terms import contact_velocities


def of_state(params, state):
    """The paradox of the rod, with the forces and the drift of its state."""
    terms = jc.contact_terms(jc.Model(system=rod.SYSTEM, params=params), state)
    force = -jc.bias(jc.Model(system=rod.SYSTEM, params=params), state)
    _, drift = jax.jvp(
        lambda q: contact_velocities(jc.Model(system=rod.SYSTEM, params=params), q, state.v),
        (state.q,),
        (state.v,),
    )
    return paradox(terms, state.v, force, drift=drift)


LANES = 96  # of one program


@jax.jit
@jax.vmap
def of_lanes(theta, mu, speed, omega, mass):
    return of_state(rod.params(mu, mass), rod.state(theta, speed, omega))


def chart(theta, mu, speed, omega, mass=1.0):
    """Kind and info of angles, frictions, speeds, spins and masses of any shapes."""
    given = np.broadcast_arrays(theta, mu, speed, omega, mass)
    found = of_lanes(*(np.resize(np.asarray(x, float), LANES) for x in given))
    shape, size = given[0].shape, given[0].size
    return jax.tree.map(lambda x: np.asarray(x)[:size].reshape(shape + x.shape[1:]), found)


@pytest.mark.slow
def test_the_chart_of_the_rod():
    """Regions over angle, friction and spin, sliding to either side."""
    theta = np.deg2rad(np.linspace(8.0, 83.0, 6))[:, None, None, None]
    mu = np.linspace(0.2, 4.1, 4)[None, :, None, None]
    speed, omega = np.array([-1.0, 1.0])[:, None], np.array([0.0, 12.0])
    kind, info = chart(theta, mu, speed, omega)
    A, b = rod.slope(theta, mu * -np.sign(speed)), rod.free(theta, omega)
    expected = jnp.where(A > 0, Paradox.NONE, jnp.where(b > 0, Paradox.INDETERMINATE, Paradox.INCONSISTENT))
    np.testing.assert_array_equal(kind, np.broadcast_to(expected, kind.shape))
    np.testing.assert_array_equal(info.presses[..., 0], np.broadcast_to(A < 0, kind.shape))
    assert {0, 1, 2} == set(np.unique(info.count)) and not np.any(info.presses[..., 1])


def boundary(is_below, low, high):
    """Where (4,) what grows from low to high stops being below, in ever finer combs."""
    low, high = np.full(4, low), np.full(4, high)
    for _ in range(10):
        comb = np.linspace(low, high, LANES // 4)
        last = np.sum(is_below(comb), axis=0) - 1
        low, high = comb[last, np.arange(4)], comb[last + 1, np.arange(4)]
    return low


ANGLES = np.deg2rad(np.array([20.0, 40.0, 63.4, 75.0]))


@pytest.mark.slow_cases("0.0")
@pytest.mark.parametrize("omega", [0.0, 12.0])
def test_boundaries_of_the_chart(omega):
    """1 + 3 cos^2 - 3 mu sin cos = 0."""
    found = boundary(lambda mu: chart(ANGLES, mu, -1.0, omega)[0] == Paradox.NONE, 0.5, 20.0)
    exact = (1 + 3 * np.cos(ANGLES) ** 2) / (3 * np.sin(ANGLES) * np.cos(ANGLES))
    np.testing.assert_allclose(found, exact, rtol=1e-9)


def test_boundary_between_inconsistent_and_indeterminate():
    """l omega^2 sin = g, where the end would leave."""
    found = boundary(lambda w: chart(ANGLES, 5.0, -1.0, w)[0] == Paradox.INCONSISTENT, 0.0, 20.0)
    np.testing.assert_allclose(found, np.sqrt(rod.GRAVITY / (rod.HALF * np.sin(ANGLES))), rtol=1e-9)


@pytest.mark.parametrize("mass", [1e-3, 1.0, 1e3])
def test_both_solutions_are_told(mass):
    """It leaves with a_n = b, or slides with f_n = -b / A; in any unit of mass."""
    kind, info = chart(1.0, 3.0, -1.0, 12.0, mass)
    A, b = rod.slope(1.0, 3.0, mass), rod.free(1.0, 12.0)
    assert kind == Paradox.INDETERMINATE and info.count == 2 and info.status == 0 and info.complete
    order = np.argsort(info.force[:2, 0, 0])
    force, acceleration = info.force[order, 0], info.acceleration[order, 0]
    np.testing.assert_allclose(force, [[0.0, 0.0], [-b / A, -3.0 * b / A]], rtol=1e-12, atol=1e-13 * mass)
    np.testing.assert_allclose(acceleration[:, 0], [b, 0.0], rtol=1e-12, atol=1e-10)
    assert np.all(np.isnan(info.force[2:]))


def in_space(terms, v, f, turn):
    """The planar problem within space: x along cos(turn), sin(turn); y of the plane is z."""
    lift = np.zeros((4, 3))
    lift[0, 0], lift[1, 0], lift[2, 1], lift[3, 2] = np.cos(turn), np.sin(turn), 1.0, 1.0
    M = np.diag([terms.M[0, 0], terms.M[0, 0], terms.M[1, 1], terms.M[2, 2]])
    tangents = np.zeros((2, 2, 4))
    tangents[:, 0, 0] = tangents[:, 1, 1] = 1.0
    tangents[:, 0, 3] = np.asarray(terms.J_t[:, 0, 2]) * np.cos(turn)
    tangents[:, 1, 3] = np.asarray(terms.J_t[:, 0, 2]) * np.sin(turn)
    spatial = terms.replace(
        M=jnp.asarray(M), J_n=jnp.asarray(np.asarray(terms.J_n) @ lift.T), J_t=jnp.asarray(tangents)
    )
    return spatial, jnp.asarray(lift @ v), jnp.asarray(lift @ f)


@pytest.mark.slow
def test_in_space_the_friction_of_sliding_is_exact():
    """Slip in directions that are no corner of the friction cone; the boundary stays where it is."""
    theta = 1.0
    exact = (1 + 3 * np.cos(theta) ** 2) / (3 * np.sin(theta) * np.cos(theta))
    spatial = jax.jit(lambda *given: paradox(*given, num_directions=4))
    for turn in (0.2, 2.0):
        for mu, kind in ((exact - 1e-8, Paradox.NONE), (exact + 1e-8, Paradox.INCONSISTENT)):
            params, state = rod.params(mu), rod.state(jnp.array(theta), -1.0, 0.0)
            terms = jc.contact_terms(jc.Model(system=rod.SYSTEM, params=params), state)
            found, info = spatial(
                *in_space(terms, state.v, -jc.bias(jc.Model(system=rod.SYSTEM, params=params), state), turn)
            )
            assert int(found) == kind, (turn, mu)
            assert bool(info.presses[0]) == (kind == Paradox.INCONSISTENT)
    params = rod.params(0.5)
    terms = jc.contact_terms(jc.Model(system=rod.SYSTEM, params=params), state)
    _, info = spatial(
        *in_space(terms, state.v, -jc.bias(jc.Model(system=rod.SYSTEM, params=params), state), 0.7)
    )
    normal = rod.GRAVITY / rod.slope(theta, 0.5)
    expected = normal * np.array([1.0, 0.5 * np.cos(0.7), 0.5 * np.sin(0.7)])
    np.testing.assert_allclose(info.force[0, 0], expected, rtol=1e-12)


@pytest.mark.slow
def test_ordinary_contacts_have_one_solution_and_bad_numbers_say_so():
    model = jc.models.rocking_block()
    terms = jc.contact_terms(model, model.initial_state())
    rest, force = jnp.zeros(3), jnp.array([0.0, -9.81, 0.0])
    kind, info = paradox(terms, rest, force)
    assert int(kind) == Paradox.NONE and int(info.count) == 1 and int(info.status) == 0
    np.testing.assert_allclose(jnp.sum(info.force[0, :, 0]), 9.81, rtol=1e-12)
    kind, info = paradox(terms, model.initial_state().v, force)
    assert int(info.status) == int(jc.Status.UNTERMINATED)  # it falls: a collision comes first
    with pytest.raises(ValueError, match=r"f: expected shape \(3,\), got \(2,\)"):
        paradox(terms, rest, force[:2])
    with pytest.raises(ValueError, match="drift: expected finite"):
        paradox(terms, rest, force, drift=jnp.full((2, 2), jnp.nan))
    forces = jnp.stack([force, force.at[0].set(jnp.nan), force])
    kind, info = jax.vmap(lambda f: paradox(terms, rest, f))(forces)
    np.testing.assert_array_equal(info.status, [0, int(jc.Status.NONFINITE), 0])
    np.testing.assert_array_equal(info.count[::2], 1)
