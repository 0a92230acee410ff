"""Derivatives of robots by every number of theirs, against central differences."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers.robot_files import ZOO

import jaxcontact as jc

pytest.importorskip("mujoco")


def check(f, tree, rng, rtol, step=1e-6):
    """jax.grad of a scalar function of a pytree along random directions, each leaf on its own."""
    gradient = jax.grad(f)(tree)
    leaves, structure = jax.tree.flatten(tree)
    for k, leaf in enumerate(leaves):
        if not np.all(np.isfinite(leaf)) or leaf.size == 0:
            continue
        direction = jnp.asarray(rng.normal(size=leaf.shape))

        def along(h, k=k, leaf=leaf, direction=direction):
            moved = [*leaves[:k], leaf + h * direction, *leaves[k + 1 :]]
            return f(jax.tree.unflatten(structure, moved))

        difference = (along(step) - along(-step)) / (2 * step)
        found = jnp.sum(jax.tree.leaves(gradient)[k] * direction)
        scale = max(abs(float(difference)), 1e-3)
        assert abs(float(found - difference)) < rtol * scale, (k, leaf.shape, float(found), float(difference))
    for part in jax.tree.leaves(gradient):
        assert np.all(np.isfinite(part))


@pytest.mark.slow
def test_forward_dynamics_by_every_number(rng):
    model = jc.load_mjcf(ZOO)
    nv = model.initial_state().v.size
    q = jc.retract(model, model.initial_state().q, jnp.asarray(0.5 * rng.normal(size=nv)))
    state = model.initial_state().replace(q=q, v=jnp.asarray(rng.normal(size=nv)))
    weights = jnp.asarray(rng.normal(size=nv))
    controls = jnp.asarray(0.1 * rng.normal(size=6))

    @jax.jit
    def outcome(numbers):
        params, controls, v = numbers
        now = state.replace(v=v)
        tau = jc.actuator_forces(model.replace(params=params), now, controls)
        acceleration = jc.forward_dynamics(model.replace(params=params), now, tau)
        limits = model.system.constraints(model.structure, now.q, params)[1]
        return weights @ acceleration + jnp.sum(limits**2)

    check(outcome, (model.params.replace(material=None), controls, state.v), rng, 1e-6)
