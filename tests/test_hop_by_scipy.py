"""A hop planned by SciPy, carried out by the step itself."""

import jax.numpy as jnp
import numpy as np
import pytest

import jaxcontact as jc
from benchmarks import hop_by_scipy
from benchmarks.own_optimiser import DT, STEPS, WAY


@pytest.mark.slow
def test_a_plan_by_scipy_leaves_the_ground_and_lands_where_it_should():
    model = jc.models.hopper()
    state = jc.place_on_ground(model, model.initial_state())[0]
    hop = hop_by_scipy.Hop(model)
    u = hop_by_scipy.plan_hop(hop, hop.draw(np.random.default_rng(0)))
    assert np.max(np.abs(u)) <= 1.0
    controls = jnp.repeat(jnp.asarray(u).reshape(hop_by_scipy.PIECES, -1), STEPS, axis=0)
    states, info = jc.compliant.rollout(model, state, controls, dt=DT)
    jc.raise_if_failed(info)
    np.testing.assert_allclose(states.q[-1, :3], state.q[:3] + jnp.array([WAY, 0.0, 0.0]), atol=1e-8)
    gaps = [float(jnp.min(jc.contact_terms(model, state.replace(q=q)).phi)) for q in states.q[19:31:5]]
    assert min(gaps) > 0.029
    assert float(jnp.min(jc.contact_terms(model, state.replace(q=states.q[-1])).phi)) < 1.1e-3
