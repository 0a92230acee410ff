"""Contacts that land at one instant, with `corner="one_sided"`: derivatives, jumps, and what is refused."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxcontact as jc

BALL = """<body pos="{x} 0 1"><joint type="slide" axis="1 0 0"/><joint type="slide" axis="0 0 1"/>
<geom type="sphere" size="0.1" mass="{mass}" friction="0.4"/></body>"""
BALLS = f"""<mujoco><worldbody><geom type="plane" size="5 5 1" friction="0.4"/>
{BALL.format(x=-1, mass=1)}{BALL.format(x=0, mass=2)}{BALL.format(x=1, mass=3)}</worldbody></mujoco>"""
DT = 0.5  # s; a fall of 0.9 m takes 0.43 s


def make_end(model, law, corner="one_sided"):
    """A function of q, v and masses that returns (q, v) after a step, and its info."""
    stepper = jc.simulate.EventDriven(impact=law, corner=corner)

    def end(q, v, mass):
        moved = model.replace(params=model.params.replace(mass=mass))
        state = jc.State(q=q, v=v, t=jnp.array(0.0))
        memory = stepper.init(moved, state)
        then, _, info = stepper.step(moved, state, jnp.zeros_like(v), memory, dt=jnp.array(DT))
        return jnp.concatenate([then.q, then.v]), info

    return end


def rates_and_differences(end, start, directions, h=1e-6):
    """Derivatives by directions, one-sided differences of second order in h, and the info of the start."""
    number = directions[0].shape[0]
    ones = jax.tree.map(lambda x: jnp.ones((3 * number, *x.shape)) * x[None], start)
    sizes = jnp.repeat(jnp.array([0.5 * h, h, 0.0]), number)
    tiled = jax.tree.map(lambda d: jnp.concatenate([d] * 3), directions)
    moved = jax.tree.map(lambda x, d: x + sizes[:, None] * d, ones, tiled)
    ends, info = jax.jit(jax.vmap(end))(*moved)
    fine, coarse, base = jnp.split(ends, 3)
    difference = 2.0 * (fine - base) / (0.5 * h) - (coarse - base) / h
    exact = jax.jit(jax.vmap(lambda d: jax.jvp(lambda *a: end(*a)[0], start, d)[1]))(directions)
    return exact, difference, jax.tree.map(lambda x: x[-1], info)


def random_directions(start, rng, number):
    return jax.tree.map(lambda x: jnp.asarray(rng.normal(size=(number, *x.shape))), start)


def block(inertia, mu):
    """A block that falls flat on two corners, and its start."""
    model = jc.models.rocking_block()
    params = model.params.replace(inertia=jnp.array([inertia]), mu=jnp.full(2, mu))
    start = jnp.array([0.0, 1.3, 0.0]), jnp.array([0.3, -0.5, 0.0]), params.mass
    return model.replace(params=params), start


@pytest.mark.long
def test_three_balls_that_land_together_have_the_derivative_of_the_direction(rng):
    model = jc.load_mjcf(BALLS, contacts="world", planar=True)
    start = jnp.zeros(6), jnp.array([0.5, 0.0, 2.0, 0.0, -1.0, 0.0]), model.params.mass
    end = make_end(model, jc.impact.AnitescuPotra())
    exact, difference, info = rates_and_differences(end, start, random_directions(start, rng, 30))
    np.testing.assert_allclose(exact, difference, atol=1e-6)
    assert info.status == int(jc.Status.SIMULTANEOUS)


@pytest.mark.long
def test_a_block_whose_corners_do_not_move_each_other_has_a_derivative_and_others_jump(rng):
    model, start = block(0.25, 0.0)  # the other corner is the centre of percussion
    end = make_end(model, jc.impact.Newton(restitution=0.5))
    exact, difference, info = rates_and_differences(end, start, random_directions(start, rng, 20))
    np.testing.assert_allclose(exact, difference, atol=1e-6)
    assert info.status == int(jc.Status.SIMULTANEOUS)

    model, start = block(5.0 / 12.0, 1.0)
    end = make_end(model, jc.impact.AnitescuPotra())
    directions = (jnp.zeros((2, 3)), jnp.array([[0.0, 0.0, 1.0], [0.0, 0.0, -1.0]]), jnp.zeros((2, 1)))
    exact, difference, info = rates_and_differences(end, start, directions)
    assert info.status == int(jc.Status.SIMULTANEOUS | jc.Status.JUMP)
    assert np.all(np.isnan(exact))
    assert np.max(np.abs(difference[0] + difference[1])) > 1e4  # the two sides end elsewhere


@pytest.mark.long
def test_reverse_mode_and_second_derivatives_are_refused_by_name():
    model, start = block(0.25, 0.0)
    end = make_end(model, jc.impact.AnitescuPotra())

    def height(q):
        return end(q, *start[1:])[0][1]

    with pytest.raises(NotImplementedError, match="corner='smooth'"):
        jax.jit(jax.grad(height)).lower(start[0])
    with pytest.raises(NotImplementedError, match="no second derivative"):
        jax.jit(lambda q: jax.jvp(lambda q: jax.jvp(height, (q,), (q,))[1], (q,), (q,))).lower(start[0])
    with pytest.raises(ValueError, match="corner: expected one of smooth, one_sided"):
        jc.simulate.EventDriven(corner="sharp")
