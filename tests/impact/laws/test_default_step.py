"""The step of `Routh()`: impacts end within a few steps, whatever the masses, the friction and the units."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxcontact as jc
from jaxcontact.impact.laws.routh_law import stopping_impulse


def stack(masses):
    """Balls on each other, the first on the floor: terms of contacts without friction."""
    count = len(masses)
    return jc.ContactTerms(
        M=jnp.diag(jnp.asarray(masses)),
        J_n=jnp.eye(count) - jnp.diag(jnp.ones(count - 1), -1),
        J_t=jnp.zeros((count, 1, count)),
        phi=jnp.zeros(count),
        mu=jnp.zeros(count),
        active=jnp.ones(count, bool),
    )


def rod(mu, slope=0.3, speed=5.0):
    """A rod that strikes with one end, which slides and jams: one contact in the plane."""
    terms = jc.ContactTerms(
        M=jnp.diag(jnp.array([1.0, 1.0, 1.0 / 12.0])),
        J_n=jnp.array([[0.0, 1.0, -0.5 * jnp.sin(slope)]]),
        J_t=jnp.array([[[1.0, 0.0, 0.5 * jnp.cos(slope)]]]),
        phi=jnp.zeros(1),
        mu=jnp.array([mu]),
        active=jnp.ones(1, bool),
    )
    return terms, jnp.array([-speed, -0.1, 0.0])


@pytest.mark.long
@pytest.mark.parametrize("ratio", [1e2, 1e4, 1e6])
def test_a_light_ball_stops_what_falls_on_it(ratio):
    """It takes the momentum of the heavy ball, which is `ratio` times its own, in a few steps."""
    terms, v = stack([1.0, ratio]), jnp.array([0.0, -1.0])
    np.testing.assert_allclose(stopping_impulse(terms, v), ratio, rtol=1e-8)
    v_plus, info = jax.vmap(lambda key: jc.impact.Routh()(terms, v, key))(
        jax.random.split(jax.random.key(0), 16)
    )
    assert not np.any(info.status) and np.max(info.num_iters) < 16
    np.testing.assert_allclose(v_plus, 0.0, atol=1e-6)


@pytest.mark.long
@pytest.mark.parametrize("unit", [1e-6, 1.0, 1e6])
def test_a_rod_that_jams_ends(unit):
    """Friction presses the rod down until it sticks, by far more than what stops it alone."""
    terms, v = rod(mu=2.0)
    terms = terms.replace(M=unit * terms.M)
    together = stopping_impulse(terms, v)
    alone = stopping_impulse(terms.replace(mu=jnp.zeros(1)), v)
    assert together > 8.0 * alone
    v_plus, info = jc.impact.Routh()(terms, v, jax.random.key(1))
    assert int(info.status) == 0 and int(info.num_iters) < 16
    np.testing.assert_allclose(terms.J_t[:, 0] @ v_plus, 0.0, atol=1e-9)


@pytest.mark.long
def test_the_largest_of_both_impulses_counts():
    """The corners of a wedge stop alone by 0.8, together by 0.8 / 1.28; one beneath a rest contact alone."""
    wedge = jc.ContactTerms(
        M=jnp.eye(2), J_n=jnp.array([[0.6, 0.8], [-0.6, 0.8]]), J_t=jnp.zeros((2, 1, 2)), phi=jnp.zeros(2),
        mu=jnp.zeros(2), active=jnp.ones(2, bool),
    )  # fmt: skip
    v = jnp.array([0.0, -1.0])
    np.testing.assert_allclose(stopping_impulse(wedge, v), 0.8, rtol=1e-12)
    narrow = wedge.replace(J_n=jnp.array([[0.8, 0.6], [-0.8, 0.6]]))
    np.testing.assert_allclose(stopping_impulse(narrow, v), 0.6 / 0.72, rtol=1e-12)
    np.testing.assert_array_equal(stopping_impulse(wedge, -v), 1.0)
    np.testing.assert_array_equal(stopping_impulse(wedge.replace(active=jnp.zeros(2, bool)), v), 1.0)


@pytest.mark.long
def test_the_derivative_is_that_of_the_size_of_the_step():
    """By mass, friction and velocity: where a jam decides it, and where a contact that stops alone does."""
    for terms, v in (rod(mu=2.0), (stack([1.0, 2.0]), jnp.array([-1.0, 0.2]))):

        def size(x, terms=terms, v=v):
            heavy = terms.replace(M=terms.M.at[0, 0].multiply(1.0 + x), mu=terms.mu * (1.0 + x))
            return stopping_impulse(heavy, v * (1.0 + x) ** 2)

        slope = jax.grad(size)
        np.testing.assert_allclose(slope(0.0), (size(1e-5) - size(-1e-5)) / 2e-5, rtol=1e-7)
        curvature = (slope(1e-5) - slope(-1e-5)) / 2e-5
        np.testing.assert_allclose(jax.grad(slope)(0.0), curvature, rtol=1e-6, atol=1e-6)


@pytest.mark.long
def test_bad_numbers_stay_bad_numbers():
    """A lane with NaN says so, and its neighbour keeps its bits."""
    terms, v = rod(mu=2.0)
    both = jnp.stack([v, v.at[0].set(jnp.nan)])
    v_plus, info = jax.vmap(lambda v: jc.impact.Routh()(terms, v, jax.random.key(1)))(both)
    alone, _ = jax.vmap(lambda v: jc.impact.Routh()(terms, v, jax.random.key(1)))(jnp.stack([v, v]))
    assert int(info.status[0]) == 0 and int(info.status[1]) & int(jc.Status.NONFINITE)
    np.testing.assert_array_equal(v_plus[0], alone[0])


@pytest.mark.long
def test_without_an_early_exit_the_step_is_the_same():
    terms, v = rod(mu=2.0)
    np.testing.assert_allclose(
        stopping_impulse(terms, v, None, False), stopping_impulse(terms, v), rtol=1e-12
    )
