"""`optimize.trajectory` through contact by every stepper, on a robot read from its file."""

from importlib import resources

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxcontact as jc

DT, STEPS = 0.01, 2
STEPPERS = {
    "time stepping": lambda: jc.simulate.TimeStepping(),
    "compliant": lambda: jc.simulate.Compliant(),
    "variational": lambda: jc.simulate.Variational(),
    "event driven": lambda: jc.simulate.EventDriven(max_events=32),
}


def landing_hopper():
    """Return the hopper of the package's file, whose foot lands at 0.3 m/s within the second step."""
    file = resources.files("jaxcontact.models.mjcf") / "hopper.xml"
    model = jc.load_mjcf(file.read_text(), planar=True, contacts="world")
    state = jc.place_on_ground(model, model.initial_state())[0]
    q, v = state.q.at[1].add(4e-3), state.v.at[1].set(-0.3)
    return model, state.replace(q=q, v=v.at[0].set(0.2))


@pytest.mark.slow
@pytest.mark.parametrize("name", STEPPERS)
def test_a_cost_falls_through_a_landing(name):
    model, state = landing_hopper()
    stepper = STEPPERS[name]()

    def cost(u):  # the trunk stays upright and slows down
        motion = jc.simulate.rollout(model, state, u, stepper=stepper, dt=DT)
        q, v = motion.states.q[-1], motion.states.v[-1]
        return 100.0 * q[2] ** 2 + jnp.sum(v[:3] ** 2) + 1e-3 * jnp.sum(u**2), motion

    evaluate = jax.jit(jax.value_and_grad(cost, has_aux=True))
    start = 0.05 * jnp.asarray(np.random.default_rng(0).normal(size=(STEPS, model.num_controls)))
    (_, motion), slope = evaluate(start)
    jc.raise_if_failed(motion)
    assert np.any(motion.contacts[-1]) and not np.any(motion.contacts[0])
    along, h = jnp.asarray(np.random.default_rng(1).normal(size=start.shape)), 1e-5
    ahead, behind = (evaluate(start + side * h * along)[0][0] for side in (1, -1))
    assert float(jnp.sum(slope * along)) == pytest.approx(float(ahead - behind) / (2 * h), rel=1e-4)
    controls, info = jc.optimize.trajectory(
        lambda u: cost(u)[0], start, scale=1.0, num_steps=4,
        optimizer=jc.optimize.AugmentedLagrangian(bounds=(-1.0, 1.0)),
    )  # fmt: skip
    (value, motion), _ = evaluate(controls)
    assert info.cost < 0.8 * info.costs[0] and info.cost == pytest.approx(float(value), rel=1e-9)
    assert np.all(np.abs(controls) <= 1.0)
    jc.raise_if_failed(motion)
