"""A, B of a step against differences and a closed form; checkpoints of reverse mode."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxcontact as jc

DT = 0.01
STEPPER = jc.simulate.Compliant()
TOP = """<mujoco><worldbody><body pos="0 0 1"><joint type="ball" damping="0.01"/>
<geom type="box" size="0.1 0.05 0.2" pos="0.02 0 0.3" mass="2"/></body></worldbody></mujoco>"""


@functools.cache
def spinning(name):
    """The system, params and state of a top on a ball joint, or of a box that slides and turns on four corners."""
    if name == "top":
        model, v = jc.load_mjcf(TOP), jnp.array([0.3, -0.2, 4.0])
    else:
        model, v = jc.models.box_on_incline(0.25), jnp.array([0.3, -0.2, 0.0, 0.1, 0.2, 0.4])
    return model, model.initial_state().replace(v=v)


@functools.cache
def linearize(name):
    return jax.jit(
        functools.partial(jc.linearize, spinning(name)[0], stepper=STEPPER, dt=DT), static_argnames="order"
    )


BOTH = ["top", pytest.param("box", marks=pytest.mark.slow)]


@pytest.mark.slow_cases("top")
@pytest.mark.parametrize("name", BOTH)
def test_the_first_order_is_the_change_of_a_step(name):
    model, start = spinning(name)
    nv = start.v.size
    u = 0.1 * jnp.arange(1.0, nv + 1)
    linear, info = linearize(name)(start, u)
    assert int(info.status) == 0
    step = jax.jit(functools.partial(STEPPER.step, model))
    memory = STEPPER.init(model, start)

    def after(x):
        moved = start.replace(q=jc.retract(model, start.q, x[:nv]), v=start.v + x[nv : 2 * nv])
        then = step(moved, u + x[2 * nv :], memory, dt=jnp.asarray(DT))[0]
        rotation = jc.rotations.quaternion_matrix(linear.state.q[-4:]).T @ jc.rotations.quaternion_matrix(
            then.q[-4:]
        )
        return np.concatenate([then.q[:-4], jc.rotations.vee(rotation), then.v])  # to first order

    h = 1e-6
    columns = [(after(h * e) - after(-h * e)) / (2 * h) for e in jnp.eye(3 * nv)]
    both = np.concatenate([linear.A, linear.B], axis=1)
    np.testing.assert_allclose(both, np.stack(columns, axis=1), atol=2e-7 * np.abs(both).max())


@pytest.mark.slow_cases("top")
@pytest.mark.parametrize("name", BOTH)
def test_the_second_order_is_the_change_of_the_first(name):
    _, start = spinning(name)
    nv = start.v.size
    u = jnp.zeros(nv)
    linear, _ = linearize(name)(start, u, order=2)
    assert linear.second.shape == (2 * nv, 3 * nv, 3 * nv)
    largest = np.abs(linear.second).max()
    np.testing.assert_allclose(linear.second, jnp.swapaxes(linear.second, 1, 2), atol=1e-5 * largest)
    h = 1e-5
    for k in (0, nv - 1):  # changes of v: the chart of x stays

        def first(size, k=k):
            moved = start.replace(v=start.v + size * jnp.eye(nv)[k])
            there, _ = linearize(name)(moved, u)
            return np.concatenate([there.A, there.B], axis=1)[nv:]  # rows of v: the chart of x+ stays

        slope = (first(h) - first(-h)) / (2 * h)
        np.testing.assert_allclose(linear.second[nv:, :, nv + k], slope, atol=1e-5 * largest)


@pytest.mark.slow
def test_a_free_point_has_the_matrices_of_the_textbook():
    text = """<mujoco><worldbody><body pos="0 0 5"><joint name="slide" type="slide" axis="1 0 0"/>
    <geom size="0.1" mass="2"/></body></worldbody><actuator><motor joint="slide"/></actuator></mujoco>"""
    model = jc.load_mjcf(text)
    states = jax.tree.map(lambda x: jnp.stack([x, x + 1]), model.initial_state())
    controls = jnp.array([[0.5], [-0.5]])
    batch = jax.vmap(functools.partial(jc.linearize, model, stepper=STEPPER, dt=DT))
    linear, info = batch(states, controls)
    assert not np.any(info.status)
    for k in range(2):
        np.testing.assert_allclose(linear.A[k], [[1, DT], [0, 1]], atol=1e-12)
        np.testing.assert_allclose(linear.B[k], [[DT**2 / 2], [DT / 2]], atol=1e-12)


def test_mistakes_are_named():
    model, state = spinning("top")
    with pytest.raises(ValueError, match="order: expected 1 or 2, got 3"):
        jc.linearize(model, state, jnp.zeros(3), stepper=STEPPER, dt=DT, order=3)
    with pytest.raises(ValueError, match="controls"):
        jc.linearize(model, state, jnp.zeros(2), stepper=STEPPER, dt=DT)
    with pytest.raises(TypeError, match="stepper"):
        jc.linearize(model, state, jnp.zeros(3), stepper=None, dt=DT)


@pytest.mark.slow_cases("3")
@pytest.mark.parametrize(
    "every", [3, pytest.param(1, marks=pytest.mark.slow), pytest.param(20, marks=pytest.mark.slow)]
)
def test_checkpoints_change_memory_not_numbers(every):
    model, state = spinning("top")
    controls = 0.1 * jnp.ones((7, 3))
    roll = functools.partial(jc.simulate.rollout, model, stepper=STEPPER, dt=DT)

    def turn(controls, **settings):
        rows = roll(state, controls, **settings)
        return rows.states.q[-1, 0], rows.states.q

    (_, rows), slope = jax.value_and_grad(turn, has_aux=True)(controls)
    (_, kept), same = jax.value_and_grad(functools.partial(turn, checkpoint_every=every), has_aux=True)(
        controls
    )
    np.testing.assert_allclose(kept, rows, atol=1e-14)
    np.testing.assert_allclose(same, slope, rtol=1e-12, atol=1e-16)
