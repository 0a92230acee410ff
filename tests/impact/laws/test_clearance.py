"""A clearance lets contacts approach at a speed of their own, and no more."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxcontact as jc

BLOCK = jc.models.rocking_block()
TERMS = jc.contact_terms(BLOCK.replace(params=BLOCK.params.replace(mu=jnp.zeros(2))), BLOCK.initial_state())
LAWS = {
    "anitescu_potra": jc.impact.AnitescuPotra(),
    "sequential": jc.impact.Sequential(),
    "routh": jc.impact.Routh(impulse_step=0.2, max_steps=24),
}
MOST = [pytest.param(name, marks=[pytest.mark.slow] * (name != "anitescu_potra")) for name in LAWS]


@pytest.mark.slow_cases("anitescu_potra")
@pytest.mark.parametrize("name", MOST)
def test_a_contact_approaches_at_its_clearance_and_no_faster(name):
    """A block that falls flat without friction: each corner ends at the larger of its speed and -clearance."""
    v = jnp.array([0.3, -0.5, 0.0])
    law = jax.jit(jax.vmap(lambda c: LAWS[name](TERMS, v, jax.random.key(0), clearance=c)))
    clearance = jnp.array([[0.2, 0.2], [0.7, 0.6], [0.2, 0.9], [0.0, 0.0], [jnp.nan, 0.1], [-0.1, 0.1]])
    v_plus, info = law(clearance)
    corners = np.asarray(v_plus @ TERMS.J_n.T)
    assert np.all(corners[:4] >= -np.asarray(clearance)[:4] - 1e-7)
    np.testing.assert_allclose(corners[1], -0.5, atol=1e-14)  # nothing to do
    if name == "anitescu_potra":  # all contacts at once; the others may leave one that was stopped before
        np.testing.assert_allclose(corners[[0, 3]], [[-0.2, -0.2], [0.0, 0.0]], atol=1e-14)
        np.testing.assert_allclose(corners[2, 0], -0.2, atol=1e-14)
    assert corners[2, 1] > -0.9 and float(info.impulse[2, 1, 0]) == 0.0  # one that stays clear takes nothing
    bad = np.asarray(info.status)
    assert not bad[:4].any() and bad[4] & jc.Status.NONFINITE and bad[5] & jc.Status.INVALID
    np.testing.assert_array_equal(v_plus[4:], jnp.stack([v, v]))


def test_bad_ones_are_named():
    v = BLOCK.initial_state().v
    with pytest.raises(ValueError, match=r"clearance: expected shape \(2,\) or \(2, 2\), got \(3,\)"):
        jc.impact.anitescu_potra(TERMS, v, clearance=jnp.zeros(3))
    with pytest.raises(ValueError, match="clearance: expected finite numbers >= 0"):
        jc.impact.anitescu_potra(TERMS, v, clearance=jnp.array([-1.0, 0.0]))
    with pytest.raises(ValueError, match="clearance: expected None with restitution"):
        law = jc.impact.Routh(impulse_step=0.2, max_steps=4, restitution=0.5)
        law(TERMS, v, jax.random.key(0), clearance=jnp.zeros(2))


@pytest.mark.long
@pytest.mark.parametrize("num_directions", [None, 4])
def test_a_clearance_along_contacts_is_a_surface_that_moves(num_directions):
    """A block that falls flat on a belt is taken along if friction suffices, else slides by mu times its fall."""
    fall, belt, mu = 0.5, jnp.array([0.05, 2.0]), 0.2
    terms = TERMS.replace(mu=jnp.full(2, mu))
    law = jc.impact.AnitescuPotra(num_directions=num_directions)
    clearance = jnp.zeros((2, 2, 2)).at[:, :, 1].set(belt[:, None])
    start = jnp.array([0.0, -fall, 0.0])
    v_plus, info = jax.jit(jax.vmap(lambda c: law(terms, start, clearance=c)))(clearance)
    assert not np.any(info.status)
    np.testing.assert_allclose(v_plus[0], [-0.05, 0.0, 0.0], atol=1e-12)
    np.testing.assert_allclose(v_plus[1], [-mu * fall, 0.0, 0.0], atol=1e-12)
