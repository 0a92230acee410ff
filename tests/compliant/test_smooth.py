"""The relaxed law, which is asked for as a potential: lam (lam - K d) = kappa, and pulls before it touches."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from compliant.test_solve import problem

import jaxcontact as jc
from jaxcontact.terms import LIMIT

STIFFNESS = 1e8


def falling(gap, law):
    """1 kg above the ground falls at 0.5 m/s, for 10 ms."""
    return problem([[1.0]], [0.0], [[1.0]], [-0.5], [-9.81], [LIMIT], law, 0.01).replace(
        terms=jc.ConstraintTerms(
            G=jnp.ones((1, 1)), phi=gap[None], gdot_v=jnp.zeros(1), mu=jnp.zeros(0), kind=(LIMIT,)
        )
    )


@pytest.mark.long
def test_force_and_stiffness_follow_the_closed_form():
    depth = np.array([-1e-2, -1e-4, -1e-6, 0.0, 1e-6, 1e-4, 1e-2])
    kappa = np.array([[1e-2], [1.0], [1e2]])
    smooth = jc.compliant.Smooth(stiffness=1e6, kappa=jnp.asarray(kappa))
    force = jax.grad(lambda d: jnp.sum(smooth(d)))
    d = jnp.broadcast_to(jnp.asarray(depth), (3, 7))
    push, root = 1e6 * depth, np.sqrt(1e12 * depth**2 + 4.0 * kappa)
    outside = 2.0 * kappa / (root - np.minimum(push, 0.0))
    np.testing.assert_allclose(force(d), np.where(push > 0, 0.5 * (push + root), outside), rtol=1e-14)
    slope = jax.grad(lambda x: jnp.sum(force(x)))(d)
    truth = np.where(push > 0, 0.5 * (1.0 + push / root), outside / root)
    np.testing.assert_allclose(slope, 1e6 * truth, rtol=0, atol=1e-8)


@pytest.mark.slow
def test_steps_meet_the_relaxed_law_and_feel_a_gap_that_stays_open():
    """By kappa the step goes over into that of the spring, whose force has no slope before it touches."""
    gaps = jnp.array([-1e-6, 0.0, 1e-3, 1e-2, 1e-1])

    @jax.jit
    def smoothed(kappa, gap):
        potential = jc.compliant.Smooth(stiffness=jnp.array(STIFFNESS), kappa=kappa)
        lam, info = jc.compliant.solve(falling(gap, jc.compliant.Material(potential=potential)))
        return lam[0], info

    @jax.jit
    @jax.vmap
    def hard(gap):
        lam, info = jc.compliant.solve(falling(gap, jc.compliant.Material(stiffness=STIFFNESS)))
        return lam[0], info.status

    both = jax.jit(jax.vmap(jax.value_and_grad(smoothed, argnums=1, has_aux=True), in_axes=(None, 0)))
    exact, status = hard(gaps)
    assert not np.any(status) and np.array_equal(exact > 0, gaps < 6e-3)
    for kappa in (1e-6, 1e-2, 1.0):
        (lam, info), slope = both(jnp.array(kappa), gaps)
        assert not np.any(info.status)
        np.testing.assert_allclose(lam * (lam + STIFFNESS * info.gap[:, 0]), kappa, rtol=1e-6, atol=1e-9)
        np.testing.assert_allclose(lam, exact, rtol=0, atol=3e-6 * kappa + 1e-8)
        assert np.all(slope < 0)
        # Implicit differentiation of lam (lam + K (gap + h v + h^2 (lam - m g))) = kappa, m = 1 kg, h = 10 ms.
        rise = STIFFNESS * 1e-4
        truth = -STIFFNESS * lam / (2.0 * lam + STIFFNESS * info.gap[:, 0] + rise * lam)
        np.testing.assert_allclose(slope, truth, rtol=1e-6)
