"""Robots on the ground: gaps of named contacts, heights in closed form, derivatives against differences."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxcontact as jc
from jaxcontact.terms import contact_gaps

pytest.importorskip("mujoco")

TILTED = 0.3
BALL = """
<mujoco>
  <worldbody>
    <geom name="slope" type="plane" size="1 1 1" axisangle="0 1 0 {tilt}"/>
    <body name="rock" pos="0.2 0.1 3"><freejoint/><geom name="rock" size="0.25" pos="0.1 0 0"/></body>
  </worldbody>
</mujoco>"""


def ball(tilt=TILTED):
    return jc.load_mjcf(BALL.format(tilt=np.degrees(tilt)))


@pytest.mark.slow
def test_a_ball_is_lowered_along_gravity_to_a_slope():
    model = ball()
    state, info = jc.place_on_ground(model, model.initial_state())
    assert info.status == 0
    # The centre (x + 0.1) is at a distance of the radius from the plane through the origin.
    height = (0.25 - np.sin(TILTED) * 0.3) / np.cos(TILTED)
    np.testing.assert_allclose(state.q[:3], [0.2, 0.1, height], atol=1e-14)
    np.testing.assert_array_equal(state.q[3:], model.initial_state().q[3:])

    def height_of(radius, x):
        params = model.params.replace(constants=model.params.constants | {"rock/radius": radius})
        start = model.initial_state().replace(q=model.initial_state().q.at[0].set(x))
        return jc.place_on_ground(model.replace(params=params), start)[0].q[2]

    at = jnp.asarray(0.25), jnp.asarray(0.2)
    expected = [1.0 / np.cos(TILTED), -np.tan(TILTED)]
    np.testing.assert_allclose(jax.grad(height_of, (0, 1))(*at), expected, atol=1e-12)
    np.testing.assert_allclose(jax.jacfwd(height_of, (0, 1))(*at), expected, atol=1e-12)


LEGS = """
<mujoco>
  <worldbody>
    <geom name="floor" type="plane" size="1 1 1"/>
    <body name="trunk" pos="0 0 1"><freejoint/><inertial pos="0 0 0" mass="3" diaginertia="0.1 0.2 0.3"/>
      <body name="left" pos="0 0.2 0"><joint axis="0 1 0"/><geom name="left_foot" pos="0.1 0 -0.5" size="0.05"/></body>
      <body name="right" pos="0 -0.2 0"><joint axis="0 1 0"/><geom name="right_foot" pos="0.1 0 -0.5" size="0.04"/></body>
      <body name="tail" pos="-0.4 0 -0.4"><geom name="tail" size="0.03"/></body>
    </body>
  </worldbody>
</mujoco>"""


@pytest.mark.slow
def test_three_contacts_touch_at_once_by_names_of_geoms_and_bodies():
    model = jc.load_mjcf(LEGS, contacts="world")
    place = jax.jit(
        lambda q: jc.place_on_ground(
            model, model.initial_state().replace(q=q), contacts=("left_foot", "right", "tail")
        )
    )
    bent = jc.retract(model, model.initial_state().q, jnp.array([0.0, 0, 0.2, 0.3, 0.1, 0, 0.2, -0.3]))
    state, info = place(bent)
    assert info.status == 0 and info.num_iters < 12
    gaps = contact_gaps(model, state.q)
    np.testing.assert_allclose(gaps, 0.0, atol=1e-13)
    direction = jnp.asarray(np.random.default_rng(0).normal(size=8))

    def moved(h):
        return place(jc.retract(model, bent, h * direction))[0].q

    step = 1e-5
    differences = (moved(step) - moved(-step)) / (2.0 * step)
    np.testing.assert_allclose(jax.jvp(moved, (0.0,), (1.0,))[1], differences, atol=1e-8)


@pytest.mark.long
def test_what_cannot_be_placed_is_named_or_marked():
    model = ball()
    with pytest.raises(
        ValueError, match="contacts: expected names with contacts with the world, rock; got 'foot'"
    ):
        jc.place_on_ground(model, model.initial_state(), contacts=("foot",))
    with pytest.raises(TypeError, match="contacts: expected a sequence of strings, got 'rock'"):
        jc.place_on_ground(model, model.initial_state(), contacts="rock")
    with pytest.raises(TypeError, match="model: expected Model, got System"):
        jc.place_on_ground(model.system, model.initial_state())
    weightless = model.replace(params=model.params.replace(gravity=jnp.zeros(3)))
    _, info = jc.place_on_ground(weightless, model.initial_state())
    assert jc.Status.describe(info.status).find("INVALID") >= 0 or int(info.status) & int(jc.Status.INVALID)
    beside = jc.load_mjcf(BALL.format(tilt=90.0))  # a wall, along which it falls for ever
    _, info = jc.place_on_ground(beside, beside.initial_state())
    assert int(info.status) & int(jc.Status.FAILURES)
