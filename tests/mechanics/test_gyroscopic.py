"""Closed forms of a tree's gyroscopic force and of its matrix, against derivatives of the bias."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers.robot_files import ZOO

import jaxcontact as jc
from jaxcontact.mechanics import dynamics, kinematics

pytest.importorskip("mujoco")


@pytest.mark.float32
def test_closed_forms_of_every_kind_of_joint_are_derivatives_of_the_bias(rng, tolerance):
    model = jc.load_mjcf(ZOO)
    structure, params = model.structure, model.params
    q = model.initial_state().q + jnp.asarray(
        0.3 * rng.normal(size=model.initial_state().q.shape), model.initial_state().q.dtype
    )
    v = jnp.asarray(rng.normal(size=model.initial_state().v.shape), q.dtype)
    weightless = params.replace(gravity=jnp.zeros_like(params.gravity))

    @jax.jit
    def both(q, v):
        at_q = kinematics.solve(structure, q, params)
        derivative = jax.jacfwd(lambda v: dynamics.bias(structure, at_q, v, weightless))(v)
        matrix = dynamics.gyroscopic_matrix(structure, at_q, v)
        return derivative, matrix, dynamics.gyroscopic(structure, at_q, v)

    K, matrix, force = (np.asarray(x) for x in both(q, v))
    size = np.max(np.abs(K))
    np.testing.assert_allclose(matrix, (K.T - K) / 3.0, atol=tolerance(1e-13, 1e-5) * size)
    np.testing.assert_allclose(force, (v @ K - K @ v) / 3.0, atol=tolerance(1e-13, 1e-5) * size)
    assert np.max(np.abs(force)) > 1e-3 * size
    assert abs(force @ v) < tolerance(1e-13, 1e-5) * size
