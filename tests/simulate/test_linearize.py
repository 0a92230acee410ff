"""A, B of a step against differences and a closed form; checkpoints of reverse mode."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxcontact as jc

DT = 0.01
BOX = jc.models.box_on_incline(0.25)
STEPPER = jc.simulate.Compliant()
LINEARIZE = jax.jit(functools.partial(jc.linearize, STEPPER, BOX.system), static_argnames="order")


def spinning():
    return BOX.state.replace(v=BOX.state.v + jnp.array([0.3, -0.2, 0.0, 0.1, 0.2, 0.4]))


def test_a_step_around_a_spinning_box_against_differences():
    start, u = spinning(), jnp.array([0.4, 0.0, -0.2, 0.01, 0.0, 0.02])
    linear, info = LINEARIZE(BOX.params, start, u, DT)
    assert int(info.status) == 0
    step = jax.jit(functools.partial(STEPPER.step, BOX.system, BOX.params))
    memory = STEPPER.init(BOX.system, BOX.params, start)

    def after(x):
        moved = start.replace(q=jc.retract(BOX.system, start.q, x[:6]), v=start.v + x[6:12])
        then = step(moved, u + x[12:], memory, dt=jnp.asarray(DT))[0]
        rotation = jc.rotations.quaternion_matrix(linear.state.q[3:]).T @ jc.rotations.quaternion_matrix(
            then.q[3:]
        )
        return np.concatenate([then.q[:3], jc.rotations.vee(rotation), then.v])  # to first order

    h = 1e-6
    columns = [(after(h * e) - after(-h * e)) / (2 * h) for e in jnp.eye(18)]
    both = np.concatenate([linear.A, linear.B], axis=1)
    np.testing.assert_allclose(both, np.stack(columns, axis=1), atol=2e-7 * np.abs(both).max())


def test_the_second_order_is_the_change_of_the_first():
    start, u = spinning(), jnp.zeros(6)
    linear, _ = LINEARIZE(BOX.params, start, u, DT, order=2)
    assert linear.second.shape == (12, 18, 18)
    largest = np.abs(linear.second).max()
    np.testing.assert_allclose(linear.second, jnp.swapaxes(linear.second, 1, 2), atol=1e-5 * largest)
    h = 1e-5
    for column, direction in ((6, jnp.eye(6)[0]), (11, jnp.eye(6)[5])):  # of v: the chart of x stays

        def first(size, direction=direction):
            moved = start.replace(v=start.v + size * direction)
            there, _ = LINEARIZE(BOX.params, moved, u, DT)
            return np.concatenate([there.A, there.B], axis=1)[6:]  # rows of v: the chart of x+ stays

        slope = (first(h) - first(-h)) / (2 * h)
        np.testing.assert_allclose(linear.second[6:, :, column], slope, atol=1e-5 * largest)


def test_a_free_point_has_the_matrices_of_the_textbook():
    text = """<mujoco><worldbody><body pos="0 0 5"><joint name="slide" type="slide" axis="1 0 0"/>
    <geom size="0.1" mass="2"/></body></worldbody><actuator><motor joint="slide"/></actuator></mujoco>"""
    model = jc.load_mjcf(text)
    states = jax.tree.map(lambda x: jnp.stack([x, x + 1]), model.state)
    controls = jnp.array([[0.5], [-0.5]])
    batch = jax.vmap(
        functools.partial(jc.linearize, STEPPER, model.system, model.params), in_axes=(0, 0, None)
    )
    linear, info = batch(states, controls, DT)
    assert not np.any(info.status)
    for k in range(2):
        np.testing.assert_allclose(linear.A[k], [[1, DT], [0, 1]], atol=1e-12)
        np.testing.assert_allclose(linear.B[k], [[DT**2 / 2], [DT / 2]], atol=1e-12)


def test_mistakes_are_named():
    with pytest.raises(ValueError, match="order: expected 1 or 2, got 3"):
        jc.linearize(STEPPER, BOX.system, BOX.params, BOX.state, jnp.zeros(6), DT, order=3)
    with pytest.raises(ValueError, match="u"):
        jc.linearize(STEPPER, BOX.system, BOX.params, BOX.state, jnp.zeros(5), DT)
    with pytest.raises(TypeError, match="stepper"):
        jc.linearize(None, BOX.system, BOX.params, BOX.state, jnp.zeros(6), DT)


@pytest.mark.parametrize("every", [1, 3, 7, 20])
def test_checkpoints_change_memory_not_numbers(every):
    controls = 0.1 * jnp.ones((7, 6))
    roll = functools.partial(jc.simulate.rollout, BOX.system, stepper=STEPPER, dt=DT)

    def height(controls, **settings):
        return roll(BOX.params, BOX.state, controls, **settings).states.q[-1, 0]

    value, slope = jax.value_and_grad(height)(controls)
    again, same = jax.value_and_grad(functools.partial(height, checkpoint_every=every))(controls)
    np.testing.assert_allclose(again, value, rtol=1e-14)
    np.testing.assert_allclose(same, slope, rtol=1e-12, atol=1e-16)
    rows = roll(BOX.params, BOX.state, controls)
    kept = roll(BOX.params, BOX.state, controls, checkpoint_every=every)
    np.testing.assert_allclose(kept.states.q, rows.states.q, atol=1e-14)
    np.testing.assert_allclose(kept.impulse, rows.impulse, atol=1e-12)
    np.testing.assert_array_equal(kept.status, rows.status)
