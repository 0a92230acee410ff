"""Derivatives of compliant steps against central differences, in stick, slip and separation."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxcontact as jc

MODES = {
    "slip": (0.2, [0.3, 0.1, 0.0, 0.05, 0.0, 0.2]),
    "stick": (0.8, [0.0] * 6),
    "separation": (0.3, [0.1, 0.0, 1.0, 0.1, 0.2, 0.3]),
}


@functools.cache
def incline():
    """A box on an incline, and one step of it as a function of what may be differentiated by."""
    model = jc.models.box_on_incline(0.25)
    law = jc.compliant.Law(stiffness=jnp.array(1e6), damping=jnp.array(10.0), friction_damping=jnp.array(1e6))

    def advance(v, tau, mass, mu, law, size):
        params = model.params.replace(
            mass=mass, mu=mu, law=law, constants={**model.params.constants, "size": size}
        )
        state, _ = jc.compliant.step(model.system, params, model.state.replace(v=v), tau, dt=0.01)
        return jnp.concatenate([state.q, state.v])

    return model, law, jax.jit(advance), jax.jit(lambda x, dx: jax.jvp(advance, x, dx)[1])


@pytest.mark.parametrize("mode", MODES)
def test_step_agrees_with_central_differences(mode, rng):
    model, law, advance, tangent = incline()
    mu, v = MODES[mode]
    x = (
        jnp.array(v), jnp.zeros(6), model.params.mass, jnp.full_like(model.params.mu, mu), law,
        model.params.constants["size"],
    )  # fmt: skip
    for k in range(len(x)):
        dx = tuple(
            jax.tree.map(lambda a, on=(i == k): on * a * rng.normal() if on else jnp.zeros_like(a), each)
            for i, each in enumerate(x)
        )
        if k < 2:
            dx = tuple(jnp.asarray(rng.normal(size=6)) if i == k else d for i, d in enumerate(dx))
        found = tangent(x, dx)
        errors = []
        for step in (1e-3, 1e-4, 1e-5):
            ahead, behind = (
                advance(*jax.tree.map(lambda a, d, s=s: a + s * d, x, dx)) for s in (step, -step)
            )
            errors.append(np.max(np.abs((ahead - behind) / (2 * step) - found)))
        assert min(errors) < 1e-7 * max(np.max(np.abs(found)), 1e-2)


@pytest.mark.slow
def test_long_rollouts_have_finite_reverse_gradients():
    model = jc.models.box_on_incline(0.25)

    def distance(v, mu):
        params = model.params.replace(mu=mu)
        tau = jnp.zeros((1000, 6))
        states, _ = jc.compliant.rollout(model.system, params, model.state.replace(v=v), tau, dt=0.001)
        return states.q[-1, 0]

    at = (model.state.v, jnp.full_like(model.params.mu, 0.2))
    value, slopes = jax.jit(jax.value_and_grad(distance, argnums=(0, 1)))(*at)
    assert np.isfinite(value) and all(np.all(np.isfinite(g)) for g in slopes)
    # Sliding for one second: d distance / d mu = -g cos(15 deg) / 2 along the slope.
    total = np.sum(slopes[1])
    np.testing.assert_allclose(abs(total), 0.5 * 9.81 * np.cos(np.radians(15.0)), rtol=0.1)
