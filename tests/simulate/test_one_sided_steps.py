"""`TimeStepping` with `corner="one_sided"`: its forward derivative at borders of a step, and what it refuses."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxcontact as jc

DT, G = 1e-2, 9.81
SIDED = jc.simulate.TimeStepping(corner="one_sided")
SMOOTH = jc.simulate.TimeStepping()
BLOCK = jc.models.rocking_block()
MODEL = BLOCK.replace(params=BLOCK.params.replace(mu=0.0 * BLOCK.params.mu + 0.3))  # slides before it tips
START = MODEL.initial_state().replace(q=jnp.array([0.0, 1.0, 0.0]), v=jnp.zeros(3))


def end_of(stepper, v, force, change):
    """q, v and status after a step of the block on two corners, displaced by changes of q, v and force."""
    moved = START.replace(q=START.q + change[:3], v=v + change[3:6])
    memory = stepper.init(MODEL, START, None)
    end, _, info = stepper.step(MODEL, moved, force + change[6:], memory, dt=DT)
    return jnp.concatenate([end.q, end.v]), info.status


@jax.jit
def rates_and_differences(v, force, directions, h):
    zero = jnp.zeros(9)

    def rates(direction):
        return jax.jvp(lambda x: end_of(SIDED, v, force, x), (zero,), (direction,))

    (base, status), (exact, _) = jax.vmap(rates)(directions)
    moved = jax.vmap(lambda d: end_of(SMOOTH, v, force, h * d)[0])(directions)
    smooth = jax.vmap(lambda d: jax.jvp(lambda x: end_of(SMOOTH, v, force, x)[0], (zero,), (d,))[1])
    plain = end_of(SMOOTH, v, force, zero)[0]
    return base, status, exact, (moved - plain[None]) / h, smooth(directions)


@pytest.mark.long
def test_steps_follow_their_one_sided_differences_from_a_gap_of_zero(rng):
    """At rest, sliding, at the border of sticking, and turned: by q, v and forces; depth is removed."""
    directions = jnp.asarray(rng.normal(size=(40, 9)) * np.array([1.0] * 6 + [100.0] * 3))
    mass = MODEL.params.mass[0]
    for v, force in (
        ((0.0, 0.0, 0.0), (0.2, 0.0, 0.0)),
        ((1.0, 0.0, 0.0), (0.0, 0.0, 0.0)),
        ((0.0, 0.0, 0.0), (MODEL.params.mu[0], 0.0, 0.0)),
        ((0.0, 0.0, 0.0), (0.0, 0.0, 0.5)),
    ):
        numbers = jnp.array(v), mass * G * jnp.array(force)
        base, status, exact, difference, smooth = rates_and_differences(*numbers, directions, 1e-7)
        assert not np.any(status)
        size = 1.0 + np.max(np.abs(difference), axis=1, keepdims=True)
        assert np.max(np.abs(exact - difference) / size) < 2e-5
        assert np.max(np.abs(smooth - difference) / size) > 0.1  # one linear map would not do
        np.testing.assert_allclose(base, np.broadcast_to(base[0], base.shape), rtol=0, atol=0)


@pytest.mark.long
def test_a_block_that_only_grazes_has_a_note_and_a_poisoned_lane_stays_alone():
    """Without weight a touch changes q by dt^2 / 2 times an acceleration as it begins to push."""
    lift = jnp.array([0.0, MODEL.params.mass[0] * G, 0.0])
    directions = jnp.eye(9)[:4]
    _, status, exact, _, _ = rates_and_differences(jnp.zeros(3), lift, directions, 1e-9)
    assert np.all(status == int(jc.Status.JUMP)) and np.all(np.isnan(exact))
    lanes = jnp.zeros((3, 3)).at[:, 0].set(1.0).at[1].set(jnp.nan)
    rates = jax.jit(
        jax.vmap(
            lambda v: jax.jvp(
                lambda x: end_of(SIDED, v, jnp.zeros(3), x)[0], (jnp.zeros(9),), (jnp.ones(9),)
            )[1]
        )
    )(lanes)
    np.testing.assert_array_equal(rates[0], rates[2])
    assert np.all(np.isfinite(rates[0]))
    with pytest.raises(NotImplementedError, match="corner='smooth'"):
        jax.jit(jax.grad(lambda x: end_of(SIDED, jnp.zeros(3), jnp.zeros(3), x)[0][4]))(jnp.zeros(9))


@pytest.mark.long
def test_feet_that_share_loads_have_a_rate_only_in_directions_that_a_motion_has():
    """Three feet in a line land flat; if the middle one may sink, the outer ones hold it, and which, no load tells."""
    rows = jnp.array([[0.0, 1.0, -1.0], [0.0, 1.0, 0.0], [0.0, 1.0, 1.0]])
    tangents = jnp.zeros((3, 1, 3)).at[:, 0, 0].set(1.0)
    terms = jc.ContactTerms(
        M=jnp.eye(3), J_n=rows, J_t=tangents, phi=jnp.zeros(3), mu=jnp.zeros(3), active=jnp.ones(3, bool)
    )
    v = jnp.array([0.0, -1.0, 0.0])

    def after(allowed):
        return jc.impact.anitescu_potra(terms, v, clearance=allowed, corner="one_sided")[0]

    def rate(change):
        return jax.jvp(after, (0.1 * jnp.ones(3),), (jnp.array(change),))[1]

    np.testing.assert_allclose(rate([1.0, 0.0, -1.0]), [0.0, 0.0, 1.0], rtol=0, atol=1e-9)
    np.testing.assert_allclose(rate([1.0, 1.0, 1.0]), [0.0, -1.0, 0.0], rtol=0, atol=1e-9)
    assert np.all(np.isnan(rate([0.0, 1.0, 0.0])))


def test_other_laws_are_refused_by_name():
    with pytest.raises(ValueError, match="impact: expected AnitescuPotra or Sequential with corner"):
        jc.simulate.TimeStepping(impact=jc.impact.Newton(restitution=0.5), corner="one_sided")
    sided = jc.impact.AnitescuPotra(corner="one_sided")
    with pytest.raises(ValueError, match="corner: expected 'one_sided' as that of the law"):
        jc.simulate.TimeStepping(impact=sided)
    with pytest.raises(ValueError, match="impact: expected a law with corner='smooth'"):
        jc.simulate.Variational(impact=sided)
    with pytest.raises(ValueError, match="corner: expected one of smooth, one_sided"):
        jc.simulate.TimeStepping(corner="sharp")
