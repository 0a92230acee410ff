"""Steps on the central path: closed form, first order in the parameter, derivatives, and a plan from afar."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxcontact as jc
from benchmarks.push_from_afar import SCENE as PUSH

pytest.importorskip("mujoco")

BALL = """<mujoco><option gravity="0 0 0"/><worldbody><geom name="floor" type="plane" size="5 5 1"/>
<body pos="0 0 0.3"><joint type="slide" axis="0 0 1"/><geom type="sphere" size="0.1" mass="2"/></body>
</worldbody></mujoco>"""


def step_of(model, k, state, controls, dt=0.01):
    return jc.compliant.step(jc.compliant.smoothed(model, k), state, controls, dt=dt)


@pytest.mark.long
def test_a_force_across_a_gap_in_closed_form():
    """A mass at rest 0.2 m above the floor: p (gap / h + p / m + p / (h (h K + B))) = k."""
    model = jc.load_mjcf(BALL)
    law = jc.compliant.Material(stiffness=1e4, damping=0.0)
    model = model.replace(params=model.params.replace(material=law))
    h, m, gap = 0.01, 2.0, 0.2
    softness = 1 / m + 1 / (h * h * 1e4)
    for k in (1.0, 1e-2, 1e-5):
        state, info = step_of(model, k, model.initial_state(), jnp.zeros(1))
        p = (-gap / h + np.sqrt((gap / h) ** 2 + 4 * softness * k)) / (2 * softness)
        assert int(info.status) == 0
        assert float(state.v[0]) == pytest.approx(p / m, rel=1e-9)
        assert float(info.lam[0]) * (gap + h * p * softness) == pytest.approx(k, rel=1e-9)


@pytest.fixture(scope="module")
def landing():
    """A box that lands on two corners and slides, beside a pusher: model, state, and its exact step."""
    model = jc.load_mjcf(PUSH, planar=True)
    state = jc.place_on_ground(model, model.initial_state())[0]
    state = state.replace(q=state.q.at[2].add(-1e-4), v=jnp.array([0.2, 0.7, -0.3, 0.0]))
    exact, info = jc.compliant.step(model, state, jnp.array([3.0]), dt=0.01)
    assert int(info.status) == 0
    return model, state, exact.v


@pytest.mark.slow
def test_the_error_is_of_first_order(landing):
    """Of the box; the pusher, which nothing touches, moves to first order in dt here, and else to second."""
    model, state, exact = landing
    step = jax.jit(lambda k: step_of(model, k, state, jnp.array([3.0])))
    levels = (1e-3, 1e-4, 1e-5, 1e-6, 1e-7)
    errors = []
    for k in levels:
        found, info = step(k)
        assert int(info.status) == 0 and float(info.residual) < 1e-12
        errors.append(float(jnp.max(jnp.abs(found.v - exact)[1:])))
    np.testing.assert_allclose(np.log10(np.array(errors[:-1]) / errors[1:]), 1.0, atol=0.1)
    assert errors[-1] < 1e-5


@pytest.mark.slow
def test_derivatives_forward_and_reverse_are_those_of_differences(landing):
    model, state, _ = landing

    def end(numbers):
        k, push, speed = numbers
        return step_of(model, k, state.replace(v=state.v * speed), push[None])[0].v

    at, step = jnp.array([1e-3, 3.0, 1.0]), np.diag([1e-8, 1e-4, 1e-6])
    end = jax.jit(end)
    expected = np.stack([(end(at + d) - end(at - d)) / (2 * d.sum()) for d in step], axis=1)
    found = np.asarray(jax.jacfwd(end)(at))
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(jax.jacrev(end)(at), found, rtol=1e-9, atol=1e-11)


@pytest.mark.slow
def test_lanes_and_bad_numbers(landing):
    model, state, _ = landing
    levels = jnp.array([1e-3, jnp.nan, -1.0, 1e-5])
    lanes, info = jax.vmap(lambda k: step_of(model, k, state, jnp.array([3.0])))(levels)
    status = np.asarray(info.status)
    assert status[0] == status[3] == 0
    assert all(status[1:3] & int(jc.Status.INVALID))
    alone = step_of(model, 1e-5, state, jnp.array([3.0]))[0].v
    np.testing.assert_allclose(lanes.v[3], alone, rtol=1e-7, atol=1e-9)
    with pytest.raises(ValueError, match="material.smoothing"):
        jc.compliant.step(
            jc.compliant.smoothed(model, 1e-3), state, jnp.array([3.0]), dt=0.01,
            settings=jc.compliant.Settings(cone="associated"),
        )  # fmt: skip
    assert jc.compliant.smoothed(model, None).params.material.smoothing is None
    with pytest.raises(ValueError, match="smoothing: expected"):
        jc.compliant.smoothed(model, -1.0)


@pytest.mark.slow
def test_a_gradient_finds_the_push_from_5_cm_away():
    """The exact gradient is zero; annealed, the plan is one of the exact step."""
    from scipy.optimize import minimize

    model = jc.load_mjcf(PUSH, planar=True)
    state = jc.place_on_ground(model, model.initial_state())[0]

    def cost(push, k):
        moved, _ = jc.compliant.rollout(jc.compliant.smoothed(model, k), state, push[:, None], dt=0.02)
        return (moved.q[-1, 1] - 0.3) ** 2 + 1e-5 * jnp.mean(push**2)

    exact = jax.jit(jax.value_and_grad(lambda push: cost(push, None)))
    smooth = jax.jit(jax.value_and_grad(cost))
    push = np.zeros(40)
    assert float(jnp.linalg.norm(exact(push)[1])) == 0.0
    for k in (1e-1, 1e-2, 1e-3, 1e-4, 1e-5, None):
        function = exact if k is None else lambda push, k=k: smooth(push, k)
        push = minimize(
            lambda x: tuple(np.asarray(y) for y in function(jnp.asarray(x))),
            push, jac=True, method="L-BFGS-B", bounds=[(-20, 20)] * 40, options={"maxiter": 15},
        ).x  # fmt: skip
    assert float(exact(push)[0]) < 2e-3  # at 0.09 before; the effort alone is about 5e-4


@pytest.mark.parametrize("bad", ["abc", object(), 0.0, -1.0])
def test_a_smoothing_that_is_no_positive_number_is_named(bad):
    with pytest.raises((TypeError, ValueError), match="smoothing: expected"):
        jc.compliant.Material(stiffness=1e4, damping=0.0, smoothing=bad)
