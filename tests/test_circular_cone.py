"""The circular cone that polygons are judged by: closed forms of a ball, and Coulomb's law of a box."""

import jax.numpy as jnp
import numpy as np
import pytest

import jaxcontact as jc
from benchmarks import circular_cone


def ball(mu):
    unit = jnp.eye(3)
    return jc.ContactTerms(
        M=2.0 * unit,
        J_n=unit[2:],
        J_t=unit[None, :2],
        phi=jnp.zeros(1),
        mu=jnp.array([mu]),
        active=jnp.ones(1, bool),
    )


@pytest.mark.parametrize("angle", [0.0, 0.7])
def test_a_ball_slides_straight_on_or_sticks(angle):
    """Whatever the steps: two of one unit of impulse, or one of ten."""
    way = np.array([np.cos(angle), np.sin(angle)])
    caps = np.array([[[1.0], [1.0], [10.0]], [[10.0], [10.0], [10.0]]])
    after, good = circular_cone.outcomes(ball(0.5), np.array([*(2.5 * way), -1.0]), caps)
    assert good.all()
    np.testing.assert_allclose(after, [[*(2.0 * way), 0.0]] * 2, rtol=0, atol=1e-9)
    after, _ = circular_cone.outcomes(ball(3.0), np.array([*(2.5 * way), -1.0]), caps)
    np.testing.assert_allclose(after, 0.0, atol=1e-8)


def test_impulses_of_a_box_on_four_corners_meet_coulombs_law():
    model = jc.models.box_drop_3d()
    terms = jc.contact_terms(model, model.initial_state())
    rows, _, delassus = circular_cone._matrices(terms)
    rng = np.random.default_rng(0)
    v = np.array([0.5, 0.3, -0.44, 0.2, 0.1, 1.0])
    u, cap = np.tile((rows @ v).reshape(1, 4, 3), (8, 1, 1)), rng.uniform(0.0, 0.2, (8, 4))
    impulse, good = circular_cone._step(delassus, np.asarray(terms.mu), u, cap)
    assert good.all()
    after = u + np.einsum("aibj,nbj->nai", delassus, impulse)
    push, rate = impulse[..., 0], after[..., 0]
    assert np.all(push >= 0) and np.all(push <= cap)
    assert np.abs(np.where(push < cap, np.minimum(push, np.abs(rate)), 0.0)).max() < 1e-7
    assert np.where(push < cap, rate, 0.0).min() > -1e-7 and np.where(push >= cap, rate, -1.0).max() < 1e-7
    most, slip = 0.6 * push, np.linalg.norm(after[..., 1:], axis=2)
    work = np.einsum("nct,nct->nc", impulse[..., 1:], after[..., 1:])
    assert np.all(np.linalg.norm(impulse[..., 1:], axis=2) <= most + 1e-9)
    np.testing.assert_allclose(work, -most * slip, atol=1e-7)  # friction takes all it can
