"""Drag of a fluid on the bodies of a file: MuJoCo's forces, and bodies that sink as closed forms say."""

import jax.numpy as jnp
import mujoco
import numpy as np
import pytest

import jaxcontact as jc
from tests.oracles.mujoco_mechanics import worst_errors

SWIMMER = """
<mujoco>
  <option density="1000" viscosity="0.3" wind="0.4 0 -0.2">{flags}</option>
  <worldbody>
    <body name="one" pos="0 0 1"><freejoint/>
      <inertial mass="0.7" pos="0.1 0.02 0.03" quat="1 0.2 -0.3 0.1" diaginertia="0.02 0.03 0.04"/>
      <body name="two" pos="0 0 -0.4" gravcomp="0.4"><joint name="a" axis="0 1 0.2"/><geom type="capsule" size="0.05 0.2"/>
        <body name="empty" pos="0.1 0 0" gravcomp="1"/></body></body>
  </worldbody>
  <actuator><motor joint="a"/></actuator>
</mujoco>"""
SINKING = """
<mujoco>
  <option density="{density}" viscosity="{viscosity}" gravity="0 0 -9.81"/>
  <worldbody><body><{joint}/><geom type="box" size="0.1 0.1 0.1" mass="2" contype="0" conaffinity="0"/></body></worldbody>
</mujoco>"""


@pytest.mark.parametrize("flags", ["", '<flag spring="disable" damper="disable"/>'])
def test_the_drag_is_that_of_mujoco(flags, rng):
    mj = mujoco.MjModel.from_xml_string(SWIMMER.format(flags=flags))
    model = jc.load_mjcf(mj)
    errors = worst_errors(mj, model, rng, 5)
    if flags:  # the helper lifts a body although the flags do not
        assert errors.pop("potential") > 0.0
        assert not model.structure.tree.lifted
    assert max(errors.values()) < 1e-12, errors
    assert not any("fluid" in note for note in model.notes)


@pytest.mark.long
@pytest.mark.parametrize("planar", [False, True])
@pytest.mark.parametrize(("density", "viscosity"), [(800.0, 0.0), (0.0, 3.0)])
def test_a_sinking_box_falls_as_the_closed_form_says(density, viscosity, planar):
    joint = 'joint type="slide" axis="0 0 1"' if planar else "freejoint"
    model = jc.load_mjcf(SINKING.format(density=density, viscosity=viscosity, joint=joint), planar=planar)
    steps, dt = 200, 0.005
    controls = jnp.zeros((steps, model.num_controls))
    states, info = jc.compliant.rollout(model, model.initial_state(), controls, dt=dt)
    assert not np.any(info.status)
    fall = states.v[-1, 0 if planar else 2]
    if density:  # m v' = m g - b v^2
        limit = np.sqrt(2.0 * 9.81 / (0.5 * density * 0.04))
        expected = -limit * np.tanh(9.81 * steps * dt / limit)
    else:  # m v' = m g - a v
        rate = 3.0 * np.pi * viscosity * 0.2 / 2.0
        expected = -9.81 / rate * (1.0 - np.exp(-rate * steps * dt))
    assert fall == pytest.approx(expected, rel=1e-4)


def test_the_wind_stays_in_the_plane():
    text = SINKING.format(density=1.0, viscosity=0.0, joint='joint type="slide" axis="0 0 1"')
    with pytest.raises(ValueError, match="planar: the wind leaves the x-z plane"):
        jc.load_mjcf(text.replace("gravity=", 'wind="0 1 0" gravity='), planar=True)
