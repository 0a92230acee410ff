"""Feedback along a motion, against the algebraic equation of Riccati and a linear-quadratic program."""

import jax.numpy as jnp
import numpy as np
import pytest
from scipy.linalg import solve_discrete_are

import jaxcontact as jc

POLE = """<mujoco><worldbody><body><joint axis="0 1 0"/><geom type="sphere" size="0.05" pos="0 0 0.5" mass="1"/>
</body></worldbody><actuator><motor gear="1"/></actuator></mujoco>"""
STEPPER = jc.simulate.Compliant()
pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def pole():
    """A pole at its unstable equilibrium, upright."""
    model = jc.load_mjcf(POLE)
    motion = jc.simulate.rollout(model, model.initial_state(), jnp.zeros((5, 1)), stepper=STEPPER, dt=0.01)
    return model, motion


def test_a_rest_that_repeats_has_the_gains_of_the_algebraic_equation(pole):
    model, motion = pole
    Q, R = np.diag([2.0, 0.5]), np.array([[0.1]])
    policy, info = jc.optimize.track(
        model,
        motion,
        stepper=STEPPER,
        state_cost=jnp.diagonal(Q),
        control_cost=jnp.array([0.1]),
        periodic=True,
    )
    linear, _ = jc.linearize(model, model.initial_state(), jnp.zeros(1), stepper=STEPPER, dt=0.01)
    A, B = np.asarray(linear.A), np.asarray(linear.B)
    P = solve_discrete_are(A, B, Q, R)
    np.testing.assert_allclose(info.cost_to_go, P, rtol=1e-7)
    np.testing.assert_allclose(policy.gains[0], np.linalg.solve(R + B.T @ P @ B, B.T @ P @ A), rtol=1e-7)
    assert info.status == 0
    assert info.without[0] > 1.0 > info.with_feedback[0]


def test_a_motion_that_ends_has_the_cost_of_its_own_steps(pole):
    """The least cost of a linear-quadratic program, solved as least squares over all controls."""
    model, motion = pole
    _, info = jc.optimize.track(
        model, motion, stepper=STEPPER, state_cost=jnp.array([2.0, 0.5]), control_cost=jnp.array([0.1])
    )
    linear, _ = jc.linearize(model, model.initial_state(), jnp.zeros(1), stepper=STEPPER, dt=0.01)
    A, B = np.asarray(linear.A), np.asarray(linear.B)
    x0 = np.array([0.3, -0.2])
    rows, constants = [], []
    for k in range(6):
        rows.append(
            np.hstack([np.linalg.matrix_power(A, k - 1 - j) @ B if j < k else 0 * B for j in range(5)])
        )
        constants.append(np.linalg.matrix_power(A, k) @ x0)
    weights = np.sqrt([2.0, 0.5])
    matrix = np.vstack([*(weights[:, None] * row for row in rows), np.sqrt(0.1) * np.eye(5)])
    vector = np.concatenate([*(weights * c for c in constants), np.zeros(5)])
    u = np.linalg.lstsq(matrix, -vector, rcond=None)[0]
    np.testing.assert_allclose(x0 @ info.cost_to_go @ x0, np.sum((matrix @ u + vector) ** 2), rtol=1e-9)


def test_feedback_holds_the_pole_up(pole):
    model, motion = pole
    policy, _ = jc.optimize.track(
        model,
        motion,
        stepper=STEPPER,
        state_cost=jnp.array([1.0, 0.1]),
        control_cost=jnp.array([0.01]),
        periodic=True,
    )
    leaning = model.initial_state().replace(q=jnp.array([0.3]))

    def angles(controls):
        motion = jc.simulate.rollout(model, leaning, controls, stepper=STEPPER, dt=0.01, num_steps=300)
        return np.abs(motion.states.q[:, 0])

    assert angles(policy)[-1] < 1e-2
    assert angles(jnp.zeros((300, 1))).max() > 3.0


def test_what_is_no_motion_is_refused(pole):
    model, motion = pole
    costs = {"state_cost": jnp.ones(2), "control_cost": jnp.ones(1)}
    with pytest.raises(ValueError, match="inputs"):
        jc.optimize.track(model, motion.replace(inputs=None), stepper=STEPPER, **costs)
    with pytest.raises(ValueError, match="state_cost: expected"):
        jc.optimize.track(model, motion, stepper=STEPPER, state_cost=jnp.ones(3), control_cost=jnp.ones(1))
