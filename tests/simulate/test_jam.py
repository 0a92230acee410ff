"""Impacts without a collision within a variational motion: the sliding rod of Painleve."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import sliding_rod as rod

import jaxcontact as jc

THETA, DT = 1.0, 1e-3


def motion(v, mu):
    state = rod.state(jnp.array(THETA), -1.0, 0.0).replace(v=v)
    return jc.simulate.variational(
        rod.model(mu), state, jc.simulate.Variational(max_impacts=2), dt=DT, duration=3 * DT
    )


SLIDES = jnp.array([-1.0, 0.0, 0.0])


def plastic(v):
    """Velocity behind a plastic impact of the left end that sticks."""
    c, s = rod.HALF * np.cos(THETA), rod.HALF * np.sin(THETA)
    rows, inverse = np.array([[0, 1, -c], [1, 0, s]]), np.diag([1.0, 1.0, 3.0 / rod.HALF**2])
    impulse = np.linalg.solve(rows @ inverse @ rows.T, -rows @ v)
    return v + inverse @ rows.T @ impulse, impulse


@pytest.mark.slow
def test_a_jam_is_an_impact_on_record():
    """mu = 3 is inconsistent: the end jams at once; mu = 0.5 is ordinary."""
    jams = motion(SLIDES, 3.0)
    hits, (v_plus, impulse) = jams.impacts, plastic(SLIDES)
    assert int(hits.count) == 1 and float(hits.t[0]) == 0.0 and not np.any(jams.status)
    np.testing.assert_array_equal(hits.v_minus[0], SLIDES)
    np.testing.assert_allclose(hits.v_plus[0], v_plus, atol=1e-12)
    np.testing.assert_allclose(hits.impulse[0], [impulse[0], 0.0], atol=1e-12)
    np.testing.assert_array_equal(hits.touching[0], [True, False])
    assert not np.any(hits.approaching[0])
    assert jams.notes == ["t = 0 s: contact 0 jams, an impact without a collision"]
    # Behind it the forces are finite: impulses of a step shrink with the step.
    assert np.max(np.abs(jams.impulse)) < 20 * DT
    slides = motion(SLIDES, 0.5)
    assert int(slides.impacts.count) == 0
    force = rod.GRAVITY / rod.slope(THETA, 0.5)
    np.testing.assert_allclose(slides.impulse[0, 0], DT * force * np.array([1.0, 0.5]), rtol=1e-3)


@pytest.mark.slow
def test_a_stop_is_no_jam():
    """Ordinary friction brings the end to rest within the first step."""
    slow = motion(2e-3 * SLIDES, 0.9)
    assert int(slow.impacts.count) == 0 and not np.any(slow.status)


@pytest.mark.slow
def test_derivative_through_a_jam():
    def end(v):
        return motion(v, 3.0).states.v[-1]

    exact = jax.jacfwd(end)(SLIDES)
    np.testing.assert_allclose(exact, jax.jacrev(end)(SLIDES), atol=1e-10)
    # Along speeds that keep the end on the floor.
    for along in (SLIDES, jnp.array([-rod.HALF * np.sin(THETA), rod.HALF * np.cos(THETA), 1.0])):
        h = 1e-6
        difference = (end(SLIDES + h * along) - end(SLIDES - h * along)) / (2 * h)
        np.testing.assert_allclose(exact @ along, difference, rtol=1e-5, atol=1e-6)


@pytest.mark.slow
def test_a_jam_in_a_batch_leaves_its_neighbours_alone():
    both = jax.vmap(motion, in_axes=(None, 0))(SLIDES, jnp.array([0.5, 3.0]))
    np.testing.assert_array_equal(both.impacts.count, [0, 1])
    for k, mu in enumerate((0.5, 3.0)):
        np.testing.assert_allclose(both.states.v[k], motion(SLIDES, mu).states.v, atol=1e-12)
