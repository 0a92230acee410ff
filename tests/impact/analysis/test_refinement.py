"""Steps of several sizes: a set of one point settles, one that small steps hide does not."""

import jax.numpy as jnp
import numpy as np
import pytest

import jaxcontact as jc


def on_contacts(J_n, mu=0.0):
    """Contacts with the normal rows J_n on a unit mass, without tangential rows that move."""
    J_n = jnp.asarray(J_n, float)
    count, size = J_n.shape
    return jc.ContactTerms(
        M=jnp.eye(size),
        J_n=J_n,
        J_t=jnp.zeros((count, 1, size)),
        phi=jnp.zeros(count),
        mu=jnp.full(count, mu),
        active=jnp.ones(count, bool),
    )


@pytest.mark.long
def test_one_contact_settles_at_once():
    """A point stops at the floor, whatever the step: u_n = 0."""
    result = jc.impact.refine(
        on_contacts([[0.0, 1.0]]),
        jnp.array([1.0, -2.0]),
        jc.impact.Routh(),
        num_samples=64,
        factors=(1.0, 0.5),
    )
    assert result.range_settled and result.shares_settled
    np.testing.assert_allclose(result.impulse_step[:, 0], [2.0, 1.0])
    np.testing.assert_allclose(result.low, result.high, atol=1e-12)
    assert result.kinds == ("A sticks",) and not np.any(result.failed)
    assert np.all(np.diff(np.asarray(result.num_steps)) >= 0)


@pytest.mark.long
def test_the_corners_of_a_wedge_do_not_settle():
    """Two walls at an acute angle: large steps reach both single impacts, small ones their middle alone."""
    terms = on_contacts([[0.6, 0.8], [-0.6, 0.8]])
    result = jc.impact.refine(
        terms, jnp.array([0.0, -1.0]), jc.impact.Routh(), num_samples=512, factors=(1.0, 0.25)
    )
    width = np.asarray(result.high - result.low)[:, 0]
    assert width[0] > 1.5 * width[1] and not result.range_settled
    np.testing.assert_allclose(np.sum(np.asarray(result.shares), axis=1), 1.0, atol=1e-12)


@pytest.mark.long
def test_steps_far_larger_than_the_impact_settle_nothing():
    """One step with a cap that never binds has one outcome, whatever its size; smaller steps have many."""
    terms = on_contacts([[0.6, 0.8], [-0.6, 0.8]])
    law = jc.impact.Routh(impulse_step=1e4, max_steps=8)
    result = jc.impact.refine(terms, jnp.array([0.0, -1.0]), law, num_samples=64, factors=(1.0, 0.5))
    np.testing.assert_allclose(result.num_steps, 1.0, atol=0.1)
    assert not result.range_settled and not result.shares_settled


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"factors": (1.0,)}, "factors: expected two or more positive numbers that fall"),
        ({"factors": (0.5, 1.0)}, "factors: expected two or more positive numbers that fall"),
        ({"factors": (1.0, 0.0)}, "factors: expected two or more positive numbers that fall"),
        ({"run": jc.Run(checkpoint="x")}, "run.checkpoint: expected None"),
        ({"num_samples": 0}, "num_samples"),
    ],
)
def test_mistakes_are_named(settings, message):
    arguments = {"num_samples": 8} | settings
    with pytest.raises(ValueError, match=message):
        jc.impact.refine(on_contacts([[0.0, 1.0]]), jnp.array([0.0, -1.0]), jc.impact.Routh(), **arguments)
