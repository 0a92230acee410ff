"""Free bodies, balls and hinges in any order: steps along tangents and mechanics against MuJoCo."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from oracles.mujoco_mechanics import worst_errors

import jaxcontact as jc
from jaxcontact.mechanics.configuration import difference, position_rate

mujoco = pytest.importorskip("mujoco")

INERTIA = '<inertial pos="0.1 0 -0.2" mass="0.5" diaginertia="0.01 0.02 0.015"/>'
JOINTS = {"f": "<freejoint/>", "b": '<joint type="ball"/>', "h": '<joint axis="0 1 0"/>'}


def model_of(letters):
    bodies = "".join(
        f'<body pos="{k} 0 0">{JOINTS[letter]}{INERTIA}</body>' for k, letter in enumerate(letters)
    )
    return jc.load_mjcf(f"<mujoco><worldbody>{bodies}</worldbody></mujoco>")


@pytest.mark.long
@pytest.mark.parametrize(
    "letters", ["ffh", "ffhh", "fffhhh", "hff", "ffb", "bbh", "fhfh", "bhbh", "hbhb", "bb", "fbh"]
)
def test_steps_along_tangents_are_those_of_mujoco(letters, rng):
    model = model_of(letters)
    mj = mujoco.MjModel.from_xml_string(
        "<mujoco><worldbody>"
        + "".join(f"<body>{JOINTS[letter]}{INERTIA}</body>" for letter in letters)
        + "</worldbody></mujoco>"
    )
    start, delta = mj.qpos0.copy(), 0.7 * rng.normal(size=mj.nv)
    mujoco.mj_integratePos(mj, start, rng.normal(size=mj.nv), 1.0)
    end = start.copy()
    mujoco.mj_integratePos(mj, end, delta, 1.0)
    found = jc.retract(model, jnp.asarray(start), jnp.asarray(delta))
    np.testing.assert_allclose(found, end, atol=1e-14)
    np.testing.assert_allclose(difference(model.system, jnp.asarray(start), found), delta, atol=1e-14)
    rate = jax.jvp(lambda h: jc.retract(model, jnp.asarray(start), h * delta), (0.0,), (1.0,))[1]
    np.testing.assert_allclose(
        position_rate(model.system, jnp.asarray(start), jnp.asarray(delta)), rate, atol=1e-14
    )


HEAVY = """
<mujoco>
  <worldbody>
    <body name="one" pos="0 0 1" gravcomp="0.3"><freejoint/>{inertia}
      <body name="two" pos="0 0 -0.4" gravcomp="1"><joint name="b" axis="0 1 0.2" armature="0.1"/>{inertia}
        <body name="three" pos="0.1 0 0"><joint name="c" type="slide" axis="1 0 0"/>{inertia}</body></body></body>
  </worldbody>
  <tendon><fixed name="t" armature="0.7"><joint joint="b" coef="0.5"/><joint joint="c" coef="-2"/></fixed></tendon>
  <actuator>
    <motor name="m" joint="b" gear="3" {rotor}/>
    <position name="p" tendon="t" kp="4"/>
    <motor name="j" jointinparent="c" gear="2"/>
  </actuator>
</mujoco>"""


def test_gravcomp_and_armature_of_tendons_and_actuators_are_those_of_mujoco(rng):
    rotor = 'armature="0.2"' if int(mujoco.__version__.partition(".")[0]) >= 4 else ""
    mj = mujoco.MjModel.from_xml_string(HEAVY.format(inertia=INERTIA, rotor=rotor))
    model = jc.load_mjcf(mj)
    errors = worst_errors(mj, model, rng, 3)
    assert max(errors.values()) < 1e-12, errors


SITES = """
<mujoco>
  <worldbody>
    <body name="one" pos="0 0 1"><joint name="a" axis="0 1 0.2"/>{inertia}<site name="s" pos="0.1 0 0" quat="1 0.2 0 0.1"/></body>
    <body name="two" pos="0.3 0 1"><freejoint/>{inertia}<site name="t" pos="0 0.2 0" quat="1 0 -0.3 0"/></body>
  </worldbody>
  <equality>{equalities}</equality>
