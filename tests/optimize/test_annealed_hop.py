"""A motion of half a second from zeros and from noise: with smoothing lowered in turn both end at one cost."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxcontact as jc

STEPS, DT, WAY = 50, 0.01, 0.2  # number, s, m


@pytest.mark.slow
def test_a_hopper_ends_at_one_cost_from_zeros_and_from_noise():
    """The trunk 20 cm ahead, as high and upright as at the start, 150 controls within their range."""
    model = jc.models.hopper()
    state = jc.place_on_ground(model, model.initial_state())[0]
    settings = jc.optimize.AugmentedLagrangian(
        bounds=(-1.0, 1.0), penalty=1e3, slope=1e-2, smoothing=(1e-2, 1e-3)
    )

    def misses(u, smoothing):
        q = jc.compliant.rollout(jc.compliant.smoothed(model, smoothing), state, u, dt=DT)[0].q[-1]
        return q[:3] - state.q[:3] - jnp.array([WAY, 0.0, 0.0])

    def plan(controls):
        _, info = jc.optimize.trajectory(
            lambda u, smoothing: jnp.mean(u**2), controls, constraints=misses, scale=1.0, tol=1e-6,
            num_steps=200, optimizer=settings,
        )  # fmt: skip
        assert info.residual <= 1e-6
        assert not info.status & ~np.uint32(int(jc.Status.KINK | jc.Status.MAX_ITERS))
        return info.cost

    noise = 0.01 * jax.random.normal(jax.random.key(1), (STEPS, 3))
    costs = [plan(controls) for controls in (jnp.zeros((STEPS, 3)), noise)]
    assert costs[0] == pytest.approx(costs[1], rel=0.05)
    assert max(costs) < 5.5e-3
