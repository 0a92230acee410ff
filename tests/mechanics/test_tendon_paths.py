"""Tendons from site to site: MuJoCo's lengths, moments and forces, and a ball on a string."""

import jax.numpy as jnp
import mujoco
import numpy as np
import pytest

import jaxcontact as jc
from jaxcontact.mechanics import tendons
from tests.oracles.mujoco_mechanics import random_data, worst_errors

INERTIA = '<inertial mass="0.7" pos="0.1 0 0.03" quat="1 0 -0.3 0" diaginertia="0.02 0.03 0.04"/>'
ROPES = f"""
<mujoco>
  <worldbody><site name="w" pos="0.2 0.1 2"/>
    <body name="one" pos="0 0 1">{{root}}{INERTIA}<site name="a" pos="0.1 0.02 0.1"/>
      <body name="two" pos="0 0 -0.4"><joint name="b" axis="0 1 0"/>{INERTIA}<site name="c" pos="0.1 0.1 -0.2"/>
        <body name="three" pos="0.1 0 0"><joint name="s" type="slide" axis="1 0 0"/>{INERTIA}
          <site name="d"/></body></body></body>
  </worldbody>
  <tendon>
    <spatial name="rope" stiffness="30" damping="2" springlength="0.2" range="0 0.5">
      <site site="w"/><site site="a"/><site site="c"/></spatial>
    <spatial name="measures"><site site="w"/><site site="c"/></spatial>
    <fixed name="fixed" stiffness="3"><joint joint="b" coef="2"/><joint joint="s" coef="-1"/></fixed>
    <spatial name="band" damping="1" stiffness="20" springlength="0.1 0.3"><site site="d"/><site site="w"/></spatial>
  </tendon>
  <actuator><motor joint="b"/><position tendon="fixed" kp="3"/></actuator>
</mujoco>"""
PLANAR = '<joint type="slide" axis="1 0 0"/><joint type="slide" axis="0 0 1"/><joint axis="0 1 0"/>'
STRING = """
<mujoco>
  <option timestep="0.002"/>
  <worldbody><site name="hook" pos="0 0 1"/>
    <body name="ball" pos="0 0 0.9"><freejoint/><geom size="0.02" mass="1" contype="0" conaffinity="0"/>
      <site name="eye"/></body></worldbody>
  <tendon><spatial range="0 0.3" {spring}><site site="hook"/><site site="eye"/></spatial></tendon>
</mujoco>"""


@pytest.mark.long
@pytest.mark.parametrize("planar", [False, True])
def test_lengths_moments_and_forces_are_those_of_mujoco(planar, rng):
    mj = mujoco.MjModel.from_xml_string(ROPES.format(root=PLANAR if planar else "<freejoint/>"))
    model, order = jc.load_mjcf(mj, planar=planar), [2, 0, 3]
    assert [tendon.name for tendon in model.structure.tree.tendons] == ["fixed", "rope", "band"]
    if not planar:
        errors = worst_errors(mj, model, rng, 5)
        assert max(errors.values()) < 1e-12, errors
    for _ in range(3):
        data = random_data(rng, mj)
        q = jnp.asarray(data.qpos)
        moments = np.zeros((mj.ntendon, mj.nv))
        mujoco.mju_sparse2dense(
            moments, data.ten_J.ravel(), mj.ten_J_rownnz, mj.ten_J_rowadr, mj.ten_J_colind.ravel()
        )
        found = tendons.lengths(model.structure, q, model.params.tree)
        np.testing.assert_allclose(found, data.ten_length[order], atol=1e-12)
        np.testing.assert_allclose(
            tendons.moments(model.structure, q, model.params), moments[order], atol=1e-12
        )
        if planar:
            passive = model.system.forces(model.structure, q, jnp.asarray(data.qvel), model.params)
            np.testing.assert_allclose(passive, data.qfrc_passive, atol=1e-11)


@pytest.mark.slow
@pytest.mark.parametrize("spring", ["", 'stiffness="2000" damping="60" springlength="0 0.3"'])
def test_a_ball_falls_into_its_string_and_hangs(spring):
    model = jc.load_mjcf(STRING.format(spring=spring))
    controls = jnp.zeros((1000, model.num_controls))
    states, info = jc.compliant.rollout(model, model.initial_state(), controls, dt=0.002)
    assert not np.any(info.status)
    if not spring:  # the damper of a string acts while it is slack, too
        assert states.q[74, 2] == pytest.approx(0.9 - 0.5 * 9.81 * 0.15**2, abs=1e-4)
    sag = 9.81 / 2000.0 if spring else 0.0
    assert 0.7 - sag - 2e-3 < states.q[-1, 2] < 0.7 + 1e-3
    np.testing.assert_allclose(states.v[-1], 0.0, atol=1e-3)


def test_a_tendon_over_a_geom_is_refused():
    text = STRING.format(spring="").replace(
        '<site name="eye"/>',
        '<site name="eye"/><geom name="drum" type="cylinder" size="0.1 0.1" mass="0" contype="0" conaffinity="0"/>',
    )
    text = text.replace('<site site="hook"/>', '<site site="hook"/><geom geom="drum"/>')
    with pytest.raises(ValueError, match="spatial, over a geom or a pulley"):
        jc.load_mjcf(text)