</mujoco>"""


@pytest.mark.long
@pytest.mark.parametrize(
    ("equality", "count"),
    [
        ('<connect site1="s" site2="t"/>', 3),
        ('<weld site1="s" site2="t"/>', 6),
        ('<weld body1="one" body2="two" anchor="0.1 0.2 0" torquescale="0"/>', 3),
    ],
)
def test_loops_of_sites_and_welds_without_torque_are_those_of_mujoco(equality, count, rng):
    mj = mujoco.MjModel.from_xml_string(SITES.format(inertia=INERTIA, equalities=equality))
    model, data = jc.load_mjcf(mj), mujoco.MjData(mj)
    data.qpos[:] = mj.qpos0 + 0.3 * rng.normal(size=mj.nq)
    mujoco.mj_normalizeQuat(mj, data.qpos)
    mujoco.mj_forward(mj, data)
    terms = jc.constraint_terms(model, model.initial_state().replace(q=jnp.asarray(data.qpos)))
    J = np.array(data.efc_J).reshape(-1, mj.nv)
    assert terms.phi.size == count
    np.testing.assert_allclose(terms.phi[:3], data.efc_pos[:3], atol=1e-12)
    np.testing.assert_allclose(terms.G[:3], J[:3], atol=1e-12)
    if count == 6:  # the weld is closed where the frames of the sites coincide: turn the second body so
        site = [mj.site(name).id for name in "st"]
        world = data.site_xmat.reshape(-1, 3, 3)
        turn = world[site[0]] @ world[site[1]].T @ data.xmat[2].reshape(3, 3)
        shift = data.site_xpos[site[0]] - turn @ mj.site_pos[site[1]]
        quaternion = np.zeros(4)
        mujoco.mju_mat2Quat(quaternion, turn.ravel())
        q = np.concatenate([data.qpos[:1], shift, quaternion])
        closed = jc.constraint_terms(model, model.initial_state().replace(q=jnp.asarray(q)))
        np.testing.assert_allclose(closed.phi, 0.0, atol=1e-12)


@pytest.mark.filterwarnings("ignore:load_mjcf ignores option o_solref")
@pytest.mark.parametrize("option", ["", '<option o_margin="0.04"><flag override="enable"/></option>'])
def test_a_margin_moves_the_gap_as_in_mujoco(option):
    text = (
        f'<mujoco>{option}<worldbody><geom type="plane" size="1 1 1" margin="0.02" gap="0.003"/>'
        '<body pos="0 0 0.12"><freejoint/><geom size="0.1" margin="0.03" gap="0.001"/></body></worldbody></mujoco>'
    )
    mj = mujoco.MjModel.from_xml_string(text)
    data = mujoco.MjData(mj)
    mujoco.mj_forward(mj, data)
    model = jc.load_mjcf(mj)
    terms = jc.contact_terms(model, model.initial_state())
    np.testing.assert_allclose(terms.phi, data.contact.dist - data.contact.includemargin, atol=1e-15)


FLAGS = {
    "constraint": lambda tree, model: (
        not tree.loops and not tree.rubs and not tree.tendons[0].limited and not model.structure.pairs
    ),
    "equality": lambda tree, model: not tree.loops and tree.rubs,
    "frictionloss": lambda tree, model: not tree.rubs and tree.loops,
    "limit": lambda tree, model: not tree.tendons[0].limited and tree.loops,
}


@pytest.mark.long
@pytest.mark.parametrize("flag", FLAGS)
def test_flags_reach_loops_dry_friction_and_limits_of_tendons(flag):
    text = f"""<mujoco><option><flag {flag}="disable"/></option><worldbody><geom type="plane" size="1 1 1"/>
      <body name="b" pos="0 0 1"><joint name="j" frictionloss="5" range="-1 1" limited="true"/><geom size="0.1"/></body>
      </worldbody><equality><joint joint1="j"/></equality>
      <tendon><fixed limited="true" range="-1 1" frictionloss="2"><joint joint="j" coef="1"/></fixed></tendon></mujoco>"""
    model = jc.load_mjcf(text)
    assert FLAGS[flag](model.structure.tree, model)
