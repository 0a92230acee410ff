"""Derivatives of the flow between corners: forward, reverse, second order, by state, params, control, times."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers.ess_systems import HOPPER, HOPPER_PARAMS
from jax.flatten_util import ravel_pytree

import jaxcontact as jc
from jaxcontact.ess import DormandPrince, flow

FINE = DormandPrince(rtol=1e-11, atol=1e-12)
STEP = 1e-5


def differences(function, x):
    columns = []
    for i in range(x.shape[0]):
        d = STEP * max(1.0, abs(float(x[i])))
        up, down = function(x.at[i].add(d)), function(x.at[i].add(-d))
        columns.append((np.asarray(up) - np.asarray(down)) / (2 * d))
    return np.stack(columns, axis=-1)


@pytest.fixture(scope="module")
def hopper():
    """End of 21 crossings by (x0, params, control, t1) as one vector, and its Jacobians."""
    start = {"x": jnp.array([2.0, 0.0]), "p": HOPPER_PARAMS, "u": jnp.array(0.02), "t": jnp.array(12.0)}
    start["p"] = jax.tree.map(jnp.asarray, start["p"])
    vector, unravel = ravel_pytree(start)

    def end(z):
        s = unravel(z)
        settings = jc.ess.Settings(eps=1e-5, ode=FINE, max_steps=4000)
        model = jc.Model(system=HOPPER, params=s["p"])
        return flow(model, s["x"], 0.0, s["t"], settings=settings, control=s["u"])

    both = jax.jit(end)

    def run(z):
        return both(z)[0]

    return vector, run, jax.jit(jax.jacfwd(run))(vector), jax.jit(jax.jacrev(run))(vector), both(vector)[1]


@pytest.mark.slow
def test_forward_reverse_and_differences_agree_through_twenty_events(hopper):
    vector, run, ahead, back, info = hopper
    assert int(info.status) == 0 and int(info.num_events) >= 20
    scale = np.abs(ahead).max()
    assert np.abs(ahead - back).max() <= 1e-10 * scale
    estimate = differences(run, vector)
    assert np.abs(ahead - estimate).max() <= 1e-6 * np.abs(estimate).max()


@pytest.mark.slow
def test_second_derivatives_and_those_by_time():
    model = jc.models.affine_3d()
    start = jnp.concatenate([model.initial_state(), jnp.array([0.5])])

    def end(z):
        settings = jc.ess.Settings(eps=1e-4, ode=FINE, max_steps=256)
        return flow(model, z[:3], 0.0, z[3], settings=settings)[0][0]

    gradient = jax.jit(jax.grad(end))
    hessian = np.asarray(jax.jit(jax.hessian(end))(start))
    estimate = differences(gradient, start)
    assert np.abs(hessian - estimate).max() <= 1e-5 * np.abs(estimate).max()
    assert np.abs(hessian - hessian.T).max() <= 1e-9 * np.abs(hessian).max()
